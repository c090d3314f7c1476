//! Approves the certificate signing requests of a waking cluster's kubelets.
//!
//! In a sleep that is longer than their lifetime, the kubelets' certificates expire, and no other approver accepts
//! their requests: the cluster-machine-approver refuses a client certificate for a Node that exists already. During a
//! wake, and only then, requests are approved that match a Node and a Machine. None is denied: other requests stay
//! pending.
//!
//! Every holder of the cluster's bootstrap credentials can create such a request, so its content is untrusted, and one
//! that cannot be read never stops the others.

mod approver;
mod decide;
mod judge;
mod kubelets;
mod reason;
mod report;
mod request;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use shared::spoke::fields::MACHINE_ROLE;
use shared::spoke::kinds::{self, CertificateRequest, MachineAddress};
use x509_parser::pem::parse_x509_pem;

pub use self::approver::Approver;
pub use self::decide::{Approval, Approvals, Limits, SETTLE, approved, decide, is_stale, is_undecided};
pub use self::judge::{BOOTSTRAPPER, judge};
pub use self::reason::Reason;
pub use self::report::{Pass, SOON};

/// User name of a kubelet, before the name of its Node.
pub const NODE_PREFIX: &str = "system:node:";

/// The clocks of two machines may differ by this much.
pub const SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Bytes that a name takes besides its own when it is kept.
const ENTRY_BYTES: usize = 160;

/// One certificate signing request, as far as it is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Csr {
    /// Its object's name.
    pub name: String,
    /// Its object's UID.
    pub uid: String,
    /// Its object's version, which an approval is bound to.
    pub resource_version: String,
    /// Who is asked to sign.
    pub signer: String,
    /// Who asks, as the API server knows them.
    pub username: String,
    /// The groups of who asks.
    pub groups: BTreeSet<String>,
    /// What the certificate is to be good for.
    pub usages: BTreeSet<String>,
    /// PKCS #10 in PEM: the only part that the requester wrote.
    pub request: Vec<u8>,
    /// When the API server took it.
    pub created: Option<Timestamp>,
    /// Types of its conditions: `Approved`, `Denied`, `Failed`.
    pub conditions: Vec<String>,
    /// When it was approved, as who approved it says.
    pub approved: Option<Timestamp>,
    /// Whether a certificate has been issued.
    pub issued: bool,
}

impl From<CertificateRequest> for Csr {
    fn from(CertificateRequest { metadata, spec, status }: CertificateRequest) -> Self {
        let approved = status.conditions.iter().find(|condition| condition.type_ == "Approved");
        Self {
            approved: approved.and_then(|condition| condition.last_update_time),
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            signer: spec.signer_name,
            username: spec.username,
            groups: spec.groups.into_iter().collect(),
            usages: spec.usages.into_iter().collect(),
            request: spec.request.0,
            created: metadata.creation_timestamp,
            conditions: status.conditions.into_iter().map(|condition| condition.type_).collect(),
            issued: !status.certificate.0.is_empty(),
        }
    }
}

impl Csr {
    /// Why it needs no decision any more, if that is so.
    pub fn settled(&self) -> Option<Reason> {
        reason(|type_| self.conditions.iter().any(|condition| condition == type_), self.issued)
    }
}

/// Why a request, as it was read, needs no decision any more, if that is so.
pub fn settled(request: &CertificateRequest) -> Option<Reason> {
    let conditions = &request.status.conditions;
    reason(|type_| conditions.iter().any(|one| one.type_ == type_), !request.status.certificate.0.is_empty())
}

/// The Node of the certificate that was issued before the wake, if it is a client's, and until when it is valid.
pub fn validity(request: &CertificateRequest, window: &Window) -> Option<(String, Timestamp)> {
    window.excludes(request.metadata.creation_timestamp).filter(|reason| *reason == Reason::TooEarly)?;
    let (_, block) = parse_x509_pem(&request.status.certificate.0).ok()?;
    let certificate = block.parse_x509().ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    let until = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
    let is_client = request.spec.signer_name == Kind::Client.signer();
    Some((name.strip_prefix(NODE_PREFIX).filter(|_| is_client)?.to_owned(), until))
}

fn reason(is: impl Fn(&str) -> bool, issued: bool) -> Option<Reason> {
    const SETTLED: &[(&str, Reason)] =
        &[("Denied", Reason::Denied), ("Failed", Reason::Failed), ("Approved", Reason::Approved)];
    let settled = SETTLED.iter().find(|(type_, _)| is(type_)).map(|(_, reason)| *reason);
    settled.or(issued.then_some(Reason::Issued))
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// A kubelet's way to its API server.
    Client,
    /// A kubelet's own server: logs, exec, metrics.
    Serving,
}

impl Kind {
    /// The only signer that issues certificates of this kind.
    pub const fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    /// The kind that a signer issues, if it is one of the two.
    pub fn of_signer(signer: &str) -> Option<Self> {
        [Self::Client, Self::Serving].into_iter().find(|kind| kind.signer() == signer)
    }
}

/// When requests belong to a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The wake's start.
    pub opened: Timestamp,
    /// Some minutes after its end.
    pub closes: Timestamp,
    /// Whether kubelets' certificates can have expired in the sleep before it.
    pub after_long_sleep: bool,
}

impl Window {
    /// Why a request of this moment does not belong to the wake, if that is so.
    pub fn excludes(&self, created: Option<Timestamp>) -> Option<Reason> {
        let opened = self.opened.saturating_sub(SKEW).unwrap_or(Timestamp::MIN);
        match created {
            Some(created) if created > self.closes => Some(Reason::TooLate),
            Some(created) if created >= opened => None,
            _ => Some(Reason::TooEarly),
        }
    }
}

/// A Machine of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The Node that it became.
    pub node: Option<String>,
    /// Its instance in its cloud.
    pub instance: Option<String>,
    /// Whether it is of the control plane.
    pub control_plane: bool,
    /// Name within the cloud's network, which is the Node's name.
    pub internal_dns: Vec<String>,
    /// Every DNS name, the internal ones too.
    pub dns: Vec<String>,
    /// Every IP address.
    pub ips: Vec<IpAddr>,
}

impl From<&kinds::Machine> for Machine {
    fn from(object: &kinds::Machine) -> Self {
        let node = object.status.node_ref.name.clone().filter(|name| !name.is_empty());
        let instance = object.spec.provider_id.as_deref().and_then(|id| id.rsplit('/').next()).map(str::to_owned);
        let control_plane = object.metadata.labels.get(MACHINE_ROLE) == Some("master");
        let mut machine = Self { node, instance, control_plane, ..Self::default() };
        for MachineAddress { type_, address } in &object.status.addresses {
            match type_.as_str() {
                "InternalDNS" => {
                    machine.internal_dns.push(address.clone());
                    machine.dns.push(address.clone());
                }
                "ExternalDNS" | "Hostname" => machine.dns.push(address.clone()),
                "InternalIP" | "ExternalIP" => {
                    machine.ips.extend(address.parse().ok().map(|address: IpAddr| address.to_canonical()));
                }
                _ => {}
            }
        }
        machine
    }
}

impl Machine {
    /// What its Node may be called.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.node.iter().chain(&self.internal_dns).map(|name| name.strip_suffix('.').unwrap_or(name))
    }
}

/// What the cluster says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Names of its Nodes.
    pub nodes: BTreeSet<String>,
    /// Those of its Nodes that get no client certificate: their kubelets renew a Lease, or they were not missing when
    /// the cluster was awake. A bootstrap credential must not become the certificate of a Node that has one.
    pub joined: BTreeSet<String>,
    /// Those of its Nodes that are of the control plane, by their own labels or by their Machines': a kubelet chooses the
    /// labels of its Node when it creates it.
    pub control_plane: BTreeSet<String>,
    /// Those of its Nodes that have a valid certificate from before the sleep, as far as its requests show.
    pub certified: BTreeSet<String>,
    /// For how long its API server has answered in this wake.
    pub answered: SignedDuration,
    /// Of that, how long each Node has not renewed its Lease although its machine ran. Those without one are not there.
    pub silent: BTreeMap<String, SignedDuration>,
    /// Whether a worker has joined in this wake and is Ready.
    pub has_ready_worker: bool,
    /// Its Machines; none if no controller manages them.
    pub machines: Vec<Machine>,
}

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Approve it.
    Approve(Kind),
    /// Leave it to others.
    Leave(Reason),
}

impl Verdict {
    /// `approve` or `leave`, for logs and labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Approve(_) => "approve",
            Self::Leave(_) => "leave",
        }
    }

    /// A stable word for the reason, for labels.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Approve(_) => "matched",
            Self::Leave(reason) => reason.into(),
        }
    }

    /// The reason for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Approve(Kind::Client) => "requested by the node bootstrapper for a Node with a Machine",
            Self::Approve(Kind::Serving) => "requested by the Node for names of its Machine",
            Self::Leave(reason) => reason.sentence(),
        }
    }
}

/// A verdict, and on what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    pub csr: &'a Csr,
    /// The Node that it says it is for, as far as it could be read.
    pub node: Option<String>,
    /// Its public key, as far as it could be read.
    pub key: Vec<u8>,
    pub verdict: Verdict,
}

impl<'a> Decision<'a> {
    /// Nothing of it is read yet.
    fn about(csr: &'a Csr, verdict: Verdict) -> Self {
        Self { csr, node: None, key: Vec::new(), verdict }
    }
}
