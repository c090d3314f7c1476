//! `plan` with the flags of a rollout: in which order targets would start, which would not, and roughly how long it takes.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use serde_json::{Value, json};
use shared::{
    hive::{
        api::ClusterDeployment,
        preflight::{Finding, Severity, code},
    },
    rollout::{
        api::TargetName,
        observed,
        plan::{CANARY_SOAK, MAX_CONCURRENCY},
    },
    target::is_protected,
};

use super::outlook::Outlook;
use crate::{
    cli::{PlanOutput, duration::elapsed, rollout::RolloutFlags, time},
    cmd::rollout::{
        canary::{self, Canary, CanaryGroup, name_of, place},
        create::of_clusters,
    },
    error::{Failure, Problem, RolloutError},
    output,
    select::{parse::Selection, target::Target},
};

/// What a cluster typically takes. No promise: a cloud may be slower.
const TYPICAL: Duration = Duration::from_mins(5);
/// What the rules of the webhook call a cluster that is not installed, and one that somebody else decides about: a rollout waits for both.
const WAITS: &[&str] = &["V2", "V7"];
/// What the rules of the webhook call a cluster that is held awake, or protected.
const HELD: &str = "V6";
/// How the group of the remaining targets is called.
const REST: &str = "(remaining)";

/// The flags of a rollout, as far as they are right without the hub.
pub(super) struct Asked<'a> {
    flags: &'a RolloutFlags,
    flag: &'static str,
    canaries: Vec<Canary>,
}

impl<'a> Asked<'a> {
    /// None if no flag of a rollout was given.
    ///
    /// # Errors
    /// When a time or a canary is none.
    pub(super) fn read(flags: &'a RolloutFlags) -> Result<Option<Self>, Problem> {
        let Some(flag) = flags.given().first().copied() else { return Ok(None) };
        flags.hours(&time::now())?;
        Ok(Some(Self { flags, flag, canaries: canary::read(&flags.canary)? }))
    }

    /// # Errors
    /// When the command line names other kinds than `ClusterDeployments`.
    pub(super) fn checked(&self, selection: Selection) -> Result<Selection, RolloutError> {
        of_clusters(self.flag, selection)
    }

    /// The groups of canaries among what was found.
    ///
    /// # Errors
    /// When a canary is not among the targets.
    pub(super) fn order(
        &self,
        namespace: Option<&str>,
        found: &[Result<Target, Failure>],
    ) -> Result<Vec<CanaryGroup>, RolloutError> {
        let targets: Vec<Target> = found.iter().flatten().cloned().collect();
        canary::find(&self.canaries, namespace, self.flags.pause_after_canary, &targets)
    }
}

/// One target in the form that `-o json` documents. Later versions only add fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    /// Empty for the remaining targets.
    group: String,
    domain: String,
    /// Starts, `AlreadyInState`, Deferred or Refused.
    state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// When it starts, counted from 1; none if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    #[serde(skip)]
    group_index: usize,
}

/// Prints the order in which these targets would start.
pub(super) fn print(groups: &[CanaryGroup], flags: &RolloutFlags, outlooks: &[Outlook], format: PlanOutput) {
    let rows = ordered(groups, outlooks);
    let estimate = estimate(groups, flags, &rows);
    let list = || {
        json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "RolloutPlan", "estimatedSeconds": estimate.as_secs(), "items": rows,
        })
    };
    match format {
        PlanOutput::Table => lines(&rows, flags, estimate).iter().for_each(|line| output::line(line)),
        PlanOutput::Json => output::text(&output::json(&list())),
        PlanOutput::Yaml => output::text(&output::yaml(&list())),
    }
}

/// In the order of the engine: group by group, round robin over domains, then by name. Those that do not start stand behind.
fn ordered(groups: &[CanaryGroup], outlooks: &[Outlook]) -> Vec<Row> {
    let mut rows: Vec<Row> = outlooks.iter().map(|outlook| row(groups, outlook)).collect();
    rows.sort_by_key(|row| (row.group_index, full(row)));
    let mut ranks: BTreeMap<(usize, String), usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Row)> = Vec::new();
    for row in rows {
        let rank = ranks.entry((row.group_index, row.domain.clone())).or_default();
        *rank += 1;
        ranked.push((*rank, row));
    }
    ranked.sort_by_key(|(rank, row)| {
        (row.state != STARTS, row.group_index, *rank, row.domain.clone(), row.namespace.clone(), row.name.clone())
    });
    let position = |at: usize, row: &Row| (row.state == STARTS).then_some(at + 1);
    ranked.into_iter().enumerate().map(|(at, (_, row))| Row { position: position(at, &row), ..row }).collect()
}

fn full(row: &Row) -> String {
    format!("{}/{}", row.namespace, row.name)
}

const STARTS: &str = "Starts";
const DEFERRED: &str = "Deferred";
const REFUSED: &str = "Refused";

fn row(groups: &[CanaryGroup], outlook: &Outlook) -> Row {
    let TargetName { namespace, name } = name_of(&outlook.target);
    let member = name_of(&outlook.target);
    let group_index = groups.iter().position(|group| group.members.contains(&member)).unwrap_or(groups.len());
    let group = groups.get(group_index).map(|group| group.group.name.clone()).unwrap_or_default();
    let (state, reason) = state(outlook);
    Row { namespace, name, group, domain: domain(&outlook.target.object), state, reason, position: None, group_index }
}

/// | found | state |
/// |---|---|
/// | asleep already | `AlreadyInState` |
/// | a rule of the hub blocks, other than a hold | Refused |
/// | held awake, not installed, paused, of a pool, in an upgrade, or its API server is silent | Deferred |
/// | else | Starts, with what will make it fail |
fn state(outlook: &Outlook) -> (&'static str, String) {
    if (outlook.desired.as_str(), outlook.observed.as_str()) == ("Hibernating", "Hibernating") {
        return ("AlreadyInState", String::new());
    }
    let held = |finding: &&Finding| finding.code == HELD && !is_protected(&outlook.target.object);
    let blocks = |finding: &&Finding| finding.severity == Severity::Block;
    let said = |finding: &Finding| format!("{}: {}", finding.code, finding.sentence);
    let waits = |finding: &&Finding| {
        held(finding) || finding.severity == Severity::Warn && WAITS.contains(&finding.code.as_str())
    };
    let of_spoke = [code::UPGRADE_IN_PROGRESS, code::SPOKE_NOT_ASKED];
    let refused = outlook.hub.iter().find(|finding| blocks(finding) && !held(finding));
    let deferred = outlook.hub.iter().find(waits);
    let deferred =
        deferred.or_else(|| outlook.controller.iter().find(|finding| of_spoke.contains(&finding.code.as_str())));
    let fails = outlook.controller.iter().find(blocks);
    match (refused, deferred, fails) {
        (Some(finding), ..) => (REFUSED, said(finding)),
        (None, Some(finding), _) => (DEFERRED, said(finding)),
        (None, None, Some(finding)) => (STARTS, format!("will fail: {}", said(finding))),
        (None, None, None) => (STARTS, String::new()),
    }
}

/// What shares a cloud's limits, as far as the object says.
fn domain(object: &Value) -> String {
    serde_json::from_value::<ClusterDeployment>(object.clone())
        .map(|cluster| observed::domain(&cluster))
        .unwrap_or_default()
}

/// So many rounds of a typical change for each group, and not less than the limit of starts allows.
fn estimate(groups: &[CanaryGroup], flags: &RolloutFlags, rows: &[Row]) -> Duration {
    let at_once = flags.max_concurrency.unwrap_or(MAX_CONCURRENCY).of(rows.len()).max(1);
    let starting = |group: usize| rows.iter().filter(|row| row.state == STARTS && row.group_index == group).count();
    let rounds = |targets: usize| u32::try_from(targets.div_ceil(at_once)).unwrap_or(u32::MAX);
    let of_group = |group: usize| match starting(group) {
        0 => Duration::ZERO,
        targets => {
            let soak = if group < groups.len() { CANARY_SOAK } else { Duration::ZERO };
            TYPICAL.saturating_mul(rounds(targets)).saturating_add(soak)
        }
    };
    let total: Duration = (0..=groups.len()).map(of_group).sum();
    let starts = rows.iter().filter(|row| row.state == STARTS).count();
    let paced = flags.starts_per_minute.and_then(|limit| {
        let minutes = starts.saturating_sub(1) / usize::try_from(limit).ok()?.max(1);
        Some(Duration::from_secs(60 * u64::try_from(minutes).ok()?).saturating_add(TYPICAL))
    });
    total.max(paced.filter(|_| starts > 0).unwrap_or_default())
}

fn lines(rows: &[Row], flags: &RolloutFlags, estimate: Duration) -> Vec<String> {
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
    let at_once = flags.max_concurrency.unwrap_or(MAX_CONCURRENCY);
    let counts: Vec<String> =
        [(STARTS, "start"), ("AlreadyInState", "are asleep already"), (DEFERRED, "deferred"), (REFUSED, "refused")]
            .into_iter()
            .filter(|(state, _)| count(state) > 0)
            .map(|(state, words)| format!("{} {words}", count(state)))
            .collect();
    let mut table = vec![["ORDER", "GROUP", "TARGET", "DOMAIN", "STATE", "REASON"].map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| {
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let group = if row.group.is_empty() { REST } else { &row.group };
        let position = row.position.map(|at| at.to_string()).unwrap_or_default();
        let target = place(&TargetName { namespace: row.namespace.clone(), name: row.name.clone() });
        vec![dash(&position), group.to_owned(), target, dash(&row.domain), row.state.to_owned(), dash(&row.reason)]
    }));
    let mut lines = vec![format!("{} targets, up to {at_once} at a time: {}", rows.len(), counts.join(", "))];
    lines.extend(output::aligned(&table));
    lines.push(format!(
        "Rough estimate: {}, at a typical {} for a target; a deferred target is tried again until --not-after",
        elapsed(estimate),
        elapsed(TYPICAL)
    ));
    lines
}

#[cfg(test)]
mod tests {
    use shared::{annotation::keys, rollout::Share, target::CLUSTER_DEPLOYMENT};

    use super::*;

    fn outlook(name: &str, account: &str, hub: Vec<Finding>) -> Outlook {
        let object = json!({
            "metadata": { "name": name, "namespace": "x" },
            "spec": {
                "baseDomain": "d", "clusterName": name, "installed": true,
                "platform": { "aws": { "region": "r", "credentialsSecretRef": { "name": account } } },
            },
        });
        Outlook {
            target: Target::new(&CLUSTER_DEPLOYMENT, "v1", object),
            desired: "Running".to_owned(),
            observed: "Running".to_owned(),
            hub,
            controller: Vec::new(),
            found_at: None,
            end: None,
            unanswered: None,
        }
    }

    fn flags(max_concurrency: u32, starts_per_minute: Option<u32>) -> RolloutFlags {
        RolloutFlags {
            max_concurrency: Some(Share::Count(max_concurrency)),
            starts_per_minute,
            ..RolloutFlags::default()
        }
    }

    fn canaries(name: &str, outlooks: &[Outlook]) -> Vec<CanaryGroup> {
        let targets: Vec<Target> = outlooks.iter().map(|outlook| outlook.target.clone()).collect();
        canary::find(&canary::read(&[name.to_owned()]).unwrap(), None, false, &targets).unwrap()
    }

    #[test]
    fn canaries_come_first_then_domains_take_turns() {
        let block = vec![Finding::new(Severity::Block, "V4", "no platform")];
        let outlooks = [
            outlook("a", "one", vec![]),
            outlook("b", "one", vec![]),
            outlook("c", "two", vec![]),
            outlook("d", "one", vec![]),
            outlook("e", "two", block),
            outlook("z", "two", vec![]),
        ];
        let groups = canaries("z", &outlooks);
        let rows = ordered(&groups, &outlooks);
        let flags = flags(2, None);
        let estimate = estimate(&groups, &flags, &rows);
        insta::assert_snapshot!(lines(&rows, &flags, estimate).join("\n"), @r"
        6 targets, up to 2 at a time: 5 start, 1 refused
        ORDER   GROUP         TARGET   DOMAIN      STATE     REASON
        1       canary        x/z      aws/r/two   Starts    -
        2       (remaining)   x/a      aws/r/one   Starts    -
        3       (remaining)   x/c      aws/r/two   Starts    -
        4       (remaining)   x/b      aws/r/one   Starts    -
        5       (remaining)   x/d      aws/r/one   Starts    -
        -       (remaining)   x/e      aws/r/two   Refused   V4: no platform
        Rough estimate: 17m0s, at a typical 5m0s for a target; a deferred target is tried again until --not-after
        ");
        assert_eq!(json!(rows[5]).get("position"), None);
    }

    #[test]
    fn what_is_known_says_who_starts() {
        let finding = |severity, code: &str| Finding::new(severity, code, "so");
        let (block, warn) = (|code| finding(Severity::Block, code), |code| finding(Severity::Warn, code));
        for (hub, controller, protected, state, reason) in [
            (vec![], vec![], false, "Starts", ""),
            (vec![block("V6")], vec![], false, "Deferred", "V6: so"),
            (vec![block("V6")], vec![], true, "Refused", "V6: so"),
            (vec![block("V1")], vec![], false, "Refused", "V1: so"),
            (vec![warn("V2")], vec![], false, "Deferred", "V2: so"),
            (vec![warn("V7"), block("V6")], vec![], false, "Deferred", "V7: so"),
            (vec![warn("SyncSetsNotApplied")], vec![], false, "Starts", ""),
            (vec![], vec![warn(code::UPGRADE_IN_PROGRESS)], false, "Deferred", "UpgradeInProgress: so"),
            (vec![], vec![warn(code::SPOKE_NOT_ASKED)], false, "Deferred", "SpokeNotAsked: so"),
            (vec![], vec![block(code::CREDENTIALS)], false, "Starts", "will fail: Credentials: so"),
        ] {
            let mut outlook = Outlook { controller, ..outlook("a", "one", hub) };
            if protected {
                outlook.target.object["metadata"]["annotations"] = json!({ keys::PROTECTED: "true" });
            }
            assert_eq!(super::state(&outlook), (state, reason.to_owned()), "{outlook:?}");
        }
        let asleep =
            Outlook { desired: "Hibernating".into(), observed: "Hibernating".into(), ..outlook("a", "one", vec![]) };
        assert_eq!(super::state(&asleep).0, "AlreadyInState");
    }

    #[test]
    fn an_estimate_counts_rounds_and_the_pace_of_starts() {
        let outlooks: Vec<Outlook> = (0..41).map(|at| outlook(&format!("c{at:02}"), "one", vec![])).collect();
        let groups = canaries("c00", &outlooks);
        let rows = ordered(&groups, &outlooks);
        let minutes = |flags: &RolloutFlags| estimate(&groups, flags, &rows).as_secs() / 60;
        assert_eq!(minutes(&RolloutFlags::default()), 5 + 2 + 2 * 5);
        assert_eq!(minutes(&flags(40, None)), 5 + 2 + 5);
        assert_eq!(minutes(&flags(40, Some(1))), 40 + 5);
        assert_eq!(estimate(&[], &flags(40, Some(1)), &[]), Duration::ZERO);
    }
}
