//! Services that answer as no cloud would: each is named at its cluster, and no other cluster waits for them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::any;
use axum::{Json, Router, http::StatusCode};
use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use testbed::cluster::objects::CLOUD;
use testbed::world::copy;
use testbed::world::handle::Cluster;

use crate::openstack::{SOON, clean, cluster, world};

const NAMESPACE: &str = "hostile";
/// Clusters of each kind: more than the controller has workers for one namespace.
const CLUSTERS_PER_KIND: usize = 6;

/// What each kind of service does, and what its cluster's condition says of it.
const KINDS: [(&str, &str); 4] = [
    ("redirect", "it has accepted no login yet"),
    ("hang", "it has accepted no login yet"),
    ("endless", "too large together"),
    ("metadata", "169.254.169.254"),
];

/// Serves each kind below a path of its name. Answers its URL.
async fn serve(elsewhere: &str) -> Result<String> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let target = format!("{elsewhere}/v3/auth/tokens");
    let redirect = move || async move {
        Response::builder()
            .status(StatusCode::TEMPORARY_REDIRECT)
            .header("location", target)
            .body(Body::empty())
            .unwrap_or_default()
    };
    let endpoint = format!("{url}/endless");
    let token = move || async move {
        let service = |kind: &str| json!({"type": kind, "endpoints": [{"interface": "public", "region_id": "R1", "url": endpoint}]});
        let catalog: Vec<Value> = ["compute", "network", "image"].into_iter().map(service).collect();
        let token = json!({"expires_at": "2100-01-01T00:00:00Z", "project": {"id": "p"}, "catalog": catalog});
        (StatusCode::CREATED, [("x-subject-token", "t")], Json(json!({"token": token})))
    };
    let endless = || async {
        let begin = stream::iter([Bytes::from_static(b"{\"servers\":[")]);
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        Body::from_stream(begin.chain(stream::repeat(chunk).take(100)).map(Ok::<_, std::io::Error>))
    };
    let router = Router::new()
        .route("/redirect/{*path}", any(redirect))
        .route("/hang/{*path}", any(std::future::pending::<StatusCode>))
        .route("/endless/v3/auth/tokens", any(token))
        .route("/endless/", any(|| async { Json(json!({"version": {"version": "2.100"}})) }))
        .route("/endless/{*path}", any(endless));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

/// Copies of a cluster in a namespace of their own, whose services are hostile. All are asked to sleep.
async fn hostile(hub: &Client, model: &Cluster, url: &str) -> Result<()> {
    copy::namespace(hub, NAMESPACE).await?;
    let (model, clusters) = (json!(model.raw().await?), Api::<ClusterDeployment>::namespaced(hub.clone(), NAMESPACE));
    for (kind, _) in KINDS {
        let keystone = if kind == "metadata" { "http://169.254.169.254".to_owned() } else { format!("{url}/{kind}") };
        for number in 0..CLUSTERS_PER_KIND {
            let name = format!("{kind}-{number}");
            // Users of their own: or one login would serve all.
            let auth = json!({
                "auth_url": format!("{keystone}/v3"), "username": name, "password": "secret", "project_name": "demo",
                "user_domain_id": "default", "project_domain_id": "default",
            });
            let entry = json!({"auth": auth, "region_name": "R1"});
            copy::clouds_yaml(hub, NAMESPACE, &name, CLOUD, &entry).await?;
            let own = |object: &mut Value| {
                object["spec"]["platform"]["openstack"]["credentialsSecretRef"]["name"] = json!(name);
            };
            copy::copy(hub, &model, NAMESPACE, &name, own).await?;
            let sleep = Patch::Merge(json!({"spec": {"powerState": "Hibernating"}}));
            clusters.patch(&name, &PatchParams::default(), &sleep).await?;
        }
    }
    Ok(())
}

/// Redirects, hangs, endless answers and the metadata address: named, while another cluster sleeps and wakes.
#[tokio::test]
async fn hostile_services_are_named_and_keep_no_other_cluster_waiting() -> Result<()> {
    let world = world().await?;
    let (cluster, openstack) = cluster(&world, "neighbor", 2).await?;
    let round_trip = async || {
        let begun = Instant::now();
        for state in ["Hibernating", "Running"] {
            cluster.request(state).await?;
            cluster.wait_for_power_state(state, SOON).await?;
        }
        let took = begun.elapsed();
        clean(&world, &cluster, &openstack).await?;
        anyhow::Ok(took)
    };
    let alone = round_trip().await?;
    let url = serve(openstack.keystone()).await?;
    let hub = world.hub().await?;
    hostile(&hub, &cluster, &url).await?;
    let beside = round_trip().await?;
    ensure!(beside < 3 * alone + Duration::from_secs(30), "{alone:?} alone, {beside:?} beside hostile services");
    let clusters: Api<ClusterDeployment> = Api::namespaced(hub, NAMESPACE);
    for (kind, says) in KINDS {
        for number in 0..CLUSTERS_PER_KIND {
            let name = format!("{kind}-{number}");
            testbed::eventually(SOON + Duration::from_mins(3), &format!("{name} says {says:?}"), async || {
                let found = clusters.get(&name).await?;
                let conditions: Vec<_> = found.status.into_iter().flat_map(|status| status.conditions).collect();
                let mut messages = conditions.iter().filter_map(|condition| condition.message.as_deref());
                ensure!(messages.any(|message| message.contains(says)), "{conditions:?}");
                ensure!(conditions.iter().all(|c| c.message.as_ref().is_none_or(|m| m.len() < 1024)), "{conditions:?}");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}
