//! Measures the store: `cargo run --release --example store_bench -- FOLDER [ENTRIES [BYTES]]`.
//!
//! Fills a FOLDER that is not there yet, and tells what a put took. Run again, in a process that has held nothing else, it tells
//! what opening it, a find with a read, and an entry in memory cost. `store_bench -- FOLDER pack FILE …` stores these files with
//! and without compression instead, and tells what that costs and saves.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use wafengine::bytes::digest::Digest;
use wafengine::cache::store::{Compression, Settings, Store};

const SHARED: usize = 50;

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1).peekable();
    let folder = arguments.next().unwrap_or_else(|| "store-bench".into());
    if arguments.peek().is_some_and(|word| word == "pack") {
        return pack(Path::new(&folder), arguments.skip(1).collect());
    }
    let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (entries, size) = (number(100_000), number(20_000));
    let settings = Settings {
        max_size: u64::MAX,
        compression: Compression::Off,
    };
    let folder = Path::new(&folder);
    match folder.exists() {
        true => reopen(folder, settings, entries, size),
        false => fill(folder, settings, entries, size),
    }
}

fn fill(folder: &Path, settings: Settings, entries: usize, size: usize) -> io::Result<()> {
    let start = Instant::now();
    let store = Store::open(folder, settings)?;
    tell("open, new", start.elapsed(), 1);

    let shared: Vec<Digest> = (0..SHARED)
        .map(|n| store.put_blob(&content(1 << 40 | n, size)))
        .collect::<Result<_, _>>()?;
    let start = Instant::now();
    for n in 0..entries {
        store.put_entry(&key(n), &content(n, size), &[shared[n % SHARED]])?;
    }
    tell("put", start.elapsed(), entries);
    Ok(())
}

fn reopen(folder: &Path, settings: Settings, entries: usize, size: usize) -> io::Result<()> {
    let before = resident();
    let start = Instant::now();
    let store = Store::open(folder, settings)?;
    tell("open, full", start.elapsed(), 1);
    println!(
        "{:>12} {:>9.0} bytes per entry (with pages the reading left)",
        "memory",
        (resident() - before) as f64 / entries as f64
    );

    let start = Instant::now();
    let absent = (0..entries)
        .filter(|n| store.find(&key(n + entries)).is_empty())
        .count();
    tell("miss", start.elapsed(), absent);
    let start = Instant::now();
    let read: usize = (0..entries)
        .filter_map(|n| Some(store.read(store.find(&key(mixed(n, entries))).first()?)?.len()))
        .sum();
    tell("get", start.elapsed(), entries);
    assert_eq!(read, entries * size);
    println!(
        "{:>12} {:>9.1} MiB on disk",
        "size",
        store.usage().size as f64 / 1048576.0
    );
    Ok(())
}

fn pack(folder: &Path, files: Vec<String>) -> io::Result<()> {
    let files: Vec<Vec<u8>> = files.iter().map(fs::read).collect::<Result<_, _>>()?;
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} files of {} KiB", files.len(), bytes / files.len() / 1024);
    for compression in [
        Compression::Off,
        Compression::Level(-5),
        Compression::Level(1),
        Compression::Level(3),
    ] {
        let store = Store::open(
            &folder.join(format!("{compression:?}")),
            Settings {
                max_size: u64::MAX,
                compression,
            },
        )?;
        println!("{compression:?}");
        let start = Instant::now();
        let digests: Vec<Digest> = files
            .iter()
            .map(|bytes| store.put_blob(bytes))
            .collect::<Result<_, _>>()?;
        tell("put", start.elapsed(), files.len());
        let start = Instant::now();
        let read: u64 = digests
            .iter()
            .filter_map(|digest| Some(store.open_blob(digest)?.length()))
            .sum();
        tell("get", start.elapsed(), files.len());
        assert_eq!(read, bytes as u64);
        println!(
            "{:>12} {:>9.0} %",
            "size",
            store.usage().size as f64 * 100.0 / bytes as f64
        );
    }
    Ok(())
}

fn tell(what: &str, time: Duration, times: usize) {
    println!("{what:>12} {:>9.2} µs", time.as_secs_f64() * 1e6 / times as f64);
}

fn key(n: usize) -> Digest {
    Digest::of(&n.to_le_bytes())
}

/// Every entry once, in no order of the disk.
fn mixed(n: usize, entries: usize) -> usize {
    n * 7919 % entries
}

/// As incompressible as digests.
fn content(n: usize, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    blake3::Hasher::new()
        .update(&n.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// What the process holds in memory.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
