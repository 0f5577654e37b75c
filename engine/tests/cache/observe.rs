//! The accesses that are recorded inside commands. One rule per test. observe_strace.rs compares them with strace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::observed_folder::{blindness, paths, succeeded, ObservedFolder};
use crate::support::sandbox;
use wafengine::observe::access::{Access, What};

// ---- What is recorded.

#[test]
fn threads_of_a_process_record_at_the_same_time() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["threads"]);
    let found = paths(&accesses);
    assert_eq!(blindness(&accesses), [""; 0]);
    for name in ["a", "b", "c", "d"] {
        for i in 0..500 {
            assert!(
                found.contains(&PathBuf::from(format!("/absent/{name}/{i}"))),
                "{name} {i}"
            );
        }
    }
}

#[test]
fn a_program_is_observed_in_whatever_way_it_is_executed() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["execute"]);
    let found = paths(&accesses);
    assert_eq!(blindness(&accesses), [""; 0]);
    for way in ["vfork", "fork", "execl", "spawn", "spawnp", "system", "popen"] {
        assert!(found.contains(&PathBuf::from(format!("/absent/{way}"))), "{way}");
    }
    let lost = Path::new("/usr/bin/nothing-of-this-name");
    assert!(found.contains(lost), "a folder in PATH without the program");
}

#[test]
fn a_program_sees_the_environment_that_it_would_have_had() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&[]);
    let trace_region = folder.arena.reserve().unwrap();
    let plain = folder.plain(&probe).arg("environment").output().unwrap();
    let observed = folder
        .observed(&probe, &trace_region)
        .arg("environment")
        .output()
        .unwrap();
    assert_eq!(plain.stdout, observed.stdout);
    assert_eq!(blindness(&trace_region.finish()), [""; 0]);
}

#[test]
fn libraries_that_a_client_preloads_stay_preloaded() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&[]);
    let other = folder.write("other.c", "int of_another;\n");
    let library = folder.path("other.so");
    succeeded(
        &folder
            .plain("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &other])
            .output()
            .unwrap(),
    );
    let theirs = library.as_os_str().as_bytes();
    let trace_region = folder.arena.reserve().unwrap();
    let [preload, trace] = trace_region.variables(&folder.library(), Some(theirs));
    let value =
        |entry: &[u8]| OsStr::from_bytes(&entry[entry.iter().position(|b| *b == b'=').unwrap() + 1..]).to_owned();
    let mut command = folder.plain(&probe);
    command.args(["run".as_ref(), probe.as_os_str(), "environment".as_ref()]);
    let said = command
        .env("LD_PRELOAD", value(&preload))
        .env("WAFPARK_TRACE", value(&trace))
        .output()
        .unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains(&format!("LD_PRELOAD={}\n", library.display())), "{text}");
    let accesses = trace_region.finish();
    let loads = accesses
        .iter()
        .filter(|access| matches!(&access.what, What::Load { path } if path == theirs));
    assert_eq!(loads.count(), 2, "before and after exec");
    assert_eq!(blindness(&accesses), [""; 0]);
}

#[test]
fn relative_paths_refer_to_the_folder_of_their_process() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["folders"]);
    let found = paths(&accesses);
    assert_eq!(blindness(&accesses), [""; 0]);
    let names = [
        "in/below",
        "by-number",
        "not-by-number",
        "above",
        "in",
        "in-a-fork",
        "in/deep-in-a-fork",
        "",
    ];
    for name in names {
        assert!(found.contains(&folder.path(name)), "{name}: {found:?}");
    }
    let lists = accesses
        .iter()
        .filter(|access| matches!(access.what, What::List { .. }));
    assert_eq!(lists.count(), 2);
}

#[test]
fn writing_moving_and_removing_are_recorded() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["files"]);
    let did: Vec<&What> = accesses
        .iter()
        .filter(|a| a.error == 0)
        .map(|access| &access.what)
        .collect();
    let moved = did.iter().find_map(|what| match what {
        What::Rename { from, to } => Some((from.clone(), to.clone())),
        _ => None,
    });
    let (from, to) = moved.unwrap();
    assert_eq!(to, b"kept");
    let opened = |wanted: &[u8]| {
        let modes = did.iter().filter_map(|what| match what {
            What::Open { path, mode } if path == wanted => Some(*mode),
            _ => None,
        });
        modes.collect::<Vec<_>>()
    };
    assert!(matches!(opened(&from)[..], [mode] if mode.creates && mode.exclusive && mode.writes));
    let [fresh, more] = opened(b"new")[..] else {
        panic!("{did:?}")
    };
    assert!(fresh.exclusive && fresh.truncates && !fresh.reads);
    assert!(more.reads && more.writes && more.creates && !more.truncates && !more.exclusive);
    assert!(matches!(opened(b"second")[..], [mode] if mode.writes && mode.exclusive));
    assert!(did.contains(&&What::Make {
        path: b"link".to_vec(),
        is_folder: false
    }));
    for gone in [b"second".to_vec(), b"new".to_vec()] {
        assert!(did.contains(&&What::Remove { path: gone }));
    }
}

#[test]
fn clocks_dates_and_randomness_are_distinguished() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&[]);
    let ask = |what: &str| {
        let accesses = folder.observe(&probe, &[what]);
        let seen = |wanted: What| accesses.iter().any(|access| access.what == wanted);
        (seen(What::Time), seen(What::Date), seen(What::Random))
    };
    assert_eq!(ask("monotonic"), (false, false, false));
    assert_eq!(ask("time"), (true, false, false));
    assert_eq!(ask("date"), (false, true, false));
    assert_eq!(ask("random"), (false, false, true));
    assert_eq!(ask("urandom"), (false, false, true));
}

#[test]
fn a_program_may_close_all_file_descriptors() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["closed"]);
    assert!(paths(&accesses).contains(Path::new("/absent/closed")));
}

#[test]
fn the_hardened_functions_of_libc_are_recorded_too() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["hardened"]);
    let link = What::Link {
        path: b"/absent/hardened".to_vec(),
    };
    assert!(accesses.iter().any(|access| access.what == link && access.error == 2));
    assert!(accesses.iter().any(|access| access.what == What::Locate));
}

#[test]
fn a_walk_by_the_c_library_cannot_be_observed() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["walk"]);
    assert_eq!(blindness(&accesses), ["it lets the C library walk through folders"]);
}

#[test]
fn recording_does_not_change_errno() {
    let folder = ObservedFolder::new();
    folder.observe(folder.probe(&[]), &["errno"]);
}

#[test]
fn a_library_in_the_programs_own_path_is_found_and_recorded() {
    let folder = ObservedFolder::new();
    let source = folder.write("part.c", "int part(void) { return 1; }\n");
    fs::create_dir(folder.path("parts")).unwrap();
    let part = folder.path("parts/libpart.so");
    succeeded(
        &folder
            .plain("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&part, &source])
            .output()
            .unwrap(),
    );
    let probe = folder.probe(&["-Wl,--enable-new-dtags,-rpath,$ORIGIN/parts"]);
    let accesses = folder.observe(probe, &["library", "libpart.so"]);
    let loaded = What::Load {
        path: part.as_os_str().as_bytes().to_vec(),
    };
    assert!(accesses.iter().any(|access| access.what == loaded), "{accesses:?}");
}

// ---- What cannot be observed.

#[test]
fn a_static_program_cannot_be_observed() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&["-static"]);
    assert_eq!(blindness(&folder.observe(&probe, &[])), ["it cannot be observed"]);
}

#[test]
fn a_command_that_executes_a_static_program_cannot_be_observed() {
    let folder = ObservedFolder::new();
    let inner = folder.probe(&["-static"]);
    fs::rename(&inner, folder.path("inner")).unwrap();
    let probe = folder.probe(&[]);
    let inner = folder.path("inner");
    let accesses = folder.observe(probe, &["run", inner.to_str().unwrap()]);
    assert_eq!(blindness(&accesses), ["a program that it executes cannot be observed"]);
}

#[test]
fn a_full_trace_region_is_reported_and_can_be_used_again() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&[]);
    assert_eq!(
        blindness(&folder.observe(&probe, &["many"])),
        ["it does more than can be noted"]
    );
    for _ in 0..5 {
        assert_eq!(blindness(&folder.observe(&probe, &["closed"])), [""; 0]);
    }
}

#[test]
fn a_program_with_system_calls_of_its_own_cannot_be_observed() {
    let folder = ObservedFolder::new();
    let accesses = folder.observe(folder.probe(&[]), &["raw"]);
    assert_eq!(blindness(&accesses), ["it makes system calls of its own"]);
    let accesses = folder.observe(folder.probe(&[]), &["numbered"]);
    assert_eq!(blindness(&accesses), [""; 0]);
    let opens = |access: &Access| matches!(&access.what, What::Open { path, .. } if path == b"/absent/numbered");
    assert!(accesses.iter().any(opens));
}

#[test]
fn a_process_that_outlives_its_command_is_reported() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&[]);
    let mark = folder.path("mark");
    let trace_region = folder.arena.reserve().unwrap();
    let mut command = folder.observed(&probe, &trace_region);
    command
        .args(["linger".as_ref(), mark.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (held, mut said) = (child.stdin.take(), child.stdout.take().unwrap());
    // The child closes its output when it has done its work. The parent keeps its own open, and waits for the mark.
    let noted = || {
        let text = fs::read(format!("/proc/{}/task/{}/children", child.id(), child.id())).unwrap_or_default();
        !text.is_empty()
    };
    sandbox::wait_until("it has a child", noted);
    let grandchild = fs::read_to_string(format!("/proc/{}/task/{}/children", child.id(), child.id())).unwrap();
    let grandchild = grandchild.trim().to_owned();
    sandbox::wait_until("the child has closed its output", || {
        fs::metadata(format!("/proc/{grandchild}/fd/2")).is_err()
    });
    fs::write(&mark, "").unwrap();
    assert!(child.wait().unwrap().success());
    std::io::Read::read_to_end(&mut said, &mut Vec::new()).unwrap();
    assert_eq!(blindness(&trace_region.finish()), ["a process of it still runs"]);
    drop(held);
}

#[test]
fn a_process_of_an_earlier_command_records_nothing_for_a_later_one() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&[]);
    let old = folder.arena.reserve().unwrap();
    let mut late = folder.observed(&probe, &old);
    late.args(["access", "/absent/late"]);
    assert_eq!(blindness(&old.finish()), ["it cannot be observed"]);
    let trace_region = folder.arena.reserve().unwrap();
    succeeded(&late.output().unwrap());
    assert_eq!(trace_region.finish().len(), 1, "it records nothing");
}

#[test]
fn a_program_that_need_not_record_runs_as_usual() {
    let folder = ObservedFolder::new();
    let probe = folder.probe(&[]);
    let mut command = folder.plain(&probe);
    command.arg("execute").env("LD_PRELOAD", folder.path("libwafpark.so"));
    succeeded(&command.output().unwrap());
}

#[test]
fn compilers_ask_for_the_date_only_to_write_it() {
    let folder = ObservedFolder::new();
    let makes = |compiler: &str, content: &str| {
        folder.write("d.c", content);
        let accesses = folder.observe(compiler, &["-c", "d.c", "-o", "d.o"]);
        accesses.iter().any(|access| access.what == What::Date)
    };
    for compiler in ["gcc", "clang"] {
        assert!(!makes(compiler, "int none;\n"), "{compiler}");
        for name in ["__DATE__", "__TIME__", "__TIMESTAMP__"] {
            assert!(
                makes(compiler, &format!("const char *text = {name};\n")),
                "{compiler} {name}"
            );
        }
    }
}
