//! The Helm chart: it installs what the kustomizations install, and bears an upgrade, a rollback and an uninstallation
//! while our webhook runs. With the Helm versions 3 and 4.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testbed::controlplane::assets::helm;
use testbed::options::Options;
use testbed::{Ran, World, ensure_that, eventually};

use crate::manifests::{apply, remove, webhook, written};
use crate::rendered::{NAMESPACE, Printed, chart, checkout, documents, kustomized, templated};

const SOON: Duration = Duration::from_mins(1);

/// For the Kubernetes of today.
fn template(version: u8, values: &[&str]) -> Printed {
    templated(version, "1.36.0", values)
}

/// Objects by kind, namespace and name, the rules of webhooks by their names.
fn objects(text: &str) -> Result<BTreeMap<String, Value>> {
    let named = documents(text)?.into_iter().filter(|object| object["kind"] != "Namespace").map(|mut object| {
        whole_numbers(&mut object);
        if let Some(rules) = object["webhooks"].as_array_mut() {
            rules.sort_by_key(|rule| rule["name"].to_string());
        }
        let metadata = &object["metadata"];
        (format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"]), object)
    });
    Ok(named.collect())
}

/// kustomize writes 5.0 as 5.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0) {
                *value = json!(float.round().to_string().parse::<i64>().unwrap_or_default());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[test]
fn with_each_overlays_values_it_is_what_kustomize_renders() -> Result<()> {
    let seed = ["components.kkp=true", "components.fdb=false", "secrets.everywhere=false"];
    for (overlay, values) in [
        (".", &[][..]),
        ("overlays/cut-over", &["servedPlatforms={aws,azure,gcp,ibmcloud,openstack}"]),
        (
            "overlays/cut-over-openshift",
            &["servedPlatforms={aws,azure,gcp,ibmcloud,openstack}", "secrets.everywhere=false"],
        ),
        ("overlays/kkp", &seed),
        ("overlays/labeled-databases", &["components.labeledDatabases=true"]),
        ("overlays/monitoring", &["components.monitoring=true"]),
        ("overlays/policy-only", &["policyOnly=true", "crds.install=false"]),
        ("overlays/secrets-per-namespace", &["secrets.everywhere=false", "secrets.namespaces={clusters}"]),
        ("overlays/webhook-only", &["controller.replicas=0", "secrets.everywhere=false"]),
        ("overlays/cgu-crds", &["policyOnly=true", "crds.install=false", "crds.cgu=true"]),
    ] {
        let mut expected = objects(&kustomized(overlay)?)?;
        if overlay.ends_with("cgu-crds") {
            expected.extend(objects(&kustomized("overlays/policy-only")?)?);
        }
        for version in [3, 4] {
            let values = [values, &["crds.keep=false"]].concat();
            let found = objects(&template(version, &values).map_err(anyhow::Error::msg)?)?;
            let (names, others): (Vec<_>, Vec<_>) = (found.keys().collect(), expected.keys().collect());
            assert_eq!(names, others, "{overlay}, Helm {version}");
            for (name, object) in &expected {
                assert_eq!(object, &found[name], "{overlay}, Helm {version}: {name}");
            }
        }
    }
    Ok(())
}

#[test]
fn images_and_placement_are_set_by_values() -> Result<()> {
    let digest = format!("webhook.digest=sha256:{}", "0".repeat(64));
    let values = [
        "images.registry=r.example.com/x/",
        "images.tag=t",
        &digest,
        "images.pullSecrets[0].name=s",
        "controller.nodeSelector.infra=yes",
        "controller.extraArgs={--steady-period=5m}",
        "listen=[fd00::1]",
    ];
    let found = objects(&template(4, &values).map_err(anyhow::Error::msg)?)?;
    let pod = |name: &str| found[&format!("\"Deployment\" {NAMESPACE:?} {name:?}")]["spec"]["template"]["spec"].clone();
    let (webhook, controller) = (pod("hibernate-webhook"), pod("hibernate-controller"));
    assert_eq!(
        webhook["containers"][0]["image"],
        format!("r.example.com/x/hibernate-webhook@sha256:{}", "0".repeat(64))
    );
    assert_eq!(controller["containers"][0]["image"], "r.example.com/x/hibernate-controller:t");
    assert_eq!(
        (&webhook["imagePullSecrets"], &controller["nodeSelector"]),
        (&json!([{ "name": "s" }]), &json!({ "infra": "yes" }))
    );
    let arguments = controller["containers"][0]["args"].as_array().context("arguments")?;
    assert_eq!(arguments.last(), Some(&json!("--steady-period=5m")));
    assert!(arguments.contains(&json!("--listen=[fd00::1]:8080")), "{arguments:?}");
    let of_webhook = webhook["containers"][0]["args"].as_array().context("arguments")?;
    for argument in ["--listen=[fd00::1]:9443", "--listen-plain=[fd00::1]:8080"] {
        assert!(of_webhook.contains(&json!(argument)), "{of_webhook:?}");
    }
    assert_eq!(
        found["\"CustomResourceDefinition\" null \"powerrollouts.hibernate.sh\""]["metadata"]["annotations"]["helm.sh/resource-policy"],
        "keep"
    );
    Ok(())
}

#[test]
fn wrong_values_and_old_hubs_are_refused() {
    for version in [3, 4] {
        for (values, part) in [
            (["crds.instal=true"], "instal"),
            (["crds.install=maybe"], "install"),
            (["webhook.digest=latest"], "digest"),
            (["webhook.replicas=0"], "replicas"),
            (["images=null"], "images"),
            (["servedPlatforms={vsphere}"], "servedPlatforms"),
        ] {
            let error = template(version, &values).expect_err(values[0]);
            assert!(error.contains(part), "Helm {version}: {error}");
        }
        let error = templated(version, "1.29.0", &[]).expect_err("Kubernetes 1.29");
        assert!(error.contains("1.29.0") && error.contains("1.30.0"), "{error}");
    }
}

#[test]
fn the_chart_is_of_this_version() -> Result<()> {
    let chart: Value = serde_saphyr::from_str(&std::fs::read_to_string(checkout("charts/hibernate/Chart.yaml"))?)?;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    Ok(())
}

async fn run(world: &World, version: u8, args: &[&str]) -> Result<Ran> {
    let mut command = world.command(helm(version)?);
    command.args(args).args(["-n", NAMESPACE]);
    let ran = world.run(command).await?;
    eprintln!("helm {version} {}: {:?}", args[0], ran.duration);
    Ok(ran)
}

/// What our programs have written stays through whatever Helm does.
async fn keeps(world: &World, before: &[Value]) -> Result<()> {
    ensure!(written(world).await? == before, "Helm has changed what the webhook wrote");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_installed_upgraded_rolled_back_and_uninstalled_while_the_webhook_runs() -> Result<()> {
    let world = &World::up(Options::bare_hub()).await?;
    remove(world, ".").await?;
    for version in [3, 4] {
        life(world, version).await.with_context(|| format!("Helm {version}"))?;
    }
    taken_over(world).await.context("from kustomize")
}

async fn life(world: &World, version: u8) -> Result<()> {
    let chart = chart();
    run(world, version, &["install", "sleep", &chart, "--create-namespace"]).await?.ok()?;
    let process = webhook(world).await?;
    let before = eventually(SOON, "caBundle in every entry", || written(world)).await?;
    run(world, version, &["upgrade", "sleep", &chart, "--set", "webhook.replicas=3", "--set", "components.kkp=true"])
        .await?
        .ok()?;
    let rules =
        world.kubectl(&["get", "validatingwebhookconfiguration", "hibernate-webhook", "-o", "name"]).await?.ok()?;
    ensure!(!rules.is_empty());
    eventually(SOON, "caBundle in the new entries, too", async || {
        ensure_that(written(world).await?, |found| {
            found.len() > before.len() && before.iter().all(|one| found.contains(one))
        })
    })
    .await?;
    run(world, version, &["rollback", "sleep", "1"]).await?.ok()?;
    keeps(world, &before).await?;
    let other = run(world, version, &["install", "second", &chart]).await?;
    ensure!(other.code != 0 && other.stderr.contains("sleep"), "{other:?}");
    keeps(world, &before).await?;
    drop(process);
    run(world, version, &["uninstall", "sleep"]).await?.ok()?;
    left_over(world).await
}

/// What stays are the definitions, which `crds.keep` keeps.
async fn left_over(world: &World) -> Result<()> {
    let kinds = "crd,validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,\
                 validatingadmissionpolicybindings,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,\
                 secrets,leases,networkpolicies,deployments,services,poddisruptionbudgets";
    let line = ["get", kinds, "-A", "-l", "app.kubernetes.io/part-of=kubectl-hibernate", "-o", "name"];
    let left = world.kubectl(&line).await?.ok()?;
    let kept = ["clusterpowerschedules", "powerrollouts", "powerschedules"];
    let kept = kept.map(|name| format!("customresourcedefinition.apiextensions.k8s.io/{name}.hibernate.sh"));
    assert_eq!(left.lines().collect::<Vec<_>>(), kept);
    Ok(())
}

/// As docs/install.md says. Helm 4 is needed for it.
async fn taken_over(world: &World) -> Result<()> {
    apply(world, ".", &[]).await?;
    let process = webhook(world).await?;
    let before = eventually(SOON, "caBundle in every entry", || written(world)).await?;
    // Client-side apply would go on owning every entry.
    apply(world, ".", &["--server-side", "--field-manager=helm", "--force-conflicts"]).await?;
    run(world, 4, &["install", "sleep", &chart(), "--take-ownership", "--force-conflicts"]).await?.ok()?;
    keeps(world, &before).await?;
    run(world, 4, &["upgrade", "sleep", &chart(), "--set", "components.fdb=false"]).await?.ok()?;
    let names = ["get", "validatingwebhookconfiguration", "hibernate-webhook", "-o", "jsonpath={.webhooks[*].name}"];
    let names = world.kubectl(&names).await?.ok()?;
    ensure!(names.contains("into-sleep") && !names.contains("suspend"), "{names}");
    drop(process);
    run(world, 4, &["uninstall", "sleep"]).await?.ok()?;
    left_over(world).await
}
