//! Follows a program and all that it starts from call to call, until the last of them has ended.
//!
//! ```text
//! the kernel stops a thread at a call ─► `calls` ─► the call is done ─► its result ─► notes
//! ```
//!
//! When something happens after which nothing more can be known, this is noted, and all threads are released, so that they
//! are not slowed down for nothing. They also run on if the tracer is killed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::{Duration, Instant};

use libc::{c_int, c_uint};

use super::calls::{self, Call, Flags, Name};
use super::memory;
use super::notes::{Note, Notes};
use super::state::ByState;
use crate::observe::access::{add_text, identity, identity_of_text, Bytes, NO_TEXT};
use crate::observe::crate_names::is_crate;
use crate::observe::known_programs::{is_of_go, ProgramRules};
use crate::observe::trace::program;
use crate::observe::trace::record as kind;

/// The events that the kernel reports.
const WISHES: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXIT;
/// The mark of a stop at a system call.
const AT_CALL: c_int = libc::SIGTRAP | 0x80;
/// How long releasing a thread may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// The flag of the kernel's `rename` that exchanges two names.
const EXCHANGE: u64 = 2;
/// A `stat` begins with device and inode.
const STATUS: usize = 16;
/// What libc asks the kernel for when it first allocates memory: a random key, with which it detects a double free.
const KEY: [u64; 2] = [8, libc::GRND_NONBLOCK as u64];
/// The largest distance from the stack pointer to a buffer in a caller's frame.
const NEAR: u64 = 8 << 20;

/// A process, by the number of its first thread.
#[derive(Default)]
struct Process {
    /// A program began in it, in a folder that was recorded, so its relative paths need not be made absolute.
    is_begun: bool,
    is_go: bool,
    /// It is rustc, which lists folders to find crates.
    finds_crates: bool,
    /// Its libc has read its allocator's random key.
    has_key: bool,
    threads: usize,
    /// It has made the call that ends it, or all of its threads have ended.
    has_ended: bool,
    /// Kinds that give no new information the second time, as bits.
    said: u64,
    /// The token of the exec that it is making.
    token: u32,
}

/// A path in the form in which it is noted, made from the argument of a call.
#[derive(Default)]
struct NotedPath {
    text: Bytes,
    /// It was made absolute, and is right for this folder only.
    is_placed: bool,
    /// It was a link that belongs to the process's state.
    is_state: bool,
}

impl NotedPath {
    fn as_it_is(text: Bytes) -> NotedPath {
        NotedPath {
            text,
            ..NotedPath::default()
        }
    }

    fn placed(text: Bytes) -> NotedPath {
        NotedPath {
            is_placed: true,
            ..NotedPath::as_it_is(text)
        }
    }
}

/// A thread, and the system call that it is making.
#[derive(Default)]
struct Thread {
    process: i32,
    call: Option<Begun>,
}

struct Begun {
    call: Call,
    arguments: [u64; 6],
    /// The paths of the call. None if they cannot be found out.
    paths: Vec<Option<NotedPath>>,
    /// For an open that may make a file.
    is_new: bool,
}

/// What the kernel reports of a stop: `struct ptrace_syscall_info`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stop {
    op: u8,
    pad: [u8; 3],
    machine: u32,
    place: u64,
    stack: u64,
    /// At the beginning of a call, its number and arguments; at its end, its result.
    words: [u64; 8],
}

const BEGINS: u8 = 1;
const ENDS: u8 = 2;
#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(not(target_arch = "x86_64"))]
const MACHINE: u32 = 0xc000_00b7;
/// This bit marks calls of the x32 kind of programs.
const OTHER_KIND: i64 = 0x4000_0000;

pub struct Tracer {
    notes: Notes,
    first: i32,
    /// The path by which the engine has started it and, for a script, its interpreters, each with the identity of its file.
    paths: Vec<(PathBuf, u64)>,
    threads: HashMap<i32, Thread>,
    processes: HashMap<i32, Process>,
    /// The digests of the names that a process has read up to now from a folder, by its descriptor.
    listings: HashMap<(i32, i32), u64>,
    is_leaving: bool,
    /// This one is released last, because its call needs all others to be free.
    held: Option<i32>,
}

fn request(what: c_uint, thread: i32, place: usize, data: usize) -> i64 {
    // SAFETY: requests that read nothing of ours; what they write is given by those who call this.
    unsafe { libc::ptrace(what, thread, place as *mut libc::c_void, data as *mut libc::c_void) as i64 }
}

/// Begins to trace this process, which waits for that. Its next program is the first one that is observed.
pub fn seize(process: i32) -> bool {
    let is_seized = request(libc::PTRACE_SEIZE, process, 0, WISHES as usize) == 0;
    is_seized && request(libc::PTRACE_INTERRUPT, process, 0, 0) == 0
}

impl Tracer {
    /// `program` refers to our own folder.
    pub fn new(notes: Notes, first: i32, token: u32, program: &Path) -> Tracer {
        let process = Process {
            threads: 1,
            token,
            ..Process::default()
        };
        let paths = [program.to_path_buf()]
            .into_iter()
            .chain(program::interpreters(program));
        let with_identity = |path: PathBuf| {
            let found = memory::identity_of(&path);
            (path, found)
        };
        let paths = paths.map(with_identity).collect();
        let thread = Thread {
            process: first,
            call: None,
        };
        Tracer {
            notes,
            first,
            paths,
            threads: HashMap::from([(first, thread)]),
            processes: HashMap::from([(first, process)]),
            listings: HashMap::new(),
            is_leaving: false,
            held: None,
        }
    }

    /// Runs until the last thread has ended. `began` is called when the first thread has stopped once, and continues.
    pub fn run(&mut self, began: impl FnOnce()) {
        let mut began = Some(began);
        let mut status = 0;
        loop {
            // SAFETY: the kernel writes the status to where we have it.
            let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
            if thread < 0 {
                if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
                    continue;
                }
                return;
            }
            self.take(thread, status);
            if let Some(began) = began.take() {
                began();
            }
            if self.is_leaving {
                return self.leave();
            }
        }
    }

    fn take(&mut self, thread: i32, status: c_int) {
        if !libc::WIFSTOPPED(status) {
            self.forget(thread);
            return;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match event {
            0 if signal == AT_CALL => {
                if self.call(thread).is_break() {
                    if self.notes.ahead() != 0 {
                        self.stop_all();
                    }
                    self.held = Some(thread);
                    self.is_leaving = true;
                    return;
                }
            }
            0 => return go_on(thread, signal),
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                // It was stopped together with its group, and waits until it is continued.
                request(libc::PTRACE_LISTEN, thread, 0, 0);
                return;
            }
            libc::PTRACE_EVENT_EXEC => self.execed(thread),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let mut child: libc::c_ulong = 0;
                request(libc::PTRACE_GETEVENTMSG, thread, 0, ptr::from_mut(&mut child) as usize);
                self.know(child as i32);
            }
            libc::PTRACE_EVENT_EXIT => self.forget(thread),
            _ => self.know(thread),
        }
        go_on(thread, 0);
    }

    // ---- threads and processes

    fn know(&mut self, thread: i32) {
        if self.threads.contains_key(&thread) {
            return;
        }
        let process = memory::status(thread, "Tgid").unwrap_or(thread);
        self.threads.insert(thread, Thread { process, call: None });
        self.processes.entry(process).or_default().threads += 1;
    }

    fn forget(&mut self, thread: i32) {
        let Some(gone) = self.threads.remove(&thread) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&gone.process) else {
            return;
        };
        process.threads -= 1;
        if process.threads == 0 {
            self.end(gone.process);
            self.processes.remove(&gone.process);
        }
    }

    /// Nothing more can be known of the command. This is noted before the process ends, because the notes may be read right
    /// after that.
    fn end(&mut self, process: i32) {
        let Some(ended) = self.processes.get_mut(&process) else {
            return;
        };
        if !mem::replace(&mut ended.has_ended, true) && self.processes.values().all(|process| process.has_ended) {
            self.note(self.first, kind::WITNESS_LEFT, 0, b"");
        }
    }

    // ---- notes

    fn write(&self, note: &Note) {
        self.notes.write(note, false);
    }

    fn note(&self, process: i32, kind: u16, detail: u32, text: &[u8]) {
        self.write(&Note {
            kind,
            process,
            detail,
            first: text,
            ..Note::default()
        });
    }

    fn say(&mut self, process: i32, kind: u16) {
        let Some(said) = self.processes.get_mut(&process).map(|process| &mut process.said) else {
            return;
        };
        if *said & 1 << kind == 0 {
            *said |= 1 << kind;
            self.note(process, kind, 0, b"");
        }
    }

    fn give_up(&self, process: i32, why: u32) -> ControlFlow<()> {
        self.note(process, kind::BLIND, why, b"");
        ControlFlow::Break(())
    }

    fn note_path(&self, process: i32, kind: u16, (result, detail): (i64, u32), path: &NotedPath, identity: u64) {
        let reads_link = kind == kind::LINK || kind == kind::LOOK && detail == 0;
        if path.is_placed || path.is_state {
            self.note(process, kind::LOCATE, u32::from(!(path.is_state && reads_link)), b"");
        }
        self.write(&Note {
            kind,
            process,
            result,
            detail,
            identity,
            first: &path.text,
            ..Note::default()
        });
    }

    // ---- paths

    /// A path argument of a call.
    fn path(&self, thread: i32, name: Name, arguments: &[u64; 6], reads_link: bool) -> Option<NotedPath> {
        let process = self.threads.get(&thread)?.process;
        let text = memory::text(thread, arguments[name.path])?;
        if text.starts_with(b"/") {
            let Some(state) = ByState::of(&text) else {
                return Some(NotedPath::as_it_is(text));
            };
            return Some(match state.follow(process) {
                // The link itself is read, by the name that the program used.
                Some(_) if reads_link && state.is_link() => NotedPath {
                    is_state: true,
                    ..NotedPath::as_it_is(text)
                },
                Some(text) => NotedPath::placed(text),
                None => NotedPath::as_it_is(text),
            });
        }
        let folder = name.folder.map_or(libc::AT_FDCWD, |at| arguments[at] as i32);
        let is_here = folder == libc::AT_FDCWD;
        if text.is_empty() || is_here && self.is_begun(process) {
            return Some(NotedPath::as_it_is(text));
        }
        let head = if is_here {
            "cwd".to_owned()
        } else {
            format!("fd/{folder}")
        };
        let text = [memory::link(thread, &head)?.as_slice(), &text].join(&b'/');
        Some(NotedPath::placed(text))
    }

    /// The path of an open file.
    fn path_of_file(thread: i32, number: u64) -> Option<NotedPath> {
        memory::link(thread, &format!("fd/{}", number as i32)).map(NotedPath::placed)
    }

    /// The path by which we reach a file that a process names like this.
    fn find(&self, thread: i32, path: &NotedPath) -> PathBuf {
        memory::entry(thread, "cwd").join(OsStr::from_bytes(&path.text))
    }

    // ---- calls

    fn call(&mut self, thread: i32) -> ControlFlow<()> {
        let stop = stop_of(thread);
        self.know(thread);
        let process = self.threads.get(&thread).map_or(thread, |thread| thread.process);
        match stop.op {
            BEGINS => {
                let number = stop.words[0] as i64;
                if stop.machine != MACHINE || number & OTHER_KIND != 0 {
                    return self.give_up(process, kind::BLIND_CALL);
                }
                let arguments = [1, 2, 3, 4, 5, 6].map(|at| stop.words[at]);
                let call = calls::find(number);
                // The launcher's own calls are not noted.
                if process == self.first && !self.is_begun(process) && !matches!(call, Call::Execute(_)) {
                    return ControlFlow::Continue(());
                }
                self.begin(thread, process, call, arguments, stop.stack)
            }
            ENDS => {
                let result = stop.words[0] as i64;
                let call = self.threads.get_mut(&thread).and_then(|thread| thread.call.take());
                match call {
                    Some(call) => self.finish(thread, process, call, result),
                    None => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn is_begun(&self, process: i32) -> bool {
        self.processes.get(&process).is_some_and(|process| process.is_begun)
    }

    fn begin(&mut self, thread: i32, process: i32, call: Call, arguments: [u64; 6], stack: u64) -> ControlFlow<()> {
        let mut paths = Vec::new();
        let mut is_new = false;
        let mut name = |name: Name, reads_link: bool| paths.push(self.path(thread, name, &arguments, reads_link));
        match call {
            Call::Harmless => return ControlFlow::Continue(()),
            Call::Open(path, _) | Call::Enter(path) | Call::Find(path) | Call::System(path) => name(path, false),
            Call::Remove(path) | Call::Make(path) | Call::MakeFolder(path) | Call::Change(path) => name(path, false),
            Call::Look(path, _, flags, follows) => {
                let stays = flags.is_some_and(|at| arguments[at] as i32 & libc::AT_SYMLINK_NOFOLLOW != 0);
                name(path, stays || !follows);
            }
            Call::LookMore(path, flags, _) => name(path, arguments[flags] as i32 & libc::AT_SYMLINK_NOFOLLOW != 0),
            Call::Link(path, ..) => name(path, true),
            Call::Rename(old, new, _) | Call::Join(old, new) => {
                name(old, false);
                name(new, false);
            }
            Call::EnterFile(_) | Call::List(_) | Call::ChangeFile(_) => {}
            Call::Map | Call::AttributesOfFile | Call::MarkFile => {}
            Call::Attributes(path, follows) | Call::Mark(path, follows) => name(path, !follows),
            Call::Execute(path) => return self.execute(thread, process, path, arguments),
            Call::Locate => {
                self.note(process, kind::LOCATE, 0, b"");
                return ControlFlow::Continue(());
            }
            Call::Split(at) => return self.split(process, arguments[at]),
            Call::SplitMore(at) => {
                let flags = memory::number(thread, arguments[at]).unwrap_or(u64::MAX);
                return self.split(process, flags);
            }
            Call::Clock(at, _) => {
                let calendar = [
                    libc::CLOCK_REALTIME,
                    libc::CLOCK_REALTIME_COARSE,
                    libc::CLOCK_TAI,
                    libc::CLOCK_REALTIME_ALARM,
                ];
                let is_calendar = calendar.contains(&(arguments[at] as i32));
                self.say(process, if is_calendar { kind::TIME } else { kind::MEASURE });
                if !is_calendar || self.notes.ahead() == 0 {
                    return ControlFlow::Continue(());
                }
            }
            Call::Time(_) => {
                self.say(process, kind::TIME);
                if self.notes.ahead() == 0 {
                    return ControlFlow::Continue(());
                }
            }
            // A result is left as it is.
            Call::Seconds if self.notes.ahead() != 0 => return self.give_up(process, kind::BLIND_CALL),
            Call::Seconds => return self.only_say(process, kind::TIME),
            Call::Measure => return self.only_say(process, kind::MEASURE),
            Call::Number => return self.only_say(process, kind::NUMBER),
            Call::Thread => {
                if !self.processes.get(&process).is_some_and(|process| process.is_go) {
                    self.say(process, kind::NUMBER);
                }
                return ControlFlow::Continue(());
            }
            Call::Random => return self.random(process, arguments, stack),
            // Whether a process exists depends on process numbers, too.
            Call::Kill if arguments[1] == 0 => return ControlFlow::Continue(()),
            Call::Kill if arguments[0] as i32 == process => return ControlFlow::Continue(()),
            Call::Kill => return self.give_up(process, kind::BLIND_TALK),
            Call::End => {
                self.end(process);
                return ControlFlow::Continue(());
            }
            Call::Blind(why) => return self.give_up(process, why),
        }
        if let Call::Open(_, flags) = call {
            let flags = open_flags(thread, flags, &arguments);
            let may_be_new = flags & libc::O_CREAT != 0 && flags & (libc::O_EXCL | libc::O_TRUNC) == 0;
            let is_lacking = |path: &NotedPath| std::fs::symlink_metadata(self.find(thread, path)).is_err();
            is_new = may_be_new && paths.first().and_then(Option::as_ref).is_some_and(is_lacking);
        }
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.call = Some(Begun {
                call,
                arguments,
                paths,
                is_new,
            });
        }
        ControlFlow::Continue(())
    }

    fn only_say(&mut self, process: i32, kind: u16) -> ControlFlow<()> {
        self.say(process, kind);
        ControlFlow::Continue(())
    }

    /// A child that shares its current folder with its parent could change the parent's folder. A child with namespaces of
    /// its own has other paths. A child that asks not to be traced may want to trace.
    fn split(&self, process: i32, flags: u64) -> ControlFlow<()> {
        let has = |flag: c_int| flags & flag as u64 != 0;
        let worlds = [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUTS,
        ];
        let is_apart = has(libc::CLONE_UNTRACED) || worlds.into_iter().any(has);
        if is_apart || has(libc::CLONE_FS) && !has(libc::CLONE_THREAD) {
            return self.give_up(process, kind::BLIND_PLACE);
        }
        ControlFlow::Continue(())
    }

    /// When libc's allocator is first used, it reads a random key into its own memory.
    fn random(&mut self, process: i32, arguments: [u64; 6], stack: u64) -> ControlFlow<()> {
        let is_key = arguments[1..3] == KEY && arguments[0].abs_diff(stack) > NEAR;
        let known = self.processes.get_mut(&process).map(|process| &mut process.has_key);
        let is_first = known.is_some_and(|has_key| !mem::replace(has_key, true));
        if !(is_key && is_first) {
            self.say(process, kind::RANDOM);
        }
        ControlFlow::Continue(())
    }

    fn finish(&mut self, thread: i32, process: i32, begun: Begun, result: i64) -> ControlFlow<()> {
        let (arguments, mut paths) = (&begun.arguments, begun.paths.iter());
        // The pointer is not readable.
        if result == -i64::from(libc::EFAULT) {
            return ControlFlow::Continue(());
        }
        let mut path = || paths.next().and_then(Option::as_ref);
        let unknown = |done: i64| match done {
            0.. => self.give_up(process, kind::BLIND_FOLDER),
            _ => ControlFlow::Continue(()),
        };
        match begun.call {
            Call::Open(_, flags) => {
                let flags = open_flags(thread, flags, arguments);
                let Some(path) = path() else { return unknown(result) };
                self.opened(thread, process, path, (result, flags, begun.is_new));
            }
            Call::Look(name, place, flags, follows) => {
                let flags = flags.map_or(0, |at| arguments[at] as i32);
                let bytes = memory::read(thread, arguments[place], STATUS);
                let word = |at: usize| {
                    bytes
                        .get(at..at + 8)
                        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
                };
                let found = word(0)
                    .zip(word(8))
                    .map_or(0, |(device, inode)| identity(device, inode));
                let follows = follows && flags & libc::AT_SYMLINK_NOFOLLOW == 0;
                return self.looked(process, path(), (name, arguments), (result, follows), found);
            }
            Call::LookMore(name, flags, place) => {
                let follows = arguments[flags] as i32 & libc::AT_SYMLINK_NOFOLLOW == 0;
                let found = identity_of_more(&memory::read(thread, arguments[place], mem::size_of::<libc::statx>()));
                return self.looked(process, path(), (name, arguments), (result, follows), found);
            }
            Call::Link(_, place, size) => {
                let Some(path) = path() else { return unknown(result) };
                if path.text.is_empty() {
                    return ControlFlow::Continue(());
                }
                let is_whole = result > 0 && (result as u64) < arguments[size];
                let text = if is_whole {
                    memory::read(thread, arguments[place], result as usize)
                } else {
                    Bytes::new()
                };
                let found = if is_whole { identity_of_text(&text) } else { 0 };
                self.note_path(process, kind::LINK, (result, 0), path, found);
            }
            Call::EnterFile(at) => return self.note_file(thread, process, kind::ENTER, (result, 0), arguments[at]),
            Call::List(at) => {
                self.note_file(thread, process, kind::LIST, (result.min(0), 0), arguments[at])?;
                self.listed(thread, process, (arguments[at], arguments[at + 1]), result);
            }
            Call::Clock(_, at) | Call::Time(at) if result == 0 => {
                return self.put_ahead(thread, process, arguments[at])
            }
            Call::ChangeFile(at) => return self.changed(thread, process, arguments[at], result),
            Call::Find(_) | Call::Enter(_) | Call::Remove(_) | Call::Make(_) | Call::MakeFolder(_) => {
                let kind = match begun.call {
                    Call::Find(_) => kind::FIND,
                    Call::Enter(_) => kind::ENTER,
                    Call::Remove(_) => kind::REMOVE,
                    _ => kind::MAKE,
                };
                let Some(path) = path() else { return unknown(result) };
                let is_folder = matches!(begun.call, Call::MakeFolder(_));
                self.note_path(process, kind, (result, is_folder.into()), path, 0);
            }
            Call::Change(name) => {
                // Without a path, the open file is changed.
                let is_file = arguments[name.path] == 0 || path().is_some_and(|path| path.text.is_empty());
                let first = begun.paths.first().and_then(Option::as_ref);
                match (name.folder, first) {
                    (Some(folder), _) if is_file => return self.changed(thread, process, arguments[folder], result),
                    (_, Some(path)) => self.note_path(process, kind::OPEN, (result, libc::O_WRONLY as u32), path, 0),
                    (_, None) => return unknown(result),
                }
            }
            Call::Rename(_, _, flags) => {
                let (Some(old), Some(new)) = (path(), path()) else {
                    return unknown(result);
                };
                if result == 0 && flags.is_some_and(|at| arguments[at] & EXCHANGE != 0) {
                    return self.give_up(process, kind::BLIND_CALL);
                }
                if old.is_placed || new.is_placed {
                    self.note(process, kind::LOCATE, 1, b"");
                }
                self.write(&Note {
                    kind: kind::RENAME,
                    process,
                    result,
                    first: &old.text,
                    second: &new.text,
                    ..Note::default()
                });
            }
            // A second name for a file is noted as if one file were read and the other written.
            Call::Join(..) => {
                let (Some(old), Some(new)) = (path(), path()) else {
                    return unknown(result);
                };
                if !old.text.is_empty() {
                    self.note_path(process, kind::OPEN, (result, libc::O_RDONLY as u32), old, 0);
                }
                let makes = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
                self.note_path(process, kind::OPEN, (result, makes as u32), new, 0);
            }
            Call::System(_) => {
                let Some(path) = path() else { return unknown(result) };
                self.note_path(process, kind::LOOK, (result, 1), path, 0);
                if result >= 0 && !path.text.starts_with(b"/sys/") {
                    self.say(process, kind::TIME);
                }
            }
            Call::Map => {
                let is_code =
                    arguments[2] as i32 & libc::PROT_EXEC != 0 && arguments[3] as i32 & libc::MAP_ANONYMOUS == 0;
                if is_code && !(-4095..0).contains(&result) {
                    return self.note_file(thread, process, kind::LOAD, (0, 0), arguments[4]);
                }
            }
            Call::Execute(_) if result < 0 => self.write(&Note {
                kind: kind::REFUSED,
                process,
                result,
                ..Note::default()
            }),
            Call::Attributes(..) | Call::AttributesOfFile if result > 0 => {
                return self.give_up(process, kind::BLIND_ATTRIBUTES);
            }
            Call::Mark(..) | Call::MarkFile if result == 0 => return self.give_up(process, kind::BLIND_ATTRIBUTES),
            Call::Attributes(_, follows) | Call::Mark(_, follows) => {
                let Some(path) = path() else { return unknown(result) };
                self.note_path(process, kind::LOOK, (result, follows.into()), path, 0);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn opened(&mut self, thread: i32, process: i32, path: &NotedPath, (result, flags, is_new): (i64, c_int, bool)) {
        let opened = memory::entry(thread, &format!("fd/{result}"));
        let found = if result < 0 { 0 } else { memory::identity_of(&opened) };
        if result >= 0 && flags & libc::O_PATH != 0 {
            // Through such a descriptor, a program can get the status, read a link, and open the file again.
            let follows = flags & libc::O_NOFOLLOW == 0;
            self.note_path(process, kind::LOOK, (0, follows.into()), path, found);
            if !follows && std::fs::symlink_metadata(self.find(thread, path)).is_ok_and(|status| status.is_symlink()) {
                self.note_path(process, kind::LINK, (0, 0), path, 0);
            }
            return;
        }
        let is_own = flags & libc::O_ACCMODE == libc::O_WRONLY;
        let flags = if is_new { flags | libc::O_EXCL } else { flags };
        // Interpreters use randomness and clocks before they open their first file. Later uses are noted once more.
        if let Some(process) = self.processes.get_mut(&process).filter(|_| result >= 0) {
            process.said = 0;
        }
        let found = if is_own { 0 } else { found };
        self.note_path(process, kind::OPEN, (result, flags as u32), path, found);
    }

    fn looked(
        &self,
        process: i32,
        path: Option<&NotedPath>,
        (name, arguments): (Name, &[u64; 6]),
        (result, follows): (i64, bool),
        found: u64,
    ) -> ControlFlow<()> {
        let Some(path) = path else {
            // The status of the open file is read.
            let is_file = arguments[name.path] == 0;
            return if is_file || result < 0 {
                ControlFlow::Continue(())
            } else {
                self.give_up(process, kind::BLIND_FOLDER)
            };
        };
        if !path.text.is_empty() {
            let found = if result == 0 { found } else { 0 };
            self.note_path(process, kind::LOOK, (result, follows.into()), path, found);
        }
        ControlFlow::Continue(())
    }

    fn note_file(
        &self,
        thread: i32,
        process: i32,
        kind: u16,
        (result, detail): (i64, u32),
        file: u64,
    ) -> ControlFlow<()> {
        if result == -i64::from(libc::EBADF) {
            return ControlFlow::Continue(());
        }
        let Some(path) = Tracer::path_of_file(thread, file) else {
            return self.give_up(process, kind::BLIND_FOLDER);
        };
        let found = memory::identity_of(&memory::entry(thread, &format!("fd/{}", file as i32)));
        self.note_path(process, kind, (result, detail), &path, found);
        ControlFlow::Continue(())
    }

    /// Adds up the names that a process reads from a folder. At the end, their digest is noted, as `engine/park/watch.c` does.
    fn listed(&mut self, thread: i32, process: i32, (file, buffer): (u64, u64), result: i64) {
        let reading = (process, file as i32);
        let identity = || memory::identity_of(&memory::entry(thread, &format!("fd/{}", file as i32)));
        if let Ok(size @ 1..) = usize::try_from(result) {
            let entries = memory::read(thread, buffer, size);
            let finds_crates = self.processes.get(&process).is_some_and(|process| process.finds_crates);
            let mut digest = self.listings.get(&reading).copied().unwrap_or(NO_TEXT);
            for name in memory::names(&entries).filter(|name| !matches!(*name, b"." | b"..")) {
                digest = add_text(add_text(digest, name), b"\0");
                if finds_crates && is_crate(name) {
                    let text = [format!("{:016x} ", identity()).as_bytes(), name].concat();
                    self.note(process, kind::CRATE, 0, &text);
                }
            }
            self.listings.insert(reading, digest);
        } else if result == 0 {
            let digest = self.listings.remove(&reading).unwrap_or(NO_TEXT);
            let text = format!("{:016x} {digest:016x}", identity());
            self.note(process, kind::LISTED, 0, text.as_bytes());
        }
    }

    /// Puts the time ahead that a program has got. Seconds come first.
    fn put_ahead(&self, thread: i32, process: i32, place: u64) -> ControlFlow<()> {
        let ahead = u64::from(self.notes.ahead());
        let seconds = memory::number(thread, place).map(|seconds| seconds.wrapping_add(ahead));
        match seconds.and_then(|seconds| memory::write(thread, place, &seconds.to_ne_bytes())) {
            Some(()) => ControlFlow::Continue(()),
            // `gettimeofday` may be asked for a time zone only.
            None if place == 0 => ControlFlow::Continue(()),
            None => self.give_up(process, kind::BLIND_CALL),
        }
    }

    /// An open file is changed. If it was opened for writing, that has already been noted.
    fn changed(&self, thread: i32, process: i32, file: u64, result: i64) -> ControlFlow<()> {
        let info =
            std::fs::read_to_string(memory::entry(thread, &format!("fdinfo/{}", file as i32))).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags
            .and_then(|flags| c_int::from_str_radix(flags.trim(), 8).ok())
            .unwrap_or(0);
        if flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
            return ControlFlow::Continue(());
        }
        self.note_file(thread, process, kind::OPEN, (result, libc::O_WRONLY as u32), file)
    }

    // ---- programs

    /// The program that the kernel is about to start. Its path is not known any more afterwards.
    fn execute(&mut self, thread: i32, process: i32, name: Name, arguments: [u64; 6]) -> ControlFlow<()> {
        if process == self.first && !self.is_begun(process) {
            return ControlFlow::Continue(());
        }
        let Some(mut path) = self.path(thread, name, &arguments, false) else {
            return self.give_up(process, kind::BLIND_FOLDER);
        };
        if path.text.is_empty() {
            let file = name.folder.and_then(|at| Tracer::path_of_file(thread, arguments[at]));
            match file {
                Some(file) => path = file,
                None => return self.give_up(process, kind::BLIND_FOLDER),
            }
        }
        let found = self.find(thread, &path);
        if program::gives_rights(&found) {
            return self.give_up(process, kind::BLIND_CALL);
        }
        for interpreter in program::interpreters(&found) {
            self.note(process, kind::LOAD, 0, interpreter.as_os_str().as_bytes());
        }
        if path.is_placed {
            self.note(process, kind::LOCATE, 1, b"");
        }
        let note = Note {
            kind: kind::EXECUTE,
            process,
            identity: program::find(&found),
            first: &path.text,
            ..Note::default()
        };
        let token = self.notes.write(&note, true);
        if let Some(process) = self.processes.get_mut(&process) {
            process.token = token;
        }
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.call = Some(Begun {
                call: Call::Execute(name),
                arguments,
                paths: Vec::new(),
                is_new: false,
            });
        }
        ControlFlow::Continue(())
    }

    fn execed(&mut self, thread: i32) {
        // All of its other threads are gone, and it now has the number of the first one.
        self.threads
            .retain(|number, other| other.process != thread || *number == thread);
        self.threads.insert(
            thread,
            Thread {
                process: thread,
                call: None,
            },
        );
        let stop = stop_of(thread);
        let clock = memory::hide_clock(thread, stop.stack);
        let program = memory::link(thread, "exe").unwrap_or_default();
        let folder = memory::link(thread, "cwd").unwrap_or_default();
        let process = self.processes.entry(thread).or_default();
        let is_first = thread == self.first && !process.is_begun;
        *process = Process {
            is_begun: true,
            is_go: is_of_go(&program),
            finds_crates: ProgramRules::of(&program).finds_crates,
            threads: 1,
            token: process.token,
            ..Process::default()
        };
        let token = process.token;
        self.write(&Note {
            kind: kind::BEGIN_TRACED,
            process: thread,
            detail: memory::status(thread, "PPid").unwrap_or(0) as u32,
            token,
            identity: memory::identity_of(&memory::entry(thread, "exe")),
            first: &program,
            second: &folder,
            ..Note::default()
        });
        if is_first {
            self.note(thread, kind::WITNESS, 0, b"");
        }
        let paths = if is_first && token == 0 {
            self.paths.as_slice()
        } else {
            &[]
        };
        for (path, found) in paths {
            self.write(&Note {
                kind: kind::LOAD,
                process: thread,
                identity: *found,
                first: path.as_os_str().as_bytes(),
                ..Note::default()
            });
        }
        if clock.is_none() {
            self.say(thread, kind::TIME);
        }
    }

    // ---- leaving

    /// Ends all processes. In a second run, an action that is not seen must not happen: the kernel does not make the call at
    /// which a thread has stopped.
    fn stop_all(&self) {
        for process in self.processes.keys() {
            // SAFETY: a process that we trace, so no other one has its number.
            unsafe { libc::kill(*process, libc::SIGKILL) };
        }
    }

    /// Releases all threads. The thread that causes this comes last: it may be about to trace another one, or to gain
    /// rights.
    fn leave(&mut self) {
        let held = self.held.take();
        let mut left: Vec<i32> = self
            .threads
            .keys()
            .copied()
            .filter(|thread| Some(*thread) != held)
            .collect();
        for thread in &left {
            request(libc::PTRACE_INTERRUPT, *thread, 0, 0);
        }
        let end = Instant::now() + PATIENCE;
        while !left.is_empty() && Instant::now() < end {
            match next_stop(libc::WNOHANG) {
                Some((thread, status)) => {
                    let_go(thread, status);
                    left.retain(|other| *other != thread);
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        held.into_iter().for_each(|thread| {
            request(libc::PTRACE_DETACH, thread, 0, 0);
        });
        // The threads that could not be stopped, such as a parent by `vfork`, which waits until its child executes a
        // program.
        while let Some((thread, status)) = next_stop(0) {
            let_go(thread, status);
        }
    }
}

fn stop_of(thread: i32) -> Stop {
    // SAFETY: numbers, of which all values are good.
    let mut stop: Stop = unsafe { mem::zeroed() };
    request(
        libc::PTRACE_GET_SYSCALL_INFO,
        thread,
        mem::size_of::<Stop>(),
        ptr::from_mut(&mut stop) as usize,
    );
    stop
}

fn next_stop(flags: c_int) -> Option<(i32, c_int)> {
    let mut status = 0;
    // SAFETY: the kernel writes the status to where we have it.
    let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | flags) };
    (thread > 0).then_some((thread, status))
}

/// Continues it with the signal that it is about to get.
fn let_go(thread: i32, status: c_int) {
    if libc::WIFSTOPPED(status) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let is_signal = event == 0 && signal != AT_CALL;
        request(
            libc::PTRACE_DETACH,
            thread,
            0,
            if is_signal { signal as usize } else { 0 },
        );
    }
}

fn go_on(thread: i32, signal: c_int) {
    request(libc::PTRACE_SYSCALL, thread, 0, signal as usize);
}

fn open_flags(thread: i32, flags: Flags, arguments: &[u64; 6]) -> c_int {
    match flags {
        Flags::In(at) => arguments[at] as c_int,
        Flags::At(at) => memory::number(thread, arguments[at]).unwrap_or(0) as c_int,
        Flags::These(flags) => flags,
    }
}

/// The identity from a `statx`; 0 if it has no inode.
fn identity_of_more(bytes: &[u8]) -> u64 {
    let number = |at: usize| {
        bytes
            .get(at..at + 4)
            .map_or(0, |word| u32::from_ne_bytes(word.try_into().unwrap_or_default()))
    };
    if number(mem::offset_of!(libc::statx, stx_mask)) & libc::STATX_INO == 0 {
        return 0;
    }
    let at = mem::offset_of!(libc::statx, stx_ino);
    let inode = u64::from(number(at)) | u64::from(number(at + 4)) << 32;
    let major = number(mem::offset_of!(libc::statx, stx_dev_major));
    let minor = number(mem::offset_of!(libc::statx, stx_dev_minor));
    identity(libc::makedev(major, minor), inode)
}
