//! Learns the course of a shape of commands: has a parked driver run with stand-ins for the names, and then with the names
//! of a command that was there, and believes only what foretells the second from the first.
//!
//! Nothing is compiled: the driver is told that its parts have done well. It writes nothing but an empty temporary file,
//! which it removes.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::course::{Course, Watched, PARTS};
use super::driver::Desk;
use super::packet::{Block, Request, Wanted, ROUTE};
use super::parked::Parked;
use super::program::Identity;
use super::shape::Line;
use crate::cache::trace::Place;
use crate::context;
use crate::guardian::Tickets;
use crate::spawn::{self, Ended};
use crate::wire::Strings;

/// What it takes to survey.
pub struct Surveyor<'a> {
    pub tickets: &'a Arc<Tickets>,
    pub null: &'a OwnedFd,
    /// An empty folder.
    pub folder: &'a Path,
    /// Where a driver is to ask.
    pub desk: PathBuf,
    pub context: Block,
}

/// A command that was there, and a driver for it.
pub struct Sample {
    pub driver: Arc<Parked>,
    pub called: CString,
    pub identity: Identity,
    pub line: Line,
    pub env: Strings,
    pub stack: [u64; 2],
    pub folder: Vec<u8>,
}

/// What a driver did.
struct Run {
    parts: Vec<Wanted>,
    ended: Ended,
}

impl Surveyor<'_> {
    /// The course of a sample's shape, or why it has none.
    pub fn survey(&self, sample: &Sample) -> Result<Course, String> {
        let (shape, names) = (&sample.line.shape, &sample.line.names);
        let stand_ins = shape.stand_ins(names);
        let argv = shape.argv(&stand_ins);
        let result = self.make_source(&argv).and_then(|()| {
            let parts = self.foresee(sample, &argv, self.folder.as_os_str().as_bytes())?;
            let course = Course::learn(&parts, &stand_ins, self.find_watched(sample)?)?;
            let parts = self.foresee(sample, &shape.argv(names), &sample.folder)?;
            if course.foretells(&parts, names) {
                Ok(course)
            } else {
                Err("its parts depend on more than its names".to_owned())
            }
        });
        let _ = fs::remove_dir_all(self.folder);
        let _ = fs::create_dir_all(self.folder);
        result
    }

    /// A driver starts nothing for a source that is not there.
    fn make_source(&self, argv: &Strings) -> Result<(), String> {
        let line = Line::of(argv).ok_or("it is not simple")?;
        let source = self.folder.join(std::ffi::OsStr::from_bytes(&line.source));
        let made = fs::create_dir_all(source.parent().unwrap_or(self.folder)).and_then(|()| fs::write(source, ""));
        made.map_err(|e| format!("its folder could not be made: {e}"))
    }

    /// The parts that a driver would run.
    fn foresee(&self, sample: &Sample, argv: &Strings, folder: &[u8]) -> Result<[Wanted; PARTS], String> {
        let run = self.drive(sample, argv, folder, self.null)?;
        if run.ended.code != 0 {
            return Err("its driver did not end well".to_owned());
        }
        let count = run.parts.len();
        let parts: [Wanted; PARTS] = run.parts.try_into().map_err(|_| format!("it has {count} parts"))?;
        let is_as_given = |part: &Wanted| part.folder() == folder && part.context().inherits_like(&self.context);
        if parts.iter().all(is_as_given) {
            Ok(parts)
        } else {
            Err("its driver changes what its parts inherit".to_owned())
        }
    }

    /// Where it looks for its parts and for what it is to do.
    fn find_watched(&self, sample: &Sample) -> Result<Vec<Watched>, String> {
        let failed = |error: std::io::Error| format!("its folders could not be asked for: {error}");
        let path = self.folder.join("folders");
        let output = File::options().read(true).write(true).create_new(true).open(path);
        let output = OwnedFd::from(output.map_err(failed)?);
        let name = sample.line.shape.argv(&sample.line.names);
        let name = name.iter().next().unwrap_or_default();
        let argv = Strings::from_iter([name, b"-print-search-dirs"]);
        self.drive(sample, &argv, self.folder.as_os_str().as_bytes(), &output)?;
        let output = File::from(output);
        let mut text = vec![0; 64 << 10];
        let size = output.read_at(&mut text, 0).map_err(failed)?;
        let lines = text[..size].split(|b| *b == b'\n');
        let lists = lines.filter_map(|line| line.splitn(2, |b| *b == b' ').nth(1));
        let paths = lists.flat_map(|list| list.strip_prefix(b"=").unwrap_or(list).split(|b| *b == b':'));
        let paths: Vec<_> = paths.filter(|path| path.starts_with(b"/")).collect();
        if paths.is_empty() {
            return Err("its driver does not tell where it looks".to_owned());
        }
        let specs = paths.iter().map(|path| [path, &b"/specs"[..]].concat());
        let all = paths.iter().map(|path| path.to_vec()).chain(specs);
        Ok(all.filter_map(|path| Watched::at(&path)).collect())
    }

    fn drive(&self, sample: &Sample, argv: &Strings, folder: &[u8], output: &OwnedFd) -> Result<Run, String> {
        let failed = |error: std::io::Error| format!("its driver could not be asked: {error}");
        let desk = Desk::open(self.desk.clone()).map_err(failed)?;
        let route = CString::new(desk.path().as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let folder = CString::new(folder).map_err(|e| e.to_string())?;
        let ticket = self.tickets.reserve().ok_or("no tickets are left")?;
        let request = Request {
            flags: ROUTE,
            berth: ticket.number(),
            group: 0,
            log: Place::default(),
            asker: 0,
            path: sample.called.to_bytes_with_nul(),
            folder: folder.to_bytes_with_nul(),
            argv: argv.bytes(),
            argc: argv.len(),
            env: sample.env.bytes(),
            envc: sample.env.len(),
            route: route.to_bytes_with_nul(),
            context: self.context,
            streams: [self.null.as_fd(), output.as_fd(), self.null.as_fd()],
        };
        let child = sample.driver.ask(&request, ticket.place());
        let child = child.map_err(|why| why.0.to_owned())?;
        let mut parts = Vec::new();
        let has_ended = desk.serve(&child.pidfd, |_, wanted| {
            parts.push(wanted);
            Some(0)
        });
        if !has_ended {
            // SAFETY: a child of ours that was not reaped, and the leader of its group.
            unsafe { libc::kill(-child.pid, libc::SIGKILL) };
        }
        let ended = spawn::wait_for(child.pid);
        Ok(Run { parts, ended })
    }
}

impl Block {
    /// A part that inherits this from its driver has what the driver was given, but for the stack, which drivers enlarge.
    fn inherits_like(&self, given: &Block) -> bool {
        let signals = (self.ignored, self.blocked) == (given.ignored, given.blocked);
        let scheduling = (self.nice, self.policy, self.priority) == (given.nice, given.policy, given.priority);
        let rest = (self.umask, self.io_priority) == (given.umask, given.io_priority);
        let (mut ours, mut theirs) = (self.limits, given.limits);
        ours[context::STACK] = [0, 0];
        theirs[context::STACK] = [0, 0];
        signals && scheduling && rest && ours == theirs && self.processors == given.processors
    }
}
