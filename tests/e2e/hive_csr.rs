//! Kubelets without certificates come up through approvals and in no other way; real requests, signed by the real
//! controller manager.

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use controller::parts::{Approver, Consumer, MemoryLimit, Pass, SpokeClient};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use rcgen::{KeyPair, SanType};
use serde_json::json;
use testbed::cluster::certificates::{self, BOOTSTRAPPER, BOOTSTRAPPER_NAMESPACE};
use testbed::proxy::faults::{Effect, Rule};
use testbed::{Cluster, ClusterOptions, Options, Timings, World, eventually, kubeconfig};

const SOON: Duration = Duration::from_mins(1);
/// Longer than between two renewals of a Lease.
const RENEWED: Duration = Duration::from_secs(5);
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT_USAGES: &[&str] = &["digital signature", "client auth"];
const SERVING_USAGES: &[&str] = &["digital signature", "server auth"];

async fn world() -> World {
    let options = Options { clusters: 0, timings: Timings::fast(), ..Options::without_programs() };
    World::shared_with(options).await.unwrap()
}

fn options(instances: usize) -> ClusterOptions {
    ClusterOptions { certificates: true, ..ClusterOptions::of_size(instances) }
}

async fn turn(world: &World, cluster: &Cluster, state: &str) -> Result<()> {
    for instance in cluster.instances().await? {
        world.ec2().set_state(&instance.id, state).await?;
    }
    Ok(())
}

/// Stops an instance, waits until its kubelet renews its Lease no more, and returns the name of its Node.
async fn without_kubelet(world: &World, cluster: &Cluster, at: usize) -> Result<String> {
    let instances = cluster.instances().await?;
    world.ec2().set_state(&instances[at].id, "stopped").await?;
    let (client, name) = (cluster.spoke().await?, &instances[at].private_dns);
    let renewed = async || {
        let found = leases(&client).await?.into_iter().find(|lease| lease.name_any() == *name);
        anyhow::Ok(found.and_then(|lease| lease.spec?.renew_time).map(|time| time.0))
    };
    eventually(SOON, "a Lease that is renewed no more", async || {
        let before = renewed().await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        ensure!(before == renewed().await?, "it is renewed");
        Ok(())
    })
    .await?;
    Ok(name.clone())
}

async fn requests(client: &Client) -> Result<Vec<CertificateSigningRequest>> {
    Ok(Api::all(client.clone()).list(&ListParams::default()).await?.items)
}

fn has(request: &CertificateSigningRequest, type_: &str) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| conditions.iter().any(|condition| condition.type_ == type_))
}

/// The certificate that has been issued, PEM.
fn certificate(request: &CertificateSigningRequest) -> Option<String> {
    let issued = request.status.as_ref()?.certificate.as_ref()?;
    String::from_utf8(issued.0.clone()).ok().filter(|text| text.starts_with("-----BEGIN CERTIFICATE-----"))
}

async fn leases(client: &Client) -> Result<Vec<Lease>> {
    Ok(Api::namespaced(client.clone(), "kube-node-lease").list(&ListParams::default()).await?.items)
}

/// The spoke's API server as another user sees it.
async fn client_as(world: &World, user: &str, groups: &[&str]) -> Client {
    kubeconfig::client_as(&world.file().spokes[0].kubeconfig, user, groups).await.unwrap()
}

/// The same client as the controller reads with.
fn reads(client: &Client) -> SpokeClient {
    SpokeClient::new(client.clone(), MemoryLimit::default().of(Consumer::new("tenant", "spoke")))
}

fn bootstrapper() -> String {
    format!("system:serviceaccount:{BOOTSTRAPPER_NAMESPACE}:{BOOTSTRAPPER}")
}

const BOOTSTRAPPER_GROUPS: &[&str] =
    &["system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts", "system:authenticated"];

fn pkcs10(common_name: &str, organizations: &[&str], names: Vec<SanType>) -> String {
    certificates::request(common_name, organizations, names, &KeyPair::generate().unwrap()).unwrap()
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// What a pass said of each request that it had not spoken of before.
fn reasons(pass: &Pass) -> BTreeMap<&str, &str> {
    pass.news.iter().map(|news| (news.csr.as_str(), news.reason)).collect()
}

/// All machines of the cluster, as if they had run for minutes.
async fn running(cluster: &Cluster) -> Result<HashMap<String, Timestamp>> {
    let since = Timestamp::now() - SignedDuration::from_mins(5);
    Ok(cluster.instances().await?.into_iter().map(|instance| (instance.private_dns, since)).collect())
}

/// The passes of the time in which running Nodes show that they need no certificate. What they said of each request last.
async fn settle(approver: &mut Approver, cluster: &Cluster, client: &Client) -> Result<Pass> {
    approver.machines_run(running(cluster).await?);
    passes(approver, client, Timestamp::now()).await
}

async fn passes(approver: &mut Approver, client: &Client, began: Timestamp) -> Result<Pass> {
    let mut all = Pass::default();
    for seconds in [0, 30, 60, 90] {
        if seconds > 0 {
            tokio::time::sleep(RENEWED).await; // kubelets that are up show it
        }
        let pass = approver.pass(&reads(client), began + SignedDuration::from_secs(seconds), || true).await?;
        all.news.retain(|old| pass.news.iter().all(|new| new.csr != old.csr));
        all.news.extend(pass.news);
        all.pending = pass.pending;
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_come_up_only_through_approvals() -> Result<()> {
    let world = world().await;
    let cluster = world.cluster("expired", options(4).asleep()).await?;
    let mut approver = Approver::new("expired", Timestamp::now(), true);
    turn(&world, &cluster, "running").await?;
    let client = cluster.spoke().await?;
    let waiting = eventually(SOON, "a request of each kubelet", || async {
        let found = requests(&client).await?;
        ensure!(found.len() == 4, "{} requests", found.len());
        Ok(found)
    })
    .await?;
    assert!(waiting.iter().all(|request| request.spec.username.as_deref() == Some(&bootstrapper())), "{waiting:?}");

    // Nobody else approves them: not the controller manager, and no kubelet goes on without.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let waiting = requests(&client).await?;
    assert!(waiting.len() == 4 && waiting.iter().all(|r| !has(r, "Approved") && certificate(r).is_none()));
    assert!(leases(&client).await?.is_empty(), "a kubelet without a certificate renewed its Lease");

    // A kubelet whose machine does not run cannot ask.
    let early = passes(&mut approver, &client, Timestamp::now()).await?;
    assert_eq!(early.counts(), BTreeMap::from([(("client", "leave", "no_machine_runs"), 4)]));
    // The worker comes first, then the masters, each when the one before it has shown itself.
    approver.machines_run(running(&cluster).await?);
    let first = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
    let expected = [(("client", "approve", "matched"), 1), (("client", "leave", "not_its_turn"), 3)];
    assert_eq!((first.counts(), first.pending), (expected.into(), 3));
    assert!(first.approvals().unwrap().starts_with("approved 1 certificate requests: csr-") && first.left().is_none());
    let instances = cluster.instances().await?;
    let worker = instances.iter().find(|instance| !instance.is_master()).context("a worker")?;
    assert_eq!(reasons_by_node(&first).get(worker.private_dns.as_str()), Some(&"matched"));
    let (mut masters, mut serving) = (BTreeSet::new(), 0);
    for _ in 0..200 {
        let pass = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
        let shown = leases(&client).await?.len(); // at least as many as the pass has seen
        assert_eq!(pass.left(), None);
        let approved = pass.news.iter().filter(|news| news.is_approval() && news.kind == "client");
        let approved: Vec<_> = approved.map(|news| news.node.clone()).collect();
        let in_turn = approved.is_empty() || (approved.len() == 1 && shown > masters.len());
        assert!(in_turn, "{approved:?} after {masters:?}, with {shown} Leases");
        masters.extend(approved);
        serving += served(&pass);
        if masters.len() == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(masters.len(), 3, "{masters:?}");
    approver.awake(Timestamp::now());
    eventually(SOON, "fresh Leases", || async {
        let renewed = leases(&client).await?.len();
        ensure!(renewed == 4, "{renewed} Leases");
        Ok(())
    })
    .await?;

    // Ready already, they ask for their serving certificates.
    for _ in 0..100 {
        let pass = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
        serving += served(&pass);
        assert_eq!(pass.left(), None);
        if serving == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(serving, 4);
    let issued = eventually(SOON, "eight certificates", || async {
        let found = requests(&client).await?;
        let issued = found.iter().filter(|request| certificate(request).is_some()).count();
        ensure!((found.len(), issued) == (8, 8), "{issued} of {}", found.len());
        Ok(found)
    })
    .await?;
    for request in &issued {
        let approved = request.status.as_ref().unwrap().conditions.as_ref().unwrap();
        let approved = approved.iter().find(|condition| condition.type_ == "Approved").unwrap();
        assert_eq!(approved.reason.as_deref(), Some("HibernateApprove"));
        assert_eq!(approved.message.as_deref(), Some("This CSR was automatically approved by kubectl-hibernate"));
        assert!(approved.last_update_time.is_some());
    }

    // What was reported is not reported again, and after the window nothing is read.
    assert_eq!(approver.pass(&reads(&client), Timestamp::now(), || true).await?, Pass::default());
    let later = Timestamp::now() + SignedDuration::from_mins(11);
    assert!(approver.is_over(later) && !approver.is_over(Timestamp::now()));
    assert_eq!(approver.pass(&reads(&client), later, || true).await?, Pass::default());
    cluster.remove().await
}

/// How many serving certificates a pass has approved.
fn served(pass: &Pass) -> u64 {
    pass.counts().get(&("serving", "approve", "matched")).copied().unwrap_or_default()
}

/// The same by Node.
fn reasons_by_node(pass: &Pass) -> BTreeMap<&str, &str> {
    pass.news.iter().filter_map(|news| Some((news.node.as_deref()?, news.reason))).collect()
}

/// What root on a worker can ask for with the bootstrap token that is on its disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_bootstrap_token_gets_nothing_of_nodes_that_need_nothing() -> Result<()> {
    let world = world().await;
    let cluster = world.cluster("stolen", options(4)).await?;
    let opened = Timestamp::now();
    let client = cluster.spoke().await?;
    let boot = client_as(&world, &bootstrapper(), BOOTSTRAPPER_GROUPS).await;
    let masters: Vec<_> = cluster.instances().await?.into_iter().filter(testbed::ec2::Instance::is_master).collect();
    // Their kubelets are up, and have not renewed their Leases in this wake yet.
    let opened = opened + SignedDuration::from_secs(1);
    for master in &masters {
        let request = pkcs10(&format!("system:node:{}", master.private_dns), &["system:nodes"], Vec::new());
        certificates::create(&boot, &cluster.info().infra_id, CLIENT, CLIENT_USAGES, &request).await?;
    }
    // After a short sleep at once, after a long one once they had the time to show themselves.
    for (name, after_long_sleep, reason) in [("short", false, "short_sleep"), ("long", true, "node_alive")] {
        let mut approver = Approver::new(name, opened, after_long_sleep);
        approver.machines_run(running(&cluster).await?);
        let first = approver.pass(&reads(&client), opened, || true).await?;
        let all = |pass: &Pass, reasons: &[&str]| {
            assert_eq!(pass.news.len(), 3, "{name}: {pass:?}");
            assert!(pass.news.iter().all(|news| reasons.contains(&news.reason)), "{name}: {pass:?}");
        };
        all(&first, &[if after_long_sleep { "settling" } else { reason }, "node_alive"]);
        eventually(SOON, "Leases of this wake", async || {
            let renewed = leases(&client).await?.into_iter().filter_map(|lease| lease.spec?.renew_time);
            ensure!(renewed.filter(|time| time.0 > opened).count() == 4);
            Ok(())
        })
        .await?;
        let later = settle(&mut approver, &cluster, &client).await?;
        assert_eq!((later.approvals(), later.pending), (None, 3), "{name}");
    }
    cluster.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_keys_for_one_node_are_none_and_people_hear_of_it() -> Result<()> {
    let world = world().await;
    let cluster = world.cluster("rivals", options(4)).await?;
    let node = without_kubelet(&world, &cluster, 3).await?;
    let opened = Timestamp::now();
    let mut approver = Approver::new("rivals", opened, true);
    let client = cluster.spoke().await?;
    let boot = client_as(&world, &bootstrapper(), BOOTSTRAPPER_GROUPS).await;
    let infra_id = &cluster.info().infra_id;
    let ask = async || {
        let request = pkcs10(&format!("system:node:{node}"), &["system:nodes"], Vec::new());
        certificates::create(&boot, infra_id, CLIENT, CLIENT_USAGES, &request).await
    };
    let (one, other) = (ask().await?, ask().await?);
    let first = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
    let both = [&one, &other].map(|name| (name.as_str(), "two_keys"));
    assert_eq!(reasons(&first), BTreeMap::from(both));
    let [words] = first.rivals.as_slice() else { panic!("{:?}", first.rivals) };
    assert!(words.starts_with(&format!("two keys ask for Node {node}: ")), "{words}");
    assert!(words.contains(&format!("{one} (pending)")) && words.contains(&format!("{other} (pending)")), "{words}");
    assert_eq!(settle(&mut approver, &cluster, &client).await?.pending, 2);
    // A person denies the wrong one.
    let api: Api<CertificateSigningRequest> = Api::all(world.spoke(0).await?);
    let condition = json!({"type": "Denied", "status": "True", "reason": "No", "message": "not this one"});
    let deny = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    api.patch_approval(&one, &PatchParams::default(), &deny).await?;
    let pass = settle(&mut approver, &cluster, &client).await?;
    assert_eq!(reasons(&pass), BTreeMap::from([(other.as_str(), "matched")]));
    // A restart forgets nothing: the third key is one too many.
    let third = ask().await?;
    let mut restarted = Approver::new("rivals", opened, true);
    let first = restarted.pass(&reads(&client), Timestamp::now(), || true).await?;
    assert_eq!(reasons(&first).get(third.as_str()), Some(&"two_keys"));
    assert!(first.rivals[0].contains(&format!("{other} (approved at ")), "{:?}", first.rivals);
    assert_eq!(reasons(&settle(&mut restarted, &cluster, &client).await?).get(third.as_str()), None, "nothing new");
    // In the next wake, the certificate that was issued is still valid, however long the sleep was.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let (opened, fourth) = (Timestamp::now(), ask().await?);
    let mut next = Approver::new("rivals, again", opened, true);
    assert_eq!(reasons(&settle(&mut next, &cluster, &client).await?).get(fourth.as_str()), Some(&"short_sleep"));
    cluster.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_ask_for_is_left_alone() -> Result<()> {
    let world = world().await;
    let cluster = world.cluster("hostile", options(4)).await?;
    without_kubelet(&world, &cluster, 0).await?;
    let opened = Timestamp::now();
    let (client, admin) = (cluster.spoke().await?, world.spoke(0).await?);
    let infra_id = &cluster.info().infra_id;
    let instances = cluster.instances().await?;
    let (node, ip, other) = (&instances[0].private_dns, &instances[0].private_ip, &instances[1].private_dns);
    let name = format!("system:node:{node}");
    let ip = SanType::IpAddress(ip.parse()?);
    let boot = client_as(&world, &bootstrapper(), BOOTSTRAPPER_GROUPS).await;
    let kubelet = client_as(&world, &name, &["system:nodes"]).await;
    let nodes: &[&str] = &["system:nodes"];
    let ask = async |who: &Client, signer: &str, usages: &[&str], request: &str| {
        certificates::create(who, infra_id, signer, usages, request).await
    };
    let good = pkcs10(&name, nodes, Vec::new());

    let mut expected: BTreeMap<String, &str> = BTreeMap::new();
    let mut expect = |name: Result<String>, reason| {
        expected.insert(name.unwrap(), reason);
    };
    let with = |names: Vec<SanType>| pkcs10(&name, nodes, names);
    let serving = |names: Vec<SanType>| with([vec![dns(node), ip.clone()], names].concat());
    let stranger = pkcs10("system:node:stranger", nodes, Vec::new());
    let masters = pkcs10(&name, &["system:masters"], Vec::new());
    let grouped = [BOOTSTRAPPER_GROUPS, &["example.org:friends"]].concat();
    let grouped = client_as(&world, &bootstrapper(), &grouped).await;
    // One for each part of a request that the API server writes; each rule has its rows in `controller::csr`.
    let elsewhere = ask(&boot, "kubernetes.io/kube-apiserver-client", CLIENT_USAGES, &good).await?;
    // More than the reader keeps of one text.
    let long = pkcs10(&name, nodes, vec![dns("x.example.org"); 6_000]);
    expect(ask(&boot, CLIENT, CLIENT_USAGES, &long).await, "malformed");
    expect(ask(&boot, CLIENT, CLIENT_USAGES, &stranger).await, "unknown_node");
    expect(ask(&boot, CLIENT, CLIENT_USAGES, &masters).await, "wrong_organization");
    expect(ask(&boot, CLIENT, &["digital signature", "server auth"], &good).await, "wrong_usages");
    expect(ask(&kubelet, CLIENT, CLIENT_USAGES, &good).await, "wrong_user");
    expect(ask(&grouped, CLIENT, CLIENT_USAGES, &good).await, "wrong_groups");
    expect(ask(&kubelet, SERVING, SERVING_USAGES, &serving(vec![dns("api.example.org")])).await, "dns_mismatch");
    expect(ask(&kubelet, SERVING, SERVING_USAGES, &serving(vec![dns(other)])).await, "dns_mismatch");
    let other_ip = SanType::IpAddress("192.0.2.7".parse()?);
    expect(ask(&kubelet, SERVING, SERVING_USAGES, &serving(vec![other_ip])).await, "ip_mismatch");
    // The API server itself refuses what is not a request at all.
    for bytes in ["", "hello", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"] {
        let error = ask(&boot, CLIENT, CLIENT_USAGES, bytes).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 422), "{error:#}");
    }
    // In order, but already denied.
    let denied = ask(&boot, CLIENT, CLIENT_USAGES, &good).await?;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let condition = json!({"type": "Denied", "status": "True", "reason": "No", "message": "not this one"});
    let deny = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    api.patch_approval(&denied, &PatchParams::default(), &deny).await?;
    // In order, and between all the others.
    let (mine, served) = (
        ask(&boot, CLIENT, CLIENT_USAGES, &good).await?,
        ask(&kubelet, SERVING, SERVING_USAGES, &serving(vec![])).await?,
    );
    expected.extend([(mine.clone(), "matched"), (served.clone(), "matched")]);
    // Of a Node whose kubelet is alive, a bootstrap credential gets no client certificate.
    let of_other = pkcs10(&format!("system:node:{other}"), nodes, Vec::new());
    expected.insert(ask(&boot, CLIENT, CLIENT_USAGES, &of_other).await?, "node_alive");

    // A wake that begins later has nothing to do with any of them.
    let mut later = Approver::new("hostile, later", Timestamp::now() + SignedDuration::from_mins(1), true);
    let pass = later.pass(&reads(&client), Timestamp::now(), || true).await?;
    let detail = reasons(&pass);
    assert!(!detail.is_empty() && detail.values().all(|reason| *reason == "too_early"), "{detail:?}");
    assert_eq!((pass.pending, detail.get(denied.as_str())), (0, None));

    eventually(SOON, "a Lease that is renewed in this wake", || async {
        let renewed = leases(&client).await?.into_iter().find(|lease| lease.name_any() == *other);
        let renewed = renewed.and_then(|lease| lease.spec?.renew_time).context("no Lease")?;
        ensure!(renewed.0 > opened, "renewed at {}", renewed.0);
        Ok(())
    })
    .await?;
    let mut approver = Approver::new("hostile", opened, true);
    let pass = settle(&mut approver, &cluster, &client).await?;
    let detail = reasons(&pass);
    assert_eq!(detail, expected.iter().map(|(name, reason)| (name.as_str(), *reason)).collect::<BTreeMap<_, _>>());
    assert_eq!(detail.get(elsewhere.as_str()), None, "another signer's is not listed");
    assert!(pass.left().unwrap().contains("and 5 more"), "{:?}", pass.left());
    assert_eq!(approver.pass(&reads(&client), Timestamp::now(), || true).await?.news, [], "told once");
    for name in [&mine, &served] {
        eventually(SOON, "certificate", || async { certificate(&api.get(name).await?).context("none yet") }).await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for request in requests(&client).await? {
        let name = request.name_any();
        let wanted = name == mine || name == served;
        assert_eq!((has(&request, "Approved"), certificate(&request).is_some()), (wanted, wanted), "{name}");
        assert_eq!(has(&request, "Denied"), name == denied, "{name}");
    }
    cluster.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_fails_is_tried_again() -> Result<()> {
    let world = world().await;
    let cluster = world.cluster("flaky", options(4)).await?;
    let client = cluster.spoke().await?;
    let node = without_kubelet(&world, &cluster, 3).await?;
    let opened = Timestamp::now();
    let boot = client_as(&world, &bootstrapper(), BOOTSTRAPPER_GROUPS).await;
    let name = format!("system:node:{node}");
    let good = pkcs10(&name, &["system:nodes"], Vec::new());
    certificates::create(&boot, &cluster.info().infra_id, CLIENT, CLIENT_USAGES, &good).await?;
    let mut approver = Approver::new("flaky", opened, true);
    let forbidden = Effect::Status { code: 403, retry_after: None, message: None };
    cluster.inject(&Rule::new(forbidden).method("PATCH").path("/apis/certificates.k8s.io").count(1)).await?;
    assert_eq!(
        settle(&mut approver, &cluster, &client).await?.counts(),
        BTreeMap::from([(("client", "approve", "refused"), 1)])
    );
    let status = |code| Effect::Status { code, retry_after: None, message: None };
    for (effect, reason) in [
        (status(409), "conflict"),
        (status(422), "conflict"),
        (status(429), "unreachable"),
        (status(403), "refused"),
        (Effect::Cut { after_upstream: false }, "unreachable"),
    ] {
        cluster.inject(&Rule::new(effect).method("PATCH").path("/apis/certificates.k8s.io").count(1)).await?;
        let pass = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
        let outcomes: Vec<_> = pass.news.iter().map(|news| news.reason).collect();
        // Two kinds of conflict in a row are one piece of news.
        assert!(outcomes == [reason] || (outcomes.is_empty() && reason == "conflict"), "{outcomes:?}, not {reason}");
        assert_eq!((pass.pending, pass.approvals()), (1, None));
    }
    let lists = Rule::new(status(503)).method("GET").path("/apis/machine.openshift.io").count(1);
    cluster.inject(&lists).await?;
    let error = approver.pass(&reads(&client), Timestamp::now(), || true).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot list the cluster's Machines");
    let pass = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
    assert_eq!((pass.counts().keys().next(), pass.pending), (Some(&("client", "approve", "matched")), 0));
    cluster.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_machines_nothing_can_be_matched() -> Result<()> {
    let world = world().await;
    let cluster = world.cluster("upi", ClusterOptions::of_size(1)).await?;
    let mut approver = Approver::new("upi", Timestamp::now(), true);
    let client = cluster.spoke().await?;
    let boot = client_as(&world, &bootstrapper(), BOOTSTRAPPER_GROUPS).await;
    let name = format!("system:node:{}", cluster.instances().await?[0].private_dns);
    let good = pkcs10(&name, &["system:nodes"], Vec::new());
    let csr = certificates::create(&boot, &cluster.info().infra_id, CLIENT, CLIENT_USAGES, &good).await?;
    let pass = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
    assert_eq!(reasons(&pass), BTreeMap::from([(csr.as_str(), "no_machines")]));

    // The same where the kind does not even exist.
    let status = Effect::Status { code: 404, retry_after: None, message: None };
    cluster.inject(&Rule::new(status).path("/apis/machine.openshift.io")).await?;
    let mut approver = Approver::new("upi", Timestamp::now(), true);
    let pass = approver.pass(&reads(&client), Timestamp::now(), || true).await?;
    assert_eq!((reasons(&pass), pass.pending), (BTreeMap::from([(csr.as_str(), "no_machines")]), 1));

    // Without requests, neither Nodes nor Machines are listed.
    let api: Api<CertificateSigningRequest> = Api::all(world.spoke(0).await?);
    api.delete(&csr, &DeleteParams::default()).await?;
    let status = Effect::Status { code: 503, retry_after: None, message: None };
    cluster.inject(&Rule::new(status).path("/api/v1/nodes")).await?;
    assert_eq!(approver.pass(&reads(&client), Timestamp::now(), || true).await?, Pass::default());
    cluster.remove().await
}
