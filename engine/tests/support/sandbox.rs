//! A private runtime folder with an engine of its own, and helpers for both.
//!
//! The folder's name is in the environment of everything that is started in it (engine, guardian, commands). So
//! left-over processes can be found, and a test that leaves some fails.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::peer::{self, Peer};
use super::{order, process};
use wafengine::files::folder::{Folder, ENGINE};

/// The time after which a wait fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A number that is unique in this test program.
pub fn unique() -> u32 {
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// Waits for a condition. This is the only place where tests wait without an event.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether we are root, who can test more.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The output of a program that has ended.
#[derive(Debug)]
pub struct ProgramOutput {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl ProgramOutput {
    #[track_caller]
    pub fn succeeded(self) -> String {
        assert_eq!(self.status, Some(0), "{self:?}");
        self.stdout
    }

    /// The one line of an error: exit status 1, and no other output.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_eq!(self.status, Some(1), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "one line on standard error: {self:?}");
        assert!(self.stderr.starts_with("wafd: "), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self.stderr
    }
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> ProgramOutput {
        ProgramOutput {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The folders, and the environment of programs in them.
pub struct Sandbox {
    /// Removed at the end.
    base: PathBuf,
    /// The runtime folder.
    runtime: PathBuf,
    /// The engine's program.
    program: PathBuf,
    /// Further variables for the engine and its clients.
    variables: Vec<(&'static str, String)>,
}

impl Sandbox {
    /// An empty runtime folder, and no engine yet.
    pub fn new() -> Sandbox {
        let base = std::env::temp_dir().join(format!("wt{}-{}", std::process::id(), unique()));
        let runtime = base.join("run");
        let mut builder = DirBuilder::new();
        builder.mode(0o700).create(&base).unwrap();
        builder.create(&runtime).unwrap();
        Sandbox {
            base,
            runtime,
            program: env!("CARGO_BIN_EXE_wafd").into(),
            variables: Vec::new(),
        }
    }

    /// A sandbox with an engine.
    pub fn started() -> Sandbox {
        let sandbox = Sandbox::new();
        sandbox.start();
        sandbox
    }

    /// A sandbox with an engine that parks nothing, for tests that count its descriptors or children.
    pub fn without_parking() -> Sandbox {
        Sandbox::with(&[("WAFD_PARK", "no")])
    }

    /// A sandbox with an engine that has these variables, and parks the programs of tests even if that saves no time.
    pub fn with(variables: &[(&'static str, &str)]) -> Sandbox {
        Sandbox::with_runtime("run", variables)
    }

    /// The same with another name of the runtime folder.
    pub fn with_runtime(name: &str, variables: &[(&'static str, &str)]) -> Sandbox {
        let mut sandbox = Sandbox::new();
        sandbox.use_runtime(name);
        let folders = ("WAFD_PARK_FOLDERS", sandbox.base.to_str().unwrap());
        let variables = [("WAFD_PARK", "proved"), folders]
            .into_iter()
            .chain(variables.iter().copied());
        sandbox.variables = variables.map(|(name, value)| (name, value.to_owned())).collect();
        sandbox.start();
        sandbox
    }

    /// Uses a copy of the program, which the test may replace.
    pub fn use_copy(&mut self) -> &Path {
        let copy = self.path("wafd");
        install(&self.program, &copy);
        self.program = copy;
        &self.program
    }

    /// Uses another runtime folder below the sandbox.
    pub fn use_runtime(&mut self, name: impl AsRef<Path>) {
        self.runtime = self.base.join(name);
    }

    /// A path in the sandbox, outside the runtime folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.join(name)
    }

    /// The same as text, for scripts.
    pub fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// A file of this engine in the runtime folder.
    pub fn file(&self, ending: &str) -> PathBuf {
        self.runtime.join(format!("wafd-{ENGINE}.{ending}"))
    }

    pub fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    pub fn folder(&self) -> Folder {
        Folder::at(&self.runtime)
    }

    /// `wafd`, or a program that starts it, in this sandbox.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("WAFD_RUNTIME_DIR", &self.runtime)
            .env_remove("WAFD_IDLE")
            .env_remove("WAFD_LOG")
            .env_remove("RUST_BACKTRACE")
            .env_remove("WAFD_PARK")
            // Tests share the machine with others, and an engine may be slow.
            .env("WAFD_PATIENCE", "20")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    pub fn wafd(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.program);
        command.args(args);
        command
    }

    /// Runs `wafd` to its end.
    pub fn run(&self, args: &[&str]) -> ProgramOutput {
        run(&mut self.wafd(args))
    }

    #[track_caller]
    pub fn start(&self) -> String {
        self.run(&["start"]).succeeded()
    }

    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.run(&["status", "--json"]).succeeded()).unwrap()
    }

    /// How many commands the engine has run successfully.
    pub fn succeeded_commands(&self) -> u64 {
        self.status()["totals"]["succeeded"].as_u64().unwrap()
    }

    /// The engine's process.
    #[track_caller]
    pub fn engine(&self) -> i32 {
        self.greeter().pid
    }

    /// The process that watches the engine.
    #[track_caller]
    pub fn guardian(&self) -> i32 {
        process::parent(self.engine())
    }

    /// A greeted connection that sends no commands.
    #[track_caller]
    pub fn greeter(&self) -> Peer {
        self.client(0)
    }

    /// A build of its own, with environment 0 defined.
    #[track_caller]
    pub fn client(&self, jobs: u32) -> Peer {
        self.client_of(new_session(), jobs)
    }

    /// One more connection of a build.
    #[track_caller]
    pub fn client_of(&self, session: [u8; 16], jobs: u32) -> Peer {
        let mut peer = self.stranger();
        peer.welcome(&peer::hello(session, jobs));
        peer.define(0, self.environment());
        peer
    }

    /// A connection that has not greeted.
    #[track_caller]
    pub fn stranger(&self) -> Peer {
        Peer::unix(&self.socket())
    }

    /// Whether an engine serves here.
    #[track_caller]
    pub fn serves(&self) {
        assert_eq!(self.client(1).run(&order::shell("echo served")).text(), "served\n");
    }

    /// The environment of commands: a search path, and the mark by which their processes are found.
    pub fn environment(&self) -> Vec<Vec<u8>> {
        let mark = [b"WAFD_RUNTIME_DIR=", self.runtime.as_os_str().as_bytes()].concat();
        vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec(), mark]
    }

    /// The processes of this sandbox, with their command lines.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let folders = self.runtimes().into_iter();
        folders
            .flat_map(|folder| process::with_environment("WAFD_RUNTIME_DIR", folder.as_os_str().as_bytes()))
            .collect()
    }

    /// The runtime folder, and those below it. An engine of another store has one there.
    fn runtimes(&self) -> Vec<PathBuf> {
        let inside = fs::read_dir(&self.runtime).into_iter().flatten().flatten();
        let is_digest = |name: &OsStr| name.len() == 16 && name.as_bytes().iter().all(u8::is_ascii_hexdigit);
        let folders = inside.filter(|entry| is_digest(&entry.file_name()));
        std::iter::once(self.runtime.clone())
            .chain(folders.map(|entry| entry.path()))
            .collect()
    }

    #[track_caller]
    pub fn wait_until_empty(&self) {
        let mut left = Vec::new();
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            left = self.processes();
            if left.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("still there: {left:?}");
    }

    /// Waits until only this engine and its guardian are left.
    #[track_caller]
    pub fn wait_until_idle(&self, engine: i32) {
        let kept = [engine, process::parent(engine)];
        wait_until("no process is left", || {
            self.processes().iter().all(|(pid, _)| kept.contains(pid))
        });
    }

    /// Starts a program and waits for its end, so that time passes.
    pub fn tick(&self) {
        let _ = run(&mut self.wafd(&["--version"]));
    }

    /// Closes a gate. Commands that run `flock -s FILE` wait until the result is dropped.
    pub fn close_gate(&self, name: &str) -> Gate {
        let file = fs::File::create(self.path(name)).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        Gate {
            file,
            script: format!("flock -s {} true", self.name(name)),
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for folder in self.runtimes() {
            let mut stop = self.wafd(&["stop", "--now"]);
            let _ = stop.env("WAFD_RUNTIME_DIR", folder).stderr(Stdio::null()).status();
        }
        let deadline = Instant::now() + DEADLINE;
        let mut left = self.processes();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            left = self.processes();
        }
        for (pid, _) in &left {
            process::kill(*pid, libc::SIGKILL);
        }
        if std::thread::panicking() {
            if let Ok(log) = fs::read_to_string(self.file("log")) {
                let _ = write!(std::io::stderr(), "the engine's log:\n{log}");
            }
        }
        let _ = fs::remove_dir_all(&self.base);
        if !std::thread::panicking() {
            assert!(left.is_empty(), "processes survived the end of their engine: {left:?}");
        }
    }
}

/// Commands that run its script wait while it is closed.
pub struct Gate {
    file: fs::File,
    pub script: String,
}

impl Gate {
    pub fn open(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        // Unlocked explicitly: a process that is being started may have a copy of the descriptor.
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
    }
}

/// A session number that no other test has.
pub fn new_session() -> [u8; 16] {
    let mut session = [7; 16];
    session[..4].copy_from_slice(&unique().to_le_bytes());
    session
}

/// The permissions of a file or folder.
#[track_caller]
pub fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

pub fn run(command: &mut Command) -> ProgramOutput {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    end_of(child)
}

/// Copies a program. Another process writes the file: while any process has it open for writing, it cannot be run, and
/// a process that another test is starting has all our descriptors.
#[track_caller]
pub fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(status.unwrap().success(), "install {from:?} {to:?}");
}

/// The output of a child that has ended. A child that does not end is killed.
#[track_caller]
pub fn end_of(mut child: Child) -> ProgramOutput {
    let deadline = Instant::now() + DEADLINE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let line = process::command_line(child.id() as i32);
            let _ = child.kill();
            let said = ProgramOutput::from(child.wait_with_output().unwrap());
            panic!("a program did not end: {line}: {said:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output().unwrap().into()
}
