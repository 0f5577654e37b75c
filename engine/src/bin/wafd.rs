//! `wafd`: the engine's command line.
#![no_main]

use std::ffi::{c_char, c_int, CStr, OsStr};
use std::io::ErrorKind;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use wafengine::client::start;
use wafengine::client::{end_if_stopped, Client};
use wafengine::files::folder::Folder;
use wafengine::files::logbook;
use wafengine::process::replace::exec_program;
use wafengine::process::{apart, fault};
use wafengine::report::{misuse, print, status};
use wafengine::server::Options;
use wafengine::wafd::{Command, Invocation, Start};
use wafengine::{completion, dashboard, team, witness};

const STOP_TIME: Duration = Duration::from_secs(10);

/// Not Rust's own `main`: it changes signals and streams, which a program under the witness would inherit.
///
/// # Safety
/// As the system calls it: `argv` has `count` strings and ends with a zero.
#[no_mangle]
pub unsafe extern "C" fn main(count: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: see above.
    let word = (count > 1).then(|| unsafe { CStr::from_ptr(*argv.add(1)) });
    // SAFETY: see above; nothing has been set up yet.
    match word {
        Some(word) if word == witness::WORD => return unsafe { witness::launch(argv) },
        Some(word) if word == apart::WORD => return unsafe { apart::launch(argv) },
        _ => {}
    }
    // The same as Rust's own `main` does: a closed stream becomes `/dev/null`, and a broken pipe an error.
    for stream in 0..3 {
        // SAFETY: only system calls.
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
    let done = match Invocation::try_parse() {
        Ok(line) => act(line),
        Err(asked) if !asked.use_stderr() => print(asked.to_string()).map(|()| 0),
        Err(error) => Err(misused(&misuse::describe(&error))),
    };
    match done {
        Ok(status) => status,
        Err(error) => {
            eprintln!("wafd: {error}");
            1
        }
    }
}

/// These commands have their own help.
fn misused(why: &str) -> String {
    let first = std::env::args_os().nth(1);
    match first.as_deref().and_then(OsStr::to_str) {
        Some(command @ ("serve" | "dashboard" | "worker")) => format!("{command}: {why}; see wafd {command} --help"),
        _ => format!("{why}; see wafd --help"),
    }
}

fn engine_options(start: &Start) -> Result<Options, String> {
    let idle = match (start.idle, std::env::var("WAFD_IDLE")) {
        (Some(seconds), _) => seconds,
        (None, Err(_)) => 600,
        (None, Ok(text)) => text
            .parse()
            .map_err(|_| misused(&format!("WAFD_IDLE={text} is not a number of seconds")))?,
    };
    Ok(Options {
        folder: Folder::from_environment(),
        idle: Duration::from_secs(idle),
        tcp: start.tcp,
        gauges: std::env::var_os("WAFD_GAUGES").unwrap_or_else(|| "/proc".into()).into(),
        no_brake: no_brake().map_err(|why| misused(&why))?,
    })
}

fn no_brake() -> Result<bool, String> {
    match std::env::var("WAFD_MEMORY_BRAKE").as_deref() {
        Err(_) | Ok("" | "yes") => Ok(false),
        Ok("no") => Ok(true),
        Ok(other) => Err(format!("WAFD_MEMORY_BRAKE is {other:?}: set it to yes or no")),
    }
}

fn act(line: Invocation) -> Result<u8, String> {
    let is_bare = line.command.is_none() && !line.start.foreground;
    match line.command.unwrap_or(Command::Start(line.start)) {
        _ if is_bare => print(Invocation::command().render_help().to_string())?,
        Command::Start(start) if start.foreground => {
            return start::foreground(engine_options(&start)?).map(|status| status as u8);
        }
        Command::Start(start) => print(format!("{}\n", start::ensure(engine_options(&start)?)?))?,
        Command::Serve(options) => team::run(&options)?,
        Command::Worker(_) => return Err(become_worker()),
        Command::Dashboard(options) => dashboard::run(&options)?,
        Command::Completion { script: Some(script) } => print(&script)?,
        Command::Completion { script: None } => return Err(misused(completion::NO_SHELL)),
        Command::Status { json } => {
            let report = connect("wafd status")?.report().map_err(|e| e.to_string())?;
            print(&if json {
                format!("{report:#}\n")
            } else {
                status::show(&report)
            })?;
        }
        Command::Stop { now } => {
            let time = now.then_some(STOP_TIME);
            let stopped = connect("wafd stop").and_then(|engine| {
                let failed = |e| format!("the engine did not stop: {e}");
                engine.stop(now, time).map_err(failed)
            });
            if let Err(error) = stopped {
                // An engine that was stopped by a signal does not answer.
                if !(now && end_if_stopped(&Folder::from_environment())) {
                    return Err(error);
                }
            }
        }
    }
    Ok(0)
}

/// What needs the libraries of clusters is a program of its own. It reads the same words.
fn become_worker() -> String {
    let own = std::env::current_exe().and_then(|own| own.canonicalize());
    let program = own.map(|own| own.with_file_name("wafd-cluster")).unwrap_or_default();
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let error = exec_program(program.as_os_str(), program.as_os_str(), &words);
    match error.kind() {
        ErrorKind::NotFound => format!("{} is not there: wafd worker needs it", program.display()),
        _ => format!("{}: {error}", program.display()),
    }
}

fn connect(name: &str) -> Result<Client, String> {
    Client::connect(&Folder::from_environment(), [0; 16], 0, name.as_bytes()).map_err(|e| e.to_string())
}
