//! A kind whose objects live in no namespace goes through the same harness.

use k8s_openapi::api::core::v1::Namespace;

use super::*;

const PATH: &str = "/api/v1/namespaces/only";

/// Writes a status once, and asks for a reconcile by key.
struct Warden(Handle<Namespace>);

impl System for Warden {
    type Object = Namespace;
    type State = Remembered;
    type Facts<'a> = &'a Namespace;
    type Plan = bool;
    const NAME: &'static str = "warden";
    const ACTION: &'static str = "Guard";
    const SETTINGS: Settings = Settings {
        page_size: 10,
        concurrency: 4,
        timeout: Duration::from_secs(30),
        optional: true,
        conflict: 100..101,
        retry: 2_000..2_001,
    };

    fn hub(&self) -> &Hub {
        &self.0.hub
    }

    async fn observe<'a>(
        &self,
        object: &'a Namespace,
        target: &mut Target<Self>,
    ) -> Reconciled<Observed<&'a Namespace>> {
        target.state.passes += 1;
        Ok(Observed::Facts(object))
    }

    fn decide(&self, object: &Self::Facts<'_>) -> bool {
        object.status.is_none()
    }

    async fn act(&self, object: &mut Self::Facts<'_>, plan: &mut bool, target: &mut Target<Self>) -> Reconciled<Acted> {
        if !*plan {
            return Ok(Acted::Nothing);
        }
        let patch = json!([{"op": "add", "path": "/status", "value": {"phase": "Active"}}]);
        let written = self.hub().patch_status(*object, patch).await.map_err(ReconcileError::status)?;
        target.wrote(&written);
        Ok(Acted::Changed)
    }

    async fn report(&self, object: &mut Self::Facts<'_>, _: &mut bool, target: &mut Target<Self>) -> Reconciled<Done> {
        let key = hub::key_of(*object);
        assert_eq!(key, (String::new(), "only".to_owned()));
        assert!(self.0.newest(key.clone()).is_some(), "the store finds it by its key");
        if target.state.passes < 5 {
            self.0.trigger(key);
        }
        Ok(Done::default())
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_namespace_is_watched_written_and_triggered() {
    use futures::StreamExt;
    let hub = MemoryHub::default();
    hub.put(PATH, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only", "uid": "u"}}));
    let work = tokio::spawn(hub.term().watch().with(Warden).run_on(hub.watch::<Namespace>(PATH).boxed()));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(hub.get(PATH)["status"]["phase"], "Active");
    assert_eq!(hub.patches(), 1);
    let text = hub.metrics.text();
    let passes =
        text.lines().find(|line| line.starts_with("hibernate_reconciles_total{system=\"warden\"")).unwrap_or_default();
    assert!(passes.ends_with(" 5") || passes.ends_with(" 6"), "{passes}");
    work.abort();
}
