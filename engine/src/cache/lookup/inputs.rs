//! The inputs of a command, for a client that checks by itself whether they have changed: each fact as a text.
//!
//! Most commands of a build read the same files, so a client numbers the texts that it was sent. A text is the same for
//! each command that depends on the same thing in the same state. `docs/protocol.md` has the grammar, and says how each
//! text is checked. A text may demand more than its fact, but never less: then the client only asks the engine once more
//! than needed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::entry::{Content, Entry};
use crate::bytes::digest::Digest;
use crate::facts::environment::{self, Environment, BASES, CHECKOUT, INPUT, PROOF, TERMINAL};
use crate::facts::exception::{is_asked_by_libc, ALONG, ALWAYS_ASKED, LIBC, LIBC_NAMES, LIBC_PREFIXES, SEARCHED};
use crate::facts::fact::{Fact, Kind};
use crate::facts::file_view::status;
use crate::facts::path::{lexically_normal, split, Path};
use crate::facts::status::{Stamp, Status};
use crate::facts::world::View;
use crate::observe::access::Bytes;
use crate::wire::Strings;

/// The kernel's clock for stamps advances within this time, even if it is slow.
const TICK: Duration = Duration::from_millis(11);
/// If a client's files change all the time, not all of their stamps are kept.
const MOST_BYTES: usize = 256 << 20;
/// A larger file on a file system that is not trusted is not read again.
const LARGEST_READ: u64 = 256 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    pub texts: Vec<Bytes>,
    /// The digest of all outputs of the command.
    pub result: Digest,
}

impl Inputs {
    /// For an entry whose facts are true now. `None` if, for longer than a moment, a file's state cannot be expressed.
    pub fn of(entry: &Entry, is_compiler: bool, view: &mut View) -> Option<Inputs> {
        let texts = Inputs::texts(&entry.facts, is_compiler, view)?;
        Some(Inputs::with_result(texts, entry))
    }

    pub fn with_result(texts: Vec<Bytes>, entry: &Entry) -> Inputs {
        let result = result(entry);
        Inputs { texts, result }
    }

    /// The first text is about variables, and always there.
    pub fn texts(facts: &[Fact], is_compiler: bool, view: &mut View) -> Option<Vec<Bytes>> {
        let mut texts = Vec::with_capacity(facts.len() + 1);
        texts.push(variables(facts, is_compiler, view.place.folder(), view.environment));
        let mut folder = Bytes::new();
        for fact in facts {
            match fact {
                // A client knows itself which folder it uses.
                Fact::Variable { .. } | Fact::Names { .. } | Fact::Folder { .. } => {}
                Fact::File { path, digest } => texts.push(file(path, digest, view)?),
                // A client compares the whole file.
                Fact::Except { path, .. } => {
                    let (_, digest) = view.digest(path).ok()?;
                    texts.push(file(path, &digest, view)?);
                }
                Fact::Twins { twins } => {
                    for twin in twins {
                        let is = view.status(&twin.path).ok()?;
                        texts.push(stamped(&is, &view.place.absolute(&twin.path)));
                    }
                }
                Fact::There {
                    path, kind, follows, ..
                } => texts.push(there(path, *kind, *follows, view)?),
                Fact::Status {
                    path,
                    follows,
                    size,
                    mode,
                    seconds,
                    nanoseconds,
                } => {
                    let written = i128::from(*seconds) * 1_000_000_000 + i128::from(*nanoseconds);
                    let head = format!("!{},{mode},{size},{written},", u8::from(*follows));
                    texts.push(about(&head, path, view));
                }
                Fact::Target { path, text } => {
                    let head = [format!("@{},", text.len()).as_bytes(), text].concat();
                    texts.push([head, view.place.absolute(path)].concat());
                }
                Fact::Resolved { path, real } => {
                    let real = lexically_normal(&view.place.absolute(real));
                    let head = [format!("~{},", real.len()).as_bytes(), &real].concat();
                    texts.push([head, view.place.absolute(path)].concat());
                }
                Fact::Listing { path, digest, in_order } => {
                    let head = format!("[{},{digest},", u8::from(*in_order));
                    texts.push(about(&head, path, view));
                }
                // A client knows nothing of crates.
                Fact::Crates { .. } => return None,
                Fact::Absent { path, follows } => {
                    let absolute = view.place.absolute(path);
                    let Some((parent, name)) = split(&absolute).filter(|(parent, name)| view.shows_lack(parent, name))
                    else {
                        texts.push(about(&format!(".{},", u8::from(*follows)), path, view));
                        continue;
                    };
                    // Absences come folder by folder.
                    match texts.last_mut() {
                        Some(last) if folder == parent && last.first() == Some(&b'-') => last.push(b'/'),
                        _ => {
                            folder = parent.to_vec();
                            texts.push([b"-", parent, b"//"].concat());
                        }
                    }
                    texts.last_mut()?.extend_from_slice(name);
                }
                Fact::Refused { path, opens, error } => {
                    texts.push(about(&format!("%{},{error},", u8::from(*opens)), path, view));
                }
            }
        }
        Some(texts)
    }
}

/// All conditions about the environment.
fn variables(facts: &[Fact], is_compiler: bool, folder: &[u8], environment: &Environment) -> Bytes {
    let mut text = b"$".to_vec();
    let mut add = |parts: &[&[u8]]| {
        let item = parts.concat();
        text.extend_from_slice(format!("{}:", item.len()).as_bytes());
        text.extend_from_slice(&item);
    };
    for fact in facts {
        match fact {
            // A command that does not run prints nothing, and Waf gives its commands no standard input.
            // If a client does not run a command, it does not show again what the command prints for a terminal.
            // It knows which folders it builds in. It runs a command again if an input has changed, and not because its result
            // is in doubt.
            Fact::Variable { name, .. } if [TERMINAL, INPUT, BASES, CHECKOUT, PROOF].contains(&name.as_slice()) => {}
            Fact::Variable { name, .. } if name == LIBC => {
                for name in LIBC_NAMES {
                    match environment.value(name) {
                        Some(value) => add(&[b"=", name, b"=", value]),
                        None => add(&[b"-", name]),
                    }
                }
                let is_of_prefix = |(name, _): &(&[u8], &[u8])| is_asked_by_libc(name) && !LIBC_NAMES.contains(name);
                for (name, value) in environment.all().filter(is_of_prefix) {
                    add(&[b"=", name, b"=", value]);
                }
                LIBC_PREFIXES.iter().for_each(|prefix| add(&[b"!", prefix]));
                ALWAYS_ASKED.iter().for_each(|name| add(&[b"+", name]));
            }
            // For a client, all of `PATH` counts.
            Fact::Variable { name, .. } if name.starts_with(ALONG) => match environment.value(SEARCHED) {
                Some(value) => add(&[b"=", SEARCHED, b"=", value]),
                None => add(&[b"-", SEARCHED]),
            },
            // For things that are no variables, a client has descriptions of its own.
            Fact::Variable { name, .. } if name.starts_with(b"=") => add(&[b"@", name]),
            // Compilers use it only if it names their folder. Otherwise its value does not matter.
            Fact::Variable { name, value } if is_compiler && name == b"PWD" && !leads_to(value.as_deref(), folder) => {
                add(&[b"?"]);
            }
            Fact::Variable {
                name,
                value: Some(value),
            } => add(&[b"=", name, b"=", value]),
            Fact::Variable { name, value: None } => add(&[b"-", name]),
            Fact::Names { .. } => {
                environment::SILENT.iter().for_each(|name| add(&[b"*", name]));
                environment::OURS.iter().for_each(|prefix| add(&[b"^", prefix]));
            }
            _ => {}
        }
    }
    text
}

fn leads_to(value: Option<&[u8]>, folder: &[u8]) -> bool {
    let identity = |path: &[u8]| status(path).map(|is| (is.device, is.inode)).ok();
    value.is_some_and(|path| path.starts_with(b"/") && identity(path).is_some() && identity(path) == identity(folder))
}

fn about(head: &str, path: &Path, view: &View) -> Bytes {
    [head.as_bytes(), &view.place.absolute(path)].concat()
}

/// A folder is identified by device and inode. So two paths mean one folder as long as both are unchanged.
fn there(path: &Path, kind: Kind, follows: bool, view: &mut View) -> Option<Bytes> {
    let letter = match kind {
        Kind::File => 'f',
        Kind::Program => 'p',
        Kind::Link => 'l',
        Kind::Other => 'o',
        Kind::Folder => {
            let is = if follows {
                view.status(path)
            } else {
                view.status_of_name(path)
            };
            let is = is.ok()?;
            let head = format!("/{},{},{},", u8::from(follows), is.device, is.inode);
            return Some(about(&head, path, view));
        }
    };
    Some(about(&format!("?{},{letter},", u8::from(follows)), path, view))
}

fn result(entry: &Entry) -> Digest {
    let mut all = Bytes::new();
    for output in &entry.outputs {
        if let Some(dated) = output.dated {
            all.extend_from_slice(format!("@{}.{},", dated.seconds, dated.nanoseconds).as_bytes());
        }
        match &output.content {
            Content::File { digest, is_program, .. } => {
                all.push(u8::from(*is_program));
                all.extend_from_slice(&digest.0);
            }
            Content::Folder => all.push(2),
            Content::Link { text } => {
                all.push(3);
                all.extend_from_slice(&Digest::of(text).0);
            }
        }
    }
    Digest::of(&all)
}

fn file(path: &Path, digest: &Digest, view: &mut View) -> Option<Bytes> {
    let mut is = view.status(path).ok()?;
    let name = view.place.absolute(path);
    if !view.is_stamped(&name, &is) {
        return held(&name, &is, digest);
    }
    if !is.is_older(Stamp::now()) {
        // It may change once more, and get the same stamp.
        thread::sleep(TICK);
        is = status(&name).ok()?;
        let (read, now) = view.digest_of(&name, &is).ok()?;
        if read != is || now != *digest || !is.is_older(Stamp::now()) {
            return None;
        }
    }
    Some(stamped(&is, &name))
}

/// A file whose stamps may not show each change is described by a digest of its content, which each client can compute.
fn held(name: &[u8], is: &Status, digest: &Digest) -> Option<Bytes> {
    if is.size > LARGEST_READ {
        return None;
    }
    let content = std::fs::read(OsStr::from_bytes(name)).ok()?;
    if Digest::of(&content) != *digest {
        return None;
    }
    let digest = Digest(Sha256::digest(&content).into());
    Some([format!("#{digest},").as_bytes(), name].concat())
}

fn stamped(is: &Status, name: &[u8]) -> Bytes {
    let mut text = Bytes::with_capacity(name.len() + 64);
    let changed = i128::from(is.changed.seconds) * 1_000_000_000 + i128::from(is.changed.nanoseconds);
    // Writing into memory cannot fail.
    let _ = write!(text, "={},{},{},{changed},", is.device, is.inode, is.size);
    text.extend_from_slice(name);
    text
}

/// The numbers under which one client knows texts.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<Bytes, u32>,
    bytes: usize,
}

/// What a client is sent about one command.
pub struct Numbered {
    /// The number of the first new text. With zero, the client forgets all earlier ones.
    pub first: u32,
    pub new: Strings,
    pub numbers: Vec<u32>,
}

impl Numbers {
    pub fn number(&mut self, texts: Vec<Bytes>) -> Numbered {
        if self.bytes > MOST_BYTES {
            *self = Numbers::default();
        }
        let first = self.known.len() as u32;
        let mut new = Vec::new();
        let mut numbers = Vec::with_capacity(texts.len());
        for text in texts {
            let next = self.known.len() as u32;
            if let Some(number) = self.known.get(&text) {
                numbers.push(*number);
                continue;
            }
            self.bytes += text.len();
            new.push(text.clone());
            self.known.insert(text, next);
            numbers.push(next);
        }
        let new = new.into_iter().collect();
        Numbered { first, new, numbers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_sent_once_and_then_known_by_number() {
        let mut numbers = Numbers::default();
        let text = |name: &str| name.as_bytes().to_vec();
        let first = numbers.number(vec![text("a"), text("b"), text("a")]);
        assert_eq!((first.first, first.new.len(), first.numbers), (0, 2, vec![0, 1, 0]));
        let second = numbers.number(vec![text("c"), text("b")]);
        assert_eq!((second.first, second.new.len(), second.numbers), (2, 1, vec![2, 1]));
        let third = numbers.number(vec![text("c")]);
        assert_eq!((third.first, third.new.len(), third.numbers), (3, 0, vec![2]));
    }
}
