//! Runs commands of this machine's builds on a cluster.
//!
//! ```text
//! engine ─► serve ─► action (root, files, carried) ─► uploads ─► run ─► entry ─► engine
//! ```

pub mod action;
pub mod carried;
pub mod files;
pub mod root;
pub mod run;
pub mod uploads;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use wafengine::bytes::frame::Inbox;
use wafengine::cluster::message::{Execute, Failure, Reply, Request, FRAME_CAP};
use wafengine::settings::address::{Address, Execution};
use wafengine::tier::UPLOAD;

use crate::connection::{silent, Connection};
use crate::contents::Contents;
use files::Files;
use run::{Made, Problem};
use uploads::Uploads;

const CHUNK: usize = 64 << 10;
/// How many replies wait for the engine to read them.
const REPLIES: usize = 16;

/// All that the commands of one engine share.
struct Shared {
    connection: Connection,
    contents: Contents,
    uploads: Uploads,
    files: Files,
    execution: Execution,
}

type Running = Arc<Mutex<HashMap<u32, AbortHandle>>>;

/// Serves an engine until it closes the connection. Commands that still run then are given up.
pub async fn serve(stream: UnixStream, connection: Connection, address: Address) -> io::Result<()> {
    let contents = Contents::new(&connection, UPLOAD);
    let shared = Arc::new(Shared {
        uploads: Uploads::new(&contents),
        connection,
        contents,
        files: Files::default(),
        execution: address.execution.clone().unwrap_or_default(),
    });
    let (mut from, to) = stream.into_split();
    let (replies, waiting) = mpsc::channel(REPLIES);
    let writer = tokio::spawn(write(to, waiting));
    let running = Running::default();
    let mut inbox = Inbox::new(FRAME_CAP);
    let mut chunk = vec![0; CHUNK];
    let ended = loop {
        let read = match from.read(&mut chunk).await {
            Ok(0) => break Ok(()),
            Ok(read) => read,
            Err(error) => break Err(error),
        };
        inbox.push(&chunk[..read]);
        if let Err(error) = take_all(&mut inbox, &shared, &running, &replies) {
            break Err(error);
        }
        inbox.trim();
    };
    for (_, task) in running.lock().unwrap_or_else(PoisonError::into_inner).drain() {
        task.abort();
    }
    writer.abort();
    ended
}

fn take_all(
    inbox: &mut Inbox,
    shared: &Arc<Shared>,
    running: &Running,
    replies: &mpsc::Sender<Vec<u8>>,
) -> io::Result<()> {
    while let Some(frame) = inbox.take().map_err(io::Error::other)? {
        match Request::decode(frame).map_err(io::Error::other)? {
            Request::Execute(execute) => {
                let id = execute.id;
                let (shared, replies, noted) = (shared.clone(), replies.clone(), running.clone());
                // The lock is held until the task is noted, so that it cannot end before.
                let mut tasks = running.lock().unwrap_or_else(PoisonError::into_inner);
                let task = tokio::spawn(async move {
                    answer(&shared, *execute, &replies).await;
                    noted.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                });
                tasks.insert(id, task.abort_handle());
            }
            Request::Cancel { id } => {
                let task = running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                task.iter().for_each(AbortHandle::abort);
            }
        }
    }
    Ok(())
}

/// Runs a command, and tells the engine what became of it.
async fn answer(shared: &Arc<Shared>, execute: Execute, replies: &mpsc::Sender<Vec<u8>>) {
    let id = execute.id;
    let time = Duration::from_millis(execute.time);
    let done = match tokio::time::timeout(time, execute_there(shared, execute)).await {
        Ok(done) => done,
        Err(_) => Err(silent(time).into()),
    };
    let (sent, received) = shared.contents.take_moved();
    let moved = (sent + received > 0).then(|| framed(&Reply::Moved { id, sent, received }));
    for frame in moved.into_iter().chain(frames(id, &done)) {
        // If the engine has gone, so has its interest.
        if replies.send(frame).await.is_err() {
            return;
        }
    }
}

async fn execute_there(shared: &Arc<Shared>, execute: Execute) -> Result<Made, Problem> {
    let session: String = execute.session.iter().map(|byte| format!("{byte:02x}")).collect();
    let preparing = shared.clone();
    let prepared =
        tokio::task::spawn_blocking(move || action::prepare(&execute, &preparing.execution, &preparing.files));
    let prepared = match prepared.await {
        Ok(prepared) => prepared.map_err(|why| Problem(Failure::Declined, why.0))?,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    let connection = shared.connection.with_correlation(&session);
    let priority = shared.execution.priority;
    run::run(&connection, &shared.contents, &shared.uploads, &prepared, priority).await
}

fn frames(id: u32, done: &Result<Made, Problem>) -> Vec<Vec<u8>> {
    let made = match done {
        Ok(made) => made,
        Err(Problem(why, words)) => {
            let (why, words) = (*why, words.as_bytes());
            return vec![framed(&Reply::Why { id, why, words })];
        }
    };
    let blobs = made.blobs.iter().map(|bytes| framed(&Reply::Blob { id, bytes }));
    let (key, bytes) = (made.key, &made.entry[..]);
    blobs.chain([framed(&Reply::Entry { id, key, bytes })]).collect()
}

fn framed(reply: &Reply<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes
}

async fn write(mut to: OwnedWriteHalf, mut waiting: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = waiting.recv().await {
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reapi::{Action, ActionResult, Command, ExecuteResponse, OutputFile};
    use crate::test_support::{Cluster, Memory};
    use prost::Message;
    use wafengine::cluster::{ENTRY, PLACES, VERSION};

    async fn start(cluster: &Cluster, address: &Address) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let connection = Connection::new(address).unwrap();
        tokio::spawn(serve(theirs, connection, address.clone()));
        cluster.memory().run = Some(Arc::new(run));
        ours
    }

    /// A worker that tells what it was given.
    fn run(memory: &Memory, request: &crate::reapi::ExecuteRequest) -> Result<ExecuteResponse, tonic::Status> {
        let blob = |digest: Option<&crate::reapi::Digest>| {
            let digest = digest.and_then(crate::digests::Digest::from_message).unwrap();
            memory.blobs.get(&digest).cloned().unwrap()
        };
        let action = Action::decode(&blob(request.action_digest.as_ref())[..]).unwrap();
        let command = Command::decode(&blob(action.command_digest.as_ref())[..]).unwrap();
        let variable = |name: &str| {
            command
                .environment_variables
                .iter()
                .find(|one| one.name == name)
                .unwrap()
                .value
                .clone()
        };
        let told = format!(
            "{} {} {}",
            command.arguments.join(" "),
            variable(PLACES),
            variable(ENTRY)
        );
        Ok(ExecuteResponse {
            result: Some(ActionResult {
                output_files: vec![OutputFile {
                    path: ".wafd/why".to_owned(),
                    digest: Some(crate::digests::Digest::of(told.as_bytes()).to_message()),
                    contents: told.into_bytes(),
                    ..OutputFile::default()
                }],
                ..ActionResult::default()
            }),
            ..ExecuteResponse::default()
        })
    }

    fn some(id: u32, time: u64) -> Execute {
        Execute {
            id,
            time,
            argv: vec![b"/usr/bin/cc".to_vec(), b"-c".to_vec()],
            folder: b"/none/p".to_vec(),
            places: vec![b"/none/p".to_vec()],
            ..Execute::default()
        }
    }

    async fn ask(stream: &mut UnixStream, request: Request) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        stream.write_all(&bytes).await.unwrap();
    }

    async fn frame(stream: &mut UnixStream) -> Vec<u8> {
        let mut size = [0; 4];
        stream.read_exact(&mut size).await.unwrap();
        let mut frame = vec![0; u32::from_le_bytes(size) as usize];
        stream.read_exact(&mut frame).await.unwrap();
        frame
    }

    async fn told(stream: &mut UnixStream) -> (u32, Failure, String) {
        loop {
            match Reply::decode(&frame(stream).await).unwrap() {
                Reply::Why { id, why, words } => return (id, why, String::from_utf8(words.to_vec()).unwrap()),
                Reply::Moved { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_command_is_run_there() {
        let (cluster, address) = Cluster::start().await;
        let mut stream = start(&cluster, &address).await;
        ask(&mut stream, Request::Execute(Box::new(some(7, 60_000)))).await;
        let moved = frame(&mut stream).await;
        let Reply::Moved {
            id: 7,
            sent,
            received: 0,
        } = Reply::decode(&moved).unwrap()
        else {
            panic!("{moved:?}");
        };
        let all: u64 = cluster.memory().blobs.values().map(|blob| blob.len() as u64).sum();
        assert_eq!(sent, all);
        let words = format!("/usr/bin/cc -c /none/p {VERSION}");
        assert_eq!(told(&mut stream).await, (7, Failure::NoEntry, words));
    }

    #[tokio::test]
    async fn a_command_that_is_cancelled_or_too_slow_disturbs_no_other() {
        let (cluster, address) = Cluster::start().await;
        let mut stream = start(&cluster, &address).await;
        cluster.memory().is_silent = true;
        ask(&mut stream, Request::Execute(Box::new(some(1, 60_000)))).await;
        ask(&mut stream, Request::Execute(Box::new(some(2, 100)))).await;
        let (id, why, _) = told(&mut stream).await;
        assert_eq!((id, why), (2, Failure::Silent));
        ask(&mut stream, Request::Cancel { id: 1 }).await;
        cluster.memory().is_silent = false;
        ask(&mut stream, Request::Execute(Box::new(some(3, 60_000)))).await;
        let (id, why, _) = told(&mut stream).await;
        assert_eq!((id, why), (3, Failure::NoEntry));
    }
}
