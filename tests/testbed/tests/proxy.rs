//! Faults of the proxy that a program may survive because they do not happen: as a real kube client meets them in front
//! of the real hub.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use testbed::proxy::faults::{Effect, Rule};
use testbed::{Options, World, with_temp_ns};

/// The proxy is shared, so each test narrows its faults to its own client.
struct Hub {
    world: World,
    client: Client,
    agent: String,
}

impl Hub {
    async fn new() -> Self {
        let world = World::shared_with(Options::bare_hub()).await.unwrap();
        let agent = format!("proxy-test-{:08x}", rand::random::<u32>());
        let text = std::fs::read_to_string(&world.file().hub.proxy.kubeconfig).unwrap();
        let mut config = testbed::kubeconfig::config(&text).await.unwrap();
        config.headers.push((http::header::USER_AGENT, agent.parse().unwrap()));
        Self { world, client: Client::try_from(config).unwrap(), agent }
    }

    async fn inject(&self, rule: Rule) -> String {
        self.world.inject("hub", &rule.user_agent(&self.agent)).await.unwrap().id
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }
}

fn map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..ConfigMap::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_before_the_server_loses_the_request_and_one_after_it_only_the_answer() {
    let hub = &Hub::new().await;
    with_temp_ns(&hub.world, |_, namespace| async move {
        let maps: Api<ConfigMap> = Api::namespaced(hub.client.clone(), &namespace);
        for (after_upstream, name) in [(false, "lost"), (true, "kept")] {
            hub.inject(Rule::new(Effect::Cut { after_upstream }).method("POST").count(1)).await;
            let error = maps.create(&PostParams::default(), &map(name)).await.unwrap_err();
            assert!(!matches!(error, kube::Error::Api(_)), "{error}");
            assert_eq!(maps.get_opt(name).await?.is_some(), after_upstream, "{name}");
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_is_dropped_or_expires() {
    let hub = Hub::new().await;
    for (effect, expires) in
        [(Effect::DropWatch { after_millis: 500 }, false), (Effect::WatchExpired { after_millis: 300 }, true)]
    {
        let id = hub.inject(Rule::new(effect).query("watch=true").count(1)).await;
        let begun = Instant::now();
        let stream = hub.namespaces().watch(&WatchParams::default().timeout(60), "0").await.unwrap();
        let events: Vec<_> = stream.collect().await;
        assert!(begun.elapsed() < Duration::from_secs(30), "the watch was not dropped");
        assert!(events.iter().any(|event| matches!(event, Ok(WatchEvent::Added(_)))), "it worked before: {events:?}");
        let last = events.last().unwrap();
        assert_eq!(matches!(last, Ok(WatchEvent::Error(status)) if status.code == 410), expires, "{last:?}");
        assert_eq!(hub.world.hits("hub", &id).await.unwrap(), 1);
    }
}
