//! Files that the C library and the loader read by themselves.

/// Folders of such files. docs/observing.md says why none of them has to be recorded.
pub const EXCEPTIONS: [&str; 12] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/usr/lib/locale/",
    "/usr/share/locale/",
    "/usr/share/locale-langpack/",
    "/usr/lib/x86_64-linux-gnu/gconv/",
    "/usr/share/zoneinfo/",
    "/etc/localtime",
    "/proc/self/",
    "/sys/devices/system/cpu",
    "/sys/dev/block/",
    "/proc/meminfo",
];
