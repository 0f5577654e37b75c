//! Runs one compile on a worker that is none of ours: a command brought us there, with its inputs.
//!
//! The current folder is the input root that `executing::carried` describes. The worker sees a command that leaves some files
//! in `.wafd`, and a status.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wafengine::cluster::{ENTRY, FOLDER, VERSION};
use wafengine::facts::status::Stamp;

use super::chamber;
use super::execute::{plan_for_entry, variable};
use super::order::Setup;
use super::outputs::plain;
use super::slot::{self, relative};
use crate::executing::action::{KEY, TROUBLE, WHY};
use crate::executing::carried::{Carried, MESSAGE, SLOT};

const LARGEST_MESSAGE: u64 = 64 << 20;
/// As for commands of a worker of ours.
const TIME: Duration = Duration::from_secs(1800);

/// Runs the command of the current folder, and returns its status.
pub fn run() -> u8 {
    match run_here() {
        Ok(status) => u8::try_from(status).unwrap_or(1),
        Err(why) => {
            eprintln!("wafd-cluster: {why}");
            let told = fs::create_dir_all(FOLDER).and_then(|()| fs::write(Path::new(FOLDER).join(TROUBLE), &why));
            if let Err(error) = told {
                eprintln!("wafd-cluster: {FOLDER}/{TROUBLE}: {error}");
            }
            1
        }
    }
}

fn run_here() -> Result<i32, String> {
    let here = std::env::current_dir().map_err(|error| format!("its folder: {error}"))?;
    let carried = read(Path::new(MESSAGE)).map_err(|error| format!("{MESSAGE}: {error}"))?;
    let links = carried.links.clone();
    let command = carried.command();
    if variable(&command, ENTRY) != Some(VERSION) {
        // They were replaced while an engine ran.
        return Err("the programs of the client are of another version than its engine".to_owned());
    }
    let plan = plan_for_entry(&command, TIME).map_err(|failed| failed.status().message)?;
    let slot = here.join(SLOT);
    let root = slot.join("root");
    let work = root.join(relative(&plan.order.folder));
    let folders = plan.places.iter().map(|place| root.join(relative(place)));
    lay_out(&root, folders.chain([work.clone()]), &links).map_err(|error| format!("lay out the inputs: {error}"))?;
    chamber::folders(&slot, None, true).map_err(|error| format!("make a slot: {error}"))?;
    let setup = Setup {
        folder: slot,
        places: plan.places,
        shared: Vec::new(),
        hidden: Vec::new(),
        programs: here.clone(),
        user: None,
        is_isolated: true,
        variables: plan.variables,
    };
    // A file that is written in the tick of the clock in which a compile starts is not trusted.
    Stamp::wait_for_next();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("start a runtime: {error}"))?;
    let ended = runtime.block_on(slot::run_once(setup, &plan.order))?;
    if let Some(why) = ended.trouble {
        return Err(why);
    }
    if ended.is_late {
        return Err("it took too long".to_owned());
    }
    let made = work.join(FOLDER);
    if ![KEY, WHY].iter().any(|name| made.join(name).is_file()) {
        return Err("the engine that was brought along did not follow the command".to_owned());
    }
    let target = here.join(FOLDER);
    // Workers may make the folders of outputs in advance.
    let _ = fs::remove_dir(&target);
    fs::rename(&made, &target).map_err(|error| format!("{}: {error}", made.display()))?;
    Ok(ended.status)
}

fn read(path: &Path) -> io::Result<Carried> {
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST_MESSAGE).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Adds to the tree what no worker is sure to make: links, and folders in which nothing is.
fn lay_out(root: &Path, folders: impl Iterator<Item = PathBuf>, links: &[(String, String)]) -> io::Result<()> {
    for folder in folders {
        fs::create_dir_all(folder)?;
    }
    for (path, target) in links {
        let inside = plain(path.trim_start_matches('/')).map_err(|_| io::Error::other(format!("{path} is no path")))?;
        let place = root.join(inside);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        symlink(target, place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_folders_are_added_and_nothing_outside_of_the_tree() {
        let root = std::env::temp_dir().join(format!("wafcluster-lay-out-{}", std::process::id()));
        let link = |path: &str| vec![(path.to_owned(), "/target".to_owned())];
        lay_out(&root, [root.join("home/u/p")].into_iter(), &link("/home/u/way/link")).unwrap();
        assert!(root.join("home/u/p").is_dir());
        assert_eq!(
            fs::read_link(root.join("home/u/way/link")).unwrap(),
            Path::new("/target")
        );
        assert!(lay_out(&root, std::iter::empty(), &link("/home/../../link")).is_err());
        fs::remove_dir_all(&root).unwrap();
    }
}
