//! Why nothing is to be remembered of a command that ran.

use std::fmt;

use crate::wire::UnstoredReason;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It, or a part of it, could not be observed.
    Blind {
        why: &'static str,
    },
    /// A path was told of a process that nobody knows.
    Stranger,
    /// An input changed while it ran, or a moment before.
    Changed {
        path: String,
    },
    /// What was there for it is not there for us.
    Inconsistent {
        path: String,
    },
    ReadsClock,
    ReadsRandom,
    /// It may read its standard input, of which is not known what it holds.
    ReadsInput,
    /// It writes into a file that was there before, and whose content counts.
    InPlace {
        path: String,
    },
    /// It reads a file, and then makes it anew.
    Replaces {
        path: String,
    },
    /// It removes or renames what it did not make.
    Removes {
        path: String,
    },
    /// It reads or writes a device, a pipe, a socket, or a file that the kernel makes up.
    Device {
        path: String,
    },
    /// Something that it made is neither a file of one name nor a folder nor a link.
    NotPlain {
        path: String,
    },
    /// It read through something that it made, and that may have led anywhere.
    Unclear {
        path: String,
    },
    /// It made what was not foretold of it.
    Unforetold {
        path: String,
    },
    /// Was made, and is not there.
    Lost {
        path: String,
    },
    /// It lists a folder in which it makes files.
    ListsResults {
        path: String,
    },
    /// It says when a file that it made was written, or will be.
    Dated {
        path: String,
    },
    /// It was not allowed to write.
    Denied {
        path: String,
    },
    TooMany,
}

impl Obstacle {
    /// As what it is counted.
    pub fn kind(&self) -> UnstoredReason {
        match self {
            Obstacle::Blind { .. } | Obstacle::Stranger => UnstoredReason::NotObserved,
            Obstacle::Changed { .. } | Obstacle::Inconsistent { .. } => UnstoredReason::InputsChanged,
            Obstacle::ReadsClock => UnstoredReason::ReadsClock,
            Obstacle::ReadsRandom => UnstoredReason::ReadsRandom,
            Obstacle::ReadsInput => UnstoredReason::ReadsInput,
            Obstacle::InPlace { .. } | Obstacle::Replaces { .. } => UnstoredReason::UpdatesInPlace,
            Obstacle::Removes { .. } => UnstoredReason::RemovesOthers,
            Obstacle::Device { .. } => UnstoredReason::UsesDevice,
            Obstacle::NotPlain { .. } | Obstacle::Unclear { .. } => UnstoredReason::NoPlainFile,
            Obstacle::Unforetold { .. } => UnstoredReason::Unforetold,
            Obstacle::Lost { .. } => UnstoredReason::ResultsVanished,
            Obstacle::ListsResults { .. } => UnstoredReason::ListsResults,
            Obstacle::Dated { .. } => UnstoredReason::SetsTimes,
            Obstacle::Denied { .. } => UnstoredReason::MayNotWrite,
            Obstacle::TooMany => UnstoredReason::DependsOnTooMuch,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Blind { why } => write!(f, "it could not be observed: {why}"),
            Obstacle::Stranger => write!(f, "a process of it could not be observed from its beginning"),
            Obstacle::Changed { path } => write!(f, "{path} changed while it ran, or right before"),
            Obstacle::Inconsistent { path } => write!(f, "{path} is not what it was while it ran"),
            Obstacle::ReadsClock => write!(f, "it asks for the time"),
            Obstacle::ReadsRandom => write!(f, "it asks for random numbers"),
            Obstacle::ReadsInput => write!(f, "a program of it may read the standard input"),
            Obstacle::InPlace { path } => write!(f, "it writes into {path}, which was there before"),
            Obstacle::Replaces { path } => write!(f, "it reads {path} and makes it anew"),
            Obstacle::Removes { path } => write!(f, "it removes or renames {path}, which it did not make"),
            Obstacle::Device { path } => write!(f, "it uses {path}, which is no file"),
            Obstacle::NotPlain { path } => write!(f, "it makes {path}, which is no plain file of one name"),
            Obstacle::Unclear { path } => write!(f, "it reads {path} through a link or folder that it made"),
            Obstacle::Unforetold { path } => write!(f, "it makes {path}, which was not foretold"),
            Obstacle::Lost { path } => write!(f, "it made {path}, which is not there"),
            Obstacle::ListsResults { path } => write!(f, "it lists {path}, where it makes files"),
            Obstacle::Dated { path } => write!(f, "it sets the time of {path}"),
            Obstacle::Denied { path } => write!(f, "it may not write {path}"),
            Obstacle::TooMany => write!(f, "it depends on more than is worth remembering"),
        }
    }
}
