//! What the tests of the FoundationDB double share.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a helper of a test is part of the test

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::denier::Denier;
use crate::fdb::options::{Settings, UpdateMode};
use crate::{FdbCluster, FdbOptions, Options, World};

/// Long enough for anything that happens at all.
pub const SOON: Duration = Duration::from_mins(2);
/// Nothing happens any more if nothing has for so long: several times an unreconciled cluster's 10 s.
pub const IDLE: Duration = Duration::from_millis(1_800);

/// The world that the tests of one file share.
async fn world() -> World {
    World::shared_with(Options::bare_hub()).await.unwrap()
}

/// The default database, without the timed retry, which would only cost time.
pub fn untimed() -> FdbOptions {
    FdbOptions { wait_between: Some(0), ..FdbOptions::default() }
}

/// A database whose operator excludes and includes only what all operators of it agree on.
pub fn global() -> FdbOptions {
    FdbOptions { patch: json!({"spec": {"automationOptions": {"synchronizationMode": "global"}}}), ..untimed() }
}

/// A group whose volume is held by a webhook.
pub struct Held {
    /// The world that it runs in.
    pub world: World,
    /// Its database.
    pub db: FdbCluster,
    /// What denies the deletion of its volume.
    pub denier: Denier,
    /// Its ID.
    pub id: String,
    /// ID of the group that has replaced it.
    pub replacement: String,
    /// UID of its volume claim.
    pub uid: Option<String>,
    /// What tells its data from those of others.
    pub marker: Option<String>,
}

/// Makes a database, removes a group of this class under a webhook that denies, and waits until the operator sleeps.
pub async fn held(name: &str, class: &str, resources: &[&str], options: FdbOptions) -> Held {
    let world = world().await;
    let db = world.fdb(name, options).await.unwrap();
    let denier = Denier::of_deletes(&world, db.namespace(), resources).await.unwrap();
    let before = db.ids(class).await.unwrap();
    let id = before[0].clone();
    let (uid, marker) = (uid(&db, &id).await, db.marker(&id).await.unwrap());
    assert!(uid.is_some() && marker.is_some());
    // The API server dates claims in whole seconds: one of the second of the removal could be the replacement.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    db.remove(&[&id]).await.unwrap();
    db.wait_suspended(&id, SOON).await.unwrap();
    db.wait_asleep(IDLE, SOON).await.unwrap();
    let replacement = db.ids(class).await.unwrap().into_iter().find(|id| !before.contains(id)).unwrap();
    Held { world, db, denier, id, replacement, uid, marker }
}

/// A storage group whose volume is held.
pub async fn held_storage(name: &str, options: FdbOptions) -> Held {
    held(name, "storage", &["persistentvolumeclaims"], options).await
}

/// UID of a group's volume claim.
pub async fn uid(db: &FdbCluster, id: &str) -> Option<String> {
    db.pvc(id).await.unwrap().and_then(|claim| claim.metadata.uid)
}

impl Held {
    /// Waits until the group runs, on its old volume with its old data.
    pub async fn wait_back(&self) {
        self.db
            .wait("recovered process", SOON, async || Ok(self.db.database().await?.processes.get(&self.id).map(drop)))
            .await
            .unwrap();
        assert_eq!(uid(&self.db, &self.id).await, self.uid);
        assert_eq!(self.db.marker(&self.id).await.unwrap(), self.marker);
    }

    /// How many DELETEs the operator has sent for the group's volume.
    pub async fn deletes(&self) -> usize {
        self.db.pvc_deletes(&self.id).await.unwrap().len()
    }
}

/// Annotations of ours that are left on an object.
pub fn ours(object: &impl ResourceExt) -> Vec<String> {
    let keys = object.annotations().keys().filter(|key| key.starts_with("hibernate.sh/"));
    keys.filter(|key| *key != "hibernate.sh/recovered-at").cloned().collect()
}

/// The group is back on its old volume with its old data, the database has nothing against it, and nothing of ours is
/// left.
pub async fn is_back(held: &Held) -> Result<()> {
    held.wait_back().await;
    let object = held.db.get().await?;
    ensure!(object.data["spec"]["skip"] != json!(true), "spec.skip is left");
    ensure!(ours(&object).is_empty(), "left on the cluster: {:?}", ours(&object));
    let claim = held.db.pvc(&held.id).await?.context("its claim")?;
    ensure!(ours(&claim).is_empty(), "left on the claim: {:?}", ours(&claim));
    ensure!(claim.annotations().contains_key("hibernate.sh/recovered-at"));
    let group = held.db.group(&held.id).await?.context("its entry")?;
    ensure!(!group.is_marked() && !group.exclusion_skipped, "{group:?}");
    ensure!(
        group.process_group_conditions.iter().all(|condition| condition.type_ != "ResourcesTerminating"),
        "{group:?}"
    );
    let database = held.db.database().await?;
    ensure!(!database.exclusions.contains(&format!("locality_instance_id:{}", held.id)), "{:?}", database.exclusions);
    ensure!(database.gone.iter().all(|volume| volume.drained), "lost data: {:?}", database.gone);
    Ok(())
}

/// The default database with an operator that writes by server-side apply.
pub fn applied() -> FdbOptions {
    FdbOptions { settings: Settings { update_mode: UpdateMode::Apply, ..Settings::default() }, ..untimed() }
}
