//! What became of the last request for each output, in words: for whoever asks why.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::access::Bytes;
use super::outputs::{Output, Role};
use super::recent::Recent;

/// So many outputs are remembered; a project has some thousand.
const ROOM: usize = 16 << 10;

pub struct Journal {
    /// By the absolute name of the output.
    told: Recent<Bytes, String>,
    /// Of audits that found the cache wrong; the last ones.
    differences: Mutex<Vec<String>>,
}

/// So many differences are remembered, and so much of each.
const DIFFERENCES: usize = 10;
const WORDS: usize = 1 << 10;

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            told: Recent::new(ROOM),
            differences: Mutex::default(),
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

    pub fn note_difference(&self, words: String) {
        let mut all = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(words.chars().take(WORDS).collect());
        let excess = all.len().saturating_sub(DIFFERENCES);
        all.drain(..excess);
    }

    pub fn differences(&self) -> Vec<String> {
        self.differences.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn forget_differences(&self) {
        self.differences.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
