//! Finds the instructions of 64-bit Arm, all of which have four bytes.

use super::Findings;

const CALL: u32 = 0xd400_0001;
/// Reads the timer: the clock.
const TIMERS: [u32; 2] = [0xd53b_e040, 0xd53b_e020];
/// Random numbers of the processor.
const RANDOM: [u32; 2] = [0xd53b_2400, 0xd53b_2420];
/// Puts a small constant into x8 or w8.
const NUMBER_SET: u32 = 0xd280_0008;
const NUMBER_SET_SHORT: u32 = 0x5280_0008;
const NEAR: usize = 16;

pub fn sweep(code: &[u8], findings: &mut Findings) {
    let words: Vec<u32> = code
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect();
    for (at, word) in words.iter().enumerate() {
        let register = word & !0x1f;
        if word & 0xffe0_001f == CALL {
            findings.calls |= !number(&words[at.saturating_sub(NEAR)..at]).is_some_and(tells_nothing);
        } else if TIMERS.contains(&register) {
            findings.clock = true;
        } else if RANDOM.contains(&register) {
            findings.random = true;
        } else if register & 0xffff_f000 == 0xd538_0000 {
            findings.processor = true;
        }
    }
}

fn number(before: &[u32]) -> Option<u32> {
    let is_set = |word: &&u32| matches!(*word & 0xffe0_001f, NUMBER_SET | NUMBER_SET_SHORT);
    before.iter().rev().find(is_set).map(|word| word >> 5 & 0xffff)
}

fn tells_nothing(number: u32) -> bool {
    const HARMLESS: [i64; 3] = [libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_membarrier];
    HARMLESS.contains(&i64::from(number))
}
