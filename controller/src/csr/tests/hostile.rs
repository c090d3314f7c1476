//! Of floods and bytes: whatever is sent, and however much of it.

use super::*;

#[test]
fn a_node_gets_so_many_and_no_more() {
    let limits = Limits { per_node: 3, ..Limits::default() };
    let approvals = |csrs: &[Csr], already: &Approvals| {
        let decisions = decide_on(csrs, &limits, already);
        let approved = decisions.iter().filter(|d| matches!(d.verdict, Verdict::Approve(_))).count();
        let limited = decisions.iter().filter(|d| d.verdict == Verdict::Leave(Reason::NodeLimit)).count();
        (approved, limited)
    };
    let none = Approvals::new();
    assert_eq!(approvals(&served(5), &none), (3, 2));
    assert_eq!(approvals(&served(5)[2..], &remembered(NODE, 2)), (1, 2));
    assert_eq!(approvals(&served(5), &remembered("other", 9)), (3, 2));
    // What was approved before a restart is seen in the requests themselves, and is not counted twice.
    let mut half_done = served(5);
    half_done[..2].iter_mut().for_each(|csr| csr.conditions = vec!["Approved".into()]);
    assert_eq!(approvals(&half_done, &none), (1, 2));
    assert_eq!(approvals(&half_done, &remembered(NODE, 2)), (1, 2));
    // What was approved before the wake does not count.
    half_done[..2].iter_mut().for_each(|csr| csr.created = Some(at(-3_600)));
    assert_eq!(approvals(&half_done, &none), (3, 0));
    // The approvals of one kind are no other's. Of client certificates a Node gets one.
    assert_eq!(approvals(&many(5), &remembered(NODE, 9)), (1, 4));
    // Nor what others asked for.
    let mut others = many(3);
    others[0].conditions = vec!["Approved".into()];
    assert_eq!(approvals(&others, &none), (0, 2));
    others[0].username = format!("system:node:{NODE}");
    assert_eq!(approvals(&others, &none), (1, 1));
    // An approval without an answer was perhaps not written.
    let sent = Approval { kind: Kind::Client, ..remembered(NODE, 1)["uid-0"].clone() };
    assert_eq!(approvals(&many(3), &[("uid-0".to_owned(), sent)].into()), (1, 2));
}

/// That many approvals of the node's serving certificate, as this process remembers them.
fn remembered(node: &str, count: usize) -> Approvals {
    let key = Request::parse(&client().request).unwrap().key;
    let (name, kind) = ("csr-gone".to_owned(), Kind::Serving);
    let one = Approval { name, node: node.to_owned(), kind, key, at: at(100) };
    (0..count).map(|number| (format!("uid-{number}"), one.clone())).collect()
}

#[test]
fn a_pass_approves_so_many_and_the_next_goes_on() {
    let limits = Limits { per_pass: 2, ..Limits::default() };
    let csrs = [served(3), vec![client()]].concat();
    let decisions = decide_on(&csrs, &limits, &Approvals::new());
    let last = ("csr-002", Verdict::Leave(Reason::PassLimit));
    let serving = Verdict::Approve(Kind::Serving);
    let asked = ("csr-client", Verdict::Approve(Kind::Client));
    assert_eq!(verdicts(&decisions)[1..], [("csr-001", serving), last, asked], "of one requester");
}

#[test]
fn a_flood_is_not_approved_at_all() {
    fn all<'a>(csrs: &'a [Csr], limits: &Limits) -> Vec<Decision<'a>> {
        decide_on(csrs, limits, &Approvals::new())
    }
    let limits = Limits { flood_margin: 3, ..Limits::default() };
    assert!(all(&served(5), &limits).iter().all(|d| d.verdict == Verdict::Approve(Kind::Serving)), "2 nodes and 3");
    assert!(all(&served(6), &limits).iter().all(|d| d.verdict == Verdict::Leave(Reason::Flood)));
    let csrs: Vec<Csr> = served(6).into_iter().map(|csr| Csr { request: Vec::new(), ..csr }).collect();
    let unread = all(&csrs, &limits);
    assert!(unread.iter().all(|d| (d.verdict, &d.node) == (Verdict::Leave(Reason::Flood), &None)));
    // One requester's flood is no other's.
    let csrs = [served(6), vec![Csr { created: Some(at(31)), ..client() }]].concat();
    let others = all(&csrs, &limits);
    assert_eq!(others.last().map(|d| d.verdict), Some(Verdict::Approve(Kind::Client)));
    // Old ones, settled ones and those of other signers are no flood.
    let mut mixed = served(8);
    mixed[0].conditions = vec!["Denied".into()];
    mixed[1].signer = "example.org/other".into();
    mixed[2].created = Some(at(-86_400));
    assert_eq!(all(&mixed, &limits).iter().filter(|d| matches!(d.verdict, Verdict::Approve(_))).count(), 5);
}

/// Whatever is done to its bytes, a request is approved only while it says what it said.
fn approved_only_unchanged(base: &Csr, request: Vec<u8>) -> Result<(), TestCaseError> {
    let before = Request::parse(&base.request);
    let changed = Csr { request, ..base.clone() };
    if let Verdict::Approve(_) = judge(&changed, &cluster(), &window()).verdict {
        prop_assert_eq!(Request::parse(&changed.request), before);
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_never_approved(bytes in proptest::collection::vec(any::<u8>(), 0..400), in_pem: bool) {
        let request = if in_pem { pem(&bytes) } else { bytes };
        for base in [client(), serving()] {
            let csr = Csr { request: request.clone(), ..base };
            prop_assert!(matches!(judge(&csr, &cluster(), &window()).verdict, Verdict::Leave(_)));
        }
    }

    #[test]
    fn a_changed_byte_of_the_der_changes_nothing_or_is_refused(at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
        for (base, subject) in [(client(), client_subject()), (serving(), serving_subject())] {
            let mut der = subject.params().serialize_request(&*KEY).unwrap().der().to_vec();
            let at = at.index(der.len());
            if cut { der.truncate(at) } else { der[at] = byte }
            approved_only_unchanged(&base, pem(&der))?;
        }
    }

    #[test]
    fn a_changed_byte_of_the_pem_changes_nothing_or_is_refused(at in any::<prop::sample::Index>(), byte: u8, insert: bool) {
        for base in [client(), serving()] {
            let mut text = base.request.clone();
            let at = at.index(text.len());
            if insert { text.insert(at, byte) } else { text[at] = byte }
            approved_only_unchanged(&base, text)?;
        }
    }

    #[test]
    fn every_request_gets_one_answer_at_any_time(
        times in proptest::collection::vec(proptest::option::of(any::<i64>()), 0..12),
        opened: i64,
        closes: i64,
        limit in 0..4_usize,
    ) {
        let time = |seconds: i64| {
            let (least, most) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
            Timestamp::from_second(seconds.clamp(least, most)).unwrap()
        };
        let (client, serving) = (client(), serving());
        let one = |(number, created): (usize, &Option<i64>)| {
            let base = if number % 2 == 0 { &client } else { &serving };
            let name = number.to_string();
            Csr { uid: name.clone(), name, created: created.map(time), ..base.clone() }
        };
        let csrs: Vec<Csr> = times.iter().enumerate().map(one).collect();
        let window = Window { opened: time(opened), closes: time(closes), after_long_sleep: true };
        let limits = Limits { per_node: limit, per_pass: 3, flood_margin: 5 };
        let decisions = decide(&csrs, &cluster(), &window, &limits, &Approvals::new(), at(200));
        let names: BTreeSet<_> = decisions.iter().map(|decision| decision.csr.name.clone()).collect();
        prop_assert_eq!((names.len(), decisions.len()), (csrs.len(), csrs.len()));
        let approved = decisions.iter().filter(|d| matches!(d.verdict, Verdict::Approve(_))).count();
        prop_assert!(approved <= 2 * limit.min(3), "{} approved", approved); // of two requesters
    }

    #[test]
    fn whoever_else_asks_is_left_alone(user in ".{0,40}", signer in ".{0,40}", group in ".{0,20}") {
        for base in [client(), serving()] {
            let others = [
                Csr { username: user.clone(), ..base.clone() },
                Csr { signer: signer.clone(), ..base.clone() },
                Csr { groups: [group.clone()].into(), ..base.clone() },
            ];
            let decisions = decide_on(&others, &Limits::default(), &Approvals::new());
            prop_assert!(decisions.iter().all(|decision| matches!(decision.verdict, Verdict::Leave(_))));
        }
    }
}

#[test]
fn fuzz_certificate_requests() {
    let ders = [client_subject(), serving_subject()].map(|subject| {
        let request = subject.params().serialize_request(&*KEY).unwrap();
        request.der().to_vec()
    });
    let bases = [client(), serving()];
    let seeds: Vec<&[u8]> =
        ders.iter().map(Vec::as_slice).chain(bases.iter().map(|base| base.request.as_slice())).collect();
    ::fuzz::run("CSRs", &seeds, |bytes| {
        let is_pem = bytes.starts_with(b"-----");
        let request = if is_pem { bytes.to_vec() } else { pem(bytes) };
        for base in &bases {
            let changed = Csr { request: request.clone(), ..base.clone() };
            if let Verdict::Approve(_) = judge(&changed, &cluster(), &window()).verdict {
                assert_eq!(Request::parse(&request), Request::parse(&base.request));
            }
        }
        Request::parse(&request).is_ok()
    });
}
