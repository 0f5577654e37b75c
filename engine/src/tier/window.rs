//! Where questions to one tier wait for its workers, with a time limit.
//!
//! ```text
//! find, fetch ─► queue ─► a worker, with as many as it may take ─► tier ─► settle ─► each one's `again`
//!                  └───────────────┴─ look: one waits too long ─► the breaker opens ─► all of them: nothing
//! ```
//!
//! A worker whose question was given up goes on until its own limits end it. Its answer is not used.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::counts::Counts;
use super::heartbeat::Heartbeat;
use super::queue::{Queue, Task, Wait};
use super::{Fault, Shape, Tier};
use crate::bytes::digest::Digest;
use crate::cache::remote::bundle::Bundle;
use crate::cache::remote::wrapped::Wrapped;

pub struct Window {
    pub name: String,
    tier: Arc<dyn Tier>,
    shape: Shape,
    counts: Arc<Counts>,
    queue: Mutex<Queue>,
    arrival: Condvar,
    /// Wakes the thread that watches the windows.
    bell: Box<dyn Fn() + Send + Sync>,
}

impl Window {
    /// `bell` is rung when there is something to watch.
    pub fn new(
        name: String,
        tier: Arc<dyn Tier>,
        heartbeats: impl Fn() -> Heartbeat,
        counts: Arc<Counts>,
        bell: impl Fn() + Send + Sync + 'static,
    ) -> Window {
        let shape = tier.shape();
        let queue = Queue::new(shape.workers, heartbeats);
        Window {
            name,
            tier,
            shape,
            counts,
            queue: Mutex::new(queue),
            arrival: Condvar::new(),
            bell: Box::new(bell),
        }
    }

    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        for number in 0..self.shape.workers {
            let window = self.clone();
            let work = move || window.work(number);
            thread::Builder::new().name("tier".to_owned()).spawn(work)?;
        }
        Ok(())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the tier is left alone, if it is.
    pub fn why_left_alone(&self) -> Option<String> {
        self.queue().breaker.why().map(str::to_owned)
    }

    pub fn find(&self, key: Digest, again: impl FnOnce(Result<Bundle, Fault>) + Send + 'static) {
        let again = Box::new(again);
        self.wait(Wait::Find { key, again });
    }

    pub fn fetch(&self, wanted: Vec<Digest>, again: impl FnOnce(Result<Vec<Option<Wrapped>>, Fault>) + Send + 'static) {
        let again = Box::new(again);
        self.wait(Wait::Fetch { wanted, again });
    }

    fn wait(&self, wait: Wait) {
        let mut queue = self.queue();
        if let Some(why) = queue.breaker.why().map(str::to_owned) {
            drop(queue);
            return wait.fail(Fault::Failed(format!("it is left alone, since {why}")));
        }
        if queue.is_closed {
            drop(queue);
            return wait.fail(Fault::Failed("it is not asked any more".to_owned()));
        }
        match wait {
            Wait::Find { .. } => queue.finds.push_back(wait),
            Wait::Fetch { .. } => queue.fetches.push_back(wait),
        }
        drop(queue);
        self.arrival.notify_one();
    }

    fn work(&self, number: usize) {
        while let Some((task, heartbeat, turn)) = self.next(number) {
            match task {
                Task::Find(keys) => {
                    let found = self.tier.find(&keys, &heartbeat);
                    self.settle(number, turn, found, |wait, bundle| match wait {
                        Wait::Find { again, .. } => again(Ok(bundle)),
                        Wait::Fetch { .. } => {}
                    });
                }
                Task::Fetch(wanted) => {
                    let fetched = self.tier.fetch(&wanted, &heartbeat).map(|blobs| vec![blobs]);
                    self.settle(number, turn, fetched, |wait, blobs| match wait {
                        Wait::Fetch { again, .. } => again(Ok(blobs)),
                        Wait::Find { .. } => {}
                    });
                }
                Task::Trial(key) => self.judge(number, turn, self.tier.find(&[key], &heartbeat)),
            }
        }
    }

    /// The next task of this worker. Waits for one.
    fn next(&self, number: usize) -> Option<(Task, Arc<Heartbeat>, u64)> {
        let mut queue = self.queue();
        loop {
            if queue.is_closed {
                return None;
            }
            let task = queue.take(number, self.shape.batch);
            if let Some(task) = task {
                let post = &mut queue.posts[number];
                post.turn += 1;
                post.heartbeat.begin();
                let found = (task, post.heartbeat.clone(), post.turn);
                drop(queue);
                (self.bell)();
                return Some(found);
            }
            queue = self.arrival.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Passes the answer to those that have waited, unless they already got an empty answer.
    fn settle<T>(&self, number: usize, turn: u64, result: Result<Vec<T>, Fault>, tell: impl Fn(Wait, T)) {
        let mut queue = self.queue();
        let post = &mut queue.posts[number];
        if post.turn != turn {
            return;
        }
        let waits = std::mem::take(&mut post.waits);
        post.heartbeat.rest();
        let results = match result {
            Ok(results) if results.len() == waits.len() => {
                queue.breaker.worked();
                results
            }
            Ok(_) => return self.fail(queue, waits, &Fault::garbled()),
            Err(fault) => return self.fail(queue, waits, &fault),
        };
        drop(queue);
        waits
            .into_iter()
            .zip(results)
            .for_each(|(wait, result)| tell(wait, result));
    }

    fn fail(&self, mut queue: MutexGuard<'_, Queue>, mut waits: Vec<Wait>, fault: &Fault) {
        let now = Instant::now();
        let words = fault.words().to_owned();
        if let Some(Wait::Find { key, .. }) = waits.first() {
            queue.asked = *key;
        }
        let opens = match fault {
            Fault::Silent(_) => queue.breaker.open(now, &words),
            Fault::Failed(_) | Fault::Declined(_) => queue.breaker.erred(now, &words),
        };
        if opens {
            waits.extend(queue.give_up());
        }
        let pause = queue.breaker.next_trial().map(|at| at.saturating_duration_since(now));
        drop(queue);
        (self.bell)();
        self.counts.error(&self.name, &words);
        if let (true, Some(pause)) = (opens, pause) {
            log::warn!("{}: left alone for {pause:.0?}, since {words}", self.name);
        }
        waits.into_iter().for_each(|wait| wait.fail(fault.clone()));
    }

    fn judge(&self, number: usize, turn: u64, found: Result<Vec<Bundle>, Fault>) {
        let mut queue = self.queue();
        if queue.posts[number].turn != turn {
            return;
        }
        queue.posts[number].heartbeat.rest();
        match found {
            Ok(_) => {
                queue.breaker.recovered();
                drop(queue);
                self.counts.forget(&self.name);
                log::info!("{}: it answers again", self.name);
            }
            Err(fault) => {
                queue.breaker.open(Instant::now(), fault.words());
                drop(queue);
                (self.bell)();
            }
        }
    }

    /// Gives up what takes too long, and starts a trial of the tier when it is due. Returns whether anything is under way,
    /// and when the next trial is.
    pub fn look(&self, now: Instant) -> (bool, Option<Instant>) {
        let mut queue = self.queue();
        let late = queue.posts.iter().position(|post| post.heartbeat.is_over(now));
        if let Some(number) = late {
            let limits = queue.posts[number].heartbeat.limits;
            let words = format!("it did not answer within {} ms", limits.silence.as_millis());
            let waits = queue.posts[number].give_up();
            self.fail(queue, waits, &Fault::Silent(words));
            queue = self.queue();
        }
        if queue.breaker.begin_trial(now) {
            queue.is_trial_due = true;
            self.arrival.notify_one();
        }
        let is_busy = queue.is_trial_due || queue.posts.iter().any(|post| !post.heartbeat.is_resting());
        (is_busy, queue.breaker.next_trial())
    }

    /// Asks nothing any more, and releases all callers.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        let waits = queue.give_up();
        drop(queue);
        self.arrival.notify_all();
        let fault = Fault::Failed("it is not asked any more".to_owned());
        waits.into_iter().for_each(|wait| wait.fail(fault.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::remote::{Load, Offer};
    use crate::settings::address::Limits;
    use std::sync::mpsc::{channel, Receiver, Sender};
    use std::sync::Mutex as Lock;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    type Told = Result<Bundle, Fault>;

    /// Reports its questions, and answers when it is told to.
    struct Puppet {
        asked: Lock<Sender<usize>>,
        answers: Lock<Receiver<Result<(), Fault>>>,
    }

    impl Tier for Puppet {
        fn shape(&self) -> Shape {
            Shape {
                workers: 1,
                batch: 8,
                uploads: 0,
            }
        }

        fn find(&self, keys: &[Digest], _: &Arc<Heartbeat>) -> Result<Vec<Bundle>, Fault> {
            self.asked.lock().unwrap().send(keys.len()).unwrap();
            let answer = self.answers.lock().unwrap().recv();
            answer.unwrap_or(Ok(())).map(|()| vec![Bundle::default(); keys.len()])
        }

        fn fetch(&self, _: &[Digest], _: &Arc<Heartbeat>) -> Result<Vec<Option<Wrapped>>, Fault> {
            Err(Fault::Failed("not here".to_owned()))
        }

        fn offer(&self, _: &Offer, _: &Load, _: &Arc<Heartbeat>) -> Result<(), Fault> {
            Ok(())
        }
    }

    struct TestWindow {
        window: Arc<Window>,
        asked: Receiver<usize>,
        answer: Sender<Result<(), Fault>>,
        told: Sender<Told>,
        results: Receiver<Told>,
    }

    impl TestWindow {
        fn new() -> TestWindow {
            let ((tell, asked), (answer, answers)) = (channel(), channel());
            let puppet = Puppet {
                asked: Lock::new(tell),
                answers: Lock::new(answers),
            };
            let counts = Arc::new(Counts::new(|_, _| ()));
            let heartbeats = || Heartbeat::new(Limits::default());
            let window = Arc::new(Window::new(
                "puppet".to_owned(),
                Arc::new(puppet),
                heartbeats,
                counts,
                || (),
            ));
            window.start().unwrap();
            let (told, results) = channel();
            TestWindow {
                window,
                asked,
                answer,
                told,
                results,
            }
        }

        fn ask(&self, count: u8) {
            for number in 0..count {
                let told = self.told.clone();
                let again = move |result| told.send(result).unwrap();
                self.window.find(Digest::of(&[number]), again);
            }
        }

        fn results(&self, count: usize) -> Vec<Told> {
            (0..count)
                .map(|_| self.results.recv_timeout(PATIENCE).unwrap())
                .collect()
        }
    }

    #[test]
    fn questions_that_gather_while_a_worker_is_busy_are_asked_together() {
        let test = TestWindow::new();
        test.ask(1);
        assert_eq!(test.asked.recv_timeout(PATIENCE), Ok(1));
        test.ask(10);
        for count in [8, 2] {
            test.answer.send(Ok(())).unwrap();
            assert_eq!(test.asked.recv_timeout(PATIENCE), Ok(count));
        }
        test.answer.send(Ok(())).unwrap();
        assert!(test.results(11).iter().all(Result::is_ok));
        test.window.close();
    }

    #[test]
    fn a_silent_tier_is_given_up_and_its_late_answer_is_not_used() {
        let test = TestWindow::new();
        test.ask(1);
        test.asked.recv_timeout(PATIENCE).unwrap();
        test.ask(3);
        let later = Instant::now() + PATIENCE;
        assert!(!test.window.look(Instant::now()).1.is_some_and(|at| at < Instant::now()));
        test.window.look(later);
        let silent = |result: &Told| matches!(result, Err(Fault::Silent(_)));
        assert!(test.results(4).iter().all(silent));
        assert!(test.window.why_left_alone().is_some());
        test.ask(1);
        assert!(matches!(test.results(1)[0], Err(Fault::Failed(_))), "nobody is asked");
        // By then a trial is due. The worker is free again, and makes the trial.
        test.answer.send(Ok(())).unwrap();
        assert_eq!(test.asked.recv_timeout(PATIENCE), Ok(1));
        assert!(test.window.why_left_alone().is_some());
        test.answer.send(Ok(())).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while test.window.why_left_alone().is_some() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert!(test.results.try_recv().is_err());
        test.window.close();
    }

    #[test]
    fn a_window_that_closes_answers_all_questions() {
        let test = TestWindow::new();
        test.ask(3);
        test.asked.recv_timeout(PATIENCE).unwrap();
        test.window.close();
        assert!(test.results(3).iter().all(Result::is_err));
        test.ask(1);
        assert!(test.results(1)[0].is_err());
    }
}
