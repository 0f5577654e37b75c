//! HTTP replies of a team's server.

pub use crate::http::reply::Staying;

use crate::http::reply;

const ALLOW: &str = "Allow: GET, HEAD, PUT, DELETE, OPTIONS, PROPFIND, MKCOL\r\n";

/// Everything but the body, with the body's type and length.
pub fn head(out: &mut Vec<u8>, status: u16, kind: &str, length: u64, staying: Staying) {
    let more = match status {
        401 => "WWW-Authenticate: Basic realm=\"wafd\"\r\n",
        405 => ALLOW,
        200 if kind.is_empty() => ALLOW,
        _ => "",
    };
    reply::head(out, status, kind, Some(length), more, staying);
}

/// A reply with this text as its body.
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

/// The properties of one file or folder for WebDAV clients.
pub fn properties(path: &str, length: Option<u64>) -> String {
    let path = path.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let kind = match length {
        None => "<D:resourcetype><D:collection/></D:resourcetype>".to_owned(),
        Some(length) => format!("<D:resourcetype/><D:getcontentlength>{length}</D:getcontentlength>"),
    };
    // No time is kept, so each file has the earliest one.
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{path}</D:href>\
         <D:propstat><D:prop>{kind}<D:getlastmodified>Thu, 01 Jan 1970 00:00:00 GMT</D:getlastmodified></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>\n"
    )
}
