//! The runtime folder: where the engine of one user and version has its socket, locks, token and log.
//!
//! Names are those of `docs/protocol.md`, "Where the engine is"; the Python client computes the same.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::regular;

/// The engine's version, which is also part of every name below.
pub const ENGINE: &str = env!("CARGO_PKG_VERSION");

/// The bytes that fit into `sun_path`, without its terminating zero.
const SOCKET_PATH_CAP: usize = 107;

#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

const JOBS: &str = "jobs-";

impl Folder {
    /// The folder that the environment names. Nothing is made or checked yet.
    pub fn from_environment() -> Folder {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let path = if let Some(path) = set("WAFD_RUNTIME_DIR") {
            PathBuf::from(path)
        } else if let Some(path) = set("XDG_RUNTIME_DIR") {
            Path::new(&path).join("wafd")
        } else {
            let uid = rustix::process::geteuid().as_raw();
            PathBuf::from(format!("/tmp/wafd-{uid}"))
        };
        Folder { path }
    }

    pub fn at(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into() }
    }

    /// Makes the folder if need be, and refuses one that others could tamper with.
    pub fn make(&self) -> Result<(), String> {
        if !self.path.is_absolute() {
            let shown = self.path.display();
            return Err(format!(
                "runtime folder {shown}: not an absolute path; set WAFD_RUNTIME_DIR to one"
            ));
        }
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(&self.path);
        if let Err(error) = made {
            return Err(format!(
                "make the runtime folder {}: {error}; set WAFD_RUNTIME_DIR to a folder of your own",
                self.path.display()
            ));
        }
        self.check()
    }

    /// Whether the folder belongs to this user alone, and its socket's name fits into a socket's address.
    pub fn check(&self) -> Result<(), String> {
        let shown = self.path.display();
        let found = fs::symlink_metadata(&self.path).map_err(|e| format!("runtime folder {shown}: {e}"))?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(format!(
                "runtime folder {shown}: not a folder of this user; set WAFD_RUNTIME_DIR to one"
            ));
        }
        if found.mode() & 0o077 != 0 {
            return Err(format!("runtime folder {shown}: open to others; chmod 700 it"));
        }
        if self.is_too_long() {
            return Err(format!(
                "runtime folder {shown}: its name is too long for a socket; set WAFD_RUNTIME_DIR to a shorter one"
            ));
        }
        Ok(())
    }

    /// Whether the name of its socket is too long for a socket's address.
    pub fn is_too_long(&self) -> bool {
        self.socket().as_os_str().as_bytes().len() > SOCKET_PATH_CAP
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.path.join(format!("wafd-{ENGINE}.{ending}"))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// What `wafcc` has found out, for the next call with these variables.
    pub fn card(&self, variables: u64) -> PathBuf {
        self.file(&format!("card-{variables:016x}"))
    }

    /// Says why `wafcc` could not reach the engine a short time ago.
    pub fn trouble(&self) -> PathBuf {
        self.file("trouble")
    }

    pub fn start_lock(&self) -> PathBuf {
        self.file("start")
    }

    pub fn life_lock(&self) -> PathBuf {
        self.file("lock")
    }

    pub fn token(&self) -> PathBuf {
        self.file("tcp")
    }

    /// The fifo of a jobserver; each has a number of its own.
    pub fn jobserver(&self, number: u64) -> PathBuf {
        self.file(&format!("{JOBS}{number}"))
    }

    /// The beginning of the names of all these fifos.
    pub fn jobserver_prefix() -> String {
        format!("wafd-{ENGINE}.{JOBS}")
    }

    /// The library that parks programs.
    pub fn library(&self) -> PathBuf {
        self.file("park.so")
    }

    /// An empty folder in which programs are parked and tried.
    pub fn trial(&self) -> PathBuf {
        self.file("trial")
    }

    /// A page that redirects to this process's dashboard.
    pub fn door(&self, process: u32) -> PathBuf {
        self.file(&format!("dashboard-{process}.html"))
    }

    /// The verdicts of trials.
    pub fn verdicts(&self) -> PathBuf {
        self.file("verdicts")
    }

    /// The socket to which parked programs send what they would exec.
    pub fn route(&self) -> PathBuf {
        self.file("route")
    }

    /// The socket at which a parked driver asks how its parts ended. Each has a number of its own.
    pub fn answering(&self, number: u64) -> PathBuf {
        self.file(&format!("desk{number}"))
    }

    /// A link to the store that the engine of this folder keeps.
    pub fn store(&self) -> PathBuf {
        self.file("store")
    }

    pub fn log(&self) -> PathBuf {
        self.file("log")
    }

    pub fn old_log(&self) -> PathBuf {
        self.file("log.old")
    }

    /// The content of the token file: port and token.
    pub fn read_token(&self) -> io::Result<(u16, String)> {
        let text = regular::read_to_string(&self.token())?;
        let parsed = text.trim_end().split_once(' ');
        parsed
            .and_then(|(port, token)| Some((port.parse().ok()?, token.to_owned())))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not PORT TOKEN"))
    }
}
