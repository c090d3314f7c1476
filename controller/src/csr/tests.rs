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

mod hostile;
mod wake;

const NODE: &str = "ip-10-0-152-205.ec2.internal";
const SHORT: &str = "ip-10-0-152-205";
const IP: &str = "10.0.152.205";
const MCO: &str = "openshift-machine-config-operator";
const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
const ANY_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const OPENED: i64 = 1_800_000_000;

const SERVER_AUTH: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;

static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().unwrap());

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
        // rcgen takes one value for each type: the second value gets the same OID as a custom type.
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
    let csr = client();
    let decision = judge(&csr, &cluster(), &window());
    assert_eq!((decision.node.as_deref(), Kind::of_signer(&decision.csr.signer)), (Some(NODE), Some(Kind::Client)));
    assert_eq!((decision.verdict.word(), decision.verdict.reason()), ("approve", "matched"));
    let labels: BTreeSet<&str> = Reason::iter().map(Into::into).collect();
    let sentences: BTreeSet<&str> = Reason::iter().map(Reason::sentence).collect();
    assert_eq!((labels.len(), sentences.len()), (Reason::iter().count(), Reason::iter().count()));
    assert_eq!(Verdict::Leave(Reason::WrongSigner).reason(), "wrong_signer");
    let page = include_str!("../../../docs/certificates.md");
    for label in labels {
        assert!(page.contains(&format!("| `{label}` |")), "docs/certificates.md does not explain {label}");
    }
}

fn verdicts<'a>(decisions: &[Decision<'a>]) -> Vec<(&'a str, Verdict)> {
    decisions.iter().map(|decision| (decision.csr.name.as_str(), decision.verdict)).collect()
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
    let csrs = [bad, serving(), client()];
    let decisions = decide_on(&csrs, &Limits::default(), &Approvals::new());
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
fn decide_on<'a>(csrs: &'a [Csr], limits: &Limits, already: &Approvals) -> Vec<Decision<'a>> {
    decide(csrs, &cluster(), &window(), limits, already, at(200))
}

/// DER in PEM.
fn pem(der: &[u8]) -> Vec<u8> {
    let quoted = serde_json::to_string(&k8s_openapi::ByteString(der.to_vec())).unwrap();
    let body: Vec<&str> =
        quoted.trim_matches('"').as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    let body = body.join("\n");
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
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
