//! The formats of our annotations' values. Every reader of an annotation of ours uses these.

use jiff::Timestamp;

/// Reads an RFC 3339 time: `2026-11-21T18:00:00Z`, `2026-11-21T18:00:00.5+01:00`.
///
/// Stricter than jiff, which also takes forms that other readers of our annotations do not.
pub fn time(text: &str) -> Option<Timestamp> {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let rest = shape.strip_prefix("0000-00-00T00:00:00")?;
    let zone = rest.strip_prefix(".0").map_or(rest, |fraction| fraction.trim_start_matches('0'));
    if !matches!(zone, "Z" | "+00:00" | "-00:00") {
        return None;
    }
    let time: Timestamp = text.parse().ok()?;
    (time.as_second() >= YEAR_0).then_some(time)
}

/// Seconds of `0000-01-01T00:00:00Z`: an offset could lead to the year before, which RFC 3339 cannot write.
const YEAR_0: i64 = -62_167_219_200;

/// Writes a time as our annotations hold it: RFC 3339, UTC, whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as the API server keeps it.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Reads a count: a non-negative integer in decimal digits, no more than a 32-bit `replicas` field can hold.
pub fn count(text: &str) -> Option<i32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Reads a boolean: `true` or `false`, in this one spelling.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_times() {
        let seeds: [&[u8]; 4] =
            [b"2026-11-21T18:00:00Z", b"2026-11-21T18:00:00.5-08:30", b"9999-12-31T23:59:59Z", b"0000-01-01T00:00:00Z"];
        ::fuzz::run("times", &seeds, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let (count, boolean) = (count(text), boolean(text));
            assert!(count.is_none_or(|count| count >= 0) && boolean.is_none_or(|_| !text.is_empty()));
            let time = time(text);
            if let Some(time) = time {
                let whole = super::time(&seconds(time)).unwrap();
                assert!(time.duration_since(whole).abs() < jiff::SignedDuration::from_secs(1), "{text:?}");
            }
            time.is_some()
        });
    }

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_rfc_3339_and_nothing_wider() {
        for text in [
            "2026-11-21T18:00:00Z",
            "2026-11-21T18:00:00.123456789Z",
            "2026-11-21T18:00:00+01:00",
            "2026-11-21T18:00:00.5-08:30",
            "0000-01-01T00:00:00Z",
        ] {
            assert!(time(text).is_some(), "{text}");
        }
        for text in [
            "",
            "tomorrow",
            "2026-11-21",
            "2026-11-21T18:00Z",
            "2026-11-21 18:00:00Z",
            "2026-11-21t18:00:00z",
            "2026-11-21T18:00:00",
            "2026-11-21T18:00:00.Z",
            "2026-11-21T18:00:00+0100",
            "2026-11-21T18:00:00+01:00[Europe/Berlin]",
            "2026-13-21T18:00:00Z",
            "2026-11-21T18:00:00Zü",
            "0000-01-01T20:54:26.06+24:00",
            "+002026-11-21T18:00:00Z",
            "٢٠٢٦-11-21T18:00:00Z",
        ] {
            assert!(time(text).is_none(), "{text}");
        }
    }

    #[test]
    fn counts_fit_a_replicas_field() {
        assert_eq!(count("0"), Some(0));
        assert_eq!(count("007"), Some(7));
        assert_eq!(count("2147483647"), Some(i32::MAX));
        for text in ["", "-1", "+1", "1.0", "2147483648", "three", " 3", "٣"] {
            assert_eq!(count(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_time_is_read_back(second in -62_135_596_800_i64..253_402_300_799) {
            let written = Timestamp::from_second(second).unwrap();
            prop_assert_eq!(time(&seconds(written)), Some(written));
        }

        #[test]
        fn no_text_is_too_odd_to_be_looked_at(text in ".{0,40}") {
            let _ = (time(&text), count(&text), boolean(&text));
        }
    }
}
