//! Measures the cost of a dashboard: requests reports from the running engine, and prints the processor time that the engine
//! spent on each of them.
//!
//! `cargo run --release --example watched -- 1000`; `WAFD_RUNTIME_DIR` selects the engine.

use std::error::Error;
use std::fs;
use std::time::Instant;

use wafengine::client::Client;
use wafengine::files::folder::Folder;

fn main() -> Result<(), Box<dyn Error>> {
    let count: u32 = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse())?;
    let mut client = Client::connect(&Folder::from_environment(), [0; 16], 0, b"watched").map_err(|e| e.to_string())?;
    let first = client.report()?;
    let (before, began) = (processor_time(client.pid)?, Instant::now());
    for _ in 0..count {
        client.report()?;
    }
    let (spent, waited) = (processor_time(client.pid)? - before, began.elapsed());
    let (size, of) = (first.to_string().len(), f64::from(count));
    let commands = first["commands"].as_array().map_or(0, Vec::len);
    let programs = first["parking"]["programs"].as_array().map_or(0, Vec::len);
    println!("{count} reports of {size} bytes, with {commands} commands and {programs} programs");
    println!("engine's processor time: {:.0} us each", spent as f64 / 1e3 / of);
    println!("answered in: {:.0} us each", waited.as_secs_f64() * 1e6 / of);
    Ok(())
}

/// The processor time of all threads of a process, in nanoseconds.
fn processor_time(process: u32) -> Result<u64, Box<dyn Error>> {
    let mut all = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        all += text.split(' ').next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(all)
}
