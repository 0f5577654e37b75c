//! Paths and variables with a special meaning for facts: tables, each line with its reason.

/// Variables that libc reads internally, where this is not observed.
pub const ALWAYS_ASKED: [&[u8]; 16] = [
    // The loader reads these.
    b"LD_LIBRARY_PATH",
    b"LD_PRELOAD",
    b"LANG",
    b"LANGUAGE",
    b"LC_ALL",
    b"LC_ADDRESS",
    b"LC_COLLATE",
    b"LC_CTYPE",
    b"LC_IDENTIFICATION",
    b"LC_MESSAGES",
    b"LC_MONETARY",
    b"LC_NUMERIC",
    b"LC_TIME",
    b"NLSPATH",
    b"TZ",
    b"PATH",
];

/// Where programs are looked for, and where if it is not set.
pub const SEARCHED: &[u8] = b"PATH";
pub const DEFAULT_FOLDERS: &[u8] = b"/bin:/usr/bin";

/// Facts have the path of a program that was looked for along `PATH` under this and its name. No variable can have it.
pub const ALONG: &[u8] = b"=along ";

/// Facts have all further variables for libc that are set under this name. No variable can have it.
pub const LIBC: &[u8] = b"=libc";

/// Variables that libc and the loader read internally and that are hardly ever set, of glibc and musl.
pub const LIBC_NAMES: [&[u8]; 16] = [
    // Locales, messages and character sets.
    b"LOCPATH",
    b"MUSL_LOCPATH",
    b"OUTPUT_CHARSET",
    b"GCONV_PATH",
    // Command lines, and messages about them.
    b"POSIXLY_CORRECT",
    b"ARGP_HELP_FMT",
    b"MSGVERB",
    b"SEV_LEVEL",
    // Dates.
    b"TZDIR",
    b"DATEMSK",
    b"GETCONF_DIR",
    // Host names.
    b"RES_OPTIONS",
    b"LOCALDOMAIN",
    b"HOSTALIASES",
    b"LIBC_FATAL_STDERR_",
    b"NIS_PATH",
];
pub const LIBC_PREFIXES: [&[u8]; 4] = [b"LD_", b"MALLOC_", b"GLIBC_", b"RESOLV_"];

/// Whether libc or the loader may read this variable internally, and it has no fact of its own.
pub fn is_asked_by_libc(name: &[u8]) -> bool {
    let is_asked = LIBC_NAMES.contains(&name) || LIBC_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    is_asked && !ALWAYS_ASKED.contains(&name)
}

/// The folders for temporary files. Their names do not show in what compilers make. So `TMPDIR` is not recorded for known
/// compilers, and counts for all other programs.
pub const TEMPORARY: [&[u8]; 4] = [b"TMPDIR", b"TMP", b"TEMP", b"TEMPDIR"];
pub const TEMPORARY_FOLDERS: [&[u8]; 3] = [b"/tmp", b"/var/tmp", b"/usr/tmp"];

/// The library that is Java's virtual machine.
pub const VIRTUAL_MACHINE: &[u8] = b"/libjvm.so";

/// Where it keeps counters of each process, for tools that show them.
const COUNTERS: &[u8] = b"/tmp/hsperfdata_";

/// The meaning of a special path for a command that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// It says nothing about what a command makes.
    Harmless,
    Random,
    /// It says how large the machine is, for allocators and thread pools. This is harmless for programs that are known to
    /// ask for it.
    Machine,
    /// It says how busy the machine or the program is.
    Busy,
    /// The kind of processor, among values that change all the time.
    Processor,
    /// It is different each time, or known to this machine only.
    Device,
}

const HARMLESS: [&[u8]; 6] = [
    b"/dev/null",
    b"/dev/zero",
    b"/dev/full",
    // The path of the program itself, which is a fact in any case, and the layout of its memory.
    b"/proc/self/exe",
    b"/proc/self/maps",
    b"/proc/filesystems",
];
const HARMLESS_FOLDERS: [&[u8]; 1] = [b"/proc/self/fd"];
const MACHINE: [&[u8]; 9] = [
    b"/proc/meminfo",
    b"/proc/cgroups",
    b"/proc/net/if_inet6",
    b"/proc/self/cgroup",
    b"/proc/self/mountinfo",
    b"/sys/kernel/mm/transparent_hugepage",
    b"/proc/sys/vm",
    b"/sys/devices/system/cpu",
    b"/sys/fs/cgroup",
];
const BUSY: [&[u8]; 7] = [
    b"/proc/stat",
    b"/proc/loadavg",
    b"/proc/self/stat",
    b"/proc/self/status",
    b"/proc/self/statm",
    // What a dump of it would hold, if it crashed.
    b"/proc/self/coredump_filter",
    b"/proc/version",
];
const MADE_UP: [&[u8]; 3] = [b"/dev", b"/proc", b"/sys"];

/// For an absolute path: what is special about it.
pub fn special(path: &[u8]) -> Option<Special> {
    let is_in = |folder: &&[u8]| super::path::below(folder, path).is_some();
    if HARMLESS.contains(&path) || HARMLESS_FOLDERS.iter().any(is_in) {
        return Some(Special::Harmless);
    }
    if MACHINE.iter().any(is_in) {
        return Some(Special::Machine);
    }
    if BUSY.contains(&path) {
        return Some(Special::Busy);
    }
    if path == b"/proc/cpuinfo" {
        return Some(Special::Processor);
    }
    if matches!(path, b"/dev/urandom" | b"/dev/random") {
        return Some(Special::Random);
    }
    let is_made_up = MADE_UP.iter().any(is_in) && !is_in(&&b"/dev/shm"[..]) && !MADE_UP.contains(&path);
    is_made_up.then_some(Special::Device)
}

/// Whether it is a file with the counters of a process, or the folder of these. Their names and what is in them say nothing about
/// what a command makes, unless somebody shows them.
pub fn is_of_counters(path: &[u8]) -> bool {
    path.starts_with(COUNTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_libc_are_known_by_name() {
        for name in [
            "POSIXLY_CORRECT",
            "GCONV_PATH",
            "LD_BIND_NOW",
            "MALLOC_PERTURB_",
            "GLIBC_TUNABLES",
        ] {
            assert!(is_asked_by_libc(name.as_bytes()), "{name}");
        }
        for name in ["LD_PRELOAD", "LDFLAGS", "HOME", "PATH", "MALLOC"] {
            assert!(!is_asked_by_libc(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn counters_of_processes_are_told_from_files() {
        assert!(is_of_counters(b"/tmp/hsperfdata_me") && is_of_counters(b"/tmp/hsperfdata_me/12"));
        assert!(!is_of_counters(b"/tmp/x") && !is_of_counters(b"/home/me/tmp/hsperfdata_me/12"));
    }

    #[test]
    fn devices_are_told_from_files() {
        assert_eq!(special(b"/dev/null"), Some(Special::Harmless));
        assert_eq!(special(b"/dev/urandom"), Some(Special::Random));
        assert_eq!(special(b"/proc/cpuinfo"), Some(Special::Processor));
        assert_eq!(special(b"/sys/devices/system/cpu/online"), Some(Special::Machine));
        assert_eq!(special(b"/proc/stat"), Some(Special::Busy));
        assert_eq!(special(b"/dev/shm/x"), None);
        assert_eq!(special(b"/development/x"), None);
    }
}
