//! What a command has made: it is read from its slot, and uploaded.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{openat2, readlinkat, statat, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, CWD};
use sha2::{Digest as _, Sha256};

use crate::connection::Fault;
use crate::contents::{Contents, Source};
use crate::digests::Digest;
use crate::reapi::{
    ActionResult, Command, Directory, DirectoryNode, FileNode, OutputDirectory, OutputFile, OutputSymlink, SymlinkNode,
    Tree,
};

/// Texts up to this size come with the result itself.
const INLINE: u64 = 16 << 10;
/// The limits for the outputs of one command.
const MOST_BYTES: u64 = 4 << 30;
const MOST_NODES: usize = 1 << 18;
const MOST_DEPTH: usize = 256;
/// A larger file is copied on the disk before it is uploaded, and not held in memory.
const LARGE: u64 = 4 << 20;

/// Why outputs cannot be taken.
#[derive(Debug)]
pub enum Untaken {
    /// The command is at fault.
    Invalid(String),
    Fault(Fault),
}

impl From<std::io::Error> for Untaken {
    fn from(error: std::io::Error) -> Untaken {
        Untaken::Fault(Fault::Failed(format!("read an output: {error}")))
    }
}

impl From<rustix::io::Errno> for Untaken {
    fn from(error: rustix::io::Errno) -> Untaken {
        std::io::Error::from(error).into()
    }
}

/// Outputs that were read, and what is to be uploaded of them.
#[derive(Default)]
pub struct Taken {
    pub result: ActionResult,
    pub blobs: Vec<(Digest, Source)>,
    bytes: u64,
    nodes: usize,
}

/// Reads the outputs that a command declares, below its working directory. `aside` is a folder for copies of large ones.
#[allow(deprecated)] // older clients use the older names of outputs
pub fn take(root: &Path, command: &Command, aside: &Path) -> Result<Taken, Untaken> {
    let mut taken = Taken::default();
    let folder = open(CWD, root, OFlags::PATH | OFlags::DIRECTORY)?;
    let named = |names: &[String]| names.to_vec();
    let all = match command.output_paths.is_empty() {
        false => named(&command.output_paths),
        true => [named(&command.output_files), named(&command.output_directories)].concat(),
    };
    for name in all {
        let path = plain(&name)?;
        let working = plain(&command.working_directory)?;
        taken.output(folder.as_fd(), &working.join(path), name, aside)?;
    }
    Ok(taken)
}

/// Reads what the command has printed.
pub fn take_texts(taken: &mut Taken, stdout: &Path, stderr: &Path) -> Result<(), Untaken> {
    (taken.result.stdout_raw, taken.result.stdout_digest) = taken.text(stdout)?;
    (taken.result.stderr_raw, taken.result.stderr_digest) = taken.text(stderr)?;
    Ok(())
}

impl Taken {
    /// A short text itself. A long one is uploaded, and is told by its digest.
    fn text(&mut self, path: &Path) -> Result<(Vec<u8>, Option<crate::reapi::Digest>), Untaken> {
        let file = File::open(path)?;
        if file.metadata()?.len() <= INLINE {
            let mut bytes = Vec::new();
            file.take(INLINE).read_to_end(&mut bytes)?;
            return Ok((bytes, None));
        }
        let digest = digest_of(&file)?;
        self.blobs.push((digest, Source::File(path.to_owned())));
        Ok((Vec::new(), Some(digest.to_message())))
    }

    pub async fn upload(&mut self, contents: &Contents) -> Result<(), Fault> {
        let blobs = std::mem::take(&mut self.blobs);
        contents.write_all(blobs, true).await.map(drop)
    }

    /// Adds a file with this text.
    pub fn add_text(&mut self, path: &str, text: &str) {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        let digest = Digest::of(&bytes);
        self.blobs.push((digest, Source::Bytes(bytes)));
        self.result.output_files.push(OutputFile {
            path: path.to_owned(),
            digest: Some(digest.to_message()),
            ..OutputFile::default()
        });
    }

    fn output(&mut self, root: BorrowedFd<'_>, path: &Path, name: String, aside: &Path) -> Result<(), Untaken> {
        let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else {
            // The working directory itself is an output.
            let opened = open(root, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY)?;
            return self.folder_output(opened, name, aside);
        };
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let folder = match open(root, parent, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            // It was not made.
            Err(_) => return Ok(()),
        };
        let Ok(found) = statat(&folder, last, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(());
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let opened = open(folder.as_fd(), Path::new(last), OFlags::RDONLY | OFlags::DIRECTORY)?;
                self.folder_output(opened, name, aside)
            }
            FileType::Symlink => {
                let target = text(readlinkat(&folder, last, Vec::new())?.to_bytes())?;
                self.result.output_symlinks.push(OutputSymlink {
                    path: name,
                    target,
                    ..OutputSymlink::default()
                });
                Ok(())
            }
            FileType::RegularFile => {
                let (digest, is_executable) = self.file(folder.as_fd(), Path::new(last), aside)?;
                self.result.output_files.push(OutputFile {
                    path: name,
                    digest: Some(digest.to_message()),
                    is_executable,
                    ..OutputFile::default()
                });
                Ok(())
            }
            _ => Err(Untaken::Invalid(format!("{name} is no file and no folder"))),
        }
    }

    fn folder_output(&mut self, folder: OwnedFd, path: String, aside: &Path) -> Result<(), Untaken> {
        let mut children = Vec::new();
        let root = self.folder(folder, 0, aside, &mut children)?;
        let (root_digest, root_bytes) = Digest::of_message(&root);
        let tree = Tree {
            root: Some(root),
            children,
        };
        let (digest, bytes) = Digest::of_message(&tree);
        self.blobs.push((digest, Source::Bytes(bytes)));
        self.blobs.push((root_digest, Source::Bytes(root_bytes)));
        self.result.output_directories.push(OutputDirectory {
            path,
            tree_digest: Some(digest.to_message()),
            ..OutputDirectory::default()
        });
        Ok(())
    }

    fn folder(
        &mut self,
        folder: OwnedFd,
        depth: usize,
        aside: &Path,
        children: &mut Vec<Directory>,
    ) -> Result<Directory, Untaken> {
        if depth > MOST_DEPTH {
            return Err(Untaken::Invalid("an output folder is too deep".to_owned()));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let name = entry?.file_name().to_owned();
            if name.as_c_str() != c"." && name.as_c_str() != c".." {
                names.push(text(name.to_bytes())?);
            }
        }
        // The API demands names in order.
        names.sort_unstable();
        self.nodes += names.len();
        if self.nodes > MOST_NODES {
            return Err(Untaken::Invalid("its outputs are too many".to_owned()));
        }
        let mut message = Directory::default();
        for name in names {
            let found = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => {
                    let opened = open(folder.as_fd(), Path::new(&name), OFlags::RDONLY | OFlags::DIRECTORY)?;
                    let inner = self.folder(opened, depth + 1, aside, children)?;
                    let (digest, _) = Digest::of_message(&inner);
                    children.push(inner);
                    message.directories.push(DirectoryNode {
                        name,
                        digest: Some(digest.to_message()),
                    });
                }
                FileType::Symlink => {
                    let target = text(readlinkat(&folder, &name, Vec::new())?.to_bytes())?;
                    message.symlinks.push(SymlinkNode {
                        name,
                        target,
                        ..SymlinkNode::default()
                    });
                }
                FileType::RegularFile => {
                    let (digest, is_executable) = self.file(folder.as_fd(), Path::new(&name), aside)?;
                    message.files.push(FileNode {
                        name,
                        digest: Some(digest.to_message()),
                        is_executable,
                        ..FileNode::default()
                    });
                }
                _ => return Err(Untaken::Invalid(format!("{name} is no file and no folder"))),
            }
        }
        Ok(message)
    }

    /// Its digest, and whether it may be executed.
    fn file(&mut self, folder: BorrowedFd<'_>, name: &Path, aside: &Path) -> Result<(Digest, bool), Untaken> {
        let file = File::from(open(folder, name, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(Untaken::Invalid(format!("{} is no file any more", name.display())));
        }
        let is_program = std::os::unix::fs::MetadataExt::mode(&found) & 0o111 != 0;
        self.bytes = self.bytes.saturating_add(found.len());
        if self.bytes > MOST_BYTES {
            return Err(Untaken::Invalid("its outputs are too large".to_owned()));
        }
        if found.len() <= LARGE {
            let mut bytes = Vec::new();
            file.take(LARGE).read_to_end(&mut bytes)?;
            let digest = Digest::of(&bytes);
            self.blobs.push((digest, Source::Bytes(bytes.into())));
            return Ok((digest, is_program));
        }
        // Processes of the slot may still write to the file itself.
        let path = aside.join(format!("large-{}", self.blobs.len()));
        let mut copy = File::create(&path)?;
        if rustix::fs::ioctl_ficlone(&copy, &file).is_err() {
            std::io::copy(&mut file.take(found.len()), &mut copy)?;
        }
        drop(copy);
        let digest = digest_of(&File::open(&path)?)?;
        self.blobs.push((digest, Source::File(path)));
        Ok((digest, is_program))
    }
}

fn digest_of(mut file: &File) -> Result<Digest, Untaken> {
    let mut hash = Sha256::new();
    let size = std::io::copy(&mut file, &mut hash)?;
    Ok(Digest {
        hash: hash.finalize().into(),
        size,
    })
}

/// Opens what is below a folder, without following any link.
fn open(folder: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Untaken> {
    let resolve = match path.is_absolute() {
        true => ResolveFlags::NO_MAGICLINKS,
        false => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    };
    Ok(openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

fn text(bytes: &[u8]) -> Result<String, Untaken> {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|_| Untaken::Invalid("the name of an output is no UTF-8".to_owned()))
}

/// A relative path that leads nowhere else.
pub fn plain(path: &str) -> Result<PathBuf, Untaken> {
    let invalid = || Untaken::Invalid(format!("{path:?} is no path below the working directory"));
    let parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
    parts
        .map(|part| match part {
            Component::Normal(name) if !name.as_encoded_bytes().contains(&0) => Ok(name),
            _ => Err(invalid()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_lead_nowhere_else() {
        assert_eq!(plain("a/./b").unwrap(), Path::new("a/b"));
        assert_eq!(plain("").unwrap(), Path::new(""));
        for bad in ["/a", "..", "a/../b", "a/..", "a\0b"] {
            assert!(matches!(plain(bad), Err(Untaken::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn outputs_behind_links_are_not_taken() {
        let folder = std::env::temp_dir().join(format!("wafcluster-outputs-{}", std::process::id()));
        let (root, aside) = (folder.join("root"), folder.join("aside"));
        fs::create_dir_all(root.join("w/d/e")).unwrap();
        fs::create_dir_all(&aside).unwrap();
        fs::write(folder.join("secret"), "secret").unwrap();
        symlink(&folder, root.join("w/out")).unwrap();
        symlink(folder.join("secret"), root.join("w/link")).unwrap();
        fs::write(root.join("w/d/e/f"), "text").unwrap();
        let names = ["out/secret", "link", "d", "missing"];
        let command = Command {
            working_directory: "w".to_owned(),
            output_paths: names.map(str::to_owned).to_vec(),
            ..Command::default()
        };
        let taken = take(&root, &command, &aside).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(taken.result.output_files.is_empty());
        assert_eq!(taken.result.output_symlinks.len(), 1);
        assert_eq!(taken.result.output_directories[0].path, "d");
        let digests: Vec<Digest> = taken.blobs.iter().map(|(digest, _)| *digest).collect();
        assert!(digests.contains(&Digest::of(b"text")) && !digests.contains(&Digest::of(b"secret")));
    }
}
