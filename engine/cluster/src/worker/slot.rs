//! A slot: a place for one command at a time, with a keeper process and the inputs of the last command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::chamber;
use super::keeper::{STDERR, STDOUT, WORD};
use super::layout::{self, Laid, Manner};
use super::order::{Ended, Order, Setup};
use super::store::Pins;
use super::tree::{self, Tree};

/// How long a keeper may take to make its namespaces, and to end.
const START_TIME: Duration = Duration::from_secs(60);
const END_TIME: Duration = Duration::from_secs(30);
/// How many places a slot has, unless one command needs more.
const MOST_PLACES: usize = 64;
/// What a keeper may take beyond the time of its command.
const GRACE: Duration = Duration::from_secs(60);

/// What all slots have in common.
#[derive(Debug, Clone)]
pub struct Ground {
    pub folder: PathBuf,
    pub shared: Vec<PathBuf>,
    pub hidden: Vec<PathBuf>,
    pub programs: PathBuf,
    pub is_isolated: bool,
    /// The user of the first slot. Each has another one.
    pub first_user: Option<u32>,
}

pub struct Slot {
    number: u16,
    ground: Ground,
    folder: PathBuf,
    keeper: Option<Keeper>,
    laid: Laid,
}

struct Keeper {
    setup: Setup,
    child: Child,
    stream: BufReader<UnixStream>,
}

impl Slot {
    pub fn new(number: u16, ground: &Ground) -> Slot {
        Slot {
            number,
            ground: ground.clone(),
            folder: ground.folder.join("slots").join(number.to_string()),
            keeper: None,
            laid: Laid::default(),
        }
    }

    /// Where its inputs are.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    pub fn stdout(&self) -> PathBuf {
        self.out().join(STDOUT)
    }

    pub fn stderr(&self) -> PathBuf {
        self.out().join(STDERR)
    }

    /// A folder that commands cannot write.
    pub fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    pub fn is_isolated(&self) -> bool {
        self.ground.is_isolated
    }

    /// Whether commands run as another user than we do.
    pub fn has_other_user(&self) -> bool {
        self.ground.first_user.is_some()
    }

    fn user(&self) -> Option<u32> {
        Some(self.ground.first_user? + u32::from(self.number))
    }

    /// Makes it ready for a command: with these places, these inputs and an engine with these variables.
    pub async fn prepare(
        &mut self,
        places: &[PathBuf],
        variables: &[(String, String)],
        mut tree: Tree,
        pins: Pins,
        links: bool,
    ) -> Result<(), String> {
        let places = match &self.keeper {
            Some(keeper) if keeper.setup.variables == variables => {
                widened(&keeper.setup.places, places, &chamber::shown(&self.ground.shared))
            }
            _ => places.to_vec(),
        };
        for place in &places {
            tree::add_folder(&mut tree, &relative(place)).map_err(|path| format!("{path} is no folder"))?;
        }
        let setup = Setup {
            folder: self.folder.clone(),
            places: places.clone(),
            shared: self.ground.shared.clone(),
            hidden: self.ground.hidden.clone(),
            programs: self.ground.programs.clone(),
            user: self.user(),
            is_isolated: self.ground.is_isolated,
            variables: variables.to_vec(),
        };
        if self.keeper.as_ref().is_some_and(|keeper| keeper.setup != setup) {
            self.end().await;
        }
        let is_new = self.keeper.is_none();
        let (folder, user, is_isolated) = (self.folder.clone(), self.user(), self.ground.is_isolated);
        let names: Vec<String> = places.iter().map(|place| relative(place)).collect();
        let shared: Vec<String> = self.ground.shared.iter().map(|path| relative(path)).collect();
        let mut laid = std::mem::take(&mut self.laid);
        let work = move || -> io::Result<Laid> {
            if is_new {
                chamber::folders(&folder, user, is_isolated)?;
                layout::empty(&folder.join("root"), &[])?;
                laid = Laid::default();
            }
            // What is mounted in it stays.
            let kept: Vec<&str> = names
                .iter()
                .chain(&shared)
                .filter_map(|name| first_in_tmp(name))
                .collect();
            layout::empty(&folder.join("tmp"), if is_new { &[] } else { &kept })?;
            layout::empty(&folder.join("out"), &[])?;
            let manner = Manner {
                places: &names,
                user,
                links,
            };
            if layout::lay_out(&folder.join("root"), &tree, &pins, &mut laid, &manner)? {
                // A file that is written in the tick of the clock in which a compile starts is not trusted.
                wafengine::facts::status::Stamp::wait_for_next();
            }
            Ok(laid)
        };
        let done = tokio::task::spawn_blocking(work).await;
        self.laid = match done {
            Ok(Ok(laid)) => laid,
            Ok(Err(error)) => {
                // What is half done is done anew.
                self.end().await;
                return Err(format!("lay out the inputs: {error}"));
            }
            Err(error) => return Err(format!("lay out the inputs: {error}")),
        };
        if is_new {
            self.keeper = Some(Keeper::start(setup).await?);
        }
        Ok(())
    }

    /// Runs a command in the slot, which is prepared. If that fails, the slot is made anew for the next one.
    pub async fn run(&mut self, order: &Order) -> Result<Ended, String> {
        let Some(keeper) = &mut self.keeper else {
            return Err("the slot is not prepared".to_owned());
        };
        let ended = keeper.run(order).await;
        if ended.is_err() {
            self.end().await;
        }
        ended
    }

    /// Ends all processes of the slot.
    pub async fn end(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.end().await;
        }
    }
}

impl Keeper {
    async fn start(setup: Setup) -> Result<Keeper, String> {
        let failed = |what: &str, error: io::Error| format!("{what} a slot's keeper: {error}");
        let own = std::env::current_exe().map_err(|error| failed("find the program of", error))?;
        let (here, there) = Pair::pair().map_err(|error| failed("connect", error))?;
        here.set_nonblocking(true).map_err(|error| failed("connect", error))?;
        let mut command = Command::new(own);
        command
            .arg(WORD)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(there)))
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let child = command.spawn().map_err(|error| failed("start", error))?;
        drop(command);
        let stream = UnixStream::from_std(here).map_err(|error| failed("connect", error))?;
        let mut keeper = Keeper {
            child,
            stream: BufReader::new(stream),
            setup,
        };
        let setup = keeper.setup.clone();
        let begun = timeout(START_TIME, keeper.ask(&setup)).await;
        match begun {
            Ok(Ok(Ended { trouble: None, .. })) => Ok(keeper),
            Ok(Ok(Ended { trouble: Some(why), .. })) => Err(why),
            Ok(Err(error)) => Err(failed("ask", error)),
            Err(_) => Err("a slot's keeper does not answer".to_owned()),
        }
    }

    async fn ask(&mut self, what: &impl serde::Serialize) -> io::Result<Ended> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.stream.write_all(&line).await?;
        let mut answer = String::new();
        match self.stream.read_line(&mut answer).await? {
            0 => Err(io::Error::other("it has ended")),
            _ => Ok(serde_json::from_str(&answer)?),
        }
    }

    /// Runs a command, with some time beyond that of the command.
    async fn run(&mut self, order: &Order) -> Result<Ended, String> {
        let time = Duration::from_millis(order.milliseconds) + GRACE;
        match timeout(time, self.ask(order)).await {
            Ok(Ok(ended)) => Ok(ended),
            Ok(Err(error)) => Err(format!("the slot's keeper: {error}")),
            Err(_) => Err("the slot's keeper does not answer".to_owned()),
        }
    }

    async fn end(mut self) {
        // The first process of the slot sees that, and the kernel ends the others with it.
        drop(self.stream);
        if timeout(END_TIME, self.child.wait()).await.is_err() {
            log::warn!("a slot's keeper does not end");
            let _ = self.child.start_kill();
            let _ = timeout(END_TIME, self.child.wait()).await;
        }
    }
}

/// Runs one command in a slot of its own, whose inputs are there.
pub async fn run_once(setup: Setup, order: &Order) -> Result<Ended, String> {
    let mut keeper = Keeper::start(setup).await?;
    let ended = keeper.run(order).await;
    keeper.end().await;
    ended
}

/// The places of a slot that has some already. If a command needs none of these, they are empty folders for it, and the slot
/// need not be made anew. But nothing that this machine shows may be hidden behind them.
fn widened(old: &[PathBuf], new: &[PathBuf], shown: &[PathBuf]) -> Vec<PathBuf> {
    let others: Vec<&PathBuf> = old.iter().filter(|place| !new.contains(place)).collect();
    let touch = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    let is_harmless = |other: &&PathBuf| !shown.iter().any(|path| touch(path, other));
    if others.len() + new.len() > MOST_PLACES || !others.iter().all(is_harmless) {
        return new.to_vec();
    }
    tree::topmost(others.into_iter().chain(new).cloned().collect())
}

/// The path without its leading slash, as trees have it.
pub fn relative(path: &Path) -> String {
    let path = path.strip_prefix("/").unwrap_or(path);
    path.to_string_lossy().into_owned()
}

/// The name in `/tmp` in which this place lies.
fn first_in_tmp(place: &str) -> Option<&str> {
    place.strip_prefix("tmp/")?.split('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_its_places_if_they_hide_nothing() {
        let paths = |all: &str| -> Vec<PathBuf> { all.split_whitespace().map(PathBuf::from).collect() };
        let widen = |old: &str, new: &str| widened(&paths(old), &paths(new), &paths("/usr /opt"));
        assert_eq!(widen("/home/u /srv/x", "/home/u"), paths("/home/u /srv/x"));
        assert_eq!(widen("/home/u", "/home/v /srv/x"), paths("/home/u /home/v /srv/x"));
        assert_eq!(widen("/home/u", "/home/u/p /srv/x"), paths("/home/u /srv/x"));
        assert_eq!(widen("/home/u/p", "/home/u"), paths("/home/u"));
        for old in ["/opt/x", "/usr", "/"] {
            assert_eq!(widen(old, "/home/u"), paths("/home/u"), "{old}");
        }
        let many: Vec<String> = (0..MOST_PLACES).map(|number| format!("/p/{number}")).collect();
        assert_eq!(widen(&many.join(" "), "/home/u"), paths("/home/u"));
    }
}
