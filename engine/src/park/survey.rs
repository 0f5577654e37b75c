//! Learns the course of a shape of commands. A parked driver runs with placeholders as names, and then with the names of a
//! real earlier command. The course is used only if it predicts the second run from the first.
//!
//! Nothing is compiled: the driver is told that its parts have succeeded. It writes nothing except an empty temporary file,
//! which it removes.

use std::ffi::CString;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::debug;

use super::course::{find_between, Course, Watched, PARTS};
use super::driver::Answering;
use super::packet::{Request, Wanted, ROUTE, RUN_NOTHING};
use super::parked::Parked;
use super::program::Identity;
use super::shape::{Line, STAND_IN};
use crate::facts::driver_model::{DriverModel, Found, Observed};
use crate::facts::environment::Environment;
use crate::facts::path::Place;
use crate::facts::world::{Capacity, View, World};
use crate::observe::access::Access;
use crate::observe::trace::{Arena, TraceRegion};
use crate::process::context::{self, Block};
use crate::process::roster::{is_drawn, OwnPlace, TemporaryFiles};
use crate::process::spawn::{self, Ended};
use crate::wire::Strings;

/// For one check of what a driver finds.
const CAPACITY: Capacity = Capacity { files: 64, folders: 64 };

/// What is needed for a survey.
pub struct Surveyor<'a> {
    /// Where drivers put their records.
    pub arena: Option<&'a Arena>,
    pub place: OwnPlace,
    pub temporary_files: &'a Arc<TemporaryFiles>,
    pub null: &'a OwnedFd,
    /// An empty folder.
    pub folder: &'a Path,
    /// The place of the socket at which a driver asks.
    pub answering: PathBuf,
    pub context: Block,
}

/// An earlier command, and a driver for it.
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
    /// None if there was no region for its records.
    accesses: Option<Vec<Access>>,
}

impl Surveyor<'_> {
    /// The course of a sample's shape, or the reason why it has none.
    pub fn survey(&self, sample: &Sample) -> Result<Course, String> {
        let (shape, names) = (&sample.line.shape, &sample.line.names);
        let stand_ins = shape.stand_ins(names);
        let argv = shape.argv(&stand_ins);
        let result = self.make_source(&argv).and_then(|()| {
            let folder = self.folder.as_os_str().as_bytes();
            let (parts, trace) = self.foresee(sample, &argv, folder)?;
            let course = Course::learn(&parts, &stand_ins, self.find_watched(sample)?, &sample.called)?;
            let model = self.observe(&argv, folder, &stand_ins, &parts, trace);
            let model = model.and_then(|first| {
                let model = DriverModel::learn(&first, STAND_IN, PARTS)?;
                Ok((find_now(&model, sample), model))
            });
            let argv = shape.argv(names);
            let (parts, trace) = self.foresee(sample, &argv, &sample.folder)?;
            if !course.foretells(&parts, names) {
                return Err("its parts depend on more than its names".to_owned());
            }
            let second = self.observe(&argv, &sample.folder, names, &parts, trace);
            Ok(course.with_model(model.and_then(|(before, model)| confirm(model, before, &second?, sample))))
        });
        let _ = fs::remove_dir_all(self.folder);
        let _ = fs::create_dir_all(self.folder);
        result
    }

    /// A driver starts nothing if its source is not there.
    fn make_source(&self, argv: &Strings) -> Result<(), String> {
        let line = Line::of(argv).ok_or("it is not simple")?;
        let source = self.folder.join(std::ffi::OsStr::from_bytes(&line.source));
        let made = fs::create_dir_all(source.parent().unwrap_or(self.folder)).and_then(|()| fs::write(source, ""));
        made.map_err(|e| format!("its folder could not be made: {e}"))
    }

    /// The observed actions of a driver, and the names that it was given.
    fn observe(
        &self,
        argv: &Strings,
        folder: &[u8],
        names: &[Vec<u8>],
        parts: &[Wanted; PARTS],
        trace: Option<Vec<Access>>,
    ) -> Result<Observed, String> {
        let between = find_between(parts).ok_or("its parts are not a compiler and an assembler")?;
        let line = Line::of(argv).ok_or("it is not simple")?;
        Ok(Observed {
            accesses: trace.ok_or("its driver could not be observed")?,
            names: names.iter().cloned().chain([between, folder.to_vec()]).collect(),
            output: line.output,
        })
    }

    /// The parts that a driver would run, and its own actions.
    fn foresee(
        &self,
        sample: &Sample,
        argv: &Strings,
        folder: &[u8],
    ) -> Result<([Wanted; PARTS], Option<Vec<Access>>), String> {
        let run = self.drive(sample, argv, folder, self.null)?;
        if run.ended.code != 0 {
            return Err("its driver did not end well".to_owned());
        }
        let count = run.parts.len();
        let parts: [Wanted; PARTS] = run.parts.try_into().map_err(|_| format!("it has {count} parts"))?;
        let is_as_given = |part: &Wanted| part.folder() == folder && part.context().inherits_like(&self.context);
        if parts.iter().all(is_as_given) {
            Ok((parts, run.accesses))
        } else {
            Err("its driver changes what its parts inherit".to_owned())
        }
    }

    /// The folders in which it looks for its parts and its specs.
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
        let answering = Answering::open(self.answering.clone()).map_err(failed)?;
        let route = CString::new(answering.path().as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let folder = CString::new(folder).map_err(|e| e.to_string())?;
        let (number, place) = self.place.take();
        let trace_region = self.arena.and_then(Arena::reserve);
        let request = Request {
            flags: ROUTE | RUN_NOTHING,
            roster_entry: number,
            group: 0,
            log: trace_region.as_ref().map(TraceRegion::place).unwrap_or_default(),
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
        let child = sample.driver.ask(&request, place);
        let child = child.map_err(|why| why.0.to_owned())?;
        let mut parts = Vec::new();
        // If it is killed together with the engine, its file between the parts must be removed by another process.
        let mut between = Vec::new();
        let has_ended = answering.serve(&child.pidfd, |_, wanted| {
            let drawn = wanted.argv().find(|word| is_drawn(word));
            between.extend(drawn.and_then(|path| self.temporary_files.note(Path::new(OsStr::from_bytes(path)))));
            parts.push(wanted);
            Some(0)
        });
        if !has_ended {
            // SAFETY: a child of ours that was not reaped, and the leader of its group.
            unsafe { libc::kill(-child.pid, libc::SIGKILL) };
        }
        self.place.strike();
        let ended = spawn::wait_for(child.pid);
        let accesses = trace_region.map(TraceRegion::finish_idle);
        Ok(Run { parts, ended, accesses })
    }
}

/// What a driver finds for a sample.
fn find_now(model: &DriverModel, sample: &Sample) -> Vec<Option<Found>> {
    let world = World::new(CAPACITY);
    let (place, environment) = (Place::new(&sample.folder, None), Environment::of(&sample.env));
    let mut view = View::new(&world, &place, &environment);
    let mut names = sample.line.names.clone();
    names.extend([Vec::new(), sample.folder.clone()]);
    model.find_now(&names, &mut view)
}

/// Accepts a model that predicts the run for the sample. Nothing that the driver has found may have changed meanwhile.
fn confirm(
    mut model: DriverModel,
    before: Vec<Option<Found>>,
    second: &Observed,
    sample: &Sample,
) -> Result<DriverModel, String> {
    if let Some(mismatch) = model.find_mismatch(second) {
        debug!("a driver did otherwise than foretold: {mismatch:?}");
        return Err("its driver depends on more than its names".to_owned());
    }
    if before != find_now(&model, sample) {
        return Err("something changed that its driver has found".to_owned());
    }
    model.keep_found(before)?;
    Ok(model)
}

impl Block {
    /// A part gets from its driver the same context as the driver, except for the stack limit, which drivers raise.
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
