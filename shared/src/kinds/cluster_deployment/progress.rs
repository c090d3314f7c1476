//! A cluster's progress, and the step in progress.

use jiff::Timestamp;

use crate::annotation::keys;
use crate::hive::api::{ClusterDeployment, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use crate::hive::conditions::{HIBERNATING, PROGRESS, READY, reason};
use crate::hive::preflight;
use crate::kinds::lifecycle::Progress;
use crate::kinds::view::StepRecord;
use crate::power::Power;

/// | # | seen | sleep | wake |
/// |---|---|---|---|
/// | P1 | being deleted | lost | lost |
/// | P2 | spec.powerState is not what was asked for | lost | lost |
/// | P3 | P, and H or R, are what was asked for | reached | reached |
/// | P4 | H reason Unsupported | lost | - |
/// | P5 | paused, or not installed | going | going |
/// | P6 | a step in this direction | going | going |
/// | P7 | anything else | unnoticed | unnoticed |
pub(super) fn of(cluster: &ClusterDeployment, action: Power) -> Progress {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Progress::Failed("it is being deleted".to_owned()); // P1
    }
    if cluster.desired() != action {
        let by = cluster.metadata.annotations.as_ref().and_then(|annotations| annotations.get(keys::REQUESTED_BY));
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        return Progress::Failed(format!("spec.powerState was changed to {}{by} meanwhile", cluster.desired())); // P2
    }
    if is_reached(cluster, action) {
        return Progress::Reached; // P3
    }
    if action == Power::Hibernating && cluster.reason(HIBERNATING) == reason::UNSUPPORTED {
        return Progress::Failed(format!("the platform cannot hibernate it: {}", cluster.message(HIBERNATING))); // P4
    }
    if let Some(pause) = pause(cluster) {
        return Progress::InProgress(pause.to_owned()); // P5
    }
    match step(cluster) {
        Some(StepRecord { failed: true, message, .. }) => {
            Progress::InProgress(format!("{message}; the controller retries"))
        } // P6
        Some(StepRecord { message, .. }) => Progress::InProgress(message), // P6
        None => Progress::Unnoticed,                                       // P7
    }
}

/// Of a preflight for the sake of the machines. The controller lists them first, and reports those that it starts
/// before it answers.
///
/// | # | seen | progress |
/// |---|---|---|
/// | A1 | a wake that is not reached (P1 to P7) | the same |
/// | A2 | an older answer | unanswered |
/// | A3 | an answer that the machines could not be listed, or one that cannot be read | lost |
/// | A4 | any other answer, or none ever: our controller does not serve the cluster | reached |
pub(super) fn of_check(cluster: &ClusterDeployment, requested: Timestamp) -> Progress {
    match of(cluster, Power::Running) {
        Progress::Reached if cluster.condition(preflight::PREFLIGHT).is_none() => Progress::Reached, // A4
        Progress::Reached if !preflight::answers(cluster, requested) => {
            let why = preflight::unanswered(cluster);
            Progress::Unanswered(format!("waiting for a check of its machines: {why}")) // A2
        }
        Progress::Reached => preflight::unlisted(cluster).map_or(Progress::Reached, Progress::Failed), // A3, A4
        progress => progress,                                                                          // A1
    }
}

fn is_reached(cluster: &ClusterDeployment, wanted: Power) -> bool {
    let condition = if wanted == Power::Hibernating { HIBERNATING } else { READY };
    cluster.is_true(condition) && cluster.power_state() == wanted.to_string()
}

/// What keeps every controller from acting.
pub(super) fn pause(cluster: &ClusterDeployment) -> Option<&'static str> {
    if cluster.annotation_is_true(RECONCILE_PAUSE) {
        return Some("paused: annotation hive.openshift.io/reconcile-pause is set");
    }
    if cluster.annotation_is_true(POWERSTATE_PAUSE) {
        return Some("paused: annotation hive.openshift.io/powerstate-pause is set");
    }
    (!cluster.spec.installed).then_some("not installed yet")
}

/// The step toward the desired state, if one is in progress: Hive reports a sleep in H and a wake in R. Where nothing
/// is reported there, our controller may still say what it waits for, such as the cloud.
pub(super) fn step(cluster: &ClusterDeployment) -> Option<StepRecord> {
    let (condition, elsewhere) = match cluster.desired() {
        Power::Hibernating => (HIBERNATING, [reason::RESUMING_OR_RUNNING, reason::UNSUPPORTED]),
        Power::Running => (READY, [reason::STOPPING_OR_HIBERNATING, reason::RUNNING]),
    };
    let ours = cluster.condition(PROGRESS).filter(|ours| ours.status == "True");
    let detail = ours.and_then(|ours| ours.message.as_deref()).unwrap_or_default();
    let condition = cluster.condition(condition).filter(|condition| condition.status == "False");
    let condition = condition.filter(|condition| !elsewhere.contains(&condition.reason.as_deref().unwrap_or_default()));
    let Some(condition) = condition else {
        let reason = ours?.reason.clone().unwrap_or_default();
        return Some(StepRecord { reason, message: detail.to_owned(), failed: false });
    };
    let reason = condition.reason.clone().unwrap_or_default();
    let failed = reason::is_failure(&reason);
    let message = sentence(condition.message.as_deref().unwrap_or_default(), detail);
    Some(StepRecord { reason, message, failed })
}

/// Hive's sentence and our detail in one. Both may name the machines: then ours do, which are counted.
fn sentence(hive: &str, detail: &str) -> String {
    if detail.is_empty() || hive.contains(detail) {
        return hive.to_owned();
    }
    let head = hive.split_once(". Some machines ").map_or(hive, |(head, _)| head);
    format!("{head}: {detail}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::finding::{Finding, Severity, code};
    use crate::hive::data::{DATA, Data};
    use crate::hive::preflight::PREFLIGHT;
    use crate::record::Format;

    /// `("H", "False", "Stopping", "...")`.
    type Said<'a> = (&'a str, &'a str, &'a str, &'a str);

    fn cluster(desired: &str, observed: &str, conditions: &[Said<'_>]) -> ClusterDeployment {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason, message)| {
                let kind = match *kind {
                    "H" => HIBERNATING,
                    "R" => READY,
                    other => other,
                };
                json!({ "type": kind, "status": status, "reason": reason, "message": message })
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeployment",
            "metadata": { "name": "demo" },
            "spec": {
                "baseDomain": "d", "clusterName": "demo", "platform": {}, "installed": true, "powerState": desired,
            },
            "status": { "powerState": observed, "conditions": conditions },
        }))
        .unwrap()
    }

    const RUNS: [Said<'_>; 2] = [
        ("H", "False", "ResumingOrRunning", "Cluster is resuming or running, see Ready condition for details"),
        ("R", "True", "Running", "Cluster is running"),
    ];
    const SLEEPS: [Said<'_>; 2] = [
        ("H", "True", "Hibernating", "Cluster is stopped"),
        ("R", "False", "StoppingOrHibernating", "Cluster is shutting down or hibernating, see Hibernating condition"),
    ];

    fn going(text: &str) -> Progress {
        Progress::InProgress(text.to_owned())
    }

    #[test]
    fn a_sleep_is_followed_from_unnoticed_to_reached() {
        const STOPPING: &str = "Stopping cluster machines";
        let stopping = "Stopping cluster machines. Some machines have not yet stopped: i-1,i-2";
        let failed = "Failed to stop machines: denied (more detail may be available in the logs)";
        let shutting = SLEEPS[1];
        let silent = (PROGRESS, "True", "CloudUnreachable", "EC2 is silent");
        let left = (PROGRESS, "True", "MachinesToStop", "2 of 6 instances are not stopped: i-1, i-2");
        let hibernating = |reason, message| ("H", "False", reason, message);
        let waits = hibernating("WaitingForMachinesToStop", stopping);
        let retries = format!("{failed}; the controller retries");
        for (observed, conditions, expected) in [
            ("Running", RUNS.to_vec(), Progress::Unnoticed),
            ("Running", [&RUNS[..], &[silent]].concat(), going("EC2 is silent")),
            ("Stopping", vec![waits, shutting, left], going(&format!("{STOPPING}: {}", left.3))),
            ("", vec![], Progress::Unnoticed),
            ("Stopping", vec![hibernating("Stopping", STOPPING), shutting], going(STOPPING)),
            ("WaitingForMachinesToStop", vec![waits, shutting], going(stopping)),
            ("FailedToStop", vec![hibernating("FailedToStop", failed), shutting], going(&retries)),
            ("Hibernating", SLEEPS.to_vec(), Progress::Reached),
            // Stale H of the last sleep (docs/reference/hive.md, section 1.3): P says that it has not begun.
            ("Running", SLEEPS.to_vec(), Progress::Unnoticed),
        ] {
            assert_eq!(of(&cluster("Hibernating", observed, &conditions), Power::Hibernating), expected, "{observed}");
        }
    }

    #[test]
    fn a_wake_is_followed_and_names_what_is_missing() {
        let nodes = "Waiting for Nodes to be ready (step 2/4)";
        let woken = RUNS[0];
        let starts = ("R", "False", "StartingMachines", "Starting (step 1/4)");
        let waits = ("R", "False", "WaitingForNodes", nodes);
        let missing = (PROGRESS, "True", "WaitingForNodes", "node-a, node-b");
        for (observed, conditions, expected) in [
            ("Hibernating", SLEEPS.to_vec(), Progress::Unnoticed),
            ("StartingMachines", vec![woken, starts], going("Starting (step 1/4)")),
            ("WaitingForNodes", vec![woken, waits, missing], going(&format!("{nodes}: node-a, node-b"))),
            ("WaitingForNodes", vec![woken, waits, (PROGRESS, "False", "", "old")], going(nodes)),
            ("Running", RUNS.to_vec(), Progress::Reached),
        ] {
            assert_eq!(of(&cluster("Running", observed, &conditions), Power::Running), expected, "{observed}");
        }
    }

    #[test]
    fn a_check_is_awaited_until_it_is_answered_and_what_it_found_runs() {
        use Severity::{Block, Info, Warn};
        const REQUESTED: &str = "2026-11-21T18:00:00Z";
        let runs = || cluster("Running", "Running", &RUNS);
        let starts =
            || cluster("Running", "StartingMachines", &[RUNS[0], ("R", "False", "StartingMachines", "Starting")]);
        let credentials = (Info, code::CREDENTIALS, "3 found");
        let answered =
            |mut cluster: ClusterDeployment, at: &str, (severity, code, sentence): (Severity, &str, &str)| {
                let found = vec![Finding::new(Severity::Warn, "A", "b"), Finding::new(severity, code, sentence)];
                let data = Data::default().with_preflight(at.parse().unwrap(), found);
                for condition in [
                    json!({ "type": PREFLIGHT, "status": "True", "lastProbeTime": at }),
                    json!({ "type": DATA, "status": "False", "message": data.text() }),
                ] {
                    cluster.status.as_mut().unwrap().conditions.push(serde_json::from_value(condition).unwrap());
                }
                cluster
            };
        let mut unread = answered(runs(), REQUESTED, credentials);
        unread.status.as_mut().unwrap().conditions.retain(|condition| condition.type_ != DATA);
        let unanswered = Progress::Unanswered(
            "waiting for a check of its machines: hibernate-controller has not answered; is it running, and does it serve \
             the platform gcp?"
                .to_owned(),
        );
        let lost = |why: &str| Progress::Failed(format!("its machines were not checked: {why}"));
        for (case, mut cluster, expected) in [
            ("A4 never served", runs(), Progress::Reached),
            (
                "A2 an older answer",
                answered(runs(), "2026-11-21T17:59:59Z", (Block, code::CREDENTIALS, "none")),
                unanswered,
            ),
            ("A1 stopped machines are found", starts(), going("Starting")),
            ("A1 the same, answered", answered(starts(), REQUESTED, credentials), going("Starting")),
            ("A3 no list", answered(runs(), REQUESTED, (Warn, code::CLOUD_NOT_ASKED, "silent")), lost("silent")),
            ("A3 refused", answered(runs(), REQUESTED, (Block, code::CREDENTIALS, "denied")), lost("denied")),
            (
                "A3 unreadable",
                unread,
                Progress::Failed(format!("the condition {DATA} does not hold what the check of its machines found")),
            ),
            ("A4", answered(runs(), REQUESTED, credentials), Progress::Reached),
            (
                "A4 of other things",
                answered(runs(), "2026-11-21T18:00:09Z", (Warn, code::SPOKE_NOT_ASKED, "a")),
                Progress::Reached,
            ),
        ] {
            cluster.spec.platform = serde_json::from_value(json!({ "gcp": { "region": "r" } })).unwrap();
            assert_eq!(of_check(&cluster, REQUESTED.parse().unwrap()), expected, "{case}");
        }
    }

    #[test]
    fn what_cannot_succeed_is_not_waited_for() {
        let mut deleted = cluster("Hibernating", "Running", &RUNS);
        deleted.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-11-21T16:00:00Z")).unwrap());
        let mut changed = cluster("Running", "Running", &RUNS);
        changed.metadata.annotations = Some([(keys::REQUESTED_BY.to_owned(), "bob".to_owned())].into());
        let unsupported = [("H", "False", "Unsupported", "Unsupported platform: no actuator to handle it"), RUNS[1]];
        for (cluster, part) in [
            (deleted, "being deleted"),
            (changed, "changed to Running by bob"),
            (cluster("Hibernating", "Running", &unsupported), "no actuator"),
        ] {
            let Progress::Failed(why) = of(&cluster, Power::Hibernating) else { panic!("{part}") };
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_pause_is_named() {
        for (annotation, part) in [(RECONCILE_PAUSE, "reconcile-pause"), (POWERSTATE_PAUSE, "powerstate-pause")] {
            let mut cluster = cluster("Hibernating", "Running", &RUNS);
            cluster.metadata.annotations = Some([(annotation.to_owned(), "true".to_owned())].into());
            let Progress::InProgress(text) = of(&cluster, Power::Hibernating) else { panic!("{part}") };
            assert!(text.contains(part), "{text}");
        }
        let mut new = cluster("Hibernating", "", &[]);
        new.spec.installed = false;
        assert_eq!(of(&new, Power::Hibernating), going("not installed yet"));
    }
}
