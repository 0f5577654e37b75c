//! Command lines for comparing preprocessed texts. This file knows for which command lines the text decides the result, how the
//! preprocessor is called, and which options show in the text.

use super::action::Knowledge;
use super::line::Line;
use super::macros::only_used_count;
use super::options::{parts, Part};
use super::outputs::Role;
use super::Compiler;
use crate::observe::access::Bytes;

/// Options that write positions of the source into the result, or with which files are read or written that the preprocessor
/// knows nothing of. Those that write the source itself are known in `macros`.
const REFUSED: [&str; 24] = [
    "-x",
    "-fsanitize",
    "--coverage",
    "-coverage",
    "-ftest-coverage",
    "-fprofile",
    "-fauto-profile",
    "-fbranch-probabilities",
    "-fcs-profile",
    "-flto",
    "-fthinlto",
    "-ffat-lto",
    "-fembed-bitcode",
    "-emit-llvm",
    "-fverbose-asm",
    "-fstack-usage",
    "-fcallgraph-info",
    "-fsave-optimization",
    "-foptimization-record",
    "-frecord",
    "-fxray",
    "-Wsystem-headers",
    // Any comment counts.
    "-Wimplicit-fallthrough=1",
    "-Wa,",
];
/// Options whose whole effect shows in what the preprocessor leaves.
const SHOWN: [&str; 10] = [
    "-D",
    "-U",
    "-I",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-include",
    "-imacros",
    "--define-macro",
    "--undefine-macro",
];

/// Whether a compile with the same options makes the same of each source for which the preprocessor leaves the same text.
/// `words` come after the program's own name, none of them a response file.
pub fn is_decided_by_text(knows: &Knowledge, words: &[Bytes]) -> bool {
    let are_usual = |role: Role| matches!(role, Role::Main | Role::Dependencies);
    let positions = |word: &Bytes| {
        let begins = REFUSED.iter().any(|option| word.starts_with(option.as_bytes()));
        begins || word.starts_with(b"-g") && word != b"-g0"
    };
    let line = knows.compiler.and_then(|compiler| Line::read(compiler, words).ok());
    line.is_some_and(|line| only_used_count(&line, words))
        && knows.modules.is_none()
        && knows.bases.is_empty()
        && knows.outputs.iter().all(|output| are_usual(output.role))
        && !words.iter().any(positions)
}

/// Has the preprocessor write its text, and the dependency file of the compile. `words` write both elsewhere, and `target` is
/// the compile's own name in that file, if nothing else is given.
pub fn preprocess(compiler: Compiler, words: &[Bytes], target: Option<&Bytes>) -> Vec<Bytes> {
    let mut words = words.to_vec();
    words.push(b"-E".to_vec());
    if compiler == Compiler::Gcc {
        // It looks for precompiled headers, as the compile does.
        words.push(b"-fpch-preprocess".to_vec());
    }
    if let Some(target) = target {
        words.extend([b"-MQ".to_vec(), target.clone()]);
    }
    words
}

/// The words without those whose effect shows in the text. `None` if they are not understood.
pub fn without_shown(compiler: Compiler, words: &[Bytes]) -> Option<Vec<Bytes>> {
    let is_shown = |part: &Part| {
        part.known
            .is_some_and(|known| SHOWN.contains(&known.name.strip_suffix('=').unwrap_or(known.name)))
    };
    let parts = parts(compiler, words)?;
    let kept = parts.iter().filter(|part| !is_shown(part));
    Some(kept.flat_map(|part| part.words).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn what_shows_in_the_text_is_left_out() {
        for (line, expected) in [
            ("-O2 -DA=1 -D B -UC -Iinc -I inc -c a.c -o a.o", "-O2 -c a.c -o a.o"),
            ("-isystem s -iquote q -include config.h -imacros m a.c", "a.c"),
            (
                "--define-macro=A --undefine-macro B -MD -MF d -MT -D a.c",
                "-MD -MF d -MT -D a.c",
            ),
            (
                "-Wall -std=c99 --param x=1 -nostdinc a.c",
                "-Wall -std=c99 --param x=1 -nostdinc a.c",
            ),
        ] {
            let kept = without_shown(Compiler::Gcc, &words(line)).unwrap();
            let kept: Vec<_> = kept.iter().map(|word| String::from_utf8_lossy(word)).collect();
            assert_eq!(kept.join(" "), expected, "{line}");
        }
        assert_eq!(without_shown(Compiler::Gcc, &words("-c a.c -I")), None);
        assert_eq!(without_shown(Compiler::Gcc, &words("--frobnicate a.c")), None);
    }
}
