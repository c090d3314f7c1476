//! What a hub needs whose upgrades the controller runs: its rights, the policy that confines them, and, where TALM was
//! never installed, definitions of TALM's kinds: all of upstream's fields, with its defaults.

use k8s_openapi::api::admissionregistration::v1::Variable;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use shared::admission::cel::list;
use shared::admission::policy::{forbid, variable};
use shared::cgu::api::ClusterGroupUpgrade;
use shared::cgu::objects::LOCAL_CLUSTER;
use shared::cgu::precache::spec::PreCachingConfig;
use shared::cgu::precache::workload;
use shared::cgu::view::INSTALL_PLAN;
use shared::cgu::wire::UPGRADE;
use shared::cgu::ztp;

use crate::confine::{controller, every_write, same_object};
use crate::names::{CONTROLLER, labels};
use crate::plain;

/// Members of an action's spec that say what it changes.
const CHANGED: &str = "actionType kube.?resource kube.?namespace kube.?name kube.?template.?apiVersion kube.?template.?kind kube.?template.?metadata.?namespace kube.?template.?metadata.?name";
/// Resources that views ask for, besides Subscriptions.
const VIEWED: [&str; 6] = [INSTALL_PLAN, "clusterrolebinding", "configmap", "jobs", "namespaces", "serviceaccounts"];

/// The rights and the policy that confines them, in an order in which they can be created.
pub fn upgrades() -> Vec<Value> {
    [policy(), plain::objects(plain::CGU_RBAC)].concat()
}

/// Actions that the code sends, on clusters other than the hub; views of what it reads; objects of upgrades alone; labels
/// and annotations of clusters; one namespace. RBAC would let it change and read anything on every cluster.
pub(crate) fn policy() -> Vec<Value> {
    let ocm = |group: &str, resources: &[&str]| every_write(&format!("{group}.open-cluster-management.io"), resources);
    let rules = vec![
        ocm("action", &["managedclusteractions"]),
        ocm("view", &["managedclusterviews"]),
        ocm("cluster", &["managedclusters", "placements"]),
        ocm("policy", &["placementbindings"]),
        every_write("", &["namespaces"]),
    ];
    let labeled =
        |object: &str| format!("({object} == null || '{UPGRADE}' in {object}.metadata.?labels.orValue({{}}))");
    let (ours, were_ours, deletes) = (labeled("object"), labeled("oldObject"), "request.operation == 'DELETE'");
    let asked = format!("variables.asked in {} || variables.asked.startsWith('Subscription.')", list(&VIEWED));
    let acts = format!("request.namespace != '{LOCAL_CLUSTER}' && (variables.pulls || variables.approves)");
    let creates = format!("request.operation == 'CREATE' && object.metadata.?name.orValue('') == '{}'", ztp::NAMESPACE);
    let validation = |resource: &str, unless: String, message: &str| {
        let others = format!("!request.resource.resource.startsWith('{resource}')");
        forbid(format!("{others}\n|| {unless}"), format!("{CONTROLLER} may {message}"))
    };
    let (actions, views) = (format!("{deletes}\n|| ({acts})"), format!("{deletes}\n|| ({ours} && ({asked}))"));
    let clusters = "(request.operation == 'UPDATE' && variables.sameCluster)".to_owned();
    let validations = vec![
        validation("managedclusteractions", actions, "create only actions of upgrades, and none in local-cluster"),
        validation("managedclusterviews", views, "view only Subscriptions, InstallPlans and what pulls images"),
        validation("placement", format!("({ours} && {were_ours})"), "write only Placements and bindings of upgrades"),
        validation("managedclusters", clusters, "change only labels and annotations of a ManagedCluster"),
        validation("namespaces", format!("({creates})"), "create no namespace but ztp-install"),
    ];
    controller("hibernate-controller-cgu", rules, variables(), validations)
}

fn variables() -> Vec<Variable> {
    let actions = workload::actions();
    let known: Vec<Vec<&str>> = actions.iter().map(changed).collect();
    let subjects = actions.iter().filter_map(|action| action.pointer("/kube/template/subjects")?.as_array());
    let subjects: Vec<&Value> = subjects.flatten().collect();
    let fields: Vec<String> = CHANGED.split(' ').map(|path| format!("object.?spec.?{path}")).collect();
    let pulls = "object.?spec.?kube.?template.?subjects.orValue([]).all(one, one in";
    let approves = "variables.changed[0] == 'Update' && variables.changed[1] == 'installplan'
&& variables.changed[4].startsWith('operators.coreos.com/') && variables.changed[5] == 'InstallPlan'
&& object.spec.kube.template.?spec.orValue({}).all(key, key in ['approval', 'approved', 'clusterServiceVersionNames'])";
    vec![
        variable("changed", format!("[{}].map(field, field.orValue(''))", fields.join(", "))),
        variable("pulls", format!("variables.changed in {}\n&& {pulls} {})", json!(known), json!(subjects))),
        variable("approves", approves),
        variable("asked", "object.?spec.?scope.?resource.orValue('')"),
        variable("sameCluster", same_object(&[])),
    ]
}

/// What an action changes, as the policy compares it.
fn changed(action: &Value) -> Vec<&str> {
    let pointers = CHANGED.split(' ').map(|path| format!("/{}", path.replace(".?", "/")));
    pointers.map(|path| action.pointer(&path).and_then(Value::as_str).unwrap_or_default()).collect()
}

/// The definitions.
pub fn definitions() -> Vec<Value> {
    let all = [ClusterGroupUpgrade::crd(), PreCachingConfig::crd()];
    let shaped = all.map(|mut definition| {
        definition.metadata.labels = Some(labels(CONTROLLER));
        let mut definition = json!(definition);
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        as_go(schema);
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("required");
        }
        definition
    });
    shaped.into()
}

/// Removes what Rust's types add to a schema and Go's do not, but for defaults of switches and numbers.
fn as_go(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.retain(|key, value| match key.as_str() {
        "nullable" => false,
        "default" => value.is_boolean() || value.is_number(),
        "format" => value != "int64",
        _ => true,
    });
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).into_iter().for_each(as_go);
    }
    fields
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
        .for_each(|(_, field)| as_go(field));
}
