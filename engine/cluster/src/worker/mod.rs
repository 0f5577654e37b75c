//! `wafd worker`: runs the commands of a cluster.
//!
//! ```text
//! session, one for each slot ─► lease ─► execute ─► tree, store ─► slot: layout, keeper, chamber ─► outputs
//! ```
//!
//! A worker that is none of ours may run `carried` instead, which has one slot for one command.

pub mod bots;
pub mod carried;
mod chamber;
mod execute;
pub mod keeper;
mod layout;
mod order;
mod outputs;
mod session;
mod slot;
pub mod store;
pub mod tree;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wafengine::report::misuse;
use wafengine::settings::address::{Address, Limits};
use wafengine::worker::Options;

use crate::connection::Connection;
use crate::contents::Contents;
use crate::executing::carried::programs;
use execute::Executor;
use session::{Session, Stage};
use slot::{Ground, Slot};
use store::Store;
use tree::{Tree, Trees};

/// The users of slots, if we are root. No packages and no people get these.
const FIRST_USER: u32 = 0x7761_0000;
/// How patient we are with the cluster, at least. Nothing waits for us but the command itself.
const PATIENCE: Limits = Limits {
    connect: Duration::from_secs(5),
    silence: Duration::from_secs(20),
    whole: Duration::from_secs(120),
    pause: Duration::from_secs(5),
};

/// Runs the worker. Returns the process's status.
pub fn run(args: impl Iterator<Item = OsString>) -> u8 {
    let name = OsString::from("wafd worker");
    let options = match Options::try_parse_from(std::iter::once(name).chain(args)) {
        Ok(options) => options,
        Err(asked) if !asked.use_stderr() => {
            print!("{asked}");
            return 0;
        }
        Err(error) => {
            eprintln!("wafd worker: {}; see wafd worker --help", misuse::describe(&error));
            return 1;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(work(options)),
        Err(error) => Err(format!("start threads: {error}")),
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("wafd worker: {why}");
            1
        }
    }
}

async fn work(options: Options) -> Result<(), String> {
    let folder = match options.folder {
        Some(folder) => folder,
        None => usual_folder().ok_or("there is no place for its files: name one by --folder")?,
    };
    let (folder, _lock) = take(&folder)?;
    let mut address = options.address;
    let limits = &mut address.limits;
    limits.connect = limits.connect.max(PATIENCE.connect);
    limits.silence = limits.silence.max(PATIENCE.silence);
    limits.whole = limits.whole.max(PATIENCE.whole);
    let connection = Connection::new(&address)?;
    let ground = Ground {
        shared: options.shared,
        hidden: secrets(&address),
        programs: programs()?,
        is_isolated: !options.no_isolation,
        first_user: rustix::process::geteuid().is_root().then_some(FIRST_USER),
        folder,
    };
    let store = Store::open(&ground.folder.join("inputs"), options.size);
    let store = store.map_err(|error| format!("open {}: {error}", ground.folder.join("inputs").display()))?;
    let contents = Contents::new(&connection, address.limits);
    let name = options.name.unwrap_or_else(machine);
    let executor = Arc::new(Executor {
        trees: Trees::new(&contents),
        contents: contents.clone(),
        store: store.clone(),
        time: options.timeout,
        name: name.clone(),
    });
    try_slot(&ground, &contents, &store).await?;
    let count = options.slots.unwrap_or_else(processors);
    let mut properties = vec![
        ("OSFamily".to_owned(), "linux".to_owned()),
        ("ISA".to_owned(), isa().to_owned()),
    ];
    properties.retain(|(name, _)| options.properties.iter().all(|(own, _)| own != name));
    properties.extend(options.properties);
    let (sender, stage) = watch::channel(Stage::Working);
    let mut sessions = JoinSet::new();
    let own = getrandom::u64().map_err(|error| format!("draw a random number: {error}"))?;
    for number in 0..count {
        let session = Session {
            executor: executor.clone(),
            connection: connection.clone(),
            bot: format!("{name}/{number}"),
            id: format!("{name}/{own:016x}/{number}"),
            properties: properties.clone(),
            stage: stage.clone(),
        };
        sessions.spawn(session.serve(Slot::new(number, &ground)));
    }
    log::info!("{name} works for {address} with {count} slots");
    let mut signals = [SignalKind::terminate(), SignalKind::interrupt()]
        .into_iter()
        .map(signal)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("wait for signals: {error}"))?;
    let [terminate, interrupt] = &mut signals[..] else {
        return Err("there are no signals".to_owned());
    };
    loop {
        tokio::select! {
            ended = sessions.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(format!("a slot failed: {error}")),
            },
            _ = terminate.recv() => advance(&sender),
            _ = interrupt.recv() => advance(&sender),
        }
    }
}

/// The first signal lets commands end, the second one ends them.
fn advance(stage: &watch::Sender<Stage>) {
    stage.send_modify(|stage| {
        *stage = match stage {
            Stage::Working => Stage::Draining,
            Stage::Draining | Stage::Ending => Stage::Ending,
        };
        match stage {
            Stage::Draining => log::info!("it ends when its commands have ended"),
            _ => log::info!("it ends, and so do its commands"),
        }
    });
}

/// Makes a slot, and leaves it again, to see whether the system permits that.
async fn try_slot(ground: &Ground, contents: &Contents, store: &Arc<Store>) -> Result<(), String> {
    let mut slot = Slot::new(u16::MAX, ground);
    let pins = store.bring(contents, &[]).await;
    let Ok(Ok(pins)) = pins else {
        return Err("its files cannot be used".to_owned());
    };
    let prepared = slot.prepare(&[], &[], Tree::new(), pins, false).await;
    slot.end().await;
    prepared.map_err(|why| match ground.is_isolated {
        true => format!("{why}; as root it works, and --no-isolation does without"),
        false => why,
    })
}

/// The files that commands must not see, by all their names.
fn secrets(address: &Address) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = [&address.token_file, &address.key]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let real = named.iter().filter_map(|path| path.canonicalize().ok());
    let mut all: Vec<PathBuf> = real.chain(named.iter().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

fn usual_folder() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(caches.join("wafd-worker"))
}

/// Makes the folder, which one worker at a time may use.
fn take(folder: &Path) -> Result<(PathBuf, File), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(folder)
        .map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    let lock = File::create(folder.join("lock")).map_err(failed)?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok((folder, lock)),
        Err(_) => Err(format!(
            "{} is used by another worker: name another one by --folder",
            folder.display()
        )),
    }
}

fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn processors() -> u16 {
    let found = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(found).unwrap_or(u16::MAX).min(1024)
}

/// As others call this processor in a cluster.
fn isa() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "x86" => "x86-32",
        "aarch64" => "aarch64",
        other => other,
    }
}
