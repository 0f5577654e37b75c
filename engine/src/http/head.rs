//! The head of an HTTP/1 request.
//!
//! Pure. A head that can be read in two ways (two lengths, a length beside chunks, folded lines) is refused.

use base64::prelude::{Engine, BASE64_STANDARD};
use httparse::{Request, Status};

use super::asker::{Elsewhere, Names};
use super::Refused;

/// The longest head. It contains the token, so its sender is not known yet.
pub const CAP: usize = 8 << 10;
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

/// How a request says where its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunks,
}

/// What a port accepts.
#[derive(Debug)]
pub struct Port {
    /// The methods, as they are written.
    pub methods: &'static [(&'static str, Method)],
    /// The reply to other methods.
    pub other_methods: &'static str,
    pub elsewhere: Elsewhere,
    /// The head may have a token. If not, `Authorization` is left to proxies.
    pub has_logins: bool,
    /// A target may begin with a scheme and a host, as for proxies.
    pub takes_hosts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub method: Method,
    /// Without the query.
    pub path: String,
    pub framing: Framing,
    pub expects: bool,
    pub keeps_alive: bool,
    /// HTTP/1.0: such clients must be told that the connection stays open.
    pub is_old: bool,
    /// The token, not checked yet.
    pub token: Vec<u8>,
}

/// All methods that are known.
pub const METHODS: [(&str, Method); 7] = [
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("PUT", Method::Put),
    ("DELETE", Method::Delete),
    ("OPTIONS", Method::Options),
    ("PROPFIND", Method::PropFind),
    ("MKCOL", Method::MkCol),
];

/// Parses the head at the beginning of the input, and returns it with its length. `None` if it is not complete. After a
/// refusal the rest of the connection cannot be understood.
pub fn parse(input: &[u8], names: &Names, port: &Port) -> Result<Option<(Head, usize)>, Refused> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(input) {
        Ok(Status::Complete(length)) if length <= CAP => length,
        Ok(Status::Partial) if input.len() < CAP => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refused(431, "the head is too long")),
        Err(_) => return Err(Refused(400, "no HTTP request")),
    };
    names.check(&request, port.elsewhere)?;
    let method = port.methods.iter().find(|(name, _)| Some(*name) == request.method);
    let method = method.ok_or(Refused(405, port.other_methods))?.1;
    let is_old = request.version == Some(0);
    let mut head = Head {
        method,
        path: path(request.path.unwrap_or_default(), method, port)?,
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
            let length = number(value).ok_or(Refused(400, "the length is no number"))?;
            if lengths.replace(length).is_some_and(|other| other != length) {
                return Err(Refused(400, "two lengths"));
            }
        } else if is("transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") || is_chunked {
                return Err(Refused(501, "no such transfer encoding here"));
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
                return Err(Refused(417, "no such expectation here"));
            }
            head.expects = !is_old;
        } else if is("authorization") && port.has_logins {
            head.token = token(value).ok_or(Refused(400, "an authorization that is not Bearer or Basic"))?;
        }
    }
    head.framing = match (is_chunked, lengths) {
        (true, Some(_)) => return Err(Refused(400, "a length beside chunks")),
        (true, None) if is_old => return Err(Refused(400, "chunks in HTTP/1.0")),
        (true, None) => Framing::Chunks,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    Ok(Some((head, length)))
}

/// The path of a target, if it is one that can exist here.
fn path(target: &str, method: Method, port: &Port) -> Result<String, Refused> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let path = match path.strip_prefix("http://").or_else(|| path.strip_prefix("https://")) {
        Some(rest) if port.takes_hosts => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => path,
    };
    if path == "*" && method == Method::Options {
        return Ok("/".to_owned());
    }
    if path.len() > LONGEST_PATH {
        return Err(Refused(414, "the path is too long"));
    }
    if !path.starts_with('/') || path.split('/').any(|part| part == "." || part == "..") {
        return Err(Refused(400, "no absolute path"));
    }
    Ok(path.to_owned())
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The token of `Bearer TOKEN`, or the password of `Basic`.
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

    const PORT: Port = Port {
        methods: &[("GET", Method::Get), ("PUT", Method::Put)],
        other_methods: "only GET and PUT",
        elsewhere: Elsewhere::Nothing,
        has_logins: true,
        takes_hosts: true,
    };

    fn head(text: &str) -> Result<Head, Refused> {
        parse(text.as_bytes(), &Names::default(), &PORT).map(|found| found.unwrap().0)
    }

    #[test]
    fn a_head_is_understood() {
        let text = "PUT /ab/cdef?x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\nExpect: 100-continue\r\nAuthorization: Bearer abc\r\n\r\nrest";
        let (found, length) = parse(text.as_bytes(), &Names::default(), &PORT).unwrap().unwrap();
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
                parse(&text.as_bytes()[..cut], &Names::default(), &PORT),
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
    fn a_port_may_know_no_logins_and_no_form_for_proxies() {
        let port = Port {
            has_logins: false,
            takes_hosts: false,
            ..PORT
        };
        let of = |text: &str, port| parse(text.as_bytes(), &Names::default(), port).map(|found| found.unwrap().0);
        let login = "GET /x HTTP/1.0\r\nAuthorization: Digest x\r\n\r\n";
        assert_eq!(of(login, &PORT).unwrap_err().0, 400);
        assert!(of(login, &port).unwrap().token.is_empty());
        let target = "GET http://localhost/x HTTP/1.0\r\n\r\n";
        assert_eq!(of(target, &PORT).unwrap().path, "/x");
        assert_eq!(of(target, &port).unwrap_err().0, 400);
    }

    #[test]
    fn an_ambiguous_head_is_refused() {
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
        for (line, status) in [
            ("GET /a/../b", 400),
            ("GET x", 400),
            ("GET /./x", 400),
            ("GET *", 400),
            ("POST /", 405),
            ("DELETE /", 405),
        ] {
            let found = head(&format!("{line} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert_eq!(found.unwrap_err().0, status, "{line}");
        }
    }

    #[test]
    fn a_head_without_an_end_is_refused_at_its_cap() {
        let text = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(CAP));
        assert_eq!(parse(text.as_bytes(), &Names::default(), &PORT).unwrap_err().0, 431);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS + 1));
        assert_eq!(parse(many.as_bytes(), &Names::default(), &PORT).unwrap_err().0, 431);
    }

    #[test]
    fn no_changed_byte_makes_it_panic() {
        let text = b"PUT /x HTTP/1.1\r\nHost: [::1]:7\r\nContent-Length: 1\r\nAuthorization: Basic YTpi\r\n\r\n";
        for at in 0..text.len() {
            for value in 0..=u8::MAX {
                let mut changed = text.to_vec();
                changed[at] = value;
                if let Ok(Some((_, length))) = parse(&changed, &Names::default(), &PORT) {
                    assert!(length <= text.len());
                }
            }
        }
    }
}
