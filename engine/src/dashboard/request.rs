//! The head of a browser's request, as far as the page's host has to know it.
//!
//! Pure. Whoever asks for something else than to read, or by another name than that of this machine, is refused before
//! its token is looked at.

use httparse::{Request as Head, Status};

use crate::http::asker::{Elsewhere, Names, Refused};

/// The longest head.
pub const CAP: usize = 8 << 10;
const HEADERS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Only the head of the answer is wanted.
    pub is_head: bool,
    /// The first part of the path.
    pub token: String,
    /// What follows it; none if not even a slash does.
    pub name: Option<String>,
}

/// A request that is answered with this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad(pub u16, pub &'static str);

/// The request that the input begins with; `None` if its head has not come whole.
pub fn parse(input: &[u8], names: &Names) -> Result<Option<Request>, Bad> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = Head::new(&mut headers);
    match head.parse(input) {
        Ok(Status::Complete(length)) if length <= CAP => {}
        Ok(Status::Partial) if input.len() < CAP => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Bad(431, "the head is too long")),
        Err(_) => return Err(Bad(400, "no HTTP request")),
    }
    // A link may lead here, as the file that the desktop's browser is given does; what it leads to needs the token.
    let refused = |Refused(status, words)| Bad(status, words);
    names.check(&head, Elsewhere::Leads).map_err(refused)?;
    let is_head = match head.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Bad(405, "this page is only read")),
    };
    let target = head.path.unwrap_or_default();
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let Some(path) = path.strip_prefix('/') else {
        return Err(Bad(400, "no absolute path"));
    };
    let (token, name) = path
        .split_once('/')
        .map_or((path, None), |(token, name)| (token, Some(name)));
    Ok(Some(Request {
        is_head,
        token: token.to_owned(),
        name: name.map(str::to_owned),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Result<Option<Request>, Bad> {
        parse(text.as_bytes(), &Names::default())
    }

    #[test]
    fn a_request_is_understood_when_all_of_it_is_there() {
        let text = "GET /abc/news?x=/y HTTP/1.1\r\nHost: 127.0.0.1:81\r\nAccept: */*\r\n\r\n";
        let expected = Request {
            is_head: false,
            token: "abc".to_owned(),
            name: Some("news".to_owned()),
        };
        assert_eq!(ask(text), Ok(Some(expected.clone())));
        for cut in 0..text.len() {
            assert_eq!(ask(&text[..cut]), Ok(None), "cut to {cut}");
        }
        let more = format!("{text}GET /");
        assert_eq!(ask(&more), Ok(Some(expected)));
    }

    #[test]
    fn a_path_is_a_token_and_a_name() {
        for (path, token, name) in [
            ("/", "", None),
            ("/abc", "abc", None),
            ("/abc?/x", "abc", None),
            ("/abc/", "abc", Some("")),
            ("//x", "", Some("x")),
            ("/abc/../x", "abc", Some("../x")),
        ] {
            let found = ask(&format!("HEAD {path} HTTP/1.1\r\nHost: LocalHost\r\n\r\n"));
            let found = found.unwrap().unwrap();
            assert!(found.is_head);
            assert_eq!((found.token.as_str(), found.name.as_deref()), (token, name), "{path}");
        }
    }

    #[test]
    fn only_this_machine_by_its_own_name_is_asked() {
        for (headers, status) in [
            ("Host: evil.example\r\n", 421),
            ("Host: 127.0.0.1@evil.example\r\n", 421),
            ("Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
            ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
            ("Host: 127.0.0.1\r\nHost: evil.example\r\n", 400),
            ("", 400),
        ] {
            let found = ask(&format!("GET /abc/ HTTP/1.1\r\n{headers}\r\n"));
            assert_eq!(found.unwrap_err().0, status, "{headers}");
        }
    }

    #[test]
    fn what_is_no_wish_to_read_is_refused() {
        for (line, status) in [
            ("POST /abc/ HTTP/1.1", 405),
            ("PUT /abc/ HTTP/1.1", 405),
            ("OPTIONS * HTTP/1.1", 405),
            ("GET http://127.0.0.1/abc/ HTTP/1.1", 400),
            ("GET abc HTTP/1.1", 400),
            ("GET /abc/", 400),
        ] {
            let found = ask(&format!("{line}\r\nHost: 127.0.0.1\r\n\r\n"));
            assert_eq!(found.unwrap_err().0, status, "{line}");
        }
    }

    #[test]
    fn a_head_without_an_end_is_refused_at_its_cap() {
        let text = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(CAP));
        assert_eq!(ask(&text).unwrap_err().0, 431);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS + 1));
        assert_eq!(ask(&many).unwrap_err().0, 431);
    }

    #[test]
    fn no_changed_byte_makes_it_panic() {
        let text = b"GET /abc/news HTTP/1.1\r\nHost: 127.0.0.1:81\r\n\r\n";
        for at in 0..text.len() {
            for byte in 0..=255 {
                let mut changed = text.to_vec();
                changed[at] = byte;
                let _ = parse(&changed, &Names::default());
            }
        }
    }
}
