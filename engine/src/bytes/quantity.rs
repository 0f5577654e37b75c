//! Sizes and ages as people write them, with ccache's syntax.

const UNITS: [(char, u32); 4] = [('k', 1), ('m', 2), ('g', 3), ('t', 4)];
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// `5G`, `500Mi`, `1.5TiB`, `100kB` in bytes. A number without a unit means gigabytes, as for ccache. 0 means no limit.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write it like 5G, 500M or 2GiB");
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor(unit.trim()).ok_or_else(wrong)?;
    // Above this, a double cannot represent each byte, and no disk has that many.
    if bytes < 2f64.powi(53) {
        Ok(bytes as u64)
    } else {
        Err(wrong())
    }
}

fn factor(unit: &str) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let unit = match unit.as_str() {
        "" => "g",
        "b" => return Some(1.0),
        other => other.strip_suffix('b').unwrap_or(other),
    };
    let (prefix, base) = match unit.strip_suffix('i') {
        Some(prefix) => (prefix, 1024f64),
        None => (unit, 1000f64),
    };
    let (_, power) = UNITS.iter().find(|(name, _)| prefix == name.to_string())?;
    Some(base.powi(*power as i32))
}

/// A size for people.
pub fn show_size(bytes: u64) -> String {
    let bytes = bytes as f64;
    for (power, unit) in [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")] {
        if bytes >= power {
            return format!("{:.1} {unit}", bytes / power);
        }
    }
    format!("{bytes} B")
}

/// `30d`, `12h`, `90m`, `45s`: seconds.
pub fn age(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not an age; write it like 30d, 12h, 90m or 45s");
    let unit = match text.chars().next_back() {
        Some('s') => 1,
        Some('m') => MINUTE,
        Some('h') => HOUR,
        Some('d') => DAY,
        Some('w') => 7 * DAY,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// `5`, `0.5`, `100%`.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse();
    match number {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err(format!("{text:?} is not a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_ccache_reads_them() {
        for (text, bytes) in [
            ("5", 5_000_000_000),
            ("5G", 5_000_000_000),
            ("5 GB", 5_000_000_000),
            ("5GiB", 5 << 30),
            ("5Gi", 5 << 30),
            ("500Mi", 500 << 20),
            ("1.5k", 1500),
            ("2T", 2_000_000_000_000),
            ("0", 0),
            ("7b", 7),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in [
            "", "G", "5X", "-5G", "5 G G", "1.2.3G", "5ii", "9999999T", "NaN", "infG", "5é",
        ] {
            assert!(size(wrong).is_err_and(|e| e.contains("5G")), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_with_the_largest_unit_that_fits() {
        for (bytes, text) in [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (5_000_000_000, "5.0 GB")] {
            assert_eq!(show_size(bytes), text);
        }
    }

    #[test]
    fn ages_have_a_unit() {
        for (text, seconds) in [
            ("30d", 2_592_000),
            ("12h", 43_200),
            ("90m", 5400),
            ("0s", 0),
            ("2w", 1_209_600),
        ] {
            assert_eq!(age(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "d", "30", "-1d", "1.5d", "30 d", "999999999999999999d", "5é"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percentages_stay_within_their_bounds() {
        assert_eq!((percent("0.5"), percent("100%")), (Ok(0.5), Ok(100.0)));
        for wrong in ["", "101", "-1", "NaN", "many"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
