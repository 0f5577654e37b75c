//! Commands that take our programs along, for workers that are none of ours.
//!
//! Such a worker lays out an input root in a folder of its own, and runs a program in it. So the input root has our programs,
//! the command as a file, and the tree of its inputs:
//!
//! ```text
//! wafd-cluster, wafd, wafcc
//! command.json
//! slot/root/                   what mirrors `/`
//! ```
//!
//! `wafd-cluster` then makes the namespaces in which that tree *is* at `/`, and leaves the entry where a worker of ours
//! leaves it. Links of the tree are in `command.json`, since many workers refuse those that are absolute.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wafengine::cluster::FOLDER;

use super::action::{BLOBS, FACTS, KEY, TROUBLE, WHY};
use super::root::{Root, Unsendable};
use crate::reapi::command::EnvironmentVariable;
use crate::reapi::Command;

/// The first argument of `wafd-cluster` for this.
pub const WORD: &str = "run-carried";
/// The file with the command.
pub const MESSAGE: &str = "command.json";
/// The folder of the slot that is made for it. The tree is in `root` there.
pub const SLOT: &str = "slot";
const PROGRAMS: [&str; 3] = ["wafd-cluster", "wafd", "wafcc"];

/// What `command.json` says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub arguments: Vec<String>,
    /// In the order of their names.
    pub variables: Vec<(String, String)>,
    /// Without the leading slash, as in the API.
    pub folder: String,
    /// Absolute paths of links, and what is in them.
    pub links: Vec<(String, String)>,
}

impl Carried {
    /// The command as a worker of ours gets it.
    pub fn command(self) -> Command {
        let variables = self.variables.into_iter();
        Command {
            arguments: self.arguments,
            environment_variables: variables
                .map(|(name, value)| EnvironmentVariable { name, value })
                .collect(),
            working_directory: self.folder,
            ..Command::default()
        }
    }
}

/// The folder of our programs.
pub fn programs() -> Result<PathBuf, String> {
    let own = std::env::current_exe().and_then(|path| path.canonicalize());
    let own = own.map_err(|error| format!("find its own program: {error}"))?;
    own.parent()
        .map(Path::to_owned)
        .ok_or_else(|| "its own program is in no folder".to_owned())
}

/// The command that any worker can run instead of this one. The root is changed to suit it.
pub fn carry(root: &mut Root<'_>, command: Command, programs: &Path) -> Result<Command, Unsendable> {
    let variables = command.environment_variables.into_iter();
    let carried = Carried {
        arguments: command.arguments,
        variables: variables.map(|one| (one.name, one.value)).collect(),
        folder: command.working_directory,
        links: root.move_into(&format!("{SLOT}/root")),
    };
    let text = serde_json::to_vec(&carried).map_err(|error| Unsendable(error.to_string()))?;
    root.add_content(MESSAGE, Bytes::from(text));
    for name in PROGRAMS {
        let path = programs.join(name);
        let real = path.canonicalize();
        let real = real.map_err(|error| Unsendable(format!("{}: {error}", path.display())))?;
        root.add_program(name, real)?;
    }
    let names = [BLOBS, FACTS, KEY, TROUBLE, WHY];
    Ok(Command {
        arguments: vec![format!("./{}", PROGRAMS[0]), WORD.to_owned()],
        environment_variables: Vec::new(),
        output_paths: names.map(|name| format!("{FOLDER}/{name}")).to_vec(),
        working_directory: String::new(),
        ..command
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digests::Digest;
    use crate::executing::files::Files;
    use crate::reapi::Directory;
    use prost::Message;
    use std::collections::HashMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("wafcluster-carried-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("programs")).unwrap();
            fs::create_dir_all(path.join("p/inc")).unwrap();
            Place(path.canonicalize().unwrap())
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn command() -> Command {
        Command {
            arguments: vec!["/usr/bin/gcc".to_owned(), "-c".to_owned()],
            environment_variables: vec![EnvironmentVariable {
                name: "LANG".to_owned(),
                value: "C".to_owned(),
            }],
            working_directory: "home/u/p".to_owned(),
            ..Command::default()
        }
    }

    #[test]
    fn the_tree_and_the_programs_are_beside_each_other() {
        let place = Place::new("tree");
        for name in PROGRAMS {
            fs::write(place.0.join("programs").join(name), name).unwrap();
        }
        fs::write(place.0.join("p/inc/a.h"), "a").unwrap();
        symlink("/elsewhere", place.0.join("p/link")).unwrap();
        let (files, places) = (Files::default(), [place.0.join("p")]);
        let mut root = Root::new(&files, &places);
        root.add(&places[0].join("inc/a.h")).unwrap();
        root.add(&places[0].join("link/b.h")).unwrap();
        let sent = carry(&mut root, command(), &place.0.join("programs")).unwrap();
        assert_eq!(sent.arguments, ["./wafd-cluster", WORD]);
        assert!(sent.environment_variables.is_empty() && sent.working_directory.is_empty());
        assert!(sent.output_paths.is_sorted());

        let built = root.build();
        let blobs: HashMap<Digest, Bytes> = built
            .blobs
            .iter()
            .map(|(digest, source)| match source {
                crate::contents::Source::Bytes(bytes) => (*digest, bytes.clone()),
                crate::contents::Source::File(path) => (*digest, fs::read(path).unwrap().into()),
            })
            .collect();
        let read =
            |digest: Option<&crate::reapi::Digest>| blobs[&Digest::from_message(digest.unwrap()).unwrap()].clone();
        let mut folder = Directory::decode(blobs[&built.digest].clone()).unwrap();
        let names: Vec<&str> = folder.files.iter().map(|file| &file.name[..]).collect();
        assert_eq!(names, ["command.json", "wafcc", "wafd", "wafd-cluster"]);
        let told: Carried = serde_json::from_slice(&read(folder.files[0].digest.as_ref())).unwrap();
        let link = places[0].join("link").to_str().unwrap().to_owned();
        assert_eq!(told.links, [(link, "/elsewhere".to_owned())]);
        assert_eq!(told.command(), command());
        let inside = places[0].join("inc");
        let path = Path::new("slot/root").join(inside.strip_prefix("/").unwrap());
        for name in path.to_str().unwrap().split('/') {
            assert!(folder.symlinks.is_empty());
            let inner = folder.directories.iter().find(|inner| inner.name == name).unwrap();
            folder = Directory::decode(read(inner.digest.as_ref())).unwrap();
        }
        assert_eq!(&read(folder.files[0].digest.as_ref())[..], b"a");
    }

    #[test]
    fn without_our_programs_nothing_is_sent() {
        let place = Place::new("none");
        let files = Files::default();
        let mut root = Root::new(&files, &[]);
        let refused = carry(&mut root, command(), &place.0.join("programs"));
        assert!(refused.is_err_and(|why| why.0.contains("wafd-cluster")));
    }
}
