//! What `wafd status` shows.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{json, Value};

use super::command::Recording;
use super::slots::SessionId;
use super::Server;
use crate::bytes::path_text;
use crate::files::folder::ENGINE;
use crate::process::place::field;
use crate::report::status::{CommandLine, SessionLine, Snapshot};
use crate::wire;

/// A report must fit into a frame, however many commands run and however long they are.
const MOST_LINES: usize = 512;
const MOST_ARGUMENTS: usize = 32;
/// How many of these are from the beginning of the command line.
const FIRST: usize = 12;
const MOST_BYTES: usize = 256;

impl Server {
    pub(super) fn report(&self) -> Value {
        let sessions = self.sessions.iter().map(|(id, session)| {
            let (jobs, running, waiting) = self.slots.of(id);
            SessionLine {
                id: short_id(id),
                seconds: session.started.elapsed().as_secs_f64(),
                counts: session.counts,
                name: session.name.clone(),
                pid: session.pid,
                jobs,
                running,
                waiting,
                connections: session.connections,
                own_slots: session.own_slots,
                neighbor: self.neighbors.describe(id, waiting),
                memory_waits: self.memory.describe_build(id),
            }
        });
        let running = self.commands.running().map(|(key, order, running)| {
            let argv = &order.execute.argv;
            let (known, why) = running.recording.as_deref().map(cache_info).unzip();
            CommandLine {
                id: key,
                session: short_id(&order.session),
                folder: shorten(&order.execute.cwd),
                known,
                why,
                pid: running.pid,
                argv: excerpt(argv.iter(), argv.len()),
                seconds: running.started.elapsed().as_secs_f64(),
            }
        });
        let commands: Vec<_> = running.take(MOST_LINES).collect();
        let cluster = self.report_cluster(MOST_LINES - commands.len());
        Snapshot {
            pid: std::process::id(),
            engine: ENGINE,
            protocol: wire::VERSION,
            started: self.own.started,
            socket: path_text::show(self.options.folder.socket()),
            tcp_port: self.listeners.tcp_port(),
            leaving: self.lifetime.is_leaving,
            slots: self.slots.capacity(),
            running: self.slots.running(),
            waiting: self.slots.waiting(),
            sessions: sessions.take(MOST_LINES).collect(),
            commands,
            connections: self.connections.len(),
            memory: resident(),
            totals: &self.totals,
            parking: self.parking.report(),
            brake: self.neighbors.describe_brake(),
            memory_waits: self.memory.describe(),
            cluster,
            // The store is not opened for a report.
            cache: self
                .cache_threads
                .opened()
                .map(|cache| cache.describe())
                .unwrap_or_default(),
        }
        .json()
    }

    /// The cluster, and at most so many of the commands that are there. If builds have named others, their commands count,
    /// too.
    fn report_cluster(&self, most: usize) -> Value {
        let executors = self.cache_threads.opened().map(|cache| cache.executors());
        let Some(executor) = executors.unwrap_or_default().into_iter().next() else {
            return Value::Null;
        };
        let trips = self
            .away
            .there()
            .filter_map(|key| Some((key, self.commands.trip(key)?)));
        let lines = trips.take(most).map(|(key, (order, trip, is_only_there))| {
            let argv = &order.execute.argv;
            json!({
                "id": key,
                "session": short_id(&order.session),
                "folder": shorten(&order.execute.cwd),
                "argv": excerpt(argv.iter(), argv.len()),
                "seconds": trip.seconds(),
                "raced": !is_only_there,
            })
        });
        let mut cluster = self.away.describe(&*executor);
        cluster["commands"] = lines.collect();
        cluster
    }
}

/// The beginning of a session's number. With the whole number, a client could use the session's slots.
fn short_id(id: &SessionId) -> String {
    id[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn cache_info(recording: &Recording) -> (&'static str, String) {
    (recording.told.known().name(), shorten(recording.told.show().as_bytes()))
}

/// Our resident memory, in KiB.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "VmRSS")?.split(' ').next()?.parse().ok()
}

/// The first and the last arguments: the source file is often the last of many.
fn excerpt<'a>(argv: impl Iterator<Item = &'a [u8]>, count: usize) -> Vec<String> {
    // One line is for the ellipsis.
    let left_out = if count > MOST_ARGUMENTS {
        count - MOST_ARGUMENTS + 1
    } else {
        0
    };
    let mut words: Vec<String> = Vec::new();
    for (at, argument) in argv.enumerate() {
        match at {
            FIRST if left_out > 0 => words.push("…".to_owned()),
            _ if at > FIRST && at < FIRST + left_out => {}
            _ => words.push(shorten(argument)),
        }
    }
    words
}

/// The beginning and the end: the file name is at the end of a path.
fn shorten(argument: &[u8]) -> String {
    if argument.len() <= MOST_BYTES {
        return path_text::show(OsStr::from_bytes(argument));
    }
    let [begin, end] = [
        &argument[..MOST_BYTES / 2],
        &argument[argument.len() - MOST_BYTES / 2..],
    ];
    let [begin, end] = [begin, end].map(String::from_utf8_lossy);
    format!("{begin}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excerpt_of_a_long_command_line_has_its_source() {
        let words: Vec<_> = (0..100).map(|n| format!("-I{n}")).chain(["a.c".to_owned()]).collect();
        let told = excerpt(words.iter().map(String::as_bytes), words.len());
        assert_eq!(told.len(), MOST_ARGUMENTS);
        assert_eq!((told[0].as_str(), told[FIRST].as_str()), ("-I0", "…"));
        assert_eq!(told[MOST_ARGUMENTS - 1], "a.c");
        assert_eq!(told[FIRST + 1], "-I82");
        let long = format!("/{}a.c", "x/".repeat(1000));
        let told = excerpt([long.as_bytes()].into_iter(), 1);
        assert!(told[0].len() < 300 && told[0].ends_with("x/a.c"), "{told:?}");
        let few: Vec<_> = words.iter().take(MOST_ARGUMENTS).map(String::as_bytes).collect();
        assert_eq!(excerpt(few.into_iter(), MOST_ARGUMENTS).len(), MOST_ARGUMENTS);
    }
}
