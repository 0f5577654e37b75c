//! What it costs to find out whether an entry holds: `cargo run --release --example facts_bench`.
//!
//! Entries of a compile with 20 headers in 30 folders, and of one with 800 facts; decoding, checking warm with a view of its
//! own for each request (check) and with one for requests that arrived together (again), and the first check of an engine that has just been started.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use wafengine::cache::lookup::entry::Entry;
use wafengine::cache::story::{understand, Knowledge, Policy, Statuses};
use wafengine::facts::environment::Environment;
use wafengine::facts::file_view::FileView;
use wafengine::facts::path::Place;
use wafengine::facts::status::Stamp;
use wafengine::facts::world::{Room, View, World};
use wafengine::observe::access::{Access, Mode, What};
use wafengine::wire::Strings;

const FOLDERS: usize = 30;
const ROUNDS: usize = 2000;

struct Case {
    name: &'static str,
    headers: usize,
    absences: usize,
}

fn accesses(root: &Path, case: &Case) -> Vec<Access> {
    let mut list = Vec::new();
    let mut add = |what, error: i32| {
        let (process, error) = (1, error as u16);
        list.push(Access {
            process,
            what,
            error,
            identity: 0,
        });
    };
    let folder = root.display().to_string().into_bytes();
    let program = b"/bin/sh".to_vec();
    let parent = 0;
    add(
        What::Begin {
            program,
            folder,
            parent,
            is_traced: false,
        },
        0,
    );
    let mode = Mode {
        reads: true,
        ..Mode::default()
    };
    for number in 0..FOLDERS {
        let path = format!("include/folder_{number}").into_bytes();
        add(What::Look { path, follows: true }, 0);
    }
    for header in 0..case.headers {
        let path = format!("include/folder_{}/header_{header}.h", header % FOLDERS).into_bytes();
        add(What::Open { path, mode }, 0);
    }
    for absence in 0..case.absences {
        let path = format!("include/folder_{}/absent_{absence}.h", absence % FOLDERS).into_bytes();
        add(What::Open { path, mode }, libc::ENOENT);
    }
    list
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn measure(rounds: usize, mut once: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        once();
        start.elapsed()
    };
    median((0..rounds).map(time).collect())
}

fn main() {
    let root = std::env::temp_dir().join(format!("facts-bench-{}", std::process::id()));
    for header in 0..120 {
        let folder = root.join(format!("include/folder_{}", header % FOLDERS));
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join(format!("header_{header}.h")),
            format!("{header}").repeat(2000),
        )
        .unwrap();
    }
    println!("waiting until the folders count as quiet");
    std::thread::sleep(Duration::from_millis(2200));
    let environment = Environment::of(&std::env::vars().map(|(k, v)| format!("{k}={v}")).collect::<Strings>());
    let place = Place::new(root.display().to_string().as_bytes(), None);
    let knowledge = Knowledge {
        policy: Policy {
            compiler: true,
            folder: false,
            shell: false,
            statuses: Statuses::Ignored,
            processor: false,
            number: false,
        },
        outputs: None,
        modules: None,
        unseen: &[],
        observer: b"",
        started: Stamp::now(),
    };
    println!("medians of {ROUNDS}, in microseconds");
    println!(
        "{:<12} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8}",
        "", "facts", "bytes", "make", "decode", "check", "cold"
    );
    let cases = [("20 headers", 20, 55), ("800 facts", 120, 635)];
    for (name, headers, absences) in cases {
        let case = Case {
            name,
            headers,
            absences,
        };
        let accesses = accesses(&root, &case);
        let world = World::new(Room::default());
        let view = |world| View::new(world, &place, &environment);
        let facts = understand(&accesses, &knowledge, &mut view(&world))
            .expect("no obstacle")
            .facts;
        let entry = Entry {
            facts,
            ..Entry::default()
        };
        let bytes = entry.encode();
        let make = measure(ROUNDS / 20, || {
            black_box(understand(&accesses, &knowledge, &mut view(&world)).is_ok());
        });
        let decode = measure(ROUNDS, || {
            black_box(Entry::decode(&bytes).is_ok());
        });
        let check = measure(ROUNDS, || assert!(entry.check(&mut view(&world)).is_ok()));
        let arrived = Instant::now();
        let mut moment = None;
        let again = measure(ROUNDS, || {
            let mut view = View::at(
                FileView::for_request(moment.take(), arrived),
                &world,
                &place,
                &environment,
            );
            assert!(entry.check(&mut view).is_ok());
            moment = Some(view.end());
        });
        let cold = measure(20, || {
            assert!(entry
                .check(&mut View::new(&World::new(Room::default()), &place, &environment))
                .is_ok());
        });
        let (facts, size) = (entry.facts.len(), bytes.len());
        println!(
            "{:<12} {facts:>6} {size:>7} {make:>8.0} {decode:>8.1} {check:>8.1} {again:>8.1} {cold:>8.0}",
            case.name
        );
    }
    fs::remove_dir_all(&root).unwrap();
}
