//! Searches the stores that machines share (tiers) for a command that is not in this machine's store. A `Remote` asks
//! them. This file decides which of their entries may be used.
//!
//! ```text
//! no entry here ─► a flight, for which the same questions wait ─► a tier ─► the question is asked again
//!      ─► an entry whose facts hold ─► fetch missing blobs ─► the question is asked again ─► our store ─► a hit
//!      └─► no such entry ─► the next tier … ─► a miss, which keeps the flight
//! ```
//!
//! An entry from a tier is not trusted. Its signature is checked if trusted keys are configured. Its outputs must be those
//! that the command declares (`foreign`). Its facts are checked on this machine, and its blobs against their digests.

use std::sync::{Arc, Weak};

use super::answer::{Question, Wishes};
use super::compiler::action::Action;
use super::compiler::relocation::is_of_rules;
use super::lookup::entry::{Content, Entry, Output, Print};
use super::lookup::flight::{Flight, Joined};
use super::remote::bundle::{Bundle, MOST_ENTRIES};
use super::remote::foreign::{is_calm, is_within_bounds, Declaration, Refusal, Stored};
use super::remote::wrapped::Wrapped;
use super::remote::{Findings, Load, Offer, Remote};
use super::store::{Blob, Store};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::file_view::FileView;
use crate::facts::world::View;
use crate::trust::signature::{Distrust, Sealed, Trust};

/// The state of a question's search in tiers.
pub struct Searched {
    /// Questions for the same command wait until this is dropped.
    flight: Flight<Question>,
    /// The number of a tier that has something, and what it has.
    found: Option<(usize, Bundle)>,
    /// Whether the blobs that were missing in it were fetched.
    is_fetched: bool,
    /// The number of the next tier to ask.
    next: usize,
    /// The result of each tier, for `--explain`.
    words: Vec<String>,
}

/// The result of one step of a search.
pub(super) enum Search {
    /// The search goes on in the background. The question will be asked again.
    Begun,
    /// An entry whose facts hold is now in our store.
    Stored(Question),
    Nothing(Question),
}

/// The decision about the entries that a tier has.
pub(super) enum Judged {
    /// This entry can be used. The number is its position in the bundle.
    Holds(Entry, usize),
    /// An entry can be used once these blobs are there.
    Lacks(Vec<Digest>),
    Nothing(String),
    Refused(Refusal),
}

/// Why an entry whose facts hold was not put into our store.
pub(super) enum NotAdopted {
    Refused(Refusal),
    Failed(String),
}

impl NotAdopted {
    fn by_store(error: std::io::Error) -> NotAdopted {
        log::warn!("store what a tier gave: {error}");
        NotAdopted::Failed("it could not be stored here".to_owned())
    }
}

/// Why tiers are not asked at all.
pub(super) struct NotAsked {
    refusal: Refusal,
    pub words: String,
}

impl Searched {
    pub(super) fn into_flight(self) -> (Flight<Question>, Vec<String>) {
        (self.flight, self.words)
    }

    pub(super) fn words(&self) -> &[String] {
        &self.words
    }
}

impl Cache {
    pub(super) fn search(
        &self,
        mut question: Question,
        action: &Action,
        key: &Digest,
        file_view: &mut Option<FileView>,
    ) -> Search {
        let tiers = self.tiers(&question.wishes);
        if let Some(why) = self.why_tiers_are_not_asked(&question, action) {
            if question.searched.is_none() && tiers.is_some() {
                self.refuse(why.refusal);
            }
            return Search::Nothing(question);
        }
        let Some(mut searched) = question.searched.take() else {
            let Some(tiers) = tiers.filter(|tiers| tiers.are_there(0)) else {
                return Search::Nothing(question);
            };
            return match self.flights.join(*key, question) {
                Joined::Waits => Search::Begun,
                Joined::First(flight, question) => {
                    let searched = Searched {
                        flight,
                        found: None,
                        is_fetched: false,
                        next: 0,
                        words: Vec::new(),
                    };
                    self.begin_search(&tiers, question, Box::new(searched), *key)
                }
            };
        };
        if let (Some((tier, bundle)), Some(tiers)) = (searched.found.take(), &tiers) {
            match self.judge(&question, action, key, &bundle, file_view) {
                Judged::Holds(entry, at) => match self.adopt(&question.declaration(action), key, &entry, at, &bundle) {
                    Ok(()) => {
                        let name = tiers.name(tier);
                        self.count(&Counter::RemoteHit);
                        if !question.wishes.read_only {
                            // The bytes as they came, because they include the signature.
                            self.offer(&question.wishes, key, bundle.entries[at].clone(), &entry, tier);
                        }
                        searched.words = vec![format!("it came from {name}")];
                        question.searched = Some(searched);
                        return Search::Stored(question);
                    }
                    Err(NotAdopted::Refused(why)) => {
                        self.refuse(why);
                        searched.words.push(refused(tiers.name(tier), why));
                    }
                    Err(NotAdopted::Failed(why)) => {
                        self.count(&Counter::RemoteError(tiers.name(tier).to_owned(), why.clone()));
                        log::warn!("{}: {why}", tiers.name(tier));
                        searched.words.push(format!("{}: {why}", tiers.name(tier)));
                    }
                },
                Judged::Lacks(wanted) if !searched.is_fetched => {
                    searched.is_fetched = true;
                    return self.begin_fetch(tiers, question, searched, (tier, bundle, wanted));
                }
                Judged::Lacks(_) => searched.words.push(format!("{} lacks a part of it", tiers.name(tier))),
                Judged::Nothing(why) => searched.words.push(format!("{} has it, but {why}", tiers.name(tier))),
                Judged::Refused(why) => searched.words.push(refused(tiers.name(tier), why)),
            }
        }
        match tiers.filter(|tiers| tiers.are_there(searched.next)) {
            Some(tiers) => self.begin_search(&tiers, question, searched, *key),
            None => {
                self.count(&Counter::RemoteMiss);
                question.searched = Some(searched);
                Search::Nothing(question)
            }
        }
    }

    /// The reason why no entry of a tier could be used for this command, if there is one.
    pub(super) fn why_tiers_are_not_asked(&self, question: &Question, action: &Action) -> Option<NotAsked> {
        if let Trust::Nobody(why) = &*self.trust() {
            return Some(NotAsked {
                refusal: Refusal::Distrusted(Distrust::Nobody),
                words: format!("nothing is taken from other stores: trusted_keys: {why}"),
            });
        }
        let is_undeclared = question.declaration(action).is_empty();
        is_undeclared.then(|| {
            let refusal = Refusal::NothingDeclared;
            let name = refusal.name();
            let words = format!("nothing is taken from other stores: {name} (wafcc run --output=FILE -- …)");
            NotAsked { refusal, words }
        })
    }

    fn begin_search(
        &self,
        tiers: &Arc<dyn Remote>,
        question: Question,
        mut searched: Box<Searched>,
        key: Digest,
    ) -> Search {
        let ask_again = self.ask_again.clone();
        let (from, words) = (searched.next, std::mem::take(&mut searched.words));
        let found = move |findings: Findings| {
            let mut question = question;
            searched.next = findings.tier.map_or(usize::MAX, |tier| tier + 1);
            searched.found = findings.tier.map(|tier| (tier, findings.bundle));
            searched.is_fetched = false;
            searched.words = findings.words;
            question.searched = Some(searched);
            ask_again(question);
        };
        tiers.clone().find(key, from, words, Box::new(found));
        Search::Begun
    }

    fn begin_fetch(
        &self,
        tiers: &Arc<dyn Remote>,
        mut question: Question,
        mut searched: Box<Searched>,
        (tier, mut bundle, wanted): (usize, Bundle, Vec<Digest>),
    ) -> Search {
        let ask_again = self.ask_again.clone();
        let fetched = move |blobs: Vec<(Digest, Wrapped)>| {
            bundle.blobs.extend(blobs);
            searched.found = Some((tier, bundle));
            question.searched = Some(searched);
            ask_again(question);
        };
        tiers.fetch(tier, wanted, Box::new(fetched));
        Search::Begun
    }

    /// Looks for the first entry that is allowed and whose facts hold here.
    pub(super) fn judge(
        &self,
        question: &Question,
        action: &Action,
        key: &Digest,
        bundle: &Bundle,
        file_view: &mut Option<FileView>,
    ) -> Judged {
        let (trust, declaration) = (self.trust(), question.declaration(action));
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let now = FileView::for_request(file_view.take(), question.arrived);
        let mut view = View::at(now, &self.world, &place, &environment);
        let mut judged = Judged::Nothing("no entry of it is one".to_owned());
        let mut is_explained = false;
        for (at, bytes) in bundle.entries.iter().take(MOST_ENTRIES).enumerate() {
            let entry = match allowed(&trust, &declaration, key, bytes) {
                Ok(entry) => entry,
                Err(why) => {
                    self.refuse(why);
                    if !is_explained {
                        judged = Judged::Refused(why);
                    }
                    continue;
                }
            };
            if let Err(change) = entry.check(&mut view) {
                if !is_explained {
                    judged = Judged::Nothing(change.to_string());
                    is_explained = true;
                }
                continue;
            }
            let is_lacking = |digest: &Digest| !bundle.blobs.contains_key(digest) && !self.store.has_blob(digest);
            let lacks: Vec<_> = entry.blobs().into_iter().filter(is_lacking).collect();
            judged = match lacks.is_empty() {
                true => Judged::Holds(entry, at),
                false => Judged::Lacks(lacks),
            };
            break;
        }
        *file_view = Some(view.end());
        judged
    }

    /// Puts an entry and its blobs into our store.
    pub(super) fn adopt(
        &self,
        declaration: &Declaration<'_>,
        key: &Digest,
        entry: &Entry,
        at: usize,
        bundle: &Bundle,
    ) -> Result<(), NotAdopted> {
        for output in &entry.outputs {
            self.adopt_output(output, declaration, bundle)?;
        }
        for print in [&entry.stdout, &entry.stderr] {
            self.adopt_print(print, bundle)?;
        }
        let sealed = Sealed::read(&bundle.entries[at]);
        let bytes = Stored::encode_foreign(sealed.signer(), sealed.entry);
        let stored = self.store.put_entry(key, &bytes, &entry.blobs());
        stored.map(drop).map_err(NotAdopted::by_store)
    }

    fn adopt_output(&self, output: &Output, declaration: &Declaration<'_>, bundle: &Bundle) -> Result<(), NotAdopted> {
        let Content::File { digest, size, .. } = output.content else {
            return Ok(());
        };
        if declaration.is_of_dependencies(output) {
            return self.adopt_text(&digest, bundle, |text| match is_of_rules(text) {
                true => Ok(()),
                false => Err(Refusal::Dependencies),
            });
        }
        let Some(blob) = bundle.blobs.get(&digest).filter(|_| !self.store.has_blob(&digest)) else {
            return Ok(());
        };
        let blob = opened(blob, &digest)?;
        if size != blob.len() as u64 {
            return Err(NotAdopted::Refused(Refusal::Size));
        }
        self.store.put_blob(&blob).map(drop).map_err(NotAdopted::by_store)
    }

    /// Stores a text that will be printed to a terminal. A text with control sequences is refused.
    fn adopt_print(&self, print: &Print, bundle: &Bundle) -> Result<(), NotAdopted> {
        let is_good = |text: &[u8]| is_calm(text).then_some(()).ok_or(Refusal::Controls);
        match print {
            Print::Inline(text) => is_good(text).map_err(NotAdopted::Refused),
            Print::Blob { digest, size } => self.adopt_text(digest, bundle, |text| match text.len() as u64 == *size {
                true => is_good(text),
                false => Err(Refusal::Size),
            }),
        }
    }

    /// Stores a text of which more counts than its digest, wherever it is.
    fn adopt_text(
        &self,
        digest: &Digest,
        bundle: &Bundle,
        judge: impl FnOnce(&[u8]) -> Result<(), Refusal>,
    ) -> Result<(), NotAdopted> {
        let known = self.store.open_blob(digest).and_then(Blob::into_bytes);
        let is_known = known.is_some();
        let text = match (known, bundle.blobs.get(digest)) {
            (Some(text), _) => text,
            (None, Some(blob)) => opened(blob, digest)?,
            (None, None) => return Err(NotAdopted::Failed("a blob of it is lost".to_owned())),
        };
        judge(&text).map_err(NotAdopted::Refused)?;
        match is_known {
            true => Ok(()),
            false => self.store.put_blob(&text).map(drop).map_err(NotAdopted::by_store),
        }
    }

    /// Offers an entry that was just stored to the tiers before this number, which is that of the tier it came from.
    pub(super) fn offer(&self, wishes: &Wishes, key: &Digest, bytes: Vec<u8>, entry: &Entry, tier: usize) {
        let Some(tiers) = self.tiers(wishes).filter(|tiers| tiers.take_offers(tier)) else {
            return;
        };
        if !is_within_bounds(entry) {
            return self.count(&Counter::UploadTooLarge);
        }
        let offer = Offer {
            key: *key,
            entry: bytes.into(),
            needs: entry.blobs(),
        };
        tiers.offer(&offer, tier);
    }
}

/// Reads blobs for uploads, as long as the store is open.
pub(super) fn load(store: &Weak<Store>) -> Arc<Load> {
    let store = store.clone();
    Arc::new(move |digest: &Digest| {
        let blob = store.upgrade()?.open_blob(digest)?;
        Some(Wrapped::of(blob.into_bytes()?))
    })
}

/// Decodes an entry of a tier, if its signature and its outputs are allowed.
fn allowed(trust: &Trust, declaration: &Declaration<'_>, key: &Digest, bytes: &[u8]) -> Result<Entry, Refusal> {
    let sealed = Sealed::read(bytes);
    trust.check(key, &sealed).map_err(Refusal::Distrusted)?;
    let entry = Entry::decode(sealed.entry).map_err(|_| Refusal::NoEntry)?;
    declaration.places(&entry)?;
    Ok(entry)
}

fn refused(tier: &str, why: Refusal) -> String {
    format!("{tier} has it, which is refused: {}", why.name())
}

fn opened(blob: &Wrapped, digest: &Digest) -> Result<Vec<u8>, NotAdopted> {
    let opened = blob.open(digest);
    opened.ok_or_else(|| NotAdopted::Failed("a blob is not what its digest says".to_owned()))
}
