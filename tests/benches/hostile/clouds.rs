//! Twenty clusters of one tenant whose clouds are the tenant's own: lists of small parts without end. The controller's
//! data segment is limited, and another tenant's cluster sleeps meanwhile.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use testbed::bench::table::Table;
use testbed::world::copy;
use testbed::world::handle::Cluster;
use testbed::{Options, Timings, World};

use crate::{honest, measured, peak};

const HOSTILE: usize = 20;
pub const NAMESPACE: &str = "hostile";
const LONG: Duration = Duration::from_mins(3);
/// How long the hostile clusters wake.
const ATTACK: Duration = Duration::from_mins(1);

/// Lists that were asked for.
static ASKED: AtomicU32 = AtomicU32::new(0);

pub async fn hostile_clouds(table: &mut Table) -> Result<()> {
    let world = World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::default() }).await?;
    let honest = honest(&world).await?;
    let (calm_start, model) = begins(&world, &honest).await?;
    let limited = world.pid("controller").await?;
    let calm = measured(&world, "controller").await?;
    copy::namespace(&world.hub().await?, NAMESPACE).await?;
    write_hostile(&world, &model).await?;
    tokio::time::sleep(ATTACK / 2).await;
    let (attacked_start, _) = begins(&world, &honest).await?;
    tokio::time::sleep(ATTACK / 2).await;
    let attacked = peak(&world, "controller").await?;
    ensure!(world.pid("controller").await? == limited, "the controller was ended and started again");
    ensure!(asked() > 0, "no hostile cloud was asked");
    table.add("clouds", "lists that the hostile were asked for", None, None, f64::from(asked()));
    table.add("clouds", "s until another tenant's sleep reaches EC2, none hostile", None, None, calm_start);
    table.add("clouds", "s until another tenant's sleep reaches EC2, 20 hostile", None, Some(2.0), attacked_start);
    table.add("clouds", "controller's peak MB, none hostile", None, None, calm);
    table.add("clouds", "controller's peak MB, 20 hostile", None, None, attacked);
    table.add("clouds", "MB over the same without", None, Some(96.0), attacked - calm);
    Ok(())
}

/// Writes 20 clusters of the tenant, like this one, whose clouds are hostile.
pub async fn write_hostile(world: &World, model: &Value) -> Result<()> {
    let url = serve().await?;
    for number in 0..HOSTILE {
        hostile(world, model, &url, number).await?;
    }
    Ok(())
}

/// How many lists the hostile clouds were asked for.
pub fn asked() -> u32 {
    ASKED.load(Ordering::Relaxed)
}

/// Seconds from a request to sleep until EC2 is asked to stop machines, and the object as it sleeps. It runs again
/// afterwards.
pub async fn begins(world: &World, cluster: &Cluster) -> Result<(f64, Value)> {
    let stops = async || {
        let calls = world.ec2().calls().await?;
        anyhow::Ok(calls.into_iter().filter(|call| call.action == "StopInstances").map(|call| call.start).collect())
    };
    let before: Vec<f64> = stops().await?;
    let asked = jiff::Timestamp::now();
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", LONG).await?;
    let (after, asleep): (Vec<f64>, _) = (stops().await?, json!(cluster.raw().await?));
    cluster.wake().await?;
    cluster.wait_for_power_state("Running", LONG).await?;
    let first = after.get(before.len()).context("EC2 was not asked")?;
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit")]
    let asked = asked.as_millisecond() as f64 / 1000.0;
    Ok((first - asked, asleep))
}

/// The services of every hostile cloud, below a path of its own.
async fn serve() -> Result<String> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = Router::new().fallback(answer).with_state(url.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

async fn answer(State(url): State<String>, uri: Uri) -> Response {
    let number = uri.path().split('/').nth(1).unwrap_or_default();
    let path = uri.path().trim_start_matches('/').trim_start_matches(number);
    let many = |key: &str, item: &'static str| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        let begin = stream::iter([Bytes::from(format!("{{\"{key}\":["))]);
        let items = Bytes::from(item.repeat(4_000));
        // 31 MB, in as many pages as are asked for.
        let items = begin.chain(stream::repeat(items).take((31 << 20) / (4_000 * item.len())));
        Body::from_stream(items.map(Ok::<_, std::io::Error>)).into_response()
    };
    match path {
        "/v3/auth/tokens" => {
            let endpoint = format!("{url}/{number}");
            let service = |kind: &str| json!({"type": kind, "endpoints": [{"interface": "public", "url": endpoint}]});
            let catalog = ["compute", "network", "image"].map(service);
            let token = json!({"expires_at": "2100-01-01T00:00:00Z", "project": {"id": "p"}, "catalog": catalog});
            (StatusCode::CREATED, [("x-subject-token", "t")], Json(json!({"token": token}))).into_response()
        }
        "/v2/images" => many("images", r#"{"id":"a","status":""},"#),
        "/v2.0/networks" => many("networks", r#"{"id":"a","project_id":""},"#),
        "/v2.0/ports" => many("ports", r#"{"id":"a"},"#),
        "/flavors/detail" => many("flavors", r#"{"id":"","name":""},"#),
        "/os-server-groups" => many("server_groups", r#"{"id":"a","members":[]},"#),
        "/servers/detail" => many("servers", "{},"),
        _ => Json(json!({"version": {"version": "2.100"}})).into_response(),
    }
}

/// A copy of a sleeping cluster in the tenant's namespace, whose cloud is hostile. It is to wake: its platform may not be
/// served, and a wake is never denied.
async fn hostile(world: &World, model: &Value, url: &str, number: usize) -> Result<()> {
    let (hub, name) = (world.hub().await?, format!("hostile-{number}"));
    let auth = json!({"auth_url": format!("{url}/{number}/v3"), "user_id": name, "password": "p", "project_id": "p"});
    copy::clouds_yaml(&hub, NAMESPACE, &name, "shift", &json!({ "auth": auth })).await?;
    let platform = json!({"openstack": {"cloud": "shift", "credentialsSecretRef": {"name": name}}});
    let wakes = |object: &mut Value| {
        object["spec"]["powerState"] = json!("Running");
        object["spec"]["platform"] = platform;
    };
    copy::copy(&hub, model, NAMESPACE, &name, wakes).await
}
