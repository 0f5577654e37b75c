//! Audits: a configured share of the hits is compiled again, in another folder and when the machine is idle, and the
//! result is compared with the one that the cache gave. Of what a cluster has made, the same share is not used: the command
//! runs here, too, and both results are compared.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use super::answer::{Audited, Question, Ticket};
use super::away::NotAway;
use super::compiler::action::Action;
use super::lookup::entry::{Entry, Print};
use super::remote::Executor;
use super::rerun::{Due, NotCompared, Purpose, Results, Run};
use super::store::EntryRef;
use super::tally::Counter;
use super::Cache;

/// Shares of hits are counted in millionths.
const WHOLE: u64 = 1_000_000;

#[derive(Default)]
pub struct Audit {
    share: AtomicU64,
    /// Grows by the share with each hit. Each time that it passes a multiple of `WHOLE`, an audit is due.
    sum: AtomicU64,
    /// How many hits wait to be compiled again, with the one that is being compiled.
    waiting: AtomicUsize,
}

impl Audit {
    pub fn set(&self, percent: f64) {
        let share = (percent.clamp(0.0, 100.0) / 100.0 * WHOLE as f64) as u64;
        self.share.store(share, Ordering::Relaxed);
    }

    pub fn percent(&self) -> f64 {
        self.share.load(Ordering::Relaxed) as f64 * 100.0 / WHOLE as f64
    }

    pub fn is_due(&self) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        let before = self.sum.fetch_add(share, Ordering::Relaxed);
        before / WHOLE != before.wrapping_add(share) / WHOLE
    }

    pub fn set_waiting(&self, count: usize) {
        self.waiting.store(count, Ordering::Relaxed);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A cluster has made something else of a command than this machine.
pub(super) struct SampleDue {
    /// The entry of what was made here.
    here: EntryRef,
    /// The parts that differ, in words.
    what: String,
    executor: Arc<dyn Executor>,
}

impl Cache {
    /// The data for compiling a hit again later. `None` if its outputs cannot be written to another folder.
    pub(super) fn due(&self, question: &Question, action: &Action, hit: &Audited) -> Option<Box<Due>> {
        let prints = [&hit.entry.stdout, &hit.entry.stderr];
        let is_silent = prints.into_iter().all(|print| *print == Print::default());
        let is_whole = hit.entry.outputs.iter().all(|output| output.number.is_some());
        if !is_whole || (question.wishes.terminal.is_some() && !is_silent) {
            return None;
        }
        self.redirected(question, action.key, &self.rerun_folder(false))?;
        Some(Box::new(Due {
            question: question.repeated(),
            key: action.key,
            purpose: Purpose::Audit(hit.known),
        }))
    }

    /// Compiles a hit again and compares.
    pub(super) fn audit(&self, due: &Due, known: &EntryRef, run: Run) -> Result<(), NotCompared> {
        let different = self.compare_with_rerun(due, known, run)?;
        self.count(&Counter::Audited);
        if let Some(what) = different {
            self.report_difference(&due.question, known, &what);
        }
        Ok(())
    }

    /// The cache has given a wrong result: reports this, and removes the entry.
    pub(super) fn report_difference(&self, question: &Question, known: &EntryRef, what: &str) {
        let command = question.command();
        log::error!("the cache has another result ({what}) than a compile for: {command}");
        self.count(&Counter::Different);
        self.journal.note_difference(&format!("{what}: {command}"));
        self.store.remove_entry(known);
    }

    /// Compares what a command has made here, which is stored as `here`, with what a cluster has made of it. If both differ,
    /// returns the data for a second compile here, which says whether that is the cluster's fault.
    pub(super) fn compare_sample(&self, ticket: &Ticket, fresh: &Entry, here: &EntryRef) -> Option<Due> {
        let sample = ticket.sample.as_ref()?;
        let there = Results::of_entry(&sample.entry);
        if there == Results::of_entry(fresh) {
            self.count(&Counter::Audited);
            return None;
        }
        let (question, key) = (ticket.question.repeated(), ticket.action.key);
        let executor = sample.executor.clone();
        let sample = SampleDue {
            here: *here,
            what: Results::of_entry(fresh).difference_from(&there),
            executor,
        };
        if self.redirected(&question, key, &self.rerun_folder(true)).is_none() {
            self.report_cluster(&question, &sample);
            return None;
        }
        Some(Due {
            question,
            key,
            purpose: Purpose::Sample(sample),
        })
    }

    /// Compiles a second time what a cluster has made otherwise. Some compilers write random numbers into their outputs.
    pub(super) fn audit_sample(&self, due: &Due, sample: &SampleDue, run: Run) -> Result<(), NotCompared> {
        match self.compare_with_rerun(due, &sample.here, run)? {
            Some(_) => Err(NotCompared::Unsteady),
            None => {
                self.report_cluster(&due.question, sample);
                Ok(())
            }
        }
    }

    /// A cluster has given a wrong result: reports this, and leaves it alone.
    fn report_cluster(&self, question: &Question, sample: &SampleDue) {
        let (name, what, command) = (sample.executor.name(), &sample.what, question.command());
        sample.executor.distrust();
        log::error!(
            "{name} is left alone until the engine ends: it has another result ({what}) than a compile here for: \
             {command}; wafcc --clear removes what came from it before"
        );
        self.count(&Counter::Audited);
        self.count(&Counter::Different);
        self.count(&Counter::NotAway(NotAway::Different));
        self.journal
            .note_difference(&format!("made by {name}: {what}: {command}"));
    }

    /// The parts of the result that differ, in words, if there are any.
    pub(super) fn compare_with_rerun(
        &self,
        due: &Due,
        known: &EntryRef,
        run: Run,
    ) -> Result<Option<String>, NotCompared> {
        let entry = self.read(known).ok_or(NotCompared::EntryGone)?.entry;
        self.require_facts(due, &entry)?;
        let known = Results::of_entry(&entry);
        let first = self.run_again(due, run)?;
        self.require_facts(due, &entry)?;
        if first == known {
            return Ok(None);
        }
        // Some compilers write random numbers into their outputs. That is no fault of the cache.
        let second = self.run_again(due, run)?;
        self.require_facts(due, &entry)?;
        match second == first {
            true => Ok(Some(first.difference_from(&known))),
            false => Err(NotCompared::Unsteady),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_due() {
        let audit = Audit::default();
        for (percent, wanted) in [(0.0, 0), (100.0, 1000), (2.5, 25), (300.0, 1000)] {
            audit.set(percent);
            let found = (0..1000).filter(|_| audit.is_due()).count();
            assert!(found.abs_diff(wanted) <= 1, "{percent}: {found}");
        }
    }
}
