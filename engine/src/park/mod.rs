//! Parked programs: compilers that were started once, wait at the entry of their main, and fork for each command.
//!
//! ```text
//! command ─► program ─► pool ─► parked ─► packet ─► libwafpark.so (engine/park/), which becomes the command
//!                        │ ▲
//!                  keeper ─► trial ─► verdict           router: what a command would exec
//!                        └─► survey ─► course            courses: what drivers of gcc would run, without them
//! ```
//!
//! A parked program is used only if no program can notice the difference, and only if it gains time. Otherwise, and in
//! every doubtful case, the command is spawned, and the reason is counted.

mod course;
mod courses;
mod driver;
mod facts;
mod keeper;
mod library;
mod packet;
mod parked;
mod parking;
mod policy;
mod pool;
pub mod program;
mod router;
mod shape;
mod survey;
mod task;
mod trial;
mod verdict;

pub use course::{NextParts, Part};
pub use library::{install, LIBRARY};
pub use parking::{Awaited, Begun, Parking, Turn};
pub use policy::Policy;
pub use pool::Reason;
pub use router::Ledger;
