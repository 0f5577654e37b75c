//! The thread that parks programs, tries them, and reaps those that have ended.
//!
//! It lives as long as the engine: the kernel ends a parked program together with the thread that has started it.

use std::collections::hash_map::DefaultHasher;
use std::ffi::CString;
use std::hash::{Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use log::{info, warn};

use super::courses::Courses;
use super::library::LIBRARY;
use super::parked::{bury, may_pass, Parked, Parking, Part};
use super::pool::{Pool, Task};
use super::program::{Identity, Program};
use super::survey::{Sample, Surveyor};
use super::trial::{self, Refusal};
use super::verdict::{self, Verdict};
use crate::observe::trace::Arena;
use crate::process::context::{self, Context};
use crate::process::roster::{OwnPlace, TemporaryFiles};
use crate::process::spawn::Spawner;
use crate::wire::Strings;

/// How long a parked program may take to end.
const BURIAL: Duration = Duration::from_millis(100);

pub struct Keeper {
    pub pool: Arc<Pool>,
    pub courses: Arc<Courses>,
    pub library: CString,
    pub roster: (OwnedFd, usize),
    pub arena: Option<Arena>,
    /// The place in the roster for what it tries.
    pub place: OwnPlace,
    pub temporary_files: Arc<TemporaryFiles>,
    pub null: OwnedFd,
    /// An empty folder of its own.
    pub folder: PathBuf,
    /// The place of the socket at which surveyed drivers ask.
    pub answering: PathBuf,
    pub verdicts: PathBuf,
    pub context: Context,
    pub graves: Vec<i32>,
}

impl Keeper {
    pub fn work(mut self, tasks: &Receiver<Task>) {
        let mut spawner = match Spawner::new() {
            Ok(spawner) => spawner,
            Err(error) => return warn!("nothing can be parked: {error}"),
        };
        loop {
            let task = if self.graves.is_empty() {
                tasks.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                tasks.recv_timeout(BURIAL)
            };
            match task {
                Ok(Task::Prove(program, env, stack)) => self.prove(&mut spawner, &program, &env, stack),
                Ok(Task::Park(program, env, stack)) => self.park(&mut spawner, &program, &env, stack),
                Ok(Task::Survey(sample)) => self.survey(&sample),
                Ok(Task::Bury(pid)) => self.graves.push(pid),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.graves.retain(|pid| !bury(*pid));
        }
    }

    fn start(
        &self,
        spawner: &mut Spawner,
        program: &Program,
        env: &Strings,
        stack: [u64; 2],
    ) -> Result<Parked, String> {
        let parking = Parking {
            library: &self.library,
            roster: (&self.roster.0, self.roster.1),
            arena: self.arena.as_ref(),
            null: &self.null,
            folder: &self.folder,
            context: &self.context,
        };
        Parked::start(&parking, spawner, &program.path, env, stack)
    }

    /// Tries whether parking a program is correct and gains time.
    fn prove(&mut self, spawner: &mut Spawner, program: &Program, env: &Strings, stack: [u64; 2]) {
        let started = self.start(spawner, program, env, stack);
        let (verdict, parked) = match started {
            Err(words) if may_pass(&words) => (Verdict::refused(program, words).open(), None),
            Err(words) => (Verdict::refused(program, words).lasting(), None),
            Ok(parked) => {
                let env = parked.facts.for_trial(env, self.folder.as_os_str().as_encoded_bytes());
                let bench = trial::Bench {
                    program,
                    env: &env,
                    folder: &self.folder,
                    null: &self.null,
                    context: &self.context,
                    place: self.place,
                    must_gain: self.pool.must_gain(),
                };
                match trial::run(&bench, &parked, spawner, stack) {
                    Ok(words) => (Verdict::admitted(program, words, self.digest(&parked)), Some(parked)),
                    Err(refusal) => {
                        parked.end();
                        self.graves.push(parked.pid);
                        let verdict = match refusal {
                            Refusal::Wrong(words) => Verdict::refused(program, words),
                            Refusal::Undecided(words) => Verdict::refused(program, words).open(),
                        };
                        let is_of_moment = parked.is_stale();
                        (
                            if is_of_moment {
                                verdict.open()
                            } else {
                                verdict.lasting()
                            },
                            None,
                        )
                    }
                }
            }
        };
        info!("{}: {}", program.path.to_string_lossy(), verdict.words);
        self.pool.judge(program, verdict);
        if let Some(parked) = parked {
            self.pool.add(program, Ok(parked));
        }
        if let Err(error) = verdict::save(&self.verdicts, &self.pool.verdicts()) {
            warn!("write {}: {error}", self.verdicts.display());
        }
    }

    /// Learns which parts a driver runs for commands of a shape.
    fn survey(&self, sample: &Sample) {
        let mut context = self.context.block();
        context.limits[context::STACK] = sample.stack;
        let surveyor = Surveyor {
            arena: self.arena.as_ref(),
            place: self.place,
            temporary_files: &self.temporary_files,
            null: &self.null,
            folder: &self.folder,
            answering: self.answering.clone(),
            context,
        };
        let found = surveyor.survey(sample);
        let called = sample.called.to_string_lossy();
        match &found {
            Ok(course) => {
                let told = course
                    .model()
                    .err()
                    .map(|words| format!(", but not of observed ones: {words}"));
                let told = told.unwrap_or_default();
                info!("{called}: the course of a shape of commands is known{told}");
            }
            Err(words) => info!("{called}: a shape of commands has no course: {words}"),
        }
        self.courses.judge(sample, found);
    }

    /// Parks a program that was accepted. Tries it again if it now loads other libraries.
    fn park(&mut self, spawner: &mut Spawner, program: &Program, env: &Strings, stack: [u64; 2]) {
        let parked = self.start(spawner, program, env, stack);
        match &parked {
            Ok(fresh) if self.pool.admitted_with(program) != Some(self.digest(fresh)) => {
                fresh.end();
                self.graves.push(fresh.pid);
                self.prove(spawner, program, env, stack);
            }
            _ => self.pool.add(program, parked),
        }
    }

    /// Each engine makes its library and its roster anew. The library counts by its content.
    fn digest(&self, parked: &Parked) -> u64 {
        let roster = rustix::fs::fstat(&self.roster.0).ok();
        let own = [Identity::at(&self.library), roster.map(|stat| Identity::of(&stat))];
        let own = own.map(|found| found.map(|identity| (identity.device, identity.inode)));
        let is_own = |part: &&Part| {
            let file = part.identity.map(|identity| (identity.device, identity.inode));
            file.is_some() && own.contains(&file)
        };
        let mut hasher = DefaultHasher::new();
        LIBRARY.hash(&mut hasher);
        let others = parked.parts().filter(|part| !is_own(part));
        others.for_each(|part| part.hash(&mut hasher));
        hasher.finish()
    }
}
