//! Lines of the log: local time, level, what happened.

use std::ffi::CStr;
use std::io::{self, Write};

use log::Record;

pub fn write(out: &mut impl Write, record: &Record<'_>) -> io::Result<()> {
    writeln!(out, "{} {:5} {}", now(), record.level(), record.args())
}

/// Uses libc, which knows the time zone. A crate for it takes longer to compile than our own code.
fn now() -> String {
    let mut text = [0u8; 32];
    // SAFETY: libc writes only within the given buffers, and strftime writes a final zero.
    unsafe {
        let time = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&time, &mut parts);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), c"%F %T".as_ptr(), &parts);
    }
    CStr::from_bytes_until_nul(&text)
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_level_and_message() {
        let mut line = Vec::new();
        let record = Record::builder()
            .level(log::Level::Warn)
            .args(format_args!("it is late"))
            .build();
        write(&mut line, &record).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(line.ends_with(" WARN  it is late\n"), "{line}");
        assert_eq!(line.split(' ').next().unwrap().len(), "2026-01-01".len());
    }
}
