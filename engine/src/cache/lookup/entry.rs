//! An entry: what a command depended on, and what it made. Its form as bytes is in docs/entry-format.md.
//!
//! Pure. Bytes that are no entry of this version are refused, without a panic, and without allocating more than the bytes
//! can contain.

use super::packed::{Garbled, Packer, Unpacker};
use crate::bytes::digest::Digest;
use crate::cache::story::MOST_FACTS;
use crate::facts::definitions::{Comments, Guard, Unused, MOST_NAMES};
use crate::facts::fact::{Change, Fact, Kind, Twin};
use crate::facts::path::{is_beside, Path, Root};
use crate::facts::status::Stamp;
use crate::facts::world::View;

const MAGIC: &[u8; 4] = b"wfe\x02";
const MOST_OUTPUTS: usize = 4096;
/// Comes before an output whose time was set.
const DATED: u8 = 4;

/// The content of a path when the command has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A file. Its other permissions follow from the umask of the command for which it is restored.
    File {
        digest: Digest,
        size: u64,
        is_program: bool,
    },
    Folder,
    Link {
        text: Vec<u8>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub path: Path,
    /// The number of the output among those that the command line names. Such an output is written to the place that the
    /// next command line names.
    pub number: Option<usize>,
    pub content: Content,
    /// When the file says that it was written, if the command has set that time.
    pub dated: Option<Stamp>,
}

impl Output {
    /// The size of the blob's content.
    pub fn size(&self) -> u64 {
        match self.content {
            Content::File { size, .. } => size,
            Content::Folder | Content::Link { .. } => 0,
        }
    }
}

/// The output that a command printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Print {
    Inline(Vec<u8>),
    Blob { digest: Digest, size: u64 },
}

impl Default for Print {
    fn default() -> Print {
        Print::Inline(Vec::new())
    }
}

impl Print {
    pub fn digest(&self) -> Digest {
        match self {
            Print::Inline(bytes) => Digest::of(bytes),
            Print::Blob { digest, .. } => *digest,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// In the order that `story` produces.
    pub facts: Vec<Fact>,
    pub outputs: Vec<Output>,
    pub stdout: Print,
    pub stderr: Print,
    /// The exit status. Entries of failed commands are stored for callers that want them.
    pub exit: u8,
    /// The microseconds that the command took, by the clock and of processor time.
    pub wall: u64,
    pub processor: u64,
}

impl Entry {
    /// Whether all facts are true; otherwise the first one that is not.
    pub fn check(&self, view: &mut View) -> Result<(), Change> {
        view.begin();
        self.facts.iter().try_for_each(|fact| fact.check(view))?;
        self.find_beside(view).map_or(Ok(()), Err)
    }

    /// All facts that are not true any more, for people, and how they differ. One change is of no single fact.
    pub fn changes(&self, view: &mut View) -> Vec<(Option<&Fact>, Change)> {
        view.begin();
        let changes = self
            .facts
            .iter()
            .filter_map(|fact| Some((Some(fact), fact.check(view).err()?)));
        let mut changes: Vec<_> = changes.collect();
        changes.extend(self.find_beside(view).map(|change| (None, change)));
        changes
    }

    /// Something on which the command depended beside a base of this command: the base's prefix map would change its name.
    fn find_beside(&self, view: &View) -> Option<Change> {
        let bases = view.place.bases();
        if bases.is_empty() || self.facts.iter().any(Fact::is_about_bases) {
            return None;
        }
        let mut paths = self.facts.iter().filter_map(Fact::path);
        let beside = paths.find(|path| path.root == Root::Absolute && is_beside(&path.rest, bases))?;
        let path = view.place.show(beside);
        Some(Change::Beside { path })
    }

    /// The blobs without which the entry cannot be used.
    pub fn blobs(&self) -> Vec<Digest> {
        let outputs = self.outputs.iter().filter_map(|output| match &output.content {
            Content::File { digest, .. } => Some(*digest),
            _ => None,
        });
        let prints = [&self.stdout, &self.stderr]
            .into_iter()
            .filter_map(|print| match print {
                Print::Blob { digest, .. } => Some(*digest),
                Print::Inline(_) => None,
            });
        outputs.chain(prints).collect()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut packer = Packer::default();
        packer.raw(MAGIC);
        packer.byte(self.exit);
        packer.number(self.wall);
        packer.number(self.processor);
        packer.number(self.facts.len() as u64);
        self.facts.iter().for_each(|fact| pack_fact(fact, &mut packer));
        packer.number(self.outputs.len() as u64);
        self.outputs.iter().for_each(|output| pack_output(output, &mut packer));
        pack_print(&self.stdout, &mut packer);
        pack_print(&self.stderr, &mut packer);
        packer.finish()
    }

    pub fn decode(bytes: &[u8]) -> Result<Entry, Garbled> {
        let mut unpacker = Unpacker::new(bytes);
        let from = &mut unpacker;
        if from.raw(MAGIC.len())? != MAGIC {
            return Err(Garbled);
        }
        let (exit, wall, processor) = (from.byte()?, from.number()?, from.number()?);
        let entry = Entry {
            exit,
            wall,
            processor,
            facts: list(from, MOST_FACTS, unpack_fact)?,
            outputs: list(from, MOST_OUTPUTS, unpack_output)?,
            stdout: unpack_print(from)?,
            stderr: unpack_print(from)?,
        };
        unpacker.is_empty().then_some(entry).ok_or(Garbled)
    }
}

fn list<T>(
    from: &mut Unpacker,
    most: usize,
    item: impl Fn(&mut Unpacker) -> Result<T, Garbled>,
) -> Result<Vec<T>, Garbled> {
    let count = from.count()?;
    if count > most {
        return Err(Garbled);
    }
    (0..count).map(|_| item(from)).collect()
}

// Each fact begins with a byte: its kind in the low four bits, and above them perhaps a flag.
const VARIABLE: u8 = 0;
const NAMES: u8 = 1;
const FOLDER: u8 = 2;
const FILE: u8 = 3;
const TWINS: u8 = 4;
const THERE: u8 = 5;
const STATUS: u8 = 6;
const TARGET: u8 = 7;
const RESOLVED: u8 = 8;
const LISTING: u8 = 9;
const ABSENT: u8 = 10;
const REFUSED: u8 = 11;
const EXCEPT: u8 = 12;
const CRATES: u8 = 13;

fn head(what: u8, flag: bool) -> u8 {
    what | u8::from(flag) << 4
}

fn pack_fact(fact: &Fact, to: &mut Packer) {
    match fact {
        Fact::Variable { name, value } => {
            to.byte(head(VARIABLE, value.is_some()));
            to.text(name);
            value.iter().for_each(|value| to.text(value));
        }
        Fact::Names { digest } => {
            to.byte(NAMES);
            to.digest(digest);
        }
        Fact::Folder { path } => {
            to.byte(FOLDER);
            to.text(path);
        }
        Fact::File { path, digest } => {
            to.byte(FILE);
            to.path(path);
            to.digest(digest);
        }
        Fact::Twins { twins } => {
            to.byte(TWINS);
            to.number(twins.len() as u64);
            for twin in twins {
                to.path(&twin.path);
                to.number(u64::from(twin.file));
                to.number(u64::from(twin.second));
            }
        }
        Fact::There {
            path,
            kind,
            follows,
            number,
        } => {
            to.byte(head(THERE, *follows));
            to.byte(*kind as u8);
            to.number(u64::from(*number));
            to.path(path);
        }
        Fact::Status {
            path,
            follows,
            size,
            mode,
            seconds,
            nanoseconds,
        } => {
            to.byte(head(STATUS, *follows));
            to.number(*size);
            to.number(u64::from(*mode));
            to.signed(*seconds);
            to.number(u64::from(*nanoseconds));
            to.path(path);
        }
        Fact::Target { path, text } => {
            to.byte(TARGET);
            to.path(path);
            to.text(text);
        }
        Fact::Resolved { path, real } => {
            to.byte(RESOLVED);
            to.path(path);
            to.path(real);
        }
        Fact::Listing { path, digest, in_order } => {
            to.byte(head(LISTING, *in_order));
            to.path(path);
            to.digest(digest);
        }
        Fact::Crates {
            path,
            beginnings,
            digest,
        } => {
            to.byte(CRATES);
            to.path(path);
            to.number(beginnings.len() as u64);
            beginnings.iter().for_each(|name| to.text(name));
            to.digest(digest);
        }
        Fact::Absent { path, follows } => {
            to.byte(head(ABSENT, *follows));
            to.path(path);
        }
        Fact::Refused { path, opens, error } => {
            to.byte(head(REFUSED, *opens));
            to.number(u64::from(*error));
            to.path(path);
        }
        Fact::Except { path, unused, digest } => {
            to.byte(head(EXCEPT, unused.guard.is_some()));
            to.path(path);
            to.byte(unused.comments as u8);
            to.number(unused.macros.len() as u64);
            unused.macros.iter().for_each(|name| to.text(name));
            if let Some(guard) = &unused.guard {
                to.text(&guard.before);
                to.byte(guard.folder);
                to.text(&guard.after);
            }
            to.digest(digest);
        }
    }
}

fn unpack_fact(from: &mut Unpacker) -> Result<Fact, Garbled> {
    let head = from.byte()?;
    let one = head & 0x10 != 0;
    let flags = match head & 0x0f {
        VARIABLE | THERE | STATUS | LISTING | ABSENT | REFUSED | EXCEPT => 0x10,
        _ => 0,
    };
    if head & 0xf0 & !flags != 0 {
        return Err(Garbled);
    }
    Ok(match head & 0x0f {
        VARIABLE => Fact::Variable {
            name: from.text()?.to_vec(),
            value: one.then(|| from.text().map(<[u8]>::to_vec)).transpose()?,
        },
        NAMES => Fact::Names { digest: from.digest()? },
        FOLDER => Fact::Folder {
            path: from.text()?.to_vec(),
        },
        FILE => Fact::File {
            path: from.path()?,
            digest: from.digest()?,
        },
        TWINS => Fact::Twins {
            twins: unpack_twins(from)?,
        },
        THERE => Fact::There {
            follows: one,
            kind: Kind::of_number(from.byte()?).ok_or(Garbled)?,
            number: from.small()?,
            path: from.path()?,
        },
        STATUS => Fact::Status {
            follows: one,
            size: from.number()?,
            mode: from.small()?,
            seconds: from.signed()?,
            nanoseconds: from.small()?,
            path: from.path()?,
        },
        TARGET => Fact::Target {
            path: from.path()?,
            text: from.text()?.to_vec(),
        },
        RESOLVED => Fact::Resolved {
            path: from.path()?,
            real: from.path()?,
        },
        LISTING => Fact::Listing {
            in_order: one,
            path: from.path()?,
            digest: from.digest()?,
        },
        CRATES => Fact::Crates {
            path: from.path()?,
            beginnings: list(from, MOST_FACTS, |from| from.text().map(<[u8]>::to_vec))?,
            digest: from.digest()?,
        },
        ABSENT => Fact::Absent {
            follows: one,
            path: from.path()?,
        },
        REFUSED => Fact::Refused {
            opens: one,
            error: from.small()?,
            path: from.path()?,
        },
        EXCEPT => Fact::Except {
            path: from.path()?,
            unused: Unused {
                comments: Comments::of_number(from.byte()?).ok_or(Garbled)?,
                macros: list(from, MOST_NAMES, |from| from.text().map(<[u8]>::to_vec))?,
                guard: one.then(|| unpack_guard(from)).transpose()?,
            },
            digest: from.digest()?,
        },
        _ => return Err(Garbled),
    })
}

fn unpack_guard(from: &mut Unpacker) -> Result<Guard, Garbled> {
    Ok(Guard {
        before: from.text()?.to_vec(),
        folder: from.byte()?,
        after: from.text()?.to_vec(),
    })
}

fn unpack_twins(from: &mut Unpacker) -> Result<Vec<Twin>, Garbled> {
    let twins = list(from, MOST_FACTS, |from| {
        Ok(Twin {
            path: from.path()?,
            file: from.small()?,
            second: from.small()?,
        })
    })?;
    let are_numbered =
        is_in_order(twins.iter().map(|twin| twin.file)) && is_in_order(twins.iter().map(|twin| twin.second));
    are_numbered.then_some(twins).ok_or(Garbled)
}

/// Each number is an earlier one, or the next new one.
fn is_in_order(mut numbers: impl Iterator<Item = u32>) -> bool {
    let mut next = 0;
    numbers.all(|number| {
        let is_next = number == next;
        next += u32::from(is_next);
        is_next || number < next
    })
}

fn pack_output(output: &Output, to: &mut Packer) {
    if let Some(dated) = output.dated {
        to.byte(DATED);
        to.number(dated.seconds as u64);
        to.number(dated.nanoseconds.into());
    }
    match &output.content {
        Content::File {
            digest,
            size,
            is_program,
        } => {
            to.byte(u8::from(*is_program));
            to.digest(digest);
            to.number(*size);
        }
        Content::Folder => to.byte(2),
        Content::Link { text } => {
            to.byte(3);
            to.text(text);
        }
    }
    to.path(&output.path);
    to.number(output.number.map_or(0, |number| number as u64 + 1));
}

fn unpack_output(from: &mut Unpacker) -> Result<Output, Garbled> {
    let mut what = from.byte()?;
    let mut dated = None;
    if what == DATED {
        let (seconds, nanoseconds) = (from.number()? as i64, from.small::<u32>()?);
        dated = Some(Stamp { seconds, nanoseconds });
        what = from.byte()?;
    }
    let content = match what {
        what @ (0 | 1) => Content::File {
            is_program: what == 1,
            digest: from.digest()?,
            size: from.number()?,
        },
        2 => Content::Folder,
        3 => Content::Link {
            text: from.text()?.to_vec(),
        },
        _ => return Err(Garbled),
    };
    let path = from.path()?;
    let number = from.small::<usize>()?.checked_sub(1);
    Ok(Output {
        path,
        number,
        content,
        dated,
    })
}

fn pack_print(print: &Print, to: &mut Packer) {
    match print {
        Print::Inline(text) => {
            to.byte(0);
            to.text(text);
        }
        Print::Blob { digest, size } => {
            to.byte(1);
            to.digest(digest);
            to.number(*size);
        }
    }
}

fn unpack_print(from: &mut Unpacker) -> Result<Print, Garbled> {
    match from.byte()? {
        0 => Ok(Print::Inline(from.text()?.to_vec())),
        1 => Ok(Print::Blob {
            digest: from.digest()?,
            size: from.number()?,
        }),
        _ => Err(Garbled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::test_support::Dice;
    use crate::facts::path::Root;

    fn path(root: Root, rest: &str) -> Path {
        let rest = rest.into();
        Path { root, rest }
    }

    fn twin(path: Path, file: u32, second: u32) -> Twin {
        Twin { path, file, second }
    }

    /// An entry with one fact of each kind.
    fn entry() -> Entry {
        let there = path(Root::Absolute, "/usr/include");
        let here = || path(Root::Folder, "src/a.c");
        let digest = Digest::of(b"x");
        let text = b"some text".to_vec();
        let output = |name, content| Output {
            path: path(Root::Folder, name),
            number: None,
            content,
            dated: None,
        };
        let file = Content::File {
            digest,
            size: 77,
            is_program: true,
        };
        Entry {
            facts: vec![
                Fact::Variable {
                    name: b"LANG".to_vec(),
                    value: None,
                },
                Fact::Variable {
                    name: b"PATH".to_vec(),
                    value: Some(b"/bin".to_vec()),
                },
                Fact::Names { digest },
                Fact::Folder { path: b"/w".to_vec() },
                Fact::File { path: here(), digest },
                Fact::Twins {
                    twins: vec![
                        twin(here(), 0, 0),
                        twin(path(Root::Base(0), "b.h"), 1, 0),
                        twin(path(Root::Base(1), "c.h"), 0, 1),
                    ],
                },
                Fact::There {
                    path: there.clone(),
                    kind: Kind::Folder,
                    follows: true,
                    number: 300,
                },
                Fact::Status {
                    path: here(),
                    follows: false,
                    size: 1 << 40,
                    mode: 0o100_644,
                    seconds: -1,
                    nanoseconds: 999_999_999,
                },
                Fact::Target {
                    path: here(),
                    text: text.clone(),
                },
                Fact::Resolved {
                    path: here(),
                    real: there.clone(),
                },
                Fact::Listing {
                    path: there.clone(),
                    digest,
                    in_order: true,
                },
                Fact::Crates {
                    path: there.clone(),
                    beginnings: vec![b"libserde-0123".to_vec(), b"libstd".to_vec()],
                    digest,
                },
                Fact::Absent {
                    path: there.clone(),
                    follows: true,
                },
                Fact::Refused {
                    path: there,
                    opens: true,
                    error: 13,
                },
                Fact::Except {
                    path: here(),
                    unused: Unused {
                        comments: Comments::Texts,
                        macros: vec![b"A".to_vec(), b"SRCDIR".to_vec()],
                        guard: None,
                    },
                    digest,
                },
                Fact::Except {
                    path: here(),
                    unused: Unused {
                        comments: Comments::Nothing,
                        macros: Vec::new(),
                        guard: Some(Guard {
                            before: b"YY".to_vec(),
                            folder: 1,
                            after: b"_H".to_vec(),
                        }),
                    },
                    digest,
                },
            ],
            outputs: vec![
                output("out", Content::Folder),
                output("out/a.o", file.clone()),
                Output {
                    dated: Some(Stamp {
                        seconds: -1,
                        nanoseconds: 999_999_999,
                    }),
                    ..output("out/a.txt", file)
                },
                output("out/b.o", Content::Link { text: text.clone() }),
            ],
            stdout: Print::Inline(text),
            stderr: Print::Blob { digest, size: 5 },
            exit: 3,
            wall: 1_000_000,
            processor: 7,
        }
    }

    #[test]
    fn an_entry_is_decoded_as_it_was_encoded() {
        assert_eq!(Entry::decode(&entry().encode()), Ok(entry()));
        assert_eq!(Entry::decode(&Entry::default().encode()), Ok(Entry::default()));
    }

    #[test]
    fn an_entry_that_is_cut_or_too_long_is_refused() {
        let bytes = entry().encode();
        for size in 0..bytes.len() {
            assert_eq!(Entry::decode(&bytes[..size]), Err(Garbled), "{size}");
        }
        assert_eq!(Entry::decode(&[bytes, vec![0]].concat()), Err(Garbled));
    }

    #[test]
    fn damaged_bytes_never_panic_and_a_decoded_entry_can_be_encoded() {
        let whole = entry().encode();
        for seed in 0..40_000 {
            let mut dice = Dice(seed);
            let mut bytes = whole.clone();
            for _ in 0..=dice.below(4) {
                let at = dice.below(bytes.len());
                match dice.below(4) {
                    0 => bytes[at] = dice.below(256) as u8,
                    1 => bytes[at] ^= 1 << dice.below(8),
                    2 => drop(bytes.drain(at..(at + dice.below(9)).min(bytes.len()))),
                    _ => bytes.insert(at, 0xff),
                }
            }
            if let Ok(entry) = Entry::decode(&bytes) {
                assert_eq!(Entry::decode(&entry.encode()).as_ref(), Ok(&entry), "seed {seed}");
            }
        }
    }

    #[test]
    fn twins_must_be_numbered_in_their_order() {
        let is_good = |numbers: &[(u32, u32)]| {
            let named = |(file, second): &(u32, u32)| twin(path(Root::Folder, "x"), *file, *second);
            let twins = numbers.iter().map(named).collect();
            let facts = vec![Fact::Twins { twins }];
            let entry = Entry {
                facts,
                ..Entry::default()
            };
            Entry::decode(&entry.encode()) == Ok(entry)
        };
        assert!(is_good(&[(0, 0), (1, 0), (1, 1), (2, 0)]));
        for wrong in [&[(1, 0)], &[(0, 1)], &[(0, 0), (2, 0)][..], &[(0, 0), (0, u32::MAX)]] {
            assert!(!is_good(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn an_entry_of_another_version_is_refused() {
        let mut bytes = entry().encode();
        for version in [0, MAGIC[3] - 1, MAGIC[3] + 1] {
            bytes[3] = version;
            assert_eq!(Entry::decode(&bytes), Err(Garbled), "{version}");
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_that_follow_is_refused_before_anything_is_allocated() {
        let mut bytes = [MAGIC.as_slice(), &[0, 0, 0]].concat();
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert_eq!(Entry::decode(&bytes), Err(Garbled));
    }

    #[test]
    fn an_entry_names_the_blobs_that_it_needs() {
        assert_eq!(entry().blobs(), [Digest::of(b"x"); 3]);
    }
}
