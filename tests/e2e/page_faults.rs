//! The page while the hub is gone, for a user with few rights, and while the kubeconfig changes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use testbed::page::Served;
use testbed::{Options, World, eventually};
use tokio::time::timeout;

use crate::hive_common::{SOON, create};

/// Longer than the hub takes to come back.
const LONG: Duration = Duration::from_mins(2);

/// Reads the messages of a tab until one is as wanted.
async fn until(live: &mut reqwest::Response, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let (mut text, mut last) = (String::new(), Value::Null);
    let found = timeout(LONG, async {
        while let Some(chunk) = live.chunk().await? {
            text += &String::from_utf8_lossy(&chunk);
            while let Some(end) = text.find('\n') {
                let line: String = text.drain(..=end).collect();
                last = serde_json::from_str(&line)?;
                if wanted(&last) {
                    return anyhow::Ok(());
                }
            }
        }
        anyhow::bail!("the stream has ended")
    });
    let found = found.await.unwrap_or_else(|_| Err(anyhow::anyhow!("not in time")));
    found.with_context(|| format!("{what}: {last}")).map(|()| last)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_reports_a_hub_that_is_gone_and_goes_on_when_it_is_back() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, "default");
    create(&clusters, "one", "aws", &json!({})).await?;
    let (page, code) = Served::start(&world, &["-n", "default"]).await?;
    let token = page.token(&code).await?;
    let id = "clusterdeployment.hive.openshift.io/default/one";
    eventually(SOON, "the cluster", async || {
        let html = page.text(&token, "/fleet", &json!({})).await?;
        ensure!(html.contains(id), "{html}");
        Ok(())
    })
    .await?;
    let mut live = page.ask(&token, "/live", &json!({ "ids": [id] })).await?;
    until(&mut live, "the first message", |message| {
        message["rows"].to_string().contains(id) && message["outage"] == ""
    })
    .await?;

    world.signal("hub-apiserver", "restart").await?;
    let gone = until(&mut live, "the hub is gone", |message| message["outage"] != "").await?;
    ensure!(gone["outage"].as_str().is_some_and(|text| text.starts_with("since 20")), "{gone}");
    ensure!(page.text(&token, "/fleet", &json!({})).await?.contains(id), "what was known is still shown");
    until(&mut live, "the hub is back", |message| message["outage"] == "").await?;
    eventually(LONG, "a write", async || {
        let patch = Patch::Merge(json!({ "spec": { "powerState": "Hibernating" }, "metadata": { "annotations": { "hibernate.sh/reason": "night" } } }));
        clusters.patch("one", &PatchParams::default(), &patch).await?;
        Ok(())
    })
    .await?;
    until(&mut live, "the change", |message| message["rows"].to_string().contains("night")).await?;
    Ok(())
}

/// Lets a user read `ClusterDeployments` of a namespace, and nothing else.
async fn admit(world: &World, user: &str) -> Result<()> {
    let roles: Api<Role> = Api::namespaced(world.hub().await?, "default");
    let rules = json!([{ "apiGroups": ["hive.openshift.io"], "resources": ["clusterdeployments"], "verbs": ["get", "list", "watch"] }]);
    let role = json!({ "metadata": { "name": user }, "rules": rules });
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(world.hub().await?, "default");
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": user },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": user },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_that_a_user_may_not_read_are_named_and_the_others_stay_live() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, "default");
    create(&clusters, "one", "aws", &json!({})).await?;
    admit(&world, "carol").await?;
    let (page, code) = Served::start(&world, &["cd", "-n", "default", "--as", "carol"]).await?;
    let token = page.token(&code).await?;
    let id = "clusterdeployment.hive.openshift.io/default/one";
    let mut live = page.ask(&token, "/live", &json!({ "ids": [id] })).await?;
    let is_whole = |message: &Value| {
        let failures = message["failures"].to_string();
        failures.contains("powerrollouts") && failures.contains("forbidden")
    };
    until(&mut live, "the kinds that are missing", is_whole).await?;
    ensure!(page.text(&token, "/fleet", &json!({})).await?.contains(id));
    // A stream of a tab outlives the time after which idle connections are closed.
    let quiet = timeout(Duration::from_secs(35), async {
        while let Some(chunk) = live.chunk().await? {
            ensure!(String::from_utf8_lossy(&chunk).contains(r#""outage":"""#), "{chunk:?}");
        }
        anyhow::Ok(())
    });
    ensure!(quiet.await.is_err(), "the stream has ended");
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "hibernate.sh/reason": "night" } } }));
    clusters.patch("one", &PatchParams::default(), &patch).await?;
    until(&mut live, "a change", |message| message["rows"].to_string().contains("night")).await?;
    // The commands of its dialogs run as the same user.
    let html = page.text(&token, "/savings", &json!({})).await?;
    ensure!(html.contains("savings --output=csv cd --namespace=default --context=hub --as=carol"), "{html}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_stays_with_the_context_that_was_current_when_it_began() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, "default");
    create(&clusters, "one", "aws", &json!({})).await?;
    let (text, file) = (std::fs::read_to_string(&world.file().hub.kubeconfig)?, world.dir().join("moved.yaml"));
    std::fs::write(&file, &text)?;
    let path = file.display().to_string();
    let (page, code) = Served::start(&world, &["-n", "default", "--kubeconfig", &path]).await?;
    let token = page.token(&code).await?;
    let id = "clusterdeployment.hive.openshift.io/default/one";
    eventually(SOON, "the cluster", async || {
        ensure!(page.text(&token, "/fleet", &json!({})).await?.contains(id));
        Ok(())
    })
    .await?;
    let line = text.lines().find(|line| line.trim_start().starts_with("current-context:")).context("a context")?;
    std::fs::write(&file, text.replace(line, "current-context: elsewhere"))?;
    let results = page.text(&token, "/act", &json!({ "verb": "hibernate", "ids": [id], "dryRun": true })).await?;
    let results: Value = serde_json::from_str(&results)?;
    ensure!(results[0]["code"] == 0 && results[0]["command"].to_string().contains("--context="), "{results}");
    Ok(())
}
