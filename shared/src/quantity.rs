//! Quantities of Kubernetes, such as `16Gi` or `500m`.

const UNITS: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// The value; none if it is invalid.
pub fn parse(text: &str) -> Option<f64> {
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let number = number.parse::<f64>().ok()? * factor;
    number.is_finite().then_some(number)
}

/// The value, rounded down to whole bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and a metric has no decimals")]
pub fn bytes(text: &str) -> Option<u64> {
    parse(text).map(|bytes| bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read() {
        for (text, number) in [
            ("16Gi", Some(17_179_869_184)),
            ("1.5Ki", Some(1536)),
            ("128G", Some(128_000_000_000)),
            ("7", Some(7)),
            ("2500m", Some(2)),
            ("2000000000n", Some(2)),
            ("x", None),
            ("1e999", None),
        ] {
            assert_eq!(bytes(text), number, "{text}");
        }
        assert!(parse("500m") < parse("1"));
    }
}
