use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::observe::access::{Access, What};
use crate::observe::trace::{Place, TraceRegion};
use crate::park::driver::Answering;
use crate::process::roster::Roster;

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probes/observed.c");

/// A parked probe.
struct Stall {
    folder: PathBuf,
    program: CString,
    parked: Parked,
    arena: Arena,
    roster: Roster,
    null: OwnedFd,
    context: Context,
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.parked.end();
        crate::process::spawn::reap(self.parked.pid);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Stall {
    fn new(name: &str) -> Stall {
        let folder = std::env::temp_dir().join(format!("probe-{}-{name}", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-w", "-pthread", PROBE, "-ldl", "-o"]).arg(&folder);
        assert!(cc.status().unwrap().success());
        Stall::of(name, &folder)
    }

    fn of(name: &str, program: &Path) -> Stall {
        let folder = std::env::temp_dir().join(format!("stall-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        let c_path = |path: PathBuf| CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        let library = folder.join("libwafpark.so");
        fs::write(&library, crate::park::LIBRARY).unwrap();
        let (arena, roster) = (Arena::new(3).unwrap(), Roster::new(None).unwrap());
        let null = OwnedFd::from(fs::File::options().read(true).write(true).open("/dev/null").unwrap());
        let context = context::Reader::new(std::process::id())
            .unwrap()
            .read()
            .unwrap()
            .plain();
        let program = c_path(program.canonicalize().unwrap());
        let (file, size) = roster.share().unwrap();
        let parking = Parking {
            library: &c_path(library),
            roster: (&file, size),
            arena: Some(&arena),
            null: &null,
            folder: &folder,
            context: &context,
        };
        let stack = context.block().limits[context::STACK];
        let env = Strings::from_iter([b"A=b"]);
        // As in the engine: the parent process may have left files open, and signals ignored.
        // SAFETY: files only learn that they are not passed on.
        unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
        for signal in (1..=64).filter(|signal| ![libc::SIGSEGV, libc::SIGBUS].contains(signal)) {
            // SAFETY: only those two have handlers, which Rust has set.
            unsafe { crate::process::spawn::set_disposition(signal, libc::SIG_DFL) };
        }
        let parked = Parked::start(&parking, &mut Spawner::new().unwrap(), &program, &env, stack).unwrap();
        Stall {
            folder,
            program,
            parked,
            arena,
            roster,
            null,
            context,
        }
    }

    /// What it does as a command.
    fn observe(&self, args: &[&[u8]]) -> Vec<Access> {
        let log = self.arena.reserve().unwrap();
        let child = self.start(&log, args, c"", 0);
        assert_eq!(crate::process::spawn::wait_for(child.pid).code, 0);
        log.finish()
    }

    fn start(&self, log: &TraceRegion, args: &[&[u8]], route: &CStr, flags: u32) -> Child {
        let ticket = self.roster.tickets().reserve().unwrap();
        let folder = CString::new(self.folder.as_os_str().as_encoded_bytes()).unwrap();
        let argv = Strings::from_iter([self.program.to_bytes()].iter().chain(args));
        let env = Strings::from_iter([b"A=b"]);
        let request = Request {
            flags,
            roster_entry: ticket.number(),
            group: 0,
            log: log.place(),
            asker: 0,
            path: self.program.to_bytes_with_nul(),
            folder: folder.to_bytes_with_nul(),
            argv: argv.bytes(),
            argc: argv.len(),
            env: env.bytes(),
            envc: env.len(),
            route: route.to_bytes_with_nul(),
            context: self.context.block(),
            streams: [self.null.as_fd(); 3],
        };
        self.parked.ask(&request, ticket.place()).unwrap()
    }
}

fn blinds(accesses: &[Access]) -> bool {
    accesses.iter().any(|access| matches!(access.what, What::Blind { .. }))
}

#[test]
fn the_child_of_a_parked_program_is_observed() {
    let stall = Stall::new("child");
    let others = [stall.arena.reserve().unwrap(), stall.arena.reserve().unwrap()];
    let accesses = stall.observe(&[b"access", b"/absent/parked"]);
    let begin = What::Begin {
        program: stall.program.to_bytes().to_vec(),
        folder: stall.folder.as_os_str().as_encoded_bytes().to_vec(),
        parent: std::process::id(),
        is_traced: false,
    };
    let find = What::Find {
        path: b"/absent/parked".to_vec(),
    };
    assert_eq!(accesses.first().map(|access| &access.what), Some(&begin));
    assert!(accesses.iter().any(|access| access.what == find && access.error == 2));
    assert!(accesses.iter().any(|access| matches!(access.what, What::Load { .. })));
    assert!(!blinds(&accesses), "{accesses:?}");
    for other in others {
        assert_eq!(other.finish().len(), 1, "nothing is noted elsewhere");
    }
}

#[test]
fn what_the_child_of_a_parked_program_executes_is_observed() {
    let stall = Stall::new("executes");
    let accesses = stall.observe(&[b"execute"]);
    for way in ["vfork", "fork", "execl", "spawn", "spawnp", "system", "popen"] {
        let find = What::Find {
            path: format!("/absent/{way}").into_bytes(),
        };
        assert!(accesses.iter().any(|access| access.what == find), "{way}");
    }
    assert!(!blinds(&accesses), "{accesses:?}");
}

/// A driver has the names of a command that was there while its course is learned: when the engine ends meanwhile, what that command
/// has made must stay as it is.
#[test]
fn a_driver_that_only_tells_executes_and_removes_nothing() {
    const FLAGS: u32 = packet::ROUTE | packet::RUN_NOTHING;
    let stall = Stall::new("tells");
    let log = stall.arena.reserve().unwrap();
    let child = stall.start(&log, &[b"execute"], c"/absent/answering", FLAGS);
    crate::process::spawn::wait_for(child.pid);
    let accesses = log.finish();
    let began = accesses
        .iter()
        .filter(|access| matches!(access.what, What::Begin { .. }));
    assert_eq!(began.count(), 1, "{accesses:?}");
    let gcc = Path::new("/usr/bin/gcc").canonicalize().unwrap();
    let stall = Stall::of("tells-gcc", &gcc);
    fs::write(stall.folder.join("t.c"), "").unwrap();
    fs::write(stall.folder.join("t.o"), "made by the command").unwrap();
    let log = stall.arena.reserve().unwrap();
    let child = stall.start(&log, &[b"-c", b"t.c", b"-o", b"t.o"], c"/absent/answering", FLAGS);
    assert_ne!(crate::process::spawn::wait_for(child.pid).code, 0);
    assert_eq!(fs::read(stall.folder.join("t.o")).unwrap(), b"made by the command");
}

#[test]
fn compilers_do_nothing_before_main_that_could_not_be_told() {
    for name in ["gcc", "cc1", "as", "ld", "clang"] {
        let mut gcc = Command::new("gcc");
        let said = gcc.arg(format!("-print-prog-name={name}")).output().unwrap();
        let path = PathBuf::from(String::from_utf8(said.stdout).unwrap().trim());
        let path = ["", "/usr/bin"].map(|folder| Path::new(folder).join(&path));
        let path = path.iter().find(|path| path.is_absolute() && path.exists()).unwrap();
        let accesses = Stall::of(name, path).observe(&[b"--version"]);
        let blind: Vec<_> = accesses
            .iter()
            .filter(|access| blinds(std::slice::from_ref(*access)))
            .collect();
        assert!(blind.is_empty(), "{name}: {blind:?}");
    }
}

#[test]
fn a_driver_tells_where_its_parts_are_to_note_and_for_whom_they_stand() {
    let gcc = Path::new("/usr/bin/gcc").canonicalize().unwrap();
    let stall = Stall::of("driver", &gcc);
    fs::write(stall.folder.join("t.c"), "").unwrap();
    let answering = Answering::open(stall.folder.join("answering")).unwrap();
    let route = CString::new(answering.path().as_os_str().as_encoded_bytes()).unwrap();
    let log = stall.arena.reserve().unwrap();
    let child = stall.start(&log, &[b"-c", b"t.c", b"-o", b"t.o"], &route, packet::ROUTE);
    let mut asked = Vec::new();
    let mut tokens = std::collections::HashSet::new();
    answering.serve(&child.pidfd, |_, wanted| {
        let request = wanted.request(b"\0", 0);
        assert_ne!(
            request.log.token, 0,
            "what begins would not be known as what was executed"
        );
        tokens.insert(request.log.token);
        let log = Place {
            token: 0,
            ..request.log
        };
        asked.push((log, request.asker as u32));
        Some(0)
    });
    assert_eq!(crate::process::spawn::wait_for(child.pid).code, 0);
    let place = log.place();
    let accesses = log.finish();
    let executed = accesses
        .iter()
        .filter(|access| matches!(access.what, What::Execute { .. }));
    let executed: Vec<_> = executed.map(|access| (place, access.process)).collect();
    assert_eq!(asked.len(), 2);
    let asked: Vec<_> = asked
        .into_iter()
        .map(|(log, asker)| (Place { token: 0, ..log }, asker))
        .collect();
    assert_eq!(asked, executed);
    assert_eq!(tokens.len(), 2, "each exec has its own");
    assert!(blinds(&accesses), "nothing has run for it, so nothing has begun");
}
