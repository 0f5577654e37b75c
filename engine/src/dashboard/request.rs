//! What a browser asks the page's host for.
//!
//! Pure. What is no wish to read, or comes by another name than that of this machine, is refused before its token is looked at.

use crate::http::asker::{Elsewhere, Names};
use crate::http::head::{self, Method, Port};
use crate::http::Refused;

/// A link may lead here, as the file that the desktop's browser is given does; what it leads to needs the token.
const PORT: Port = Port {
    methods: &[("GET", Method::Get), ("HEAD", Method::Head)],
    other_methods: "this page is only read",
    elsewhere: Elsewhere::Leads,
    has_logins: false,
    takes_hosts: false,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Only the head of the answer is wanted.
    pub is_head: bool,
    /// The first part of the path.
    pub token: String,
    /// What follows it; none if not even a slash does.
    pub name: Option<String>,
}

/// The request that the input begins with; `None` if its head has not come whole.
pub fn parse(input: &[u8], names: &Names) -> Result<Option<Request>, Refused> {
    let found = head::parse(input, names, &PORT)?;
    Ok(found.map(|(head, _)| {
        let mut parts = head.path[1..].splitn(2, '/').map(str::to_owned);
        Request {
            is_head: head.method == Method::Head,
            token: parts.next().unwrap_or_default(),
            name: parts.next(),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Result<Option<Request>, Refused> {
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
            ("/abc/x/y", "abc", Some("x/y")),
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
            ("GET /abc/../x HTTP/1.1", 400),
            ("GET /abc/", 400),
        ] {
            let found = ask(&format!("{line}\r\nHost: 127.0.0.1\r\n\r\n"));
            assert_eq!(found.unwrap_err().0, status, "{line}");
        }
    }
}
