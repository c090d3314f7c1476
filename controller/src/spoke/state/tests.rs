//! What is kept of a spoke, and how much.

use super::*;
use fair::{Consumer, MemoryLimit};

/// A state, and the Nodes that it takes in, of names that are so long.
fn state(memory: &MemoryLimit, now: Timestamp) -> (State, impl Fn(&mut State, usize, usize)) {
    let charge = memory.of(Consumer::new("tenant", "spoke")).charge();
    let of_nodes = charge.another();
    let list = move |state: &mut State, nodes: usize, length: usize| {
        state.apply(Change::Node(Event::Init));
        for number in 0..nodes {
            let mut node = Node::default();
            node.metadata.name = format!("node-{number:0length$}");
            state.apply(Change::Node(Event::InitApply(ChargedValue::new(node, of_nodes.another()))));
        }
    };
    (State::new(now, false, charge), list)
}

#[test]
fn more_objects_than_we_keep_are_no_snapshot() {
    let now = Timestamp::now();
    let memory = MemoryLimit::default();
    let (mut state, list) = state(&memory, now);
    let many = Some("the cluster has more than 5000 Nodes: the controller does not read them".to_owned());
    list(&mut state, MOST, 1);
    state.apply(Change::Node(Event::InitDone));
    assert_eq!(state.truncated(), None);
    list(&mut state, MOST + 20, 1);
    assert_eq!(state.truncated(), many, "before the list ends, which it may never do");
    state.apply(Change::Node(Event::InitDone));
    assert_eq!(state.nodes.current.objects.len(), MOST + 1);
    state.apply(Change::Lease(Event::Init));
    state.apply(Change::Lease(Event::InitDone));
    for _ in 0..2 {
        let snapshot = state.snapshot(now);
        let error = snapshot.observed(now).unwrap_err().to_string();
        assert!(error.contains("more than 5000 Nodes") && snapshot.is_conclusive(), "{error}");
        state.begin();
        assert_eq!(state.truncated(), None, "asked for once more");
    }
    list(&mut state, 1, 1);
    assert!(state.snapshot(now).observed(now).is_err());
    state.apply(Change::Node(Event::InitDone));
    assert_eq!(state.snapshot(now).observed(now).unwrap().nodes.len(), 1, "once there are fewer");
}

#[test]
fn what_is_kept_of_a_spoke_is_charged_until_it_is_dropped() {
    let now = Timestamp::now();
    let memory = MemoryLimit::default();
    let (mut state, list) = state(&memory, now);
    let leases = |state: &mut State, count: usize| {
        state.apply(Change::Lease(Event::Init));
        for number in 0..count {
            let mut lease = Lease::default();
            lease.metadata.name = format!("{number:0250}");
            let charge = state.charge.another();
            state.apply(Change::Lease(Event::InitApply(ChargedValue::new(lease, charge))));
        }
    };
    list(&mut state, 100, 200);
    let used = state.nodes.next.as_ref().unwrap().charge.used();
    assert!((50_000..200_000).contains(&used), "{used}");
    leases(&mut state, MAX_LEASES);
    assert_eq!(state.truncated().as_deref(), Some("the cluster's answers are too large together"));
    state.begin();
    assert_eq!((state.nodes.current.charge.used(), state.leases.current.charge.used()), (0, 0));
    list(&mut state, 3, 10);
    state.apply(Change::Node(Event::InitDone));
    leases(&mut state, 3);
    state.apply(Change::Lease(Event::InitDone));
    assert_eq!(state.snapshot(now).observed(now).unwrap().nodes.len(), 3);
    let node = state.nodes.current.charge.used() / 3;
    let mut gone = Node::default();
    gone.metadata.name = format!("node-{:010}", 1);
    state.apply(Change::Node(Event::Delete(ChargedValue::new(gone, state.charge.another()))));
    assert_eq!(state.nodes.current.charge.used(), 2 * node);
}

#[test]
fn an_operator_lives_by_the_newest_lease_of_its_namespaces() {
    let now = Timestamp::now();
    let memory = MemoryLimit::default();
    let charge = memory.of(Consumer::new("tenant", "spoke")).charge();
    let mut state = State::new(now, true, charge.another());
    let operator = |number: usize, of: &[usize]| {
        let objects: Vec<_> = of
            .iter()
            .chain(of)
            .map(|namespace| serde_json::json!({ "group": "", "resource": "namespaces", "name": format!("n-{namespace}") }))
            .collect();
        let status = serde_json::json!({ "relatedObjects": objects });
        let object = serde_json::json!({ "metadata": { "name": format!("o-{number}") }, "status": status });
        ChargedValue::new(serde_json::from_value::<ClusterOperator>(object).unwrap(), charge.another())
    };
    let lease = |namespace: usize, number: i32, renewed: i64| {
        let mut lease = Lease::default();
        (lease.metadata.namespace, lease.metadata.name) = (format!("n-{namespace}"), number.to_string());
        lease.spec.renew_time = Some(Timestamp::from_second(renewed).unwrap());
        ChargedValue::new(lease, charge.another())
    };
    state.apply(Change::Node(Event::Init));
    state.apply(Change::Node(Event::InitDone));
    state.apply(Change::Lease(Event::Init));
    for namespace in 0..20 {
        for number in 0..1_000_i32 {
            state.apply(Change::Lease(Event::InitApply(lease(namespace, number, i64::from(1_000 + number % 500)))));
        }
    }
    state.apply(Change::Lease(Event::InitDone));
    let all: Vec<usize> = (0..20).collect();
    for number in 0..200 {
        state.apply(Change::Operator(Event::Apply(operator(number, &all))));
    }
    state.apply(Change::Operator(Event::Apply(operator(200, &[7]))));
    state.apply(Change::Operator(Event::Apply(operator(201, &[99]))));
    state.operators.complete = true;
    let alive = |state: &mut State, number: usize| {
        let name = format!("o-{number}");
        let spoke = state.snapshot(now).observed(now).cloned().unwrap();
        let found = spoke.operators.into_iter().find(|one| one.name == name).unwrap();
        (found.leased, found.sign_of_life.map(Timestamp::as_second), found.moved)
    };
    assert_eq!(alive(&mut state, 200), (true, Some(1_499), false));
    assert_eq!(alive(&mut state, 201), (false, None, false));
    state.apply(Change::Lease(Event::Apply(lease(7, 3, 2_000))));
    assert_eq!(alive(&mut state, 200), (true, Some(2_000), true));
    state.apply(Change::Lease(Event::Delete(lease(7, 3, 2_000))));
    assert_eq!(alive(&mut state, 200), (true, Some(1_499), false));
    assert_eq!(state.operators.current.objects["o-0"].namespaces.len(), 20, "each once");
}
