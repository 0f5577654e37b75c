//! What `wafd status` is told.

use super::Server;
use crate::folder::ENGINE;
use crate::status::{CommandLine, SessionLine, Snapshot};
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
        let commands = self.commands.values().filter_map(|command| {
            let running = command.running()?;
            let argv = command.order.execute.argv.iter();
            Some(CommandLine {
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
            socket: self.options.folder.socket().display().to_string(),
            tcp_port: self.tcp.as_ref().map(|tcp| tcp.port),
            leaving: self.leaving,
            slots: self.slots.capacity(),
            running: self.slots.running(),
            waiting: self.slots.waiting(),
            sessions: sessions.take(MOST_LINES).collect(),
            commands: commands.take(MOST_LINES).collect(),
            totals: &self.totals,
            parking: self.lot.report(),
            brake: self.neighbours.describe_brake(),
            // The store is not opened for this.
            cache: self.clerks.opened().map(|cache| cache.describe()).unwrap_or_default(),
        }
        .json()
    }
}

fn shorten(argument: &[u8]) -> String {
    let end = argument.len().min(MOST_BYTES);
    String::from_utf8_lossy(&argument[..end]).into_owned()
}
