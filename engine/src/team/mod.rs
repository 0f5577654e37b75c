//! `wafd serve`: the cache of a team.
//!
//! ```text
//! listener ─► worker ─► connection ─► dialect: room | http | redis ─► value store ─► store
//!               ▲                                                       │
//!               └── mailbox ◄── disk threads ◄── large contents ◄───────┘
//! ```
//!
//! The listener passes connections to workers, each of which has an event loop. A dialect decodes requests and encodes
//! replies, and has access only to its exchange (`shared`). `docs/serve.md` says how to run a server.

mod connection;
mod dialect;
mod disk_threads;
pub mod http;
mod limits;
mod listener;
mod mailbox;
mod memory_cache;
mod metrics;
mod options;
mod outbox;
pub mod redis;
mod room;
mod shared;
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
use self::limits::{Budget, Limits};
use self::listener::{Listener, Port};
use self::mailbox::{Mailbox, Message};
use self::memory_cache::MemoryCache;
pub use self::options::Options;
use self::shared::{ServerSettings, Shared};
use self::tls::CertificateFiles;
use self::token_file::TokenFile;
use self::tokens::Tokens;
use self::upload::Uploads;
use self::value_store::ValueStore;
use self::worker::Worker;
use self::writes::WriteLog;
use crate::cache::store::{Compression, Settings, Store};
use crate::http::asker::Names;
use crate::process::service::{open_signals, raise_descriptor_limit};

/// Threads for large contents.
const DISK_THREADS: usize = 2;
const TOKEN: &str = "WAFD_SERVE_TOKEN";

/// Runs `wafd serve` with these options.
pub fn run(options: &Options) -> Result<(), String> {
    let misused = |error: &str| format!("serve: {error}; see wafd serve --help");
    if let Some(name) = &options.new_token {
        let file = options.tokens.as_ref();
        let file = file.ok_or_else(|| misused("--new-token wants --tokens FILE"))?;
        let rights = if options.write { tokens::WRITE } else { tokens::READ };
        let token = token_file::add(file, name, rights, &options.namespace)?;
        return print(&format!("{token}\n"));
    }
    options.check().map_err(misused)?;
    serve(options, &options.store().map_err(misused)?)
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|error| format!("write to standard output: {error}"))
}

fn serve(options: &Options, store: &Path) -> Result<(), String> {
    // Before there are threads: they inherit that signals are blocked.
    let signals = open_signals().map_err(|error| format!("wait for signals: {error}"))?;
    raise_descriptor_limit();
    let given = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let (tokens, held) = TokenFile::open(options.tokens.clone(), given.as_deref())?;
    check_openness(options, &held)?;
    let paths = options.tls_cert.clone().zip(options.tls_key.clone());
    let mut certificates = paths.map(|(chain, key)| CertificateFiles::new(chain, key, options.tls_client_ca.clone()));
    let tls = certificates.as_mut().and_then(CertificateFiles::changed).transpose()?;
    let values = Arc::new(open_values(options, store)?);
    let open = |(address, is_plain)| {
        let listener = listener::listen(address)?;
        Ok::<_, String>(Port { listener, is_plain })
    };
    let ports: Vec<_> = options.ports().map(open).collect::<Result<_, _>>()?;
    let settings = ServerSettings {
        limits: options.limits,
        writes: options.log_writes.clone().map(WriteLog::open).transpose()?,
        tls,
        are_metrics_open: options.open_metrics,
        tokens: held,
        names: names(options, &ports)?,
        recognize: dialect::recognize,
    };
    let failed = |error: std::io::Error| format!("start to serve: {error}");
    let shared = Shared::new(
        values.clone(),
        DiskThreads::start(DISK_THREADS, &values).map_err(failed)?,
        open_dock(store, &options.limits)?,
        settings,
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
        print(&format!("serves {address}{how}\n"))?;
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
        certificates,
    };
    let ended = listener.run().map_err(|error| format!("take connections: {error}"));
    info!("leaving, after what is under way");
    shared.is_leaving.store(true, Ordering::Relaxed);
    workers.iter().for_each(|worker| worker.put(Message::Leave));
    for thread in threads {
        let _ = thread.join();
    }
    shared.disk_threads.finish();
    info!("left");
    ended
}

/// A server without tokens may listen on loopback only.
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

fn open_values(options: &Options, store: &Path) -> Result<ValueStore, String> {
    let or_unlimited = |size: u64| if size == 0 { u64::MAX } else { size };
    let settings = Settings {
        max_size: or_unlimited(options.max_size),
        compression: Compression::Auto,
    };
    let values = ValueStore {
        store: Store::open(store, settings).map_err(|error| error.to_string())?,
        cache: MemoryCache::new(options.memory as usize),
        downloads: Budget::new(options.limits.uploads),
        quotas: options.quotas.iter().map(|(namespace, _)| namespace.clone()).collect(),
    };
    for (namespace, most) in &options.quotas {
        values.set_quota(namespace, or_unlimited(*most));
    }
    Ok(values)
}

fn open_dock(store: &Path, limits: &Limits) -> Result<Uploads, String> {
    let folder: PathBuf = store.join("uploads");
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&folder);
    made.map_err(|error| format!("make the folder {}: {error}", folder.display()))?;
    Ok(Uploads {
        folder,
        budget: Budget::new(limits.uploads),
    })
}

/// The host names by which HTTP may be requested. The machine's own name is among them if other machines can connect.
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
