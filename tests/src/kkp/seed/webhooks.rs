//! KKP's admission webhooks for Clusters, mutating and validating, served for the seed's API server; and the two that
//! guard `MachineDeployments` in a user cluster (row 52), which only have to be there.

use std::sync::Arc;

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use crate::kkp::options::{SeedSettings, VERSIONS};
use crate::kkp::registry::Kkp;
use crate::kubeconfig::base64;
use crate::webhook;

/// Name of both configurations on the seed.
pub(crate) const NAME: &str = "kubermatic-clusters";

/// Name of the webhook in both: denials and errors of the API server name it.
const WEBHOOK: &str = "clusters.kubermatic.io";

/// The fields of KKP's own type: the mutating webhook writes the object anew from it, and drops all others (row 25).
const FIELDS: &str = "\
    admissionPlugins apiServerAllowedIPRanges applicationSettings auditLogging authenticationConfiguration \
    authorizationConfig backupConfig cloud clusterNetwork cniPlugin componentsOverride containerRuntime \
    containerRuntimeOpts debugLog disableCsiDriver enableOperatingSystemManager enableUserSSHKeyAgent \
    encryptionConfiguration eventRateLimitConfig exposeStrategy features humanReadableName imagePullSecret \
    kubelb kubernetesDashboard kyverno machineNetworks mla oidc opaIntegration pause pauseReason \
    podNodeSelectorAdmissionPluginConfig serviceAccount updateWindow useEventRateLimitAdmissionPlugin \
    usePodNodeSelectorAdmissionPlugin usePodSecurityPolicyAdmissionPlugin version";

/// Listens for the API servers of a world, on plain HTTP: TLS ends at a proxy in front.
pub(crate) async fn serve(kkp: Arc<Kkp>) -> Result<String> {
    let router = Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate))
        .route("/allow", post(async |Json(review): Json<Value>| webhook::allowed(&review)))
        .with_state(kkp);
    Ok(webhook::serve(router).await?.0)
}

/// The configurations of the seed: failurePolicy Fail, CREATE and UPDATE of Clusters only; neither status nor DELETE.
pub(crate) fn of_seed(url: &str, authority: &str) -> Vec<Value> {
    let rules = json!([{
        "apiGroups": ["kubermatic.k8c.io"], "apiVersions": ["*"], "resources": ["clusters"], "operations": ["CREATE", "UPDATE"],
    }]);
    [("MutatingWebhookConfiguration", "/mutate"), ("ValidatingWebhookConfiguration", "/validate")]
        .map(|(kind, path)| {
            let mut seeds = webhook::configuration(kind, NAME, &format!("{url}{path}"), authority, &rules);
            seeds["webhooks"][0]["name"] = json!(WEBHOOK);
            seeds["webhooks"][0]["timeoutSeconds"] = json!(30);
            seeds
        })
        .into()
}

/// The configuration of one of the webhooks of a user cluster.
pub(crate) fn of_user_cluster(name: &str, url: &str, authority: &str) -> Value {
    let rules = json!([{
        "apiGroups": ["cluster.k8s.io"], "apiVersions": ["v1alpha1"], "resources": ["machinedeployments"], "operations": ["CREATE", "UPDATE"],
    }]);
    webhook::configuration("MutatingWebhookConfiguration", name, &format!("{url}/allow"), authority, &rules)
}

async fn mutate(Json(review): Json<Value>) -> Json<Value> {
    let spec = &review["request"]["object"]["spec"];
    let new = defaulted(spec);
    if new == *spec {
        return webhook::allowed(&review);
    }
    let patch = json!([{ "op": "replace", "path": "/spec", "value": new }]).to_string();
    webhook::answer(&review, json!({ "allowed": true, "patchType": "JSONPatch", "patch": base64(&patch) }))
}

async fn validate(State(kkp): State<Arc<Kkp>>, Json(review): Json<Value>) -> Json<Value> {
    let request = &review["request"];
    match refusal(&request["oldObject"], &request["object"], &kkp.settings()) {
        None => webhook::allowed(&review),
        Some((code, message)) => webhook::denied(&review, code, &message),
    }
}

/// Unknown fields go (row 25), what is empty gets its default (rows 31, 33): 0 counts as empty.
fn defaulted(spec: &Value) -> Value {
    let known = spec.as_object().into_iter().flatten().filter(|(key, _)| FIELDS.split(' ').any(|field| field == *key));
    let mut new: Map<String, Value> = known.map(|(key, value)| (key.clone(), value.clone())).collect();
    new.entry("exposeStrategy").or_insert_with(|| json!("LoadBalancer"));
    new.entry("containerRuntime").or_insert_with(|| json!("containerd"));
    let features = new.entry("features").or_insert_with(|| json!({}));
    if features.get("etcdLauncher").is_none() {
        features["etcdLauncher"] = json!(true);
    }
    let components = new.entry("componentsOverride").or_insert_with(|| json!({}));
    for (component, field, default) in [
        ("apiserver", "replicas", 2),
        ("controllerManager", "replicas", 1),
        ("scheduler", "replicas", 1),
        ("etcd", "clusterSize", 3),
    ] {
        if components[component][field].as_i64().unwrap_or_default() == 0 {
            components[component][field] = json!(default);
        }
    }
    Value::Object(new)
}

/// Why KKP does not take a Cluster: rows 27 and 29.
fn refusal(old: &Value, new: &Value, settings: &SeedSettings) -> Option<(u16, String)> {
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let changed = |pointer: &str| !old.is_null() && old.pointer(pointer) != new.pointer(pointer);
    let dc = text(new, "/spec/cloud/dc");
    if !settings.datacenters.contains(&dc) {
        return Some((400, format!("spec.cloud.dc: Invalid value: \"{dc}\": invalid datacenter name")));
    }
    let version = text(new, "/spec/version");
    if (old.is_null() || changed("/spec/version")) && !VERSIONS.contains(&version.as_str()) {
        return Some((403, format!("spec.version: Unsupported value: \"{version}\": version is not supported")));
    }
    if changed("/spec/features/etcdLauncher") && new.pointer("/spec/features/etcdLauncher") == Some(&json!(false)) {
        return Some((
            403,
            "spec.features.etcdLauncher: Forbidden: etcdLauncher feature cannot be disabled".to_owned(),
        ));
    }
    for (pointer, name) in [
        ("/metadata/labels/project-id", "metadata.labels.project-id"),
        ("/spec/cloud/dc", "spec.cloud.dc"),
        ("/spec/cloud/providerName", "spec.cloud.providerName"),
        ("/spec/exposeStrategy", "spec.exposeStrategy"),
    ] {
        // Defaulting has filled in what the old one did not have yet.
        if changed(pointer) && old.pointer(pointer).is_some() {
            return Some((403, format!("{name}: Forbidden: field is immutable")));
        }
    }
    None
}
