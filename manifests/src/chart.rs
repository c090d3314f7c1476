//! The Helm chart: templates of the same objects that the kustomizations install, each under the value that switches
//! it. `Chart.yaml`, the values, their schema and the notes are written by hand.
//!
//! A text `@{...}` in an object becomes the template expression `{{ ... }}`. If it is the name of a block, the block
//! stands for its whole line, key and all. Everything else is literal: what looks like a template is escaped. Our namespace becomes the
//! release's wherever it stands, in texts of conditions too.

use std::fmt::Write as _;

use serde_json::{Value, json};
use serde_saphyr::SerializeError;

use crate::entry::{ClientConfig, Entry, MUTATING, VALIDATING, configurations};
use crate::names::{CONTROLLER, NAMESPACE, WEBHOOK};
use crate::{admission, cgu, fdb, hive, kkp, plain, policy, rollout, yaml};

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
pub(crate) fn templates() -> Result<Vec<(String, String)>, SerializeError> {
    let component = |name: &str| format!("and (not .Values.policyOnly) .Values.components.{name}");
    let files = [
        ("crds", ".Values.crds.install".to_owned(), kept(rollout::definitions())),
        ("crds-cgu", ".Values.crds.cgu".to_owned(), kept(cgu::definitions())),
        ("rollouts", INSTALLED.to_owned(), [rollout::policy(), plain::objects(plain::ROLLOUT_ROLES)].concat()),
        ("controller-rbac", INSTALLED.to_owned(), [plain::objects(plain::CONTROLLER_RBAC), hive::policy()].concat()),
        ("controller", INSTALLED.to_owned(), deployed(plain::CONTROLLER, CONTROLLER, "controller")),
        ("webhook-rbac", INSTALLED.to_owned(), plain::objects(plain::WEBHOOK_RBAC)),
        ("webhook", INSTALLED.to_owned(), deployed(plain::WEBHOOK, WEBHOOK, "webhook")),
        ("network-policies", INSTALLED.to_owned(), plain::objects(plain::NETWORK_POLICIES)),
        ("ca-bundle-only", component("caBundleOnly"), plain::objects(plain::CA_BUNDLE_ONLY)),
        ("fdb", component("fdb"), fdb::objects()),
        ("kkp", component("kkp"), kkp::controller()),
        ("openstack", component("openstack"), hive::openstack()),
        ("cgu", component("cgu"), cgu::upgrades()),
        ("monitoring", component("monitoring"), [plain::controller_monitoring(), plain::webhook_monitoring()].concat()),
        ("policy", ".Values.policyOnly".to_owned(), policy::policy()),
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
    format!("{}{{{{- if {when} }}}}\n{text}{{{{- end }}}}\n", yaml::HEADER)
}

/// Objects as a template.
fn text(objects: &[Value]) -> Result<String, SerializeError> {
    let mut text = String::new();
    for line in yaml::documents(objects)?.replace(NAMESPACE, "@{.Release.Namespace}").lines() {
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
    let mut objects = plain::objects(file);
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
    let objects = plain::objects(plain::CONTROLLER_SECRETS);
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
    let of = |kkp: Vec<Entry>, fdb: Vec<Entry>, base: Vec<Entry>| {
        [("{{- if .Values.components.kkp }}\n", kkp), ("{{- if .Values.components.fdb }}\n", fdb), ("", base)]
    };
    let configured = [
        (VALIDATING, of(kkp::validating(), fdb::validating(), admission::validating())),
        (MUTATING, of(kkp::mutating(), Vec::new(), admission::mutating())),
    ];
    let mut documents = Vec::new();
    for ((kind, _), groups) in configured {
        let mut document = String::new();
        for (when, entries) in groups.into_iter().filter(|(_, entries)| !entries.is_empty()) {
            let all = configurations(&ClientConfig::Service, &entries, &entries);
            let mut configuration = all.into_iter().find(|one| one["kind"] == kind).unwrap_or_default();
            for entry in configuration["webhooks"].as_array_mut().into_iter().flatten() {
                if entry["name"] == fdb::SUSPEND {
                    entry["namespaceSelector"] = json!("@{labeled}");
                }
            }
            let text = text(&[configuration])?;
            let (head, entries) = text.split_once("webhooks:\n").unwrap_or_default();
            if document.is_empty() {
                document = format!("{head}webhooks:\n");
            }
            document += when;
            document += entries;
            document += if when.is_empty() { "" } else { "{{- end }}\n" };
        }
        documents.push(document);
    }
    Ok(documents.join("---\n"))
}
