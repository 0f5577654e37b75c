//! Has a compile leave the names of its checkout's folder and of other folders out of what it makes, if its client wants that.
//!
//! Prefix maps of the compiler's own do it. They are added to the command line, so that the command runs with them when it
//! misses, and is looked up with them when it hits. Which folder is the checkout is asked of the file system, and remembered
//! for some seconds. What a command line needs is decided in `compiler/sharing.rs`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use memchr::memmem;

use super::compiler::action::{Call, Shared};
use super::compiler::sharing::{inside, Root};
use super::compiler::Compiler;
use crate::facts::path::lexically_normal;
use crate::files::checkout;
use crate::observe::access::Bytes;

/// For so long the folder of a checkout is not looked for again.
const LASTING: Duration = Duration::from_secs(5);
/// Checkouts and compilers that are remembered.
const MOST: usize = 4096;
/// gcc understands the option from version 8 on, clang from version 10 on. A driver of gcc has the names of its options.
const OPTION: &[u8] = b"ffile-prefix-map=";
const FIRST_CLANG: u32 = 10;
/// How a driver of gcc passes a map to the assembler, in its specs. That of gcc 10 passes other options only.
const PASSED_ON: &[u8] = b"{ffile-prefix-map=*:--debug-prefix-map";
/// Known to replace names in all that its own assembler writes. clang 14 leaves the folder in the table of lines.
const FIRST_ASSEMBLING_CLANG: u32 = 19;
const LARGEST_DRIVER: u64 = 64 << 20;

/// The identity of a program's file: device, inode, size and time.
type Identity = (u64, u64, u64, i64);

/// What stands for the folder of a checkout in results, for the folder of a build outside of it, and for the folder of
/// another checkout in which that build is.
pub const REPLACEMENT: &str = ".";
pub const BUILD_REPLACEMENT: &str = ".build";
const OUTER_REPLACEMENT: &str = ".outer";

/// What stands for each of the base folders that were set. The first one is like a checkout, unless checkouts are shared, too.
pub fn replacements(share_checkouts: bool) -> impl Iterator<Item = String> {
    let first = 1 + usize::from(share_checkouts);
    (first..).map(|number| match number {
        1 => REPLACEMENT.to_owned(),
        number => format!(".{number}"),
    })
}

/// What a compiler's prefix maps replace.
#[derive(Clone, Copy, Default)]
struct Mapping {
    /// Names in what it compiles.
    compiled: bool,
    /// Names in what it assembles.
    assembled: bool,
}

type Found = Mutex<HashMap<Bytes, (Instant, Option<Bytes>)>>;

/// What was found lately.
#[derive(Default)]
pub struct Checkouts {
    folders: Found,
    builds: Found,
    compilers: Mutex<HashMap<PathBuf, (Identity, Mapping)>>,
}

impl Checkouts {
    /// What lets a command share its result. If nothing is set that asks for it, only its own maps can do so. `None` if nothing
    /// does, or if the command is not understood. `bases` are those that were set.
    pub fn share(&self, call: &Call, bases: &[Bytes], share_checkouts: bool) -> Option<Shared> {
        let maps = |compiler, assembles| {
            let mapping = self.mapping(compiler, call.real);
            match assembles {
                true => mapping.assembled,
                false => mapping.compiled,
            }
        };
        if !share_checkouts && bases.is_empty() {
            return call.share_as_mapped(maps);
        }
        call.share(|folder, paths| self.roots(folder, paths, bases, share_checkouts), maps)
    }

    /// The checkout of a folder.
    pub fn around(&self, folder: &[u8]) -> Option<Bytes> {
        remembered(&self.folders, folder, checkout::find)
    }

    /// The folders that a command may leave out, each once, in an order that does not depend on their names. The first of its
    /// paths is the source.
    fn roots(&self, folder: &[u8], paths: &[&[u8]], bases: &[Bytes], share_checkouts: bool) -> Vec<Root> {
        let mut all = Vec::new();
        let mut builds = Vec::new();
        if share_checkouts {
            let (checkout, outside) = self.surroundings(folder, paths);
            all.extend(checkout.map(|checkout| (checkout, REPLACEMENT.to_owned())));
            builds.extend(outside);
        }
        all.extend(bases.iter().cloned().zip(replacements(share_checkouts)));
        all.extend(builds.into_iter().map(|(folder, name)| (folder, name.to_owned())));
        let mut roots: Vec<Root> = Vec::new();
        for (folder, replacement) in all {
            if roots.iter().all(|root| root.folder != folder) {
                let replacement = replacement.into_bytes();
                roots.push(Root { folder, replacement });
            }
        }
        roots
    }

    /// The checkout of a command, and the folders of its build, if that is outside of the checkout.
    ///
    /// If the command's source is not in the checkout in which the command runs, the source's checkout is meant. If a source
    /// is in no checkout, because it was generated into the build, its other paths tell.
    fn surroundings(&self, folder: &[u8], paths: &[&[u8]]) -> (Option<Bytes>, Vec<(Bytes, &'static str)>) {
        let own = self.around(folder);
        let absolute = |path: &&[u8]| match path.starts_with(b"/") {
            true => lexically_normal(path),
            false => lexically_normal(&[folder, path].join(&b'/')),
        };
        let source = paths.first().map(absolute);
        let is_in = |own: &Bytes| source.as_ref().is_some_and(|source| inside(source, own).is_some());
        if own.as_ref().is_some_and(is_in) {
            return (own, Vec::new());
        }
        let checkout_of = |path: Bytes| {
            let above = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            self.around(&path[..above.max(1)])
        };
        let told = if own.is_some() { &paths[..1] } else { paths };
        let Some(theirs) = told.iter().map(absolute).find_map(checkout_of) else {
            let known = || remembered(&self.builds, folder, checkout::find_build);
            let build = if own.is_none() { known() } else { None };
            return (own, build.map(|build| (build, BUILD_REPLACEMENT)).into_iter().collect());
        };
        let build = remembered(&self.builds, folder, checkout::find_build);
        let build = build.unwrap_or_else(|| folder.to_vec());
        let build = Some(build).filter(|build| inside(build, &theirs).is_none());
        let build = build.map(|build| (build, BUILD_REPLACEMENT));
        let outer = own.map(|own| (own, OUTER_REPLACEMENT));
        (Some(theirs), build.into_iter().chain(outer).collect())
    }

    /// What a compiler's prefix maps replace, as far as its installation shows.
    fn mapping(&self, compiler: Compiler, real: &Path) -> Mapping {
        let Ok(status) = fs::metadata(real) else {
            return Mapping::default();
        };
        let identity = (status.dev(), status.ino(), status.size(), status.mtime());
        let mut compilers = self.compilers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, mapping)) = compilers.get(real) {
            if *known == identity {
                return *mapping;
            }
        }
        let mapping = match compiler {
            Compiler::Gcc if status.size() > LARGEST_DRIVER => Mapping::default(),
            Compiler::Gcc => {
                let driver = fs::read(real).unwrap_or_default();
                let holds = |part| memmem::find(&driver, part).is_some();
                Mapping {
                    compiled: holds(OPTION),
                    assembled: holds(PASSED_ON),
                }
            }
            Compiler::Clang => {
                let is_since = |first| clang_version(real).is_some_and(|version| version >= first);
                Mapping {
                    compiled: is_since(FIRST_CLANG),
                    assembled: is_since(FIRST_ASSEMBLING_CLANG),
                }
            }
        };
        if compilers.len() >= MOST {
            compilers.clear();
        }
        compilers.insert(real.to_path_buf(), (identity, mapping));
        mapping
    }
}

/// What was found for a folder, or is found now.
fn remembered(known: &Found, folder: &[u8], find: fn(&Path) -> Option<PathBuf>) -> Option<Bytes> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((when, found)) = known.get(folder) {
        if when.elapsed() < LASTING {
            return found.clone();
        }
    }
    let found = find(Path::new(OsStr::from_bytes(folder))).map(|path| path.as_os_str().as_bytes().to_vec());
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(folder.to_vec(), (Instant::now(), found.clone()));
    found
}

/// The version that a clang's folder of own headers names: `lib/clang/14.0.6` beside the folder of the program.
fn clang_version(real: &Path) -> Option<u32> {
    let above = real.parent()?.parent()?;
    let versions = ["lib", "lib64"]
        .iter()
        .filter_map(|lib| fs::read_dir(above.join(lib).join("clang")).ok());
    let names = versions.flatten().flatten().map(|entry| entry.file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.split('.').next()?.parse().ok();
    // An installation of several versions is as old as its oldest one.
    names.filter_map(number).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_that_of_the_source_and_a_build_outside_of_it_has_a_folder_of_its_own() {
        let top = std::env::temp_dir().join(format!("wafcc-roots-{}", std::process::id()));
        let name = |name: &str| top.join(name).into_os_string().into_encoded_bytes();
        for folder in [
            "one/.git",
            "one/src",
            "one/build",
            "out/sub",
            "two",
            "else/.git",
            "else/out",
        ] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        fs::write(top.join("out/CMakeCache.txt"), "").unwrap();
        let known = Checkouts::default();
        let roots = |folder: &str, source: &str, share: bool| {
            let source = source.replace("TOP", top.to_str().unwrap());
            let paths: Vec<&[u8]> = source.split(' ').map(str::as_bytes).collect();
            let roots = known.roots(&name(folder), &paths, &[name("one"), name("two")], share);
            let shown = roots
                .iter()
                .map(|root| [&root.folder[..], b"=", &root.replacement].concat());
            let shown = shown.map(|root| {
                String::from_utf8(root)
                    .unwrap()
                    .replace(&format!("{}/", top.display()), "")
            });
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(roots("one/build", "../src/x.c", true), "one=. two=.3");
        assert_eq!(roots("one/build", "../src/x.c", false), "one=. two=.2");
        assert_eq!(roots("out/sub", "TOP/one/src/x.c", true), "one=. two=.3 out=.build");
        assert_eq!(roots("out/sub", "../../one/src/x.c", true), "one=. two=.3 out=.build");
        assert_eq!(roots("out/sub", "x.c", true), "one=.2 two=.3 out=.build");
        assert_eq!(
            roots("out/sub", "x.c /usr/include TOP/one/src", true),
            "one=. two=.3 out=.build"
        );
        assert_eq!(roots("two", "x.c", true), "one=.2 two=.3");
        assert_eq!(
            roots("else/out", "TOP/one/x.c", true),
            "one=. two=.3 else/out=.build else=.outer"
        );
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn an_installed_compiler_is_asked_what_it_understands() {
        let known = Checkouts::default();
        let gcc = fs::canonicalize("/usr/bin/gcc").unwrap();
        assert!(known.mapping(Compiler::Gcc, &gcc).compiled);
        assert!(known.mapping(Compiler::Gcc, &gcc).compiled);
        for compiler in [Compiler::Gcc, Compiler::Clang] {
            let other = known.mapping(compiler, Path::new("/usr/bin/true"));
            assert!(!other.compiled && !other.assembled);
        }
    }
}
