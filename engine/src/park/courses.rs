//! The known courses: by driver, environment and shape of the command line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{json, Value};

use super::course::Course;
use super::program::{Identity, Program};
use super::shape::Shape;
use super::survey::Sample;
use crate::wire::Strings;

/// How often a shape is seen before its course is learned, which costs as much as two runs of a driver.
const AFTER: u32 = 2;
/// How often learning is tried: a source may be gone, or its folder be made anew, just when its driver is asked.
const TRIES: u32 = 4;
/// How many are remembered. A project has a few.
const MOST: usize = 256;

enum Standing {
    Seen(u32),
    Surveyed,
    Known(Arc<Course>),
    /// There is none. The words are for `wafd status`.
    Refused(String),
}

struct Entry {
    driver: Identity,
    env: Strings,
    /// The limit of the driver's stack.
    stack: [u64; 2],
    standing: Standing,
    /// How often learning was tried.
    tries: u32,
    used: u64,
}

#[derive(Default)]
struct State {
    shapes: HashMap<Shape, Vec<Entry>>,
    clock: u64,
    commands: u64,
    /// How many of these were observed.
    observed: u64,
}

/// What is known of a command's course.
pub enum Finding {
    Known(Arc<Course>),
    /// It must be learned now, by the caller that gets this.
    Due,
    Unknown,
}

#[derive(Default)]
pub struct Courses {
    state: Mutex<State>,
}

impl Courses {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, driver: &Program, env: &Strings, stack: [u64; 2], shape: &Shape) -> Finding {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        if !state.shapes.contains_key(shape) {
            state.forget_oldest();
        }
        let entries = state.shapes.entry(shape.clone()).or_default();
        entries.retain(|entry| !matches!(&entry.standing, Standing::Known(course) if !course.is_current()));
        let known = entries
            .iter()
            .position(|entry| entry.is_of(&driver.identity, env, stack));
        let at = known.unwrap_or_else(|| {
            entries.push(Entry {
                driver: driver.identity,
                env: env.clone(),
                stack,
                standing: Standing::Seen(0),
                tries: 0,
                used: clock,
            });
            entries.len() - 1
        });
        let entry = &mut entries[at];
        entry.used = clock;
        match &mut entry.standing {
            Standing::Known(course) => Finding::Known(course.clone()),
            Standing::Seen(times) => {
                *times += 1;
                if *times < AFTER {
                    return Finding::Unknown;
                }
                entry.standing = Standing::Surveyed;
                entry.tries += 1;
                Finding::Due
            }
            Standing::Surveyed | Standing::Refused(_) => Finding::Unknown,
        }
    }

    /// The result of learning a course.
    pub fn judge(&self, sample: &Sample, found: Result<Course, String>) {
        let shape = &sample.line.shape;
        self.change(&sample.identity, &sample.env, sample.stack, shape, |entry| {
            entry.standing = match found {
                Ok(course) => Standing::Known(Arc::new(course)),
                Err(_) if entry.tries < TRIES => Standing::Seen(0),
                Err(words) => Standing::Refused(words),
            }
        });
    }

    /// A course that should be learned now cannot be.
    pub fn put_off(&self, driver: &Identity, env: &Strings, stack: [u64; 2], shape: &Shape) {
        self.change(driver, env, stack, shape, |entry| {
            entry.standing = Standing::Seen(0);
            entry.tries -= 1;
        });
    }

    /// If it has been forgotten meanwhile, nothing changes.
    fn change(&self, driver: &Identity, env: &Strings, stack: [u64; 2], shape: &Shape, how: impl FnOnce(&mut Entry)) {
        let mut state = self.state();
        let mut entries = state.shapes.get_mut(shape).into_iter().flatten();
        if let Some(entry) = entries.find(|entry| entry.is_of(driver, env, stack)) {
            how(entry);
        }
    }

    /// A command runs as its parts.
    pub fn count(&self, is_observed: bool) {
        let mut state = self.state();
        state.commands += 1;
        state.observed += u64::from(is_observed);
    }

    pub fn report(&self) -> Value {
        let state = self.state();
        let entries = || state.shapes.values().flatten();
        let known = entries().filter(|entry| matches!(entry.standing, Standing::Known(_)));
        let refused = entries().filter_map(|entry| match &entry.standing {
            Standing::Refused(words) => Some(words.clone()),
            _ => None,
        });
        let untold = entries().filter_map(|entry| match &entry.standing {
            Standing::Known(course) => course.model().err().map(str::to_owned),
            _ => None,
        });
        json!({
            "commands": state.commands,
            "observed": state.observed,
            "known": known.count(),
            "refused": in_order(refused),
            "untold": in_order(untold),
        })
    }
}

fn in_order(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut words: Vec<_> = words.collect();
    words.sort();
    words.dedup();
    words
}

impl Entry {
    fn is_of(&self, driver: &Identity, env: &Strings, stack: [u64; 2]) -> bool {
        self.driver == *driver && self.env == *env && self.stack == stack
    }
}

impl State {
    fn forget_oldest(&mut self) {
        if self.shapes.values().map(Vec::len).sum::<usize>() < MOST {
            return;
        }
        let used = |entries: &Vec<Entry>| entries.iter().map(|entry| entry.used).max();
        let oldest = self.shapes.iter().min_by_key(|(_, entries)| used(entries));
        if let Some(shape) = oldest.map(|(shape, _)| shape.clone()) {
            self.shapes.remove(&shape);
        }
    }
}
