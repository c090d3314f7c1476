//! The page while the hub is gone, for a user with few rights, and while the kubeconfig changes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use testbed::kubeconfig::write_private;
use testbed::page::Served;
use testbed::{Options, World, apply, ensure_that, eventually};
use tokio::time::{sleep, timeout};

use crate::hive_common::{SOON, create};

/// How long the hub is gone.
const OUTAGE: Duration = Duration::from_mins(2);
/// Longer than the hub takes to come back, and the page to notice.
const LONG: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
async fn the_page_reports_a_hub_that_is_gone_and_goes_on_when_it_is_back() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, "default");
    create(&clusters, "one", "aws", &json!({})).await?;
    let (page, code) = Served::start(&world, &["-n", "default"]).await?;
    let token = page.token(&code).await?;
    let id = "clusterdeployment.hive.openshift.io/default/one";
    eventually(SOON, "the cluster", async || {
        ensure_that(page.text(&token, "/fleet", &json!({})).await?, |html| html.contains(id))
    })
    .await?;
    let mut live = page.live(&token, &[id]).await?;
    live.until(LONG, "the first message", |message| {
        message["rows"].to_string().contains(id) && message["outage"] == ""
    })
    .await?;

    // Longer than a connection may be silent.
    world.signal("hub-apiserver", "kill").await?;
    let gone = live.until(LONG, "the hub is gone", |message| message["outage"] != "").await?;
    ensure!(gone["outage"].as_str().is_some_and(|text| text.starts_with("since 20")), "{gone}");
    ensure!(page.text(&token, "/fleet", &json!({})).await?.contains(id), "what was known is still shown");
    sleep(OUTAGE).await;
    world.signal("hub-apiserver", "restart").await?;
    live.until(LONG, "the hub is back", |message| message["outage"] == "").await?;
    eventually(LONG, "a write", async || {
        let patch = Patch::Merge(json!({ "spec": { "powerState": "Hibernating" }, "metadata": { "annotations": { "hibernate.sh/reason": "night" } } }));
        clusters.patch("one", &PatchParams::default(), &patch).await?;
        Ok(())
    })
    .await?;
    live.until(LONG, "the change", |message| message["rows"].to_string().contains("night")).await?;
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
    let mut live = page.live(&token, &[id]).await?;
    let is_whole = |message: &Value| {
        let failures = message["failures"].to_string();
        failures.contains("powerrollouts") && failures.contains("forbidden")
    };
    live.until(LONG, "the kinds that are missing", is_whole).await?;
    ensure!(page.text(&token, "/fleet", &json!({})).await?.contains(id));
    // A stream of a tab outlives the time after which idle connections are closed.
    let quiet = timeout(Duration::from_secs(35), async {
        loop {
            let message = live.next().await?;
            ensure!(message["outage"] == "", "{message}");
        }
    });
    if let Ok(ended) = quiet.await {
        let ended: Result<()> = ended;
        ended.context("the stream has ended")?;
    }
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "hibernate.sh/reason": "night" } } }));
    clusters.patch("one", &PatchParams::default(), &patch).await?;
    live.until(LONG, "a change", |message| message["rows"].to_string().contains("night")).await?;
    // Rights that the user gets later are noticed.
    let rule =
        json!({ "apiGroups": ["hibernate.sh"], "resources": ["powerrollouts"], "verbs": ["get", "list", "watch"] });
    let group = "rbac.authorization.k8s.io";
    let role = json!({ "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": { "name": "carol" }, "rules": [rule] });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "carol" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "carol" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "carol" }],
    });
    apply::all(&world.hub().await?, &[role, binding]).await?;
    let is_listed = |message: &Value| !message["failures"].to_string().contains("powerrollouts");
    live.until(2 * LONG, "the kind that may be listed now", is_listed).await?;
    // The commands of its dialogs run as the same user.
    let html = page.text(&token, "/savings", &json!({})).await?;
    ensure!(html.contains("savings --output=csv cd --namespace=default --context=hub --as=carol"), "{html}");
    Ok(())
}

/// Creates a service account and writes a kubeconfig with its token.
async fn log_in(world: &World, account: &str, file: &Path) -> Result<()> {
    let client = world.hub().await?;
    let metadata = json!({ "namespace": "default", "name": account });
    apply::all(&client, &[json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })]).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
    let request = serde_json::from_value(json!({ "metadata": {}, "spec": { "audiences": [] } }))?;
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    let mut config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&world.file().hub.kubeconfig)?)?;
    config["users"][0]["user"] = json!({ "token": answer.status.context("a token")?.token });
    write_private(file, &config.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_credentials_are_reported_and_the_kubeconfig_is_read_again() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, "default");
    create(&clusters, "one", "aws", &json!({})).await?;
    admit(&world, "system:serviceaccount:default:dora").await?;
    let file = world.dir().join("dora.yaml");
    log_in(&world, "dora", &file).await?;
    let path = file.display().to_string();
    let (page, code) = Served::start(&world, &["cd", "-n", "default", "--kubeconfig", &path]).await?;
    let token = page.token(&code).await?;
    let mut live = page.live(&token, &["clusterdeployment.hive.openshift.io/default/one"]).await?;
    live.until(LONG, "the cluster", |message| message["rows"].to_string().contains(r#""cells":[{"#)).await?;

    // Watches of an account that is gone go on until the API server ends them.
    let accounts: Api<ServiceAccount> = Api::namespaced(world.hub().await?, "default");
    accounts.delete("dora", &DeleteParams::default()).await?;
    world.signal("hub-apiserver", "restart").await?;
    live.until(LONG, "the credentials have expired", |message| message["outage"].to_string().contains("401")).await?;
    eventually(LONG, "a new login", || log_in(&world, "dora", &file)).await?;
    live.until(LONG, "the new credentials", |message| message["outage"] == "").await?;
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "hibernate.sh/reason": "night" } } }));
    clusters.patch("one", &PatchParams::default(), &patch).await?;
    live.until(LONG, "a change", |message| message["rows"].to_string().contains("night")).await?;
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
        ensure_that(page.text(&token, "/fleet", &json!({})).await?, |html| html.contains(id))
    })
    .await?;
    let line = text.lines().find(|line| line.trim_start().starts_with("current-context:")).context("a context")?;
    std::fs::write(&file, text.replace(line, "current-context: elsewhere"))?;
    let results = page.text(&token, "/act", &json!({ "verb": "hibernate", "ids": [id], "dryRun": true })).await?;
    let results: Value = serde_json::from_str(&results)?;
    ensure!(results[0]["code"] == 0 && results[0]["command"].to_string().contains("--context="), "{results}");
    Ok(())
}
