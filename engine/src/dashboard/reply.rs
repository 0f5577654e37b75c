//! Answers to browsers: heads, and pages that say why there is nothing to see.

/// Nothing from elsewhere, nothing inside of somebody else's page, no text that becomes a script; and nobody is told the
/// address, which holds the token.
const RULES: &str = "\
Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'\r\n\
Referrer-Policy: no-referrer\r\n\
X-Content-Type-Options: nosniff\r\n\
X-Frame-Options: DENY\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
Cross-Origin-Opener-Policy: same-origin\r\n\
Cache-Control: no-store\r\n\
Connection: close\r\n";

pub const HTML: &str = "text/html; charset=utf-8";

/// The head of an answer; one without a length ends with its connection.
pub fn head(status: u16, kind: &str, length: Option<usize>) -> String {
    let reason = match status {
        200 => "OK",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed\r\nAllow: GET, HEAD",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Other",
    };
    let length = length.map(|length| format!("Content-Length: {length}\r\n"));
    let length = length.unwrap_or_default();
    format!("HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n{length}{RULES}\r\n")
}

pub fn redirect(to: &str) -> String {
    let head = head(308, HTML, Some(0));
    head.replacen("\r\n", &format!("\r\nLocation: {to}\r\n"), 1)
}

/// A page of these words, which are ours.
pub fn page_of(words: &str) -> String {
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
        for text in [head(200, HTML, Some(7)), head(405, HTML, None), redirect("/abc/")] {
            assert!(text.contains("default-src 'none'") && text.contains("no-referrer"));
            assert_eq!(text.find("\r\n\r\n"), Some(text.len() - 4), "{text}");
        }
        assert!(head(200, HTML, Some(7)).contains("\r\nContent-Length: 7\r\n"));
        assert!(redirect("/abc/").starts_with("HTTP/1.1 308 Permanent Redirect\r\nLocation: /abc/\r\n"));
    }
}
