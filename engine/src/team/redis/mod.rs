//! The dialect of Redis' clients, as far as caches use it.
//!
//! A key is a name in the token's namespace. What is to expire stays until there is no room for it.

pub mod request;

use self::request::{parse, Parsed};
use super::dialect::{Step, Talk};
use super::hot::Form;
use super::metrics::{Language, Outcome};
use super::office::Desk;
use super::outbox::{Body, Wrapping};
use super::porters::{Done, Errand};
use super::shelf::{keeping, Look, NotStored, Place, Value};
use super::upload::Upload;
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
    /// A long value is coming; so many bytes are left of it.
    Coming {
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

impl Talk for Redis {
    fn advance(&mut self, input: &[u8], desk: &mut Desk<'_>) -> Result<Step, Malformed> {
        match std::mem::take(&mut self.state) {
            State::Idle => match parse(input)? {
                Parsed::Wants => Ok(Step::Wants),
                Parsed::Whole(words, used) => self.take(&words, used, desk),
                Parsed::Long(words, used, length) => self.begin(&words, used, length, desk),
            },
            State::Coming { key, upload, left } => self.go_on(key, upload, left, input, desk),
            away => {
                self.state = away;
                Ok(Step::Held)
            }
        }
    }

    fn done(&mut self, done: Done, desk: &mut Desk<'_>) -> Result<(), Malformed> {
        match (std::mem::take(&mut self.state), done) {
            (State::Setting { key, length }, Done::Stored(stored)) => tell_stored(&key, length, &stored, desk),
            (_, Done::Opened(body)) => tell(body, desk),
            _ => {}
        }
        Ok(())
    }

    fn is_midway(&self) -> bool {
        matches!(self.state, State::Coming { .. })
    }
}

impl Redis {
    fn take(&mut self, words: &[&[u8]], used: usize, desk: &mut Desk<'_>) -> Result<Step, Malformed> {
        let Some((name, rest)) = words.split_first() else {
            return Ok(Step::Took(used));
        };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        match (name.as_str(), rest) {
            ("AUTH", [token] | [_, token]) => authenticate(token, desk),
            ("HELLO", rest) => hello(rest, desk),
            ("QUIT", _) => {
                simple("OK", desk);
                return Ok(Step::Last(used));
            }
            _ if !is_admitted(desk) => error("NOAUTH Authentication required.", desk),
            ("PING", []) => simple("PONG", desk),
            ("PING" | "ECHO", [text]) => text_reply(text, desk),
            ("SELECT", [b"0"]) | ("CLIENT", _) => simple("OK", desk),
            ("SELECT", _) => error("ERR DB index is out of range", desk),
            ("COMMAND" | "CONFIG", _) => desk.out.bytes().extend(b"*0\r\n"),
            ("GET", [key]) => self.get(key, desk),
            ("SET", [key, value, options @ ..]) if are_lifetimes(options) => self.set(key, value, desk),
            ("SET", [_, _, ..]) => error("ERR no such option of SET here", desk),
            ("SETEX" | "PSETEX", [key, _, value]) => self.set(key, value, desk),
            ("EXISTS", keys) if !keys.is_empty() => {
                let shelf = &desk.office.shelf;
                let count = keys
                    .iter()
                    .filter(|key| shelf.value(&place(key, desk).key).is_some())
                    .count();
                desk.count(Language::Redis, Outcome::Other);
                number(count as u64, desk);
            }
            ("DEL" | "UNLINK", keys) if !keys.is_empty() => delete(keys, desk),
            ("STRLEN", [key]) => strlen(key, desk),
            _ => error(
                &format!("ERR unknown command or wrong number of arguments: {}", shown(&name)),
                desk,
            ),
        }
        Ok(Step::Took(used))
    }

    fn get(&mut self, key: &[u8], desk: &mut Desk<'_>) {
        let shelf = &desk.office.shelf;
        let digest = shelf.value(&place(key, desk).key);
        match digest.map_or(Look::Missing, |digest| shelf.look(&digest, Form::Plain)) {
            Look::Missing => tell(None, desk),
            Look::Here(body) => tell(Some(body), desk),
            Look::Away => {
                self.state = State::Getting;
                let load = |digest| Errand::carry(move |shelf| Done::Opened(shelf.load(&digest, Form::Plain)));
                *desk.errand = digest.map(load);
            }
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], desk: &mut Desk<'_>) {
        if !may_write(desk) {
            return error(READ_ONLY, desk);
        }
        self.state = State::Setting {
            key: key.to_vec(),
            length: value.len() as u64,
        };
        *desk.errand = Some(Errand::Keep(Value {
            place: place(key, desk),
            bytes: value.to_vec(),
            _share: None,
        }));
    }

    /// A request whose last word is long can only be one that stores it.
    fn begin(&mut self, words: &[&[u8]], used: usize, length: u64, desk: &mut Desk<'_>) -> Result<Step, Malformed> {
        let key = match words {
            [name, key] if name.eq_ignore_ascii_case(b"SET") => *key,
            [name, key, _] if name.eq_ignore_ascii_case(b"SETEX") => *key,
            _ => return Err(Malformed("a word is too long")),
        };
        let refused = match () {
            () if !is_admitted(desk) => "NOAUTH Authentication required.",
            () if !may_write(desk) => READ_ONLY,
            () if length > desk.office.limits.blob => "ERR the value is too large",
            () => {
                let (key, upload) = (key.to_vec(), desk.office.dock.begin());
                self.state = State::Coming {
                    key,
                    upload,
                    left: length + 2,
                };
                return Ok(Step::Took(used));
            }
        };
        error(refused, desk);
        Ok(Step::Last(used))
    }

    fn go_on(
        &mut self,
        key: Vec<u8>,
        mut upload: Upload,
        left: u64,
        input: &[u8],
        desk: &mut Desk<'_>,
    ) -> Result<Step, Malformed> {
        // The last two bytes are the line's end.
        let content = left.saturating_sub(2).min(input.len() as u64) as usize;
        if content > 0 {
            if let Err(failed) = desk.office.dock.add(&mut upload, &input[..content]) {
                error(&format!("ERR {failed}"), desk);
                return Ok(Step::Last(content));
            }
            let left = left - content as u64;
            self.state = State::Coming { key, upload, left };
            return Ok(Step::Took(content));
        }
        match input.get(..left as usize) {
            None => {
                self.state = State::Coming { key, upload, left };
                Ok(Step::Wants)
            }
            Some(b"\r\n") => {
                self.store(key, upload, desk);
                Ok(Step::Took(2))
            }
            Some(_) => Err(Malformed("a word is longer than it says")),
        }
    }

    fn store(&mut self, key: Vec<u8>, upload: Upload, desk: &mut Desk<'_>) {
        let length = upload.length;
        match upload.finish() {
            Ok(content) => {
                *desk.errand = Some(keeping(place(&key, desk), content));
                self.state = State::Setting { key, length };
            }
            Err(error) => tell_stored(&key, length, &Err(error.into()), desk),
        }
    }
}

fn place(key: &[u8], desk: &Desk<'_>) -> Place {
    let standing = desk.standing.as_ref();
    let namespace = standing.map_or("", |standing| &standing.holder.namespace);
    Place::of("redis", namespace, key)
}

/// Where there are no tokens nobody has to show one.
fn is_admitted(desk: &mut Desk<'_>) -> bool {
    desk.standing.is_some() || (desk.office.is_open() && desk.admit(b"").is_some())
}

fn may_write(desk: &Desk<'_>) -> bool {
    desk.standing
        .as_ref()
        .is_some_and(|standing| standing.holder.rights.write)
}

fn authenticate(token: &[u8], desk: &mut Desk<'_>) {
    match desk.admit(token) {
        Some(_) => simple("OK", desk),
        None => error("WRONGPASS invalid username-password pair or user is disabled.", desk),
    }
}

fn hello(rest: &[&[u8]], desk: &mut Desk<'_>) {
    let rest = match rest {
        [] => rest,
        [b"2", rest @ ..] => rest,
        _ => return error("NOPROTO unsupported protocol version", desk),
    };
    let is_fine = match rest {
        [word, _, token, ..] if word.eq_ignore_ascii_case(b"AUTH") => desk.admit(token).is_some(),
        _ => is_admitted(desk),
    };
    if !is_fine {
        return error(
            "NOAUTH HELLO must be called with the client already authenticated",
            desk,
        );
    }
    desk.out.bytes().extend(b"*6\r\n");
    for text in ["server", "wafd", "version", ENGINE, "proto"] {
        text_reply(text.as_bytes(), desk);
    }
    number(2, desk);
}

/// How long a value is to be kept: here it is until others need the room.
fn are_lifetimes(options: &[&[u8]]) -> bool {
    let is = |word: &[u8], names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    match options {
        [] => true,
        [word] => is(word, &["KEEPTTL"]),
        [word, _] => is(word, &["EX", "PX", "EXAT", "PXAT"]),
        _ => false,
    }
}

fn delete(keys: &[&[u8]], desk: &mut Desk<'_>) {
    if !may_write(desk) {
        return error(READ_ONLY, desk);
    }
    let mut count = 0;
    for key in keys {
        if desk.office.shelf.remove_value(&place(key, desk).key) {
            count += 1;
            desk.wrote("delete", &String::from_utf8_lossy(key), 0);
        }
    }
    desk.count(Language::Redis, Outcome::Other);
    number(count, desk);
}

/// A value that has to be fetched has a length all the same; nothing of it is sent.
fn strlen(key: &[u8], desk: &mut Desk<'_>) {
    let shelf = &desk.office.shelf;
    let body = shelf
        .value(&place(key, desk).key)
        .and_then(|digest| shelf.load(&digest, Form::Plain));
    desk.count(Language::Redis, Outcome::Other);
    number(body.map_or(0, |body| body.length()), desk);
}

fn tell(body: Option<Body>, desk: &mut Desk<'_>) {
    let Some(body) = body else {
        desk.count(Language::Redis, Outcome::Miss);
        return desk.out.bytes().extend(b"$-1\r\n");
    };
    desk.count(Language::Redis, Outcome::Hit);
    desk.gave(body.length());
    let head = format!("${}\r\n", body.length());
    desk.out.bytes().extend(head.as_bytes());
    desk.out.content(body, 0, Wrapping::Bare);
    desk.out.bytes().extend(b"\r\n");
}

fn tell_stored(key: &[u8], length: u64, stored: &Result<(), NotStored>, desk: &mut Desk<'_>) {
    match stored {
        Ok(()) => {
            desk.wrote("put", &String::from_utf8_lossy(key), length);
            desk.count(Language::Redis, Outcome::Stored);
            simple("OK", desk);
        }
        Err(not) => {
            desk.count(Language::Redis, Outcome::NotStored);
            error(&format!("ERR {}", not.words), desk);
        }
    }
}

fn simple(text: &str, desk: &mut Desk<'_>) {
    desk.out.bytes().extend([b"+", text.as_bytes(), b"\r\n"].concat());
}

fn error(text: &str, desk: &mut Desk<'_>) {
    desk.out
        .bytes()
        .extend([b"-", shown(text).as_bytes(), b"\r\n"].concat());
}

/// On one line, and not without end.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn number(number: u64, desk: &mut Desk<'_>) {
    let text = format!(":{number}\r\n");
    desk.out.bytes().extend(text.as_bytes());
}

fn text_reply(text: &[u8], desk: &mut Desk<'_>) {
    let head = format!("${}\r\n", text.len());
    desk.out.bytes().extend([head.as_bytes(), text, b"\r\n"].concat());
}
