//! Replies to browsers: heads, and pages with a message.

use crate::http::reply::{self, Staying};

/// Headers of every reply. The page loads nothing from other sites, is in no other site's frame, and runs no text as a
/// script. The address, which contains the token, is not sent to other sites.
const RULES: &str = "\
Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'\r\n\
Referrer-Policy: no-referrer\r\n\
X-Content-Type-Options: nosniff\r\n\
X-Frame-Options: DENY\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
Cross-Origin-Opener-Policy: same-origin\r\n\
Cache-Control: no-store\r\n";

pub const HTML: &str = "text/html; charset=utf-8";

/// The head of a reply. A reply without a length ends with its connection.
pub fn head(status: u16, kind: &str, length: Option<usize>) -> Vec<u8> {
    let more = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    head_with(status, kind, length, more)
}

pub fn redirect(to: &str) -> Vec<u8> {
    head_with(308, HTML, Some(0), &format!("Location: {to}\r\n"))
}

fn head_with(status: u16, kind: &str, length: Option<usize>, more: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let length = length.map(|length| length as u64);
    reply::head(&mut out, status, kind, length, &format!("{more}{RULES}"), Staying::Not);
    out
}

/// A page with a message of ours.
pub fn message_page(words: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\">\
        <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"icon\" href=\"data:,\"><title>wafd</title>\
        <h1>wafd dashboard</h1><p>{words}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_the_rules_and_one_empty_line_at_its_end() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        for text in [head(200, HTML, Some(7)), head(405, HTML, None), redirect("/abc/")].map(text) {
            assert!(text.contains("default-src 'none'") && text.contains("no-referrer"));
            assert_eq!(text.find("\r\n\r\n"), Some(text.len() - 4), "{text}");
        }
        let page = text(head(200, HTML, Some(7)));
        assert!(page.contains("\r\nContent-Length: 7\r\n") && page.contains("\r\nConnection: close\r\n"));
        assert!(text(redirect("/abc/"))
            .contains("HTTP/1.1 308 Permanent Redirect\r\nContent-Length: 0\r\nLocation: /abc/\r\n"));
    }
}
