//! Kinds that a user adds by a file: listed, compared with the hub's definition, slept and woken.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::{Options, World, apply, eventually, with_temp_ns};

use crate::kkp_common::SOON;

const FILE: &str = "
kinds:
- group: example.com
  versions: [v1]
  kind: Widget
  plural: widgets
  shortNames: [wd]
  switches:
  - {at: /spec/suspend, asleep: true}
  states:
  - {is: Asleep, when: [{condition: Suspended, is: [\"True\"]}]}
  - {is: Awake, when: [{condition: Ready, is: [\"True\"]}]}
";

fn definition(fields: &Value) -> Value {
    let condition =
        json!({ "type": "object", "properties": { "type": { "type": "string" }, "status": { "type": "string" } } });
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": fields },
        "status": { "type": "object", "properties": { "conditions": { "type": "array", "items": condition } } },
    } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_a_file_is_checked_slept_and_woken() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    with_temp_ns(&world, async |client, ns| {
        let file = world.dir().join(format!("{ns}.yaml"));
        std::fs::write(&file, FILE)?;
        let file = file.display().to_string();
        let check = async || world.plugin(&["kinds", "--check", &file]).await;
        let absent = check().await?;
        ensure!(absent.code == 1 && absent.stderr.contains("the hub has no such definition"), "{absent:?}");
        apply::all(&client, &[definition(&json!({ "suspend": { "type": "string" } }))]).await?;
        let other = check().await?;
        ensure!(other.code == 1 && other.stderr.contains("/spec/suspend: found type \"string\""), "{other:?}");
        apply::all(&client, &[definition(&json!({ "suspend": { "type": "boolean" } }))]).await?;
        ensure!(check().await?.ok()?.contains("widgets.example.com fits"));

        let widget = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "one", "namespace": ns }, "spec": {} });
        eventually(SOON, "the definition is served", async || apply::all(&client, std::slice::from_ref(&widget)).await)
            .await?;
        let run = async |words: &[&str]| world.plugin(&[words, &["-n", &ns, "--kinds", &file]].concat()).await;
        let get = async || world.kubectl(&["get", "widgets", "one", "-n", &ns, "-o", "json"]).await?.json();
        let unknown = world.plugin(&["wd/one", "-n", &ns]).await?;
        ensure!(unknown.code == 2, "{unknown:?}");
        let slept = run(&["wd/one"]).await?;
        ensure!(slept.code == 0 && slept.stderr.contains(&format!("kinds from {file}")), "{slept:?}");
        let asleep = get().await?;
        ensure!(asleep["spec"]["suspend"] == true && asleep["metadata"]["annotations"][keys::BEFORE].is_string());
        run(&["resume", "wd/one"]).await?.ok()?;
        let awake = get().await?;
        ensure!(awake["spec"]["suspend"].is_null() && awake["metadata"]["annotations"].is_null(), "{awake}");
        let listed = run(&["kinds"]).await?.ok()?;
        ensure!(listed.lines().any(|line| line.starts_with("widgets.example.com") && line.ends_with(&file)), "{listed}");
        Ok(())
    })
    .await
}
