//! What is going on beside single targets: rollouts, upgrades, schedules, and volumes that are held.

use askama::Template;
use jiff::Timestamp;
use shared::kinds::{FOUNDATIONDB_CLUSTER, Shows};
use shared::text::{MAX_CHARS, sanitize, sanitize_to};
use tokio::sync::{mpsc, oneshot};
use view::age::age;
use view::error::ViewError;
use view::fdb::{DatabaseState, SuspendedGroup};
use view::{Item, Listing, Query, Row, lines};

use crate::Site;

/// Rows of a table.
const MAX_ROWS: usize = 500;
const HELD: [&str; 7] = ["NAMESPACE", "DATABASE", "PROCESS GROUP", "VOLUME", "SIZE", "PROTECTED", "RELEASED"];

#[derive(Template)]
#[template(path = "activity.html")]
struct Fragment {
    tables: Vec<Table>,
    error: String,
}

struct Table {
    name: &'static str,
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// The fragment.
///
/// # Errors
/// When it cannot be rendered.
pub async fn html(site: &Site, now: Timestamp) -> Result<String, String> {
    let (held, error) = site.volumes.held(now).await;
    let mut tables = Vec::new();
    for (name, shows) in [("Rollouts", Shows::Rollout), ("Upgrades", Shows::Upgrade), ("Schedules", Shows::Schedule)] {
        let is = |item: &&Item| match item {
            Item::Rollout(_) => shows == Shows::Rollout,
            Item::Upgrade(_) => shows == Shows::Upgrade,
            Item::Schedule(_) => shows == Shows::Schedule,
            Item::Target(_) | Item::Pool(_) | Item::Database(_) => false,
        };
        let objects = site.cache.objects();
        let lines = objects.items.values().filter(is).filter_map(|item| lines::line(item, now));
        let rows = lines.take(MAX_ROWS).map(|cells| cells.iter().map(sanitize).collect()).collect();
        tables.push(Table { name, heads: lines::head(shows).unwrap_or_default().into(), rows });
    }
    tables.push(Table { name: "Held volumes", heads: HELD.into(), rows: held });
    Fragment { tables, error }.render().map_err(|error| error.to_string())
}

/// Where a list of volumes goes.
pub type Reply = oneshot::Sender<Listing>;

/// The volumes of suspended process groups. No watch covers them: each view of them is a list.
pub struct Volumes(mpsc::Sender<Reply>);

impl Volumes {
    /// With what [`answer`] takes.
    pub fn new() -> (Self, mpsc::Receiver<Reply>) {
        let (sender, receiver) = mpsc::channel(1);
        (Self(sender), receiver)
    }

    /// The rows, and why some are missing.
    async fn held(&self, now: Timestamp) -> (Vec<Vec<String>>, String) {
        let (sender, receiver) = oneshot::channel();
        let _ = self.0.send(sender).await;
        let Listing { items, failures, .. } = receiver.await.unwrap_or_default();
        let of = |item: &Item| match item {
            Item::Database(database) => database.suspended.iter().map(|group| volume(database, group, now)).collect(),
            _ => Vec::new(),
        };
        let failures = failures.iter().filter(|failure| !matches!(failure.error, ViewError::NoKind(_)));
        let error: Vec<String> = failures.map(ToString::to_string).collect();
        (items.iter().flat_map(of).take(MAX_ROWS).collect(), sanitize_to(&error.join("; "), MAX_CHARS))
    }
}

/// Answers requests of [`Volumes`]. Lists of a hub cannot move to another thread.
pub async fn answer(site: &Site, mut requests: mpsc::Receiver<Reply>) {
    let kinds = vec![Row::Shown(&FOUNDATIONDB_CLUSTER)];
    let query = Query { kinds, namespace: site.query.namespace.clone(), ..Query::default() };
    while let Some(reply) = requests.recv().await {
        let _ = reply.send(view::list(&site.hub(), &query).await);
    }
}

fn volume(database: &DatabaseState, group: &SuspendedGroup, now: Timestamp) -> Vec<String> {
    let released = match group.expires {
        _ if group.released => "released".to_owned(),
        None => String::new(),
        Some(at) if at <= now => "due".to_owned(),
        Some(at) => format!("in {}", age(now, at)),
    };
    let cells =
        [&database.namespace, &database.name, &group.group, &group.claim, &group.size, database.protected, &released];
    cells.iter().map(|cell| sanitize(*cell)).collect()
}
