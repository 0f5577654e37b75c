//! Preambles: the headers with which a source begins, read once, so that its next compiles begin after them.
//!
//! A preamble is a precompiled header of the source's own leading directives (`prefix`), with the exact options of its
//! compile (`recipe`). It is used only if reading its headers a second time has no effect (`effects`). `alike` finds the
//! beginnings that several sources have in common. `table` knows the preambles that there are. Nothing here runs a command
//! or knows the cache.

pub mod alike;
pub mod effects;
pub mod prefix;
pub mod recipe;
pub mod table;

use crate::bytes::digest::Digest;
use crate::observe::access::{Access, Bytes};

use super::compiler::relocation;
use super::compiler::Compiler;
use super::lookup::entry::Entry;
use table::OwnFolder;

/// A precompiled header that has been proved for one source and one command line, or tried with one source of a group.
pub struct Preamble {
    pub compiler: Compiler,
    /// The digest of the directives that are in it, and their length.
    pub text: Digest,
    pub length: usize,
    /// It serves all sources that begin with these directives, and not only one that has no others.
    pub is_shared: bool,
    /// The digest of these, and of all facts on which they depend.
    pub inputs: Digest,
    /// Its files are here, as long as anything refers to the preamble.
    pub folder: OwnFolder,
    /// The name by which a command line includes it.
    pub name: Bytes,
    /// The dependency file of the header itself.
    pub dependencies: Bytes,
    /// It holds as long as these facts hold, except those about the source: the facts of the compile with which it was
    /// proved, or those of its own making if it is shared.
    pub basis: Entry,
    /// The accesses of that command.
    pub accesses: Vec<Access>,
    /// The size of its files, and of what is in memory.
    pub size: u64,
    /// The processor time that it saved when it was tried, in microseconds.
    pub gain: u64,
}

impl Preamble {
    /// The dependency file of a compile in `folder` that began after it, as the plain compile writes it.
    pub fn complete(&self, text: &[u8], folder: &[u8]) -> Option<Bytes> {
        let names = self.own_names();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        relocation::completed(text, self.compiler, &self.dependencies, &names, folder)
    }

    /// Names of its own files in dependency files.
    fn own_names(&self) -> [Bytes; 3] {
        let text = self.folder.name(recipe::TEXT);
        [self.name.clone(), [&self.name[..], b".gch"].concat(), text]
    }
}

/// Why a source has no preamble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    NoInclude,
    Talks,
    Options,
    DebugInformation,
    Position,
    OtherNames,
    ReadTwice,
    Pragma,
    NotMade,
    Unseen,
    Different,
    NoGain,
    FailsAlone,
    NoRoom,
    Unusable,
}

impl Refusal {
    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::NoInclude => "it does not begin with an include",
            Refusal::Talks => "its compile prints something",
            Refusal::Options => "its options are not known to allow one",
            Refusal::DebugInformation => "its debug information would differ",
            Refusal::Position => "its beginning names its own file or line",
            Refusal::OtherNames => "its headers would have other names",
            Refusal::ReadTwice => "its headers have another effect when they are read twice",
            Refusal::Pragma => "a pragma in its headers reaches beyond them",
            Refusal::NotMade => "its headers cannot be compiled alone",
            Refusal::Unseen => "what its headers depend on could not be observed",
            Refusal::Different => "the result was another one",
            Refusal::NoGain => "it gained too little",
            Refusal::FailsAlone => "a compile failed only with it",
            Refusal::NoRoom => "there is no room for it",
            Refusal::Unusable => "its result could not be used",
        }
    }
}
