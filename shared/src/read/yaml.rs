//! The only reader of YAML: kubeconfigs, `clouds.yaml`, templates of policies. Tenants write all of it.

use serde::de::DeserializeOwned;
use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

use crate::text::first_line;

/// Real documents have one key, value or list per 15 bytes or more.
const BYTES_PER_NODE: usize = 12;

const MAX_DEPTH: usize = 32;

/// Only [`YamlError::Malformed`] may quote the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// Sizes in bytes.
    #[error("is refused: it has {found} bytes, more than {} KiB", .most >> 10)]
    TooLarge { found: usize, most: usize },
    /// A few bytes of it could become many.
    #[error("is refused: it has YAML anchors or aliases")]
    Aliases,
    /// More than real documents of this size in bytes have.
    #[error("is refused: it has more keys and values than a file of {} KiB", .0 >> 10)]
    TooMany(usize),
    /// A sanitized line.
    #[error("is malformed: {0}")]
    Malformed(String),
}

/// Reads one document of at most so many bytes. Anchors, aliases, merge keys and custom tags are refused.
pub fn read<T: DeserializeOwned>(text: &str, most: usize) -> Result<T, YamlError> {
    if text.len() > most {
        return Err(YamlError::TooLarge { found: text.len(), most });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
            max_documents: 1,
            max_depth: MAX_DEPTH,
            max_nodes: 100 + most / BYTES_PER_NODE,
        },
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let found = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| T::deserialize(yaml));
    found.map_err(|error| {
        use BudgetBreach::{AliasAnchorRatio, Aliases, Anchors, MergeKeys, Nodes};
        match error.without_snippet() {
            Error::Budget {
                breach: Anchors { .. } | Aliases { .. } | AliasAnchorRatio { .. } | MergeKeys { .. },
                ..
            } => YamlError::Aliases,
            Error::Budget { breach: Nodes { .. }, .. } => YamlError::TooMany(most),
            error => YamlError::Malformed(first_line(error)),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn fuzz_memory_of_yaml() {
        let seeds =
            ["a: [x, 'y']\nb: ['1']", "a: &a [x]\nb: *a", "a:\n- |\n  x\n- \"\\u00e9\"\n", "{a: [\"b\"], \"c\": []}"];
        ::fuzz::run("YAML", &seeds.map(str::as_bytes), |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let (read, peak) = ::fuzz::peak(|| read::<BTreeMap<String, Vec<String>>>(&text, 64 << 10).is_ok());
            assert!(peak.is_none_or(|peak| peak <= 64 * text.len() + (64 << 10)), "{peak:?} for {}", text.len());
            read
        });
    }

    #[test]
    fn few_bytes_never_become_many() {
        let read = |text: &str| read::<BTreeMap<String, Vec<String>>>(text, 64 << 10).map(|found| found.len());
        assert_eq!(read("a: [x, 'y']\nb: ['1']"), Ok(2));
        for text in ["a: &a [x]", "a: &a {}\nb: {<<: *a}", "x: &a [y]\ny: *a"] {
            assert_eq!(read(text), Err(YamlError::Aliases), "{text}");
        }
        let large = "#".repeat((64 << 10) + 1);
        assert_eq!(read(&large).unwrap_err().to_string(), "is refused: it has 65537 bytes, more than 64 KiB");
        let many = |number: usize| format!("a: [{}]", vec!["x"; number].join(", "));
        assert_eq!(read(&many(5_500)), Ok(1), "as many as a real file of 64 KiB");
        let why = read(&many(6_000)).unwrap_err().to_string();
        assert_eq!(why, "is refused: it has more keys and values than a file of 64 KiB");
        for text in ["a: [x]\n---\na: [x]\n", "a: !own [x]", "a: {", "a: [[x]]"] {
            assert!(matches!(read(text), Err(YamlError::Malformed(_))), "{text:.40}: {:?}", read(text));
        }
    }
}
