//! Looks for a command in stores that machines share, when its own has nothing: a `Remote` asks them, here it is judged what they give.
//!
//! ```text
//! nothing in the store ─► a flight: whoever asks for the same waits ─► a tier ─► the question comes again
//!      ─► an entry whose facts hold ─► blobs that did not come along ─► the question comes again ─► the store ─► a hit
//!      └─► none ─► the next tier … ─► a miss, which keeps the flight
//! ```
//!
//! What a tier gives is a stranger's: its signature is checked if keys are trusted, its outputs have to be what the command declares (`foreign`),
//! facts are held against this machine, and blobs against their digests.

use std::sync::Arc;

use super::answer::Question;
use super::compiler::action::Action;
use super::lookup::entry::{Content, Entry, Print};
use super::lookup::flight::{Boarding, Flight};
use super::remote::bundle::{Bundle, MOST_ENTRIES};
use super::remote::foreign::{is_calm, is_within_bounds, Declaration, Refusal, Stored};
use super::remote::wrapped::Wrapped;
use super::remote::{Findings, Load, Offer, Remote};
use super::store::{Blob, Store};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::file_view::FileView;
use crate::facts::path::Place;
use crate::facts::world::View;
use crate::trust::signature::{Distrust, Sealed, Trust};

/// A question for which tiers are asked, or were.
pub struct Searched {
    /// Whoever asks for the same waits until it is gone.
    flight: Flight<Question>,
    /// What one has, by its number.
    found: Option<(usize, Bundle)>,
    /// Blobs were fetched that had not come along.
    is_fetched: bool,
    /// From this one on they are still to be asked.
    next: usize,
    /// What was found out of each, for whoever asks why.
    words: Vec<String>,
}

/// What comes of looking further.
pub(super) enum Search {
    /// The question comes again.
    Begun,
    /// An entry that holds is in the store now.
    Stored(Question),
    Nothing(Question),
}

/// What is to be done with what a tier has.
enum Judged {
    /// One that holds, by its number.
    Holds(Entry, usize),
    /// One that holds lacks these.
    Lacks(Vec<Digest>),
    Nothing(String),
    Refused(Refusal),
}

/// Why an entry that holds is not in the store.
enum Unadopted {
    Refused(Refusal),
    Failed(String),
}

/// Why tiers are not even asked.
pub(super) struct Untaken {
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
        let tiers = self.tiers();
        if let Some(why) = self.why_nothing_is_taken(&question, action) {
            if question.searched.is_none() && tiers.is_some() {
                self.refuse(why.refusal);
            }
            return Search::Nothing(question);
        }
        let Some(mut searched) = question.searched.take() else {
            let Some(tiers) = tiers.filter(|tiers| tiers.are_there(0)) else {
                return Search::Nothing(question);
            };
            return match self.flights.board(*key, question) {
                Boarding::Waits => Search::Begun,
                Boarding::Free(flight, question) => {
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
                            // With its signature, if it has one.
                            self.offer(key, bundle.entries[at].clone(), &entry, tier);
                        }
                        searched.words = vec![format!("it came from {name}")];
                        question.searched = Some(searched);
                        return Search::Stored(question);
                    }
                    Err(Unadopted::Refused(why)) => {
                        self.refuse(why);
                        searched.words.push(refused(tiers.name(tier), why));
                    }
                    Err(Unadopted::Failed(why)) => {
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

    /// Whether something of what tiers have could be taken for this command at all.
    pub(super) fn why_nothing_is_taken(&self, question: &Question, action: &Action) -> Option<Untaken> {
        if let Trust::Nobody(why) = &*self.trust() {
            return Some(Untaken {
                refusal: Refusal::Distrusted(Distrust::Nobody),
                words: format!("nothing is taken from other stores: trusted_keys: {why}"),
            });
        }
        let is_undeclared = question.declaration(action).is_empty();
        is_undeclared.then(|| {
            let refusal = Refusal::NothingDeclared;
            let name = refusal.name();
            let words = format!("nothing is taken from other stores: {name} (wafcc run --output=FILE -- …)");
            Untaken { refusal, words }
        })
    }

    fn begin_search(
        &self,
        tiers: &Arc<dyn Remote>,
        question: Question,
        mut searched: Box<Searched>,
        key: Digest,
    ) -> Search {
        let again = self.again.clone();
        let (from, words) = (searched.next, std::mem::take(&mut searched.words));
        let come_again = move |findings: Findings| {
            let mut question = question;
            searched.next = findings.tier.map_or(usize::MAX, |tier| tier + 1);
            searched.found = findings.tier.map(|tier| (tier, findings.bundle));
            searched.is_fetched = false;
            searched.words = findings.words;
            question.searched = Some(searched);
            again(question);
        };
        tiers.clone().find(key, from, words, Box::new(come_again));
        Search::Begun
    }

    fn begin_fetch(
        &self,
        tiers: &Arc<dyn Remote>,
        mut question: Question,
        mut searched: Box<Searched>,
        (tier, mut bundle, wanted): (usize, Bundle, Vec<Digest>),
    ) -> Search {
        let again = self.again.clone();
        let come_again = move |blobs: Vec<(Digest, Wrapped)>| {
            bundle.blobs.extend(blobs);
            searched.found = Some((tier, bundle));
            question.searched = Some(searched);
            again(question);
        };
        tiers.fetch(tier, wanted, Box::new(come_again));
        Search::Begun
    }

    /// The first entry that may be taken and whose facts hold here.
    fn judge(
        &self,
        question: &Question,
        action: &Action,
        key: &Digest,
        bundle: &Bundle,
        file_view: &mut Option<FileView>,
    ) -> Judged {
        let (trust, declaration) = (self.trust(), question.declaration(action));
        let place = Place::new(&question.folder, action.knows.base.as_deref());
        let environment = question.variables();
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

    /// Puts an entry into the store, or says what is wrong with it.
    fn adopt(
        &self,
        declaration: &Declaration<'_>,
        key: &Digest,
        entry: &Entry,
        at: usize,
        bundle: &Bundle,
    ) -> Result<(), Unadopted> {
        let failed = |error: std::io::Error| {
            log::warn!("store what a tier gave: {error}");
            Unadopted::Failed("it could not be stored here".to_owned())
        };
        let outputs = entry.outputs.iter().filter_map(|output| match output.content {
            Content::File { digest, size, .. } => Some((digest, declaration.has_own_size(output).then_some(size))),
            _ => None,
        });
        for (digest, size) in outputs {
            let Some(blob) = bundle.blobs.get(&digest).filter(|_| !self.store.has_blob(&digest)) else {
                continue;
            };
            let blob = opened(blob, &digest)?;
            if size.is_some_and(|size| size != blob.len() as u64) {
                return Err(Unadopted::Refused(Refusal::Size));
            }
            self.store.put_blob(&blob).map_err(failed)?;
        }
        for print in [&entry.stdout, &entry.stderr] {
            self.adopt_print(print, bundle).map_err(|why| match why {
                Ok(refused) => refused,
                Err(error) => failed(error),
            })?;
        }
        let sealed = Sealed::read(&bundle.entries[at]);
        let bytes = Stored::encode_foreign(sealed.signer(), sealed.entry);
        self.store.put_entry(key, &bytes, &entry.blobs()).map_err(failed)?;
        Ok(())
    }

    /// A text that is shown to people: nothing of it is stored that does more than that.
    fn adopt_print(&self, print: &Print, bundle: &Bundle) -> Result<(), Result<Unadopted, std::io::Error>> {
        let controls = || Err(Ok(Unadopted::Refused(Refusal::Controls)));
        let (digest, size) = match print {
            Print::Inline(text) if is_calm(text) => return Ok(()),
            Print::Inline(_) => return controls(),
            Print::Blob { digest, size } => (digest, *size),
        };
        let known = self.store.open_blob(digest).and_then(Blob::into_bytes);
        let is_known = known.is_some();
        let text = match (known, bundle.blobs.get(digest)) {
            (Some(text), _) => text,
            (None, Some(blob)) => opened(blob, digest).map_err(Ok)?,
            (None, None) => return controls(),
        };
        if text.len() as u64 != size {
            return Err(Ok(Unadopted::Refused(Refusal::Size)));
        }
        if !is_calm(&text) {
            return controls();
        }
        match is_known {
            true => Ok(()),
            false => self.store.put_blob(&text).map(drop).map_err(Err),
        }
    }

    /// What was just stored is for others, too: for those before the tier that it came from.
    pub(super) fn offer(&self, key: &Digest, bytes: Vec<u8>, entry: &Entry, tier: usize) {
        let Some(tiers) = self.tiers().filter(|tiers| tiers.take_offers(tier)) else {
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

/// For uploads: as long as the store is open.
pub(super) fn load(store: &Arc<Store>) -> Arc<Load> {
    let store = Arc::downgrade(store);
    Arc::new(move |digest: &Digest| {
        let blob = store.upgrade()?.open_blob(digest)?;
        Some(Wrapped::of(blob.into_bytes()?))
    })
}

/// The entry in what a tier gave, if it may be taken.
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

fn opened(blob: &Wrapped, digest: &Digest) -> Result<Vec<u8>, Unadopted> {
    let opened = blob.open(digest);
    opened.ok_or_else(|| Unadopted::Failed("a blob is not what its digest says".to_owned()))
}
