//! Names that are nearly the one that was typed.

use strsim::osa_distance;

/// How many names an error suggests.
const SUGGESTIONS: usize = 3;

/// `; did you mean a or b?`: the names within a third of the letters of the one given, nearest first. `None` if there
/// is none.
pub fn did_you_mean<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let limit = (wanted.chars().count() / 3).clamp(1, 4);
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .map(|name| if name.starts_with(wanted) { (1, name) } else { (osa_distance(wanted, name), name) })
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    let near: Vec<&str> = near.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect();
    (!near.is_empty()).then(|| format!("; did you mean {}?", near.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested_nearest_first() {
        let names = ["demo", "demo-2", "memo", "prod", "dmeo"];
        assert_eq!(did_you_mean("dem", names).unwrap(), "; did you mean demo or demo-2?");
        assert_eq!(did_you_mean("deno", names).unwrap(), "; did you mean demo?");
        assert_eq!(did_you_mean("production", names), None);
    }
}
