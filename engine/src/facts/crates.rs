//! What rustc takes from a folder in which it looks for crates: the names that begin like those of crates that it uses.
//!
//! It lists each of its search folders when it starts, and a folder of cargo changes while other crates are compiled there.
//! So all other names are left out.

use std::io;

use rustix::fd::AsFd;
use rustix::fs::{self, AtFlags, Dir};
use sha2::{Digest as _, Sha256};

use super::status::{Stamp, Status};
use crate::bytes::digest::Digest;
use crate::observe::crate_names::is_crate;

/// The files in a folder that may be crates.
pub struct Crates(Vec<(Vec<u8>, Status)>);

impl Crates {
    pub fn read(folder: impl AsFd) -> io::Result<Crates> {
        let folder = folder.as_fd();
        let mut crates = Vec::new();
        for item in Dir::read_from(folder)? {
            let item = item?;
            let name = item.file_name().to_bytes();
            if is_crate(name) {
                // What has gone since it was listed is not there.
                match fs::statat(folder, item.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(status) => crates.push((name.to_vec(), Status::from(status))),
                    Err(rustix::io::Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        crates.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Crates(crates))
    }

    /// The digest of the names that begin like this.
    pub fn digest(&self, beginnings: &[Vec<u8>]) -> Digest {
        let counting = self.counting(beginnings);
        let text: Vec<u8> = counting.flat_map(|(name, _)| [name, &b"\0"[..]].concat()).collect();
        Digest(Sha256::digest(&text).into())
    }

    fn counting<'a>(&'a self, beginnings: &'a [Vec<u8>]) -> impl Iterator<Item = &'a (Vec<u8>, Status)> {
        self.0.iter().filter(move |(name, _)| counts(name, beginnings))
    }

    /// Whether the folder lists now what was `listed` after a moment, as far as it counts and is none of the command's `own`
    /// results. The names are sorted.
    pub fn are_as_listed(&self, listed: &[Vec<u8>], beginnings: &[Vec<u8>], own: &[Vec<u8>], moment: Stamp) -> bool {
        let is_foreign = |name: &Vec<u8>| !own.contains(name);
        let mut before = listed
            .iter()
            .filter(|name| counts(name, beginnings) && is_foreign(name));
        let mut now = self.counting(beginnings).filter(|(name, _)| is_foreign(name));
        now.all(|(name, status)| before.next() == Some(name) && status.is_older(moment)) && before.next().is_none()
    }
}

fn counts(name: &[u8], beginnings: &[Vec<u8>]) -> bool {
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_alike_counts() {
        let folder = std::env::temp_dir().join(format!("crates-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let make = |name: &str| std::fs::write(folder.join(name), b"").unwrap();
        let read = || Crates::read(std::fs::File::open(&folder).unwrap()).unwrap();
        let beginnings = [b"liba".to_vec()];
        let are_same = |listed: &str, own: &[Vec<u8>]| {
            let listed: Vec<_> = listed.split(' ').map(|name| name.as_bytes().to_vec()).collect();
            read().are_as_listed(&listed, &beginnings, own, Stamp::now().plus_seconds(1))
        };
        make("liba.rlib");
        make("libb.rlib");
        let before = read().digest(&beginnings);
        assert!(are_same("liba.rlib libb.rlib", &[]) && are_same("liba.rlib", &[]));
        assert!(!are_same("libb.rlib", &[]) && !are_same("liba.rlib liba.rmeta", &[]));
        let long_ago = Stamp::now().plus_seconds(-60);
        assert!(!read().are_as_listed(&[b"liba.rlib".to_vec()], &beginnings, &[], long_ago));
        std::fs::remove_file(folder.join("libb.rlib")).unwrap();
        make("libc.rlib");
        assert_eq!(read().digest(&beginnings), before);
        make("liba-2.rmeta");
        assert_ne!(read().digest(&beginnings), before);
        let own = [b"liba-2.rmeta".to_vec()];
        assert!(are_same("liba.rlib", &own) && are_same("liba-2.rmeta liba.rlib", &own));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
