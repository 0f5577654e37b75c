//! The file of tokens.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::team::tokens::{Holder, Tokens};

fn seeds() -> Vec<Vec<u8>> {
    let text = "# who\n\nci write team blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85\n";
    vec![
        text.as_bytes().to_vec(),
        b"dev read - 0123456789abcdef\r\n".to_vec(),
        b"a all - 0123456789abcdef".to_vec(),
    ]
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(tokens) = within(64 * data.len() + 8192, || Tokens::parse(text)) {
        let again: String = tokens.holders.iter().map(Holder::line).collect();
        assert_eq!(Tokens::parse(&again), Ok(tokens));
    }
});
