//! The namespace and the two Deployments, each with its Service and disruption budget.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, Namespace, ObjectFieldSelector,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext,
    Service, ServicePort, ServiceSpec, TopologySpreadConstraint,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use shared::hive::exempt;

use crate::names::{
    CERTIFICATE_LEASE, CERTIFICATE_SECRET, CONTROLLER, NAMESPACE, PLAIN_PORT, WEBHOOK, WEBHOOK_PORT, image, labels,
    namespaced, selector,
};

/// User and group of every container: `nonroot` of distroless images.
const NON_ROOT: i64 = 65532;

/// Our namespace, in which no pod may run with more rights than ours need.
pub(crate) fn namespace() -> Vec<Value> {
    let levels = ["enforce", "audit", "warn"]
        .map(|mode| (format!("pod-security.kubernetes.io/{mode}"), "restricted".to_owned()));
    let name = [("app.kubernetes.io/part-of".to_owned(), shared::annotation::keys::PLUGIN.to_owned())];
    vec![json!(Namespace {
        metadata: ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            labels: Some(levels.into_iter().chain(name).collect()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    })]
}

/// The controller: two replicas, of which the holder of the Lease acts.
pub(crate) fn controller() -> Vec<Value> {
    let program = Program {
        name: CONTROLLER,
        args: vec![
            format!("--namespace={NAMESPACE}"),
            "--identity=$(POD_NAME)".to_owned(),
            format!("--listen=0.0.0.0:{PLAIN_PORT}"),
            "--log-format=json".to_owned(),
        ],
        ports: vec![container_port("plain", PLAIN_PORT)],
        memory_limit: "1Gi",
    };
    vec![
        json!(program.deployment()),
        json!(service(CONTROLLER, CONTROLLER, "plain", PLAIN_PORT)),
        json!(disruption_budget(CONTROLLER)),
    ]
}

/// The webhook: two replicas behind one Service, so that one may go while writes are judged.
pub(crate) fn webhook() -> Vec<Value> {
    let groups = exempt::GROUPS.iter().map(|group| format!("--exempt-group={group}"));
    let users = exempt::USERS.iter().map(|user| format!("--exempt-user={user}"));
    let args = [
        format!("--namespace={NAMESPACE}"),
        format!("--listen=0.0.0.0:{WEBHOOK_PORT}"),
        format!("--listen-plain=0.0.0.0:{PLAIN_PORT}"),
        format!("--certificate-secret={CERTIFICATE_SECRET}"),
        format!("--lease={CERTIFICATE_LEASE}"),
        format!("--service={WEBHOOK}"),
        format!("--configuration={WEBHOOK}"),
        "--log-format=json".to_owned(),
    ];
    let program = Program {
        name: WEBHOOK,
        args: args.into_iter().chain(groups).chain(users).collect(),
        ports: vec![container_port("https", WEBHOOK_PORT), container_port("plain", PLAIN_PORT)],
        memory_limit: "256Mi",
    };
    vec![
        json!(program.deployment()),
        json!(service(WEBHOOK, WEBHOOK, "https", 443)),
        json!(service("hibernate-webhook-metrics", WEBHOOK, "plain", PLAIN_PORT)),
        json!(disruption_budget(WEBHOOK)),
    ]
}

/// What differs between the Deployments.
struct Program {
    name: &'static str,
    args: Vec<String>,
    ports: Vec<ContainerPort>,
    memory_limit: &'static str,
}

impl Program {
    fn deployment(self) -> Deployment {
        Deployment {
            metadata: namespaced(self.name, self.name),
            spec: Some(DeploymentSpec {
                replicas: Some(2),
                selector: selector(self.name),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta { labels: Some(labels(self.name)), ..ObjectMeta::default() }),
                    spec: Some(self.pod()),
                },
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    fn pod(self) -> PodSpec {
        PodSpec {
            service_account_name: Some(self.name.to_owned()),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NON_ROOT),
                run_as_group: Some(NON_ROOT),
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
                ..PodSecurityContext::default()
            }),
            topology_spread_constraints: Some(
                ["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map(|key| spread(self.name, key)).into(),
            ),
            containers: vec![self.container()],
            ..PodSpec::default()
        }
    }

    fn container(self) -> Container {
        Container {
            name: self.name.to_owned(),
            image: Some(image(self.name)),
            args: Some(self.args),
            env: Some(vec![pod_name(), few_arenas()]),
            ports: Some(self.ports),
            liveness_probe: Some(probe("/healthz", 10)),
            readiness_probe: Some(probe("/readyz", 5)),
            resources: Some(ResourceRequirements {
                requests: Some(quantities(&[("cpu", "50m"), ("memory", "64Mi")])),
                limits: Some(quantities(&[("memory", self.memory_limit)])),
                ..ResourceRequirements::default()
            }),
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                read_only_root_filesystem: Some(true),
                capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
                ..SecurityContext::default()
            }),
            // The last log lines of a crash, where `kubectl describe` shows them.
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            ..Container::default()
        }
    }
}

fn pod_name() -> EnvVar {
    EnvVar {
        name: "POD_NAME".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                // The default, written out: otherwise apply by the server conflicts with apply by kubectl.
                api_version: Some("v1".to_owned()),
                field_path: "metadata.name".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// An allocator with many arenas keeps what a burst has used; it would count against the memory limit.
fn few_arenas() -> EnvVar {
    EnvVar { name: "MALLOC_ARENA_MAX".to_owned(), value: Some("2".to_owned()), ..EnvVar::default() }
}

fn container_port(name: &str, port: i32) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: port, ..ContainerPort::default() }
}

fn probe(path: &str, period: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("plain".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(3),
        ..Probe::default()
    }
}

fn quantities(values: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    values.iter().map(|&(name, value)| (name.to_owned(), Quantity(value.to_owned()))).collect()
}

/// Replicas on different nodes and in different zones where there are any.
fn spread(program: &str, topology_key: &str) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        label_selector: Some(selector(program)),
        max_skew: 1,
        topology_key: topology_key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    }
}

fn service(name: &str, program: &str, target: &str, port: i32) -> Service {
    Service {
        metadata: namespaced(name, program),
        spec: Some(ServiceSpec {
            selector: selector(program).match_labels,
            ports: Some(vec![ServicePort {
                name: Some(target.to_owned()),
                port,
                target_port: Some(IntOrString::String(target.to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn disruption_budget(program: &str) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: namespaced(program, program),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector(program)),
            // A replica that is not ready protects nothing and must not block a drain.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
