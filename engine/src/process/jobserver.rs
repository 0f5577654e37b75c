//! Tokens of a jobserver, GNU make's way of sharing slots between programs: one byte in a pipe is one more command.
//!
//! A `Pool` is a jobserver of another program (a `make` that runs our build), or our own (for a `make` that our build
//! runs). The rules are the same. The session itself is the token for its first command. Each further command takes a byte
//! before it starts, and the same byte goes back. Nothing here ever waits. We open our own file descriptions, so that flags
//! of descriptions that others share do not change. This file knows nothing of sessions and commands.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::wire::{Form, Strings};

const TOKEN: u8 = b'+';

/// Additional data of a jobserver that we made.
struct Served {
    /// How many tokens there are in all.
    size: usize,
    /// The fifo, which is removed in the end.
    path: Option<PathBuf>,
}

pub struct Pool {
    read: OwnedFd,
    write: OwnedFd,
    /// The bytes that we took. make gives its tokens no meaning today, but requires the same bytes back.
    held: Vec<u8>,
    served: Option<Served>,
    advertised: Option<Advertised>,
    /// epoll reports when there may be a token.
    pub watched: bool,
}

/// How commands learn of a jobserver.
struct Advertised {
    /// `--jobserver-auth`'s value.
    auth: String,
    jobs: usize,
    /// The descriptors that commands inherit, under our own numbers.
    inherited: Vec<Arc<OwnedFd>>,
    /// The last environment that was rewritten, and the result.
    last: Option<(Arc<Strings>, Arc<Strings>)>,
}

impl Pool {
    /// The jobserver of another program, by its two ends. `hand_down` gives commands these ends, too.
    pub fn borrow(read: OwnedFd, write: OwnedFd, hand_down: Option<usize>) -> io::Result<Pool> {
        let mut pool = Pool::open(&read, &write)?;
        pool.advertised = hand_down.map(|jobs| Advertised::pipe(read, write, jobs));
        Ok(pool)
    }

    /// A jobserver of our own for `jobs` commands. A fifo gets this path.
    pub fn serve(form: Form, jobs: usize, path: PathBuf) -> io::Result<Pool> {
        let mut pool = match form {
            Form::Pipe => {
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                Pool::borrow(read, write, Some(jobs))?
            }
            Form::Fifo => Pool::serve_fifo(jobs, &path)?,
        };
        pool.served = Some(Served {
            size: jobs.saturating_sub(1),
            path: (form == Form::Fifo).then_some(path),
        });
        pool.refill();
        Ok(pool)
    }

    fn serve_fifo(jobs: usize, path: &Path) -> io::Result<Pool> {
        let _ = std::fs::remove_file(path);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let both = rustix::fs::open(path, flags, Mode::empty())?;
        let mut pool = Pool::open(&both, &both)?;
        pool.advertised = Some(Advertised {
            auth: format!("fifo:{}", path.display()),
            jobs,
            inherited: Vec::new(),
            last: None,
        });
        Ok(pool)
    }

    /// Opens our own descriptions, so that ours never block, and the others stay as their owners want them.
    fn open(read: &OwnedFd, write: &OwnedFd) -> io::Result<Pool> {
        let again = |fd: &OwnedFd, access| {
            let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
            if kind != rustix::fs::FileType::Fifo {
                return Err(io::Error::other("a jobserver is a pipe"));
            }
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok(rustix::fs::open(path, flags, Mode::empty())?)
        };
        Ok(Pool {
            read: again(read, OFlags::RDONLY)?,
            write: again(write, OFlags::WRONLY)?,
            held: Vec::new(),
            served: None,
            advertised: None,
            watched: false,
        })
    }

    /// Takes a token if there is one.
    pub fn take(&mut self) -> bool {
        let mut token = [0];
        loop {
            match rustix::io::read(&self.read, &mut token) {
                Ok(1) => {
                    self.held.push(token[0]);
                    return true;
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => return false,
            }
        }
    }

    /// Gives back the tokens that this many commands do not need.
    pub fn settle(&mut self, running: usize) {
        while self.held.len() > running.saturating_sub(1) {
            self.give_back();
        }
        // No command of the build runs. So a token that is missing now was lost by a program that was killed.
        if running == 0 {
            self.refill();
        }
    }

    fn give_back(&mut self) {
        if let Some(token) = self.held.pop() {
            self.put(&[token]);
        }
    }

    /// A write fails only if the pipe is full with 65536 tokens, or has no reader any more.
    fn put(&self, tokens: &[u8]) {
        while let Err(rustix::io::Errno::INTR) = rustix::io::write(&self.write, tokens) {}
    }

    fn refill(&mut self) {
        let Some(served) = &self.served else { return };
        let size = served.size;
        let mut scratch = [0; 4096];
        while rustix::io::read(&self.read, &mut scratch).is_ok_and(|n| n > 0) {}
        self.put(&vec![TOKEN; size]);
    }

    /// How many tokens we hold.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// How many tokens can be taken.
    pub fn free(&self) -> usize {
        rustix::io::ioctl_fionread(&self.read).unwrap_or(0) as usize
    }

    /// Whether it is our own, and how many tokens it has.
    pub fn size(&self) -> Option<usize> {
        self.served.as_ref().map(|served| served.size)
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// The descriptors that a command inherits, and the environment that names them. `None` when commands are changed nothing.
    pub fn hand(&mut self, env: &Arc<Strings>) -> Option<(Vec<Arc<OwnedFd>>, Arc<Strings>)> {
        let advertised = self.advertised.as_mut()?;
        let known = advertised.last.as_ref().filter(|(from, _)| Arc::ptr_eq(from, env));
        let changed = match known {
            Some((_, changed)) => changed.clone(),
            None => Arc::new(advertise(env, advertised.jobs, &advertised.auth)),
        };
        advertised.last = Some((env.clone(), changed.clone()));
        Some((advertised.inherited.clone(), changed))
    }
}

impl Advertised {
    fn pipe(read: OwnedFd, write: OwnedFd, jobs: usize) -> Advertised {
        Advertised {
            auth: format!("{},{}", read.as_raw_fd(), write.as_raw_fd()),
            jobs,
            inherited: vec![Arc::new(read), Arc::new(write)],
            last: None,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        while !self.held.is_empty() {
            self.give_back();
        }
        if let Some(Served { path: Some(path), .. }) = &self.served {
            // The folder may have been cleared.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The variables in which programs look for a jobserver. cargo has one of its own.
const VARIABLES: [&[u8]; 3] = [b"MAKEFLAGS", b"CARGO_MAKEFLAGS", b"MFLAGS"];
const ADVERTISING: [&[u8]; 2] = [b"--jobserver-auth=", b"--jobserver-fds="];

const FOLDER_OF_DESCRIPTORS: &[u8] = b"/dev/fd/";

/// The descriptors of a jobserver's pipe that a process has and its variables name, each with its number there. They are
/// opened anew, under numbers of ours that are above theirs.
pub fn inherited_by(pid: u32, env: &Strings) -> Vec<(Arc<OwnedFd>, RawFd)> {
    let named = env.iter().filter_map(|entry| pipe_of(flags_of(entry)?));
    let mut pairs: Vec<[RawFd; 2]> = named.collect();
    pairs.sort_unstable();
    pairs.dedup();
    let highest = pairs.iter().flatten().copied().max().unwrap_or(0);
    let opened = pairs
        .iter()
        .filter_map(|pair| Some(open_pipe(pid, *pair, highest).ok()?.into_iter().zip(*pair)));
    opened.flatten().map(|(fd, number)| (Arc::new(fd), number)).collect()
}

/// Whether an opened path is an end of a jobserver's pipe. `value` looks a variable of the command up.
pub fn is_end_of_pipe<'v>(path: &[u8], value: impl Fn(&[u8]) -> Option<&'v [u8]>) -> bool {
    let number = path.strip_prefix(FOLDER_OF_DESCRIPTORS);
    let number: Option<RawFd> = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    let mut pairs = VARIABLES.iter().filter_map(|name| pipe_of(value(name)?));
    number.is_some_and(|number| pairs.any(|pair| pair.contains(&number)))
}

/// The value of a variable in which programs look for a jobserver.
fn flags_of(entry: &[u8]) -> Option<&[u8]> {
    VARIABLES
        .iter()
        .find_map(|name| entry.strip_prefix(*name)?.strip_prefix(b"="))
}

/// The numbers that the last word about a jobserver has.
fn pipe_of(flags: &[u8]) -> Option<[RawFd; 2]> {
    let mut words = flags.rsplit(|byte| *byte == b' ');
    let named = words.find_map(|word| ADVERTISING.iter().find_map(|option| word.strip_prefix(*option)))?;
    let (read, write) = std::str::from_utf8(named).ok()?.split_once(',')?;
    let pair = [read.parse().ok()?, write.parse().ok()?];
    pair.iter().all(|number| *number > 2).then_some(pair)
}

fn open_pipe(pid: u32, pair: [RawFd; 2], highest: RawFd) -> io::Result<[OwnedFd; 2]> {
    let open = |number: RawFd, access| {
        let path = format!("/proc/{pid}/fd/{number}");
        // A pipe whose other end is closed must not be waited for.
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let status = rustix::fs::fstat(&fd)?;
        let kind = rustix::fs::FileType::from_raw_mode(status.st_mode);
        if kind != rustix::fs::FileType::Fifo {
            return Err(io::Error::other("a jobserver is a pipe"));
        }
        rustix::fs::fcntl_setfl(&fd, access)?;
        Ok((
            rustix::io::fcntl_dupfd_cloexec(&fd, highest.saturating_add(1))?,
            (status.st_dev, status.st_ino),
        ))
    };
    let (read, one) = open(pair[0], OFlags::RDONLY)?;
    let (write, other) = open(pair[1], OFlags::WRONLY)?;
    match one == other {
        true => Ok([read, write]),
        false => Err(io::Error::other("these are two pipes")),
    }
}

/// The variables of a command that does not inherit the descriptors that these name. `None` if they name none.
pub fn without_pipe(env: &Strings) -> Option<Strings> {
    let names_one = |entry: &[u8]| flags_of(entry).and_then(pipe_of).is_some();
    let without = |entry: &[u8]| {
        let is_other = |word: &&[u8]| !ADVERTISING.iter().any(|option| word.starts_with(option));
        let words: Vec<&[u8]> = entry.split(|byte| *byte == b' ').filter(is_other).collect();
        words.join(&b' ')
    };
    env.iter().any(names_one).then(|| {
        let entries = env.iter().map(|entry| match names_one(entry) {
            true => without(entry),
            false => entry.to_vec(),
        });
        entries.collect()
    })
}

/// The environment with this jobserver, in the place of any other, in `MAKEFLAGS`.
fn advertise(env: &Strings, jobs: usize, auth: &str) -> Strings {
    let name = b"MAKEFLAGS=";
    let old = env.iter().find_map(|entry| entry.strip_prefix(name));
    let flags = make_flags(&String::from_utf8_lossy(old.unwrap_or_default()), jobs, auth);
    let others = env.iter().filter(|entry| !entry.starts_with(name));
    let new = [name, flags.as_bytes()].concat();
    others.map(<[u8]>::to_vec).chain([new]).collect()
}

/// Make's own order: letters without a dash, then options, then variables after `--`.
fn make_flags(old: &str, jobs: usize, auth: &str) -> String {
    let (options, variables) = match old.split_once("-- ") {
        Some((options, variables)) => (options, Some(variables)),
        None => (old, None),
    };
    let is_jobs = |word: &str| word.starts_with("-j") || word.starts_with("--jobserver-");
    let mut words = options.split(' ').filter(|word| !word.is_empty()).peekable();
    let letters = words.next_if(|word| !word.starts_with('-')).unwrap_or_default();
    let mut flags = letters.to_owned();
    words.filter(|word| !is_jobs(word)).for_each(|word| {
        flags.push(' ');
        flags.push_str(word);
    });
    flags.push_str(&format!(" -j{jobs} --jobserver-auth={auth}"));
    if let Some(variables) = variables {
        flags.push_str(" -- ");
        flags.push_str(variables);
    }
    flags
}

/// Removes the fifos of an engine that was killed.
pub fn sweep(folder: &Path, prefix: &str) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix)) {
        let _ = std::fs::remove_file(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn pool(jobs: usize) -> Pool {
        Pool::serve(Form::Pipe, jobs, PathBuf::new()).unwrap()
    }

    #[test]
    fn there_is_a_token_for_each_job_but_the_first() {
        let mut pool = pool(3);
        assert_eq!((pool.free(), pool.held()), (2, 0));
        assert!(pool.take() && pool.take());
        assert!(!pool.take(), "and it does not wait for more");
    }

    #[test]
    fn as_many_tokens_are_kept_as_commands_need() {
        let mut pool = pool(4);
        while pool.take() {}
        pool.settle(3);
        assert_eq!((pool.free(), pool.held()), (1, 2));
        pool.settle(1);
        assert_eq!((pool.free(), pool.held()), (3, 0));
    }

    #[test]
    fn lost_tokens_come_back_when_nothing_runs() {
        let mut pool = pool(4);
        let mut token = [0; 2];
        rustix::io::read(&pool.read, &mut token).unwrap();
        pool.settle(1);
        assert_eq!(pool.free(), 1, "a command may still give them back");
        pool.settle(0);
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn the_same_bytes_go_back_and_the_other_description_still_blocks() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"xy").unwrap();
        let ours = (read.try_clone().unwrap(), write.try_clone().unwrap());
        let mut pool = Pool::borrow(ours.0, ours.1, None).unwrap();
        assert!(pool.take() && pool.take() && !pool.take());
        drop(pool);
        let mut tokens = [0; 2];
        rustix::io::read(&read, &mut tokens).unwrap();
        tokens.sort_unstable();
        assert_eq!(&tokens, b"xy");
        let flags = rustix::fs::fcntl_getfl(&read).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }

    #[test]
    fn the_descriptors_that_a_process_was_given_are_found() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"x").unwrap();
        let other = rustix::pipe::pipe().unwrap();
        let env = |flags: String| Strings::from_iter(["A=1", &format!("CARGO_MAKEFLAGS={flags}")]);
        let named = |read: &OwnedFd, write: &OwnedFd| {
            let (read, write) = (read.as_raw_fd(), write.as_raw_fd());
            env(format!(
                "-j --jobserver-fds={read},{write} --jobserver-auth={read},{write}"
            ))
        };
        let pid = std::process::id();
        let found = inherited_by(pid, &named(&read, &write));
        let numbers: Vec<_> = found.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, [read.as_raw_fd(), write.as_raw_fd()]);
        let above = numbers.iter().max().unwrap();
        assert!(found.iter().all(|(fd, _)| fd.as_raw_fd() > *above));
        let variables = named(&read, &write);
        let value = |name: &[u8]| {
            variables
                .iter()
                .find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
        };
        let path = |number: RawFd| format!("/dev/fd/{number}").into_bytes();
        assert!(numbers.iter().all(|number| is_end_of_pipe(&path(*number), value)));
        assert!(!is_end_of_pipe(&path(0), value) && !is_end_of_pipe(b"/dev/fd/x", value));
        let mut token = [0; 2];
        assert_eq!(rustix::io::read(&found[0].0, &mut token).unwrap(), 1);
        let flags = rustix::fs::fcntl_getfl(&found[0].0).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
        assert!(inherited_by(pid, &named(&read, &other.1)).is_empty());
        for flags in [
            "-j",
            "--jobserver-auth=fifo:/x",
            "--jobserver-auth=1,2",
            "--jobserver-auth=3",
            "--jobserver-auth=2147483647,2147483646",
        ] {
            assert!(inherited_by(pid, &env(flags.to_owned())).is_empty(), "{flags}");
        }
        // Its only writing end is closed.
        let lonely = named(&other.0, &other.1);
        drop(other.1);
        assert!(inherited_by(pid, &lonely).is_empty());
    }

    #[test]
    fn a_command_without_descriptors_is_not_told_of_them() {
        let env = Strings::from_iter([
            "A=--jobserver-auth=3,4",
            "CARGO_MAKEFLAGS=-j --jobserver-fds=3,4 --jobserver-auth=3,4",
        ]);
        let expected = Strings::from_iter(["A=--jobserver-auth=3,4", "CARGO_MAKEFLAGS=-j"]);
        assert_eq!(without_pipe(&env), Some(expected));
        assert_eq!(
            without_pipe(&Strings::from_iter(["MAKEFLAGS=-j --jobserver-auth=fifo:/x"])),
            None
        );
    }

    #[test]
    fn only_a_pipe_is_a_jobserver() {
        let file: OwnedFd = File::open("/dev/null").unwrap().into();
        let other = file.try_clone().unwrap();
        assert!(Pool::borrow(file, other, None).is_err());
    }

    #[test]
    fn flags_about_other_things_are_kept() {
        let flags = |old| make_flags(old, 4, "3,4");
        assert_eq!(flags(""), " -j4 --jobserver-auth=3,4");
        assert_eq!(flags("ks -j2 --jobserver-fds=5,6"), "ks -j4 --jobserver-auth=3,4");
        assert_eq!(
            flags("k --no-print-directory -- A=1 B=-j9"),
            "k --no-print-directory -j4 --jobserver-auth=3,4 -- A=1 B=-j9"
        );
    }

    #[test]
    fn an_environment_has_one_makeflags() {
        let env: Strings = ["A=1", "MAKEFLAGS=k -j2", "B=2"].iter().collect();
        let changed = advertise(&env, 2, "fifo:/x");
        let found: Vec<_> = changed.iter().collect();
        assert_eq!(
            found,
            [&b"A=1"[..], b"B=2", b"MAKEFLAGS=k -j2 --jobserver-auth=fifo:/x"]
        );
    }
}
