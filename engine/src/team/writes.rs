//! The log of `--log-writes`: a line of JSON for each change, in a file that is renamed when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use log::warn;
use serde_json::json;

/// A longer file is renamed to `FILE.old`, which replaces the previous one.
const FULL: u64 = 64 << 20;

/// A change by a client.
pub struct Write<'a> {
    pub name: &'a str,
    pub peer: SocketAddr,
    pub namespace: &'a str,
    /// `entry`, `blob`, `put` or `delete`.
    pub what: &'static str,
    pub key: &'a str,
    pub size: u64,
}

struct Open {
    file: File,
    length: u64,
    has_failed: bool,
}

pub struct WriteLog {
    path: PathBuf,
    full: u64,
    open: Mutex<Open>,
}

impl WriteLog {
    pub fn open(path: PathBuf) -> Result<WriteLog, String> {
        let open = open(&path).map_err(|error| format!("log of writes {}: {error}", path.display()))?;
        Ok(WriteLog {
            path,
            full: FULL,
            open: Mutex::new(open),
        })
    }

    /// An error does not fail the client's request. The server's own log reports it once.
    pub fn append(&self, write: &Write<'_>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.write(&mut open, line(write).as_bytes());
        if let Err(error) = &written {
            if !open.has_failed {
                warn!("log of writes {}: {error}", self.path.display());
            }
        }
        open.has_failed = written.is_err();
    }

    fn write(&self, now: &mut Open, line: &[u8]) -> io::Result<()> {
        if now.length >= self.full {
            let mut old = self.path.clone().into_os_string();
            old.push(".old");
            fs::rename(&self.path, old)?;
            *now = open(&self.path)?;
        }
        now.file.write_all(line)?;
        now.length += line.len() as u64;
        Ok(())
    }
}

fn open(path: &PathBuf) -> io::Result<Open> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    Ok(Open {
        length: file.metadata()?.len(),
        file,
        has_failed: false,
    })
}

fn line(write: &Write<'_>) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let line = json!({
        "time": since.unwrap_or_default().as_millis() as u64,
        "who": write.name,
        "address": write.peer.to_string(),
        "namespace": write.namespace,
        "what": write.what,
        "key": write.key,
        "size": write.size,
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_renamed() {
        let path = std::env::temp_dir().join(format!("writes-{}", std::process::id()));
        let mut writes = WriteLog::open(path.clone()).unwrap();
        writes.full = 1;
        for key in ["one", "two\n"] {
            writes.append(&Write {
                name: "ci",
                peer: ([127, 0, 0, 1], 7).into(),
                namespace: "",
                what: "put",
                key,
                size: 9,
            });
        }
        let old = path.with_file_name(format!("writes-{}.old", std::process::id()));
        let read = |path| -> serde_json::Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
        let (first, second) = (read(&old), read(&path));
        fs::remove_file(&path).unwrap();
        fs::remove_file(&old).unwrap();
        assert_eq!((&first["key"], &second["key"]), (&json!("one"), &json!("two\n")));
        assert_eq!(second["address"], "127.0.0.1:7");
    }
}
