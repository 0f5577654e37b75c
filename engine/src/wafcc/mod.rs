//! `wafcc`: the compiler wrapper, and the cache's own command line.
//!
//! ```text
//! argv ─┬─► call ─► settings ─► place ─► run: by the engine of that store, or else here
//!       └─► options ─► settings ─► place ─► question ─► that engine ─► answer ─► text
//! ```
//!
//! Knows the protocol, and not how commands are cached. Whatever fails on our side, the command itself is run.

pub mod act;
pub mod ask;
pub mod call;
pub mod card;
pub mod debugger;
pub mod distant;
pub mod launch;
pub mod options;
pub mod run;
pub mod trouble;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use self::call::{is_us, Call, How};
use crate::client::Client;

const NAME: &str = "wafcc";
const MISUSED: i32 = 2;

/// The whole program. Returns its exit status. `asked` is a connection over which the command was sent already.
pub fn main(mut args: Vec<OsString>, asked: Option<Client>) -> i32 {
    crate::process::fault::end_process_on_panic();
    if args.is_empty() {
        args.push(NAME.into());
    }
    let argv0 = args.remove(0);
    if let Some(name) = compiler_name(&argv0) {
        return wrap(name, args, &Run::default(), None);
    }
    if args.first().is_some_and(|first| is_us(first)) {
        // `wafcc wafcc gcc`: the project has set one launcher, and its user another.
        return main(args, None);
    }
    match args.first().map(|first| first.as_bytes()) {
        Some(b"run") => match parse_run(&mut args) {
            Ok(run) => {
                let name = args.remove(0);
                wrap(&name, args, &run.unwrap_or_default(), None)
            }
            Err(error) => {
                eprintln!("{NAME}: {error}");
                MISUSED
            }
        },
        Some(first) if !first.starts_with(b"-") => {
            let name = args.remove(0);
            wrap(&name, args, &Run::default(), asked)
        }
        _ => perform_options(args),
    }
}

/// The name under which we are called, if it is not our own: we replace a compiler.
fn compiler_name(argv0: &OsStr) -> Option<&OsStr> {
    Path::new(argv0).file_name().filter(|name| *name != NAME)
}

/// How a command is to be run, and which files it declares to make.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    how: How,
    outputs: Vec<OsString>,
}

/// Parses `run [--no-cache] [--output=FILE…] -- COMMAND [ARGUMENT…]`, and reduces the arguments to the command. `None`
/// if `run` is itself the command.
fn parse_run(args: &mut Vec<OsString>) -> Result<Option<Run>, &'static str> {
    const OUTPUT: &[u8] = b"--output";
    let (mut how, mut outputs) = (How::ByFacts, Vec::new());
    let mut words = args.iter().enumerate().skip(1);
    let end = loop {
        let Some((at, word)) = words.next() else {
            return Ok(None);
        };
        match word.as_bytes() {
            b"--" => break at,
            b"--no-cache" => how = How::Uncached,
            OUTPUT => match words.next() {
                Some((_, file)) => outputs.push(file.clone()),
                None => return Ok(None),
            },
            word => match word.strip_prefix(OUTPUT).and_then(|rest| rest.strip_prefix(b"=")) {
                Some(file) => outputs.push(OsStr::from_bytes(file).to_owned()),
                None => return Ok(None),
            },
        }
    };
    if args.len() < end + 2 {
        return Ok(None);
    }
    if outputs.iter().any(|output| output.is_empty()) {
        return Err("run --output: it needs a file; write --output=FILE");
    }
    args.drain(..=end);
    Ok(Some(Run { how, outputs }))
}

fn wrap(name: &OsStr, args: Vec<OsString>, run: &Run, asked: Option<Client>) -> i32 {
    match Call::find(name, args, run.how) {
        Ok(call) => {
            let outputs = run.outputs.clone();
            run::run(&Call { outputs, ..call }, asked)
        }
        Err(not_found) => run::report_not_found(not_found),
    }
}

fn perform_options(args: Vec<OsString>) -> i32 {
    match options::parse(args) {
        Err(error) => {
            eprintln!("{NAME}: {error}; see wafcc --help");
            MISUSED
        }
        Ok(actions) => match actions.into_iter().try_for_each(act::perform) {
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
        assert_eq!(compiler_name(OsStr::new("/usr/bin/wafcc")), None);
        assert_eq!(compiler_name(OsStr::new("/links/g++-12")), Some(OsStr::new("g++-12")));
    }

    #[test]
    fn options_of_run_come_before_two_dashes() {
        let read = |line: &str| {
            let mut args: Vec<_> = line.split(' ').map(OsString::from).collect();
            let run = parse_run(&mut args);
            (run, args.join(OsStr::new(" ")).into_string().unwrap())
        };
        let run = |how, outputs: &[&str]| {
            let outputs = outputs.iter().map(OsString::from).collect();
            Ok(Some(Run { how, outputs }))
        };
        for (line, expected, left) in [
            ("run -- ar x", run(How::ByFacts, &[]), "ar x"),
            ("run --no-cache -- ar", run(How::Uncached, &[]), "ar"),
            (
                "run --output=a --output b -- ar -- x",
                run(How::ByFacts, &["a", "b"]),
                "ar -- x",
            ),
            ("run", Ok(None), "run"),
            ("run --", Ok(None), "run --"),
            ("run x -- y", Ok(None), "run x -- y"),
            ("run --output", Ok(None), "run --output"),
        ] {
            assert_eq!(read(line), (expected, left.to_owned()), "{line}");
        }
        assert!(read("run --output= -- ar").0.is_err());
    }
}
