//! How targets are written on the command line.

use shared::workload::kinds::Kind;

use crate::{
    cli::COMMANDS,
    read::{fdb::is_fdb_word, pool::is_pool_word},
    select::{CLUSTER_DEPLOYMENT, kinds, kinds_named},
};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Targets by name, in the order given.
    Named(Vec<Reference>),
    /// All targets of these kinds, with labels if any are asked for. A word such as `md` can name several kinds.
    Query {
        /// Kinds, each group being alternatives of one word.
        kinds: Vec<&'static Kind>,
        /// Label selector, empty for all.
        selector: String,
    },
}

/// One target by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Kinds that it can be of: all if no type was given.
    pub(crate) kinds: Vec<&'static Kind>,
    /// The type as it was typed, if any.
    pub(crate) word: Option<String>,
    /// Its name.
    pub(crate) name: String,
}

/// What the flags beside the words say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags<'a> {
    /// `-l`.
    pub(crate) selector: Option<&'a str>,
    /// `--all`; always on for a command that lists when nothing is named.
    pub(crate) all: bool,
    /// `-A`.
    pub(crate) all_namespaces: bool,
    /// Whether the command lists by itself, as `status` does.
    pub(crate) lists: bool,
}

/// Why targets cannot be understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("name at least one target, or give -l SELECTOR or --all (see --help)")]
    Nothing,
    #[error("{0:?} is a command: write `kubectl hibernate {0} ...` first, or TYPE/{0} for a target of that name")]
    Command(String),
    #[error("unknown type {word:?}; types are {known}", known = known_types())]
    UnknownType { word: String },
    #[error(
        "unknown type {word:?}: -l and --all go with a TYPE or with nothing, no names can be given with them; types are {known}",
        known = known_types()
    )]
    NotAType { word: String },
    #[error("{0:?} is a type: name targets of it, or give -l SELECTOR or --all")]
    TypeWithoutNames(String),
    #[error("{0:?} names a target: with -l and --all only types can be given")]
    NameWithSelector(String),
    #[error("give TYPE/NAME or TYPE NAME, not both ({0:?} and {1:?})")]
    Mixed(String, String),
    #[error("{name:?} of {word:?} is not a name: it has a slash")]
    Slash { word: String, name: String },
    #[error("{0:?} is not a name: lower case letters, digits, '-' and '.' are")]
    NotAName(String),
    #[error("-A cannot find a target by name: give -n NAMESPACE, or -l SELECTOR or --all")]
    NameInAllNamespaces,
    #[error(
        "a ClusterPool is never put to sleep itself: change its spec.runningCount, or name its clusters (see \
         `kubectl hibernate status {0}`)"
    )]
    Pool(String),
    #[error("pools are shown by themselves, not together with {0:?}")]
    PoolsAndOthers(String),
    #[error("FoundationDBClusters are shown by themselves, not together with {0:?}")]
    FdbAndOthers(String),
    #[error(
        "--watch does not follow FoundationDBClusters: `kubectl get pvc --watch` shows what happens to their volumes"
    )]
    FdbIsNotWatched,
    #[error(
        "a FoundationDBCluster is not put to sleep by this program: `kubectl hibernate status {0}` shows it, `kubectl hibernate \
         recover process-groups` brings its process groups back"
    )]
    Fdb(String),
    #[error("--watch does not follow pools: name their clusters")]
    PoolsAreNotWatched,
    #[error("{0} has nothing to plan: only ClusterDeployments sleep with their machines")]
    NothingToPlan(String),
    #[error("-l and --all exclude each other")]
    SelectorAndAll,
    #[error("-l is empty: it would select everything; give --all if that is meant")]
    EmptySelector,
}

fn known_types() -> String {
    let names = kinds().map(|kind| format!("{}.{} ({})", kind.plural, kind.group, kind.short.join(", ")));
    names.collect::<Vec<_>>().join(", ")
}

/// Understands the words of the command line.
///
/// # Errors
/// When they are not targets, or contradict the flags.
pub(crate) fn parse(words: &[String], flags: Flags<'_>) -> Result<Selection, UsageError> {
    if flags.selector.is_some() && flags.all && !flags.lists {
        return Err(UsageError::SelectorAndAll);
    }
    // `-l "$LABELS"` with nothing in it is harmless only where nothing is changed.
    let selector = flags.selector.filter(|selector| !selector.trim().is_empty());
    if selector.is_none() && flags.selector.is_some() && !flags.lists {
        return Err(UsageError::EmptySelector);
    }
    if selector.is_some() || flags.all {
        return query(words, selector.unwrap_or_default());
    }
    let Some(first) = words.first() else {
        return if flags.lists { query(&[], "") } else { Err(UsageError::Nothing) };
    };
    let types = types_of(first);
    if !first.contains('/') && words.len() == 1 && types.is_ok() {
        return if flags.lists { query(words, "") } else { Err(UsageError::TypeWithoutNames(first.clone())) };
    }
    if flags.all_namespaces {
        return Err(UsageError::NameInAllNamespaces);
    }
    if words.len() > 1 && is_pool_word(first) {
        return Err(UsageError::Pool(format!("pool/{}", words[1])));
    }
    if words.len() > 1 && is_fdb_word(first) {
        return Err(UsageError::Fdb(format!("fdb/{}", words[1])));
    }
    let references = match types {
        // `deploy web db`: a word that is a type, and more words.
        Ok(types) if words.len() > 1 && !first.contains('/') => {
            words[1..].iter().map(|name| typed_by(first, &types, name)).collect::<Result<_, _>>()?
        }
        _ => words.iter().map(|word| reference(word)).collect::<Result<Vec<_>, _>>()?,
    };
    Ok(Selection::Named(without_repetitions(references)))
}

fn query(words: &[String], selector: &str) -> Result<Selection, UsageError> {
    let mut found = Vec::new();
    for word in words {
        if word.contains('/') {
            return Err(UsageError::NameWithSelector(word.clone()));
        }
        let types = types_of(word).map_err(|error| match error {
            UsageError::UnknownType { word } => UsageError::NotAType { word },
            error => error,
        });
        for kind in types? {
            if !found.contains(&kind) {
                found.push(kind);
            }
        }
    }
    if found.is_empty() {
        found.push(&CLUSTER_DEPLOYMENT);
    }
    Ok(Selection::Query { kinds: found, selector: selector.to_owned() })
}

/// The kinds of `deploy` or `deploy,sts`.
fn types_of(words: &str) -> Result<Vec<&'static Kind>, UsageError> {
    let mut found = Vec::new();
    for word in words.split(',') {
        match kinds_named(word) {
            kinds if kinds.is_empty() && is_pool_word(word) => return Err(UsageError::Pool("pool".to_owned())),
            kinds if kinds.is_empty() && is_fdb_word(word) => return Err(UsageError::Fdb("fdb".to_owned())),
            kinds if kinds.is_empty() => return Err(UsageError::UnknownType { word: word.to_owned() }),
            kinds => found.extend(kinds),
        }
    }
    Ok(found)
}

fn typed_by(word: &str, types: &[&'static Kind], name: &str) -> Result<Reference, UsageError> {
    if name.contains('/') {
        return Err(UsageError::Mixed(word.to_owned(), name.to_owned()));
    }
    Ok(Reference { kinds: types.to_vec(), word: Some(word.to_owned()), name: checked(name)? })
}

/// `NAME` or `TYPE/NAME`.
fn reference(word: &str) -> Result<Reference, UsageError> {
    if let Some((type_word, name)) = word.split_once('/') {
        let types = kinds_named(type_word);
        if types.is_empty() && is_pool_word(type_word) {
            return Err(UsageError::Pool(word.to_owned()));
        }
        if types.is_empty() && is_fdb_word(type_word) {
            return Err(UsageError::Fdb(word.to_owned()));
        }
        if types.is_empty() {
            return Err(UsageError::UnknownType { word: type_word.to_owned() });
        }
        if name.contains('/') {
            return Err(UsageError::Slash { word: word.to_owned(), name: name.to_owned() });
        }
        return typed_by(type_word, &types, name);
    }
    if COMMANDS.contains(&word) {
        return Err(UsageError::Command(word.to_owned()));
    }
    Ok(Reference { kinds: kinds().collect(), word: None, name: checked(word)? })
}

/// Only what can be a name goes into a URL.
fn checked(name: &str) -> Result<String, UsageError> {
    if is_name(name) { Ok(name.to_owned()) } else { Err(UsageError::NotAName(name.to_owned())) }
}

/// Whether this is a DNS subdomain, as names of objects and namespaces are.
pub(crate) fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= 253
        && name.bytes().all(inner)
        && outer(name.as_bytes().first())
        && outer(name.as_bytes().last())
        && !name.contains("..")
}

/// Whether this is a DNS label, as names of namespaces are.
pub(crate) fn is_namespace(name: &str) -> bool {
    is_name(name) && name.len() <= 63 && !name.contains('.')
}

fn without_repetitions(references: Vec<Reference>) -> Vec<Reference> {
    let mut once = Vec::new();
    for reference in references {
        if !once.contains(&reference) {
            once.push(reference);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Flags<'_> = Flags { selector: None, all: true, all_namespaces: false, lists: false };
    const NAMES: Flags<'_> = Flags { all: false, ..ALL };
    const STATUS: Flags<'_> = Flags { lists: true, ..NAMES };
    const LABELS: Flags<'_> = Flags { selector: Some("a=b"), ..NAMES };
    const NO_LABELS: Flags<'_> = Flags { selector: Some(" "), ..NAMES };
    const EVERYWHERE: Flags<'_> = Flags { all_namespaces: true, ..NAMES };

    /// `deploy/web`, `*/demo`, `[deploy] a=b`: what was understood, in short.
    fn understood(line: &str, flags: Flags<'_>) -> String {
        let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
        let short = |kinds: &[&'static Kind]| match kinds.len() {
            5 => "*".to_owned(),
            _ => kinds.iter().map(|kind| kind.short[0]).collect::<Vec<_>>().join("+"),
        };
        match parse(&words, flags) {
            Ok(Selection::Named(references)) => {
                let names =
                    references.iter().map(|reference| format!("{}/{}", short(&reference.kinds), reference.name));
                names.collect::<Vec<_>>().join(" ")
            }
            Ok(Selection::Query { kinds, selector }) => format!("[{}] {selector}", short(&kinds)).trim().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn targets_are_understood() {
        for (line, flags, expected) in [
            ("demo", NAMES, "*/demo"),
            ("demo demo other", NAMES, "*/demo */other"),
            ("cd/demo deploy/web", NAMES, "cd/demo deploy/web"),
            ("deploy web db", NAMES, "deploy/web deploy/db"),
            ("md/workers", NAMES, "md+md/workers"),
            ("md.cluster.k8s.io/workers", NAMES, "md/workers"),
            ("cd/status", NAMES, "cd/status"),
            ("cd status", NAMES, "cd/status"),
            ("", ALL, "[cd]"),
            ("deploy", ALL, "[deploy]"),
            ("deploy,sts", ALL, "[deploy+sts]"),
            ("deploy sts deploy", ALL, "[deploy+sts]"),
            ("", LABELS, "[cd] a=b"),
            ("sts", LABELS, "[sts] a=b"),
            ("", STATUS, "[cd]"),
            ("deploy", STATUS, "[deploy]"),
            ("demo", STATUS, "*/demo"),
            ("cd/demo", STATUS, "cd/demo"),
            ("", Flags { lists: true, ..NO_LABELS }, "[cd]"),
            ("cd/demo", Flags { lists: true, ..NO_LABELS }, "cd/demo"),
        ] {
            assert_eq!(understood(line, flags), expected, "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_is_explained() {
        for (line, flags, part) in [
            ("", NAMES, "name at least one target"),
            ("", EVERYWHERE, "name at least one target"),
            ("deploy", NAMES, r#""deploy" is a type"#),
            ("pod/x", NAMES, r#"unknown type "pod"; types are clusterdeployments.hive.openshift.io (cd), "#),
            ("pods", ALL, r#"unknown type "pods""#),
            ("demo", ALL, r#"unknown type "demo": -l and --all go with a TYPE or with nothing, no names"#),
            ("deploy demo", LABELS, r#"unknown type "demo": -l and --all go with"#),
            ("cd/demo", ALL, r#""cd/demo" names a target"#),
            ("deploy web sts/db", NAMES, "not both"),
            ("demo status", NAMES, r#""status" is a command"#),
            ("resume", NAMES, r#""resume" is a command"#),
            ("pool/small", NAMES, "see `kubectl hibernate status pool/small`"),
            ("fdb/sample", NAMES, "`kubectl hibernate status fdb/sample` shows it"),
            ("fdb sample", NAMES, "`kubectl hibernate status fdb/sample` shows it"),
            ("fdb", ALL, "a FoundationDBCluster is not put to sleep by this program"),
            ("cp", ALL, "a ClusterPool is never put to sleep itself"),
            ("Demo", NAMES, "is not a name"),
            ("cd/", NAMES, "is not a name"),
            ("cd/a/b", NAMES, r#""a/b" of "cd/a/b" is not a name: it has a slash"#),
            ("cd/../secrets", NAMES, "it has a slash"),
            ("cd/..", NAMES, "is not a name"),
            ("-demo", NAMES, "is not a name"),
            ("demo", EVERYWHERE, "-A cannot find"),
            ("", NO_LABELS, "-l is empty: it would select everything"),
            ("deploy", Flags { selector: Some(""), ..NO_LABELS }, "-l is empty"),
            ("demo", NO_LABELS, "-l is empty"),
            ("", Flags { all: true, ..NO_LABELS }, "-l and --all exclude each other"),
        ] {
            let answer = understood(line, flags);
            assert!(answer.contains(part), "{line}: {answer}");
        }
    }
}
