//! A parked driver that starts its part by `posix_spawn` leaves what it would leave without the engine: the part runs
//! parked where that is possible, and libc starts it where it is not.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::order::Order;
use crate::support::peer::Peer;
use crate::support::probes::{eager, park, parked_runs, run_parked, told};
use crate::support::process;
use crate::support::sandbox::{install, wait_until, Sandbox};

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probes/driver.c");

/// A driver and its part, for an engine that parks both and one that parks nothing.
struct Shop {
    parking: Sandbox,
    plain: Sandbox,
    driver: PathBuf,
    part: PathBuf,
}

#[track_caller]
fn compile(sandbox: &Sandbox, name: &str) -> PathBuf {
    let fresh = sandbox.path(format!("{name}.fresh"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-w", DRIVER, "-o"]).arg(&fresh);
    assert!(cc.status().unwrap().success(), "cc {name}");
    let path = sandbox.path(name);
    install(&fresh, &path);
    fs::remove_file(fresh).unwrap();
    path.canonicalize().unwrap()
}

impl Shop {
    /// By these names the engine knows a driver of compilers, and an assembler.
    fn new() -> Shop {
        let parking = eager();
        let (driver, part) = (compile(&parking, "gcc"), compile(&parking, "as"));
        Shop {
            parking,
            plain: Sandbox::without_parking(),
            driver,
            part,
        }
    }

    fn clients(&self) -> [Peer; 2] {
        let folder = self.part.parent().unwrap();
        let path = [b"PATH=/usr/bin:/bin:", folder.as_os_str().as_bytes()].concat();
        let mut clients = [self.parking.client(1), self.plain.client(1)];
        for peer in &mut clients {
            peer.define(1, [&path[..], b"VARIABLE=value"]);
        }
        park(&mut clients[0], &self.driver);
        park(&mut clients[0], &self.part);
        clients
    }

    fn order(&self, how: &str, part: &Path, words: &[&str]) -> Order {
        let part = part.to_str().unwrap();
        let words: Vec<_> = ["spawn", how, part].into_iter().chain(words.iter().copied()).collect();
        told(&self.driver, &words).env(1)
    }

    /// Both leave the same; returns whether the part ran parked, and what was printed.
    #[track_caller]
    fn agree(&self, [parked, plain]: &mut [Peer; 2], order: &Order) -> (bool, String) {
        let before = parked_runs(parked, &self.part);
        let found = run_parked(parked, &self.driver, order);
        let wanted = plain.run(order);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&found.stdout), text(&wanted.stdout));
        assert_eq!(text(&found.stderr), text(&wanted.stderr));
        assert_eq!(
            (found.outcome.verdict, found.outcome.code),
            (wanted.outcome.verdict, wanted.outcome.code)
        );
        (parked_runs(parked, &self.part) > before, text(&found.stdout))
    }
}

/// Descriptors and signals are as the driver asks for.
#[test]
fn what_a_driver_spawns_runs_parked_with_its_descriptors_and_signals() {
    let shop = Shop::new();
    let mut clients = shop.clients();
    for how in ["nothing", "files", "no-close", "mask", "defaults", "again"] {
        let (is_parked, text) = shop.agree(&mut clients, &shop.order(how, &shop.part, &["tell", "a b", ""]));
        assert!(is_parked, "{how} is not parked");
        assert!(text.contains("argument a b"), "{how}: {text}");
    }
    let order = told(&shop.driver, &["plainly", shop.part.to_str().unwrap(), "tell"]).env(1);
    assert!(shop.agree(&mut clients, &order).0, "without actions it is not parked");
}

/// Where a driver asks for more than that, libc starts the part.
#[test]
fn what_only_libc_can_do_is_left_to_libc() {
    let shop = Shop::new();
    let mut clients = shop.clients();
    let ways = [
        "same-file",
        "folder",
        "folder-number",
        "open",
        "close-from",
        "group",
        "session",
        "copied",
        "many",
    ];
    for how in ways {
        let (is_parked, text) = shop.agree(&mut clients, &shop.order(how, &shop.part, &["tell"]));
        assert!(!is_parked, "{how} is parked");
        assert!(text.contains("status 0"), "{how}: {text}");
    }
}

/// An error is what `posix_spawn` returns, and leaves no child.
#[test]
fn a_part_that_cannot_be_started_is_reported_as_libc_does() {
    let shop = Shop::new();
    let mut clients = shop.clients();
    fs::write(shop.parking.path("text"), "no program").unwrap();
    for part in ["/no/such/as", "as-that-is-missing"] {
        let (_, text) = shop.agree(&mut clients, &shop.order("missing", Path::new(part), &[]));
        assert!(text.contains("error 2\nleft -1 10"), "{text}");
    }
    let (_, text) = shop.agree(
        &mut clients,
        &shop.order("missing-searched", Path::new("no-such-as"), &[]),
    );
    assert!(text.contains("error 2\nleft -1 10"), "{text}");
    let (_, text) = shop.agree(&mut clients, &shop.order("nothing", &shop.parking.path("text"), &[]));
    assert!(text.contains("error 13\n"), "{text}");
    let (is_parked, text) = shop.agree(&mut clients, &shop.order("bad-file", &shop.part, &["tell"]));
    assert!(!is_parked && text.contains("error 9\nleft -1 10"), "{text}");
}

/// A part's end is its driver's to see, by status or by signal.
#[test]
fn a_part_ends_for_its_driver_as_it_does() {
    let shop = Shop::new();
    let mut clients = shop.clients();
    for (words, status) in [
        (["exit", "3"], "status 300"),
        (["raise", "9"], "status 9"),
        (["raise", "15"], "status f"),
    ] {
        let (is_parked, text) = shop.agree(&mut clients, &shop.order("files", &shop.part, &words));
        assert!(is_parked && text.contains(status), "{words:?}: {text}");
    }
}

/// A part is searched along the driver's PATH.
#[test]
fn a_part_is_found_along_path() {
    let shop = Shop::new();
    let mut clients = shop.clients();
    let (_, text) = shop.agree(&mut clients, &shop.order("searched", Path::new("as"), &["--version"]));
    assert!(text.contains("status 0"), "{text}");
}

fn is_called(pid: i32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim() == name)
}

/// Killed at any place, a part ends for its driver, nothing is left, and nothing runs twice.
#[test]
fn a_part_whose_stand_in_is_killed_goes_and_does_not_come_back() {
    let shop = Shop::new();
    let [mut peer, _] = shop.clients();
    let noted = shop.parking.path("noted");
    let victims: [fn(i32, i32) -> i32; 3] = [
        |_, part| part,
        |driver, _| process::children(driver)[0],
        |driver, _| driver,
    ];
    for (n, victim) in victims.into_iter().enumerate() {
        let _ = fs::remove_file(&noted);
        let id = peer.submit(&shop.order("nothing", &shop.part, &["wait", noted.to_str().unwrap()]));
        let mut part = 0;
        wait_until("the part has noted itself", || {
            let text = fs::read_to_string(&noted).unwrap_or_default();
            part = text.trim().parse().unwrap_or(0);
            part != 0
        });
        assert_eq!(process::parent(part), shop.parking.engine(), "the part is not parked");
        let commands = process::children(shop.parking.engine());
        let driver = commands
            .into_iter()
            .find(|pid| !process::children(*pid).is_empty() && is_called(*pid, "gcc"));
        let driver = driver.expect("a driver with a child");
        let stand_in = process::children(driver)[0];
        process::kill(victim(driver, part), libc::SIGKILL);
        if n == 2 {
            // As without the engine, what a killed driver has started goes on, and holds the command's output.
            assert!(process::lives(part));
            process::kill(part, libc::SIGKILL);
        }
        let finished = peer.finish(id);
        if n < 2 {
            assert!(finished.text().contains("error 0\nstatus 9\n"), "{}", finished.text());
        }
        wait_until("nothing is left", || !process::lives(part) && !process::lives(stand_in));
        assert_eq!(
            fs::read_to_string(&noted).unwrap().lines().count(),
            1,
            "the part ran twice"
        );
    }
}
