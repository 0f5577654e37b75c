//! Finds the folder of a checkout, and that of a build outside of it.

use std::path::{Path, PathBuf};

/// In the folder of a checkout.
const VERSION_CONTROL: [&str; 8] = [".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", ".fslckout", "_FOSSIL_"];
/// In the folder of a project, and often in folders below it, too.
const BUILD_FILES: [&str; 8] = [
    "wscript",
    "CMakeLists.txt",
    "configure.ac",
    "configure",
    "meson.build",
    "WORKSPACE",
    "MODULE.bazel",
    "Kbuild",
];

/// In the topmost folder of a build.
const BUILDS: [&str; 5] = [
    "CMakeCache.txt",
    "config.status",
    "build.ninja",
    "meson-private",
    "c4che",
];

/// In a folder into which cargo builds. It makes the first one with the folder, and the other one as soon as it has asked rustc.
const OF_CARGO: [&str; 2] = ["CACHEDIR.TAG", ".rustc_info.json"];

/// The nearest folder with version control, or else the topmost one of those with build files that lie in each other.
pub fn find(folder: &Path) -> Option<PathBuf> {
    if let Some(found) = folder.ancestors().find(|folder| has(folder, &VERSION_CONTROL)) {
        return is_deep(found).then(|| found.to_path_buf());
    }
    let above = folder.ancestors().skip_while(|folder| !has(folder, &BUILD_FILES));
    let found = above.take_while(|folder| has(folder, &BUILD_FILES)).last()?;
    is_deep(found).then(|| found.to_path_buf())
}

/// The nearest folder that a build system has configured.
pub fn find_build(folder: &Path) -> Option<PathBuf> {
    let found = folder.ancestors().find(|folder| has(folder, &BUILDS))?;
    is_deep(found).then(|| found.to_path_buf())
}

/// The nearest folder into which cargo builds.
pub fn find_cargos(folder: &Path) -> Option<PathBuf> {
    let found = folder.ancestors().find(|folder| has(folder, &OF_CARGO))?;
    is_deep(found).then(|| found.to_path_buf())
}

/// The files and folders by which all of these are found, from a folder on upwards.
pub fn marks(folder: &Path) -> Vec<PathBuf> {
    let names = || VERSION_CONTROL.iter().chain(&BUILD_FILES).chain(&BUILDS);
    let mut marks = Vec::new();
    for folder in folder.ancestors().filter(|folder| is_deep(folder)) {
        let found = names().map(|name| folder.join(name));
        marks.extend(found.filter(|mark| mark.symlink_metadata().is_ok()));
        if has(folder, &VERSION_CONTROL) {
            break;
        }
    }
    marks
}

fn has(folder: &Path, names: &[&str]) -> bool {
    names.iter().any(|name| folder.join(name).symlink_metadata().is_ok())
}

/// The root folder is no checkout: too many names begin with it.
fn is_deep(folder: &Path) -> bool {
    folder.parent().is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_checkout_is_where_version_control_is_or_else_the_topmost_build_file() {
        let root = std::env::temp_dir().join(format!("wafcc-checkout-{}", std::process::id()));
        let folder = root.join("project/src/deep/build");
        fs::create_dir_all(&folder).unwrap();
        let touch = |name: &str| fs::write(root.join(name), "").unwrap();
        assert_eq!(find(&folder), None);
        touch("project/src/deep/wscript");
        touch("project/src/wscript");
        touch("project/wscript");
        assert_eq!(find(&folder), Some(root.join("project")));
        touch("project/src/.git");
        assert_eq!(find(&folder), Some(root.join("project/src")));
        let build = root.join("build/sub");
        fs::create_dir_all(&build).unwrap();
        assert_eq!(find_build(&build), None);
        touch("build/CMakeCache.txt");
        assert_eq!(find_build(&build), Some(root.join("build")));
        fs::remove_dir_all(&root).unwrap();
    }
}
