//! The result of an analysis: the command's outputs, and its observations compared with the present world.
//!
//! It knows nothing of single accesses, nor of their order.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::io::Errno;

use super::obstacle::Obstacle;
use super::places::is_installed;
use super::{Analysis, Dependence, Doubt, Fate, How, Listings, Made, Observation, PathState, Shape, Statuses};
use crate::facts::clang_header;
use crate::facts::environment::{is_silent, BASES, CHECKOUT, CLIENT_LIMITS, INPUT};
use crate::facts::exception::{ALONG, ALWAYS_ASKED, LIBC, SEARCHED, TEMPORARY};
use crate::facts::fact::{Fact, Kind};
use crate::facts::file_view::status_of_name;
use crate::facts::input::Input;
use crate::facts::instructions::Findings;
use crate::facts::path::{below, is_beside, split, Path, Root};
use crate::facts::processor::{self, PROCESSOR};
use crate::facts::status::{Stamp, Status};
use crate::facts::world::{searched_folders, Form, View};
use crate::files::regular;
use crate::observe::access::{identity_of_text, Bytes};
use crate::observe::known_programs::{Seeds, OWN_CALLS};

/// The names of some ten thousand parts are at the start of a precompiled header.
const LONGEST_START: u64 = 16 << 20;
/// A command that has looked for more programs depends on all of `PATH`.
const MOST_PROGRAMS: usize = 32;

impl Analysis<'_, '_, '_> {
    pub(super) fn end(mut self) -> Result<Dependence, Obstacle> {
        let outputs = self.outputs()?;
        let mut observations: Vec<Observation> = self.observations.drain().collect();
        // No two are the same.
        observations.sort_unstable();
        let tells =
            |observation: &Observation| observation.how == How::Read && processor::may_be_asked_by(&observation.name);
        self.knows_processor |= self.knowledge.policy.processor || observations.iter().any(tells);
        let unsettled: Vec<u32> = self.unguarded.keys().copied().collect();
        unsettled
            .into_iter()
            .for_each(|process| self.settle_code(process, false));
        self.check_instructions(&observations)?;
        if self.asked_number && self.tells_number(&observations) {
            self.doubt_all(Obstacle::ReadsRandom)?;
        }
        let mut facts = self.variables(&observations);
        facts.extend(self.input()?);
        self.view.begin();
        let mut files = BTreeMap::new();
        for observation in &observations {
            if let Some(fact) = self.fact(observation)? {
                if let (How::Read, Fact::File { path, digest }) = (observation.how, &fact) {
                    files.entry(*digest).or_insert_with(Vec::new).push(path.clone());
                }
                facts.push(fact);
            }
        }
        let bases: Arc<[Bytes]> = self.view.place.bases().into();
        let mut may_leave_out = false;
        if self.compares_times(&observations) {
            self.add_statuses(&mut facts, None)?;
        } else if self.statuses_count(&observations) {
            match self.only_header(&observations) {
                Some(header) if !holds_times(&self.view.place.absolute(&header)) => self.add_contents(&mut facts)?,
                header => self.add_statuses(&mut facts, header.as_ref())?,
            }
        } else {
            may_leave_out = true;
        }
        let unread = self.leave_out_unread(&mut facts, &files, may_leave_out);
        let twins = if self.some_compile { files } else { BTreeMap::new() };
        for paths in twins.values() {
            self.add_twins(paths, &mut facts)?;
        }
        let named = [
            (self.may_name_base(&observations, &bases, &unread.headers), BASES),
            (unread.names_checkout, CHECKOUT),
        ];
        for (_, name) in named.into_iter().filter(|(is_named, _)| *is_named) {
            let value = self.view.environment.value(name).map(<[u8]>::to_vec);
            let name = name.to_vec();
            facts.push(Fact::Variable { name, value });
        }
        if self.knowledge.has_failed {
            let more = self.facts_of_failure();
            facts.extend(
                more.into_iter()
                    .filter(|fact| !facts.contains(fact))
                    .collect::<Vec<_>>(),
            );
            if !self.knowledge.policy.compiler {
                self.doubt.get_or_insert(Obstacle::Fails);
            }
        }
        let doubt = self.doubt.take();
        let doubt = doubt.map(|why| Doubt {
            why,
            folders: self.changed_folders(),
        });
        let mut dependence = Dependence {
            facts,
            outputs,
            doubt,
            is_compiled: self.all_compile,
        };
        dependence.put_in_order(self.view);
        Ok(dependence)
    }

    /// A command that fails removes outputs, so nothing may be in the places of those that it has not left. What it may use
    /// counts, too.
    fn facts_of_failure(&self) -> Vec<Fact> {
        let removed = self.paths.values().filter(|state| state.fate == Fate::Gone);
        let removed = removed.filter_map(|state| state.shown.clone());
        let is_left = |name: &Bytes| self.paths.get(name).is_some_and(|state| state.fate == Fate::Made);
        let named = self.declared.iter().filter(|(name, _)| !is_left(name));
        let given = self.knowledge.outputs.unwrap_or_default();
        let named = named.map(|(_, number)| self.view.place.path(&Path::here(), &given[*number]));
        let absent = removed.chain(named).map(|path| Fact::Absent { path, follows: false });
        let limits = Fact::Variable {
            name: CLIENT_LIMITS.as_bytes().to_vec(),
            value: self
                .view
                .environment
                .value(CLIENT_LIMITS.as_bytes())
                .map(<[u8]>::to_vec),
        };
        absent.chain([limits]).collect()
    }

    fn outputs(&mut self) -> Result<Vec<Made>, Obstacle> {
        let mut outputs = BTreeMap::new();
        for (name, state) in &self.paths {
            let Some(path) = &state.shown else { continue };
            let shown = self.show(path);
            if state.fate != Fate::Made {
                if state.was_removed {
                    return Err(Obstacle::Removes(shown));
                }
                continue;
            }
            if self.knowledge.outputs.is_some() && !self.is_foretold(name) {
                return Err(Obstacle::Unforetold(shown));
            }
            let status = status_of_name(name).map_err(|_| Obstacle::Lost(shown.clone()))?;
            let (kind, is_only) = (status.kind(), status.links == 1);
            let is_good = match kind {
                Kind::File | Kind::Program => is_only,
                Kind::Folder | Kind::Link => state.shape != Shape::File,
                Kind::Other => false,
            };
            if !is_good {
                return Err(Obstacle::NotPlain(shown));
            }
            let is_past = status.written.is_before(self.knowledge.started);
            let is_dated = is_past || status.written > Stamp::now().plus_seconds(1);
            let dated = (is_dated && !self.knowledge.policy.compiler).then_some(status.written);
            if dated.is_some() && !(kind.is_plain() && self.may_set_times()) {
                return Err(Obstacle::Dated(shown));
            }
            let (path, number) = (path.clone(), self.declared.get(name).copied());
            let made = Made {
                path,
                number,
                kind,
                dated,
            };
            outputs.insert(name.clone(), made);
        }
        Ok(outputs.into_values().collect())
    }

    /// Whether the times of files from which a program may take that of an output are facts. Scripts of Python ask open files for
    /// them, which is not seen.
    fn may_set_times(&self) -> bool {
        self.rules.values().all(|rules| rules.seeds != Seeds::First)
    }

    fn variables(&mut self, observations: &[Observation]) -> Vec<Fact> {
        let mut facts = Vec::new();
        if self.searches && self.all_ask && !self.asked.contains(SEARCHED) {
            match self.programs_looked_for(observations) {
                Some(names) => facts.extend(names.into_iter().map(|program| Fact::Variable {
                    name: [ALONG, &program].concat(),
                    value: self.view.along(&program),
                })),
                None => {
                    self.asked.insert(SEARCHED.to_vec());
                }
            }
        }
        facts.extend(self.other_variables());
        facts
    }

    /// The names of programs that were looked for in folders of `PATH`. None if these may depend on the command's folder, or if
    /// there are too many names.
    ///
    /// A known compiler does nothing else with `PATH`, and passes it on to programs that ask for themselves.
    fn programs_looked_for(&self, observations: &[Observation]) -> Option<BTreeSet<Bytes>> {
        let folders = searched_folders(self.view.environment);
        if !folders.iter().all(|folder| folder.starts_with(b"/")) {
            return None;
        }
        let mut names = BTreeSet::new();
        for observation in observations {
            let path = self.view.place.absolute(&observation.path);
            let Some((folder, name)) = split(&path) else { continue };
            if folders.iter().any(|known| known == folder) {
                names.insert(name.to_vec());
            }
        }
        (names.len() <= MOST_PROGRAMS).then_some(names)
    }

    fn other_variables(&mut self) -> Vec<Fact> {
        let policy = self.knowledge.policy;
        let (environment, folder) = (self.view.environment, self.view.place.folder());
        let fact = |name: &[u8]| Fact::Variable {
            name: name.to_vec(),
            value: environment.value(name).map(<[u8]>::to_vec),
        };
        let mut facts = Vec::new();
        let is_hidden = policy.shell && self.others_ask && !self.others_ask_folder;
        let is_told = !self.all_ask || self.asks_folder && policy.folder;
        if self.is_anchored || is_told && !is_hidden {
            facts.push(Fact::Folder { path: folder.to_vec() });
        }
        if !self.all_ask {
            let digest = environment.names(folder);
            facts.push(Fact::Names { digest });
            facts.extend(environment.telling(folder).map(|(name, _)| fact(name)));
            return facts;
        }
        if self.knows_processor {
            self.asked.insert(PROCESSOR.to_vec());
        }
        self.asked.insert(LIBC.to_vec());
        let may_search = !self.all_compile;
        let always = ALWAYS_ASKED.iter().filter(|name| may_search || **name != SEARCHED);
        self.asked.extend(always.map(|name| name.to_vec()));
        let counts = |name: &&Bytes| {
            let name = name.as_slice();
            let is_unseen = self.knowledge.unseen.iter().any(|unseen| unseen.as_bytes() == name);
            let is_temporary = self.all_compile && TEMPORARY.contains(&name);
            let is_private = is_unseen || is_temporary || is_silent(name);
            !is_private && (policy.folder || name != b"PWD")
        };
        facts.extend(self.asked.iter().filter(counts).map(|name| fact(name)));
        facts
    }

    /// The content of its standard input, if a program may read it and the key does not include it.
    fn input(&self) -> Result<Option<Fact>, Obstacle> {
        if !self.some_listen {
            return Ok(None);
        }
        let value = self.view.environment.value(INPUT).map(<[u8]>::to_vec);
        if value.as_deref() == Some(Input::UNKNOWN.as_bytes()) {
            return Err(Obstacle::ReadsInput);
        }
        if !self.knowledge.policy.compiler {
            return Ok(None);
        }
        let name = INPUT.to_vec();
        Ok(Some(Fact::Variable { name, value }))
    }

    /// The fact for an observation as it is now, unless it is about something that the command made afterwards.
    fn fact(&mut self, observation: &Observation) -> Result<Option<Fact>, Obstacle> {
        let state = self.paths.get(&observation.name);
        if state.is_some_and(|state| state.fate != Fate::Foreign) {
            return self.fact_of_made(observation);
        }
        let path = observation.path.clone();
        if !self.is_as_seen(observation) {
            return Err(Obstacle::Changed(self.show(&path)));
        }
        let fact = match observation.how {
            How::Read | How::Run => return self.file(path, observation.how),
            How::There { follows } => self
                .there(path, follows)
                .map_err(|_| self.inconsistent(&observation.path))?,
            How::Status { follows } => {
                let fact = Fact::status(path, follows, self.view);
                fact.map_err(|_| self.inconsistent(&observation.path))?
            }
            How::Target => {
                self.require_older(&path)?;
                let text = self.view.target(&path);
                let text = text.map_err(|_| self.inconsistent(&path))?;
                Fact::Target { path, text }
            }
            How::Resolve => {
                let real = self.view.resolved(&path);
                let real = real.map_err(|_| self.inconsistent(&path))?;
                let policy = self.knowledge.policy;
                let is_told = policy.compiler || !observation.careless;
                let real = if policy.folder && is_told {
                    Path {
                        root: Root::Absolute,
                        rest: real,
                    }
                } else {
                    self.view.place.resolved(&path, &real)
                };
                Fact::Resolved { path, real }
            }
            How::List => return self.listing(observation).map(Some),
            How::Crates => return self.crates(observation).map(Some),
            How::Absent { follows } => {
                let lacks = self.view.lacks(&path, follows);
                lacks.map_err(|_| self.inconsistent(&path))?;
                Fact::Absent { path, follows }
            }
            How::Refused { opens, error } => {
                let fact = Fact::Refused { path, opens, error };
                let holds = fact.check(self.view);
                holds.map_err(|_| self.inconsistent(&observation.path))?;
                fact
            }
        };
        Ok(Some(fact))
    }

    /// Something is not there any more as the command has found it.
    fn inconsistent(&self, path: &Path) -> Obstacle {
        Obstacle::Inconsistent(self.show(path))
    }

    /// Whether the path leads to what the command has found there. Then neither a link nor a folder on the way has changed
    /// since, and the path does not mean another file to each process.
    fn is_as_seen(&mut self, observation: &Observation) -> bool {
        if observation.seen == 0 {
            return true;
        }
        let path = &observation.path;
        let found = match observation.how {
            How::Read | How::Run | How::List | How::Crates => self.view.status(path).map(|status| status.identity()),
            How::There { follows } | How::Status { follows } => {
                status(self.view, path, follows).map(|status| status.identity())
            }
            How::Target => self.view.target(path).map(|text| identity_of_text(&text)),
            How::Resolve => self.view.resolved(path).map(|real| identity_of_text(&real)),
            How::Absent { .. } | How::Refused { .. } => return true,
        };
        found == Ok(observation.seen)
    }

    /// What was at the path before the command made it.
    fn fact_of_made(&self, observation: &Observation) -> Result<Option<Fact>, Obstacle> {
        let path = observation.path.clone();
        match observation.how {
            How::Absent { follows } if !observation.careless => Ok(Some(Fact::Absent { path, follows })),
            _ if observation.careless => Ok(None),
            _ => Err(Obstacle::Replaces(self.show(&path))),
        }
    }

    fn file(&mut self, path: Path, how: How) -> Result<Option<Fact>, Obstacle> {
        match self.view.digest(&path) {
            Ok((status, _)) if !status.is_older(self.knowledge.started) => Err(Obstacle::Changed(self.show(&path))),
            Ok((_, digest)) => Ok(Some(Fact::File { path, digest })),
            // It was opened to be listed or entered, which has accesses of its own.
            Err(Errno::INVAL) if how == How::Read => match self.there(path.clone(), true) {
                Ok(fact @ Fact::There { kind: Kind::Folder, .. }) => Ok(Some(fact)),
                Ok(_) => Err(Obstacle::Device(self.show(&path))),
                Err(_) => Err(self.inconsistent(&path)),
            },
            Err(_) => Err(self.inconsistent(&path)),
        }
    }

    fn there(&mut self, path: Path, follows: bool) -> Result<Fact, Errno> {
        let status = status(self.view, &path, follows)?;
        Ok(Fact::There {
            path,
            kind: status.kind(),
            follows,
            number: 0,
        })
    }

    fn listing(&mut self, observation: &Observation) -> Result<Fact, Obstacle> {
        let (path, name) = (observation.path.clone(), observation.name.as_slice());
        let is_in = |other: &Bytes| split(other).is_some_and(|(folder, _)| folder == name);
        let makes = |(other, state): (&Bytes, &PathState)| state.fate != Fate::Foreign && is_in(other);
        if self.paths.iter().any(makes) {
            return self.listing_before(observation);
        }
        self.require_older(&path)?;
        let listing = self.view.listing(&path);
        let listing = listing.map_err(|_| Obstacle::Inconsistent(self.show(&path)))?;
        let in_order = !observation.careless;
        let digest = listing.told(in_order);
        Ok(Fact::Listing { path, digest, in_order })
    }

    /// It has listed the folder before it made something there. What it saw is what is there now without that, or else it is not
    /// known.
    fn listing_before(&mut self, observation: &Observation) -> Result<Fact, Obstacle> {
        let (path, folder) = (observation.path.clone(), observation.name.as_slice());
        let own: Vec<Bytes> = self
            .paths
            .iter()
            .filter(|(_, state)| state.fate != Fate::Foreign)
            .filter_map(|(name, _)| split(name).filter(|(parent, _)| *parent == folder))
            .map(|(_, name)| name.to_vec())
            .collect();
        let before = self.view.listing_without(&path, &own);
        let before = before.map_err(|_| Obstacle::Inconsistent(self.show(&path)))?;
        let is_seen =
            |seen: &Listings| seen.begun == seen.names.len() && seen.names.iter().all(|names| *names == before.names);
        let is_known = observation.seen != 0 && self.listings.get(&observation.seen).is_some_and(is_seen);
        // One whose folder is not known may have been of this one.
        if !is_known || self.listings.contains_key(&0) {
            return Err(Obstacle::ListsResults(self.show(&path)));
        }
        let in_order = !observation.careless;
        let digest = before.listing.told(in_order);
        Ok(Fact::Listing { path, digest, in_order })
    }

    /// Of a folder in which rustc looks for crates, only the names count that begin like those of crates that it has read.
    fn crates(&mut self, observation: &Observation) -> Result<Fact, Obstacle> {
        let (path, folder) = (observation.path.clone(), observation.name.as_slice());
        let made = self.paths.iter().filter(|(_, state)| state.fate != Fate::Foreign);
        let own = made.filter_map(|(name, _)| split(name).filter(|(parent, _)| *parent == folder));
        let own: Vec<Bytes> = own.map(|(_, name)| name.to_vec()).collect();
        let crates = self.view.crates(&path);
        let crates = crates.map_err(|_| Obstacle::Inconsistent(self.show(&path)))?;
        let beginnings: Vec<Bytes> = self.used_crates.iter().cloned().collect();
        let is_same = |listed: &Vec<Bytes>| crates.are_as_listed(listed, &beginnings, &own, self.knowledge.started);
        let listed = self.listings.get(&observation.seen);
        let is_known = listed.is_some_and(|listed| !listed.ended.is_empty() && listed.ended.iter().all(is_same));
        // One whose folder is not known may have been of this one.
        if observation.seen == 0 || !is_known || self.listings.contains_key(&0) {
            return Err(Obstacle::Changed(self.show(&path)));
        }
        let digest = crates.digest(&beginnings);
        Ok(Fact::Crates {
            path,
            beginnings,
            digest,
        })
    }

    /// Whether it was left alone since the command began.
    fn require_older(&mut self, path: &Path) -> Result<(), Obstacle> {
        match self.view.status_of_name(path) {
            Ok(status) if status.is_older(self.knowledge.started) => Ok(()),
            _ => Err(Obstacle::Changed(self.show(path))),
        }
    }

    fn statuses_count(&self, observations: &[Observation]) -> bool {
        let is_prepared = |observation: &Observation| {
            observation.how == How::Read && is_prepared(&self.view.place.absolute(&observation.path))
        };
        match self.knowledge.policy.statuses {
            Statuses::Ignored | Statuses::ByProgram => false,
            Statuses::WithPrecompiled => observations.iter().any(is_prepared),
            Statuses::Kept => true,
        }
    }

    /// The precompiled header of clang that was read, if no other one was. A precompiled header holds the times of its own
    /// parts. Its own time is held by others only, which were made with it.
    fn only_header(&self, observations: &[Observation]) -> Option<Path> {
        let prepared = |observation: &&Observation| {
            observation.how == How::Read && is_prepared(&self.view.place.absolute(&observation.path))
        };
        let mut all = observations.iter().filter(prepared);
        let (only, other) = (all.next()?, all.next());
        let is_of_clang = magic(&self.view.place.absolute(&only.path)) == Some(*b"CPCH");
        let is_alone = other.is_none() && self.knowledge.policy.statuses == Statuses::WithPrecompiled;
        (is_of_clang && is_alone).then(|| only.path.clone())
    }

    /// Whether what a shell reads, or was given, may print the number of its process.
    fn tells_number(&self, observations: &[Observation]) -> bool {
        let mut read = observations
            .iter()
            .filter(|observation| observation.how == How::Read && self.scripts_read.contains(&observation.name));
        self.knowledge.policy.number
            || read.any(|observation| {
                let path = self.view.place.absolute(&observation.path);
                let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&path));
                let mut text = Vec::new();
                let done =
                    regular::open_named(path).and_then(|mut file| std::io::Read::read_to_end(&mut file, &mut text));
                let is_program = [b"\x7fELF".as_slice(), b"!<arch>\n"]
                    .iter()
                    .any(|head| text.starts_with(head));
                done.is_err() || (!is_program && asks_number(&text))
            })
    }

    /// What programs and libraries do by their own instructions is not seen. Those of the system were checked, as far as
    /// compilers and linkers use them. What the system's other libraries learn about clocks and processors does not reach
    /// results.
    fn check_instructions(&mut self, observations: &[Observation]) -> Result<(), Obstacle> {
        let mut run: Vec<_> = observations
            .iter()
            .filter(|observation| observation.how == How::Run)
            .collect();
        run.dedup_by(|one, other| one.name == other.name && one.careless == other.careless);
        for observation in run {
            let is_installed = is_installed(&self.view.place.absolute(&observation.path));
            if observation.careless && is_installed {
                continue;
            }
            let blind = Obstacle::Blind(OWN_CALLS);
            let code = self.code.get(&observation.name);
            let is_seen = code.is_some_and(|code| code.is_seen);
            let seeds = code.is_some_and(|code| code.is_seen && code.seeds);
            match self.view.instructions(&observation.path) {
                Some(found) if found.calls && !is_seen => return Err(blind),
                Some(_) if is_installed => {}
                Some(found) => {
                    self.knows_processor |= found.processor;
                    match found {
                        // A runtime that seeds and measures by itself.
                        _ if observation.careless || seeds => {}
                        Findings { random: true, .. } => self.doubt_all(Obstacle::ReadsRandom)?,
                        Findings { clock: true, .. } => self.doubt_all(Obstacle::ReadsClock)?,
                        _ => {}
                    }
                }
                None => return Err(blind),
            }
        }
        Ok(())
    }

    /// Something that differs from run to run may have reached any of the programs.
    fn doubt_all(&mut self, why: Obstacle) -> Result<(), Obstacle> {
        match self.all_ask_idly() {
            true => {
                self.doubt.get_or_insert(why);
                Ok(())
            }
            false => Err(why),
        }
    }

    /// The folders that were there before in which something was made, removed or renamed, without those in others.
    fn changed_folders(&self) -> Vec<Bytes> {
        let is_changed = |state: &PathState| state.fate != Fate::Foreign || state.was_removed;
        let changed = self.paths.iter().filter(|(_, state)| is_changed(state));
        let is_old = |folder: &Bytes| !self.paths.get(folder).is_some_and(is_changed);
        let mut folders: Vec<Bytes> = changed
            .filter_map(|(name, _)| Some(split(name)?.0.to_vec()))
            .filter(is_old)
            .collect();
        folders.sort_unstable();
        // What is in a folder follows it, but not always at once: `a`, `a-b`, `a/b`.
        let mut outer: Vec<Bytes> = Vec::new();
        for folder in folders {
            if !outer.iter().any(|other| below(other, &folder).is_some()) {
                outer.push(folder);
            }
        }
        outer
    }

    /// A source that a compiler has read makes it do so.
    fn compares_times(&mut self, observations: &[Observation]) -> bool {
        let mut read = observations
            .iter()
            .filter(|observation| observation.how == How::Read && observation.careless);
        read.any(|observation| self.view.compares_times(&observation.path))
    }

    /// The times of all files that a compiler has read or looked at, except for this one.
    fn add_statuses(&mut self, facts: &mut Vec<Fact>, except: Option<&Path>) -> Result<(), Obstacle> {
        let is_file = |fact: &&Fact| match fact {
            Fact::There { kind, .. } => kind.is_plain(),
            fact => matches!(fact, Fact::File { .. }),
        };
        let paths = facts.iter().filter(is_file).filter_map(Fact::path);
        let paths: Vec<Path> = paths.filter(|path| Some(*path) != except).cloned().collect();
        for path in paths {
            let lost = Obstacle::Inconsistent(self.show(&path));
            facts.push(Fact::status(path, true, self.view).map_err(|_| lost)?);
        }
        Ok(())
    }

    /// The contents of all files that a compiler has looked at. They tell the sizes, which clang compares with those in a
    /// precompiled header without times.
    fn add_contents(&mut self, facts: &mut Vec<Fact>) -> Result<(), Obstacle> {
        let looked_at = |fact: &Fact| match fact {
            Fact::There { path, kind, .. } if kind.is_plain() => Some(path.clone()),
            _ => None,
        };
        let paths: Vec<Path> = facts.iter().filter_map(looked_at).collect();
        for path in paths {
            facts.extend(self.file(path, How::Read)?);
        }
        Ok(())
    }

    /// Compilers read a file once if the file says so, or if they have read it under another name.
    fn add_twins(&mut self, paths: &[Path], facts: &mut Vec<Fact>) -> Result<(), Obstacle> {
        if let [first, _, ..] = paths {
            let twins = Fact::twins(paths, self.view);
            facts.push(twins.map_err(|_| Obstacle::Inconsistent(self.show(first)))?);
        }
        Ok(())
    }

    /// A path in a base may come from a source that names the base, and not from the arguments. Then a command of another
    /// checkout would use the same path. A path beside a base is changed by its map, which another checkout does not have.
    fn may_name_base(&mut self, observations: &[Observation], bases: &Arc<[Bytes]>, left_out: &[Path]) -> bool {
        if bases.is_empty() {
            return false;
        }
        let mut paths = observations.iter().map(|observation| &observation.path);
        if paths.any(|path| path.root == Root::Absolute && is_beside(&path.rest, bases)) {
            return true;
        }
        let mut paths = observations.iter().map(|observation| &observation.path);
        if !paths.any(|path| matches!(path.root, Root::Base(_))) {
            return false;
        }
        let is_source =
            |observation: &&Observation| observation.how == How::Read && !left_out.contains(&observation.path);
        let mut sources = observations.iter().filter(is_source);
        sources.any(|observation| self.view.names_any(&observation.path, Form::AsItIs, bases))
    }
}

fn status(view: &mut View, path: &Path, follows: bool) -> Result<Status, Errno> {
    match follows {
        true => view.status(path),
        false => view.status_of_name(path),
    }
}

/// Whether a text for a shell may print the number of a process.
pub fn asks_number(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair == b"$$" || pair == b"$!")
        || text.windows(4).any(|part| part == b"PPID" || part == b"${$}")
}

/// A precompiled header of clang or gcc, or an object that may contain one.
fn is_prepared(path: &[u8]) -> bool {
    magic(path).is_some_and(|magic| [b"CPCH", b"gpch", b"\x7fELF"].contains(&&magic))
}

/// Whether a precompiled header of clang holds the times of its parts.
fn holds_times(path: &[u8]) -> bool {
    use std::io::Read;
    let mut start = Vec::new();
    let file = std::fs::File::open(std::ffi::OsStr::from_bytes(path));
    let read = file.and_then(|file| file.take(LONGEST_START).read_to_end(&mut start));
    read.is_err() || clang_header::holds_times(&start)
}

/// The first bytes of a file, which tell its format.
fn magic(path: &[u8]) -> Option<[u8; 4]> {
    use std::io::Read;
    let mut magic = [0; 4];
    let mut file = std::fs::File::open(std::ffi::OsStr::from_bytes(path)).ok()?;
    file.read_exact(&mut magic).ok().map(|()| magic)
}

impl Dependence {
    /// Sorts facts so that the same facts are the same bytes, absences are grouped by folder, and folders have their
    /// numbers.
    fn put_in_order(&mut self, view: &mut View) {
        self.facts.sort_unstable();
        self.facts.dedup();
        view.begin();
        for fact in &mut self.facts {
            let Fact::There {
                path,
                kind: Kind::Folder,
                follows,
                number,
            } = fact
            else {
                continue;
            };
            // It was there a moment ago. If it is not there now, the fact will be false.
            *number = status(view, path, *follows).map_or(u32::MAX, |status| view.number(&status));
        }
    }
}
