//! krew.yaml and its script: what the krew index demands and what needs neither a build nor krew. `make krew` does the
//! rest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn template() -> Result<(String, Value)> {
    let text = std::fs::read_to_string(root().join("krew.yaml"))?;
    let value = serde_saphyr::from_str(&text)?;
    Ok((text, value))
}

#[test]
fn the_template_is_a_plugin_as_the_index_wants_it() -> Result<()> {
    let (_, plugin) = template()?;
    assert_eq!(plugin["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&plugin["kind"], &plugin["metadata"]["name"]), (&"Plugin".into(), &"hibernate".into()));
    let short = plugin["spec"]["shortDescription"].as_str().context("a short description")?;
    ensure!(!short.contains('\n') && short.len() < 50, "{short:?} is longer than the index's table");
    let platforms = plugin["spec"]["platforms"].as_array().context("platforms")?;
    assert_eq!(platforms.len(), 1, "no platform is claimed that was not built");
    let keys: BTreeSet<&str> =
        platforms[0]["selector"]["matchLabels"].as_object().context("labels")?.keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["os", "arch"]));
    assert_eq!(platforms[0]["bin"], shared::annotation::keys::PLUGIN);
    Ok(())
}

#[test]
fn nothing_is_left_to_fill_in_and_no_address_is_invented() -> Result<()> {
    let (text, plugin) = template()?;
    ensure!(!text.contains("http"), "there is no release and no project page yet");
    let script = std::fs::read_to_string(root().join("manifests/krew.sh"))?;
    for word in ["VERSION", "HOMEPAGE", "OS", "ARCH", "BASE/ARCHIVE", "SHA256"] {
        ensure!(script.contains(&format!("{word}\\$|")), "manifests/krew.sh does not fill {word} in");
    }
    assert_eq!(plugin["spec"]["homepage"], "HOMEPAGE");
    assert_eq!(plugin["spec"]["platforms"][0]["uri"], "BASE/ARCHIVE");
    let description = plugin["spec"]["description"].as_str().context("a description")?;
    ensure!(!description.contains("kubectl "), "the index wants no commands in the description");
    ensure!(plugin["spec"]["caveats"].is_null(), "caveats are no documentation");
    Ok(())
}

#[test]
fn the_script_is_sound_and_says_what_it_needs() -> Result<()> {
    for script in ["krew.sh", "glibc.sh"] {
        let checked = Command::new("bash").arg("-n").arg(root().join("manifests").join(script)).status()?;
        ensure!(checked.success(), "{script}");
    }
    let licence = std::fs::read_to_string(root().join("LICENSE"))?;
    ensure!(licence.contains("Apache License") && licence.contains("END OF TERMS AND CONDITIONS"));
    Ok(())
}

#[test]
fn a_plugin_for_newer_systems_than_rhel_8_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("plugin");
    for (symbols, newest) in [
        ("GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.28\0GLIBC_2.4", Ok("GLIBC_2.28")),
        ("GLIBC_2.17\0GLIBC_2.29\0", Err("needs GLIBC_2.29")),
        ("GLIBC_2.3\0GLIBC_2.100\0", Err("needs GLIBC_2.100")),
        ("static", Err("no glibc symbol found")),
    ] {
        std::fs::write(&program, symbols)?;
        let checked = Command::new("bash").arg(root().join("manifests/glibc.sh")).arg(&program).arg("2.28").output()?;
        let (detail, expected) = match newest {
            Ok(expected) => (checked.stdout, expected),
            Err(expected) => (checked.stderr, expected),
        };
        let detail = String::from_utf8(detail)?;
        ensure!(checked.status.success() == newest.is_ok() && detail.contains(expected), "{detail}");
    }
    Ok(())
}
