//! Namespaces and rights of the client: a client that differs from the engine is refused, except for the control group,
//! which the engine's commands enter.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::order::{command, shell};
use crate::support::peer::{hello, Peer};
use crate::support::process;
use crate::support::sandbox::{is_root, new_session, wait_until, Sandbox, DEADLINE};
use crate::support::stand_in::StandIn;
use wafengine::wire::{Verdict, Why};

/// The reason why the engine refuses this client.
fn refusal(mut peer: Peer) -> String {
    peer.refused(&hello(new_session(), 1), Why::Place)
}

/// A client with other supplementary groups is refused, with the reason.
#[test]
fn other_groups_are_another_place() {
    if !is_root() {
        return eprintln!("not tried: only root may change its groups");
    }
    let sandbox = Sandbox::started();
    let (_stand_in, peer) = StandIn::start(&sandbox, || {
        let groups = [12345, 54321];
        // SAFETY: the array has the given length.
        match unsafe { libc::setgroups(2, groups.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    let reason = refusal(peer);
    assert!(reason.contains("Groups"), "{reason}");
}

/// A client with `no_new_privs` is refused, with the reason.
#[test]
fn other_rights_are_another_place() {
    let sandbox = Sandbox::started();
    let (_stand_in, peer) = StandIn::start(&sandbox, || {
        // SAFETY: sets a flag of the calling process.
        match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    let reason = refusal(peer);
    assert!(reason.contains("NoNewPrivs"), "{reason}");
}

/// A client that has changed its user since it connected is refused, with the reason.
#[test]
fn another_user_is_another_place() {
    if !is_root() {
        return eprintln!("not tried: only root may become somebody else");
    }
    let sandbox = Sandbox::started();
    let program = ["setpriv", "--reuid", "12345", "--clear-groups", "sh"];
    match StandIn::run(&sandbox, &program, || Ok(())) {
        Ok((_stand_in, peer)) => {
            let reason = refusal(peer);
            assert!(reason.contains("Uid"), "{reason}");
        }
        Err(error) => eprintln!("not tried: setpriv: {error}"),
    }
}

/// A client in another namespace of any kind is refused. The reason names the kind.
#[test]
fn another_namespace_is_another_place() {
    let sandbox = Sandbox::started();
    for (option, name) in [
        ("-m", "mnt"),
        ("-U", "user"),
        ("-n", "net"),
        ("-i", "ipc"),
        ("-u", "uts"),
        ("-C", "cgroup"),
    ] {
        if !Command::new("unshare")
            .args([option, "true"])
            .status()
            .is_ok_and(|s| s.success())
        {
            eprintln!("not tried: unshare {option} is not permitted here");
            continue;
        }
        let (_stand_in, peer) = StandIn::run(&sandbox, &["unshare", option, "sh"], || Ok(())).unwrap();
        let reason = refusal(peer);
        assert!(reason.contains(name), "unshare {option}: {reason}");
    }
}

/// A client in another root folder is refused, with the reason.
#[test]
fn another_root_folder_is_another_place() {
    let sandbox = Sandbox::started();
    let root = sandbox.name("root");
    fs::create_dir(&root).unwrap();
    // The other root gets the needed programs from this one.
    let script = format!(
        "for part in bin lib lib64 usr; do \
           [ -e /$part ] || continue; mkdir {root}/$part && mount --bind /$part {root}/$part || exit 1; \
         done; exec chroot {root} /bin/sh"
    );
    let mut engine = sandbox.command("unshare");
    let permitted = engine.args(["-m", "chroot", "/", "/bin/true"]).status();
    if !permitted.is_ok_and(|s| s.success()) {
        return eprintln!("not tried: mounting is not permitted here");
    }
    let (_stand_in, peer) = StandIn::run(&sandbox, &["unshare", "-m", "sh", "-c", &script], || Ok(())).unwrap();
    let reason = refusal(peer);
    assert!(reason.contains("root"), "{reason}");
}

/// A client in a process namespace below the engine's is refused, with the reason.
#[test]
fn an_inner_process_namespace_is_another_place() {
    let sandbox = Sandbox::started();
    let started = StandIn::run(&sandbox, &["sh"], || {
        // SAFETY: only system calls. The first process of the new namespace becomes the stand-in. The one in between
        // has nothing open and ends with it.
        unsafe {
            if libc::unshare(libc::CLONE_NEWPID) != 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    Ok(())
                }
                -1 => Err(io::Error::last_os_error()),
                child => {
                    libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                    libc::_exit(0)
                }
            }
        }
    });
    match started {
        Ok((_stand_in, peer)) => {
            let reason = refusal(peer);
            assert!(reason.contains("pid"), "{reason}");
        }
        Err(error) => eprintln!("not tried: a process namespace: {error}"),
    }
}

/// An engine in an inner process namespace cannot see its client. It refuses the client and goes on.
#[test]
fn an_outer_process_namespace_is_another_place() {
    let sandbox = Sandbox::new();
    let mut start = sandbox.command("unshare");
    start.args([
        "-p",
        "-f",
        "--mount-proc",
        "sh",
        "-c",
        r#""$0" start >/dev/null; exec sleep 1000"#,
    ]);
    start.arg(env!("CARGO_BIN_EXE_wafd"));
    let mut inner = start.stderr(Stdio::null()).spawn().unwrap();
    wait_until("an engine listens, or could not be started", || {
        sandbox.socket().exists() || inner.try_wait().unwrap().is_some()
    });
    if inner.try_wait().unwrap().is_some() {
        return eprintln!("not tried: unshare -p --mount-proc is not permitted here");
    }
    for _ in 0..2 {
        sandbox.stranger().refused(&hello(new_session(), 1), Why::Place);
    }
    // It runs no commands for us, but reports its status.
    assert!(sandbox.greeter().report()["totals"]["refused"]["place"].as_u64() >= Some(2));
    for child in process::children(inner.id() as i32) {
        process::kill(child, libc::SIGKILL);
    }
    inner.wait().unwrap();
    sandbox.wait_until_empty();
}

/// A connection without jobs can run no commands, so it is welcome from everywhere.
#[test]
fn clients_in_every_place_get_the_status() {
    let sandbox = Sandbox::started();
    let (_stand_in, mut peer) = StandIn::start(&sandbox, || {
        // SAFETY: sets a flag of the calling process.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        Ok(())
    });
    peer.welcome(&hello(new_session(), 0));
    assert_eq!(peer.report()["pid"], peer.pid);
    peer.define(0, sandbox.environment());
    peer.submit(&shell(":"));
    peer.is_closed();
}

/// The mount point of control groups version 2, and whether there are no others.
fn control_groups() -> Option<(String, bool)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| path.to_owned())
    })?;
    let only = fs::read_to_string("/proc/self/cgroup").ok()?.lines().count() == 1;
    Some((found, only))
}

/// A control group for this test.
struct ControlGroup(String);

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Killed processes leave the group a moment later.
        let deadline = Instant::now() + DEADLINE;
        while fs::remove_dir(&self.0).is_err() && Path::new(&self.0).exists() && Instant::now() < deadline {}
    }
}

/// The commands of a client in another control group run in that group. If they cannot, the client is refused.
#[test]
fn a_command_runs_in_its_clients_control_group() {
    let Some((mount, only)) = control_groups() else {
        return eprintln!("not tried: no control groups of version 2");
    };
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let name = format!("{}/wafd-test-{}", own.trim_end_matches('/'), std::process::id());
    let path = format!("{mount}{name}");
    if let Err(error) = fs::create_dir(&path) {
        return eprintln!("not tried: {path}: {error}");
    }
    let sandbox = Sandbox::started();
    let group = ControlGroup(path);
    let procs = format!("{}/cgroup.procs", group.0);
    let (mut stand_in, mut peer) = StandIn::start(&sandbox, || Ok(()));
    if let Err(error) = fs::write(&procs, stand_in.pid().to_string()) {
        return eprintln!("not tried: {procs}: {error}");
    }
    if only {
        peer.welcome(&hello(new_session(), 1));
        peer.define(0, sandbox.environment());
        let finished = peer.run(&command(&["cat", "/proc/self/cgroup"]));
        assert_eq!(finished.text(), format!("0::{name}\n"));
        // If the group has been removed meanwhile, the command is not run elsewhere, and the outcome says why.
        stand_in.tell(&format!("echo $$ > {mount}{own}/cgroup.procs"));
        drop(group);
        let gone = peer.run(&shell("echo ran"));
        assert_eq!(gone.outcome.verdict, Verdict::NotStarted);
    } else {
        // Version 1 has several hierarchies. The engine cannot enter groups in all of them at once.
        let reason = refusal(peer);
        assert!(reason.contains("control group"), "{reason}");
        eprintln!("only tried that it is refused: control groups of version 1 are mounted, too");
    }
    drop(stand_in);
}
