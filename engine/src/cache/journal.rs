//! What became of the last request for each output, in words: for whoever asks why.

use std::path::PathBuf;

use super::access::Bytes;
use super::outputs::{Output, Role};
use super::recent::Recent;

/// So many outputs are remembered; a project has some thousand.
const ROOM: usize = 16 << 10;

pub struct Journal {
    /// By the absolute name of the output.
    told: Recent<Bytes, String>,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            told: Recent::new(ROOM),
        }
    }
}

impl Journal {
    pub fn note(&self, folder: &[u8], outputs: &[Output], words: impl Into<String>) {
        let main = outputs.iter().find(|output| output.role == Role::Main);
        if let Some(main) = main {
            self.told.put(absolute(folder, &main.path), words.into());
        }
    }

    /// Of an output that only what the command did has told.
    pub fn note_one(&self, folder: &[u8], path: &[u8], words: impl Into<String>) {
        self.told.put(absolute(folder, path), words.into());
    }

    pub fn look_up(&self, output: &[u8]) -> Option<String> {
        self.told.get(&super::path::tidy(output))
    }
}

fn absolute(folder: &[u8], path: &[u8]) -> Bytes {
    use std::ffi::OsStr;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let path = PathBuf::from(OsStr::from_bytes(folder)).join(OsStr::from_bytes(path));
    super::path::tidy(&path.into_os_string().into_vec())
}
