//! Folders and links that a command makes. Folders are made before its files, and links after them. If not everything gets to its
//! place, they are removed again.
//!
//! Nothing may be in their places: the command itself knows what to do with that.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const GROUP_IS_PASSED_ON: u32 = 0o2000;

#[derive(Default)]
pub struct Frame {
    made: Vec<PathBuf>,
}

impl Frame {
    /// Makes a folder with the permissions that the command would give it.
    pub fn make_folder(&mut self, path: &Path, umask: u32) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)?;
        self.made.push(path.to_owned());
        let inherited = fs::metadata(path)?.mode() & GROUP_IS_PASSED_ON;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777 & !umask | inherited))
    }

    pub fn make_link(&mut self, path: &Path, text: &[u8]) -> io::Result<()> {
        symlink(OsStr::from_bytes(text), path)?;
        self.made.push(path.to_owned());
        Ok(())
    }

    /// Everything is in its place.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            let is_folder = fs::symlink_metadata(path).is_ok_and(|status| status.is_dir());
            // What is in it was put there a moment ago.
            let _ = if is_folder {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::test_support::TestFolder;

    #[test]
    fn what_is_not_kept_is_removed() {
        let folder = TestFolder::new();
        let (inner, link) = (folder.0.join("a/b"), folder.0.join("a/link"));
        for is_kept in [false, true] {
            let mut frame = Frame::default();
            frame.make_folder(&folder.0.join("a"), 0o022).unwrap();
            frame.make_folder(&inner, 0o027).unwrap();
            fs::write(inner.join("file"), "text").unwrap();
            frame.make_link(&link, b"b/file").unwrap();
            assert_eq!(fs::read_to_string(&link).unwrap(), "text");
            assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o7777, 0o750);
            match is_kept {
                true => frame.keep(),
                false => drop(frame),
            }
            assert_eq!(folder.0.join("a").exists(), is_kept);
        }
        let mut frame = Frame::default();
        assert!(frame.make_folder(&inner, 0o022).is_err() && frame.make_link(&link, b"x").is_err());
        drop(frame);
        assert!(inner.exists() && link.exists());
    }
}
