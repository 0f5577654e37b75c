//! The names of files in which rustc looks for crates. The other side of `is_crate` in `engine/park/watch.c`.

/// The digits that cargo puts behind the name of a crate.
const DIGITS: usize = 16;

/// Whether a file with this name may be a crate.
pub fn is_crate(name: &[u8]) -> bool {
    name.starts_with(b"lib") && ending(name).is_some()
}

fn ending(name: &[u8]) -> Option<&[u8]> {
    let endings: [&[u8]; 3] = [b".rlib", b".rmeta", b".so"];
    endings.into_iter().find(|end| name.ends_with(end))
}

/// How all names begin that rustc may take for the crate with this file: its name, and what cargo puts behind it.
pub fn beginning(name: &[u8]) -> Option<&[u8]> {
    let stem = name.strip_suffix(ending(name)?).filter(|_| is_crate(name))?;
    let dash = stem.iter().rposition(|byte| *byte == b'-');
    let is_of_cargo = |digits: &[u8]| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
    Some(match dash {
        Some(at) if is_of_cargo(&stem[at + 1..]) => stem,
        _ => stem.split(|byte| *byte == b'-').next().unwrap_or(stem),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_known_by_its_name() {
        for (name, expected) in [
            ("libserde-0123456789abcdef.rlib", Some("libserde-0123456789abcdef")),
            ("libserde-0123456789abcdef.rmeta", Some("libserde-0123456789abcdef")),
            (
                "libserde_derive-0123456789abcdef.so",
                Some("libserde_derive-0123456789abcdef"),
            ),
            ("libstd-0123456789abcde.rlib", Some("libstd")),
            ("libone.rlib", Some("libone")),
            ("one.rlib", None),
            ("libone.a", None),
            ("libone.rlib.tmp", None),
        ] {
            assert_eq!(beginning(name.as_bytes()), expected.map(str::as_bytes), "{name}");
        }
    }
}
