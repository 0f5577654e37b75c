//! The wrapper in a home folder of the test, without the user's settings.

use std::process::Command;

use super::sandbox::Sandbox;
use wafengine::settings::Key;

pub const WAFCC: &str = env!("CARGO_BIN_EXE_wafcc");

/// `wafcc`, without arguments yet.
pub fn wafcc(sandbox: &Sandbox) -> Command {
    clean(sandbox.command(WAFCC), sandbox)
}

/// A command that finds only the settings of the test.
pub fn clean(mut command: Command, sandbox: &Sandbox) -> Command {
    for key in Key::all() {
        command.env_remove(key.variable());
    }
    for variable in ["WAFCC_CONFIGPATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(variable);
    }
    command.env("HOME", sandbox.path("home"));
    command
}
