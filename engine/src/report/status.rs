//! The engine's status: as JSON for programs, and that JSON as text for users.

use std::fmt::Write;
use std::time::Instant;

use serde::{Serialize, Serializer};
use serde_json::{json, Value};

use super::statistics::Statistics;
use crate::bytes::quantity::show_size;
use crate::wire::{Outcome, Verdict, Why};

/// Counts since the engine started.
#[derive(Default, Serialize)]
pub struct Totals {
    pub sessions: u64,
    pub connections: u64,
    pub malformed: u64,
    #[serde(serialize_with = "by_reason")]
    refused: [u64; Why::ALL.len()],
    succeeded: u64,
    failed: u64,
    not_started: u64,
    timed_out: u64,
    cancelled: u64,
    #[serde(rename = "user_s", serialize_with = "in_seconds")]
    user: u64,
    #[serde(rename = "system_s", serialize_with = "in_seconds")]
    system: u64,
    #[serde(rename = "wall_s", serialize_with = "in_seconds")]
    wall: u64,
    #[serde(rename = "queued_s", serialize_with = "in_seconds")]
    queued: u64,
    #[serde(rename = "peak_kib")]
    peak: u64,
}

fn by_reason<S: Serializer>(refused: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Why::ALL.iter().map(|why| why.name()).zip(refused))
}

fn in_seconds<S: Serializer>(micros: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*micros as f64 / 1e6)
}

impl Totals {
    pub fn count(&mut self, outcome: &Outcome) {
        let counter = match (outcome.verdict, outcome.code) {
            (Verdict::Ran, 0) => &mut self.succeeded,
            (Verdict::Ran, _) => &mut self.failed,
            (Verdict::NotStarted, _) => &mut self.not_started,
            (Verdict::TimedOut, _) => &mut self.timed_out,
            (Verdict::Cancelled, _) => &mut self.cancelled,
        };
        *counter += 1;
        self.wall += outcome.wall;
        self.queued += outcome.queued;
        self.user += outcome.user;
        self.system += outcome.system;
        self.peak = self.peak.max(outcome.peak);
    }

    pub fn refuse(&mut self, why: Why) {
        self.refused[why as usize - 1] += 1;
    }
}

/// Counts of a session's commands.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Counts {
    pub hits: u64,
    /// Commands that ran or were hits.
    pub succeeded: u64,
    pub failed: u64,
}

impl Counts {
    pub fn count(&mut self, outcome: &Outcome) {
        match (outcome.verdict, outcome.code) {
            (Verdict::Ran, 0) => self.succeeded += 1,
            _ => self.failed += 1,
        }
    }
}

/// A session in a report.
#[derive(Serialize)]
pub struct SessionLine {
    /// Tells the session from others, and is in its commands' lines.
    pub id: String,
    pub name: String,
    pub pid: u32,
    pub seconds: f64,
    #[serde(flatten)]
    pub counts: Counts,
    pub jobs: usize,
    pub running: usize,
    pub waiting: usize,
    pub connections: usize,
    pub own_slots: bool,
    /// Its limits beside other builds, and what it waits for.
    pub neighbor: Value,
    /// The waits for memory. Null if its commands do not wait for that.
    pub memory_waits: Value,
}

/// A running command in a report.
#[derive(Serialize)]
pub struct CommandLine {
    /// Unique in this engine.
    pub id: u64,
    /// Zero between two parts.
    pub pid: i32,
    /// The session's `id`.
    pub session: String,
    pub folder: String,
    pub argv: Vec<String>,
    pub seconds: f64,
    /// Hit, miss or uncached, if the cache was asked.
    pub known: Option<&'static str>,
    /// The reason for a miss, or for not being cached.
    pub why: Option<String>,
}

/// What the server collects for a report.
pub struct Snapshot<'a> {
    pub pid: u32,
    pub engine: &'a str,
    pub protocol: u16,
    pub started: Instant,
    pub socket: String,
    pub tcp_port: Option<u16>,
    pub leaving: bool,
    pub slots: usize,
    pub running: usize,
    pub waiting: usize,
    pub sessions: Vec<SessionLine>,
    pub commands: Vec<CommandLine>,
    pub connections: usize,
    /// Of the engine alone, in KiB.
    pub memory: Option<u64>,
    pub totals: &'a Totals,
    pub parking: Value,
    pub brake: Value,
    /// The waits for memory of all sessions. Null if none of them has asked for that.
    pub memory_waits: Value,
    /// Commands on a cluster. Null if none may run there.
    pub cluster: Value,
    /// Null if no store is open.
    pub cache: Value,
}

impl Snapshot<'_> {
    pub fn json(&self) -> Value {
        json!({
            "version": self.engine,
            "protocol": self.protocol,
            "pid": self.pid,
            "uptime_s": self.started.elapsed().as_secs_f64(),
            "socket": self.socket,
            "tcp_port": self.tcp_port,
            "leaving": self.leaving,
            "slots": {"capacity": self.slots, "running": self.running, "waiting": self.waiting},
            "sessions": self.sessions,
            "commands": self.commands,
            "connections": self.connections,
            "memory_kib": self.memory,
            "totals": self.totals,
            "parking": self.parking,
            "brake": self.brake,
            "memory_waits": self.memory_waits,
            "cluster": self.cluster,
            "cache": self.cache,
        })
    }
}

/// The text of a report for users.
pub fn show(report: &Value) -> String {
    let mut text = String::new();
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let string = |value: &Value| printable(value.as_str().unwrap_or("?"));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22}{value}");
    };
    let leaving = if report["leaving"] == true { ", leaving" } else { "" };
    line(
        "engine",
        format!(
            "wafd {}, process {}{leaving}",
            string(&report["version"]),
            report["pid"]
        ),
    );
    line("up for", duration(number(&report["uptime_s"])));
    line("listens on", string(&report["socket"]));
    if let Some(port) = report["tcp_port"].as_u64() {
        line("", format!("127.0.0.1:{port} (with a token)"));
    }
    if let Some(memory) = report["memory_kib"].as_u64() {
        line("memory", format!("{:.1} MiB", memory as f64 / 1024.0));
    }
    let slots = &report["slots"];
    line(
        "slots",
        format!(
            "{} of {} in use, {} commands wait",
            slots["running"], slots["capacity"], slots["waiting"]
        ),
    );
    let brake = &report["brake"];
    if let Some(why) = brake["why"].as_str() {
        let since = duration(number(&brake["since_s"]));
        line("fewer commands", format!("since {since}: {}", printable(why)));
    }
    if number(&brake["times"]) > 0.0 {
        let all = duration(number(&brake["seconds"]));
        line(
            "",
            format!("{} times so far, {all} in all, because of memory", brake["times"]),
        );
    }
    if let Some(there) = report["cluster"]["there"].as_u64() {
        let (sent, raced) = (number(&report["cluster"]["sent"]), number(&report["cluster"]["raced"]));
        line(
            "cluster",
            format!("{there} commands there, {sent} sent so far, {raced} of them run here, too"),
        );
        line("", describe_cluster(&report["cluster"]));
    }
    for told in describe_waits(&report["memory_waits"]) {
        line("", told);
    }
    let totals = &report["totals"];
    line("commands succeeded", totals["succeeded"].to_string());
    for (key, name) in [
        ("failed", "failed"),
        ("not_started", "not started"),
        ("timed_out", "timed out"),
        ("cancelled", "cancelled"),
    ] {
        if number(&totals[key]) > 0.0 {
            line(&format!("         {name}"), totals[key].to_string());
        }
    }
    let (user, system) = (number(&totals["user_s"]), number(&totals["system_s"]));
    line(
        "processor time",
        format!("{} user, {} system", duration(user), duration(system)),
    );
    line(
        "largest command",
        format!("{:.0} MiB", number(&totals["peak_kib"]) / 1024.0),
    );
    for (why, n) in totals["refused"].as_object().into_iter().flatten() {
        if number(n) > 0.0 {
            line("clients refused", format!("{n} for {why}"));
        }
    }
    if number(&totals["malformed"]) > 0.0 {
        line("broken connections", totals["malformed"].to_string());
    }
    show_parking(&report["parking"], &mut line);
    show_cache(&report["cache"], &mut line);
    for s in report["sessions"].as_array().into_iter().flatten() {
        let own = if s["own_slots"] == true { ", own slots" } else { "" };
        let about = format!(
            "{} (process {}): -j{}, {} running, {} waiting{own}",
            string(&s["name"]),
            s["pid"],
            s["jobs"],
            s["running"],
            s["waiting"]
        );
        line("build", about);
        let neighbor = &s["neighbor"];
        if let Some(most) = neighbor["load"].as_f64() {
            line("", format!("starts nothing above {most} runnable threads"));
        }
        if let Some(form) = neighbor["jobserver"].as_str() {
            let (held, free) = (&neighbor["tokens_held"], &neighbor["tokens_free"]);
            line("", format!("{}: {held} tokens held, {free} free", printable(form)));
        }
        if let Some(limit) = s["memory_waits"]["limit"].as_str() {
            let told = describe_waits(&s["memory_waits"]);
            line(
                "",
                format!("memory: {}", [vec![limit.to_owned()], told].concat().join("; ")),
            );
        }
        if let Some(why) = neighbor["waits_for"].as_str() {
            line("", format!("waits: {}", printable(why)));
        }
    }
    for c in report["commands"].as_array().into_iter().flatten() {
        let argv: Vec<_> = c["argv"].as_array().into_iter().flatten().map(string).collect();
        line(
            "runs",
            format!(
                "{} for {}: {}",
                c["pid"],
                duration(number(&c["seconds"])),
                argv.join(" ")
            ),
        );
    }
    text
}

/// Where the cluster is, and whether it is left alone.
fn describe_cluster(cluster: &Value) -> String {
    let address = printable(cluster["address"].as_str().unwrap_or("?"));
    let mut told = format!("{address}: at most {} at once", cluster["jobs"]);
    if let Some(left) = cluster["left_alone_s"].as_f64() {
        let fault = printable(cluster["fault"].as_str().unwrap_or("?"));
        told.push_str(&format!(", left alone for {}: {fault}", duration(left)));
    }
    told
}

/// What there is to tell about waits for memory.
fn describe_waits(waits: &Value) -> Vec<String> {
    let number = |name: &str| waits[name].as_u64().unwrap_or(0);
    let plural = |count: u64| if count == 1 { "command" } else { "commands" };
    let (waited, killed) = (number("waited"), number("killed"));
    let seconds = waits["waited_s"].as_f64().unwrap_or(0.0);
    let told = format!(
        "{waited} {} waited for memory, {} in all",
        plural(waited),
        duration(seconds)
    );
    let kills = format!("{killed} {} killed because memory ran out", plural(killed));
    [(waited, told), (killed, kills)]
        .into_iter()
        .filter_map(|(count, text)| (count > 0).then_some(text))
        .collect()
}

/// At most five lines about the cache. `wafcc --show-stats` shows all.
fn show_cache(cache: &Value, line: &mut impl FnMut(&str, String)) {
    let Ok(statistics) = Statistics::from_json(&cache["statistics"]) else {
        return line("cache", "not asked so far".to_owned());
    };
    line("cache", printable(cache["store"].as_str().unwrap_or("?")));
    line("  entries", statistics.describe_room());
    line("  requests", statistics.describe_requests());
    if !cache["preambles"]["limit"].is_null() {
        let held = &cache["preambles"];
        let bytes = show_size(held["bytes"].as_u64().unwrap_or(0));
        let preambles = statistics.preambles.describe();
        line("  preambles", format!("{} of {bytes}: {preambles}", held["count"]));
    }
    if statistics.audited > 0 || cache["audit_percent"].as_f64().unwrap_or(0.0) > 0.0 {
        let audits = statistics.describe_audits();
        line("  audits", format!("{} % of hits: {audits}", cache["audit_percent"]));
    }
    if statistics.remote.is_of_use() {
        line("  remote", statistics.remote.describe());
    }
    if cache["flights"]["waiting"].as_u64().unwrap_or(0) > 0 {
        let flights = &cache["flights"];
        let told = format!("{} for one of {} that run", flights["waiting"], flights["running"]);
        line("  commands wait", told);
    }
}

/// The most programs that are shown to users.
const PROGRAMS: usize = 30;

/// Programs that are parked or not, with reasons.
fn show_parking(parking: &Value, line: &mut impl FnMut(&str, String)) {
    let string = |value: &Value| printable(value.as_str().unwrap_or("?"));
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    if parking["on"] != true {
        return line("parked programs", "off".to_owned());
    }
    let (commands, memory) = (number(&parking["commands"]), number(&parking["memory_kib"]));
    line("commands parked", format!("{commands} ({} MiB held)", memory >> 10));
    let courses = &parking["courses"];
    if number(&courses["commands"]) > 0 {
        line("  without driver", number(&courses["commands"]).to_string());
    }
    for (why, n) in parking["spawned"].as_object().into_iter().flatten() {
        line("         spawned", format!("{n}: {}", printable(why)));
    }
    let programs = parking["programs"].as_array().map_or(&[][..], Vec::as_slice);
    for program in &programs[..programs.len().min(PROGRAMS)] {
        let (path, state, words) = (&program["path"], &program["state"], &program["words"]);
        line(&string(state), format!("{}: {}", string(path), string(words)));
    }
    let known = number(&parking["programs_known"]) as usize;
    if known > PROGRAMS {
        let more = known - PROGRAMS;
        line("and", format!("{more} more that were used less: wafd status --json"));
    }
}

/// Names and arguments may contain anything. They must not control the terminal, nor look like lines of ours.
fn printable(text: &str) -> String {
    let escape = |c: char| {
        if c.is_control() {
            c.escape_default().collect()
        } else {
            c.to_string()
        }
    };
    text.chars().map(escape).collect()
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..=59 => format!("{seconds:.1} s"),
        60..=3599 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_facts_of_the_json() {
        let mut totals = Totals::default();
        totals.refuse(Why::Place);
        let snapshot = Snapshot {
            pid: 7,
            engine: "9.9.9",
            protocol: 1,
            started: Instant::now(),
            socket: "/run/x.sock".to_owned(),
            tcp_port: Some(4000),
            leaving: false,
            slots: 4,
            running: 1,
            waiting: 2,
            sessions: vec![SessionLine {
                id: "0a0b".to_owned(),
                name: "/src/p".to_owned(),
                pid: 12,
                seconds: 7.0,
                counts: Counts::default(),
                jobs: 4,
                running: 1,
                waiting: 2,
                connections: 3,
                own_slots: true,
                neighbor: json!({"load": 2.5, "jobserver": "jobserver of its own", "tokens_held": 1, "tokens_free": 2,
                    "waits_for": "jobserver: no token is free"}),
                memory_waits: json!({"limit": "what is available", "waited": 4, "waited_s": 12.34, "killed": 1}),
            }],
            connections: 3,
            memory: Some(7 << 10),
            commands: vec![CommandLine {
                id: 1,
                pid: 13,
                session: "0a0b".to_owned(),
                folder: "/src/p".to_owned(),
                known: Some("miss"),
                why: Some("a file changed".to_owned()),
                argv: vec!["cc".to_owned(), "-c".to_owned()],
                seconds: 61.0,
            }],
            totals: &totals,
            parking: Value::Null,
            cache: json!({
                "store": "/store", "audit_percent": 2.5, "flights": {"running": 2, "waiting": 3},
                "statistics": Statistics { entries: 7, hits: 5, audited: 3, different: 1, ..Statistics::default() }.json(),
            }),
            brake: json!({"why": "memory short", "since_s": 3.0, "times": 2, "seconds": 9.0}),
            memory_waits: json!({"waited": 1, "waited_s": 2.0, "killed": 0}),
            cluster: json!({
                "there": 3, "sent": 9, "raced": 1, "address": "grpc://h:1/a", "jobs": 64, "left_alone_s": 4.0,
                "fault": "it did not answer",
            }),
        };
        let text = show(&snapshot.json());
        for part in [
            "wafd 9.9.9, process 7",
            "7.0 MiB",
            "/run/x.sock",
            "127.0.0.1:4000",
            "1 of 4 in use, 2 commands wait",
            "/src/p (process 12): -j4, 1 running, 2 waiting, own slots",
            "13 for 1 min 1 s: cc -c",
            "1 for place",
            "since 3.0 s: memory short",
            "2 times so far, 9.0 s in all",
            "3 commands there, 9 sent so far, 1 of them run here, too",
            "grpc://h:1/a: at most 64 at once, left alone for 4.0 s: it did not answer",
            "nothing above 2.5 runnable",
            "jobserver of its own: 1 tokens held, 2 free",
            "waits: jobserver: no token",
            "memory: what is available; 4 commands waited for memory, 12.3 s in all; 1 command killed because",
            "1 command waited for memory, 2.0 s in all",
            "/store",
            "7 in 0 B, no limit",
            "5 hits, 0 misses (0 not stored), 0 uncached since 1970-01-01 00:00 UTC",
            "2.5 % of hits: 3 compared, 1 different, 0 not compared, 0 still to do",
            "3 for one of 2 that run",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
