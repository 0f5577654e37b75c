//! The wrapper in a test's own home, with none of the user's settings.

use std::process::Command;

use super::sandbox::TestSpace;
use wafengine::settings::Key;

pub const WAFCC: &str = env!("CARGO_BIN_EXE_wafcc");

/// `wafcc`, without arguments yet.
pub fn wafcc(space: &TestSpace) -> Command {
    clean(space.command(WAFCC), space)
}

/// A command that finds no settings but those that the test makes.
pub fn clean(mut command: Command, space: &TestSpace) -> Command {
    for key in Key::all() {
        command.env_remove(key.variable());
    }
    for variable in ["WAFCC_CONFIGPATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(variable);
    }
    command.env("HOME", space.path("home"));
    command
}
