//! The contents that a cluster keeps by their digests: what it lacks, and how contents come and go.
//!
//! Small contents come and go many at once, and large ones in pieces (`streams`). What comes is compared with its digest.

mod streams;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tonic::Code;
use wafengine::settings::address::Limits;

use crate::capabilities::{Capabilities, MESSAGE};
use crate::connection::{within, Channel, Connection, Fault, NOT_PERMITTED};
use crate::digests::Digest;
use crate::reapi::content_addressable_storage_client::ContentAddressableStorageClient;
use crate::reapi::{
    batch_update_blobs_request, BatchReadBlobsRequest, BatchUpdateBlobsRequest, FindMissingBlobsRequest,
};

/// How many digests one question has.
const MOST_DIGESTS: usize = 8192;
/// What a content in a message needs beside its bytes, at most.
const AROUND_ONE: usize = 200;
/// How many calls with contents are on their way at once.
const AT_ONCE: usize = 8;

#[derive(Clone)]
pub struct Contents(Arc<Inner>);

struct Inner {
    connection: Connection,
    limits: Limits,
    capabilities: OnceCell<Capabilities>,
    calls: Semaphore,
    moved: Moved,
}

/// Bytes of contents that were sent and received, and that no one has asked for yet.
#[derive(Default)]
struct Moved {
    sent: AtomicU64,
    received: AtomicU64,
}

/// A content that is uploaded. A file is read when it is sent, and must still have its digest then.
#[derive(Debug, Clone)]
pub enum Source {
    Bytes(Bytes),
    File(PathBuf),
}

/// What was uploaded, and by how many calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    pub blobs: usize,
    pub bytes: u64,
    pub calls: usize,
}

impl Written {
    fn add(&mut self, other: Written) {
        self.blobs += other.blobs;
        self.bytes += other.bytes;
        self.calls += other.calls;
    }
}

impl Contents {
    pub fn new(connection: &Connection, limits: Limits) -> Contents {
        Contents(Arc::new(Inner {
            connection: connection.clone(),
            limits,
            capabilities: OnceCell::new(),
            calls: Semaphore::new(AT_ONCE),
            moved: Moved::default(),
        }))
    }

    /// How many bytes of contents were sent and received since this was last asked.
    pub fn take_moved(&self) -> (u64, u64) {
        let moved = &self.0.moved;
        (
            moved.sent.swap(0, Ordering::Relaxed),
            moved.received.swap(0, Ordering::Relaxed),
        )
    }

    /// What the cluster can do. It is asked when this is first needed.
    pub async fn capabilities(&self) -> Result<Capabilities, Fault> {
        let ask = || Capabilities::ask(&self.0.connection, self.0.limits.silence);
        self.0.capabilities.get_or_try_init(ask).await.copied()
    }

    fn client(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.0.connection.channel()).max_decoding_message_size(2 * MESSAGE)
    }

    fn instance(&self) -> String {
        self.0.connection.instance().to_owned()
    }

    /// Those that the cluster does not have.
    pub async fn missing(&self, digests: &[Digest]) -> Result<HashSet<Digest>, Fault> {
        let asked: HashSet<Digest> = digests.iter().copied().collect();
        let all: Vec<Digest> = asked.iter().copied().collect();
        let mut missing = HashSet::new();
        for some in all.chunks(MOST_DIGESTS) {
            let request = FindMissingBlobsRequest {
                instance_name: self.instance(),
                blob_digests: some.iter().map(Digest::to_message).collect(),
                digest_function: 0,
            };
            let answer = within(self.0.limits.silence, self.client().find_missing_blobs(request)).await?;
            let told = answer.into_inner().missing_blob_digests;
            missing.extend(told.iter().filter_map(Digest::from_message));
        }
        missing.retain(|digest| asked.contains(digest));
        Ok(missing)
    }

    /// None if the cluster does not have it. It must not be larger than that.
    pub async fn read(&self, digest: &Digest, largest: u64) -> Result<Option<Bytes>, Fault> {
        Ok(self.read_all(&[*digest], largest).await?.remove(digest))
    }

    /// Those that the cluster has. All of them together must not be larger than that.
    pub async fn read_all(&self, digests: &[Digest], largest: u64) -> Result<HashMap<Digest, Bytes>, Fault> {
        let wanted: HashSet<Digest> = digests.iter().copied().collect();
        let size = wanted
            .iter()
            .try_fold(0_u64, |sum, digest| sum.checked_add(digest.size));
        if size.is_none_or(|size| size > largest) {
            return Err(Fault::Declined("more would come than is expected".to_owned()));
        }
        let mut found = HashMap::new();
        let nothing = Digest::of(b"");
        if wanted.contains(&nothing) {
            found.insert(nothing, Bytes::new());
        }
        let batch = self.capabilities().await?.batch;
        let all = wanted.into_iter().filter(|digest| digest.size > 0);
        let (small, large): (Vec<Digest>, Vec<Digest>) = all.partition(|digest| fits(digest, batch));
        let mut calls = JoinSet::new();
        for some in parts(small, batch, |digest| digest.size) {
            let this = self.clone();
            calls.spawn(async move { this.read_batch(some).await });
        }
        for digest in large {
            let this = self.clone();
            calls.spawn(async move {
                let read = streams::read(&this, &digest).await?;
                Ok(read.map(|bytes| (digest, bytes)).into_iter().collect())
            });
        }
        let take = |some: Vec<(Digest, Bytes)>| {
            let received = some.iter().map(|(digest, _)| digest.size).sum();
            self.0.moved.received.fetch_add(received, Ordering::Relaxed);
            found.extend(some);
        };
        join(calls, take).await?;
        Ok(found)
    }

    async fn read_batch(&self, digests: Vec<Digest>) -> Result<Vec<(Digest, Bytes)>, Fault> {
        let request = BatchReadBlobsRequest {
            instance_name: self.instance(),
            digests: digests.iter().map(Digest::to_message).collect(),
            acceptable_compressors: Vec::new(),
            digest_function: 0,
        };
        let _call = self.take_turn().await;
        let answer = within(self.0.limits.whole, self.client().batch_read_blobs(request)).await?;
        let mut read = Vec::new();
        for one in answer.into_inner().responses {
            let digest = one.digest.as_ref().and_then(Digest::from_message);
            let Some(digest) = digest.filter(|digest| digests.contains(digest)) else {
                continue;
            };
            match one.status.map_or(Code::Ok, |status| Code::from(status.code)) {
                Code::Ok if Digest::of(&one.data) == digest => read.push((digest, one.data.into())),
                Code::Ok => return Err(wrong_content()),
                Code::NotFound => {}
                code => return Err(Fault::Failed(format!("it failed: {}", code.description()))),
            }
        }
        Ok(read)
    }

    /// Writes a content to a new file. False, and no file, if the cluster does not have it.
    pub async fn read_to_file(&self, digest: &Digest, file: &Path) -> Result<bool, Fault> {
        let failed = |error: std::io::Error| Fault::Failed(format!("write {}: {error}", file.display()));
        if fits(digest, self.capabilities().await?.batch) {
            let Some(bytes) = self.read(digest, digest.size).await? else {
                return Ok(false);
            };
            tokio::fs::write(file, &bytes).await.map_err(failed)?;
            return Ok(true);
        }
        streams::read_to_file(self, digest, file).await
    }

    /// Uploads these, or, if asked to, those of them that the cluster lacks.
    pub async fn write_all(&self, blobs: Vec<(Digest, Source)>, ask: bool) -> Result<Written, Fault> {
        let mut written = Written::default();
        let mut blobs: HashMap<Digest, Source> = blobs.into_iter().collect();
        if ask {
            let digests: Vec<Digest> = blobs.keys().copied().collect();
            let missing = self.missing(&digests).await?;
            written.calls += digests.len().div_ceil(MOST_DIGESTS);
            blobs.retain(|digest, _| missing.contains(digest));
        }
        if blobs.is_empty() {
            return Ok(written);
        }
        let capabilities = self.capabilities().await?;
        if blobs.keys().any(|digest| digest.size > capabilities.largest) {
            return Err(Fault::Declined("it takes no content of that size".to_owned()));
        }
        let (small, large): (Vec<_>, Vec<_>) = blobs
            .into_iter()
            .partition(|(digest, _)| fits(digest, capabilities.batch));
        let mut calls = JoinSet::new();
        for some in parts(small, capabilities.batch, |(digest, _)| digest.size) {
            let this = self.clone();
            calls.spawn(async move { this.write_batch(some).await });
        }
        for (digest, source) in large {
            let this = self.clone();
            calls.spawn(async move { streams::write(&this, &digest, source).await });
        }
        let take = |some: Written| {
            self.0.moved.sent.fetch_add(some.bytes, Ordering::Relaxed);
            written.add(some);
        };
        join(calls, take).await?;
        Ok(written)
    }

    async fn write_batch(&self, blobs: Vec<(Digest, Source)>) -> Result<Written, Fault> {
        let _call = self.take_turn().await;
        let mut written = Written {
            calls: 1,
            ..Written::default()
        };
        let mut requests = Vec::with_capacity(blobs.len());
        for (digest, source) in blobs {
            let data = load(&digest, source).await?.into();
            written.blobs += 1;
            written.bytes += digest.size;
            requests.push(batch_update_blobs_request::Request {
                digest: Some(digest.to_message()),
                data,
                compressor: 0,
            });
        }
        let request = BatchUpdateBlobsRequest {
            instance_name: self.instance(),
            requests,
            digest_function: 0,
        };
        let answer = within(self.0.limits.whole, self.client().batch_update_blobs(request)).await?;
        for one in answer.into_inner().responses {
            match one.status.map_or(Code::Ok, |status| Code::from(status.code)) {
                Code::Ok => {}
                Code::ResourceExhausted => return Err(Fault::Declined("it is full".to_owned())),
                Code::PermissionDenied => return Err(Fault::Declined(NOT_PERMITTED.to_owned())),
                code => return Err(Fault::Failed(format!("it failed: {}", code.description()))),
            }
        }
        Ok(written)
    }

    /// Until the turn is dropped, it is one of the few calls with contents.
    async fn take_turn(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.0.calls.acquire().await.ok()
    }
}

fn fits(digest: &Digest, batch: usize) -> bool {
    digest.size + AROUND_ONE as u64 <= batch as u64
}

fn wrong_content() -> Fault {
    Fault::Failed("a content that came did not have its digest".to_owned())
}

/// Groups that fit into one message each.
fn parts<T>(all: Vec<T>, batch: usize, size: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut used = 0;
    for one in all {
        let needs = size(&one) as usize + AROUND_ONE;
        match parts.last_mut() {
            Some(last) if used + needs <= batch => last.push(one),
            _ => {
                parts.push(vec![one]);
                used = 0;
            }
        }
        used += needs;
    }
    parts
}

/// Waits for all calls. The first fault ends the others.
async fn join<T: 'static>(mut calls: JoinSet<Result<T, Fault>>, mut take: impl FnMut(T)) -> Result<(), Fault> {
    while let Some(done) = calls.join_next().await {
        match done {
            Ok(done) => take(done?),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    Ok(())
}

/// The bytes of what is uploaded.
async fn load(digest: &Digest, source: Source) -> Result<Bytes, Fault> {
    let path = match source {
        Source::Bytes(bytes) => return Ok(bytes),
        Source::File(path) => path,
    };
    let wanted = *digest;
    let loading = tokio::task::spawn_blocking(move || {
        let changed = || Fault::Declined(format!("{} changed while it was uploaded", path.display()));
        let file = File::open(&path).map_err(|_| changed())?;
        let mut bytes = Vec::with_capacity(wanted.size as usize);
        let read = file.take(wanted.size.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|_| changed())?;
        match Digest::of(&bytes) == wanted {
            true => Ok(bytes.into()),
            false => Err(changed()),
        }
    });
    match loading.await {
        Ok(loaded) => loaded,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reapi::{compressor, CacheCapabilities, ServerCapabilities};
    use crate::test_support::{parse, Cluster};
    use std::time::Duration;

    async fn start() -> (Cluster, Contents) {
        let (cluster, address) = Cluster::start().await;
        let connection = Connection::new(&address).unwrap();
        let limits = Limits {
            silence: Duration::from_secs(20),
            whole: Duration::from_secs(60),
            ..address.limits
        };
        (cluster, Contents::new(&connection, limits))
    }

    fn bytes(text: &str) -> (Digest, Source) {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        (Digest::of(&bytes), Source::Bytes(bytes))
    }

    /// Bytes that do not get smaller.
    fn noise(size: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..size).map(next).collect()
    }

    #[tokio::test]
    async fn what_was_written_is_read() {
        for is_packed in [false, true] {
            let (cluster, contents) = start().await;
            let compressor = if is_packed {
                compressor::Value::Zstd
            } else {
                compressor::Value::Identity
            };
            cluster.memory().capabilities = ServerCapabilities {
                cache_capabilities: Some(CacheCapabilities {
                    supported_compressors: vec![compressor as i32],
                    ..CacheCapabilities::default()
                }),
                ..ServerCapabilities::default()
            };
            let large = noise(5 << 20);
            let wanted = Digest::of(&large);
            let all = vec![bytes("a"), bytes(""), (wanted, Source::Bytes(large.into()))];
            let digests: Vec<Digest> = all.iter().map(|(digest, _)| *digest).collect();
            let written = contents.write_all(all.clone(), true).await.unwrap();
            assert_eq!((written.blobs, written.calls), (3, 3));
            let again = contents.write_all(all, true).await.unwrap();
            assert_eq!((again.blobs, again.bytes, again.calls), (0, 0, 1));
            assert!(contents.missing(&digests).await.unwrap().is_empty());
            let read = contents.read_all(&digests, 6 << 20).await.unwrap();
            assert!(digests.iter().all(|digest| Digest::of(&read[digest]) == *digest));
            let file = std::env::temp_dir().join(format!("wafcluster-contents-{}-{is_packed}", std::process::id()));
            assert!(contents.read_to_file(&wanted, &file).await.unwrap());
            assert_eq!(Digest::of(&std::fs::read(&file).unwrap()), wanted);
            std::fs::remove_file(&file).unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_not_there_is_nothing() {
        let (_cluster, contents) = start().await;
        let (small, large) = (
            Digest::of(b"x"),
            Digest {
                size: 9 << 20,
                ..Digest::of(b"y")
            },
        );
        assert!(contents.read_all(&[small, large], 10 << 20).await.unwrap().is_empty());
        let file = std::env::temp_dir().join(format!("wafcluster-nothing-{}", std::process::id()));
        assert!(!contents.read_to_file(&large, &file).await.unwrap() && !file.exists());
        assert_eq!(contents.missing(&[small, large]).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn more_than_is_expected_is_not_asked_for() {
        let (cluster, contents) = start().await;
        let digest = cluster.put(b"four");
        assert!(matches!(contents.read(&digest, 3).await, Err(Fault::Declined(_))));
        assert_eq!(cluster.count("BatchReadBlobs"), 0);
    }

    #[tokio::test]
    async fn a_lie_about_a_content_is_found() {
        let (cluster, contents) = start().await;
        for size in [10, 5 << 20] {
            let digest = cluster.put(&noise(size));
            cluster.memory().lies.insert(digest);
            assert_eq!(contents.read(&digest, 9 << 20).await, Err(wrong_content()));
        }
    }

    #[tokio::test]
    async fn a_file_that_changed_is_not_uploaded() {
        let (cluster, contents) = start().await;
        let file = std::env::temp_dir().join(format!("wafcluster-changed-{}", std::process::id()));
        for size in [10, 5 << 20] {
            let old = Digest::of(&noise(size));
            for now in [size - 1, size + 1] {
                std::fs::write(&file, noise(now)).unwrap();
                let done = contents.write_all(vec![(old, Source::File(file.clone()))], false).await;
                assert!(matches!(done, Err(Fault::Declined(_))), "{done:?}");
                assert!(!cluster.has(&old));
            }
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[tokio::test]
    async fn a_silent_cluster_is_told_apart_from_one_that_fails() {
        let (cluster, address) = Cluster::start().await;
        let text = format!(
            "grpc://{}:{}|timeout=50|operation-timeout=50",
            address.host, address.port
        );
        let address = parse(&text);
        let contents = Contents::new(&Connection::new(&address).unwrap(), address.limits);
        cluster.memory().failure = Some(Code::Unavailable);
        assert!(matches!(
            contents.missing(&[Digest::of(b"x")]).await,
            Err(Fault::Failed(_))
        ));
        cluster.memory().failure = None;
        cluster.memory().is_silent = true;
        assert!(matches!(
            contents.missing(&[Digest::of(b"x")]).await,
            Err(Fault::Silent(_))
        ));
        assert!(matches!(
            contents.read(&Digest::of(b"x"), 9).await,
            Err(Fault::Silent(_))
        ));
    }

    #[tokio::test]
    async fn a_token_is_told() {
        let (cluster, address) = Cluster::start().await;
        cluster.memory().token = Some("secret".to_owned());
        let ask = |login: &str| {
            let address = parse(&format!("grpc://{login}{}:{}", address.host, address.port));
            let contents = Contents::new(&Connection::new(&address).unwrap(), Limits::default());
            async move { contents.missing(&[Digest::of(b"x")]).await }
        };
        assert!(matches!(ask("").await, Err(Fault::Failed(words)) if words.contains("token")));
        assert!(ask("secret@").await.is_ok());
    }

    #[test]
    fn groups_fit_into_a_message() {
        let groups = parts(vec![500, 500, 900, 10, 10], 1500, |size| *size);
        assert_eq!(groups, [vec![500, 500], vec![900, 10], vec![10]]);
        assert!(parts(Vec::<u64>::new(), 10, |size| *size).is_empty());
    }
}
