//! Requests of the engine to the cache: commands to look up before they get a slot, and questions of clients about the
//! store.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use log::warn;

use super::command::{Order, Supplies};
use super::command_flow::Event;
use super::connection::ConnectionKey;
use super::requests::ConnectionError;
use super::slots::CommandKey;
use super::store_watch::StoreWait;
use super::Server;
use crate::cache::answer::{Answer, Question, Wishes};
use crate::cache::cache_threads::{Done, Job, Jobs};
use crate::cache::store::{Compression, Settings as StoreSettings, Store};
use crate::cache::Cache;
use crate::facts::environment::{Circumstances, CLIENT_LIMITS};
use crate::facts::input::Input;
use crate::files::folder::Folder;
use crate::process::context::{Context, Reader};
use crate::report::question::{Answer as Report, Question as Wanted};
use crate::settings::place;
use crate::settings::{self, Key, Settings};
use crate::tier;
use crate::wire::{Caching, Reply, Stdio};

/// Opens the store of our runtime folder. If it has none yet, the store that is asked for, or that our environment
/// names, becomes its store.
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
            // Then clients of other stores use this engine as well, and their commands are not cached.
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
    cache.set_preambles(settings.preambles());
    cache.share_preambles(settings.is_on(Key::SharePreambles));
    cache.compare_texts(settings.comparison());
    cache.cache_failures(settings.is_on(Key::CacheFailures));
    cache.prove_commands(settings.is_on(Key::ProveCommands));
    cache.prove_programs(settings.text(Key::ProvePrograms).as_bytes());
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
    pub(super) fn on_caching(&mut self, key: ConnectionKey, caching: &Caching) -> Result<(), ConnectionError> {
        if let Some(client) = self.connections.client_mut(key) {
            client.wishes = Arc::new(Wishes {
                read_only: caching.read_only,
                recache: caching.recache,
                share_checkouts: caching.share_checkouts,
                bases: caching.bases.iter().map(<[u8]>::to_vec).collect(),
                namespace: caching.namespace.clone(),
                store: (!caching.store.is_empty()).then(|| OsStr::from_bytes(&caching.store).into()),
                export: caching.export.as_deref().map(|folder| OsStr::from_bytes(folder).into()),
                remote: caching
                    .remote
                    .as_deref()
                    .map(|names| String::from_utf8_lossy(names).into()),
                terminal: caching.terminal,
            });
        }
        Ok(())
    }

    /// A client asks about the store itself.
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
        self.connections.reply(key, &Reply::Report { json });
        self.connections.touch(key);
    }

    /// Looks a command up. It gets no slot before the answer.
    pub(super) fn ask_cache(&mut self, key: CommandKey, order: &Order, supplies: &Supplies) -> StoreWait {
        let input = input(order, supplies);
        let client = self.connections.client(order.connection);
        let context = order.context.clone();
        // This client is not examined yet.
        let unknown = client.filter(|_| !order.has_context).map(|client| client.pid);
        let wishes = client.map(|client| client.wishes.clone()).unwrap_or_default();
        let only_known = client.is_some_and(|client| client.only_known);
        let wait = self.begin_store_wait();
        self.ask(Question {
            who: key,
            argv: order.execute.argv.clone(),
            is_mapped: false,
            environment: order.env.clone(),
            folder: order.execute.cwd.clone(),
            umask: order.context.umask,
            by_facts: order.execute.by_facts.then_some(input),
            // What it prints can be stored, and what it may ask about its process is known.
            compiles_by_facts: order.has_context && order.execute.stdio[1..].iter().all(|to| *to == Stdio::Pipe),
            input,
            circumstances: match unknown {
                Some(pid) => circumstances_of(pid),
                None => Circumstances::new(move || circumstances(&context)),
            },
            outputs: order.execute.outputs.iter().map(<[u8]>::to_vec).collect(),
            arrived: order.arrived,
            wishes,
            known_folders: None,
            inputs: order.execute.inputs,
            only_known,
            searched: None,
            claim: wait.claim.clone(),
        });
        wait
    }

    /// Asks a cache thread. If this may be the only question of a quiet moment, it is kept for `lead`.
    fn ask(&mut self, question: Question) {
        let is_quiet = self.round.is_calm
            && !self.store_watch.is_leader_asking.load(Ordering::Relaxed)
            && self.cache_threads.are_idle();
        match self.round.question.take() {
            None if is_quiet => self.round.question = Some(question),
            None => self.cache_threads.ask(question),
            Some(other) => {
                self.round.is_calm = false;
                self.cache_threads.ask(other);
                self.cache_threads.ask(question);
            }
        }
    }

    pub(super) fn on_answer(&mut self, key: CommandKey, answer: Answer) {
        self.store_progressed();
        self.on_event(key, Event::Answered(answer));
    }

    pub(super) fn on_done(&mut self) {
        for done in self.cache_threads.hear() {
            match done {
                Done::Answered { who, answer } => self.on_answer(who, answer),
                Done::Kept { who, kept } => {
                    self.store_progressed();
                    self.on_event(who, Event::Stored(kept));
                }
                Done::Away { who, result } => self.on_event(who, Event::Returned(result)),
                Done::Fetched { who, hit } => {
                    self.store_progressed();
                    self.on_event(who, Event::Fetched(hit.map(Box::new)));
                }
                Done::Other { who, result } => {
                    let json = result.unwrap_or_else(|why| Report::Refusal(why).encode());
                    self.report_to(who, json);
                }
            }
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

fn context_of(pid: u32) -> Option<Context> {
    Reader::new(pid).and_then(|reader| reader.read()).ok()
}

/// The circumstances of a client, as they are when they are first needed, while it waits. What is run again later has the
/// same. If the client is gone, nothing is told, and so nothing can be taken for the same.
fn circumstances_of(pid: u32) -> Circumstances {
    let told = OnceLock::new();
    let tell = move || context_of(pid).map(|found| circumstances(&found)).unwrap_or_default();
    Circumstances::new(move || told.get_or_init(&tell).clone())
}

/// What a program can learn about its host without any access that is recorded.
fn circumstances(context: &Context) -> Vec<(&'static str, String)> {
    let host = rustix::system::uname();
    let parts = [host.nodename(), host.release(), host.version(), host.machine()];
    let host: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    let user = [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()];
    let mut told = context.tell();
    told.extend([("=host", host.join(" ")), ("=user", format!("{} {}", user[0], user[1]))]);
    told.push((CLIENT_LIMITS, context.limits()));
    told
}
