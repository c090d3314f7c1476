//! Of wakes: which Node may get a certificate, when, and for which key.

use super::*;

/// Requests of three masters and a worker, with three keys each.
static REQUESTS: LazyLock<Vec<Vec<Csr>>> = LazyLock::new(|| {
    let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate().unwrap()).collect();
    let nodes = [MASTERS[0], MASTERS[1], MASTERS[2], "worker"];
    nodes.iter().map(|node| keys.iter().flat_map(|key| asked(&[node], key)).collect()).collect()
});

const MASTERS: [&str; 3] = ["master-0", "master-1", "master-2"];

/// Requests for client certificates, one of each node, with these keys.
fn asked(nodes: &[&'static str], key: &KeyPair) -> Vec<Csr> {
    let one = |node: &&'static str| {
        let name: &'static str = format!("system:node:{node}").leak();
        let request = Subject { cn: vec![name], ..client_subject() }.signed_by(key);
        let name = format!("csr-{node}-{}", key.public_key_raw()[1]);
        Csr { uid: name.clone(), name, request, ..client() }
    };
    nodes.iter().map(one).collect()
}

/// Three masters and a worker that has shown itself and is Ready, when everybody has had the time to do so.
fn of_four() -> Cluster {
    let nodes = [MASTERS[0], MASTERS[1], MASTERS[2], "worker"];
    let machine = |node: &&str| Machine { internal_dns: vec![(*node).to_owned()], ..Machine::default() };
    Cluster {
        nodes: nodes.map(ToOwned::to_owned).into(),
        control_plane: MASTERS.map(ToOwned::to_owned).into(),
        joined: ["worker".to_owned()].into(),
        machines: nodes.iter().map(machine).collect(),
        silent: silent(&nodes, SETTLE),
        has_ready_worker: true,
        ..cluster()
    }
}

/// What becomes of the requests, in words.
fn outcomes(csrs: &[Csr], cluster: &Cluster, window: &Window, already: &Approvals, now: i64) -> Vec<&'static str> {
    let decisions = decide(csrs, cluster, window, &Limits::default(), already, at(now));
    decisions.iter().map(|decision| decision.verdict.reason()).collect()
}

/// What is changed about a wake in which all is in order.
type OfWake = fn(&mut Cluster, &mut Window);

#[test]
fn a_client_certificate_is_approved_only_where_it_can_be_needed() {
    let rows: &[(&str, OfWake, &[&str])] = &[
        ("a long sleep", |_, _| (), &["matched", "not_its_turn", "not_its_turn"]),
        ("(a) a short sleep", |_, w| w.after_long_sleep = false, &["short_sleep"; 3]),
        (
            "(a) a valid certificate",
            |c, _| c.certified = [MASTERS[1].to_owned()].into(),
            &["matched", "short_sleep", "not_its_turn"],
        ),
        ("(b) just answered", |c, _| c.silent = silent(&MASTERS, SignedDuration::from_millis(50)), &["settling"; 3]),
        (
            "(b) a moment too early",
            |c, _| c.silent = silent(&MASTERS, SETTLE - SignedDuration::from_nanos(1)),
            &["settling"; 3],
        ),
        (
            "(b) one has just started, and no machine of another runs",
            |c, _| {
                c.silent = silent(&[MASTERS[0], MASTERS[2]], SignedDuration::ZERO);
                c.silent.insert(MASTERS[2].to_owned(), SETTLE);
            },
            &["settling", "no_machine_runs", "matched"],
        ),
        ("(b) alive by then", |c, _| c.joined.extend(MASTERS.map(ToOwned::to_owned)), &["node_alive"; 3]),
        ("(c) no Ready worker", |c, _| c.has_ready_worker = false, &["not_its_turn"; 3]),
        (
            "(c) no Ready worker in five minutes",
            |c, _| (c.has_ready_worker, c.answered) = (false, SignedDuration::from_mins(5)),
            &["matched", "not_its_turn", "not_its_turn"],
        ),
        (
            "(c) no workers",
            |c, _| {
                c.has_ready_worker = false;
                c.nodes.remove("worker");
            },
            &["matched", "not_its_turn", "not_its_turn"],
        ),
        (
            "(c) workers at once",
            |c, _| (c.control_plane, c.has_ready_worker) = (BTreeSet::new(), false),
            &["matched"; 3],
        ),
    ];
    let csrs = asked(&MASTERS, &KEY);
    for (row, change, expected) in rows {
        let (mut cluster, mut window) = (of_four(), window());
        change(&mut cluster, &mut window);
        assert_eq!(outcomes(&csrs, &cluster, &window, &Approvals::new(), 200), *expected, "{row}");
    }
}

#[test]
fn control_plane_nodes_get_theirs_one_at_a_time() {
    let (mut csrs, mut cluster, none) = (asked(&MASTERS, &KEY), of_four(), Approvals::new());
    let key = Request::parse(&csrs[0].request).unwrap().key;
    let (name, node) = (csrs[0].name.clone(), MASTERS[0].to_owned());
    let first = Approval { name, node, kind: Kind::Client, key, at: at(200) };
    let first = Approvals::from([(csrs[0].uid.clone(), first)]);
    (csrs[0].conditions, csrs[0].approved) = (vec!["Approved".into()], Some(at(200)));
    // Known by memory, or after a restart by what the cluster holds.
    for already in [&none, &first] {
        assert_eq!(outcomes(&csrs, &cluster, &window(), already, 210), ["approved", "not_its_turn", "not_its_turn"]);
    }
    for already in [&none, &first] {
        let each = |now| outcomes(&csrs, &cluster, &window(), already, now);
        assert_eq!(each(499), ["approved", "not_its_turn", "not_its_turn"], "since the approval, not the request");
        assert_eq!(each(500), ["approved", "matched", "not_its_turn"], "5 minutes");
    }
    cluster.joined.insert(MASTERS[0].to_owned());
    assert_eq!(outcomes(&csrs, &cluster, &window(), &first, 210), ["approved", "matched", "not_its_turn"]);
}

#[test]
fn two_keys_for_one_node_are_none() {
    let (cluster, none, other) = (of_four(), Approvals::new(), KeyPair::generate().unwrap());
    let mut both = [asked(&MASTERS[..1], &KEY), asked(&MASTERS[..2], &other)].concat();
    both.iter_mut().enumerate().for_each(|(number, csr)| csr.created = Some(at(30 + i64::try_from(number).unwrap())));
    let each = |csrs: &[Csr], now| outcomes(csrs, &cluster, &window(), &none, now);
    assert_eq!(each(&both, 200), ["two_keys", "two_keys", "matched"]);
    // Before anything else is waited for, so that the Event is early.
    let early = Cluster { silent: silent(&MASTERS, SignedDuration::ZERO), ..of_four() };
    assert_eq!(outcomes(&both, &early, &window(), &none, 40), ["two_keys", "two_keys", "settling"]);
    // What was approved keeps its certificate, and no other key gets one.
    both[0].conditions = vec!["Approved".into()];
    assert_eq!(each(&both, 600)[..2], ["approved", "two_keys"]);
    // A person says which one it is.
    both[0].conditions = vec!["Denied".into()];
    assert_eq!(each(&both, 200)[..2], ["denied", "matched"]);
    // Another wake's key says nothing, nor one that could not be approved anyway.
    (both[0].conditions, both[0].created) = (vec!["Approved".into()], Some(at(-3_600)));
    assert_eq!(each(&both, 200)[..2], ["approved", "matched"]);
    (both[0].conditions, both[0].created, both[0].usages) = (Vec::new(), Some(at(30)), words("server auth"));
    assert_eq!(each(&both, 200)[..2], ["wrong_usages", "matched"]);
    // A kubelet that has waited for 15 minutes asks again with a new key, or had no answer when it first asked.
    (both[0].conditions, both[0].usages) = (Vec::new(), both[1].usages.clone());
    both[0].created = Some(at(30));
    assert_eq!(each(&both, 930)[..2], ["two_keys", "two_keys"]);
    assert_eq!(each(&both, 931)[..2], ["stale", "matched"]);
    let flood = |now| outcomes(&many(300), &super::cluster(), &window(), &none, now);
    assert_eq!((flood(300)[0], flood(1_120)[0], flood(1_120)[220]), ("flood", "stale", "matched"));
    // What was approved stays the only one, whatever became of its request.
    let lost = remembered_for(&asked(&MASTERS[..1], &KEY)[0]);
    assert_eq!(outcomes(&asked(&MASTERS[..1], &KEY), &cluster, &window(), &lost, 210), ["node_limit"]);
    assert_eq!(outcomes(&asked(&MASTERS[..1], &other), &cluster, &window(), &lost, 210), ["two_keys"]);
}

/// The memory of having approved a request that is gone.
fn remembered_for(csr: &Csr) -> Approvals {
    let request = Request::parse(&csr.request).unwrap();
    let node = request.common_name.strip_prefix(NODE_PREFIX).unwrap().to_owned();
    let (name, kind) = (csr.name.clone(), Kind::Client);
    [("gone".to_owned(), Approval { name, node, kind, key: request.key, at: at(100) })].into()
}

proptest! {
    #[test]
    fn no_more_than_one_key_of_a_node_and_one_master_at_once_are_approved(
        asked_for in proptest::collection::vec((0..4_usize, 0..3_usize, 0..400_i64, prop::sample::select(vec!["", "Approved", "Denied"])), 0..12),
        joined in proptest::collection::btree_set(0..4_usize, 0..4),
        has_ready_worker: bool,
        answered in 0..600_i64,
        now in 0..900_i64,
    ) {
        let nodes = [MASTERS[0], MASTERS[1], MASTERS[2], "worker"];
        let joined = joined.into_iter().map(|node| nodes[node].to_owned()).collect();
        let time = SignedDuration::from_secs(answered);
        let cluster =
            Cluster { joined, has_ready_worker, answered: time, silent: silent(&nodes, time), ..of_four() };
        let one = |(number, (node, key, created, condition)): (usize, &(usize, usize, i64, &str))| Csr {
            uid: number.to_string(),
            created: Some(at(*created)),
            conditions: [*condition].into_iter().filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect(),
            approved: (*condition == "Approved").then(|| at(*created)),
            ..REQUESTS[*node][*key].clone()
        };
        let csrs: Vec<Csr> = asked_for.iter().enumerate().map(one).collect();
        let decisions = decide(&csrs, &cluster, &window(), &Limits::default(), &Approvals::new(), at(now));
        let mut keys: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        let (mut masters, mut of_pass, mut of_nodes) = (BTreeSet::new(), 0, BTreeMap::new());
        for (number, (node, key, created, condition)) in asked_for.iter().enumerate() {
            let uid = number.to_string();
            let approves = decisions.iter().any(|d| d.csr.uid == uid && matches!(d.verdict, Verdict::Approve(_)));
            if approves || *condition == "Approved" {
                keys.entry(nodes[*node]).or_default().insert(*key);
            }
            let is_awaited = *condition == "Approved" && now - created < 300 && !cluster.joined.contains(nodes[*node]);
            if *node < 3 && (approves || is_awaited) {
                masters.insert(nodes[*node]);
            }
            of_pass += usize::from(approves);
            prop_assert!(!approves || (answered >= 80 && !cluster.joined.contains(nodes[*node])));
            prop_assert!(!approves || *node == 3 || has_ready_worker || answered >= 300);
            prop_assert!(!approves || (keys[nodes[*node]].len() == 1 && now - created <= 900));
            let of_node = of_nodes.entry(*node).or_insert(0);
            *of_node += usize::from(approves || *condition == "Approved");
            prop_assert!(!approves || *of_node == 1, "a second one for a Node");
        }
        prop_assert!(of_pass == 0 || masters.len() <= 1 || !decisions.iter().any(|d| {
            matches!(d.verdict, Verdict::Approve(_)) && d.node.as_deref() != Some("worker")
        }), "{:?}", masters);
    }
}
