//! `wafcc`: a command in front of which the cache stands, and the cache's own command line.
//!
//! ```text
//! argv ─┬─► call ─► settings ─► place ─► run: by the engine of that store, or else here
//!       └─► options ─► settings ─► place ─► question ─► that engine ─► answer ─► text
//! ```
//!
//! Knows the protocol and nothing of how anything is cached. Whatever goes wrong on our side, the command itself is run.

pub mod act;
pub mod ask;
pub mod call;
pub mod card;
pub mod explanation;
pub mod launch;
pub mod options;
pub mod path_text;
pub mod place;
pub mod quantity;
pub mod question;
pub mod remote;
pub mod run;
pub mod settings;
pub mod settings_file;
pub mod statistics;
pub mod trouble;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use self::call::{is_us, Call, How};
use crate::client::Client;

const NAME: &str = "wafcc";
const MISUSED: i32 = 2;

/// The whole program; returns its exit status. `asked` is a connection over which the command was asked for already.
pub fn main(mut args: Vec<OsString>, asked: Option<Client>) -> i32 {
    crate::fault::end_process_on_panic();
    if args.is_empty() {
        args.push(NAME.into());
    }
    let argv0 = args.remove(0);
    if let Some(name) = borrowed_name(&argv0) {
        return wrap(name, args, How::AsSet, None);
    }
    if args.first().is_some_and(|first| is_us(first)) {
        // `wafcc wafcc gcc`: a project has set one launcher, and its user another.
        return main(args, None);
    }
    match args.first().map(|first| first.as_bytes()) {
        Some(b"run") => match how_to_run(&mut args) {
            Some(how) => {
                let name = args.remove(0);
                wrap(&name, args, how, None)
            }
            None => {
                let name = args.remove(0);
                wrap(&name, args, How::AsSet, None)
            }
        },
        Some(first) if !first.starts_with(b"-") => {
            let name = args.remove(0);
            wrap(&name, args, How::AsSet, asked)
        }
        _ => manage(args),
    }
}

/// The name under which we are called, if it is not our own: we stand in for a compiler.
fn borrowed_name(argv0: &OsStr) -> Option<&OsStr> {
    Path::new(argv0).file_name().filter(|name| *name != NAME)
}

/// Of `run [--no-cache] -- COMMAND`, which it reduces to the command; anything else is a command that is called `run`.
fn how_to_run(args: &mut Vec<OsString>) -> Option<How> {
    let is_plain = args.get(1).is_some_and(|arg| arg == "--no-cache");
    let at = if is_plain { 2 } else { 1 };
    if args.get(at).map_or(true, |arg| arg != "--") || args.len() < at + 2 {
        return None;
    }
    args.drain(..=at);
    Some(if is_plain { How::Uncached } else { How::ByFacts })
}

fn wrap(name: &OsStr, args: Vec<OsString>, how: How, asked: Option<Client>) -> i32 {
    match Call::find(name, args, how) {
        Ok(call) => run::run(&call, asked),
        Err(unfound) => run::fail(unfound),
    }
}

fn manage(args: Vec<OsString>) -> i32 {
    match options::parse(args) {
        Err(error) => {
            eprintln!("{NAME}: {error}; see wafcc --help");
            MISUSED
        }
        Ok(acts) => match acts.into_iter().try_for_each(act::perform) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{NAME}: {error}");
                1
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_borrowed_unless_it_is_our_own() {
        assert_eq!(borrowed_name(OsStr::new("/usr/bin/wafcc")), None);
        assert_eq!(borrowed_name(OsStr::new("/links/g++-12")), Some(OsStr::new("g++-12")));
    }
}
