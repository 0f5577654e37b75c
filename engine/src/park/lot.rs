//! All of parking as the rest of the engine sees it: starts the threads, and starts a command in a parked program.

use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::sync::atomic::AtomicI32;
use std::sync::mpsc;
use std::sync::Arc;
use std::thread;

use log::warn;
use serde_json::Value;

use super::keeper::Keeper;
use super::library;
use super::packet::{Request, ROUTE, SCORE, SESSION};
use super::policy::Policy;
use super::pool::{Pool, Reason, Task};
use super::program::Program;
use super::router::{self, Ledger, Router};
use super::task::Task as Trial;
use super::verdict;
use crate::context::{self, Context};
use crate::folder::Folder;
use crate::guardian::Roster;
use crate::spawn::{self, Child, Launch};

/// More threads than this only wait for each other.
const ROUTERS: usize = 16;

/// Where parked programs are.
pub struct Lot {
    pool: Arc<Pool>,
    own: Context,
    /// The router's address, with its zero.
    route: Vec<u8>,
}

impl Lot {
    pub fn open(folder: &Folder, roster: &Roster, own: &Context, ledger: &Arc<Ledger>) -> Lot {
        let policy = Policy::from_environment().unwrap_or_else(|error| {
            warn!("{error} (parking as by default)");
            Policy::default()
        });
        let (tasks, orders) = mpsc::channel();
        let pool = Arc::new(Pool::new(policy, verdict::load(&folder.verdicts()), tasks));
        let route = CString::new(folder.route().as_os_str().as_bytes()).unwrap_or_default();
        let lot = Lot {
            pool,
            own: own.clone(),
            route: route.into_bytes_with_nul(),
        };
        if lot.pool.is_on() {
            // A full disk, for one, is no reason not to build.
            if let Err(error) = lot.prepare(folder, roster, ledger, orders) {
                warn!("nothing is parked: {error}");
                lot.pool.turn_off(&format!("it could not be prepared: {error}"));
            }
        }
        lot
    }

    fn prepare(
        &self,
        folder: &Folder,
        roster: &Roster,
        ledger: &Arc<Ledger>,
        orders: mpsc::Receiver<Task>,
    ) -> io::Result<()> {
        let pool = &self.pool;
        let empty = folder.trial();
        let _ = fs::remove_dir_all(&empty);
        DirBuilder::new().mode(0o700).create(&empty)?;
        let keeper = Keeper {
            pool: pool.clone(),
            library: library::install(folder)?,
            roster: roster.share()?,
            tickets: roster.tickets(),
            null: OwnedFd::from(fs::File::options().read(true).write(true).open("/dev/null")?),
            folder: empty,
            verdicts: folder.verdicts(),
            context: self.own.plain(),
            graves: Vec::new(),
        };
        thread::Builder::new()
            .name("park".to_owned())
            .spawn(move || keeper.work(&orders))?;
        let listener = router::listen(folder)?;
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get().min(ROUTERS)) {
            let router = Router::new(listener.clone(), pool.clone(), roster.tickets(), ledger.clone())?;
            thread::Builder::new()
                .name("route".to_owned())
                .spawn(move || router.work())?;
        }
        Ok(())
    }

    /// Starts a command in a parked program, or says why it must be spawned; `berth` is its place in the roster.
    pub fn start(&self, launch: &Launch<'_>, berth: Option<(usize, &AtomicI32)>) -> Option<Child> {
        if !self.is_on() {
            return None;
        }
        match self.try_start(launch, berth) {
            Ok(child) => Some(child),
            Err(reason) => {
                self.pool.count_spawned(reason);
                None
            }
        }
    }

    fn try_start(&self, launch: &Launch<'_>, berth: Option<(usize, &AtomicI32)>) -> Result<Child, Reason> {
        let (number, ticket) = berth.ok_or("too many commands run")?;
        if launch.context.personality() != self.own.personality() {
            return Err("its client has another personality".into());
        }
        if launch
            .adjustments
            .iter()
            .any(|a| matches!(a, context::Adjustment::Inherit(_)))
        {
            return Err("it inherits a jobserver".into());
        }
        let name = launch.argv.iter().next().unwrap_or_default();
        let candidates = spawn::candidates(name, launch.env);
        let program = Program::find(&candidates, launch.cwd);
        let (program, called) = program.ok_or("it was not found")?;
        let mut context = launch.context.block();
        for adjustment in launch.own.iter().flatten() {
            match adjustment {
                context::Adjustment::Processors(set) => context::write_set(set, &mut context.processors),
                _ => return Err("its client is in another control group".into()),
            }
        }
        let stack = context.limits[context::STACK];
        let parked = self.pool.take(&program, launch.env, stack)?;
        let route = if Trial::is_driver(&program.name()) { ROUTE } else { 0 };
        let session = if launch.new_session { SESSION } else { 0 };
        let score = if context.score == self.own.block().score {
            0
        } else {
            SCORE
        };
        let folder = CString::new(launch.cwd).map_err(|_| "its folder has no name")?;
        let request = Request {
            flags: route | session | score,
            berth: number,
            group: 0,
            path: called.to_bytes_with_nul(),
            folder: folder.to_bytes_with_nul(),
            argv: launch.argv.bytes(),
            argc: launch.argv.len(),
            env: launch.env.bytes(),
            envc: launch.env.len(),
            route: &self.route,
            context,
            streams: launch.stdio,
        };
        let child = parked.ask(&request, ticket).map_err(|why| why.0)?;
        self.pool.count_parked(&program);
        Ok(child)
    }

    pub fn is_on(&self) -> bool {
        self.pool.is_on()
    }

    pub fn report(&self) -> Value {
        self.pool.report()
    }

    /// Ends all that is parked.
    pub fn close(&self) {
        self.pool.end();
    }
}
