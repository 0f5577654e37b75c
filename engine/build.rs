//! Builds `libwafpark.so`, which `src/park/library.rs` embeds.
//!
//! It is linked with nothing: what it needs of libc it finds in the program into which it is loaded, whatever version that has.

use std::env;
use std::path::Path;

const SOURCES: [&str; 10] = [
    "park.c", "before.c", "become.c", "memory.c", "route.c", "symbol.c", "record.c", "watch.c", "clock.c", "launch.c",
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

fn main() {
    println!("cargo::rerun-if-changed=park");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let library = Path::new(&out).join("libwafpark.so");
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    if !["x86_64", "aarch64"].contains(&machine.as_str()) {
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
