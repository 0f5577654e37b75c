//! Builds `libwafpark.so`, which `src/park/library.rs` embeds. It is linked with no library. It finds the functions of
//! libc in the program into which it is loaded, whatever version that has.
//!
//! Also links `wafcc` and `waf` statically if there is a static libc: loading its libraries would take longer than they run.
//! A static `wafcc` begins with `front/front.c`.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCES: [&str; 17] = [
    "park.c",
    "before.c",
    "child.c",
    "thread.c",
    "memory.c",
    "route.c",
    "spawn.c",
    "symbol.c",
    "record.c",
    "watch.c",
    "clock.c",
    "system_info.c",
    "users.c",
    "guard.c",
    "locale.c",
    "launch.c",
    "program.c",
];
const FLAGS: [&str; 12] = [
    "-std=gnu11",
    "-shared",
    "-fPIC",
    "-nostdlib",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wpedantic",
    "-Wl,-z,now",
];

/// Without stack protection, which libc would have to set up.
const FRONT_FLAGS: [&str; 10] = [
    "-std=gnu11",
    "-ffreestanding",
    "-fno-pic",
    "-fno-stack-protector",
    "-fno-builtin",
    // Keeps the string constants together. Otherwise each would be in another page among the program's.
    "-fno-merge-constants",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wpedantic",
];
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];

/// The libraries that Rust's standard library is linked with, and the static libraries that replace them.
const LIBRARIES: [(&str, &str); 7] = [
    ("gcc_s", "-l:libgcc_eh.a"),
    ("c", "-l:libc.a -l:libgcc.a -l:libgcc_eh.a"),
    ("m", "-l:libm.a"),
    ("rt", "-l:librt.a"),
    ("dl", "-l:libdl.a"),
    ("util", "-l:libutil.a"),
    ("pthread", "-l:libpthread.a"),
];

fn main() {
    ["park", "front"].into_iter().for_each(watch);
    println!("cargo::rustc-check-cfg=cfg(wafcc_front)");
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    link_statically(&Path::new(&out).join("static"));
    let library = Path::new(&out).join("libwafpark.so");
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    if !MACHINES.contains(&machine.as_str()) {
        // An empty library: the engine then parks nothing.
        std::fs::write(&library, b"").expect("write to OUT_DIR");
        return;
    }
    let mut command = compiler();
    command
        .args(FLAGS)
        .args(machine_flags())
        .args(SOURCES.map(|name| format!("park/{name}")))
        .arg("-o");
    let status = command.arg(&library).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "libwafpark.so could not be built: {command:?}"
    );
}

/// Has cargo run this again when a file of the folder changes. The folder itself has another time in each copy of the tree.
fn watch(folder: &str) {
    for entry in std::fs::read_dir(folder).expect("cargo starts this in the package's folder") {
        let path = entry.expect("a folder of sources can be read").path();
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Our system calls may be made by a call of a function of libc's (`park/system.h`), which writes below the stack pointer.
fn machine_flags() -> &'static [&'static str] {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => &["-mno-red-zone", "-DWAFPARK_GATE"],
        _ => &[],
    }
}

/// The C compiler for code that runs before libc is ready.
fn compiler() -> Command {
    let mut build = cc::Build::new();
    build.opt_level(2).warnings(false);
    // Otherwise gcc turns loops into calls of strlen, which may not be resolved yet when our code runs.
    build.flag_if_supported("-fno-tree-loop-distribute-patterns");
    build.get_compiler().to_command()
}

/// `-C target-feature=+crt-static` would apply to all programs. So we write linker scripts that name the static
/// libraries, in a folder that the linker searches before those of the shared libraries.
fn link_statically(folder: &Path) {
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let is_glibc = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if !is_glibc || is_link_chosen() {
        return;
    }
    std::fs::create_dir_all(folder).expect("make a folder in OUT_DIR");
    for (name, archives) in LIBRARIES {
        let script = folder.join(format!("lib{name}.so"));
        std::fs::write(script, format!("GROUP({archives})\n")).expect("write to OUT_DIR");
    }
    let arguments = [format!("-L{}", folder.display()), "-static".into(), "-no-pie".into()];
    if can_link(folder, &arguments) {
        for argument in arguments {
            println!("cargo::rustc-link-arg-bin=wafcc={argument}");
            println!("cargo::rustc-link-arg-bin=waf={argument}");
        }
        begin_with_front(folder);
    }
}

/// A dynamically linked program has waited for its libraries before it begins, so the front would save nothing.
fn begin_with_front(folder: &Path) {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    if !MACHINES.contains(&machine.as_str()) {
        return;
    }
    let object = folder.join("front.o");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    let mut command = compiler();
    command.args(FRONT_FLAGS).arg(format!("-DVERSION=\"{version}\""));
    let status = command.args(["-c", "front/front.c", "-o"]).arg(&object).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "front.c could not be built: {command:?}"
    );
    println!("cargo::rustc-link-arg-bin=wafcc={}", object.display());
    println!("cargo::rustc-link-arg-bin=wafcc=-Wl,-e,wafcc_front_entry");
    println!("cargo::rustc-cfg=wafcc_front");
}

/// If the caller has chosen a linker, it may not accept linker scripts.
fn is_link_chosen() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var_os("RUSTC_LINKER").is_some() || ["link", "crt-static"].iter().any(|word| flags.contains(word))
}

/// A system may have a compiler and no static libc. Tries a link as rustc does it.
fn can_link(folder: &Path, arguments: &[String]) -> bool {
    let source = folder.join("trial.c");
    let text = "#include <stdio.h>\nint main(void) { return printf(\"%g\\n\", 1.5) < 0; }\n";
    std::fs::write(&source, text).expect("write to OUT_DIR");
    let trial = folder.join("trial");
    let mut command = cc::Build::new().warnings(false).get_compiler().to_command();
    command.arg(&source).args(["-nodefaultlibs", "-Wl,-Bdynamic"]);
    command.args(LIBRARIES.map(|(name, _)| format!("-l{name}")));
    let done = command.args(arguments).arg("-o").arg(&trial).output();
    done.is_ok_and(|done| done.status.success()) && Command::new(&trial).output().is_ok_and(|run| run.status.success())
}
