//! One connection of a browser: one request, one reply, all with deadlines.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection_limits::{ConnectionLimits, CountedConnection};
use super::feed::{Feed, News};
use super::page;
use super::reply;
use super::PORT;
use crate::http::asker::Names;
use crate::http::head::{self, Head, Method, CAP};
use crate::http::Refused;
use crate::trust::token::Token;

/// For the whole head of a request. Browsers also open connections in advance without a request.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// For a whole reply, or one line of news. The connection to a slower peer is closed.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// How long we read on after the reply. Otherwise a reset could make the peer lose the reply.
const LINGER_TIME: Duration = Duration::from_millis(500);
const NEWS: &str = "application/x-ndjson; charset=utf-8";
/// The dashboard ends, not only the connection.
const OVER: &str = "{\"kind\":\"over\"}\n";

pub struct Shared {
    pub token: Token,
    pub names: Names,
    pub feed: Arc<Feed>,
    pub limits: ConnectionLimits,
}

/// Serves one connection.
pub fn serve(stream: &TcpStream, mut counted: CountedConnection, shared: &Shared) -> io::Result<()> {
    // The listener does not block, and on some systems its connections inherit that.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    match read_head(stream, &shared.names)? {
        None => return Ok(()),
        Some(Err(Refused(status, words))) => send_page(stream, status, words)?,
        Some(Ok(head)) => reply_to(stream, &mut counted, &head, shared)?,
    }
    close(stream)
}

/// `None` if the peer closes the connection, or sends no complete head in time.
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
        let free = chunk.len().min(CAP + 1 - input.len());
        match stream.read(&mut chunk[..free]) {
            Ok(0) => return Ok(None),
            Ok(n) => input.extend_from_slice(&chunk[..n]),
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A path is the token, a slash, and the name of a file.
fn reply_to(stream: &TcpStream, counted: &mut CountedConnection, asked: &Head, shared: &Shared) -> io::Result<()> {
    let mut parts = asked.path[1..].splitn(2, '/');
    let (token, name) = (parts.next().unwrap_or_default(), parts.next());
    if !shared.token.admits(token.as_bytes()) {
        let words = "This address is not valid, or not any more: open the one that <code>wafd dashboard</code> prints.";
        return send_page(stream, 403, words);
    }
    if !counted.show_token() {
        return send_page(stream, 503, "Too many pages are open: close some.");
    }
    let is_head = asked.method == Method::Head;
    match name {
        None => write(stream, &reply::redirect(&format!("/{}/", shared.token.text()))),
        Some("news") if !is_head => send_news(stream, &shared.feed),
        Some(name) => match page::find(name) {
            Some(file) => {
                let head = reply::head(200, file.kind, Some(file.text.len()));
                let body = if is_head { "" } else { file.text };
                write(stream, &[&head, body.as_bytes()].concat())
            }
            None => send_page(stream, 404, "There is no such thing here."),
        },
    }
}

/// Sends news as long as the page is open.
fn send_news(stream: &TcpStream, feed: &Arc<Feed>) -> io::Result<()> {
    let (mut watcher, history) = feed.watch();
    write(stream, &[&reply::head(200, NEWS, None), history.as_bytes()].concat())?;
    loop {
        match watcher.next() {
            News::Line(line) => write(stream, line.as_bytes())?,
            News::Over => return write(stream, OVER.as_bytes()),
        }
    }
}

fn send_page(stream: &TcpStream, status: u16, words: &str) -> io::Result<()> {
    let page = reply::message_page(words);
    let head = reply::head(status, reply::HTML, Some(page.len()));
    write(stream, &[&head, page.as_bytes()].concat())
}

/// Writes everything before the deadline, however slowly the peer reads.
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

/// Closes a connection in such a way that everything sent arrives.
fn close(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + LINGER_TIME;
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

/// The time that is left. A timeout of zero would mean none.
fn left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// The caller checks the deadline.
fn is_again(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
