use super::*;
use fair::{Consumer, MemoryLimit};

const OPENED: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    OPENED + SignedDuration::from_secs(seconds)
}

fn lease(node: &str, renewed: Option<i64>) -> Lease {
    let mut lease = Lease::default();
    node.clone_into(&mut lease.metadata.name);
    lease.spec.renew_time = renewed.map(at);
    lease
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_node_has_joined_while_its_kubelet_renews_its_lease_in_this_wake() {
    let mut known = Joined::default();
    let mut charge = MemoryLimit::default().of(Consumer::new("tenant", "spoke")).charge();
    let mut joined = |nodes: &BTreeSet<String>, leases: &[Lease], window: &Window, answered: i64| {
        known.answered = SignedDuration::from_secs(answered);
        known.of(nodes, leases, window, at(answered), &mut charge).unwrap()
    };
    let mut window = Window { opened: OPENED, closes: Timestamp::MAX, after_long_sleep: true };
    let nodes = names(&["alive", "asleep", "never", "slow-clock", "fast-clock"]);
    let mut leases = vec![
        lease("alive", Some(5)),
        lease("asleep", Some(-90_000)),
        lease("never", None),
        lease("slow-clock", Some(-3_600)),
        lease("fast-clock", Some(3_600)),
    ];
    assert_eq!(joined(&nodes, &leases, &window, 6), names(&["alive"]), "a clock that is far ahead says nothing");
    leases[3] = lease("slow-clock", Some(-3_590));
    assert_eq!(joined(&nodes, &leases, &window, 16), names(&["alive", "slow-clock"]), "its clock is an hour behind");
    assert_eq!(joined(&nodes, &leases, &window, 85), names(&["alive", "slow-clock"]));
    // Who renews its Lease no more is missing.
    assert_eq!(joined(&nodes, &leases, &window, 86), names(&["slow-clock"]));
    leases[0] = lease("alive", Some(90));
    window.closes = at(600);
    assert_eq!(joined(&nodes, &leases, &window, 90), names(&["alive", "slow-clock"]));
    let nodes = names(&["alive", "asleep", "never", "slow-clock", "fast-clock", "new"]);
    leases[1] = lease("asleep", Some(92));
    let found = joined(&nodes, &leases, &window, 95);
    assert_eq!(found, names(&["alive", "asleep", "new", "slow-clock"]), "only Nodes that were missing then get one");
}

#[test]
fn a_node_is_silent_since_it_was_first_seen_and_while_its_machine_runs() {
    let mut known = Joined { answered: SignedDuration::from_secs(200), ..Joined::default() };
    let mut charge = MemoryLimit::default().of(Consumer::new("tenant", "spoke")).charge();
    let machine = |node: &str, instance: &str| csr::Machine {
        internal_dns: vec![node.to_owned()],
        instance: Some(instance.to_owned()),
        ..csr::Machine::default()
    };
    let cluster = Cluster {
        nodes: names(&["Old", "late", "by-machine", "off"]),
        machines: vec![machine("by-machine", "i-1"), machine("off", "i-2")],
        ..Cluster::default()
    };
    let window = Window { opened: OPENED, closes: Timestamp::MAX, after_long_sleep: true };
    let since = [("old", 0), ("late", 270), ("i-1", 0)];
    known.run_since = since.map(|(name, seconds)| (name.to_owned(), at(seconds))).into();
    let mut silent = |answered, leases: &[Lease]| {
        known.answered = SignedDuration::from_secs(answered);
        known.of(&cluster.nodes, leases, &window, at(answered), &mut charge).unwrap();
        let silent = known.silent(&cluster, at(answered)).into_iter();
        silent.map(|(node, time)| format!("{node} {}", time.as_secs())).collect::<Vec<_>>()
    };
    let slow = |seconds| vec![lease("Old", Some(seconds))];
    assert_eq!(silent(200, &slow(-9)), ["Old 0", "by-machine 0", "late -70"], "whatever the time before");
    assert_eq!(silent(279, &slow(-9)), ["Old 79", "by-machine 79", "late 9"]);
    assert_eq!(silent(280, &slow(-8)), ["Old 0", "by-machine 80", "late 10"]);
}

#[test]
fn an_api_server_that_is_busy_has_refused_nothing() {
    for (code, expected) in [
        (404, "conflict"),
        (409, "conflict"),
        (422, "conflict"),
        (401, "refused"),
        (403, "refused"),
        (429, UNREACHABLE),
        (500, UNREACHABLE),
        (503, UNREACHABLE),
    ] {
        let status = kube::core::Status::failure("no", "").with_code(code).boxed();
        assert_eq!(failure(&kube::Error::Api(status)), expected, "{code}");
    }
    assert!(PASSING.contains(&UNREACHABLE));
}

/// Which requests are taken of this list.
fn taken(all: impl IntoIterator<Item = CertificateRequest>) -> Vec<String> {
    let window = Window { opened: OPENED, closes: Timestamp::MAX, after_long_sleep: true };
    let mut wanted = wanted(window, at(1_000));
    all.into_iter().filter(|request| wanted(request)).map(|request| request.metadata.name).collect()
}

fn request(name: &str, user: &str, created: i64) -> CertificateRequest {
    let mut request = CertificateRequest::default();
    (request.metadata.name, request.metadata.creation_timestamp) = (name.to_owned(), Some(at(created)));
    (request.spec.username, request.spec.signer_name) = (user.to_owned(), Kind::Client.signer().to_owned());
    request
}

#[test]
fn one_requester_cannot_fill_the_list_of_another_nor_with_old_requests_that_of_its_kubelets() {
    let flood = (0..6_000).map(|number| request(&format!("a-{number}"), "system:node:bad", 900));
    let others = (0..6_000).map(|number| {
        let mut other = request(&format!("c-{number}"), BOOTSTRAPPER, 900);
        other.spec.signer_name = "example.com/other".to_owned();
        other
    });
    let flood = flood.chain(others);
    let old = (0..6_000).map(|number| request(&format!("b-{number}"), BOOTSTRAPPER, 0));
    let honest = (0..3_000).map(|number| request(&format!("csr-{number}"), BOOTSTRAPPER, 900));
    let all = taken(flood.chain(old).chain(honest));
    let of = |begin: &str| all.iter().filter(|name| name.starts_with(begin)).count();
    assert_eq!((of("a-"), of("b-"), of("c-"), of("csr-")), (OF_ONE, OF_ONE, 0, 3_000));
    assert_eq!(taken((0..9_000).map(|number| request(&number.to_string(), BOOTSTRAPPER, 900))).len(), OF_BOOTSTRAPPER);
    // A certificate from before the wake is no old request.
    let mut issued = request("issued", BOOTSTRAPPER, -9_000);
    issued.status.certificate.0 = vec![0];
    issued.status.conditions =
        vec![shared::spoke::fields::Condition { type_: "Approved".into(), ..Default::default() }];
    let old = (0..6_000).map(|number| request(&format!("b-{number}"), BOOTSTRAPPER, 0));
    assert!(taken(old.chain([issued])).contains(&"issued".to_owned()));
}

#[test]
fn an_event_names_all_who_ask_for_a_node() {
    let approved = Approval {
        name: "csr-a".to_owned(),
        node: "master-0".to_owned(),
        kind: Kind::Client,
        key: Vec::new(),
        at: at(7),
    };
    let (name, uid) = ("csr-b".to_owned(), "b".to_owned());
    let verdict = Verdict::Leave(Reason::TwoKeys);
    let node = Some("master-0".to_owned());
    let pending = Decision { name, uid, kind: Some(Kind::Client), node, key: Vec::new(), verdict };
    let other = Decision { node: Some("master-1".to_owned()), name: "csr-c".to_owned(), ..pending.clone() };
    assert_eq!(
        two_keys("master-0", &[pending, other], &[("a".to_owned(), approved)].into()),
        "two keys ask for Node master-0: csr-a (approved at 2027-01-15T08:00:07Z), csr-b (pending); see \
         docs/certificates.md#two-keys"
    );
}

#[test]
fn an_approval_is_logged_even_where_nothing_more_can_be_remembered() {
    let memory = MemoryLimit::default();
    let mut charge = memory.of(Consumer::new("tenant", "spoke")).charge();
    while charge.spend(1 << 10).is_ok() {}
    let mut seen = HashMap::new();
    let mut news = |verdict, outcome| {
        let (name, uid, kind, node) = ("csr-1".to_owned(), "u".repeat(4_000), Some(Kind::Client), None);
        let decision = Decision { name, uid, kind, node, key: Vec::new(), verdict };
        report("target", &mut seen, &mut charge, decision, outcome).is_some()
    };
    assert!(news(Verdict::Approve(Kind::Client), MATCHED));
    assert!(!news(Verdict::Approve(Kind::Client), "conflict"));
}
