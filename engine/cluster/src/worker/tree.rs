//! The input root of a command: the files, folders and links that its digest stands for, each by its path.
//!
//! A cluster's contents are anybody's bytes. So each name is checked, and so is how many there are and how deep they lie.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use prost::Message;

use super::store::Wanted;
use crate::connection::Fault;
use crate::contents::Contents;
use crate::digests::Digest;
use crate::reapi::{self, Directory};

/// The limits for one input root.
const MOST_NODES: usize = 1 << 20;
const MOST_DEPTH: usize = 256;
const MOST_BYTES: u64 = 256 << 20;
/// The longest path, and the longest target of a link: the system's own limit.
const LONGEST: usize = 4096;
/// How many folders are kept from one command to the next.
const KEPT: usize = 1 << 14;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Folder,
    File(Wanted),
    Link { target: String },
}

/// What is at each path. Paths are relative to the root, and a folder comes before what is in it.
pub type Tree = BTreeMap<String, Node>;

/// All files of a tree.
pub fn files(tree: &Tree) -> Vec<Wanted> {
    let file = |node: &Node| match node {
        Node::File(wanted) => Some(*wanted),
        _ => None,
    };
    tree.values().filter_map(file).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// These are not in the cluster, and it is told so.
    Missing(Vec<Digest>),
    /// It is no input root: bytes that are no folder, an impossible name, too much of it.
    Invalid(String),
    Fault(Fault),
}

impl From<Fault> for Unread {
    fn from(fault: Fault) -> Unread {
        Unread::Fault(fault)
    }
}

/// Reads input roots, and keeps their folders for the next one.
pub struct Trees {
    contents: Contents,
    known: Mutex<LruCache<Digest, Arc<Directory>>>,
}

impl Trees {
    pub fn new(contents: &Contents) -> Trees {
        let kept = NonZeroUsize::new(KEPT).unwrap_or(NonZeroUsize::MIN);
        Trees {
            contents: contents.clone(),
            known: Mutex::new(LruCache::new(kept)),
        }
    }

    pub async fn read(&self, root: &Digest) -> Result<Tree, Unread> {
        let folders = self.folders(root).await?;
        lay_out(root, &folders)
    }

    /// All folders below the root, level by level.
    async fn folders(&self, root: &Digest) -> Result<HashMap<Digest, Arc<Directory>>, Unread> {
        let mut folders: HashMap<Digest, Arc<Directory>> = HashMap::new();
        let mut level = vec![*root];
        let mut left = MOST_BYTES;
        let mut depth = 0;
        while !level.is_empty() {
            depth += 1;
            if depth > MOST_DEPTH {
                return Err(Unread::Invalid("its folders lie too deep".to_owned()));
            }
            let read = self.level(&level, left).await?;
            left = left.saturating_sub(level.iter().map(|digest| digest.size).sum());
            let mut next = Vec::new();
            for (digest, folder) in &read {
                for below in &folder.directories {
                    next.push(digest_of(below.digest.as_ref())?);
                }
                folders.insert(*digest, folder.clone());
            }
            next.sort_unstable();
            next.dedup();
            next.retain(|digest| !folders.contains_key(digest));
            if folders.len() + next.len() > MOST_NODES {
                return Err(Unread::Invalid("it has too many folders".to_owned()));
            }
            level = next;
        }
        Ok(folders)
    }

    async fn level(&self, wanted: &[Digest], most: u64) -> Result<Vec<(Digest, Arc<Directory>)>, Unread> {
        let mut read = Vec::with_capacity(wanted.len());
        let mut unknown = Vec::new();
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            for digest in wanted {
                match known.get(digest) {
                    Some(folder) => read.push((*digest, folder.clone())),
                    None => unknown.push(*digest),
                }
            }
        }
        if unknown.is_empty() {
            return Ok(read);
        }
        let mut came = self.contents.read_all(&unknown, most).await?;
        let missing: Vec<Digest> = unknown
            .iter()
            .filter(|digest| !came.contains_key(digest))
            .copied()
            .collect();
        if !missing.is_empty() {
            return Err(Unread::Missing(missing));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for digest in unknown {
            let bytes = came.remove(&digest).unwrap_or_default();
            let folder = Directory::decode(bytes).map_err(|_| Unread::Invalid("a folder of it is none".to_owned()))?;
            let folder = Arc::new(folder);
            known.put(digest, folder.clone());
            read.push((digest, folder));
        }
        Ok(read)
    }
}

fn digest_of(message: Option<&reapi::Digest>) -> Result<Digest, Unread> {
    let digest = message.and_then(Digest::from_message);
    digest.ok_or_else(|| Unread::Invalid("a digest in it is none".to_owned()))
}

/// Each node by its path. A folder may stand in many places.
fn lay_out(root: &Digest, folders: &HashMap<Digest, Arc<Directory>>) -> Result<Tree, Unread> {
    let mut tree = Tree::new();
    let mut left = vec![(String::new(), *root, 0)];
    while let Some((path, digest, depth)) = left.pop() {
        let Some(folder) = folders.get(&digest) else {
            return Err(Unread::Missing(vec![digest]));
        };
        if depth > MOST_DEPTH {
            return Err(Unread::Invalid("its folders lie too deep".to_owned()));
        }
        let mut add = |name: &str, node: Node| {
            let path = below(&path, name)?;
            if tree.len() >= MOST_NODES {
                return Err(Unread::Invalid("it has too many files".to_owned()));
            }
            match tree.insert(path.clone(), node) {
                None => Ok(path),
                Some(_) => Err(Unread::Invalid(format!("it has {path} twice"))),
            }
        };
        for file in &folder.files {
            let wanted = Wanted {
                digest: digest_of(file.digest.as_ref())?,
                is_program: file.is_executable,
            };
            add(&file.name, Node::File(wanted))?;
        }
        for link in &folder.symlinks {
            if link.target.is_empty() || link.target.len() > LONGEST || link.target.contains('\0') {
                return Err(Unread::Invalid(format!("its link {} leads to no path", link.name)));
            }
            let target = link.target.clone();
            add(&link.name, Node::Link { target })?;
        }
        for inner in &folder.directories {
            let place = add(&inner.name, Node::Folder)?;
            left.push((place, digest_of(inner.digest.as_ref())?, depth + 1));
        }
    }
    Ok(tree)
}

/// These folders without those that are in another one of them.
pub fn topmost(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort();
    // What is in a folder comes right after it.
    folders.dedup_by(|next, last| next.starts_with(last));
    folders
}

/// Adds a folder and those around it. The error is the path of a file that is in the way.
pub fn add_folder(tree: &mut Tree, path: &str) -> Result<(), String> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for end in ends.filter(|end| *end > 0) {
        match tree.entry(path[..end].to_owned()).or_insert(Node::Folder) {
            Node::Folder => {}
            // It may lead to a folder.
            Node::Link { .. } => return Ok(()),
            Node::File(_) => return Err(path[..end].to_owned()),
        }
    }
    Ok(())
}

/// The path of a name in a folder. The name must be one that a folder can have.
fn below(folder: &str, name: &str) -> Result<String, Unread> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Unread::Invalid(format!("no file is called {name:?}")));
    }
    let path = match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    };
    match path.len() <= LONGEST {
        true => Ok(path),
        false => Err(Unread::Invalid("a path in it is too long".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reapi::{DirectoryNode, FileNode, SymlinkNode};

    fn file(name: &str) -> FileNode {
        FileNode {
            name: name.to_owned(),
            digest: Some(Digest::of(name.as_bytes()).to_message()),
            ..FileNode::default()
        }
    }

    fn folder(name: &str, of: &Directory) -> DirectoryNode {
        DirectoryNode {
            name: name.to_owned(),
            digest: Some(Digest::of_message(of).0.to_message()),
        }
    }

    fn laid_out(all: &[&Directory]) -> Result<Tree, Unread> {
        let known = all
            .iter()
            .map(|folder| (Digest::of_message(*folder).0, Arc::new((*folder).clone())));
        lay_out(&Digest::of_message(all[0]).0, &known.collect())
    }

    #[test]
    fn a_folder_may_stand_in_two_places() {
        let inner = Directory {
            files: vec![file("a.h")],
            ..Directory::default()
        };
        let root = Directory {
            directories: vec![folder("one", &inner), folder("two", &inner)],
            ..Directory::default()
        };
        let tree = laid_out(&[&root, &inner]).unwrap();
        let paths: Vec<_> = tree.keys().map(String::as_str).collect();
        assert_eq!(paths, ["one", "one/a.h", "two", "two/a.h"]);
        assert_eq!(tree["one"], Node::Folder);
        let missing = laid_out(&[&root]).unwrap_err();
        assert_eq!(missing, Unread::Missing(vec![Digest::of_message(&inner).0]));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", ".", "..", "a/b", "/etc", "a\0b"] {
            let root = Directory {
                files: vec![file(name)],
                ..Directory::default()
            };
            assert!(matches!(laid_out(&[&root]), Err(Unread::Invalid(_))), "{name:?}");
        }
    }

    #[test]
    fn a_name_that_comes_twice_is_refused() {
        let root = Directory {
            files: vec![file("a")],
            symlinks: vec![SymlinkNode {
                name: "a".to_owned(),
                target: "b".to_owned(),
                ..SymlinkNode::default()
            }],
            ..Directory::default()
        };
        assert_eq!(laid_out(&[&root]), Err(Unread::Invalid("it has a twice".to_owned())));
    }

    #[test]
    fn folders_that_double_at_every_level_are_refused() {
        let mut all = vec![Directory::default()];
        for _ in 0..30 {
            let last = &all[all.len() - 1];
            all.push(Directory {
                directories: vec![folder("a", last), folder("b", last)],
                ..Directory::default()
            });
        }
        let all: Vec<&Directory> = all.iter().rev().collect();
        assert!(matches!(laid_out(&all), Err(Unread::Invalid(_))));
    }
}
