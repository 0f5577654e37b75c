//! The engine and its protocols: what clients get, and the life of clients, commands and engines.

#[path = "../support/mod.rs"]
mod support;

mod brake;
mod bytes;
mod calls;
mod commands;
mod context;
mod greeting;
mod jobserver;
mod life;
mod place;
mod port;
mod room;
mod runtime_folder;
mod slots;
mod start;
mod status;
mod streams;
mod timeouts;
mod vanish;
mod vectors;
