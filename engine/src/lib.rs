//! The engine of waflib-extras, as a library for its three thin programs.
//!
//! ```text
//! client::start ─► guardian ─► server ─► connection ─► wire ─► slots ─► starters ─► park, or else process::spawn
//! ```
//!
//! A folder here is a *room*, and rooms are on floors: a room imports only from lower floors, so that there are no
//! cycles. `utils/rooms.py --tree engine` draws them, and fails with `--check` if that is not so. `docs/protocol.md`
//! specifies the protocol, `docs/design.md` explains the decisions.

// Bytes and texts. They import no other room.
pub mod bytes;

// Protocols, our own files, and the traces of commands.
pub mod cluster;
pub mod files;
pub mod http;
pub mod observe;
pub mod room;
pub mod wire;

// Processes, facts about files, trust, and the observation of programs that cannot load a library.
pub mod facts;
pub mod process;
pub mod trust;
pub mod witness;

// Settings and reports.
pub mod report;
pub mod settings;

// Inputs and results of commands. It knows other machines only by a trait (`cache::remote`).
pub mod cache;

// Parked programs; the stores that machines share.
pub mod park;
pub mod tier;

// The event loop: the only place that knows all of the above together.
pub mod server;

// The client, which also starts the engine.
pub mod client;

// Programs: `wafd serve`, `wafd dashboard`, `waf`, the wrapper with its command line, that of `wafd worker`, and shell
// completion.
pub mod completion;
pub mod dashboard;
pub mod launcher;
pub mod team;
pub mod wafcc;
pub mod worker;

// The command line of `wafd`.
pub mod wafd;
