//! The bridge between the engine and a cluster in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::Code;
use wafengine::bytes::digest::Digest as Name;
use wafengine::bytes::frame::Inbox;
use wafengine::cache::lookup::entry::{Content, Entry, Output};
use wafengine::cache::remote::wrapped::LARGEST_BLOB;
use wafengine::facts::path::Path;
use wafengine::room::{Begun, Coding, Failure, Hello, NotKept, Reply, Request, FRAME_CAP, PIECE, VERSION};

use super::incoming::Blob;
use super::results::{Held, Question};
use super::store::Store;
use super::visit;
use crate::connection::Fault;
use crate::digests::Digest;
use crate::reapi::{ActionCacheUpdateCapabilities, ActionResult, CacheCapabilities, OutputFile};
use crate::test_support::{parse, Cluster};

const PATIENCE: Duration = Duration::from_secs(60);
const INLINE: u32 = 256 << 10;

async fn start(attributes: &str) -> (Cluster, Store) {
    let (cluster, address) = Cluster::start().await;
    let store = Store::new(&parse(&format!("{}{attributes}", address.text)));
    (cluster, store)
}

/// Time-outs for a machine that may be busy.
const PATIENT: &str = "|timeout=60000|operation-timeout=60000";

fn key() -> Name {
    Name::of(b"key")
}

/// An entry that makes one file, and that file as it is uploaded.
fn made(bytes: &[u8]) -> (Vec<u8>, (Name, Blob)) {
    let digest = Name::of(bytes);
    let content = Content::File {
        digest,
        size: bytes.len() as u64,
        is_program: false,
    };
    let output = Output {
        path: Path::here(),
        number: Some(0),
        content,
        dated: None,
    };
    let entry = Entry {
        outputs: vec![output],
        ..Entry::default()
    };
    let blob = Blob {
        coding: Coding::Plain,
        bytes: Bytes::copy_from_slice(bytes),
    };
    (entry.encode(), (digest, blob))
}

async fn keep(store: &Store, bytes: &[u8]) -> Vec<u8> {
    let (entry, blob) = made(bytes);
    store.keep(key(), entry.clone(), vec![blob], Vec::new()).await.unwrap();
    entry
}

#[tokio::test]
async fn what_is_kept_is_found_by_another_one() {
    let (cluster, address) = Cluster::start().await;
    let address = parse(&format!("{}{PATIENT}", address.text));
    let entry = keep(&Store::new(&address), b"an object").await;
    let store = Store::new(&address);
    let found = store.find(&[Name::of(b"other"), key()]).await.unwrap();
    assert_eq!((found[0].entries.len(), &found[1].entries), (0, &vec![entry]));
    let along = store.along(&found, INLINE).await;
    let expected = HashMap::from([(Name::of(b"an object"), (Coding::Plain, Bytes::from("an object")))]);
    assert_eq!(along, expected);
    assert_eq!(
        store.along(&found, 8).await,
        HashMap::new(),
        "it is too large to come along"
    );
    let wanted = [Name::of(b"an object"), Name::of(b"nothing")];
    assert_eq!(store.fetch(&wanted).await.unwrap(), expected);
    assert_eq!(
        (cluster.count("GetActionResult"), cluster.count("BatchReadBlobs")),
        (3, 2)
    );
}

#[tokio::test]
async fn all_that_a_result_of_ours_refers_to_is_there() {
    let (cluster, store) = start(PATIENT).await;
    keep(&store, b"first").await;
    keep(&store, b"second").await;
    let question = Question::of(&key());
    let mut referred: Vec<Digest> = question.contents.iter().map(|(digest, _)| *digest).collect();
    let result = cluster.memory().results[&question.digest].clone();
    assert_eq!(result.output_files.len(), 2);
    let files = result.output_files.iter().filter_map(|file| file.digest.as_ref());
    referred.extend(files.filter_map(Digest::from_message));
    assert_eq!(referred.len(), 5);
    assert!(referred.iter().all(|digest| cluster.has(digest)));
}

#[tokio::test]
async fn entries_are_the_newest_first_and_those_whose_blobs_were_lost_are_left_out() {
    let (cluster, store) = start(PATIENT).await;
    let first = keep(&store, b"first").await;
    let second = keep(&store, b"second").await;
    assert_eq!(
        store.find(&[key()]).await.unwrap()[0].entries,
        [second.clone(), first.clone()]
    );
    cluster.memory().blobs.remove(&Digest::of(b"second"));
    let third = keep(&store, b"third").await;
    assert_eq!(store.find(&[key()]).await.unwrap()[0].entries, [third.clone(), first]);
    let updates = cluster.count("UpdateActionResult");
    keep(&store, b"third").await;
    assert_eq!(cluster.count("UpdateActionResult"), updates, "it is there already");
}

#[tokio::test]
async fn a_blob_that_the_cluster_has_lost_is_not_referred_to() {
    let (cluster, store) = start(PATIENT).await;
    keep(&store, b"an object").await;
    let name = Name::of(b"an object");
    assert_eq!(store.has(&[name, Name::of(b"other")]).await.unwrap(), [true, false]);
    let place = store.place(&name).unwrap();
    cluster.memory().blobs.clear();
    assert_eq!(store.has(&[name]).await.unwrap(), [false]);
    let (entry, _) = made(b"an object");
    let kept = store
        .keep(Name::of(b"other"), entry, Vec::new(), vec![(name, place)])
        .await;
    assert_eq!(kept, Err(Fault::Declined("it lacks a blob".to_owned())));
    assert_eq!(store.find(&[Name::of(b"other")]).await.unwrap(), [Held::default()]);
}

#[tokio::test]
async fn what_was_printed_may_have_been_moved_to_the_contents() {
    let (cluster, store) = start(PATIENT).await;
    let entry = keep(&store, b"an object").await;
    let question = Question::of(&key()).digest;
    let mut result = cluster.memory().results[&question].clone();
    let printed = std::mem::take(&mut result.stdout_raw);
    result.stdout_digest = Some(cluster.put(&printed).to_message());
    cluster.memory().results.insert(question, result.clone());
    assert_eq!(store.find(&[key()]).await.unwrap()[0].entries, [entry]);
    let mut huge = Digest::of(&printed);
    huge.size = 1 << 40;
    result.stdout_digest = Some(huge.to_message());
    cluster.memory().results.insert(question, result);
    assert_eq!(store.find(&[key()]).await.unwrap()[0].entries, Vec::<Vec<u8>>::new());
}

#[tokio::test]
async fn results_of_others_are_nothing_and_are_replaced() {
    let (cluster, store) = start(PATIENT).await;
    let file = |path: String, size_bytes| OutputFile {
        path,
        digest: Some(crate::reapi::Digest {
            size_bytes,
            ..Digest::of(b"x").to_message()
        }),
        ..OutputFile::default()
    };
    let name = Name::of(b"x");
    let large = LARGEST_BLOB as i64 + 1;
    let files = [
        file("x.o".to_owned(), 1),
        file("blobs/x".to_owned(), 1),
        file(format!("blobs/{name}"), large),
        file(format!("blobs/{name}.zst"), -1),
        OutputFile {
            path: format!("blobs/{name}"),
            ..OutputFile::default()
        },
    ];
    let result = ActionResult {
        stdout_raw: b"hello".to_vec(),
        output_files: files.to_vec(),
        ..ActionResult::default()
    };
    cluster.memory().results.insert(Question::of(&key()).digest, result);
    assert_eq!(store.find(&[key()]).await.unwrap(), [Held::default()]);
    let entry = keep(&store, b"an object").await;
    assert_eq!(store.find(&[key()]).await.unwrap()[0].entries, [entry]);
}

#[tokio::test]
async fn an_entry_of_another_key_is_nothing() {
    let (cluster, store) = start(PATIENT).await;
    keep(&store, b"an object").await;
    let result = cluster.memory().results[&Question::of(&key()).digest].clone();
    let other = Name::of(b"other");
    cluster.memory().results.insert(Question::of(&other).digest, result);
    assert_eq!(store.find(&[other]).await.unwrap()[0].entries, Vec::<Vec<u8>>::new());
}

#[tokio::test]
async fn a_content_that_lies_is_an_error_only_where_it_is_needed() {
    let (cluster, store) = start(PATIENT).await;
    let entry = keep(&store, b"an object").await;
    cluster.memory().lies.insert(Digest::of(b"an object"));
    let found = store.find(&[key()]).await.unwrap();
    assert_eq!(found[0].entries, [entry]);
    assert!(store.along(&found, INLINE).await.is_empty());
    assert!(matches!(
        store.fetch(&[Name::of(b"an object")]).await,
        Err(Fault::Failed(_))
    ));
}

#[tokio::test]
async fn a_silent_cluster_and_one_that_fails_are_told_apart() {
    let (cluster, store) = start("|timeout=100|operation-timeout=60000").await;
    cluster.memory().is_silent = true;
    let silent = Fault::Silent("it did not answer within 100 ms".to_owned());
    assert_eq!(store.find(&[key()]).await, Err(silent));
    cluster.memory().is_silent = false;
    cluster.memory().failure = Some(Code::Unavailable);
    assert!(matches!(store.find(&[key()]).await, Err(Fault::Failed(_))));
    let fault = store.fetch(&[key()]).await;
    assert_eq!(fault, Ok(HashMap::new()), "it is not known, so nothing is asked");
}

/// The engine's side of a connection.
struct Engine {
    stream: UnixStream,
    inbox: Inbox,
}

impl Engine {
    async fn visit(store: Store) -> Engine {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(visit::serve(theirs, Arc::new(store)));
        let mut engine = Engine {
            stream: ours,
            inbox: Inbox::new(FRAME_CAP),
        };
        let hello = Hello {
            lowest: VERSION,
            highest: VERSION,
            token: b"",
            namespace: b"",
            name: b"test",
        };
        engine.ask(&Request::Hello(hello)).await;
        engine
    }

    async fn welcomed(store: Store) -> Engine {
        let mut engine = Engine::visit(store).await;
        let frame = engine.next().await.unwrap();
        assert!(matches!(Reply::decode(&frame), Ok(Reply::Welcome { .. })));
        engine
    }

    async fn ask(&mut self, request: &Request<'_>) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next frame. None if the connection has ended.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            if let Some(frame) = self.inbox.take().unwrap() {
                return Some(frame.to_vec());
            }
            match timeout(PATIENCE, self.stream.read(&mut chunk)).await.unwrap() {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.inbox.push(&chunk[..read]),
            }
        }
    }

    /// The next answer: that we wait is none.
    async fn answer(&mut self) -> Vec<u8> {
        loop {
            let frame = self.next().await.unwrap();
            if Reply::decode(&frame) != Ok(Reply::Pong { id: 0 }) {
                return frame;
            }
        }
    }

    async fn send_blob(&mut self, id: u32, (digest, blob): &(Name, Blob)) {
        let (first, rest) = blob.bytes.split_at(blob.bytes.len().min(PIECE));
        let begun = Begun {
            digest: *digest,
            coding: blob.coding,
            size: blob.bytes.len() as u64,
            first,
        };
        self.ask(&Request::Blob { id, begun }).await;
        for bytes in rest.chunks(PIECE) {
            self.ask(&Request::Data { id, bytes }).await;
        }
        assert_eq!(Reply::decode(&self.answer().await), Ok(Reply::Kept { id }));
    }

    async fn offer(&mut self, id: u32, bytes: &[u8]) -> Vec<u8> {
        let (entry, blob) = made(bytes);
        self.send_blob(id, &blob).await;
        let request = Request::Entry {
            id: id + 1,
            key: key(),
            needs: vec![blob.0],
            bytes: &entry,
        };
        self.ask(&request).await;
        self.answer().await
    }
}

#[tokio::test]
async fn a_large_blob_comes_back_in_pieces() {
    let (_cluster, store) = start(PATIENT).await;
    let mut engine = Engine::welcomed(store).await;
    let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at % 251) as u8).collect();
    let (entry, (digest, _)) = made(&bytes);
    assert_eq!(Reply::decode(&engine.offer(1, &bytes).await), Ok(Reply::Kept { id: 2 }));
    let (inline, keys) = (INLINE, vec![key()]);
    engine.ask(&Request::Find { id: 3, inline, keys }).await;
    let found = Reply::Found {
        id: 3,
        number: 0,
        entry: &entry,
        contents: Vec::new(),
    };
    assert_eq!(Reply::decode(&engine.answer().await), Ok(found));
    assert_eq!(Reply::decode(&engine.answer().await), Ok(Reply::End { id: 3 }));
    let gone = Name::of(b"gone");
    let digests = vec![gone, digest];
    engine.ask(&Request::Get { id: 4, digests }).await;
    let missing = Reply::Missing { id: 4, digest: gone };
    assert_eq!(Reply::decode(&engine.answer().await), Ok(missing));
    let mut received: Vec<u8> = Vec::new();
    loop {
        match Reply::decode(&engine.answer().await) {
            Ok(Reply::Blob { id: 4, begun }) => {
                assert_eq!((begun.digest, begun.size), (digest, bytes.len() as u64));
                received.extend(begun.first);
            }
            Ok(Reply::Data { id: 4, bytes }) => received.extend(bytes),
            Ok(Reply::End { id: 4 }) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(received == bytes);
}

#[tokio::test]
async fn an_entry_whose_blobs_did_not_come_is_not_kept() {
    let (cluster, store) = start(PATIENT).await;
    let mut engine = Engine::welcomed(store).await;
    let (entry, (digest, _)) = made(b"an object");
    let (needs, bytes) = (vec![digest], &entry[..]);
    let key = key();
    engine
        .ask(&Request::Entry {
            id: 1,
            key,
            needs,
            bytes,
        })
        .await;
    let frame = engine.answer().await;
    let not_kept = Reply::NotKept {
        id: 1,
        why: NotKept::Lacks,
        words: b"",
    };
    assert_eq!(Reply::decode(&frame), Ok(not_kept));
    assert!(cluster.memory().calls.is_empty());
}

#[tokio::test]
async fn a_cluster_that_takes_no_results_is_asked_no_more() {
    let (cluster, store) = start(PATIENT).await;
    cluster.memory().capabilities.cache_capabilities = Some(CacheCapabilities {
        action_cache_update_capabilities: Some(ActionCacheUpdateCapabilities { update_enabled: false }),
        ..CacheCapabilities::default()
    });
    let mut engine = Engine::welcomed(store).await;
    let digests = vec![Name::of(b"x")];
    for id in 1..3 {
        let digests = digests.clone();
        engine.ask(&Request::Has { id, digests }).await;
        let frame = engine.answer().await;
        let is_read_only = matches!(
            Reply::decode(&frame),
            Ok(Reply::NotKept {
                why: NotKept::ReadOnly,
                ..
            })
        );
        assert!(is_read_only, "{frame:?}");
    }
    assert_eq!(cluster.memory().calls, ["GetCapabilities"]);
}

#[tokio::test]
async fn a_caller_who_may_not_write_still_reads() {
    let (cluster, store) = start(PATIENT).await;
    let entry = keep(&store, b"an object").await;
    let mut engine = Engine::welcomed(store).await;
    cluster.memory().failure = Some(Code::PermissionDenied);
    for id in [1, 3] {
        let frame = engine.offer(id, b"another object").await;
        let is_read_only = matches!(
            Reply::decode(&frame),
            Ok(Reply::NotKept {
                why: NotKept::ReadOnly,
                ..
            })
        );
        assert!(is_read_only, "{frame:?}");
    }
    cluster.memory().failure = None;
    let (inline, keys) = (0, vec![key()]);
    engine.ask(&Request::Find { id: 5, inline, keys }).await;
    let frame = engine.answer().await;
    assert!(matches!(Reply::decode(&frame), Ok(Reply::Found { entry: found, .. }) if found == entry));
}

#[tokio::test]
async fn while_the_cluster_is_silent_the_engine_hears_that_we_wait() {
    let (cluster, store) = start("|timeout=700|connect-timeout=100").await;
    cluster.memory().is_silent = true;
    let mut engine = Engine::welcomed(store).await;
    let (inline, keys) = (0, vec![key()]);
    engine.ask(&Request::Find { id: 1, inline, keys }).await;
    let mut pongs = 0;
    loop {
        match Reply::decode(&engine.next().await.unwrap()) {
            Ok(Reply::Pong { id: 0 }) => pongs += 1,
            Ok(Reply::Failed { id: 1, how, words }) => {
                assert_eq!((how, words), (Failure::Silent, &b"it did not answer within 700 ms"[..]));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(pongs > 0);
    engine.ask(&Request::Ping { id: 7 }).await;
    assert_eq!(Reply::decode(&engine.answer().await), Ok(Reply::Pong { id: 7 }));
}

#[tokio::test]
async fn an_error_of_the_cluster_comes_with_its_reason() {
    let (cluster, store) = start(PATIENT).await;
    let mut engine = Engine::welcomed(store).await;
    let (inline, keys) = (0, vec![key()]);
    let cases = [
        (Code::Unauthenticated, Failure::Failed, "it does not know the token"),
        (Code::PermissionDenied, Failure::Declined, "it does not permit that"),
        (Code::Unimplemented, Failure::Failed, "it does not offer that"),
        (Code::Unavailable, Failure::Failed, "it is not available"),
    ];
    for (code, how, words) in cases {
        cluster.memory().failure = Some(code);
        let (id, keys) = (code as u32, keys.clone());
        engine.ask(&Request::Find { id, inline, keys }).await;
        let frame = engine.answer().await;
        match Reply::decode(&frame) {
            Ok(Reply::Failed {
                how: found,
                words: told,
                ..
            }) => {
                assert_eq!(found, how);
                assert!(told.starts_with(words.as_bytes()), "{}", String::from_utf8_lossy(told));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_mistake_in_the_address_is_told_to_the_engine() {
    let store = Store::new(&parse("grpcs://localhost:1|ca=/nonexistent/ca.pem"));
    let mut engine = Engine::visit(store).await;
    let frame = engine.next().await.unwrap();
    match Reply::decode(&frame) {
        Ok(Reply::Failed { id: 0, words, .. }) => {
            let words = String::from_utf8_lossy(words);
            assert!(words.contains("read /nonexistent/ca.pem"), "{words}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.next().await, None);
}

#[tokio::test]
async fn what_is_malformed_ends_the_connection() {
    for bytes in [&[1, 0, 0, 0, 0x77][..], &[0, 0, 0, 0], &[0xff; 8]] {
        let (_cluster, store) = start(PATIENT).await;
        let mut engine = Engine::welcomed(store).await;
        engine.stream.write_all(bytes).await.unwrap();
        assert_eq!(engine.next().await, None);
    }
}

#[test]
fn no_other_action_has_the_digest_of_ours() {
    let question = Question::of(&key());
    let (digest, bytes) = &question.contents[1];
    assert_eq!(*digest, question.digest);
    let mut action = crate::reapi::Action::decode(bytes.clone()).unwrap();
    action.salt = Vec::new();
    assert_ne!(Digest::of_message(&action).0, question.digest);
    assert_ne!(Question::of(&Name::of(b"other")).digest, question.digest);
}
