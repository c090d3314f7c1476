//! What is going on beside single targets: rollouts, upgrades, schedules, and volumes that are held.

use std::iter;

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;
use shared::kinds::{FOUNDATIONDB_CLUSTER, Shows};
use shared::rollout::status::GroupStatus;
use shared::text::{MAX_CHARS, and_more, sanitize, sanitize_to};
use tokio::sync::{mpsc, oneshot};
use view::age::age;
use view::error::ViewError;
use view::fdb::{DatabaseState, SuspendedGroup};
use view::lines::{self, GROUPS, MEMBERS, groups, members};
use view::rollout::RolloutState;
use view::{Item, Listing, Query, Row};

use crate::Site;

/// Rows of a table.
const MAX_ROWS: usize = 500;
const HELD: [&str; 7] = ["NAMESPACE", "DATABASE", "PROCESS GROUP", "VOLUME", "SIZE", "PROTECTED", "RELEASED"];

#[derive(Template)]
#[template(path = "activity.html")]
struct Fragment {
    /// Incremented when a rollout, upgrade or schedule changes.
    activity: u64,
    tables: Vec<Table>,
    held: Table,
    error: String,
}

struct Table {
    name: &'static str,
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With the first rows, sanitized.
    fn new(name: &'static str, heads: Vec<&'static str>, rows: impl Iterator<Item = Vec<String>>) -> Self {
        let rows = rows.take(MAX_ROWS).map(|cells| cells.iter().map(sanitize).collect()).collect();
        Self { name, heads, rows }
    }
}

/// Which part of the view.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActivityRequest {
    /// Without what no watch covers, because the view has it already.
    refresh: bool,
}

/// The fragment.
///
/// # Errors
/// When it cannot be rendered.
pub async fn html(site: &Site, request: &ActivityRequest, now: Timestamp) -> Result<String, String> {
    let (held, error) = if request.refresh { Default::default() } else { site.volumes.held(now).await };
    let objects = site.cache.objects();
    let table = |name, shows: Shows| {
        let is = move |item: &&Item| match item {
            Item::Rollout(_) => shows == Shows::Rollout,
            Item::Upgrade(_) => shows == Shows::Upgrade,
            Item::Schedule(_) => shows == Shows::Schedule,
            Item::Target(_) | Item::Pool(_) | Item::Database(_) => false,
        };
        let lines = objects.items().filter(is).filter_map(|item| lines::line(item, now));
        Table::new(name, lines::head(shows).unwrap_or_default().to_vec(), lines)
    };
    let rollouts = objects.items().filter_map(|item| if let Item::Rollout(one) = item { Some(&**one) } else { None });
    let rollouts: Vec<&RolloutState> = rollouts.filter(|one| one.status.finished_at.is_none()).collect();
    let of_rollouts = |heads: &'static [&'static str]| iter::once("ROLLOUT").chain(heads.iter().copied());
    let tables = vec![
        table("Rollouts", Shows::Rollout),
        Table::new(
            "Groups of rollouts in progress",
            of_rollouts(&GROUPS).chain(["STATE"]).collect(),
            rollouts.iter().copied().flat_map(stopped_groups),
        ),
        Table::new(
            "Targets of rollouts in progress",
            of_rollouts(&MEMBERS).collect(),
            rollouts.iter().copied().flat_map(rows_of_members),
        ),
        table("Upgrades", Shows::Upgrade),
        table("Schedules", Shows::Schedule),
    ];
    let held = Table::new("Held volumes", HELD.into(), held.into_iter());
    let fragment = Fragment { activity: objects.activity, tables, held, error };
    fragment.render().map_err(|error| error.to_string())
}

/// The groups of a rollout, and why it stopped after one.
fn stopped_groups(rollout: &RolloutState) -> impl Iterator<Item = Vec<String>> {
    let status = &rollout.status;
    let state = move |group: &GroupStatus| {
        if status.halt.as_ref().is_some_and(|halt| halt.group == group.name) {
            "Halted"
        } else if status.awaits_approval.as_ref() == Some(&group.name) {
            "Awaits approval"
        } else {
            ""
        }
    };
    let states = status.groups.iter().map(state).map(str::to_owned);
    groups(rollout).zip(states).map(|([name, targets], state)| vec![rollout.name.clone(), name, targets, state])
}

/// The targets that the status of a rollout names, and how many it does not.
fn rows_of_members(rollout: &RolloutState) -> impl Iterator<Item = Vec<String>> {
    let all = rollout.status.total.and_then(|total| usize::try_from(total).ok()).unwrap_or_default();
    let more = and_more(all.saturating_sub(rollout.status.targets.len()));
    let rows =
        members(rollout).map(Vec::from).chain(more.map(|more| vec![String::new(), more, String::new(), String::new()]));
    rows.map(|cells| iter::once(rollout.name.clone()).chain(cells).collect())
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
        (items.iter().flat_map(of).collect(), sanitize_to(&error.join("; "), MAX_CHARS))
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
    cells.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_shows_why_its_rollout_stopped() {
        let spec = json!({ "action": "Hibernate", "maxTargets": 9, "notAfter": "2126-01-01T00:00:00Z", "targets": { "all": true } });
        let groups = json!([{ "name": "canary", "total": 1 }, { "name": "", "total": 8 }]);
        let halt = json!({ "group": "canary", "at": "2026-11-24T17:51:00Z", "acceptFailures": 0, "retryFailed": 0 });
        for (status, expected) in [
            (json!({ "groups": groups }), ["night canary 1 ", "night (remaining) 8 "]),
            (json!({ "groups": groups, "halt": halt }), ["night canary 1 Halted", "night (remaining) 8 "]),
            (
                json!({ "groups": groups, "awaitsApproval": "canary" }),
                ["night canary 1 Awaits approval", "night (remaining) 8 "],
            ),
        ] {
            let object = json!({ "metadata": { "name": "night" }, "spec": spec, "status": status });
            let rollout = RolloutState::read(object).unwrap();
            assert_eq!(stopped_groups(&rollout).map(|cells| cells.join(" ")).collect::<Vec<_>>(), expected);
        }
    }
}
