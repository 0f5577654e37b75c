//! Uploads of what commands need. Many commands need the same files: each file is asked for and sent once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::connection::Fault;
use crate::contents::{Contents, Source};
use crate::digests::Digest;

/// For so long the cluster is not asked again whether it has a content. It may lose some; the command then says so.
const KNOWN: Duration = Duration::from_secs(600);
/// More contents are not remembered.
const MOST_KNOWN: usize = 1 << 18;

pub struct Uploads {
    contents: Contents,
    states: Mutex<HashMap<Digest, State>>,
    changed: Notify,
}

#[derive(Clone, Copy)]
enum State {
    /// Another command has begun to upload it.
    Coming,
    ThereSince(Instant),
}

/// What one call uploads. If it does not finish, others may.
struct Claim<'a> {
    uploads: &'a Uploads,
    digests: Vec<Digest>,
}

impl Uploads {
    pub fn new(contents: &Contents) -> Uploads {
        Uploads {
            contents: contents.clone(),
            states: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Digest, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that the cluster has all of these.
    pub async fn bring(&self, blobs: &[(Digest, Source)]) -> Result<(), Fault> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let (mine, is_waiting) = self.claim(blobs);
            if !mine.digests.is_empty() {
                let wanted = blobs
                    .iter()
                    .filter(|(digest, _)| mine.digests.binary_search(digest).is_ok());
                self.contents.write_all(wanted.cloned().collect(), true).await?;
                mine.fulfil();
            } else if is_waiting {
                changed.await;
            } else {
                return Ok(());
            }
        }
    }

    /// Those that no other call brings yet, and whether other calls bring some of them.
    fn claim(&self, blobs: &[(Digest, Source)]) -> (Claim<'_>, bool) {
        let mut digests = Vec::new();
        let mut is_waiting = false;
        let mut states = self.states();
        for (digest, _) in blobs {
            match states.get(digest) {
                Some(State::Coming) => is_waiting |= !digests.contains(digest),
                Some(State::ThereSince(when)) if when.elapsed() < KNOWN => {}
                _ => {
                    states.insert(*digest, State::Coming);
                    digests.push(*digest);
                }
            }
        }
        drop(states);
        digests.sort_unstable();
        let claim = Claim { uploads: self, digests };
        (claim, is_waiting)
    }

    /// The cluster has lost something: it is asked for everything again.
    pub fn forget(&self) {
        self.states().retain(|_, state| matches!(state, State::Coming));
    }
}

impl Claim<'_> {
    fn fulfil(mut self) {
        let now = Instant::now();
        let mut states = self.uploads.states();
        if states.len() > MOST_KNOWN {
            states.retain(|_, state| matches!(state, State::Coming));
        }
        states.extend(self.digests.drain(..).map(|digest| (digest, State::ThereSince(now))));
        drop(states);
        self.uploads.changed.notify_waiters();
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.digests.is_empty() {
            return;
        }
        let mut states = self.uploads.states();
        self.digests.iter().for_each(|digest| {
            states.remove(digest);
        });
        drop(states);
        self.uploads.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use crate::test_support::Cluster;
    use bytes::Bytes;
    use tokio::time::timeout;

    fn blobs(texts: &[&str]) -> Vec<(Digest, Source)> {
        let source = |text: &&str| Bytes::copy_from_slice(text.as_bytes());
        let sources = texts.iter().map(source);
        sources
            .map(|bytes| (Digest::of(&bytes), Source::Bytes(bytes)))
            .collect()
    }

    async fn start() -> (Cluster, Uploads) {
        let (cluster, mut address) = Cluster::start().await;
        address.limits.silence = Duration::from_secs(20);
        let contents = Contents::new(&Connection::new(&address).unwrap(), address.limits);
        (cluster, Uploads::new(&contents))
    }

    #[tokio::test]
    async fn what_many_need_is_sent_once() {
        let (cluster, uploads) = start().await;
        let (first, second) = (blobs(&["a", "b"]), blobs(&["b", "c"]));
        let (one, two, three) = tokio::join!(uploads.bring(&first), uploads.bring(&second), uploads.bring(&first));
        assert_eq!((one, two, three), (Ok(()), Ok(()), Ok(())));
        assert_eq!(cluster.count("BatchUpdateBlobs"), 2, "a and b at once, and c");
        assert!(first.iter().chain(&second).all(|(digest, _)| cluster.has(digest)));
        uploads.bring(&first).await.unwrap();
        assert_eq!(cluster.count("FindMissingBlobs"), 2);
    }

    #[tokio::test]
    async fn what_was_lost_is_sent_again() {
        let (cluster, uploads) = start().await;
        let all = blobs(&["a"]);
        uploads.bring(&all).await.unwrap();
        cluster.memory().blobs.clear();
        uploads.forget();
        uploads.bring(&all).await.unwrap();
        assert!(cluster.has(&all[0].0));
    }

    #[tokio::test]
    async fn an_upload_that_is_given_up_is_taken_over() {
        let (cluster, uploads) = start().await;
        let all = blobs(&["a"]);
        cluster.memory().is_silent = true;
        let cancelled = timeout(Duration::from_millis(200), uploads.bring(&all));
        let (cancelled, second) = tokio::join!(cancelled, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cluster.memory().is_silent = false;
            uploads.bring(&all).await
        });
        assert!(cancelled.is_err());
        assert_eq!(second, Ok(()));
        assert!(cluster.has(&all[0].0));
    }
}
