//! Alerts and dashboard are `PromQL`, and ask for what is served: metrics, labels and values.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;
use shared::hive::api::{ClusterDeploymentStatus, Condition};
use shared::hive::conditions::{HIBERNATING, READY};

use super::*;

/// What is served once everything has happened: labels by metric.
fn served() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = Metrics::default();
    metrics.reconciled("hive", "changed", Duration::from_secs(1));
    metrics.reconciled_as_hive("changed", Duration::from_secs(1));
    metrics.queue.begin("hive");
    metrics.called("aws", "list", "ok", Some("DescribeInstances"));
    let target = ("ns".to_owned(), "demo".to_owned());
    metrics.count(&target, "Stopping", None);
    metrics.count(&target, "Hibernating", Some(SignedDuration::from_hours(24)));
    let halted = shared::rollout::status::PowerRolloutStatus {
        phase: Some(shared::rollout::status::RolloutPhase::Halted),
        counts: BTreeMap::from([("Failed".to_owned(), 1)]),
        ..shared::rollout::status::PowerRolloutStatus::default()
    };
    metrics.rollouts.count(&target, &halted);
    metrics.panicked("hive");
    metrics.refused("hive");
    metrics.kind_served("hive", "clusterdeployments.hive.openshift.io", true);
    metrics.noticed("hive", "Any");
    metrics.judged("client", "approve", "any", 1);
    metrics.probed(true);
    metrics.fdb.set(&target, &shared::fdb::decide::Plan::default());
    let condition = |type_: &str| Condition {
        type_: type_.to_owned(),
        last_transition_time: Some(Time(jiff::Timestamp::now())),
        ..Condition::default()
    };
    let cluster = |power_state: &str| ClusterDeployment {
        status: Some(ClusterDeploymentStatus {
            power_state: Some(power_state.to_owned()),
            conditions: vec![condition(HIBERNATING), condition(READY)],
            ..ClusterDeploymentStatus::default()
        }),
        ..ClusterDeployment::default()
    };
    metrics.transitioned(&cluster("Stopping"), &cluster("Hibernating"));
    metrics.transitioned(&cluster("WaitingForNodes"), &cluster("Running"));

    let mut served: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once(['{', ' ']).unwrap();
        let labels = labels.split("=\"").filter_map(|part| part.rsplit([',', '"', '{']).next());
        let names = labels.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        served.entry(name.to_owned()).or_default().extend(names.map(str::to_owned));
    }
    served
}

/// Every expression, with where it is and the texts that name its labels.
fn expressions() -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for object in manifests::controller_monitoring() {
        for rule in
            object["spec"]["groups"].as_array().into_iter().flatten().flat_map(|g| g["rules"].as_array().unwrap())
        {
            let text = |field: &Value| field.as_str().unwrap().to_owned();
            found.push((text(&rule["alert"]), text(&rule["expr"]), rule["annotations"].to_string()));
        }
        for dashboard in object["data"].as_object().into_iter().flat_map(|data| data.values()) {
            let dashboard: Value = serde_json::from_str(dashboard.as_str().unwrap()).unwrap();
            for panel in dashboard["panels"].as_array().unwrap() {
                for target in panel["targets"].as_array().unwrap() {
                    let text = |field: &Value| field.as_str().unwrap().to_owned();
                    found.push((text(&panel["title"]), text(&target["expr"]), text(&target["legendFormat"])));
                }
            }
        }
    }
    found
}

/// The metrics and labels of an expression.
#[derive(Default)]
struct MetricRefs {
    selectors: Vec<VectorSelector>,
    grouped: BTreeSet<String>,
}

impl ExprVisitor for MetricRefs {
    type Error = Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Infallible> {
        let modifier = match expr {
            Expr::VectorSelector(selector) => {
                self.selectors.push(selector.clone());
                None
            }
            Expr::MatrixSelector(matrix) => {
                self.selectors.push(matrix.vs.clone());
                None
            }
            Expr::Aggregate(aggregate) => aggregate.modifier.as_ref(),
            Expr::Binary(binary) => binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref()),
            _ => None,
        };
        if let Some(LabelModifier::Include(labels) | LabelModifier::Exclude(labels)) = modifier {
            self.grouped.extend(labels.labels.iter().cloned());
        }
        Ok(true)
    }
}

/// Every word of the sources that make labels' values.
fn words() -> BTreeSet<String> {
    fn read(folder: &Path, words: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, words);
            } else if !path.file_name().unwrap().to_string_lossy().starts_with("tests") {
                let text = std::fs::read_to_string(&path).unwrap();
                words.extend(text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned));
            }
        }
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut words = BTreeSet::new();
    for folder in ["src", "../shared/src"] {
        read(&here.join(folder), &mut words);
    }
    words
}

/// Whether each alternative of a matcher is a value that something can have.
fn is_possible(matcher: &Matcher, words: &BTreeSet<String>) -> bool {
    let value = |value: &str| match value.strip_suffix(".*") {
        Some(prefix) => words.iter().any(|word| word.starts_with(prefix)),
        None => words.contains(value),
    };
    match matcher.op {
        MatchOp::Equal | MatchOp::NotEqual => value(&matcher.value),
        MatchOp::Re(_) | MatchOp::NotRe(_) => matcher.value.split('|').all(value),
    }
}

/// Names in `{{ $labels.x }}` and `{{x}}`.
fn placeholders(text: &str) -> Vec<&str> {
    let inside = text.split("{{").skip(1).filter_map(|part| part.split_once("}}")).map(|(inside, _)| inside.trim());
    inside.filter(|inside| !inside.starts_with("$value")).map(|inside| inside.trim_start_matches("$labels.")).collect()
}

#[test]
fn alerts_and_dashboard_ask_for_what_is_served() {
    let (served, words, expressions) = (served(), words(), expressions());
    assert!(expressions.len() > 20, "{} expressions", expressions.len());
    let mut wrong = Vec::new();
    for (place, expression, texts) in &expressions {
        let parsed = match promql_parser::parser::parse(expression) {
            Ok(parsed) => parsed,
            Err(error) => {
                wrong.push(format!("{place}: {error}: {expression}"));
                continue;
            }
        };
        let mut refs = MetricRefs::default();
        let _ = walk_expr(&mut refs, &parsed);
        assert!(!refs.selectors.is_empty(), "{place} names no metric");
        let mut labels = BTreeSet::new();
        for selector in &refs.selectors {
            let name = selector.name.clone().unwrap_or_default();
            let Some(has) = served.get(&name) else {
                wrong.push(format!("{place}: no metric {name}"));
                continue;
            };
            labels.extend(has.iter().cloned());
            for matcher in &selector.matchers.matchers {
                if !has.contains(&matcher.name) {
                    wrong.push(format!("{place}: {name} has no label {}", matcher.name));
                }
                if !is_possible(matcher, &words) {
                    wrong.push(format!("{place}: nothing is called {}", matcher.value));
                }
            }
        }
        wrong.extend(refs.grouped.difference(&labels).map(|label| format!("{place}: no label {label}")));
        let named = placeholders(texts).into_iter().filter(|name| !refs.grouped.contains(*name));
        wrong.extend(named.map(|name| format!("{place}: its text names {name}, which is summed away")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_served_is_read_as_it_is() {
    let served = served();
    let labels = |name: &str| served[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(labels("hibernate_cloud_calls_total"), ["call", "cloud", "result"]);
    assert_eq!(labels("hibernate_leader"), [""; 0]);
    assert_eq!(labels("hibernate_panics_total"), ["system"]);
    assert_eq!(labels("hibernate_refused_writes_total"), ["system"]);
    assert_eq!(labels("hibernate_kind_served"), ["kind", "system"]);
    assert_eq!(labels("hibernate_step_seconds_bucket"), ["le", "state", "system"]);
}

#[test]
fn targets_are_counted_once_and_sleepers_by_their_days() {
    let metrics = Metrics::default();
    let targets = ["a", "b"].map(|name| ("ns".to_owned(), name.to_owned()));
    let lines = || {
        let text = metrics.text();
        let of = |line: &&str| line.starts_with("hibernate_targets{") || line.starts_with("hibernate_asleep{");
        let mut lines: Vec<String> = text.lines().filter(of).map(|line| line.replace("system=\"hive\",", "")).collect();
        lines.retain(|line| !line.ends_with(" 0"));
        lines.sort();
        lines.join(" ").replace("hibernate_", "")
    };
    let days = |days: i64| Some(SignedDuration::from_hours(24 * days));
    for (which, state, asleep, expected) in [
        (0, "Running", None, "targets{state=\"Running\"} 1"),
        (0, "Running", None, "targets{state=\"Running\"} 1"),
        (0, "Hibernating", days(0), "targets{state=\"Hibernating\"} 1"),
        (0, "Hibernating", days(1), "asleep{days=\"1\"} 1 targets{state=\"Hibernating\"} 1"),
        (1, "Hibernating", days(8), "asleep{days=\"1\"} 2 asleep{days=\"7\"} 1 targets{state=\"Hibernating\"} 2"),
        (1, "Hibernating", days(-1), "asleep{days=\"1\"} 1 targets{state=\"Hibernating\"} 2"),
        (0, "Running", None, "targets{state=\"Hibernating\"} 1 targets{state=\"Running\"} 1"),
        (1, "Mystery", None, "targets{state=\"Running\"} 1 targets{state=\"other\"} 1"),
    ] {
        metrics.count(&targets[which], state, asleep);
        assert_eq!(lines(), expected, "{state} {asleep:?}");
    }
    for target in &targets {
        metrics.forget(target);
        metrics.forget(target);
    }
    assert_eq!(lines(), "");
}

#[test]
fn the_release_of_the_time_zones_is_served() {
    let text = Metrics::default().text();
    let line = text.lines().find(|line| line.starts_with("hibernate_tzdb_info{")).unwrap();
    assert!(line.starts_with("hibernate_tzdb_info{release=\"20") && line.ends_with("\"} 1"), "{line}");
}
