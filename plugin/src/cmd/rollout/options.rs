//! The flags of a rollout, as far as they are right without the hub, and what they make of a selection. Pure.

use jiff::{Timestamp, Zoned};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared::kinds::{Intent, Kinds, TargetKind};
use shared::rollout::api::{PowerRolloutSpec, Targets};
use shared::rollout::draft::{self, MAX_NAMES, by_labels};
use shared::rollout::selector;
use view::target::Target;
use view::{ObjectName, Query, Row};

use super::canary::{self, Canary, CanaryGroup, name_of};
use crate::cli::rollout::{Hours, RolloutFlags};
use crate::cli::time::TimeError;
use crate::error::{Problem, RolloutError};

/// The flags of a rollout of objects of one kind.
pub(crate) struct Options<'a> {
    pub(crate) flags: &'a RolloutFlags,
    pub(crate) hours: Hours,
    pub(crate) row: &'static TargetKind,
    /// The first flag, for messages.
    flag: &'static str,
    canaries: Vec<Canary>,
}

impl<'a> Options<'a> {
    /// The options, which narrow the query to their kind; none if no flag of a rollout was given.
    ///
    /// # Errors
    /// When the command line names kinds that no rollout has as targets, or several, or a time or a canary is none.
    pub(crate) fn read(
        kinds: Kinds,
        flags: &'a RolloutFlags,
        now: &Zoned,
        query: &mut Query,
    ) -> Result<Option<Self>, Problem> {
        let Some(flag) = flags.given().first().copied() else { return Ok(None) };
        let row = of_one_kind(kinds, flag, query)?;
        let (hours, canaries) = (flags.hours(now)?, canary::read(&flags.canary)?);
        Ok(Some(Self { flags, hours, row, flag, canaries }))
    }

    /// What a rollout that is created cannot have.
    ///
    /// # Errors
    /// When it would have a force, more names than it can hold, or an end that no controller of the kind heeds.
    pub(crate) fn check(&self, query: &Query, end: Option<Timestamp>, force: bool) -> Result<(), Problem> {
        if force {
            return Err(RolloutError::Force { flag: self.flag }.into());
        }
        within_limit(query.names.len())?;
        if end.is_some() && !self.row.has_schedule {
            return Err(TimeError::NoController(self.row.kind.resource_name()).into());
        }
        Ok(())
    }

    /// The groups of canaries among the targets.
    ///
    /// # Errors
    /// When a canary is not among them.
    pub(crate) fn groups(
        &self,
        namespace: Option<&str>,
        targets: &[&Target],
    ) -> Result<Vec<CanaryGroup>, RolloutError> {
        canary::find(&self.canaries, namespace, self.flags.pause_after_canary, targets)
    }

    /// The spec of a rollout of these targets, and its groups of canaries. `namespace` is none for all namespaces.
    ///
    /// # Errors
    /// When a canary is not among the targets, or the selector is none that a rollout can hold.
    pub(crate) fn draft(
        &self,
        intent: &Intent<'_>,
        query: &Query,
        namespace: Option<&str>,
        found: &[&Target],
    ) -> Result<(PowerRolloutSpec, Vec<CanaryGroup>), RolloutError> {
        let groups = self.groups(namespace, found)?;
        let targets = self.targets(query, namespace, found)?;
        let draft = draft::spec(intent, targets, found.len(), self.hours.not_after);
        Ok((spec(self.flags, self.hours, &groups, draft), groups))
    }

    fn targets(&self, query: &Query, namespace: Option<&str>, found: &[&Target]) -> Result<Targets, RolloutError> {
        let kind = &self.row.kind;
        if !query.names.is_empty() {
            let names = found.iter().copied().map(name_of).collect();
            return Ok(Targets { kind: kind.kind.to_owned(), names, ..Targets::default() });
        }
        let labels = Some(query.labels.trim()).filter(|labels| !labels.is_empty());
        let selector = labels.map(selector::parse).transpose().map_err(RolloutError::Selector)?;
        Ok(by_labels(kind, selector, namespace))
    }
}

/// A draft with what the flags add to it.
pub(crate) fn spec(
    flags: &RolloutFlags,
    hours: Hours,
    groups: &[CanaryGroup],
    draft: PowerRolloutSpec,
) -> PowerRolloutSpec {
    PowerRolloutSpec {
        groups: groups.iter().map(|canary| canary.group.clone()).collect(),
        max_concurrency: flags.max_concurrency,
        starts_per_minute: flags.starts_per_minute,
        max_failures: flags.max_failures,
        deadline: flags.deadline.clone(),
        not_before: hours.not_before.map(Time),
        paused: flags.paused,
        ..draft
    }
}

fn within_limit(names: usize) -> Result<(), RolloutError> {
    if names > MAX_NAMES { Err(RolloutError::TooManyNames { found: names, max: MAX_NAMES }) } else { Ok(()) }
}

/// Narrows a query to the one kind that it is about, if rollouts may have it as targets. A name without a type is that
/// of an object of the first such kind.
///
/// # Errors
/// When the command line names other kinds, or several.
fn of_one_kind(kinds: Kinds, flag: &'static str, query: &mut Query) -> Result<&'static TargetKind, RolloutError> {
    let names = || kinds.in_rollouts().map(|row| format!("{}s", row.kind.kind)).collect::<Vec<_>>().join(" or ");
    let by_default = kinds.in_rollouts().next();
    let of_word = |one: &ObjectName| match one.word {
        Some(_) => one.kinds.first()?.target(),
        None => by_default,
    };
    let of_kinds = query.kinds.iter().filter_map(|row| row.target());
    let named: Vec<&'static TargetKind> = of_kinds.chain(query.names.iter().filter_map(of_word)).collect();
    let Some(row) = named.first().copied().or(by_default).filter(|row| row.in_rollouts.is_some()) else {
        let found = named.first().map(|row| row.kind.resource_name()).unwrap_or_default();
        return Err(RolloutError::OtherKind { flag, kinds: names(), found });
    };
    if let Some(other) = named.iter().find(|other| **other != row) {
        let found = format!("{} and {}", row.kind.resource_name(), other.kind.resource_name());
        return Err(RolloutError::OtherKind { flag, kinds: names(), found });
    }
    query.names.iter_mut().for_each(|one| one.kinds = vec![Row::Target(row)]);
    Ok(row)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS, KKP_CLUSTER};
    use shared::power::Power;

    use super::*;
    use crate::cli::{self, Cli, Command};
    use crate::cmd::rollout::canary::tests::target;
    use crate::error::Exit;
    use crate::select::{Flags, parse};

    fn selected(line: &str) -> Result<Query, String> {
        let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
        let flags = Flags { all: line.starts_with("all"), ..Flags::default() };
        let words = words.strip_prefix(&["all".to_owned()]).unwrap_or(&words);
        let mut query = parse(KINDS, words, flags).unwrap();
        of_one_kind(KINDS, "--paused", &mut query).map_err(|error| error.to_string())?;
        Ok(query)
    }

    #[test]
    fn a_rollout_is_of_one_kind_that_its_row_allows() {
        for (line, kind) in [
            ("demo", &CLUSTER_DEPLOYMENT),
            ("cd/demo web", &CLUSTER_DEPLOYMENT),
            ("cd demo web", &CLUSTER_DEPLOYMENT),
            ("all", &CLUSTER_DEPLOYMENT),
            ("all cd", &CLUSTER_DEPLOYMENT),
            ("cluster/abc cluster/def", &KKP_CLUSTER),
            ("all cluster", &KKP_CLUSTER),
        ] {
            let query = selected(line).unwrap();
            let mut kinds = query.names.iter().flat_map(|one| &one.kinds).chain(&query.kinds);
            assert!(kinds.all(|row| *row == Row::Target(kind)), "{line}");
        }
        for (line, found) in [
            ("deploy/web", "deployments.apps"),
            ("cd/demo cluster/abc", "clusterdeployments.hive.openshift.io and clusters.kubermatic.k8c.io"),
            ("demo cluster/abc", "clusterdeployments.hive.openshift.io and clusters.kubermatic.k8c.io"),
            ("all deploy", "deployments.apps"),
            ("all cd,cluster", "clusterdeployments.hive.openshift.io and clusters.kubermatic.k8c.io"),
        ] {
            let error = selected(line).unwrap_err();
            assert!(error.starts_with("--paused creates a PowerRollout") && error.contains(found), "{line}: {error}");
            assert!(error.contains("omit the options"), "{error}");
        }
    }

    const NOW: &str = "2026-11-21T20:30:00+02:00[+02:00]";

    /// The spec of a command line; targets are those named, or a/demo and b/web.
    fn drafted(line: &str) -> Value {
        let words = std::iter::once("kubectl-hibernate").chain(line.split('|'));
        let cli = cli::read::<Cli>(words.map(Into::into)).unwrap();
        let (power, act) = match &cli.command {
            Some(Command::Resume(args)) => (Power::Running, &args.act),
            _ => (Power::Hibernating, &cli.sleep.act),
        };
        let everywhere = cli.hub.all_namespaces;
        let flags =
            Flags { selector: cli.hub.selector.as_deref(), all: act.all, all_namespaces: everywhere, lists: false };
        let mut query = parse(KINDS, &act.targets, flags).unwrap();
        let namespace = (!everywhere).then(|| cli.hub.connection.namespace.as_deref().unwrap_or("a"));
        let mut found: Vec<Target> = query.names.iter().map(|one| target("a", &one.name, "x")).collect();
        if found.is_empty() {
            found = vec![target("a", "demo", "x"), target("b", "web", "y")];
        }
        let now: Zoned = NOW.parse().unwrap();
        let (end, reason) = (act.time.resolve(&now, None).unwrap(), act.reason.as_deref());
        let intent = Intent { power, reason, end, now: now.timestamp(), queried: true, force: false };
        let options = Options::read(KINDS, &act.rollout, &now, &mut query).unwrap().unwrap();
        json!(options.draft(&intent, &query, namespace, &found.iter().collect::<Vec<_>>()).unwrap().0)
    }

    fn with(change: &Value) -> Value {
        let mut spec = json!({
            "action": "Hibernate", "maxTargets": 2, "notAfter": "2026-11-21T20:30:00Z", "paused": false, "abort": false,
            "acceptFailures": 0, "retryFailed": 0, "targets": { "kind": "ClusterDeployment", "all": false },
        });
        json_patch::merge(&mut spec, change);
        spec
    }

    #[test]
    fn flags_become_the_spec() {
        let here = |namespace: &str| json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
        let blue = json!({ "matchLabels": { "team": "blue" } });
        let named = |names: &[&str]| -> Vec<Value> {
            names.iter().map(|name| json!({ "namespace": "a", "name": name })).collect()
        };
        for (line, change) in [
            (
                "demo|cd/web|--max-concurrency|2",
                json!({ "maxConcurrency": 2, "targets": { "names": named(&["demo", "web"]) } }),
            ),
            (
                "-l|team=blue|-A|--max-concurrency|10%",
                json!({ "maxConcurrency": "10%", "targets": { "selector": blue } }),
            ),
            (
                "-l|team=blue|-n|shop|--paused",
                json!({ "paused": true, "targets": { "selector": blue, "namespaceSelector": here("shop") } }),
            ),
            (
                "-l|team=blue|--paused",
                json!({ "paused": true, "targets": { "selector": blue, "namespaceSelector": here("a") } }),
            ),
            ("--all|-A|--max-failures|5%", json!({ "maxFailures": "5%", "targets": { "all": true } })),
            (
                "--all|-n|shop|--max-failures|0",
                json!({ "maxFailures": 0, "targets": { "namespaceSelector": here("shop") } }),
            ),
            (
                "-l|team in (blue, red),!old|-A|--starts-per-minute|5|--deadline|20m",
                json!({
                    "startsPerMinute": 5, "deadline": "20m",
                    "targets": { "selector": { "matchExpressions": [
                        { "key": "team", "operator": "In", "values": ["blue", "red"] },
                        { "key": "old", "operator": "DoesNotExist" },
                    ] } },
                }),
            ),
            (
                "--all|-A|--canary|demo|--canary|tier=y|--pause-after-canary",
                json!({ "targets": { "all": true }, "groups": [
                    { "name": "canary", "names": named(&["demo"]), "pauseAfter": true },
                    { "name": "canary-2", "selector": { "matchLabels": { "tier": "y" } }, "pauseAfter": true },
                ] }),
            ),
            (
                "--all|-A|--not-before|22:00|--not-after|23:00",
                json!({ "targets": { "all": true }, "notBefore": "2026-11-21T20:00:00Z", "notAfter": "2026-11-21T21:00:00Z" }),
            ),
            (
                "--all|-A|--paused|--for|14h|--reason|weekend",
                json!({ "targets": { "all": true }, "paused": true, "wakeAt": "2026-11-22T08:30:00Z", "reason": "weekend" }),
            ),
            ("resume|--all|-A|--paused", json!({ "action": "Resume", "targets": { "all": true }, "paused": true })),
            (
                "resume|--all|-A|--paused|--hold-awake|--until|21:00",
                json!({ "action": "Resume", "targets": { "all": true }, "paused": true, "holdAwakeUntil": "2026-11-21T19:00:00Z" }),
            ),
        ] {
            assert_eq!(drafted(line), with(&change), "{line}");
        }
    }

    #[test]
    fn names_have_a_limit() {
        assert!(within_limit(1_000).is_ok());
        let error = within_limit(1_001).unwrap_err();
        assert_eq!(error.to_string(), "1001 names are given: a rollout takes at most 1000; use -l SELECTOR or --all");
        assert_eq!(error.exit(), Exit::Usage);
    }
}
