//! The same compile with its results in another folder, so that the existing results are not touched.
//!
//! Only the names of outputs are replaced. If results contain these names, the command line has another key, so the caller
//! can compare keys.

use super::options::{parts, Does, For};
use super::Compiler;
use crate::observe::access::Bytes;

/// Where the results go.
pub struct Names {
    pub main: Bytes,
    /// None if the command writes none.
    pub dependencies: Option<Bytes>,
}

/// The words after the program's own name, none of them a response file. `None` if they are not understood.
pub fn redirect(compiler: Compiler, words: &[Bytes], to: &Names) -> Option<Vec<Bytes>> {
    let mut kept = Vec::with_capacity(words.len() + 4);
    let mut is_given = false;
    for part in parts(compiler, words)? {
        match (part.does(), asked_of_preprocessor(&part.words[0])) {
            (Some(Does::Output | Does::DependencyFile), _) => {}
            (Some(Does::Through(For::Preprocessor)), Some(option)) => {
                let file = to.dependencies.as_ref()?;
                kept.push([option, b",", file].concat());
                is_given = true;
            }
            _ => kept.extend_from_slice(part.words),
        }
    }
    let mut redirected = vec![b"-o".to_vec(), to.main.clone()];
    if let Some(file) = to.dependencies.as_ref().filter(|_| !is_given) {
        redirected.extend([b"-MF".to_vec(), file.clone()]);
    }
    redirected.extend(kept);
    Some(redirected)
}

/// The part before the name of the file in `-Wp,-MD,file`.
fn asked_of_preprocessor(word: &[u8]) -> Option<&[u8]> {
    let options: [&[u8]; 2] = [b"-Wp,-MD", b"-Wp,-MMD"];
    options.into_iter().find(|option| {
        let file = word.strip_prefix(*option).and_then(|rest| rest.strip_prefix(b","));
        file.is_some_and(|file| !file.is_empty() && !file.contains(&b','))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(line: &str, dependencies: bool) -> Option<String> {
        let words: Vec<Bytes> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let names = Names {
            main: b"/p/x.o".to_vec(),
            dependencies: dependencies.then(|| b"/p/x.d".to_vec()),
        };
        let words = redirect(Compiler::Gcc, &words, &names)?;
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        Some(words.join(" "))
    }

    #[test]
    fn only_names_of_outputs_are_replaced() {
        for (line, dependencies, expected) in [
            ("-c a.c", false, "-o /p/x.o -c a.c"),
            ("-c a.c -o b.o", false, "-o /p/x.o -c a.c"),
            ("-ob.o -c a.c", false, "-o /p/x.o -c a.c"),
            ("-D -o -I i -c a.c", false, "-o /p/x.o -D -o -I i -c a.c"),
            ("-MD -c a.c -o b.o", true, "-o /p/x.o -MF /p/x.d -MD -c a.c"),
            (
                "-MMD -MF d -MT t -c a.c",
                true,
                "-o /p/x.o -MF /p/x.d -MMD -MT t -c a.c",
            ),
            ("-MFd -MD -c a.c", true, "-o /p/x.o -MF /p/x.d -MD -c a.c"),
            ("-Wp,-MMD,d -c a.c", true, "-o /p/x.o -Wp,-MMD,/p/x.d -c a.c"),
            ("-Wp,-MP -c a.c", false, "-o /p/x.o -Wp,-MP -c a.c"),
        ] {
            assert_eq!(redirected(line, dependencies).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_not_understood_is_not_redirected() {
        for line in ["-c a.c -o", "-c --frobnicate a.c", "-Wp,-MD,d -c a.c"] {
            assert_eq!(redirected(line, false), None, "{line}");
        }
    }
}
