//! The dialect of Redis clients, with the commands that caches use.
//!
//! A key is a name in the token's namespace. Lifetimes are ignored: a value stays until its space is needed.

pub mod request;

use self::request::{parse, Parsed};
use super::dialect::{Dialect, Step};
use super::disk_threads::{Done, Job};
use super::memory_cache::Form;
use super::metrics::{Language, Outcome};
use super::outbox::{Body, Wrapping};
use super::shared::Exchange;
use super::upload::Upload;
use super::value_store::{store_job, Lookup, NamespacedKey, NotStored, Value};
use crate::bytes::fields::Malformed;
use crate::files::folder::ENGINE;

const READ_ONLY: &str = "NOPERM this token may only read";

#[derive(Default)]
pub struct Redis {
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    /// A long value is being received, of which this many bytes are left.
    Receiving {
        key: Vec<u8>,
        upload: Upload,
        left: u64,
    },
    Getting,
    Setting {
        key: Vec<u8>,
        length: u64,
    },
}

impl Dialect for Redis {
    fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed> {
        match std::mem::take(&mut self.state) {
            State::Idle => match parse(input)? {
                Parsed::NeedsInput => Ok(Step::NeedsInput),
                Parsed::Whole(words, used) => self.take(&words, used, exchange),
                Parsed::Long(words, used, length) => self.begin(&words, used, length, exchange),
            },
            State::Receiving { key, upload, left } => self.go_on(key, upload, left, input, exchange),
            has_job => {
                self.state = has_job;
                Ok(Step::Waits)
            }
        }
    }

    fn done(&mut self, done: Done, exchange: &mut Exchange<'_>) -> Result<(), Malformed> {
        match (std::mem::take(&mut self.state), done) {
            (State::Setting { key, length }, Done::Stored(stored)) => reply_stored(&key, length, &stored, exchange),
            (_, Done::Opened(body)) => reply_value(body, exchange),
            _ => {}
        }
        Ok(())
    }

    fn is_in_request(&self) -> bool {
        matches!(self.state, State::Receiving { .. })
    }
}

impl Redis {
    fn take(&mut self, words: &[&[u8]], used: usize, exchange: &mut Exchange<'_>) -> Result<Step, Malformed> {
        let Some((name, rest)) = words.split_first() else {
            return Ok(Step::Used(used));
        };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        match (name.as_str(), rest) {
            ("AUTH", [token] | [_, token]) => authenticate(token, exchange),
            ("HELLO", rest) => hello(rest, exchange),
            ("QUIT", _) => {
                simple("OK", exchange);
                return Ok(Step::Close(used));
            }
            _ if !is_admitted(exchange) => error("NOAUTH Authentication required.", exchange),
            ("PING", []) => simple("PONG", exchange),
            ("PING" | "ECHO", [text]) => text_reply(text, exchange),
            ("SELECT", [b"0"]) | ("CLIENT", _) => simple("OK", exchange),
            ("SELECT", _) => error("ERR DB index is out of range", exchange),
            ("COMMAND" | "CONFIG", _) => exchange.out.bytes().extend(b"*0\r\n"),
            ("GET", [key]) => self.get(key, exchange),
            ("SET", [key, value, options @ ..]) if are_lifetimes(options) => self.set(key, value, exchange),
            ("SET", [_, _, ..]) => error("ERR no such option of SET here", exchange),
            ("SETEX" | "PSETEX", [key, _, value]) => self.set(key, value, exchange),
            ("EXISTS", keys) if !keys.is_empty() => {
                let values = &exchange.shared.values;
                let count = keys
                    .iter()
                    .filter(|key| values.value(&namespaced_key(key, exchange).digest).is_some())
                    .count();
                exchange.count(Language::Redis, Outcome::Other);
                number(count as u64, exchange);
            }
            ("DEL" | "UNLINK", keys) if !keys.is_empty() => delete(keys, exchange),
            ("STRLEN", [key]) => strlen(key, exchange),
            _ => error(
                &format!("ERR unknown command or wrong number of arguments: {}", shown(&name)),
                exchange,
            ),
        }
        Ok(Step::Used(used))
    }

    fn get(&mut self, key: &[u8], exchange: &mut Exchange<'_>) {
        let key = namespaced_key(key, exchange).digest;
        match exchange.shared.values.look_up_value(&key) {
            Lookup::Missing => reply_value(None, exchange),
            Lookup::Found(body) => reply_value(Some(body), exchange),
            Lookup::OnDisk(job) => {
                self.state = State::Getting;
                *exchange.job = Some(job);
            }
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], exchange: &mut Exchange<'_>) {
        if !may_write(exchange) {
            return error(READ_ONLY, exchange);
        }
        self.state = State::Setting {
            key: key.to_vec(),
            length: value.len() as u64,
        };
        *exchange.job = Some(Job::Store(Value {
            key: namespaced_key(key, exchange),
            bytes: value.to_vec(),
            _share: None,
        }));
    }

    /// Begins a request whose last word is long. It can only be a request to store that word.
    fn begin(
        &mut self,
        words: &[&[u8]],
        used: usize,
        length: u64,
        exchange: &mut Exchange<'_>,
    ) -> Result<Step, Malformed> {
        let key = match words {
            [name, key] if name.eq_ignore_ascii_case(b"SET") => *key,
            [name, key, _] if name.eq_ignore_ascii_case(b"SETEX") => *key,
            _ => return Err(Malformed("a word is too long")),
        };
        let refused = match () {
            () if !is_admitted(exchange) => "NOAUTH Authentication required.",
            () if !may_write(exchange) => READ_ONLY,
            () if length > exchange.shared.limits.blob => "ERR the value is too large",
            () => {
                let (key, upload) = (key.to_vec(), exchange.shared.uploads.begin());
                self.state = State::Receiving {
                    key,
                    upload,
                    left: length + 2,
                };
                return Ok(Step::Used(used));
            }
        };
        error(refused, exchange);
        Ok(Step::Close(used))
    }

    fn go_on(
        &mut self,
        key: Vec<u8>,
        mut upload: Upload,
        left: u64,
        input: &[u8],
        exchange: &mut Exchange<'_>,
    ) -> Result<Step, Malformed> {
        // The last two bytes are the line end.
        let content = left.saturating_sub(2).min(input.len() as u64) as usize;
        if content > 0 {
            if let Err(failed) = exchange.shared.uploads.add(&mut upload, &input[..content]) {
                error(&format!("ERR {failed}"), exchange);
                return Ok(Step::Close(content));
            }
            let left = left - content as u64;
            self.state = State::Receiving { key, upload, left };
            return Ok(Step::Used(content));
        }
        match input.get(..left as usize) {
            None => {
                self.state = State::Receiving { key, upload, left };
                Ok(Step::NeedsInput)
            }
            Some(b"\r\n") => {
                self.store(key, upload, exchange);
                Ok(Step::Used(2))
            }
            Some(_) => Err(Malformed("a word is longer than it says")),
        }
    }

    fn store(&mut self, key: Vec<u8>, upload: Upload, exchange: &mut Exchange<'_>) {
        let length = upload.length;
        match upload.finish() {
            Ok(content) => {
                *exchange.job = Some(store_job(namespaced_key(&key, exchange), content));
                self.state = State::Setting { key, length };
            }
            Err(error) => reply_stored(&key, length, &Err(error.into()), exchange),
        }
    }
}

fn namespaced_key(key: &[u8], exchange: &Exchange<'_>) -> NamespacedKey {
    let admission = exchange.admission.as_ref();
    let namespace = admission.map_or("", |admission| &admission.holder.namespace);
    NamespacedKey::of("redis", namespace, key)
}

/// On a server without tokens, every client is admitted.
fn is_admitted(exchange: &mut Exchange<'_>) -> bool {
    exchange.admission.is_some() || (exchange.shared.is_open() && exchange.admit(b"").is_some())
}

fn may_write(exchange: &Exchange<'_>) -> bool {
    exchange
        .admission
        .as_ref()
        .is_some_and(|admission| admission.holder.rights.write)
}

fn authenticate(token: &[u8], exchange: &mut Exchange<'_>) {
    match exchange.admit(token) {
        Some(_) => simple("OK", exchange),
        None => error(
            "WRONGPASS invalid username-password pair or user is disabled.",
            exchange,
        ),
    }
}

fn hello(rest: &[&[u8]], exchange: &mut Exchange<'_>) {
    let rest = match rest {
        [] => rest,
        [b"2", rest @ ..] => rest,
        _ => return error("NOPROTO unsupported protocol version", exchange),
    };
    let is_fine = match rest {
        [word, _, token, ..] if word.eq_ignore_ascii_case(b"AUTH") => exchange.admit(token).is_some(),
        _ => is_admitted(exchange),
    };
    if !is_fine {
        return error(
            "NOAUTH HELLO must be called with the client already authenticated",
            exchange,
        );
    }
    exchange.out.bytes().extend(b"*6\r\n");
    for text in ["server", "wafd", "version", ENGINE, "proto"] {
        text_reply(text.as_bytes(), exchange);
    }
    number(2, exchange);
}

/// Whether these options of `SET` concern only lifetimes, which are ignored.
fn are_lifetimes(options: &[&[u8]]) -> bool {
    let is = |word: &[u8], names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    match options {
        [] => true,
        [word] => is(word, &["KEEPTTL"]),
        [word, _] => is(word, &["EX", "PX", "EXAT", "PXAT"]),
        _ => false,
    }
}

fn delete(keys: &[&[u8]], exchange: &mut Exchange<'_>) {
    if !may_write(exchange) {
        return error(READ_ONLY, exchange);
    }
    let mut count = 0;
    for key in keys {
        if exchange
            .shared
            .values
            .remove_value(&namespaced_key(key, exchange).digest)
        {
            count += 1;
            exchange.log_write("delete", &String::from_utf8_lossy(key), 0);
        }
    }
    exchange.count(Language::Redis, Outcome::Other);
    number(count, exchange);
}

/// Replies with the length of a value, which may have to be read from the disk for that.
fn strlen(key: &[u8], exchange: &mut Exchange<'_>) {
    let values = &exchange.shared.values;
    let body = values
        .value(&namespaced_key(key, exchange).digest)
        .and_then(|digest| values.load(&digest, Form::Plain));
    exchange.count(Language::Redis, Outcome::Other);
    number(body.map_or(0, |body| body.length()), exchange);
}

fn reply_value(body: Option<Body>, exchange: &mut Exchange<'_>) {
    let Some(body) = body else {
        exchange.count(Language::Redis, Outcome::Miss);
        return exchange.out.bytes().extend(b"$-1\r\n");
    };
    exchange.count(Language::Redis, Outcome::Hit);
    exchange.count_sent(body.length());
    let head = format!("${}\r\n", body.length());
    exchange.out.bytes().extend(head.as_bytes());
    exchange.out.content(body, 0, Wrapping::Bare);
    exchange.out.bytes().extend(b"\r\n");
}

fn reply_stored(key: &[u8], length: u64, stored: &Result<(), NotStored>, exchange: &mut Exchange<'_>) {
    match stored {
        Ok(()) => {
            exchange.log_write("put", &String::from_utf8_lossy(key), length);
            exchange.count(Language::Redis, Outcome::Stored);
            simple("OK", exchange);
        }
        Err(not) => {
            exchange.count(Language::Redis, Outcome::NotStored);
            error(&format!("ERR {}", not.words), exchange);
        }
    }
}

fn simple(text: &str, exchange: &mut Exchange<'_>) {
    exchange.out.bytes().extend([b"+", text.as_bytes(), b"\r\n"].concat());
}

fn error(text: &str, exchange: &mut Exchange<'_>) {
    exchange
        .out
        .bytes()
        .extend([b"-", shown(text).as_bytes(), b"\r\n"].concat());
}

/// The text on one line, and shortened.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn number(number: u64, exchange: &mut Exchange<'_>) {
    let text = format!(":{number}\r\n");
    exchange.out.bytes().extend(text.as_bytes());
}

fn text_reply(text: &[u8], exchange: &mut Exchange<'_>) {
    let head = format!("${}\r\n", text.len());
    exchange.out.bytes().extend([head.as_bytes(), text, b"\r\n"].concat());
}
