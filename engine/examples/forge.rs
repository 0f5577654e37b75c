//! Forges an entry like an attacker who may write to a shared store, for tests: `forge < JSON`.
//!
//! Reads `{"key": …, "bundle": … or "entry": … with "blobs": …, "acts": [[NAME, …]…]}`, with bytes as hexadecimal digits.
//! Applies the acts to the newest entry, and prints the result with its blobs. So the entry of one key can be given to another.

use std::collections::HashMap;
use std::io::{self, Error, Read};
use std::path::Path as FilePath;

use serde_json::{json, Map, Value};

use wafengine::bytes::digest::Digest;
use wafengine::cache::lookup::entry::{Content, Entry, Output, Print};
use wafengine::cache::remote::bundle::Bundle;
use wafengine::cache::remote::wrapped::Wrapped;
use wafengine::facts::fact::Fact;
use wafengine::facts::path::{Path, Root};
use wafengine::facts::status::Stamp;
use wafengine::trust::signature::{Sealed, Signer};

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let asked: Value = serde_json::from_str(&text)?;
    let key: Digest = text_of(&asked["key"])?.parse().map_err(Error::other)?;
    let mut bundle = match asked["bundle"].as_str() {
        Some(bundle) => Bundle::decode(&key, &unhex(bundle)?).ok_or(Error::other("no bundle of this key"))?,
        None => Bundle {
            entries: vec![unhex(text_of(&asked["entry"])?)?],
            blobs: blobs_of(&asked["blobs"])?,
        },
    };
    let bytes = bundle.entries.remove(0);
    let mut forged = Forged {
        key,
        entry: Entry::decode(Sealed::read(&bytes).entry).map_err(|_| Error::other("no entry"))?,
        bytes,
        bundle,
    };
    for act in asked["acts"].as_array().into_iter().flatten() {
        let words: Option<Vec<&str>> = act
            .as_array()
            .and_then(|words| words.iter().map(Value::as_str).collect());
        forged.act(&words.ok_or(Error::other("an act is a list of words"))?)?;
    }
    println!("{}", forged.describe());
    Ok(())
}

struct Forged {
    key: Digest,
    entry: Entry,
    /// The entry with its signature, if it has one.
    bytes: Vec<u8>,
    /// The other entries, and the blobs.
    bundle: Bundle,
}

impl Forged {
    fn act(&mut self, words: &[&str]) -> io::Result<()> {
        match words {
            ["sign", file] => {
                let signer = Signer::load(FilePath::new(file)).map_err(Error::other)?;
                self.bytes = signer.seal(&self.key, &self.entry.encode());
                return Ok(());
            }
            // Keeps the signature of the unchanged entry.
            ["tamper"] => {
                let sealed = Sealed::read(&self.bytes).entry.len();
                let head = self.bytes.len() - sealed;
                self.entry.wall ^= 1;
                self.bytes.truncate(head);
                self.bytes.extend(self.entry.encode());
                return Ok(());
            }
            ["bend", at] => {
                let at: usize = at.parse().map_err(Error::other)?;
                self.bytes[at] ^= 1;
                return Ok(());
            }
            ["cut", size] => {
                let size: usize = size.parse().map_err(Error::other)?;
                self.bytes.truncate(size);
                return Ok(());
            }
            ["lose", "blobs"] => self.bundle.blobs.clear(),
            ["file", path, text] => self.add(path, text, None, false),
            ["program", path, text] => self.add(path, text, None, true),
            ["main", text] => self.add("x", text, Some(0), false),
            ["numbered", number, text] => {
                let number = number.parse().map_err(Error::other)?;
                self.add("x", text, Some(number), false);
            }
            ["link", path, text] => {
                let text = text.as_bytes().to_vec();
                self.push(path, None, Content::Link { text });
            }
            ["folder", path] => self.push(path, None, Content::Folder),
            ["drop", number] => {
                let number: usize = number.parse().map_err(Error::other)?;
                self.entry.outputs.retain(|output| output.number != Some(number));
            }
            ["no outputs"] => self.entry.outputs.clear(),
            ["no facts"] => self.entry.facts.clear(),
            ["twice"] => self.entry.outputs.extend(self.entry.outputs.clone()),
            ["depends", path] => {
                let (path, digest) = (named(path), Digest::of(b""));
                self.entry.facts.push(Fact::File { path, digest });
            }
            ["dated", seconds] => {
                let (seconds, nanoseconds) = (seconds.parse().map_err(Error::other)?, 0);
                let dated = Some(Stamp { seconds, nanoseconds });
                self.entry.outputs.iter_mut().for_each(|output| output.dated = dated);
            }
            ["took", time] => self.entry.processor = time.parse().map_err(Error::other)?,
            ["exit", code] => self.entry.exit = code.parse().map_err(Error::other)?,
            ["stdout", text] => self.entry.stdout = Print::Inline(text.as_bytes().to_vec()),
            ["stderr", text] => self.entry.stderr = Print::Inline(text.as_bytes().to_vec()),
            ["stderr", "blob", text] => {
                let (digest, size) = (self.keep(text), text.len() as u64);
                self.entry.stderr = Print::Blob { digest, size };
            }
            ["size", claimed] => {
                let claimed = claimed.parse().map_err(Error::other)?;
                for output in &mut self.entry.outputs {
                    if let Content::File { size, .. } = &mut output.content {
                        *size = claimed;
                    }
                }
            }
            _ => return Err(Error::other(format!("there is no act {words:?}"))),
        }
        self.bytes = self.entry.encode();
        Ok(())
    }

    fn keep(&mut self, text: &str) -> Digest {
        let digest = Digest::of(text.as_bytes());
        self.bundle.blobs.insert(digest, Wrapped::of(text.as_bytes().to_vec()));
        digest
    }

    fn add(&mut self, path: &str, text: &str, number: Option<usize>, is_program: bool) {
        let (digest, size) = (self.keep(text), text.len() as u64);
        let content = Content::File {
            digest,
            size,
            is_program,
        };
        self.push(path, number, content);
    }

    fn push(&mut self, path: &str, number: Option<usize>, content: Content) {
        let path = named(path);
        self.entry.outputs.push(Output {
            path,
            number,
            content,
            dated: None,
        });
    }

    fn describe(mut self) -> Value {
        let blobs = self.bundle.blobs.iter();
        let blobs: Map<_, _> = blobs
            .map(|(digest, blob)| {
                let described = json!({"coding": blob.coding, "bytes": hex(&blob.bytes)});
                (digest.to_string(), described)
            })
            .collect();
        let needs: Vec<_> = self.entry.blobs().iter().map(Digest::to_string).collect();
        let entry = hex(&self.bytes);
        self.bundle.entries.insert(0, self.bytes);
        json!({"entry": entry, "blobs": blobs, "needs": needs, "bundle": hex(&self.bundle.encode(&self.key))})
    }
}

/// A path of an entry: relative to the command's folder, or absolute.
fn named(path: &str) -> Path {
    let root = match path.starts_with('/') {
        true => Root::Absolute,
        false => Root::Folder,
    };
    let rest = path.as_bytes().to_vec();
    Path { root, rest }
}

fn blobs_of(value: &Value) -> io::Result<HashMap<Digest, Wrapped>> {
    let blob = |(digest, blob): (&String, &Value)| {
        let coding = blob["coding"].as_u64().unwrap_or_default() as u8;
        let bytes = unhex(text_of(&blob["bytes"])?)?;
        Ok((digest.parse().map_err(Error::other)?, Wrapped { coding, bytes }))
    };
    value.as_object().into_iter().flatten().map(blob).collect()
}

fn text_of(value: &Value) -> io::Result<&str> {
    value.as_str().ok_or(Error::other("a text is missing"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> io::Result<Vec<u8>> {
    let pairs = (0..text.len()).step_by(2);
    let byte = |at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<_> = pairs.map(byte).collect();
    bytes.ok_or(Error::other("not hexadecimal"))
}
