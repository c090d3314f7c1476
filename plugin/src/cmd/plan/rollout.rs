//! `plan` with the flags of a rollout: in which order targets would start, which would not, and roughly how long it
//! takes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use shared::admission::Settings;
use shared::finding::{Finding, Severity, code};
use shared::kinds::lifecycle::REFUSED;
use shared::kinds::{Intent, Record};
use shared::power::Power;
use shared::rollout::api::{PowerRollout, TargetName, Targets};
use shared::rollout::draft;
use shared::rollout::forecast::{Forecast, Subject, forecast};
use shared::rollout::member::MemberState;
use shared::rollout::plan::MAX_CONCURRENCY;
use view::age::elapsed;
use view::lines::REMAINING;

use super::{DELETED, Outlook};
use crate::cli::rollout::{Hours, RolloutFlags};
use crate::cli::{ReportOutput, time};
use crate::cmd::rollout::canary::{CanaryGroup, name_of, place};
use crate::cmd::rollout::options::{Options, spec};
use crate::output;

/// What a cluster typically takes. No promise: a cloud may be slower.
const TYPICAL: Duration = Duration::from_mins(5);

/// One target in the form that `-o json` documents. Later versions only add fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    /// Empty for the remaining targets.
    group: String,
    domain: String,
    /// Starts, or as in a status: `AlreadyInState`, Deferred, Refused, Overridden.
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// When it starts, counted from 1; none if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
}

/// Prints the order in which these targets would start. `upgrades`: the clusters that TALM is upgrading,
/// and what to say of that.
pub(super) fn print(
    options: &Options<'_>,
    groups: &[CanaryGroup],
    upgrades: &BTreeMap<String, String>,
    outlooks: &[Outlook],
    format: ReportOutput,
) {
    let (rows, lasts) = planned(options.flags, options.hours, groups, upgrades, outlooks);
    if format == ReportOutput::Table {
        return lines(&rows, options.flags, lasts).iter().for_each(|line| output::line(line));
    }
    let list = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "RolloutPlan", "estimatedSeconds": lasts.as_secs(), "items": rows,
    });
    output::structured(&list, format == ReportOutput::Json);
}

/// The controller's own order, for the rollout that these flags create, and how long it lasts. Those that do not start
/// stand behind.
fn planned(
    flags: &RolloutFlags,
    hours: Hours,
    groups: &[CanaryGroup],
    upgrades: &BTreeMap<String, String>,
    outlooks: &[Outlook],
) -> (Vec<Row>, Duration) {
    let groups = &found(groups, outlooks);
    let begin = hours.not_before.unwrap_or_else(|| time::now().timestamp());
    let intent = Intent { power: Power::Hibernating, reason: None, end: None, now: begin, queried: true, force: false };
    let draft = draft::spec(&intent, Targets::default(), outlooks.len(), hours.not_after);
    let spec = spec(flags, hours, groups, draft);
    let subjects: Vec<Subject> = outlooks.iter().map(|outlook| subject(groups, upgrades, outlook)).collect();
    let Forecast { members, starts, lasts } = forecast(&PowerRollout::new("", spec), &subjects, TYPICAL, begin);
    let places: BTreeMap<usize, (usize, usize)> =
        starts.iter().enumerate().map(|(at, (index, group))| (*index, (at, *group))).collect();
    let mut rows: Vec<(usize, Row)> = Vec::with_capacity(subjects.len());
    for (index, ((subject, outlook), member)) in subjects.iter().zip(outlooks).zip(members).enumerate() {
        let place = places.get(&index);
        let deleted = outlook.hub.iter().find(|finding| finding.code == DELETED);
        let (state, reason) = match member {
            _ if deleted.is_some() => (MemberState::Refused.to_string(), deleted.map(detail).unwrap_or_default()),
            Some((MemberState::Pending, _)) => (STARTS.to_owned(), will_fail(outlook)),
            Some((label, reason)) => (label.to_string(), reason),
            None => (NO_MEMBER.to_owned(), "created after now, by the clock of this machine".to_owned()),
        };
        let group = place.map_or(subject.group, |(_, group)| *group);
        let row = Row {
            namespace: subject.object.identity.namespace.clone(),
            name: subject.object.identity.name.clone(),
            group: groups.get(group).map(|group| group.group.name.clone()).unwrap_or_default(),
            domain: subject.object.obstacles.domain.clone().unwrap_or_default(),
            state,
            reason,
            position: place.map(|(at, _)| at + 1),
        };
        rows.push((group, row));
    }
    rows.sort_by_cached_key(|(group, row)| {
        (row.position.unwrap_or(usize::MAX), *group, row.namespace.clone(), row.name.clone())
    });
    (rows.into_iter().map(|(_, row)| row).collect(), lasts)
}

/// The groups of which at least one target was found.
fn found(groups: &[CanaryGroup], outlooks: &[Outlook]) -> Vec<CanaryGroup> {
    let names: Vec<TargetName> = outlooks.iter().map(|outlook| name_of(&outlook.target)).collect();
    groups.iter().filter(|group| group.members.iter().any(|member| names.contains(member))).cloned().collect()
}

/// What the controller would read of a target. Of its own rules only the one about platforms depends on settings, which
/// the hub knows. What another webhook or a policy refuses is deferred: the controller's account may be exempt.
fn subject(groups: &[CanaryGroup], upgrades: &BTreeMap<String, String>, outlook: &Outlook) -> Subject {
    let target = &outlook.target;
    let read = target.row.read(&target.object).ok();
    let platform = read.as_ref().and_then(|read| read.describe(Record::default()).platform).unwrap_or_default();
    let mut object = read.map(|read| read.view(Some(&Settings::serving(&[&platform])))).unwrap_or_default();
    let blocks = |code: &str| {
        let mut hub = outlook.hub.iter().filter(|_| object.desired.power == Power::Running);
        hub.find(|finding| finding.severity == Severity::Block && finding.code == code).map(detail)
    };
    let by_settings = target.row.plan.and_then(|plan| Some(plan.rules.as_ref()?.by_settings.0));
    let refused = object.obstacles.refused.clone().or_else(|| blocks(by_settings?)).or_else(|| blocks(DELETED));
    let of_spoke = [code::UPGRADE_IN_PROGRESS, code::SPOKE_NOT_ASKED];
    let mut found = outlook.controller.iter().filter(|_| object.observed.has_spoke);
    let checked = found.find(|finding| of_spoke.contains(&finding.code.as_str())).map(detail);
    let checked = checked.or_else(|| blocks(REFUSED));
    let member = name_of(target);
    object.obstacles.refused = refused;
    Subject {
        group: groups.iter().position(|group| group.members.contains(&member)).unwrap_or(groups.len()),
        upgrade: upgrades.get(&target.name).cloned(),
        checked,
        object,
    }
}

fn detail(finding: &Finding) -> String {
    format!("{}: {}", finding.code, finding.sentence)
}

/// What makes a target that starts fail.
fn will_fail(outlook: &Outlook) -> String {
    let blocks = outlook.controller.iter().find(|finding| finding.severity == Severity::Block);
    blocks.map_or_else(String::new, |finding| format!("will fail: {}", detail(finding)))
}

const STARTS: &str = "Starts";
/// What the rollout would not select.
const NO_MEMBER: &str = "NoMember";

fn lines(rows: &[Row], flags: &RolloutFlags, estimate: Duration) -> Vec<String> {
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
    let at_once = flags.max_concurrency.unwrap_or(MAX_CONCURRENCY);
    let words = [
        (STARTS.to_owned(), "start"),
        (MemberState::AlreadyInState.to_string(), "are asleep already"),
        (MemberState::Deferred.to_string(), "deferred"),
        (MemberState::Refused.to_string(), "refused"),
        (MemberState::Overridden.to_string(), "overridden"),
        (NO_MEMBER.to_owned(), "no members"),
    ];
    let counts: Vec<String> = words
        .into_iter()
        .map(|(state, words)| (count(&state), words))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let table = rows.iter().map(|row| {
        let group = if row.group.is_empty() { REMAINING } else { &row.group };
        let position = row.position.map(|at| at.to_string()).unwrap_or_default();
        let target = place(&TargetName { namespace: row.namespace.clone(), name: row.name.clone() });
        vec![position, group.to_owned(), target, row.domain.clone(), row.state.clone(), row.reason.clone()]
    });
    let mut lines = vec![format!("{} targets, up to {at_once} at a time: {}", rows.len(), counts.join(", "))];
    lines.extend(output::table(&["ORDER", "GROUP", "TARGET", "DOMAIN", "STATE", "REASON"], table));
    lines.push(format!(
        "Rough estimate: {}, at a typical {} for a target; a deferred target is tried again until --not-after",
        elapsed(estimate),
        elapsed(TYPICAL)
    ));
    lines
}

#[cfg(test)]
mod tests {
    use shared::annotation::keys;
    use shared::kinds::CLUSTER_DEPLOYMENT;
    use shared::rollout::Share;
    use view::target::Target;

    use super::*;
    use crate::cmd::rollout::canary;

    fn outlook(name: &str, account: &str, hub: Vec<Finding>) -> Outlook {
        let object = json!({
            "metadata": { "name": name, "namespace": "x" },
            "spec": {
                "baseDomain": "d", "clusterName": name, "installed": true,
                "clusterMetadata": { "clusterID": "c", "infraID": name, "adminKubeconfigSecretRef": { "name": "k" } },
                "platform": { "aws": { "region": "r", "credentialsSecretRef": { "name": account } } },
            },
            "status": { "conditions": [{ "type": "Hibernating", "status": "False" }, { "type": "Ready", "status": "True" }] },
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
        let targets: Vec<&Target> = outlooks.iter().map(|outlook| &outlook.target).collect();
        canary::find(&canary::read(&[name.to_owned()]).unwrap(), None, false, &targets).unwrap()
    }

    fn plan(groups: &[CanaryGroup], flags: &RolloutFlags, outlooks: &[Outlook]) -> (Vec<Row>, Duration) {
        let hours = flags.hours(&"2026-11-21T20:30:00Z[UTC]".parse().unwrap()).unwrap();
        let upgrades = [("busy".to_owned(), "an upgrade".to_owned())].into();
        planned(flags, hours, groups, &upgrades, outlooks)
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
        let flags = flags(2, None);
        let (rows, lasts) = plan(&groups, &flags, &outlooks);
        insta::assert_snapshot!(lines(&rows, &flags, lasts).join("\n"), @r"
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
        let none = json!({});
        let claim = r#"{"v":1,"by":"dawn","uid":"u","action":"Resume","group":0,"attempt":0,"before":"Hibernating","wanted":"Running","at":"2026-11-21T20:00:00Z"}"#;
        let annotated = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
        let asleep = json!({
            "spec": { "powerState": "Hibernating" },
            "status": { "conditions": [{ "type": "Hibernating", "status": "True" }, { "type": "Ready", "status": "False" }] },
        });
        for (change, hub, controller, state, reason) in [
            (none.clone(), vec![], vec![], "Starts", ""),
            (asleep.clone(), vec![], vec![], "AlreadyInState", ""),
            (asleep, vec![block("Paused")], vec![warn(code::SPOKE_NOT_ASKED)], "AlreadyInState", ""),
            (
                annotated(keys::HOLD_AWAKE_UNTIL, "2126-01-01T00:00:00Z"),
                vec![block("V6")],
                vec![],
                "Deferred",
                "held awake",
            ),
            (annotated(keys::PROTECTED, "true"), vec![warn("V6")], vec![], "Refused", "V6: metadata.annotations"),
            (annotated(keys::ROLLOUT, claim), vec![], vec![], "Deferred", "in progress in rollout dawn"),
            (none.clone(), vec![block("V4")], vec![], "Refused", "V4: so"),
            (none.clone(), vec![block(DELETED)], vec![], "Refused", "Deleted: so"),
            // Of another webhook, or of ours while it is down: the controller's account may be exempt.
            (none.clone(), vec![block("Refused")], vec![], "Deferred", "Refused: so"),
            (none.clone(), vec![block("WebhookDown")], vec![], "Starts", ""),
            (json!({ "spec": { "installed": false } }), vec![warn("V2")], vec![], "Deferred", "not installed yet"),
            // Installed less than a day ago: a warning, and no reason to wait.
            (none.clone(), vec![warn("V7")], vec![], "Starts", ""),
            (json!({ "metadata": { "name": "busy" } }), vec![], vec![], "Deferred", "an upgrade"),
            (none.clone(), vec![], vec![warn(code::UPGRADE_IN_PROGRESS)], "Deferred", "UpgradeInProgress: so"),
            (none.clone(), vec![], vec![warn(code::SPOKE_NOT_ASKED)], "Deferred", "SpokeNotAsked: so"),
            (none, vec![], vec![block(code::CREDENTIALS)], "Starts", "will fail: Credentials: so"),
        ] {
            let mut object = outlook("a", "one", vec![]).target.object;
            json_patch::merge(&mut object, &change);
            let target = Target::new(&CLUSTER_DEPLOYMENT, "v1", object);
            let outlook = Outlook { target, controller, ..outlook("a", "one", hub) };
            let rows = plan(&[], &flags(1, None), &[outlook]).0;
            assert!(rows[0].state == state && rows[0].reason.starts_with(reason), "{state} {reason}: {rows:?}");
            assert_eq!(rows[0].reason.is_empty(), reason.is_empty(), "{rows:?}");
        }
    }

    #[test]
    fn a_canary_that_cannot_be_asked_about_leaves_the_rest() {
        let outlooks = [outlook("a", "one", vec![]), outlook("z", "two", vec![])];
        let rows = plan(&canaries("z", &outlooks), &flags(2, None), &outlooks[..1]).0;
        assert_eq!((rows.len(), rows[0].position), (1, Some(1)));
    }

    #[test]
    fn an_estimate_counts_rounds_and_the_pace_of_starts() {
        let outlooks: Vec<Outlook> = (0..41).map(|at| outlook(&format!("c{at:02}"), "one", vec![])).collect();
        let groups = canaries("c00", &outlooks);
        let minutes = |flags: &RolloutFlags| plan(&groups, flags, &outlooks).1.as_secs() / 60;
        assert_eq!(minutes(&RolloutFlags::default()), 5 + 2 + 2 * 5);
        assert_eq!(minutes(&flags(40, None)), 5 + 2 + 5);
        // The first of the rest starts when the canary has proven itself.
        assert_eq!(minutes(&flags(40, Some(1))), 5 + 2 + 39 + 5);
        assert_eq!(plan(&[], &flags(40, Some(1)), &[]).1, Duration::ZERO);
    }
}
