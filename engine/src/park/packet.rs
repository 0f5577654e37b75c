//! The messages between the engine and `libwafpark.so`: the other side of `engine/park/park.h`.
//!
//! They are single packets over sockets of one machine, in its own byte order.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::observe::trace::{Arena, Place};
use crate::process::context::Block;

pub const MAGIC: u32 = 0x3450_4157;
/// The largest packet.
pub const PACKET: usize = 192 << 10;
/// The largest number of arguments and variables together.
pub const STRINGS: usize = 16 << 10;

pub const SESSION: u32 = 1;
pub const JOIN: u32 = 2;
pub const ROUTE: u32 = 4;
pub const SCORE: u32 = 8;
pub const RUN_NOTHING: u32 = 16;

/// The value of a ticket of the roster that neither side has taken yet.
pub const ASKED: i32 = -1;

/// The beginning of a request. Its strings follow.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Head {
    pub magic: u32,
    pub size: u32,
    pub flags: u32,
    pub roster_entry: u32,
    pub group: i32,
    pub engine: i32,
    pub log: u32,
    pub generation: u32,
    pub token: u32,
    pub asker: i32,
    pub path: u32,
    pub folder: u32,
    pub argv: u32,
    pub argc: u32,
    pub env: u32,
    pub envc: u32,
    pub route: u32,
    pub context: Block,
}

#[repr(C)]
struct Answer {
    magic: u32,
    pid: i32,
}

#[repr(C)]
struct ReadyHead {
    magic: u32,
    size: u32,
    obstacle: u32,
    names: u32,
    environment: u64,
}

#[repr(C)]
struct Routed {
    magic: u32,
    ran: u32,
    status: i32,
}

/// A command in a request to a parked program.
pub struct Request<'a> {
    pub flags: u32,
    pub roster_entry: usize,
    pub group: i32,
    pub log: Place,
    /// The process that would have become the command, or 0.
    pub asker: i32,
    /// Each string has its terminating zero byte.
    pub path: &'a [u8],
    pub folder: &'a [u8],
    pub argv: &'a [u8],
    pub argc: usize,
    pub env: &'a [u8],
    pub envc: usize,
    pub route: &'a [u8],
    pub context: Block,
    pub streams: [BorrowedFd<'a>; 3],
}

/// A program is parked.
pub struct Ready {
    pub obstacle: u32,
    /// The digest of its environment.
    pub environment: u64,
    /// The variables that it has read.
    pub names: Vec<Vec<u8>>,
}

/// A program wants to exec another one.
pub struct Wanted {
    packet: Vec<u8>,
    pub streams: [OwnedFd; 3],
}

fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: plain numbers without padding that was not set, read as the bytes that they are.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads the structure at the start of a packet.
fn read<T>(packet: &[u8]) -> Option<T> {
    if packet.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the bytes are there, and every pattern of them is a value of these structures of numbers.
    Some(unsafe { std::ptr::read_unaligned(packet.as_ptr().cast()) })
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a packet of ours")
}

impl Request<'_> {
    /// Whether it fits into a packet.
    pub fn fits(&self) -> bool {
        self.size() <= PACKET && self.argc + self.envc <= STRINGS
    }

    fn size(&self) -> usize {
        let strings = [self.path, self.folder, self.argv, self.env, self.route];
        size_of::<Head>() + strings.iter().map(|s| s.len()).sum::<usize>()
    }

    pub fn send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let head = Head {
            magic: MAGIC,
            size: self.size() as u32,
            flags: self.flags,
            roster_entry: self.roster_entry as u32,
            group: self.group,
            engine: std::process::id() as i32,
            log: self.log.trace_region,
            generation: self.log.generation,
            token: self.log.token,
            asker: self.asker,
            path: self.path.len() as u32,
            folder: self.folder.len() as u32,
            argv: self.argv.len() as u32,
            argc: self.argc as u32,
            env: self.env.len() as u32,
            envc: self.envc as u32,
            route: self.route.len() as u32,
            context: self.context,
        };
        let parts = [bytes_of(&head), self.path, self.folder, self.argv, self.env, self.route];
        send(socket, &parts, &self.streams)
    }
}

fn send(socket: BorrowedFd<'_>, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &parts, &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Writes the first packet to a program that is about to park.
pub fn send_welcome(socket: BorrowedFd<'_>, roster: (BorrowedFd<'_>, usize), arena: Option<&Arena>) -> io::Result<()> {
    let (roster, size) = roster;
    let trace_regions = arena.map_or(0, Arena::trace_regions);
    let head = [MAGIC, size as u32, trace_regions as u32]
        .map(u32::to_ne_bytes)
        .concat();
    let path = arena.map(Arena::path).unwrap_or_default();
    let descriptors: Vec<_> = [roster].into_iter().chain(arena.map(Arena::descriptor)).collect();
    send(socket, &[&head, path.as_bytes(), &[0]], &descriptors)
}

/// Tells a program that wants to exec either to do so, or the status of the program that ran for it.
pub fn send_routed(socket: BorrowedFd<'_>, status: Option<i32>) -> io::Result<()> {
    let routed = Routed {
        magic: MAGIC,
        ran: status.is_some().into(),
        status: status.unwrap_or(0),
    };
    send(socket, &[bytes_of(&routed)], &[])
}

/// Receives one packet. It is empty when the other side is gone.
fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (size, _) = rustix::net::recv(socket, buffer, RecvFlags::empty())?;
    Ok(size)
}

/// The answer of a child: its process number, or minus the errno because of which it will never be the command.
pub fn receive_answer(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut buffer = [0; size_of::<Answer>()];
    let size = receive(socket, &mut buffer)?;
    if size == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let answer: Answer = read(&buffer[..size]).ok_or_else(invalid)?;
    if answer.magic != MAGIC {
        return Err(invalid());
    }
    Ok(answer.pid)
}

/// FNV-1a, as the library computes it.
pub fn digest(environment: &[u8]) -> u64 {
    let step = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    environment.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

pub fn receive_ready(socket: BorrowedFd<'_>) -> io::Result<Ready> {
    let mut buffer = vec![0; 8 << 10];
    let size = receive(socket, &mut buffer)?;
    let head: ReadyHead = read(&buffer[..size]).ok_or_else(invalid)?;
    let names = &buffer[size_of::<ReadyHead>()..size];
    if head.magic != MAGIC || head.size as usize != size || head.names as usize != names.len() {
        return Err(invalid());
    }
    let names = names.split_inclusive(|b| *b == 0).map(|s| s[..s.len() - 1].to_vec());
    Ok(Ready {
        obstacle: head.obstacle,
        environment: head.environment,
        names: names.collect(),
    })
}

impl Wanted {
    /// `None` when the other side is gone.
    pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Wanted>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let received = recvmsg(socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let descriptors = rights.drain().flat_map(|item| match item {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let streams: Vec<OwnedFd> = descriptors.collect();
        let wanted = Wanted {
            packet: buffer[..received.bytes].to_vec(),
            streams: streams.try_into().map_err(|_| invalid())?,
        };
        match wanted.parts() {
            Some(_) => Ok(Some(wanted)),
            None => Err(invalid()),
        }
    }

    fn head(&self) -> Head {
        // `receive` has checked that it is there.
        read(&self.packet).unwrap_or_else(|| unreachable!())
    }

    /// Path, folder, arguments, environment.
    fn parts(&self) -> Option<[&[u8]; 4]> {
        let head: Head = read(&self.packet)?;
        if head.magic != MAGIC || head.size as usize != self.packet.len() {
            return None;
        }
        let mut rest = &self.packet[size_of::<Head>()..];
        let mut parts: [&[u8]; 4] = [&[]; 4];
        let sizes = [head.path, head.folder, head.argv, head.env];
        for (part, size) in parts.iter_mut().zip(sizes) {
            (*part, rest) = rest.split_at_checked(size as usize)?;
        }
        let [path, folder, argv, env] = parts;
        let zeros = |part: &[u8]| part.iter().filter(|b| **b == 0).count();
        let ends = |part: &[u8]| part.is_empty() || part.ends_with(&[0]);
        let counted = zeros(path) == 1 && zeros(folder) == 1;
        let counted = counted && zeros(argv) == head.argc as usize && zeros(env) == head.envc as usize;
        let terminated = parts.iter().all(|part| ends(part));
        (rest.is_empty() && counted && terminated && head.argc > 0).then_some(parts)
    }

    /// As a request to a parked program, with the path that was found.
    pub fn request<'a>(&'a self, path: &'a [u8], roster_entry: usize) -> Request<'a> {
        let head = self.head();
        let [_, folder, argv, env] = self.parts().unwrap_or_default();
        let [stdin, stdout, stderr] = &self.streams;
        Request {
            flags: JOIN | head.flags & SCORE,
            roster_entry,
            group: head.group,
            log: Place {
                trace_region: head.log,
                generation: head.generation,
                token: head.token,
            },
            asker: head.asker,
            path,
            folder,
            argv,
            argc: head.argc as usize,
            env,
            envc: head.envc as usize,
            route: &[],
            context: head.context,
            streams: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        }
    }

    /// The path that was given to exec, without its zero byte.
    pub fn name(&self) -> &[u8] {
        let [path, ..] = self.parts().unwrap_or_default();
        path.strip_suffix(&[0]).unwrap_or(path)
    }

    pub fn folder(&self) -> &[u8] {
        let [_, folder, ..] = self.parts().unwrap_or_default();
        folder.strip_suffix(&[0]).unwrap_or(folder)
    }

    pub fn argv(&self) -> impl Iterator<Item = &[u8]> {
        let [.., argv, _] = self.parts().unwrap_or_default();
        argv.split_inclusive(|b| *b == 0).map(|s| &s[..s.len() - 1])
    }

    /// The variables of the program's environment.
    pub fn env(&self) -> impl Iterator<Item = &[u8]> {
        let [.., env] = self.parts().unwrap_or_default();
        env.split_inclusive(|b| *b == 0).map(|s| &s[..s.len() - 1])
    }

    pub fn context(&self) -> Block {
        self.head().context
    }

    pub fn group(&self) -> i32 {
        self.head().group
    }
}
