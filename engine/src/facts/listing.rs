//! The names in a folder, in little memory: enough to say that a name is not among them, and whether they are still the
//! same.

use std::io;

use rustix::fd::AsFd;
use rustix::fs::{self, AtFlags, Dir, FileType};
use sha2::{Digest as _, Sha256};

use super::fact::Kind;
use super::status::Status;
use crate::bytes::digest::Digest;

pub struct Listing {
    /// Hashes of the names, sorted. Each has eight bytes, where a name would take forty.
    marks: Box<[u64]>,
    /// The digest of the sorted names with their kinds.
    pub digest: Digest,
    /// The same in the order in which the file system lists them.
    pub order: Digest,
}

/// The listing of a folder without some of its names.
pub struct Part {
    pub listing: Listing,
    /// The digest of the names in the order in which the file system lists them, as `engine/park/watch.c` makes it.
    pub names: u64,
}

impl Part {
    pub fn read(folder: impl AsFd, without: &[Vec<u8>]) -> io::Result<Part> {
        let mut names = Listing::read_names(folder)?;
        names.retain(|(name, _)| !without.contains(name));
        let text: Vec<u8> = names.iter().flat_map(|(name, _)| [name, &b"\0"[..]].concat()).collect();
        Ok(Part {
            names: mark(&text),
            listing: Listing::of(names),
        })
    }
}

impl Listing {
    pub fn read(folder: impl AsFd) -> io::Result<Listing> {
        Ok(Listing::of(Listing::read_names(folder)?))
    }

    fn read_names(folder: impl AsFd) -> io::Result<Vec<(Vec<u8>, Kind)>> {
        let folder = folder.as_fd();
        let mut names = Vec::new();
        for item in Dir::read_from(folder)? {
            let item = item?;
            let name = item.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                let kind = match item.file_type() {
                    FileType::RegularFile => Kind::File,
                    FileType::Directory => Kind::Folder,
                    FileType::Symlink => Kind::Link,
                    FileType::Unknown => {
                        plain(Status::from(fs::statat(folder, item.file_name(), AtFlags::SYMLINK_NOFOLLOW)?).kind())
                    }
                    _ => Kind::Other,
                };
                names.push((name.to_vec(), kind));
            }
        }
        Ok(names)
    }

    fn of(mut names: Vec<(Vec<u8>, Kind)>) -> Listing {
        let order = digest(&names);
        names.sort_unstable();
        let mut marks: Box<[u64]> = names.iter().map(|(name, _)| mark(name)).collect();
        marks.sort_unstable();
        Listing {
            marks,
            digest: digest(&names),
            order,
        }
    }

    pub fn told(&self, in_order: bool) -> Digest {
        if in_order {
            self.order
        } else {
            self.digest
        }
    }

    /// Whether a name is surely not there. If two names have the same hash, this is not sure.
    pub fn lacks(&self, name: &[u8]) -> bool {
        self.marks.binary_search(&mark(name)).is_err()
    }

    pub fn len(&self) -> usize {
        self.marks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
}

fn digest(names: &[(Vec<u8>, Kind)]) -> Digest {
    let mut text = Vec::new();
    for (name, kind) in names {
        text.push(*kind as u8);
        text.extend_from_slice(name);
        text.push(0);
    }
    // Not BLAKE3, because a client computes this digest itself.
    Digest(Sha256::digest(&text).into())
}

/// A listing does not distinguish programs from other files.
fn plain(kind: Kind) -> Kind {
    match kind {
        Kind::Program => Kind::File,
        kind => kind,
    }
}

/// FNV-1a, which is quick for short names. Two names with the same hash only cost a `stat`.
fn mark(name: &[u8]) -> u64 {
    let step = |mark: u64, byte: &u8| (mark ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[(&str, Kind)]) -> Listing {
        Listing::of(
            names
                .iter()
                .map(|(name, kind)| (name.as_bytes().to_vec(), *kind))
                .collect(),
        )
    }

    #[test]
    fn a_listing_lacks_what_is_not_in_it() {
        let listing = listing(&[("b", Kind::File), ("a", Kind::Folder)]);
        assert!(!listing.lacks(b"a") && !listing.lacks(b"b"));
        assert!(listing.lacks(b"c") && listing.lacks(b"A") && listing.lacks(b""));
    }

    #[test]
    fn names_and_kinds_make_the_digest_and_their_order_does_not() {
        let one = listing(&[("b", Kind::File), ("a", Kind::Folder)]).digest;
        assert_eq!(one, listing(&[("a", Kind::Folder), ("b", Kind::File)]).digest);
        assert_ne!(one, listing(&[("a", Kind::Folder), ("b", Kind::Link)]).digest);
        assert_ne!(one, listing(&[("a", Kind::Folder)]).digest);
    }
}
