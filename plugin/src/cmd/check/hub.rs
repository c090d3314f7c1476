//! What the checks of an installation read: one request per fact, all at once but for those that need our namespace.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::target::workload::DEPLOYMENT;
use shared::target::{Kind, POWER_ROLLOUT};

use crate::api::error::HubError;
use crate::api::{Hub, Resource, Write, name_of, text};
use crate::read::installation::{HIVE, HIVE_CONFIG, LEASE, installed_in};
use crate::read::protection::{MUTATING_WEBHOOKS, WEBHOOKS};

/// Selects what is ours.
pub(super) const OURS: &str = "app.kubernetes.io/part-of=kubectl-hibernate";
/// The webhook's Secret.
pub(super) const SECRET: &str = "hibernate-webhook-tls";
/// TALM's Lease.
const TALM: &str = "9a2365a3.openshift.io";

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
pub(super) static POLICIES: Kind =
    Kind::cluster_scoped(ADMISSION, &["v1"], "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
pub(super) static BINDINGS: Kind =
    Kind::cluster_scoped(ADMISSION, &["v1"], "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
pub(super) static ROLES: Kind = Kind::cluster_scoped(RBAC, &["v1"], "ClusterRole", "clusterroles");
pub(super) static ROLE_BINDINGS: Kind =
    Kind::cluster_scoped(RBAC, &["v1"], "ClusterRoleBinding", "clusterrolebindings");
pub(super) static DEFINITIONS: Kind =
    Kind::cluster_scoped("apiextensions.k8s.io", &["v1"], "CustomResourceDefinition", "customresourcedefinitions");
pub(super) static SECRETS: Kind = Kind::namespaced("", &["v1"], "Secret", "secrets");
static SERVICES: Kind = Kind::namespaced("", &["v1"], "Service", "services");
static ENDPOINTS: Kind = Kind::namespaced("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices");

/// An object, none, or why it could not be read.
pub(super) type Found = Result<Option<Value>, HubError>;
/// Objects, or why they could not be read.
pub(super) type Listed = Result<Vec<Value>, HubError>;

/// What the hub holds of us.
pub(super) struct Facts {
    pub(super) now: Timestamp,
    pub(super) namespace: String,
    /// API groups that it serves.
    pub(super) groups: Vec<String>,
    /// Validating and mutating.
    pub(super) rules: [Found; 2],
    pub(super) definition: Found,
    pub(super) deployments: Listed,
    pub(super) roles: Listed,
    pub(super) policies: Listed,
    pub(super) bindings: Listed,
    pub(super) service: Found,
    pub(super) endpoints: Listed,
    pub(super) secret: Found,
    pub(super) lease: Found,
    pub(super) talm: Found,
    pub(super) hive: Found,
    /// The answer to a dry run that the webhook refuses.
    pub(super) trial: Result<Value, HubError>,
}

impl Facts {
    /// Reads them.
    pub(super) async fn read(hub: &Hub, groups: Vec<String>) -> Self {
        let (validating, mutating) =
            tokio::join!(object(hub, &WEBHOOKS, "", keys::WEBHOOK), object(hub, &MUTATING_WEBHOOKS, "", keys::WEBHOOK));
        let known =
            validating.as_ref().ok().and_then(Option::as_ref).or(mutating.as_ref().ok().and_then(Option::as_ref));
        let namespace = installed_in(known.unwrap_or(&Value::Null)).to_owned();
        let at = namespace.as_str();
        let endpoints_of = format!("kubernetes.io/service-name={}", keys::WEBHOOK);
        let (definition, deployments, roles, policies, bindings, service, endpoints, secret, lease, hive, trial) = tokio::join!(
            object(hub, &DEFINITIONS, "", POWER_ROLLOUT_DEFINITION),
            objects(hub, &DEPLOYMENT.kind, Some(at), OURS),
            objects(hub, &ROLES, None, OURS),
            objects(hub, &POLICIES, None, OURS),
            objects(hub, &BINDINGS, None, OURS),
            object(hub, &SERVICES, at, keys::WEBHOOK),
            objects(hub, &ENDPOINTS, Some(at), &endpoints_of),
            object(hub, &SECRETS, at, SECRET),
            object(hub, &LEASE, at, keys::CONTROLLER),
            object(hub, &HIVE_CONFIG, "", HIVE),
            trial(hub),
        );
        let mut facts = Self {
            now: Timestamp::now(),
            namespace,
            groups,
            rules: [validating, mutating],
            definition,
            deployments,
            roles,
            policies,
            bindings,
            service,
            endpoints,
            secret,
            lease,
            talm: Ok(None),
            hive,
            trial,
        };
        if facts.argument(keys::CONTROLLER, "--cgu").is_some() {
            let of = facts.argument(keys::CONTROLLER, "--cgu-talm-namespace").filter(|name| !name.is_empty());
            facts.talm = object(hub, &LEASE, of.as_deref().unwrap_or("openshift-operators"), TALM).await;
        }
        facts
    }

    /// One of our Deployments, if it is there and was read.
    pub(super) fn deployment(&self, name: &str) -> Option<&Value> {
        self.deployments.as_ref().ok()?.iter().find(|deployment| name_of(deployment) == name)
    }

    /// Replicas of one of our Deployments.
    pub(super) fn replicas(&self, name: &str) -> i64 {
        let replicas = |found: &Value| found.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        self.deployment(name).map(replicas).unwrap_or_default()
    }

    /// The value of a flag of one of our programs: empty if it stands alone, none if it is not there.
    pub(super) fn argument(&self, name: &str, flag: &str) -> Option<String> {
        let arguments = self.deployment(name)?.pointer("/spec/template/spec/containers/0/args")?.as_array()?;
        arguments.iter().filter_map(Value::as_str).find_map(|argument| match argument.split_once('=') {
            Some((name, value)) if name == flag => Some(value.to_owned()),
            None if argument == flag => Some(String::new()),
            _ => None,
        })
    }

    /// The command that installs what runs here once more.
    pub(super) fn install(&self) -> String {
        let helm = |deployment: &Value| {
            let note = |key: &str| text(deployment, &format!("/metadata/annotations/meta.helm.sh~1{key}")).to_owned();
            let (release, namespace) = (note("release-name"), note("release-namespace"));
            let line = format!("helm upgrade {release} charts/hibernate --namespace {namespace} --reuse-values");
            (!release.is_empty()).then_some(line)
        };
        if let Some(command) = self.deployment(keys::WEBHOOK).and_then(helm) {
            return command;
        }
        kustomize(match () {
            () if self.argument(keys::CONTROLLER, "--kkp").is_some() => "overlays/kkp",
            () if self.argument(keys::WEBHOOK, "--served-platforms").is_some() => "overlays/cut-over",
            () if self.deployment(keys::CONTROLLER).is_some() && self.replicas(keys::CONTROLLER) == 0 => {
                "overlays/webhook-only"
            }
            () => "",
        })
    }
}

/// The name of the rollouts' definition.
pub(super) const POWER_ROLLOUT_DEFINITION: &str = "powerrollouts.hibernate.sh";

/// The command that installs an overlay, or the default installation.
pub(super) fn kustomize(overlay: &str) -> String {
    format!("kubectl apply -k manifests/{overlay}")
}

/// An object; none if it or its kind is not there.
pub(super) async fn object(hub: &Hub, kind: &'static Kind, namespace: &str, name: &str) -> Found {
    match hub.get(Resource::preferred(kind), namespace, name).await {
        Ok(object) => Ok(Some(object)),
        Err(HubError::NoObject { .. } | HubError::NoKind(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Objects by their labels; none if the kind is not there.
pub(super) async fn objects(hub: &Hub, kind: &'static Kind, namespace: Option<&str>, labels: &str) -> Listed {
    match hub.list(Resource::preferred(kind), namespace, "", labels).await {
        Ok(listed) => Ok(listed.items),
        Err(HubError::NoKind(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Sends a rollout whose end has passed, which the webhook refuses (R3). As a dry run, so that it is not stored even if
/// no webhook judges it.
async fn trial(hub: &Hub) -> Result<Value, HubError> {
    let rollout = json!({
        "apiVersion": format!("{}/{}", keys::GROUP, POWER_ROLLOUT.kind.versions[0]), "kind": POWER_ROLLOUT.kind.kind,
        "metadata": { "name": "hibernate-check" },
        "spec": { "action": "Hibernate", "notAfter": "2000-01-01T00:00:00Z", "maxTargets": 1,
            "targets": { "names": [{ "namespace": hub.namespace, "name": "hibernate-check" }] } },
    });
    let write = Write { dry_run: true, manager: keys::PLUGIN.to_owned() };
    hub.create(Resource::preferred(&POWER_ROLLOUT.kind), None, &rollout, &write).await
}
