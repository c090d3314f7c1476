use serde_json::json;
use shared::kinds::CLUSTER_DEPLOYMENT;

use super::*;

pub(in crate::cmd::rollout) fn target(namespace: &str, name: &str, tier: &str) -> Target {
    let metadata = json!({ "namespace": namespace, "name": name, "labels": { "tier": tier } });
    Target::new(&CLUSTER_DEPLOYMENT, "v1", json!({ "metadata": metadata }))
}

fn fleet() -> Vec<Target> {
    [("a", "demo", "x"), ("b", "demo", "y"), ("a", "web", "y"), ("a", "db", "z")]
        .map(|(namespace, name, tier)| target(namespace, name, tier))
        .into()
}

/// `canary[a/demo]`, or the error.
fn found(canaries: &[&str], namespace: Option<&str>) -> Result<Vec<String>, String> {
    let texts: Vec<String> = canaries.iter().map(|&text| text.to_owned()).collect();
    let groups =
        read(&texts).and_then(|canaries| find(&canaries, namespace, false, &fleet().iter().collect::<Vec<_>>()));
    let short = |CanaryGroup { group, members }: &CanaryGroup| {
        let by = if group.selector.is_some() { "labels" } else { "names" };
        format!("{} by {by}: {}", group.name, members.iter().map(place).collect::<Vec<_>>().join(" "))
    };
    groups.map(|groups| groups.iter().map(short).collect()).map_err(|error| error.to_string())
}

#[test]
fn canaries_are_names_or_labels() {
    for (canaries, namespace, expected) in [
        (&["web"][..], Some("a"), vec!["canary by names: a/web"]),
        (&["web"], None, vec!["canary by names: a/web"]),
        (&["b/demo"], Some("a"), vec!["canary by names: b/demo"]),
        (&["a/db", "tier=y"], None, vec!["canary by names: a/db", "canary-2 by labels: b/demo a/web"]),
        (&["tier in (x, z)"], None, vec!["canary by labels: a/demo a/db"]),
        (&["tier!=y"], None, vec!["canary by labels: a/demo a/db"]),
        (&["label:tier"], None, vec!["canary by labels: a/demo b/demo a/web a/db"]),
        (&["a/demo", "label:tier"], None, vec!["canary by names: a/demo", "canary-2 by labels: b/demo a/web a/db"]),
    ] {
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(found(canaries, namespace), Ok(expected), "{canaries:?} {namespace:?}");
    }
}

#[test]
fn what_is_no_canary_is_named() {
    for (canaries, namespace, part) in [
        (&["demo"][..], None, "\"demo\" names several targets: a/demo, b/demo; write NAMESPACE/NAME"),
        (&["web", "no", "tier=q"], Some("a"), "--canary no, tier=q: not among the 4 targets"),
        (&["web"], Some("b"), "--canary web: not among the 4 targets"),
        (&["a/web", "web"], Some("a"), "--canary \"web\" adds no target"),
        (&["Web"], None, "--canary \"Web\" is neither NAME nor NAMESPACE/NAME"),
        (&["a/b/c"], None, "\"a/b/c\" is neither"),
        (&[""], None, "\"\" is neither"),
        (&["label:"], None, "--canary \"label:\" is not a label selector: the selector is empty"),
        (&["tier=a b"], None, "is not a label selector: \"a b\" is not the value"),
    ] {
        let error = found(canaries, namespace).unwrap_err();
        assert!(error.contains(part), "{canaries:?}: {error}");
    }
    let ambiguous = found(&["demo"], None).unwrap_err();
    let (_, places) = ambiguous.split_once("several targets: ").unwrap();
    for place in places.split(';').next().unwrap().split(", ") {
        assert!(found(&[place], None).is_ok(), "{place}: {ambiguous}");
    }
    let many = vec!["a".to_owned(); 21];
    assert_eq!(
        read(&many).unwrap_err().to_string(),
        "--canary is given 21 times: a rollout takes at most 20; use a label selector"
    );
}
