//! Notes that the engine cannot be reached. A call that has waited in vain leaves a note. While the note is fresh,
//! other calls run their commands at once.
//!
//! ```text
//! wafcc-trouble 1
//! FAILURES WRITTEN UNTIL    in milliseconds of the monotonic clock
//! REASON
//! ....                      one for each command that ran without the engine since
//! ```
//!
//! The note is in the engine's folder. If that cannot be written, it is in a folder of this user in /tmp. When the note
//! is old, one call at a time tries again, with a short timeout. `front/front.c` only checks whether there is a note.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{flock, FlockOperation};
use rustix::time::{clock_gettime, ClockId};

use crate::files::folder::Folder;
use crate::files::regular;
use crate::settings::place;

const MAGIC: &str = "wafcc-trouble 1";
/// How long the first note is fresh. Each further failure doubles that.
const FIRST_TIME: Duration = Duration::from_secs(5);
const LONGEST_TIME: Duration = Duration::from_secs(60);
/// The timeout of a call that tries again: short enough for a build to pay it many times.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(100);
const CAP: u64 = 1 << 20;

/// What a call is to do.
pub enum Advice {
    /// No failure is known: ask the engine.
    Ask,
    /// Other calls have failed a moment ago: do not ask.
    Leave,
    /// Other calls have failed some time ago, and this call tries again.
    AskBriefly(Note),
}

/// An old note, which no other call can take while we have it.
pub struct Note {
    path: PathBuf,
    failures: u32,
    /// Holds a lock until this call ends or becomes its command.
    _file: File,
}

/// The content of a note.
#[derive(Debug, PartialEq, Eq)]
pub struct Trouble {
    failures: u32,
    written: u64,
    until: u64,
    pub reason: String,
    /// How many commands ran without the engine.
    pub commands: usize,
}

impl Trouble {
    fn parse(text: &str) -> Option<Trouble> {
        let mut lines = text.splitn(4, '\n');
        if lines.next()? != MAGIC {
            return None;
        }
        let mut numbers = lines.next()?.split(' ').map(str::parse);
        let (failures, written, until) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Trouble {
            failures: u32::try_from(failures).ok()?,
            written,
            until,
            reason: lines.next()?.to_owned(),
            commands: lines.next()?.len(),
        })
    }

    fn new(failures: u32, reason: &str) -> Trouble {
        let doubled = FIRST_TIME.saturating_mul(1 << failures.clamp(1, 10).saturating_sub(1));
        let written = now();
        Trouble {
            failures,
            written,
            until: written + doubled.min(LONGEST_TIME).as_millis() as u64,
            reason: reason.replace('\n', " "),
            commands: 1,
        }
    }

    fn text(&self) -> String {
        let Trouble {
            failures,
            written,
            until,
            reason,
            commands,
        } = self;
        let marks = ".".repeat(*commands);
        format!("{MAGIC}\n{failures} {written} {until}\n{reason}\n{marks}")
    }

    /// False for a note from before the machine's last start.
    fn is_fresh(&self) -> bool {
        (self.written..self.until).contains(&now())
    }
}

/// Looks for a note. A note that cannot be read is ignored.
pub fn consult(folder: &Folder) -> Advice {
    places(folder)
        .iter()
        .find_map(|path| advise(path))
        .unwrap_or(Advice::Ask)
}

fn advise(path: &Path) -> Option<Advice> {
    let mut file = open(path).ok()?;
    let mut text = String::new();
    (&mut file).take(CAP).read_to_string(&mut text).ok()?;
    // A note without content is being written by another call.
    let trouble = Trouble::parse(&text);
    if trouble.as_ref().map_or(is_new(&file), Trouble::is_fresh) {
        // Only for the count of commands.
        let _ = file.write_all(b".");
        return Some(Advice::Leave);
    }
    let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_still_at(&file, path);
    if !is_ours {
        let _ = file.write_all(b".");
        return Some(Advice::Leave);
    }
    Some(Advice::AskBriefly(Note {
        path: path.to_owned(),
        failures: trouble.map_or(0, |trouble| trouble.failures),
        _file: file,
    }))
}

/// Whether it was changed within the last seconds.
fn is_new(file: &File) -> bool {
    let age = file
        .metadata()
        .and_then(|found| found.modified())
        .map(|at| at.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age < FIRST_TIME))
}

/// Whether the open file still has this path: another call may have replaced the note.
fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Notes a failure. True for the first call that does so.
pub fn leave(folder: &Folder, reason: &str, earlier: Option<&Note>) -> bool {
    if let Some(note) = earlier {
        let text = Trouble::new(note.failures + 1, reason).text();
        let fresh = note.path.with_extension(format!("trouble-{}", std::process::id()));
        if let Err(error) = regular::replace(&note.path, &fresh, text.as_bytes()) {
            log::debug!("write {}: {error}", note.path.display());
        }
        return false;
    }
    // A note that exists was left by another call that failed with us.
    if places(folder).iter().any(|path| open(path).is_ok()) {
        return false;
    }
    let text = Trouble::new(1, reason).text();
    // A missing folder may be the reason for the failure.
    let _ = folder.make();
    let _ = DirBuilder::new().mode(0o700).create(fallback_folder());
    places(folder)
        .iter()
        .any(|path| regular::create(path, text.as_bytes()).is_ok())
}

/// Removes the notes, because the engine has answered.
pub fn forget(folder: &Folder) {
    for path in places(folder) {
        let _ = fs::remove_file(path);
    }
}

/// The note of other calls, for reports.
pub fn read_note(folder: &Folder) -> Option<Trouble> {
    let texts = places(folder).into_iter().filter_map(|path| {
        let mut text = String::new();
        open(&path).ok()?.take(CAP).read_to_string(&mut text).ok()?;
        Some(text)
    });
    texts.into_iter().find_map(|text| Trouble::parse(&text))
}

/// The paths of notes, in folders that only this user can change.
fn places(folder: &Folder) -> Vec<PathBuf> {
    let fallback_folder = Folder::at(fallback_folder());
    let name = format!("trouble-{:016x}", place::mixed(folder.path().as_os_str().as_bytes()));
    let own = folder.check().is_ok().then(|| folder.trouble());
    let other = fallback_folder
        .check()
        .is_ok()
        .then(|| fallback_folder.path().join(name));
    own.into_iter().chain(other).collect()
}

/// The folder of notes that cannot be in the engine's folder.
fn fallback_folder() -> String {
    format!("/tmp/wafcc-{}", rustix::process::geteuid().as_raw())
}

/// Opens without blocking, whatever file is there, and follows no link.
fn open(path: &Path) -> io::Result<File> {
    regular::open_with(OpenOptions::new().read(true).append(true), path)
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let trouble = Trouble::new(3, "two\nlines");
        assert_eq!(trouble.reason, "two lines");
        assert_eq!(Trouble::parse(&trouble.text()), Some(trouble));
    }

    #[test]
    fn failures_make_a_note_fresh_for_longer_but_not_for_ever() {
        let times = [1, 2, 5, 1000].map(|failures| {
            let trouble = Trouble::new(failures, "");
            trouble.until - trouble.written
        });
        assert_eq!(times, [5_000, 10_000, 60_000, 60_000]);
    }

    #[test]
    fn a_note_of_another_time_is_not_fresh() {
        let mut trouble = Trouble::new(1, "");
        assert!(trouble.is_fresh());
        trouble.written += 3_600_000;
        trouble.until += 3_600_000;
        assert!(!trouble.is_fresh());
    }
}
