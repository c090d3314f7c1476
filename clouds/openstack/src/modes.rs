//! The two ways to sleep: by snapshot, which is `cloud_recreate`'s planner, and by shelving.
//!
//! | there is | the cluster is moved by |
//! |---|---|
//! | a record | snapshot |
//! | no record, a shelved server | shelving |
//! | neither | the mode of its next sleep |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cloud_recreate::{AT_ONCE, Failure, MAX_REQUESTS, Obstacle, Planner, Request, SEND_WINDOW};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use shared::cloud::{
    CloudError, CloudEvent, ClusterRef, Driver as CloudDriver, Instance, InstanceState, Lifecycle, Listing, Outcome,
    Priority, Profile, Target, Verb,
};
use shared::power::Power;
use shared::text::name_some;

use crate::attributes::unmovable;
use crate::driver::{Driver, status};
use crate::names::is_of;
use crate::requests::Calls;
use crate::wire::{Image, Server};

/// How a cluster sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Servers are imaged and deleted: quota and hypervisors are free on every cloud.
    #[default]
    Snapshot,
    /// Servers are shelved, and keep their IDs. What that frees is up to the cloud.
    Shelve,
}

/// After this time Nova should have taken a shelved server off its hypervisor.
const OFFLOADED: SignedDuration = SignedDuration::from_mins(2);

/// A driver for the clusters of a project that sleep in one mode next.
pub(crate) struct Modes {
    planner: Arc<Planner<Driver>>,
    mode: Mode,
}

/// Whether a server is shelved, or on its way there or back.
fn is_shelved(server: &Server) -> bool {
    server.status.starts_with("SHELVED") || server.task_state.as_ref().is_some_and(|task| task.contains("shelv"))
}

/// Whether shelving moves these servers, if they have no record. A sleep by snapshot refuses a shelved server by name.
fn may_shelve(mode: Mode, verb: Option<Verb>, servers: &[&Server]) -> bool {
    let is_up = |server: &&Server| matches!(state(server).0, InstanceState::Running | InstanceState::Halted);
    match mode {
        Mode::Shelve => true,
        Mode::Snapshot if verb == Some(Verb::Stop) && servers.iter().any(is_up) => false,
        Mode::Snapshot => servers.iter().any(|server| is_shelved(server)),
    }
}

/// What a server is doing. Shelved is asleep, whether it still has its place on a hypervisor or not.
fn state(server: &Server) -> (InstanceState, &str) {
    use cloud_recreate::Status;
    let task = server.task_state.as_deref();
    let (found, word) = status(&server.status, task);
    let state = match (server.status.as_str(), task, found) {
        (_, _, Status::Deleting | Status::SoftDeleted) => InstanceState::ShuttingDown,
        ("SHELVED" | "SHELVED_OFFLOADED", None | Some("shelving_offloading"), _) => InstanceState::Stopped,
        (_, _, Status::Active) => InstanceState::Running,
        (_, _, Status::Halted) => InstanceState::Halted,
        (_, _, Status::Stopping) => InstanceState::Stopping,
        (_, _, Status::Starting) => InstanceState::Pending,
        (_, _, Status::Failed | Status::Unknown) => InstanceState::Unknown,
    };
    (state, word)
}

/// Why a server is not shelved, unless it is already. Of several of one name nothing is known.
fn obstacle(servers: &[&Server]) -> Option<Obstacle> {
    match servers {
        [server] => unmovable(server).filter(|why| {
            let is_ours = server.task_state.as_deref().is_some_and(|task| task.starts_with("shelv"));
            !(is_shelved(server) || is_ours && why.code == Obstacle::BUSY)
        }),
        _ => Some(Obstacle::several()),
    }
}

fn by_name(servers: &[Server]) -> BTreeMap<&str, Vec<&Server>> {
    let mut names: BTreeMap<&str, Vec<&Server>> = BTreeMap::new();
    for server in servers {
        names.entry(&server.name).or_default().push(server);
    }
    names
}

/// The servers by name.
fn listing(infra_id: &str, servers: &[Server], now: Timestamp) -> Listing {
    let names = by_name(servers);
    let instance = |(name, servers): (&&str, &Vec<&Server>)| {
        let obstacle = obstacle(servers).map(|obstacle| obstacle.to_string());
        let [server] = servers.as_slice() else {
            let several = Instance::new(*name, InstanceState::Unknown).in_words("SEVERAL-SERVERS");
            return Instance { obstacle, ..several };
        };
        let (state, word) = state(server);
        Instance {
            node_names: vec![(*name).to_owned(), server.id.to_string()],
            control_plane: Instance::is_master(infra_id, name),
            obstacle,
            ..Instance::new(*name, state).in_words(word)
        }
    };
    let is_late = |server: &&Server| server.status == "SHELVED" && now.duration_since(server.updated) > OFFLOADED;
    let late: Vec<&str> = servers.iter().filter(is_late).map(|server| server.name.as_str()).collect();
    let event = (!late.is_empty()).then(|| CloudEvent {
        reason: "NotOffloaded",
        message: format!(
            "these servers are shelved and asleep, but Nova has not taken them off their hypervisors, so that they hold what they \
             held; shelved_offload_time of Nova decides when it does: {}",
            name_some(&late, 10)
        ),
    });
    Listing { instances: names.iter().map(instance).collect(), event, ..Listing::default() }
}

impl Modes {
    pub(crate) fn new(planner: Arc<Planner<Driver>>, mode: Mode) -> Self {
        Self { planner, mode }
    }

    /// The cluster's servers by the last list, if shelving moves it.
    async fn shelved(&self, target: &Target, verb: Option<Verb>) -> Result<Option<Vec<Server>>, CloudError> {
        let (project, infra_id) = (self.planner.cloud().account.last()?, &target.cluster.infra_id);
        let own: Vec<&Server> = project.servers.iter().filter(|server| is_of(server, infra_id)).collect();
        let is_its = may_shelve(self.mode, verb, &own);
        let has_copy = |image: &Image| image.hibernate_record.as_ref().is_some_and(|copy| !copy.is_empty());
        if !is_its || project.images_of(infra_id).any(has_copy) {
            return Ok(None);
        }
        let is_recorded = target.ledger.read().await?.is_some();
        Ok((!is_recorded).then(|| own.into_iter().cloned().collect()))
    }

    /// One request for a server, if it is not on its way yet. A server that Nova has given up before is tried again, and
    /// refused all the same, so that the next try waits longer.
    async fn move_one(&self, infra_id: &str, server: &Server, verb: Verb) -> Result<bool, Failure> {
        let calls = Calls { account: &self.planner.cloud().account, infra_id };
        let action = match (verb, state(server).0) {
            (Verb::Stop, InstanceState::Running | InstanceState::Halted) => "shelve",
            (Verb::Start, InstanceState::Stopped) if server.task_state.is_none() => "unshelve",
            (Verb::Start, InstanceState::Halted) => {
                let run = Request::Run(server.id.to_string());
                return calls.send(&run).await.map(|()| true);
            }
            _ => return Ok(false),
        };
        let has_failed = calls.has_failed(&server.id, action).await;
        calls.act_or_refuse(&server.id, action).await?;
        if has_failed {
            let message =
                format!("Nova has given up its last {action}; openstack server event list {} says more", server.id);
            return Err(Failure::NoCapacity(Obstacle { code: "ServerFailed".to_owned(), message }));
        }
        Ok(true)
    }

    async fn move_all(
        &self,
        target: &Target,
        servers: &[Server],
        verb: Verb,
        ids: &[String],
    ) -> Result<Outcome, CloudError> {
        let (begun, infra_id) = (Instant::now(), target.cluster.infra_id.as_str());
        let refusals = &self.planner.cloud().refusals;
        if verb == Verb::Start {
            refusals.forget(infra_id);
        }
        // All come back from a sleep that was given up, whichever are tried next.
        let given_up = refusals.given_up(infra_id, begun);
        let verb = if given_up.is_some() { Verb::Start } else { verb };
        let names = by_name(servers);
        let of_sleep = names.iter().filter(|_| verb == Verb::Stop);
        let refused: BTreeMap<&str, Obstacle> =
            of_sleep.filter_map(|(name, all)| Some((*name, obstacle(all)?))).collect();
        let is_asked = |server: &&Server| match given_up {
            Some(_) => state(server).0 != InstanceState::Running,
            None => ids.contains(&server.name) && !refused.contains_key(&*server.name),
        };
        let asked: Vec<&Server> = servers.iter().filter(is_asked).take(MAX_REQUESTS).collect();
        let mut outcome = Outcome { refused: given_up.iter().cloned().collect(), ..Outcome::default() };
        let has_begun = servers.iter().any(is_shelved);
        for (name, why) in refused.clone() {
            Failure::Refused(why).note(name, &mut outcome)?;
        }
        // Before the first one is shelved; later the others go on for a while.
        if !refused.is_empty() && !has_begun {
            return Ok(outcome);
        }
        if verb == Verb::Stop && !has_begun && !asked.is_empty() {
            refusals.begin(infra_id, begun);
        }
        let calls: Vec<_> = asked
            .into_iter()
            .map(|server| async move { (server, self.move_one(infra_id, server, verb).await) }.boxed())
            .collect();
        let mut answers = stream::iter(calls).buffered(AT_ONCE);
        let state = if verb == Verb::Stop { InstanceState::Stopping } else { InstanceState::Pending };
        while let Some((server, answer)) = answers.next().await {
            match answer {
                Ok(true) => outcome.moved.push((server.name.clone(), state)),
                Ok(false) => {}
                Err(failure) => failure.note(&server.name, &mut outcome)?,
            }
            if begun.elapsed() > SEND_WINDOW {
                break; // the rest is for the next pass
            }
        }
        // While every server runs, another try costs no capacity.
        if verb == Verb::Stop && (has_begun || !outcome.moved.is_empty()) {
            refusals.note(infra_id, ids, &outcome.refused, begun);
        }
        Ok(outcome)
    }
}

impl CloudDriver for Modes {
    fn domain(&self) -> Arc<str> {
        self.planner.domain()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        let profile = self.planner.profile(cluster);
        match self.mode {
            Mode::Snapshot => profile,
            Mode::Shelve => Profile { lifecycle: Lifecycle::Shelve, ..profile },
        }
    }

    fn list<'a>(&'a self, target: &'a Target, priority: Priority) -> BoxFuture<'a, Result<Listing, CloudError>> {
        async move {
            let found = self.planner.list(target, priority).await?;
            let shelved = self.shelved(target, None).await?;
            let is_asleep = shelved.as_ref().is_some_and(|servers| servers.iter().all(is_shelved));
            if is_asleep || target.cluster.desired == Power::Running {
                self.planner.cloud().refusals.forget(&target.cluster.infra_id);
            }
            Ok(shelved.map_or(found, |servers| listing(&target.cluster.infra_id, &servers, Timestamp::now())))
        }
        .boxed()
    }

    fn advance<'a>(
        &'a self,
        target: &'a Target,
        verb: Verb,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Outcome, CloudError>> {
        async move {
            match self.shelved(target, Some(verb)).await? {
                Some(servers) => self.move_all(target, &servers, verb, ids).await,
                None => self.planner.advance(target, verb, ids).await,
            }
        }
        .boxed()
    }

    fn settle<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<(), CloudError>> {
        self.planner.settle(target)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UPDATED: &str = "2026-11-27T10:00:00Z";

    fn server(name: &str, status: &str, task: Option<&str>) -> Server {
        let server = json!({
            "id": format!("{name}-id"), "name": name, "status": status, "OS-EXT-STS:task_state": task,
            "created": UPDATED, "updated": UPDATED, "OS-SRV-USG:launched_at": null, "locked": name.ends_with('1'),
            "image": {"id": "image"}, "key_name": null, "description": null,
            "tags": [], "metadata": {}, "addresses": {}, "OS-EXT-AZ:availability_zone": Value::Null,
            "flavor": {"original_name": "m1.small", "ephemeral": i32::from(name.ends_with('0') && name.contains("etcd"))},
        });
        serde_json::from_value(server).unwrap()
    }

    #[test]
    fn shelved_is_asleep_and_unshelving_is_not() {
        use InstanceState::{Halted, Pending, Running, ShuttingDown, Stopped, Stopping, Unknown};
        for (word, task, expected) in [
            ("ACTIVE", None, Running),
            ("ACTIVE", Some("shelving"), Stopping),
            ("ACTIVE", Some("shelving_image_uploading"), Stopping),
            ("SHELVED", None, Stopped),
            ("SHELVED", Some("shelving_offloading"), Stopped),
            ("SHELVED_OFFLOADED", None, Stopped),
            ("SHELVED_OFFLOADED", Some("unshelving"), Pending),
            ("SHELVED_OFFLOADED", Some("spawning"), Pending),
            ("SHELVED", Some("deleting"), ShuttingDown),
            ("PAUSED", None, Halted),
            ("SHUTOFF", None, Halted),
            ("ERROR", None, Unknown),
        ] {
            assert_eq!(state(&server("demo-master-0", word, task)).0, expected, "{word} {task:?}");
        }
    }

    #[test]
    fn the_mode_of_the_next_sleep_moves_what_nothing_else_decides() {
        let [active, shelved, shelving] = [("ACTIVE", None), ("SHELVED_OFFLOADED", None), ("ACTIVE", Some("shelving"))]
            .map(|(word, task)| server("demo-worker-0", word, task));
        for (mode, verb, servers, expected) in [
            (Mode::Shelve, Some(Verb::Stop), vec![&active], true),
            (Mode::Shelve, Some(Verb::Start), vec![&shelved], true),
            (Mode::Snapshot, Some(Verb::Start), vec![&shelved, &active], true),
            (Mode::Snapshot, None, vec![&shelved], true),
            (Mode::Snapshot, Some(Verb::Stop), vec![&shelving, &shelved], true),
            (Mode::Snapshot, Some(Verb::Stop), vec![&shelved, &active], false),
            (Mode::Snapshot, Some(Verb::Start), vec![&active], false),
            (Mode::Snapshot, None, vec![&active], false),
        ] {
            assert_eq!(may_shelve(mode, verb, &servers), expected, "{mode:?} {verb:?} {servers:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_offloaded_is_an_event_and_two_of_a_name_are_unknown() {
        let at = |minutes: i64| UPDATED.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes);
        let servers = [
            server("demo-master-0", "SHELVED", None),
            server("demo-worker-1", "ACTIVE", None),
            server("demo-worker-2", "ACTIVE", None),
            server("demo-worker-2", "ACTIVE", None),
        ];
        assert_eq!(listing("demo", &servers, at(2)).event, None);
        let found = listing("demo", &servers, at(3));
        let event = found.event.unwrap();
        assert_eq!(event.reason, "NotOffloaded");
        assert!(event.message.ends_with(": demo-master-0"), "{}", event.message);
        let states: Vec<String> = found.instances.iter().map(|i| format!("{i} {}", i.state)).collect();
        let expected = [
            "demo-master-0 (SHELVED) stopped",
            "demo-worker-1 (ACTIVE) running",
            "demo-worker-2 (SEVERAL-SERVERS) unknown",
        ];
        assert_eq!(states, expected);
        assert!(found.instances[0].control_plane && !found.instances[1].control_plane);
        let codes = found.instances.iter().map(|i| i.obstacle.as_deref().and_then(|why| why.split(':').next()));
        assert_eq!(codes.collect::<Vec<_>>(), [None, Some("Locked"), Some("SeveralServers")]);
    }

    /// Its disk would be empty after the wake. One that is shelved already has lost it.
    #[test]
    fn a_server_with_an_ephemeral_disk_is_not_shelved() {
        let now = UPDATED.parse().unwrap();
        for (word, expected) in [("ACTIVE", true), ("SHUTOFF", true), ("SHELVED_OFFLOADED", false)] {
            let found = listing("demo", &[server("demo-etcd-0", word, None)], now);
            let obstacle = found.instances[0].obstacle.as_ref();
            assert_eq!(obstacle.is_some_and(|why| why.starts_with("EphemeralDisk: ")), expected, "{word} {obstacle:?}");
        }
    }
}
