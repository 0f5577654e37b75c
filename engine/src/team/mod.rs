//! `wafd serve`: the cache of a team.
//!
//! ```text
//! listener ─► worker ─► connection ─► dialect ─► room | http | redis ─► values ─► store
//!                            ▲                                            │
//!                            └── mailbox ◄── disk threads ◄── what is large ◄──┘
//! ```
//!
//! The listener hands connections to workers, each of which has an event loop. A dialect makes requests of bytes and bytes
//! of replies; it sees of the world only its exchange (`shared`). `docs/serve.md` is for whoever runs it.

mod connection;
mod dialect;
mod disk_threads;
mod hot;
pub mod http;
mod limits;
mod listener;
mod mailbox;
mod metrics;
mod options;
mod outbox;
pub mod redis;
mod room;
mod shared;
mod stamp;
mod tls;
mod token_file;
pub mod tokens;
mod upload;
mod value_store;
mod worker;
mod writes;

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;

use log::{info, warn};

use self::disk_threads::DiskThreads;
use self::hot::Hot;
use self::limits::{Budget, Limits};
use self::listener::{Listener, Port};
use self::mailbox::{Letter, Mailbox};
pub use self::options::Options;
use self::shared::{Rules, Shared};
use self::tls::Papers;
use self::token_file::TokenFile;
use self::tokens::Tokens;
use self::upload::Dock;
use self::value_store::ValueStore;
use self::worker::Worker;
use self::writes::Writes;
use crate::cache::store::{Compression, Settings, Store};
use crate::http::asker::Names;
use crate::process::service::{open_signals, raise_descriptor_limit};

/// Threads for what is large.
const DISK_THREADS: usize = 2;
const TOKEN: &str = "WAFD_SERVE_TOKEN";

/// Does what the command line after `wafd serve` says.
pub fn run(options: &Options) -> Result<(), String> {
    let misused = |error: &str| format!("serve: {error}; see wafd serve --help");
    if let Some(name) = &options.new_token {
        let file = options.tokens.as_ref();
        let file = file.ok_or_else(|| misused("--new-token wants --tokens FILE"))?;
        let rights = if options.write { tokens::WRITE } else { tokens::READ };
        let token = token_file::add(file, name, rights, &options.namespace)?;
        return say(&format!("{token}\n"));
    }
    options.check().map_err(misused)?;
    serve(options, &options.store().map_err(misused)?)
}

fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|error| format!("write to standard output: {error}"))
}

fn serve(options: &Options, store: &Path) -> Result<(), String> {
    // Before there are threads, which all are to leave signals alone.
    let signals = open_signals().map_err(|error| format!("wait for signals: {error}"))?;
    raise_descriptor_limit();
    let given = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let (tokens, held) = TokenFile::open(options.tokens.clone(), given.as_deref())?;
    check_openness(options, &held)?;
    let mut papers = papers(options);
    let tls = papers.as_mut().and_then(Papers::changed).transpose()?;
    let values = Arc::new(open_values(options, store)?);
    let ports = listen(options)?;
    let names = names(options, &ports)?;
    let rules = rules(options, held, tls, names)?;
    let failed = |error: std::io::Error| format!("start to serve: {error}");
    let shared = Shared::new(
        values.clone(),
        DiskThreads::start(DISK_THREADS, &values).map_err(failed)?,
        open_dock(store, &options.limits)?,
        rules,
    );
    let shared = Arc::new(shared);
    let mut workers = Vec::new();
    let mut threads = Vec::new();
    for _ in 0..options.workers() {
        let mailbox = Arc::new(Mailbox::new().map_err(failed)?);
        let worker = Worker::new(&shared, &mailbox).map_err(failed)?;
        let thread = thread::Builder::new().name("worker".to_owned()).spawn(|| worker.run());
        threads.push(thread.map_err(failed)?);
        workers.push(mailbox);
    }
    for port in &ports {
        let address = port.listener.local_addr().map_err(failed)?;
        let how = if port.is_plain { " without TLS" } else { "" };
        say(&format!("serves {address}{how}\n"))?;
    }
    if shared.is_open() {
        warn!("there are no tokens: every program of this machine may read and write");
    }
    let listener = Listener {
        shared: shared.clone(),
        workers: workers.clone(),
        ports,
        signals,
        tokens,
        papers,
    };
    let ended = listener.run().map_err(|error| format!("take connections: {error}"));
    info!("leaving, after what is under way");
    shared.is_leaving.store(true, Ordering::Relaxed);
    workers.iter().for_each(|worker| worker.put(Letter::Leave));
    for thread in threads {
        let _ = thread.join();
    }
    shared.disk_threads.finish();
    info!("left");
    ended
}

/// Closed until opened: who has no tokens serves this machine only.
fn check_openness(options: &Options, tokens: &Tokens) -> Result<(), String> {
    if !tokens.is_empty() {
        return Ok(());
    }
    match options.ports().find(|(address, _)| !address.ip().is_loopback()) {
        Some((address, _)) => Err(format!(
            "listen on {address}: there are no tokens, so only addresses of loopback; add one with wafd serve --new-token"
        )),
        None => Ok(()),
    }
}

fn papers(options: &Options) -> Option<Papers> {
    let (certificates, key) = options.tls_cert.clone().zip(options.tls_key.clone())?;
    Some(Papers::new(certificates, key, options.tls_client_ca.clone()))
}

fn rules(
    options: &Options,
    tokens: Tokens,
    tls: Option<Arc<rustls::ServerConfig>>,
    names: Names,
) -> Result<Rules, String> {
    Ok(Rules {
        limits: options.limits,
        writes: options.log_writes.clone().map(Writes::open).transpose()?,
        tls,
        are_metrics_open: options.open_metrics,
        tokens,
        names,
        recognize: dialect::recognize,
    })
}

fn open_values(options: &Options, store: &Path) -> Result<ValueStore, String> {
    let settings = Settings {
        max_size: if options.max_size == 0 {
            u64::MAX
        } else {
            options.max_size
        },
        compression: Compression::Auto,
    };
    let values = ValueStore {
        store: Store::open(store, settings).map_err(|error| error.to_string())?,
        hot: Hot::new(options.memory as usize),
        downloads: Budget::new(options.limits.uploads),
        quotas: options.quotas.iter().map(|(namespace, _)| namespace.clone()).collect(),
    };
    let quotas = options.quotas.iter();
    let without = |most: u64| if most == 0 { u64::MAX } else { most };
    quotas.for_each(|(namespace, most)| values.set_quota(namespace, without(*most)));
    Ok(values)
}

fn open_dock(store: &Path, limits: &Limits) -> Result<Dock, String> {
    let folder: PathBuf = store.join("uploads");
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&folder);
    made.map_err(|error| format!("make the folder {}: {error}", folder.display()))?;
    Ok(Dock {
        folder,
        budget: Budget::new(limits.uploads),
    })
}

fn listen(options: &Options) -> Result<Vec<Port>, String> {
    let open = |(address, is_plain)| {
        let listener = listener::listen(address)?;
        Ok(Port { listener, is_plain })
    };
    options.ports().map(open).collect()
}

/// The machine's own name is among them where others than itself may ask.
fn names(options: &Options, ports: &[Port]) -> Result<Names, String> {
    let addresses = ports.iter().map(|port| Ok(port.listener.local_addr()?.ip()));
    let addresses = addresses.collect::<std::io::Result<Vec<_>>>();
    let addresses = addresses.map_err(|error| format!("start to serve: {error}"))?;
    let mut given = options.hosts.clone();
    if !addresses.iter().all(|address| address.is_loopback()) {
        let system = rustix::system::uname();
        let name = system.nodename().to_string_lossy();
        given.extend(name.split('.').next().map(str::to_owned));
        given.push(name.into_owned());
    }
    Ok(Names::new(addresses, &given))
}
