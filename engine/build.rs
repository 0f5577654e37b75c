//! Builds `libwafpark.so`, which `src/park/library.rs` embeds.
//!
//! It is linked with nothing: what it needs of libc it finds in the program into which it is loaded, whatever version that has.
//!
//! And links `wafcc` statically where libc is there for that: it lives for less time than its libraries would take to load.

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

/// What Rust's own library is linked with, and what stands in for each in a static program.
const LIBRARIES: [(&str, &str); 7] = [
    ("gcc_s", "libgcc_eh.a"),
    ("c", "libc.a"),
    ("m", "libm.a"),
    ("rt", "librt.a"),
    ("dl", "libdl.a"),
    ("util", "libutil.a"),
    ("pthread", "libpthread.a"),
];

fn main() {
    println!("cargo::rerun-if-changed=park");
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    link_statically(&Path::new(&out).join("static"));
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

/// `-C target-feature=+crt-static` would be for all programs or none. So the linker finds scripts that name the static
/// libraries where it looks for the shared ones.
fn link_statically(folder: &Path) {
    let glibc = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if !glibc || !can_link_statically(folder) {
        return;
    }
    for (name, archive) in LIBRARIES {
        let script = folder.join(format!("lib{name}.so"));
        std::fs::write(script, format!("INPUT(-l:{archive})\n")).expect("write to OUT_DIR");
    }
    for argument in [format!("-L{}", folder.display()), "-static".into(), "-no-pie".into()] {
        println!("cargo::rustc-link-arg-bin=wafcc={argument}");
    }
}

/// Not every system that has a compiler has the archives of libc.
fn can_link_statically(folder: &Path) -> bool {
    std::fs::create_dir_all(folder).expect("make a folder in OUT_DIR");
    let source = folder.join("trial.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("write to OUT_DIR");
    let mut command = cc::Build::new().warnings(false).get_compiler().to_command();
    command.args(["-static", "-no-pie"]).arg(&source);
    command.args(LIBRARIES.map(|(_, archive)| format!("-l:{archive}")));
    let done = command.arg("-o").arg(folder.join("trial")).output();
    done.is_ok_and(|done| done.status.success())
}
