//! One request: docs/reference/hive.md, section 3.1, made stricter by section 3.2.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::request::Request;
use super::{Cluster, Csr, Decision, Kind, Machine, NODE_PREFIX, Reason, Verdict, Window};

/// Who asks for client certificates: its token is on the disk of each Node.
pub const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";

/// The bootstrapper's groups: exactly these, with or without the one of all service accounts.
const BOOTSTRAPPER_GROUPS: &[&[&str]] = &[
    &["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator"],
    &["system:authenticated", "system:serviceaccounts:openshift-machine-config-operator"],
];

/// A kubelet's groups, among others.
const NODE_GROUPS: &[&str] = &["system:authenticated", "system:nodes"];

const NODES: &str = "system:nodes";

/// With key encipherment for RSA keys, without for ECDSA keys.
const CLIENT_USAGES: &[&[&str]] =
    &[&["client auth", "digital signature", "key encipherment"], &["client auth", "digital signature"]];
const SERVING_USAGES: &[&[&str]] =
    &[&["digital signature", "key encipherment", "server auth"], &["digital signature", "server auth"]];

/// Judges one request by itself: how many there are of its kind is for [`super::decide`].
pub fn judge<'a>(csr: &'a Csr, cluster: &Cluster, window: &Window) -> Decision<'a> {
    let mut decision = Decision::about(csr, Verdict::Leave(Reason::Malformed));
    decision.node = csr.username.strip_prefix(NODE_PREFIX).map(str::to_owned);
    decision.verdict = match check(csr, &mut decision, cluster, window) {
        Ok(kind) => Verdict::Approve(kind),
        Err(reason) => Verdict::Leave(reason),
    };
    decision
}

fn check(csr: &Csr, decision: &mut Decision<'_>, cluster: &Cluster, window: &Window) -> Result<Kind, Reason> {
    csr.settled().map_or(Ok(()), Err)?;
    let kind = Kind::of_signer(&csr.signer).ok_or(Reason::WrongSigner)?;
    window.excludes(csr.created).map_or(Ok(()), Err)?;
    match kind {
        Kind::Client => from_bootstrapper(csr)?,
        Kind::Serving => from_node(csr)?,
    }
    let request = Request::parse(&csr.request)?;
    decision.node = request.common_name.strip_prefix(NODE_PREFIX).map(str::to_owned);
    let name = decision.node.as_deref().ok_or(Reason::WrongCommonName)?;
    require(!name.is_empty(), Reason::NoNodeName)?;
    require(request.organizations == [NODES], Reason::WrongOrganization)?;
    require(!request.other_names, Reason::ForbiddenName)?;
    match kind {
        Kind::Client => client(name, &request, cluster, window)?,
        Kind::Serving => serving(csr, name, &request, cluster)?,
    }
    decision.key = request.key;
    Ok(kind)
}

fn from_bootstrapper(csr: &Csr) -> Result<(), Reason> {
    require(csr.username == BOOTSTRAPPER, Reason::WrongUser)?;
    require(is_one_of(&csr.groups, BOOTSTRAPPER_GROUPS), Reason::WrongGroups)?;
    require(is_one_of(&csr.usages, CLIENT_USAGES), Reason::WrongUsages)
}

fn from_node(csr: &Csr) -> Result<(), Reason> {
    let name = csr.username.strip_prefix(NODE_PREFIX).ok_or(Reason::WrongUser)?;
    require(!name.is_empty(), Reason::NoNodeName)?;
    require(NODE_GROUPS.iter().all(|group| csr.groups.contains(*group)), Reason::WrongGroups)?;
    require(is_one_of(&csr.usages, SERVING_USAGES), Reason::WrongUsages)
}

/// The Node exists (the reverse of what the cluster-machine-approver asks), a Machine has its name, and its kubelet can
/// have lost its certificate.
fn client(node: &str, request: &Request, cluster: &Cluster, window: &Window) -> Result<(), Reason> {
    require(request.dns.is_empty() && request.ips.is_empty(), Reason::ExtraNames)?;
    require(!cluster.machines.is_empty(), Reason::NoMachines)?;
    require(cluster.nodes.contains(node), Reason::UnknownNode)?;
    require(!cluster.joined.contains(node), Reason::NodeAlive)?;
    require(window.after_long_sleep && !cluster.certified.contains(node), Reason::ShortSleep)?;
    let named = |machine: &&Machine| machine.internal_dns.iter().any(|name| same_host(name, node));
    let mut machines = cluster.machines.iter().filter(named).peekable();
    require(machines.peek().is_some(), Reason::UnknownMachine)?;
    let free = machines.any(|machine| machine.node.as_deref().is_none_or(|other| other == node));
    require(free, Reason::OtherNode)
}

/// The Node asks for itself, and for names of one Machine that stands for it.
fn serving(csr: &Csr, node: &str, request: &Request, cluster: &Cluster) -> Result<(), Reason> {
    require(request.common_name == csr.username, Reason::WrongCommonName)?;
    require(!(request.dns.is_empty() && request.ips.is_empty()), Reason::NoNames)?;
    require(!cluster.machines.is_empty(), Reason::NoMachines)?;
    let machines = cluster.machines.iter().filter(|machine| machine.node.as_deref() == Some(node));
    let mut result = Err(Reason::UnknownMachine);
    for machine in machines {
        result = has_names(machine, request);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn has_names(machine: &Machine, request: &Request) -> Result<(), Reason> {
    let has_dns = |wanted: &String| machine.dns.iter().any(|name| same_host(name, wanted));
    let has_ip = |wanted: &IpAddr| machine.ips.contains(wanted);
    require(request.dns.iter().all(has_dns), Reason::DnsMismatch)?;
    require(request.ips.iter().all(has_ip), Reason::IpMismatch)
}

/// DNS knows no case, and a trailing dot says that a name is complete.
fn same_host(one: &str, other: &str) -> bool {
    let bare = |name: &'_ str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    !bare(one).is_empty() && bare(one) == bare(other)
}

fn is_one_of(found: &BTreeSet<String>, allowed: &[&[&str]]) -> bool {
    allowed.iter().any(|set| found.len() == set.len() && set.iter().all(|member| found.contains(*member)))
}

fn require(holds: bool, otherwise: Reason) -> Result<(), Reason> {
    if holds { Ok(()) } else { Err(otherwise) }
}
