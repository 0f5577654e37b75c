//! Measures compression: `cargo run --release --example store_bench -- FOLDER FILE …` stores these files in a new FOLDER with
//! and without compression, and prints times and sizes. `utils/bench.py stores` compares the store with others.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use wafengine::bytes::digest::Digest;
use wafengine::cache::store::{Compression, Settings, Store};

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    match (arguments.next(), arguments.collect::<Vec<_>>()) {
        (Some(folder), files) if !files.is_empty() => measure(Path::new(&folder), &files),
        _ => Err(io::Error::other("usage: store_bench FOLDER FILE ...")),
    }
}

fn measure(folder: &Path, files: &[String]) -> io::Result<()> {
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
        print("put", start.elapsed(), files.len());
        let start = Instant::now();
        let read: u64 = digests
            .iter()
            .filter_map(|digest| Some(store.open_blob(digest)?.length()))
            .sum();
        print("get", start.elapsed(), files.len());
        assert_eq!(read, bytes as u64);
        println!(
            "{:>12} {:>9.0} %",
            "size",
            store.usage().size as f64 * 100.0 / bytes as f64
        );
    }
    Ok(())
}

fn print(what: &str, time: Duration, times: usize) {
    println!("{what:>12} {:>9.2} µs", time.as_secs_f64() * 1e6 / times as f64);
}
