//! The command line of `wafd`. The options of `serve` and `dashboard` are in their own folders.

use clap::{Args, Parser, Subcommand};

use crate::files::folder::ENGINE;
use crate::{completion, dashboard, team, worker};

const ABOUT: &str = "\
wafd runs the commands of builds: it owns the slots that all builds of a user share.
Builds start it by themselves; it leaves when nobody has needed it for a while.";
const USAGE: &str = "\
wafd start [--tcp] [--idle SECONDS] [--foreground]
       wafd status [--json]
       wafd stop [--now]
       wafd dashboard [--port N] [--no-open] [--server ADDR] [--host NAME ...] (see wafd dashboard --help)
       wafd serve --listen ADDR ... (see wafd serve --help)
       wafd worker [OPTION ...] ADDRESS (see wafd worker --help)
       wafd completion bash|zsh|fish
       wafd --foreground | --version | --help";
const MORE: &str = "\
Environment:
  WAFD_RUNTIME_DIR   folder of socket, locks and log [$XDG_RUNTIME_DIR/wafd, or /tmp/wafd-UID]
  WAFD_MEMORY_BRAKE  no: start as many commands as ever when memory runs short
  WAFD_GAUGES        folder with pressure/memory, meminfo and loadavg [/proc]
  WAFD_LOG           error, warn, info or debug [info]

Examples:
  wafd status --json | python3 -m json.tool
  wafd dashboard --no-open
  WAFD_LOG=debug wafd --foreground
  eval \"$(wafd completion bash)\"";

#[derive(Debug, Parser)]
#[command(name = "wafd", version = ENGINE, about = ABOUT, override_usage = USAGE, after_help = MORE)]
#[command(
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Invocation {
    #[command(flatten)]
    pub start: Start,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// make sure that an engine runs; prints how to reach it
    Start(Start),
    /// tell what it does and did
    Status {
        /// for programs
        #[arg(long)]
        json: bool,
    },
    /// end it when its running commands have ended
    Stop {
        /// end running commands too
        #[arg(long)]
        now: bool,
    },
    /// show what it does, as it happens, in a browser
    Dashboard(dashboard::Options),
    /// keep a cache for a team, which other machines ask over TCP
    Serve(Box<team::Options>),
    /// run the commands of a cluster on this machine
    Worker(Box<worker::Options>),
    /// print what has a shell complete wafd, wafcc and waf
    Completion {
        /// bash, zsh or fish
        #[arg(value_parser = completion::script, value_name = "SHELL")]
        script: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Start {
    /// also listen on a port of 127.0.0.1, for clients that show a token
    #[arg(long)]
    pub tcp: bool,
    /// leave after that long without a client [600, or $WAFD_IDLE]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub idle: Option<u64>,
    /// serve until stopped, with the log on standard error
    #[arg(long)]
    pub foreground: bool,
}
