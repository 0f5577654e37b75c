//! The command line of `wafd dashboard`.

use clap::Args;

use crate::http::asker;
use crate::report::misuse::WITHOUT_ABOUT;
use crate::settings::address::{self, Address, Scheme};

const ABOUT: &str = "\
wafd dashboard shows in a browser what the engine does: builds, slots, cache, parked programs, memory.
It prints the address of its page, which holds a token: who does not know it is shown nothing.";
const MORE: &str = "\
Environment:
  WAFD_RUNTIME_DIR  folder of the engine's socket [$XDG_RUNTIME_DIR/wafd, or /tmp/wafd-UID]

It waits for an engine where none runs, and ends with SIGINT or SIGTERM. Exit status: 0, or 1 with one line that says why.

Examples:
  wafd dashboard
  wafd dashboard --no-open --port 8117
  wafd dashboard --server 'tcp://build-cache:7117|token-file=/etc/wafd/token'";

#[derive(Debug, Args)]
#[command(before_help = ABOUT, help_template = WITHOUT_ABOUT, after_help = MORE)]
#[command(override_usage = "wafd dashboard [--port N] [--no-open] [--server ADDR] [--host NAME ...]")]
pub struct Options {
    /// of 127.0.0.1; 0 is any that is free
    #[arg(long, value_name = "N", default_value = "0", value_parser = port, allow_hyphen_values = true)]
    pub port: u16,
    /// do not open the page in the desktop's browser
    #[arg(long)]
    pub no_open: bool,
    /// also show how a team's server does: its address as in the setting remote of wafcc
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// a name by which it may be asked beside localhost, where a proxy leads here; may be repeated
    #[arg(long = "host", value_name = "NAME", value_parser = asker::host, action = clap::ArgAction::Append)]
    pub hosts: Vec<String>,
}

impl Options {
    /// The address of the team server's report, which is always read by HTTP. A wrong address is reported here without
    /// its secrets. The parser of the command line would show them.
    pub fn server(&self) -> Result<Option<Address>, String> {
        self.server.as_deref().map(server).transpose()
    }
}

fn port(text: &str) -> Result<u16, &'static str> {
    text.parse().map_err(|_| "it is a number from 0 to 65535")
}

fn server(text: &str) -> Result<Address, String> {
    let addresses = address::parse_all(text).map_err(|error| format!("--server {error}"))?;
    let wrong = |why: &str| format!("--server {}: {why}", address::without_secrets(text));
    let [address] = &addresses[..] else {
        return Err(wrong("it is one address"));
    };
    match address.scheme {
        Scheme::Http => Ok(address.clone()),
        // A `tcp://` address has only a token. HTTP needs it as a password.
        Scheme::Room => Ok(Address {
            scheme: Scheme::Http,
            password: address.user.clone(),
            user: None,
            path: String::new(),
            ..address.clone()
        }),
        Scheme::Redis | Scheme::S3 | Scheme::Grpc => {
            Err(wrong("only a wafd serve tells how it does; write tcp://HOST:PORT"))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::report::misuse;

    #[derive(Debug, clap::Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, String> {
        let line = Line::try_parse_from(words).map_err(|error| misuse::describe(&error))?;
        line.options.server().map(|_| line.options)
    }

    #[test]
    fn options_hold() {
        let options = parse(&["--no-open", "--port=81", "--server", "tcps://secret@host:7"]).unwrap();
        assert!(options.no_open && options.port == 81);
        let server = options.server().unwrap().unwrap();
        assert_eq!(server.to_string(), "https://host:7");
        assert_eq!((server.user, server.password.as_deref()), (None, Some("secret")));
        assert!(!parse(&[]).unwrap().no_open);
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
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
