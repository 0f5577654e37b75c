//! Keeps the peaks of commands on disk, in a thread of its own: a home folder may be on a disk that hangs.
//!
//! Several engines may use one file. Before it writes, an engine adds what others have written. If two write at the same
//! time, one of them loses what it had learned last, which only makes estimates worse.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use log::debug;

use super::peaks::{self, Peaks};
use crate::files::regular;

/// How often the file is written while commands end.
const PACE: Duration = Duration::from_secs(10);
/// How long the first commands wait for the file, and the engine's end for what is written.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct PeakFile {
    peaks: Peaks,
    thread: Option<Connection>,
    /// When reading began; None when it is over.
    reading: Option<Instant>,
    is_changed: bool,
    written: Instant,
}

struct Connection {
    wanted: Sender<Peaks>,
    /// The content of the file, then an empty answer for each time that it was written.
    done: Receiver<Peaks>,
}

impl PeakFile {
    /// Begins to read the file. Without a path, or if no thread can be made, everything is forgotten with the engine.
    pub fn open(path: Option<PathBuf>, now: Instant) -> PeakFile {
        let thread = path.and_then(start);
        PeakFile {
            peaks: Peaks::default(),
            reading: thread.is_some().then_some(now),
            thread,
            is_changed: false,
            written: now,
        }
    }

    /// Whether the file is read, or takes too long.
    pub fn is_ready(&mut self, now: Instant) -> bool {
        let (Some(since), Some(thread)) = (self.reading, &self.thread) else {
            return true;
        };
        match thread.done.try_recv() {
            Ok(read) => self.peaks.absorb(read),
            Err(_) if now.saturating_duration_since(since) < PATIENCE => return false,
            // What comes later is not read any more.
            Err(_) => self.thread = None,
        }
        self.reading = None;
        true
    }

    pub fn peaks(&self) -> &Peaks {
        &self.peaks
    }

    pub fn learn(&mut self, names: &peaks::Names, peak: u64, now: Instant) {
        self.peaks.learn(names, peak, peaks::today());
        self.note_change(now);
    }

    /// A command was killed because memory ran out.
    pub fn learn_killed(&mut self, names: &peaks::Names, peak: u64, now: Instant) {
        self.peaks.learn_killed(names, peak, peaks::today());
        self.note_change(now);
    }

    fn note_change(&mut self, now: Instant) {
        self.is_changed = true;
        if now.saturating_duration_since(self.written) >= PACE {
            self.write(now);
        }
    }

    /// Has the file written, if there is anything new.
    pub fn write(&mut self, now: Instant) {
        let Some(thread) = self
            .thread
            .as_ref()
            .filter(|_| self.is_changed && self.reading.is_none())
        else {
            return;
        };
        self.is_changed = false;
        self.written = now;
        // Without its thread, the file stays as it is.
        let _ = thread.wanted.send(self.peaks.clone());
    }

    /// Waits for a moment until the last change is written.
    pub fn close(&mut self) {
        self.write(Instant::now());
        if let Some(Connection { wanted, done }) = self.thread.take() {
            drop(wanted);
            let deadline = Instant::now() + PATIENCE;
            // The thread ends when it has written everything. Then there is nothing more to receive.
            while done
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
                .is_ok()
            {}
        }
    }
}

fn start(path: PathBuf) -> Option<Connection> {
    let (wanted, orders) = mpsc::channel();
    let (reports, done) = mpsc::channel();
    let keep = move || keep(&path, &orders, &reports);
    match thread::Builder::new().name("peaks".to_owned()).spawn(keep) {
        Ok(_) => Some(Connection { wanted, done }),
        Err(error) => {
            debug!("no thread for the peaks of commands: {error}");
            None
        }
    }
}

fn keep(path: &Path, orders: &Receiver<Peaks>, reports: &Sender<Peaks>) {
    let _ = reports.send(peaks::read(path));
    while let Ok(mut newest) = orders.recv() {
        while let Ok(newer) = orders.try_recv() {
            newest = newer;
        }
        newest.absorb(peaks::read(path));
        if let Err(error) = write(path, &newest) {
            debug!("write {}: {error}", path.display());
        }
        let _ = reports.send(Peaks::default());
    }
}

fn write(path: &Path, peaks: &Peaks) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&fresh);
    regular::replace(path, &fresh, &peaks.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(word: &str) -> peaks::Names {
        peaks::Names::of(&["cc", word].iter().collect(), b"/p")
    }

    fn opened(path: &Path) -> PeakFile {
        let mut file = PeakFile::open(Some(path.to_owned()), Instant::now());
        while !file.is_ready(Instant::now()) {
            thread::yield_now();
        }
        file
    }

    #[test]
    fn what_one_engine_has_learned_the_next_one_knows() {
        let folder = std::env::temp_dir().join(format!("peaks-{}", std::process::id()));
        let path = folder.join("below/peaks");
        let (mut first, mut second) = (opened(&path), opened(&path));
        first.learn(&names("a.c"), 1000, Instant::now());
        first.close();
        second.learn(&names("b.c"), 2000, Instant::now());
        second.close();
        let third = opened(&path);
        let estimates = ["a.c", "b.c"].map(|word| third.peaks().estimate(&names(word)));
        assert_eq!(estimates, [1000, 2000]);
        fs::write(&path, b"damage").unwrap();
        assert!(opened(&path).peaks().is_empty());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn without_a_place_everything_goes_on() {
        let mut file = PeakFile::open(None, Instant::now());
        assert!(file.is_ready(Instant::now()));
        file.learn(&names("a.c"), 1000, Instant::now());
        assert_eq!(file.peaks().estimate(&names("a.c")), 1000);
        file.close();
    }
}
