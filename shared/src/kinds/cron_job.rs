//! `CronJob`s: asleep is `spec.suspend: true`, with the former value in an annotation. Jobs under way are not touched.
//!
//! | # | asked | suspended | record | answer |
//! |---|---|---|---|---|
//! | J1 | sleep | no | any | suspended, `false` recorded |
//! | J2 | sleep | no, protected | any | refused |
//! | J3 | sleep | yes | none | `true` recorded: a wake leaves it suspended |
//! | J4 | sleep | yes | any | nothing: it sleeps, and what is recorded stays; if others have set it since, as J3 |
//! | J5 | wake | yes | `false` | no longer suspended, record removed; if others have set it since, as J6 |
//! | J6 | wake | yes | `true` | stays suspended, record removed |
//! | J7 | wake | yes | none | nothing for one of many; an error for one that is named |
//! | J8 | wake | yes | malformed | error that names the annotation |
//! | J9 | wake | no | none | nothing: it is awake |
//! | J10 | wake | no | any | the stale record is removed, and named |
//!
//! Patches carry the resourceVersion, as those of other workloads do.

use serde_json::{Value, json};

use super::kind::Kind;
use super::lifecycle::{Change, Intent, Lifecycle, Progress, TargetError};
use super::record::Record;
use super::row::{Reader, TargetKind};
use super::view::{Observed, StepRecord, View};
use super::workload::{DEPLOYMENT, STATEFUL_SET, row};
use crate::admission::Settings;
use crate::annotation::{annotation, format, keys, protected};
use crate::power::Power;
use crate::text::sanitize_to;
use crate::workload::ownership::{SUSPEND, our_last_write, stale_record};
use crate::workload::replicas::{ReplicasError, guarded, reason_change};

/// `CronJob`.
pub static CRON_JOB: TargetKind = TargetKind {
    deployed_field: Some("suspend"),
    writes: "spec.suspend: true",
    in_namespace: true,
    stage: 1,
    asleep: "suspended",
    awake: "restored",
    is_listed: |record| record.observed != "Running" || record.more.contains_key(RECORDED),
    reader: Reader::Code(|object| Ok(Box::new(CronJob(object)))),
    ..row(Kind::namespaced("batch", &["v1"], "CronJob", "cronjobs").with_short(&["cj"]))
};

/// The kinds that schedules of Workloads put to sleep.
pub const IN_NAMESPACE: &[&TargetKind] = &[&DEPLOYMENT, &STATEFUL_SET, &CRON_JOB];

/// The field of a record for [`keys::CRON_JOB_SUSPEND`].
const RECORDED: &str = "recordedSuspend";
/// Of one whose missed runs have no deadline: Kubernetes starts the last of them. Before a sleep, and before a wake.
const MISSES: &str = "a run that it misses while suspended starts as soon as it resumes: to prevent that, set \
                      spec.startingDeadlineSeconds (such as 60) before the resume";
const MISSED: &str = "the last run that it has missed while suspended starts as soon as it resumes: \
                      spec.startingDeadlineSeconds (such as 60) prevents that, set before a resume";
/// Characters that a message shows of a record.
const MAX_TEXT: usize = 32;

#[derive(Debug)]
struct CronJob<'a>(&'a Value);

impl Lifecycle for CronJob<'_> {
    /// `Hibernating` is what a wake starts again, `Suspended` what it leaves alone.
    fn view(&self, _: Option<&Settings>) -> View {
        let object = self.0;
        let recorded = annotation(object, keys::CRON_JOB_SUSPEND).and_then(format::boolean);
        let (power, state) = match (is_suspended(object), recorded) {
            (false, _) => (Power::Running, "Running"),
            (true, Some(false)) => (Power::Hibernating, "Hibernating"),
            (true, _) => (Power::Hibernating, "Suspended"),
        };
        let active = object.pointer("/status/active").and_then(Value::as_array).map_or(0, Vec::len);
        let observed = Observed {
            state: state.to_owned(),
            since: our_last_write(object).filter(|_| state == "Hibernating"),
            step: (state != "Running" && active > 0).then(|| StepRecord::waiting(format!("Jobs under way: {active}"))),
            ..Observed::default()
        };
        View { observed, ..View::of_value(object, power) }
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        use Power::{Hibernating, Running};
        let object = self.0;
        let none = |message: &str, will_reach: bool| Change::None { message: message.to_owned(), will_reach };
        let write = |suspend: Option<bool>, record: Option<bool>, message: &str| {
            let mut annotations = reason_change(object, intent.reason);
            annotations.insert(keys::CRON_JOB_SUSPEND.to_owned(), json!(record.map(|was| was.to_string())));
            let mut patch = guarded(object, &annotations, None);
            if let Some(suspend) = suspend {
                patch["spec"] = json!({ "suspend": suspend });
            }
            let missed =
                suspend.is_some() && object.pointer("/spec/startingDeadlineSeconds").is_none_or(Value::is_null);
            let sentence = if intent.power == Hibernating { MISSES } else { MISSED };
            let warnings = missed.then(|| sentence.to_owned()).into_iter().collect();
            Change::Patch { patch, message: message.to_owned(), warnings }
        };
        let recorded = annotation(object, keys::CRON_JOB_SUSPEND);
        // Others have suspended it since, and may want it so.
        let stale = || {
            recorded.and_then(format::boolean) == Some(false)
                && stale_record(object, keys::CRON_JOB_SUSPEND, SUSPEND).is_some()
        };
        Ok(match (intent.power, is_suspended(object), recorded) {
            (Hibernating, false, _) if protected(annotation(object, keys::PROTECTED)) => {
                return Err(TargetError::Refused(ReplicasError::Protected.to_string())); // J2
            }
            (Hibernating, false, _) => write(Some(true), Some(false), "hibernated (suspended)"), // J1
            (Hibernating, true, None) => write(None, Some(true), "already suspended (a resume leaves it so)"), // J3
            (Hibernating, true, Some(_)) if stale() => {
                write(None, Some(true), "already suspended by others (a resume leaves it so)") // J4
            }
            (Hibernating, true, Some(_)) | (Running, false, None) => none("unchanged", true), // J4, J9
            (Running, false, Some(text)) => {
                let text = sanitize_to(text, MAX_TEXT);
                write(None, None, &format!("already awake, stale record (suspended: {text}) removed")) // J10
            }
            (Running, true, None) if intent.queried => none("left suspended (nothing recorded)", false), // J7
            (Running, true, None) => {
                return Err(TargetError::Impossible(format!(
                    "it is suspended and no annotation {} says that it was not: set spec.suspend to false by hand",
                    keys::CRON_JOB_SUSPEND
                ))); // J7
            }
            (Running, true, Some(text)) => match format::boolean(text) {
                Some(false) if stale() => write(None, None, "left suspended: others have set it since it was recorded"), // J5
                Some(false) => write(Some(false), None, "resumed"), // J5
                Some(true) => write(None, None, "left suspended, as it was before the sleep"), // J6
                None => {
                    return Err(TargetError::Impossible(format!(
                        "annotation {} is {:?}, not true or false: correct it, or set spec.suspend by hand",
                        keys::CRON_JOB_SUSPEND,
                        sanitize_to(text, MAX_TEXT)
                    ))); // J8
                }
            },
        })
    }

    /// No controller has to act: a `CronJob` is asleep or awake as soon as it is written.
    fn progress(&self, action: Power) -> Progress {
        let object = self.0;
        let lost = |why: &str| Progress::Failed(why.to_owned());
        let suspended = is_suspended(object);
        match action {
            _ if object.pointer("/metadata/deletionTimestamp").is_some() => lost("it is being deleted"),
            Power::Hibernating if !suspended => lost("its spec.suspend was set to false meanwhile"),
            // One that was suspended before its sleep stays so, without a record.
            Power::Running if suspended && annotation(object, keys::CRON_JOB_SUSPEND).is_some() => {
                lost("it was put to sleep meanwhile")
            }
            _ => Progress::Reached,
        }
    }

    fn describe(&self, mut record: Record) -> Record {
        record.more.extend(annotation(self.0, keys::CRON_JOB_SUSPEND).map(|text| (RECORDED, json!(text))));
        record
    }
}

fn is_suspended(object: &Value) -> bool {
    object.pointer("/spec/suspend") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn cron_job(suspend: bool, recorded: Option<&str>) -> Value {
        let annotations = recorded.map(|recorded| json!({ keys::CRON_JOB_SUSPEND: recorded }));
        let metadata =
            json!({ "name": "report", "namespace": "shop", "resourceVersion": "7", "annotations": annotations });
        json!({ "metadata": metadata, "spec": { "suspend": suspend } })
    }

    fn change(object: &Value, action: Power, queried: bool) -> Result<Change, TargetError> {
        let intent =
            Intent { power: action, reason: None, end: None, now: Timestamp::UNIX_EPOCH, queried, force: false };
        CRON_JOB.change(object, &intent)
    }

    /// What becomes of `spec.suspend` and of the record: `-` is not written, `null` is removed.
    fn written(object: &Value, action: Power) -> String {
        match change(object, action, true) {
            Ok(Change::Patch { patch, .. }) => {
                assert_eq!(patch["metadata"]["resourceVersion"], "7");
                let suspend = patch.pointer("/spec/suspend").map_or("-".to_owned(), Value::to_string);
                format!("{suspend} {}", patch["metadata"]["annotations"][keys::CRON_JOB_SUSPEND])
            }
            Ok(Change::None { message, .. } | Change::RequestCheck { message, .. }) => message,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_cron_job_that_was_suspended_before_stays_suspended_after_a_wake() {
        use Power::{Hibernating, Running};
        for (row, suspend, recorded, action, expected) in [
            ("J1", false, None, Hibernating, "true \"false\""),
            ("J1 stale", false, Some("true"), Hibernating, "true \"false\""),
            ("J3", true, None, Hibernating, "- \"true\""),
            ("J4", true, Some("false"), Hibernating, "unchanged"),
            ("J4 foreign", true, Some("true"), Hibernating, "unchanged"),
            ("J5", true, Some("false"), Running, "false null"),
            ("J6", true, Some("true"), Running, "- null"),
            ("J7", true, None, Running, "left suspended (nothing recorded)"),
            ("J9", false, None, Running, "unchanged"),
            ("J10", false, Some("false"), Running, "- null"),
        ] {
            assert_eq!(written(&cron_job(suspend, recorded), action), expected, "{row}");
        }
        assert!(written(&cron_job(true, Some("yes")), Running).contains("is \"yes\", not true or false"), "J8");
        for (action, expected) in [(Hibernating, "- \"true\""), (Running, "- null")] {
            let mut object = cron_job(true, Some("false"));
            let entry = |manager: &str, minute: u32, fields: Value| {
                let time = format!("2026-11-21T09:{minute:02}:00Z");
                json!({ "manager": manager, "operation": "Update", "time": time, "fieldsV1": fields })
            };
            object["metadata"]["managedFields"] = json!([
                entry(
                    keys::PLUGIN,
                    5,
                    json!({ "f:metadata": { "f:annotations": { "f:hibernate.sh/cronjob-suspend": {} } } })
                ),
                entry("kubectl-patch", 7, json!({ "f:spec": { "f:suspend": {} } })),
            ]);
            assert_eq!(written(&object, action), expected, "others have suspended it since: {action:?}");
        }
        let named = change(&cron_job(true, None), Running, false);
        assert!(matches!(named, Err(TargetError::Impossible(text)) if text.contains("spec.suspend")), "J7 named");
    }

    #[test]
    fn what_an_error_advises_works() {
        use Power::{Hibernating, Running};
        let note = |key: &str, value: Value| json!({ "metadata": { "annotations": { key: value } } });
        let runs = || json!({ "spec": { "suspend": false } });
        let mut protected = cron_job(false, None);
        json_patch::merge(&mut protected, &note(keys::PROTECTED, json!("true")));
        for (object, action, advice, edits) in [
            (
                protected,
                Hibernating,
                "remove the annotation hibernate.sh/protected",
                vec![note(keys::PROTECTED, Value::Null)],
            ),
            (cron_job(true, None), Running, "set spec.suspend to false by hand", vec![runs()]),
            (
                cron_job(true, Some("yes")),
                Running,
                "correct it, or set spec.suspend by hand",
                vec![note(keys::CRON_JOB_SUSPEND, json!("false")), note(keys::CRON_JOB_SUSPEND, json!("true")), runs()],
            ),
        ] {
            let error = change(&object, action, false).unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
            for edit in edits {
                let mut object = object.clone();
                json_patch::merge(&mut object, &edit);
                assert!(change(&object, action, false).is_ok(), "{error}: {edit}");
            }
        }
    }

    #[test]
    fn a_run_that_would_be_made_up_for_is_named_before_the_sleep_and_the_resume() {
        use Power::{Hibernating, Running};
        let warned = |object: &Value, action| match change(object, action, true).unwrap() {
            Change::Patch { warnings, .. } => warnings,
            _ => Vec::new(),
        };
        for (suspend, recorded, action, expected) in [
            (false, None, Hibernating, 1),
            (true, Some("false"), Running, 1),
            (true, Some("true"), Running, 0),
            (true, None, Hibernating, 0),
        ] {
            let mut object = cron_job(suspend, recorded);
            assert_eq!(warned(&object, action).len(), expected, "{suspend} {recorded:?} {action:?}");
            object["spec"]["startingDeadlineSeconds"] = json!(60);
            assert_eq!(warned(&object, action), [""; 0], "as advised");
        }
    }

    #[test]
    fn a_protected_cron_job_refuses_to_sleep_only_while_it_runs() {
        let mut object = cron_job(false, None);
        object["metadata"]["annotations"] = json!({ keys::PROTECTED: "true" });
        assert!(matches!(change(&object, Power::Hibernating, true), Err(TargetError::Refused(_))));
        object["spec"]["suspend"] = json!(true);
        assert!(change(&object, Power::Hibernating, true).is_ok());
    }

    #[test]
    fn a_status_tells_what_a_wake_starts_from_what_it_leaves_alone() {
        for (suspend, recorded, expected) in [
            (false, None, ("Running", false)),
            (false, Some("false"), ("Running", true)),
            (true, Some("false"), ("Hibernating", true)),
            (true, Some("true"), ("Suspended", true)),
            (true, None, ("Suspended", true)),
        ] {
            let record = CRON_JOB.record(&cron_job(suspend, recorded)).unwrap();
            assert_eq!((record.observed.as_str(), (CRON_JOB.is_listed)(&record)), expected, "{recorded:?}");
            assert_eq!(record.more.get(RECORDED).and_then(Value::as_str), recorded);
        }
        let mut object = cron_job(true, Some("false"));
        object["status"] = json!({ "active": [{ "name": "report-1" }] });
        assert_eq!(CRON_JOB.record(&object).unwrap().step.unwrap().message, "Jobs under way: 1");
    }

    #[test]
    fn a_cron_job_is_done_as_soon_as_it_is_written() {
        use Power::{Hibernating, Running};
        for (suspend, recorded, action, reached) in [
            (true, Some("false"), Hibernating, true),
            (false, Some("false"), Hibernating, false),
            (false, None, Running, true),
            (true, None, Running, true),
            (true, Some("false"), Running, false),
        ] {
            let progress = CRON_JOB.progress(&cron_job(suspend, recorded), action).unwrap();
            assert_eq!(progress == Progress::Reached, reached, "{suspend} {recorded:?} {action:?}");
        }
    }
}
