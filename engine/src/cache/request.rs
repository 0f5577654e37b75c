//! Requests to the cache as a whole, such as for statistics, settings and explanations, and the answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{json, Value};

use super::store::Usage;
use super::Cache;
use crate::bytes::path_text;
use crate::bytes::quantity;
use crate::report::question::{Answer, Question, Request};
use crate::report::remote::{Cluster, Remote, Tier};
use crate::report::statistics::{Preambles, Proofs, Reasons, Statistics, Texts};
use crate::settings::place::is_same;
use crate::settings::{comparison, room, switch};

/// The counter with the time of the counters' start, in seconds since 1970.
const SINCE: &str = "since";

impl Cache {
    /// Answers a request. It is refused if it is for another store.
    pub fn grant(&self, question: Question) -> Answer {
        if let Some(words) = self.refusal(&question.store) {
            return Answer::Refusal(words);
        }
        match question.request {
            Request::Statistics => Answer::Statistics(Box::new(self.statistics())),
            Request::Zero => self.zero(),
            Request::Clear => self.removing(|cache| cache.store.clear().map(drop)),
            Request::Evict { seconds } => self.removing(|cache| {
                cache.store.evict_older_than(Duration::from_secs(seconds));
                Ok(())
            }),
            Request::CleanUp => self.removing(|cache| {
                cache.store.set_max_size(cache.store.usage().max_size);
                Ok(())
            }),
            Request::Set { name, value } => self.set(&name, &value),
            Request::Explain { output } => self.explain(output.as_deref()),
        }
    }

    /// The reason for a refusal, if this is not the path of our store.
    pub(super) fn refusal(&self, store: &Path) -> Option<String> {
        let (ours, theirs) = (path_text::show(&self.folder), path_text::show(store));
        let is_ours = is_same(&self.folder, store);
        (!is_ours).then(|| format!("this engine keeps the store {ours}, not {theirs}"))
    }

    fn removing(&self, remove: impl FnOnce(&Cache) -> std::io::Result<()>) -> Answer {
        let before = self.store.usage();
        if let Err(error) = remove(self) {
            return Answer::Refusal(format!("the store: {error}"));
        }
        let after = self.store.usage();
        Answer::Removed {
            entries: before.entries.saturating_sub(after.entries) as u64,
            bytes: before.size.saturating_sub(after.size),
        }
    }

    fn zero(&self) -> Answer {
        self.journal.forget_differences();
        self.store.heal();
        match self.store.zero_counters() {
            Ok(()) => {
                self.tally.clear();
                self.tally.add(SINCE, now());
                Answer::Done
            }
            Err(error) => Answer::Refusal(format!("the counts could not be written: {error}")),
        }
    }

    fn set(&self, name: &str, value: &str) -> Answer {
        let done = match name {
            "max_size" => quantity::size(value).map(|size| {
                self.store.set_max_size(if size == 0 { u64::MAX } else { size });
            }),
            "audit" => quantity::percent(value).map(|percent| self.set_audit(percent)),
            "preambles" => room(value).map(|limit| self.set_preambles(limit)),
            "share_preambles" => switch(value.as_ref())
                .map(|are_shared| self.share_preambles(are_shared))
                .ok_or_else(|| "share_preambles: set it to yes or no".to_owned()),
            "compare_texts" => comparison(value)
                .map(|compared| self.compare_texts(compared))
                .map_err(|why| format!("compare_texts: {why}")),
            "cache_failures" => switch(value.as_ref())
                .map(|are_cached| self.cache_failures(are_cached))
                .ok_or_else(|| "cache_failures: set it to yes or no".to_owned()),
            "prove_commands" => switch(value.as_ref())
                .map(|are_proved| self.prove_commands(are_proved))
                .ok_or_else(|| "prove_commands: set it to yes or no".to_owned()),
            "prove_programs" => {
                self.prove_programs(value.as_bytes());
                Ok(())
            }
            "remote" => self.set_remote(value).map_err(|error| format!("remote: {error}")),
            "trusted_keys" => self
                .set_trusted_keys(value)
                .map_err(|error| format!("trusted_keys: {error}; nothing is taken from other stores")),
            "signing_key" => self
                .set_signing_key(value)
                .map_err(|error| format!("signing_key: {error}; nothing is uploaded")),
            "hard_link" => switch(value.as_ref())
                .map(|are_wanted| self.set_links(are_wanted))
                .ok_or_else(|| "hard_link: set it to yes or no".to_owned()),
            _ => Err(format!(
                "{name} holds from the engine's next start on: wafcc --shutdown"
            )),
        };
        done.map_or_else(Answer::Refusal, |()| Answer::Done)
    }

    fn explain(&self, output: Option<&str>) -> Answer {
        self.journal.flush();
        let found = match output {
            Some(output) => self.journal.look_up(output).into_iter().collect(),
            None => self.journal.last(),
        };
        Answer::Explanations(found.iter().map(|explanation| (**explanation).clone()).collect())
    }

    fn statistics(&self) -> Statistics {
        self.heal();
        // The answer has these counts even if they cannot be written.
        if let Err(error) = self.tally.flush(&self.store) {
            log::debug!("count in the store: {error}");
        }
        let told = self.gather(&self.tally.look(&self.store), self.store.usage());
        Statistics {
            differences: self.journal.differences(),
            voided: self.journal.voided(told.since),
            ..told
        }
    }

    fn gather(&self, counters: &BTreeMap<String, u64>, usage: Usage) -> Statistics {
        let count = |name: &str| counters.get(name).copied().unwrap_or(0);
        let reasons = |prefix: &str| -> Reasons {
            let own = counters
                .iter()
                .filter_map(|(name, n)| Some((name.strip_prefix(prefix)?.to_owned(), *n)));
            own.collect()
        };
        Statistics {
            since: count(SINCE),
            hits: count("hits"),
            misses: reasons("misses/"),
            uncached: reasons("uncached/"),
            unstored: reasons("not stored/"),
            configure: reasons("configure/"),
            audited: count("audited"),
            different: count("different"),
            unaudited: reasons("not audited/"),
            texts: Texts {
                hits: count("text hits"),
                saved: count("text saved"),
                kept: count("texts kept"),
                waiting: self.texts_waiting.load(std::sync::atomic::Ordering::Relaxed),
                spent: count("text spent"),
            },
            proofs: Proofs {
                proved: count("proved"),
                refuted: count("refuted"),
                unproved: reasons("not proved/"),
                waiting: self.rehearsals_waiting.load(std::sync::atomic::Ordering::Relaxed),
                spent: count("proofs spent"),
            },
            preambles: Preambles {
                made: count("preambles made"),
                used: count("preambles used"),
                saved: count("preambles saved"),
                spent: count("preambles spent"),
                proved: count("preambles proved"),
                unproved: count("preambles unproved"),
                refused: reasons("preambles refused/"),
            },
            audits_waiting: self.audit.waiting() as u64,
            differences: Vec::new(),
            voided: Vec::new(),
            entries: usage.entries as u64,
            bytes: usage.size,
            limit: if usage.max_size == u64::MAX { 0 } else { usage.max_size },
            remote: Remote {
                hits: count("remote hits"),
                misses: count("remote misses"),
                errors: reasons("remote errors/"),
                refused: reasons("remote refused/"),
                uploads: count("uploads"),
                dropped: reasons("uploads dropped/"),
                bytes_in: count("remote bytes in"),
                bytes_out: count("remote bytes out"),
                executed: count("executed elsewhere"),
                not_executed: reasons("not elsewhere/"),
                clusters: clusters(reasons("executed at/"), reasons("not executed at/")),
                tiers: self.describe_tiers(),
            },
        }
    }

    /// Each shared store once, though several settings may name it.
    fn describe_tiers(&self) -> Vec<Tier> {
        let mut all: Vec<Tier> = Vec::new();
        for tier in self.tiers.all().iter().flat_map(|stores| stores.describe()) {
            if all.iter().all(|known| known.name != tier.name) {
                all.push(tier);
            }
        }
        all
    }

    /// For `wafd status`. Never waits for another thread or a disk.
    pub fn describe(&self) -> Value {
        let statistics = self.gather(&self.tally.look(&self.store), self.store.glance());
        let (running, waiting) = self.flights.count();
        let misses: Vec<_> = self.journal.misses().iter().map(|miss| miss.brief()).collect();
        json!({
            "store": path_text::show(&self.folder),
            "store_bytes": path_text::exact(&self.folder),
            "statistics": statistics.json(),
            "audit_percent": self.audit.percent(),
            "preambles": self.preambles.describe(),
            "flights": {"running": running, "waiting": waiting},
            "misses": misses,
        })
    }

    /// Notes the time at which the counters of a new store start.
    pub(super) fn begin_counts(&self) {
        if !self.tally.look(&self.store).contains_key(SINCE) {
            self.tally.add(SINCE, now());
        }
    }
}

/// By address: how many commands ran there, and by `address reason` how many did not.
fn clusters(executed: Reasons, stayed: Reasons) -> BTreeMap<String, Cluster> {
    let mut clusters: BTreeMap<String, Cluster> = BTreeMap::new();
    for (address, n) in executed {
        clusters.entry(address).or_default().executed = n;
    }
    for (name, n) in stayed {
        if let Some((address, why)) = name.split_once(' ') {
            let cluster = clusters.entry(address.to_owned()).or_default();
            cluster.not_executed.insert(why.to_owned(), n);
        }
    }
    clusters
}

pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
