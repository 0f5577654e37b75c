//! `wafcc COMMAND …`: a command of any build system, run by the engine and so within the slots that all builds share.
//!
//! Whatever goes wrong on our side, the command itself is run, in this very process: a build never fails because of the
//! wrapper. The cache that answers instead of running will stand behind the same request.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as ProcessStdio};

use crate::client::{Client, Unserved};
use crate::folder::Folder;
use crate::wire::{Execute, Outcome, Reply, Request, Stdio, Strings, Verdict};

/// The command to run: its program as a path that is not ours, and its arguments.
pub struct Wrapped {
    program: PathBuf,
    args: Vec<OsString>,
}

impl Wrapped {
    /// Finds the program along `PATH`, passing over ourselves under its name: links called `gcc` may stand before it.
    pub fn find(name: &OsStr, args: Vec<OsString>) -> Result<Wrapped, String> {
        let ours = fs::canonicalize("/proc/self/exe").map_err(|e| format!("find myself: {e}"))?;
        let is_another = |path: &PathBuf| path.is_file() && fs::canonicalize(path).is_ok_and(|p| p != ours);
        let program = if name.as_bytes().contains(&b'/') {
            Some(PathBuf::from(name)).filter(is_another)
        } else {
            let folders = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
            env::split_paths(&folders).map(|f| f.join(name)).find(is_another)
        };
        let shown = name.to_string_lossy();
        let program = program.ok_or_else(|| format!("{shown}: no such program besides wafcc itself; check PATH"))?;
        Ok(Wrapped { program, args })
    }

    /// Runs it in the engine if that is to be had, and here otherwise. Returns the exit status.
    pub fn run(self) -> i32 {
        if env::var_os("WAFCC_DISABLE").is_some_and(|v| !v.is_empty()) || self.reads_the_terminal() {
            return self.exec();
        }
        match self.run_in_engine() {
            Ok(Outcome {
                verdict: Verdict::Ran,
                code,
                ..
            }) if code >= 0 => code,
            Ok(Outcome {
                verdict: Verdict::Ran,
                code,
                ..
            }) => die_of(-code),
            Ok(_) => self.exec(),
            Err(Unserved::Lost(_)) => {
                // Another start waits until the commands of the lost engine are gone.
                let _ = start_engine();
                self.exec()
            }
            Err(_) => self.exec(),
        }
    }

    /// A command in another session could not.
    fn reads_the_terminal(&self) -> bool {
        self.args.iter().any(|arg| arg == "-") && io::stdin().is_terminal()
    }

    fn run_in_engine(&self) -> Result<Outcome, Unserved> {
        let mut client = connect()?;
        let entries = env::vars_os().map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes()].concat());
        client.send(&Request::Environment {
            env: 0,
            entries: entries.collect(),
        })?;
        let program = std::iter::once(self.program.as_os_str());
        let argv: Strings = program
            .chain(self.args.iter().map(OsString::as_os_str))
            .map(OsStr::as_bytes)
            .collect();
        let execute = Request::Execute(Box::new(Execute {
            id: 0,
            env: 0,
            new_session: false,
            stdio: [Stdio::Descriptor; 3],
            timeout: 0,
            cwd: env::current_dir()?.as_os_str().as_bytes().to_vec(),
            argv,
            input: Vec::new(),
        }));
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        client.send_with(&execute, &[stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
        client.patience(None)?;
        match client.receive()? {
            Reply::Outcome(outcome) => Ok(outcome),
            _ => Err(io::Error::other("an answer to something else").into()),
        }
    }

    /// Becomes the command.
    fn exec(&self) -> i32 {
        let error = Command::new(&self.program).args(&self.args).exec();
        eprintln!("wafcc: {}: {error}", self.program.display());
        if error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

fn connect() -> Result<Client, Unserved> {
    let folder = Folder::from_environment();
    let (session, name) = parent();
    let jobs = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let connect = || Client::connect(&folder, session, jobs, &name);
    match connect() {
        Err(Unserved::Absent(_) | Unserved::Lost(_)) => {
            start_engine()?;
            connect()
        }
        other => other,
    }
}

/// Commands with one parent, such as a `make`, are one build: the parent's number and start make the session.
fn parent() -> ([u8; 16], Vec<u8>) {
    let pid = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let (head, tail) = stat.rsplit_once(')').unwrap_or_default();
    let started: u64 = tail
        .split_whitespace()
        .nth(19)
        .and_then(|t| t.parse().ok())
        .unwrap_or(0);
    let mut session = *b"wafcc\0\0\0\0\0\0\0\0\0\0\0";
    session[4..8].copy_from_slice(&pid.to_le_bytes());
    session[8..].copy_from_slice(&started.to_le_bytes());
    let name = head.split_once('(').map_or("?", |(_, name)| name);
    (session, format!("wafcc for {name}").into_bytes())
}

/// Runs `wafd start` of our own installation.
fn start_engine() -> io::Result<()> {
    let beside = env::current_exe()?.canonicalize()?.with_file_name("wafd");
    let program = if beside.is_file() {
        beside.as_path()
    } else {
        Path::new("wafd")
    };
    let mut start = Command::new(program);
    start
        .arg("start")
        .stdin(ProcessStdio::null())
        .stdout(ProcessStdio::null())
        .stderr(ProcessStdio::null());
    match start.status()? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("wafd start: {status}"))),
    }
}

/// Ends as the command did, so that whoever waits for us sees the same.
fn die_of(signal: i32) -> i32 {
    // SAFETY: this process has one thread and nothing to clean up. No core: the command has left its own.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    128 + signal
}

/// The program's own name: under another one, we are called as that compiler.
pub fn is_own_name(argv0: &OsStr) -> bool {
    Path::new(argv0).file_name().is_some_and(|name| name == "wafcc")
}

/// Rust ignores SIGPIPE, and a program that we become would inherit that.
pub fn restore_sigpipe() {
    // SAFETY: sets a disposition of this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Wrapped::find(OsStr::new("no-such-compiler"), Vec::new()).err().unwrap();
        assert!(error.contains("no-such-compiler"), "{error}");
    }

    #[test]
    fn a_program_is_found_along_the_path() {
        let found = Wrapped::find(OsStr::new("sh"), Vec::new()).unwrap();
        assert!(found.program.is_absolute());
    }

    #[test]
    fn all_commands_of_one_parent_are_one_session() {
        assert_eq!(parent(), parent());
        assert_ne!(parent().0[8..], [0; 8]);
    }
}
