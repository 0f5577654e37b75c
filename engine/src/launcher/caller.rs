//! The process that was called: what an answer depends on besides files.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{c_path, CALLED_BY};
use crate::files::folder::Folder;
use crate::process::place::RIGHTS;

/// The form of records. Another one has another key.
const FORM: &[u8] = b"waf-record-3";
/// Variables that shells and terminals change all the time, and on which no build depends.
pub const HARMLESS: [&[u8]; 4] = [b"_", b"OLDPWD", b"SHLVL", b"WINDOWID"];
const STREAMS: i32 = 3;
const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

pub struct Caller {
    words: Vec<Vec<u8>>,
}

impl Caller {
    /// What this process was called with; nothing if that is unusual.
    pub fn find(args: &[OsString], python: &Path) -> Option<Caller> {
        let folder = std::env::current_dir().ok()?;
        let mut words = vec![FORM.to_vec(), bytes_of(python), bytes_of(&folder)];
        words.push(args.len().saturating_sub(1).to_string().into_bytes());
        words.extend(args.iter().skip(1).map(|word| word.as_bytes().to_vec()));
        words.extend(variables()?);
        words.extend((0..STREAMS).map(shape).collect::<Option<Vec<_>>>()?);
        Some(Caller { words })
    }

    /// All of it, as records have it.
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        for word in &self.words {
            key.extend((word.len() as u32).to_le_bytes());
            key.extend(word);
        }
        key
    }

    /// The name of its record.
    pub fn name(&self) -> String {
        let digest = Sha256::digest(self.key());
        let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("resident-{name}.answer")
    }

    /// Where its record would be, in a folder that belongs to this user alone.
    pub fn record(&self) -> Option<PathBuf> {
        let folder = Folder::from_environment();
        let is_own = folder.path().is_absolute() && folder.check().is_ok();
        is_own.then(|| folder.path().join(self.name()))
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// The variables in their order; nothing if two have the same name, since programs may take either of them.
fn variables() -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut names = HashSet::new();
    for (name, value) in std::env::vars_os() {
        if !names.insert(name.clone()) {
            return None;
        }
        if name != CALLED_BY && !HARMLESS.contains(&name.as_bytes()) {
            found.push([name.as_bytes(), b"=", value.as_bytes()].concat());
        }
    }
    found.sort();
    let count = found.len().to_string().into_bytes();
    found.insert(0, count);
    Some(found)
}

/// Whether a stream is a terminal, and its size; nothing if it is closed.
fn shape(stream: i32) -> Option<Vec<u8>> {
    // SAFETY: only system calls, into a structure of ours.
    unsafe {
        if libc::fcntl(stream, libc::F_GETFD) < 0 {
            return None;
        }
        if libc::isatty(stream) == 0 {
            return Some(b"-".to_vec());
        }
        let mut size: libc::winsize = std::mem::zeroed();
        match libc::ioctl(stream, libc::TIOCGWINSZ, &mut size) {
            0 => Some(format!("{}x{}", size.ws_col, size.ws_row).into_bytes()),
            _ => Some(b"terminal".to_vec()),
        }
    }
}

/// The rights of this process, as records have them.
pub fn rights() -> Option<Vec<Vec<u8>>> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let is_right = |line: &&str| line.split(':').next().is_some_and(|name| RIGHTS.contains(&name));
    let mut found: Vec<Vec<u8>> = status
        .split_inclusive('\n')
        .filter(is_right)
        .map(|line| line.into())
        .collect();
    let spaces = NAMESPACES.iter().map(|name| format!("/proc/self/ns/{name}"));
    for link in spaces.chain(["/proc/self/root".into()]) {
        found.push(fs::read_link(link).ok()?.into_os_string().into_vec());
    }
    Some(found)
}

/// The program of a name beside this one: where the system was told to find this one, or where its link leads.
pub fn find_beside(path: &Path, name: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let own = fs::read_link("/proc/self/exe").ok();
    let paths = [Some(here.join(path)), own];
    let beside = paths
        .into_iter()
        .flatten()
        .filter_map(|path| Some(path.parent()?.join(name)));
    beside.into_iter().find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    // SAFETY: only a system call.
    c_path(path).is_some_and(|path| unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0)
}
