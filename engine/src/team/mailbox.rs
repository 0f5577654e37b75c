//! Messages from other threads to a worker.

use std::net::{SocketAddr, TcpStream};

use super::disk_threads::Done;
use crate::process::mailbox;

/// A connection that was just accepted.
#[derive(Debug)]
pub struct Arrival {
    pub socket: TcpStream,
    pub peer: SocketAddr,
    /// It came to a port without TLS, even if the other ports use it.
    pub is_plain: bool,
}

#[derive(Debug)]
pub enum Message {
    Arrived(Arrival),
    /// A job of this connection is done.
    Done(u64, Done),
    /// A job of this connection has panicked.
    Fault(u64),
    /// The tokens have changed, so some connections may have lost theirs.
    Tokens,
    /// The server ends: idle connections end now, and the others when their requests are done.
    Leave,
}

pub type Mailbox = mailbox::Mailbox<Message>;
