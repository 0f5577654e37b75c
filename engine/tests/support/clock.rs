//! Time as the tests of facts have it: the tick in which something was changed, and a command for which no time counts.

use wafengine::cache::story::{Policy, Statuses};
use wafengine::facts::status::Stamp;

pub const COMPILER: Policy = Policy {
    compiler: true,
    folder: false,
    shell: false,
    statuses: Statuses::Ignored,
    processor: false,
    number: false,
};

/// The tick of the clock is over in which whatever is there was changed. Newer kernels stamp files by the fine clock too,
/// and the coarse one may be several ticks late.
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
