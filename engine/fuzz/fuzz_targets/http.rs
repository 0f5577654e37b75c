//! HTTP requests of clients: heads and bodies.

#![no_main]

use fuzzed::{cut, pieces, seed, stream, within};
use libfuzzer_sys::fuzz_target;
use wafengine::http::asker::Names;
use wafengine::http::head::{self, Head, CAP};
use wafengine::team::http::body::{Body, Part};
use wafengine::team::http::PORT;

fn seeds() -> Vec<Vec<u8>> {
    let all: [&[u8]; 6] = [
        b"GET /ab/cdef?x HTTP/1.1\r\nHost: h\r\nOrigin: http://h\r\nSec-Fetch-Site: none\r\nAuthorization: Bearer abc\r\n\r\n",
        b"PUT /ac/00 HTTP/1.1\r\nHost: h:7117\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhelloHEAD / HTTP/1.0\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: [::1]:7\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /x HTTP/1.0\r\nConnection: keep-alive, close\r\nAuthorization: Basic YW55Ym9keTphOmI=\r\n\r\n",
        b"PROPFIND http://h/x/ HTTP/1.1\r\nHost: H:80\r\nDepth: 0\r\nContent-Length: 1\r\n\r\n.MKCOL /x/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"DELETE /x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ];
    all.iter().map(|text| cut(text)).collect()
}

/// A request, as far as it has come.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    head: Head,
    content: Vec<u8>,
    is_whole: bool,
}

fn requests<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, bool) {
    let mut seen: Vec<Seen> = Vec::new();
    let mut coming: Option<Body> = None;
    let names = Names::new([], &["h".to_owned()]);
    let read: Result<usize, ()> = stream(pieces, |input| {
        let used = match &mut coming {
            None => {
                match within(4 * input.len().min(CAP) + 4096, || head::parse(input, &names, &PORT)).map_err(drop)? {
                    None => return Ok(None),
                    Some((head, length)) => {
                        assert!(length > 0 && length <= CAP);
                        coming = Some(Body::new(head.framing));
                        seen.push(Seen {
                            head,
                            content: Vec::new(),
                            is_whole: false,
                        });
                        length
                    }
                }
            }
            Some(body) => match body.take(input).map_err(drop)? {
                Part::NeedsInput => return Ok(None),
                Part::Frame(used) => used,
                Part::Content(bytes) => {
                    assert!(!bytes.is_empty());
                    seen.last_mut().unwrap().content.extend_from_slice(bytes);
                    bytes.len()
                }
            },
        };
        if coming.as_ref().is_some_and(Body::is_over) {
            coming = None;
            seen.last_mut().unwrap().is_whole = true;
        }
        Ok(Some(used))
    });
    (seen, read.is_err())
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let Some((whole, pieces)) = pieces(data) else { return };
    assert_eq!(requests([whole]), requests(pieces));
});
