//! Fills a store with entries like one that it has: `fill_store STORE COUNT`, for `utils/bench.py room`.
//!
//! The existing entry is that of a compile. Each new entry has another source and another object, and is otherwise the same,
//! as if one project had been compiled. The size of an entry is printed as JSON.

use std::io::{self, Error};
use std::path::Path;
use std::{env, fs};

use wafengine::bytes::digest::Digest;
use wafengine::cache::lookup::entry::{Content, Entry};
use wafengine::cache::store::{Compression, Settings, Store};
use wafengine::facts::fact::Fact;

const SETTINGS: Settings = Settings {
    max_size: u64::MAX,
    compression: Compression::Auto,
};
// Parts of the index: see docs/store-format.md.
const MARK: &[u8] = b"\xf7wfs";
const FRAME_HEAD: usize = 16;
const BLOB_SIZE: usize = 45;
const PIECE_SIZE: usize = 57;
const KEY_START: usize = 5;

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(folder), Some(Ok(count))) = (arguments.next(), arguments.next().map(|text| text.parse())) else {
        return Err(Error::other("usage: fill_store STORE COUNT"));
    };
    let folder = Path::new(&folder);
    let key = first_key(&fs::read(folder.join("store-2/index"))?);
    let store = Store::open(folder, SETTINGS)?;
    let found = key.map(|key| store.find(&key)).unwrap_or_default();
    let bytes = found.first().and_then(|entry| store.read(entry));
    let bytes = bytes.ok_or(Error::other("the store has no entry that others could be like"))?;
    let model = Entry::decode(&bytes).map_err(|_| Error::other("the entry is not understood"))?;
    let object = object_of(&model, &store)?;
    for number in store.usage().entries..count {
        put_like(&model, &object, number, &store)?;
    }
    let (facts, entries) = (model.facts.len(), store.usage().entries);
    println!(
        "{{\"entries\": {entries}, \"facts\": {facts}, \"bytes\": {}, \"object\": {}}}",
        bytes.len(),
        object.len()
    );
    Ok(())
}

/// The key of an entry in the first frame in which an entry follows its blobs.
fn first_key(index: &[u8]) -> Option<Digest> {
    let starts = index.windows(MARK.len()).enumerate();
    let mut frames = starts.filter(|(_, bytes)| *bytes == MARK);
    frames.find_map(|(start, _)| key_in(&index[start + FRAME_HEAD..]))
}

fn key_in(mut items: &[u8]) -> Option<Digest> {
    loop {
        items = match items.first()? {
            b'b' => items.get(BLOB_SIZE..)?,
            b'p' => items.get(PIECE_SIZE..)?,
            _ => break,
        };
    }
    let key = items.get(KEY_START..KEY_START + Digest::SIZE)?;
    (items[0] == b'e').then(|| Digest(key.try_into().expect("its size")))
}

fn object_of(model: &Entry, store: &Store) -> io::Result<Vec<u8>> {
    let blob = model.blobs().first().and_then(|digest| store.open_blob(digest));
    let bytes = blob.and_then(|blob| blob.into_bytes());
    bytes.ok_or(Error::other("the entry has no object"))
}

fn put_like(model: &Entry, object: &[u8], number: usize, store: &Store) -> io::Result<()> {
    let mut entry = model.clone();
    let own = number.to_le_bytes();
    for output in &mut entry.outputs {
        if let Content::File { digest, size, .. } = &mut output.content {
            let content = [object, &own].concat();
            (*digest, *size) = (store.put_blob(&content)?, content.len() as u64);
        }
    }
    for fact in &mut entry.facts {
        if let Fact::File { path, digest } = fact {
            if path.rest.ends_with(b".cpp") {
                *digest = Digest::of(&own);
            }
        }
    }
    store.put_entry(&Digest::of(&own), &entry.encode(), &entry.blobs())?;
    Ok(())
}
