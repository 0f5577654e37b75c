//! The settings of parking in the engine's environment.

use std::env;
use std::path::PathBuf;

use crate::process::headroom::Headroom;

/// How often a program is started before it is tried: a trial costs as much as some commands.
const AFTER: u32 = 4;
const MEMORY: u64 = 512 << 10;
const INSTALLED: [&str; 6] = ["/usr", "/bin", "/lib", "/opt", "/nix/store", "/gnu/store"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub on: bool,
    /// Programs that gain nothing in a trial are not parked.
    pub must_gain: bool,
    pub after: u32,
    /// The limit for all parked programs together, in KiB.
    pub memory: u64,
    /// The folders of programs that may be tried although they are not known compilers. Asking a program for its version is
    /// harmless if it is for everybody, and may not be if it is a user's own script.
    pub folders: Vec<PathBuf>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            on: true,
            must_gain: true,
            after: AFTER,
            memory: MEMORY,
            folders: INSTALLED.map(PathBuf::from).to_vec(),
        }
    }
}

impl Policy {
    /// `WAFD_PARK=no|proved`, `WAFD_PARK_AFTER=COUNT`, `WAFD_PARK_MEMORY=MIB`, `WAFD_PARK_FOLDERS=FOLDER:FOLDER`.
    pub fn from_environment() -> Result<Policy, String> {
        let (on, must_gain) = match env::var("WAFD_PARK").as_deref() {
            // Parked programs count as processes, too.
            Err(_) | Ok("" | "yes") => (Headroom::find().is_ample(), true),
            Ok("proved") => (true, false),
            Ok("no") => (false, true),
            Ok(other) => return Err(format!("WAFD_PARK is {other:?}: set it to yes, proved or no")),
        };
        let more = env::var_os("WAFD_PARK_FOLDERS").unwrap_or_default();
        let more = env::split_paths(&more).filter(|folder| folder.is_absolute());
        Ok(Policy {
            folders: INSTALLED.map(PathBuf::from).into_iter().chain(more).collect(),
            on,
            must_gain,
            after: number("WAFD_PARK_AFTER")?.map_or(AFTER, |n| n.try_into().unwrap_or(u32::MAX)),
            memory: number("WAFD_PARK_MEMORY")?.map_or(MEMORY, |mib| mib.saturating_mul(1 << 10)),
        })
    }
}

fn number(name: &str) -> Result<Option<u64>, String> {
    let Ok(value) = env::var(name) else { return Ok(None) };
    match value.parse() {
        _ if value.is_empty() => Ok(None),
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(format!("{name} is {value:?}: set it to a number")),
    }
}
