//! What each account of an installation may do, computed from what kustomize and Helm render, is what
//! `tests/corpus/rights.yaml` lists: a verb more fails. What a role writes is judged by a policy, or listed there, too.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::rendered::{NAMESPACE, below, checkout, documents, kustomized, kustomized_by_user, templated};

const READS: [&str; 3] = ["get", "list", "watch"];

/// Rights by account, namespace and resource: `ACCOUNT [in NAMESPACE]: RESOURCE.GROUP[/NAME]`.
type Rights = BTreeMap<String, BTreeSet<String>>;

/// The list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    /// By the part of an installation that grants them; the verbs are separated by blanks.
    parts: BTreeMap<String, BTreeMap<String, String>>,
    /// Writes that no policy judges, and why that is enough.
    unjudged: BTreeMap<String, String>,
    installations: Vec<Installation>,
}

/// One installation: an overlay of kustomize with components, the values of the chart that install the same, or both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Installation {
    overlay: Option<String>,
    #[serde(default)]
    components: Vec<String>,
    chart: Option<Vec<String>>,
    /// None but where the hub is too old for policies.
    #[serde(default)]
    without_policies: bool,
    parts: Vec<String>,
}

fn corpus() -> Result<Corpus> {
    let text = std::fs::read_to_string(checkout("tests/corpus/rights.yaml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}

/// An overlay with components, as a user's kustomization has them.
fn with_components(overlay: &str, components: &[String]) -> Result<Vec<Value>> {
    if components.is_empty() {
        return documents(&kustomized(overlay)?);
    }
    let components: Vec<String> = components.iter().map(|name| format!("- manifests/components/{name}")).collect();
    let components = components.join("\n");
    documents(&kustomized_by_user(&format!("resources:\n- manifests/{overlay}\ncomponents:\n{components}\n"))?)
}

/// The chart with these values. Whether its definitions outlive it is no right: the tests of the chart render the same.
fn with_values(values: &[String]) -> Result<Vec<Value>> {
    let values: Vec<&str> = values.iter().map(String::as_str).chain(["crds.keep=false"]).collect();
    documents(&templated(4, "1.36.0", &values).map_err(anyhow::Error::msg)?)
}

fn texts<'a>(object: &'a Value, field: &str) -> Vec<&'a str> {
    object[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The rules of a role by the resources that they name.
fn granted(role: &Value) -> Result<Rights> {
    ensure!(role["aggregationRule"].is_null(), "{role} aggregates other roles");
    let mut rights = Rights::new();
    for rule in role["rules"].as_array().context("rules")? {
        let mut of = texts(rule, "nonResourceURLs").into_iter().map(str::to_owned).collect::<Vec<_>>();
        let names = match texts(rule, "resourceNames") {
            names if names.is_empty() => vec![String::new()],
            names => names.iter().map(|name| format!("/{name}")).collect(),
        };
        for group in texts(rule, "apiGroups") {
            let dot = if group.is_empty() { "" } else { "." };
            for resource in texts(rule, "resources") {
                of.extend(names.iter().map(|name| format!("{resource}{dot}{group}{name}")));
            }
        }
        for one in of {
            rights.entry(one).or_default().extend(texts(rule, "verbs").into_iter().map(str::to_owned));
        }
    }
    Ok(rights)
}

/// What accounts may do by the bindings of these objects. Each binds a role of these objects to accounts of ours.
fn rights(objects: &[Value]) -> Result<Rights> {
    let mut all = Rights::new();
    for binding in objects.iter().filter(|object| object["roleRef"].is_object()) {
        let (role, at) = (&binding["roleRef"], &binding["metadata"]["namespace"]);
        let is_it = |object: &&Value| {
            object["kind"] == role["kind"]
                && object["metadata"]["name"] == role["name"]
                && (role["kind"] == "ClusterRole" || object["metadata"]["namespace"] == *at)
        };
        let of = granted(objects.iter().find(is_it).with_context(|| format!("no role of {binding}"))?)?;
        for subject in binding["subjects"].as_array().context("subjects")? {
            ensure!(subject["kind"] == "ServiceAccount" && subject["namespace"] == NAMESPACE, "{subject}");
            let account = subject["name"].as_str().context("an account")?;
            let place = at.as_str().map(|at| format!(" in {at}")).unwrap_or_default();
            for (resource, verbs) in &of {
                all.entry(format!("{account}{place}: {resource}")).or_default().extend(verbs.iter().cloned());
            }
        }
    }
    Ok(all)
}

/// The same by the list.
fn listed(corpus: &Corpus, parts: &[String]) -> Result<Rights> {
    let mut all = Rights::new();
    for part in parts {
        let of = corpus.parts.get(part).with_context(|| format!("no part {part}"))?;
        for (right, verbs) in of {
            all.entry(right.clone()).or_default().extend(verbs.split_whitespace().map(str::to_owned));
        }
    }
    Ok(all)
}

/// Resources that a policy judges, as rights name them, with the account.
fn judged(objects: &[Value]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for policy in objects.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy") {
        let (name, spec) = (&policy["metadata"]["name"], &policy["spec"]);
        let denies = |object: &&Value| {
            object["kind"] == "ValidatingAdmissionPolicyBinding"
                && object["spec"]["policyName"] == *name
                && texts(&object["spec"], "validationActions").contains(&"Deny")
        };
        let conditions = spec["matchConditions"].to_string();
        for account in ["hibernate-controller", "hibernate-webhook"] {
            let is_about = conditions.contains(&format!("'system:serviceaccount:{NAMESPACE}:{account}'"));
            if !is_about || !objects.iter().any(|object| denies(&object)) {
                continue;
            }
            for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
                for (group, resource) in texts(rule, "apiGroups")
                    .iter()
                    .flat_map(|group| texts(rule, "resources").into_iter().map(move |one| (group, one)))
                {
                    let dot = if group.is_empty() { "" } else { "." };
                    all.insert(format!("{account}: {resource}{dot}{group}"));
                }
            }
        }
    }
    all
}

/// `in NAMESPACE` and names restrict a right further, and no policy knows them.
fn without_place(right: &str) -> String {
    let (account, resource) = right.split_once(": ").unwrap_or_default();
    let account = account.split(" in ").next().unwrap_or_default();
    let is_subresource = |part: &str| part.starts_with("status") || part.starts_with("scale");
    let resource = match resource.split_once('/') {
        Some((kind, rest)) if !is_subresource(rest) => kind,
        _ => resource,
    };
    format!("{account}: {resource}")
}

fn shown(rights: &Rights) -> Vec<String> {
    rights
        .iter()
        .map(|(right, verbs)| format!("{right}: {}", verbs.iter().cloned().collect::<Vec<_>>().join(" ")))
        .collect()
}

#[test]
fn accounts_may_do_what_the_list_says() -> Result<()> {
    let corpus = corpus()?;
    let mut unjudged = BTreeSet::new();
    for installation in &corpus.installations {
        let Installation { overlay, components, chart, parts, without_policies } = installation;
        let expected = listed(&corpus, parts)?;
        let mut all = Vec::new();
        if let Some(overlay) = overlay {
            all.push((format!("{overlay} {components:?}"), with_components(overlay, components)?));
        }
        if let Some(values) = chart {
            all.push((format!("chart {values:?}"), with_values(values)?));
        }
        for (name, objects) in all {
            let found = rights(&objects).with_context(|| name.clone())?;
            assert_eq!(shown(&found), shown(&expected), "{name}");
            let judged = judged(&objects);
            let writes = found.iter().filter(|(_, verbs)| verbs.iter().any(|verb| !READS.contains(&&**verb)));
            for (right, _) in writes.filter(|_| !without_policies) {
                if !judged.contains(&without_place(right)) {
                    ensure!(corpus.unjudged.contains_key(right), "{name}: no policy judges {right}");
                    unjudged.insert(right.clone());
                }
            }
        }
    }
    assert_eq!(unjudged, corpus.unjudged.into_keys().collect(), "a policy judges what the list says none does");
    Ok(())
}

#[test]
fn the_list_has_every_overlay_and_every_component_with_rights() -> Result<()> {
    let corpus = corpus()?;
    let overlays: BTreeSet<String> = corpus.installations.iter().filter_map(|one| one.overlay.clone()).collect();
    let mut missing: Vec<String> = below("overlays")?.difference(&overlays).cloned().collect();
    let listed = corpus.installations.iter().flat_map(|one| &one.components);
    let listed: BTreeSet<String> = listed.map(|name| format!("components/{name}")).collect();
    for component in below("components")?.difference(&listed) {
        let files = std::fs::read_dir(checkout("manifests").join(component))?;
        for file in files {
            let text = std::fs::read_to_string(file?.path()).unwrap_or_default();
            // Every overlay has those of the default installation, or is listed without.
            if text.contains("rbac.authorization.k8s.io") && !overlays.iter().any(|overlay| uses(overlay, component)) {
                missing.push(component.clone());
            }
        }
    }
    if !missing.is_empty() {
        bail!("not in tests/corpus/rights.yaml: {missing:?}");
    }
    Ok(())
}

fn uses(overlay: &str, component: &str) -> bool {
    let path = checkout("manifests").join(overlay).join("kustomization.yaml");
    std::fs::read_to_string(path).is_ok_and(|text| text.contains(component))
}

/// The test would see a verb, a name or an account more.
#[test]
fn a_verb_more_is_a_right_more() -> Result<()> {
    let mut objects = with_components(".", &[])?;
    let before = rights(&objects)?;
    let of = |objects: &mut Vec<Value>, kind: &str| -> Result<usize> {
        let found =
            |object: &Value| object["kind"] == kind && object["metadata"]["name"] == "hibernate-controller-secrets";
        objects.iter().position(found).context("the role")
    };
    let role = of(&mut objects, "ClusterRole")?;
    objects[role]["rules"][0]["verbs"] = serde_json::json!(["get", "list"]);
    let after = rights(&objects)?;
    let differing: Vec<&String> =
        after.iter().filter(|(right, verbs)| before.get(*right) != Some(verbs)).map(|(right, _)| right).collect();
    assert_eq!(differing, ["hibernate-controller: secrets"]);
    let binding = of(&mut objects, "ClusterRoleBinding")?;
    objects[binding]["subjects"][0]["namespace"] = "default".into();
    assert!(rights(&objects).is_err(), "another account");
    Ok(())
}
