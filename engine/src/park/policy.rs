//! What the engine's environment says about parking.

use std::env;

/// So often is a program seen before it is tried: a trial costs as much as some commands.
const AFTER: u32 = 4;
const MEMORY: u64 = 512 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub on: bool,
    pub after: u32,
    /// For all parked programs together, in KiB.
    pub memory: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            on: true,
            after: AFTER,
            memory: MEMORY,
        }
    }
}

impl Policy {
    /// `WAFD_PARK=no`, `WAFD_PARK_AFTER=COUNT`, `WAFD_PARK_MEMORY=MIB`.
    pub fn from_environment() -> Result<Policy, String> {
        let on = match env::var("WAFD_PARK").as_deref() {
            Err(_) | Ok("" | "yes") => true,
            Ok("no") => false,
            Ok(other) => return Err(format!("WAFD_PARK is {other:?}: set it to yes or no")),
        };
        Ok(Policy {
            on,
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
