//! What is known of each program, by its file: whether it is parked, and why not.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{json, Value};

use super::facts::{self, Facts};
use super::parked::Parked;
use super::policy::Policy;
use super::program::{self, Program};
use super::survey::Sample;
use super::verdict::Verdict;
use crate::wire::Strings;

/// How many variants of one program are kept, which differ in the environment.
const WAYS: usize = 4;
/// A program that ends this often while it is parked is not parked again.
const DEATHS: u32 = 3;

/// A program that gained nothing is tried again after this many starts, and then each time after four times as many.
const AGAIN: u32 = 512;

/// How many programs are remembered. A single configure runs hundreds of its own programs.
const MOST: usize = 512;

/// Why a command was spawned, and not run by a parked program.
pub type Reason = Cow<'static, str>;

/// Requests to the keeper.
pub enum Task {
    Prove(Program, Strings, [u64; 2]),
    Park(Program, Strings, [u64; 2]),
    Survey(Box<Sample>),
    /// A parked process was told to end.
    Bury(i32),
}

#[derive(Debug)]
enum Standing {
    Counting,
    Proving,
    Judged(Verdict),
}

struct Way {
    parked: Arc<Parked>,
    used: u64,
}

struct Entry {
    program: Program,
    standing: Standing,
    /// How often it was started since its last trial.
    seen: u32,
    /// How often it may be started before the next trial.
    patience: u32,
    deaths: u32,
    is_parking: bool,
    ways: Vec<Way>,
    commands: u64,
    used: u64,
}

#[derive(Default)]
struct State {
    entries: HashMap<(u64, u64), Entry>,
    /// Verdicts of earlier engines about programs that were not used yet.
    remembered: Vec<Verdict>,
    spawned: BTreeMap<Reason, u64>,
    commands: u64,
    clock: u64,
}

pub struct Pool {
    policy: Policy,
    is_on: AtomicBool,
    tasks: Sender<Task>,
    state: Mutex<State>,
}

impl Pool {
    pub fn new(policy: Policy, remembered: Vec<Verdict>, tasks: Sender<Task>) -> Pool {
        let state = State {
            remembered,
            ..State::default()
        };
        Pool {
            is_on: policy.on.into(),
            policy,
            tasks,
            state: Mutex::new(state),
        }
    }

    pub fn must_gain(&self) -> bool {
        self.policy.must_gain
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Parks nothing, for a reason that `wafd status` then reports.
    pub fn turn_off(&self, why: &str) {
        self.is_on.store(false, Ordering::Relaxed);
        self.state().spawned.insert(why.to_owned().into(), 0);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parked program that can run a command of this program in this environment.
    pub fn take(&self, program: &Program, env: &Strings, stack: [u64; 2]) -> Result<Arc<Parked>, Reason> {
        if facts::is_foreign(env.iter()) {
            return Err("its environment has a library loaded".into());
        }
        if facts::looks_in_folder(env.iter()) {
            return Err("its loader looks for libraries in its folder".into());
        }
        let mut state = self.state();
        let state = &mut *state;
        state.clock += 1;
        let clock = state.clock;
        let entry = self.entry(state, program);
        entry.used = clock;
        let entry_key = (program.identity.device, program.identity.inode);
        match &entry.standing {
            Standing::Judged(verdict) if verdict.admitted => {}
            Standing::Judged(verdict) => {
                let words = verdict.words.clone();
                entry.seen = entry.seen.saturating_add(1);
                if verdict.is_open && entry.seen >= entry.patience {
                    entry.patience = entry.patience.saturating_mul(4);
                    self.prove(entry, env, stack);
                }
                return Err(words.into());
            }
            Standing::Proving => return Err("it is being proved".into()),
            Standing::Counting => {
                entry.seen += 1;
                if entry.seen >= self.policy.after {
                    self.prove(entry, env, stack);
                }
                return Err("it was not seen often enough".into());
            }
        }
        let Some(entry) = state.entries.get_mut(&entry_key) else {
            return Err("it is not known".into());
        };
        entry.drop_dead(&self.tasks);
        if let Some(way) = entry.ways.iter_mut().find(|way| way.parked.facts.hold(env, stack)) {
            way.used = clock;
            return Ok(way.parked.clone());
        }
        if entry.deaths >= DEATHS {
            let words = "it ended while it was parked, again and again";
            entry.standing = Standing::Judged(Verdict::refused(program, words));
            return Err(words.into());
        }
        if !std::mem::replace(&mut entry.is_parking, true) {
            let _ = self.tasks.send(Task::Park(program.clone(), env.clone(), stack));
        }
        Err("it is being parked".into())
    }

    fn prove(&self, entry: &mut Entry, env: &Strings, stack: [u64; 2]) {
        entry.seen = 0;
        entry.standing = Standing::Proving;
        let task = Task::Prove(entry.program.clone(), env.clone(), stack);
        let _ = self.tasks.send(task);
    }

    /// What is known of a program. If its file has changed, everything is forgotten.
    fn entry<'a>(&self, state: &'a mut State, program: &Program) -> &'a mut Entry {
        let key = (program.identity.device, program.identity.inode);
        let is_stale = state.entries.get(&key).is_some_and(|entry| entry.program != *program);
        if is_stale {
            if let Some(entry) = state.entries.remove(&key) {
                entry.ways.iter().for_each(|way| end(&self.tasks, &way.parked));
            }
        }
        if !state.entries.contains_key(&key) {
            // Another file has the same name, as after an upgrade. The old one will not be started again.
            let path = &program.path;
            let tasks = &self.tasks;
            state.entries.retain(|_, entry| {
                let is_old = entry.program.path == *path;
                if is_old {
                    entry.ways.iter().for_each(|way| end(tasks, &way.parked));
                }
                !is_old
            });
            state
                .remembered
                .retain(|verdict| verdict.is_of(program) || !verdict.has_path(program));
            if state.entries.len() >= MOST {
                state.forget_oldest();
            }
        }
        let (policy, remembered) = (&self.policy, &mut state.remembered);
        state.entries.entry(key).or_insert_with(|| {
            let known = remembered.iter().position(|verdict| verdict.is_of(program));
            let standing = match (known, program::find_obstacle(program, policy)) {
                (_, Some(words)) => Standing::Judged(Verdict::refused(program, words)),
                (Some(known), None) => Standing::Judged(remembered.swap_remove(known)),
                (None, None) => Standing::Counting,
            };
            Entry {
                program: program.clone(),
                standing,
                seen: 0,
                patience: AGAIN,
                deaths: 0,
                is_parking: false,
                ways: Vec::new(),
                commands: 0,
                used: 0,
            }
        })
    }

    /// Asks for the course of a sample to be learned.
    pub fn survey(&self, sample: Sample) {
        let _ = self.tasks.send(Task::Survey(Box::new(sample)));
    }

    /// A command runs in a parked program.
    pub fn count_parked(&self, program: &Program) {
        let mut state = self.state();
        state.commands += 1;
        if let Some(entry) = state.find(program) {
            entry.commands += 1;
        }
    }

    /// Has those processes of a program reaped that have ended.
    pub fn forget_dead(&self, program: &Program) {
        if let Some(entry) = self.state().find(program) {
            entry.drop_dead(&self.tasks);
        }
    }

    pub fn count_spawned(&self, reason: Reason) {
        *self.state().spawned.entry(reason).or_default() += 1;
    }

    // ---- for the keeper

    pub fn judge(&self, program: &Program, verdict: Verdict) {
        if let Some(entry) = self.state().find(program) {
            entry.standing = Standing::Judged(verdict);
        }
    }

    /// The digest of what a program had loaded when it was accepted.
    pub fn admitted_with(&self, program: &Program) -> Option<u64> {
        match &self.state().find(program)?.standing {
            Standing::Judged(verdict) if verdict.admitted => Some(verdict.parts),
            _ => None,
        }
    }

    /// A program was parked, or could not be.
    pub fn add(&self, program: &Program, parked: Result<Parked, String>) {
        let mut state = self.state();
        let clock = state.clock;
        let Some(entry) = state.find(program) else {
            if let Ok(parked) = parked {
                end(&self.tasks, &parked);
            }
            return;
        };
        entry.is_parking = false;
        match parked {
            Err(words) => entry.standing = Standing::Judged(Verdict::refused(program, words)),
            Ok(parked) if parked.memory > self.policy.memory => {
                let words = format!("parked, it takes {} MiB", parked.memory >> 10);
                entry.standing = Standing::Judged(Verdict::refused(program, words));
                end(&self.tasks, &parked);
            }
            Ok(parked) => {
                let parked = Arc::new(parked);
                entry.ways.push(Way { parked, used: clock });
                if entry.ways.len() > WAYS {
                    let oldest = (0..entry.ways.len()).min_by_key(|i| entry.ways[*i].used);
                    oldest
                        .into_iter()
                        .for_each(|i| end(&self.tasks, &entry.ways.swap_remove(i).parked));
                }
            }
        }
        while state.memory() > self.policy.memory {
            let Some(oldest) = state.oldest() else { break };
            end(&self.tasks, &oldest);
        }
    }

    /// The verdicts to be kept for the next engine.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let state = self.state();
        let judged = state.entries.values().filter_map(|entry| match &entry.standing {
            Standing::Judged(verdict) if verdict.is_lasting => Some(verdict.clone()),
            _ => None,
        });
        judged.chain(state.remembered.iter().cloned()).collect()
    }

    /// Ends all parked programs.
    pub fn end(&self) {
        let state = self.state();
        let ways = state.entries.values().flat_map(|entry| &entry.ways);
        ways.for_each(|way| way.parked.end());
    }

    // ---- for wafd status

    pub fn report(&self) -> Value {
        let state = self.state();
        let mut entries: Vec<_> = state.entries.values().collect();
        // Programs that hold memory come first, in case the report is cut off.
        entries.sort_by_key(|entry| Reverse((!entry.ways.is_empty(), entry.commands, entry.used)));
        let known = entries.len();
        let programs: Vec<_> = entries.into_iter().take(PROGRAMS).map(Entry::report).collect();
        let spawned: serde_json::Map<_, _> = state
            .spawned
            .iter()
            .map(|(k, n)| (k.to_string(), (*n).into()))
            .collect();
        json!({
            "on": self.is_on(),
            "commands": state.commands,
            "memory_kib": state.memory(),
            "memory_limit_kib": self.policy.memory,
            "programs": programs,
            "programs_known": known,
            "spawned": spawned,
        })
    }
}

/// The limit of a report, so that it fits into a frame.
const PROGRAMS: usize = 200;

impl State {
    fn find(&mut self, program: &Program) -> Option<&mut Entry> {
        let key = (program.identity.device, program.identity.inode);
        self.entries.get_mut(&key).filter(|entry| entry.program == *program)
    }

    /// Forgets the program that was not used for the longest time, among those that are not in use.
    fn forget_oldest(&mut self) {
        let idle = self.entries.iter().filter(|(_, entry)| entry.is_idle());
        let oldest = idle.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
        let entry = oldest.and_then(|key| self.entries.remove(&key));
        match entry.map(|entry| entry.standing) {
            Some(Standing::Judged(verdict)) if verdict.is_lasting => self.remembered.push(verdict),
            _ => {}
        }
    }

    fn memory(&self) -> u64 {
        let ways = self.entries.values().flat_map(|entry| &entry.ways);
        ways.map(|way| way.parked.memory).sum()
    }

    /// Removes the program that was not used for the longest time.
    fn oldest(&mut self) -> Option<Arc<Parked>> {
        let entry = self
            .entries
            .values_mut()
            .filter(|entry| !entry.ways.is_empty())
            .min_by_key(|entry| entry.ways.iter().map(|way| way.used).min())?;
        let i = (0..entry.ways.len()).min_by_key(|i| entry.ways[*i].used)?;
        Some(entry.ways.swap_remove(i).parked)
    }
}

impl Entry {
    /// Whether it is neither parked nor about to be.
    fn is_idle(&self) -> bool {
        self.ways.is_empty() && !self.is_parking && !matches!(self.standing, Standing::Proving)
    }

    /// Forgets parked processes that have ended, or whose libraries are not those on disk any more.
    fn drop_dead(&mut self, tasks: &Sender<Task>) {
        let deaths = &mut self.deaths;
        self.ways.retain(|way| {
            let is_dead = way.parked.is_dead();
            let is_current = !is_dead && !way.parked.is_stale();
            *deaths += u32::from(is_dead);
            if !is_current {
                end(tasks, &way.parked);
            }
            is_current
        });
    }

    fn report(&self) -> Value {
        let (state, words) = match &self.standing {
            Standing::Counting => ("counting", format!("seen {} times", self.seen)),
            Standing::Proving => ("proving", "a trial runs".to_owned()),
            Standing::Judged(verdict) if !verdict.admitted => ("refused", verdict.words.clone()),
            Standing::Judged(verdict) if self.ways.is_empty() => ("admitted", verdict.words.clone()),
            Standing::Judged(verdict) => ("parked", verdict.words.clone()),
        };
        let ways: Vec<_> = self.ways.iter().map(|way| report_way(&way.parked)).collect();
        json!({
            "path": self.program.path.to_string_lossy(),
            "state": state,
            "words": words,
            "commands": self.commands,
            "parked": ways,
        })
    }
}

fn report_way(parked: &Parked) -> Value {
    let facts: &Facts = &parked.facts;
    json!({"pid": parked.pid, "memory_kib": parked.memory, "variables": facts.names()})
}

fn end(tasks: &Sender<Task>, parked: &Parked) {
    parked.end();
    let _ = tasks.send(Task::Bury(parked.pid));
}
