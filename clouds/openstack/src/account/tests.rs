//! Accounts whose services are a tenant's own: what they answer has an end, for that tenant alone.

use std::sync::Arc;
use std::time::Duration;

use cloud_common::{Dialer, MemoryLimit};
use cloud_conformance::TestLedger;
use cloud_recreate::{Cloud as _, Obstacle, Planner, STALL_TIMEOUT};
use serde_json::{Value, json};
use shared::cloud::{ClusterRef, Driver as _, InstanceState, Target, Verb};
use shared::power::Power;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::*;
use crate::driver::Driver;
use crate::lists::{list_project, lists};
use crate::modes::{Mode, Modes};
use crate::names::CLUSTER_KEY;

const MIB: usize = 1 << 20;

/// Keystone, Nova, Neutron and Glance at one address. These lists have these pages without end.
async fn services<const N: usize>(lists: [(&'static str, String); N]) -> cloud_http::Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (base, lists) = (url.clone(), Arc::new(lists));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (base, lists) = (base.clone(), lists.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 8 << 10];
                let length = socket.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let other = answer(path, &base).to_string();
                let pages = lists.iter().find(|(list, _)| path.starts_with(list));
                let body = pages.map_or(&other, |(_, pages)| pages);
                let head = "HTTP/1.1 200 OK\r\nx-subject-token: t\r\nconnection: close\r\n\r\n";
                let _ = socket.write_all(head.as_bytes()).await;
                let _ = socket.write_all(body.as_bytes()).await;
            });
        }
    });
    url.parse().unwrap()
}

fn answer(path: &str, base: &str) -> Value {
    let endpoint = |kind: &str| json!({"type": kind, "endpoints": [{"interface": "public", "url": base}]});
    match path.split('?').next().unwrap_or_default() {
        "/v3/auth/tokens" => {
            let catalog: Vec<_> = ["compute", "network", "image"].map(endpoint).into();
            json!({"token": {"expires_at": "2100-01-01T00:00:00Z", "project": {"id": "p"}, "catalog": catalog}})
        }
        "/servers/detail" => json!({"servers": [server("a"), server("a"), server("b")]}),
        // One of a page, whatever the limit.
        "/os-server-groups" => match path.rsplit_once("offset=") {
            Some((_, offset @ ("0" | "1"))) => json!({"server_groups": [{"id": offset, "members": []}]}),
            _ => json!({"server_groups": []}),
        },
        "/flavors/detail" => json!({"flavors": []}),
        "/os-keypairs" => json!({"keypairs": [{"keypair": {"name": "k", "public_key": "x".repeat(400)}}]}),
        "/v2.0/networks" if path.contains("?project_id=p&") => json!({"networks": []}),
        "/v2.0/ports" => json!({"ports": []}),
        "/v2/images" => json!({"images": []}),
        "/v2.0/floatingips" => json!({"floatingips": []}),
        _ => json!({"version": {"version": "2.100"}}),
    }
}

fn server(id: &str) -> Value {
    json!({
        "id": id, "name": id, "status": "ACTIVE", "OS-EXT-STS:task_state": null, "created": "2026-11-27T10:00:00Z",
        "updated": "2026-11-27T10:00:00Z", "OS-SRV-USG:launched_at": "2026-11-27T10:00:00", "image": {"id": "i"},
        "flavor": {"original_name": "f"}, "key_name": null, "description": null, "tags": [], "metadata": {},
    })
}

/// A server of a cluster, with so much that nobody asks for.
fn ordinary(number: usize, padding: usize) -> Value {
    let mut server = server(&format!("5d0f3f2e-0000-4000-8000-{number:012}"));
    let name = format!("demo-7xk2p-worker-0-{number:05}");
    let address = json!([{
        "version": 4, "addr": "10.0.0.7", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01",
    }]);
    for (key, value) in [
        ("name", json!(name)),
        ("OS-EXT-SRV-ATTR:hostname", json!(name)),
        ("OS-EXT-AZ:availability_zone", json!("nova")),
        ("config_drive", json!("True")),
        ("tags", json!(["openshiftClusterID=demo"])),
        ("metadata", json!({"Name": "demo-7xk2p-worker", CLUSTER_KEY: "demo"})),
        ("addresses", json!({"demo-7xk2p-openshift": address})),
        ("os-extended-volumes:volumes_attached", json!([])),
        ("links", json!([{"rel": "self", "href": "x".repeat(padding)}])),
    ] {
        server[key] = value;
    }
    server
}

fn account(memory: &MemoryLimit, namespace: &str, keystone: cloud_http::Url, user: &str) -> Account {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let dialer = Dialer::new(Vec::new(), true);
    let process = Process { identity: "test".to_owned(), permit: Arc::new(|| true), dialer, memory: memory.clone() };
    let cloud = Cloud {
        keystone,
        auth: json!({}),
        region: None,
        interface: "public".to_owned(),
        authorities: None,
        account: user.to_owned(),
    };
    Account::new(cloud, process, namespace.into()).unwrap()
}

async fn list(account: &Account) -> Result<Project, CloudError> {
    Box::pin(list_project(account, Priority::Sleeping)).await
}

/// 31 MB of small images each: refused at these accounts, while another tenant's is listed. What is in use is what is
/// charged.
#[test]
fn fuzz_memory_of_hostile_accounts() {
    let image = |number: usize| format!(r#"{{"id":"{number:06}","status":""}}"#);
    let images: Vec<_> = (0..270_000).map(image).collect();
    let images = format!(r#"{{"images":[{}],"next":"more"}}"#, images.join(","));
    assert!((7 * MIB..8 * MIB).contains(&images.len()), "{}", images.len());
    let (runtime, memory) = (Runtime::new().unwrap(), MemoryLimit::default());
    let hostile = (0..3).map(|number| {
        let keystone = runtime.block_on(services([("/v2/images", images.clone())]));
        account(&memory, "hostile", keystone, &number.to_string())
    });
    let hostile: Vec<_> = hostile.collect();
    let honest = account(&memory, "honest", runtime.block_on(services([])), "honest");
    let work = || {
        runtime.block_on(async { futures::join!(futures::future::join_all(hostile.iter().map(list)), list(&honest)) })
    };
    let ((refused, project), peak) = ::fuzz::peak(work);
    for refused in refused {
        let why = refused.err().unwrap().message;
        assert!(why.contains("too large together"), "{why}");
    }
    let project = project.unwrap();
    assert_eq!(project.servers.len(), 2, "each ID once");
    assert_eq!(project.groups.len(), 2, "each page, however short");
    assert!(peak.is_none_or(|peak| peak < 48 * MIB), "{peak:?} bytes in use");
    drop((project, hostile, honest));
    assert!(memory.is_free(), "all of it is given back");
}

/// The lists of a snapshot are charged for as long as anything keeps it.
#[tokio::test]
async fn a_snapshot_is_charged_until_nobody_has_it() {
    let image = |number: u32| json!({"id": format!("{number}"), "status": "active", "checksum": "x".repeat(400)});
    let images = json!({"images": (0..3_000).map(image).collect::<Vec<_>>()}).to_string();
    let memory = MemoryLimit::default();
    let account = Arc::new(account(&memory, "tenant", services([("/v2/images", images)]).await, "user"));
    let lists = lists(&account);
    let project = lists.list((), false, Priority::Waking).await.unwrap();
    assert!(!memory.is_free());
    drop((project, lists));
    assert!(!memory.is_free(), "the account keeps it");
    drop(account);
    assert!(memory.is_free());
}

#[tokio::test]
async fn a_list_of_too_many_entries_is_refused_by_name() {
    let network = |number: u32| format!(r#"{{"id":"{number}","project_id":"{}"}}"#, "x".repeat(100));
    let networks = (0..10_001).map(network).collect::<Vec<_>>().join(",");
    let networks = format!(r#"{{"networks":[{networks}],"networks_links":[{{"rel":"next"}}]}}"#);
    let memory = MemoryLimit::default();
    let account = account(&memory, "tenant", services([("/v2.0/networks", networks)]).await, "user");
    let why = list(&account).await.err().unwrap().message;
    assert!(why.starts_with("the list /networks has more than 10000 entries"), "{why}");
}

/// What is made of the lists for a cluster is charged to it: thousands of servers may name one flavor with a long ID.
#[tokio::test]
async fn what_is_made_of_the_lists_is_charged_to_the_cluster() {
    let flavors = json!({"flavors": [{"id": "x".repeat(60_000), "name": "f"}]}).to_string();
    for (number, expected) in
        [(3, ""), (300, "the cluster's answers are too large together"), (2_001, "more than 2000")]
    {
        let servers =
            json!({"servers": (0..number).map(|number| ordinary(number, 1_000)).collect::<Vec<_>>()}).to_string();
        let url = services([("/flavors", flavors.clone()), ("/servers/detail", servers)]).await;
        let memory = MemoryLimit::default();
        let driver = Driver::new(account(&memory, "tenant", url, "user"), "domain".into());
        let cluster = ClusterRef { infra_id: "demo".to_owned(), ..ClusterRef::default() };
        let mut charge = driver.charge(&cluster.infra_id);
        let found = driver.list(&cluster, Priority::Waking, &mut charge).await;
        let why = found.as_ref().err().map_or("", |error| error.message.as_str());
        assert!(why.contains(expected) && why.is_empty() == expected.is_empty(), "{number}: {why:?}");
        assert!(charge.used() < 12 * MIB && (why.contains("2000") || charge.used() > 180_000), "{charge:?}");
        drop((found, charge, driver));
        assert!(memory.is_free());
    }
}

/// One snapshot is kept while the next one is made, each with a port for every server.
#[tokio::test]
async fn a_project_with_two_thousand_servers_is_listed_again_and_again() {
    let id = |number: usize| ordinary(number, 0)["id"].as_str().map(str::to_owned).unwrap();
    let port = |number: usize| {
        json!({
            "id": id(number), "name": format!("demo-7xk2p-worker-0-{number:05}-0"), "network_id": id(0),
            "mac_address": "fa:16:3e:00:00:01", "device_id": id(number), "security_groups": [id(1)],
            "fixed_ips": [{"subnet_id": id(2), "ip_address": "10.0.0.7"}], "tags": ["openshiftClusterID=demo"],
            "allowed_address_pairs": [{"ip_address": "10.0.0.5"}], "dns_assignment": "x".repeat(500),
        })
    };
    let servers = |of: std::ops::Range<usize>| of.map(|number| ordinary(number, 2_700)).collect::<Vec<_>>();
    let ports = |of: std::ops::Range<usize>| of.map(port).collect::<Vec<_>>();
    let more = json!([{"rel": "next"}]);
    let url = services([
        ("/servers/detail?marker", json!({"servers": servers(1_000..2_000)}).to_string()),
        ("/servers/detail", json!({"servers": servers(0..1_000), "servers_links": more}).to_string()),
        ("/v2.0/ports?project_id=p&limit=1000&marker", json!({"ports": ports(1_000..2_000)}).to_string()),
        ("/v2.0/ports", json!({"ports": ports(0..1_000), "ports_links": more}).to_string()),
    ])
    .await;
    let memory = MemoryLimit::default();
    let account = account(&memory, "tenant", url, "user");
    let mut last = None;
    for _ in 0..3 {
        let project = list(&account).await.unwrap();
        assert_eq!((project.servers.len(), project.ports.len()), (2_000, 2_000));
        last = Some(project);
    }
    drop((last, account));
    assert!(memory.is_free());
}

/// A cluster `demo` that sleeps by shelving, of these servers. The last shelving of `b` was given up.
async fn shelved(servers: &[Value]) -> (Modes, Arc<Planner<Driver>>, Target) {
    let of_demo = servers.iter().cloned().map(|mut server| {
        server["metadata"] = json!({CLUSTER_KEY: "demo"});
        server
    });
    let servers = json!({"servers": of_demo.collect::<Vec<_>>()}).to_string();
    let actions = json!({"instanceActions": [{"action": "shelve", "message": "Error"}]}).to_string();
    let url = services([("/servers/detail", servers), ("/servers/b/os-instance-actions", actions)]).await;
    let account = account(&MemoryLimit::default(), "tenant", url, "user");
    let planner = Arc::new(Planner::new(Driver::new(account, "domain".into()), Duration::from_mins(20)));
    let cluster = ClusterRef { infra_id: "demo".to_owned(), desired: Power::Hibernating, ..ClusterRef::default() };
    let modes = Modes { planner: planner.clone(), mode: Mode::Shelve };
    (modes, planner, Target { cluster, ledger: Arc::new(TestLedger::default()) })
}

fn with(id: &str, status: &str, task: Option<&str>) -> Value {
    let mut server = server(id);
    (server["status"], server["OS-EXT-STS:task_state"]) = (json!(status), json!(task));
    server
}

/// Nova gives up the shelving of one server again and again: the other one comes back, and stays until the next try.
#[tokio::test]
async fn a_server_that_is_not_shelved_for_a_minute_brings_the_others_back() {
    let (modes, planner, mut target) =
        shelved(&[with("a", "SHELVED_OFFLOADED", None), with("b", "ACTIVE", None)]).await;
    let attempts = &planner.cloud().attempts;
    modes.list(&target, Priority::Sleeping).await.unwrap();
    let ids = ["b".to_owned()];
    attempts.begin("demo", Instant::now());
    let pass = async || modes.advance(&target, Verb::Stop, &ids).await.unwrap();
    let first = pass().await;
    assert!(first.moved.is_empty() && first.refused.len() == 1 && first.refused[0].id == "b", "{first:?}");
    assert_eq!(pass().await, first, "it is tried again");
    let minute_ago = Instant::now().checked_sub(STALL_TIMEOUT).unwrap();
    attempts.begin("demo", minute_ago);
    attempts.record("demo", &ids, &first.refused, minute_ago);
    assert_eq!(pass().await, first, "for a minute");
    let back = pass().await;
    assert_eq!(back.moved, [("a".to_owned(), InstanceState::Pending)]);
    assert_eq!(back.refused, first.refused, "the cause stays visible");
    target.cluster.desired = Power::Running;
    modes.list(&target, Priority::Waking).await.unwrap();
    assert_eq!(attempts.given_up("demo", Instant::now()), None);
}

/// Nova gets no request for such a server: the sleep stalls, although no call is refused.
#[tokio::test]
async fn a_server_that_fails_while_it_is_shelved_brings_the_others_back() {
    let mut broken = with("b", "ERROR", None);
    broken["fault"] = json!({"code": 500, "message": "Disk of instance is too large"});
    let others = [with("a", "SHELVED_OFFLOADED", None), with("c", "SHELVED_OFFLOADED", Some("unshelving"))];
    let (modes, planner, target) = shelved(&[others.to_vec(), vec![broken]].concat()).await;
    let attempts = &planner.cloud().attempts;
    let states = async || {
        let found = modes.list(&target, Priority::Sleeping).await.unwrap().instances;
        found.into_iter().map(|instance| instance.state).collect::<Vec<_>>()
    };
    let waits = [InstanceState::Stopped, InstanceState::Unknown, InstanceState::Pending];
    assert_eq!(states().await, waits);
    let before = modes.advance(&target, Verb::Stop, &[]).await.unwrap();
    assert!(before.moved.is_empty() && before.refused.len() == 1, "{before:?}");
    assert!(
        before.refused[0].to_string().starts_with("b: Status: its status is ERROR (Disk of instance is too large): ")
    );
    attempts.begin("demo", Instant::now());
    for _ in 0..2 {
        assert_eq!(states().await, waits, "for a minute");
    }
    let minute_ago = Instant::now().checked_sub(STALL_TIMEOUT).unwrap();
    attempts.begin("demo", minute_ago);
    attempts.record("demo", &[], &before.refused, minute_ago);
    assert_eq!(states().await, [InstanceState::Halted, InstanceState::Unknown, InstanceState::Pending]);
    let back = modes.advance(&target, Verb::Stop, &["a".to_owned()]).await.unwrap();
    assert_eq!((back.moved, back.refused), (vec![("a".to_owned(), InstanceState::Pending)], before.refused));
}

/// Accepted requests are not the end of a sleep: a server that fails later still counts.
#[tokio::test]
async fn a_sleep_in_which_all_servers_are_being_shelved_is_not_over() {
    for (task, is_over) in [(Some("shelving"), false), (None, true)] {
        let status = if is_over { "SHELVED_OFFLOADED" } else { "ACTIVE" };
        let (modes, planner, target) = shelved(&[with("a", status, task)]).await;
        let (attempts, minute_ago) = (&planner.cloud().attempts, Instant::now().checked_sub(STALL_TIMEOUT).unwrap());
        attempts.begin("demo", minute_ago);
        modes.list(&target, Priority::Sleeping).await.unwrap();
        let refused = [Obstacle::several().refusal("a", CloudErrorKind::Refused)];
        attempts.record("demo", &[], &refused, minute_ago);
        attempts.record("demo", &[], &refused, Instant::now());
        assert_eq!(attempts.given_up("demo", Instant::now()).is_none(), is_over, "{status} {task:?}");
    }
}
