//! All that stands in the way of a sleep and of a wake, one after the other, for six servers: nothing is paused for long, and
//! nothing is lost.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use testbed::openstack::OpenStack;
use testbed::proxy::faults::{Effect, Rule};
use tokio::sync::watch;

use super::faults::Subject;
use crate::openstack::{clean, likeness, observed, record};

const SERVERS: usize = 6;

/// Longest time that a server may be paused and exist.
const MAX_PAUSE: Duration = Duration::from_mins(3);

/// Looks at all servers for as long as anybody wants to know how long one of them was paused at most.
fn watch_pauses(openstack: OpenStack, infra_id: String) -> watch::Receiver<Duration> {
    let (sender, receiver) = watch::channel(Duration::ZERO);
    tokio::spawn(async move {
        let mut since: HashMap<String, Instant> = HashMap::new();
        while !sender.is_closed() {
            if let Ok(servers) = openstack.servers(&infra_id).await {
                let paused = servers.iter().filter(|server| server["status"] == "PAUSED");
                let paused: Vec<String> = paused.map(|server| server["id"].to_string()).collect();
                since.retain(|id, _| paused.contains(id));
                for id in paused {
                    let paused = since.entry(id).or_insert_with(Instant::now).elapsed().max(Duration::from_millis(1));
                    sender.send_modify(|longest| *longest = paused.max(*longest));
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    receiver
}

/// Makes the flavor of all servers anew, with this much memory.
async fn replace_flavor(admin: &OpenStack, ram: u32) -> Result<()> {
    let all = admin.compute(Method::GET, "/flavors", None).await?;
    let old = all["flavors"][0]["id"].as_str().context("a flavor")?;
    admin.compute(Method::DELETE, &format!("/flavors/{old}"), None).await?;
    let flavor = json!({"name": "m1.small", "ram": ram, "vcpus": 1, "disk": 1});
    admin.compute(Method::POST, "/flavors", Some(json!({"flavor": flavor}))).await.map(drop)
}

/// A port of Nova's own gets an option of DHCP.
async fn with_dhcp_option(openstack: &OpenStack) -> Result<()> {
    let ports = openstack.network(Method::GET, "/ports", None).await?;
    let is_novas = |port: &&Value| {
        port["name"] == "" && port["device_owner"].as_str().is_some_and(|of| of.starts_with("compute:"))
    };
    let port = ports["ports"].as_array().into_iter().flatten().find(is_novas).context("a port of Nova's own")?;
    let option = json!({"port": {"extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "1400"}]}});
    let path = format!("/ports/{}", port["id"].as_str().unwrap_or_default());
    openstack.network(Method::PUT, &path, Some(option)).await.map(drop)
}

/// Gives the floating IP of the first server to a port of nobody.
async fn give_floating_ip_away(openstack: &OpenStack) -> Result<()> {
    let network = openstack.network(Method::GET, "/networks?name=demo-openshift", None).await?;
    let port = json!({"port": {"network_id": network["networks"][0]["id"]}});
    let port = openstack.network(Method::POST, "/ports", Some(port)).await?["port"]["id"].clone();
    let all = openstack.network(Method::GET, "/floatingips", None).await?;
    let path = format!("/floatingips/{}", all["floatingips"][0]["id"].as_str().unwrap_or_default());
    openstack.network(Method::PUT, &path, Some(json!({"floatingip": {"port_id": port}}))).await.map(drop)
}

/// The server groups, by name, with how many servers each has.
async fn groups(openstack: &OpenStack) -> Result<Vec<(String, Value, usize)>> {
    let all = openstack.compute(Method::GET, "/os-server-groups", None).await?;
    let all = all["server_groups"].as_array().cloned().unwrap_or_default();
    let group = |group: &Value| {
        let members = group["members"].as_array().map_or(0, Vec::len);
        (group["name"].as_str().unwrap_or_default().to_owned(), group["policy"].clone(), members)
    };
    Ok(all.iter().map(group).collect())
}

/// What a wake cannot give back, because others have it: the floating IP, and the ID of the group.
fn without_lost(all: &[Value]) -> Vec<Value> {
    let mut all = all.to_vec();
    for one in &mut all {
        for field in ["server_groups", "scheduler_hints", "addresses"] {
            one["server"][field] = Value::Null;
        }
        for port in one["ports"].as_array_mut().into_iter().flatten() {
            port["floating"] = Value::Null;
        }
    }
    all
}

#[tokio::test]
async fn six_servers_are_not_left_paused_and_nothing_is_lost() -> Result<()> {
    let subject = Subject::of_size("six", SERVERS).await?;
    let (world, cluster, openstack) = (&subject.world, &subject.cluster, &subject.openstack);
    let (infra_id, admin) = (cluster.info().infra_id.clone(), world.openstack("admin").await?);
    with_dhcp_option(openstack).await?;
    let (before, groups_before) = (likeness(openstack, &infra_id).await?, groups(openstack).await?);
    let pauses = watch_pauses(openstack.clone(), infra_id.clone());

    // One is being rescued, one is broken: nothing is touched, and all is named.
    let (rescued, broken) = (subject.server("-worker-0").await?, subject.server("-worker-1").await?);
    subject.act(&rescued, json!({"rescue": {}})).await?;
    let path = format!("/servers/{}/action", broken["id"].as_str().unwrap_or_default());
    let reset = |state: &str| Some(json!({"os-resetState": {"state": state}}));
    admin.compute(Method::POST, &path, reset("error")).await?;
    subject.are(&["ACTIVE", "ACTIVE", "ACTIVE", "RESCUE", "ERROR", "ACTIVE"]).await?;
    cluster.sleep().await?;
    let both = ["-worker-0: Status: its status is RESCUE", "-worker-1: Status: its status is ERROR"];
    subject.says(&both).await?;
    let plan = subject.plan().await?;
    ensure!(plan.contains("CannotSleep") && both.iter().all(|why| plan.contains(why)), "{plan}");

    // The flavor has another size than the servers that were made of it. Flavors are listed once a minute.
    replace_flavor(&admin, 256).await?;
    subject.says(&["-master-0: FlavorChanged: its flavor m1.small is now 256 MiB", "it has 64 MiB", both[1]]).await?;
    subject.act(&rescued, json!({"unrescue": null})).await?;
    admin.compute(Method::POST, &path, reset("active")).await?;
    subject.says(&["-worker-1: FlavorChanged"]).await?;
    subject.are(&["ACTIVE"; SERVERS]).await?;
    ensure!(*pauses.borrow() == Duration::ZERO && record(world, cluster).await?.is_none(), "nothing was touched");

    // Glance takes two images: all run again, and no image is left.
    let full = Effect::Words { code: 413, text: "the quota of images is used up".to_owned() };
    let full = Rule::new(full).method("POST").path("/v2/images").skip(2);
    let full = world.inject("glance", &full).await?.id;
    replace_flavor(&admin, 64).await?;
    subject.says(&["QuotaExceeded", "Glance refuses the image"]).await?;
    observed("servers that run, and no image", async || {
        let paused = *pauses.borrow();
        ensure!(record(world, cluster).await?.is_some_and(|record| json!(record).to_string().contains("hibernation")));
        let (statuses, images) = (subject.statuses().await?, openstack.images(&infra_id).await?);
        ensure!(paused > Duration::ZERO && statuses == ["ACTIVE"; SERVERS], "{paused:?} {statuses:?}");
        ensure!(images.is_empty(), "{images:?}");
        Ok(())
    })
    .await?;
    subject.says(&["QuotaExceeded"]).await?;
    world.heal("glance", Some(&full)).await?;
    subject.awake().await?;
    clean(world, cluster, openstack).await?;
    let after = likeness(openstack, &infra_id).await?;
    ensure!(before == after, "before:\n{:#}\nafter:\n{:#}", json!(before), json!(after));

    // While it sleeps, its group is deleted and its floating IP is given away.
    subject.asleep().await?;
    let all = openstack.compute(Method::GET, "/os-server-groups", None).await?;
    for group in all["server_groups"].as_array().into_iter().flatten() {
        let path = format!("/os-server-groups/{}", group["id"].as_str().unwrap_or_default());
        openstack.compute(Method::DELETE, &path, None).await?;
    }
    give_floating_ip_away(openstack).await?;
    subject.awake().await?;
    clean(world, cluster, openstack).await?;
    let after = likeness(openstack, &infra_id).await?;
    let (before, after) = (without_lost(&before), without_lost(&after));
    ensure!(before == after, "before:\n{:#}\nafter:\n{:#}", json!(before), json!(after));
    ensure!(groups(openstack).await? == groups_before, "made again, once: {:?}", groups(openstack).await?);
    let events = world.kubectl(&["get", "events", "-n", cluster.namespace()]).await?.ok()?;
    ensure!(events.contains("NotGivenBack") && events.contains("floating IP 203.0.113."), "{events}");
    let longest = *pauses.borrow();
    eprintln!("no server was paused for longer than {longest:?}");
    ensure!(longest < MAX_PAUSE, "{longest:?}");
    Ok(())
}
