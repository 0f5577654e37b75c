//! Turns records into accesses, and reports what could not be seen.

use super::record::{what, Record, PATHS, REFUSED, WITNESS, WITNESS_LEFT};
use super::DAMAGED;
use crate::observe::access::{Access, What};

pub const UNSEEN: &str = "it cannot be observed";
pub const UNSEEN_CHILD: &str = "a program that it executes cannot be observed";

/// A program that is about to be executed, by a process or by a child that it makes for this.
struct Awaited {
    process: u32,
    /// The token by which the program's begin names this exec.
    token: u32,
    /// The identity of the program that will begin; 0 if it cannot be observed.
    identity: u64,
    /// The position of the exec among the accesses.
    at: usize,
}

/// Turns records into accesses.
#[derive(Default)]
pub struct Reader {
    pub accesses: Vec<Access>,
    /// Programs that were about to be executed.
    awaited: Vec<Awaited>,
    /// A program began that no exec has announced. A program that is not observed has started it.
    is_foreign: bool,
    /// How many second witnesses still run. If one is killed, it never reports its end.
    witnesses: usize,
    /// The first program of each part.
    firsts: Vec<u64>,
    /// Where the accesses of each further part begin.
    breaks: Vec<usize>,
}

impl Reader {
    pub fn take(&mut self, record: Record) -> Result<(), &'static str> {
        let (process, error, token, identity) = (record.process, record.error, record.token, record.identity);
        match record.kind {
            REFUSED => {
                self.refuse(process, error);
                return Ok(());
            }
            WITNESS => {
                self.witnesses += 1;
                return Ok(());
            }
            WITNESS_LEFT => {
                self.witnesses = self.witnesses.checked_sub(1).ok_or(DAMAGED)?;
                return Ok(());
            }
            _ => {}
        }
        // An empty path never leads anywhere.
        if PATHS.contains(&record.kind) && record.first.is_empty() && i32::from(error) == libc::ENOENT {
            return Ok(());
        }
        let what = what(record)?;
        match &what {
            What::Begin { .. } if token == 0 && self.is_at_start() => self.firsts.push(identity),
            What::Begin { parent, .. } => self.begin([process, *parent], token, identity),
            What::Execute { .. } => self.awaited.push(Awaited {
                process,
                token,
                identity,
                at: self.accesses.len(),
            }),
            _ => {}
        }
        // An exec announces the program that will begin, which is another file if the path is a script.
        let identity = if matches!(what, What::Execute { .. }) {
            0
        } else {
            identity
        };
        self.accesses.push(Access {
            process,
            what,
            error,
            identity,
        });
        Ok(())
    }

    /// Whether nothing of the present part has been read yet.
    fn is_at_start(&self) -> bool {
        self.accesses.len() == self.breaks.last().copied().unwrap_or(0)
    }

    /// A begin belongs to one exec, by the same process or its parent, of the same file. A program in between that is not
    /// observed passes on the token with which it was started, but it is another file.
    fn begin(&mut self, processes: [u32; 2], token: u32, identity: u64) {
        let is_meant = |awaited: &Awaited| {
            awaited.token == token && awaited.identity == identity && processes.contains(&awaited.process)
        };
        match self.awaited.iter().position(is_meant) {
            Some(at) if identity != 0 => {
                self.awaited.swap_remove(at);
            }
            _ => self.is_foreign = true,
        }
    }

    /// The last exec of this process has failed.
    fn refuse(&mut self, process: u32, error: u16) {
        if let Some(at) = self.awaited.iter().rposition(|awaited| awaited.process == process) {
            let awaited = self.awaited.remove(at);
            self.accesses[awaited.at].error = error;
        }
    }

    pub fn begin_part(&mut self) {
        self.breaks.push(self.accesses.len());
    }

    pub fn find_unseen(&self) -> Option<&'static str> {
        let is_unseen = self.is_foreign || !self.awaited.is_empty() || self.witnesses > 0;
        let child = || is_unseen.then_some(UNSEEN_CHILD);
        self.find_unbegun().or_else(child)
    }

    /// Each part must begin with the begin of a program.
    pub fn find_unbegun(&self) -> Option<&'static str> {
        let begins = |at: &usize| {
            matches!(
                self.accesses.get(*at).map(|access| &access.what),
                Some(What::Begin { .. })
            )
        };
        let mut firsts = [0].iter().chain(&self.breaks);
        (!firsts.all(begins)).then_some(UNSEEN)
    }

    /// Each part must begin with the program that was started for it.
    pub fn find_exchanged(&self, started: &[Option<u64>]) -> Option<&'static str> {
        let is_other = |(began, started): (&u64, &Option<u64>)| started.is_some_and(|started| started != *began);
        self.firsts.iter().zip(started).any(is_other).then_some(UNSEEN)
    }

    pub fn into_parts(mut self) -> Vec<Vec<Access>> {
        let mut parts: Vec<_> = self
            .breaks
            .iter()
            .rev()
            .map(|at| self.accesses.split_off(*at))
            .collect();
        parts.push(self.accesses);
        parts.reverse();
        parts
    }
}
