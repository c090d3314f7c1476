//! The order in which a world comes up.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::{try_join, try_join_all, try_join3};
use serde_json::Value;
use shared::text::count;
use tokio::sync::watch;

use super::children::Children;
use super::clock::Clock;
use super::programs::{Programs, Start};
use super::{Plan, Spoke, World, control, files, hub, seed};
use crate::cluster::certificates::{self, Issuance};
use crate::cluster::{ClusterOptions, machines, operators, version};
use crate::controlplane::assets::{self, Assets};
use crate::controlplane::server::{self, Cluster, HUB_CONTROLLERS, SPOKE_CONTROLLERS, User};
use crate::ec2::client::Snapshot;
use crate::ec2::{self, Ec2};
use crate::fdb::machines::Machines;
use crate::kubeconfig::{self, Access, write_private};
use crate::openstack::{self, OpenStack};
use crate::options::{Options, Program};
use crate::pki::Authority;
use crate::proxy::{Proxy, Settings, Upstream, tls};
use crate::simulated::Clouds;
use crate::world_file::{Ec2Address, Hub, Server};
use crate::{apply, foreign};

/// The account that clusters share unless they have one of their own.
pub(crate) const SHARED_ACCOUNT: &str = "100000000001";
const SHARED_KEY: &str = "AKIATESTBED000000001";

/// Says what has been done, for the log and for who waits for the world.
struct Progress<'a> {
    dir: &'a Path,
    start: Instant,
}

impl Progress<'_> {
    fn done(&self, what: &str) {
        tracing::info!("{what}");
        let line = format!("{:5.1} s  {what}\n", self.start.elapsed().as_secs_f64());
        let file = OpenOptions::new().create(true).append(true).open(self.dir.join(files::PROGRESS));
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            tracing::warn!(%error, "progress not written");
        }
    }
}

/// Starts everything, in the order in which one part needs another. What does not need each other starts together.
pub(super) async fn start(dir: &Path, plan: Plan, children: &Children) -> Result<Arc<World>> {
    let progress = Progress { dir, start: Instant::now() };
    let options = plan.options;
    let (assets, python) = tokio::task::spawn_blocking(|| anyhow::Ok((assets::find()?, assets::python()?))).await??;
    let authority = Authority::new("kubectl-hibernate test world")?;
    write_private(&dir.join("ca.crt"), &authority.certificate())?;
    let users = hub::users();
    // Definitions of upstream would be merged with ours.
    let planted = match options.upstream_crds {
        Some(_) => Ok(false),
        None => seed::plant(&assets, dir).await.map(|()| true),
    };
    let is_seeded = planted.unwrap_or_else(|error| {
        tracing::warn!("this world starts on an empty store: {error:#}");
        drop(fs::remove_dir_all(dir.join(server::STORE)));
        false
    });
    let servers = start_servers(dir, &options, children, &assets, &authority, &users)?;
    let secret = server::secret();
    let shared_key = [SHARED_KEY, &secret, SHARED_ACCOUNT];
    let ec2::server::Server { ec2, running } =
        ec2::server::start(children, &python, dir, &options.timings, shared_key)?;
    let openstack = async {
        if !options.openstack {
            return Ok(None);
        }
        openstack::start(children, dir, &authority.certificate()).await.map(Some)
    };
    let spokes_ready = try_join_all(servers.spokes.iter().map(|spoke| spoke.ready(children)));
    let ((), _, openstack) = try_join3(servers.hub.ready(children), spokes_ready, openstack).await?;
    progress.done("etcd and API servers answer");

    servers.hub.start_manager(children, &assets, HUB_CONTROLLERS)?;
    for spoke in &servers.spokes {
        spoke.start_manager(children, &assets, SPOKE_CONTROLLERS)?;
    }
    let hub_client = servers.hub.client().await?;
    if !is_seeded {
        let objects = hub::objects(options.upstream_crds.as_deref())?;
        apply::all(&hub_client, &objects).await.context("install on the hub")?;
    }
    if options.openstack {
        apply::all(&hub_client, &manifests::openstack()).await.context("install the component openstack")?;
    }
    let hub_tls = tls::server(&authority.server("hub-proxy")?)?;
    let hub_proxy = Proxy::start(Settings {
        upstream: Upstream::new(&servers.hub.url, &authority.certificate())?,
        tls: Some(hub_tls),
        lists: None,
        open: true,
    })?;
    let kubeconfigs =
        hub::kubeconfigs(&servers.hub, &hub_client, &authority.certificate(), &hub_proxy.url(), &users, dir).await?;
    let certificate = authority.certificate();
    let spokes = servers.spokes.into_iter().enumerate();
    let spokes = spokes.map(|(at, spoke)| prepare_spoke(spoke, is_seeded && at < seed::SPOKES, &certificate));
    let spokes = try_join_all(spokes).await?;
    progress.done("definitions, manifests, users and service accounts are in place");

    let hub_file = Hub {
        kubeconfig: servers.hub.kubeconfig.clone(),
        url: servers.hub.url.clone(),
        proxy: Server {
            kubeconfig: kubeconfigs.get("admin-through-proxy").cloned().context("no kubeconfig through the proxy")?,
            url: hub_proxy.url(),
        },
        users: kubeconfigs,
    };
    let clouds = Clouds::serve(options.timings.ec2_start.0).await?;
    let world = Arc::new(World {
        dir: dir.to_owned(),
        clock: Clock::new(options.timings.clone()),
        children: children.clone(),
        authority: authority.certificate(),
        gate_tls: tls::server(&authority.server("spoke-api")?)?,
        hub: hub_file,
        machines: Machines::new(hub_client.clone()),
        kkp: Arc::default(),
        kubelet_tls: authority.server("kubelet")?,
        hub_client,
        hub_proxy,
        spokes,
        snapshots: poll(
            ec2.clone(),
            running,
            openstack.as_ref().map(|openstack| openstack.client.clone()),
            clouds.clone(),
        ),
        clouds,
        ec2_address: Ec2Address {
            endpoint: ec2.endpoint().to_owned(),
            access_key_id: SHARED_KEY.to_owned(),
            secret_access_key: secret,
        },
        ec2,
        openstack,
        clusters: Mutex::new(BTreeMap::new()),
        programs: Programs::new(plan.programs),
        control: control::address()?,
        options,
    });
    people_it(&world, &progress).await?;
    control::serve(world.clone()).await?;
    world.publish()?;
    progress.done("ready");
    Ok(world)
}

/// Clusters, then our programs: they come to a hub where the clusters already are.
async fn people_it(world: &Arc<World>, progress: &Progress<'_>) -> Result<()> {
    // One after the other, so that `demo` is the first.
    for number in 1..=world.options.clusters {
        let name = if number == 1 { "demo".to_owned() } else { format!("demo-{number}") };
        world.add_cluster(&name, ClusterOptions::of_size(world.options.instances)).await?;
    }
    if world.options.clusters > 0 {
        progress.done(&format!(
            "{} of {} instances each",
            count(world.options.clusters, "cluster"),
            world.options.instances
        ));
    }
    for program in [Program::Webhook, Program::Controller] {
        if world.options.has(program) {
            world.start_program(&Start::new(program)).await?;
            progress.done(&format!("{} is ready", program.executable()));
        }
    }
    Ok(())
}

pub(super) struct Servers {
    pub(super) hub: Cluster,
    pub(super) spokes: Vec<Cluster>,
}

pub(super) fn start_servers(
    dir: &Path,
    options: &Options,
    children: &Children,
    assets: &Assets,
    authority: &Authority,
    users: &[User],
) -> Result<Servers> {
    let etcd = server::start_etcd(children, assets, dir)?;
    let audit = |name: &str| options.audit.then(|| dir.join(files::LOGS).join(format!("{name}-audit.jsonl")));
    let hub_audit = audit("hub");
    let start = |plan: &server::Plan<'_>| Cluster::start(children, assets, dir, authority, plan);
    let hub = start(&server::Plan { name: "hub", etcd: &etcd, users, namespace: "demo", audit: hub_audit.as_deref() })?;
    let spokes = (0..options.spokes)
        .map(|number| {
            let name = format!("spoke-{number}");
            let (audit, users) = (audit(&name), &[User::new("system:admin", "system:masters")]);
            start(&server::Plan { name: &name, etcd: &etcd, users, namespace: "default", audit: audit.as_deref() })
        })
        .collect::<Result<_>>()?;
    Ok(Servers { hub, spokes })
}

/// What is installed on each spoke.
pub(super) fn spoke_objects() -> Vec<Value> {
    let is_of_spokes = |crd: &Value| crd["spec"]["group"] == "config.openshift.io";
    let mut objects: Vec<Value> = foreign::definitions().into_iter().filter(is_of_spokes).collect();
    objects.extend(machines::definitions());
    objects.extend(operators::namespaces());
    objects.extend(certificates::bootstrapper());
    objects
}

async fn prepare_spoke(server: Cluster, is_seeded: bool, authority: &str) -> Result<Spoke> {
    let client = server.client().await?;
    let objects = if is_seeded { Vec::new() } else { spoke_objects() };
    apply::all(&client, &objects).await.with_context(|| format!("install definitions on {}", server.name))?;
    version::create(&client).await.with_context(|| format!("give {} a version", server.name))?;
    let account = (certificates::BOOTSTRAPPER_NAMESPACE, certificates::BOOTSTRAPPER);
    let token = hub::service_account_token(&client, account.0, account.1).await?;
    let access = Access {
        cluster: &server.name,
        server: &server.url,
        authority,
        user: account.1,
        token: &token,
        namespace: account.0,
    };
    let bootstrapper = kubeconfig::client(&access.yaml()?).await?;
    let issuance = Issuance { server: server.url.clone(), authority: authority.to_owned(), bootstrapper };
    Ok(Spoke { server, client, issuance })
}

/// Looks at all instances again and again, for gates and nodes, once the simulator runs: less often where there are
/// none.
fn poll(
    ec2: Ec2,
    mut running: watch::Receiver<bool>,
    openstack: Option<OpenStack>,
    clouds: Clouds,
) -> watch::Receiver<Arc<Snapshot>> {
    let (sender, receiver) = watch::channel(Arc::<Snapshot>::default());
    tokio::spawn(async move {
        while !sender.is_closed() {
            let (begun, is_running) = (Instant::now(), *running.borrow());
            let simulated = async { if is_running { ec2.snapshot().await } else { Ok(Snapshot::default()) } };
            let found = match &openstack {
                Some(openstack) => try_join(simulated, openstack.instances()).await,
                None => simulated.await.map(|snapshot| (snapshot, Vec::new())),
            };
            match found {
                Ok((mut snapshot, servers)) => {
                    snapshot.instances.extend(servers);
                    snapshot.instances.extend(clouds.instances());
                    sender.send_replace(Arc::new(snapshot));
                }
                Err(error) => tracing::warn!("{error:#}"),
            }
            let seldom = openstack.is_some() || sender.borrow().instances.is_empty();
            let pause = Duration::from_millis(if seldom { 1000 } else { 300 });
            // A list costs Nova a core: a tenth of its time is enough.
            let share = if openstack.is_some() { 10 * begun.elapsed() } else { pause };
            let pause = tokio::time::sleep(share.clamp(pause, Duration::from_secs(5)));
            let starts = async {
                if is_running || running.wait_for(|running| *running).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = pause => {}
                () = starts => {}
            }
        }
    });
    receiver
}
