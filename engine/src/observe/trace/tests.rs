use super::reader::UNSEEN_CHILD;
use super::record::REFUSED;
use super::*;
use crate::observe::access::What;

/// A record as the library writes it, except for its first word.
fn record(kind: u16, process: u32, detail: u32, first: &[u8], second: &[u8]) -> Bytes {
    record_of(kind, process, detail, [first, second], (0, 0))
}

/// The same, with a token and an identity.
fn record_of(
    kind: u16,
    process: u32,
    detail: u32,
    [first, second]: [&[u8]; 2],
    (token, identity): (u32, u64),
) -> Bytes {
    let size = (HEAD as usize + first.len() + second.len()).next_multiple_of(ALIGNMENT as usize);
    let mut bytes = [0, size as u32, process].map(u32::to_ne_bytes).concat();
    bytes.extend([kind, 0].map(u16::to_ne_bytes).concat());
    bytes.extend(
        [detail, first.len() as u32, second.len() as u32, token]
            .map(u32::to_ne_bytes)
            .concat(),
    );
    bytes.extend(identity.to_ne_bytes());
    bytes.extend([first, second].concat());
    bytes.resize(size, 0);
    bytes
}

fn put(trace_region: &TraceRegion, records: &[Bytes]) {
    let mut place = FIRST as usize;
    for record in records {
        let mut record = record.clone();
        record[..4].copy_from_slice(&trace_region.generation.to_ne_bytes());
        // SAFETY: tests write less than a trace region.
        unsafe { ptr::copy_nonoverlapping(record.as_ptr(), trace_region.at(place), record.len()) };
        place += record.len();
    }
    move_cursor(trace_region, place as u32);
}

fn move_cursor(trace_region: &TraceRegion, place: u32) {
    trace_region.cursor().store(
        u64::from(trace_region.generation) << 32 | u64::from(place),
        Ordering::SeqCst,
    );
}

/// The number of no process: the largest number is far beyond what the kernel uses.
const PROCESS: u32 = i32::MAX as u32;

fn begin(process: u32, parent: u32) -> Bytes {
    record(1, process, parent, b"/program", b"/folder")
}

fn why(trace_region: TraceRegion) -> Option<&'static str> {
    match trace_region.finish().pop()?.what {
        What::Blind { why } => Some(why),
        _ => None,
    }
}

fn why_of(records: &[Bytes]) -> Option<&'static str> {
    let trace_region = Arena::new(1).unwrap().reserve().unwrap();
    put(&trace_region, records);
    why(trace_region)
}

const OTHER: u64 = 77;

/// The exec with this number is about to start a program.
fn execute(token: u32) -> Bytes {
    record_of(2, PROCESS, 0, [b"/other", b""], (token, OTHER))
}

/// A program begins that was started by this exec.
fn begin_by(token: u32, identity: u64, [process, parent]: [u32; 2]) -> Bytes {
    record_of(1, process, parent, [b"/other", b"/folder"], (token, identity))
}

#[test]
fn a_program_that_is_executed_must_begin() {
    let refused = || record(REFUSED, PROCESS, 0, b"/other", b"");
    let (itself, child) = ([PROCESS, 1], [PROCESS - 1, PROCESS]);
    for (more, why) in [
        (vec![], None),
        (vec![execute(5)], Some(UNSEEN_CHILD)),
        (vec![execute(5), begin_by(5, OTHER, itself)], None),
        (vec![execute(5), begin_by(5, OTHER, child)], None),
        (vec![execute(5), refused()], None),
        (vec![execute(5), execute(6), refused()], Some(UNSEEN_CHILD)),
        (vec![execute(5), execute(6), refused(), begin_by(5, OTHER, child)], None),
    ] {
        let records = [vec![begin(PROCESS, 1)], more].concat();
        assert_eq!(why_of(&records), why, "{records:?}");
    }
    assert_eq!(why_of(&[execute(5)]), Some(UNSEEN));
    assert_eq!(why_of(&[]), Some(UNSEEN));
}

/// A program that an unobserved program has started is not mistaken for the one that was announced.
#[test]
fn a_begin_belongs_to_one_exec_of_one_process_and_of_one_file() {
    let child = [PROCESS - 1, PROCESS];
    for (of, begins) in [
        ("another file", vec![begin_by(5, OTHER + 1, child)]),
        ("a file that cannot be told", vec![begin_by(5, 0, child)]),
        ("another exec", vec![begin_by(6, OTHER, child)]),
        ("no exec", vec![begin_by(0, OTHER, child)]),
        (
            "a process of another",
            vec![begin_by(5, OTHER, [PROCESS - 1, PROCESS - 2])],
        ),
        (
            "one that has begun",
            vec![begin_by(5, OTHER, child), begin_by(5, OTHER, child)],
        ),
    ] {
        let records = [vec![begin(PROCESS, 1), execute(5)], begins].concat();
        assert_eq!(why_of(&records), Some(UNSEEN_CHILD), "{of}");
    }
    let unknown = record_of(2, PROCESS, 0, [b"/other", b""], (5, 0));
    assert_eq!(
        why_of(&[begin(PROCESS, 1), unknown, begin_by(5, 0, child)]),
        Some(UNSEEN_CHILD)
    );
}

#[test]
fn the_first_program_is_the_one_that_was_started() {
    let shell = std::path::PathBuf::from("/bin/sh");
    let why_with = |identity: u64, started: Option<std::path::PathBuf>| {
        let mut trace_region = Arena::new(1).unwrap().reserve().unwrap();
        trace_region.expect(started);
        put(&trace_region, &[begin_by(0, identity, [PROCESS, 1])]);
        why(trace_region)
    };
    let is_shell = program::find(&shell);
    assert_eq!(why_with(is_shell, Some(shell.clone())), None);
    assert_eq!(why_with(is_shell, None), None);
    assert_eq!(why_with(is_shell + 1, Some(shell)), Some(UNSEEN));
    assert_eq!(why_with(is_shell, Some("/nowhere".into())), Some(UNSEEN));
}

#[test]
fn each_part_of_a_command_must_begin() {
    let of_parts = |records: &[Bytes]| {
        let mut trace_region = Arena::new(1).unwrap().reserve().unwrap();
        put(&trace_region, &records[..1]);
        trace_region.mark();
        put(&trace_region, records);
        trace_region.finish_parts()
    };
    let is_blind = |parts: &[Vec<Access>]| {
        matches!(
            parts.concat().pop(),
            Some(Access {
                what: What::Blind { .. },
                ..
            })
        )
    };
    let parts = of_parts(&[
        begin(PROCESS, 1),
        begin(PROCESS - 1, 1),
        record(14, PROCESS - 1, 0, b"", b""),
    ]);
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
    assert!(!is_blind(&parts));
    assert!(
        is_blind(&of_parts(&[begin(PROCESS, 1)])),
        "the second has noted nothing"
    );
    let time = record(14, PROCESS, 0, b"", b"");
    assert!(is_blind(&of_parts(&[begin(PROCESS, 1), time, begin(PROCESS - 1, 1)])));
}

#[test]
fn a_look_at_an_empty_path_says_nothing() {
    let trace_region = Arena::new(1).unwrap().reserve().unwrap();
    let mut nowhere = record(7, PROCESS, 0, b"", b"");
    nowhere[14..16].copy_from_slice(&(libc::ENOENT as u16).to_ne_bytes());
    put(&trace_region, &[begin(PROCESS, 1), nowhere]);
    assert_eq!(trace_region.finish().len(), 1);
}

#[test]
fn a_region_with_a_gap_is_not_used_again() {
    let arena = Arena::new(1).unwrap();
    let trace_region = arena.reserve().unwrap();
    put(&trace_region, &[begin(PROCESS, 1)]);
    move_cursor(&trace_region, FIRST + 2 * HEAD + 64);
    assert_eq!(why(trace_region), Some(GAP));
    assert!(arena.reserve().is_none());
}

#[test]
fn a_region_that_is_dropped_or_finished_is_free_again() {
    let arena = Arena::new(1).unwrap();
    let first = arena.reserve().unwrap();
    let place = first.place();
    assert!(arena.reserve().is_none());
    drop(first);
    let second = arena.reserve().unwrap();
    assert_eq!(second.place().trace_region, place.trace_region);
    assert_ne!(second.place().generation, place.generation);
    second.finish();
    assert!(arena.reserve().is_some());
}

/// xorshift: the same numbers in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn any_bytes_in_a_region_are_read_without_harm() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..20_000 {
        let trace_region = Arena::new(1).unwrap().reserve().unwrap();
        let mut good = begin(PROCESS, 1);
        let at = 4 + random(&mut state) as usize % (HEAD as usize - 4);
        good[at] = random(&mut state) as u8;
        put(&trace_region, &[good, begin(PROCESS, 1)]);
        if random(&mut state) % 2 == 0 {
            move_cursor(&trace_region, random(&mut state) as u32 % 200);
        }
        // Either the record is reported, or nothing beyond the bytes that are there is used.
        for access in trace_region.finish() {
            if let What::Open { path, .. } | What::Find { path } = access.what {
                assert!(path.len() < 200);
            }
        }
    }
    for end in [
        0,
        1,
        7,
        9,
        REGION_SIZE as u32 - 1,
        REGION_SIZE as u32,
        REGION_SIZE as u32 + 8,
        FULL,
    ] {
        let trace_region = Arena::new(1).unwrap().reserve().unwrap();
        move_cursor(&trace_region, end);
        assert!(why(trace_region).is_some(), "{end}");
    }
}
