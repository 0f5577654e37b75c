//! The work of `examples/store_bench.rs`, done with redb and with LMDB: `cargo run --release -- redb|lmdb|lmdb-sync FOLDER`.
//!
//! Fills a FOLDER that is not there; run again, it opens and reads. A package of its own, so that the engine needs neither.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use heed::types::Bytes;
use redb::{Database, Durability, TableDefinition};

const ENTRIES: usize = 100_000;
const SIZE: usize = 20_000;
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");

type Any = Box<dyn Error>;

fn main() -> Result<(), Any> {
    let [what, folder] = [1, 2].map(|n| env::args().nth(n).unwrap_or_default());
    let entries = env::args().nth(3).and_then(|text| text.parse().ok()).unwrap_or(ENTRIES);
    let new = !Path::new(&folder).exists();
    fs::create_dir_all(&folder)?;
    match what.as_str() {
        "redb" => redb(Path::new(&folder), new, entries),
        "lmdb" => lmdb(Path::new(&folder), new, entries, heed::EnvFlags::NO_SYNC),
        "lmdb-sync" => lmdb(Path::new(&folder), new, entries, heed::EnvFlags::empty()),
        _ => Err("redb, lmdb or lmdb-sync, and a folder".into()),
    }
}

fn redb(folder: &Path, new: bool, entries: usize) -> Result<(), Any> {
    let before = resident();
    let start = Instant::now();
    let database = Database::create(folder.join("redb"))?;
    tell("open", start.elapsed(), 1);
    println!("{:>12} {} bytes", "memory", resident() - before);
    if new {
        let start = Instant::now();
        for n in 0..entries {
            let mut change = database.begin_write()?;
            change.set_durability(Durability::Immediate);
            change
                .open_table(TABLE)?
                .insert(key(n).as_slice(), content(n).as_slice())?;
            change.commit()?;
        }
        tell("put", start.elapsed(), entries);
        return Ok(());
    }
    let start = Instant::now();
    let mut read = 0;
    for n in 0..entries {
        let look = database.begin_read()?;
        let found = look
            .open_table(TABLE)?
            .get(key(mixed(n, entries)).as_slice())?
            .map(|bytes| bytes.value().to_vec());
        read += found.map_or(0, |bytes| checked(&bytes));
    }
    tell("get", start.elapsed(), entries);
    assert_eq!(read, entries * SIZE);
    Ok(())
}

fn lmdb(folder: &Path, new: bool, entries: usize, flags: heed::EnvFlags) -> Result<(), Any> {
    let before = resident();
    let start = Instant::now();
    // SAFETY: nobody else has this folder open.
    let environment = unsafe {
        heed::EnvOpenOptions::new()
            .map_size(64 << 30)
            .flags(flags)
            .open(folder)?
    };
    let mut change = environment.write_txn()?;
    let table: heed::Database<Bytes, Bytes> = environment.create_database(&mut change, None)?;
    change.commit()?;
    tell("open", start.elapsed(), 1);
    println!("{:>12} {} bytes", "memory", resident() - before);
    if new {
        let start = Instant::now();
        for n in 0..entries {
            let mut change = environment.write_txn()?;
            table.put(&mut change, &key(n), &content(n))?;
            change.commit()?;
        }
        tell("put", start.elapsed(), entries);
        return Ok(());
    }
    let start = Instant::now();
    let mut read = 0;
    for n in 0..entries {
        let look = environment.read_txn()?;
        let found = table.get(&look, &key(mixed(n, entries)))?.map(|bytes| bytes.to_vec());
        read += found.map_or(0, |bytes| checked(&bytes));
    }
    tell("get", start.elapsed(), entries);
    assert_eq!(read, entries * SIZE);
    Ok(())
}

/// Neither of the two notices a damaged value: whoever reads it must look, as the store does.
fn checked(bytes: &[u8]) -> usize {
    std::hint::black_box(blake3::hash(bytes));
    bytes.len()
}

fn tell(what: &str, time: Duration, times: usize) {
    println!("{what:>12} {:>9.2} µs", time.as_secs_f64() * 1e6 / times as f64);
}

fn key(n: usize) -> [u8; 32] {
    *blake3::hash(&n.to_le_bytes()).as_bytes()
}

fn mixed(n: usize, entries: usize) -> usize {
    n * 7919 % entries
}

fn content(n: usize) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    blake3::Hasher::new()
        .update(&n.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
