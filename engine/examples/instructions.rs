//! Says what programs and libraries can do by instructions of their own, and how long it takes to find out.

use std::time::Instant;

use wafengine::facts::instructions::find;

fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let start = Instant::now();
        let found = find(&bytes);
        println!(
            "{path}: {found:?}, {:.0?} for {} KiB",
            start.elapsed(),
            bytes.len() >> 10
        );
    }
}
