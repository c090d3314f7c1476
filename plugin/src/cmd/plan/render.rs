//! How a plan is printed.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::finding::{Finding, Severity};
use view::age::age;

use super::Outlook;
use crate::cli::ReportOutput;
use crate::output;

/// Prints all, in the order in which they were named, `everywhere` being all namespaces.
pub(super) fn all(outlooks: &[Outlook], output: ReportOutput, everywhere: bool, now: Timestamp) {
    if output != ReportOutput::Table {
        let items: Vec<Value> = outlooks.iter().map(record).collect();
        return output::structured(&output::list("PlanList", &items), output == ReportOutput::Json);
    }
    for (at, outlook) in outlooks.iter().enumerate() {
        if at > 0 {
            output::line("");
        }
        for line in lines(outlook, everywhere, now) {
            output::line(&line);
        }
    }
}

fn with_sources(outlook: &Outlook) -> Vec<(&Finding, &'static str)> {
    let hub = outlook.hub.iter().map(|finding| (finding, "hub"));
    let mut all: Vec<_> = hub.chain(outlook.controller.iter().map(|finding| (finding, "controller"))).collect();
    all.sort_by_key(|(finding, _)| finding.severity);
    all
}

/// One target in the form that `-o json` documents. Later versions only add fields.
fn record(outlook: &Outlook) -> Value {
    let Outlook { target, desired, observed, end, found_at, .. } = outlook;
    let findings = with_sources(outlook).into_iter().map(|(Finding { severity, code, sentence, .. }, source)| {
        json!({ "severity": severity.to_string(), "code": code, "source": source, "message": sentence })
    });
    let verdict = match outlook.most_severe() {
        Severity::Block | Severity::Forceable => "Blocked",
        Severity::Warn => "Slowed",
        Severity::Info => "Clear",
    };
    view::known(json!({
        "type": target.row.kind.type_name(), "namespace": target.namespace, "name": target.name,
        "desired": desired, "observed": observed, "verdict": verdict, "until": end, "foundAt": found_at,
        "findings": findings.collect::<Vec<_>>(),
    }))
}

/// The target as headings and errors name it.
pub(super) fn called(outlook: &Outlook, everywhere: bool) -> String {
    let name = outlook.target.full_name();
    if everywhere { name + &outlook.target.place() } else { name }
}

fn lines(outlook: &Outlook, everywhere: bool, now: Timestamp) -> Vec<String> {
    let change = if outlook.desired == "Hibernating" { "the wake" } else { "the sleep or the wake" };
    let verdict = match outlook.most_severe() {
        Severity::Block | Severity::Forceable => format!("something blocks {change}"),
        Severity::Warn if outlook.target.row.deployed_field.is_some() => {
            format!("nothing blocks {change}; some findings may undo the sleep")
        }
        Severity::Warn => format!("nothing blocks {change}; some findings slow it down or cost money"),
        Severity::Info => format!("nothing blocks {change}"),
    };
    let found = |source: &str| match (source, outlook.found_at) {
        ("hub", _) => "now".to_owned(),
        (_, Some(at)) => format!("{} ago", age(at, now)),
        (_, None) => "-".to_owned(),
    };
    let findings = with_sources(outlook);
    let mut lines = vec![format!("{}: {verdict}", called(outlook, everywhere))];
    if !findings.is_empty() {
        let rows = findings.into_iter().map(|(finding, source)| {
            vec![finding.severity.to_string(), finding.code.clone(), found(source), finding.sentence.clone()]
        });
        let table = output::table(&["SEVERITY", "CODE", "FOUND", "FINDING"], rows);
        lines.extend(table.into_iter().map(|line| format!("  {line}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use shared::kinds::CLUSTER_DEPLOYMENT;
    use shared::kinds::workload::DEPLOYMENT;
    use view::target::Target;

    use super::*;

    fn outlook() -> Outlook {
        Outlook {
            target: Target::new(&CLUSTER_DEPLOYMENT, "v1", json!({ "metadata": { "name": "demo", "namespace": "x" } })),
            desired: "Running".to_owned(),
            observed: "Running".to_owned(),
            hub: vec![Finding::new(Severity::Info, "StillBilled", "disks")],
            controller: vec![
                Finding::new(Severity::Warn, "SpotInstances", "one"),
                Finding::new(Severity::Info, "Credentials", "they work"),
            ],
            found_at: Some("2026-11-21T17:30:00Z".parse().unwrap()),
            end: None,
            unanswered: None,
        }
    }

    #[test]
    fn the_gravest_stands_first_with_its_age() {
        assert_eq!(
            lines(&outlook(), false, "2026-11-21T18:00:00Z".parse().unwrap()),
            [
                "clusterdeployment.hive.openshift.io/demo: nothing blocks the sleep or the wake; some findings slow it down or cost money",
                "  SEVERITY   CODE            FOUND     FINDING",
                "  warn       SpotInstances   30m ago   one",
                "  info       StillBilled     now       disks",
                "  info       Credentials     30m ago   they work",
            ]
        );
    }

    #[test]
    fn of_a_workload_the_sleep_may_be_undone() {
        let web = json!({ "metadata": { "name": "web", "namespace": "x" } });
        let mut outlook = Outlook {
            target: Target::new(&DEPLOYMENT, "v1", web),
            hub: vec![Finding::new(Severity::Warn, "Owner", "k")],
            controller: Vec::new(),
            ..outlook()
        };
        let detail = |outlook: &Outlook| lines(outlook, false, "2026-11-21T18:00:00Z".parse().unwrap());
        assert_eq!(
            detail(&outlook)[0],
            "deployment.apps/web: nothing blocks the sleep or the wake; some findings may undo the sleep"
        );
        outlook.hub.clear();
        assert_eq!(
            detail(&outlook),
            ["deployment.apps/web: nothing blocks the sleep or the wake"],
            "no table without rows"
        );
    }

    #[test]
    fn of_all_namespaces_each_heading_says_which() {
        let lines = lines(&outlook(), true, "2026-11-21T18:00:00Z".parse().unwrap());
        assert!(
            lines[0].starts_with("clusterdeployment.hive.openshift.io/demo (namespace x): nothing blocks"),
            "{lines:?}"
        );
    }

    #[test]
    fn json_names_the_source_of_each_finding() {
        let record = record(&outlook());
        assert_eq!((&record["verdict"], &record["foundAt"]), (&json!("Slowed"), &json!("2026-11-21T17:30:00Z")));
        assert_eq!(
            record["findings"][0],
            json!({ "severity": "warn", "code": "SpotInstances", "source": "controller", "message": "one" })
        );
        assert_eq!(record.get("until"), None);
    }
}
