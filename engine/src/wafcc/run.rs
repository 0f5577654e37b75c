//! Runs a call: in the engine of its store, or in this process if the engine cannot be reached.
//!
//! Every wait has a deadline except the one for the command itself. During that one we check whether the engine was
//! stopped. A command that the engine cannot run exactly as we would is not sent to it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio as ProcessStdio};
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::call::{Call, How, NotFound};
use super::card;
use super::distant;
use super::launch;
use super::trouble::{self, Advice, Note};
use crate::bytes::digest::Digest;
use crate::cache::checkout::Checkouts;
use crate::cache::compiler::action::{self, Action};
use crate::cache::compiler::outputs::Prints;
use crate::client::{end_if_stopped, is_timeout, patience, Client, Greeting, Unserved};
use crate::facts::input::Input;
use crate::files::folder::Folder;
use crate::files::regular;
use crate::process::replace::exec_program;
use crate::process::terminal::size_of;
use crate::settings::place;
use crate::settings::{Distant, Key, Settings};
use crate::wire::{
    Caching, Execute, Outcome, Policy, Reply, Request, Stdio, Strings, Verdict, Why, FRAME_CAP, UMASK_SHIFT, WISH_LATE,
    WISH_UMASK,
};

const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
const STAT_CAP: usize = 1024;
/// How often we check, while a command runs, whether its engine was stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// For questions about the cache: how long an engine may take to start on a busy machine.
const START_TIME: Duration = Duration::from_secs(30);
/// After an engine was lost, the next one starts only when the lost one's commands are gone.
const CLEAN_TIME: Duration = Duration::from_secs(10);
/// The shortest timeout, when the time is over already.
const SHORTEST: Duration = Duration::from_millis(50);

/// Runs the call. Returns its exit status. `asked` is a connection over which the command was sent already.
pub fn run(call: &Call, asked: Option<Client>) -> i32 {
    exec_when_we_panic(call);
    let settings = Settings::load(distant::look_at);
    if settings.is_on(Key::Disable) {
        return exec(call);
    }
    let is_silent = settings.distant == Some(Distant::Silent);
    if is_silent || has_closed_stream() || reads_the_terminal(call) {
        return exec_as_shared(call, &settings);
    }
    let home = Home::of(&settings);
    let ran = match asked {
        Some(client) => await_outcome(client),
        None => run_in_engine(call, &settings, &home),
    };
    match ran {
        Ok(Outcome {
            verdict: Verdict::Ran,
            code,
            ..
        }) => end_as(code),
        Err(Unserved::Lost(error)) => {
            // A new engine starts only when the commands of the lost engine are gone.
            if is_timeout(&error) || home.start_engine(CLEAN_TIME).is_err() {
                leave_note(&home.folder, &Unserved::Lost(error), None);
            }
            exec_as_shared(call, &settings)
        }
        Ok(_) | Err(_) => exec_as_shared(call, &settings),
    }
}

/// Becomes the command with the prefix maps that the engine would have added: what it makes must not depend on whether there
/// is an engine.
fn exec_as_shared(call: &Call, settings: &Settings) -> i32 {
    match call.how {
        How::Uncached => exec(call),
        How::AsSet | How::ByFacts => exec(&with_maps(call, settings).unwrap_or_else(|| call.clone())),
    }
}

/// `None` if the command needs none.
fn with_maps(call: &Call, settings: &Settings) -> Option<Call> {
    let (bases, share_checkouts) = (bases(settings), settings.is_on(Key::ShareCheckouts));
    let folder = env::current_dir().ok()?.into_os_string().into_encoded_bytes();
    let real = fs::canonicalize(&call.program).ok()?;
    let asked = action::Call {
        argv: &argv(call),
        environment: &environment(),
        folder: &folder,
        program: &call.program,
        real: &real,
        bases: &[],
        known_folders: &[],
        by_facts: None,
    };
    let shared = Checkouts::default().share(&asked, &bases, share_checkouts)?;
    let args = shared
        .argv?
        .iter()
        .skip(1)
        .map(|arg| OsStr::from_bytes(arg).to_owned())
        .collect();
    Some(Call { args, ..call.clone() })
}

/// Leaves a note for the next calls.
fn leave_note(folder: &Folder, why: &Unserved, earlier: Option<&Note>) {
    let is_first = trouble::leave(folder, &why.to_string(), earlier);
    // Only a terminal gets the message: other programs may parse a compiler's errors.
    if is_first && io::stderr().is_terminal() {
        eprintln!("wafcc: {why}; commands run without it, and nothing is cached");
    }
}

/// A closed stream cannot be passed on, and a file of ours would get its number.
fn has_closed_stream() -> bool {
    (0..3).any(|number| {
        // SAFETY: looks at a flag.
        unsafe { libc::fcntl(number, libc::F_GETFD) < 0 }
    })
}

/// A command in another session could not read it.
fn reads_the_terminal(call: &Call) -> bool {
    call.args.iter().any(|arg| arg == "-") && io::stdin().is_terminal()
}

/// The store of a client and the runtime folder of its engine.
pub struct Home {
    pub store: Option<std::path::PathBuf>,
    pub folder: Folder,
}

impl Home {
    pub fn of(settings: &Settings) -> Home {
        let store = place::store(settings);
        let folder = place::runtime(store.as_deref());
        Home { store, folder }
    }

    /// Connects for questions about the cache. Starts an engine if there is none.
    pub fn connect(&self) -> Result<Client, Unserved> {
        let (session, name) = session();
        self.connect_or_start(START_TIME, |_| Client::connect(&self.folder, session, 0, &name))
    }

    /// Connects. Starts an engine if there is none. `connect` gets the time that is left.
    fn connect_or_start(
        &self,
        time: Duration,
        connect: impl Fn(Duration) -> Result<Client, Unserved>,
    ) -> Result<Client, Unserved> {
        let deadline = Instant::now() + time;
        let left = || deadline.saturating_duration_since(Instant::now()).max(SHORTEST);
        match connect(time) {
            // The engine exists and does not answer: another start would wait for it, too.
            Err(Unserved::Lost(error)) if is_timeout(&error) && !end_if_stopped(&self.folder) => {
                Err(Unserved::Lost(error))
            }
            Err(Unserved::Absent(error)) if is_timeout(&error) => Err(Unserved::Absent(error)),
            Err(Unserved::Absent(_) | Unserved::Lost(_) | Unserved::Refused(Why::Leaving, _)) => {
                self.start_engine(left()).map_err(Unserved::Absent)?;
                connect(left())
            }
            other => other,
        }
    }

    /// Runs the `wafd start` of our own installation. It goes on after our time is up.
    fn start_engine(&self, time: Duration) -> io::Result<()> {
        // Without a folder there can be no engine, so we need not start a process.
        self.folder.make().map_err(io::Error::other)?;
        let beside = env::current_exe().and_then(|us| us.canonicalize());
        let beside = beside.map(|us| us.with_file_name("wafd")).unwrap_or_default();
        let program = if beside.is_file() {
            beside.as_path()
        } else {
            Path::new("wafd")
        };
        let mut start = Command::new(program);
        start
            .arg("start")
            .env("WAFD_RUNTIME_DIR", self.folder.path())
            .stdin(ProcessStdio::null())
            .stderr(ProcessStdio::null());
        if let Some(store) = &self.store {
            start.env(Key::CacheDir.variable(), store);
        }
        launch::run_for(&mut start, time)
    }
}

fn run_in_engine(call: &Call, settings: &Settings, home: &Home) -> Result<Outcome, Unserved> {
    let entries = environment();
    let cwd = env::current_dir()?.into_os_string().into_encoded_bytes();
    // If the cache may answer or store the command, its output goes through the engine. Otherwise it goes directly to
    // our streams, so that its order is kept.
    let (by_facts, printing) = examine(call, settings, &entries, &cwd);
    let is_cached = call.how != How::Uncached && printing.map_or(true, may_print_through_engine);
    let is_cacheable = is_cached && printing.is_some();
    let environment = Request::Environment { env: 0, entries };
    let output = if is_cacheable { Stdio::Pipe } else { Stdio::Descriptor };
    let execute = Request::Execute(Box::new(Execute {
        id: 0,
        env: 0,
        new_session: false,
        cached: is_cached,
        by_facts: by_facts.is_some(),
        inputs: false,
        stdio: [Stdio::Descriptor, output, output],
        timeout: 0,
        cwd,
        argv: argv(call),
        input: Vec::new(),
        outputs: call.outputs.iter().map(|output| output.as_bytes()).collect(),
    }));
    if [&environment, &execute].into_iter().any(is_too_large) {
        return Err(Unserved::Absent(io::Error::other("a command above what a frame holds")));
    }
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let all = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let descriptors = if is_cacheable { &all[..1] } else { &all };
    let (session, name) = session();
    let greeting = || Greeting {
        session,
        jobs: processors(),
        // A hit needs nothing of our process.
        wishes: if is_cacheable { WISH_LATE | umask() } else { 0 },
        name: name.clone(),
    };
    let caching = caching(settings, home);
    let policy = policy(settings);
    let requests: Vec<_> = [&environment, &caching]
        .into_iter()
        .chain(&policy)
        .chain([&execute])
        .collect();
    // An engine that does not read keeps the descriptors open that were sent to it. A process that waits for the end of
    // such a pipe would wait for ever. So only files are sent before the engine answers.
    let is_early = is_cacheable && is_file_or_device(stdin.as_fd());
    let (first, passed) = match is_early {
        true => (&requests[..], descriptors),
        false => (&[][..], &[][..]),
    };
    let (time, earlier) = match trouble::consult(&home.folder) {
        Advice::Ask => (patience(), None),
        Advice::AskBriefly(note) => (trouble::SHORT_TIMEOUT, Some(note)),
        Advice::Leave => {
            return Err(Unserved::Absent(io::Error::other(
                "it could not be reached a moment ago",
            )))
        }
    };
    let reached = home.connect_or_start(time, |left| Client::call(&home.folder, greeting(), first, passed, left));
    let mut client = match reached {
        Ok(client) => client,
        Err(why @ (Unserved::Absent(_) | Unserved::Lost(_))) => {
            leave_note(&home.folder, &why, earlier.as_ref());
            return Err(Unserved::Absent(io::Error::other("noted")));
        }
        Err(other) => return Err(other),
    };
    if earlier.is_some() {
        trouble::forget(&home.folder);
    }
    if !is_early {
        client.ask(&requests, descriptors)?;
    }
    // A store on a file system that may hang must be checked first, which the front cannot do.
    if is_early && by_facts.is_none() && settings.distant.is_none() {
        card::leave(settings, home, &caching, policy.as_ref());
    }
    await_outcome(client)
}

fn environment() -> Strings {
    let entries = env::vars_os().map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes()].concat());
    entries.collect()
}

/// Waits for the outcome of a command, and prints its output.
fn await_outcome(mut client: Client) -> Result<Outcome, Unserved> {
    // The output is printed when the outcome is there: if the engine is lost, the command runs again and prints
    // everything itself.
    let mut printed = Vec::new();
    loop {
        match client.receive_while_it_lives(CHECK_INTERVAL, patience())? {
            Reply::Told { .. } | Reply::Welcome { .. } => {}
            Reply::Output { stream, data, .. } => printed.push((stream, data)),
            Reply::Outcome(outcome) => {
                if outcome.verdict == Verdict::Ran {
                    // The command itself says what is wrong with its output, and fails as it would without us.
                    let done = printed.iter().try_for_each(|(stream, data)| print(*stream, data));
                    done.map_err(Unserved::Absent)?;
                }
                return Ok(outcome);
            }
            _ => return Err(io::Error::other("an answer to something else").into()),
        }
    }
}

/// No other process waits for the end of a regular file or a device.
fn is_file_or_device(stream: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstat(stream).map(|found| FileType::from_raw_mode(found.st_mode));
    matches!(kind, Ok(FileType::RegularFile | FileType::CharacterDevice))
}

/// Whether this process is observed by an engine, as a part of this same command perhaps. Then it would wait for
/// itself.
fn is_observed() -> bool {
    env::var_os("WAFPARK_TRACE").is_some()
}

/// The standard input of a command that may be cached by its facts alone, and what the command prints if it may be cached.
fn examine(call: &Call, settings: &Settings, environment: &Strings, folder: &[u8]) -> (Option<Input>, Option<Prints>) {
    let (words, real) = (argv(call), fs::canonicalize(&call.program));
    let mut asked = action::Call {
        argv: &words,
        environment,
        folder,
        program: &call.program,
        real: real.as_ref().unwrap_or(&call.program),
        bases: &[],
        known_folders: &[],
        by_facts: None,
    };
    let is_by_facts = match call.how {
        How::ByFacts => true,
        How::AsSet => settings.is_on(Key::Facts) || asked.is_other_compile(),
        How::Uncached => false,
    };
    asked.by_facts = (is_by_facts && !is_observed()).then(|| Input::of(io::stdin().as_fd()));
    (asked.by_facts, Action::printing(&asked))
}

/// Whether what the command prints may take the way through the engine, and still be what a plain run leaves.
fn may_print_through_engine(prints: Prints) -> bool {
    match prints {
        Prints::Messages => true,
        // The order of output and messages would be another one.
        _ if are_one_file() => false,
        Prints::Output => true,
        Prints::OutputByName => opens_like_a_pipe(),
    }
}

/// Whether both our output and our messages go to this file, other than `/dev/null`.
fn are_one_file() -> bool {
    let look = |stream: BorrowedFd<'_>| rustix::fs::fstat(stream).ok();
    let (output, messages) = (look(io::stdout().as_fd()), look(io::stderr().as_fd()));
    let nowhere = rustix::fs::stat("/dev/null").ok();
    let of = |found: Option<&rustix::fs::Stat>| found.map(|found| (found.st_dev, found.st_ino));
    of(output.as_ref()) == of(messages.as_ref()) && of(output.as_ref()) != of(nowhere.as_ref())
}

/// Whether a compiler that opens our standard output by its name writes where we would. A file is emptied then, and a
/// socket cannot be opened.
fn opens_like_a_pipe() -> bool {
    let kind = rustix::fs::fstat(io::stdout().as_fd()).map(|found| FileType::from_raw_mode(found.st_mode));
    let may_write = rustix::fs::access("/dev/stdout", rustix::fs::Access::WRITE_OK).is_ok();
    matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice)) && may_write
}

/// An error of the standard output is the command's. A program that cannot print messages goes on.
fn print(stream: u8, data: &[u8]) -> io::Result<()> {
    if stream == 1 {
        return io::stdout().write_all(data).and_then(|()| io::stdout().flush());
    }
    if let Err(error) = io::stderr().write_all(data) {
        log::debug!("print what the command printed: {error}");
    }
    Ok(())
}

/// The namespace that was set, and the digests of the extra files.
fn namespace(settings: &Settings) -> Vec<u8> {
    let mut namespace = settings.text(Key::Namespace).as_bytes().to_vec();
    for file in settings.extra_files() {
        let digest = regular::open_named(&file).and_then(|file| Digest::of_file(&file));
        let told = digest.map_or_else(|error| error.to_string(), |digest| digest.to_string());
        namespace.extend([b"\0", file.as_os_str().as_bytes(), b"\0", told.as_bytes()].concat());
    }
    namespace
}

/// The folders that were set, whose names results may leave out.
fn bases(settings: &Settings) -> Vec<Vec<u8>> {
    let folders = settings.folders(Key::BaseDir).into_iter();
    folders
        .map(|folder| folder.into_os_string().into_encoded_bytes())
        .collect()
}

fn caching(settings: &Settings, home: &Home) -> Request {
    Request::Caching(Caching {
        read_only: settings.is_on(Key::ReadOnly),
        recache: settings.is_on(Key::Recache),
        share_checkouts: settings.is_on(Key::ShareCheckouts),
        bases: bases(settings).iter().map(Vec::as_slice).collect(),
        namespace: namespace(settings),
        store: home
            .store
            .iter()
            .flat_map(|store| store.as_os_str().as_bytes())
            .copied()
            .collect(),
        export: place::export().map(|folder| folder.into_os_string().into_encoded_bytes()),
        remote: None,
        terminal: size_of(io::stderr().as_fd()),
    })
}

/// How commands share the machine, if that is not the usual way.
fn policy(settings: &Settings) -> Option<Request> {
    let memory = settings.memory();
    memory.is_some().then_some(Request::Policy(Policy {
        no_brake: false,
        tokens: false,
        serve: None,
        load: 0,
        memory,
    }))
}

/// The engine searches a bare name along the command's `PATH`, as we did.
fn argv(call: &Call) -> Strings {
    let all = std::iter::once(&call.name).chain(&call.args);
    all.map(|arg: &OsString| arg.as_bytes()).collect()
}

fn is_too_large(request: &Request) -> bool {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    bytes.len() > FRAME_CAP
}

/// The session: commands with the same parent, such as a `make`, are one build. Its number is made of the parent's
/// process number and start time.
fn session() -> ([u8; 16], Vec<u8>) {
    let pid = std::os::unix::process::parent_id();
    let mut stat = [0; STAT_CAP];
    // One read: the kernel writes the text anew for each.
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut stat));
    let stat = String::from_utf8_lossy(&stat[..read.unwrap_or(0)]);
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

/// The umask as a wish.
fn umask() -> u32 {
    let none = rustix::fs::Mode::empty();
    let umask = rustix::process::umask(none);
    rustix::process::umask(umask);
    WISH_UMASK | umask.bits() << UMASK_SHIFT
}

/// The processors that we may run on. The engine knows the limits of control groups.
fn processors() -> u32 {
    // SAFETY: an array of bits that the kernel fills.
    let count = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of_val(&set), &mut set) {
            0 => libc::CPU_COUNT(&set),
            _ => 1,
        }
    };
    count.max(1) as u32
}

/// Becomes the command. It is searched as `execvp` does, unless that would find us.
fn exec(call: &Call) -> i32 {
    let is_bare = !call.name.as_bytes().contains(&b'/');
    let program = if is_bare { &call.name } else { call.program.as_os_str() };
    let error = exec_program(program, &call.name, &call.args);
    eprintln!("wafcc: {}: {error}", call.program.display());
    status_of(&error)
}

/// If we panic, the command runs all the same.
fn exec_when_we_panic(call: &Call) {
    let call = call.clone();
    std::panic::set_hook(Box::new(move |_| {
        let status = exec(&call);
        // SAFETY: ends this process, in which nothing has to be cleaned up.
        unsafe { libc::_exit(status) }
    }));
}

/// Reports that no program was found. The system may still find one, or knows what is wrong with it.
pub fn report_not_found(not_found: NotFound) -> i32 {
    let status = if not_found.is_hidden {
        NOT_FOUND
    } else {
        status_of(&exec_program(&not_found.name, &not_found.name, &not_found.args))
    };
    let why = if status == NOT_FOUND {
        not_found.words
    } else {
        format!("{}: it cannot be executed", not_found.name.to_string_lossy())
    };
    eprintln!("wafcc: {why}");
    status
}

/// The shell's exit status for a program that could not be started.
fn status_of(error: &io::Error) -> i32 {
    match error.raw_os_error() {
        Some(libc::ENOENT) => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// Ends as the command did, so that our parent sees the same status.
fn end_as(code: i32) -> i32 {
    if code >= 0 {
        return code;
    }
    let signal = -code;
    // SAFETY: this process has one thread and nothing to clean up. Without a core file: the command has left its own.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_commands_of_one_parent_are_one_session() {
        assert_eq!(session(), session());
        assert_ne!(session().0[8..], [0; 8]);
    }
}
