//! Targets as they are named on the command line: a query for the hub.

use hub::{is_name, is_namespace};
use shared::kinds::{Kinds, ShownKind, TargetKind};
use view::resolve::NAMESPACE;
use view::{Namespaces, ObjectName, Query, Row};

use crate::cli::{COMMANDS, HubArgs};
use crate::error::UsageError;

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

impl<'a> Flags<'a> {
    /// Those of a command that lists nothing by itself.
    pub(crate) fn new(hub: &'a HubArgs, all: bool) -> Self {
        Self { selector: hub.selector.as_deref(), all, all_namespaces: hub.all_namespaces, lists: false }
    }

    fn namespaces(self) -> Namespaces {
        if self.all_namespaces { Namespaces::All } else { Namespaces::OfClient }
    }
}

/// All of them in their order, each once.
pub(crate) fn unique<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// Objects of a kind that is only shown, if the words ask for it; no name at all means every object.
///
/// # Errors
/// When such objects and other targets are mixed, or a name contradicts the flags.
pub(crate) fn only_shown(kinds: Kinds, words: &[String], flags: Flags<'_>) -> Result<Option<Query>, UsageError> {
    for row in kinds.shown {
        let Some(names) = names_of(row, words)? else { continue };
        if flags.all_namespaces && !names.is_empty() && row.kind.is_namespaced() {
            return Err(UsageError::NameInAllNamespaces);
        }
        let is_alias = words.first().is_some_and(|word| names.is_empty() && row.kind.aliases.contains(&word.as_str()));
        // `schedules` are those of the namespace and the cluster-wide ones.
        let of_word = |other: &&&'static ShownKind| **other == *row || is_alias && other.shows == row.shows;
        let kinds: Vec<Row> = kinds.shown.iter().filter(of_word).map(|row| Row::Shown(row)).collect();
        let word = Some(row.kind.resource_name());
        let named = |name: &String| Ok(ObjectName { kinds: kinds.clone(), word: word.clone(), name: checked(name)? });
        let names = names.iter().map(named).collect::<Result<_, _>>()?;
        let labels = flags.selector.unwrap_or_default().to_owned();
        let is_typed = kinds.len() == 1;
        return Ok(Some(Query { names, labels, is_typed, namespace: flags.namespaces(), kinds }));
    }
    Ok(None)
}

fn names_of(row: &'static ShownKind, words: &[String]) -> Result<Option<Vec<String>>, UsageError> {
    let named = |word: &String| {
        word.split_once('/').filter(|(type_, _)| row.kind.is_named(type_)).map(|(_, name)| name.to_owned())
    };
    if let Some((first, rest)) = words.split_first().filter(|(first, _)| row.kind.is_named(first)) {
        if let Some(other) = rest.iter().find(|word| word.contains('/')) {
            return Err(UsageError::Mixed(first.clone(), other.clone()));
        }
        return Ok(Some(rest.to_vec()));
    }
    let names: Vec<String> = words.iter().filter_map(named).collect();
    match words.iter().find(|word| named(word).is_none()) {
        _ if names.is_empty() => Ok(None),
        Some(other) => Err(UsageError::OnlyShown(row.not_together_with(other))),
        None => Ok(Some(names)),
    }
}

/// Understands the words of the command line.
///
/// # Errors
/// When they are not targets, or contradict the flags.
pub(crate) fn parse(kinds: Kinds, words: &[String], flags: Flags<'_>) -> Result<Query, UsageError> {
    if flags.selector.is_some() && flags.all && !flags.lists {
        return Err(UsageError::SelectorAndAll);
    }
    // `-l "$LABELS"` with nothing in it is harmless only where nothing is changed.
    let selector = flags.selector.filter(|selector| !selector.trim().is_empty());
    if selector.is_none() && flags.selector.is_some() && !flags.lists {
        return Err(UsageError::EmptySelector);
    }
    if selector.is_some() || flags.all {
        return query(kinds, words, selector.unwrap_or_default(), flags);
    }
    let Some(first) = words.first() else {
        return if flags.lists { query(kinds, &[], "", flags) } else { Err(UsageError::Nothing) };
    };
    let types = types_of(kinds, first);
    if !first.contains('/') && words.len() == 1 && types.is_ok() {
        return if flags.lists {
            query(kinds, words, "", flags)
        } else {
            Err(UsageError::TypeWithoutNames(first.clone()))
        };
    }
    if flags.all_namespaces {
        return Err(UsageError::NameInAllNamespaces);
    }
    if let Some(name) = whole_namespace(words)? {
        let namespace = Namespaces::Whole(name);
        return Ok(Query { kinds: rows(&kinds.in_namespace()), namespace, is_typed: true, ..Query::default() });
    }
    if let Some(row) = kinds.shown_named(first).filter(|_| words.len() > 1) {
        return Err(UsageError::OnlyShown(row.refusal_of(&format!("{}/{}", row.word, words[1]))));
    }
    let names = match types {
        // `deploy web db`: a word that is a type, and more words.
        Ok(types) if words.len() > 1 && !first.contains('/') => {
            words[1..].iter().map(|name| typed_by(first, &types, name)).collect::<Result<_, _>>()?
        }
        _ => words.iter().map(|word| named(kinds, word)).collect::<Result<Vec<_>, _>>()?,
    };
    Ok(Query { names: unique(names), ..Query::default() })
}

/// The namespace that the words name as a whole, if they name one: `ns/shop` or `ns shop`.
///
/// # Errors
/// When it is not alone, or its name is none.
fn whole_namespace(words: &[String]) -> Result<Option<String>, UsageError> {
    let slashed = |word: &String| {
        word.split_once('/').filter(|(type_, _)| NAMESPACE.is_named(type_)).map(|(_, name)| name.to_owned())
    };
    let name = match words {
        [word] => slashed(word),
        [type_, name] if NAMESPACE.is_named(type_) => Some(name.clone()),
        [type_, _, _, ..] if NAMESPACE.is_named(type_) => return Err(UsageError::NamespaceAlone(type_.clone())),
        _ => None,
    };
    match name {
        Some(name) if is_namespace(&name) => Ok(Some(name)),
        Some(name) => Err(UsageError::NotAName(name)),
        None => match words.iter().find(|word| slashed(word).is_some()) {
            Some(word) => Err(UsageError::NamespaceAlone(word.clone())),
            None => Ok(None),
        },
    }
}

fn query(kinds: Kinds, words: &[String], selector: &str, flags: Flags<'_>) -> Result<Query, UsageError> {
    let mut found = Vec::new();
    for word in words {
        if word.contains('/') {
            return Err(UsageError::NameWithSelector(word.clone()));
        }
        let types = types_of(kinds, word).map_err(|error| match error {
            UsageError::UnknownType { word, known } => UsageError::NotAType { word, known },
            error => error,
        });
        found.extend(types?);
    }
    let is_typed = !found.is_empty();
    if !is_typed {
        found = if flags.lists { kinds.shown_by_default() } else { kinds.defaults() };
    }
    let (kinds, labels) = (rows(&unique(found)), selector.to_owned());
    Ok(Query { kinds, namespace: flags.namespaces(), labels, is_typed, ..Query::default() })
}

fn rows(kinds: &[&'static TargetKind]) -> Vec<Row> {
    kinds.iter().copied().map(Row::Target).collect()
}

/// The kinds of `deploy` or `deploy,sts`.
fn types_of(kinds: Kinds, words: &str) -> Result<Vec<&'static TargetKind>, UsageError> {
    let mut found = Vec::new();
    for word in words.split(',') {
        match (kinds.named(word), kinds.shown_named(word)) {
            (kinds, _) if !kinds.is_empty() => found.extend(kinds),
            (_, Some(row)) => return Err(UsageError::OnlyShown(row.refusal_of(row.word))),
            (_, None) => return Err(unknown(kinds, word)),
        }
    }
    Ok(found)
}

/// `NAME` or `TYPE/NAME`.
fn named(kinds: Kinds, word: &str) -> Result<ObjectName, UsageError> {
    if let Some((type_word, name)) = word.split_once('/') {
        let types = kinds.named(type_word);
        if types.is_empty() {
            let shown = kinds.shown_named(type_word);
            return Err(match shown {
                Some(row) => UsageError::OnlyShown(row.refusal_of(word)),
                None => unknown(kinds, type_word),
            });
        }
        if name.contains('/') {
            return Err(UsageError::Slash { word: word.to_owned(), name: name.to_owned() });
        }
        return typed_by(type_word, &types, name);
    }
    if COMMANDS.iter().any(|command| command == word) {
        return Err(UsageError::Command(word.to_owned()));
    }
    Ok(ObjectName { kinds: rows(&kinds.without_a_type()), word: None, name: checked(word)? })
}

fn unknown(kinds: Kinds, word: &str) -> UsageError {
    UsageError::UnknownType { word: word.to_owned(), known: kinds.known_types() }
}

fn typed_by(word: &str, types: &[&'static TargetKind], name: &str) -> Result<ObjectName, UsageError> {
    if name.contains('/') {
        return Err(UsageError::Mixed(word.to_owned(), name.to_owned()));
    }
    Ok(ObjectName { kinds: rows(types), word: Some(word.to_owned()), name: checked(name)? })
}

/// Only what can be a name goes into a URL.
fn checked(name: &str) -> Result<String, UsageError> {
    if is_name(name) { Ok(name.to_owned()) } else { Err(UsageError::NotAName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use shared::kinds::KINDS;

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
        let short = |kinds: &[Row]| match kinds.len() {
            8 => "*".to_owned(),
            // Those of a namespace that operators run have no short name.
            9.. => "all".to_owned(),
            _ => kinds.iter().map(|row| row.kind().short[0]).collect::<Vec<_>>().join("+"),
        };
        let query = match parse(KINDS, &words, flags) {
            Ok(query) => query,
            Err(error) => return error.to_string(),
        };
        let names = query.names.iter().map(|one| format!("{}/{}", short(&one.kinds), one.name));
        match (names.collect::<Vec<_>>().join(" "), query.whole()) {
            (names, _) if !names.is_empty() => names,
            (_, Some(name)) => format!("[{}] in {name}", short(&query.kinds)),
            (_, None) => format!("[{}] {}", short(&query.kinds), query.labels).trim().to_owned(),
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
            ("cluster/abc", NAMES, "cluster/abc"),
            ("cj/report", NAMES, "cj/report"),
            ("cronjob report", NAMES, "cj/report"),
            ("ns/shop", NAMES, "[all] in shop"),
            ("namespace/shop", STATUS, "[all] in shop"),
            ("namespaces/shop", NAMES, "[all] in shop"),
            ("ns shop", NAMES, "[all] in shop"),
            ("cd/ns", NAMES, "cd/ns"),
            ("clusters", ALL, "[cluster]"),
            ("", STATUS, "[cd+cluster]"),
            ("deploy", STATUS, "[deploy]"),
            ("demo", STATUS, "*/demo"),
            ("cd/demo", STATUS, "cd/demo"),
            ("", Flags { lists: true, ..NO_LABELS }, "[cd+cluster]"),
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
            ("cluster.cluster.x-k8s.io/x", NAMES, r#"unknown type "cluster.cluster.x-k8s.io""#),
            ("pods", ALL, r#"unknown type "pods""#),
            ("demo", ALL, r#"unknown type "demo": -l and --all accept a TYPE but no names"#),
            ("deploy demo", LABELS, r#"unknown type "demo": -l and --all accept"#),
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
            ("ns/Shop", NAMES, "is not a name"),
            ("ns/a/b", NAMES, "is not a name"),
            ("ns/a.b", NAMES, "is not a name"),
            ("ns/", NAMES, "is not a name"),
            ("ns/shop ns/bank", NAMES, r#""ns/shop" names a whole namespace"#),
            ("deploy/web ns/shop", NAMES, r#""ns/shop" names a whole namespace"#),
            ("ns shop bank", NAMES, r#""ns" names a whole namespace"#),
            ("ns/shop", LABELS, r#""ns/shop" names a target"#),
            ("ns/shop", EVERYWHERE, "-A cannot find"),
            ("cd/", NAMES, "is not a name"),
            ("cd/a/b", NAMES, r#""a/b" of "cd/a/b" is not a name: it has a slash"#),
            ("cd/../secrets", NAMES, "it has a slash"),
            ("cd/..", NAMES, "is not a name"),
            ("-demo", NAMES, "is not a name"),
            ("demo", EVERYWHERE, "-A cannot find"),
            ("", NO_LABELS, "-l is empty and would select everything"),
            ("deploy", Flags { selector: Some(""), ..NO_LABELS }, "-l is empty"),
            ("demo", NO_LABELS, "-l is empty"),
            ("", Flags { all: true, ..NO_LABELS }, "-l and --all are mutually exclusive"),
        ] {
            let answer = understood(line, flags);
            assert!(answer.contains(part), "{line}: {answer}");
        }
    }

    /// `pool [small big]`: which objects are shown alone.
    fn shown(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
        match only_shown(KINDS, &words, STATUS) {
            Ok(None) => "targets".to_owned(),
            Ok(Some(Query { kinds, names, .. })) => {
                let names: Vec<String> = names.into_iter().map(|one| one.name).collect();
                let words: Vec<&str> = kinds.iter().map(|row| row.shown().unwrap().word).collect();
                format!("{} [{}]", words.join("+"), names.join(" "))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn kinds_that_are_only_shown_are_distinguished_from_targets() {
        for (line, expected) in [
            ("", "targets"),
            ("demo", "targets"),
            ("cd/pool", "targets"),
            ("cd/fdb", "targets"),
            ("pool/small", "pool [small]"),
            ("cp/small ClusterPool/big", "pool [small big]"),
            ("clusterpools.hive.openshift.io/small", "pool [small]"),
            ("clusterpool.v1.hive.openshift.io/small", "pool [small]"),
            ("clusterpool.example.com/small", "targets"),
            ("pool small big", "pool [small big]"),
            ("pools", "pool []"),
            ("cp", "pool []"),
            ("fdb/sample", "fdb [sample]"),
            ("fdb sample other", "fdb [sample other]"),
            ("fdb", "fdb []"),
            ("foundationdbclusters.apps.foundationdb.org/sample", "fdb [sample]"),
            ("rollouts", "rollout []"),
            ("schedules", "schedule+cpsch []"),
            ("psch", "schedule []"),
            ("schedule/night", "schedule [night]"),
            ("schedule night", "schedule [night]"),
            ("cpsch/night", "cpsch [night]"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
        for (line, part) in [
            ("pool/small demo", "pools are shown by themselves, not together with \"demo\""),
            ("pool small cd/demo", "not both"),
            ("fdb/sample demo", "FoundationDBClusters are shown by themselves, not together with \"demo\""),
            ("fdb sample cd/demo", "not both"),
            ("pool/../secrets", "is not a name"),
            ("fdb/sample pool/small", "pools are shown by themselves, not together with \"fdb/sample\""),
        ] {
            assert!(shown(line).contains(part), "{line}: {}", shown(line));
        }
    }
}
