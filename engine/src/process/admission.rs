//! Decides which command may start without memory running out.
//!
//! Pure: builds and commands are numbers, `Meter` reads, and the clock is passed in. Sizes are in KiB.
//!
//! A command starts if its estimate fits beside what the running commands still may take. A running command counts with
//! its estimate, or with what it uses if that is more. These rules keep every build going:
//!
//! - If no command is counted, the next one starts, also if its estimate is larger than what is available.
//! - A build that a counted command has started may always run one command: the other one waits for it.
//! - A command that others have overtaken `MOST_OVERTAKEN` times lets no other start before it.
//! - A command starts without room when it has waited for `PATIENCE`, and no counted command has ended in that time.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub type BuildId = [u8; 16];
pub type CommandKey = u64;

/// As many commands at the head of a queue are looked at.
const WINDOW: usize = 128;
/// After so many, a command lets no other overtake it. Until then, lighter commands fill the room that is left.
const MOST_OVERTAKEN: u32 = 16;
/// How long a build that runs a command waits for the next end of a command.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same for a build that runs none. From then on it need not wait for its first command.
const PATIENCE_AT_FIRST: Duration = Duration::from_secs(60);
/// A command that lets no other start must have been tried so recently. Otherwise something else holds it back.
const RESERVED: Duration = Duration::from_secs(1);
/// A shorter wait is none.
const SHORTEST: Duration = Duration::from_millis(1);

/// Where memory can run out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Domain {
    Machine,
    /// The folder of a control group.
    Group(PathBuf),
}

/// Reads what changes outside.
pub trait Meter {
    /// The memory that can still be taken in a domain. A new reading if the last one is too old, or for `is_short` if one
    /// may be made. None if there is no limit.
    fn available(&mut self, domain: &Domain, is_short: bool) -> Option<u64>;
    /// What the running commands use now. None if it is too early for another reading.
    fn used(&mut self) -> Option<HashMap<CommandKey, u64>>;
}

/// The limit that a build asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// What is available.
    Available,
    /// This size, and what is available.
    Size(u64),
}

/// A build in which commands start when they fit.
#[derive(Debug)]
pub struct Build {
    pub limit: Limit,
    /// Empty until its first command waits.
    pub domains: Vec<Domain>,
    /// It may always run one command.
    pub is_nested: bool,
    /// The command at the head of its queue, if it did not fit when it was tried.
    held: Option<CommandKey>,
    pub waits: Waits,
}

/// The waits for memory so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Waits {
    /// Commands that have waited and started.
    pub commands: u64,
    pub time: Duration,
    /// Commands that ended because memory had run out.
    pub killed: u64,
}

impl Waits {
    fn add(&mut self, time: Duration) {
        self.commands += 1;
        self.time += time;
    }
}

/// A command that waits or runs.
#[derive(Debug)]
struct Tracked {
    build: BuildId,
    need: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits { since: Option<Instant>, overtaken: u32 },
    Runs { used: u64, most: u64 },
}

/// Why no command of a build starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The estimate of the next command.
    pub need: u64,
    pub room: u64,
}

#[derive(Debug, Default)]
pub struct Admission {
    builds: HashMap<BuildId, Build>,
    commands: HashMap<CommandKey, Tracked>,
    running: usize,
    /// The command that lets no other start before it, and when it was last tried.
    reserved: Option<(CommandKey, Instant)>,
    last_end: Option<Instant>,
    waits: Waits,
}

impl Admission {
    /// No build asks for it.
    pub fn is_off(&self) -> bool {
        self.builds.is_empty()
    }

    pub fn build(&self, id: &BuildId) -> Option<&Build> {
        self.builds.get(id)
    }

    pub fn build_mut(&mut self, id: &BuildId) -> Option<&mut Build> {
        self.builds.get_mut(id)
    }

    /// The waits of all builds.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// The sum of what the running commands may need.
    pub fn counted(&self) -> u64 {
        self.loads().map(|(_, need, used)| need.max(used)).sum()
    }

    /// A build asks for a limit, or for none.
    pub fn declare(&mut self, id: BuildId, limit: Option<Limit>) {
        let Some(limit) = limit else {
            return self.leave(&id);
        };
        let build = self.builds.entry(id).or_insert_with(|| Build {
            limit,
            domains: Vec::new(),
            is_nested: false,
            held: None,
            waits: Waits::default(),
        });
        build.limit = limit;
    }

    /// A build is over, or asks for nothing any more. Its running commands count until they end.
    pub fn leave(&mut self, id: &BuildId) {
        self.builds.remove(id);
        self.commands
            .retain(|_, tracked| tracked.build != *id || matches!(tracked.state, State::Runs { .. }));
    }

    /// A command waits for a slot.
    pub fn enter(&mut self, build: BuildId, command: CommandKey) {
        let (since, overtaken) = (None, 0);
        let state = State::Waits { since, overtaken };
        self.commands
            .entry(command)
            .or_insert(Tracked { build, need: 0, state });
    }

    /// The place in a build's queue of the command that may start. `running` is how many the build runs. `need` is the
    /// estimate for a command.
    pub fn pick(
        &mut self,
        id: &BuildId,
        running: usize,
        queue: &VecDeque<CommandKey>,
        need: impl Fn(CommandKey) -> u64,
        meter: &mut impl Meter,
        now: Instant,
    ) -> Result<usize, Shortage> {
        let Some(build) = self.builds.get(id) else {
            return Ok(0);
        };
        if build.is_nested && running == 0 {
            return Ok(0);
        }
        for key in queue.iter().take(WINDOW) {
            if let Some(tracked) = self.commands.get_mut(key) {
                tracked.need = need(*key);
            }
        }
        let needs: Vec<u64> = queue.iter().take(WINDOW).map(|key| self.need_of(*key)).collect();
        let mut room = self.room(id, meter, false);
        if needs.iter().any(|need| *need > room) {
            if let Some(used) = meter.used() {
                self.note_used(&used);
            }
            room = self.room(id, meter, true);
        }
        let urgent = queue.iter().take(WINDOW).position(|key| self.is_urgent(*key));
        let is_reserved = self.reserved.is_some_and(|(key, at)| {
            now.saturating_duration_since(at) < RESERVED && !queue.contains(&key) && self.commands.contains_key(&key)
        });
        let picked = match urgent {
            _ if is_reserved && self.running > 0 => None,
            Some(place) => (needs[place] <= room).then_some(place),
            None => choose(&needs, room),
        };
        let first = urgent.unwrap_or(0);
        let picked = picked.or_else(|| {
            let is_patient = self.running > 0 && !self.is_over_patience(id, queue, running, now);
            (!is_patient).then_some(first)
        });
        if let Some(place) = picked {
            return Ok(place);
        }
        if let Some(place) = urgent {
            self.reserved = Some((queue[place], now));
        }
        self.hold(id, queue, now);
        let need = needs.get(first).copied().unwrap_or_default();
        Err(Shortage { need, room })
    }

    fn need_of(&self, key: CommandKey) -> u64 {
        self.commands.get(&key).map_or(0, |tracked| tracked.need)
    }

    fn is_urgent(&self, key: CommandKey) -> bool {
        let tracked = self.commands.get(&key);
        tracked.is_some_and(
            |tracked| matches!(tracked.state, State::Waits { overtaken, .. } if overtaken >= MOST_OVERTAKEN),
        )
    }

    /// The first command of the queue has waited long enough, and nothing has ended meanwhile.
    fn is_over_patience(&mut self, id: &BuildId, queue: &VecDeque<CommandKey>, running: usize, now: Instant) -> bool {
        let since = queue.front().and_then(|key| match self.commands.get(key)?.state {
            State::Waits { since, .. } => since,
            State::Runs { .. } => None,
        });
        let Some(since) = since else { return false };
        let since = self.last_end.map_or(since, |end| end.max(since));
        let patience = if running == 0 { PATIENCE_AT_FIRST } else { PATIENCE };
        if now.saturating_duration_since(since) < patience {
            return false;
        }
        if let Some(build) = self.builds.get_mut(id).filter(|_| running == 0) {
            build.is_nested = true;
        }
        true
    }

    /// The memory that a further command of a build can have.
    fn room(&self, id: &BuildId, meter: &mut impl Meter, is_short: bool) -> u64 {
        let Some(build) = self.builds.get(id) else {
            return u64::MAX;
        };
        let mut room = match build.limit {
            Limit::Available => u64::MAX,
            Limit::Size(size) => {
                let own = self.loads().filter(|(of, ..)| *of == id);
                size.saturating_sub(own.map(|(_, need, used)| need.max(used)).sum())
            }
        };
        for domain in &build.domains {
            let Some(available) = meter.available(domain, is_short) else {
                continue;
            };
            // What commands of an unknown place still take may be missing here.
            let shares = |of: &BuildId| {
                let build = self.builds.get(of);
                build.map_or(true, |build| build.domains.contains(domain))
            };
            let to_come = self.loads().filter(|(of, ..)| shares(of));
            let to_come: u64 = to_come.map(|(_, need, used)| need.saturating_sub(used)).sum();
            room = room.min(available.saturating_sub(to_come));
        }
        room
    }

    /// Build, need and use of each running command.
    fn loads(&self) -> impl Iterator<Item = (&BuildId, u64, u64)> {
        self.commands.values().filter_map(|tracked| match tracked.state {
            State::Runs { used, .. } => Some((&tracked.build, tracked.need, used)),
            State::Waits { .. } => None,
        })
    }

    fn note_used(&mut self, readings: &HashMap<CommandKey, u64>) {
        for (key, now) in readings {
            let tracked = self.commands.get_mut(key);
            if let Some(State::Runs { used, most }) = tracked.map(|tracked| &mut tracked.state) {
                *used = *now;
                *most = (*most).max(*now);
            }
        }
    }

    /// Nothing of a build starts now.
    fn hold(&mut self, id: &BuildId, queue: &VecDeque<CommandKey>, now: Instant) {
        if let Some(build) = self.builds.get_mut(id) {
            build.held = queue.front().copied();
        }
        let head = queue.front().and_then(|key| self.commands.get_mut(key));
        if let Some(State::Waits { since, .. }) = head.map(|head| &mut head.state) {
            since.get_or_insert(now);
        }
    }

    /// The command at this place of a build's queue starts.
    pub fn start(&mut self, id: &BuildId, queue: &VecDeque<CommandKey>, place: usize, now: Instant) {
        let key = queue[place];
        let Some(tracked) = self.commands.get_mut(&key) else {
            return;
        };
        let waited = match tracked.state {
            State::Waits { since, .. } => since.map(|since| now.saturating_duration_since(since)),
            State::Runs { .. } => return,
        };
        let (used, most) = (0, 0);
        tracked.state = State::Runs { used, most };
        self.running += 1;
        self.reserved = self.reserved.filter(|(reserved, _)| *reserved != key);
        if let Some(build) = self.builds.get_mut(id) {
            build.held = None;
            if let Some(waited) = waited.filter(|waited| *waited >= SHORTEST) {
                build.waits.add(waited);
                self.waits.add(waited);
            }
        }
        let others = self.builds.values().filter_map(|build| build.held);
        let overtaken: Vec<_> = queue.iter().take(place).copied().chain(others).collect();
        for key in overtaken {
            let tracked = self.commands.get_mut(&key);
            if let Some(State::Waits { since, overtaken }) = tracked.map(|tracked| &mut tracked.state) {
                since.get_or_insert(now);
                *overtaken += 1;
            }
        }
    }

    /// A command is over. If it ran: its estimate, and the most that a reading has found.
    pub fn end(&mut self, command: CommandKey, now: Instant) -> Option<(u64, u64)> {
        let tracked = self.commands.remove(&command)?;
        match tracked.state {
            State::Runs { most, .. } => {
                self.running -= 1;
                self.last_end = Some(now);
                Some((tracked.need, most))
            }
            State::Waits { .. } => None,
        }
    }

    /// How many commands are counted.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Memory ran out for a command.
    pub fn note_killed(&mut self, id: &BuildId) {
        self.waits.killed += 1;
        if let Some(build) = self.builds.get_mut(id) {
            build.waits.killed += 1;
        }
    }
}

/// The place of the command to start, if one fits. If all fit, the order stays. Otherwise the largest goes first that
/// fits, because room for it is rare, and light commands find room beside it.
fn choose(needs: &[u64], room: u64) -> Option<usize> {
    let all = needs.iter().fold(0, |sum: u64, need| sum.saturating_add(*need));
    if all <= room {
        return (!needs.is_empty()).then_some(0);
    }
    let fitting = needs.iter().enumerate().filter(|(_, need)| **need <= room);
    // `max_by_key` takes the last of equals.
    fitting.rev().max_by_key(|(_, need)| **need).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: BuildId = [1; 16];
    const B: BuildId = [2; 16];
    const NESTED: BuildId = [3; 16];

    /// A machine on which commands take what they need when they start.
    struct Machine {
        admission: Admission,
        queues: HashMap<BuildId, VecDeque<CommandKey>>,
        needs: HashMap<CommandKey, u64>,
        ran: Vec<CommandKey>,
        available: u64,
        now: Instant,
    }

    struct Fixed(u64);

    impl Meter for Fixed {
        fn available(&mut self, _: &Domain, _: bool) -> Option<u64> {
            Some(self.0)
        }

        fn used(&mut self) -> Option<HashMap<CommandKey, u64>> {
            None
        }
    }

    impl Machine {
        fn new(available: u64) -> Machine {
            let mut machine = Machine {
                admission: Admission::default(),
                queues: HashMap::new(),
                needs: HashMap::new(),
                ran: Vec::new(),
                available,
                now: Instant::now(),
            };
            machine.enter(A, Limit::Available);
            machine
        }

        fn enter(&mut self, id: BuildId, limit: Limit) {
            self.admission.declare(id, Some(limit));
            self.admission.build_mut(&id).unwrap().domains = vec![Domain::Machine];
        }

        fn submit(&mut self, id: BuildId, needs: &[u64]) {
            for need in needs {
                let key = self.needs.len() as u64;
                self.needs.insert(key, *need);
                self.queues.entry(id).or_default().push_back(key);
                self.admission.enter(id, key);
            }
        }

        fn running_of(&self, id: &BuildId) -> usize {
            self.admission.loads().filter(|(of, ..)| *of == id).count()
        }

        /// Starts what may start, and returns the needs of that.
        fn start(&mut self, id: BuildId) -> Vec<u64> {
            let mut started = Vec::new();
            while !self.queues[&id].is_empty() {
                let running = self.running_of(&id);
                let needs = &self.needs;
                let queue = &self.queues[&id];
                let picked = self.admission.pick(
                    &id,
                    running,
                    queue,
                    |key| needs[&key],
                    &mut Fixed(self.available),
                    self.now,
                );
                let Ok(place) = picked else { break };
                self.admission.start(&id, queue, place, self.now);
                let key = self.queues.get_mut(&id).unwrap().remove(place).unwrap();
                self.ran.push(key);
                started.push(self.needs[&key]);
            }
            started
        }

        fn end(&mut self, need: u64) {
            let place = self.ran.iter().position(|key| self.needs[key] == need).unwrap();
            let key = self.ran.remove(place);
            self.admission.end(key, self.now);
        }

        fn wait(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn commands_start_as_long_as_they_fit() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[400, 500, 300]);
        assert_eq!(machine.start(A), [500, 400]);
        machine.end(400);
        assert_eq!(machine.start(A), [300]);
    }

    #[test]
    fn where_all_fit_the_order_stays() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[1, 3, 2]);
        assert_eq!(machine.start(A), [1, 3, 2]);
    }

    #[test]
    fn one_command_runs_even_if_it_does_not_fit() {
        let mut machine = Machine::new(100);
        machine.submit(A, &[5000, 4000]);
        assert_eq!(machine.start(A), [5000]);
        assert!(machine.start(A).is_empty());
        machine.end(5000);
        assert_eq!(machine.start(A), [4000]);
    }

    #[test]
    fn a_size_limits_the_build_that_asks_for_it() {
        let mut machine = Machine::new(10_000);
        machine.enter(B, Limit::Size(500));
        machine.submit(B, &[300, 300, 100]);
        assert_eq!(machine.start(B), [300, 100]);
        machine.submit(A, &[3000, 3000]);
        assert_eq!(machine.start(A), [3000, 3000]);
    }

    #[test]
    fn a_heavy_command_is_not_overtaken_for_ever() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[100]);
        assert_eq!(machine.start(A), [100]);
        machine.submit(A, &[950]);
        let mut started = 0;
        loop {
            machine.submit(A, &[100]);
            let more = machine.start(A);
            if more.is_empty() {
                break;
            }
            started += more.len() as u32;
            machine.end(100);
            assert!(started <= MOST_OVERTAKEN);
        }
        assert_eq!(started, MOST_OVERTAKEN);
        machine.end(100);
        assert_eq!(machine.start(A), [950]);
    }

    #[test]
    fn a_build_does_not_starve_another_ones_heavy_command() {
        let mut machine = Machine::new(1000);
        machine.enter(B, Limit::Available);
        machine.submit(A, &[100]);
        machine.start(A);
        machine.submit(A, &[950]);
        machine.submit(B, &[50; 40]);
        assert!(machine.start(A).is_empty());
        for _ in 0..MOST_OVERTAKEN {
            let queue = machine.queues[&B].clone();
            machine.admission.start(&B, &queue, 0, machine.now);
            machine
                .ran
                .push(machine.queues.get_mut(&B).unwrap().pop_front().unwrap());
        }
        assert!(machine.start(A).is_empty());
        assert!(machine.start(B).is_empty(), "the heavy one is next");
        machine.end(100);
        (0..MOST_OVERTAKEN).for_each(|_| machine.end(50));
        assert_eq!(machine.start(A), [950]);
    }

    #[test]
    fn a_command_that_cannot_be_tried_holds_up_nothing() {
        let mut machine = Machine::new(1000);
        machine.enter(B, Limit::Available);
        machine.submit(A, &[100]);
        machine.start(A);
        machine.submit(A, &[950]);
        let heavy = machine.queues[&A][0];
        machine.admission.reserved = Some((heavy, machine.now));
        machine.submit(B, &[50]);
        assert!(machine.start(B).is_empty());
        machine.wait(2);
        assert_eq!(machine.start(B), [50]);
    }

    #[test]
    fn a_build_inside_a_command_goes_on() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[900]);
        machine.start(A);
        machine.enter(NESTED, Limit::Available);
        machine.submit(NESTED, &[900, 900]);
        assert!(machine.start(NESTED).is_empty());
        machine.admission.build_mut(&NESTED).unwrap().is_nested = true;
        assert_eq!(machine.start(NESTED), [900]);
    }

    #[test]
    fn each_wait_has_an_end() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[900, 800]);
        assert_eq!(machine.start(A), [900]);
        machine.wait(299);
        assert!(machine.start(A).is_empty());
        machine.wait(1);
        assert_eq!(machine.start(A), [800]);
        machine.enter(B, Limit::Available);
        machine.submit(B, &[900]);
        assert!(machine.start(B).is_empty());
        machine.wait(60);
        assert_eq!(machine.start(B), [900]);
    }

    #[test]
    fn what_a_command_uses_counts_if_it_is_more() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[100, 400]);
        let queue = machine.queues[&A].clone();
        machine.admission.start(&A, &queue, 0, machine.now);
        machine.admission.commands.get_mut(&0).unwrap().need = 100;
        assert_eq!(machine.admission.counted(), 100);
        machine.admission.note_used(&HashMap::from([(0, 700)]));
        assert_eq!(machine.admission.counted(), 700);
        machine.admission.note_used(&HashMap::from([(0, 50)]));
        assert_eq!(machine.admission.end(0, machine.now), Some((100, 700)));
    }

    #[test]
    fn what_is_used_already_is_not_counted_twice() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[600, 600]);
        assert_eq!(machine.start(A), [600]);
        // The command has taken its 600 of 1300.
        machine.available = 700;
        assert!(machine.start(A).is_empty());
        let first = machine.ran[0];
        machine.admission.note_used(&HashMap::from([(first, 600)]));
        assert_eq!(machine.start(A), [600]);
    }

    #[test]
    fn waits_are_counted() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[900, 800]);
        machine.start(A);
        machine.wait(3);
        machine.end(900);
        machine.start(A);
        let waits = machine.admission.waits();
        assert_eq!((waits.commands, waits.time), (1, Duration::from_secs(3)));
        assert_eq!(machine.admission.build(&A).unwrap().waits, waits);
    }

    #[test]
    fn a_build_that_leaves_takes_its_waiting_commands_with_it() {
        let mut machine = Machine::new(1000);
        machine.submit(A, &[900, 800]);
        machine.start(A);
        machine.admission.leave(&A);
        assert!(machine.admission.is_off());
        assert_eq!((machine.admission.running(), machine.admission.commands.len()), (1, 1));
        machine.end(900);
        assert_eq!((machine.admission.running(), machine.admission.commands.len()), (0, 0));
    }

    /// Two hundred commands in random order never take more than there is, and all of them run.
    #[test]
    fn a_build_stays_within_the_room() {
        let mut machine = Machine::new(1200);
        let mut random = 12345_u64;
        let mut next = || {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            random >> 33
        };
        let needs: Vec<u64> = (0..200).map(|_| 50 + next() % 751).collect();
        machine.submit(A, &needs);
        let mut ran = 0;
        while ran < needs.len() {
            ran += machine.start(A).len();
            let counted = machine.admission.counted();
            assert!(machine.ran.len() == 1 || counted <= 1200, "{counted}");
            let place = next() as usize % machine.ran.len();
            let need = machine.needs[&machine.ran[place]];
            machine.end(need);
        }
        while let Some(key) = machine.ran.last() {
            let need = machine.needs[key];
            machine.end(need);
        }
        assert_eq!(machine.admission.counted(), 0);
    }
}
