//! The clock of the tests of facts: ticks, and a command for which times do not matter.

use wafengine::cache::story::{Policy, Statuses};
use wafengine::facts::status::Stamp;

pub const COMPILER: Policy = Policy {
    compiler: true,
    folder: false,
    shell: false,
    statuses: Statuses::Ignored,
    processor: false,
    number: false,
    prints: false,
    without_comments: false,
};

/// Waits until the clock's tick is over in which the last change was made. Newer kernels also stamp files with the fine
/// clock, and the coarse one may be several ticks late.
pub fn next_tick() {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = Stamp {
        seconds: now.as_secs() as i64,
        nanoseconds: now.subsec_nanos(),
    };
    while Stamp::now() <= now {
        std::thread::yield_now();
    }
}
