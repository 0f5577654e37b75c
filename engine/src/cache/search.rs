//! Looks for a command in stores that machines share, when its own has nothing: `tier` asks them, here it is judged what they give.
//!
//! ```text
//! nothing in the store ─► a flight: whoever asks for the same waits ─► a tier ─► the question comes again
//!      ─► an entry whose facts hold ─► blobs that did not come along ─► the question comes again ─► the store ─► a hit
//!      └─► none ─► the next tier … ─► a miss, which keeps the flight
//! ```
//!
//! What a tier gives is a stranger's: facts are held against this machine, blobs against their digests, and outputs have to lie where such a
//! command may write. All that is left to trust is that such a command makes such a file.

use std::sync::Arc;

use super::action::Action;
use super::answer::Question;
use super::digest::Digest;
use super::entry::{Entry, Output};
use super::flight::{Boarding, Flight};
use super::moment::Moment;
use super::path::{Place, Root};
use super::store::Store;
use super::world::View;
use super::Cache;
use crate::tier::shelf::Shelf;
use crate::tier::wrapped::{Wrapped, LARGEST_BLOB};
use crate::tier::{Findings, Load, Offer, Tiers};

/// A question for which tiers are asked, or were.
pub struct Searched {
    /// Whoever asks for the same waits until it is gone.
    flight: Flight<Question>,
    /// What one has, by its number.
    found: Option<(usize, Shelf)>,
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
    Holds(Entry, Vec<u8>),
    /// One that holds lacks these.
    Lacks(Vec<Digest>),
    Nothing(String),
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
        moment: &mut Option<Moment>,
    ) -> Search {
        let tiers = self.tiers();
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
        if let (Some((tier, shelf)), Some(tiers)) = (searched.found.take(), &tiers) {
            match self.judge(&question, action, &shelf, moment) {
                Judged::Holds(entry, bytes) => match self.adopt(key, &entry, &bytes, &shelf) {
                    Ok(()) => {
                        let name = tiers.name(tier);
                        self.count("remote hits");
                        if !question.wishes.read_only {
                            self.offer(key, bytes, &entry, tier);
                        }
                        searched.words = vec![format!("it came from {name}")];
                        question.searched = Some(searched);
                        return Search::Stored(question);
                    }
                    Err(why) => {
                        self.count(format!("remote errors/{}: {why}", tiers.name(tier)));
                        log::warn!("{}: {why}", tiers.name(tier));
                        searched.words.push(format!("{}: {why}", tiers.name(tier)));
                    }
                },
                Judged::Lacks(wanted) if !searched.is_fetched => {
                    searched.is_fetched = true;
                    return self.begin_fetch(tiers, question, searched, (tier, shelf, wanted));
                }
                Judged::Lacks(_) => searched.words.push(format!("{} lacks a part of it", tiers.name(tier))),
                Judged::Nothing(why) => searched.words.push(format!("{} has it, but {why}", tiers.name(tier))),
            }
        }
        match tiers.filter(|tiers| tiers.are_there(searched.next)) {
            Some(tiers) => self.begin_search(&tiers, question, searched, *key),
            None => {
                self.count("remote misses");
                question.searched = Some(searched);
                Search::Nothing(question)
            }
        }
    }

    fn begin_search(&self, tiers: &Arc<Tiers>, question: Question, mut searched: Box<Searched>, key: Digest) -> Search {
        let again = self.again.clone();
        let (from, words) = (searched.next, std::mem::take(&mut searched.words));
        let come_again = move |findings: Findings| {
            let mut question = question;
            searched.next = findings.tier.map_or(usize::MAX, |tier| tier + 1);
            searched.found = findings.tier.map(|tier| (tier, findings.shelf));
            searched.is_fetched = false;
            searched.words = findings.words;
            question.searched = Some(searched);
            again(question);
        };
        tiers.find(key, from, words, Box::new(come_again));
        Search::Begun
    }

    fn begin_fetch(
        &self,
        tiers: &Arc<Tiers>,
        mut question: Question,
        mut searched: Box<Searched>,
        (tier, mut shelf, wanted): (usize, Shelf, Vec<Digest>),
    ) -> Search {
        let again = self.again.clone();
        tiers.fetch(tier, wanted, move |blobs| {
            shelf.blobs.extend(blobs);
            searched.found = Some((tier, shelf));
            question.searched = Some(searched);
            again(question);
        });
        Search::Begun
    }

    /// The first entry whose facts hold here.
    fn judge(&self, question: &Question, action: &Action, shelf: &Shelf, moment: &mut Option<Moment>) -> Judged {
        let place = Place::new(&question.folder, action.knows.base.as_deref());
        let environment = question.variables();
        let now = Moment::for_request(moment.take(), question.arrived);
        let mut view = View::at(now, &self.world, &place, &environment);
        let mut judged = Judged::Nothing("no entry of it is one".to_owned());
        let mut is_explained = false;
        for bytes in &shelf.entries {
            let entry = Entry::decode(bytes).ok();
            let Some(entry) = entry.filter(|entry| may_be_used(entry, action)) else {
                continue;
            };
            if let Err(change) = entry.check(&mut view) {
                if !is_explained {
                    judged = Judged::Nothing(change.to_string());
                    is_explained = true;
                }
                continue;
            }
            let is_lacking = |digest: &Digest| !shelf.blobs.contains_key(digest) && !self.store.has_blob(digest);
            let lacks: Vec<_> = entry.blobs().into_iter().filter(is_lacking).collect();
            judged = match lacks.is_empty() {
                true => Judged::Holds(entry, bytes.clone()),
                false => Judged::Lacks(lacks),
            };
            break;
        }
        *moment = Some(view.end());
        judged
    }

    /// Puts an entry into the store, or says what is wrong with it.
    fn adopt(&self, key: &Digest, entry: &Entry, bytes: &[u8], shelf: &Shelf) -> Result<(), String> {
        let failed = |error: std::io::Error| {
            log::warn!("store what a tier gave: {error}");
            "it could not be stored here".to_owned()
        };
        let needs = entry.blobs();
        for digest in &needs {
            let Some(blob) = shelf.blobs.get(digest).filter(|_| !self.store.has_blob(digest)) else {
                continue;
            };
            let blob = blob.open(digest).ok_or("a blob is not what its digest says")?;
            self.store.put_blob(&blob).map_err(failed)?;
        }
        self.store.put_entry(key, bytes, &needs).map_err(failed)?;
        Ok(())
    }

    /// What was just stored is for others, too: for those before the tier that it came from.
    pub(super) fn offer(&self, key: &Digest, bytes: Vec<u8>, entry: &Entry, tier: usize) {
        let Some(tiers) = self.tiers().filter(|tiers| tiers.take_offers(tier)) else {
            return;
        };
        if entry.outputs.iter().any(|output| output.size() > LARGEST_BLOB as u64) {
            return self.count("uploads dropped/too large");
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

/// Whether it writes only what such a command may: what the command line names, or what lies below the command's folder.
fn may_be_used(entry: &Entry, action: &Action) -> bool {
    let knows = &action.knows;
    let is_inside = |output: &Output| {
        let mut parts = output.path.rest.split(|byte| *byte == b'/');
        knows.compiler.is_none() && output.path.root != Root::Absolute && parts.all(|part| part != b"..")
    };
    let mut outputs = entry.outputs.iter();
    entry.exit == 0
        && outputs.all(|output| match output.number {
            Some(number) => number < knows.outputs.len(),
            None => is_inside(output),
        })
}
