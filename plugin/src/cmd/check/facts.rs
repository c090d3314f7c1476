//! What the checks of an installation read: one request per fact, all at once but for those that need our namespace.

use std::collections::BTreeSet;

use hub::error::HubError;
use hub::{HubClient, Resource, Write};
use hub::{is_name, is_namespace};
use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::config::{HIVE, HIVE_CONFIG};
use shared::kinds::workload::DEPLOYMENT;
use shared::kinds::{CLUSTER_DEPLOYMENT, Kind, Kinds, POWER_ROLLOUT};
use shared::object::{items, name_of, named, text};
use view::installed::installed_in;
use view::protection::{MUTATING_WEBHOOKS, WEBHOOKS};

use super::{CheckOutcome, CheckResult, done};
use crate::read::{DEFINITIONS, LEASE};

/// Selects what is ours.
pub(super) const OURS: &str = "app.kubernetes.io/part-of=kubectl-hibernate";
/// The webhook's Secret.
pub(super) const SECRET: &str = "hibernate-webhook-tls";
/// An API group that every OpenShift serves.
pub(super) const OPENSHIFT: &str = "security.openshift.io";
/// TALM's Lease.
const TALM: &str = "9a2365a3.openshift.io";

/// The right to read a Secret, its binding to everywhere, and its bindings to namespaces.
pub(super) const SECRETS_RIGHT: &str = "hibernate-controller-secrets";

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
static NAMESPACE_BINDINGS: Kind = Kind::namespaced(RBAC, &["v1"], "RoleBinding", "rolebindings");
pub(super) static POLICIES: Kind =
    Kind::cluster_scoped(ADMISSION, &["v1"], "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
pub(super) static BINDINGS: Kind =
    Kind::cluster_scoped(ADMISSION, &["v1"], "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
pub(super) static ROLES: Kind = Kind::cluster_scoped(RBAC, &["v1"], "ClusterRole", "clusterroles");
pub(super) static ROLE_BINDINGS: Kind =
    Kind::cluster_scoped(RBAC, &["v1"], "ClusterRoleBinding", "clusterrolebindings");
pub(super) static SECRETS: Kind = Kind::namespaced("", &["v1"], "Secret", "secrets");
static SERVICES: Kind = Kind::namespaced("", &["v1"], "Service", "services");
static ENDPOINTS: Kind = Kind::namespaced("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices");

/// Roles of programs, the policy that confines each or the claims it writes, and whether nothing else does. A name that ends with a dash stands
/// for all that begin with it.
pub(super) const CONFINED: [(&str, &str, bool); 12] = [
    ("hibernate-controller", "hibernate-controller-hive", false),
    ("hibernate-controller-cgu", "hibernate-controller-cgu", true),
    ("hibernate-controller-fdb", "hibernate-controller-fdb", false),
    ("hibernate-controller-kkp", "hibernate-controller-kkp", false),
    ("hibernate-controller-openstack", "hibernate-controller-openstack", true),
    // One for each kind.
    ("hibernate-controller-operators-", "hibernate-controller-operators", true),
    ("hibernate-controller-shoots", "hibernate-controller-shoots", true),
    ("hibernate-controller-shoots", "hibernate-claims-shoots", false),
    ("hibernate-controller-virtual-machines", "hibernate-controller-virtual-machines", true),
    ("hibernate-controller-virtual-machines", "hibernate-claims-virtual-machines", false),
    ("hibernate-controller-workload-schedules", "hibernate-controller-workload-schedules", true),
    ("hibernate-webhook", "hibernate-webhook-ca-bundle-only", false),
];

/// An object, none, or why it could not be read.
pub(super) type ObjectAnswer = Result<Option<Value>, HubError>;
/// Objects, or why they could not be read.
pub(super) type ListAnswer = Result<Vec<Value>, HubError>;

/// What the hub holds of us.
pub(super) struct Facts {
    /// What rollouts may be about.
    pub(super) kinds: Kinds,
    pub(super) now: Timestamp,
    pub(super) namespace: String,
    /// API groups that it serves.
    pub(super) groups: Vec<String>,
    /// Validating and mutating.
    pub(super) rules: [ObjectAnswer; 2],
    /// As [`OUR_DEFINITIONS`] lists them.
    pub(super) definitions: [ObjectAnswer; 3],
    pub(super) deployments: ListAnswer,
    pub(super) roles: ListAnswer,
    pub(super) role_bindings: ListAnswer,
    /// None where Kubernetes is too old for the kind.
    pub(super) policies: Result<Option<Vec<Value>>, HubError>,
    pub(super) bindings: ListAnswer,
    pub(super) service: ObjectAnswer,
    pub(super) endpoints: ListAnswer,
    pub(super) secret: ObjectAnswer,
    pub(super) lease: ObjectAnswer,
    pub(super) talm: ObjectAnswer,
    pub(super) hive: ObjectAnswer,
    /// Whether there is any Cluster of KKP.
    pub(super) has_user_clusters: bool,
    /// Namespaces with `ClusterDeployments` in which the controller may read no Secret.
    pub(super) unbound: Result<Vec<String>, HubError>,
    /// The answer to a dry run that the webhook refuses.
    pub(super) trial: Result<Value, HubError>,
}

impl Facts {
    /// Reads them.
    pub(super) async fn read(kinds: Kinds, hub: &HubClient, groups: Vec<String>) -> Self {
        let rules: [ObjectAnswer; 2] =
            tokio::join!(object(hub, &WEBHOOKS, "", keys::WEBHOOK), object(hub, &MUTATING_WEBHOOKS, "", keys::WEBHOOK))
                .into();
        let (namespace, unknown) = namespace(hub, &rules).await;
        let at = namespace.as_str();
        let endpoints_of = format!("kubernetes.io/service-name={}", keys::WEBHOOK);
        let everywhere = async {
            tokio::join!(
                definitions(hub),
                objects(hub, &ROLES, None, OURS),
                objects(hub, &ROLE_BINDINGS, None, OURS),
                policies(hub),
                objects(hub, &BINDINGS, None, OURS),
                object(hub, &HIVE_CONFIG, "", HIVE),
                hub.raw("/apis/kubermatic.k8c.io/v1/clusters?limit=1"),
                trial(hub),
            )
        };
        let here = async {
            tokio::join!(
                objects(hub, &DEPLOYMENT.kind, Some(at), OURS),
                object(hub, &SERVICES, at, keys::WEBHOOK),
                objects(hub, &ENDPOINTS, Some(at), &endpoints_of),
                object(hub, &SECRETS, at, SECRET),
                object(hub, &LEASE, at, keys::CONTROLLER),
                unbound(hub, at),
            )
        };
        let (everywhere, here) = tokio::join!(everywhere, here);
        let (definitions, roles, role_bindings, policies, bindings, hive, clusters, trial) = everywhere;
        let (deployments, service, endpoints, secret, lease, unbound) = here;
        let has_user_clusters = clusters.is_ok_and(|list| items(&list, "/items").next().is_some());
        let mut facts = Self {
            kinds,
            now: Timestamp::now(),
            namespace,
            groups,
            rules,
            definitions,
            deployments: unknown.map_or(deployments, Err),
            roles,
            role_bindings,
            policies,
            bindings,
            service,
            endpoints,
            secret,
            lease,
            talm: Ok(None),
            hive,
            has_user_clusters,
            unbound,
            trial,
        };
        if facts.argument(keys::CONTROLLER, "--cgu").is_some() {
            let of = facts.argument(keys::CONTROLLER, "--cgu-talm-namespace").filter(|name| is_namespace(name));
            facts.talm = object(hub, &LEASE, of.as_deref().unwrap_or("openshift-operators"), TALM).await;
        }
        facts
    }

    /// One of our Deployments, if it is there and was read.
    pub(super) fn deployment(&self, name: &str) -> Option<&Value> {
        named(self.deployments.as_ref().ok()?, name)
    }

    /// Whether the service that the rules name is gone: none of our Pods runs, and what could be said of them is moot.
    pub(super) fn is_abandoned(&self) -> bool {
        let service = |rules: &Value| rules.pointer("/webhooks/0/clientConfig/service").is_some();
        let named = self.rules.iter().any(|rules| matches!(rules, Ok(Some(rules)) if service(rules)));
        named && matches!(self.service, Ok(None))
    }

    /// A failure that another application of the manifests fixes.
    pub(super) fn reinstall(&self, detail: &str) -> CheckOutcome<'_> {
        let command = self.install("");
        let advice = if command.is_empty() { ": apply your manifests again" } else { "" };
        done(CheckResult::failed(format!("{detail}{advice}"), command))
    }

    /// `kubectl rollout restart` of one of our Deployments.
    pub(super) fn restart(&self, name: &str) -> String {
        format!("kubectl rollout restart deployment/{name} -n {}", self.namespace)
    }

    /// Whether it serves this API group.
    pub(super) fn serves(&self, group: &str) -> bool {
        self.groups.iter().any(|served| served == group)
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

    /// The command that installs what runs here once more, with these values of the chart. None where only its owner
    /// knows: in another namespace, with other images, or with further components.
    pub(super) fn install(&self, values: &str) -> String {
        let set = if values.is_empty() { String::new() } else { format!(" --set {values}") };
        if let Some((release, namespace)) = self.release() {
            return format!(
                "helm upgrade {release} charts/hibernate --namespace {namespace} --reset-then-reuse-values{set}"
            );
        }
        self.overlay().map(kustomize).unwrap_or_default()
    }

    /// The command that installs an overlay in place of the default installation, with the values that do the same.
    pub(super) fn install_overlay(&self, overlay: &str, values: &str) -> String {
        match (self.release(), self.overlay()) {
            (None, Some(_)) => kustomize(overlay),
            (Some(_), _) => self.install(values),
            (None, None) => String::new(),
        }
    }

    /// Helm's release and its namespace.
    fn release(&self) -> Option<(&str, &str)> {
        let deployment = self.deployment(keys::WEBHOOK)?;
        let (release, namespace) = (
            text(deployment, "/metadata/annotations/meta.helm.sh~1release-name"),
            text(deployment, "/metadata/annotations/meta.helm.sh~1release-namespace"),
        );
        (is_name(release) && is_namespace(namespace)).then_some((release, namespace))
    }

    /// The overlay that was applied; empty for the default installation.
    fn overlay(&self) -> Option<&'static str> {
        let has = |objects: &ListAnswer, name: &str| objects.as_ref().is_ok_and(|all| named(all, name).is_some());
        let role = |name| has(&self.roles, name);
        let as_committed = |name: &str| {
            let image = self.deployment(name)?.pointer("/spec/template/spec/containers/0/image")?.as_str()?;
            Some(image.split_once(':')?.0 == name)
        };
        let images = [keys::CONTROLLER, keys::WEBHOOK].iter().all(|name| as_committed(name) == Some(true));
        let has_alone = || self.roles.as_ref().is_ok_and(|all| alone(all).next().is_some());
        let more = self.argument(keys::CONTROLLER, "--cgu").is_some() || has_alone();
        if self.namespace != keys::NAMESPACE || !images || more {
            return None;
        }
        let secrets = has(&self.role_bindings, SECRETS_RIGHT);
        match (role("hibernate-controller-fdb"), self.argument(keys::CONTROLLER, "--kkp").is_some()) {
            (false, true) if !secrets => Some("overlays/kkp"),
            (true, false) => match self.argument(keys::WEBHOOK, "--served-platforms") {
                _ if self.is_labeled() => secrets.then_some("overlays/labeled-databases"),
                Some(_) if secrets => Some("overlays/cut-over"),
                Some(_) => Some("overlays/cut-over-openshift"),
                None if self.replicas(keys::CONTROLLER) == 0 => Some("overlays/webhook-only"),
                None => secrets.then_some(""),
            },
            _ => None,
        }
    }

    /// Whether the guard of volumes judges some namespaces only.
    fn is_labeled(&self) -> bool {
        let mut rules = self.rules.iter().flatten().flatten().flat_map(|rules| items(rules, "/webhooks"));
        let guard = rules.find(|rule| text(rule, "/name") == "suspend.hibernate.sh");
        guard.is_some_and(|guard| guard.pointer("/namespaceSelector/matchLabels").is_some())
    }
}

/// Our namespace: that of the rules' Service, or else of our Deployment. Why it is unknown, if it is.
pub(super) async fn namespace(hub: &HubClient, rules: &[ObjectAnswer; 2]) -> (String, Option<HubError>) {
    let service = |rules: &&Value| rules.pointer("/webhooks/0/clientConfig/service").is_some();
    if let Some(rules) = rules.iter().flatten().flatten().find(service) {
        return (installed_in(rules).to_owned(), None);
    }
    let found = objects(hub, &DEPLOYMENT.kind, None, OURS).await.unwrap_or_default();
    let webhook = named(&found, keys::WEBHOOK);
    let unread = match (&webhook, &rules[0]) {
        (None, Err(HubError::Forbidden { object, message })) => {
            Some(HubError::Forbidden { object: object.clone(), message: message.clone() })
        }
        _ => None,
    };
    let namespace = webhook.map(|webhook| text(webhook, "/metadata/namespace")).filter(|name| is_namespace(name));
    (namespace.unwrap_or(keys::NAMESPACE).to_owned(), unread)
}

/// Our policies; none at all where the hub is too old for them.
async fn policies(hub: &HubClient) -> Result<Option<Vec<Value>>, HubError> {
    match hub.list(Resource::preferred(&POLICIES), None, "", OURS).await {
        Ok(listed) => Ok(Some(listed.items)),
        Err(HubError::NoKind(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Our definitions, and what there is none of without each.
pub(super) const OUR_DEFINITIONS: [(&str, &str); 3] = [
    ("powerrollouts.hibernate.sh", "rollouts"),
    ("powerschedules.hibernate.sh", "schedules"),
    ("clusterpowerschedules.hibernate.sh", "cluster-wide schedules"),
];

async fn definitions(hub: &HubClient) -> [ObjectAnswer; 3] {
    let [rollouts, own, everywhere] = OUR_DEFINITIONS.map(|(name, _)| object(hub, &DEFINITIONS, "", name));
    tokio::join!(rollouts, own, everywhere).into()
}

/// Roles with this name, or that begin with it if it ends with a dash.
pub(super) fn of_name<'a>(roles: &'a [Value], name: &str) -> impl Iterator<Item = &'a str> {
    let is_prefix = name.ends_with('-');
    roles.iter().map(name_of).filter(move |role| *role == name || is_prefix && role.starts_with(name))
}

/// Those of these roles that only a policy confines.
pub(super) fn alone(roles: &[Value]) -> impl Iterator<Item = &str> {
    CONFINED.into_iter().filter(|(_, _, alone)| *alone).flat_map(move |(name, _, _)| of_name(roles, name))
}

/// The command that installs an overlay, or the default installation.
pub(super) fn kustomize(overlay: &str) -> String {
    format!("kubectl apply -k manifests/{overlay}")
}

/// An object; none if it or its kind is not there.
pub(super) async fn object(hub: &HubClient, kind: &'static Kind, namespace: &str, name: &str) -> ObjectAnswer {
    match hub.get(Resource::preferred(kind), namespace, name).await {
        Ok(object) => Ok(Some(object)),
        Err(HubError::NoObject { .. } | HubError::NoKind(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends a rollout whose end has passed, which the webhook refuses (R3). As a dry run, so that it is not stored even if
/// no webhook judges it.
async fn trial(hub: &HubClient) -> Result<Value, HubError> {
    let rollout = json!({
        "apiVersion": format!("{}/{}", keys::GROUP, POWER_ROLLOUT.kind.versions[0]), "kind": POWER_ROLLOUT.kind.kind,
        "metadata": { "name": "hibernate-check" },
        "spec": { "action": "Hibernate", "notAfter": "2000-01-01T00:00:00Z", "maxTargets": 1,
            "targets": { "names": [{ "namespace": hub.namespace, "name": "hibernate-check" }] } },
    });
    let write = Write::new(keys::PLUGIN, true);
    hub.create(Resource::preferred(&POWER_ROLLOUT.kind), None, &rollout, &write).await
}

/// Namespaces with `ClusterDeployments` in which the controller of this namespace may read no Secret.
///
/// # Errors
/// When the hub does not answer.
pub(super) async fn unbound(hub: &HubClient, of: &str) -> Result<Vec<String>, HubError> {
    let named = format!("metadata.name={SECRETS_RIGHT}");
    let bindings = hub.list(Resource::preferred(&NAMESPACE_BINDINGS), None, &named, "");
    let (clusters, bindings) = tokio::try_join!(objects(hub, &CLUSTER_DEPLOYMENT.kind, None, ""), bindings)?;
    Ok(missing(&clusters, &bindings.items, of))
}

pub(super) fn missing(clusters: &[Value], bindings: &[Value], of: &str) -> Vec<String> {
    let is_ours = |subject: &Value| text(subject, "/name") == keys::CONTROLLER && text(subject, "/namespace") == of;
    let binds =
        |binding: &&Value| text(binding, "/roleRef/name") == SECRETS_RIGHT && items(binding, "/subjects").any(is_ours);
    let namespace = |object| text(object, "/metadata/namespace");
    let bound: BTreeSet<&str> = bindings.iter().filter(binds).map(namespace).collect();
    let all: BTreeSet<&str> = clusters.iter().map(namespace).collect();
    all.difference(&bound).map(|&name| name.to_owned()).collect()
}

/// Objects by their labels; none if the kind is not there.
pub(super) async fn objects(
    hub: &HubClient,
    kind: &'static Kind,
    namespace: Option<&str>,
    labels: &str,
) -> Result<Vec<Value>, HubError> {
    match hub.list(Resource::preferred(kind), namespace, "", labels).await {
        Ok(listed) => Ok(listed.items),
        Err(HubError::NoKind(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
