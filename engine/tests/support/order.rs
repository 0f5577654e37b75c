//! Commands for an engine to run.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use wafengine::wire::{Execute, Stdio, Strings};

/// A command with captured output, in the root folder and environment 0 by default.
#[derive(Clone)]
pub struct Order(pub Execute);

pub fn command<T: AsRef<[u8]>>(argv: &[T]) -> Order {
    Order(Execute {
        id: 0,
        env: 0,
        new_session: false,
        cached: false,
        by_facts: false,
        inputs: false,
        stdio: [Stdio::Null, Stdio::Pipe, Stdio::Pipe],
        timeout: 0,
        cwd: b"/".to_vec(),
        argv: argv.iter().collect::<Strings>(),
        input: Vec::new(),
        outputs: Strings::default(),
    })
}

pub fn shell(script: &str) -> Order {
    command(&["/bin/sh", "-c", script])
}

impl Order {
    pub fn env(mut self, env: u32) -> Self {
        self.0.env = env;
        self
    }

    pub fn cwd(mut self, cwd: &Path) -> Self {
        self.0.cwd = cwd.as_os_str().as_bytes().to_vec();
        self
    }

    pub fn input(mut self, input: &[u8]) -> Self {
        self.0.input = input.to_vec();
        self.0.stdio[0] = Stdio::Pipe;
        self
    }

    pub fn stdio(mut self, stdio: [Stdio; 3]) -> Self {
        self.0.stdio = stdio;
        self
    }

    pub fn timeout(mut self, time: Duration) -> Self {
        self.0.timeout = time.as_micros() as u64;
        self
    }

    pub fn new_session(mut self) -> Self {
        self.0.new_session = true;
        self
    }
}
