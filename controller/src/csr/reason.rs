//! Why a request is left alone: a word for metrics and a sentence for logs.

/// Why a request is left alone.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr, strum::EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// It is approved already.
    Approved,
    /// It is denied already.
    Denied,
    /// The signer has refused it.
    Failed,
    /// There is a certificate.
    Issued,
    /// Not a signer of kubelets' certificates.
    WrongSigner,
    /// From before the wake.
    TooEarly,
    /// From after the wake.
    TooLate,
    /// Not PKCS #10 in PEM.
    Malformed,
    /// Not signed with its own key.
    BadSignature,
    /// The requester may not ask for this.
    WrongUser,
    /// The requester's groups are not those of such a requester.
    WrongGroups,
    /// Not the usages of this kind of certificate.
    WrongUsages,
    /// The common name is not that of a Node, or not the requester's.
    WrongCommonName,
    /// The Node's name is empty.
    NoNodeName,
    /// The organization is not exactly `system:nodes`.
    WrongOrganization,
    /// More in the subject than common name and organization.
    ExtraSubject,
    /// An attribute or an extension that kubelets do not ask for.
    ExtraExtension,
    /// Alternative names in a client certificate.
    ExtraNames,
    /// An email address, URI or another name that servers do not have.
    ForbiddenName,
    /// No name that the certificate could be good for.
    NoNames,
    /// A DNS name that is not the Machine's.
    DnsMismatch,
    /// An IP address that is not the Machine's.
    IpMismatch,
    /// The cluster has no Machines at all.
    NoMachines,
    /// No such Node.
    UnknownNode,
    /// The Node has a kubelet with a certificate: it renews its Lease, or was not missing when the cluster was awake.
    NodeAlive,
    /// The Node's certificate cannot have expired in the sleep, or is not known to have.
    ShortSleep,
    /// No Machine of this Node.
    UnknownMachine,
    /// The Machine is another Node's.
    OtherNode,
    /// More than one key asks for the Node in this wake.
    TwoKeys,
    /// No machine of the Node runs: only an attacker can ask.
    NoMachineRuns,
    /// The Node has not had the time to show that it needs no certificate.
    Settling,
    /// Control-plane Nodes come after a worker, one at a time.
    NotItsTurn,
    /// Enough for one Node in this wake.
    NodeLimit,
    /// Enough for one pass.
    PassLimit,
    /// Its kubelet waits no longer for an answer.
    Stale,
    /// More requests than the cluster can have nodes.
    Flood,
}

impl Reason {
    /// Whether there is nothing left to decide: another approver has decided.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Approved | Self::Denied | Self::Failed | Self::Issued)
    }

    /// For people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Approved => "it is approved already",
            Self::Denied => "already denied",
            Self::Failed => "the signer has refused it",
            Self::Issued => "its certificate has been issued",
            Self::WrongSigner => "its signer does not issue kubelets' certificates",
            Self::TooEarly => "it is older than this wake",
            Self::TooLate => "it was created after the approval window closed",
            Self::Malformed => "it is not one PKCS #10 request in PEM",
            Self::BadSignature => "it is not signed with its own key",
            Self::WrongUser => "its requester may not ask for such a certificate",
            Self::WrongGroups => "the requester's groups are not allowed for this certificate",
            Self::WrongUsages => "the key usages are not allowed for this certificate",
            Self::WrongCommonName => "its common name is not that of a Node, or not that of its requester",
            Self::NoNodeName => "the name of its Node is empty",
            Self::WrongOrganization => "its organization is not exactly system:nodes",
            Self::ExtraSubject => "its subject has more than one common name and organizations",
            Self::ExtraExtension => "it asks for an attribute or extension that kubelets do not ask for",
            Self::ExtraNames => "a client certificate has no alternative names",
            Self::ForbiddenName => "it asks for an email address, a URI or another name that kubelets do not have",
            Self::NoNames => "a serving certificate needs a DNS name or an IP address",
            Self::DnsMismatch => "it asks for a DNS name that its Machine does not have",
            Self::IpMismatch => "it asks for an IP address that its Machine does not have",
            Self::NoMachines => "the cluster has no Machines to match it with; approve it by hand",
            Self::UnknownNode => "the cluster has no such Node",
            Self::NodeAlive => "the kubelet of this Node is alive, and needs no client certificate",
            Self::ShortSleep => "the recorded sleep was too short for the certificate of this Node to expire",
            Self::UnknownMachine => "no Machine belongs to this Node",
            Self::OtherNode => "the Machine of this name belongs to another Node",
            Self::TwoKeys => "more than one key asks for this Node in this wake: none is approved",
            Self::NoMachineRuns => "no running machine of the cloud belongs to this Node",
            Self::Settling => "this Node still has time to show that it needs no certificate",
            Self::NotItsTurn => "control-plane Nodes follow a Ready worker, one at a time",
            Self::NodeLimit => "the limit for this Node in this wake is reached",
            Self::Stale => "it is older than 15 minutes: its kubelet has made another one",
            Self::PassLimit => "the limit per pass is reached; the next pass continues",
            Self::Flood => "undecided requests of its requester exceed the number of nodes by more than 100",
        }
    }
}
