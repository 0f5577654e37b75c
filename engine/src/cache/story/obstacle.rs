//! Why the result of a command is not stored.

use std::fmt;

use crate::wire::UnstoredReason;

/// The texts are paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The command, or a part of it, could not be observed, for this reason.
    Blind(&'static str),
    /// A path was recorded for a process that is not known.
    UnknownProcess,
    /// An input changed while the command ran, or a moment before.
    Changed(String),
    /// The command found something that we do not find.
    Inconsistent(String),
    ReadsClock,
    ReadsRandom,
    /// It runs a procedural macro, which may ask for anything.
    RunsMacro(String),
    /// It may read its standard input, whose content is not known.
    ReadsInput,
    /// It writes into a file that existed before, and whose content counts.
    InPlace(String),
    /// It reads a file, and then makes it anew.
    Replaces(String),
    /// It removes or renames something that it did not make.
    Removes(String),
    /// It reads or writes a device, a pipe, a socket, or a file that the kernel generates.
    Device(String),
    /// One of its outputs is neither a file with one name nor a folder nor a link.
    NotPlain(String),
    /// It read through something that it had made, and that may have led anywhere.
    Unclear(String),
    /// It made an output that was not expected of it.
    Unforetold(String),
    /// An output was made, and is not there.
    Lost(String),
    /// It lists a folder in which it makes files.
    ListsResults(String),
    /// It reports or will report when a file that it made was written.
    Dated(String),
    /// It had no permission to write.
    Denied(String),
    TooMany,
    /// It failed.
    Fails,
}

impl Obstacle {
    /// Its kind, by which it is counted.
    pub fn kind(&self) -> UnstoredReason {
        match self {
            Obstacle::Blind(_) | Obstacle::UnknownProcess => UnstoredReason::NotObserved,
            Obstacle::Changed(_) | Obstacle::Inconsistent(_) => UnstoredReason::InputsChanged,
            Obstacle::ReadsClock => UnstoredReason::ReadsClock,
            Obstacle::ReadsRandom => UnstoredReason::ReadsRandom,
            Obstacle::RunsMacro(_) => UnstoredReason::RunsMacro,
            Obstacle::ReadsInput => UnstoredReason::ReadsInput,
            Obstacle::InPlace(_) | Obstacle::Replaces(_) => UnstoredReason::UpdatesInPlace,
            Obstacle::Removes(_) => UnstoredReason::RemovesOthers,
            Obstacle::Device(_) => UnstoredReason::UsesDevice,
            Obstacle::NotPlain(_) | Obstacle::Unclear(_) => UnstoredReason::NoPlainFile,
            Obstacle::Unforetold(_) => UnstoredReason::Unforetold,
            Obstacle::Lost(_) => UnstoredReason::ResultsVanished,
            Obstacle::ListsResults(_) => UnstoredReason::ListsResults,
            Obstacle::Dated(_) => UnstoredReason::SetsTimes,
            Obstacle::Denied(_) => UnstoredReason::MayNotWrite,
            Obstacle::TooMany => UnstoredReason::DependsOnTooMuch,
            Obstacle::Fails => UnstoredReason::CommandFailed,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Blind(why) => write!(f, "it could not be observed: {why}"),
            Obstacle::UnknownProcess => write!(f, "a process of it could not be observed from its beginning"),
            Obstacle::Changed(path) => write!(f, "{path} changed while it ran, or right before"),
            Obstacle::Inconsistent(path) => write!(f, "{path} is not what it was while it ran"),
            Obstacle::ReadsClock => write!(f, "it asks for the time"),
            Obstacle::ReadsRandom => write!(f, "it asks for random numbers"),
            Obstacle::RunsMacro(path) => write!(f, "it runs the procedural macro {path}, which may show anything"),
            Obstacle::ReadsInput => write!(f, "a program of it may read the standard input"),
            Obstacle::InPlace(path) => write!(f, "it writes into {path}, which was there before"),
            Obstacle::Replaces(path) => write!(f, "it reads {path} and makes it anew"),
            Obstacle::Removes(path) => write!(f, "it removes or renames {path}, which it did not make"),
            Obstacle::Device(path) => write!(f, "it uses {path}, which is no file"),
            Obstacle::NotPlain(path) => write!(f, "it makes {path}, which is no plain file of one name"),
            Obstacle::Unclear(path) => write!(f, "it reads {path} through a link or folder that it made"),
            Obstacle::Unforetold(path) => write!(f, "it makes {path}, which was not foretold"),
            Obstacle::Lost(path) => write!(f, "it made {path}, which is not there"),
            Obstacle::ListsResults(path) => write!(f, "it lists {path}, where it makes files"),
            Obstacle::Dated(path) => write!(f, "it sets the time of {path}"),
            Obstacle::Denied(path) => write!(f, "it may not write {path}"),
            Obstacle::TooMany => write!(f, "it depends on more than is worth remembering"),
            Obstacle::Fails => write!(f, "it failed"),
        }
    }
}
