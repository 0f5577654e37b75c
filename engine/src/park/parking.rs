//! The interface of parking for the rest of the engine: makes the threads, and starts a command in a parked program.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;

use log::{debug, warn};
use rustix::fs::{Access, FileType};
use serde_json::Value;

use super::course::{Course, NextParts};
use super::courses::{Courses, Finding};
use super::driver::Answering;
use super::keeper::Keeper;
use super::library;
use super::packet::{Request, ROUTE, SCORE, SESSION};
use super::parked::{Brief, Debt, NotEntered, Parked};
use super::policy::Policy;
use super::pool::{Pool, Reason, Task};
use super::program::Program;
use super::router::{self, Ledger, Router};
use super::shape::Line;
use super::survey::Sample;
use super::task::Task as Trial;
use super::verdict;
use crate::facts::driver_model::DriverPrediction;
use crate::files::folder::Folder;
use crate::observe::trace::{Arena, Place};
use crate::process::context::{self, Context};
use crate::process::roster::{Roster, TemporaryFiles};
use crate::process::spawn::{self, Child, Launch};

/// More threads than this only wait for each other.
const ROUTERS: usize = 16;

/// The status of a program that exits with 1, in the form of `waitpid`.
const FAILED: i32 = 1 << 8;

/// A place in the roster, with its number.
type RosterPlace<'a> = (usize, &'a AtomicI32);
/// The descriptors for a command's streams. None means the null device.
type Streams = [Option<OwnedFd>; 3];

/// A command or its first part that runs, and what is left of the command.
pub struct Begun {
    pub child: Child,
    pub next_parts: Option<NextParts>,
}

/// What to do with a command.
pub enum Turn {
    Parked(Begun),
    /// It must be spawned.
    Plain,
    /// A thread that can wait must start it.
    Busy,
    /// A thread that can wait must read the answer.
    Awaited(Box<Awaited>),
}

/// A parked program was asked for a command, and has not answered yet.
pub struct Awaited {
    parked: Arc<Parked>,
    debt: Debt,
    program: Program,
    next_parts: Option<NextParts>,
}

/// Why a command does not run in a parked program, or does not yet.
enum Why {
    Refused(Reason),
    Busy,
    Awaited(Box<Awaited>),
}

impl<T: Into<Reason>> From<T> for Why {
    fn from(reason: T) -> Why {
        Why::Refused(reason.into())
    }
}

/// A program, and the path by which the command calls it.
struct Found {
    program: Program,
    called: CString,
}

/// A command whose course is known, and the path by which it calls its driver.
struct Known<'a> {
    called: &'a CStr,
    line: &'a Line,
    course: &'a Course,
}

/// The parked programs.
pub struct Parking {
    pool: Arc<Pool>,
    courses: Arc<Courses>,
    folder: Folder,
    desks: AtomicU64,
    own: Context,
    /// The router's address, with its zero byte.
    route: Vec<u8>,
    arena: Option<Arena>,
    library: OnceLock<Option<CString>>,
    temporary_files: Arc<TemporaryFiles>,
}

impl Parking {
    pub fn open(folder: &Folder, roster: &mut Roster, own: &Context, ledger: &Arc<Ledger>) -> Parking {
        let policy = Policy::from_environment().unwrap_or_else(|error| {
            warn!("{error} (parking as by default)");
            Policy::default()
        });
        let (tasks, orders) = mpsc::channel();
        let pool = Arc::new(Pool::new(policy, verdict::load(&folder.verdicts()), tasks));
        let route = CString::new(folder.route().as_os_str().as_bytes()).unwrap_or_default();
        let parking = Parking {
            pool,
            courses: Arc::default(),
            folder: folder.clone(),
            desks: AtomicU64::new(0),
            own: own.clone(),
            route: route.into_bytes_with_nul(),
            arena: Arena::open(own_program())
                .inspect_err(|error| warn!("commands are not observed, and so not stored: {error}"))
                .ok(),
            library: OnceLock::new(),
            temporary_files: roster.temporary_files(),
        };
        if parking.pool.is_on() {
            // A failure here, for example because of a full disk, must not stop the build.
            if let Err(error) = parking.prepare(folder, roster, ledger, orders) {
                warn!("nothing is parked: {error}");
                parking.pool.turn_off(&format!("it could not be prepared: {error}"));
            }
        }
        parking
    }

    fn prepare(
        &self,
        folder: &Folder,
        roster: &mut Roster,
        ledger: &Arc<Ledger>,
        orders: mpsc::Receiver<Task>,
    ) -> io::Result<()> {
        let pool = &self.pool;
        let empty = folder.trial();
        let _ = fs::remove_dir_all(&empty);
        DirBuilder::new().mode(0o700).create(&empty)?;
        let keeper = Keeper {
            pool: pool.clone(),
            courses: self.courses.clone(),
            library: self.library().ok_or(io::ErrorKind::NotFound)?.to_owned(),
            roster: roster.share()?,
            arena: self.arena.clone(),
            temporary_files: roster.temporary_files(),
            place: roster.keep().ok_or(io::ErrorKind::OutOfMemory)?,
            null: OwnedFd::from(fs::File::options().read(true).write(true).open("/dev/null")?),
            folder: empty,
            answering: folder.answering(0),
            verdicts: folder.verdicts(),
            context: self.own.plain(),
            graves: Vec::new(),
        };
        thread::Builder::new()
            .name("park".to_owned())
            .spawn(move || keeper.work(&orders))?;
        let listener = router::listen(folder)?;
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get().min(ROUTERS)) {
            let router = Router::new(listener.clone(), pool.clone(), roster.tickets(), ledger.clone())?;
            thread::Builder::new()
                .name("route".to_owned())
                .spawn(move || router.work())?;
        }
        Ok(())
    }

    /// Starts a command in a parked program, or its first part if its course is known. `roster_entry` is its place in the
    /// roster. With `haste`, the caller does not wait.
    pub fn start(
        &self,
        launch: &Launch<'_>,
        roster_entry: Option<RosterPlace<'_>>,
        streams: &Arc<Streams>,
        haste: bool,
    ) -> Turn {
        self.turn(|| self.try_start(launch, roster_entry, streams, haste))
    }

    /// Starts a part of a command in a parked program.
    pub fn start_part(&self, launch: &Launch<'_>, roster_entry: Option<RosterPlace<'_>>, haste: bool) -> Turn {
        self.turn(|| {
            let child = self.enter(launch, &self.find(launch)?, roster_entry, &[], haste)?;
            Ok(Begun {
                child,
                next_parts: None,
            })
        })
    }

    /// Waits for a request that was made in haste.
    pub fn resume(&self, awaited: Box<Awaited>, roster_entry: Option<RosterPlace<'_>>) -> Turn {
        self.turn(|| {
            let (_, ticket) = roster_entry.ok_or("too many commands run")?;
            let entered = awaited.parked.resume(awaited.debt, ticket);
            let child = entered.map_err(|why| self.not_entered(&awaited.program, why))?;
            self.pool.count_parked(&awaited.program);
            Ok(self.begin(child, awaited.next_parts))
        })
    }

    fn begin(&self, child: Child, next_parts: Option<NextParts>) -> Begun {
        if let Some(next_parts) = &next_parts {
            self.courses.count(next_parts.driver.is_some());
        }
        Begun { child, next_parts }
    }

    fn turn(&self, start: impl FnOnce() -> Result<Begun, Why>) -> Turn {
        if !self.is_on() {
            return Turn::Plain;
        }
        match start() {
            Ok(begun) => Turn::Parked(begun),
            Err(Why::Busy) => Turn::Busy,
            Err(Why::Awaited(awaited)) => Turn::Awaited(awaited),
            Err(Why::Refused(reason)) => {
                self.pool.count_spawned(reason);
                Turn::Plain
            }
        }
    }

    fn find(&self, launch: &Launch<'_>) -> Result<Found, &'static str> {
        let name = launch.argv.iter().next().unwrap_or_default();
        let candidates = spawn::candidates(name, launch.env);
        let (program, called) = Program::find(&candidates, launch.cwd).ok_or("it was not found")?;
        Ok(Found {
            program,
            called: called.to_owned(),
        })
    }

    fn try_start(
        &self,
        launch: &Launch<'_>,
        roster_entry: Option<RosterPlace<'_>>,
        streams: &Arc<Streams>,
        haste: bool,
    ) -> Result<Begun, Why> {
        let found = self.find(launch)?;
        if !Trial::is_driver(&found.program.name()) {
            let child = self.enter(launch, &found, roster_entry, &[], haste)?;
            return Ok(Begun {
                child,
                next_parts: None,
            });
        }
        // A driver that gets a session of its own could not be asked.
        let line = Line::of(launch.argv).filter(|_| !launch.new_session);
        if let Some(line) = line {
            let stack = launch.context.block().limits[context::STACK];
            match self.courses.find(&found.program, launch.env, stack, &line.shape) {
                Finding::Known(course) => {
                    let known = Known {
                        called: &found.called,
                        line: &line,
                        course: &course,
                    };
                    match self.start_parts(launch, &known, roster_entry, streams, haste) {
                        Err(Why::Refused(reason)) => debug!("a command is left to its driver: {reason}"),
                        started => return started,
                    }
                }
                Finding::Due => self.survey(launch, &found, line, stack),
                Finding::Unknown => {}
            }
        }
        let child = self.enter(launch, &found, roster_entry, &self.route, haste)?;
        Ok(Begun {
            child,
            next_parts: None,
        })
    }

    /// Asks for the course of a command's shape to be learned.
    fn survey(&self, launch: &Launch<'_>, found: &Found, line: Line, stack: [u64; 2]) {
        let identity = found.program.identity;
        match self.pool.take(&found.program, launch.env, stack) {
            Ok(driver) => self.pool.survey(Sample {
                driver,
                called: found.called.clone(),
                identity,
                line,
                env: launch.env.clone(),
                folder: launch.cwd.to_vec(),
                stack,
            }),
            Err(_) => self.courses.put_off(&identity, launch.env, stack, &line.shape),
        }
    }

    /// Starts the first part of a command. If that fails, nothing has run.
    fn start_parts(
        &self,
        launch: &Launch<'_>,
        known: &Known<'_>,
        roster_entry: Option<RosterPlace<'_>>,
        streams: &Arc<Streams>,
        haste: bool,
    ) -> Result<Begun, Why> {
        let Known { called, line, course } = known;
        let folder = Path::new(OsStr::from_bytes(launch.cwd));
        // A driver reports this itself, in its own words.
        let source = folder.join(OsStr::from_bytes(&line.source));
        rustix::fs::access(source, Access::EXISTS).map_err(|_| "its source is not there")?;
        let output = folder.join(OsStr::from_bytes(&line.output));
        // The driver compares the folder to which it leads with the folder of its source.
        if rustix::fs::lstat(&output).is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_symlink()) {
            return Err("its object is a link".into());
        }
        let is_observed = launch.log != Place::default();
        // The result of an old course must not be stored as a result of files that the driver has not seen.
        if is_observed && !course.is_as_watched() {
            return Err("what its driver looks at has changed".into());
        }
        let model = is_observed.then(|| course.model_for(called)).transpose()?;
        let mut names = line.names.clone();
        let parts = course.parts(&mut names, &self.temporary_files);
        let ([first, second], temporary) = parts.map_err(|_| "no temporary file can be made")?;
        let part = first.launch(launch);
        let entered = self.enter(&part, &self.find(&part)?, roster_entry, &[], haste);
        let mut next_parts = NextParts::new(second, output, streams.clone(), temporary);
        next_parts.driver = model.map(|model| {
            names.push(launch.cwd.to_vec());
            DriverPrediction { model, names }
        });
        let next_parts = Some(next_parts);
        match entered {
            Ok(child) => Ok(self.begin(child, next_parts)),
            Err(Why::Awaited(awaited)) => Err(Why::Awaited(Box::new(Awaited { next_parts, ..*awaited }))),
            Err(why) => Err(why),
        }
    }

    /// Runs the driver of a command whose parts have run. It gets their statuses, and does the rest as always.
    pub fn conclude(
        &self,
        launch: &Launch<'_>,
        roster_entry: Option<RosterPlace<'_>>,
        statuses: Vec<i32>,
    ) -> Result<Child, Reason> {
        let number = self.desks.fetch_add(1, Ordering::Relaxed) + 1;
        let answering = Answering::open(self.folder.answering(number)).map_err(|e| e.to_string())?;
        let route = CString::new(answering.path().as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let child = match self.enter(
            launch,
            &self.find(launch)?,
            roster_entry,
            route.as_bytes_with_nul(),
            false,
        ) {
            Ok(child) => child,
            Err(Why::Refused(reason)) => return Err(reason),
            // Only a caller in haste gets this answer.
            Err(_) => return Err("its driver is busy".into()),
        };
        let Child { pid, pidfd } = child;
        let watched = pidfd.try_clone().map_err(|e| e.to_string());
        let told = watched.and_then(|watched| {
            let answer = move || {
                let tell = |number: usize, _| Some(statuses.get(number).copied().unwrap_or(FAILED));
                answering.serve(&watched, tell);
            };
            let clerk = thread::Builder::new().name("conclude".to_owned()).spawn(answer);
            clerk.map_err(|e| e.to_string())
        });
        match told {
            Ok(_) => Ok(Child { pid, pidfd }),
            Err(error) => {
                // No router would answer it, and it must not run its parts again.
                // SAFETY: a child of ours that was not reaped, and the leader of its group.
                unsafe { libc::kill(-pid, libc::SIGKILL) };
                spawn::reap(pid);
                Err(error.into())
            }
        }
    }

    /// Turns a child of a parked program into a command. A driver's child sends what it would exec to `route`.
    fn enter(
        &self,
        launch: &Launch<'_>,
        found: &Found,
        roster_entry: Option<RosterPlace<'_>>,
        route: &[u8],
        haste: bool,
    ) -> Result<Child, Why> {
        let (number, ticket) = roster_entry.ok_or("too many commands run")?;
        if launch.context.personality() != self.own.personality() {
            return Err("its client has another personality".into());
        }
        if launch
            .adjustments
            .iter()
            .any(|a| matches!(a, context::Adjustment::Inherit(_) | context::Adjustment::InheritAs(..)))
        {
            return Err("it inherits a jobserver".into());
        }
        let mut context = launch.context.block();
        for adjustment in launch.own.iter().flatten() {
            match adjustment {
                context::Adjustment::Processors(set) => context::write_set(set, &mut context.processors),
                context::Adjustment::Limit(resource, limit) => {
                    context.limits[*resource as usize] = [limit.rlim_cur, limit.rlim_max];
                }
                _ => return Err("its client is in another control group".into()),
            }
        }
        let stack = context.limits[context::STACK];
        let parked = self.pool.take(&found.program, launch.env, stack)?;
        let routes = if route.is_empty() { 0 } else { ROUTE };
        let session = if launch.new_session { SESSION } else { 0 };
        let score = if context.score == self.own.block().score {
            0
        } else {
            SCORE
        };
        let folder = CString::new(launch.cwd).map_err(|_| "its folder has no name")?;
        let request = Request {
            flags: routes | session | score,
            roster_entry: number,
            group: 0,
            log: launch.log,
            asker: 0,
            path: found.called.to_bytes_with_nul(),
            folder: folder.to_bytes_with_nul(),
            argv: launch.argv.bytes(),
            argc: launch.argv.len(),
            env: launch.env.bytes(),
            envc: launch.env.len(),
            route,
            context,
            streams: launch.stdio,
        };
        let entered = match haste {
            false => parked.ask(&request, ticket),
            true => match parked.ask_briefly(&request, ticket) {
                Brief::Answered(entered) => entered,
                Brief::Busy => return Err(Why::Busy),
                Brief::Awaited(debt) => {
                    let program = found.program.clone();
                    let next_parts = None;
                    let awaited = Awaited {
                        parked,
                        debt,
                        program,
                        next_parts,
                    };
                    return Err(Why::Awaited(Box::new(awaited)));
                }
            },
        };
        let child = entered.map_err(|why| self.not_entered(&found.program, why))?;
        self.pool.count_parked(&found.program);
        Ok(child)
    }

    /// A parked process may have ended. It is reaped now: its program may never be asked for again.
    fn not_entered(&self, program: &Program, why: NotEntered) -> &'static str {
        self.pool.forget_dead(program);
        why.0
    }

    /// Where observed commands put their records. None if there is no memory for it.
    pub fn arena(&self) -> Option<&Arena> {
        self.arena.as_ref()
    }

    /// The path of the library that observes, as programs load it.
    pub fn library(&self) -> Option<&CStr> {
        let install = || match library::install(&self.folder) {
            Ok(path) => Some(path),
            Err(error) => {
                warn!("no command can be observed or parked: {error}");
                None
            }
        };
        self.library.get_or_init(install).as_deref()
    }

    pub fn is_on(&self) -> bool {
        self.pool.is_on()
    }

    pub fn report(&self) -> Value {
        let mut report = self.pool.report();
        report["courses"] = self.courses.report();
        report
    }

    /// Ends all parked programs.
    pub fn close(&self) {
        self.pool.end();
    }
}

/// The program for commands that the library cannot observe: this program, even if its file was replaced since.
fn own_program() -> Option<OwnedFd> {
    let file = std::fs::File::open("/proc/self/exe");
    file.inspect_err(|error| warn!("static programs are not observed: {error}"))
        .ok()
        .map(OwnedFd::from)
}
