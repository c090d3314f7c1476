//! Why a command line names no targets.

/// Why the words of the command line name no targets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("name at least one target, or give -l SELECTOR or --all (see --help)")]
    Nothing,
    #[error(
        "{0:?} is a command: write it first (`kubectl hibernate {0} ...`), or use TYPE/{0} for a target of that name"
    )]
    Command(String),
    #[error("unknown type {word:?}; types are {known}")]
    UnknownType { word: String, known: String },
    #[error("unknown type {word:?}: -l and --all accept a TYPE but no names; types are {known}")]
    NotAType { word: String, known: String },
    #[error("{0:?} is a type: name targets of it, or give -l SELECTOR or --all")]
    TypeWithoutNames(String),
    #[error("{0:?} names a target: with -l and --all only types can be given")]
    NameWithSelector(String),
    #[error("give TYPE/NAME or TYPE NAME, not both ({0:?} and {1:?})")]
    Mixed(String, String),
    #[error("{name:?} of {word:?} is not a name: it has a slash")]
    Slash { word: String, name: String },
    #[error("{0:?} names a whole namespace: give one, and no other target")]
    NamespaceAlone(String),
    #[error("{0:?} is not a name: use lowercase letters, digits, '-' and '.'")]
    NotAName(String),
    #[error("-A cannot find a target by name: give -n NAMESPACE, or -l SELECTOR without a name")]
    NameInAllNamespaces,
    /// A kind that is only shown, in the words of its row.
    #[error("{0}")]
    OnlyShown(String),
    #[error("`plan` does not apply to {0}: only ClusterDeployments, KKP Clusters and workloads have a plan")]
    NothingToPlan(String),
    #[error("`savings` does not apply to {0}: only ClusterDeployments and KKP Clusters record their sleep")]
    NoLedger(String),
    #[error("--force does not apply to {0}: only the sleep of a KKP Cluster has a preflight that it overrides")]
    NothingToForce(String),
    #[error("--include-owned applies only to ns/NAME: a workload that is named is scaled regardless of its owner")]
    NothingOwned,
    #[error("{0}: this deletes running workloads and must be confirmed: stdin is not a terminal, so pass --yes")]
    NeedsYes(String),
    #[error("`ui` takes a TYPE, not the name {0:?}: give a TYPE, or nothing for all clusters")]
    NameInsteadOfType(String),
    #[error("-l and --all are mutually exclusive")]
    SelectorAndAll,
    #[error("-l is empty and would select everything; use --all instead")]
    EmptySelector,
}
