//! The present state of files and folders, and earlier results about them that are still valid.
//!
//! A `World` lives as long as the engine, and threads share it. It keeps the digests of files and the names in folders,
//! known by device, inode, size and both times. A file that was changed in the tick of the clock in which it was read, or
//! later, may change again without a new stamp, so it is not kept. A `View` is the world as one command finds it.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use memchr::memmem;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, CWD};
use rustix::io::Errno;

use super::compared_times::compares_times;
use super::crates::Crates;
use super::definitions::{digest_except, Unused};
use super::environment::Environment;
use super::exception::{DEFAULT_FOLDERS, SEARCHED};
use super::fact::Kind;
use super::file_view::{status_of_name, FileView, FolderNames};
use super::instructions::{self, Findings};
use super::listing::{Listing, Part};
use super::path::{split, tidy, trimmed, Path, Place};
use super::progress::Advancing;
use super::recent::Recent;
use super::status::{Stamp, Status};
use super::words::Vocabulary;
use crate::bytes::digest::Digest;
use crate::files::search;
use crate::observe::access::Bytes;
use crate::observe::known_programs::Family;

/// How much a world remembers: some 200 bytes per file, and eight per name in a folder.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    pub files: usize,
    pub folders: usize,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity {
            files: 1 << 18,
            folders: 1 << 13,
        }
    }
}

type Identity = (u64, u64);
/// Results about files, each valid as long as the file has this status.
type Results<T> = Recent<Identity, (Status, T)>;

pub struct World {
    digests: Results<Digest>,
    /// Whether files make compilers compare the times of other files.
    dated: Results<bool>,
    /// What programs and libraries can do by their own instructions.
    instructions: Results<Findings>,
    /// Whether programs have the marks of a family, for the family that was asked for last.
    marks: Results<(&'static Family, bool)>,
    folders: Results<Arc<Listing>>,
    /// Whether files hold names, for the names that were asked for last: as they are, and as parts of macros' names.
    naming: [Results<(Arc<[Bytes]>, bool)>; 2],
    vocabularies: Results<Arc<Vocabulary>>,
    /// The digests of headers without what nothing uses, for what was asked for last, and these folders.
    exceptions: Results<(Unused, Vec<Bytes>, Digest)>,
    /// Hashes of paths that were links when they were last looked at. This is only a hint.
    links: Recent<u64, ()>,
    hasher: RandomState,
}

/// The form in which a file may name a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    AsItIs,
    AsMacro,
}

/// File systems that stamp every change by this machine's clock, and compare names byte by byte. On others (the network's,
/// /proc, FUSE, FAT) nothing is remembered, and names are looked up one by one.
const TRUSTED: [u32; 6] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlay
    0xf2f5_2010, // f2fs
];
/// The flag of a folder for which `A` is `a`, from linux/fs.h.
const CASEFOLD: u32 = 0x4000_0000;
/// A folder that changes all the time, such as one of objects, would be read too often.
const QUIET_SECONDS: i64 = 2;
/// Compilers read no larger source.
const LONGEST_SOURCE: u64 = 1 << 30;
/// The words of a larger file are not kept, and its macros all count.
const LONGEST_HEADER: u64 = 16 << 20;
/// No program is larger.
const LARGEST_PROGRAM: u64 = 1 << 28;
/// How often a file may change while we read it.
const ATTEMPTS: usize = 3;
/// Non-blocking, because a file may have become a pipe meanwhile.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

fn known<T: Clone>(results: &Results<T>, status: &Status) -> Option<T> {
    let (known, result) = results.get(&(status.device, status.inode))?;
    (known == *status).then_some(result)
}

fn keep<T: Clone>(results: &Results<T>, status: &Status, result: T) {
    results.put((status.device, status.inode), (*status, result));
}

impl World {
    pub fn new(capacity: Capacity) -> World {
        World {
            digests: Recent::new(capacity.files),
            dated: Recent::new(capacity.files),
            instructions: Recent::new(capacity.folders),
            marks: Recent::new(capacity.folders),
            folders: Recent::new(capacity.folders),
            naming: [capacity.files, capacity.files].map(Recent::new),
            vocabularies: Recent::new(capacity.folders),
            exceptions: Recent::new(capacity.folders),
            links: Recent::new(capacity.folders),
            hasher: RandomState::new(),
        }
    }

    /// The status of the file to which the path leads. A path that was a link once is likely to be one still, so the status of
    /// the link itself is not read.
    fn status(&self, path: &[u8], files: &mut FileView) -> Result<Status, Errno> {
        let key = self.hasher.hash_one(path);
        if self.links.get(&key).is_some() {
            return files.status_behind(path);
        }
        if files.status_of_name(path)?.kind() == Kind::Link {
            self.links.put(key, ());
        }
        files.status(path)
    }

    /// The digest of a plain file with this status, together with the status that the content had.
    pub fn digest(&self, path: &[u8], status: &Status) -> io::Result<(Status, Digest)> {
        match known(&self.digests, status) {
            Some(digest) => Ok((*status, digest)),
            None => self.read_digest(path),
        }
    }

    /// The content of a plain file in an output's place, if it has this size, this mode, and no other name.
    pub fn digest_of_output(&self, path: &std::path::Path, size: u64, mode: u32) -> Option<Digest> {
        let path = path.as_os_str().as_bytes();
        let status = status_of_name(path).ok()?;
        let is_alike = status.size == size && status.mode & 0o7777 == mode && status.links == 1;
        if !is_alike || !status.kind().is_plain() {
            return None;
        }
        let (read, digest) = self.digest(path, &status).ok()?;
        (read.inode == status.inode && read.device == status.device).then_some(digest)
    }

    fn read_digest(&self, path: &[u8]) -> io::Result<(Status, Digest)> {
        for _ in 0..ATTEMPTS {
            let file = File::from(fs::open(path, READ, Mode::empty())?);
            let start = Stamp::now();
            let before = Status::from(fs::fstat(&file)?);
            if !before.kind().is_plain() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let digest = Digest::of_reader(Advancing(&file))?;
            let after = Status::from(fs::fstat(&file)?);
            if before == after {
                if before.is_older(start) && is_trusted(&file) {
                    keep(&self.digests, &before, digest);
                }
                return Ok((before, digest));
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// The abilities that a program or library with this status has by its own instructions. None if it cannot be read.
    pub fn instructions(&self, path: &[u8], status: &Status) -> Option<Findings> {
        known(&self.instructions, status).or_else(|| {
            if status.size > LARGEST_PROGRAM {
                return None;
            }
            let found = self.read_whole(&self.instructions, path, status, instructions::find);
            found.ok().flatten()
        })
    }

    /// Whether the file of a program with this status has the marks of a family. If it cannot be read, it has none.
    pub fn is_marked(&self, path: &[u8], status: &Status, family: &'static Family) -> bool {
        match known(&self.marks, status) {
            Some((asked, is_marked)) if asked == family => return is_marked,
            _ if family.marks.is_empty() || status.size > LARGEST_PROGRAM => return false,
            _ => {}
        }
        let find = |bytes: &[u8]| {
            let has = |mark: &&str| memmem::find(bytes, mark.as_bytes()).is_some();
            (family, family.marks.iter().any(has))
        };
        let found = self.read_whole(&self.marks, path, status, find);
        matches!(found, Ok(Some((_, true))))
    }

    /// Whether a plain file with this status makes a compiler compare the times of files. If it cannot be read, it does.
    pub fn compares_times(&self, path: &[u8], status: &Status) -> bool {
        known(&self.dated, status).unwrap_or_else(|| {
            if status.size > LONGEST_SOURCE {
                return false;
            }
            let found = self.read_whole(&self.dated, path, status, compares_times);
            found.ok().flatten().unwrap_or(true)
        })
    }

    /// Whether a file with this status holds one of these names.
    fn names_any(&self, path: &[u8], status: &Status, form: Form, names: &Arc<[Bytes]>) -> io::Result<bool> {
        let results = &self.naming[form as usize];
        match known(results, status) {
            Some((asked, holds)) if asked == *names => return Ok(holds),
            _ => {}
        }
        let file = File::from(fs::open(path, READ, Mode::empty())?);
        let start = Stamp::now();
        let holds = search::holds_any(Advancing(&file), names)?;
        if Status::from(fs::fstat(&file)?) == *status && status.is_older(start) && is_trusted(&file) {
            keep(results, status, (names.clone(), holds));
        }
        Ok(holds)
    }

    /// The words of a source with this status. None if it cannot be read.
    fn vocabulary(&self, path: &[u8], status: &Status) -> Option<Arc<Vocabulary>> {
        let find = |text: &[u8]| Arc::new(Vocabulary::of(text));
        known(&self.vocabularies, status).or_else(|| {
            let found = self.read_whole(&self.vocabularies, path, status, find);
            found.ok().flatten()
        })
    }

    fn digest_except(
        &self,
        path: &[u8],
        status: &Status,
        unused: &Unused,
        folders: &[Bytes],
    ) -> io::Result<Option<Digest>> {
        match known(&self.exceptions, status) {
            Some((asked, of, digest)) if asked == *unused && of == folders => return Ok(Some(digest)),
            _ => {}
        }
        let find = |text: &[u8]| (unused.clone(), folders.to_vec(), digest_except(text, unused, folders));
        let found = self.read_whole(&self.exceptions, path, status, find)?;
        Ok(found.map(|(_, _, digest)| digest))
    }

    /// Reads a plain file with this status, and keeps the result of `find` if a later change of the file would show. None if
    /// the file has another status by now.
    fn read_whole<T: Clone>(
        &self,
        results: &Results<T>,
        path: &[u8],
        status: &Status,
        find: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<Option<T>> {
        let file = File::from(fs::open(path, READ, Mode::empty())?);
        let start = Stamp::now();
        let mut bytes = Vec::with_capacity(status.size as usize + 1);
        io::Read::read_to_end(&mut Advancing(&file), &mut bytes)?;
        if Status::from(fs::fstat(&file)?) != *status {
            return Ok(None);
        }
        let found = find(&bytes);
        if status.is_older(start) && is_trusted(&file) {
            keep(results, status, found.clone());
        }
        Ok(Some(found))
    }

    /// A folder's names, if its status shows each change: names that were kept, or read now.
    pub fn names(&self, path: &[u8], status: &Status) -> Option<Arc<Listing>> {
        match known(&self.folders, status) {
            Some(listing) => Some(listing),
            _ if !status.is_older(Stamp::now().plus_seconds(-QUIET_SECONDS)) => None,
            _ => self.read_names(path).ok().flatten(),
        }
    }

    fn read_names(&self, path: &[u8]) -> io::Result<Option<Arc<Listing>>> {
        let (folder, start) = (open_folder(path)?, Stamp::now());
        let before = Status::from(fs::fstat(&folder)?);
        // In a folder that may not be searched, nothing can be said about missing names.
        let is_searched = fs::accessat(CWD, path, fs::Access::EXEC_OK, AtFlags::empty()).is_ok();
        if !before.is_older(start) || !is_searched || !is_trusted(&folder) || folds_case(&folder) {
            return Ok(None);
        }
        let listing = Arc::new(Listing::read(&folder)?);
        if before != Status::from(fs::fstat(&folder)?) {
            return Ok(None);
        }
        keep(&self.folders, &before, listing.clone());
        Ok(Some(listing))
    }

    /// How many files and folders are remembered.
    pub fn size(&self) -> (usize, usize) {
        (self.digests.len(), self.folders.len())
    }
}

fn open_folder(path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    Ok(fs::open(path, flags, Mode::empty())?)
}

#[allow(clippy::unnecessary_cast)] // another size elsewhere
fn is_trusted(file: impl AsFd) -> bool {
    fs::fstatfs(file).is_ok_and(|found| TRUSTED.contains(&(found.f_type as u32)))
}

#[allow(clippy::unnecessary_cast)] // another size elsewhere
fn is_trusted_at(path: &[u8]) -> bool {
    fs::statfs(path).is_ok_and(|found| TRUSTED.contains(&(found.f_type as u32)))
}

fn folds_case(folder: impl AsFd) -> bool {
    fs::ioctl_getflags(folder).is_ok_and(|flags| flags.bits() & CASEFOLD != 0)
}

/// The world at one moment, as one command finds it.
pub struct View<'w> {
    world: &'w World,
    files: FileView,
    pub place: &'w Place,
    pub environment: &'w Environment,
    /// The names of the folder that was asked for last. Absences are grouped by folder.
    last: (Vec<u8>, FolderNames),
    /// Folders in the order in which an entry names them.
    numbers: Vec<Identity>,
    /// Devices, and whether their file systems are trusted.
    devices: Vec<(u64, bool)>,
    name: Vec<u8>,
}

impl<'w> View<'w> {
    pub fn new(world: &'w World, place: &'w Place, environment: &'w Environment) -> View<'w> {
        View::at(FileView::begin(), world, place, environment)
    }

    pub fn at(files: FileView, world: &'w World, place: &'w Place, environment: &'w Environment) -> View<'w> {
        View {
            world,
            files,
            place,
            environment,
            last: (Vec::new(), FolderNames::Unknown),
            numbers: Vec::new(),
            devices: Vec::new(),
            name: Vec::new(),
        }
    }

    /// The files that were seen, for the next request of those that had arrived when the view began.
    pub fn end(self) -> FileView {
        self.files
    }

    /// The status of what the path leads to.
    pub fn status(&mut self, path: &Path) -> Result<Status, Errno> {
        self.place.write(path, &mut self.name);
        self.files.status(&self.name)
    }

    pub fn status_of_name(&mut self, path: &Path) -> Result<Status, Errno> {
        self.place.write(path, &mut self.name);
        self.files.status_of_name(&self.name)
    }

    /// One of these two.
    pub fn status_at(&mut self, path: &Path, follows: bool) -> Result<Status, Errno> {
        if follows {
            self.status(path)
        } else {
            self.status_of_name(path)
        }
    }

    /// The digest of a plain file's content.
    pub fn digest(&mut self, path: &Path) -> Result<(Status, Digest), Errno> {
        self.place.write(path, &mut self.name);
        let status = self.world.status(&self.name, &mut self.files)?;
        if !status.kind().is_plain() {
            return Err(Errno::INVAL);
        }
        let found = self.world.digest(&self.name, &status);
        found.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    }

    /// The same for a file whose status is known.
    pub fn digest_of(&self, name: &[u8], status: &Status) -> io::Result<(Status, Digest)> {
        self.world.digest(name, status)
    }

    /// The digest of a header without what nothing uses.
    pub fn digest_except(&mut self, path: &Path, unused: &Unused) -> Result<Digest, Errno> {
        self.place.write(path, &mut self.name);
        let status = self.world.status(&self.name, &mut self.files)?;
        if !status.kind().is_plain() || status.size > LONGEST_HEADER {
            return Err(Errno::INVAL);
        }
        let found = self
            .world
            .digest_except(&self.name, &status, unused, self.place.known_folders());
        let found = found.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        found.ok_or(Errno::AGAIN)
    }

    /// The content of a source, unless it is very large, or cannot be read.
    pub fn content(&mut self, path: &Path) -> Option<Bytes> {
        self.place.write(path, &mut self.name);
        let status = self.world.status(&self.name, &mut self.files).ok()?;
        let is_source = status.kind().is_plain() && status.size <= LONGEST_HEADER;
        let read = || -> io::Result<Bytes> {
            let mut bytes = Bytes::new();
            let file = File::from(fs::open(self.name.as_slice(), READ, Mode::empty())?);
            io::Read::read_to_end(&mut Advancing(&file), &mut bytes)?;
            Ok(bytes)
        };
        is_source.then(|| read().ok())?
    }

    /// The words of a source, unless it is very large, or cannot be read.
    pub fn vocabulary(&mut self, path: &Path) -> Option<Arc<Vocabulary>> {
        self.place.write(path, &mut self.name);
        let status = self.world.status(&self.name, &mut self.files).ok()?;
        let is_source = status.kind().is_plain() && status.size <= LONGEST_HEADER;
        is_source.then(|| self.world.vocabulary(&self.name, &status))?
    }

    /// The first program of this name in the folders of `PATH`.
    pub fn along(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let folders = searched_folders(self.environment);
        let mut paths = folders.into_iter().map(|folder| [&folder[..], b"/", name].concat());
        paths.find(|given| {
            let path = self.place.path(&Path::here(), given);
            let is_absent = self.lacks(&path, true).is_ok();
            !is_absent && self.status(&path).is_ok_and(|status| status.kind() == Kind::Program)
        })
    }

    /// Whether what a path leads to holds one of these names. If it cannot be read, it does. A folder names nothing.
    pub fn names_any(&mut self, path: &Path, form: Form, names: &Arc<[Bytes]>) -> bool {
        self.place.write(path, &mut self.name);
        match self.world.status(&self.name, &mut self.files) {
            Ok(status) if status.kind() == Kind::Folder => false,
            Ok(status) => self.world.names_any(&self.name, &status, form, names).unwrap_or(true),
            Err(_) => true,
        }
    }

    /// Whether a file that was read makes a compiler compare the times of files.
    pub fn compares_times(&mut self, path: &Path) -> bool {
        self.place.write(path, &mut self.name);
        match self.world.status(&self.name, &mut self.files) {
            Ok(status) if status.kind().is_plain() => self.world.compares_times(&self.name, &status),
            _ => false,
        }
    }

    /// The abilities that a program or library has by its own instructions.
    pub fn instructions(&mut self, path: &Path) -> Option<Findings> {
        self.place.write(path, &mut self.name);
        let status = self.world.status(&self.name, &mut self.files).ok()?;
        status
            .kind()
            .is_plain()
            .then(|| self.world.instructions(&self.name, &status))?
    }

    /// Whether a program's file has the marks of a family.
    pub fn is_marked(&mut self, program: &[u8], family: &'static Family) -> bool {
        match self.files.status(program) {
            Ok(status) if status.kind().is_plain() => self.world.is_marked(program, &status, family),
            _ => false,
        }
    }

    /// Whether each change of a file with this status changes the status.
    pub fn is_stamped(&mut self, name: &[u8], status: &Status) -> bool {
        if let Some((_, is_trusted)) = self.devices.iter().find(|(device, _)| *device == status.device) {
            return *is_trusted;
        }
        let is_trusted = is_trusted_at(name);
        self.devices.push((status.device, is_trusted));
        is_trusted
    }

    /// Whether a list of the folder, made by a client, would show a name that is missing now.
    pub fn shows_lack(&mut self, folder: &[u8], name: &[u8]) -> bool {
        match self.files.folder_names(folder, self.world) {
            FolderNames::Missing => true,
            FolderNames::Listed(listing) => listing.lacks(name),
            FolderNames::Unknown => open_folder(folder).is_ok_and(|found| {
                let status = fs::statat(&found, name, AtFlags::SYMLINK_NOFOLLOW);
                matches!(status, Err(Errno::NOENT)) && is_trusted(&found) && !folds_case(&found)
            }),
        }
    }

    /// Whether nothing is there; if links are not followed, not even a link that leads nowhere.
    pub fn lacks(&mut self, path: &Path, follows: bool) -> Result<(), Kind> {
        self.place.write(path, &mut self.name);
        let slashes = self.name.iter().rev().take_while(|b| **b == b'/').count();
        // Where nothing is, no folder is.
        let bare = &self.name[..self.name.len() - slashes];
        if let Some((folder, name)) = split(bare) {
            if self.last.0 != folder {
                let folder_names = self.files.folder_names(folder, self.world);
                self.last.0.clear();
                self.last.0.extend_from_slice(folder);
                self.last.1 = folder_names;
            }
            match &self.last.1 {
                FolderNames::Missing => return Ok(()),
                FolderNames::Listed(listing) if listing.lacks(name) => return Ok(()),
                _ => {}
            }
        }
        let found = if follows {
            self.files.status(&self.name)
        } else {
            self.files.status_of_name(&self.name)
        };
        match found {
            Err(Errno::NOENT) => Ok(()),
            Err(_) => Err(Kind::Other),
            Ok(status) => Err(status.kind()),
        }
    }

    /// A folder's names and kinds, read now or known to be unchanged.
    pub fn listing(&mut self, path: &Path) -> Result<Arc<Listing>, Errno> {
        let status = self.status(path)?;
        if let Some(listing) = self.world.names(&self.name, &status) {
            return Ok(listing);
        }
        let read = open_folder(&self.name).and_then(Listing::read);
        read.map(Arc::new)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// The same without some names.
    pub fn listing_without(&mut self, path: &Path, names: &[Vec<u8>]) -> Result<Part, Errno> {
        self.place.write(path, &mut self.name);
        let read = open_folder(&self.name).and_then(|folder| Part::read(folder, names));
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// The crates in a folder.
    pub fn crates(&mut self, path: &Path) -> Result<Crates, Errno> {
        self.place.write(path, &mut self.name);
        let read = open_folder(&self.name).and_then(Crates::read);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    pub fn target(&mut self, path: &Path) -> Result<Vec<u8>, Errno> {
        self.place.write(path, &mut self.name);
        self.files.link(&self.name)
    }

    pub fn resolved(&mut self, path: &Path) -> Result<Vec<u8>, Errno> {
        self.place.write(path, &mut self.name);
        self.files.resolved(&self.name)
    }

    /// The name of a folder without links, if it is there.
    pub fn real(&mut self, folder: &[u8]) -> Option<Vec<u8>> {
        self.files.real(folder)
    }

    /// The error when the file is opened for reading, if there is one.
    pub fn refusal(&mut self, path: &Path, opens: bool) -> Option<Errno> {
        self.place.write(path, &mut self.name);
        if opens {
            fs::open(self.name.as_slice(), READ, Mode::empty()).err()
        } else {
            fs::stat(self.name.as_slice()).err()
        }
    }

    /// Forgets the folders of the entry before.
    pub fn begin(&mut self) {
        self.numbers.clear();
    }

    /// The number of a folder, the same by whatever path it was reached. Folders are numbered in order of appearance.
    pub fn number(&mut self, status: &Status) -> u32 {
        let identity = (status.device, status.inode);
        let known = self.numbers.iter().position(|known| *known == identity);
        let number = known.unwrap_or_else(|| {
            self.numbers.push(identity);
            self.numbers.len() - 1
        });
        number as u32
    }
}

/// The folders of `PATH`, in its order.
pub fn searched_folders(environment: &Environment) -> Vec<Vec<u8>> {
    let along = environment.value(SEARCHED).unwrap_or(DEFAULT_FOLDERS);
    let trimmed = |folder: &[u8]| trimmed(&tidy(folder)).to_vec();
    along.split(|byte| *byte == b':').map(trimmed).collect()
}
