//! What `wafd status` is told.

use super::Server;
use crate::command::Case;
use crate::folder::ENGINE;
use crate::place::field;
use crate::slots::SessionId;
use crate::status::{CommandLine, SessionLine, Snapshot};
use crate::wafcc::path_text;
use crate::wire;

/// A report fits into a frame, however many commands run and however long they are.
const MOST_LINES: usize = 512;
const MOST_ARGUMENTS: usize = 32;
const MOST_BYTES: usize = 256;

impl Server {
    pub(super) fn report(&self) -> serde_json::Value {
        let sessions = self.sessions.iter().map(|(id, session)| {
            let (jobs, running, waiting) = self.slots.of(id);
            SessionLine {
                id: digits(id),
                seconds: session.started.elapsed().as_secs_f64(),
                counts: session.counts,
                name: session.name.clone(),
                pid: session.pid,
                jobs,
                running,
                waiting,
                connections: session.connections,
                own_slots: session.own_slots,
                neighbour: self.neighbours.describe(id, waiting),
            }
        });
        let commands = self.commands.iter().filter_map(|(key, command)| {
            let running = command.running()?;
            let argv = command.order.execute.argv.iter();
            Some(CommandLine {
                id: *key,
                session: digits(&command.order.session),
                folder: shorten(&command.order.execute.cwd),
                known: command.case.as_deref().map(what_is_known),
                pid: running.pid,
                argv: argv.take(MOST_ARGUMENTS).map(shorten).collect(),
                seconds: running.started.elapsed().as_secs_f64(),
            })
        });
        Snapshot {
            pid: std::process::id(),
            engine: ENGINE,
            protocol: wire::VERSION,
            started: self.started,
            socket: path_text::show(self.options.folder.socket()),
            tcp_port: self.tcp.as_ref().map(|tcp| tcp.port),
            leaving: self.leaving,
            slots: self.slots.capacity(),
            running: self.slots.running(),
            waiting: self.slots.waiting(),
            sessions: sessions.take(MOST_LINES).collect(),
            commands: commands.take(MOST_LINES).collect(),
            connections: self.connections.len(),
            memory: resident(),
            totals: &self.totals,
            parking: self.lot.report(),
            brake: self.neighbours.describe_brake(),
            // The store is not opened for this.
            cache: self.clerks.opened().map(|cache| cache.describe()).unwrap_or_default(),
        }
        .json()
    }
}

/// Enough of a session's number to tell it from others; who has all of it may use its slots.
fn digits(id: &SessionId) -> String {
    id[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn what_is_known(case: &Case) -> (&'static str, String) {
    (case.known.name(), shorten(case.words.as_bytes()))
}

/// What we hold of the machine's memory, in KiB.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "VmRSS")?.split(' ').next()?.parse().ok()
}

fn shorten(argument: &[u8]) -> String {
    let end = argument.len().min(MOST_BYTES);
    String::from_utf8_lossy(&argument[..end]).into_owned()
}
