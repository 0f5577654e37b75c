//! Properties that the commands of a process would inherit, and that the engine cannot give them.
//!
//! A client in another namespace or root folder, or with other rights than the engine, is refused, and runs its commands
//! itself. What the engine *can* give (umask, limits …) is in `context`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const NAMESPACES: [&str; 8] = ["mnt", "user", "pid", "net", "ipc", "uts", "cgroup", "time"];
/// Lines of `/proc/PID/status` that decide what a process may do and see.
pub const RIGHTS: [&str; 10] = [
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
];
/// Values for which 0 means that there is none.
const CONFINING: [&str; 2] = ["NoNewPrivs", "Seccomp"];
const ROOT: &str = "root folder";
const LABEL: &str = "security label";
const CGROUPS: &str = "/sys/fs/cgroup";

/// These properties of one process, as (name, value) pairs in a fixed order.
pub struct Place {
    traits: Vec<(&'static str, String)>,
    cgroup: String,
}

impl Place {
    pub fn of(pid: u32) -> Result<Place, String> {
        if pid == 0 {
            return Err("another process namespace than the engine's".to_owned());
        }
        let proc = format!("/proc/{pid}");
        let status = fs::read_to_string(format!("{proc}/status")).map_err(|e| unseen(pid, &e))?;
        let root = fs::metadata(format!("{proc}/root/.")).map_err(|e| unseen(pid, &e))?;
        let mut traits = vec![(ROOT, root_of(&root))];
        for name in NAMESPACES {
            traits.push((name, namespace(&proc, name)));
        }
        for name in RIGHTS {
            traits.push((name, field(&status, name).unwrap_or_default().to_owned()));
        }
        traits.push((LABEL, label_of(&proc)));
        let cgroup = fs::read_to_string(format!("{proc}/cgroup")).unwrap_or_default();
        Ok(Place { traits, cgroup })
    }

    /// Whether a process sees the same files as we do, and would make files with the same label. This is enough to look
    /// something up for it.
    pub fn shows(&self, pid: u32) -> Result<(), String> {
        let ours = |name: &str| self.traits.iter().find(|known| known.0 == name).map(|known| &known.1);
        let proc = format!("/proc/{pid}");
        let root = fs::metadata(format!("{proc}/root/.")).map_err(|e| unseen(pid, &e))?;
        let mut theirs = vec![(ROOT, root_of(&root)), (NAMESPACES[0], namespace(&proc, NAMESPACES[0]))];
        // If no label can be read, the system has none.
        if ours(LABEL).is_some_and(|label| !label.is_empty()) {
            theirs.push((LABEL, label_of(&proc)));
        }
        match theirs.iter().find(|(name, value)| ours(name) != Some(value)) {
            Some((name, _)) => Err(format!("another {name} than the engine's")),
            None => Ok(()),
        }
    }

    /// Whether the only difference is that a process at `other` is less confined than we are.
    pub fn is_more_confined_than(&self, other: &Place) -> bool {
        let pairs = self.traits.iter().zip(&other.traits);
        let mut unlike = pairs.filter(|(ours, theirs)| ours != theirs).peekable();
        unlike.peek().is_some() && unlike.all(|((name, _), (_, theirs))| CONFINING.contains(name) && theirs == "0")
    }

    /// Whether commands for a process at `other` can be run from here. If so, and if its control group is another one, the
    /// group to which they must be moved.
    pub fn serves(&self, other: &Place) -> Result<Option<Arc<OwnedFd>>, String> {
        for ((name, ours), (_, theirs)) in self.traits.iter().zip(&other.traits) {
            if ours != theirs {
                return Err(format!("another {name} than the engine's"));
            }
        }
        if self.cgroup == other.cgroup {
            return Ok(None);
        }
        match open_cgroup(&other.cgroup) {
            Some(procs) => Ok(Some(Arc::new(procs.into()))),
            None => Err("another control group than the engine's".to_owned()),
        }
    }
}

fn unseen(pid: u32, error: &io::Error) -> String {
    format!("process {pid} cannot be examined: {error}")
}

fn root_of(found: &fs::Metadata) -> String {
    format!("{}:{}", found.dev(), found.ino())
}

fn namespace(proc: &str, name: &str) -> String {
    let link = fs::read_link(format!("{proc}/ns/{name}")).unwrap_or_default();
    link.display().to_string()
}

fn label_of(proc: &str) -> String {
    fs::read_to_string(format!("{proc}/attr/current")).unwrap_or_default()
}

/// The file to which a command writes itself to enter a control group. Only for version 2: with version 1, a process is in
/// several groups at a time.
fn open_cgroup(cgroup: &str) -> Option<File> {
    let path = cgroup.strip_prefix("0::")?.strip_suffix('\n')?;
    if path.contains('\n') {
        return None;
    }
    let procs = format!("{CGROUPS}{path}/cgroup.procs");
    OpenOptions::new().write(true).open(procs).ok()
}

/// One line of `/proc/PID/status`.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        Some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_serves_itself() {
        let here = Place::of(std::process::id()).unwrap();
        assert!(here.serves(&here).unwrap().is_none());
    }

    #[test]
    fn other_rights_are_another_place() {
        let here = Place::of(std::process::id()).unwrap();
        let mut there = Place::of(std::process::id()).unwrap();
        let groups = there.traits.iter_mut().find(|t| t.0 == "Groups").unwrap();
        groups.1 = "1 2 3".to_owned();
        let refusal = here.serves(&there).unwrap_err();
        assert!(refusal.contains("Groups"), "{refusal}");
    }

    #[test]
    fn only_a_less_confined_place_counts() {
        let with = |values: &[(&str, &str)]| {
            let mut place = Place::of(std::process::id()).unwrap();
            for (name, value) in place.traits.iter_mut() {
                let of_ours = CONFINING.contains(name).then_some("0");
                let wanted = values.iter().find(|(one, _)| one == name).map(|(_, value)| *value);
                *value = wanted.or(of_ours).unwrap_or(value).to_owned();
            }
            place
        };
        let (free, filtered) = (with(&[]), with(&[("Seccomp", "2"), ("NoNewPrivs", "1")]));
        assert!(filtered.is_more_confined_than(&free));
        assert!(!free.is_more_confined_than(&filtered) && !free.is_more_confined_than(&with(&[])));
        assert!(!filtered.is_more_confined_than(&with(&[("Groups", "1 2 3")])));
        assert!(!filtered.is_more_confined_than(&with(&[("NoNewPrivs", "1"), ("Seccomp", "1")])));
    }

    #[test]
    fn a_control_group_that_cannot_be_entered_is_another_place() {
        let here = Place::of(std::process::id()).unwrap();
        let mut there = Place::of(std::process::id()).unwrap();
        there.cgroup = "0::/no/such/group\n".to_owned();
        assert!(here.serves(&there).is_err());
    }

    #[test]
    fn a_process_that_is_gone_has_no_place() {
        assert!(Place::of(u32::MAX).is_err());
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "SigIgn:\t1\nUmask:\t0022\n";
        assert_eq!(field(status, "Umask"), Some("0022"));
        assert_eq!(field(status, "Sig"), None);
    }
}
