//! The engine of waflib-extras, as a library for its two thin programs.
//!
//! ```text
//! client::start ─► guardian ─► server ─► connection ─► wire ─► slots ─► crew ─► park, or else process::spawn
//! ```
//!
//! A folder here is a *room*, and rooms lie on floors: a room imports only from floors below its own, so that there are no
//! circles. `utils/rooms.py --tree engine` draws them, and fails with `--check` where that does not hold. `docs/protocol.md`
//! specifies what is said, `docs/design.md` why it is built so.

// Bytes and texts. They know nobody.
pub mod bytes;

// What is said, what lies in our own files, what a command notes of itself.
pub mod files;
pub mod http;
pub mod observe;
pub mod room;
pub mod wire;

// Processes, the world as it is now, whom to trust, and the second witness of what cannot note anything.
pub mod facts;
pub mod process;
pub mod trust;
pub mod witness;

// What is configured, and what is told.
pub mod report;
pub mod settings;

// What commands depended on and what came of them. It knows no other machine: only that there are some (`cache::remote`).
pub mod cache;

// Parked programs; the stores that machines share.
pub mod park;
pub mod tier;

// The event loop: the only place that knows all of the above together.
pub mod server;

// Who asks the engine, and starts it where none runs.
pub mod client;

// Programs: `wafd serve`, the page of `wafd dashboard`, the wrapper with its command line, and what completes their words.
pub mod completion;
pub mod dashboard;
pub mod team;
pub mod wafcc;

// The command line that leads to them.
pub mod wafd;
