//! The action results in which a cluster keeps our entries: `docs/tiers.md`.
//!
//! Pure. All entries of a key are one bundle, which is what an action has printed. Its blobs are the files that the action
//! has made, so a cluster knows that they belong together. No other client computes this action.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use prost::Message;
use wafengine::bytes::digest::Digest as Name;
use wafengine::cache::lookup::entry::Entry;
use wafengine::cache::remote::bundle::Bundle;
use wafengine::cache::remote::wrapped::LARGEST_BLOB;
use wafengine::room::Coding;
use wafengine::trust::signature::Sealed;

use super::known::Place;
use crate::digests::Digest;
use crate::reapi::{Action, ActionResult, Command, OutputFile};

/// Of all actions of ours, so that they have digests that no other action has.
const SALT: &[u8] = b"waflib-extras entries 1";
const FOLDER: &str = "blobs/";
const ZSTD: &str = ".zst";
/// The most files of a result: those of all entries that a bundle may have.
const MOST_FILES: usize = 1 << 16;

/// The action that stands for a key, and the contents to which it refers.
pub struct Question {
    pub digest: Digest,
    pub contents: Vec<(Digest, Bytes)>,
}

impl Question {
    pub fn of(key: &Name) -> Question {
        let command = Command {
            arguments: vec!["wafd".to_owned(), "entries".to_owned(), key.to_string()],
            ..Command::default()
        };
        let command = Digest::of_message(&command);
        // An empty folder is an empty message.
        let nothing = (Digest::of(b""), Bytes::new());
        let action = Action {
            command_digest: Some(command.0.to_message()),
            input_root_digest: Some(nothing.0.to_message()),
            salt: SALT.to_vec(),
            ..Action::default()
        };
        let action = Digest::of_message(&action);
        Question {
            digest: action.0,
            contents: vec![command, action, nothing],
        }
    }
}

/// What a cluster has for a key: entries, the newest first, and where their blobs are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    pub entries: Vec<Vec<u8>>,
    pub places: HashMap<Name, Place>,
}

impl Held {
    /// Nothing if the result is not one of ours.
    pub fn read(key: &Name, printed: &[u8], files: &[OutputFile]) -> Held {
        let entries = Bundle::decode(key, printed).unwrap_or_default().entries;
        let places = files.iter().take(MOST_FILES).filter_map(read_file).collect();
        Held { entries, places }
    }

    /// Adds an entry in front. Older ones that are too many, or of which a blob is not there, are left out.
    pub fn with(self, entry: Vec<u8>, blobs: &[(Name, Place)], missing: &HashSet<Digest>) -> Held {
        let mut places = self.places;
        places.retain(|_, place| !missing.contains(&place.digest));
        places.extend(blobs.iter().copied());
        let bundle = Bundle {
            entries: self.entries,
            ..Bundle::default()
        };
        let mut entries = bundle.with(entry, Vec::new()).bundle.entries;
        entries.retain(|entry| needs(entry).iter().all(|name| places.contains_key(name)));
        let needed: HashSet<Name> = entries.iter().flat_map(|entry| needs(entry)).collect();
        places.retain(|name, _| needed.contains(name));
        Held { entries, places }
    }

    pub fn write(&self, key: &Name) -> ActionResult {
        let bundle = Bundle {
            entries: self.entries.clone(),
            ..Bundle::default()
        };
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_unstable_by_key(|(name, _)| **name);
        ActionResult {
            output_files: places.into_iter().map(write_file).collect(),
            stdout_raw: bundle.encode(key),
            ..ActionResult::default()
        }
    }
}

/// The blobs that an entry needs.
pub fn needs(entry: &[u8]) -> Vec<Name> {
    Entry::decode(Sealed::read(entry).entry).map_or_else(|_| Vec::new(), |entry| entry.blobs())
}

fn read_file(file: &OutputFile) -> Option<(Name, Place)> {
    let path = file.path.strip_prefix(FOLDER)?;
    let (name, coding) = match path.strip_suffix(ZSTD) {
        Some(name) => (name, Coding::Zstd),
        None => (path, Coding::Plain),
    };
    let digest = Digest::from_message(file.digest.as_ref()?)?;
    let place = Place { digest, coding };
    let is_small = digest.size <= LARGEST_BLOB as u64;
    is_small.then_some((name.parse().ok()?, place))
}

fn write_file((name, place): (&Name, &Place)) -> OutputFile {
    let suffix = match place.coding {
        Coding::Plain => "",
        Coding::Zstd => ZSTD,
    };
    OutputFile {
        path: format!("{FOLDER}{name}{suffix}"),
        digest: Some(place.digest.to_message()),
        ..OutputFile::default()
    }
}

/// How many bytes a result takes in a message.
pub fn size(result: &ActionResult) -> usize {
    result.encoded_len()
}
