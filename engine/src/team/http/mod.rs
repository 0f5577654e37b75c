//! The dialect of other people's caches: ccache's HTTP storage, Bazel's `/ac` and `/cas`, and as much of WebDAV as sccache needs.
//!
//! A path is a name in the token's namespace, whatever its form: what is put there replaces what was there.

pub mod body;
mod reply;

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use self::body::{Body, Part};
use self::reply::Staying;
use super::dialect::{Step, Talk};
use super::disk_threads::{Done, Job};
use super::hot::Form;
use super::metrics::{Language, Outcome, Turned};
use super::outbox::{Body as Content, Wrapping};
use super::shared::{Admission, Exchange};
use super::upload::Upload;
use super::value_store::{keeping, Look, NotStored, Place};
use crate::bytes::digest::Digest;
use crate::bytes::fields::Malformed;
use crate::http::asker::Elsewhere;
use crate::http::head::{self, Framing, Head, Method, Port, METHODS};
use crate::http::Refused;
use crate::room::NotKept;

/// The most that comes with requests that bring nothing to be stored.
const SPARE: u64 = 64 << 10;

/// What the team's server takes.
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
    /// What was shown with the request before, which nearly all show again.
    shown: Option<Vec<u8>>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Body(Box<Coming>),
    /// A porter is at it; so many bytes are to be stored.
    Away(Head, u64),
    Closing,
}

/// What a content's SHA-256 is so far, and what it has to be.
type Sum = (Sha256, [u8; 32]);

/// A request whose body is coming.
struct Coming {
    head: Head,
    body: Body,
    /// What is to be stored, and the digest that its name tells.
    upload: Option<(Upload, Option<Sum>)>,
    length: u64,
}

impl Talk for Http {
    fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed> {
        match std::mem::take(&mut self.state) {
            State::Idle => match head::parse(input, &exchange.shared.names, &PORT) {
                Ok(None) => Ok(Step::Wants),
                Ok(Some((head, length))) => Ok(self.begin(head, length, exchange)),
                Err(Refused(status, words)) => {
                    if matches!(status, 403 | 421) {
                        exchange.shared.metrics.turn(Turned::Elsewhere);
                        log::debug!("{}: {words}", exchange.peer);
                    }
                    reply::words(exchange.out.bytes(), status, words, Staying::Not);
                    Ok(Step::Last(input.len()))
                }
            },
            State::Body(coming) => Ok(self.go_on(coming, input, exchange)),
            State::Closing => Ok(Step::Last(0)),
            away => {
                self.state = away;
                Ok(Step::Held)
            }
        }
    }

    fn done(&mut self, done: Done, exchange: &mut Exchange<'_>) -> Result<(), Malformed> {
        if let State::Away(head, length) = std::mem::take(&mut self.state) {
            match done {
                Done::Opened(content) => self.tell(&head, content, exchange),
                Done::Stored(stored) => self.tell_stored(&head, length, &stored, exchange),
            }
        }
        Ok(())
    }

    fn is_midway(&self) -> bool {
        matches!(self.state, State::Body(_))
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
        let limit = if head.method == Method::Put {
            exchange.shared.limits.blob
        } else {
            SPARE
        };
        if let Err(Refused(status, words)) = self.permit(&head, limit, exchange) {
            if has_body {
                reply::words(exchange.out.bytes(), status, words, Staying::Not);
                return Step::Last(used);
            }
            self.say(&head, status, words, exchange);
            return Step::Took(used);
        }
        if head.expects && has_body {
            exchange.out.bytes().extend(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let coming = Coming {
            body: Body::new(head.framing),
            upload: (head.method == Method::Put).then(|| {
                let sum = sum_of(&head.path).map(|sum| (Sha256::new(), sum));
                (exchange.shared.dock.begin(), sum)
            }),
            length: 0,
            head,
        };
        match has_body {
            true => self.state = State::Body(Box::new(coming)),
            false => self.answer(coming, exchange),
        }
        Step::Took(used)
    }

    fn permit(&mut self, head: &Head, limit: u64, exchange: &mut Exchange<'_>) -> Result<(), Refused> {
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
            Framing::Length(length) if length > limit => Err(Refused(413, "too large")),
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

    fn go_on(&mut self, mut coming: Box<Coming>, input: &[u8], exchange: &mut Exchange<'_>) -> Step {
        let bytes = match coming.body.take(input) {
            Err(body::Broken) => return self.fail(400, "broken chunks", input, exchange),
            Ok(Part::Wants) => {
                self.state = State::Body(coming);
                return Step::Wants;
            }
            Ok(Part::Frame(used)) => {
                self.put_back(coming, exchange);
                return Step::Took(used);
            }
            Ok(Part::Content(bytes)) => bytes,
        };
        coming.length += bytes.len() as u64;
        let limit = if coming.upload.is_some() {
            exchange.shared.limits.blob
        } else {
            SPARE
        };
        if coming.length > limit {
            return self.fail(413, "too large", input, exchange);
        }
        if let Some((upload, sum)) = &mut coming.upload {
            sum.iter_mut().for_each(|(hasher, _)| hasher.update(bytes));
            if let Err(error) = exchange.shared.dock.add(upload, bytes) {
                log::warn!("take an upload: {error}");
                return self.fail(507, "no room for it", input, exchange);
            }
        }
        self.put_back(coming, exchange);
        Step::Took(bytes.len())
    }

    fn put_back(&mut self, coming: Box<Coming>, exchange: &mut Exchange<'_>) {
        match coming.body.is_over() {
            true => self.answer(*coming, exchange),
            false => self.state = State::Body(coming),
        }
    }

    /// Of what was coming nothing more is understood.
    fn fail(&mut self, status: u16, words: &str, input: &[u8], exchange: &mut Exchange<'_>) -> Step {
        exchange.count(Language::Http, Outcome::NotStored);
        reply::words(exchange.out.bytes(), status, words, Staying::Not);
        Step::Last(input.len())
    }

    /// A request that is whole.
    fn answer(&mut self, coming: Coming, exchange: &mut Exchange<'_>) {
        let head = coming.head;
        match head.method {
            Method::Put => match coming.upload {
                Some((upload, sum)) => self.store(head, upload, sum, exchange),
                None => self.say(&head, 400, "", exchange),
            },
            Method::Get if head.path == "/metrics" => {
                let text = exchange
                    .shared
                    .metrics
                    .text(&exchange.shared.values, &exchange.shared.dock);
                self.report(&head, "text/plain; version=0.0.4; charset=utf-8", &text, exchange);
            }
            Method::Get if head.path == "/status" => {
                let text = format!(
                    "{:#}\n",
                    exchange
                        .shared
                        .metrics
                        .status(&exchange.shared.values, &exchange.shared.dock)
                );
                self.report(&head, "application/json", &text, exchange);
            }
            Method::Get | Method::Head | Method::PropFind => self.look(head, exchange),
            Method::Delete => {
                let removed = name(&head, exchange).is_some_and(|key| exchange.shared.values.remove_value(&key));
                if removed {
                    exchange.wrote("delete", &head.path, 0);
                }
                exchange.count(Language::Http, Outcome::Other);
                self.say(&head, if removed { 204 } else { 404 }, "", exchange);
            }
            Method::MkCol => self.say(&head, 201, "", exchange),
            Method::Options => {
                let staying = staying(&head, exchange);
                reply::head(exchange.out.bytes(), 200, "", 0, staying);
                self.end(staying);
            }
        }
    }

    fn report(&mut self, head: &Head, kind: &str, text: &str, exchange: &mut Exchange<'_>) {
        let staying = staying(head, exchange);
        let out = exchange.out.bytes();
        reply::head(out, 200, kind, text.len() as u64, staying);
        out.extend(text.as_bytes());
        self.end(staying);
    }

    fn look(&mut self, head: Head, exchange: &mut Exchange<'_>) {
        if head.method == Method::PropFind && head.path.ends_with('/') {
            let text = reply::properties(&head.path, None);
            return self.tell_properties(&head, &text, exchange);
        }
        let values = &exchange.shared.values;
        let digest = name(&head, exchange).and_then(|key| values.value(&key));
        match digest.map_or(Look::Missing, |digest| values.look(&digest, Form::Plain)) {
            Look::Missing => self.tell(&head, None, exchange),
            Look::Here(content) => self.tell(&head, Some(content), exchange),
            Look::Away => {
                self.state = State::Away(head, 0);
                let load = |digest| Job::carry(move |values| Done::Opened(values.load(&digest, Form::Plain)));
                *exchange.job = digest.map(load);
            }
        }
    }

    fn tell(&mut self, head: &Head, content: Option<Content>, exchange: &mut Exchange<'_>) {
        let Some(content) = content else {
            exchange.count(Language::Http, Outcome::Miss);
            return self.say(head, 404, "", exchange);
        };
        exchange.count(Language::Http, Outcome::Hit);
        if head.method == Method::PropFind {
            let text = reply::properties(&head.path, Some(content.length()));
            return self.tell_properties(head, &text, exchange);
        }
        let staying = staying(head, exchange);
        let kind = "application/octet-stream";
        reply::head(exchange.out.bytes(), 200, kind, content.length(), staying);
        if head.method == Method::Get {
            exchange.gave(content.length());
            exchange.out.content(content, 0, Wrapping::Bare);
        }
        self.end(staying);
    }

    fn tell_properties(&mut self, head: &Head, text: &str, exchange: &mut Exchange<'_>) {
        let staying = staying(head, exchange);
        let out = exchange.out.bytes();
        reply::head(out, 207, "application/xml; charset=utf-8", text.len() as u64, staying);
        out.extend(text.as_bytes());
        self.end(staying);
    }

    fn store(&mut self, head: Head, upload: Upload, sum: Option<Sum>, exchange: &mut Exchange<'_>) {
        if sum.is_some_and(|(hasher, sum)| hasher.finalize()[..] != sum) {
            let differs = NotStored::new(NotKept::Digest, "the content does not have the SHA-256 of its name");
            return self.tell_stored(&head, 0, &Err(differs), exchange);
        }
        let length = upload.length;
        let (Some(place), Ok(content)) = (place(&head, exchange), upload.finish()) else {
            return self.say(&head, 507, "", exchange);
        };
        self.state = State::Away(head, length);
        *exchange.job = Some(keeping(place, content));
    }

    fn tell_stored(&mut self, head: &Head, length: u64, stored: &Result<(), NotStored>, exchange: &mut Exchange<'_>) {
        match stored {
            Ok(()) => {
                exchange.wrote("put", &head.path, length);
                exchange.count(Language::Http, Outcome::Stored);
                self.say(head, 201, "", exchange);
            }
            Err(not) => {
                exchange.count(Language::Http, Outcome::NotStored);
                let status = match not.why {
                    NotKept::Digest | NotKept::Malformed => 400,
                    NotKept::TooLarge => 413,
                    _ => 507,
                };
                self.say(head, status, &not.words, exchange);
            }
        }
    }

    fn say(&mut self, head: &Head, status: u16, words: &str, exchange: &mut Exchange<'_>) {
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
    place(head, exchange).map(|place| place.key)
}

fn place(head: &Head, exchange: &Exchange<'_>) -> Option<Place> {
    let namespace = &exchange.admission.as_ref()?.holder.namespace;
    Some(Place::of("http", namespace, head.path.as_bytes()))
}

/// The SHA-256 that a path of Bazel's contents tells.
fn sum_of(path: &str) -> Option<[u8; 32]> {
    let (folder, name) = path.rsplit_once('/')?;
    if !folder.ends_with("/cas") {
        return None;
    }
    let digest: Digest = name.parse().ok()?;
    Some(digest.0)
}
