//! The objects that pull images on a cluster, as TALM creates them: names, payloads and the views that follow them.

use serde_json::{Value, json};

use super::super::api::PrecachingSpec;
use super::super::view::{JOB, ViewRequest};
use super::super::wire::Scope;

pub const NAMESPACE_VIEW: &str = "view-precache-namespace";
pub const JOB_VIEW: &str = "view-precache-job";
/// Views of the Job's dependencies.
pub const DEPENDENCIES: [&str; 3] =
    ["view-precache-spec-configmap", "view-precache-service-acct", "view-precache-cluster-role-binding"];
const CREATIONS: [&str; 5] = [
    "precache-ns-create",
    "precache-sa-create",
    "precache-crb-create",
    "precache-spec-cm-create",
    "precache-job-create",
];

const NAMESPACE: &str = "openshift-talo-pre-cache";
const ACCOUNT: &str = "pre-cache-agent";
const BINDING: &str = "pre-cache-crb";
const SPEC: &str = "pre-cache-spec";
/// Actions that remove everything again: name, resource and object.
const REMOVALS: [[&str; 3]; 2] =
    [["precache-ns-delete", "namespace", NAMESPACE], ["precache-crb-delete", "clusterrolebinding", BINDING]];

/// Paths of the node that the Job mounts, read-only or not, in TALM's order.
const HOST: &str = "/etc/containers:ro /etc/pki/ca-trust:ro /etc/resolv.conf:ro /lib64:ro /proc:ro /run:rw /tmp:rw \
                    /usr/bin:ro /usr/lib:ro /usr/lib64:ro /usr/libexec:ro /usr/share/containers:ro /var/lib/cni:ro \
                    /var/lib/containers:rw /var/lib/kubelet:ro /var/tmp:rw";

/// A write to the views and actions of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    DeleteView(&'static str),
    DeleteAction(&'static str),
    /// Creates an action of this name and spec.
    Act(&'static str, Value),
    View(ViewRequest),
}

/// The pull of an upgrade on a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    pub cluster: &'a str,
    pub spec: &'a PrecachingSpec,
    /// The image that runs the pull.
    pub image: &'a str,
    /// Minutes that the Job may take.
    pub timeout: i64,
    /// Clusters that pull at once: the more there are, the less often the hub refreshes their views.
    pub clusters: usize,
    pub is_available: bool,
    /// An error is final once the upgrade is enabled.
    pub is_enabled: bool,
}

/// Specs of all actions that a pull may create: the policy of the hub admits these.
pub fn actions() -> Vec<Value> {
    let spec = &PrecachingSpec::default();
    let (is_available, is_enabled) = (true, true);
    let pull = Workload { cluster: "", spec, image: "", timeout: 0, clusters: 0, is_available, is_enabled };
    let steps = CREATIONS.into_iter().map(|name| pull.act(name)).chain(Workload::clean());
    steps.filter_map(|step| if let Step::Act(_, spec) = step { Some(spec) } else { None }).collect()
}

impl Workload<'_> {
    /// Removes the leftovers of an earlier pull.
    pub(in crate::cgu) fn prepare(&self) -> Vec<Step> {
        Self::abandon().into_iter().chain([self.view(NAMESPACE_VIEW)]).collect()
    }

    /// Removes everything, the view of the Job last. An action stays for a minute after it was carried out, and its name
    /// would keep the new one from being created: it is deleted first.
    pub(in crate::cgu) fn clean() -> Vec<Step> {
        let removals = REMOVALS.into_iter().flat_map(|[name, resource, object]| {
            let spec = json!({ "actionType": "Delete", "kube": { "resource": resource, "name": object } });
            [Step::DeleteAction(name), Step::Act(name, spec)]
        });
        removals.chain(Self::delete_dependency_views()).chain([Step::DeleteView(JOB_VIEW)]).collect()
    }

    /// Removes everything of a pull that has not succeeded.
    pub fn abandon() -> Vec<Step> {
        CREATIONS.into_iter().map(Step::DeleteAction).chain(Self::clean()).collect()
    }

    /// Creates the Job's dependencies. `is_again`: views exist that show something missing; new ones are refreshed at
    /// once.
    pub(in crate::cgu) fn dependencies(&self, is_again: bool) -> Vec<Step> {
        let gone = DEPENDENCIES.map(Step::DeleteView).into_iter().filter(|_| is_again);
        let acts = CREATIONS.into_iter().filter(|name| *name != "precache-job-create").map(|name| self.act(name));
        gone.chain(acts).chain(DEPENDENCIES.map(|name| self.view(name))).collect()
    }

    /// Creates the Job, and a new view of it, which is refreshed at once.
    pub(in crate::cgu) fn start(&self) -> Vec<Step> {
        vec![Step::DeleteView(JOB_VIEW), self.act("precache-job-create"), self.view(JOB_VIEW)]
    }

    pub(in crate::cgu) fn delete_dependency_views() -> Vec<Step> {
        DEPENDENCIES.into_iter().chain([NAMESPACE_VIEW]).map(Step::DeleteView).collect()
    }

    pub(in crate::cgu) fn view(&self, name: &'static str) -> Step {
        let (resource, object, namespace) = match name {
            "view-precache-spec-configmap" => ("configmap", SPEC, NAMESPACE),
            "view-precache-service-acct" => ("serviceaccounts", ACCOUNT, NAMESPACE),
            "view-precache-cluster-role-binding" => ("clusterrolebinding", BINDING, ""),
            JOB_VIEW => (JOB, "pre-cache", NAMESPACE),
            _ => ("namespaces", NAMESPACE, ""),
        };
        let seconds = u64::try_from(self.clusters).unwrap_or(u64::MAX).saturating_mul(6).clamp(30, 300);
        // TALM's view of the namespace sets no interval.
        let seconds = Some(if name == NAMESPACE_VIEW { 0 } else { seconds });
        Step::View(ViewRequest {
            cluster: self.cluster.to_owned(),
            name: name.to_owned(),
            desired: name.to_owned(),
            scope: Scope {
                resource: resource.to_owned(),
                name: object.to_owned(),
                namespace: namespace.to_owned(),
                update_interval_seconds: seconds,
            },
            adopts: true,
        })
    }

    fn act(&self, name: &'static str) -> Step {
        let create = |resource: &str, template: Value| json!({ "actionType": "Create", "kube": { "resource": resource, "template": template } });
        let spec = match name {
            "precache-sa-create" => create("serviceaccount", object("v1", "ServiceAccount", ACCOUNT)),
            "precache-spec-cm-create" => {
                let mut map = object("v1", "ConfigMap", SPEC);
                map["data"] = json!({
                    "operators.indexes": self.spec.operators_indexes.join("\n"),
                    "operators.packagesAndChannels": self.spec.operators_packages_and_channels.join("\n"),
                    "excludePrecachePatterns": self.spec.exclude_precache_patterns.join("\n"),
                    "additionalImages": self.spec.additional_images.join("\n"),
                    "platform.image": self.spec.platform_image,
                    "spaceRequired": self.spec.space_required,
                });
                create("configmap", map)
            }
            "precache-crb-create" => create(
                "clusterrolebinding",
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": { "name": BINDING },
                    "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
                    "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE }],
                }),
            ),
            "precache-job-create" => {
                let mut spec = create("job", self.job());
                spec["kube"]["namespace"] = json!(NAMESPACE);
                spec
            }
            _ => create(
                "namespace",
                json!({
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {
                        "name": NAMESPACE,
                        "labels": { "pod-security.kubernetes.io/enforce": "privileged" },
                        "annotations": { "workload.openshift.io/allowed": "management" },
                    },
                }),
            ),
        };
        Step::Act(name, spec)
    }

    fn job(&self) -> Value {
        let management =
            json!({ "target.workload.openshift.io/management": r#"{"effect":"PreferredDuringScheduling"}"# });
        let name = |path: &str| format!("host{}", path.replace(['/', '.'], "-"));
        let mut mounts = vec![
            json!({ "name": "config-volume", "mountPath": "/etc/config", "readOnly": true }),
            json!({ "name": "host", "mountPath": "/host" }),
        ];
        let mut volumes = vec![
            json!({ "name": "config-volume", "configMap": { "name": SPEC, "defaultMode": 420 } }),
            json!({ "name": "host", "emptyDir": {} }),
        ];
        for (path, mode) in HOST.split_whitespace().filter_map(|host| host.split_once(':')) {
            let type_ = if path == "/etc/resolv.conf" { "File" } else { "Directory" };
            let mut mount = json!({ "name": name(path), "mountPath": format!("/host{path}") });
            if mode == "ro" {
                mount["readOnly"] = json!(true);
            }
            mounts.push(mount);
            volumes.push(json!({ "name": name(path), "hostPath": { "path": path, "type": type_ } }));
        }
        mounts.push(json!({ "name": "sys-fs-cgroup", "mountPath": "/host/sys/fs/cgroup", "readOnly": true }));
        volumes.push(json!({ "name": "sys-fs-cgroup", "hostPath": { "path": "/sys/fs/cgroup", "type": "Directory" } }));
        let container = json!({
            "name": "pre-cache-container",
            "image": self.image,
            "command": ["/bin/bash", "-c"],
            "args": ["/opt/precache/precache.sh"],
            "env": [
                { "name": "config_volume_path", "value": "/tmp/precache/config" },
                { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            ],
            "resources": {},
            "securityContext": { "privileged": true, "runAsUser": 0 },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": mounts,
        });
        let mut job = object("batch/v1", "Job", "pre-cache");
        job["metadata"]["annotations"] = management.clone();
        job["spec"] = json!({
            "activeDeadlineSeconds": self.timeout.saturating_mul(60),
            "backoffLimit": 0,
            "template": {
                "metadata": { "name": "pre-cache", "annotations": management },
                "spec": {
                    "containers": [container],
                    "dnsPolicy": "ClusterFirst",
                    "restartPolicy": "Never",
                    "schedulerName": "default-scheduler",
                    "securityContext": {},
                    "serviceAccountName": ACCOUNT,
                    "priorityClassName": "system-cluster-critical",
                    "volumes": volumes,
                },
            },
        });
        job
    }
}

fn object(version: &str, kind: &str, name: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE } })
}
