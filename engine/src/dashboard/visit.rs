//! One connection of a browser: one request, one answer, everything with a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::feed::{Feed, News};
use super::page;
use super::places::{Arrival, Places};
use super::reply;
use super::PORT;
use crate::http::asker::Names;
use crate::http::head::{self, Head, Method, CAP};
use crate::http::Refused;
use crate::trust::token::Token;

/// For all of a request's head; browsers also open connections in advance, and ask nothing.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// For all of an answer, or of one line of news: who is slower is left.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// What a peer still sends is read for so long, or our answer would be lost to it.
const FAREWELL: Duration = Duration::from_millis(500);
const NEWS: &str = "application/x-ndjson; charset=utf-8";
/// The dashboard ends, as opposed to the connection.
const OVER: &str = "{\"kind\":\"over\"}\n";

/// What all visits share.
pub struct Room {
    pub token: Token,
    pub names: Names,
    pub feed: Arc<Feed>,
    pub places: Places,
}

/// A visit that has found its place, if it needed one.
pub fn serve(stream: &TcpStream, mut arrival: Arrival, room: &Room) -> io::Result<()> {
    // Who accepts does not wait, and what it accepts may have that from it.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    match read_head(stream, &room.names)? {
        None => return Ok(()),
        Some(Err(Refused(status, words))) => say(stream, status, words)?,
        Some(Ok(head)) => answer(stream, &mut arrival, &head, room)?,
    }
    part(stream)
}

/// `None` if the peer goes, or says nothing, before the head of its request is whole.
fn read_head(mut stream: &TcpStream, names: &Names) -> io::Result<Option<Result<Head, Refused>>> {
    let deadline = Instant::now() + HEAD_TIME;
    let mut input = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match head::parse(&input, names, &PORT) {
            Ok(None) => {}
            Ok(Some((head, _))) => return Ok(Some(Ok(head))),
            Err(refused) => return Ok(Some(Err(refused))),
        }
        let Some(left) = left(deadline) else { return Ok(None) };
        stream.set_read_timeout(Some(left))?;
        let room = chunk.len().min(CAP + 1 - input.len());
        match stream.read(&mut chunk[..room]) {
            Ok(0) => return Ok(None),
            Ok(n) => input.extend_from_slice(&chunk[..n]),
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A path is the token, and after a slash the name of what is asked for.
fn answer(stream: &TcpStream, arrival: &mut Arrival, asked: &Head, room: &Room) -> io::Result<()> {
    let mut parts = asked.path[1..].splitn(2, '/');
    let (token, name) = (parts.next().unwrap_or_default(), parts.next());
    if !room.token.admits(token.as_bytes()) {
        let words = "This address is not valid, or not any more: open the one that <code>wafd dashboard</code> prints.";
        return say(stream, 403, words);
    }
    if !arrival.stays() {
        return say(stream, 503, "Too many pages are open: close some.");
    }
    let is_head = asked.method == Method::Head;
    match name {
        None => write(stream, &reply::redirect(&format!("/{}/", room.token.text()))),
        Some("news") if !is_head => tell_news(stream, &room.feed),
        Some(name) => match page::find(name) {
            Some(file) => {
                let head = reply::head(200, file.kind, Some(file.text.len()));
                let body = if is_head { "" } else { file.text };
                write(stream, &[&head, body.as_bytes()].concat())
            }
            None => say(stream, 404, "There is no such thing here."),
        },
    }
}

/// For as long as the page looks.
fn tell_news(stream: &TcpStream, feed: &Arc<Feed>) -> io::Result<()> {
    let (mut watcher, history) = feed.watch();
    write(stream, &[&reply::head(200, NEWS, None), history.as_bytes()].concat())?;
    loop {
        match watcher.next() {
            News::Line(line) => write(stream, line.as_bytes())?,
            News::Over => return write(stream, OVER.as_bytes()),
        }
    }
}

fn say(stream: &TcpStream, status: u16, words: &str) -> io::Result<()> {
    let page = reply::page_of(words);
    let head = reply::head(status, reply::HTML, Some(page.len()));
    write(stream, &[&head, page.as_bytes()].concat())
}

/// All of it before the deadline, however little the peer reads at once.
fn write(mut stream: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + WRITE_TIME;
    while !rest.is_empty() {
        let left = left(deadline).ok_or(io::ErrorKind::TimedOut)?;
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends a connection so that what was sent arrives.
fn part(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + FAREWELL;
    let mut chunk = [0; 4096];
    while let Some(left) = left(deadline) {
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(n) if n > 0 => {}
            _ => break,
        }
    }
    Ok(())
}

/// A time-out of zero would be none.
fn left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// The deadline tells whether it is too late.
fn is_again(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
