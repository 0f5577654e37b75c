//! Functions that all targets share: seeds, a count of allocated memory, and streams that come in pieces.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use wafengine::bytes::frame::Inbox;

/// Counts the memory that Rust code allocates. libFuzzer does not use this allocator, and runs one input at a time.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

fn take(size: usize) {
    let held = HELD.fetch_add(size, Ordering::Relaxed).wrapping_add(size);
    MOST.fetch_max(held, Ordering::Relaxed);
}

fn give_back(size: usize) {
    HELD.fetch_sub(size, Ordering::Relaxed);
}

// SAFETY: passes each call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        System.alloc_zeroed(layout)
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new block may exist at the same time.
        take(size);
        give_back(layout.size());
        System.realloc(old, layout, size)
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        give_back(layout.size());
        System.dealloc(old, layout);
    }
}

/// The result of `decode`. Panics if that allocates more memory than this.
pub fn within<T>(most: usize, decode: impl FnOnce() -> T) -> T {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let made = decode();
    let taken = MOST.load(Ordering::Relaxed).saturating_sub(before);
    assert!(taken <= most, "{taken} bytes were taken, {most} are the most");
    made
}

/// Writes valid examples into the first folder of the command line. libFuzzer begins with them.
pub fn seed(seeds: impl IntoIterator<Item = Vec<u8>>) {
    let Some(folder) = std::env::args().skip(1).find(|word| Path::new(word).is_dir()) else {
        return;
    };
    for (number, seed) in seeds.into_iter().enumerate() {
        let path = Path::new(&folder).join(format!("seed-{number}"));
        std::fs::write(&path, seed).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    }
}

/// Cuts the data into three pieces. The first two bytes say where.
pub fn pieces(data: &[u8]) -> Option<(&[u8], [&[u8]; 3])> {
    let ([first, second], rest) = data.split_first_chunk::<2>()?;
    let cut = |at: &u8, bytes: &[u8]| usize::from(*at) * (bytes.len() + 1) / 256;
    let (one, others) = rest.split_at(cut(first, rest));
    let (two, three) = others.split_at(cut(second, others));
    Some((rest, [one, two, three]))
}

/// A seed for `pieces`.
pub fn cut(rest: &[u8]) -> Vec<u8> {
    [&[100, 128], rest].concat()
}

/// Passes a stream to `take`, piece by piece. `take` returns how many bytes it has used, or None if it needs more.
pub fn stream<'a, E>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut take: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
) -> Result<usize, E> {
    let mut waiting: Vec<u8> = Vec::new();
    for piece in pieces {
        waiting.extend_from_slice(piece);
        while let Some(used) = take(&waiting)? {
            assert!(used <= waiting.len(), "more than there is");
            waiting.drain(..used);
        }
    }
    Ok(waiting.len())
}

/// The frames of a stream that comes in these pieces, and whether it is malformed. The memory is limited by the bytes that
/// have come.
pub fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, cap: usize) -> (Vec<Vec<u8>>, bool) {
    let mut inbox = Inbox::new(cap);
    let mut frames = Vec::new();
    let mut came = 0;
    for piece in pieces {
        came += piece.len();
        within(4 * came + 1024, || inbox.push(piece));
        loop {
            match inbox.take() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

pub fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

/// Seeds with one frame each, and one with all frames.
pub fn frame_seeds(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.push(frames.concat());
    frames.iter().map(|bytes| cut(bytes)).collect()
}

/// A target for frames, each of which is a request or a reply, or neither.
#[macro_export]
macro_rules! fuzz_frames {
    ($seeds:expr, $request:ident, $reply:ident, $cap:expr) => {
        libfuzzer_sys::fuzz_target!(init: $crate::seed($seeds), |data: &[u8]| {
            let Some((whole, pieces)) = $crate::pieces(data) else { return };
            let (found, is_broken) = $crate::frames([whole], $cap);
            assert_eq!($crate::frames(pieces, $cap), (found.clone(), is_broken));
            for frame in &found {
                let most = 4 * frame.len() + 1024;
                if let Ok(request) = $crate::within(most, || $request::decode(frame)) {
                    assert_eq!($request::decode(&$crate::encoded(|to| request.encode(to))[4..]), Ok(request));
                }
                if let Ok(reply) = $crate::within(most, || $reply::decode(frame)) {
                    assert_eq!($reply::decode(&$crate::encoded(|to| reply.encode(to))[4..]), Ok(reply));
                }
            }
        });
    };
}
