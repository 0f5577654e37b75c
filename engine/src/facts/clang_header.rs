//! Whether a precompiled header of clang holds the times of its parts. With `-fno-pch-timestamp` it does not, and then clang
//! compares only their sizes with those that it holds.
//!
//! Pure. The header is a bitstream of LLVM: blocks of records, whose layouts the blocks define themselves. Only the first
//! records are read, which every version of clang has written in the same way. In doubt, times are held.

const ENDS: u64 = 0;
const ENTERS: u64 = 1;
const DEFINES: u64 = 2;
const UNABBREVIATED: u64 = 3;

const CONTROL_BLOCK: u64 = 15;
const INPUT_FILES_BLOCK: u64 = 16;
/// In the control block: what the header is, and whether it holds times.
const METADATA: u64 = 1;
/// In the block of input files: the number, the size and the time of a part.
const INPUT_FILE: u64 = 1;

/// Whether a header that begins with these bytes holds times of files.
pub fn holds_times(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"CPCH") else {
        return true;
    };
    let mut reader = Reader { bytes: rest, at: 0 };
    let mut found = Found::default();
    let is_read = reader.top(&mut found).is_some();
    !(is_read && found.is_without && !found.has_time)
}

#[derive(Default)]
struct Found {
    /// It says that it is without times.
    is_without: bool,
    has_time: bool,
}

impl Found {
    fn note(&mut self, block: u64, record: &[u64]) -> Option<()> {
        match (block, record) {
            // Whether there are times comes before the last word, or before the last two in newer versions.
            (CONTROL_BLOCK, [METADATA, words @ ..]) => {
                let is_told = match words.len() {
                    7 => words[5],
                    8 | 9 => words[6],
                    _ => return None,
                };
                self.is_without = is_told == 0;
            }
            (INPUT_FILES_BLOCK, [INPUT_FILE, _, _, time, ..]) => self.has_time |= *time != 0,
            _ => {}
        }
        Some(())
    }
}

#[derive(Clone, Copy)]
enum Layout {
    Literal(u64),
    Fixed(u32),
    Variable(u32),
    Array,
    Character,
    Blob,
}

impl Layout {
    fn has_bits(self) -> bool {
        match self {
            Layout::Fixed(width) | Layout::Variable(width) => width > 0,
            Layout::Character => true,
            Layout::Literal(_) | Layout::Array | Layout::Blob => false,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// In bits.
    at: usize,
}

impl Reader<'_> {
    /// Blocks up to the control block.
    fn top(&mut self, found: &mut Found) -> Option<()> {
        loop {
            if self.fixed(2)? != ENTERS {
                return None;
            }
            let (block, width, end) = self.enter()?;
            if block == CONTROL_BLOCK {
                return self.block(block, width, found);
            }
            self.at = end;
        }
    }

    /// The number of a block, the width of its abbreviations, and its end.
    fn enter(&mut self) -> Option<(u64, u32, usize)> {
        let block = self.variable(8)?;
        let width = u32::try_from(self.variable(4)?).ok()?;
        self.align();
        let words = usize::try_from(self.fixed(32)?).ok()?;
        let end = self.at.checked_add(words.checked_mul(32)?)?;
        (2..=32).contains(&width).then_some((block, width, end))
    }

    fn block(&mut self, block: u64, width: u32, found: &mut Found) -> Option<()> {
        let mut layouts: Vec<Vec<Layout>> = Vec::new();
        loop {
            match self.fixed(width)? {
                ENDS => {
                    self.align();
                    return Some(());
                }
                ENTERS => {
                    let (inner, width, end) = self.enter()?;
                    if inner == INPUT_FILES_BLOCK && block == CONTROL_BLOCK {
                        self.block(inner, width, found)?;
                    }
                    self.at = end;
                }
                DEFINES => layouts.push(self.layout()?),
                UNABBREVIATED => {
                    let code = self.variable(6)?;
                    let count = self.variable(6)?;
                    let mut record = vec![code];
                    for _ in 0..count {
                        record.push(self.variable(6)?);
                    }
                    found.note(block, &record)?;
                }
                number => {
                    let layout = layouts.get(usize::try_from(number - 4).ok()?)?.clone();
                    let record = self.record(&layout)?;
                    found.note(block, &record)?;
                }
            }
        }
    }

    fn layout(&mut self) -> Option<Vec<Layout>> {
        let count = self.variable(5)?;
        let mut layout = Vec::new();
        for _ in 0..count {
            layout.push(match self.fixed(1)? {
                1 => Layout::Literal(self.variable(8)?),
                _ => match self.fixed(3)? {
                    1 => Layout::Fixed(self.width()?),
                    2 => Layout::Variable(self.width()?),
                    3 => Layout::Array,
                    4 => Layout::Character,
                    5 => Layout::Blob,
                    _ => return None,
                },
            });
        }
        Some(layout)
    }

    fn width(&mut self) -> Option<u32> {
        u32::try_from(self.variable(5)?).ok().filter(|width| *width <= 64)
    }

    /// The numbers of a record, without its bytes.
    fn record(&mut self, layout: &[Layout]) -> Option<Vec<u64>> {
        let mut record = Vec::new();
        let mut parts = layout.iter();
        while let Some(part) = parts.next() {
            match part {
                Layout::Array => {
                    // An element without bits takes no room in the file. There could be any number of them.
                    let element = parts.next().filter(|element| element.has_bits())?;
                    for _ in 0..self.variable(6)? {
                        record.push(self.number(*element)?);
                    }
                }
                Layout::Blob => {
                    let length = usize::try_from(self.variable(6)?).ok()?;
                    self.align();
                    self.at = self.at.checked_add(length.checked_mul(8)?)?;
                    self.align();
                }
                part => record.push(self.number(*part)?),
            }
        }
        Some(record)
    }

    fn number(&mut self, layout: Layout) -> Option<u64> {
        match layout {
            Layout::Literal(number) => Some(number),
            Layout::Fixed(width) => self.fixed(width),
            Layout::Variable(0) => Some(0),
            Layout::Variable(width) => self.variable(width),
            Layout::Character => self.fixed(6),
            Layout::Array | Layout::Blob => None,
        }
    }

    fn fixed(&mut self, width: u32) -> Option<u64> {
        let mut number = 0;
        for bit in 0..width {
            let byte = *self.bytes.get(self.at / 8)?;
            number |= u64::from(byte >> (self.at % 8) & 1) << bit;
            self.at += 1;
        }
        Some(number)
    }

    /// A number in groups of bits, of which the highest one says whether another group follows.
    fn variable(&mut self, width: u32) -> Option<u64> {
        let (mut number, mut shift) = (0u64, 0u32);
        let more = 1u64 << width.checked_sub(1).filter(|shift| *shift > 0 && *shift < 64)?;
        loop {
            let group = self.fixed(width)?;
            number |= (group & (more - 1)).checked_shl(shift)?;
            if group & more == 0 {
                return Some(number);
            }
            shift += width - 1;
        }
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a bitstream.
    #[derive(Default)]
    struct Writer(Vec<bool>);

    impl Writer {
        fn fixed(&mut self, number: u64, width: u32) {
            self.0.extend((0..width).map(|bit| number >> bit & 1 == 1));
        }

        fn variable(&mut self, mut number: u64, width: u32) {
            let more = 1 << (width - 1);
            while number >= more {
                self.fixed(number & (more - 1) | more, width);
                number >>= width - 1;
            }
            self.fixed(number, width);
        }

        fn align(&mut self) {
            self.0.resize(self.0.len().next_multiple_of(32), false);
        }

        fn record(&mut self, numbers: &[u64]) {
            self.fixed(UNABBREVIATED, 4);
            self.variable(numbers[0], 6);
            self.variable(numbers.len() as u64 - 1, 6);
            numbers[1..].iter().for_each(|number| self.variable(*number, 6));
        }

        /// A block in one whose abbreviations have this width.
        fn block(&mut self, outer: u32, block: u64, write: impl FnOnce(&mut Writer)) {
            self.fixed(ENTERS, outer);
            self.variable(block, 8);
            self.variable(4, 4);
            self.align();
            let mut inner = Writer::default();
            write(&mut inner);
            inner.fixed(ENDS, 4);
            inner.align();
            self.fixed(inner.0.len() as u64 / 32, 32);
            self.0.extend(inner.0);
        }

        fn bytes(&self) -> Vec<u8> {
            let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
            [b"CPCH".to_vec(), self.0.chunks(8).map(byte).collect()].concat()
        }
    }

    fn header(metadata: &[u64], times: &[u64]) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.block(2, 0, |info| info.record(&[1, CONTROL_BLOCK]));
        writer.block(2, CONTROL_BLOCK, |control| {
            control.record(&[&[METADATA], metadata].concat());
            control.block(4, 17, |options| options.record(&[1, 2, 3]));
            control.block(4, INPUT_FILES_BLOCK, |files| {
                for (number, time) in times.iter().enumerate() {
                    files.record(&[INPUT_FILE, number as u64 + 1, 137, *time, 0, 0]);
                }
            });
        });
        writer.block(2, 8, |_| ());
        writer.bytes()
    }

    #[test]
    fn a_header_says_whether_it_holds_times() {
        for (metadata, times, expected) in [
            (&[15, 0, 14, 0, 0, 0, 0][..], &[0, 0][..], false),
            (&[15, 0, 14, 0, 0, 1, 0], &[1_704_153_600, 5], true),
            // All its parts are of 1970.
            (&[15, 0, 14, 0, 0, 1, 0], &[0, 0], true),
            (&[15, 0, 14, 0, 0, 0, 0], &[0, 5], true),
            (&[29, 0, 17, 0, 0, 0, 0, 0], &[0], false),
            (&[29, 0, 17, 0, 0, 0, 1, 0], &[0], true),
            (&[31, 0, 19, 0, 0, 0, 0, 1, 0], &[0], false),
            (&[31, 0, 19, 0, 0, 0, 1, 1, 0], &[0], true),
            (&[99, 0, 99, 0, 0, 0, 0, 0, 0, 0], &[0], true),
        ] {
            assert_eq!(
                holds_times(&header(metadata, times)),
                expected,
                "{metadata:?} {times:?}"
            );
        }
    }

    #[test]
    fn a_header_that_cannot_be_read_may_hold_times() {
        let whole = header(&[15, 0, 14, 0, 0, 0, 0], &[0, 0]);
        assert!(!holds_times(&whole));
        for length in 0..whole.len() - 16 {
            assert!(holds_times(&whole[..length]), "{length}");
        }
        assert!(holds_times(b"gpch"));
    }

    #[test]
    fn an_endless_record_in_a_short_file_is_refused() {
        let mut writer = Writer::default();
        writer.block(2, CONTROL_BLOCK, |control| {
            control.fixed(DEFINES, 4);
            control.variable(2, 5);
            control.fixed(3 << 1, 4); // an array
            control.fixed(1, 1); // of a literal
            control.variable(7, 8);
            control.fixed(4, 4);
            control.variable(u64::MAX >> 1, 6);
        });
        assert!(holds_times(&writer.bytes()));
        // No bytes make the reader run for ever, or panic.
        let mut state = 5u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % limit
        };
        for _ in 0..2000 {
            let noise: Vec<u8> = (0..200).map(|_| below(256) as u8).collect();
            holds_times(&[b"CPCH\x01\x00", &noise[..]].concat());
            let mut damaged = header(&[15, 0, 14, 0, 0, 0, 0], &[0, 0]);
            let at = below(damaged.len());
            damaged[at] ^= 1 << below(8);
            holds_times(&damaged);
        }
    }

    #[test]
    fn bytes_that_are_no_stream_may_hold_times() {
        assert!(holds_times(&[b"CPCH".as_slice(), &[0xff; 400]].concat()));
    }
}
