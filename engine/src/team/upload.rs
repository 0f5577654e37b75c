//! Uploads: in memory while they are small and memory is free, then in a file without a name.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use super::limits::{Budget, Share};

/// Larger uploads are in files, and disk threads store them.
pub const SMALL: usize = 256 << 10;

/// The memory and the folder for uploads.
#[derive(Debug)]
pub struct Uploads {
    pub folder: PathBuf,
    pub budget: Budget,
}

#[derive(Debug)]
pub struct Upload {
    share: Share,
    content: Content,
    pub length: u64,
}

#[derive(Debug)]
pub enum Content {
    Bytes(Vec<u8>),
    File(File),
}

impl Uploads {
    pub fn begin(&self) -> Upload {
        Upload {
            share: self.budget.share(),
            content: Content::Bytes(Vec::new()),
            length: 0,
        }
    }

    pub fn add(&self, upload: &mut Upload, bytes: &[u8]) -> io::Result<()> {
        upload.length += bytes.len() as u64;
        if let Content::Bytes(kept) = &mut upload.content {
            let length = kept.len() + bytes.len();
            if length <= SMALL && upload.share.resize(length) {
                kept.extend_from_slice(bytes);
                return Ok(());
            }
            let mut file = self.file()?;
            file.write_all(kept)?;
            upload.content = Content::File(file);
            upload.share.resize(0);
        }
        match &mut upload.content {
            Content::File(file) => file.write_all(bytes),
            Content::Bytes(_) => Ok(()),
        }
    }

    /// A file without a name, which vanishes when it is closed.
    fn file(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(&self.folder, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(file.into()),
            // The file system does not support files without a name.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => self.named_file(),
            Err(error) => Err(error.into()),
        }
    }

    fn named_file(&self) -> io::Result<File> {
        let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let path = self.folder.join(format!("{number:016x}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        Ok(file)
    }
}

impl Upload {
    /// Whether it is in memory, so that it is stored quickly.
    pub fn is_small(&self) -> bool {
        matches!(self.content, Content::Bytes(_))
    }

    /// The complete content, with its share of the memory budget.
    pub fn finish(mut self) -> io::Result<(Content, Share)> {
        if let Content::File(file) = &mut self.content {
            file.rewind()?;
        }
        Ok((self.content, self.share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn uploads(memory: usize) -> Uploads {
        Uploads {
            folder: std::env::temp_dir(),
            budget: Budget::new(memory),
        }
    }

    fn finish(upload: Upload) -> (bool, Vec<u8>) {
        let (content, _share) = upload.finish().unwrap();
        match content {
            Content::Bytes(bytes) => (true, bytes),
            Content::File(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                (false, bytes)
            }
        }
    }

    #[test]
    fn a_small_upload_stays_in_memory_and_gives_it_back() {
        let uploads = uploads(10);
        let mut upload = uploads.begin();
        uploads.add(&mut upload, b"12345").unwrap();
        uploads.add(&mut upload, b"67890").unwrap();
        assert_eq!(uploads.budget.left(), 0);
        assert_eq!(finish(upload), (true, b"1234567890".to_vec()));
        assert_eq!(uploads.budget.left(), 10);
    }

    #[test]
    fn without_memory_an_upload_goes_to_a_file() {
        let uploads = uploads(7);
        let mut upload = uploads.begin();
        uploads.add(&mut upload, b"12345").unwrap();
        uploads.add(&mut upload, b"67890").unwrap();
        assert_eq!(uploads.budget.left(), 7);
        assert_eq!(upload.length, 10);
        assert_eq!(finish(upload), (false, b"1234567890".to_vec()));
    }

    #[test]
    fn a_large_upload_goes_to_a_file() {
        let uploads = uploads(2 * SMALL);
        let mut upload = uploads.begin();
        uploads.add(&mut upload, &vec![1; SMALL]).unwrap();
        assert!(upload.is_small());
        uploads.add(&mut upload, b"2").unwrap();
        assert!(!upload.is_small());
        assert_eq!(finish(upload).1.len(), SMALL + 1);
    }
}
