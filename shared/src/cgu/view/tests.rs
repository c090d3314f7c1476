use serde_json::{Value, json};

use super::*;
use crate::cgu::wire::parse;

pub(in crate::cgu) fn view(scope: &Value, reason: &str, result: &Value) -> View {
    let labels = json!({ UPGRADE: "cgu", UPGRADE_NAMESPACE: "ns" });
    let condition = json!({ "type": "Processing", "status": "True", "reason": reason });
    let status = json!({ "conditions": [condition], "result": result });
    View::read(&parse(&json!({ "metadata": { "labels": labels }, "spec": { "scope": scope }, "status": status })))
        .unwrap()
}

pub(in crate::cgu) const ANSWERED: &str = "GetResourceProcessing";

/// "A View counts" of section 9.4.
#[test]
fn a_result_counts_only_where_it_calls_for_an_approval() {
    let subscription =
        json!({ "resource": "Subscription.operators.coreos.com", "name": "ptp", "namespace": "openshift-ptp" });
    let waits = |state: &str, name: &str| json!({ "status": { "state": state, "installplan": { "name": name } } });
    let pending = |name: &str| Answer::Pending(name.to_owned());
    for (reason, result, expected) in [
        (ANSWERED, waits("UpgradePending", "install-aaaa1"), pending("install-aaaa1")),
        (ANSWERED, waits("AtLatestKnown", "install-aaaa1"), Answer::Nothing),
        (ANSWERED, waits("UpgradePending", ""), Answer::Nothing),
        (ANSWERED, waits("UpgradePending", "../spoke2"), Answer::Nothing),
        (ANSWERED, waits("UpgradePending", "a..b"), Answer::Nothing),
        (ANSWERED, waits("UpgradePending", "Install"), Answer::Nothing),
        (ANSWERED, waits("UpgradePending", &"a".repeat(254)), Answer::Nothing),
        (ANSWERED, json!({ "status": { "state": "UpgradePending" } }), Answer::Nothing),
        (ANSWERED, json!(null), Answer::Nothing),
        ("GetResourceFailed", waits("UpgradePending", "install-aaaa1"), Answer::Nothing),
    ] {
        assert_eq!(view(&subscription, reason, &result).answer, expected, "{reason} {result}");
    }

    let plan = json!({ "resource": "InstallPlan", "name": "install-aaaa1", "namespace": "openshift-ptp" });
    let result = |approval: &str, approved: Value, version: &str, versions: Value| {
        json!({
            "metadata": { "resourceVersion": version },
            "spec": { "approval": approval, "approved": approved, "clusterServiceVersionNames": versions },
        })
    };
    let unapproved = |versions: &[&str]| {
        let versions = versions.iter().map(ToString::to_string).collect();
        Answer::Unapproved(InstallPlan { resource_version: "1532546".to_owned(), versions })
    };
    let many: Vec<String> = (0..101).map(|number| format!("v{number}")).collect();
    for (result, expected) in [
        (result("Manual", json!(false), "1532546", json!(["ptp.v4.16"])), unapproved(&["ptp.v4.16"])),
        // As upstream's test has it.
        (result("Manual", json!("false"), "1532546", json!(null)), unapproved(&[])),
        (result("Manual", json!(true), "1532546", json!(["ptp.v4.16"])), Answer::Nothing),
        (result("Automatic", json!(false), "1532546", json!(["ptp.v4.16"])), Answer::Nothing),
        (result("Manual", json!(false), "", json!(["ptp.v4.16"])), Answer::Nothing),
        (result("Manual", json!(false), "1532546", json!(["\",\"x\":\""])), Answer::Nothing),
        (result("Manual", json!(false), "1532546", json!(many)), Answer::Nothing),
    ] {
        assert_eq!(view(&plan, ANSWERED, &result).answer, expected, "{result}");
    }
    assert_eq!(View::read(&parse(&json!({}))), None, "another client's");
}

/// `checkViewProcessing` and `getJobStatus` of section 9.5.
#[test]
fn a_cluster_says_whether_it_has_an_object_and_where_a_job_is() {
    let found = |status: Value| {
        let metadata = json!({ "labels": { UPGRADE: "cgu" } });
        let object = json!({ "metadata": metadata, "spec": { "scope": { "resource": JOB } }, "status": status });
        let view = View::read(&parse(&object)).unwrap();
        (view.presence, view.answer)
    };
    let processing = |status: &str, message: &str, result: Value| {
        let condition = json!({ "type": "Processing", "status": status, "reason": ANSWERED, "message": message });
        json!({ "conditions": [condition], "result": { "status": result } })
    };
    let failed = |reason: &str| json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": reason }] });
    for (status, expected, job) in [
        (json!({}), Presence::Unknown, None),
        (json!({ "conditions": [] }), Presence::Failed, None),
        (processing("False", "jobs.batch \"pre-cache\" not found", json!({})), Presence::Absent, None),
        (processing("False", "the server is gone", json!({ "active": 1 })), Presence::Failed, None),
        (processing("True", "", json!({ "active": 1, "succeeded": 1 })), Presence::Present, Some(Job::Active)),
        (processing("True", "", json!({ "succeeded": 1 })), Presence::Present, Some(Job::Succeeded)),
        (processing("True", "", failed("DeadlineExceeded")), Presence::Present, Some(Job::DeadlineExceeded)),
        (processing("True", "", failed("BackoffLimitExceeded")), Presence::Present, Some(Job::BackoffLimitExceeded)),
        (processing("True", "", failed("Else")), Presence::Present, None),
    ] {
        assert_eq!(found(status.clone()), (expected, job.map_or(Answer::Nothing, Answer::Job)), "{status}");
    }
}
