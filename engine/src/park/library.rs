//! `libwafpark.so` in a place from which programs can load it. It is embedded here, and written into the runtime folder
//! when the engine starts.

use std::ffi::CString;
use std::fs;
use std::io;
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{memfd_create, MemfdFlags};

use crate::files::folder::Folder;

pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libwafpark.so"));

/// Programs load the library through a file that the engine has open. So it is there as long as the engine, even if the
/// runtime folder is removed. Without the library, the loader would print a warning on the standard error of each program.
/// If nothing can be written to the folder, memory is used instead.
pub fn install(folder: &Folder) -> io::Result<CString> {
    if LIBRARY.is_empty() {
        return Err(io::Error::other("parking knows x86-64 and arm64 only"));
    }
    let file = write(folder).or_else(|error| in_memory().map_err(|_| error))?;
    // Open as long as the engine lives.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.into_raw_fd());
    Ok(CString::new(path).unwrap_or_default())
}

fn in_memory() -> io::Result<fs::File> {
    let mut file = fs::File::from(memfd_create("wafpark.so", MemfdFlags::CLOEXEC)?);
    file.write_all(LIBRARY)?;
    Ok(file)
}

/// Written under another name first, because programs that have loaded an older file keep using that.
fn write(folder: &Folder) -> io::Result<fs::File> {
    let path = folder.library();
    let fresh = path.with_extension("so.new");
    let _ = fs::remove_file(&fresh);
    fs::write(&fresh, LIBRARY)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o500))?;
    let file = fs::File::open(&fresh)?;
    fs::rename(&fresh, &path)?;
    Ok(file)
}
