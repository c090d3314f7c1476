//! What watches the controller and the webhook: `PodMonitor`s, alerts, and a Grafana dashboard.
//!
//! They need the Prometheus Operator's kinds, so they are a component that a hub adds if it has them. Tests of both programs parse
//! their expressions and look up the metrics in what is served.

use serde_json::{Value, json};
use shared::cloud::CloudErrorKind;
use shared::hive::conditions::reason;

use crate::names::{CONTROLLER, WEBHOOK, namespaced, selector};
use crate::yaml::sorted;

/// The objects of the component that watch the controller.
pub fn monitoring() -> Vec<Value> {
    vec![pod_monitor(CONTROLLER), rules(), dashboard()]
}

/// The objects of the component that watch the webhook.
pub fn webhook_monitoring() -> Vec<Value> {
    vec![pod_monitor(WEBHOOK), group(WEBHOOK, "hibernate-webhook", [connections()])]
}

/// Prometheus scrapes every replica: a standby reports that it does not lead.
fn pod_monitor(app: &str) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": namespaced(app, app),
        "spec": {
            "selector": selector(app),
            "podMetricsEndpoints": [{"port": "plain", "path": "/metrics", "interval": "30s"}],
        },
    })
}

/// One alert.
struct Alert {
    name: &'static str,
    expr: String,
    /// How long the expression holds before the alert fires.
    lasts: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

fn rules() -> Value {
    let alerts = leading().into_iter().chain(targets()).chain(clouds()).chain(looks()).chain([suspension(), halt()]);
    group(CONTROLLER, "hibernate", alerts)
}

fn group(app: &str, name: &str, alerts: impl IntoIterator<Item = Alert>) -> Value {
    let rule = |alert: Alert| {
        json!({
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.description},
        })
    };
    let rules: Vec<Value> = alerts.into_iter().map(rule).collect();
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": namespaced(app, app),
        "spec": {"groups": [{"name": name, "rules": rules}]},
    })
}

fn connections() -> Alert {
    Alert {
        name: "HibernateWebhookRefusesConnections",
        expr: "sum(increase(hibernate_webhook_connections_refused_total[10m])) > 0".to_owned(),
        lasts: "0m",
        severity: "warning",
        summary: "hibernate-webhook refuses connections",
        description: "All connections of a replica are in use. Find the client in the API server's audit log or on the network, and \
                      limit it with a NetworkPolicy or --max-connections-per-client.",
    }
}

fn leading() -> [Alert; 3] {
    [
        Alert {
            name: "HibernateNoLeader",
            expr: "absent(hibernate_leader == 1)".to_owned(),
            lasts: "2m",
            severity: "critical",
            summary: "No hibernate-controller leads",
            description: "No target sleeps or wakes. Check the Pods and the holder of the Lease hibernate-controller.",
        },
        Alert {
            name: "HibernateTwoLeaders",
            expr: "sum(hibernate_leader) > 1".to_owned(),
            lasts: "2m",
            severity: "warning",
            summary: "More than one hibernate-controller is the leader",
            description: "Two installations with Leases of their own work on the same hub.",
        },
        Alert {
            name: "HibernateLeaseLost",
            expr: "sum(changes(hibernate_leader[30m])) > 4".to_owned(),
            lasts: "0m",
            severity: "warning",
            summary: "The leader of hibernate-controller changes repeatedly",
            description: "Its Lease is not renewed in time: the hub's API server is slow, or the Pods are restarted.",
        },
    ]
}

fn targets() -> [Alert; 5] {
    let notices = |reasons: &str| format!("hibernate_notices_total{{reason=~\"{reasons}\"}}");
    [
        Alert {
            name: "HibernateFailed",
            expr: "sum by (system, state) (hibernate_targets{state=~\"FailedTo.*\"}) > 0".to_owned(),
            lasts: "10m",
            severity: "warning",
            summary: "{{ $value }} targets are in state {{ $labels.state }}",
            description: "The cloud refuses to start or stop machines. Each target's conditions say which and why.",
        },
        Alert {
            name: "HibernateTransitionStuck",
            expr: happened("system, reason", &notices("WakeTakesTooLong|SleepTakesTooLong"), "1h"),
            lasts: "0m",
            severity: "warning",
            summary: "Transitions take too long: {{ $labels.reason }}",
            description: "The condition HibernationProgress of each such target says what it waits for; an Event names the target.",
        },
        Alert {
            name: "HibernateAnotherController",
            expr: happened("system, reason", &notices("AnotherController"), "15m"),
            lasts: "0m",
            severity: "critical",
            summary: "Another controller writes the power state of our targets",
            description: "Add hibernation to spec.disabledControllers of the HiveConfig. Until then these targets are left alone.",
        },
        Alert {
            name: "HibernateDrift",
            expr: happened("system, reason", &notices("StartedWhileAsleep"), "1h"),
            lasts: "0m",
            severity: "info",
            summary: "Machines of a sleeping target were started by another party",
            description: "They are billed while they run. An Event names target and machines.",
        },
        Alert {
            name: "HibernateAsleepForLong",
            expr: "sum by (system) (hibernate_asleep{days=\"21\"}) > 0".to_owned(),
            lasts: "1h",
            severity: "info",
            summary: "{{ $value }} targets have slept for three weeks or longer",
            description: "Kubelet certificates expire after 30 days; then the wake must approve new ones and takes longer. \
                          Wake them for an hour, or see `kubectl hibernate plan`.",
        },
    ]
}

fn clouds() -> [Alert; 2] {
    let kind = |kind: CloudErrorKind| <&str>::from(kind);
    let rights = [CloudErrorKind::Denied, CloudErrorKind::Credentials].map(kind).join("|");
    let not_leader = kind(CloudErrorKind::NotLeader);
    [
        Alert {
            name: "HibernateCloudCallsFail",
            expr: format!(
                "sum by (cloud, call, result) (rate(hibernate_cloud_calls_total{{result!~\"ok|{not_leader}\"}}[10m]))
/ on (cloud, call) group_left ()
sum by (cloud, call) (rate(hibernate_cloud_calls_total[10m]))
> 0.1"
            ),
            lasts: "10m",
            severity: "warning",
            summary: "{{ $value | humanizePercentage }} of the {{ $labels.call }} calls to {{ $labels.cloud }} end with {{ $labels.result }}",
            description: "The controller retries with backoff. The conditions of the affected targets give the cause.",
        },
        Alert {
            name: "HibernateCloudDenies",
            expr: format!(
                "sum by (cloud, call, result) (rate(hibernate_cloud_calls_total{{result=~\"{rights}\"}}[10m])) > 0"
            ),
            lasts: "15m",
            severity: "warning",
            summary: "{{ $labels.cloud }} does not accept credentials for {{ $labels.call }}: {{ $labels.result }}",
            description: "Credentials of some target are missing, wrong or lack a right. Its conditions name the Secret.",
        },
    ]
}

fn looks() -> [Alert; 2] {
    [
        Alert {
            name: "HibernateLooksFail",
            expr: "sum by (system, outcome) (increase(hibernate_looks_total{outcome!~\"changed|unchanged|NotLeader\"}[15m])) > 5"
                .to_owned(),
            lasts: "5m",
            severity: "warning",
            summary: "Reconciles fail: {{ $labels.outcome }}",
            description: "The hub refuses writes, or calls time out. The controller's log names the targets.",
        },
        Alert {
            name: "HibernateLooksSlow",
            expr: quantile("0.99", "hibernate_look_seconds_bucket", "") + " > 20",
            lasts: "10m",
            severity: "warning",
            summary: "p99 of reconciles is {{ $value }} s",
            description: "The hub, a cloud or spokes answer slowly.",
        },
    ]
}

fn suspension() -> Alert {
    Alert {
        name: "HibernateReleasedNotDeleted",
        expr: "sum by (namespace, cluster) (hibernate_fdb_undeleted_groups) > 0".to_owned(),
        lasts: "30m",
        severity: "warning",
        summary: "{{ $value }} process groups of FoundationDBCluster {{ $labels.namespace }}/{{ $labels.cluster }} are released but not deleted",
        description: "The operator does not delete them although the controller woke it: it is down, or spec.skip is true.",
    }
}

fn halt() -> Alert {
    Alert {
        name: "HibernateRolloutHalted",
        expr: "max(hibernate_rollouts{phase=\"Halted\"}) > 0".to_owned(),
        lasts: "5m",
        severity: "warning",
        summary: "{{ $value }} PowerRollouts are halted",
        description: "No target starts. `kubectl hibernate status rollout/NAME` says why. After failures go on with `kubectl hibernate \
                      rollout accept|retry|abort NAME`. Otherwise correct maxTargets, or the group that selects nothing.",
    }
}

/// Whether a counter has moved. One that has only just come up has moved, too, which `increase` does not see.
fn happened(by: &str, counter: &str, within: &str) -> String {
    format!(
        "sum by ({by}) (increase({counter}[{within}])) > 0
or
sum by ({by}) ({counter} unless {counter} offset {within}) > 0"
    )
}

fn quantile(which: &str, buckets: &str, by: &str) -> String {
    let by = if by.is_empty() { "le".to_owned() } else { format!("le, {by}") };
    format!("histogram_quantile({which}, sum by ({by}) (rate({buckets}[10m])))")
}

/// One panel: title, unit, expressions with their legends.
type Panel = (&'static str, &'static str, Vec<(String, &'static str)>);

fn panels() -> Vec<Panel> {
    let rate = |by: &str, counter: &str| format!("sum by ({by}) (rate({counter}[5m]))");
    let (asleep, awake) = (reason::HIBERNATING, reason::RUNNING);
    let targets = |more: &str| format!("sum by (state) (hibernate_targets{{{more}}})");
    let spread = |buckets: &str| vec![(quantile("0.5", buckets, ""), "p50"), (quantile("0.95", buckets, ""), "p95")];
    vec![
        ("Controllers that lead", "short", vec![("sum(hibernate_leader)".to_owned(), "leaders")]),
        ("Targets asleep and awake", "short", vec![(targets(&format!("state=~\"{asleep}|{awake}\"")), "{{state}}")]),
        (
            "Targets in transition or failed",
            "short",
            vec![(targets(&format!("state!~\"{asleep}|{awake}\"")), "{{state}}")],
        ),
        (
            "Targets asleep for at least this many days",
            "short",
            vec![("sum by (days) (hibernate_asleep)".to_owned(), "{{days}}")],
        ),
        ("Power states reached per second", "ops", vec![(rate("to", "hibernate_transitions_total"), "{{to}}")]),
        ("Duration of a sleep", "s", spread("hive_cluster_deployments_hibernation_transition_seconds_bucket")),
        ("Duration of a wake", "s", spread("hive_cluster_deployments_running_transition_seconds_bucket")),
        (
            "Time in each step, p95",
            "s",
            vec![(quantile("0.95", "hibernate_step_seconds_bucket", "state"), "{{state}}")],
        ),
        (
            "Calls to clouds",
            "reqps",
            vec![(rate("cloud, call, result", "hibernate_cloud_calls_total"), "{{cloud}} {{call}} {{result}}")],
        ),
        (
            "Warning Events by reason (1h)",
            "short",
            vec![("sum by (reason) (increase(hibernate_notices_total[1h]))".to_owned(), "{{reason}}")],
        ),
        ("Reconciles by outcome", "ops", vec![(rate("outcome", "hibernate_looks_total"), "{{outcome}}")]),
        (
            "Targets whose reconcile is due and has not started",
            "short",
            vec![("sum by (system) (hibernate_queue_depth)".to_owned(), "{{system}}")],
        ),
        ("Duration of a reconcile", "s", spread("hibernate_look_seconds_bucket")),
        (
            "Certificate requests of kubelets",
            "ops",
            vec![(rate("kind, verdict, reason", "hibernate_csrs_total"), "{{kind}}: {{verdict}}, {{reason}}")],
        ),
        (
            "FoundationDB: process groups suspended, waiting for release, released but not deleted",
            "short",
            vec![
                ("sum(hibernate_fdb_suspended_groups)".to_owned(), "kept"),
                ("sum(hibernate_fdb_waiting_groups)".to_owned(), "waiting"),
                ("sum(hibernate_fdb_undeleted_groups)".to_owned(), "released"),
            ],
        ),
        ("FoundationDB: volumes kept", "bytes", vec![("sum(hibernate_fdb_suspended_bytes)".to_owned(), "size")]),
        ("PowerRollouts by phase", "short", vec![("sum by (phase) (hibernate_rollouts)".to_owned(), "{{phase}}")]),
        (
            "Targets of PowerRollouts by state",
            "short",
            vec![("sum by (state) (hibernate_rollout_targets)".to_owned(), "{{state}}")],
        ),
        ("API server probes", "reqps", vec![(rate("result", "hibernate_probes_total"), "{{result}}")]),
    ]
}

/// A `ConfigMap` that Grafana's sidecar finds by its label.
fn dashboard() -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let panel = |(at, (title, unit, queries)): (usize, Panel)| {
        let target = |(letter, (expr, legend)): (char, (String, &str))| json!({"refId": letter, "expr": expr, "legendFormat": legend, "datasource": source});
        json!({
            "id": at + 1,
            "title": title,
            "type": "timeseries",
            "datasource": source,
            "gridPos": {"x": at % 2 * 12, "y": at / 2 * 8, "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": ('A'..).zip(queries).map(target).collect::<Vec<_>>(),
        })
    };
    let dashboard = json!({
        "uid": "hibernate",
        "title": "Hibernation",
        "tags": ["hibernate"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]},
        "panels": panels().into_iter().enumerate().map(panel).collect::<Vec<_>>(),
    });
    let mut metadata = namespaced("hibernate-dashboard", CONTROLLER);
    metadata.labels.get_or_insert_default().insert("grafana_dashboard".to_owned(), "1".to_owned());
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"hibernate.json": format!("{:#}\n", sorted(&dashboard))},
    })
}
