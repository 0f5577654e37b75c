//! Opens the page on a desktop, without telling the token to whoever lists processes.
//!
//! Arguments of programs are seen by all users of a machine. So the browser is given a file that only we can read, and that
//! leads to the page.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use log::warn;

use crate::files::folder::Folder;

const OPENER: &str = "xdg-open";

/// The file; it is gone with us, as is what it leads to.
pub struct Door(Option<PathBuf>);

impl Door {
    /// Nothing where there is no desktop; what fails is told, and no reason to end.
    pub fn open(folder: &Folder, address: &str) -> Door {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        if !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
            return Door(None);
        }
        let path = folder.door(std::process::id());
        let opened = folder
            .make()
            .and_then(|()| write(&path, address).map_err(|error| format!("write {}: {error}", path.display())))
            .and_then(|()| launch(&path).map_err(|error| format!("run {OPENER}: {error}")));
        if let Err(why) = opened {
            warn!("open the page: {why}; open the address yourself, or say --no-open");
        }
        Door(Some(path))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn write(path: &Path, address: &str) -> io::Result<()> {
    // A process of this number may have left one.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let meta = format!("<meta http-equiv=\"refresh\" content=\"0; url={address}\">");
    writeln!(
        file,
        "<!doctype html><title>wafd</title>{meta}<a href=\"{address}\">wafd dashboard</a>"
    )
}

/// What it says is for nobody; it is waited for, as its end is ours to hear of.
fn launch(path: &Path) -> io::Result<()> {
    let mut child = Command::new(OPENER)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    thread::Builder::new()
        .name("browser".to_owned())
        .spawn(move || child.wait())
        .map(drop)
}
