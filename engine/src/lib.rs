//! The engine of waflib-extras, as a library for its two thin programs.
//!
//! ```text
//! start ─► guardian ─► server ─► connection ─► wire ─► slots ─► crew ─► park, or else spawn
//! ```
//!
//! `start` makes sure that one engine runs, `guardian` outlives it to clean up, `server` is the event loop and the only
//! place that knows all others. `docs/protocol.md` specifies what is said, `docs/design.md` why it is built so.

pub mod asker;
pub mod auditor;
pub mod brake;
pub mod cache;
pub mod client;
pub mod command;
pub mod completion;
pub mod connection;
pub mod context;
pub mod crew;
pub mod dashboard;
pub mod elf;
pub mod fault;
pub mod fields;
pub mod folder;
pub mod frame;
pub mod guardian;
pub mod headroom;
pub mod jobserver;
pub mod logbook;
pub mod park;
pub mod peer;
pub mod pins;
pub mod place;
pub mod processes;
pub mod prompt;
pub mod regular;
pub mod room;
pub mod roster;
pub mod serve;
pub mod server;
pub mod signature;
pub mod slots;
pub mod source;
pub mod spawn;
pub mod start;
pub mod status;
pub mod terminal;
pub mod tier;
pub mod timers;
pub mod token;
pub mod wafcc;
pub mod wire;
pub mod witness;
