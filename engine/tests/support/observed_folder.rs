//! A folder in which observed commands run, and the accesses that they record.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use wafengine::observe::access::{Access, What};
use wafengine::observe::trace::{Arena, TraceRegion};
use wafengine::park::LIBRARY;

use super::sandbox;

pub const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probes/observed.c");

/// A folder in which observed commands run.
pub struct ObservedFolder {
    pub root: PathBuf,
    pub arena: Arena,
}

impl Drop for ObservedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl ObservedFolder {
    pub fn new() -> ObservedFolder {
        let name = format!("wafpark-{}-{}", std::process::id(), sandbox::unique());
        let folder = std::env::temp_dir().canonicalize().unwrap().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("libwafpark.so"), LIBRARY).unwrap();
        ObservedFolder {
            root: folder,
            arena: Arena::new(4).unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    pub fn library(&self) -> Vec<u8> {
        self.path("libwafpark.so").as_os_str().as_bytes().to_vec()
    }

    pub fn variables(&self, trace_region: &TraceRegion) -> Vec<Vec<u8>> {
        trace_region.variables(&self.library(), None).into()
    }

    pub fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        // cargo sets it. The loader's searches along it are not recorded.
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    pub fn observed(&self, program: impl AsRef<OsStr>, trace_region: &TraceRegion) -> Command {
        let mut command = self.plain(program);
        for variable in self.variables(trace_region) {
            let at = variable.iter().position(|b| *b == b'=').unwrap();
            command.env(
                OsStr::from_bytes(&variable[..at]),
                OsStr::from_bytes(&variable[at + 1..]),
            );
        }
        command
    }

    /// The accesses of a command that must succeed.
    #[track_caller]
    pub fn observe(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Vec<Access> {
        let trace_region = self.arena.reserve().unwrap();
        let said = self.observed(program, &trace_region).args(args).output().unwrap();
        succeeded(&said);
        trace_region.finish()
    }

    #[track_caller]
    pub fn probe(&self, flags: &[&str]) -> PathBuf {
        let path = self.path("probe");
        let mut cc = self.plain("cc");
        cc.args(["-w", "-pthread", PROBE, "-o"])
            .arg(&path)
            .args(flags)
            .arg("-ldl");
        succeeded(&cc.output().unwrap());
        path
    }
}

#[track_caller]
pub fn succeeded(said: &Output) {
    assert!(said.status.success(), "{said:?}");
}

pub fn blindness(accesses: &[Access]) -> Vec<&'static str> {
    let why = accesses.iter().filter_map(|access| match access.what {
        What::Blind { why } => Some(why),
        _ => None,
    });
    why.collect()
}

pub fn texts(what: &What) -> Vec<&[u8]> {
    match what {
        What::Begin { program, .. } => vec![program],
        What::Rename { from, to } => vec![from, to],
        What::Execute { path }
        | What::Load { path }
        | What::Enter { path }
        | What::Open { path, .. }
        | What::Find { path }
        | What::Look { path, .. }
        | What::Link { path }
        | What::Resolve { path }
        | What::List { path }
        | What::Remove { path }
        | What::Make { path, .. } => vec![path],
        _ => vec![],
    }
}

/// All paths that were used, absolute, with the current folder of each process.
#[track_caller]
pub fn paths(accesses: &[Access]) -> BTreeSet<PathBuf> {
    let mut folders: BTreeMap<u32, PathBuf> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for access in accesses {
        if let What::Begin { folder, .. } = &access.what {
            folders.insert(access.process, PathBuf::from(OsStr::from_bytes(folder)));
        }
        for text in texts(&access.what) {
            let path = Path::new(OsStr::from_bytes(text));
            let folder = folders.get(&access.process);
            assert!(path.is_absolute() || folder.is_some(), "of no folder: {access:?}");
            let path = folder.map_or(path.to_owned(), |folder| folder.join(path));
            if matches!(access.what, What::Enter { .. }) && access.error == 0 {
                folders.insert(access.process, path.clone());
            }
            found.insert(path);
        }
    }
    found
}
