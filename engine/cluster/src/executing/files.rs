//! What is at a path of this machine, and the digests of its files, each of which is read once.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lru::LruCache;
use sha2::{Digest as _, Sha256};

use crate::digests::Digest;

/// How many digests are kept.
const KEPT: usize = 1 << 17;
/// A file that was changed within this time may be changed again without a trace in its times.
const SETTLED: Duration = Duration::from_millis(100);
const CHUNK: usize = 256 << 10;
/// No larger file is sent.
const LARGEST: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Folder,
    File {
        digest: Digest,
        is_program: bool,
    },
    Link {
        target: PathBuf,
    },
    /// A device, a socket, a file that cannot be read or is too large.
    Other,
}

/// All that changes when a file's content does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    number: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    fn of(status: &Metadata) -> Identity {
        Identity {
            device: status.dev(),
            number: status.ino(),
            size: status.len(),
            modified: (status.mtime(), status.mtime_nsec()),
            changed: (status.ctime(), status.ctime_nsec()),
        }
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let of = |(seconds, nanoseconds): (i64, i64)| {
            Duration::new(u64::try_from(seconds).unwrap_or_default(), nanoseconds as u32)
        };
        of(self.changed) + SETTLED < now && of(self.modified) + SETTLED < now
    }
}

pub struct Files(Mutex<LruCache<Identity, Digest>>);

impl Default for Files {
    fn default() -> Files {
        Files(Mutex::new(LruCache::new(
            NonZeroUsize::new(KEPT).unwrap_or(NonZeroUsize::MIN),
        )))
    }
}

impl Files {
    /// Follows no link.
    pub fn look(&self, path: &Path) -> Found {
        let Ok(status) = fs::symlink_metadata(path) else {
            return Found::Nothing;
        };
        let kind = status.file_type();
        if kind.is_dir() {
            return Found::Folder;
        }
        if kind.is_symlink() {
            return fs::read_link(path).map_or(Found::Nothing, |target| Found::Link { target });
        }
        if !kind.is_file() || status.len() > LARGEST {
            return Found::Other;
        }
        let is_program = status.mode() & 0o100 != 0;
        match self.digest(path, &status) {
            Ok(digest) => Found::File { digest, is_program },
            Err(_) => Found::Other,
        }
    }

    fn digest(&self, path: &Path, status: &Metadata) -> io::Result<Digest> {
        let identity = Identity::of(status);
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&identity)
            .copied();
        if let Some(digest) = known {
            return Ok(digest);
        }
        let file = File::open(path)?;
        let opened = Identity::of(&file.metadata()?);
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut chunk = vec![0; CHUNK.min(status.len() as usize + 1)];
        let mut file = file.take(LARGEST + 1);
        loop {
            let read = file.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            hash.update(&chunk[..read]);
            size += read as u64;
        }
        let digest = Digest {
            hash: hash.finalize().into(),
            size,
        };
        let after = Identity::of(&file.get_ref().metadata()?);
        // A file that changes meanwhile is sent with what was read, and the result is not used, or it is refused.
        if opened == after && after.size == size && after.is_settled() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).put(after, digest);
        }
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    #[test]
    fn a_file_that_is_changed_has_another_digest() {
        let path = std::env::temp_dir().join(format!("wafcluster-files-{}", std::process::id()));
        let files = Files::default();
        for text in ["one", "two", "six"] {
            fs::write(&path, text).unwrap();
            for _ in 0..2 {
                let expected = Found::File {
                    digest: Digest::of(text.as_bytes()),
                    is_program: false,
                };
                assert_eq!(files.look(&path), expected);
            }
        }
        sleep(2 * SETTLED);
        files.look(&path);
        assert_eq!(files.0.lock().unwrap().len(), 1, "only a settled file is remembered");
        fs::write(&path, "ten").unwrap();
        assert!(matches!(files.look(&path), Found::File { digest, .. } if digest == Digest::of(b"ten")));
        fs::remove_file(&path).unwrap();
        assert_eq!(files.look(&path), Found::Nothing);
        assert_eq!(files.look(Path::new("/dev/null")), Found::Other);
        assert_eq!(files.look(Path::new("/")), Found::Folder);
    }
}
