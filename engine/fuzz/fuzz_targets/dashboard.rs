//! Requests to `wafd dashboard`, which any program on this machine, and any page in its browser, can send.

#![no_main]

use fuzzed::{cut, pieces, seed, stream, within};
use libfuzzer_sys::fuzz_target;
use wafengine::dashboard::PORT;
use wafengine::http::asker::Names;
use wafengine::http::head::{self, Head, CAP};

fn seeds() -> Vec<Vec<u8>> {
    let all: [&[u8]; 3] = [
        b"GET /0123456789abcdef/ HTTP/1.1\r\nHost: 127.0.0.1:8117\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\nAccept: */*\r\n\r\n",
        b"HEAD /0123456789abcdef/news?x#y HTTP/1.0\r\nhost: LocalHost\r\n\r\nGET",
        b"POST http://h/x HTTP/1.1\r\nHost: evil.example:80\r\nContent-Length: 1\r\n\r\n.",
    ];
    all.iter().map(|text| cut(text)).collect()
}

/// The only request of a connection. All bytes after it are ignored.
fn request<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Option<Head>, bool) {
    let mut seen: Option<Head> = None;
    let names = Names::default();
    let read: Result<usize, ()> = stream(pieces, |input| {
        if seen.is_none() {
            let limit = 4 * input.len().min(CAP) + 4096;
            let found = within(limit, || head::parse(input, &names, &PORT)).map_err(drop)?;
            seen = found.map(|(head, _)| head);
        }
        Ok((seen.is_some() && !input.is_empty()).then_some(input.len()))
    });
    (seen, read.is_err())
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let Some((whole, pieces)) = pieces(data) else { return };
    assert_eq!(request([whole]), request(pieces));
});
