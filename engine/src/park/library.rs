//! `libwafpark.so` where programs can load it: embedded here, written into the runtime folder when the engine starts.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::folder::Folder;

pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libwafpark.so"));

/// Writes it under another name first: programs that have an older one loaded keep that.
pub fn install(folder: &Folder) -> io::Result<CString> {
    if LIBRARY.is_empty() {
        return Err(io::Error::other("parking knows x86-64 and arm64 only"));
    }
    let path = folder.library();
    let fresh = path.with_extension("so.new");
    let _ = fs::remove_file(&fresh);
    fs::write(&fresh, LIBRARY)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o500))?;
    fs::rename(&fresh, &path)?;
    // The loader would take these for the end of the name, or for a variable of its own.
    if path.as_os_str().as_bytes().iter().any(|b| b" :$".contains(b)) {
        // Open for as long as the engine lives.
        let file = fs::File::open(&path)?.into_raw_fd();
        let other = format!("/proc/{}/fd/{file}", std::process::id());
        return Ok(c_path(Path::new(&other)));
    }
    Ok(c_path(&path))
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
