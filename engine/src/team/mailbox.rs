//! What other threads tell a worker.

use std::net::{SocketAddr, TcpStream};

use super::disk_threads::Done;
use crate::process::mailbox;

/// A connection that was just taken.
#[derive(Debug)]
pub struct Arrival {
    pub socket: TcpStream,
    pub peer: SocketAddr,
    /// It came to a port that has no TLS, whatever the others have.
    pub is_plain: bool,
}

#[derive(Debug)]
pub enum Letter {
    Arrived(Arrival),
    /// An job of this connection is done.
    Done(u64, Done),
    /// An job of this connection has ended in a panic.
    Fault(u64),
    /// Tokens have changed: some may be revoked.
    Tokens,
    /// Ends what is idle now, and all else when it is done.
    Leave,
}

pub type Mailbox = mailbox::Mailbox<Letter>;
