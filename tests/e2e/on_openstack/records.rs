//! What becomes of a sleeping cluster whose record is edited, deleted, or another program's.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::faults::Subject;
use crate::openstack::{clean, observed, record};

/// Keys of the Secret: ours, and that of openshift/hive#2722.
const KEYS: [&str; 2] = ["hibernation", "hibernation-config"];

/// An edited record is refused, and images are kept. A deleted one is made again of what the images carry. One of
/// openshift/hive#2722, whose images carry nothing, is enough to wake.
#[tokio::test]
async fn a_record_that_is_edited_deleted_or_of_another_program() -> Result<()> {
    let subject = Subject::new("record").await?;
    let (world, openstack) = (&subject.world, &subject.openstack);
    let infra_id = subject.cluster.info().infra_id.clone();
    let secrets: Api<Secret> = Api::namespaced(world.hub().await?, subject.cluster.namespace());
    let name = format!("{}-hibernation-config", subject.cluster.name());
    let kept = async || {
        let secret = record(world, &subject.cluster).await?.context("a record")?;
        let data = secret.data.clone().unwrap_or_default();
        let texts = KEYS.map(|key| data.get(key).map(|text| text.0.clone()));
        anyhow::Ok((secret, texts))
    };
    let put = async |text: &[u8]| {
        let data = json!({"data": {KEYS[0]: ByteString(text.to_vec())}});
        secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&data)).await.map(drop)
    };

    subject.asleep().await?;
    let (_, [text, _]) = kept().await?;
    let text = text.context(KEYS[0])?;
    let foreign = String::from_utf8_lossy(&text).replace(&infra_id, "other-x7k2p");
    for (edited, says) in [(&b"{}"[..], "malformed"), (foreign.as_bytes(), "another cluster")] {
        put(edited).await?;
        subject.cluster.wake().await?;
        subject.says(&["the record of the cluster's machines is refused", says]).await?;
        ensure!(openstack.images(&infra_id).await?.len() == 2, "images are kept");
    }
    // Without the UID of its ClusterDeployment it is another one's, whatever it says.
    let unowned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    secrets.patch(&name, &PatchParams::default(), &unowned).await?;
    subject.says(&["the record of the cluster's machines is refused", "is not this ClusterDeployment"]).await?;
    secrets.delete(&name, &DeleteParams::default()).await?;
    subject.awake().await?;
    let events = world.kubectl(&["get", "events", "-n", subject.cluster.namespace()]).await?.ok()?;
    ensure!(events.contains("RecordRebuilt"), "{events}");
    clean(world, &subject.cluster, openstack).await?;

    // A snapshot that its owner makes of a server after a wake inherits what its image carries.
    let master = subject.server("-master-").await?;
    subject.act(&master, json!({"createImage": {"name": "backup"}})).await?;
    subject.asleep().await?;
    let (secret, [_, array]) = kept().await?;
    let array = array.context(KEYS[1])?;
    for image in openstack.images(&infra_id).await? {
        let ours = image.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("hibernate_"));
        let mut patch: Vec<Value> = ours.map(|(key, _)| json!({"op": "remove", "path": format!("/{key}")})).collect();
        patch.push(json!({"op": "replace", "path": "/tags", "value": []}));
        openstack.change_image(image["id"].as_str().unwrap_or_default(), &json!(patch)).await?;
    }
    secrets.delete(&name, &DeleteParams::default()).await?;
    let mut alone = Secret { data: Some([(KEYS[1].to_owned(), ByteString(array))].into()), ..Secret::default() };
    (alone.metadata.name, alone.metadata.labels) = (secret.metadata.name, secret.metadata.labels);
    secrets.create(&PostParams::default(), &alone).await?;
    subject.awake().await?;
    clean(world, &subject.cluster, openstack).await?;
    let servers = openstack.servers(&infra_id).await?;
    let tag = format!("openshiftClusterID={infra_id}");
    let is_whole = |server: &Value| {
        let tags = server["tags"].as_array();
        server["status"] == "ACTIVE"
            && tags.is_some_and(|tags| tags.contains(&json!(tag)) && tags.contains(&json!("openshift")))
    };
    ensure!(servers.len() == 2 && servers.iter().all(is_whole), "{servers:?}");
    observed("no snapshot but its owner's", async || {
        let images = openstack.call("image", Method::GET, "/v2/images", None).await?;
        let names = images["images"].as_array().into_iter().flatten().filter_map(|image| image["name"].as_str());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        ensure!(names == ["backup", "rhcos"], "{images}");
        Ok(())
    })
    .await
}
