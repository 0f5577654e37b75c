//! A cluster as a store of entries: what the engine asks, by calls of the Remote Execution API.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::{Code, Status};
use wafengine::bytes::digest::Digest as Name;
use wafengine::room::Coding;
use wafengine::settings::address::{Address, Limits};
use wafengine::tier::UPLOAD;

use super::incoming::Blob;
use super::known::{Known, Place};
use super::results::{self, Held, Question};
use crate::capabilities::MESSAGE;
use crate::connection::{fault, silent, within, Channel, Connection, Fault};
use crate::contents::{Contents, Source};
use crate::digests::Digest;
use crate::reapi::action_cache_client::ActionCacheClient;
use crate::reapi::{ActionResult, GetActionResultRequest, UpdateActionResultRequest};

/// How many keys are looked up at once.
const AT_ONCE: usize = 32;
/// Limit for all blobs that come along with the entries of one question.
const MOST_ALONG: u64 = 64 << 20;
/// Limit for all blobs of one entry together, in the form in which they come.
const MOST_FETCHED: u64 = 256 << 20;
/// A result is one message, with something around it.
const LARGEST_RESULT: usize = MESSAGE - (64 << 10);

pub struct Store {
    address: Address,
    cluster: Mutex<Result<Cluster, String>>,
    known: Known,
}

/// A connection, and what is called over it.
#[derive(Clone)]
struct Cluster {
    connection: Connection,
    lookups: Contents,
    uploads: Contents,
    has_answered: Arc<AtomicBool>,
}

/// A blob as it came, with its coding.
pub type Fetched = (Coding, Bytes);

impl Cluster {
    fn new(address: &Address) -> Result<Cluster, String> {
        let connection = Connection::new(address)?;
        Ok(Cluster {
            lookups: Contents::new(&connection, address.limits),
            uploads: Contents::new(&connection, UPLOAD),
            connection,
            has_answered: Arc::default(),
        })
    }

    fn results(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.connection.channel()).max_decoding_message_size(2 * MESSAGE)
    }

    /// Waits for an answer. The first one may take as long as it takes to connect, too.
    async fn answer<T>(&self, limits: &Limits, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let more = match self.has_answered.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => limits.connect,
        };
        match tokio::time::timeout(limits.silence + more, call).await {
            Ok(answer) => {
                let is_there = !matches!(&answer, Err(status) if status.code() == Code::Unavailable);
                self.has_answered.store(is_there, Ordering::Relaxed);
                answer
            }
            Err(_) => Err(Status::deadline_exceeded("")),
        }
    }

    async fn look_up(&self, key: &Name, limits: &Limits, contents: &Contents) -> Result<Held, Fault> {
        let request = GetActionResultRequest {
            instance_name: self.connection.instance().to_owned(),
            action_digest: Some(Question::of(key).digest.to_message()),
            inline_stdout: true,
            ..GetActionResultRequest::default()
        };
        let mut client = self.results();
        let result = match self.answer(limits, client.get_action_result(request)).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.code() == Code::NotFound => return Ok(Held::default()),
            Err(status) if status.code() == Code::DeadlineExceeded => return Err(silent(limits.silence)),
            Err(status) => return Err(fault(&status)),
        };
        let printed = printed(&result, contents).await?;
        Ok(Held::read(key, &printed, &result.output_files))
    }
}

/// A server may have moved to its contents what an action has printed.
async fn printed(result: &ActionResult, contents: &Contents) -> Result<Bytes, Fault> {
    if !result.stdout_raw.is_empty() {
        return Ok(result.stdout_raw.clone().into());
    }
    match result.stdout_digest.as_ref().and_then(Digest::from_message) {
        // Nothing of ours is larger.
        Some(digest) if (1..=LARGEST_RESULT as u64).contains(&digest.size) => {
            let read = contents.read(&digest, LARGEST_RESULT as u64).await?;
            Ok(read.unwrap_or_default())
        }
        _ => Ok(Bytes::new()),
    }
}

impl Store {
    /// Must be called in a runtime of tokio. Makes no connection yet.
    pub fn new(address: &Address) -> Store {
        Store {
            cluster: Mutex::new(Cluster::new(address)),
            address: address.clone(),
            known: Known::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Result<Cluster, String>> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A mistake in the address, or in a file that it names.
    pub fn mistake(&self) -> Option<String> {
        self.state().as_ref().err().cloned()
    }

    /// Does something within a time. If the cluster is silent, the next call gets a new connection: this one may be dead,
    /// and a system notices that only after a quarter of an hour.
    async fn within<T, F>(&self, limits: &Limits, act: impl FnOnce(Cluster) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let cluster = self.state().clone().map_err(Fault::Failed)?;
        let has_answered = cluster.has_answered.clone();
        let time = limits.connect + limits.whole;
        let done = match tokio::time::timeout(time, act(cluster)).await {
            Ok(done) => done,
            Err(_) => Err(silent(limits.whole)),
        };
        if let Err(Fault::Silent(_)) = &done {
            let mut state = self.state();
            let is_same = matches!(&*state, Ok(cluster) if Arc::ptr_eq(&cluster.has_answered, &has_answered));
            if is_same {
                *state = Cluster::new(&self.address);
            }
        }
        done
    }

    /// What there is for each key.
    pub async fn find(&self, keys: &[Name]) -> Result<Vec<Held>, Fault> {
        let limits = self.address.limits;
        let found = self.within(&limits, |cluster| async move {
            let turns = Arc::new(Semaphore::new(AT_ONCE));
            let mut calls = JoinSet::new();
            for (number, key) in keys.iter().copied().enumerate() {
                let (cluster, turns) = (cluster.clone(), turns.clone());
                calls.spawn(async move {
                    // The semaphore is never closed.
                    let _turn = turns.acquire().await.ok();
                    let held = cluster.look_up(&key, &limits, &cluster.lookups).await?;
                    Ok((number, held))
                });
            }
            let mut all = vec![Held::default(); keys.len()];
            while let Some(done) = calls.join_next().await {
                let (number, held) = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
                all[number] = held;
            }
            Ok(all)
        });
        let all: Vec<Held> = found.await?;
        for held in &all {
            self.known.add(held.places.iter().map(|(name, place)| (*name, *place)));
        }
        Ok(all)
    }

    /// The blobs up to this size that the newest entry of each key needs.
    pub async fn along(&self, all: &[Held], inline: u32) -> HashMap<Name, Fetched> {
        let newest = all
            .iter()
            .filter_map(|held| Some((held, results::needs(held.entries.first()?))));
        let mut places = HashMap::new();
        let mut size = 0;
        for (held, names) in newest {
            for name in names {
                let place = held
                    .places
                    .get(&name)
                    .filter(|place| place.digest.size <= inline.into());
                if let Some(place) = place.filter(|place| size + place.digest.size <= MOST_ALONG) {
                    size += place.digest.size;
                    places.insert(name, *place);
                }
            }
        }
        // An entry without them is useful, too: what it needs is asked for then, alone.
        self.read(places).await.unwrap_or_default()
    }

    /// Those of these blobs that there are.
    pub async fn fetch(&self, names: &[Name]) -> Result<HashMap<Name, Fetched>, Fault> {
        let places = names.iter().filter_map(|name| Some((*name, self.known.get(name)?)));
        self.read(places.collect()).await
    }

    async fn read(&self, places: HashMap<Name, Place>) -> Result<HashMap<Name, Fetched>, Fault> {
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let digests: Vec<Digest> = places.values().map(|place| place.digest).collect();
        let read = |cluster: Cluster| async move { cluster.lookups.read_all(&digests, MOST_FETCHED).await };
        let contents = self.within(&self.address.limits, read).await?;
        let fetched = places.into_iter().filter_map(|(name, place)| {
            let bytes = contents.get(&place.digest)?.clone();
            Some((name, (place.coding, bytes)))
        });
        Ok(fetched.collect())
    }

    /// Whether results may be written.
    pub async fn is_writable(&self) -> Result<bool, Fault> {
        let ask = |cluster: Cluster| async move { cluster.uploads.capabilities().await };
        Ok(self.within(&UPLOAD, ask).await?.takes_results)
    }

    /// Whether the cluster has each of these blobs. Of those that we do not know it does not.
    pub async fn has(&self, names: &[Name]) -> Result<Vec<bool>, Fault> {
        let places: Vec<Option<Place>> = names.iter().map(|name| self.known.get(name)).collect();
        let digests: Vec<Digest> = places.iter().flatten().map(|place| place.digest).collect();
        if digests.is_empty() {
            return Ok(vec![false; names.len()]);
        }
        let ask = |cluster: Cluster| async move { cluster.uploads.missing(&digests).await };
        let missing = self.within(&UPLOAD, ask).await?;
        let is_there = |place: &Option<Place>| place.is_some_and(|place| !missing.contains(&place.digest));
        Ok(places.iter().map(is_there).collect())
    }

    /// Where the cluster has a blob that was not sent again.
    pub fn place(&self, name: &Name) -> Option<Place> {
        self.known.get(name)
    }

    /// Stores an entry. These of its blobs were sent, and those the cluster has already.
    pub async fn keep(
        &self,
        key: Name,
        entry: Vec<u8>,
        sent: Vec<(Name, Blob)>,
        mut blobs: Vec<(Name, Place)>,
    ) -> Result<(), Fault> {
        let hashed = tokio::task::spawn_blocking(move || {
            let hash = |(name, blob): (Name, Blob)| {
                let place = Place {
                    digest: Digest::of(&blob.bytes),
                    coding: blob.coding,
                };
                (name, place, blob.bytes)
            };
            sent.into_iter().map(hash).collect::<Vec<_>>()
        });
        let sent = hashed
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        blobs.extend(sent.iter().map(|(name, place, _)| (*name, *place)));
        let known = blobs.clone();
        let sent = sent.into_iter().map(|(_, place, bytes)| (place.digest, bytes));
        let sent: HashMap<Digest, Bytes> = sent.collect();
        let keep = |cluster: Cluster| async move { cluster.keep(&key, entry, sent, &blobs).await };
        self.within(&UPLOAD, keep).await?;
        self.known.add(known);
        Ok(())
    }
}

impl Cluster {
    async fn keep(
        &self,
        key: &Name,
        entry: Vec<u8>,
        mut at_hand: HashMap<Digest, Bytes>,
        blobs: &[(Name, Place)],
    ) -> Result<(), Fault> {
        let old = self.look_up(key, &UPLOAD, &self.uploads).await?;
        if old.entries.first() == Some(&entry) {
            return Ok(());
        }
        let question = Question::of(key);
        at_hand.extend(question.contents);
        // A result may refer only to what is there, also for the sake of its older entries.
        let places = old.places.values().chain(blobs.iter().map(|(_, place)| place));
        let all: HashSet<Digest> = places
            .map(|place| place.digest)
            .chain(at_hand.keys().copied())
            .collect();
        let all: Vec<Digest> = all.into_iter().collect();
        let mut missing = self.uploads.missing(&all).await?;
        at_hand.retain(|digest, _| missing.remove(digest));
        if blobs.iter().any(|(_, place)| missing.contains(&place.digest)) {
            return Err(Fault::Declined("it lacks a blob".to_owned()));
        }
        let contents = at_hand
            .into_iter()
            .map(|(digest, bytes)| (digest, Source::Bytes(bytes)));
        self.uploads.write_all(contents.collect(), false).await?;
        let result = old.with(entry, blobs, &missing).write(key);
        if results::size(&result) > LARGEST_RESULT {
            return Err(Fault::Declined("too large".to_owned()));
        }
        let request = UpdateActionResultRequest {
            instance_name: self.connection.instance().to_owned(),
            action_digest: Some(question.digest.to_message()),
            action_result: Some(result),
            ..UpdateActionResultRequest::default()
        };
        within(UPLOAD.silence, self.results().update_action_result(request)).await?;
        Ok(())
    }
}
