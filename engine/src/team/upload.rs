//! What is being sent to us: in memory while it is small and there is memory, then in a file without a name.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use super::limits::{Budget, Share};

/// Larger ones are in files, and are stored by disk threads.
pub const SMALL: usize = 256 << 10;

/// Where uploads come to.
#[derive(Debug)]
pub struct Dock {
    pub folder: PathBuf,
    pub budget: Budget,
}

#[derive(Debug)]
pub struct Upload {
    share: Share,
    material: Material,
    pub length: u64,
}

#[derive(Debug)]
pub enum Material {
    Bytes(Vec<u8>),
    File(File),
}

impl Dock {
    pub fn begin(&self) -> Upload {
        Upload {
            share: self.budget.share(),
            material: Material::Bytes(Vec::new()),
            length: 0,
        }
    }

    pub fn add(&self, upload: &mut Upload, bytes: &[u8]) -> io::Result<()> {
        upload.length += bytes.len() as u64;
        if let Material::Bytes(kept) = &mut upload.material {
            let length = kept.len() + bytes.len();
            if length <= SMALL && upload.share.resize(length) {
                kept.extend_from_slice(bytes);
                return Ok(());
            }
            let mut file = self.file()?;
            file.write_all(kept)?;
            upload.material = Material::File(file);
            upload.share.resize(0);
        }
        match &mut upload.material {
            Material::File(file) => file.write_all(bytes),
            Material::Bytes(_) => Ok(()),
        }
    }

    /// One that nobody finds, and that is gone when nobody has it open.
    fn file(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(&self.folder, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(file.into()),
            // The file system knows no files without a name.
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
    /// It takes no time worth mentioning to store it.
    pub fn is_small(&self) -> bool {
        matches!(self.material, Material::Bytes(_))
    }

    /// All of it, from its beginning, with the memory that it has until that is dropped.
    pub fn finish(mut self) -> io::Result<(Material, Share)> {
        if let Material::File(file) = &mut self.material {
            file.rewind()?;
        }
        Ok((self.material, self.share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn dock(memory: usize) -> Dock {
        Dock {
            folder: std::env::temp_dir(),
            budget: Budget::new(memory),
        }
    }

    fn content(upload: Upload) -> (bool, Vec<u8>) {
        let (material, _share) = upload.finish().unwrap();
        match material {
            Material::Bytes(bytes) => (true, bytes),
            Material::File(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                (false, bytes)
            }
        }
    }

    #[test]
    fn what_is_small_stays_in_memory_and_gives_it_back() {
        let dock = dock(10);
        let mut upload = dock.begin();
        dock.add(&mut upload, b"12345").unwrap();
        dock.add(&mut upload, b"67890").unwrap();
        assert_eq!(dock.budget.left(), 0);
        assert_eq!(content(upload), (true, b"1234567890".to_vec()));
        assert_eq!(dock.budget.left(), 10);
    }

    #[test]
    fn without_memory_it_goes_to_a_file() {
        let dock = dock(7);
        let mut upload = dock.begin();
        dock.add(&mut upload, b"12345").unwrap();
        dock.add(&mut upload, b"67890").unwrap();
        assert_eq!(dock.budget.left(), 7);
        assert_eq!(upload.length, 10);
        assert_eq!(content(upload), (false, b"1234567890".to_vec()));
    }

    #[test]
    fn what_is_large_goes_to_a_file() {
        let dock = dock(2 * SMALL);
        let mut upload = dock.begin();
        dock.add(&mut upload, &vec![1; SMALL]).unwrap();
        assert!(upload.is_small());
        dock.add(&mut upload, b"2").unwrap();
        assert!(!upload.is_small());
        assert_eq!(content(upload).1.len(), SMALL + 1);
    }
}
