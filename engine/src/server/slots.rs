//! Decides which command starts next: slots, shared fairly between sessions.
//!
//! Pure: sessions and commands are numbers here. `docs/protocol.md`, "Slots", has the rules. The engine has as many
//! slots as the largest wish. A session never uses more than its own wish. The session that uses the fewest slots goes
//! first. A session without a running command may always start one, so that a build inside a build goes on.

use std::collections::{HashMap, HashSet, VecDeque};

pub type SessionId = [u8; 16];
pub type CommandKey = u64;

#[derive(Debug, Default)]
struct Share {
    jobs: usize,
    own: bool,
    running: usize,
    waiting: VecDeque<CommandKey>,
    /// Turn of its last grant, so that equal sessions alternate.
    served: u64,
}

#[derive(Debug, Default)]
pub struct Slots {
    shares: HashMap<SessionId, Share>,
    turns: u64,
}

impl Slots {
    /// A session, or one more connection of it, declares its `-j`.
    pub fn declare(&mut self, session: SessionId, jobs: usize, own: bool) {
        let share = self.shares.entry(session).or_default();
        share.jobs = share.jobs.max(jobs);
        share.own |= own;
    }

    /// The last connection of a session has ended. Running commands keep their slots until `finish`.
    pub fn withdraw(&mut self, session: &SessionId) {
        if let Some(share) = self.shares.get_mut(session) {
            share.jobs = 0;
            share.waiting.clear();
            if share.running == 0 {
                self.shares.remove(session);
            }
        }
    }

    pub fn submit(&mut self, session: SessionId, command: CommandKey) {
        self.shares.entry(session).or_default().waiting.push_back(command);
    }

    /// Removes commands that have not started.
    pub fn retract(&mut self, session: &SessionId, commands: &HashSet<CommandKey>) {
        if let Some(share) = self.shares.get_mut(session) {
            share.waiting.retain(|key| !commands.contains(key));
        }
    }

    /// The next command that may start. It holds a slot until `finish`. `pick` gets a session, the number of its running
    /// commands, and its queue; it returns the place of the command that starts, if one may.
    pub fn grant(
        &mut self,
        mut pick: impl FnMut(&SessionId, usize, &VecDeque<CommandKey>) -> Option<usize>,
    ) -> Option<CommandKey> {
        let free = self.capacity() > self.shared();
        let candidates = self.shares.iter_mut();
        let mut candidates: Vec<_> = candidates
            .filter(|(_, s)| !s.waiting.is_empty() && s.running < s.jobs)
            .filter(|(_, s)| s.own || free || s.running == 0)
            .collect();
        candidates.sort_unstable_by_key(|(_, s)| (s.running, s.served));
        let mut candidates = candidates.into_iter();
        let (share, place) = candidates.find_map(|(session, share)| {
            let place = pick(session, share.running, &share.waiting)?;
            Some((share, place))
        })?;
        self.turns += 1;
        share.served = self.turns;
        share.running += 1;
        share.waiting.remove(place)
    }

    pub fn finish(&mut self, session: &SessionId) {
        if let Some(share) = self.shares.get_mut(session) {
            share.running -= 1;
            if share.running == 0 && share.jobs == 0 {
                self.shares.remove(session);
            }
        }
    }

    /// All commands that wait, those of each session in their order.
    pub fn all_waiting(&self) -> impl Iterator<Item = (SessionId, CommandKey)> + '_ {
        let shares = self.shares.iter();
        shares.flat_map(|(session, share)| share.waiting.iter().map(|key| (*session, *key)))
    }

    /// Whether a command of this session would get a slot at once.
    pub fn has_room(&self, session: &SessionId) -> bool {
        let is_free = self.capacity() > self.shared();
        let share = self.shares.get(session);
        share.is_some_and(|s| s.running < s.jobs && (s.own || is_free || s.running == 0))
    }

    /// Slots of all sessions that share.
    pub fn capacity(&self) -> usize {
        let sharing = self.shares.values().filter(|s| !s.own);
        sharing.map(|s| s.jobs).max().unwrap_or(0)
    }

    fn shared(&self) -> usize {
        let sharing = self.shares.values().filter(|s| !s.own);
        sharing.map(|s| s.running).sum()
    }

    pub fn running(&self) -> usize {
        self.shares.values().map(|s| s.running).sum()
    }

    pub fn waiting(&self) -> usize {
        self.shares.values().map(|s| s.waiting.len()).sum()
    }

    /// (jobs, running, waiting) of one session.
    pub fn of(&self, session: &SessionId) -> (usize, usize, usize) {
        let share = self.shares.get(session);
        share.map_or((0, 0, 0), |s| (s.jobs, s.running, s.waiting.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = [1; 16];
    const B: SessionId = [2; 16];

    fn start_all(slots: &mut Slots) -> Vec<CommandKey> {
        std::iter::from_fn(|| slots.grant(|_, _, _| Some(0))).collect()
    }

    fn submit(slots: &mut Slots, session: SessionId, keys: std::ops::Range<u64>) {
        keys.for_each(|key| slots.submit(session, key));
    }

    #[test]
    fn a_session_alone_uses_its_jobs_in_order() {
        let mut slots = Slots::default();
        slots.declare(A, 2, false);
        submit(&mut slots, A, 0..5);
        assert_eq!(start_all(&mut slots), [0, 1]);
        slots.finish(&A);
        assert_eq!(start_all(&mut slots), [2]);
    }

    #[test]
    fn two_sessions_share_instead_of_doubling() {
        let mut slots = Slots::default();
        slots.declare(A, 4, false);
        slots.declare(B, 4, false);
        submit(&mut slots, A, 0..10);
        submit(&mut slots, B, 100..110);
        let started = start_all(&mut slots);
        assert_eq!(started.len(), 4);
        assert_eq!(started.iter().filter(|key| **key >= 100).count(), 2);
    }

    #[test]
    fn a_newcomer_gets_the_next_free_slots() {
        let mut slots = Slots::default();
        slots.declare(A, 4, false);
        submit(&mut slots, A, 0..10);
        assert_eq!(start_all(&mut slots).len(), 4);
        slots.declare(B, 4, false);
        submit(&mut slots, B, 100..110);
        assert_eq!(start_all(&mut slots), [100], "one at once, though all slots are taken");
        slots.finish(&A);
        assert!(start_all(&mut slots).is_empty(), "five ran on four slots");
        slots.finish(&A);
        assert_eq!(start_all(&mut slots), [101]);
    }

    #[test]
    fn a_build_inside_a_build_goes_on() {
        let mut slots = Slots::default();
        slots.declare(A, 1, false);
        submit(&mut slots, A, 0..1);
        assert_eq!(start_all(&mut slots), [0]);
        slots.declare(B, 1, false);
        submit(&mut slots, B, 1..3);
        assert_eq!(start_all(&mut slots), [1]);
    }

    #[test]
    fn own_slots_neither_take_nor_give() {
        let mut slots = Slots::default();
        slots.declare(A, 2, false);
        slots.declare(B, 3, true);
        submit(&mut slots, A, 0..9);
        submit(&mut slots, B, 100..109);
        assert_eq!(start_all(&mut slots).len(), 5);
        assert_eq!(slots.capacity(), 2);
    }

    #[test]
    fn a_session_that_left_frees_its_slots_only_when_its_commands_end() {
        let mut slots = Slots::default();
        slots.declare(A, 2, false);
        slots.declare(B, 2, false);
        submit(&mut slots, A, 0..5);
        assert_eq!(start_all(&mut slots), [0, 1]);
        slots.withdraw(&A);
        submit(&mut slots, B, 100..103);
        assert_eq!(start_all(&mut slots), [100]);
        slots.finish(&A);
        slots.finish(&A);
        assert_eq!(start_all(&mut slots), [101]);
        assert_eq!(slots.of(&A), (0, 0, 0));
    }

    #[test]
    fn a_session_that_may_not_start_lets_others_go_first() {
        let mut slots = Slots::default();
        slots.declare(A, 3, false);
        slots.declare(B, 3, false);
        submit(&mut slots, A, 0..3);
        submit(&mut slots, B, 100..103);
        let one_of_a = |session: &SessionId, running, _: &VecDeque<_>| (*session == B || running == 0).then_some(0);
        let started: Vec<_> = std::iter::from_fn(|| slots.grant(one_of_a)).collect();
        assert_eq!(started.iter().filter(|key| **key < 100).count(), 1);
        assert_eq!(started.len(), 3);
    }

    #[test]
    fn a_session_has_room_as_long_as_a_command_would_start() {
        let mut slots = Slots::default();
        assert!(!slots.has_room(&A));
        slots.declare(A, 2, false);
        submit(&mut slots, A, 0..3);
        assert_eq!(slots.all_waiting().collect::<Vec<_>>(), [(A, 0), (A, 1), (A, 2)]);
        for _ in 0..2 {
            assert!(slots.has_room(&A));
            slots.grant(|_, _, _| Some(0));
        }
        assert!(!slots.has_room(&A));
        slots.finish(&A);
        assert!(slots.has_room(&A));
    }

    #[test]
    fn a_retracted_command_never_starts() {
        let mut slots = Slots::default();
        slots.declare(A, 1, false);
        submit(&mut slots, A, 0..3);
        slots.retract(&A, &HashSet::from([0, 2, 77]));
        assert_eq!(start_all(&mut slots), [1]);
        assert_eq!(slots.waiting(), 0);
    }
}
