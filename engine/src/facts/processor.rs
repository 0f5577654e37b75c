//! The properties of this machine's processor that a program can learn by instructions that are not observed: features,
//! model, caches.
//!
//! It is a fact like a variable, so that entries and `--explain` know it by name. Machines with the same text have
//! processors that no compiler distinguishes.

use std::sync::OnceLock;

use crate::bytes::digest::Digest;

/// Facts have the processor under this name among the variables. No variable can have it.
pub const PROCESSOR: &[u8] = b"=processor";
/// A variable. Commands that depend on the processor share results only between machines where it has the same value.
pub const NAMED: &[u8] = b"WAFCC_PROCESSOR";

/// A short text, which includes the user's name for such machines.
pub fn tell(name: Option<&[u8]>) -> Vec<u8> {
    static TOLD: OnceLock<String> = OnceLock::new();
    let told = TOLD.get_or_init(|| {
        let mut all = all();
        // Programs may run on any processor, and results may depend on which one.
        all.sort();
        all.dedup();
        let model = all.first().map_or("", |processor| processor.model.as_str());
        let texts: Vec<_> = all.iter().map(|processor| processor.features.as_slice()).collect();
        format!("{model} {}", &Digest::of(&texts.concat()).to_string()[..16])
    });
    match name {
        Some(name) if !name.is_empty() => [told.as_bytes(), b" ", name].concat(),
        _ => told.clone().into_bytes(),
    }
}

/// Whether a word of a command line asks for this machine's processor: `-march=native`, `-mcpu=native+crypto`,
/// `-Wa,-march=native`. Accepting too many words costs nothing on one machine.
pub fn is_asked_by(word: &[u8]) -> bool {
    const SEPARATORS: &[u8] = b"=,:+ ";
    word.split(|byte| SEPARATORS.contains(byte))
        .any(|part| part == b"native")
}

/// Whether a file gives gcc or clang further options, which are not known here.
pub fn may_be_asked_by(file: &[u8]) -> bool {
    file.ends_with(b"specs") || file.ends_with(b".cfg") || file.ends_with(b".spec")
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Processor {
    model: String,
    features: Vec<u8>,
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv, CpuidResult};

    use super::Processor;

    const EXTENDED: u32 = 0x8000_0000;
    /// The leaves that are read, without those about the processor's own number, the number of processors, and temperature.
    const PLAIN: [u32; 10] = [
        2,
        0x19,
        EXTENDED + 1,
        EXTENDED + 2,
        EXTENDED + 3,
        EXTENDED + 4,
        EXTENDED + 5,
        EXTENDED + 6,
        EXTENDED + 7,
        EXTENDED + 0x21,
    ];
    /// The leaves that have subleaves.
    const DIVIDED: [(u32, u32); 6] = [(7, 4), (0x0d, 2), (0x14, 2), (0x1d, 2), (0x1e, 2), (0x24, 2)];
    const MOST_CACHES: u32 = 16;
    const OWN_STATE: u32 = 1 << 27;

    /// The processors may be of different kinds. A separate thread visits each of them.
    pub fn all() -> Vec<Processor> {
        let visit = || {
            let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
                return vec![here()];
            };
            let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
            let seen = numbers.filter_map(|number| {
                let mut one = rustix::thread::CpuSet::new();
                one.set(number);
                rustix::thread::sched_setaffinity(None, &one).ok().map(|()| here())
            });
            let seen: Vec<_> = seen.collect();
            if seen.is_empty() {
                vec![here()]
            } else {
                seen
            }
        };
        let thread = std::thread::Builder::new().name("processors".to_owned()).spawn(visit);
        let seen = thread.ok().and_then(|thread| thread.join().ok());
        seen.unwrap_or_else(|| vec![here()])
    }

    fn here() -> Processor {
        let mut features = Vec::new();
        let mut add = |found: CpuidResult| {
            for part in [found.eax, found.ebx, found.ecx, found.edx] {
                features.extend(part.to_le_bytes());
            }
        };
        let ask = |leaf| __cpuid(leaf);
        let (first, extended) = (ask(0), ask(EXTENDED));
        let is_there = |leaf: u32| leaf <= if leaf < EXTENDED { first.eax } else { extended.eax };
        add(first);
        let one = ask(1);
        // Its own number, and how many processors share its cache, differ between processors.
        let ebx = one.ebx & 0xffff;
        add(CpuidResult { ebx, ..one });
        for leaf in PLAIN.into_iter().filter(|leaf| is_there(*leaf)) {
            add(ask(leaf));
        }
        for (leaf, parts) in DIVIDED.into_iter().filter(|(leaf, _)| is_there(*leaf)) {
            for part in 0..parts {
                let found = __cpuid_count(leaf, part);
                // The size of the state that is in use.
                let ebx = if leaf == 0x0d { 0 } else { found.ebx };
                add(CpuidResult { ebx, ..found });
            }
        }
        for leaf in [4, EXTENDED + 0x1d].into_iter().filter(|leaf| is_there(*leaf)) {
            for part in 0..MOST_CACHES {
                let cache = __cpuid_count(leaf, part);
                if cache.eax & 0x1f == 0 {
                    break;
                }
                // Without the number of processors that share it.
                let eax = cache.eax & 0x3fff;
                add(CpuidResult { eax, ..cache });
            }
        }
        if is_there(EXTENDED + 8) {
            let (found, eax, ecx, edx) = (ask(EXTENDED + 8), 0, 0, 0);
            add(CpuidResult {
                ebx: found.ebx,
                eax,
                ecx,
                edx,
            });
        }
        if one.ecx & OWN_STATE != 0 {
            // SAFETY: the system has said that this instruction is there.
            let state = unsafe { xgetbv() };
            features.extend(state.to_le_bytes());
        }
        let model = model(first, one.eax);
        Processor { model, features }
    }

    #[target_feature(enable = "xsave")]
    unsafe fn xgetbv() -> u64 {
        _xgetbv(0)
    }

    /// `GenuineIntel 6-85-7`: its maker, family, model and stepping.
    fn model(first: CpuidResult, signature: u32) -> String {
        let maker = [first.ebx, first.edx, first.ecx].map(u32::to_le_bytes).concat();
        let maker = String::from_utf8_lossy(&maker).into_owned();
        let field = |at: u32, bits: u32| signature >> at & ((1 << bits) - 1);
        let family = field(8, 4) + if field(8, 4) == 15 { field(20, 8) } else { 0 };
        let number = field(4, 4) + (field(16, 4) << 4);
        format!("{maker} {family}-{number}-{}", field(0, 4))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::Processor;

    /// What the kernel reports about each processor, and which features it lets programs use.
    pub fn all() -> Vec<Processor> {
        const TOLD: [&str; 6] = [
            "CPU implementer",
            "CPU architecture",
            "CPU variant",
            "CPU part",
            "CPU revision",
            "Features",
        ];
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let features = [libc::AT_HWCAP, libc::AT_HWCAP2].map(|kind| {
            // SAFETY: it only reads.
            unsafe { libc::getauxval(kind) }
        });
        let features = features.map(u64::to_le_bytes).concat();
        let told = |part: &str| {
            let lines = part.lines().filter_map(|line| line.split_once(':'));
            let lines = lines.map(|(name, value)| (name.trim(), value.trim()));
            lines
                .filter(|(name, _)| TOLD.contains(name))
                .map(|(_, value)| value)
                .collect::<Vec<_>>()
        };
        text.split("\n\n")
            .map(told)
            .filter(|values| !values.is_empty())
            .map(|values| Processor {
                model: values[..values.len().min(4)].join("-"),
                features: [values.join("\n").as_bytes(), &features].concat(),
            })
            .chain([Processor {
                model: String::new(),
                features: features.clone(),
            }])
            .collect()
    }
}

use machine::all;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_described_the_same_each_time() {
        let first = all();
        assert!(!first.is_empty());
        let (mut one, mut other) = (first, all());
        one.sort();
        other.sort();
        assert_eq!(one, other);
        assert!(one.iter().any(|processor| !processor.features.is_empty()));
    }

    #[test]
    fn the_given_name_distinguishes_machines() {
        assert_eq!(tell(None), tell(Some(b"")));
        assert_ne!(tell(None), tell(Some(b"a")));
        assert_ne!(tell(Some(b"a")), tell(Some(b"b")));
    }

    #[test]
    fn a_word_that_asks_for_this_processor_is_known() {
        for word in [
            "-march=native",
            "native",
            "-mcpu=native+nosve",
            "-Wa,-mtune=native",
            "-plugin-opt=mcpu=native",
        ] {
            assert!(is_asked_by(word.as_bytes()), "{word}");
        }
        for word in ["-march=x86-64", "native.c", "-Inative/x", "-DNATIVE"] {
            assert!(!is_asked_by(word.as_bytes()), "{word}");
        }
    }
}
