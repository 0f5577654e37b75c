//! Makes accesses of records, and tells what was not seen.

use super::record::{what, Record, PATHS, REFUSED};
use crate::cache::access::{Access, What};

pub const UNSEEN: &str = "it cannot be observed";
pub const UNSEEN_CHILD: &str = "a program that it executes cannot be observed";

/// Makes accesses of records.
#[derive(Default)]
pub struct Reader {
    pub accesses: Vec<Access>,
    /// Processes that were about to execute a program, or to make a child that does, and where that is said.
    awaited: Vec<(u32, usize)>,
    /// Where the accesses of further parts begin.
    breaks: Vec<usize>,
}

impl Reader {
    pub fn take(&mut self, record: Record) -> Result<(), &'static str> {
        let (process, error) = (record.process, record.error);
        if record.kind == REFUSED {
            self.refuse(process, error);
            return Ok(());
        }
        // Nothing is ever where an empty path leads.
        if PATHS.contains(&record.kind) && record.first.is_empty() && i32::from(error) == libc::ENOENT {
            return Ok(());
        }
        let what = what(record)?;
        match &what {
            What::Begin { parent, .. } => self.begin(process, *parent),
            What::Execute { .. } => self.awaited.push((process, self.accesses.len())),
            _ => {}
        }
        self.accesses.push(Access { process, what, error });
        Ok(())
    }

    fn begin(&mut self, process: u32, parent: u32) {
        let of = |wanted: u32| self.awaited.iter().position(|(process, _)| *process == wanted);
        if let Some(at) = of(process).or_else(|| of(parent)) {
            self.awaited.swap_remove(at);
        }
    }

    /// The last that this process was about to execute was not executed.
    fn refuse(&mut self, process: u32, error: u16) {
        if let Some(at) = self.awaited.iter().rposition(|(awaited, _)| *awaited == process) {
            let (_, access) = self.awaited.remove(at);
            self.accesses[access].error = error;
        }
    }

    pub fn begin_part(&mut self) {
        self.breaks.push(self.accesses.len());
    }

    pub fn find_unseen(&self) -> Option<&'static str> {
        let child = || (!self.awaited.is_empty()).then_some(UNSEEN_CHILD);
        self.find_unbegun().or_else(child)
    }

    /// Each part must begin as a program does.
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
