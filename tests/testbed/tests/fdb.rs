//! What the double of the FoundationDB operator owes to a real API server: events, and the owner of fields. What it does
//! in a pass is tested in memory (`tests/fdb`).

use std::time::Duration;

use fdb_simulator::operator::api::Group;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use testbed::FdbOptions;
use testbed::fdb::common::{IDLE, SOON, applied, held_storage, untimed};

/// Section 2: what wakes a sleeping operator, and what does not.
#[tokio::test(flavor = "multi_thread")]
async fn what_wakes_and_what_does_not() {
    let held = held_storage("wakes", FdbOptions { public_ip_source: "service".to_owned(), ..untimed() }).await;
    let (db, hub) = (&held.db, held.world.hub().await.unwrap());
    let core = |kind: &str| -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
        Api::namespaced_with(hub.clone(), db.namespace(), &kind)
    };
    let (claims, pods, services) = (core("PersistentVolumeClaim"), core("Pod"), core("Service"));
    let cluster: Api<DynamicObject> = Api::namespaced_with(hub.clone(), db.namespace(), &testbed::fdb::resource());
    let (claim, other) = (format!("{}-data", db.pod_name(&held.id)), db.pod_name(&held.replacement));
    let other_claim = format!("{other}-data");
    let annotation = json!({"metadata": {"annotations": {"example.com/poke": "1"}}});
    let label = json!({"metadata": {"labels": {"example.com/poke": "1"}}});
    let without = json!({"metadata": {"annotations": {"example.com/poke": null}}});
    let finalizers = |more: &[&str]| {
        let all = [&["kubernetes.io/pvc-protection"], more].concat();
        json!({"metadata": {"finalizers": all}})
    };
    let cases: [(&str, &Api<DynamicObject>, &str, &Value, usize); 12] = [
        ("annotation on the volume", &claims, &claim, &annotation, 1),
        ("annotation taken off the volume", &claims, &claim, &without, 1),
        ("label on the volume", &claims, &claim, &label, 1),
        ("annotation on the cluster", &cluster, "wakes", &annotation, 1),
        ("label on the cluster", &cluster, "wakes", &label, 1),
        ("the spec", &cluster, "wakes", &json!({"spec": {"version": "7.3.70"}}), 1),
        ("annotation on another volume", &claims, &other_claim, &annotation, 1),
        ("annotation on a Pod", &pods, &other, &annotation, 1),
        ("annotation on a Service", &services, &other, &annotation, 1),
        ("a finalizer of the volume", &claims, &claim, &finalizers(&["example.com/keep"]), 0),
        ("no finalizer of the volume", &claims, &claim, &finalizers(&[]), 0),
        ("the status of the cluster", &cluster, "wakes", &json!({"status": {"desiredProcessGroups": 7}}), 0),
    ];
    let params = PatchParams::default();
    for (what, api, name, patch, expected) in cases {
        let before = held.deletes().await;
        let merge = Patch::Merge(patch);
        let is_status = patch.get("status").is_some();
        let patched = if is_status {
            api.patch_status(name, &params, &merge).await
        } else {
            api.patch(name, &params, &merge).await
        };
        patched.unwrap();
        if expected > 0 {
            db.wait(what, SOON, async || Ok((held.deletes().await > before).then_some(()))).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(held.deletes().await - before, expected, "{what}");
    }
    // The webhook's change of mind is nothing that the operator could see.
    let before = held.deletes().await;
    held.denier.deny(false);
    tokio::time::sleep(IDLE).await;
    assert_eq!(held.deletes().await, before);
    // Section 3: allowed and woken, it is over in two passes.
    let poke = json!({"metadata": {"annotations": {"example.com/poke": "2"}}});
    claims.patch(&claim, &params, &Patch::Merge(&poke)).await.unwrap();
    let is_gone = async || Ok(db.group(&held.id).await?.is_none().then_some(()));
    db.wait("end of the group", SOON, is_gone).await.unwrap();
    let last = db.pvc_deletes(&held.id).await.unwrap().into_iter().last().unwrap();
    assert_eq!((held.deletes().await, last.error), (before + 1, None));
    db.wait_reconciled(SOON).await.unwrap();
    assert!(db.database().await.unwrap().exclusions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_owns_the_status() {
    let held = held_storage("owner", applied()).await;
    let edit = |groups: &mut Vec<Group>| {
        groups.iter_mut().find(|group| group.id == held.id).unwrap().exclusion_skipped = true;
    };
    held.db.edit_groups(edit).await.unwrap();
    tokio::time::sleep(IDLE).await;
    assert!(held.db.group(&held.id).await.unwrap().unwrap().exclusion_skipped, "a sleeping operator reverts nothing");
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}}})).await.unwrap();
    let filled = async || Ok((held.db.ids("storage").await?.len() == 4).then_some(()));
    held.db.wait("filled up", SOON, filled).await.unwrap();
    let fields = held.db.get().await.unwrap().metadata.managed_fields.unwrap();
    let of_status = fields.into_iter().filter(|entry| entry.subresource.as_deref() == Some("status"));
    let owners: Vec<_> = of_status.map(|entry| (entry.manager.unwrap(), entry.operation.unwrap())).collect();
    assert_eq!(owners, [("fdb-operator".to_owned(), "Apply".to_owned())]);
}
