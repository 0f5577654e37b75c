//! Our store, LMDB and redb under the same work, for `utils/bench.py stores`, which describes what each value means.
//!
//! ```text
//! store-peers STORE FOLDER SMALL LARGE RESTORED fill              puts all results
//!                                               write             the same, and prints a line after each
//!                                               add FIRST COUNT   puts more small ones, as one writer of several
//!                                               read COUNT        opens, and gets this many
//!                                               restore TARGET    opens, and writes objects of 2 MiB to files in a new folder
//!                                               evict             removes the older half
//!                                               check FIRST COUNT opens, gets these, and compares them with what was put
//! ```
//!
//! Prints one object of JSON: microseconds for one, or numbers.

mod lmdb;
mod ours;
mod peer;
mod redb;
mod work;

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, io};

use peer::{Found, Peer};
use work::{mixed, Counts, Key, Outcome};

type Values = Vec<(&'static str, f64)>;

const USAGE: &str =
    "usage: store-peers our-store|lmdb|lmdb-sync|redb|redb-sync FOLDER SMALL LARGE RESTORED ACT [ARGUMENT ...]";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [store, folder, small, large, restored, act, rest @ ..] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let counts = Counts {
        small: small.parse()?,
        large: large.parse()?,
        restored: restored.parse()?,
    };
    let folder = Path::new(folder);
    fs::create_dir_all(folder)?;
    let values = match store.as_str() {
        "our-store" => run::<ours::Ours>(folder, counts, act, rest),
        "lmdb" => run::<lmdb::Lmdb<false>>(folder, counts, act, rest),
        "lmdb-sync" => run::<lmdb::Lmdb<true>>(folder, counts, act, rest),
        "redb" => run::<redb::Redb<false>>(folder, counts, act, rest),
        "redb-sync" => run::<redb::Redb<true>>(folder, counts, act, rest),
        _ => Err(USAGE.into()),
    }?;
    let fields: Vec<String> = values
        .iter()
        .map(|(name, value)| format!("\"{name}\": {value}"))
        .collect();
    println!("{{{}}}", fields.join(", "));
    Ok(())
}

fn run<P: Peer>(folder: &Path, counts: Counts, act: &str, rest: &[String]) -> Outcome<Values> {
    let number = |at: usize| -> Outcome<usize> { Ok(rest.get(at).ok_or(USAGE)?.parse()?) };
    match act {
        "fill" => fill::<P>(folder, counts),
        "write" => write::<P>(folder, counts),
        "add" => add::<P>(folder, counts, number(0)?, number(1)?),
        "read" => read::<P>(folder, counts, number(0)?),
        "restore" => restore::<P>(folder, counts, Path::new(rest.first().ok_or(USAGE)?)),
        "evict" => evict::<P>(folder, counts),
        "check" => check::<P>(folder, counts, number(0)?, number(1)?),
        _ => Err(USAGE.into()),
    }
}

fn fill<P: Peer>(folder: &Path, counts: Counts) -> Outcome<Values> {
    let store = P::open(folder)?;
    let put = |numbers: std::ops::Range<usize>| -> Outcome<f64> {
        let (mut time, count) = (Duration::ZERO, numbers.len());
        for number in numbers {
            let item = counts.result(number);
            let start = Instant::now();
            store.put(&item)?;
            time += start.elapsed();
        }
        Ok(each(time, count))
    };
    let small = put(0..counts.small)?;
    let large = put(counts.small..counts.small + counts.large)?;
    put(counts.small + counts.large..counts.all())?;
    Ok(vec![("put_small", small), ("put_large", large)])
}

/// Prints a line for each result that is stored, and so must be there after `kill -9`.
fn write<P: Peer>(folder: &Path, counts: Counts) -> Outcome<Values> {
    let store = P::open(folder)?;
    for number in 0..counts.all() {
        store.put(&counts.result(number))?;
        io::stdout().write_all(b"\n")?;
        io::stdout().flush()?;
    }
    Ok(Values::new())
}

fn add<P: Peer>(folder: &Path, counts: Counts, first: usize, count: usize) -> Outcome<Values> {
    let store = P::open(folder)?;
    for number in first..first + count {
        store.put(&counts.result(number))?;
    }
    Ok(vec![("added", count as f64)])
}

fn read<P: Peer>(folder: &Path, counts: Counts, count: usize) -> Outcome<Values> {
    let before = resident();
    let start = Instant::now();
    let store = P::open(folder)?;
    let open = start.elapsed();
    let memory = resident().saturating_sub(before);
    let get = |first: usize, all: usize| -> Outcome<f64> {
        let count = count.min(all);
        let numbers: Vec<usize> = (0..count).map(|n| first + mixed(n, all)).collect();
        let keys: Vec<(Key, bool)> = numbers.iter().map(|n| (work::key(*n), *n >= counts.small)).collect();
        let start = Instant::now();
        for (key, has_object) in &keys {
            let found = store.get(key, *has_object, &mut |entry, object| {
                black_box((entry.len(), object.map(<[u8]>::len)));
            })?;
            if found != Found::Right {
                return Err("a result is not there".into());
            }
        }
        Ok(each(start.elapsed(), count))
    };
    let small = get(0, counts.small)?;
    let large = get(counts.small, counts.large)?;
    let start = Instant::now();
    for number in 0..count {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        black_box(store.get(&key, false, &mut |_, _| {})?);
    }
    let miss = each(start.elapsed(), count);
    Ok(vec![
        ("open", open.as_secs_f64() * 1e6),
        ("memory", memory as f64),
        ("get_small", small),
        ("get_large", large),
        ("miss", miss),
    ])
}

fn restore<P: Peer>(folder: &Path, counts: Counts, target: &Path) -> Outcome<Values> {
    fs::create_dir_all(target)?;
    let store = P::open(folder)?;
    let keys: Vec<Key> = (counts.all() - counts.restored..counts.all()).map(work::key).collect();
    // The first round reads everything from the disk, so that the measured round finds it in memory.
    for key in &keys {
        store.get(key, true, &mut |_, _| {})?;
    }
    let start = Instant::now();
    for (n, key) in keys.iter().enumerate() {
        store.restore(key, &File::create(target.join(format!("written-{n}")))?)?;
    }
    let mut values = vec![("restore", each(start.elapsed(), keys.len()))];
    let start = Instant::now();
    for (n, key) in keys.iter().enumerate() {
        match store.link(key, &target.join(format!("linked-{n}"))) {
            None => return Ok(values),
            Some(linked) => linked?,
        }
    }
    values.push(("link", each(start.elapsed(), keys.len())));
    Ok(values)
}

fn evict<P: Peer>(folder: &Path, counts: Counts) -> Outcome<Values> {
    let mut store = P::open(folder)?;
    let sizes: Vec<usize> = (0..counts.all()).map(|number| counts.result(number).size()).collect();
    let half = sizes.iter().sum::<usize>() / 2;
    let older = sizes.iter().scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    let names = |number| {
        let item = counts.result(number);
        (item.key, item.object.map(|(digest, _)| digest))
    };
    let count = older.take_while(|sum| *sum <= half).count();
    let oldest: Vec<(Key, Option<Key>)> = (0..count).map(names).collect();
    let start = Instant::now();
    store.evict(&oldest)?;
    Ok(vec![("evict", start.elapsed().as_secs_f64() * 1e6)])
}

fn check<P: Peer>(folder: &Path, counts: Counts, first: usize, count: usize) -> Outcome<Values> {
    let store = P::open(folder)?;
    let (mut right, mut missing, mut wrong, mut failed) = (0, 0, 0, 0);
    for number in first..first + count {
        let item = counts.result(number);
        let mut is_same = false;
        let found = store.get(&item.key, item.object.is_some(), &mut |entry, object| {
            is_same = entry == item.entry && object == item.object.as_ref().map(|(_, bytes)| bytes.as_slice());
        });
        match found {
            Ok(Found::Right) if is_same => right += 1,
            Ok(Found::Right | Found::Wrong) => wrong += 1,
            Ok(Found::Missing) => missing += 1,
            Err(_) => failed += 1,
        }
    }
    let values = [
        ("right", right),
        ("missing", missing),
        ("wrong", wrong),
        ("failed", failed),
    ];
    Ok(values.map(|(name, count)| (name, f64::from(count))).into())
}

/// The average time, in microseconds.
fn each(time: Duration, times: usize) -> f64 {
    time.as_secs_f64() * 1e6 / times.max(1) as f64
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
