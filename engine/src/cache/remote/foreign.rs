//! Decides what may be used of an entry that another machine has stored. The entry is a claim by a stranger. It makes the
//! files that the command declares here, all of them or none, and prints only text to a terminal.
//!
//! ```text
//! a tier ─► signature ─► declaration ─► facts ─► blobs ─► the own store, marked as another's ─► declaration ─► facts ─► outputs
//! ```
//!
//! In this machine's store, such an entry stays marked: the declaration may differ between calls, and the trusted keys may
//! change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FilePath, PathBuf};

use super::wrapped::LARGEST_BLOB;
use crate::cache::compiler::action::Action;
use crate::cache::compiler::outputs::Role;
use crate::cache::lookup::destination::resolved;
use crate::cache::lookup::entry::{Content, Entry, Output, Print};
use crate::facts::definitions::Comments;
use crate::facts::fact::Fact;
use crate::facts::path::{lexically_normal, tidy, Path, Place};
use crate::facts::status::Stamp;
use crate::observe::access::Bytes;
use crate::trust::signature::{Distrust, PublicKey};

const MAGIC: &[u8; 4] = b"wff\x01";
/// Limit for all blobs of one entry, because they are held in memory.
pub const MOST_BYTES: u64 = 256 << 20;
/// No command takes longer, in microseconds. The times of hits are added up.
const LONGEST: u64 = 30 * 24 * 3600 * 1_000_000;
/// The kernel generates the content of files in these folders, and reading some of them blocks.
const UNREAL: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/dev/"];
/// The longest address of a hyperlink in a message.
const LONGEST_LINK: usize = 2048;

/// Why an entry is not used, as it is counted and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Distrusted(Distrust),
    NoEntry,
    Failed,
    Source,
    NoFile,
    Undeclared,
    Twice,
    Lacking,
    Program,
    Dated,
    Dependencies,
    TooMuch,
    Size,
    Unreal,
    Controls,
    Link,
    /// Whatever there is: the command declares no outputs.
    NothingDeclared,
}

impl Refusal {
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Distrusted(why) => why.name(),
            Refusal::NoEntry => "it is no entry",
            Refusal::Failed => "it is of a command that failed",
            Refusal::Source => "it does not depend on the command's source",
            Refusal::NoFile => "an output of it is no file",
            Refusal::Undeclared => "it names an output that is not declared",
            Refusal::Twice => "it names an output twice",
            Refusal::Lacking => "it lacks an output that is declared",
            Refusal::Program => "it makes a program of what is none",
            Refusal::Dated => "it sets the time of an output",
            Refusal::Dependencies => "a dependency file of it has more than names of files",
            Refusal::TooMuch => "it claims too much",
            Refusal::Size => "a blob is not as large as it says",
            Refusal::Unreal => "it depends on files of the kernel",
            Refusal::Controls => "it would control the terminal",
            Refusal::Link => "somebody else's link is on the way to an output",
            Refusal::NothingDeclared => "the command's outputs are not declared",
        }
    }
}

/// An entry in this machine's store.
pub struct Stored {
    pub origin: Origin,
    pub entry: Entry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was observed on this machine.
    Own,
    /// It came from a tier, signed by this key.
    Foreign(Option<PublicKey>),
}

impl Stored {
    pub fn decode(bytes: &[u8]) -> Option<Stored> {
        let (origin, bytes) = match bytes.strip_prefix(MAGIC) {
            None => (Origin::Own, bytes),
            Some(rest) => match rest.split_first()? {
                (0, rest) => (Origin::Foreign(None), rest),
                (1, rest) => {
                    let (signer, rest) = rest.split_first_chunk::<{ PublicKey::SIZE }>()?;
                    (Origin::Foreign(Some(PublicKey(*signer))), rest)
                }
                _ => return None,
            },
        };
        let entry = Entry::decode(bytes).ok()?;
        Some(Stored { origin, entry })
    }

    /// The bytes to store for an entry from a tier.
    pub fn encode_foreign(signer: Option<PublicKey>, entry: &[u8]) -> Bytes {
        let mut bytes = MAGIC.to_vec();
        bytes.push(u8::from(signer.is_some()));
        signer.iter().for_each(|signer| bytes.extend(signer.0));
        bytes.extend(entry);
        bytes
    }
}

/// The outputs that a command declares.
pub struct Declaration<'a> {
    pub folder: &'a [u8],
    pub action: &'a Action,
    /// Those that its client has named.
    pub outputs: &'a [Bytes],
}

impl Declaration<'_> {
    /// Nothing can be used for a command whose outputs are not known.
    pub fn is_empty(&self) -> bool {
        let knows = &self.action.knows;
        knows.outputs.is_empty() && knows.declared.is_none() && self.outputs.is_empty()
    }

    fn absolute(&self, name: &[u8]) -> PathBuf {
        let folder = FilePath::new(OsStr::from_bytes(self.folder));
        let path = folder.join(OsStr::from_bytes(name));
        PathBuf::from(OsStr::from_bytes(&tidy(path.as_os_str().as_bytes())))
    }

    /// The outputs without a number.
    fn named(&self) -> Vec<PathBuf> {
        let knows = &self.action.knows;
        let all = knows.declared.iter().chain(self.outputs);
        let mut named: Vec<PathBuf> = Vec::new();
        for path in all.map(|name| self.absolute(name)) {
            if !named.contains(&path) {
                named.push(path);
            }
        }
        named
    }

    /// The place of each output of an entry, in its order, if the entry has exactly the declared outputs.
    pub fn places(&self, entry: &Entry) -> Result<Vec<PathBuf>, Refusal> {
        let knows = &self.action.knows;
        let named = self.named();
        if entry.exit != 0 {
            return Err(Refusal::Failed);
        }
        require_bounds(entry)?;
        let place = Place::new(self.folder, knows.bases.iter().map(Vec::as_slice));
        if entry.facts.iter().any(|fact| is_unreal(fact, &place)) {
            return Err(Refusal::Unreal);
        }
        let now = Stamp::now();
        let mut numbers = vec![false; knows.outputs.len()];
        let mut names = vec![false; named.len()];
        let mut places = Vec::with_capacity(entry.outputs.len());
        for output in &entry.outputs {
            let Content::File { is_program, .. } = output.content else {
                return Err(Refusal::NoFile);
            };
            if knows.compiler.is_some() && is_program {
                return Err(Refusal::Program);
            }
            // Compilers set no times. With one that is to come, the output would be taken for new after each edit.
            if output
                .dated
                .is_some_and(|dated| knows.compiler.is_some() || dated > now)
            {
                return Err(Refusal::Dated);
            }
            let (is_taken, path) = match output.number {
                Some(number) => {
                    let known = knows.outputs.get(number).ok_or(Refusal::Undeclared)?;
                    (&mut numbers[number], self.absolute(&known.path))
                }
                None => {
                    let at = position(&named, &place.absolute(&output.path)).ok_or(Refusal::Undeclared)?;
                    (&mut names[at], named[at].clone())
                }
            };
            if std::mem::replace(is_taken, true) || places.contains(&path) {
                return Err(Refusal::Twice);
            }
            places.push(path);
        }
        let lacks_known = knows
            .outputs
            .iter()
            .zip(&numbers)
            .any(|(known, is_there)| known.certain && !is_there);
        // Other declared outputs of a compile are made by other actions of its client.
        let lacks_named = knows.compiler.is_none() && names.contains(&false);
        if lacks_known || lacks_named {
            return Err(Refusal::Lacking);
        }
        match self.reads_source(entry, &place) {
            true => Ok(places),
            false => Err(Refusal::Source),
        }
    }

    /// Whether an entry depends on the content of the file that the command compiles. All facts of another command's entry
    /// may be true here, too.
    fn reads_source(&self, entry: &Entry, place: &Place) -> bool {
        let Some(source) = self.action.source.as_ref().map(|source| self.absolute(source)) else {
            return true;
        };
        let mut files = entry.facts.iter().filter_map(content_of);
        if files.any(|path| place.absolute(path) == source.as_os_str().as_bytes()) {
            return true;
        }
        let identity = |path: &FilePath| path.metadata().map(|found| (found.dev(), found.ino())).ok();
        match source.metadata() {
            Ok(found) if found.is_file() => {
                let mut files = entry.facts.iter().filter_map(content_of);
                let same = Some((found.dev(), found.ino()));
                files.any(|path| identity(FilePath::new(OsStr::from_bytes(&place.absolute(path)))) == same)
            }
            // A device has no content on which anything could depend.
            found => found.is_ok(),
        }
    }

    /// Such a file is stored with placeholders, so its size differs.
    pub fn is_of_dependencies(&self, output: &Output) -> bool {
        let known = output.number.and_then(|number| self.action.knows.outputs.get(number));
        known.is_some_and(|known| known.role == Role::Dependencies)
    }
}

/// The file of which the content counts for a fact. To say that files are alike is not enough.
fn content_of(fact: &Fact) -> Option<&Path> {
    match fact {
        Fact::File { path, .. } => Some(path),
        Fact::Except { path, unused, .. } => (unused.comments != Comments::Directives).then_some(path),
        _ => None,
    }
}

/// The declaration that a path matches: by name, or because it is in the same folder under the same name.
fn position(named: &[PathBuf], path: &[u8]) -> Option<usize> {
    let same = named.iter().position(|name| name.as_os_str().as_bytes() == path);
    same.or_else(|| {
        let own = FilePath::new(OsStr::from_bytes(path)).file_name()?;
        let mut alike = named
            .iter()
            .enumerate()
            .filter(|(_, name)| name.file_name() == Some(own));
        let found = resolved(path)?;
        let (at, _) = alike.find(|(_, name)| resolved(name.as_os_str().as_bytes()).as_ref() == Some(&found))?;
        Some(at)
    })
}

fn require_bounds(entry: &Entry) -> Result<(), Refusal> {
    if entry.wall.max(entry.processor) > LONGEST {
        return Err(Refusal::TooMuch);
    }
    let mut left = MOST_BYTES;
    let prints = [&entry.stdout, &entry.stderr].map(|print| match print {
        Print::Inline(_) => 0,
        Print::Blob { size, .. } => *size,
    });
    for size in entry.outputs.iter().map(Output::size).chain(prints) {
        if size > LARGEST_BLOB as u64 {
            return Err(Refusal::TooMuch);
        }
        left = left.checked_sub(size).ok_or(Refusal::TooMuch)?;
    }
    Ok(())
}

/// Whether it may be given to other machines.
pub fn is_within_bounds(entry: &Entry) -> bool {
    require_bounds(entry).is_ok()
}

/// Whether a fact of it can be checked only by reading a file that the kernel generates.
fn is_unreal(fact: &Fact, place: &Place) -> bool {
    let is_there = |path: &Path| {
        let name = lexically_normal(&place.absolute(path));
        UNREAL.iter().any(|root| name.starts_with(root))
    };
    match fact {
        Fact::File { path, .. }
        | Fact::Listing { path, .. }
        | Fact::Crates { path, .. }
        | Fact::Except { path, .. } => is_there(path),
        Fact::Twins { twins } => twins.iter().any(|twin| is_there(&twin.path)),
        _ => false,
    }
}

/// Whether a text only shows text on a terminal: lines, tabs, colors and other attributes, deleting to the end of a line
/// (compilers do that after each color), and hyperlinks to the web.
pub fn is_calm(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'\n' | b'\t' | b'\x0c' | b' '..=b'~' => after,
            b'\r' if after.first() == Some(&b'\n') => after,
            0x1b => match after_sequence(after) {
                Some(after) => after,
                None => return false,
            },
            0x80.. => match after_character(rest) {
                Some(after) => after,
                None => return false,
            },
            _ => return false,
        };
    }
    true
}

/// The rest of a text after a character beyond ASCII that is no control character.
fn after_character(text: &[u8]) -> Option<&[u8]> {
    let size = (2..=4).find(|size| text.get(..*size).is_some_and(|part| std::str::from_utf8(part).is_ok()))?;
    let (character, after) = text.split_at(size);
    let character = std::str::from_utf8(character).ok()?.chars().next()?;
    (!character.is_control()).then_some(after)
}

/// The rest of a text after an escape sequence that only changes how text looks.
fn after_sequence(text: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = text.strip_prefix(b"[") {
        let end = rest
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
        return (end <= 64 && matches!(rest[end], b'm' | b'K')).then(|| &rest[end + 1..]);
    }
    let rest = text.strip_prefix(b"]8;;")?;
    let end = rest
        .iter()
        .position(|byte| !matches!(byte, b'!'..=b'~') || *byte == b'\\')?;
    let (address, rest) = rest.split_at(end);
    let is_good = address.is_empty() || address.starts_with(b"https://") || address.starts_with(b"http://");
    let rest = rest.strip_prefix(b"\x07").or_else(|| rest.strip_prefix(b"\x1b\\"))?;
    (is_good && end <= LONGEST_LINK).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_compilers_are_calm() {
        for text in [
            "",
            "a.c:1:5: warning: \u{2018}x\u{2019} is not used\n    1 | \tint x;\r\n",
            "\x1b[01m\x1b[Ka.c:1:\x1b[m\x1b[K \x1b[38:5:1;4mred\x1b[0m\n",
            "[\x1b]8;;https://gcc.gnu.org/x#y\x1b\\-Wunused\x1b]8;;\x1b\\]",
            "[\x1b]8;;https://gcc.gnu.org/x\x07-W\x1b]8;;\x07]",
            "\u{1f600} \u{e9}",
        ] {
            assert!(is_calm(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn control_sequences_are_not_calm() {
        let all: [&[u8]; 20] = [
            b"\x1b",
            b"\x1b[",
            b"\x1b[2J",
            b"\x1b[1;1H",
            b"\x1b[?1049h",
            b"\x1b[6n",
            b"\x1bc",
            b"\x1b]0;title\x07",
            b"\x1b]52;c;cm0gLXJm\x07",
            b"\x1bP+q544e\x1b\\",
            b"\x1b]8;;file:///etc/passwd\x07",
            b"\x1b]8;;https://x\x1b[2J",
            b"\x1b]8;id=1;https://x\x07",
            b"\x07",
            b"\x08\x08",
            b"safe\roops",
            b"\x7f",
            b"\x9b2J",
            b"\xc2\x9b2J",
            b"\xff",
        ];
        for text in all {
            assert!(!is_calm(text), "{text:?}");
        }
    }

    #[test]
    fn an_entry_stays_marked_in_the_store() {
        let entry = Entry::default().encode();
        let signer = PublicKey([7; 32]);
        for (bytes, origin) in [
            (entry.clone(), Origin::Own),
            (Stored::encode_foreign(None, &entry), Origin::Foreign(None)),
            (
                Stored::encode_foreign(Some(signer), &entry),
                Origin::Foreign(Some(signer)),
            ),
        ] {
            assert_eq!(Stored::decode(&bytes).map(|stored| stored.origin), Some(origin));
            assert!(Stored::decode(&bytes[..bytes.len() - 1]).is_none());
        }
        assert!(Stored::decode(&[&MAGIC[..], &[2], &entry].concat()).is_none());
    }
}
