//! Finds the instructions of x86-64. To save time, code is decoded only near bytes that may belong to one of them: the
//! *suspects*.
//!
//! The *line* is the sequence of instructions that decoding finds from the beginning of the code on. To join it in the
//! middle, decoding begins at 15 places in a row. No instruction is longer than 15 bytes, so one of these places is on the
//! line. Decoding goes on from each of them until all have come to the same place. That place is on the line, too.

use std::collections::BTreeSet;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use memchr::{memchr2_iter, memmem};

use super::super::progress;
use super::Findings;

const LONGEST: usize = 15;
/// Decoding begins so many bytes before a suspect. If that does not suffice, it begins farther away.
const NEAR: usize = 64;
const FARTHER: usize = 4;
/// If the clock is read this shortly before a pause, it decides how long to spin. libc's locks do so.
const SPIN: u32 = 16;
/// The number of bytes of code that count as one piece of progress.
const PIECE: usize = 1 << 16;
/// Where programs of old C libraries read the clock: at addresses that are the same in all processes, without a call.
const CLOCK_PAGE: u64 = 0xffff_ffff_ff60_0000;
const CLOCK_PAGE_SIZE: u64 = 0x1000;

/// The number of a system call is too far away to be known.
struct TooNear;

/// A place on the line.
#[derive(Clone, Copy)]
struct Place {
    position: usize,
    number: Number,
}

/// The content of eax.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    /// It was set in this straight line of code.
    Known(u32),
    Unknown,
    /// It may have been set before the place where decoding began.
    BeforeStart,
}

const BEGINNING: Place = Place {
    position: 0,
    number: Number::Unknown,
};

/// Adds the abilities that this code has.
pub fn sweep(code: &[u8], findings: &mut Findings) {
    let mut line = Line::of(code);
    let mut last = BEGINNING;
    for suspect in suspects(code) {
        progress::advance();
        let mut distance = NEAR;
        while suspect >= last.position {
            let start = suspect.saturating_sub(distance);
            let place = match last.number {
                Number::Known(_) | Number::Unknown if start <= last.position => Some(last),
                _ if start == 0 => Some(BEGINNING),
                _ => line.join(start, suspect - LONGEST),
            };
            if let Some(Ok(place)) = place.map(|place| line.follow(place, suspect, findings)) {
                last = place;
                break;
            }
            distance = distance.saturating_mul(FARTHER);
        }
    }
}

/// Where bytes may be part of a wanted instruction, in order.
fn suspects(code: &[u8]) -> Vec<usize> {
    let is_wanted = |at: &usize| match &code[*at..] {
        // syscall, rdtsc, sysenter, cpuid; rdtscp; int 0x80
        [0x0f, 0x05 | 0x31 | 0x34 | 0xa2, ..] | [0x0f, 0x01, 0xf9, ..] | [0xcd, 0x80, ..] => true,
        // rdrand, rdseed
        [0x0f, 0xc7, operand, ..] => *operand >= 0xf0,
        _ => false,
    };
    let mut all: Vec<_> = memchr2_iter(0x0f, 0xcd, code).filter(is_wanted).collect();
    // The page of the clock as a constant of 64 bits, or of 32 bits after an opcode, and what may be between them.
    let is_constant = |at: &usize| {
        let before = &code[at.saturating_sub(9)..at.saturating_sub(3)];
        code[*at..].starts_with(&[0x60, 0xff, 0xff, 0xff, 0xff, 0xff]) || before.contains(&0xc7)
    };
    let constants = memmem::find_iter(code, b"\x60\xff").filter(is_constant);
    all.extend(constants.map(|at| at.saturating_sub(2)));
    all.sort_unstable();
    all
}

struct Line<'a> {
    decoder: Decoder<'a>,
    instruction: Instruction,
}

impl<'a> Line<'a> {
    fn of(code: &'a [u8]) -> Line<'a> {
        Line {
            decoder: Decoder::new(64, code, DecoderOptions::NONE),
            instruction: Instruction::default(),
        }
    }

    /// Decodes what is at a position, and returns the next one. False if it is no instruction.
    fn decode(&mut self, position: usize) -> (usize, bool) {
        if self.decoder.set_position(position).is_err() || !self.decoder.can_decode() {
            return (position + 1, false);
        }
        self.decoder.decode_out(&mut self.instruction);
        match self.instruction.is_invalid() {
            true => (position + 1, false),
            false => (self.decoder.position(), true),
        }
    }

    /// A place on the line after the start, and before the end. None if it is not certain that there is one.
    fn join(&mut self, start: usize, end: usize) -> Option<Place> {
        let mut ways: BTreeSet<_> = (start..start + LONGEST).collect();
        while ways.len() > 1 {
            let first = ways.pop_first().filter(|first| *first < end)?;
            let (next, _) = self.decode(first);
            ways.insert(next);
        }
        let position = ways.pop_first().filter(|position| *position <= end)?;
        let number = Number::BeforeStart;
        Some(Place { position, number })
    }

    /// Goes on until the suspect is passed, and what depends on later instructions is known.
    fn follow(&mut self, from: Place, suspect: usize, findings: &mut Findings) -> Result<Place, TooNear> {
        let Place {
            mut position,
            mut number,
        } = from;
        // The number of instructions since the clock was read, as long as a pause may follow.
        let mut since = None;
        // The code of a large library takes seconds on a busy machine.
        let mut piece = position + PIECE;
        while (position <= suspect || since.is_some()) && position < self.decoder.max_position() {
            if position >= piece {
                piece += PIECE;
                progress::advance();
            }
            since = since.map(|since| since + 1);
            if since.is_some_and(|since| since > SPIN) {
                findings.clock = true;
                since = None;
            }
            let (next, is_instruction) = self.decode(position);
            position = next;
            if !is_instruction {
                number = Number::Unknown;
                continue;
            }
            let instruction = &self.instruction;
            findings.clock |= is_old_clock(instruction);
            match instruction.mnemonic() {
                Mnemonic::Mov | Mnemonic::Xor if is_of_number(instruction) => {
                    number = constant(instruction);
                    continue;
                }
                Mnemonic::Syscall => match number {
                    Number::Known(number) => findings.calls |= !tells_nothing(number),
                    Number::BeforeStart if !findings.calls => return Err(TooNear),
                    Number::Unknown | Number::BeforeStart => findings.calls = true,
                },
                // A call of 32-bit programs, which has other numbers, or of another system.
                Mnemonic::Sysenter => findings.calls = true,
                Mnemonic::Int if instruction.immediate8() == 0x80 => findings.calls = true,
                Mnemonic::Rdrand | Mnemonic::Rdseed => findings.random = true,
                Mnemonic::Rdtsc if since.is_none() => since = Some(0),
                Mnemonic::Rdtsc | Mnemonic::Rdtscp => findings.clock = true,
                Mnemonic::Pause => since = None,
                Mnemonic::Cpuid => findings.processor = true,
                _ => {}
            }
            let goes_on = instruction.flow_control() == FlowControl::Next;
            if !goes_on || number != Number::Unknown && writes_number(instruction) {
                number = Number::Unknown;
            }
        }
        findings.clock |= since.is_some();
        Ok(Place { position, number })
    }
}

fn is_of_number(instruction: &Instruction) -> bool {
    matches!(instruction.op0_register(), Register::EAX | Register::RAX)
}

fn is_old_clock(instruction: &Instruction) -> bool {
    let address = match instruction.code() {
        Code::Mov_rm64_imm32 => instruction.immediate32to64() as u64,
        Code::Mov_r64_imm64 => instruction.immediate64(),
        _ => return false,
    };
    (CLOCK_PAGE..CLOCK_PAGE + CLOCK_PAGE_SIZE).contains(&address)
}

fn constant(instruction: &Instruction) -> Number {
    match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32 => Number::Known(instruction.immediate32()),
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 => {
            let is_cleared = instruction.op1_kind() == OpKind::Register && is_of_number(instruction);
            match is_cleared && instruction.op1_register() == instruction.op0_register() {
                true => Number::Known(0),
                false => Number::Unknown,
            }
        }
        _ => Number::Unknown,
    }
}

/// Unless it is surely another register, it counts as this one.
fn writes_number(instruction: &Instruction) -> bool {
    let first = instruction.op0_register().full_register();
    let is_other = instruction.op0_kind() == OpKind::Register && first != Register::RAX && first != Register::None;
    let is_memory = instruction.op0_kind() == OpKind::Memory;
    let is_plain = matches!(
        instruction.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Lea
            | Mnemonic::Xor
            | Mnemonic::Or
            | Mnemonic::And
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Movzx
            | Mnemonic::Movsxd
            | Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Nop
    );
    !(is_plain && (is_other || is_memory || instruction.op_count() == 0))
        && instruction.mnemonic() != Mnemonic::Nop
        && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
}

/// Waiting, waking, and giving up the processor: what threads do that share memory.
fn tells_nothing(number: u32) -> bool {
    const HARMLESS: [i64; 5] = [
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_membarrier,
        libc::SYS_rt_sigreturn,
        libc::SYS_madvise,
    ];
    HARMLESS.contains(&i64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found if all of the code is decoded from its beginning.
    fn of_whole_line(code: &[u8]) -> Findings {
        let mut findings = Findings::default();
        assert!(Line::of(code).follow(BEGINNING, code.len(), &mut findings).is_ok());
        findings
    }

    fn found(code: &[u8]) -> Findings {
        let mut findings = Findings::default();
        sweep(code, &mut findings);
        findings
    }

    /// Code of random pieces: plain instructions, wanted ones, and bytes that are neither.
    fn random_code(seed: u64) -> Vec<u8> {
        const PIECES: [&[u8]; 22] = [
            b"\x0f\x05",                                 // syscall
            b"\x0f\x31",                                 // rdtsc
            b"\x0f\x01\xf9",                             // rdtscp
            b"\x0f\xa2",                                 // cpuid
            b"\x48\x0f\xc7\xf0",                         // rdrand rax
            b"\x0f\xc7\xf8",                             // rdseed eax
            b"\xcd\x80",                                 // int 0x80
            b"\x0f\x34",                                 // sysenter
            b"\xf3\x90",                                 // pause
            b"\xb8\xca\x00\x00\x00",                     // mov eax, futex
            b"\xb8\x01\x00\x00\x00",                     // mov eax, write
            b"\x31\xc0",                                 // xor eax, eax
            b"\x48\xc7\xc1\x00\x00\x60\xff",             // mov rcx, the page of the clock
            b"\x48\xb9\x00\x04\x60\xff\xff\xff\xff\xff", // movabs rcx, the same
            b"\x48\xb9\x0f\x05\x0f\x31\x0f\xa2\xcd\x80", // movabs rcx, what looks like instructions
            b"\x81\xc1\x0f\x05\x0f\xa2",                 // add ecx, the same
            b"\x89\xd9",                                 // mov ecx, ebx
            b"\x90",
            b"\xeb\x00", // jmp
            b"\x06",     // no instruction
            b"\x66\x66\x66\x66\x66\x66\x66\x66",
            b"\x48",
        ];
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % limit
        };
        // Some have few wanted instructions, so that one of them decides.
        let rare = next(3) * 40 + 1;
        let mut code = Vec::new();
        for _ in 0..next(400) {
            match next(rare) {
                0 => code.extend(PIECES[next(PIECES.len())]),
                _ => code.extend(PIECES[14 + next(PIECES.len() - 14)]),
            }
            if next(30) == 0 {
                code.extend((0..next(30)).map(|_| next(256) as u8));
            }
        }
        code
    }

    #[test]
    fn random_code_has_what_its_whole_line_has() {
        for seed in 0..20_000 {
            let code = random_code(seed);
            assert_eq!(found(&code), of_whole_line(&code), "seed {seed}: {code:x?}");
        }
    }

    #[test]
    fn programs_have_what_their_whole_lines_have() {
        let own = std::env::current_exe().unwrap();
        let programs = [
            "/bin/sh",
            "/usr/bin/ar",
            "/usr/bin/ld",
            "/usr/bin/python3",
            "/usr/bin/git",
            "/usr/bin/perl",
        ];
        for program in programs.iter().map(std::path::Path::new).chain([own.as_path()]) {
            let Ok(code) = std::fs::read(program) else { continue };
            assert_eq!(found(&code), of_whole_line(&code), "{}", program.display());
        }
    }

    #[test]
    fn the_number_of_a_call_is_found_far_away() {
        let quiet = [b"\xb8\xca\x00\x00\x00".as_slice(), &[0x90; 5000], b"\x0f\x05"].concat();
        let loud = [b"\xb8\x01\x00\x00\x00".as_slice(), &[0x90; 5000], b"\x0f\x05"].concat();
        assert!(!found(&[&[0x90; 300], quiet.as_slice(), quiet.as_slice()].concat()).calls);
        assert!(found(&[&[0x90; 300], quiet.as_slice(), loud.as_slice()].concat()).calls);
    }

    #[test]
    fn clocks_are_found_except_those_that_say_how_long_to_spin() {
        const CLOCK: [u8; 2] = [0x0f, 0x31];
        const PAUSE: [u8; 2] = [0xf3, 0x90];
        for (code, tells) in [
            ([CLOCK.as_slice(), &[0x90; 9], &PAUSE].concat(), false),
            ([CLOCK.as_slice(), &[0x90; 30], &PAUSE].concat(), true),
            ([CLOCK, CLOCK, PAUSE].concat(), true),
            (CLOCK.to_vec(), true),
            (PAUSE.to_vec(), false),
            (b"\x48\xc7\xc0\x00\x04\x60\xff\xff\xd0".to_vec(), true),
            (b"\x48\xc7\xc0\x00\x04\x61\xff\xff\xd0".to_vec(), false),
        ] {
            assert_eq!(found(&code).clock, tells, "{code:x?}");
        }
    }
}
