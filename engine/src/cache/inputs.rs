//! What a command depended on, told to whoever asks again by himself: files with a stamp that shows any change, and names
//! that were looked for in vain.
//!
//! A client numbers what it was told, since most commands of a build read the same files: so these are texts, and a text is
//! the same for each command that depends on the same thing in the same state.
//!
//! ```text
//! input = file | absences
//! file = "=" device "," inode "," size "," changed "," path     ; changed in nanoseconds since 1970
//! absences = "-" folder "//" name ("/" name)*
//! ```

use std::collections::HashMap;
use std::io::Write;
use std::thread;
use std::time::Duration;

use super::access::Bytes;
use super::digest::Digest;
use super::entry::{Content, Entry};
use super::fact::Fact;
use super::moment::status;
use super::path::{split, Path};
use super::status::{Stamp, Status};
use super::world::View;
use crate::wire::Strings;

/// The kernel's clock for stamps moves in this time, also where it is slow.
const TICK: Duration = Duration::from_millis(11);
/// A client whose files change all the time does not have all their stamps kept.
const MOST_BYTES: usize = 256 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    pub texts: Vec<Bytes>,
    /// Of all that the command made.
    pub result: Digest,
}

impl Inputs {
    /// Of an entry that holds now. `None` if that cannot be told of a file for longer than a moment.
    pub fn of(entry: &Entry, view: &mut View) -> Option<Inputs> {
        let texts = Inputs::texts(&entry.facts, view)?;
        Some(Inputs::with_result(texts, entry))
    }

    pub fn with_result(texts: Vec<Bytes>, entry: &Entry) -> Inputs {
        let result = result(entry);
        Inputs { texts, result }
    }

    pub fn texts(facts: &[Fact], view: &mut View) -> Option<Vec<Bytes>> {
        let mut texts = Vec::with_capacity(facts.len());
        let mut folder = Bytes::new();
        for fact in facts {
            match fact {
                Fact::File { path, digest } => texts.push(file(path, digest, view)?),
                Fact::Absent { path, .. } => {
                    let absolute = view.place.absolute(path);
                    let Some((parent, name)) = split(&absolute) else {
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
                _ => {}
            }
        }
        Some(texts)
    }
}

fn result(entry: &Entry) -> Digest {
    let mut all = Bytes::new();
    for output in &entry.outputs {
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
    if !is.is_older(Stamp::now()) {
        // It may change once more, and have the same stamp.
        thread::sleep(TICK);
        is = status(&name).ok()?;
        let (read, now) = view.digest_of(&name, &is).ok()?;
        if read != is || now != *digest || !is.is_older(Stamp::now()) {
            return None;
        }
    }
    Some(stamped(&is, &name))
}

fn stamped(is: &Status, name: &[u8]) -> Bytes {
    let mut text = Bytes::with_capacity(name.len() + 64);
    let changed = i128::from(is.changed.seconds) * 1_000_000_000 + i128::from(is.changed.nanoseconds);
    // Writing into memory does not fail.
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

/// What a client is told of one command.
pub struct Numbered {
    /// The number of the first text that is new; zero has it forget all that it was told.
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
    fn a_text_is_told_once_and_has_a_number_then() {
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
