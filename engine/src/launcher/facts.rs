//! Whether all is as it was when a run has looked at it.

use std::ffi::{CStr, OsStr};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::caller;
use super::record::{Asked, Fact, Record, Seen, Status};

/// Fewer facts are looked at by one thread: another one would be started in vain.
const FEW: usize = 1000;
/// A thread takes so many at a time.
const TAKEN: usize = 200;
const MOST_THREADS: usize = 8;
/// If more has changed, it is not told what.
const MOST_CHANGES: usize = 1000;
/// The folder in which Python keeps compiled modules.
const COMPILED: &[u8] = b"__pycache__";
/// How long a program may take to tell what it has told before.
const DEADLINE: Duration = Duration::from_secs(15);
const MOMENT: Duration = Duration::from_micros(200);

/// What has changed since a record was written.
#[derive(Debug, PartialEq)]
pub enum Change {
    Nothing,
    /// Of what the run has looked at: by their numbers, or none if they are too many.
    Run(Option<Vec<u32>>),
    /// Something that decides how the resident process starts, or it is not known.
    Start,
}

/// Looks at everything again, by several threads. A record without an answer does not tell of a run with nothing to do.
pub fn find_change(record: &Record) -> Change {
    if !caller::rights().is_some_and(|rights| rights == record.rights) {
        return Change::Start;
    }
    let Some(project) = open_folder(record.project) else {
        return Change::Start;
    };
    let start: Vec<(u32, &Fact)> = number(&record.start);
    if find_changed(&start, project.as_raw_fd(), 0).is_none() {
        return Change::Start;
    }
    let is_program = |(_, fact): &(u32, &Fact)| matches!(fact.seen, Seen::Program(_));
    let (programs, facts): (Vec<_>, Vec<_>) = number(&record.facts).into_iter().partition(is_program);
    // These run while the files are looked at.
    let asked: Vec<Option<Answer>> = if record.pieces.is_some() {
        programs.iter().map(|(_, fact)| Answer::begin(fact)).collect()
    } else {
        Vec::new()
    };
    let Some(mut changed) = find_changed(&facts, project.as_raw_fd(), MOST_CHANGES) else {
        return Change::Run(None);
    };
    if record.pieces.is_some() && changed.is_empty() && asked.into_iter().all(|answer| answer.is_some_and(Answer::end))
    {
        return Change::Nothing;
    }
    // They were not asked, it was not waited for their answers, or these are others.
    changed.extend(programs.iter().map(|(number, _)| number));
    Change::Run(Some(changed))
}

fn number<'a>(facts: &'a [Fact<'a>]) -> Vec<(u32, &'a Fact<'a>)> {
    (0..).zip(facts).collect()
}

fn open_folder(path: &CStr) -> Option<OwnedFd> {
    // SAFETY: a system call with a string of ours. The descriptor that it gives is ours alone.
    unsafe {
        let folder = libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
        (folder >= 0).then(|| OwnedFd::from_raw_fd(folder))
    }
}

/// The numbers of those that have changed; nothing if there are more than `most` of them.
fn find_changed(facts: &[(u32, &Fact)], project: RawFd, most: usize) -> Option<Vec<u32>> {
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let threads = (facts.len() / FEW + 1).min(processors).min(MOST_THREADS);
    let changed = Mutex::new(Vec::new());
    let is_over = AtomicBool::new(false);
    let taken = AtomicUsize::new(0);
    let look = || {
        while let Some(part) = facts.chunks(TAKEN).nth(taken.fetch_add(1, Ordering::Relaxed)) {
            for (number, fact) in part {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                if !is_same(fact, project) {
                    let mut changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
                    changed.push(*number);
                    is_over.store(changed.len() > most, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without another thread, this one looks at all.
            let _ = thread::Builder::new().spawn_scoped(scope, look);
        }
        look();
    });
    let changed = changed.into_inner().unwrap_or_else(PoisonError::into_inner);
    (changed.len() <= most).then_some(changed)
}

fn is_same(fact: &Fact, project: RawFd) -> bool {
    let at = if fact.is_near { project } else { libc::AT_FDCWD };
    let follows = 0;
    let own = libc::AT_SYMLINK_NOFOLLOW;
    match &fact.seen {
        Seen::Status(status) => status_of(at, fact.path, follows) == *status,
        Seen::OwnStatus(status) => status_of(at, fact.path, own) == *status,
        Seen::Folder(device, inode) => {
            let is_it =
                |now: Status| kind_of(now[0]) == i64::from(libc::S_IFDIR) && (now[2], now[1]) == (*device, *inode);
            status_of(at, fact.path, follows).is_some_and(is_it)
        }
        Seen::Kind(kind) => status_of(at, fact.path, follows).map_or(0, |now| kind_of(now[0])) == *kind,
        Seen::OwnKind(kind) => status_of(at, fact.path, own).map_or(0, |now| kind_of(now[0])) == *kind,
        Seen::Names {
            status,
            names,
            is_of_modules,
        } => {
            let is_unchanged = status.is_some() && status_of(at, fact.path, follows) == *status;
            is_unchanged || has_names(at, fact.path, names.as_deref(), *is_of_modules)
        }
        Seen::Access { mode, is_allowed } => {
            // SAFETY: a system call with a string of ours.
            let allowed = unsafe { libc::faccessat(at, fact.path.as_ptr(), *mode as i32, 0) } == 0;
            allowed == *is_allowed
        }
        Seen::Target(target) => target_of(at, fact.path).is_some_and(|now| now == *target),
        Seen::System(names) => is_system(names),
        // SAFETY: only a question.
        Seen::Setting(name, value) => unsafe { libc::sysconf(*name as i32) == *value as libc::c_long },
        Seen::Program(_) => false,
    }
}

fn kind_of(mode: i64) -> i64 {
    mode & i64::from(libc::S_IFMT)
}

fn status_of(at: RawFd, path: &CStr, flags: i32) -> Option<Status> {
    const NANOSECONDS: i64 = 1_000_000_000;
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the system fills the structure if it returns 0.
    let found = unsafe {
        if libc::fstatat(at, path.as_ptr(), found.as_mut_ptr(), flags) != 0 {
            return None;
        }
        found.assume_init()
    };
    Some([
        found.st_mode.into(),
        found.st_ino as i64,
        found.st_dev as i64,
        found.st_nlink as i64,
        found.st_uid.into(),
        found.st_gid.into(),
        found.st_size,
        found
            .st_mtime
            .wrapping_mul(NANOSECONDS)
            .wrapping_add(found.st_mtime_nsec),
        found
            .st_ctime
            .wrapping_mul(NANOSECONDS)
            .wrapping_add(found.st_ctime_nsec),
    ])
}

/// Whether a folder has these names, in this order.
fn has_names(at: RawFd, path: &CStr, names: Option<&[&[u8]]>, is_of_modules: bool) -> bool {
    let (mut found, mut names) = match (list(at, path), names) {
        (Some(found), Some(names)) => (found, names.to_vec()),
        (found, names) => return found.is_none() && names.is_none(),
    };
    if is_of_modules {
        found.retain(|name| name != COMPILED);
        names.retain(|name| *name != COMPILED);
        found.sort();
        names.sort_unstable();
    }
    found == names
}

fn list(at: RawFd, path: &CStr) -> Option<Vec<Vec<u8>>> {
    // SAFETY: a system call with a string of ours. The descriptor that it gives is ours alone.
    let folder = unsafe {
        let folder = libc::openat(at, path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        (folder >= 0).then(|| OwnedFd::from_raw_fd(folder))?
    };
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(folder).ok()? {
        let name = entry.ok()?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Some(names)
}

fn target_of(at: RawFd, path: &CStr) -> Option<Vec<u8>> {
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the system writes no more than the length.
    let size = unsafe { libc::readlinkat(at, path.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    target.truncate(usize::try_from(size).ok()?);
    Some(target)
}

fn is_system(names: &[&[u8]; 5]) -> bool {
    let now = rustix::system::uname();
    let found = [
        now.sysname(),
        now.nodename(),
        now.release(),
        now.version(),
        now.machine(),
    ];
    found.iter().zip(names).all(|(now, name)| now.to_bytes() == *name)
}

/// A program that tells something again.
struct Answer<'a> {
    asked: &'a Asked<'a>,
    child: Child,
}

impl<'a> Answer<'a> {
    fn begin(fact: &'a Fact<'a>) -> Option<Answer<'a>> {
        let Seen::Program(asked) = &fact.seen else {
            return None;
        };
        let (program, words) = asked.words.split_first()?;
        let mut command = Command::new(OsStr::from_bytes(program));
        command
            .args(words.iter().map(|word| OsStr::from_bytes(word)))
            .env_clear();
        for variable in &asked.variables {
            let at = variable.iter().skip(1).position(|byte| *byte == b'=')? + 1;
            command.env(
                OsStr::from_bytes(&variable[..at]),
                OsStr::from_bytes(&variable[at + 1..]),
            );
        }
        command
            .current_dir(Path::new(OsStr::from_bytes(fact.path.to_bytes())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Some(Answer {
            asked,
            child: command.spawn().ok()?,
        })
    }

    /// Waits for its end, and tells whether it has told the same.
    fn end(mut self) -> bool {
        let deadline = Instant::now() + DEADLINE;
        let (told, hear) = mpsc::channel();
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        read_aside(out.map(|out| (true, out)), told.clone());
        read_aside(err.map(|err| (false, err)), told);
        for _ in 0..2 {
            let left = deadline.saturating_duration_since(Instant::now());
            match hear.recv_timeout(left) {
                Ok((true, text)) if text == self.asked.out => {}
                Ok((false, text)) if text == self.asked.err => {}
                _ => return false,
            }
        }
        loop {
            match self.child.try_wait() {
                Ok(Some(ended)) => {
                    let status = ended.code().or(ended.signal().map(|number| -number));
                    return status.map(i64::from) == Some(self.asked.status);
                }
                Ok(None) if Instant::now() < deadline => thread::sleep(MOMENT),
                _ => return false,
            }
        }
    }
}

/// Reads all that comes, in a thread of its own.
fn read_aside<R: Read + Send + 'static>(from: Option<(bool, R)>, told: mpsc::Sender<(bool, Vec<u8>)>) {
    thread::spawn(move || {
        let (which, mut from) = from?;
        let mut text = Vec::new();
        from.read_to_end(&mut text).ok()?;
        told.send((which, text)).ok()
    });
}

/// Python must not find a child that it has not started.
impl Drop for Answer<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
