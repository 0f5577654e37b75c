//! The news for all pages. The engine is asked once per interval for all of them, and only while a page is open.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{json, Value};

use super::engine::Engine;
use super::history::{sample, History};
use crate::files::folder::Folder;
use crate::process::brake::Gauges;

/// The age of what a page shows.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Feed {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A line of JSON. `None` while no page is open.
    latest: Option<Arc<str>>,
    /// Counts the lines.
    number: u64,
    history: History,
    /// The status of the team's server.
    team: Value,
    watchers: usize,
    is_over: bool,
}

/// An open page.
pub struct Watcher {
    feed: Arc<Feed>,
    seen: u64,
}

pub enum News {
    Line(Arc<str>),
    Over,
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a page. Returns the history as well.
    pub fn watch(self: &Arc<Self>) -> (Watcher, String) {
        let mut state = self.state();
        state.watchers += 1;
        let history = format!("{}\n", state.history.json());
        // The history has the numbers of the latest line, but not all the rest. So the page gets that line again.
        let seen = state.number.saturating_sub(u64::from(state.latest.is_some()));
        drop(state);
        self.changed.notify_all();
        let feed = self.clone();
        (Watcher { feed, seen }, history)
    }

    /// Waits until a page is open. False when the dashboard ends.
    pub fn is_wanted(&self) -> bool {
        let mut state = self.state();
        while state.watchers == 0 && !state.is_over {
            state = self.wait(state);
        }
        !state.is_over
    }

    /// Waits for this long, or until the last page is closed.
    pub fn pause(&self, time: Duration) {
        let is_wanted = |state: &mut State| state.watchers > 0 && !state.is_over;
        let _ = self.changed.wait_timeout_while(self.state(), time, is_wanted);
    }

    fn is_watched(&self) -> bool {
        self.state().watchers > 0
    }

    pub fn set_team(&self, team: Value) {
        self.state().team = team;
    }

    fn team(&self) -> Value {
        self.state().team.clone()
    }

    fn put(&self, line: &Value, sample: Value) {
        let line = format!("{line}\n").into();
        let mut state = self.state();
        state.latest = Some(line);
        state.number += 1;
        state.history.add(sample);
        drop(state);
        self.changed.notify_all();
    }

    /// Tells all pages that the dashboard ends. They have this long to receive it.
    pub fn end(&self, time: Duration) {
        let mut state = self.state();
        state.is_over = true;
        self.changed.notify_all();
        let is_heard = |state: &mut State| state.watchers > 0;
        let _ = self.changed.wait_timeout_while(state, time, is_heard);
    }
}

impl Watcher {
    /// Waits for a line that this page has not seen.
    pub fn next(&mut self) -> News {
        let mut state = self.feed.state();
        loop {
            if state.is_over {
                return News::Over;
            }
            match &state.latest {
                Some(line) if state.number > self.seen => {
                    self.seen = state.number;
                    return News::Line(line.clone());
                }
                _ => state = self.feed.wait(state),
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.feed.state();
        state.watchers -= 1;
        if state.watchers == 0 {
            state.latest = None;
        }
        drop(state);
        self.feed.changed.notify_all();
    }
}

/// Asks the engine while a page is open, until the dashboard ends.
pub fn ask(feed: &Feed, folder: &Folder) {
    let mut engine = Engine::of(folder);
    let gauges: PathBuf = std::env::var_os("WAFD_GAUGES").unwrap_or_else(|| "/proc".into()).into();
    let gauges = Gauges::below(&gauges);
    while feed.is_wanted() {
        let state = engine.read();
        let at = now();
        let sample = sample(at, &state.report);
        let memory = gauges.memory();
        let line = json!({
            "kind": "news",
            "at": at,
            "engine": state.json(),
            "machine": {"available_kib": memory.available, "total_kib": memory.total, "pressure": memory.pressure},
            "team": feed.team(),
            "sample": sample,
            "report": state.report,
        });
        feed.put(&line, sample);
        feed.pause(INTERVAL);
        if !feed.is_watched() {
            engine.disconnect();
        }
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(news: News) -> Option<String> {
        match news {
            News::Line(line) => Some(line.to_string()),
            News::Over => None,
        }
    }

    #[test]
    fn a_later_page_gets_the_history_and_the_latest_line() {
        let feed = Arc::new(Feed::default());
        let (mut first, history) = feed.watch();
        assert!(history.contains("\"samples\":[]"), "{history}");
        feed.put(&json!(1), json!([1]));
        feed.put(&json!(2), json!([2]));
        assert_eq!(line(first.next()).unwrap(), "2\n", "what is old is left out");
        let (mut second, history) = feed.watch();
        assert!(history.contains("\"samples\":[[1],[2]]"), "{history}");
        assert_eq!(line(second.next()).unwrap(), "2\n");
        feed.put(&json!(3), json!([3]));
        assert_eq!(line(second.next()).unwrap(), "3\n");
        feed.end(Duration::ZERO);
        assert!(line(first.next()).is_none());
    }

    #[test]
    fn a_line_from_before_a_pause_is_not_news() {
        let feed = Arc::new(Feed::default());
        let (watcher, _) = feed.watch();
        feed.put(&json!(1), json!([1]));
        drop(watcher);
        let (mut later, _) = feed.watch();
        feed.put(&json!(2), json!([2]));
        assert_eq!(line(later.next()).unwrap(), "2\n");
    }
}
