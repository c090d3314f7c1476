//! The double of the FoundationDB operator does what the real one did: a test per observed row.

#![expect(clippy::unwrap_used, reason = "a helper of tests: what is not there fails them")]

use std::time::Duration;

use testbed::{FdbOptions, Options, Timings, World};

const SOON: Duration = Duration::from_secs(30);

async fn world() -> World {
    World::shared_with(Options { clusters: 0, timings: Timings::fast(), ..Options::without_programs() }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_comes_up() {
    let world = world().await;
    let db = world.fdb("plain", FdbOptions::default()).await.unwrap();
    for id in db.ids("storage").await.unwrap() {
        assert!(db.marker(&id).await.unwrap().is_some());
    }
    let pod = db.pod_name(&db.ids("storage").await.unwrap()[0]);
    let command =
        ["exec", &pod, "-n", db.namespace(), "-c", "foundationdb", "--", "fdbcli", "--exec", "status minimal"];
    let ran = world.kubectl(&command).await.unwrap();
    assert_eq!(ran.stdout, "The database is available.\n", "{ran:?}");
    let id = db.ids("storage").await.unwrap()[0].clone();
    db.remove(&[&id]).await.unwrap();
    db.wait("dropped group", SOON, async || Ok(db.group(&id).await?.is_none().then_some(()))).await.unwrap();
    for pass in db.log().await.unwrap().passes {
        eprintln!("{pass:?}");
    }
    for d in db.log().await.unwrap().deletes {
        eprintln!("{d:?}");
    }
    db.remove_all().await.unwrap();
}
