//! Commands that run on a cluster: what is sent, and what is done with what comes back.
//!
//! ```text
//! a miss that would wait ─► foresee ─► the cluster ─► an entry ─► its key, its facts, its blobs ─► our store ─► a hit
//!                              ▲                         └─► something that is here was missed there: once more, with it
//!                              └─────────────────────────────────┘           └─► anything else: it runs here
//! ```
//!
//! What comes back is judged like the entries of shared stores (`search`): it is used only if all that it depended on is here
//! as it was there. So what is sent is a guess, and a wrong guess costs a run here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path as FilePath;
use std::sync::Arc;

use super::answer::{Hit, Question, Ticket};
use super::cache_threads::{Done, Job, Jobs, Reports};
use super::compiler::action::Action;
use super::compiler::outputs::Prints;
use super::foresee::{self, is_of_system, Foreseen, Search, Unforeseen};
use super::lookup::claim::Claim;
use super::lookup::entry::Entry;
use super::remote::bundle::Bundle;
use super::remote::foreign::{Origin, Refusal};
use super::remote::wrapped::Wrapped;
use super::remote::{Errand, Executor, Made, Unmade};
use super::search::{Judged, NotAdopted};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::cluster::message::{Execute, Failure};
use crate::cluster::{ENTRY, PLACES, VERSION};
use crate::facts::exception::ALWAYS_ASKED;
use crate::facts::fact::{Change, Fact};
use crate::facts::file_view::FileView;
use crate::facts::path::{lexically_normal, Place};
use crate::facts::world::View;
use crate::files::checkout;
use crate::observe::access::Bytes;
use crate::observe::trace::program::interpreters;
use crate::trust::signature::Sealed;

/// A command whose last run took less processor time, in microseconds, stays here: to ask a cluster would take as long.
pub const SHORT: u64 = 100_000;
/// After this time without a result, the cluster has lost the command.
const TIME: u64 = 600_000;
/// How many files are added at most that were missed there.
const MOST_MISSED: usize = 4096;
/// Variables of which compilers ask, and that name no secret. Others are sent if the command has asked for them here before.
const VARIABLES: [&str; 22] = [
    "PATH",
    "PWD",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "SOURCE_DATE_EPOCH",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "COMPILER_PATH",
    "LIBRARY_PATH",
    "GCC_EXEC_PREFIX",
    "GCC_COLORS",
    "GCC_URLS",
    "TERM_URLS",
    "TERM",
    "COLUMNS",
    "NO_COLOR",
    "POSIXLY_CORRECT",
];

/// Why a command did not go to a cluster, or why what came back is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAway {
    Short,
    Place,
    Program,
    TooMuch,
    NoSource,
    Namespace,
    Silent,
    Failed,
    Declined,
    NoEntry,
    Changed,
    Key,
    Facts,
    Lacks,
    Refused(Refusal),
    NotStored,
    Overtaken,
    /// An audit: it ran here, too.
    Audited,
    /// What came back is not what it makes here.
    Different,
    CalledOff,
}

impl NotAway {
    pub fn name(self) -> &'static str {
        match self {
            NotAway::Short => "it takes too little time",
            NotAway::Place => "its files are where a worker has files of its own",
            NotAway::Program => "its compiler is none of the system",
            NotAway::TooMuch => "it may read too many files",
            NotAway::NoSource => "its source cannot be read",
            NotAway::Namespace => "its namespace cannot be sent",
            NotAway::Silent => "the cluster did not answer",
            NotAway::Failed => "the cluster failed",
            NotAway::Declined => "the cluster declined it",
            NotAway::NoEntry => "the worker has no entry of it",
            NotAway::Changed => "a file changed while it was sent",
            NotAway::Key => "the worker takes it for another command",
            NotAway::Facts => "what it depends on is not the same there",
            NotAway::Lacks => "a part of the result did not come",
            NotAway::Refused(why) => why.name(),
            NotAway::NotStored => "it could not be stored here",
            NotAway::Overtaken => "it was sooner done here",
            NotAway::Audited => "it was compiled here, too, to be compared",
            NotAway::Different => "what came back is not what is made here",
            NotAway::CalledOff => "it was called off",
        }
    }

    fn of(why: Failure) -> NotAway {
        match why {
            Failure::Silent => NotAway::Silent,
            Failure::Failed => NotAway::Failed,
            Failure::Declined => NotAway::Declined,
            Failure::NoEntry => NotAway::NoEntry,
            Failure::Changed => NotAway::Changed,
        }
    }
}

impl From<Unforeseen> for NotAway {
    fn from(why: Unforeseen) -> NotAway {
        match why {
            Unforeseen::Place => NotAway::Place,
            Unforeseen::TooMuch => NotAway::TooMuch,
            Unforeseen::NoSource => NotAway::NoSource,
        }
    }
}

/// The reason, and what is known besides.
#[derive(Debug)]
pub struct Stayed {
    pub why: NotAway,
    pub words: String,
}

impl Stayed {
    fn because(why: NotAway, words: impl Into<String>) -> Stayed {
        let words = words.into();
        Stayed { why, words }
    }
}

impl<T: Into<NotAway>> From<T> for Stayed {
    fn from(why: T) -> Stayed {
        Stayed::because(why.into(), "")
    }
}

/// A command that goes to a cluster.
pub struct Away {
    question: Question,
    action: Action,
    key: Digest,
    session: [u8; 16],
    /// Paths that were here and not there, and variables.
    missed: Vec<Bytes>,
    variables: Vec<Bytes>,
    is_second: bool,
}

/// A result that has come back.
pub enum Back {
    /// It is in our store.
    Stored(Box<Away>),
    /// It is to be compared with what the command makes here, and is not used.
    Sample(Box<Sample>),
}

/// A result of a cluster that is audited.
pub struct Sample {
    pub(super) entry: Entry,
    pub(super) executor: Arc<dyn Executor>,
}

/// What is to be done with what came back.
enum Returned {
    /// It is in our store.
    Adopted,
    Audited(Entry),
    Again(Box<Away>),
    Stayed(Stayed),
}

impl Ticket {
    /// What is needed to run the command on a cluster. `None` if it is of no kind that could run there.
    pub fn away(&self, session: [u8; 16]) -> Option<Away> {
        let knows = &self.action.knows;
        let is_known = knows.compiler.is_some() && knows.prints == Prints::Messages && self.action.source.is_some();
        let is_plain = self.audited.is_none()
            && !self.question.wishes.recache
            && !knows.outputs.is_empty()
            && knows.modules.is_none();
        (is_known && is_plain).then(|| Away {
            question: Question {
                inputs: self.question.inputs,
                ..self.question.repeated()
            },
            action: self.action.clone(),
            key: self.key,
            session,
            missed: Vec::new(),
            variables: Vec::new(),
            is_second: false,
        })
    }

    /// The plain command runs here, and its result is compared with this one.
    pub fn compare_with(&mut self, sample: Box<Sample>) {
        self.sample = Some(sample);
    }

    /// For `--explain`.
    pub fn note_away(&mut self, words: String) {
        self.reasons.add(words);
    }
}

impl Cache {
    /// The clusters that may run commands, of all clients.
    pub fn executors(&self) -> Vec<Arc<dyn Executor>> {
        self.tiers.executors()
    }

    /// The processor time that the last run of the command took, in microseconds.
    pub fn expected_time(&self, key: &Digest) -> Option<u64> {
        let known = self.store.find(key);
        let entry = known.first().and_then(|known| self.read(known))?.entry;
        (entry.processor > 0).then_some(entry.processor)
    }

    /// Sends a command to the cluster. The result comes to `jobs`.
    pub(super) fn send_away(
        &self,
        who: u64,
        away: Box<Away>,
        errand: Arc<Errand>,
        jobs: &Arc<Jobs>,
        reports: &Reports,
    ) {
        let result = match self.foresee(&away) {
            _ if errand.is_off() => Err(NotAway::CalledOff.into()),
            Ok(execute) => {
                let (jobs, sent) = (jobs.clone(), errand.clone());
                let again = move |made| {
                    jobs.send(Job::Returned {
                        who,
                        away,
                        errand,
                        made,
                    });
                };
                return sent.send(execute, Box::new(again));
            }
            Err(stayed) => Err(stayed),
        };
        reports.put(Done::Away { who, result });
    }

    /// A command has come back.
    pub(super) fn take_back(
        &self,
        who: u64,
        away: Box<Away>,
        errand: Arc<Errand>,
        made: Result<Made, Unmade>,
        jobs: &Arc<Jobs>,
        reports: &Reports,
    ) {
        let returned = match made {
            _ if errand.is_off() => Returned::Stayed(NotAway::CalledOff.into()),
            Ok(made) => self.judge_made(&away, made, errand.executor.name()),
            Err(unmade) => Returned::Stayed(Stayed::because(NotAway::of(unmade.why), unmade.words)),
        };
        let result = match returned {
            Returned::Adopted => Ok(Back::Stored(away)),
            Returned::Audited(entry) => {
                let executor = errand.executor.clone();
                Ok(Back::Sample(Box::new(Sample { entry, executor })))
            }
            Returned::Again(away) => return self.send_away(who, away, errand, jobs, reports),
            Returned::Stayed(stayed) => Err(stayed),
        };
        reports.put(Done::Away { who, result });
    }

    /// What is sent of a command.
    fn foresee(&self, away: &Away) -> Result<Execute, Stayed> {
        let (question, action) = (&away.question, &away.action);
        let mut file_view = FileView::begin();
        let (program, real) = self.find_program(question, &mut file_view).ok_or(NotAway::Program)?;
        let named = self.names(question, &program, &real).ok_or(NotAway::NoSource)?;
        let folder = &question.folder;
        let mut search = Search::new(&self.scans);
        if !is_of_system_alone(&program, &real) {
            let stays = |words: &str| Stayed::because(NotAway::Program, words);
            if !interpreters(&real).is_empty() {
                return Err(stays("it is a script, whose shell depends on limits of this machine"));
            }
            let own = self.toolchains.files(&real);
            let own = own.ok_or_else(|| stays("what it needs is known when it has run here once"))?;
            let programs = [&program, &real].map(|path| path.as_os_str().as_bytes());
            programs
                .into_iter()
                .chain(own.iter().map(Vec::as_slice))
                .for_each(|path| search.add(path));
        }
        search.add_sources(folder, &named).map_err(NotAway::from)?;
        search.add(folder);
        let absolute = |path: &[u8]| match path.starts_with(b"/") {
            true => path.to_vec(),
            false => [folder, path].join(&b'/'),
        };
        for output in &action.knows.outputs {
            let path = absolute(&output.path);
            let above = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            search.add(&path[..above.max(1)]);
        }
        // The worker must find the same checkout: its name is left out of the key.
        let marks = checkout::marks(FilePath::new(OsStr::from_bytes(folder)));
        marks.iter().for_each(|mark| search.add(mark.as_os_str().as_bytes()));
        let (mut asked, mut variables) = (away.missed.clone(), away.variables.clone());
        let entries = self.store.find(&away.key);
        let mut known = entries.iter().filter_map(|known| self.read(known));
        let (newest, own) = (known.next(), known.find(|known| known.origin == Origin::Own));
        let place = question.place(&action.knows);
        for known in newest.iter().chain(&own) {
            let is_own = known.origin == Origin::Own;
            let mut add = |path: Bytes| match is_own {
                true => search.add(&path),
                false => asked.push(path),
            };
            for fact in &known.entry.facts {
                note_needed(fact, &place, &mut add, |name| {
                    if is_own || may_be_asked(&name) {
                        variables.push(name);
                    }
                });
            }
        }
        search.add_asked(&asked).map_err(NotAway::from)?;
        // Compilers look whether it is their folder. It gives no other machine a right to ask for what is in it.
        let mut environment = question.environment.iter();
        if let Some(path) = environment.find_map(|pair| pair.strip_prefix(b"PWD=/")) {
            search.add_named_folder(&[b"/", path].concat());
        }
        let (foreseen, places) = search.finish().map_err(NotAway::from)?;
        let Foreseen { files, folders, links } = foreseen;
        if is_of_system(folder) {
            return Err(NotAway::Place.into());
        }
        let argv = question.argv.iter().skip(1).map(<[u8]>::to_vec);
        // The compiler is told the name by which it was called: the first word is a part of the key.
        let first = question.argv.iter().next().unwrap_or_default().to_vec();
        Ok(Execute {
            id: 0,
            session: away.session,
            time: TIME,
            argv: std::iter::once(first).chain(argv).collect(),
            environment: sent_variables(question, &variables, &places)?,
            folder: lexically_normal(folder),
            files: files.into_iter().collect(),
            folders: folders.into_iter().collect(),
            links: links.into_iter().collect(),
            places,
        })
    }

    /// Remembers what the compiler of a command that has run here has read of itself, if a cluster might need that.
    pub(super) fn note_toolchain(&self, ticket: &Ticket, facts: &[Fact]) {
        let (question, knows) = (&ticket.question, &ticket.action.knows);
        let has_cluster = || {
            self.tiers(&question.wishes)
                .is_some_and(|tiers| tiers.executor().is_some())
        };
        if knows.compiler.is_none() || !has_cluster() {
            return;
        }
        let Some((program, real)) = self.find_program(question, &mut FileView::begin()) else {
            return;
        };
        if is_of_system_alone(&program, &real) {
            return;
        }
        let place = question.place(knows);
        let mut paths = Vec::new();
        for fact in facts {
            note_needed(fact, &place, |path| paths.push(path), |_| ());
        }
        self.toolchains.note(&real, paths.into_iter());
    }

    fn judge_made(&self, away: &Away, made: Made, name: &str) -> Returned {
        let (question, action) = (&away.question, &away.action);
        if made.key != away.key {
            return Returned::Stayed(NotAway::Key.into());
        }
        let blobs = made
            .blobs
            .into_iter()
            .map(|bytes| (Digest::of(&bytes), Wrapped { coding: 0, bytes }));
        let bundle = Bundle {
            blobs: blobs.collect::<HashMap<_, _>>(),
            entries: vec![made.entry],
        };
        let stayed = |why: NotAway, words: String| Returned::Stayed(Stayed::because(why, words));
        match self.judge(question, action, &away.key, &bundle, &mut None) {
            Judged::Holds(entry, _) if self.audit.is_due() => Returned::Audited(entry),
            Judged::Holds(entry, at) => {
                match self.adopt(&question.declaration(action), &away.key, &entry, at, &bundle) {
                    Ok(()) => {
                        log::debug!("{name} has compiled it");
                        let bytes = bundle.entries[at].clone();
                        self.offer(&question.wishes, &away.key, bytes, &entry, usize::MAX);
                        Returned::Adopted
                    }
                    Err(NotAdopted::Refused(why)) => {
                        self.refuse(why);
                        stayed(NotAway::Refused(why), String::new())
                    }
                    Err(NotAdopted::Failed(why)) => stayed(NotAway::NotStored, why),
                }
            }
            Judged::Lacks(_) => stayed(NotAway::Lacks, String::new()),
            Judged::Refused(why) => stayed(NotAway::Refused(why), String::new()),
            Judged::Nothing(words) => match self.with_missed(away, &bundle.entries[0]) {
                Some(again) => Returned::Again(Box::new(again)),
                None => stayed(NotAway::Facts, words),
            },
        }
    }

    /// The same command with what is here and was missed there, if there is anything that was not sent yet.
    fn with_missed(&self, away: &Away, bytes: &[u8]) -> Option<Away> {
        if away.is_second {
            return None;
        }
        let entry = Entry::decode(Sealed::read(bytes).entry).ok()?;
        let (question, knows) = (&away.question, &away.action.knows);
        let (place, environment) = (question.place(knows), question.variables(knows));
        let mut view = View::new(&self.world, &place, &environment);
        let (mut missed, mut variables) = (Vec::new(), Vec::new());
        for (fact, change) in entry.changes(&mut view) {
            let is_mendable = match (fact, &change) {
                (Some(Fact::Variable { name, value: None }), _) => may_be_asked(name),
                (Some(fact), _) => fact.path().is_some_and(|path| !is_of_system(&place.absolute(path))),
                (None, _) => false,
            };
            match fact {
                Some(fact) if is_mendable && missed.len() < MOST_MISSED => {
                    note_needed(fact, &place, |path| missed.push(path), |name| variables.push(name));
                }
                _ => return None,
            }
            // A file that was sent, and changed since, is not mended by sending it again.
            if matches!(change, Change::Content { .. }) {
                return None;
            }
        }
        (!missed.is_empty() || !variables.is_empty()).then(|| Away {
            question: Question {
                inputs: question.inputs,
                ..question.repeated()
            },
            action: away.action.clone(),
            key: away.key,
            session: away.session,
            missed,
            variables,
            is_second: true,
        })
    }

    /// Puts the outputs of a command that ran on a cluster in their places. `None` if they cannot be, or if something has
    /// changed meanwhile.
    pub(super) fn fetch_away(&self, mut away: Away, claim: Claim) -> Option<Hit> {
        away.question.claim = claim;
        self.take_hit(&away.question, &away.action, &away.key)
    }

    /// The command is over that ran on a cluster.
    pub fn note_made_away(&self, ticket: &Ticket, address: String) {
        if ticket.is_uncounted {
            self.count_miss(ticket);
        }
        self.note_miss(ticket, None);
        self.count(&Counter::Away);
        self.count(&Counter::AwayAt(address));
    }

    /// Counts why a command ran here, and not on the cluster with this address.
    pub fn note_stayed(&self, why: NotAway, address: &str) {
        self.count(&Counter::NotAway(why));
        self.count(&Counter::NotAwayAt(address.to_owned(), why));
    }
}

/// Whether a worker has the compiler itself, and no link of ours leads to it.
fn is_of_system_alone(program: &FilePath, real: &FilePath) -> bool {
    [program, real].into_iter().all(foresee::is_program_of_system)
}

/// Paths and variables on which a fact depends.
fn note_needed(fact: &Fact, place: &Place, mut path: impl FnMut(Bytes), mut variable: impl FnMut(Bytes)) {
    match fact {
        Fact::Variable { name, .. } => variable(name.clone()),
        Fact::Twins { twins } => twins.iter().for_each(|twin| path(place.absolute(&twin.path))),
        fact => fact.path().into_iter().for_each(|of| path(place.absolute(of))),
    }
}

/// Whether a variable is sent because another machine says that the command asks for it. Any other could be a secret.
fn may_be_asked(name: &[u8]) -> bool {
    ALWAYS_ASKED.contains(&name)
}

/// The variables that a command gets there.
fn sent_variables(question: &Question, needed: &[Bytes], places: &[Bytes]) -> Result<Vec<Bytes>, Stayed> {
    let name_of = |pair: &[u8]| pair.split(|byte| *byte == b'=').next().unwrap_or_default().to_vec();
    let is_ours = |name: &[u8]| name.starts_with(b"WAFCC_") || name.starts_with(b"WAFD_");
    let is_sent = |pair: &&[u8]| {
        let name = name_of(pair);
        let is_known = VARIABLES.iter().any(|known| known.as_bytes() == name);
        (is_known || needed.contains(&name)) && !is_ours(&name)
    };
    let mut sent: Vec<Bytes> = question
        .environment
        .iter()
        .filter(is_sent)
        .map(<[u8]>::to_vec)
        .collect();
    let mut set = |name: &str, value: &[u8]| sent.push([name.as_bytes(), b"=", value].concat());
    set(ENTRY, VERSION.as_bytes());
    set(PLACES, &places.join(&b':'));
    let wishes = &question.wishes;
    if wishes.namespace.contains(&0) {
        return Err(NotAway::Namespace.into());
    }
    for (name, value) in [
        ("WAFCC_NAMESPACE", wishes.namespace.clone()),
        ("WAFCC_BASEDIR", wishes.bases.join(&b':')),
    ] {
        if !value.is_empty() {
            set(name, &value);
        }
    }
    if wishes.share_checkouts {
        set("WAFCC_SHARECHECKOUTS", b"yes");
    }
    Ok(sent)
}
