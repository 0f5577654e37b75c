//! Heads of replies in HTTP/1.1.

use std::io::Write;

/// What a reply says about its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staying {
    Quietly,
    /// The connection stays open, and the reply says so: HTTP/1.0 clients expect the end.
    Aloud,
    Not,
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        207 => "Multi-Status",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        _ => "Internal Server Error",
    }
}

/// Writes all but the body. A body without a length ends with its connection. `more` has further header lines.
pub fn head(out: &mut Vec<u8>, status: u16, kind: &str, length: Option<u64>, more: &str, staying: Staying) {
    // Writing to memory cannot fail.
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", reason(status));
    if let Some(length) = length.filter(|_| status != 204) {
        let _ = write!(out, "Content-Length: {length}\r\n");
    }
    if length != Some(0) {
        let _ = write!(out, "Content-Type: {kind}\r\n");
    }
    out.extend(more.as_bytes());
    out.extend(
        match staying {
            Staying::Quietly => "",
            Staying::Aloud => "Connection: keep-alive\r\n",
            Staying::Not => "Connection: close\r\n",
        }
        .as_bytes(),
    );
    out.extend(b"\r\n");
}
