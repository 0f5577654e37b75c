use super::super::environment::Environment;
use super::super::path::Place;
use super::super::world::{Capacity, World};
use super::*;
use crate::observe::access::Mode;

const STAND_IN: &[u8] = b"standIn";
const FOLDER: &str = "/no-such-folder";

fn access(process: u32, what: What, error: i32) -> Access {
    Access {
        error: error as u16,
        ..Access::of(process, what)
    }
}

fn find(process: u32, path: &str, error: i32) -> Access {
    access(process, What::Find { path: path.into() }, error)
}

fn begin(process: u32, program: &str) -> Access {
    let what = What::Begin {
        program: program.into(),
        folder: FOLDER.into(),
        parent: 1,
        is_traced: false,
    };
    access(process, what, 0)
}

fn execute(process: u32, path: &str) -> Access {
    access(process, What::Execute { path: path.into() }, 0)
}

/// A driver that looks for a given file, makes a temporary file, and starts two parts.
fn observed_driver(first: u32, source: &str, between: &str, present: &str) -> Observed {
    let fresh = Mode {
        reads: true,
        writes: true,
        creates: true,
        exclusive: true,
        truncates: false,
    };
    let (output, path) = (format!("{source}.o"), between.into());
    Observed {
        accesses: vec![
            begin(first, "/bin/sh"),
            find(first, present, 0),
            find(first, "/no-such-folder/specs", libc::ENOENT),
            find(first, source, 0),
            find(first, &output, if first > 9 { libc::ENOENT } else { 0 }),
            access(first, What::Open { path, mode: fresh }, 0),
            execute(first + 1, "/bin/sh"),
            execute(first + 2, "/bin/sh"),
            access(first, What::Remove { path: between.into() }, 0),
        ],
        names: [source, between, FOLDER].map(|name| name.as_bytes().to_vec()).to_vec(),
        output: output.into(),
    }
}

fn learned(present: &str) -> DriverModel {
    DriverModel::learn(&observed_driver(10, "standIn.c", "/tmp/one.s", present), STAND_IN, 2).unwrap()
}

fn with_view<T>(act: impl FnOnce(&mut View) -> T) -> T {
    let world = World::new(Capacity { files: 8, folders: 8 });
    let (place, environment) = (Place::new(FOLDER.as_bytes(), None), Environment::default());
    act(&mut View::new(&world, &place, &environment))
}

#[test]
fn what_was_learned_with_one_name_is_predicted_for_another() {
    let model = learned("/bin");
    let alike = observed_driver(3, "a.c", "/tmp/two.s", "/bin");
    assert_eq!(model.find_mismatch(&alike), None);
    let mut other = observed_driver(3, "a.c", "/tmp/two.s", "/bin");
    other.accesses.remove(2);
    assert_ne!(model.find_mismatch(&other), None);
}

#[test]
fn a_driver_that_does_what_cannot_be_followed_has_no_diary() {
    let make = What::Make {
        path: b"/x".to_vec(),
        is_folder: false,
    };
    let blind = What::Blind { why: "of that" };
    let (path, mode) = (b"standIn.c".to_vec(), Mode::default());
    for what in [make, blind, What::Open { path, mode }, What::Date] {
        let mut observed = observed_driver(10, "standIn.c", "/tmp/one.s", "/bin");
        observed.accesses.push(access(10, what.clone(), 0));
        assert!(DriverModel::learn(&observed, STAND_IN, 2).is_err(), "{what:?}");
    }
    let observed = observed_driver(10, "standIn.c", "/tmp/one.s", "/bin");
    assert!(
        DriverModel::learn(&observed, STAND_IN, 1).is_err(),
        "another number of parts"
    );
    assert!(DriverModel::learn(&observed_driver(10, "x", "/tmp/one.s", "/standIn"), STAND_IN, 2).is_err());
}

#[test]
fn parts_come_where_the_driver_starts_them() {
    let (model, names) = (
        Arc::new(learned("/bin")),
        observed_driver(3, "a.c", "/tmp/two.s", "/bin").names,
    );
    let prediction = DriverPrediction { model, names };
    let parts = [begin(50, "/first"), begin(51, "/second")];
    let all = prediction.complete(parts.iter().map(|part| vec![part.clone()]).collect());
    let at = |wanted: &Access| all.iter().position(|access| access == wanted).unwrap();
    let whats: Vec<_> = all.iter().map(|access| &access.what).collect();
    assert_eq!(whats[at(&parts[0]) - 1], &execute(0, "/bin/sh").what);
    assert_eq!(at(&parts[1]), at(&parts[0]) + 2);
    assert_eq!(
        whats.last().unwrap(),
        &&What::Remove {
            path: b"/tmp/two.s".to_vec()
        }
    );
    let lost = prediction.complete(vec![vec![parts[0].clone()]]);
    assert!(matches!(
        lost[..],
        [Access {
            what: What::Blind { .. },
            ..
        }]
    ));
}

#[test]
fn a_diary_holds_as_long_as_all_is_found_as_it_was() {
    let present = std::env::temp_dir().join(format!("model-{}", std::process::id()));
    std::fs::write(&present, "").unwrap();
    let mut model = learned(present.to_str().unwrap());
    let names = observed_driver(3, "a.c", "/tmp/two.s", "").names;
    let found = with_view(|view| model.find_now(&names, view));
    model.keep_found(found).unwrap();
    let prediction = DriverPrediction {
        model: model.into(),
        names,
    };
    assert!(with_view(|view| prediction.holds(view)) && !prediction.model.is_outdated());
    std::fs::remove_file(&present).unwrap();
    assert!(!with_view(|view| prediction.holds(view)) && prediction.model.is_outdated());
}

#[test]
fn what_is_not_found_as_the_driver_found_it_is_not_kept() {
    let mut model = learned("/no-such-file");
    let found = with_view(|view| model.find_now(&observed_driver(3, "a.c", "/tmp/two.s", "").names, view));
    assert!(model.keep_found(found).is_err());
}
