//! What may be meant by a name that no object has: one that is nearly the same, or an object on a hub of another role.

use hub::error::HubError;
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::kinds::{Elsewhere, Kind};
use shared::text::name_some;
use strsim::osa_distance;

use super::Row;

/// How many names a hint lists.
const NAMED: usize = 5;
/// How many names it suggests.
const SUGGESTIONS: usize = 3;

/// `; did you mean a or b?`: the names within a third of the letters of the one given, nearest first. `None` if there
/// is none.
pub(super) fn did_you_mean<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
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

/// The kind that a word means, and where it is; none if the word means several, or if it is on every hub.
pub(super) fn of_word(kinds: &[Row]) -> Option<String> {
    let [row] = kinds else { return None };
    let elsewhere = elsewhere(*row)?;
    Some(format!("{}: {}; {}", row.kind().resource_name(), elsewhere.hint, elsewhere.namesakes))
}

/// `; "shop" is the display name of cluster.kubermatic.k8c.io/abc`, if the wanted name is that of an object.
pub(super) fn display_name(wanted: &str, lists: &[(Row, Result<Vec<Value>, HubError>)]) -> Option<String> {
    let found: Vec<String> = lists
        .iter()
        .filter_map(|(row, list)| Some((row, elsewhere(*row)?.display_name, list.as_ref().ok()?)))
        .flat_map(|(row, display_name, list)| {
            let called = list.iter().filter(move |object| display_name(object) == Some(wanted));
            called.filter_map(|object| Some(row.kind().full_name(object.pointer("/metadata/name")?.as_str()?)))
        })
        .take(NAMED)
        .collect();
    (!found.is_empty()).then(|| format!("; {wanted:?} is the display name of {}: use its ID", found.join(" and of ")))
}

/// Where else to look for an object of a kind, given those that this hub has.
pub(super) async fn hint(hub: &HubClient, row: Row, list: Option<&[Value]>) -> Option<String> {
    let elsewhere = elsewhere(row)?;
    let index = Resource::preferred(&elsewhere.index);
    let others = hub.list(index, None, "", "").await.map(|list| list.items).unwrap_or_default();
    let others: Vec<&str> = others.iter().filter_map(|object| object.pointer("/metadata/name")?.as_str()).collect();
    let is_empty = list.is_some_and(<[Value]>::is_empty);
    Some(text(elsewhere, row.kind(), is_empty, &others))
}

fn elsewhere(row: Row) -> Option<&'static Elsewhere> {
    row.target()?.elsewhere.as_ref()
}

fn text(elsewhere: &Elsewhere, kind: &Kind, is_empty: bool, others: &[&str]) -> String {
    let Elsewhere { hint, index, role, .. } = elsewhere;
    let known = name_some(others, NAMED);
    match (is_empty, known.is_empty()) {
        (true, false) => {
            format!("; the hub has {}s ({known}) but no {}: it may be {role}. {hint}", index.kind, kind.resource_name())
        }
        (false, false) => format!("; {hint} ({} known here: {known})", index.plural),
        (_, true) => format!("; {hint}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::{CLUSTER_DEPLOYMENT, KKP_CLUSTER};

    use super::*;

    const CD: Row = Row::Target(&CLUSTER_DEPLOYMENT);
    const KKP: Row = Row::Target(&KKP_CLUSTER);

    #[test]
    fn only_near_names_are_suggested_nearest_first() {
        let names = ["demo", "demo-2", "memo", "prod", "dmeo"];
        assert_eq!(did_you_mean("dem", names).unwrap(), "; did you mean demo or demo-2?");
        assert_eq!(did_you_mean("deno", names).unwrap(), "; did you mean demo?");
        assert_eq!(did_you_mean("production", names), None);
    }

    #[test]
    fn a_master_is_distinguished_from_the_wrong_seed_as_far_as_it_can_be() {
        let hint = "KKP's user clusters live on their seed: use the seed's kubeconfig";
        let many: Vec<String> = (0..7).map(|at| format!("s{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (is_empty, seeds, expected) in [
            (
                true,
                vec!["eu", "us"],
                "; the hub has Seeds (eu, us) but no clusters.kubermatic.k8c.io: it may be a KKP master. ",
            ),
            (true, many, "(s0, s1, s2, s3, s4 and 2 more)"),
            (
                false,
                vec!["eu"],
                "; KKP's user clusters live on their seed: use the seed's kubeconfig (seeds known here: eu)",
            ),
            (true, vec![], "; "),
            (false, vec![], "; "),
        ] {
            let text = text(KKP_CLUSTER.elsewhere.as_ref().unwrap(), &KKP_CLUSTER.kind, is_empty, &seeds);
            assert!(text.contains(expected) && text.contains(hint), "{text}");
        }
    }

    #[test]
    fn the_name_that_people_use_leads_to_the_id() {
        let object =
            |name: &str, called: &str| json!({ "metadata": { "name": name }, "spec": { "humanReadableName": called } });
        let clusters = vec![object("abc", "shop"), object("def", "bank"), object("ghi", "shop")];
        let lists = [(CD, Ok(vec![object("x", "shop")])), (KKP, Ok(clusters))];
        assert_eq!(
            display_name("shop", &lists).unwrap(),
            "; \"shop\" is the display name of cluster.kubermatic.k8c.io/abc and of cluster.kubermatic.k8c.io/ghi: use its ID"
        );
        assert_eq!(display_name("pub", &lists), None);
    }

    #[test]
    fn a_word_says_which_systems_kind_it_means() {
        let text = of_word(&[KKP]).unwrap();
        assert!(text.starts_with("clusters.kubermatic.k8c.io: KKP's user clusters live on their seed"), "{text}");
        assert!(
            text.ends_with(
                "clusters of Cluster API and of Open Cluster Management are not put to sleep by this program"
            )
        );
        assert_eq!(of_word(&[CD]), None);
        assert_eq!(of_word(&[KKP, CD]), None);
    }
}
