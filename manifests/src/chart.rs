//! The Helm chart: templates of the same objects that the kustomizations install, each under the value that switches
//! it. `Chart.yaml`, the values, their schema and the notes are written by hand.
//!
//! A text `@{...}` in an object becomes the template expression `{{ ... }}`. If it is the name of a block, the block
//! stands for its whole line, key and all. Everything else is literal: what looks like a template is escaped. Our namespace becomes the
//! release's wherever it stands, in texts of conditions too.

use std::fmt::Write as _;

use serde_json::{Value, json};
use serde_saphyr::SerializeError;
use shared::annotation::keys::{CONTROLLER, NAMESPACE, WEBHOOK};
use shared::kinds::Kinds;

use crate::files::{self, objects};
use crate::generated;

/// Name of the entry that guards volumes of `FoundationDBClusters`.
pub(crate) const SUSPEND: &str = "suspend.hibernate.sh";

/// Blocks: name and template.
const BLOCKS: [(&str, &str); 6] = [
    (
        "keep",
        r"{{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
{{- end }}",
    ),
    (
        "controller-args",
        r"{{- if .Values.components.kkp }}
        - --kkp
{{- end }}
{{- if .Values.components.cgu }}
        - --cgu
{{- end }}
{{- if .Values.components.shoots }}
        - --target-kind=shoots.core.gardener.cloud
{{- end }}
{{- if .Values.components.virtualMachines }}
        - --target-kind=virtualmachines.kubevirt.io
{{- end }}
{{- with .Values.controller.extraArgs }}
{{- toYaml . | nindent 8 }}
{{- end }}",
    ),
    (
        "webhook-args",
        r#"{{- with .Values.servedPlatforms }}
        - --served-platforms={{ join "," . }}
{{- end }}
{{- with .Values.webhook.extraArgs }}
{{- toYaml . | nindent 8 }}
{{- end }}"#,
    ),
    ("controller-placement", "{{- include \"hibernate.placement\" (list $ .Values.controller) }}"),
    ("webhook-placement", "{{- include \"hibernate.placement\" (list $ .Values.webhook) }}"),
    (
        "labeled",
        r#"{{- if .Values.components.labeledDatabases }}
  namespaceSelector:
    matchLabels:
      hibernate.sh/suspend: "true"
{{- end }}"#,
    ),
];

/// Where all but the policy that replaces them is installed.
const INSTALLED: &str = "not .Values.policyOnly";

/// Every template: file and text.
pub(crate) fn templates(kinds: Kinds) -> Result<Vec<(String, String)>, SerializeError> {
    let installed = || INSTALLED.to_owned();
    let component = |name: &str| format!("and (not .Values.policyOnly) .Values.components.{name}");
    let files = [
        ("crds", ".Values.crds.install".to_owned(), kept(generated::own_definitions(kinds))),
        ("crds-cgu", ".Values.crds.cgu".to_owned(), kept(generated::cgu_definitions())),
        ("rollouts", installed(), [generated::own_policies(kinds), objects(&[files::ROLLOUT_ROLES])].concat()),
        ("controller-rbac", installed(), objects(&[files::CONTROLLER_RBAC, files::CONTROLLER_POLICY])),
        ("controller", installed(), deployed(files::CONTROLLER, CONTROLLER, "controller")),
        ("webhook-rbac", installed(), objects(&[files::WEBHOOK_RBAC])),
        ("webhook", installed(), deployed(files::WEBHOOK, WEBHOOK, "webhook")),
        ("network-policies", installed(), objects(&[files::NETWORK_POLICIES])),
        ("ca-bundle-only", component("caBundleOnly"), objects(&[files::CA_BUNDLE_ONLY])),
        ("fdb", component("fdb"), crate::fdb()),
        ("kkp", component("kkp"), crate::kkp()),
        ("openstack", component("openstack"), crate::openstack()),
        ("cgu", component("cgu"), crate::upgrades()),
        ("shoots", component("shoots"), crate::shoots()),
        ("virtual-machines", component("virtualMachines"), crate::virtual_machines()),
        ("workload-schedules", component("workloadSchedules"), crate::workload_schedules()),
        ("monitoring", component("monitoring"), [crate::controller_monitoring(), crate::webhook_monitoring()].concat()),
        ("policy", ".Values.policyOnly".to_owned(), crate::policy()),
    ];
    let mut written = Vec::new();
    for (name, when, objects) in files {
        written.push((format!("{name}.yaml"), document(&when, &text(&objects)?)));
    }
    written.push(("controller-secrets.yaml".to_owned(), document(INSTALLED, &secrets()?)));
    written.push(("webhook-rules.yaml".to_owned(), document(INSTALLED, &rules()?)));
    Ok(written)
}

/// A file that is there under a condition.
fn document(when: &str, text: &str) -> String {
    format!("{}{{{{- if {when} }}}}\n{text}{{{{- end }}}}\n", generated::HEADER)
}

/// Objects as a template.
fn text(objects: &[Value]) -> Result<String, SerializeError> {
    let mut text = String::new();
    for line in generated::documents(objects)?.replace(NAMESPACE, "@{.Release.Namespace}").lines() {
        let named = line.rsplit_once("\"@{").and_then(|(_, name)| name.strip_suffix("}\""));
        match BLOCKS.iter().find(|(name, _)| named == Some(*name)) {
            Some((_, block)) => text += block,
            None => text += &expressions(line),
        }
        text.push('\n');
    }
    Ok(text)
}

/// A line with its expressions, and everything else escaped.
fn expressions(line: &str) -> String {
    let escaped = |text: &str| text.replace("{{", "{{ \"{{\" }}");
    let mut parts = line.split("@{");
    let mut text = escaped(parts.next().unwrap_or_default());
    for part in parts {
        let (expression, rest) = part.split_once('}').unwrap_or((part, ""));
        // A value that is an expression alone has its own form, a number or a block; a name stays a text.
        let alone = text.ends_with(": \"") && rest == "\"" && !expression.contains("amespace");
        if alone {
            text.pop();
        }
        let _ = write!(text, "{{{{ {expression} }}}}{}", if alone { String::new() } else { escaped(rest) });
    }
    text
}

/// Definitions that stay when the release goes.
fn kept(mut definitions: Vec<Value>) -> Vec<Value> {
    for definition in &mut definitions {
        definition["metadata"]["annotations"] = json!("@{keep}");
    }
    definitions
}

/// The objects of a file with the Deployment of a program, whose values are under this name.
fn deployed(file: &str, program: &str, values: &str) -> Vec<Value> {
    let mut objects = objects(&[file]);
    for deployment in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let spec = &mut deployment["spec"];
        spec["replicas"] = json!(format!("@{{.Values.{values}.replicas}}"));
        let pod = &mut spec["template"]["spec"];
        pod["affinity"] = json!(format!("@{{{values}-placement}}"));
        let container = &mut pod["containers"][0];
        container["image"] = json!(format!("@{{include `hibernate.image` (list $ `{program}` .Values.{values})}}"));
        container["resources"] = json!(format!("@{{toYaml .Values.{values}.resources | nindent 10}}"));
        if let Some(arguments) = container["args"].as_array_mut() {
            for argument in arguments.iter_mut() {
                *argument = json!(argument.as_str().unwrap_or_default().replace("[::]", "@{.Values.listen}"));
            }
            arguments.push(json!(format!("@{{{values}-args}}")));
        }
    }
    objects
}

/// The right to read Secrets, bound everywhere or in the namespaces that are named.
fn secrets() -> Result<String, SerializeError> {
    let objects = objects(&[files::CONTROLLER_SECRETS]);
    let (role, everywhere) = objects.split_at(1);
    let mut named = everywhere.to_vec();
    named[0]["kind"] = json!("RoleBinding");
    named[0]["metadata"]["namespace"] = json!("@{$namespace}");
    Ok(format!(
        "{}---\n{{{{- if .Values.secrets.everywhere }}}}\n{}{{{{- end }}}}\n\
         {{{{- range $namespace := .Values.secrets.namespaces }}}}\n---\n{}{{{{- end }}}}\n",
        text(role)?,
        text(everywhere)?,
        text(&named)?.replace(".Release", "$.Release"),
    ))
}

/// Both webhook configurations. The entries of components come first, as kustomize puts them.
fn rules() -> Result<String, SerializeError> {
    let components = [("kkp", objects(&[files::KKP_VALIDATING, files::KKP_MUTATING])), ("fdb", fdb_entries())];
    let mut documents = Vec::new();
    for base in objects(&[files::WEBHOOKS]) {
        // The text of the configuration with these entries, up to them and from there on.
        let with = |entries: &Value| -> Result<(String, String), SerializeError> {
            let mut configuration = base.clone();
            configuration["webhooks"] = entries.clone();
            let text = text(&[configuration])?;
            let (head, entries) = text.split_once("webhooks:\n").unwrap_or_default();
            Ok((head.to_owned(), entries.to_owned()))
        };
        let (mut document, entries) = with(&base["webhooks"])?;
        document += "webhooks:\n";
        for (component, patches) in &components {
            for patch in patches.iter().filter(|patch| patch["kind"] == base["kind"]) {
                let (_, entries) = with(&patch["webhooks"])?;
                let _ = write!(document, "{{{{- if .Values.components.{component} }}}}\n{entries}{{{{- end }}}}\n");
            }
        }
        documents.push(document + &entries);
    }
    Ok(documents.join("---\n"))
}

/// The entries for `FoundationDBClusters`, one of them for labeled namespaces alone, if so set.
fn fdb_entries() -> Vec<Value> {
    let mut patches = objects(&[files::FDB_VALIDATING]);
    let entries = patches.iter_mut().filter_map(|patch| patch["webhooks"].as_array_mut()).flatten();
    for entry in entries.filter(|entry| entry["name"] == SUSPEND) {
        entry["namespaceSelector"] = json!("@{labeled}");
    }
    patches
}
