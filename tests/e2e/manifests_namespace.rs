//! The installation in another namespace than the default one, as `kubectl kustomize` renders it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shared::annotation::keys::NAMESPACE;

const OTHER: &str = "over-there";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}

fn rendered(folder: &Path) -> Result<String> {
    let ran = Command::new("kubectl").arg("kustomize").arg(folder).output().context("run kubectl")?;
    ensure!(ran.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8(ran.stdout)?)
}

/// Writes the kustomization of a user who wants the overlay in another namespace, as the documentation has it.
fn write_user(folder: &Path, overlay: &Path) -> Result<()> {
    let own: Value = serde_saphyr::from_str(&std::fs::read_to_string(overlay.join("kustomization.yaml"))?)?;
    // kustomize accepts no absolute path.
    let up = "../".repeat(folder.components().count() - 1);
    let relative = |path: &Path| -> Result<String> {
        let path = path.canonicalize()?;
        Ok(format!("{up}{}", path.strip_prefix("/")?.display()))
    };
    let named = own["transformers"].as_array().with_context(|| format!("transformers in {}", overlay.display()))?;
    let transformers: Vec<String> =
        named.iter().map(|path| relative(&overlay.join(path.as_str().context("a path")?))).collect::<Result<_>>()?;
    let user = json!({ "namespace": OTHER, "resources": [relative(overlay)?], "transformers": transformers });
    std::fs::write(folder.join("kustomization.yaml"), user.to_string()).context("write the kustomization")
}

/// The kustomization of docs/cgu.md, followed to the letter.
#[test]
fn upgrades_are_added_as_the_documentation_says() -> Result<()> {
    let page = std::fs::read_to_string(root().join("../docs/cgu.md"))?;
    let (_, rest) = page.split_once("```yaml\n").context("a kustomization")?;
    let (text, _) = rest.split_once("```").context("its end")?;
    let folder = tempfile::tempdir()?;
    let up = "../".repeat(folder.path().canonicalize()?.components().count() - 1);
    let manifests = format!("- {up}{}", root().canonicalize()?.strip_prefix("/")?.display());
    std::fs::write(folder.path().join("kustomization.yaml"), text.replace("- manifests", &manifests))?;
    let rendered = rendered(folder.path())?;
    ensure!(rendered.contains("- --cgu\n") && rendered.contains("name: hibernate-controller-cgu"), "{rendered}");
    Ok(())
}

/// A component that a hub adds to its overlay moves with it: its policy names the account that is there.
#[test]
fn a_component_moves_to_another_namespace_with_its_hub() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let up = "../".repeat(folder.path().canonicalize()?.components().count() - 1);
    let root = root().canonicalize()?;
    let relative = |path: &str| format!("{up}{}", root.join(path).strip_prefix("/").unwrap_or(&root).display());
    let user = json!({
        "namespace": OTHER,
        "resources": [relative("overlays/cut-over")],
        "components": [relative("components/openstack")],
        "transformers": [relative("namespace")],
    });
    std::fs::write(folder.path().join("kustomization.yaml"), user.to_string())?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered(folder.path())?)?;
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
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text.replace(OTHER, NAMESPACE))?;
    for object in &mut objects {
        object["metadata"].as_object_mut().context("metadata")?.remove("namespace");
    }
    let mut texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    texts.sort();
    Ok(texts)
}

#[test]
fn every_overlay_moves_to_another_namespace_as_a_whole() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path().canonicalize()?;
    let mut overlays = vec![root()];
    for entry in std::fs::read_dir(root().join("overlays"))? {
        overlays.push(entry?.path());
    }
    // Definitions alone, which are in no namespace.
    overlays.retain(|overlay| !overlay.ends_with("cgu-crds"));
    ensure!(overlays.len() > 8, "{overlays:?}");
    for overlay in overlays {
        write_user(&folder, &overlay)?;
        let moved = rendered(&folder)?;
        let left: Vec<&str> = moved.lines().filter(|line| line.contains(NAMESPACE)).collect();
        ensure!(left.is_empty(), "{} leaves {left:#?}", overlay.display());
        ensure!(moved.contains(&format!("system:serviceaccount:{OTHER}:hibernate-")), "{}", overlay.display());
        // Nothing but the name is another one, in no expression.
        assert_eq!(objects(&moved)?, objects(&rendered(&overlay)?)?, "{}", overlay.display());
    }
    Ok(())
}
