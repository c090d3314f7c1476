//! What the tests of suspension have in common.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests: what is not there fails them")]

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use shared::annotation::keys;
use testbed::world::run::Ran;
use testbed::{FdbCluster, FdbOptions, World};

/// For everything that should not take long.
pub const SOON: Duration = Duration::from_mins(1);

/// A database whose removed groups are kept for so long, with a second between zones.
pub fn kept(minimum: &str) -> FdbOptions {
    FdbOptions {
        annotations: [(keys::MINIMUM_SUSPENSION.to_owned(), minimum.to_owned())].into(),
        wait_between: Some(1),
        storage: 3,
        log: 1,
        ..FdbOptions::default()
    }
}

/// The annotations of a group's volume; `None` once it is gone or going.
pub async fn marks(db: &FdbCluster, id: &str) -> Result<Option<BTreeMap<String, String>>> {
    let volume = db.pvc(id).await?.filter(|volume| volume.metadata.deletion_timestamp.is_none());
    Ok(volume.map(|volume| volume.metadata.annotations.unwrap_or_default()))
}

/// Waits until the controller has stamped a group's volume, and says since when it is held.
pub async fn stamped(db: &FdbCluster, id: &str) -> Result<Timestamp> {
    db.wait(&format!("stamp on the volume of {id}"), SOON, async || {
        let marks = marks(db, id).await?.unwrap_or_default();
        Ok(marks.get(keys::SUSPENDED_AT).and_then(|text| text.parse().ok()))
    })
    .await
}

/// Waits until a group's volume is gone, and says when the operator was allowed to delete it.
pub async fn deleted(db: &FdbCluster, id: &str, within: Duration) -> Result<Timestamp> {
    db.wait(&format!("end of the volume of {id}"), within, async || Ok(db.pvc(id).await?.is_none().then_some(())))
        .await?;
    let last = db.pvc_deletes(id).await?.into_iter().rfind(|delete| delete.error.is_none());
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970 fit")]
    let millis = (last.unwrap().at * 1000.0) as i64;
    Ok(Timestamp::from_millisecond(millis)?)
}

/// Name of the claim of a group.
pub fn claim(db: &FdbCluster, id: &str) -> String {
    format!("{}-data", db.pod_name(id))
}

/// kubectl in the namespace of a database.
pub async fn kubectl(world: &World, db: &FdbCluster, args: &[&str]) -> Result<Ran> {
    world.kubectl(&[&["-n", db.namespace()], args].concat()).await
}

/// What kubectl says of a denial, on one line.
pub fn denied(ran: &Ran, says: &[&str]) -> Result<()> {
    let detail = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(ran.code == 1, "not denied: exit code {}, {:?} {:?}", ran.code, ran.stdout, ran.stderr);
    for wanted in says {
        ensure!(detail.contains(wanted), "wanted {wanted:?} in {detail:?}");
    }
    Ok(())
}
