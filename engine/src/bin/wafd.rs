//! `wafd`: the engine's command line.
#![no_main]

use std::ffi::{c_char, c_int, CStr};
use std::io::Write;
use std::time::Duration;

use lexopt::prelude::*;
use wafengine::client::start;
use wafengine::client::{end_if_stopped, Client};
use wafengine::files::folder::{Folder, ENGINE};
use wafengine::files::logbook;
use wafengine::process::fault;
use wafengine::report::status;
use wafengine::server::Options;
use wafengine::{completion, dashboard, team, witness};

const HELP: &str = "\
wafd runs the commands of builds: it owns the slots that all builds of a user share.
Builds start it by themselves; it leaves when nobody has needed it for a while.

Usage: wafd start [--tcp] [--idle SECONDS] [--foreground]
       wafd status [--json]
       wafd stop [--now]
       wafd dashboard [--port N] [--no-open] [--server ADDR] [--host NAME ...] (see wafd dashboard --help)
       wafd serve --listen ADDR ... (see wafd serve --help)
       wafd completion bash|zsh|fish
       wafd --foreground | --version | --help

Commands:
  start       make sure that an engine runs; prints how to reach it
  status      tell what it does and did
  stop        end it when its running commands have ended
  dashboard   show what it does, as it happens, in a browser
  serve       keep a cache for a team, which other machines ask over TCP
  completion  print what has a shell complete wafd, wafcc and waf

Options:
  --tcp           also listen on a port of 127.0.0.1, for clients that show a token
  --idle SECONDS  leave after that long without a client [600, or $WAFD_IDLE]
  --foreground    serve until stopped, with the log on standard error
  --json          for programs
  --now           end running commands too

Environment:
  WAFD_RUNTIME_DIR  folder of socket, locks and log [$XDG_RUNTIME_DIR/wafd, or /tmp/wafd-UID]
  WAFD_MEMORY_BRAKE no: start as many commands as ever when memory runs short
  WAFD_GAUGES       folder with pressure/memory, meminfo and loadavg [/proc]
  WAFD_LOG          error, warn, info or debug [info]

Examples:
  wafd status --json | python3 -m json.tool
  wafd dashboard --no-open
  WAFD_LOG=debug wafd --foreground
  eval \"$(wafd completion bash)\"
";

const STOP_TIME: Duration = Duration::from_secs(10);

enum Act {
    Start { foreground: bool, options: Options },
    Status { json: bool },
    Stop { now: bool },
    Serve(lexopt::Parser),
    Dashboard(lexopt::Parser),
    Print(String),
}

/// Not Rust's own `main`: a program that is observed by the witness inherits what that does to signals and streams.
///
/// # Safety
/// As the system calls it: `argv` has `count` strings and ends with a zero.
#[no_mangle]
pub unsafe extern "C" fn main(count: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: see above.
    let is_witness = count > 1 && unsafe { CStr::from_ptr(*argv.add(1)) } == witness::WORD;
    if is_witness {
        // SAFETY: see above; nothing has been set up yet.
        return unsafe { witness::launch(argv) };
    }
    // As Rust's own start does: a closed stream becomes `/dev/null`, and a broken pipe an error.
    for stream in 0..3 {
        // SAFETY: plain system calls.
        unsafe {
            if libc::fcntl(stream, libc::F_GETFD) < 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    c_int::from(run())
}

fn run() -> u8 {
    fault::end_process_on_panic();
    let level = env_logger::Env::new().filter_or("WAFD_LOG", "info");
    env_logger::Builder::from_env(level).format(logbook::write).init();
    let done = parse().map_err(|e| format!("{e}; see wafd --help")).and_then(act);
    match done {
        Ok(status) => status,
        Err(error) => {
            eprintln!("wafd: {error}");
            1
        }
    }
}

fn parse() -> Result<Act, lexopt::Error> {
    let mut parser = lexopt::Parser::from_env();
    let mut command: Option<String> = None;
    let mut shell = None;
    let (mut tcp, mut foreground, mut json, mut now) = (false, false, false, false);
    let mut idle = match std::env::var("WAFD_IDLE") {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("WAFD_IDLE={text} is not a number of seconds"))?,
        Err(_) => 600,
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Act::Print(HELP.to_owned())),
            Short('V') | Long("version") => return Ok(Act::Print(format!("wafd {ENGINE}\n"))),
            Long("tcp") => tcp = true,
            Long("foreground") => foreground = true,
            Long("json") => json = true,
            Long("now") => now = true,
            Long("idle") => idle = parser.value()?.parse()?,
            Value(word) if command.is_none() && word == "serve" => return Ok(Act::Serve(parser)),
            Value(word) if command.is_none() && word == "dashboard" => return Ok(Act::Dashboard(parser)),
            Value(word) if command.as_deref() == Some("completion") && shell.is_none() => shell = Some(word.string()?),
            Value(word) if command.is_none() => command = Some(word.string()?),
            _ => return Err(arg.unexpected()),
        }
    }
    match command.as_deref() {
        Some("status") => Ok(Act::Status { json }),
        Some("completion") => Ok(Act::Print(completion::script(&shell.unwrap_or_default())?)),
        Some("stop") => Ok(Act::Stop { now }),
        None if !foreground => Ok(Act::Print(HELP.to_owned())),
        None | Some("start") => Ok(Act::Start {
            foreground,
            options: Options {
                folder: Folder::from_environment(),
                idle: Duration::from_secs(idle),
                tcp,
                gauges: std::env::var_os("WAFD_GAUGES").unwrap_or_else(|| "/proc".into()).into(),
                no_brake: no_brake()?,
            },
        }),
        Some(other) => Err(format!("there is no command {other}").into()),
    }
}

fn no_brake() -> Result<bool, String> {
    match std::env::var("WAFD_MEMORY_BRAKE").as_deref() {
        Err(_) | Ok("" | "yes") => Ok(false),
        Ok("no") => Ok(true),
        Ok(other) => Err(format!("WAFD_MEMORY_BRAKE is {other:?}: set it to yes or no")),
    }
}

fn act(act: Act) -> Result<u8, String> {
    match act {
        Act::Print(text) => say(&text)?,
        Act::Start {
            foreground: true,
            options,
        } => {
            return start::foreground(options).map(|status| status as u8);
        }
        Act::Serve(parser) => team::run(parser)?,
        Act::Dashboard(parser) => dashboard::run(parser)?,
        Act::Start { options, .. } => say(&format!("{}\n", start::ensure(options)?))?,
        Act::Status { json } => {
            let report = connect("wafd status")?.report().map_err(|e| e.to_string())?;
            say(&if json {
                format!("{report:#}\n")
            } else {
                status::show(&report)
            })?;
        }
        Act::Stop { now } => {
            let time = now.then_some(STOP_TIME);
            let stopped = connect("wafd stop").and_then(|engine| {
                let failed = |e| format!("the engine did not stop: {e}");
                engine.stop(now, time).map_err(failed)
            });
            if let Err(error) = stopped {
                // One that somebody has stopped hears nothing.
                if !(now && end_if_stopped(&Folder::from_environment())) {
                    return Err(error);
                }
            }
        }
    }
    Ok(0)
}

fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|e| format!("write to standard output: {e}"))
}

fn connect(name: &str) -> Result<Client, String> {
    Client::connect(&Folder::from_environment(), [0; 16], 0, name.as_bytes()).map_err(|e| e.to_string())
}
