//! Answers in HTTP/1.1.

use std::io::Write;

/// What a reply says of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staying {
    Quietly,
    /// To clients that expect the end.
    Aloud,
    Not,
}

pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        207 => "Multi-Status",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        421 => "Misdirected Request",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        _ => "Internal Server Error",
    }
}

/// Everything but the body, of which it tells type and length.
pub fn head(out: &mut Vec<u8>, status: u16, kind: &str, length: u64, staying: Staying) {
    // Into memory: it cannot fail.
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", reason(status));
    if status != 204 {
        let _ = write!(out, "Content-Length: {length}\r\n");
    }
    if length > 0 {
        let _ = write!(out, "Content-Type: {kind}\r\n");
    }
    let _ = out.write_all(match status {
        401 => b"WWW-Authenticate: Basic realm=\"wafd\"\r\n",
        405 | 200 if kind.is_empty() => b"Allow: GET, HEAD, PUT, DELETE, OPTIONS, PROPFIND, MKCOL\r\n",
        _ => b"",
    });
    let _ = out.write_all(match staying {
        Staying::Quietly => b"\r\n",
        Staying::Aloud => b"Connection: keep-alive\r\n\r\n",
        Staying::Not => b"Connection: close\r\n\r\n",
    });
}

/// With words as its body.
pub fn words(out: &mut Vec<u8>, status: u16, words: &str, staying: Staying) {
    let body = match words {
        "" => String::new(),
        words => format!("{words}\n"),
    };
    head(out, status, "text/plain; charset=utf-8", body.len() as u64, staying);
    if status != 204 {
        out.extend(body.as_bytes());
    }
}

/// What WebDAV clients want to know of one thing.
pub fn properties(path: &str, length: Option<u64>) -> String {
    let path: String = path.chars().flat_map(escaped).collect();
    let kind = match length {
        None => "<D:resourcetype><D:collection/></D:resourcetype>".to_owned(),
        Some(length) => format!("<D:resourcetype/><D:getcontentlength>{length}</D:getcontentlength>"),
    };
    // No time is kept; whoever wants one gets the first.
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{path}</D:href>\
         <D:propstat><D:prop>{kind}<D:getlastmodified>Thu, 01 Jan 1970 00:00:00 GMT</D:getlastmodified></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>\n"
    )
}

fn escaped(c: char) -> Vec<char> {
    let text = match c {
        '<' => "&lt;",
        '>' => "&gt;",
        '&' => "&amp;",
        _ => return vec![c],
    };
    text.chars().collect()
}
