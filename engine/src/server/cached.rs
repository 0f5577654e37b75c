//! Commands that may be cached: asked of the cache before they get a slot, and handed to it when they have run.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use log::{debug, warn};

use super::auditor;
use super::command::{Case, Order, State, Supplies};
use super::connection::ConnectionKey;
use super::requests::Broken;
use super::slots::CommandKey;
use super::starters::{Log, What};
use super::Server;
use crate::cache::answer::{Answer, Hit, Question, Wishes};
use crate::cache::cache_threads::{Done, Job, Jobs};
use crate::cache::keep::Ended;
use crate::cache::lookup::claim::Claim;
use crate::cache::lookup::inputs::{Inputs, Numbered};
use crate::cache::store::{Compression, Settings as StoreSettings, Store};
use crate::cache::Cache;
use crate::facts::environment::Circumstances;
use crate::facts::input::Input;
use crate::facts::status::Stamp;
use crate::files::folder::Folder;
use crate::observe::trace::program::is_static;
use crate::observe::trace::TraceRegion;
use crate::park::program::Program;
use crate::park::Parking;
use crate::process::context::{Adjustment, Context};
use crate::process::spawn::{self, NotStarted};
use crate::report::question::{Answer as Report, Question as Wanted};
use crate::settings::place;
use crate::settings::{self, Key, Settings};
use crate::tier;
use crate::wire::{Caching, Outcome, Reply, Stdio, Step, Strings, Told, Unkept, UnstoredReason, Verdict, Why};
use crate::witness;

/// Opens the store that our runtime folder is known for; else the one that is asked for, or that our own environment names. From then on
/// the folder is known for it.
pub(super) fn open(home: &Folder, jobs: Arc<Jobs>, asked: Option<&Path>) -> Result<Cache, String> {
    let kept = place::kept_store(home);
    let settings = Settings::load_of(kept.as_deref().or(asked));
    let folder = place::store(&settings).ok_or("there is no place for a store: set WAFCC_DIR or HOME")?;
    let wanted = StoreSettings {
        max_size: settings.max_size(),
        compression: match settings.compression() {
            settings::Compression::Auto => Compression::Auto,
            settings::Compression::No => Compression::Off,
            settings::Compression::Level(level) => Compression::Level(level.into()),
        },
    };
    let store = Store::open(&folder, wanted).map_err(|error| error.to_string())?;
    if kept.is_none() {
        let link = home.store();
        if let Err(error) = symlink(&folder, &link) {
            // Clients of other stores come to us as well, and are not cached.
            warn!("link {} to the store: {error}", link.display());
        }
    }
    let again = move |mut question: Question| {
        question.arrived = Instant::now();
        jobs.send(Job::Ask(question));
    };
    let cache = Cache::new(folder, store, again, Box::new(tier::open_all));
    cache.set_audit(settings.audit());
    cache.set_links(settings.is_on(Key::HardLink));
    if let Err(why) = cache.set_trusted_keys(&settings.text(Key::TrustedKeys).to_string_lossy()) {
        warn!("trusted_keys: {why}; nothing is taken from other stores");
    }
    if let Err(why) = cache.set_signing_key(&settings.text(Key::SigningKey).to_string_lossy()) {
        warn!("signing_key: {why}; nothing is uploaded");
    }
    if let Err(why) = cache.set_remote(&settings.text(Key::Remote).to_string_lossy()) {
        warn!("remote: {why}");
    }
    Ok(cache)
}

impl Server {
    pub(super) fn on_caching(&mut self, key: ConnectionKey, caching: &Caching) -> Result<(), Broken> {
        let connection = self.connections.get_mut(&key);
        if let Some(client) = connection.and_then(|connection| connection.client.as_mut()) {
            client.wishes = Arc::new(Wishes {
                read_only: caching.read_only,
                recache: caching.recache,
                bases: caching.bases.iter().map(<[u8]>::to_vec).collect(),
                namespace: caching.namespace.clone(),
                store: (!caching.store.is_empty()).then(|| OsStr::from_bytes(&caching.store).into()),
                terminal: caching.terminal,
            });
        }
        Ok(())
    }

    /// Somebody asks about the store itself.
    pub(super) fn on_question(&mut self, key: ConnectionKey, question: &[u8]) {
        match Wanted::decode(question) {
            Ok(wanted) => self.cache_threads.send(Job::Other {
                who: key,
                store: wanted.store.clone(),
                work: Box::new(move |cache| cache.grant(wanted).encode()),
            }),
            Err(error) => self.report_to(key, Report::Refusal(error).encode()),
        }
    }

    fn report_to(&mut self, key: ConnectionKey, json: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.reply(&Reply::Report { json });
            self.touched.push(key);
        }
    }

    /// Whether a command is known; its slot waits until the answer is there.
    pub(super) fn ask_cache(&mut self, key: CommandKey, order: &Order, supplies: &Supplies) {
        let input = input(order, supplies);
        let context = order.context.clone();
        let connection = self.connections.get(&order.connection);
        let client = connection.and_then(|connection| connection.client.as_ref());
        let claim = Claim::default();
        let wishes = client.map(|client| client.wishes.clone()).unwrap_or_default();
        let only_known = client.is_some_and(|client| client.only_known);
        self.await_store(key, claim.clone());
        self.ask(Question {
            who: key,
            argv: order.execute.argv.clone(),
            environment: order.env.clone(),
            folder: order.execute.cwd.clone(),
            umask: order.context.umask,
            by_facts: order.execute.by_facts.then_some(input),
            input,
            circumstances: Circumstances::new(move || circumstances(&context)),
            outputs: order.execute.outputs.iter().map(<[u8]>::to_vec).collect(),
            arrived: order.arrived,
            wishes,
            inputs: order.execute.inputs,
            only_known,
            searched: None,
            claim,
        });
    }

    /// Asks a cache thread, unless this may be the only question of a quiet moment.
    fn ask(&mut self, question: Question) {
        let is_quiet = self.is_calm && !self.is_away.load(Ordering::Relaxed) && self.cache_threads.are_idle();
        match self.at_hand.take() {
            None if is_quiet => self.at_hand = Some(question),
            None => self.cache_threads.ask(question),
            Some(other) => {
                self.is_calm = false;
                self.cache_threads.ask(other);
                self.cache_threads.ask(question);
            }
        }
    }

    /// Hears from the cache.
    pub(super) fn on_done(&mut self) {
        for done in self.cache_threads.hear() {
            match done {
                Done::Answered { who, answer } => self.on_answer(who, answer),
                Done::Kept { who, kept } => {
                    self.hear_of_store(who);
                    self.on_kept(who, kept);
                }
                Done::Other { who, result } => {
                    let json = result.unwrap_or_else(|why| Report::Refusal(why).encode());
                    self.report_to(who, json);
                }
            }
        }
    }

    /// A command that was withdrawn meanwhile is not there any more: whoever waits for it asks again.
    pub(super) fn on_answer(&mut self, key: CommandKey, answer: Answer) {
        self.hear_of_store(key);
        self.take_answer(key, answer);
    }

    pub(super) fn take_answer(&mut self, key: CommandKey, answer: Answer) {
        let case = match answer {
            Answer::Hit(hit) => return self.serve(key, hit),
            Answer::Miss(ticket) => Case::new(ticket.told(), Some(*ticket), self.cache_threads.jobs()),
            Answer::Uncached(reason) if reason.is_unknown && self.is_for_known(key) => return self.hand_back(key),
            Answer::Uncached(reason) => Case::new(reason.told(), None, self.cache_threads.jobs()),
        };
        if let Err((why, reason)) = self.equip(key) {
            return self.give_back(key, why, &reason);
        }
        let Some(command) = self.commands.get_mut(&key) else {
            return;
        };
        let state = std::mem::replace(&mut command.state, State::Keeping(Box::default()));
        let State::Asking(supplies) = state else {
            command.state = state;
            return;
        };
        command.state = State::Waiting(supplies);
        command.case = Some(Box::new(case));
        let session = command.order.session;
        let connection = self.connections.get(&command.order.connection);
        // What waits for a peer that does not read is submitted when it does.
        if connection.is_some_and(|connection| !connection.holding) {
            self.slots.submit(session, key);
        }
    }

    /// A command is to run: it gets what its client's commands are to be given, if nobody had asked for that yet.
    fn equip(&mut self, key: CommandKey) -> Result<(), (Why, String)> {
        let order = self.commands.get(&key).map(|command| &command.order);
        let Some(of) = order.filter(|order| !order.is_equipped).map(|order| order.connection) else {
            return Ok(());
        };
        self.examine_client(of)?;
        self.touched.push(of);
        let client = self
            .connections
            .get(&of)
            .and_then(|connection| connection.client.as_ref());
        let order = self
            .commands
            .get_mut(&key)
            .and_then(|command| Arc::get_mut(&mut command.order));
        let known = client.and_then(|client| client.inherited.as_ref());
        let (Some(known), Some(order)) = (known, order) else {
            return Err((Why::Place, "its client is gone".to_owned()));
        };
        order.context = Arc::new(known.context.with_umask(order.context.umask));
        let all = known.adjustments.iter().chain(order.adjustments.iter());
        order.adjustments = Arc::new(all.cloned().collect());
        order.control_group = known.control_group.clone();
        order.is_equipped = true;
        Ok(())
    }

    /// A command's client wants only those run that the cache can tell something of.
    fn is_for_known(&self, key: CommandKey) -> bool {
        let connection = self.commands.get(&key).map(|command| command.order.connection);
        let connection = connection.and_then(|connection| self.connections.get(&connection));
        let client = connection.and_then(|connection| connection.client.as_ref());
        client.is_some_and(|client| client.only_known)
    }

    /// A command's client turns out to live elsewhere: it runs the command itself.
    fn give_back(&mut self, key: CommandKey, why: Why, reason: &str) {
        let connection = self.commands.get(&key).map(|command| command.order.connection);
        if let Some(connection) = connection {
            self.count_refusal(connection, why, reason);
        }
        self.hand_back(key);
    }

    fn hand_back(&mut self, key: CommandKey) {
        if let Some(command) = self.commands.remove(&key) {
            let error = io::Error::from_raw_os_error(libc::EPERM);
            let outcome = command.order.not_started(NotStarted::engine(&error));
            self.tell(&command.order, &outcome);
        }
    }

    /// A command is over without having run.
    fn serve(&mut self, key: CommandKey, mut hit: Hit) {
        if hit.due.is_some() && self.equip(key).is_err() {
            hit.due = None;
        }
        let Some(command) = self.commands.remove(&key) else {
            return;
        };
        let order = command.order;
        if let (Some(due), Some(cache)) = (hit.due, self.cache_threads.opened()) {
            let group = order.control_group.clone().map(Adjustment::ControlGroup);
            let (context, adjustments) = (order.context.clone(), order.adjustments.clone());
            let job = auditor::Audit::new(cache, due, context, adjustments, group);
            self.auditor.push(job);
        }
        if let Some(connection) = self.connections.get_mut(&order.connection) {
            connection.backlog = connection.backlog.saturating_sub(order.size);
        }
        for (stream, bytes) in [hit.stdout, hit.stderr].iter().enumerate() {
            self.send_output(order.connection, order.execute.id, stream, bytes);
        }
        let outcome = Outcome {
            id: order.execute.id,
            verdict: Verdict::Ran,
            step: Step::None,
            code: hit.code,
            queued: order.arrived.elapsed().as_micros() as u64,
            ..Outcome::default()
        };
        let processor = hit.processor;
        self.say(&order, Told::Hit { processor });
        if let Some(session) = self.sessions.get_mut(&order.session) {
            session.counts.hits += 1;
        }
        self.tell_inputs(&order, hit.inputs);
        self.tell(&order, &outcome);
    }

    /// A command that the cache was asked for has ended.
    pub(super) fn close_case(&mut self, key: CommandKey, order: Arc<Order>, mut case: Box<Case>, outcome: Outcome) {
        match outcome.verdict {
            Verdict::Ran => {}
            Verdict::TimedOut => case.give_up(UnstoredReason::TookTooLong),
            _ => case.give_up(UnstoredReason::Interrupted),
        }
        let (ticket, trace_region) = (case.ticket.take(), case.trace_region.take());
        let (Some(ticket), Some(trace_region)) = (ticket, trace_region) else {
            self.say(&order, case.told.clone());
            return self.conclude(key, &order, &outcome);
        };
        let [stdout, stderr] = std::mem::take(&mut case.prints);
        self.free_slot(&order.session);
        let claim = Claim::default();
        self.await_store(key, claim.clone());
        self.cache_threads.send(Job::Keep {
            who: key,
            ticket: Box::new(ticket),
            ended: Box::new(Ended {
                code: outcome.code,
                stdout,
                stderr,
                wall: outcome.wall,
                processor: outcome.user + outcome.system,
                started: case.started,
                accesses: Vec::new(),
                driver: case.driver.take(),
                observer: self
                    .parking
                    .library()
                    .map(|path| path.to_bytes().to_vec())
                    .unwrap_or_default(),
            }),
            trace_region,
            claim,
        });
        let state = State::Keeping(Box::new(outcome));
        let case = Some(case);
        self.commands
            .insert(key, super::command::Command { order, state, case });
    }

    pub(super) fn on_kept(&mut self, key: CommandKey, kept: Result<Option<Inputs>, Unkept>) {
        let Some(command) = self.commands.remove(&key) else {
            return;
        };
        let State::Keeping(outcome) = command.state else {
            return;
        };
        let mut told = command.case.map(|case| case.told.clone());
        let inputs = kept.unwrap_or_else(|unkept| {
            told.iter_mut().for_each(|told| told.leave_unstored(unkept.clone()));
            None
        });
        if let Some(told) = told {
            debug!("command {key}: {}", told.show());
            self.say(&command.order, told);
        }
        self.tell_inputs(&command.order, inputs);
        self.tell(&command.order, &outcome);
    }

    /// What a command depended on, if its client wants to know and it can be told.
    fn tell_inputs(&mut self, order: &Order, inputs: Option<Inputs>) {
        let connection = self.connections.get_mut(&order.connection);
        let (Some(connection), Some(inputs)) = (connection, inputs) else {
            return;
        };
        let Some(client) = &mut connection.client else { return };
        let Numbered { first, new, numbers } = client.numbers.number(inputs.texts);
        connection.reply(&Reply::Inputs {
            id: order.execute.id,
            first,
            new,
            result: inputs.result.0,
            numbers,
        });
    }

    fn say(&mut self, order: &Order, told: Told) {
        if let Some(connection) = self.connections.get_mut(&order.connection) {
            let id = order.execute.id;
            connection.reply(&Reply::Told { id, told });
        }
    }
}

/// What a command will find on its standard input.
fn input(order: &Order, supplies: &Supplies) -> Input {
    match (order.execute.stdio[0], supplies.descriptors.first()) {
        (Stdio::Null, _) => Input::Nothing,
        (Stdio::Pipe, _) => Input::of_text(&supplies.input),
        (Stdio::Descriptor, Some(file)) => Input::of(file.as_fd()),
        _ => Input::Unknown,
    }
}

/// What a program can know of where it runs without asking for anything that is noted.
fn circumstances(context: &Context) -> Vec<(&'static str, String)> {
    let host = rustix::system::uname();
    let parts = [host.nodename(), host.release(), host.version(), host.machine()];
    let host: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    let user = [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()];
    let mut told = context.tell();
    told.extend([("=host", host.join(" ")), ("=user", format!("{} {}", user[0], user[1]))]);
    told
}

/// Prepares a command to note what it does, if what comes of it is to be stored.
pub(super) fn observe(case: &mut Case, order: &Order, parking: &Parking) -> Option<Log> {
    case.ticket.as_ref()?;
    if order.execute.stdio[1..] != [Stdio::Pipe, Stdio::Pipe] {
        case.give_up(UnstoredReason::PrintsElsewhere);
        return None;
    }
    let (Some(arena), Some(library)) = (parking.arena(), parking.library()) else {
        case.give_up(UnstoredReason::CannotBeObserved);
        return None;
    };
    let Some(mut trace_region) = arena.reserve() else {
        case.give_up(UnstoredReason::TooManyAtOnce);
        return None;
    };
    let (program, log) = note_in(&trace_region, library, order, (&order.execute.argv, &order.env));
    trace_region.expect(program);
    case.trace_region = Some(trace_region);
    case.started = Stamp::now();
    Some(log)
}

/// The same for what is to run next of it. A driver that is told how its parts ended is not observed, and so nothing is known of
/// the command then.
pub(super) fn observe_next(case: &mut Case, order: &Order, what: &What, parking: &Parking) -> Option<Log> {
    let trace_region = case.trace_region.as_mut()?;
    trace_region.mark();
    match what {
        What::Part(part) => {
            let (program, log) = note_in(trace_region, parking.library()?, order, (&part.argv, &part.env));
            trace_region.expect(program);
            Some(log)
        }
        What::Command | What::Driver(_) => None,
    }
}

/// Where a command notes what it does, and the file that is executed for it: one that cannot be told is none.
fn note_in(
    trace_region: &TraceRegion,
    library: &CStr,
    order: &Order,
    (argv, env): (&Strings, &Strings),
) -> (Option<PathBuf>, Log) {
    let candidates = spawn::candidates(argv.iter().next().unwrap_or_default(), env);
    let found = Program::find(&candidates, &order.execute.cwd);
    let called = found.as_ref().map_or(c"", |(_, called)| called);
    let path = found.as_ref().map(|(program, _)| program.path.to_bytes().to_vec());
    let program = PathBuf::from(OsString::from_vec(path.unwrap_or_default()));
    let witness = trace_region
        .witness()
        .filter(|_| order.context.has_room(witness::ROOM) && is_static(&program));
    let (argv, variables) = match witness {
        Some((witness, variable)) => (
            Some(witness::command(&witness, called.to_bytes(), argv)),
            vec![variable],
        ),
        None => {
            let theirs = env.iter().find_map(|entry| entry.strip_prefix(b"LD_PRELOAD="));
            (None, trace_region.variables(library.to_bytes(), theirs).to_vec())
        }
    };
    // A traced program has their libraries as it would have without us.
    let is_replaced =
        |entry: &&[u8]| entry.starts_with(b"LD_PRELOAD=") && argv.is_none() || entry.starts_with(b"WAFPARK_TRACE=");
    let others = env.iter().filter(|entry| !is_replaced(entry));
    let log = Log {
        place: trace_region.place(),
        env: others.chain(variables.iter().map(Vec::as_slice)).collect(),
        argv,
    };
    (Some(program), log)
}
