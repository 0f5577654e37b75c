//! Starts commands only when they fit into memory, for the builds that ask for it.
//!
//! `admission` decides, `meter` reads, and `peaks` knows what commands needed earlier. Without such a build, nothing is
//! read and nothing is noted.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use log::{debug, info, warn};
use serde_json::{json, Value};

use super::command::Order;
use super::commands::Commands;
use super::slots::{CommandKey, SessionId};
use super::Options;
use crate::process::admission::{Admission, Limit, Shortage};
use crate::process::brake::{Gauges, AGAIN};
use crate::process::meter::{self, MemoryMeter, Reading};
use crate::process::peak_file::PeakFile;
use crate::process::peaks::Names;
use crate::settings::place;
use crate::wire::{Outcome, Verdict};

/// A command for which memory ran out is thought to need so many quarters of what it had.
const MORE: u64 = 6;

pub(super) struct Memory {
    admission: Admission,
    meter: MemoryMeter,
    /// Opened for the first build that asks.
    file: Option<PeakFile>,
    /// Commands that wait or run.
    known: HashMap<CommandKey, Names>,
    /// The kernel's count of processes that it has killed for lack of memory, when it was last read.
    kills: Option<u64>,
    /// Of these, how many belong to no command yet.
    unexplained: u64,
}

impl Memory {
    pub(super) fn new(options: &Options) -> Memory {
        Memory {
            admission: Admission::default(),
            meter: MemoryMeter::new(Gauges::below(&options.gauges)),
            file: None,
            known: HashMap::new(),
            kills: None,
            unexplained: 0,
        }
    }

    pub(super) fn is_off(&self) -> bool {
        self.admission.is_off()
    }

    /// A build says how much memory its commands may take: 0 is what is available, None is no limit.
    pub(super) fn declare(&mut self, session: SessionId, bytes: Option<u64>) {
        let limit = bytes.map(|bytes| match bytes {
            0 => Limit::Available,
            bytes => Limit::Size(bytes >> 10),
        });
        if limit.is_some() && self.file.is_none() {
            self.file = Some(PeakFile::open(place::peaks(), Instant::now()));
        }
        if limit.is_some() || !self.is_off() {
            self.admission.declare(session, limit);
        }
    }

    /// A build is over.
    pub(super) fn leave(&mut self, session: &SessionId) {
        if self.admission.build(session).is_none() {
            return;
        }
        self.admission.leave(session);
        if let Some(file) = &mut self.file {
            file.write(Instant::now());
        }
    }

    /// A command waits for a slot.
    pub(super) fn enter(&mut self, key: CommandKey, order: &Order, client: u32) {
        let Some(build) = self.admission.build_mut(&order.session) else {
            return;
        };
        if build.domains.is_empty() {
            build.domains = meter::domains_of(client);
            build.is_nested = meter::descends_from(client, std::process::id());
            debug!("memory of a build: {:?}, nested: {}", build.domains, build.is_nested);
            self.kills = self.kills.or_else(|| meter::kills(&build.domains));
        }
        self.admission.enter(order.session, key);
        let names = Names::of(&order.execute.argv, &order.execute.cwd);
        self.known.insert(key, names);
    }

    /// The place of the command in a build's queue that may start.
    pub(super) fn pick(
        &mut self,
        session: &SessionId,
        running: usize,
        queue: &VecDeque<CommandKey>,
        commands: &Commands,
        now: Instant,
    ) -> Result<usize, Shortage> {
        if self.admission.build(session).is_none() {
            return Ok(0);
        }
        let Some(file) = &mut self.file else { return Ok(0) };
        if !file.is_ready(now) && self.admission.running() > 0 {
            return Err(Shortage { need: 0, room: 0 });
        }
        let (known, peaks) = (&self.known, file.peaks());
        let need = |key| known.get(&key).map_or(0, |names| peaks.estimate(names));
        let groups = || {
            let running = commands.running().filter(|(_, _, running)| running.pid > 0);
            running.map(|(key, _, running)| (running.pid, key)).collect()
        };
        let mut reading = Reading {
            meter: &mut self.meter,
            groups,
            now,
        };
        self.admission.pick(session, running, queue, need, &mut reading, now)
    }

    /// The command at this place of a build's queue starts.
    pub(super) fn start(&mut self, session: &SessionId, queue: &VecDeque<CommandKey>, place: usize, now: Instant) {
        self.admission.start(session, queue, place, now);
    }

    /// A command has run: what it needed is remembered.
    pub(super) fn learn(&mut self, key: CommandKey, order: &Order, outcome: &Outcome) {
        let Some(names) = self.known.remove(&key) else { return };
        let now = Instant::now();
        let (need, most) = self.admission.end(key, now).unwrap_or_default();
        self.meter.note_end();
        let mut peak = outcome.peak.max(most);
        let has_failed = outcome.verdict == Verdict::Ran && outcome.code != 0;
        let is_killed = has_failed && self.is_out_of_memory(&order.session, outcome.code);
        if is_killed {
            peak = peak.max(need) * MORE / 4;
            self.tell_killed(key, order, peak);
        }
        // A command that was ended early says little.
        if let Some(file) = self.file.as_mut().filter(|_| outcome.verdict == Verdict::Ran) {
            match is_killed {
                true => file.learn_killed(&names, peak, now),
                false => file.learn(&names, peak, now),
            }
        }
    }

    /// Whether the kernel has killed a process, and this failed command explains it. A driver such as gcc fails with a
    /// status of its own if its compiler is killed.
    fn is_out_of_memory(&mut self, session: &SessionId, code: i32) -> bool {
        let Some(build) = self.admission.build(session) else {
            return false;
        };
        let kills = meter::kills(&build.domains);
        if let (Some(before), Some(now)) = (self.kills, kills) {
            self.unexplained += now.saturating_sub(before);
        }
        self.kills = kills.or(self.kills);
        let is_explained = self.unexplained > 0 && (code == -libc::SIGKILL || code > 0);
        self.unexplained -= u64::from(is_explained);
        is_explained
    }

    fn tell_killed(&mut self, key: CommandKey, order: &Order, need: u64) {
        self.admission.note_killed(&order.session);
        let name = order.execute.argv.iter().next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let (others, need) = (self.admission.running(), need >> 10);
        match others {
            0 => warn!("command {key} ({name}) was killed because memory ran out, and no other ran: give it more memory"),
            _ => warn!(
                "command {key} ({name}) was killed because memory ran out, beside {others} others: it counts as at least \
                 {need} MiB from now on; build again"
            ),
        }
    }

    /// A command is over, whether it ran or not.
    pub(super) fn forget(&mut self, key: CommandKey) {
        if self.known.remove(&key).is_some() {
            self.admission.end(key, Instant::now());
        }
    }

    /// When commands that wait for memory are tried again.
    pub(super) fn again(&mut self, now: Instant) -> Instant {
        let is_ready = self.file.as_mut().map_or(true, |file| file.is_ready(now));
        match is_ready {
            true => self.meter.again(now),
            false => now + AGAIN / 20,
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(file) = &mut self.file {
            file.close();
            info!("the peaks of {} commands are known", file.peaks().len());
        }
    }

    pub(super) fn describe(&self) -> Value {
        let Some(file) = &self.file else { return Value::Null };
        let waits = self.admission.waits();
        json!({
            "known": file.peaks().len(),
            "running": self.admission.running(),
            "counted_kib": self.admission.counted(),
            "waited": waits.commands,
            "waited_s": waits.time.as_secs_f64(),
            "killed": waits.killed,
        })
    }

    pub(super) fn describe_build(&self, session: &SessionId) -> Value {
        let Some(build) = self.admission.build(session) else {
            return Value::Null;
        };
        let limit = match build.limit {
            Limit::Available => "what is available".to_owned(),
            Limit::Size(kib) => format!("at most {} MiB", kib >> 10),
        };
        json!({
            "limit": limit,
            "waited": build.waits.commands,
            "waited_s": build.waits.time.as_secs_f64(),
            "killed": build.waits.killed,
        })
    }
}
