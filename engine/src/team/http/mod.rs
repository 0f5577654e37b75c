//! The dialect of HTTP caches: ccache's HTTP storage, Bazel's `/ac` and `/cas`, and the part of WebDAV that sccache needs.
//!
//! Each path is a name in the token's namespace. A new value replaces the old one.

pub mod body;
mod reply;

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use self::body::{Body, Part};
use self::reply::Staying;
use super::dialect::{Dialect, Step};
use super::disk_threads::Done;
use super::metrics::{Language, Outcome, Rejection};
use super::outbox::{Body as Content, Wrapping};
use super::shared::{Admission, Exchange};
use super::upload::Upload;
use super::value_store::{store_job, Lookup, NamespacedKey, NotStored};
use crate::bytes::digest::Digest;
use crate::bytes::fields::Malformed;
use crate::http::asker::Elsewhere;
use crate::http::head::{self, Framing, Head, Method, Port, METHODS};
use crate::http::Refused;
use crate::room::NotKept;

/// The largest body of a request that stores nothing.
const SPARE: u64 = 64 << 10;
const XML: &str = "application/xml; charset=utf-8";

/// The requests that a team's server accepts.
pub const PORT: Port = Port {
    methods: &METHODS,
    other_methods: "no such method here",
    elsewhere: Elsewhere::Nothing,
    has_logins: true,
    takes_hosts: true,
};

#[derive(Default)]
pub struct Http {
    state: State,
    /// The token of the previous request. Most requests repeat it.
    shown: Option<Vec<u8>>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Body(Box<Incoming>),
    /// A job is being done; this many bytes are to be stored.
    HasJob(Head, u64),
    Closing,
}

/// The SHA-256 of the content so far, and the one that it must have.
type Sum = (Sha256, [u8; 32]);

/// A request whose body is being received.
struct Incoming {
    head: Head,
    body: Body,
    /// The content to be stored, and its digest if the name contains one.
    upload: Option<(Upload, Option<Sum>)>,
    length: u64,
}

impl Dialect for Http {
    fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed> {
        match std::mem::take(&mut self.state) {
            State::Idle => match head::parse(input, &exchange.shared.names, &PORT) {
                Ok(None) => Ok(Step::NeedsInput),
                Ok(Some((head, length))) => Ok(self.begin(head, length, exchange)),
                Err(Refused(status, words)) => {
                    if matches!(status, 403 | 421) {
                        exchange.shared.metrics.count_rejection(Rejection::Elsewhere);
                        log::debug!("{}: {words}", exchange.peer);
                    }
                    reply::words(exchange.out.bytes(), status, words, Staying::Not);
                    Ok(Step::Close(input.len()))
                }
            },
            State::Body(incoming) => Ok(self.go_on(incoming, input, exchange)),
            State::Closing => Ok(Step::Close(0)),
            has_job => {
                self.state = has_job;
                Ok(Step::Waits)
            }
        }
    }

    fn done(&mut self, done: Done, exchange: &mut Exchange<'_>) -> Result<(), Malformed> {
        if let State::HasJob(head, length) = std::mem::take(&mut self.state) {
            match done {
                Done::Opened(content) => self.reply_content(&head, content, exchange),
                Done::Stored(stored) => self.reply_stored(&head, length, &stored, exchange),
            }
        }
        Ok(())
    }

    fn is_in_request(&self) -> bool {
        matches!(self.state, State::Body(_))
    }
}

/// The largest body of this request.
fn limit(head: &Head, exchange: &Exchange<'_>) -> u64 {
    match head.method {
        Method::Put => exchange.shared.limits.blob,
        _ => SPARE,
    }
}

fn staying(head: &Head, exchange: &Exchange<'_>) -> Staying {
    match (head.keeps_alive && !exchange.shared.is_leaving(), head.is_old) {
        (false, _) => Staying::Not,
        (true, true) => Staying::Aloud,
        (true, false) => Staying::Quietly,
    }
}

impl Http {
    fn begin(&mut self, head: Head, used: usize, exchange: &mut Exchange<'_>) -> Step {
        let has_body = head.framing != Framing::Length(0);
        if let Err(Refused(status, words)) = self.permit(&head, exchange) {
            if has_body {
                reply::words(exchange.out.bytes(), status, words, Staying::Not);
                return Step::Close(used);
            }
            self.reply(&head, status, words, exchange);
            return Step::Used(used);
        }
        if head.expects && has_body {
            exchange.out.bytes().extend(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let incoming = Incoming {
            body: Body::new(head.framing),
            upload: (head.method == Method::Put).then(|| {
                let sum = sum_of(&head.path).map(|sum| (Sha256::new(), sum));
                (exchange.shared.uploads.begin(), sum)
            }),
            length: 0,
            head,
        };
        match has_body {
            true => self.state = State::Body(Box::new(incoming)),
            false => self.answer(incoming, exchange),
        }
        Step::Used(used)
    }

    fn permit(&mut self, head: &Head, exchange: &mut Exchange<'_>) -> Result<(), Refused> {
        let is_report = matches!(head.path.as_str(), "/metrics" | "/status");
        let is_free = is_report && exchange.shared.are_metrics_open && exchange.peer.ip().is_loopback();
        if !is_free {
            let admission = self.admit(&head.token, exchange).ok_or(Refused(401, "show a token"))?;
            let writes = matches!(head.method, Method::Put | Method::Delete | Method::MkCol);
            if writes && !admission.holder.rights.write {
                return Err(Refused(403, "this token may only read"));
            }
        }
        match head.framing {
            Framing::Length(length) if length > limit(head, exchange) => Err(Refused(413, "too large")),
            _ if head.method == Method::Put && (is_report || head.path.ends_with('/')) => {
                Err(Refused(405, "nothing is put there"))
            }
            _ => Ok(()),
        }
    }

    fn admit(&mut self, shown: &[u8], exchange: &mut Exchange<'_>) -> Option<Arc<Admission>> {
        if exchange.admission.is_none() || self.shown.as_deref() != Some(shown) {
            self.shown = exchange.admit(shown).map(|_| shown.to_vec());
        }
        exchange.admission.clone()
    }

    fn go_on(&mut self, mut incoming: Box<Incoming>, input: &[u8], exchange: &mut Exchange<'_>) -> Step {
        let bytes = match incoming.body.take(input) {
            Err(body::Broken) => return self.fail(400, "broken chunks", input, exchange),
            Ok(Part::NeedsInput) => {
                self.state = State::Body(incoming);
                return Step::NeedsInput;
            }
            Ok(Part::Frame(used)) => {
                self.put_back(incoming, exchange);
                return Step::Used(used);
            }
            Ok(Part::Content(bytes)) => bytes,
        };
        incoming.length += bytes.len() as u64;
        if incoming.length > limit(&incoming.head, exchange) {
            return self.fail(413, "too large", input, exchange);
        }
        if let Some((upload, sum)) = &mut incoming.upload {
            sum.iter_mut().for_each(|(hasher, _)| hasher.update(bytes));
            if let Err(error) = exchange.shared.uploads.add(upload, bytes) {
                log::warn!("take an upload: {error}");
                return self.fail(507, "no room for it", input, exchange);
            }
        }
        self.put_back(incoming, exchange);
        Step::Used(bytes.len())
    }

    fn put_back(&mut self, incoming: Box<Incoming>, exchange: &mut Exchange<'_>) {
        match incoming.body.is_over() {
            true => self.answer(*incoming, exchange),
            false => self.state = State::Body(incoming),
        }
    }

    /// Refuses a request within its body. The connection ends, because it is not known where the next request begins.
    fn fail(&mut self, status: u16, words: &str, input: &[u8], exchange: &mut Exchange<'_>) -> Step {
        exchange.count(Language::Http, Outcome::NotStored);
        reply::words(exchange.out.bytes(), status, words, Staying::Not);
        Step::Close(input.len())
    }

    /// Answers a request that has come completely.
    fn answer(&mut self, incoming: Incoming, exchange: &mut Exchange<'_>) {
        let head = incoming.head;
        match head.method {
            Method::Put => match incoming.upload {
                Some((upload, sum)) => self.store(head, upload, sum, exchange),
                None => self.reply(&head, 400, "", exchange),
            },
            Method::Get if head.path == "/metrics" => {
                let shared = exchange.shared;
                let text = shared.metrics.text(&shared.values, &shared.uploads);
                self.reply_text(&head, 200, "text/plain; version=0.0.4; charset=utf-8", &text, exchange);
            }
            Method::Get if head.path == "/status" => {
                let shared = exchange.shared;
                let status = shared.metrics.status(&shared.values, &shared.uploads);
                self.reply_text(&head, 200, "application/json", &format!("{status:#}\n"), exchange);
            }
            Method::Get | Method::Head | Method::PropFind => self.look_up(head, exchange),
            Method::Delete => {
                let removed = name(&head, exchange).is_some_and(|key| exchange.shared.values.remove_value(&key));
                if removed {
                    exchange.log_write("delete", &head.path, 0);
                }
                exchange.count(Language::Http, Outcome::Other);
                self.reply(&head, if removed { 204 } else { 404 }, "", exchange);
            }
            Method::MkCol => self.reply(&head, 201, "", exchange),
            Method::Options => {
                let staying = staying(&head, exchange);
                reply::head(exchange.out.bytes(), 200, "", 0, staying);
                self.end(staying);
            }
        }
    }

    fn reply_text(&mut self, head: &Head, status: u16, kind: &str, text: &str, exchange: &mut Exchange<'_>) {
        let staying = staying(head, exchange);
        let out = exchange.out.bytes();
        reply::head(out, status, kind, text.len() as u64, staying);
        out.extend(text.as_bytes());
        self.end(staying);
    }

    fn look_up(&mut self, head: Head, exchange: &mut Exchange<'_>) {
        if head.method == Method::PropFind && head.path.ends_with('/') {
            let text = reply::properties(&head.path, None);
            return self.reply_text(&head, 207, XML, &text, exchange);
        }
        let key = name(&head, exchange);
        match key.map_or(Lookup::Missing, |key| exchange.shared.values.look_up_value(&key)) {
            Lookup::Missing => self.reply_content(&head, None, exchange),
            Lookup::Found(content) => self.reply_content(&head, Some(content), exchange),
            Lookup::OnDisk(job) => {
                self.state = State::HasJob(head, 0);
                *exchange.job = Some(job);
            }
        }
    }

    fn reply_content(&mut self, head: &Head, content: Option<Content>, exchange: &mut Exchange<'_>) {
        let Some(content) = content else {
            exchange.count(Language::Http, Outcome::Miss);
            return self.reply(head, 404, "", exchange);
        };
        exchange.count(Language::Http, Outcome::Hit);
        if head.method == Method::PropFind {
            let text = reply::properties(&head.path, Some(content.length()));
            return self.reply_text(head, 207, XML, &text, exchange);
        }
        let staying = staying(head, exchange);
        let kind = "application/octet-stream";
        reply::head(exchange.out.bytes(), 200, kind, content.length(), staying);
        if head.method == Method::Get {
            exchange.count_sent(content.length());
            exchange.out.content(content, 0, Wrapping::Bare);
        }
        self.end(staying);
    }

    fn store(&mut self, head: Head, upload: Upload, sum: Option<Sum>, exchange: &mut Exchange<'_>) {
        if sum.is_some_and(|(hasher, sum)| hasher.finalize()[..] != sum) {
            let differs = NotStored::new(NotKept::Digest, "the content does not have the SHA-256 of its name");
            return self.reply_stored(&head, 0, &Err(differs), exchange);
        }
        let length = upload.length;
        let (Some(key), Ok(content)) = (namespaced_key(&head, exchange), upload.finish()) else {
            return self.reply(&head, 507, "", exchange);
        };
        self.state = State::HasJob(head, length);
        *exchange.job = Some(store_job(key, content));
    }

    fn reply_stored(&mut self, head: &Head, length: u64, stored: &Result<(), NotStored>, exchange: &mut Exchange<'_>) {
        match stored {
            Ok(()) => {
                exchange.log_write("put", &head.path, length);
                exchange.count(Language::Http, Outcome::Stored);
                self.reply(head, 201, "", exchange);
            }
            Err(not) => {
                exchange.count(Language::Http, Outcome::NotStored);
                let status = match not.why {
                    NotKept::Digest | NotKept::Malformed => 400,
                    NotKept::TooLarge => 413,
                    _ => 507,
                };
                self.reply(head, status, &not.words, exchange);
            }
        }
    }

    fn reply(&mut self, head: &Head, status: u16, words: &str, exchange: &mut Exchange<'_>) {
        let staying = staying(head, exchange);
        let words = if head.method == Method::Head { "" } else { words };
        reply::words(exchange.out.bytes(), status, words, staying);
        self.end(staying);
    }

    fn end(&mut self, staying: Staying) {
        self.state = match staying {
            Staying::Not => State::Closing,
            _ => State::Idle,
        };
    }
}

fn name(head: &Head, exchange: &Exchange<'_>) -> Option<Digest> {
    namespaced_key(head, exchange).map(|key| key.digest)
}

fn namespaced_key(head: &Head, exchange: &Exchange<'_>) -> Option<NamespacedKey> {
    let namespace = &exchange.admission.as_ref()?.holder.namespace;
    Some(NamespacedKey::of("http", namespace, head.path.as_bytes()))
}

/// The SHA-256 in a path of Bazel's contents.
fn sum_of(path: &str) -> Option<[u8; 32]> {
    let (folder, name) = path.rsplit_once('/')?;
    if !folder.ends_with("/cas") {
        return None;
    }
    let digest: Digest = name.parse().ok()?;
    Some(digest.0)
}
