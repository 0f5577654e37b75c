//! The messages that say what a worker is to do: a command, and the action with its input root.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use wafengine::cluster::message::Execute;
use wafengine::cluster::{ENTRY, FOLDER, PLACES, VERSION};
use wafengine::settings::address::Execution;

use super::carried;
use super::files::Files;
use super::root::{Root, Unsendable};
use crate::contents::Source;
use crate::digests::Digest;
use crate::reapi::{command, platform, Action, Command, Platform};

/// What a worker leaves in `FOLDER`.
pub const KEY: &str = "key";
pub const FACTS: &str = "entry";
pub const WHY: &str = "why";
pub const BLOBS: &str = "blobs";
/// Why the worker can run no command at all. Only a command that is [`carried`] leaves it.
pub const TROUBLE: &str = "trouble";

/// An action, and all that the cluster must have to run it.
pub struct Prepared {
    pub action: Digest,
    pub blobs: Vec<(Digest, Source)>,
}

/// Opens the command's files, and blocks while they are read.
pub fn prepare(execute: &Execute, execution: &Execution, files: &Files) -> Result<Prepared, Unsendable> {
    let places: Vec<PathBuf> = execute.places.iter().map(|place| path_of(place).to_owned()).collect();
    let mut root = Root::new(files, &places);
    for place in &places {
        root.add_folder(place)?;
    }
    for (link, _) in &execute.links {
        root.add(path_of(link))?;
    }
    for file in &execute.files {
        root.add(path_of(file))?;
    }
    for folder in &execute.folders {
        root.add_folder(path_of(folder))?;
    }
    root.add_folder(path_of(&execute.folder))?;
    let platform = platform(execution);
    let mut command = command(execute, platform.clone())?;
    if execution.any_worker {
        let programs = carried::programs().map_err(Unsendable)?;
        command = carried::carry(&mut root, command, &programs)?;
    }
    let built = root.build();
    let (command, command_bytes) = Digest::of_message(&command);
    let action = Action {
        command_digest: Some(command.to_message()),
        input_root_digest: Some(built.digest.to_message()),
        platform,
        ..Action::default()
    };
    let (action, action_bytes) = Digest::of_message(&action);
    let mut blobs = built.blobs;
    let of = |bytes: Bytes| Source::Bytes(bytes);
    blobs.extend([(command, of(command_bytes)), (action, of(action_bytes))]);
    Ok(Prepared { action, blobs })
}

// Servers of an older version look for the properties in the command.
#[allow(deprecated)]
fn command(execute: &Execute, platform: Option<Platform>) -> Result<Command, Unsendable> {
    let mut variables = BTreeMap::new();
    for variable in &execute.environment {
        let variable = text(variable)?;
        let pair = variable.split_once('=');
        let (name, value) = pair.ok_or_else(|| Unsendable(format!("{variable} is no variable")))?;
        variables.insert(name.to_owned(), value.to_owned());
    }
    let places = execute
        .places
        .iter()
        .map(|place| text(place))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(place) = places.iter().find(|place| place.contains(':')) {
        return Err(Unsendable(format!("{place} has a colon in its name")));
    }
    variables.insert(PLACES.to_owned(), places.join(":"));
    variables.insert(ENTRY.to_owned(), VERSION.to_owned());
    let arguments = execute.argv.iter().map(|word| text(word).map(str::to_owned));
    let names = [BLOBS, FACTS, KEY, WHY];
    Ok(Command {
        arguments: arguments.collect::<Result<_, _>>()?,
        environment_variables: variables
            .into_iter()
            .map(|(name, value)| command::EnvironmentVariable { name, value })
            .collect(),
        output_paths: names.map(|name| format!("{FOLDER}/{name}")).to_vec(),
        working_directory: text(&execute.folder)?.trim_start_matches('/').to_owned(),
        platform,
        ..Command::default()
    })
}

/// The API demands the properties in order.
fn platform(execution: &Execution) -> Option<Platform> {
    let mut properties = execution.properties.clone();
    properties.sort_unstable();
    (!properties.is_empty()).then(|| Platform {
        properties: properties
            .into_iter()
            .map(|(name, value)| platform::Property { name, value })
            .collect(),
    })
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn text(bytes: &[u8]) -> Result<&str, Unsendable> {
    let shown = || String::from_utf8_lossy(bytes);
    std::str::from_utf8(bytes).map_err(|_| Unsendable(format!("{} is no UTF-8", shown())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn some() -> Execute {
        Execute {
            argv: words("/usr/bin/gcc -c a.c"),
            environment: words("PATH=/bin LANG=C"),
            folder: b"/none/p".to_vec(),
            places: words("/none/p /none/q"),
            ..Execute::default()
        }
    }

    fn prepared(execute: &Execute, execution: &Execution) -> Digest {
        prepare(execute, execution, &Files::default()).unwrap().action
    }

    #[test]
    fn the_order_of_variables_and_properties_does_not_count() {
        let mut other = some();
        other.environment.reverse();
        let mut execution = Execution {
            properties: vec![("b".into(), "1".into()), ("a".into(), "2".into())],
            ..Execution::default()
        };
        let first = prepared(&some(), &execution);
        execution.properties.reverse();
        assert_eq!(prepared(&other, &execution), first);
        assert_ne!(prepared(&some(), &Execution::default()), first);
    }

    #[test]
    fn a_command_tells_its_places_and_the_version_of_entries() {
        let command = command(&some(), None).unwrap();
        let told: Vec<_> = command
            .environment_variables
            .iter()
            .map(|one| (&one.name[..], &one.value[..]))
            .collect();
        let expected = [
            ("LANG", "C"),
            ("PATH", "/bin"),
            (ENTRY, VERSION),
            (PLACES, "/none/p:/none/q"),
        ];
        assert_eq!(told, expected);
        assert_eq!(command.working_directory, "none/p");
        assert!(command.output_paths.is_sorted());
    }

    #[test]
    fn what_the_api_cannot_say_is_not_sent() {
        let changed = |change: fn(&mut Execute)| {
            let mut execute = some();
            change(&mut execute);
            prepare(&execute, &Execution::default(), &Files::default()).is_err()
        };
        assert!(changed(|execute| execute.argv.push(b"\xff".to_vec())));
        assert!(changed(|execute| execute.environment.push(b"LANG".to_vec())));
        assert!(changed(|execute| execute.places.push(b"/a:b".to_vec())));
        assert!(changed(|execute| execute.folder = b"/none/p/\xff".to_vec()));
        assert!(!changed(|_| ()));
    }
}
