//! What every cloud driver has to do, by the driver for OpenStack on its own services.
#![allow(clippy::unwrap_used)] // a bench is part of the test

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::{Args as _, FromArgMatches as _};
use cloud_common::{Dialer, MemoryLimit, Permit, Platform as _, Process, SecretData};
use cloud_conformance::{
    Bench, Fault, TestLedger, finds_nothing_of_a_cluster_that_does_not_exist,
    finds_the_machines_of_its_cluster_and_no_others, machine, only_a_recreate_driver_uses_the_ledger,
    repeated_calls_do_no_harm, sleeps_and_wakes,
};
use futures::FutureExt as _;
use http::Method;
use openstack_driver::{OpenStack as Platform, OpenStackFlags};
use serde_json::json;
use shared::cloud::{ClusterRef, Driver, PlatformSpec, Target};
use testbed::World;
use testbed::cluster::objects::CLOUD;
use testbed::ec2::NewInstance;
use testbed::openstack::OpenStack;
use testbed::proxy::faults::{Effect, Rule};

/// How long the cloud gets between two passes.
const SETTLE_TIME: Duration = Duration::from_secs(4);

/// One project of a world. Clusters of each bench have names of their own.
struct Services {
    world: World,
    demo: OpenStack,
    admin: OpenStack,
    prefix: &'static str,
    sent: Arc<AtomicUsize>,
}

impl Services {
    async fn of(world: &World, prefix: &'static str) -> Result<Self> {
        let (demo, admin) = (world.openstack("demo").await?, world.openstack("admin").await?);
        Ok(Self { world: world.clone(), demo, admin, prefix, sent: Arc::default() })
    }

    async fn server(&self, target: &Target, id: &str) -> String {
        let servers = self.demo.servers(&target.cluster.infra_id).await.unwrap();
        let found = servers.iter().find(|server| server["name"] == id).and_then(|server| server["id"].as_str());
        found.unwrap().to_owned()
    }
}

impl Bench for Services {
    fn driver(&self, permit: Permit) -> Arc<dyn Driver> {
        let sent = self.sent.clone();
        let permit = Arc::new(move || permit() && sent.fetch_add(1, Ordering::SeqCst) < usize::MAX);
        let identity = "conformance".to_owned();
        let process =
            Process { identity, permit, dialer: Dialer::new(Vec::new(), true), memory: MemoryLimit::default() };
        let flags = OpenStackFlags::augment_args(clap::Command::new(""));
        let flags = flags.get_matches_from(["", "--openstack-allow-http"]);
        let platform = Platform::new(&OpenStackFlags::from_arg_matches(&flags).unwrap(), &process);
        let (cloud, certificates) = (CLOUD.to_owned(), String::new());
        let spec = PlatformSpec::OpenStack { cloud, certificates, mode: None, forced: false };
        let cluster = ClusterRef { credentials: "creds".to_owned(), platform: spec, ..ClusterRef::default() };
        let access = platform.access(&cluster).unwrap();
        let secret = SecretData::from([("clouds.yaml".to_owned(), self.demo.clouds_yaml().into_bytes())]);
        platform.connect(&access.account, &[secret]).now_or_never().unwrap().unwrap()
    }

    async fn cluster(&self, infra_id: &str, machines: usize) -> Target {
        let infra_id = format!("{}{infra_id}", self.prefix);
        let named = |number| NewInstance { name: machine(&infra_id, number, machines), ..NewInstance::default() };
        let new: Vec<NewInstance> = (0..machines).map(named).collect();
        self.demo.create(&infra_id, &new).await.unwrap();
        let (namespace, name) = ("ns".to_owned(), infra_id.clone());
        let cluster = ClusterRef { namespace, name, infra_id, ..ClusterRef::default() };
        Target { cluster, ledger: Arc::new(TestLedger::default()) }
    }

    async fn finish(&self) {
        tokio::time::sleep(SETTLE_TIME).await;
    }

    async fn fault(&self, fault: Option<Fault>) {
        let status = |code| Some(Effect::Status { code, retry_after: None, message: None });
        let effect = match &fault {
            Some(Fault::Throttled) => status(429),
            Some(Fault::Unavailable) => status(503),
            Some(Fault::Denied) => status(403),
            Some(Fault::Silent) => Some(Effect::Hang),
            Some(Fault::Refused(name)) => {
                let all = self.demo.compute(Method::GET, "/servers/detail", None).await.unwrap();
                let servers = all["servers"].as_array().cloned().unwrap_or_default();
                let server = servers.iter().find(|server| server["name"] == *name).unwrap();
                let path = format!("/servers/{}/action", server["id"].as_str().unwrap());
                self.demo.compute(Method::POST, &path, Some(json!({"lock": null}))).await.unwrap();
                None
            }
            Some(Fault::GivenUp(_) | Fault::Partial) => unreachable!("no check of these runs here"),
            None => None,
        };
        self.world.heal("nova", None).await.unwrap();
        if let Some(effect) = effect {
            self.world.inject("nova", &Rule::new(effect).user_agent("conformance")).await.unwrap();
        }
    }

    fn requests(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    async fn running(&self, target: &Target) -> usize {
        let servers = self.demo.servers(&target.cluster.infra_id).await.unwrap();
        servers.iter().filter(|server| server["status"] == "ACTIVE").count()
    }

    async fn confuse(&self, target: &Target, id: &str) {
        let path = format!("/servers/{}/action", self.server(target, id).await);
        self.admin.compute(Method::POST, &path, Some(json!({"os-resetState": {"state": "error"}}))).await.unwrap();
    }
}

/// Five of the checks, a few at a time, as Nova has one core: the others need a paused clock, and the cloud in memory has
/// it.
#[tokio::test]
async fn the_driver_does_what_every_driver_does() -> Result<()> {
    let world = crate::openstack::world().await?;
    let bench = async |prefix| Services::of(&world, prefix).await;
    let (several, none, twice) = (bench("a").await?, bench("b").await?, bench("c").await?);
    let (watched, repeated) = (bench("d").await?, bench("e").await?);
    futures::join!(
        finds_the_machines_of_its_cluster_and_no_others(&several),
        finds_nothing_of_a_cluster_that_does_not_exist(&none),
        sleeps_and_wakes(&twice),
    );
    futures::join!(only_a_recreate_driver_uses_the_ledger(&watched), repeated_calls_do_no_harm(&repeated));
    Ok(())
}
