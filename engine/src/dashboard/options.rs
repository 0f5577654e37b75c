//! The command line of `wafd dashboard`.

use lexopt::prelude::*;

use crate::http::asker;
use crate::settings::address::{self, Address, Scheme};

pub const HELP: &str = "\
wafd dashboard shows in a browser what the engine does: builds, slots, cache, parked programs, memory.
It prints the address of its page, which holds a token: who does not know it is shown nothing.

Usage: wafd dashboard [--port N] [--no-open] [--server ADDR] [--host NAME ...]

Options:
  --port N       of 127.0.0.1; 0 is any that is free [0]
  --no-open      do not open the page in the desktop's browser
  --server ADDR  also show how a team's server does: its address as in the setting remote of wafcc
  --host NAME    a name by which it may be asked beside localhost, where a proxy leads here; may be repeated

Environment:
  WAFD_RUNTIME_DIR  folder of the engine's socket [$XDG_RUNTIME_DIR/wafd, or /tmp/wafd-UID]

It waits for an engine where none runs, and ends with SIGINT or SIGTERM. Exit status: 0, or 1 with one line that says why.

Examples:
  wafd dashboard
  wafd dashboard --no-open --port 8117
  wafd dashboard --server 'tcp://build-cache:7117|token-file=/etc/wafd/token'
";

pub enum Act {
    Print(&'static str),
    Show(Box<Options>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    pub port: u16,
    pub opens: bool,
    pub server: Option<Address>,
    pub hosts: Vec<String>,
}

/// Of what follows `dashboard`.
pub fn parse(mut parser: lexopt::Parser) -> Result<Act, lexopt::Error> {
    let mut options = Options {
        port: 0,
        opens: true,
        server: None,
        hosts: Vec::new(),
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Act::Print(HELP)),
            Long("port") => options.port = port(&parser.value()?.string()?)?,
            Long("no-open") => options.opens = false,
            Long("server") => options.server = Some(server(&parser.value()?.string()?)?),
            Long("host") => options.hosts.push(asker::host(parser.value()?.string()?)?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Act::Show(Box::new(options)))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("--port {text}: it is a number from 0 to 65535"))
}

/// Whatever is spoken on a server's port, its report is had by HTTP.
fn server(text: &str) -> Result<Address, String> {
    let addresses = address::parse_all(text).map_err(|error| format!("--server {error}"))?;
    let wrong = |why: &str| format!("--server {}: {why}", address::without_secrets(text));
    let [address] = &addresses[..] else {
        return Err(wrong("it is one address"));
    };
    match address.scheme {
        Scheme::Http => Ok(address.clone()),
        // There a token stands alone, where HTTP has a name and a password.
        Scheme::Room => Ok(Address {
            scheme: Scheme::Http,
            password: address.user.clone(),
            user: None,
            path: String::new(),
            ..address.clone()
        }),
        Scheme::Redis | Scheme::S3 => Err(wrong("only a wafd serve tells how it does; write tcp://HOST:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        match super::parse(lexopt::Parser::from_args(words)) {
            Ok(Act::Show(options)) => Ok(*options),
            Ok(Act::Print(_)) => panic!("only to print"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn options_hold() {
        let options = parse(&["--no-open", "--port=81", "--server", "tcps://secret@host:7"]).unwrap();
        assert!(!options.opens && options.port == 81);
        let server = options.server.unwrap();
        assert_eq!(server.to_string(), "https://host:7");
        assert_eq!((server.user, server.password.as_deref()), (None, Some("secret")));
        assert!(parse(&[]).unwrap().opens);
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_told() {
        for (words, error) in [
            (["--port", "many"], "--port many: it is a number from 0 to 65535"),
            (
                ["--server", "redis://secret@h"],
                "--server redis://***@h: only a wafd serve tells how it does; write tcp://HOST:PORT",
            ),
            (["--server", ""], "--server : it is one address"),
            (["--server", "host"], "--server host: not an address"),
            (["more", ""], "unexpected argument \"more\""),
        ] {
            let found = parse(&words).unwrap_err();
            assert!(found.starts_with(error), "{found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }
}
