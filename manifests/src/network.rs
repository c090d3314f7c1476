//! Who may connect to our pods.

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::names::{CONTROLLER, NAMESPACE, WEBHOOK, namespaced, selector};

/// Nobody connects to a pod of our namespace, except on the ports that our programs serve.
///
/// Connections outward are not limited: the API server, the clouds and the spokes sit on addresses and ports that differ
/// from hub to hub, and the API server that calls the webhook comes from a host network, which no selector names.
pub(crate) fn objects() -> Vec<Value> {
    let deny = NetworkPolicy {
        metadata: ObjectMeta {
            name: Some("default-deny-ingress".to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector::default()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ..NetworkPolicySpec::default()
        }),
    };
    vec![json!(deny), json!(allow(CONTROLLER, &["plain"])), json!(allow(WEBHOOK, &["https", "plain"]))]
}

fn allow(program: &str, ports: &[&str]) -> NetworkPolicy {
    let port = |name: &&str| NetworkPolicyPort {
        port: Some(IntOrString::String((*name).to_owned())),
        protocol: Some("TCP".to_owned()),
        ..NetworkPolicyPort::default()
    };
    NetworkPolicy {
        metadata: namespaced(program, program),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(program)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(ports.iter().map(port).collect()),
                ..NetworkPolicyIngressRule::default()
            }]),
            ..NetworkPolicySpec::default()
        }),
    }
}
