//! Opens the page in the desktop's browser, without showing the token to other users.
//!
//! Every user of a machine can see the arguments of programs. So the browser gets the path of a file that redirects to
//! the page, and that only we can read.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use log::warn;

use crate::files::folder::Folder;
use crate::files::regular;

const OPENER: &str = "xdg-open";

/// The redirecting file. It is removed when the dashboard ends.
pub struct RedirectFile(Option<PathBuf>);

impl RedirectFile {
    /// Does nothing without a desktop. A failure is only logged.
    pub fn open(folder: &Folder, address: &str) -> RedirectFile {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        if !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
            return RedirectFile(None);
        }
        let path = folder.door(std::process::id());
        let opened = folder
            .make()
            .and_then(|()| write(&path, address).map_err(|error| format!("write {}: {error}", path.display())))
            .and_then(|()| launch(&path).map_err(|error| format!("run {OPENER}: {error}")));
        if let Err(why) = opened {
            warn!("open the page: {why}; open the address yourself, or say --no-open");
        }
        RedirectFile(Some(path))
    }
}

impl Drop for RedirectFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn write(path: &Path, address: &str) -> io::Result<()> {
    // An earlier process with our number may have left one.
    let _ = fs::remove_file(path);
    let meta = format!("<meta http-equiv=\"refresh\" content=\"0; url={address}\">");
    let page = format!("<!doctype html><title>wafd</title>{meta}<a href=\"{address}\">wafd dashboard</a>\n");
    regular::create(path, page.as_bytes())
}

/// Its output is discarded. A thread waits for it, so that it does not become a zombie.
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
