//! Reports to users, as types that travel as JSON: questions about the store with their answers, statistics,
//! explanations, `wafd status`. The counting is done elsewhere.

use std::io::Write;

pub mod explanation;
pub mod misuse;
pub mod question;
pub mod remote;
pub mod statistics;
pub mod status;
pub mod voided;

/// Prints a result to standard output. The error says that it could not be written.
pub fn print(bytes: impl AsRef<[u8]>) -> Result<(), String> {
    let mut out = std::io::stdout();
    let printed = out.write_all(bytes.as_ref()).and_then(|()| out.flush());
    printed.map_err(|e| format!("write to standard output: {e}"))
}
