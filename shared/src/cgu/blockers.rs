//! Upgrades that wait for each other.

use std::collections::{BTreeMap, VecDeque};

use super::api::Reference;

/// Upgrades that the search for a cycle visits at most.
const MAX_VISITED: usize = 1_000;

/// The shortest path from an upgrade over those that block it back to itself, its own name first and last. Empty if there
/// is none.
pub fn cycle(own: &Reference, blockers: impl Fn(&Reference) -> Vec<Reference>) -> Vec<Reference> {
    let mut came_from: BTreeMap<Reference, Reference> = BTreeMap::new();
    let mut open = VecDeque::from([own.clone()]);
    while let Some(at) = open.pop_front().filter(|_| came_from.len() < MAX_VISITED) {
        for next in blockers(&at) {
            if next == *own {
                let mut path = vec![own.clone(), at];
                while let Some(before) = path.last().filter(|last| *last != own).and_then(|last| came_from.get(last)) {
                    path.push(before.clone());
                }
                path.reverse();
                return path;
            }
            if !came_from.contains_key(&next) {
                came_from.insert(next.clone(), at.clone());
                open.push_back(next);
            }
        }
    }
    Vec::new()
}

/// `NAMESPACE/NAME -> NAMESPACE/NAME`
pub fn arrows(cycle: &[Reference]) -> String {
    let names: Vec<String> = cycle.iter().map(|one| format!("{}/{}", one.namespace, one.name)).collect();
    names.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_back_is_found() {
        let reference = |name: &str| Reference { name: name.to_owned(), namespace: "ns".to_owned() };
        let of = |edges: &[(&str, &[&str])], own: &str| {
            let blockers = |at: &Reference| {
                let found = edges.iter().find(|(name, _)| *name == at.name);
                found.into_iter().flat_map(|(_, all)| all.iter().map(|name| reference(name))).collect()
            };
            arrows(&cycle(&reference(own), blockers))
        };
        assert_eq!(of(&[("a", &["b"]), ("b", &["c"])], "a"), "");
        assert_eq!(of(&[("a", &["a"])], "a"), "ns/a -> ns/a");
        let edges: &[(&str, &[&str])] = &[("a", &["b", "c"]), ("b", &["d"]), ("c", &["a"]), ("d", &["b", "a"])];
        assert_eq!(of(edges, "a"), "ns/a -> ns/c -> ns/a");
        assert_eq!(of(edges, "b"), "ns/b -> ns/d -> ns/b");
    }
}
