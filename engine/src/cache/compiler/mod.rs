//! The knowledge about compilers and command lines: the key of a command, the files that it will make, and why it is not
//! cached.
//!
//! This file recognizes compilers by name: the name that was typed, and the name of the file to which all links lead.
//! Nothing here knows entries, the store, or accesses.

pub mod action;
pub mod crates;
pub mod elsewhere;
pub mod language;
pub mod left_out;
pub mod line;
pub mod linked;
pub mod macros;
pub mod neutral;
pub mod options;
pub mod other;
pub mod outputs;
pub mod preprocessing;
pub mod reason;
pub mod relocation;
pub mod response;
pub mod sharing;

use std::path::Path;

use crate::wire::UncachedReason;
use reason::Reason;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compiler {
    Gcc,
    Clang,
}

const NAMES: [(&str, Option<Compiler>); 9] = [
    ("gcc", Some(Compiler::Gcc)),
    ("g++", Some(Compiler::Gcc)),
    ("gfortran", Some(Compiler::Gcc)),
    ("clang", Some(Compiler::Clang)),
    ("clang++", Some(Compiler::Clang)),
    // These can be any compiler.
    ("cc", None),
    ("c++", None),
    ("c89", None),
    ("c99", None),
];
/// Programs that may run a compiler.
const WRAPPERS: [&str; 8] = [
    "ccache",
    "sccache",
    "distcc",
    "icecc",
    "icerun",
    "wafcc",
    "colorgcc",
    "buildcache",
];
/// The kinds of threads with which a compiler for Windows was built.
const FLAVORS: [&str; 2] = ["-posix", "-win32"];

impl Compiler {
    /// `program` is the file that is executed, `real` the file to which all links lead.
    pub fn of(program: &Path, real: &Path) -> Result<Compiler, Reason> {
        let (program, real) = (name(program), name(real));
        if WRAPPERS.contains(&program) || WRAPPERS.contains(&real) {
            return Err(UncachedReason::Wrapped.into());
        }
        let typed = plain(program).ok_or(UncachedReason::UnknownCompiler)?;
        // A `gcc` that is a link to clang is clang.
        plain(real)
            .flatten()
            .or(typed)
            .ok_or(UncachedReason::UnknownCompiler.into())
    }

    /// Whether the name of a file is that of a compiler that runs the parts of its chain.
    pub fn is_driver(name: &[u8]) -> bool {
        std::str::from_utf8(name).is_ok_and(|name| plain(name).is_some())
    }
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

fn plain(name: &str) -> Option<Option<Compiler>> {
    let last = without_target(name);
    NAMES
        .iter()
        .find(|(known, _)| *known == last)
        .map(|(_, compiler)| *compiler)
}

/// From `arm-linux-gnueabihf-gcc-12.2`, `gcc` is left.
fn without_target(name: &str) -> &str {
    let name = FLAVORS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let is_version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let name = match name.rsplit_once('-') {
        Some((before, version)) if is_version(version) => before,
        _ => name,
    };
    name.rsplit('-').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(program: &str, real: &str) -> Result<Compiler, Reason> {
        Compiler::of(Path::new(program), Path::new(real))
    }

    #[test]
    fn a_compiler_is_known_by_its_name() {
        for name in [
            "gcc",
            "/usr/bin/g++-12",
            "gcc-9.4.0",
            "arm-linux-gnueabihf-gcc",
            "x86_64-linux-gnu-gfortran-12",
            "x86_64-w64-mingw32-g++-posix",
            "x86_64-w64-mingw32-gcc-12-win32",
            "arm-none-eabi-g++",
            "c99-gcc",
        ] {
            assert_eq!(of(name, name), Ok(Compiler::Gcc), "{name}");
        }
        for name in ["clang", "clang++-14", "/opt/bin/aarch64-linux-gnu-clang++"] {
            assert_eq!(of(name, name), Ok(Compiler::Clang), "{name}");
        }
        for name in [
            "clang-cl",
            "clang-cpp-14",
            "gcc-ar-12",
            "ld",
            "",
            "tcc",
            "gcc-",
            "nvcc",
            "/",
            "clang-tidy",
        ] {
            assert_eq!(of(name, name), Err(UncachedReason::UnknownCompiler.into()), "{name}");
        }
    }

    #[test]
    fn a_link_to_a_compiler_is_that_compiler() {
        assert_eq!(of("/usr/bin/cc", "/usr/bin/x86_64-linux-gnu-gcc-12"), Ok(Compiler::Gcc));
        assert_eq!(of("/usr/bin/c99", "/usr/bin/c99-gcc"), Ok(Compiler::Gcc));
        assert_eq!(of("/usr/bin/c++", "/usr/lib/llvm-14/bin/clang"), Ok(Compiler::Clang));
        assert_eq!(of("/usr/bin/gcc", "/usr/bin/clang"), Ok(Compiler::Clang));
        assert_eq!(of("/usr/bin/gcc", "/opt/vendor/driver"), Ok(Compiler::Gcc));
        assert_eq!(
            of("/usr/bin/cc", "/usr/bin/cc"),
            Err(UncachedReason::UnknownCompiler.into())
        );
        assert_eq!(
            of("/usr/lib/ccache/gcc", "/usr/bin/ccache"),
            Err(UncachedReason::Wrapped.into())
        );
    }
}
