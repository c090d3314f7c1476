//! Names that are nearly the one that was typed.

use strsim::osa_distance;

/// How many names an error suggests.
const SUGGESTIONS: usize = 3;

/// The names within a third of the letters of the one given, nearest first.
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (wanted.chars().count() / 3).clamp(1, 4);
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .map(|name| if name.starts_with(wanted) { (1, name) } else { (osa_distance(wanted, name), name) })
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (left, right, edits) in
            [("", "abc", 3), ("demo", "demo", 0), ("demo", "dmeo", 1), ("demo", "demos", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(osa_distance(left, right), edits, "{left} {right}");
            assert_eq!(osa_distance(right, left), edits, "{right} {left}");
        }
    }

    #[test]
    fn only_near_names_are_suggested_nearest_first() {
        let names = ["demo", "demo-2", "memo", "prod", "dmeo"];
        assert_eq!(nearest("dem", names), ["demo", "demo-2"]);
        assert_eq!(nearest("deno", names), ["demo"]);
        assert!(nearest("production", names).is_empty());
    }
}
