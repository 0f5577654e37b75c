//! Two threads run the event loop in turn. The one that leads takes the events.
//!
//! The leader itself answers a question to the cache that comes alone: waking a cache thread would take as long as the
//! answer. Meanwhile no thread leads, and an alarm is set. If the answer takes longer, the alarm wakes the other
//! thread, which takes the lead. It then gets the answer as from a cache thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::event::epoll;
use rustix::time::{timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use super::{Server, EVENTS};
use crate::cache::cache_threads::{Done, Job};
use crate::facts::file_view::FileView;
use crate::process::prompt::make_prompt;
use crate::process::readable::timespec;

/// How long clients wait before the other thread takes the lead.
const PATIENCE: Duration = Duration::from_millis(2);

/// Empty when the server has ended.
type MaybeServer = Option<Box<Server>>;

struct Lead {
    server: Mutex<MaybeServer>,
    alarm: OwnedFd,
    /// One of the two threads is answering a question.
    is_asking: Arc<AtomicBool>,
    over: Mutex<Sender<(MaybeServer, io::Result<()>)>>,
}

/// Why a thread no longer leads.
enum LeadEnd {
    /// The other one leads.
    OtherLeads,
    /// The server has ended, with this result.
    ServerEnded(MaybeServer, io::Result<()>),
}

pub(super) fn serve(server: Server) -> io::Result<()> {
    let (over, end) = mpsc::channel();
    let lead = Arc::new(Lead {
        is_asking: server.store_watch.is_leader_asking.clone(),
        server: Mutex::new(Some(Box::new(server))),
        alarm: timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?,
        over: Mutex::new(over),
    });
    for begins in [true, false] {
        let lead = lead.clone();
        thread::Builder::new()
            .name("loop".to_owned())
            .spawn(move || lead.take_turns(begins))?;
    }
    let (_server, ended) = end.recv().map_err(io::Error::other)?;
    ended
}

impl Lead {
    fn take_turns(&self, begins: bool) {
        make_prompt(0);
        let mut waits = !begins;
        loop {
            if std::mem::replace(&mut waits, true) {
                // After EINTR the thread looks once more than needed, which is harmless.
                let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
            }
            let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
            if let LeadEnd::ServerEnded(server, ended) = self.lead(server) {
                let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
                // The receiver may be gone, and the process with it.
                let _ = over.send((server, ended));
                break;
            }
        }
        // The processes that this thread has started would end with it.
        loop {
            thread::park();
        }
    }

    fn lead<'l>(&'l self, mut place: MutexGuard<'l, MaybeServer>) -> LeadEnd {
        let mut events = Vec::with_capacity(EVENTS);
        let mut file_view: Option<FileView> = None;
        while let Some(server) = place.as_mut().filter(|server| !server.is_done()) {
            if let Err(error) = server.wait(&mut events) {
                return LeadEnd::ServerEnded(place.take(), Err(error));
            }
            server.round(events.drain(..));
            let Some(question) = server.round.question.take() else {
                continue;
            };
            let Some(cache) = server.cache_threads.opened() else {
                server.cache_threads.ask(question);
                continue;
            };
            let (who, reports) = (question.who, server.cache_threads.reports());
            self.is_asking.store(true, Ordering::Relaxed);
            self.set_alarm(PATIENCE);
            drop(place);
            let answer = cache.ask(question, &mut file_view);
            let led = match self.server.try_lock() {
                Ok(place) => Some(place),
                Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            self.is_asking.store(false, Ordering::Relaxed);
            let Some(mut found) = led else {
                if let Some(answer) = answer {
                    reports.put(Done::Answered { who, answer });
                }
                return LeadEnd::OtherLeads;
            };
            self.set_alarm(Duration::ZERO);
            if let (Some(server), Some(answer)) = (found.as_mut(), answer) {
                server.on_answer(who, answer);
                server.start_commands();
                server.finish_round();
                if cache.is_writing_due() {
                    server.cache_threads.send(Job::Write);
                }
            }
            // After the answer is sent, so that the client does not wait for this.
            if let Some(file_view) = &mut file_view {
                file_view.end();
            }
            place = found;
        }
        if let Some(server) = place.as_mut() {
            server.close();
        }
        LeadEnd::ServerEnded(place.take(), Ok(()))
    }

    /// A duration of zero switches the alarm off.
    fn set_alarm(&self, time: Duration) {
        let time = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(time),
        };
        if let Err(error) = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &time) {
            log::warn!("an alarm could not be set: {error}");
        }
    }
}

impl Server {
    /// Waits for events until the next alarm.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let wait = if self.connections.is_any_touched() {
            Some(Duration::ZERO)
        } else {
            let next = self.timers.next();
            next.map(|at| at.saturating_duration_since(std::time::Instant::now()))
        };
        let wait = wait.map(timespec);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
