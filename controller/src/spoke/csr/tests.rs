//! The cases that the cluster-machine-approver tests (docs/reference/hive.md, section 7), with our answers: where the
//! Node has to exist, and where we are stricter, they differ.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use rcgen::{
    Attribute, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType,
};
use strum::IntoEnumIterator as _;

use super::Reason as R;
use super::request::Request;
use super::*;

const NODE: &str = "ip-10-0-152-205.ec2.internal";
const SHORT: &str = "ip-10-0-152-205";
const IP: &str = "10.0.152.205";
const MCO: &str = "openshift-machine-config-operator";
const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
const ANY_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const OPENED: i64 = 1_800_000_000;

const SERVER_AUTH: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;

static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().unwrap());

/// Requests of three masters and a worker, with three keys each.
static REQUESTS: LazyLock<Vec<Vec<Csr>>> = LazyLock::new(|| {
    let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate().unwrap()).collect();
    let nodes = [MASTERS[0], MASTERS[1], MASTERS[2], "worker"];
    nodes.iter().map(|node| keys.iter().flat_map(|key| asked(&[node], key)).collect()).collect()
});

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(OPENED + seconds).unwrap()
}

fn window() -> Window {
    Window { opened: at(0), closes: at(1_200), after_long_sleep: true }
}

/// What goes into the PKCS #10.
#[derive(Clone)]
struct Subject {
    cn: Vec<&'static str>,
    o: Vec<&'static str>,
    ou: Option<&'static str>,
    names: Vec<SanType>,
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

fn email() -> SanType {
    SanType::Rfc822Name("a@b.c".try_into().unwrap())
}

fn uri() -> SanType {
    SanType::URI("spiffe://a/b".try_into().unwrap())
}

fn ip(address: &str) -> SanType {
    SanType::IpAddress(address.parse().unwrap())
}

impl Subject {
    fn params(&self) -> CertificateParams {
        const ORGANIZATION: &[u64] = &[2, 5, 4, 10];
        const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
        let mut name = DistinguishedName::new();
        // rcgen takes one of each type; the second is told apart by naming its type otherwise.
        for (first, oid, values) in
            [(DnType::OrganizationName, ORGANIZATION, &self.o), (DnType::CommonName, COMMON_NAME, &self.cn)]
        {
            let types = [first, DnType::CustomDnType(oid.to_vec())];
            types.into_iter().zip(values).for_each(|(type_, value)| name.push(type_, *value));
        }
        if let Some(unit) = self.ou {
            name.push(DnType::OrganizationalUnitName, unit);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.subject_alt_names.clone_from(&self.names);
        params
    }

    fn pem(&self) -> Vec<u8> {
        self.signed_by(&KEY)
    }

    fn signed_by(&self, key: &KeyPair) -> Vec<u8> {
        self.params().serialize_request(key).unwrap().pem().unwrap().into_bytes()
    }
}

fn client_subject() -> Subject {
    Subject {
        cn: vec!["system:node:ip-10-0-152-205.ec2.internal"],
        o: vec!["system:nodes"],
        ou: None,
        names: Vec::new(),
    }
}

fn serving_subject() -> Subject {
    Subject { names: vec![dns(SHORT), dns(NODE), ip(IP)], ..client_subject() }
}

/// The words of a list with commas.
fn words(list: &str) -> BTreeSet<String> {
    list.split(", ").filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
}

fn client() -> Csr {
    Csr {
        name: "csr-client".into(),
        uid: "uid-client".into(),
        resource_version: "7".into(),
        signer: "kubernetes.io/kube-apiserver-client-kubelet".into(),
        username: BOOTSTRAPPER.into(),
        groups: words(
            "system:serviceaccounts:openshift-machine-config-operator, system:serviceaccounts, system:authenticated",
        ),
        usages: words("digital signature, key encipherment, client auth"),
        request: client_subject().pem(),
        created: Some(at(30)),
        ..Csr::default()
    }
}

fn serving() -> Csr {
    Csr {
        name: "csr-serving".into(),
        uid: "uid-serving".into(),
        signer: "kubernetes.io/kubelet-serving".into(),
        username: format!("system:node:{NODE}"),
        groups: words("system:authenticated, system:nodes"),
        usages: words("digital signature, key encipherment, server auth"),
        request: serving_subject().pem(),
        ..client()
    }
}

fn machine() -> Machine {
    Machine {
        node: Some(NODE.into()),
        instance: None,
        control_plane: false,
        internal_dns: vec![NODE.into()],
        dns: vec![NODE.into(), SHORT.into(), "node1.example.org".into()],
        ips: vec![IP.parse().unwrap(), "203.0.113.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
    }
}

fn cluster() -> Cluster {
    let other = Machine { node: Some("other".into()), internal_dns: vec!["other".into()], ..Machine::default() };
    Cluster {
        nodes: [NODE.to_owned(), "other".to_owned()].into(),
        machines: vec![other, machine()],
        answered: SETTLE,
        silent: silent(&[NODE, "other"], SETTLE),
        ..Cluster::default()
    }
}

/// These Nodes have been silent for so long.
fn silent(nodes: &[&str], time: SignedDuration) -> BTreeMap<String, SignedDuration> {
    nodes.iter().map(|node| ((*node).to_owned(), time)).collect()
}

type Change = fn(&mut Csr, &mut Cluster);

/// What is changed about a good request, or about the cluster, and why it is left then.
type Row<'a> = (&'a str, Change, Reason);

/// The request with one field of its subject changed.
fn subject(csr: &mut Csr, change: fn(&mut Subject)) {
    let mut subject = if csr.signer == Kind::Client.signer() { client_subject() } else { serving_subject() };
    change(&mut subject);
    csr.request = subject.pem();
}

fn params(csr: &mut Csr, change: fn(&mut CertificateParams)) {
    let mut params = if csr.signer == Kind::Client.signer() { client_subject() } else { serving_subject() }.params();
    change(&mut params);
    csr.request = params.serialize_request(&*KEY).unwrap().pem().unwrap().into_bytes();
}

fn check_table(kind: Kind, base: &Csr, approved: &[(&str, Change)], left: &[Row<'_>]) {
    let approved = approved.iter().map(|(case, change)| (*case, *change, Verdict::Approve(kind)));
    let left = left.iter().map(|(case, change, reason)| (*case, *change, Verdict::Leave(*reason)));
    for (case, change, expected) in approved.chain(left) {
        let (mut csr, mut cluster) = (base.clone(), cluster());
        change(&mut csr, &mut cluster);
        assert_eq!(judge(&csr, &cluster, &window()).verdict, expected, "{kind}: {case}");
    }
}

#[test]
fn serving_certificates() {
    let approved: &[(&str, Change)] = &[
        ("ok", |_, _| ()),
        ("ok with ECDSA", |csr, _| csr.usages = words("digital signature, server auth")),
        // A group more does not make a kubelet less of one: the certificate has none of them.
        ("extra-group", |csr, _| csr.groups = words("system:authenticated, system:nodes, foo")),
        ("csr-san-dns-trailing-period", |_, c| c.machines[1].dns = [NODE, SHORT].map(|name| format!("{name}.")).into()),
        ("upper case name", |csr, _| subject(csr, |s| s.names = vec![dns("IP-10-0-152-205.EC2.internal")])),
        ("external address", |csr, _| subject(csr, |s| s.names = vec![dns("node1.example.org"), ip("203.0.113.7")])),
        ("IPv6", |csr, _| subject(csr, |s| s.names = vec![ip("2001:DB8:0::7")])),
        ("IPv4 as IPv6", |csr, _| subject(csr, |s| s.names = vec![ip("::ffff:10.0.152.205")])),
    ];
    let left: &[Row<'_>] = &[
        ("bad-csr", |csr, _| csr.request = b"not a request".to_vec(), R::Malformed),
        ("no-node-prefix", |csr, _| csr.username = NODE.into(), R::WrongUser),
        ("only-node-prefix", |csr, _| csr.username = "system:node:".into(), R::NoNodeName),
        ("no-machine-status-ref", |_, cluster| cluster.machines[1].node = None, R::UnknownMachine),
        ("another node's machine", |_, c| c.machines[1].node = Some("other".into()), R::UnknownMachine),
        ("missing-groups-1", |csr, _| csr.groups = words("system:nodes"), R::WrongGroups),
        ("missing-groups-2", |csr, _| csr.groups = words("system:authenticated"), R::WrongGroups),
        ("wrong-group", |csr, _| csr.groups = words("system:authenticated, foo"), R::WrongGroups),
        ("usages-missing", |csr, _| csr.usages = BTreeSet::new(), R::WrongUsages),
        ("usages-missing-1", |csr, _| csr.usages = words("key encipherment, server auth"), R::WrongUsages),
        ("usages-missing-2", |csr, _| csr.usages = words("server auth"), R::WrongUsages),
        ("usage-extra", |csr, _| csr.usages.extend(["client auth".to_owned()]), R::WrongUsages),
        ("another third usage", |csr, _| csr.usages = words("digital signature, server auth, any"), R::WrongUsages),
        ("csr-cn", |csr, _| subject(csr, |s| s.cn = vec!["system:node:other"]), R::WrongCommonName),
        ("csr-cn-2", |csr, _| subject(csr, |s| s.cn = vec!["ip-10-0-152-205"]), R::WrongCommonName),
        ("csr-cn missing", |csr, _| subject(csr, |s| s.cn = vec![]), R::WrongCommonName),
        ("csr-no-o", |csr, _| subject(csr, |s| s.o = vec![]), R::WrongOrganization),
        ("masters' organization", |csr, _| subject(csr, |s| s.o = vec!["system:masters"]), R::WrongOrganization),
        ("csr-extra-addr", |csr, _| subject(csr, |s| s.names.push(ip("99.0.1.1"))), R::IpMismatch),
        ("csr-san-ip-mismatch", |csr, _| subject(csr, |s| s.names = vec![dns(NODE), ip("10.0.1.2")]), R::IpMismatch),
        ("csr-san-dns-mismatch", |csr, _| subject(csr, |s| s.names = vec![dns("elsewhere"), ip(IP)]), R::DnsMismatch),
        ("wildcard name", |csr, _| subject(csr, |s| s.names.push(dns("*.ec2.internal"))), R::DnsMismatch),
        ("empty name", |csr, _| subject(csr, |s| s.names.push(dns(""))), R::DnsMismatch),
        ("address as a name", |csr, _| subject(csr, |s| s.names.push(dns(IP))), R::DnsMismatch),
        (
            "names of two machines",
            |csr, cluster| {
                cluster.machines[0].dns = vec!["other".into()];
                subject(csr, |s| s.names = vec![dns(NODE), dns("other")]);
            },
            R::DnsMismatch,
        ),
        ("no names", |csr, _| subject(csr, |s| s.names = vec![]), R::NoNames),
        ("email", |csr, _| subject(csr, |s| s.names.push(email())), R::ForbiddenName),
        ("URI", |csr, _| subject(csr, |s| s.names.push(uri())), R::ForbiddenName),
        ("a client's signer", |csr, _| csr.signer = Kind::Client.signer().into(), R::WrongUser),
        ("another signer", |csr, _| csr.signer = ANY_CLIENT.into(), R::WrongSigner),
        ("legacy signer", |csr, _| csr.signer = "kubernetes.io/legacy-unknown".into(), R::WrongSigner),
        ("no machines at all", |_, cluster| cluster.machines.clear(), R::NoMachines),
        ("asked for by another node", |csr, _| csr.username = "system:node:other".into(), R::WrongCommonName),
    ];
    check_table(Kind::Serving, &serving(), approved, left);
}

#[test]
fn client_certificates() {
    let approved: &[(&str, Change)] = &[
        ("client good", |_, _| ()),
        ("client good, upper case DNS", |_, c| c.machines[1].internal_dns = vec![NODE.to_uppercase()]),
        ("client good, trailing dot", |_, c| c.machines[1].internal_dns = vec![format!("{NODE}.")]),
        ("ok with ECDSA", |csr, _| csr.usages = words("digital signature, client auth")),
        ("without a group", |csr, _| csr.groups.retain(|g| g != "system:serviceaccounts")),
        ("machine has this node ref", |_, c| c.machines[1].node = Some(NODE.into())),
        ("machine has no node ref", |_, c| c.machines[1].node = None),
        ("timing: at the start", |csr, _| csr.created = Some(at(-10))),
        ("timing: at the end", |csr, _| csr.created = Some(at(1_200))),
    ];
    let left: &[Row<'_>] = &[
        ("bad-csr", |csr, _| csr.request = Vec::new(), R::Malformed),
        ("client extra O", |csr, _| subject(csr, |s| s.o.push("system:masters")), R::WrongOrganization),
        ("only masters' O", |csr, _| subject(csr, |s| s.o = vec!["system:masters"]), R::WrongOrganization),
        ("no O", |csr, _| subject(csr, |s| s.o = vec![]), R::WrongOrganization),
        ("client with DNS", |csr, _| subject(csr, |s| s.names = vec![dns(NODE)]), R::ExtraNames),
        ("client with IP", |csr, _| subject(csr, |s| s.names = vec![ip(IP)]), R::ExtraNames),
        ("client with email", |csr, _| subject(csr, |s| s.names = vec![email()]), R::ForbiddenName),
        ("extra usage", |csr, _| csr.usages.extend(["cert sign".to_owned()]), R::WrongUsages),
        (
            "wrong usage",
            |csr, _| csr.usages = words("digital signature, key encipherment, server auth"),
            R::WrongUsages,
        ),
        ("missing usage", |csr, _| csr.usages = words("key encipherment, client auth"), R::WrongUsages),
        ("wrong CN", |csr, _| subject(csr, |s| s.cn = vec!["system:admin"]), R::WrongCommonName),
        ("foreign node", |csr, _| subject(csr, |s| s.cn = vec!["system:node:stranger"]), R::UnknownNode),
        ("second CN", |csr, _| subject(csr, |s| s.cn.push("system:admin")), R::ExtraSubject),
        ("organizational unit", |csr, _| subject(csr, |s| s.ou = Some("x")), R::ExtraSubject),
        ("wrong user", |csr, _| csr.username = BOOTSTRAPPER.replace(MCO, "default"), R::WrongUser),
        ("a node's own renewal", |csr, _| csr.username = format!("system:node:{NODE}"), R::WrongUser),
        (
            "wrong user group",
            |csr, _| csr.groups = words("system:serviceaccounts, system:authenticated"),
            R::WrongGroups,
        ),
        ("extra user group", |csr, _| csr.groups.extend(["system:masters".to_owned()]), R::WrongGroups),
        ("empty name", |csr, _| subject(csr, |s| s.cn = vec!["system:node:"]), R::NoNodeName),
        // The reverse of the cluster-machine-approver's "node exists".
        ("node is alive", |_, cluster| cluster.joined.extend([NODE.to_owned()]), R::NodeAlive),
        ("short sleep", |_, cluster| cluster.certified.extend([NODE.to_owned()]), R::ShortSleep),
        ("node does not exist", |_, cluster| cluster.nodes.retain(|node| node != NODE), R::UnknownNode),
        ("missing machine", |_, cluster| drop(cluster.machines.pop()), R::UnknownMachine),
        ("no machines at all", |_, cluster| cluster.machines.clear(), R::NoMachines),
        ("machine has another node ref", |_, c| c.machines[1].node = Some("other".into()), R::OtherNode),
        ("only an external name", |_, c| c.machines[1].internal_dns.clear(), R::UnknownMachine),
        ("too early", |csr, _| csr.created = Some(at(-11)), R::TooEarly),
        ("too late", |csr, _| csr.created = Some(at(1_201)), R::TooLate),
        ("never created", |csr, _| csr.created = None, R::TooEarly),
        ("approved", |csr, _| csr.conditions = vec!["Approved".into()], R::Approved),
        ("denied", |csr, _| csr.conditions = vec!["Denied".into()], R::Denied),
        ("failed", |csr, _| csr.conditions = vec!["Approved".into(), "Failed".into()], R::Failed),
        ("issued", |csr, _| csr.issued = true, R::Issued),
        ("serving's signer", |csr, _| csr.signer = Kind::Serving.signer().into(), R::WrongUser),
        ("any client's signer", |csr, _| csr.signer = ANY_CLIENT.into(), R::WrongSigner),
        ("no signer", |csr, _| csr.signer = String::new(), R::WrongSigner),
        ("asks for a usage", |csr, _| params(csr, |p| p.extended_key_usages = vec![SERVER_AUTH]), R::ExtraExtension),
        (
            "asks for an extension",
            |csr, _| {
                params(csr, |p| p.custom_extensions.push(CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0])));
            },
            R::ExtraExtension,
        ),
        (
            "two lists of extensions",
            |csr, _| {
                // A second extension request, empty: a reader that knows one list would not see the other.
                const EXTENSION_REQUEST: &[u64] = &[1, 2, 840, 113_549, 1, 9, 14];
                let second = Attribute { oid: EXTENSION_REQUEST, values: vec![0x31, 0x02, 0x30, 0x00] };
                let request = serving_subject().params().serialize_request_with_attributes(&*KEY, vec![second]);
                csr.request = request.unwrap().pem().unwrap().into_bytes();
            },
            R::ExtraExtension,
        ),
        ("text before the block", |csr, _| csr.request.splice(0..0, *b"hello\n").for_each(drop), R::Malformed),
        ("endless text", |csr, _| csr.request.extend(b"\n".repeat(40_000)), R::Malformed),
        (
            "two blocks",
            |csr, _| {
                let again = csr.request.clone();
                csr.request.extend(again);
            },
            R::Malformed,
        ),
        (
            "another label",
            |csr, _| {
                let text = String::from_utf8(csr.request.clone()).unwrap();
                csr.request = text.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST").into_bytes();
            },
            R::Malformed,
        ),
        (
            "another key's signature",
            |csr, _| {
                let der = client_subject().params().serialize_request(&*KEY).unwrap().der().to_vec();
                let other = KeyPair::generate().unwrap().public_key_raw().to_vec();
                let ours = KEY.public_key_raw();
                let start = der.windows(ours.len()).position(|part| part == ours).unwrap();
                csr.request = pem(&[&der[..start], &other, &der[start + ours.len()..]].concat());
            },
            R::BadSignature,
        ),
    ];
    check_table(Kind::Client, &client(), approved, left);
}

#[test]
fn other_kinds_of_keys() {
    let algorithms =
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519, &rcgen::PKCS_RSA_SHA256];
    for algorithm in algorithms {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let request = client_subject().params().serialize_request(&key).unwrap().pem().unwrap();
        assert!(Request::parse(request.as_bytes()).is_ok(), "{algorithm:?}");
    }
}

#[test]
fn a_decision_names_the_node_and_every_reason_has_words() {
    let decision = judge(&client(), &cluster(), &window());
    assert_eq!((decision.node.as_deref(), decision.kind), (Some(NODE), Some(Kind::Client)));
    assert_eq!((decision.verdict.word(), decision.verdict.reason()), ("approve", "matched"));
    let labels: BTreeSet<&str> = Reason::iter().map(Into::into).collect();
    let sentences: BTreeSet<&str> = Reason::iter().map(Reason::sentence).collect();
    assert_eq!((labels.len(), sentences.len()), (Reason::iter().count(), Reason::iter().count()));
    assert_eq!(Verdict::Leave(Reason::WrongSigner).reason(), "wrong_signer");
    let page = include_str!("../../../../docs/certificates.md");
    for label in labels {
        assert!(page.contains(&format!("| `{label}` |")), "docs/certificates.md does not explain {label}");
    }
}

fn verdicts(decisions: &[Decision]) -> Vec<(&str, Verdict)> {
    decisions.iter().map(|decision| (decision.name.as_str(), decision.verdict)).collect()
}

/// That many client requests of one node, a second apart.
fn many(count: usize) -> Vec<Csr> {
    let one = client();
    let numbered = |number: usize| Csr {
        name: format!("csr-{number:03}"),
        uid: format!("uid-{number}"),
        created: Some(at(i64::try_from(number).unwrap())),
        ..one.clone()
    };
    (0..count).map(numbered).collect()
}

#[test]
fn one_bad_request_does_not_stop_the_others() {
    let bad = Csr { name: "csr-bad".into(), request: b"\xff\x00".to_vec(), created: Some(at(0)), ..client() };
    let decisions = decide(&[bad, serving(), client()], &Limits::default(), &Approvals::new());
    assert_eq!(
        verdicts(&decisions),
        [
            ("csr-bad", Verdict::Leave(Reason::Malformed)),
            ("csr-client", Verdict::Approve(Kind::Client)),
            ("csr-serving", Verdict::Approve(Kind::Serving)),
        ]
    );
}

/// The same for serving certificates.
fn served(count: usize) -> Vec<Csr> {
    let kubelets = |csr: Csr| Csr { name: csr.name, uid: csr.uid, created: csr.created, ..serving() };
    many(count).into_iter().map(kubelets).collect()
}

/// The same as the controller asks it, in a cluster that can show its need of certificates.
fn decide(csrs: &[Csr], limits: &Limits, already: &Approvals) -> Vec<Decision> {
    pass(csrs, &cluster(), &window(), limits, already, at(200))
}

/// That many approvals of the node's serving certificate, as this process remembers them.
fn remembered(node: &str, count: usize) -> Approvals {
    let key = Request::parse(&client().request).unwrap().key;
    let (name, kind) = ("csr-gone".to_owned(), Kind::Serving);
    let one = Approval { name, node: node.to_owned(), kind, key, at: at(100) };
    (0..count).map(|number| (format!("uid-{number}"), one.clone())).collect()
}

#[test]
fn a_node_gets_so_many_and_no_more() {
    let limits = Limits { per_node: 3, ..Limits::default() };
    let approvals = |csrs: &[Csr], already: &Approvals| {
        let decisions = decide(csrs, &limits, already);
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
    let decisions = pass(csrs, cluster, window, &Limits::default(), already, at(now));
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
    let flood = |now| outcomes(&many(300), &super::tests::cluster(), &window(), &none, now);
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

#[test]
fn a_pass_approves_so_many_and_the_next_goes_on() {
    let limits = Limits { per_pass: 2, ..Limits::default() };
    let decisions = decide(&[served(3), vec![client()]].concat(), &limits, &Approvals::new());
    let last = ("csr-002", Verdict::Leave(Reason::PassLimit));
    let serving = Verdict::Approve(Kind::Serving);
    let asked = ("csr-client", Verdict::Approve(Kind::Client));
    assert_eq!(verdicts(&decisions)[1..], [("csr-001", serving), last, asked], "of one requester");
}

#[test]
fn a_flood_is_not_approved_at_all() {
    let limits = Limits { flood_margin: 3, ..Limits::default() };
    let all = |csrs: &[Csr]| decide(csrs, &limits, &Approvals::new());
    assert!(all(&served(5)).iter().all(|d| d.verdict == Verdict::Approve(Kind::Serving)), "2 nodes and 3");
    assert!(all(&served(6)).iter().all(|d| d.verdict == Verdict::Leave(Reason::Flood)));
    let unread = all(&served(6).into_iter().map(|csr| Csr { request: Vec::new(), ..csr }).collect::<Vec<_>>());
    assert!(unread.iter().all(|d| (d.verdict, &d.node) == (Verdict::Leave(Reason::Flood), &None)));
    // One requester's flood is no other's.
    let others = all(&[served(6), vec![Csr { created: Some(at(31)), ..client() }]].concat());
    assert_eq!(others.last().map(|d| d.verdict), Some(Verdict::Approve(Kind::Client)));
    // Old ones, settled ones and those of other signers are no flood.
    let mut mixed = served(8);
    mixed[0].conditions = vec!["Denied".into()];
    mixed[1].signer = "example.org/other".into();
    mixed[2].created = Some(at(-86_400));
    assert_eq!(all(&mixed).iter().filter(|d| matches!(d.verdict, Verdict::Approve(_))).count(), 5);
}

/// DER in PEM.
fn pem(der: &[u8]) -> Vec<u8> {
    let quoted = serde_json::to_string(&k8s_openapi::ByteString(der.to_vec())).unwrap();
    let body: Vec<&str> =
        quoted.trim_matches('"').as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    let body = body.join("\n");
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
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

#[test]
fn a_request_and_a_machine_are_read_as_the_api_server_writes_them() {
    let conditions =
        serde_json::json!([{ "type": "Approved", "status": "True", "lastUpdateTime": "2027-01-15T08:00:07Z" }]);
    let read: CertificateRequest =
        serde_json::from_value(serde_json::json!({ "status": { "conditions": conditions } })).unwrap();
    assert_eq!(Csr::from(read).approved, Some(at(7)));
    let read: kinds::Machine = serde_json::from_value(serde_json::json!({
        "metadata": { "labels": { "machine.openshift.io/cluster-api-machine-role": "master" } },
        "spec": { "providerID": "aws:///us-east-1a/i-7" },
        "status": { "addresses": [{ "type": "InternalDNS", "address": "master-0." }] },
    }))
    .unwrap();
    let machine = Machine::from(&read);
    let names: Vec<&str> = machine.names().collect();
    assert_eq!((machine.control_plane, machine.instance.as_deref(), names), (true, Some("i-7"), vec!["master-0"]));
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
        let decisions = pass(&csrs, &cluster(), &window, &limits, &Approvals::new(), at(200));
        let names: BTreeSet<_> = decisions.iter().map(|decision| decision.name.clone()).collect();
        prop_assert_eq!((names.len(), decisions.len()), (csrs.len(), csrs.len()));
        let approved = decisions.iter().filter(|d| matches!(d.verdict, Verdict::Approve(_))).count();
        prop_assert!(approved <= 2 * limit.min(3), "{} approved", approved); // of two requesters
    }

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
        let decisions = pass(&csrs, &cluster, &window(), &Limits::default(), &Approvals::new(), at(now));
        let mut keys: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        let (mut masters, mut of_pass, mut of_nodes) = (BTreeSet::new(), 0, BTreeMap::new());
        for (number, (node, key, created, condition)) in asked_for.iter().enumerate() {
            let uid = number.to_string();
            let approves = decisions.iter().any(|d| d.uid == uid && matches!(d.verdict, Verdict::Approve(_)));
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

    #[test]
    fn whoever_else_asks_is_left_alone(user in ".{0,40}", signer in ".{0,40}", group in ".{0,20}") {
        for base in [client(), serving()] {
            let others = [
                Csr { username: user.clone(), ..base.clone() },
                Csr { signer: signer.clone(), ..base.clone() },
                Csr { groups: [group.clone()].into(), ..base.clone() },
            ];
            let decisions = decide(&others, &Limits::default(), &Approvals::new());
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
