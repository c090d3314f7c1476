//! The installation in another namespace than the default one, as `kubectl kustomize` renders it.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::rendered::{NAMESPACE, below, checkout, documents, kustomized, kustomized_by_user};

const OTHER: &str = "over-there";

/// An overlay as a user renders it who wants it in another namespace, as the documentation has it.
fn moved(overlay: &str) -> Result<String> {
    let manifests = checkout("manifests").canonicalize()?;
    let folder = manifests.join(overlay);
    let own: Value = serde_saphyr::from_str(&std::fs::read_to_string(folder.join("kustomization.yaml"))?)?;
    let transformers = own["transformers"].as_array().with_context(|| format!("transformers in {overlay}"))?;
    let mut lines = vec![format!("namespace: {OTHER}\nresources:\n- manifests/{overlay}\ntransformers:")];
    for transformer in transformers {
        let path = folder.join(transformer.as_str().context("a path")?).canonicalize()?;
        lines.push(format!("- manifests/{}", path.strip_prefix(&manifests)?.display()));
    }
    kustomized_by_user(&lines.join("\n"))
}

/// The kustomization of docs/cgu.md, followed to the letter.
#[test]
fn upgrades_are_added_as_the_documentation_says() -> Result<()> {
    let page = std::fs::read_to_string(checkout("docs/cgu.md"))?;
    let (_, rest) = page.split_once("```yaml\n").context("a kustomization")?;
    let (text, _) = rest.split_once("```").context("its end")?;
    let rendered = kustomized_by_user(text)?;
    ensure!(rendered.contains("- --cgu\n") && rendered.contains("name: hibernate-controller-cgu"), "{rendered}");
    Ok(())
}

/// A component that a hub adds to its overlay moves with it: its policy names the account that is there.
#[test]
fn a_component_moves_to_another_namespace_with_its_hub() -> Result<()> {
    let user = format!(
        "namespace: {OTHER}
resources:
- manifests/overlays/cut-over
components:
- manifests/components/openstack
transformers:
- manifests/namespace
"
    );
    let objects = documents(&kustomized_by_user(&user)?)?;
    let named = |kind: &str| {
        let is_it = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == "hibernate-controller-openstack";
        objects.iter().find(is_it).with_context(|| format!("a {kind}"))
    };
    let condition = &named("ValidatingAdmissionPolicy")?["spec"]["matchConditions"][0]["expression"];
    let account = format!("system:serviceaccount:{OTHER}:hibernate-controller");
    ensure!(condition.as_str().is_some_and(|text| text.contains(&account)), "{condition}");
    ensure!(named("ClusterRoleBinding")?["subjects"][0]["namespace"] == OTHER);
    Ok(())
}

/// Objects without their own namespace, with the default name wherever else the other one stands.
fn objects(text: &str) -> Result<Vec<String>> {
    let mut objects = documents(&text.replace(OTHER, NAMESPACE))?;
    for object in &mut objects {
        object["metadata"].as_object_mut().context("metadata")?.remove("namespace");
    }
    let mut texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    texts.sort();
    Ok(texts)
}

#[test]
fn every_overlay_moves_to_another_namespace_as_a_whole() -> Result<()> {
    let mut overlays = below("overlays")?;
    overlays.insert(".".to_owned());
    // Definitions alone, which are in no namespace.
    overlays.remove("overlays/cgu-crds");
    ensure!(overlays.len() > 8, "{overlays:?}");
    for overlay in &overlays {
        let moved = moved(overlay)?;
        let left: Vec<&str> = moved.lines().filter(|line| line.contains(NAMESPACE)).collect();
        ensure!(left.is_empty(), "{overlay} leaves {left:#?}");
        ensure!(moved.contains(&format!("system:serviceaccount:{OTHER}:hibernate-")), "{overlay}");
        // Nothing but the name is another one, in no expression.
        assert_eq!(objects(&moved)?, objects(&kustomized(overlay)?)?, "{overlay}");
    }
    Ok(())
}
