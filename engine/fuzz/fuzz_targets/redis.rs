//! Requests of Redis clients.

#![no_main]

use fuzzed::{cut, pieces, seed, stream, within};
use libfuzzer_sys::fuzz_target;
use wafengine::team::redis::request::{parse, Parsed, MOST_WORDS};

fn seeds() -> Vec<Vec<u8>> {
    let all: [&[u8]; 4] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n$2\r\nEX\r\n$1\r\n9\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99999999\r\nthe first of many",
        b"*0\r\n*1\r\n$4\r\nPING\r\n",
    ];
    all.iter().map(|text| cut(text)).collect()
}

type Words = Vec<Vec<u8>>;

/// Requests, each with the length of its last word if that is received separately.
fn requests<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<(Words, Option<u64>)>, bool) {
    let mut seen = Vec::new();
    let owned = |words: Vec<&[u8]>| words.into_iter().map(<[u8]>::to_vec).collect::<Words>();
    let mut left = 0;
    let read: Result<usize, ()> = stream(pieces, |input| {
        if left > 0 {
            let used = left.min(input.len() as u64);
            left -= used;
            return Ok((used > 0).then_some(used as usize));
        }
        match within(64 * MOST_WORDS, || parse(input)).map_err(drop)? {
            Parsed::NeedsInput => Ok(None),
            Parsed::Whole(words, used) => {
                seen.push((owned(words), None));
                Ok(Some(used))
            }
            Parsed::Long(words, used, length) => {
                seen.push((owned(words), Some(length)));
                left = length;
                Ok(Some(used))
            }
        }
    });
    (seen, read.is_err())
}

fn encode(words: &Words) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend(format!("${}\r\n", word.len()).as_bytes());
        text.extend(word);
        text.extend(b"\r\n");
    }
    text
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let Some((whole, pieces)) = pieces(data) else { return };
    let seen = requests([whole]);
    assert_eq!(seen, requests(pieces));
    for (words, _) in seen.0.iter().filter(|(_, long)| long.is_none()) {
        let again = encode(words);
        let slices = words.iter().map(Vec::as_slice).collect();
        assert_eq!(parse(&again), Ok(Parsed::Whole(slices, again.len())));
    }
});
