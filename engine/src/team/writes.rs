//! The log of who wrote what: a line of JSON per write, in a file that is put aside when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use log::warn;
use serde_json::json;

/// A file that is longer is put aside as `FILE.old`, in the place of the one before it.
const FULL: u64 = 64 << 20;

/// What somebody wrote.
pub struct DiskWork<'a> {
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

pub struct Writes {
    path: PathBuf,
    full: u64,
    open: Mutex<Open>,
}

impl Writes {
    pub fn open(path: PathBuf) -> Result<Writes, String> {
        let open = open(&path).map_err(|error| format!("log of writes {}: {error}", path.display()))?;
        Ok(Writes {
            path,
            full: FULL,
            open: Mutex::new(open),
        })
    }

    /// A write is not refused because it cannot be told of; the log of the server says so once.
    pub fn tell(&self, disk_work: &DiskWork<'_>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.append(&mut open, line(disk_work).as_bytes());
        if let Err(error) = &told {
            if !open.has_failed {
                warn!("log of writes {}: {error}", self.path.display());
            }
        }
        open.has_failed = told.is_err();
    }

    fn append(&self, now: &mut Open, line: &[u8]) -> io::Result<()> {
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

fn line(disk_work: &DiskWork<'_>) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let line = json!({
        "time": since.unwrap_or_default().as_millis() as u64,
        "who": disk_work.name,
        "address": disk_work.peer.to_string(),
        "namespace": disk_work.namespace,
        "what": disk_work.what,
        "key": disk_work.key,
        "size": disk_work.size,
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_put_aside() {
        let path = std::env::temp_dir().join(format!("writes-{}", std::process::id()));
        let mut writes = Writes::open(path.clone()).unwrap();
        writes.full = 1;
        for key in ["one", "two\n"] {
            writes.tell(&DiskWork {
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
