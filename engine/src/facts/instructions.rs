//! Finds the abilities that a program or library has by its own instructions, without the C library: system calls, random
//! numbers, the clock, the kind of processor.
//!
//! Pure. The instructions of a file are decoded one after the other, in the order in which they would run. A search for
//! their bytes would also find constants and addresses. Bytes that are no instruction are skipped one by one.

use crate::bytes::elf;

/// The abilities found in a whole file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings {
    /// System calls that may tell the program something.
    pub calls: bool,
    pub random: bool,
    pub clock: bool,
    pub processor: bool,
}

/// Libraries whose calls are intercepted by our library, and the loader.
const WATCHED: [&str; 12] = [
    "libc.so",
    "ld-linux",
    "ld-musl",
    "ld64.so",
    "libc.musl",
    "libpthread.so",
    "librt.so",
    "libdl.so",
    "libm.so",
    "libresolv.so",
    "libutil.so",
    "libwafpark.so",
];
/// Its random numbers are used through `std::random_device`, which our library intercepts, too.
const STANDARD_LIBRARY: &str = "libstdc++.so";

/// The first one has tables in its code that look like calls. The other one waits and wakes.
const QUIET: [&str; 2] = ["libcrypto.so", "libgomp.so"];

/// The abilities of an ELF file's machine code. None if the file is not for this machine.
pub fn find(bytes: &[u8]) -> Findings {
    let Some(file) = Elf::of(bytes) else {
        return Findings::default();
    };
    let name = file.soname().unwrap_or_default();
    if WATCHED.iter().any(|watched| name.starts_with(watched)) {
        return Findings::default();
    }
    let mut findings = Findings::default();
    for part in file.code() {
        machine::sweep(part, &mut findings);
    }
    findings.calls &= !QUIET.iter().any(|quiet| name.starts_with(quiet));
    findings.random &= !name.starts_with(STANDARD_LIBRARY);
    findings
}

/// A little-endian 64-bit file.
struct Elf<'a> {
    bytes: &'a [u8],
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const EXECUTABLE: u64 = 1;
const SECTION_EXECUTABLE: u64 = 4;
const SECTION_PROGRAM: u32 = 1;
const STRINGS: u64 = 5;
const OWN_NAME: u64 = 14;

impl<'a> Elf<'a> {
    fn of(bytes: &'a [u8]) -> Option<Elf<'a>> {
        elf::is_native(bytes).then_some(Elf { bytes })
    }

    fn short(&self, at: usize) -> Option<u16> {
        elf::short(self.bytes, at)
    }

    fn word(&self, at: usize) -> Option<u32> {
        elf::word(self.bytes, at)
    }

    fn long(&self, at: usize) -> Option<u64> {
        elf::long(self.bytes, at)
    }

    fn part(&self, at: u64, size: u64) -> Option<&'a [u8]> {
        let (at, size) = (usize::try_from(at).ok()?, usize::try_from(size).ok()?);
        let end = at.checked_add(size)?.min(self.bytes.len());
        self.bytes.get(at..end)
    }

    /// The entries of a table: its place, the size of each, and how many there are.
    fn table(&self, place: usize, size: usize) -> Vec<usize> {
        let read = || Some((self.long(place)?, self.short(size)?, self.short(size + 2)?));
        let Some((start, size, count)) = read() else {
            return Vec::new();
        };
        let entries = (0..u64::from(count)).map(|n| start.saturating_add(n * u64::from(size)) as usize);
        entries.collect()
    }

    fn segments(&self) -> Vec<usize> {
        self.table(32, 54)
    }

    /// Its executable sections or, if it has no list of them, its executable segments.
    fn code(&self) -> Vec<&'a [u8]> {
        let section = |at: usize| {
            let is_code = self.word(at + 4)? == SECTION_PROGRAM && self.long(at + 8)? & SECTION_EXECUTABLE != 0;
            is_code.then(|| self.part(self.long(at + 24)?, self.long(at + 32)?))?
        };
        let sections: Vec<_> = self.table(40, 58).into_iter().filter_map(section).collect();
        if !sections.is_empty() {
            return sections;
        }
        let segment = |at: usize| {
            let is_code = self.word(at)? == LOAD && u64::from(self.word(at + 4)?) & EXECUTABLE != 0;
            is_code.then(|| self.part(self.long(at + 8)?, self.long(at + 32)?))?
        };
        self.segments().into_iter().filter_map(segment).collect()
    }

    /// The place of an address in the file.
    fn place(&self, address: u64) -> Option<u64> {
        self.segments().into_iter().find_map(|at| {
            let (start, size) = (self.long(at + 16)?, self.long(at + 32)?);
            let is_in = self.word(at)? == LOAD && address >= start && address - start < size;
            is_in.then(|| Some(self.long(at + 8)? + (address - start)))?
        })
    }

    /// The name by which programs refer to it, if it is a library.
    fn soname(&self) -> Option<&'a str> {
        let segments = self.segments();
        let at = segments.into_iter().find(|at| self.word(*at) == Some(DYNAMIC))?;
        let table = self.part(self.long(at + 8)?, self.long(at + 32)?)?;
        let value = |wanted: u64| {
            let mut entries = table.chunks_exact(16);
            let found = entries.find(|entry| elf::long(entry, 0) == Some(wanted))?;
            elf::long(found, 8)
        };
        let text = self.place(value(STRINGS)?)?.checked_add(value(OWN_NAME)?)?;
        let text = self.bytes.get(usize::try_from(text).ok()?..)?;
        std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

    use super::super::progress;
    use super::Findings;

    /// If the clock is read this shortly before a pause, it decides how long to spin. libc's locks do so.
    const SPIN: u32 = 16;
    /// The number of bytes of code that count as one piece of progress.
    const PIECE: usize = 1 << 16;

    pub fn sweep(code: &[u8], findings: &mut Findings) {
        let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        // The number in eax, while it is known: it was set in this straight line of code.
        let mut number = None;
        // The number of instructions since the clock was read, as long as a pause may follow.
        let mut since = None;
        // The code of a large library takes seconds on a busy machine.
        let mut piece = PIECE;
        while decoder.can_decode() {
            if decoder.position() >= piece {
                piece += PIECE;
                progress::advance();
            }
            since = since.map(|since| since + 1);
            if since.is_some_and(|since| since > SPIN) {
                findings.clock = true;
                since = None;
            }
            let start = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                let _ = decoder.set_position(start + 1);
                number = None;
                continue;
            }
            findings.clock |= is_old_clock(&instruction);
            match instruction.mnemonic() {
                Mnemonic::Mov | Mnemonic::Xor if is_of_number(&instruction) => {
                    number = constant(&instruction);
                    continue;
                }
                Mnemonic::Syscall => findings.calls |= !number.is_some_and(tells_nothing),
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
            if !goes_on || number.is_some() && writes_number(&instruction) {
                number = None;
            }
        }
        findings.clock |= since.is_some();
    }

    fn is_of_number(instruction: &Instruction) -> bool {
        matches!(instruction.op0_register(), Register::EAX | Register::RAX)
    }

    /// Programs of old C libraries read the clock at addresses that are the same in all processes, without a call.
    fn is_old_clock(instruction: &Instruction) -> bool {
        const PAGE: u64 = 0xffff_ffff_ff60_0000;
        const SIZE: u64 = 0x1000;
        let address = match instruction.code() {
            Code::Mov_rm64_imm32 => instruction.immediate32to64() as u64,
            Code::Mov_r64_imm64 => instruction.immediate64(),
            _ => return false,
        };
        (PAGE..PAGE + SIZE).contains(&address)
    }

    fn constant(instruction: &Instruction) -> Option<u32> {
        match instruction.code() {
            Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32 => Some(instruction.immediate32()),
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32 => {
                let is_cleared = instruction.op1_kind() == OpKind::Register && is_of_number(instruction);
                (is_cleared && instruction.op1_register() == instruction.op0_register()).then_some(0)
            }
            _ => None,
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
}

#[cfg(target_arch = "aarch64")]
mod machine {
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
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    use super::Findings;

    pub fn sweep(_: &[u8], _: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_read_without_harm() {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        bytes.truncate(1 << 16);
        for at in 0..64 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            find(&damaged);
            find(&bytes[..at]);
        }
    }

    #[cfg(target_arch = "x86_64")]
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
            let mut findings = Findings::default();
            machine::sweep(&code, &mut findings);
            assert_eq!(findings.clock, tells, "{code:x?}");
        }
    }
}
