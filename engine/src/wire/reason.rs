//! Reasons: why a greeting was refused, and what the cache did for a command. Numbers for programs, names for counts,
//! and sentences for users.
//!
//! `docs/protocol.md` has the numbers. A name is a key of the statistics and is kept in the store, so it never changes.
//! Several reasons may have the same name.

/// What the cache did for a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Known {
    #[default]
    /// The command ran. It was not looked up, and its result is not stored.
    Uncached = 0,
    Hit = 1,
    Miss = 2,
}

impl Known {
    pub const ALL: [Known; 3] = [Known::Uncached, Known::Hit, Known::Miss];

    pub fn name(self) -> &'static str {
        match self {
            Known::Uncached => "uncached",
            Known::Hit => "hit",
            Known::Miss => "miss",
        }
    }

    pub fn named(name: &str) -> Option<Known> {
        Known::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// An enum with one row for each reason: its number on the wire, the name under which it is counted, and the sentence
/// for users. Without a sentence, the name is used. Code that knows more may use a more specific sentence.
macro_rules! reasons {
    ($(#[$about:meta])* $enum:ident { $($variant:ident = $number:literal $name:literal $($sentence:literal)?,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum {
            $($variant = $number,)*
        }

        impl $enum {
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            pub fn from_number(number: u8) -> Option<$enum> {
                match number {
                    $($number => Some($enum::$variant),)*
                    _ => None,
                }
            }

            /// The name under which it is counted.
            pub fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                }
            }

            /// The sentence for users, if nothing more specific is known.
            pub fn sentence(self) -> &'static str {
                match self {
                    $($enum::$variant => [$($sentence,)? $name][0],)*
                }
            }
        }
    };
}

reasons! {
    /// Why a greeting was refused.
    Why {
        Version = 1 "version",
        Token = 2 "token",
        Place = 3 "place",
        Crowded = 4 "crowded",
        Leaving = 5 "leaving",
        Greeting = 6 "greeting",
    }
}

reasons! {
    /// Why a command that could have been a hit was a miss.
    MissReason {
        New = 1 "not seen before" "it was not seen before",
        Changed = 2 "something has changed",
        Recached = 3 "something has changed" "it is to be cached anew",
        Audited = 4 "audited" "it is known, and compiled again to be compared",
    }
}

reasons! {
    /// Why a command cannot be cached.
    UncachedReason {
        NoProgram = 1 "no such program" "its program is not there",
        UnknownCompiler = 2 "compiler not known",
        Wrapped = 3 "compiler is another wrapper",
        Linking = 4 "called for linking",
        Preprocessing = 5 "called for preprocessing",
        Dependencies = 6 "called for dependencies only",
        Asking = 7 "asks the compiler about itself",
        Timing = 8 "asks how long the compiler takes",
        Modules = 9 "uses modules",
        TimesOfFiles = 10 "precompiled header that holds times of files",
        NoInput = 11 "no input file",
        ManySources = 12 "multiple source files",
        LinkerInput = 13 "input for the linker",
        Language = 14 "unsupported source language",
        StandardInput = 15 "reads standard input",
        StandardOutput = 16 "output to standard output",
        Device = 17 "output to a device",
        Response = 18 "unreadable response file",
        Incomplete = 19 "option without its argument",
        Option = 20 "unsupported option",
        Variable = 21 "unsupported variable",
        ReadOnly = 22 "read only" "the cache is only read",
        OutputInTheWay = 23 "its output cannot be replaced",
        OtherStore = 24 "another store",
        NoStore = 25 "no store",
        SilentStore = 26 "silent store" "the store does not answer",
        NoCompile = 27 "no compile" "it does not look like a compile; wafcc run -- caches any command",
    }
}

reasons! {
    /// Why the result of a miss was not stored.
    UnstoredReason {
        Running = 1 "it runs still",
        EngineEnded = 2 "the engine ended before it did",
        CompilerFailed = 3 "the compiler failed" "it failed",
        CommandFailed = 4 "the command failed" "it failed",
        Interrupted = 5 "did not run to its end" "it was ended, or did not start",
        TookTooLong = 6 "took too long" "it took too long, and was ended",
        PrintsTooMuch = 7 "prints too much" "it prints too much",
        PrintsElsewhere = 8 "prints elsewhere" "what it prints goes elsewhere",
        CannotBeObserved = 9 "cannot be observed" "it cannot be observed",
        TooManyAtOnce = 10 "too many commands at once" "too many commands run at once for this one to be observed",
        DriverDiffers = 11 "its driver would do otherwise"
            "something is not as it was when its driver was asked what it does",
        NotObserved = 12 "not observed",
        InputsChanged = 13 "inputs changed while it ran",
        ReadsClock = 14 "reads the clock",
        ReadsRandom = 15 "reads random numbers",
        ReadsInput = 16 "reads standard input",
        UpdatesInPlace = 17 "updates a file in place",
        RemovesOthers = 18 "removes what it did not make",
        UsesDevice = 19 "uses a device",
        NoPlainFile = 20 "makes what is no plain file" "an output is not a plain file",
        Unforetold = 21 "makes unforetold files",
        LacksForetold = 22 "lacks a file that was foretold",
        ResultsVanished = 23 "results vanished",
        ListsResults = 24 "lists its results",
        SetsTimes = 25 "sets times of files",
        MayNotWrite = 26 "may not write",
        DependsOnTooMuch = 27 "depends on too much",
        OwnNames = 28 "tells names of its own",
        TellsBase = 29 "tells the base folder"
            "a text of it holds the name of the base folder where it may not be a path",
        UnusualRights = 30 "makes files of unusual rights",
        StoreFailed = 31 "the store failed",
        SilentStore = 32 "silent store" "the store does not answer",
        RunsMacro = 33 "runs a procedural macro"
            "it runs a procedural macro; prove_commands proves that this does not show",
    }
}

impl UnstoredReason {
    pub fn named(name: &str) -> Option<UnstoredReason> {
        UnstoredReason::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

/// The same with the sentence for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unkept {
    pub why: UnstoredReason,
    pub words: String,
}

impl Unkept {
    pub fn new(why: UnstoredReason, words: impl Into<String>) -> Unkept {
        let words = words.into();
        Unkept { why, words }
    }

    /// An input was written just before the command started, for example by a generator.
    pub fn came_too_early(&self) -> bool {
        self.why == UnstoredReason::InputsChanged
    }
}

impl From<UnstoredReason> for Unkept {
    fn from(why: UnstoredReason) -> Unkept {
        Unkept::new(why, why.sentence())
    }
}

/// What the client of a command is told about the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Uncached {
        why: UncachedReason,
        words: String,
    },
    Hit {
        /// Processor time of the stored run, in microseconds.
        processor: u64,
    },
    Miss {
        why: MissReason,
        words: String,
        unstored: Option<Unkept>,
        /// Processor time that the compile did not take because it began after its headers, in microseconds.
        saved: u64,
    },
}

impl Told {
    pub fn known(&self) -> Known {
        match self {
            Told::Uncached { .. } => Known::Uncached,
            Told::Hit { .. } => Known::Hit,
            Told::Miss { .. } => Known::Miss,
        }
    }

    /// The result of a miss will not be stored. The first reason stays.
    pub fn leave_unstored(&mut self, because: Unkept) {
        if let Told::Miss { unstored, .. } = self {
            unstored.get_or_insert(because);
        }
    }

    /// A compile began after its headers.
    pub fn note_saved(&mut self, microseconds: u64) {
        if let Told::Miss { saved, .. } = self {
            *saved = microseconds;
        }
    }

    /// All reasons for users, and what was saved all the same. Empty for a hit.
    pub fn show(&self) -> String {
        match self {
            Told::Hit { .. } => String::new(),
            Told::Uncached { words, .. } => words.clone(),
            Told::Miss {
                words, unstored, saved, ..
            } => {
                let mut shown = words.clone();
                if let Some(unstored) = unstored {
                    shown += &format!("; not stored: {}", unstored.words);
                }
                if *saved > 0 {
                    let saved = *saved as f64 / 1e3;
                    shown += &format!("; it began after its headers, which saved about {saved:.0} ms");
                }
                shown
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unknown number is refused, and no two reasons have the same number.
    #[test]
    fn each_reason_has_a_number_of_its_own() {
        macro_rules! check {
            ($enum:ident) => {
                for (reason, number) in $enum::ALL.iter().zip(1..) {
                    assert_eq!(*reason as u8, number, "{reason:?}");
                    assert_eq!($enum::from_number(number), Some(*reason));
                }
                for unknown in [0, $enum::ALL.len() as u8 + 1, 200] {
                    assert_eq!($enum::from_number(unknown), None);
                }
            };
        }
        check!(Why);
        check!(MissReason);
        check!(UncachedReason);
        check!(UnstoredReason);
    }

    #[test]
    fn people_read_both_reasons_of_a_miss() {
        let mut told = Told::Miss {
            why: MissReason::New,
            words: MissReason::New.sentence().to_owned(),
            unstored: None,
            saved: 0,
        };
        assert_eq!(told.show(), "it was not seen before");
        told.leave_unstored(UnstoredReason::TookTooLong.into());
        told.leave_unstored(UnstoredReason::Interrupted.into());
        let expected = "it was not seen before; not stored: it took too long, and was ended";
        assert_eq!(told.show(), expected);
        told.note_saved(400_000);
        let expected = format!("{expected}; it began after its headers, which saved about 400 ms");
        assert_eq!(told.show(), expected);
    }
}
