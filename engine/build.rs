//! Builds `libwafpark.so`, which `src/park/library.rs` embeds.
//!
//! It is linked with nothing: what it needs of libc it finds in the program into which it is loaded, whatever version that has.
//!
//! And links `wafcc` statically where libc is there for that: it lives for less time than its libraries would take to load.
//! It then begins with `front/front.c`.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCES: [&str; 15] = [
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

/// Without a guard on the stack: that is set up by libc.
const FRONT_FLAGS: [&str; 10] = [
    "-std=gnu11",
    "-ffreestanding",
    "-fno-pic",
    "-fno-stack-protector",
    "-fno-builtin",
    // Its texts lie side by side then, and not among those of the program, each in a page of its own.
    "-fno-merge-constants",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wpedantic",
];
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];

/// What Rust's own library is linked with, and what stands in for each in a static program.
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
    println!("cargo::rerun-if-changed=park");
    println!("cargo::rerun-if-changed=front");
    println!("cargo::rustc-check-cfg=cfg(wafcc_front)");
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    link_statically(&Path::new(&out).join("static"));
    let library = Path::new(&out).join("libwafpark.so");
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    if !MACHINES.contains(&machine.as_str()) {
        // Empty: the engine then parks nothing.
        std::fs::write(&library, b"").expect("write to OUT_DIR");
        return;
    }
    let mut build = cc::Build::new();
    build.opt_level(2).warnings(false);
    // Otherwise gcc makes loops into calls of strlen, which libc may not have resolved yet when we are called.
    build.flag_if_supported("-fno-tree-loop-distribute-patterns");
    let mut command = build.get_compiler().to_command();
    command
        .args(FLAGS)
        .args(SOURCES.map(|name| format!("park/{name}")))
        .arg("-o");
    let status = command.arg(&library).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "libwafpark.so could not be built: {command:?}"
    );
}

/// `-C target-feature=+crt-static` would be for all programs or none. So the linker finds scripts that name the static
/// libraries where it looks for the shared ones.
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
        }
        begin_with_front(folder);
    }
}

/// A program that is loaded with its libraries has waited for libc when it begins: there the front would gain nothing.
fn begin_with_front(folder: &Path) {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    if !MACHINES.contains(&machine.as_str()) {
        return;
    }
    let object = folder.join("front.o");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    let mut build = cc::Build::new();
    build.opt_level(2).warnings(false);
    build.flag_if_supported("-fno-tree-loop-distribute-patterns");
    let mut command = build.get_compiler().to_command();
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

/// Whoever says how to link may mean a linker that does not take such scripts.
fn is_link_chosen() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var_os("RUSTC_LINKER").is_some() || ["link", "crt-static"].iter().any(|word| flags.contains(word))
}

/// Not every system that has a compiler has the archives of libc. Links as rustc does.
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
