//! The webhook's serving certificate: made, shared by replicas, rotated while clients come and go, repaired, reloaded.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use shared::annotation::keys;
use testbed::options::{Options, Program};
use testbed::pki::Authority;
use testbed::proxy::faults::{Effect, Rule};
use testbed::supervisor::programs::Start;
use testbed::{World, apply, ensure_that, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Child;

const SECRET: &str = "hibernate-webhook-tls";
const SOON: Duration = Duration::from_mins(1);

type Chain = Vec<CertificateDer<'static>>;

fn webhook(identity: Option<&str>, args: &[&str]) -> Start {
    Start {
        identity: identity.map(str::to_owned),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..Start::new(Program::Webhook)
    }
}

fn secrets(hub: &Client) -> Api<Secret> {
    Api::namespaced(hub.clone(), keys::NAMESPACE)
}

/// Has the Secret as the manifests hold it, which is how a new CA is requested.
async fn empty(hub: &Client) -> Result<()> {
    secrets(hub).patch(SECRET, &PatchParams::default(), &Patch::Merge(json!({"data": null}))).await?;
    Ok(())
}

fn text(secret: &Secret, key: &str) -> Result<String> {
    let ByteString(bytes) = secret.data.as_ref().and_then(|data| data.get(key)).with_context(|| format!("no {key}"))?;
    Ok(String::from_utf8(bytes.clone())?)
}

/// The bundle in the Secret, once there is one.
async fn bundle(hub: &Client) -> Result<String> {
    text(&secrets(hub).get(SECRET).await?, "ca.crt")
}

/// The caBundle of every entry of both configurations.
async fn published(hub: &Client) -> Result<Vec<String>> {
    let validating = Api::<ValidatingWebhookConfiguration>::all(hub.clone()).get(keys::WEBHOOK).await?;
    let mutating = Api::<MutatingWebhookConfiguration>::all(hub.clone()).get(keys::WEBHOOK).await?;
    let judging = validating.webhooks.into_iter().flatten().map(|entry| entry.client_config.ca_bundle);
    let changing = mutating.webhooks.into_iter().flatten().map(|entry| entry.client_config.ca_bundle);
    judging
        .chain(changing)
        .map(|bundle| Ok(String::from_utf8(bundle.context("an entry without caBundle")?.0)?))
        .collect()
}

/// Waits until all entries hold what the Secret holds.
async fn settled(hub: &Client) -> Result<String> {
    eventually(SOON, "bundle in every entry", async || {
        let (wanted, found) = (bundle(hub).await?, published(hub).await?);
        ensure!(found.len() == 10 && found.iter().all(|bundle| *bundle == wanted), "not published everywhere");
        Ok(wanted)
    })
    .await
}

/// The chain that a client gets that trusts this bundle alone.
async fn connect(url: &str, bundle: &str) -> Result<Chain> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let address = url.trim_start_matches("https://");
    let stream = TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
    let name = ServerName::try_from("127.0.0.1")?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().context("no certificate")?;
    Ok(chain.iter().map(|certificate| certificate.clone().into_owned()).collect())
}

/// A write that only a webhook that answers lets through or refuses in its own words.
async fn is_judged(hub: &Client) -> Result<()> {
    let cluster = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": {"name": "probe", "annotations": {"hibernate.sh/protected": "true"}},
        "spec": {"baseDomain": "example.com", "clusterName": "probe", "platform": {"aws": {"region": "r"}}, "powerState": "Hibernating"},
    });
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let clusters: Api<kube::api::DynamicObject> = Api::namespaced_with(
        hub.clone(),
        "default",
        &kube::api::ApiResource::erase::<shared::hive::api::ClusterDeployment>(&()),
    );
    match clusters.create(&dry_run, &serde_json::from_value(cluster)?).await {
        Err(kube::Error::Api(status)) if status.message.contains("is protected") => Ok(()),
        other => bail!("not judged: {other:?}"),
    }
}

fn certificates_in(pem: &str) -> usize {
    pem.matches("BEGIN CERTIFICATE").count()
}

/// On one hub, one after the other: each part begins with an empty Secret and without registrations.
#[tokio::test(flavor = "multi_thread")]
async fn one_certificate_is_shared_and_repaired_and_its_rotation_is_noticed_by_nobody() -> Result<()> {
    let world = &World::up(Options::bare_hub()).await?;
    let hub = &world.hub().await?;
    replicas_share_it(world, hub).await.context("replicas share one, which survives them and is repaired")?;
    ended(world, hub, &["webhook", "webhook-b"]).await?;
    a_replica_is_behind(world, hub).await.context("a replica that is behind puts no old bundle back")?;
    ended(world, hub, &["webhook", "webhook-b"]).await?;
    it_is_rotated(world, hub).await.context("rotation is noticed by nobody")?;
    ended(world, hub, &["webhook", "webhook-b"]).await?;
    clients_need_a_certificate(world, hub).await.context("with a CA of clients nobody else is served")?;
    ended(world, hub, &["webhook"]).await?;
    a_secret_is_of_somebody_else(world, hub).await.context("a Secret of somebody else, and a missing one")
}

async fn ended(world: &World, hub: &Client, webhooks: &[&str]) -> Result<()> {
    for webhook in webhooks {
        world.signal(webhook, "stop").await?;
    }
    world.heal("hub", None).await?;
    Api::<ValidatingWebhookConfiguration>::all(hub.clone()).delete(keys::WEBHOOK, &DeleteParams::default()).await?;
    Api::<MutatingWebhookConfiguration>::all(hub.clone()).delete(keys::WEBHOOK, &DeleteParams::default()).await?;
    empty(hub).await
}

async fn replicas_share_it(world: &World, hub: &Client) -> Result<()> {
    let args = ["--certificate-check-interval", "1s"];
    let url = world.start(&webhook(None, &args)).await?.url.context("a URL")?;
    let second = world.start(&webhook(Some("b"), &args)).await?.url.context("a URL")?;

    // The first start filled the Secret that the manifests hold empty; both replicas serve from it.
    let first = settled(hub).await?;
    let chain = connect(&url, &first).await?;
    assert_eq!(chain, connect(&second, &first).await?);
    is_judged(hub).await?;

    // A restart makes nothing new.
    world.signal("webhook", "kill").await?;
    world.start(&webhook(None, &args)).await?;
    assert_eq!(chain, connect(&url, &first).await?);

    // Every foreign change of a caBundle is reverted.
    let removal = r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#;
    let configuration = "validatingwebhookconfiguration/hibernate-webhook";
    world.kubectl(&["patch", configuration, "--type", "json", "--patch", removal]).await?.ok()?;
    assert_eq!(settled(hub).await?, first);

    empty(hub).await?;
    let second_bundle = eventually(SOON, "new CA", async || {
        let found = settled(hub).await?;
        ensure!(found != first, "still the old one");
        Ok(found)
    })
    .await?;
    eventually(SOON, "new certificate on both", async || {
        ensure!(connect(&url, &second_bundle).await? == connect(&second, &second_bundle).await?, "different ones");
        Ok(())
    })
    .await?;
    eventually(SOON, "evaluation", || is_judged(hub)).await?;

    // A Secret that is gone cannot be created with the rights of the manifests: the old certificate is served on.
    secrets(hub).delete(SECRET, &DeleteParams::default()).await?;
    eventually(SOON, "word of it in the log", async || {
        for name in ["webhook.log", "webhook-b.log"] {
            let log = std::fs::read_to_string(world.file().logs.join(name))?;
            ensure!(log.contains("apply the manifests again"), "{name}: {log}");
        }
        Ok(())
    })
    .await?;
    is_judged(hub).await?;
    apply::all(hub, &manifests::base()).await?;
    eventually(SOON, "another CA", async || {
        ensure!(settled(hub).await? != second_bundle, "still the old one");
        is_judged(hub).await
    })
    .await
}

/// Of the Secret its watch brings nothing, so that a new caBundle looks to it like the change of another client.
async fn a_replica_is_behind(world: &World, hub: &Client) -> Result<()> {
    let secrets_of_ours = format!("/api/v1/namespaces/{}/secrets", keys::NAMESPACE);
    world.inject("hub", &Rule::new(Effect::Hang).path(&secrets_of_ours).query("watch=true")).await?;
    let args = ["--certificate-check-interval", "1s"];
    world.start(&webhook(None, &args)).await?;
    let old = settled(hub).await?;
    let behind = Start { hub_proxy: Some(true), ..webhook(Some("b"), &args) };
    let url = world.start(&behind).await?.url.context("a URL")?;
    eventually(SOON, "old certificate", || connect(&url, &old)).await?;

    empty(hub).await?;
    let new = eventually(SOON, "new CA", async || {
        let found = settled(hub).await?;
        ensure!(found != old, "still the old one");
        Ok(found)
    })
    .await?;
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        ensure!(published(hub).await?.iter().all(|bundle| *bundle == new), "the old bundle is back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eventually(SOON, "new certificate", || connect(&url, &new)).await?;
    Ok(())
}

async fn newest(hub: &Client) -> Result<String> {
    let bundle = bundle(hub).await?;
    let first = bundle.split_inclusive("-----END CERTIFICATE-----\n").next();
    first.map(str::to_owned).context("an empty bundle")
}

async fn it_is_rotated(world: &World, hub: &Client) -> Result<()> {
    let lifetimes =
        "--certificate-authority-lifetime=30s --certificate-lifetime=10s --certificate-check-interval=500ms";
    let lifetimes: Vec<&str> = lifetimes.split(' ').collect();
    let url = world.start(&webhook(None, &lifetimes)).await?.url.context("a URL")?;
    let second = world.start(&webhook(Some("b"), &lifetimes)).await?.url.context("a URL")?;
    let old = settled(hub).await?;
    // The second one may not have read the Secret yet.
    eventually(SOON, "certificate of the second one", async || connect(&second, &bundle(hub).await?).await).await?;
    let begun = Instant::now();
    let (mut leaves, mut overlapped) = (std::collections::HashSet::new(), 0);

    // The first CA is replaced after 20 s and expires after 30 s.
    while begun.elapsed() < Duration::from_secs(40) {
        let now = bundle(hub).await?;
        for url in [&url, &second] {
            leaves.insert(connect(url, &now).await.context("with the present bundle")?[0].clone());
            // The second CA may be on its way out already: then the first is gone.
            if certificates_in(&now) == 2 && now.contains(&old) {
                overlapped += 1;
                connect(url, &old).await.context("with the old CA alone")?;
            }
        }
        if certificates_in(&now) == 2 {
            // A replica may be a moment behind, and then serves a leaf of the old CA, which the whole bundle covers.
            eventually(SOON, "leaf under the newest CA alone", async || connect(&url, &newest(hub).await?).await)
                .await?;
        }
        is_judged(hub).await.with_context(|| format!("after {:?}", begun.elapsed()))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(overlapped > 0, "the old and the new CA never overlapped");
    assert!(leaves.len() >= 4, "{} leaves", leaves.len());
    let last = settled(hub).await?;
    assert!(!last.contains(&old), "the first CA has expired and is still in the bundle");
    assert!(connect(&url, &old).await.is_err());
    Ok(())
}

/// A webhook that is not one of the world's.
struct Stray {
    _process: Child,
    url: String,
    plain: String,
}

impl Stray {
    fn start(world: &World, args: &[&str]) -> Result<Self> {
        let (port, plain) = (testbed::ports::free()?, testbed::ports::free()?);
        let mut command = world.command(testbed::paths::program("hibernate-webhook")?);
        command.args(["--listen", &format!("127.0.0.1:{port}"), "--listen-plain", &format!("127.0.0.1:{plain}")]);
        command.args(["--certificate-check-interval", "200ms", "--san", "127.0.0.1"]).args(args);
        Ok(Self {
            _process: command.spawn()?,
            url: format!("https://127.0.0.1:{port}"),
            plain: format!("http://127.0.0.1:{plain}"),
        })
    }

    async fn get(&self, path: &str) -> Result<String> {
        let output =
            tokio::process::Command::new("curl").args(["-s", &format!("{}{path}", self.plain)]).output().await?;
        ensure!(output.status.success(), "nobody answers");
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A Secret of somebody else is left alone, and a missing one is created.
async fn a_secret_is_of_somebody_else(world: &World, hub: &Client) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), "default");
    let identity = Authority::new("somebody else")?.server("theirs")?;
    let theirs = Secret {
        metadata: kube::api::ObjectMeta { name: Some("theirs".to_owned()), ..kube::api::ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        string_data: Some([("tls.crt".to_owned(), identity.certificate), ("tls.key".to_owned(), identity.key)].into()),
        ..Secret::default()
    };
    let before = secrets.create(&PostParams::default(), &theirs).await?;
    let kubeconfig = world.file().hub.kubeconfig.display().to_string();
    let common = ["--kubeconfig", &kubeconfig, "--namespace", "default"];
    let stray = Stray::start(world, &[&common[..], &["--certificate-secret", "theirs"]].concat())?;
    eventually(SOON, "refusal", async || {
        ensure_that(stray.get("/readyz").await?, |detail| {
            detail.contains("Secret default/theirs is of type \"kubernetes.io/tls\"")
        })
    })
    .await?;
    assert_eq!(secrets.get("theirs").await?.resource_version(), before.resource_version());

    // With the right to create Secrets, a missing one is created; of two replicas one does it.
    apply::all(hub, &manifests::webhook_configurations("https://127.0.0.1:1")).await?;
    let ours = [&common[..], &["--certificate-secret", "ours"]].concat();
    let (first, second) = (Stray::start(world, &ours)?, Stray::start(world, &ours)?);
    eventually(SOON, "two ready replicas", async || {
        for stray in [&first, &second] {
            let detail = stray.get("/readyz").await?;
            ensure!(detail.trim() == "ok", "{detail}");
        }
        Ok(())
    })
    .await?;
    let bundle = text(&secrets.get("ours").await?, "ca.crt")?;
    assert_eq!(connect(&first.url, &bundle).await?, connect(&second.url, &bundle).await?);
    Ok(())
}

/// Swaps a pair of files as a kubelet does: a new folder, and one link that changes.
fn mount(folder: &Path, generation: u32, certificate: &str, key: &str) -> Result<()> {
    let (data, new) = (folder.join(format!("..{generation}")), folder.join("..data_tmp"));
    std::fs::create_dir(&data)?;
    std::fs::write(data.join("tls.crt"), certificate)?;
    std::fs::write(data.join("tls.key"), key)?;
    std::os::unix::fs::symlink(&data, &new)?;
    std::fs::rename(&new, folder.join("..data"))?;
    for name in ["tls.crt", "tls.key"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), link)?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_reloaded_and_a_broken_pair_keeps_the_old_one() -> Result<()> {
    let world = World::shared_with(Options::bare_hub()).await?;
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("cert-manager")?;
    let (first, second) = (authority.server("first")?, authority.server("second")?);
    mount(folder.path(), 1, &first.certificate, &first.key)?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let stray = Stray::start(&world, &["--tls-cert", &path("tls.crt"), "--tls-key", &path("tls.key")])?;
    let served = async || connect(&stray.url, &authority.certificate()).await;
    let before = eventually(SOON, "first certificate", &served).await?;
    let ready = async || {
        ensure!(stray.get("/readyz").await?.trim() == "ok", "not yet");
        Ok(())
    };
    eventually(SOON, "a ready webhook", &ready).await?;

    mount(folder.path(), 2, &second.certificate, &first.key)?;
    eventually(SOON, "failure in the metrics", async || {
        let metrics = stray.get("/metrics").await?;
        let failures = metrics
            .lines()
            .find_map(|line| line.strip_prefix("hibernate_webhook_certificate_failures "))
            .context("no such metric")?;
        ensure!(failures != "0", "{failures}");
        Ok(())
    })
    .await?;
    assert_eq!(served().await?, before);
    eventually(SOON, "a ready webhook", &ready).await?;

    mount(folder.path(), 3, &second.certificate, &second.key)?;
    eventually(SOON, "second certificate", async || {
        ensure!(served().await? != before, "still the first");
        Ok(())
    })
    .await
}

/// With `--client-ca`, and an API server that an `AdmissionConfiguration` tells what to show.
async fn clients_need_a_certificate(world: &World, hub: &Client) -> Result<()> {
    let ca = format!("--client-ca={}", world.dir().join("hub/ca.crt").display());
    let url = world.start(&webhook(None, &[&ca])).await?.url.context("a URL")?;
    let trusted = settled(hub).await?;
    is_judged(hub).await?;
    let stranger = testbed::proxy::tls::client(&trusted)?;
    let tcp = TcpStream::connect(url.trim_start_matches("https://")).await?;
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(stranger)).connect("127.0.0.1".try_into()?, tcp).await?;
    let _ = stream.write_all(b"POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}").await;
    let mut answer = Vec::new();
    ensure!(stream.read_to_end(&mut answer).await.is_err() && answer.is_empty(), "{answer:?}");
    Ok(())
}
