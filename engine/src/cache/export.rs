//! Gives a client the entry of its command, with all blobs, in a folder that it names (`WAFCC_EXPORT`). So a command that is
//! run for another machine brings back what that machine's own cache can use.
//!
//! ```text
//! FOLDER/blobs/DIGEST ; each blob of the entry, as it is
//! FOLDER/entry        ; the entry, signed if there is a signing key
//! FOLDER/key          ; the key of the entry, written last
//! FOLDER/why          ; instead of all that: one line, why there is no entry
//! ```
//!
//! What is given is what a shared store would get. The other machine checks it as it checks an entry of such a store.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::answer::Wishes;
use super::lookup::entry::Entry;
use super::remote::foreign::{is_within_bounds, Origin, Stored};
use super::store::EntryRef;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::files::regular;

const KEY: &str = "key";
const ENTRY: &str = "entry";
const BLOBS: &str = "blobs";
const WHY: &str = "why";

impl Cache {
    /// Writes an entry into the folder that the client names, if it names one.
    pub(super) fn export(&self, wishes: &Wishes, key: &Digest, known: &EntryRef) {
        let Some(folder) = &wishes.export else { return };
        let done = self.exportable(key, known).map(|(bytes, entry)| {
            let written = begin(folder).and_then(|()| self.write_entry(folder, key, &bytes, &entry));
            written.map_err(|error| format!("it cannot be written to {}: {error}", folder.display()))
        });
        if let Err(why) = done.and_then(|written| written) {
            self.export_reason(wishes, &why);
        }
    }

    /// Writes why there is no entry for the client's command.
    pub(super) fn export_reason(&self, wishes: &Wishes, why: &str) {
        let Some(folder) = &wishes.export else { return };
        let line: String = why.chars().filter(|character| !character.is_control()).collect();
        let written = begin(folder).and_then(|()| regular::create(&folder.join(WHY), format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            log::warn!("write to {}: {error}", folder.display());
        }
    }

    /// The bytes of an entry as another machine gets it, and the entry. The error says why it is not to get it.
    fn exportable(&self, key: &Digest, known: &EntryRef) -> Result<(Vec<u8>, Entry), String> {
        let stored = self.store.read(known).and_then(|bytes| Stored::decode(&bytes));
        let Stored { origin, entry } = stored.ok_or("its entry is lost")?;
        if entry.exit != 0 {
            return Err(format!("it failed with status {}", entry.exit));
        }
        if !is_within_bounds(&entry) {
            return Err("its outputs are too large to be given to another machine".to_owned());
        }
        let bytes = entry.encode();
        // This machine does not vouch for what another machine has made.
        let signer = self.signer().filter(|_| matches!(origin, Origin::Own));
        match signer {
            None => Ok((bytes, entry)),
            Some(Ok(signer)) => Ok((signer.seal(key, &bytes), entry)),
            Some(Err(why)) => Err(format!("the signing key cannot be used: {why}")),
        }
    }

    fn write_entry(&self, folder: &Path, key: &Digest, bytes: &[u8], entry: &Entry) -> io::Result<()> {
        let blobs = folder.join(BLOBS);
        DirBuilder::new().mode(0o700).create(&blobs)?;
        for digest in entry.blobs() {
            let blob = self.store.open_blob(&digest);
            let blob = blob.ok_or_else(|| io::Error::other("a blob of it is lost"))?;
            let path = blobs.join(digest.to_string());
            match File::create_new(&path) {
                Ok(file) => blob.write_to(&file)?,
                // Two outputs may have the same content.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        regular::create(&folder.join(ENTRY), bytes)?;
        regular::create(&folder.join(KEY), format!("{key}\n").as_bytes())
    }
}

/// Makes the folder, and removes what an earlier command has left there. The key goes first, since it tells that all is there.
fn begin(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let gone = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    for name in [KEY, ENTRY, WHY] {
        gone(fs::remove_file(folder.join(name)))?;
    }
    gone(fs::remove_dir_all(folder.join(BLOBS)))
}
