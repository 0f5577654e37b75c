//! The namespaces of a slot: what its commands see of this machine.
//!
//! They have a root folder of their own. In it are the folders of the system, which they may only read, the *places* with
//! the inputs of their build, a `/tmp`, a `/dev` with harmless devices, and nothing else: no other user's files, and
//! none of the worker's secrets. There is no network, and no process but those of the slot.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::mount::{
    mount, mount_bind, mount_bind_recursive, mount_change, MountFlags, MountPropagationFlags, UnmountFlags,
};
use wafengine::process::apart::protect_mount;

use super::keeper::INSIDE;
use super::order::Setup;

/// What commands may read of this machine, where it is there.
const SYSTEM: [&str; 11] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu",
];
/// What is made for each slot. No place can be there, nor around it.
const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Larger than what a slot's own tree of folders takes.
const ROOT_SIZE: &std::ffi::CStr = c"mode=755,size=16m";
const SHM_SIZE: &std::ffi::CStr = c"mode=1777,size=1g";

/// What slots show of this machine.
pub fn shown(shared: &[PathBuf]) -> Vec<PathBuf> {
    SYSTEM.iter().map(PathBuf::from).chain(shared.iter().cloned()).collect()
}

/// Why a slot cannot have these places.
pub fn refuse(places: &[PathBuf]) -> Option<String> {
    let is_wrong = |place: &&PathBuf| {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let own = OWN.iter().any(|own| place.starts_with(own));
        !place.is_absolute() || !place.components().all(plain) || place.parent().is_none() || own
    };
    let wrong = places.iter().find(is_wrong)?;
    Some(format!("{} cannot be a folder of a slot", wrong.display()))
}

/// Enters new namespaces. Returns in the first process of them with nothing, and in the calling process with the number
/// of the first process.
pub fn enter(setup: &Setup) -> Result<Option<libc::pid_t>, String> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    // SAFETY: only a system call. This process has one thread.
    let unshare = |flags| match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let mut has_own_users = !user.is_root();
    let mut entered = match has_own_users {
        true => unshare(flags | libc::CLONE_NEWUSER),
        false => unshare(flags),
    };
    // The root of a container may lack rights that a namespace of users gives. In that, it can run commands as itself only.
    if entered.is_err() && !has_own_users && setup.user.is_none() {
        has_own_users = true;
        entered = unshare(flags | libc::CLONE_NEWUSER);
    }
    entered.map_err(|error| format!("namespaces are not permitted: {error}"))?;
    if has_own_users {
        let (user, group) = (user.as_raw(), group.as_raw());
        let write = |name: &str, text: String| {
            let path = Path::new("/proc/self").join(name);
            fs::write(path, text).map_err(|error| format!("user namespaces are not permitted: {name}: {error}"))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{user} {user} 1"))?;
        write("gid_map", format!("{group} {group} 1"))?;
    }
    // SAFETY: this process has one thread, and the child goes on with the same code.
    match unsafe { libc::fork() } {
        -1 => Err(format!("fork: {}", io::Error::last_os_error())),
        0 => {
            // SAFETY: only a system call.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            furnish(setup).map(|()| None)
        }
        first => Ok(Some(first)),
    }
}

/// Makes the root folder, and enters it.
fn furnish(setup: &Setup) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    // Nothing that is mounted from here on may reach the machine.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| failed("make mounts private", error.into()))?;
    let new = setup.folder.join("new");
    let limits = MountFlags::NOSUID;
    mount("tmpfs", &new, "tmpfs", limits, ROOT_SIZE).map_err(|error| failed("mount the root", error.into()))?;
    let room = Room {
        new,
        places: &setup.places,
    };
    room.add_own(setup)
        .map_err(|error| failed("bring in the slot's folders", error))?;
    for path in shown(&setup.shared) {
        room.show(&path)
            .map_err(|error| failed(&format!("show {}", path.display()), error))?;
    }
    for path in &setup.hidden {
        room.hide(path)
            .map_err(|error| failed(&format!("hide {}", path.display()), error))?;
    }
    room.add_system()
        .map_err(|error| failed("make /dev and others", error))?;
    for place in &setup.places {
        let inside = place.strip_prefix("/").unwrap_or(place);
        let source = setup.folder.join("root").join(inside);
        room.bind(&source, place, false)
            .map_err(|error| failed(&format!("bring in {}", place.display()), error))?;
    }
    protect_mount(&room.new, false).map_err(|error| failed("protect the root", error))?;
    std::env::set_current_dir(&room.new).map_err(|error| failed("enter the root", error))?;
    rustix::process::pivot_root(".", ".").map_err(|error| failed("change the root", error.into()))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(|error| failed("leave the old root", error.into()))?;
    std::env::set_current_dir("/").map_err(|error| failed("enter the new root", error))
}

/// The root folder while it is furnished.
struct Room<'a> {
    new: PathBuf,
    places: &'a [PathBuf],
}

impl Room<'_> {
    fn at(&self, path: &Path) -> PathBuf {
        self.new.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Shows a file, folder or link of this machine for reading, except where there are places.
    fn show(&self, path: &Path) -> io::Result<()> {
        let Ok(found) = path.symlink_metadata() else {
            return Ok(());
        };
        let target = self.at(path);
        if target.symlink_metadata().is_ok() {
            return Ok(());
        }
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        if found.is_symlink() {
            return symlink(fs::read_link(path)?, target);
        }
        if found.is_dir() {
            if self.places.iter().any(|place| place == path) {
                return fs::create_dir(target);
            }
            if self.places.iter().any(|place| place.starts_with(path)) {
                fs::create_dir(target)?;
                for entry in fs::read_dir(path)? {
                    self.show(&entry?.path())?;
                }
                return Ok(());
            }
        } else if !found.is_file() {
            return Ok(());
        }
        self.bind(path, path, true)
    }

    /// Puts nothing in the place of a file.
    fn hide(&self, path: &Path) -> io::Result<()> {
        let target = self.at(path);
        match target.symlink_metadata() {
            Ok(found) if found.is_file() => Ok(mount_bind("/dev/null", target)?),
            _ => Ok(()),
        }
    }

    fn bind(&self, source: &Path, path: &Path, is_read_only: bool) -> io::Result<()> {
        let target = self.at(path);
        if source.is_dir() {
            fs::create_dir_all(&target)?;
        } else if !target.exists() {
            File::create(&target)?;
        }
        if is_read_only {
            // With what is mounted in it, which a user without rights must not uncover.
            mount_bind_recursive(source, &target)?;
            return protect_mount(&target, true);
        }
        Ok(mount_bind(source, &target)?)
    }

    fn add_system(&self) -> io::Result<()> {
        let dev = self.at(Path::new("/dev"));
        fs::create_dir_all(dev.join("shm"))?;
        for device in DEVICES {
            let path = Path::new("/dev").join(device);
            if path.exists() {
                self.bind(&path, &path, false)?;
            }
        }
        for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            symlink(format!("/proc/self/fd{target}"), dev.join(name))?;
        }
        let limits = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", dev.join("shm"), "tmpfs", limits, SHM_SIZE)?;
        let proc = self.at(Path::new("/proc"));
        fs::create_dir(&proc)?;
        mount("proc", &proc, "proc", limits | MountFlags::NOEXEC, c"")?;
        let sys = self.at(Path::new("/sys"));
        fs::create_dir(&sys)?;
        mount_bind_recursive("/sys", &sys)?;
        protect_mount(&sys, true)
    }

    fn add_own(&self, setup: &Setup) -> io::Result<()> {
        let inside = Path::new(INSIDE);
        for name in ["home", "out"] {
            self.bind(&setup.folder.join(name), &inside.join(name), false)?;
        }
        for name in ["wafd", "wafcc"] {
            let program = setup.programs.join(name);
            if program.is_file() {
                let path = inside.join("bin").join(name);
                fs::create_dir_all(self.at(&inside.join("bin")))?;
                self.bind(&program, &path, true)?;
            }
        }
        let tmp = Path::new("/tmp");
        if !self.places.iter().any(|place| place == tmp) {
            self.bind(&setup.folder.join("tmp"), tmp, false)?;
        }
        let var = self.at(Path::new("/var"));
        fs::create_dir_all(&var)?;
        if !var.join("tmp").exists() {
            symlink("/tmp", var.join("tmp"))?;
        }
        Ok(())
    }
}

/// Makes the folders of a slot on the worker's disk.
pub fn folders(folder: &Path, user: Option<u32>, is_isolated: bool) -> io::Result<()> {
    let permit = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    fs::create_dir_all(folder)?;
    // Other users of the machine have nothing to do there. Without namespaces, the slot's own user must get in.
    permit(folder, if is_isolated { 0o700 } else { 0o711 })?;
    for (name, mode) in [
        ("root", 0o755),
        ("tmp", 0o1777),
        ("home", 0o700),
        ("out", 0o700),
        ("new", 0o700),
    ] {
        let path = folder.join(name);
        fs::create_dir_all(&path)?;
        permit(&path, mode)?;
        if name == "home" {
            std::os::unix::fs::chown(&path, user, user)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_system_and_crooked_paths_are_refused() {
        let of = |path: &str| refuse(&[PathBuf::from("/home/u/p"), PathBuf::from(path)]);
        for good in ["/home/u/q", "/tmp/p", "/opt/x", "/usr/local/src/p", "/running"] {
            assert_eq!(of(good), None, "{good}");
        }
        for bad in [
            "",
            "/",
            "relative",
            "/a/../b",
            "/proc",
            "/proc/1",
            "/sys/x",
            "/dev/shm",
            "/run/wafd/home",
        ] {
            assert!(of(bad).is_some(), "{bad}");
        }
    }
}
