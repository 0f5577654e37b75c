//! The head of an HTTP/1 request, as far as a store has to know it.
//!
//! Pure. What could be read in two ways (two lengths, a length beside chunks, folded lines) is refused.

use base64::prelude::{Engine, BASE64_STANDARD};
use httparse::{Request, Status};

use crate::http::asker::{Elsewhere, Names, Refused};
use crate::team::limits::UNKNOWN;

/// The longest head: it has the token, before which nothing is known of a peer.
pub const CAP: usize = UNKNOWN;
const HEADERS: usize = 64;
const LONGEST_PATH: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Put,
    Delete,
    Options,
    PropFind,
    MkCol,
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub method: Method,
    /// Without what follows a question mark.
    pub path: String,
    pub framing: Framing,
    pub expects: bool,
    pub keeps_alive: bool,
    /// Such clients have to be told that the connection stays.
    pub is_old: bool,
    /// The token that came along, as it is.
    pub token: Vec<u8>,
}

/// A request that is answered with this, after which the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad(pub u16, pub &'static str);

const METHODS: [(&str, Method); 7] = [
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("PUT", Method::Put),
    ("DELETE", Method::Delete),
    ("OPTIONS", Method::Options),
    ("PROPFIND", Method::PropFind),
    ("MKCOL", Method::MkCol),
];

/// The head that the input begins with, and its length; `None` if it has not come whole. Only by these names is it taken.
pub fn parse(input: &[u8], names: &Names) -> Result<Option<(Head, usize)>, Bad> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(input) {
        Ok(Status::Complete(length)) if length <= CAP => length,
        Ok(Status::Partial) if input.len() < CAP => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Bad(431, "the head is too long")),
        Err(_) => return Err(Bad(400, "no HTTP request")),
    };
    let refused = |Refused(status, words)| Bad(status, words);
    names.check(&request, Elsewhere::Nothing).map_err(refused)?;
    let method = METHODS.iter().find(|(name, _)| Some(*name) == request.method);
    let is_old = request.version == Some(0);
    let mut head = Head {
        method: method.ok_or(Bad(405, "no such method here"))?.1,
        path: path(request.path.unwrap_or_default())?,
        framing: Framing::Length(0),
        expects: false,
        keeps_alive: !is_old,
        is_old,
        token: Vec::new(),
    };
    let mut lengths = None;
    let mut is_chunked = false;
    for header in request.headers.iter() {
        let value = header.value;
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let length = number(value).ok_or(Bad(400, "the length is no number"))?;
            if lengths.replace(length).is_some_and(|other| other != length) {
                return Err(Bad(400, "two lengths"));
            }
        } else if is("transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") || is_chunked {
                return Err(Bad(501, "no such transfer encoding here"));
            }
            is_chunked = true;
        } else if is("connection") {
            let has = |word: &str| {
                value
                    .split(|b| *b == b',')
                    .any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
            };
            head.keeps_alive = (head.keeps_alive || has("keep-alive")) && !has("close");
        } else if is("expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Bad(417, "no such expectation here"));
            }
            head.expects = !is_old;
        } else if is("authorization") {
            head.token = token(value).ok_or(Bad(400, "an authorization that is not Bearer or Basic"))?;
        }
    }
    head.framing = match (is_chunked, lengths) {
        (true, Some(_)) => return Err(Bad(400, "a length beside chunks")),
        (true, None) if is_old => return Err(Bad(400, "chunks in HTTP/1.0")),
        (true, None) => Framing::Chunks,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    Ok(Some((head, length)))
}

/// Of a target: only what names something here.
fn path(target: &str) -> Result<String, Bad> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    // A proxy's form.
    let path = match path.strip_prefix("http://").or_else(|| path.strip_prefix("https://")) {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => path,
    };
    if path == "*" {
        return Ok("/".to_owned());
    }
    if path.len() > LONGEST_PATH {
        return Err(Bad(414, "the path is too long"));
    }
    if !path.starts_with('/') || path.split('/').any(|part| part == "." || part == "..") {
        return Err(Bad(400, "no absolute path"));
    }
    Ok(path.to_owned())
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// `Bearer TOKEN`, or `Basic` of any name with the token as its password.
fn token(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_at_checked(value.iter().position(|byte| *byte == b' ')?)?;
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(rest.to_vec());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(rest).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, Bad> {
        parse(text.as_bytes(), &Names::default()).map(|found| found.unwrap().0)
    }

    #[test]
    fn a_head_is_understood() {
        let text = "PUT /ab/cdef?x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\nExpect: 100-continue\r\nAuthorization: Bearer abc\r\n\r\nrest";
        let (found, length) = parse(text.as_bytes(), &Names::default()).unwrap().unwrap();
        assert_eq!(length, text.len() - 4);
        let expected = Head {
            method: Method::Put,
            path: "/ab/cdef".to_owned(),
            framing: Framing::Length(12),
            expects: true,
            keeps_alive: true,
            is_old: false,
            token: b"abc".to_vec(),
        };
        assert_eq!(found, expected);
        for cut in 0..length {
            assert_eq!(
                parse(&text.as_bytes()[..cut], &Names::default()),
                Ok(None),
                "cut to {cut}"
            );
        }
    }

    #[test]
    fn a_password_is_a_token() {
        let found = head("GET / HTTP/1.0\r\nAuthorization: Basic YW55Ym9keTphOmI=\r\n\r\n").unwrap();
        assert_eq!(found.token, b"a:b");
        assert!(!found.keeps_alive && found.is_old);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for (lines, status) in [
            ("Content-Length: 1\r\nContent-Length: 2\r\n", 400),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Transfer-Encoding: gzip, chunked\r\n", 501),
            ("Content-Length: +1\r\n", 400),
            ("Content-Length: 99999999999999999999\r\n", 400),
            ("Authorization: Digest x\r\n", 400),
            ("Expect: magic\r\n", 417),
            (" folded: x\r\n", 400),
        ] {
            let found = head(&format!("PUT /x HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"));
            assert_eq!(found.unwrap_err().0, status, "{lines}");
        }
        for target in ["/a/../b", "x", "/./x"] {
            assert_eq!(
                head(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
                    .unwrap_err()
                    .0,
                400
            );
        }
        assert_eq!(head("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap_err().0, 405);
    }

    #[test]
    fn a_head_without_an_end_is_refused_at_its_cap() {
        let text = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(CAP));
        assert_eq!(parse(text.as_bytes(), &Names::default()).unwrap_err().0, 431);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS + 1));
        assert_eq!(parse(many.as_bytes(), &Names::default()).unwrap_err().0, 431);
    }

    #[test]
    fn no_changed_byte_makes_it_panic() {
        let text = b"PUT /x HTTP/1.1\r\nHost: [::1]:7\r\nContent-Length: 1\r\nAuthorization: Basic YTpi\r\n\r\n";
        for at in 0..text.len() {
            for value in 0..=u8::MAX {
                let mut changed = text.to_vec();
                changed[at] = value;
                if let Ok(Some((_, length))) = parse(&changed, &Names::default()) {
                    assert!(length <= text.len());
                }
            }
        }
    }
}
