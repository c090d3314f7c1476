//! Sleep by shelving: Nova takes the servers off its hypervisors, and they keep their IDs.

use std::collections::BTreeMap;
use std::time::Instant;

use cloud_recreate::{Failure, MAX_IN_FLIGHT, Obstacle, Request, SEND_WINDOW, Status};
use futures::{FutureExt, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use shared::cloud::{CloudError, CloudErrorKind, CloudEvent, Instance, InstanceState, Listing, Outcome, Refusal, Verb};
use shared::text::name_some;

use crate::driver::{Driver, status};
use crate::obstacles::unmovable;
use crate::requests::Calls;
use crate::wire::Server;

/// After this time Nova should have taken a shelved server off its hypervisor.
const OFFLOAD_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// A cluster that shelving moves, by the last list.
pub(crate) struct Shelving<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) infra_id: &'a str,
    pub(crate) servers: Vec<Server>,
}

/// The next call for a server.
#[derive(Clone, Copy)]
enum Step {
    Shelve,
    Unshelve,
    /// A start of one that is off, but not shelved.
    Run,
}

/// The call that a server needs, unless it is on its way.
fn step(server: &Server, verb: Verb) -> Option<Step> {
    match (verb, state(server).0) {
        (Verb::Stop, InstanceState::Running | InstanceState::Halted) => Some(Step::Shelve),
        (Verb::Start, InstanceState::Stopped) if server.task_state.is_none() => Some(Step::Unshelve),
        (Verb::Start, InstanceState::Halted) => Some(Step::Run),
        _ => None,
    }
}

/// Whether a server is shelved, or on its way there or back.
pub(crate) fn is_shelved(server: &Server) -> bool {
    server.status.starts_with("SHELVED") || server.task_state.as_ref().is_some_and(|task| task.contains("shelv"))
}

/// What a server is doing. Shelved is asleep, whether it still has its place on a hypervisor or not.
pub(crate) fn state(server: &Server) -> (InstanceState, &str) {
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
        [server] => unmovable(server).filter(|_| server.status == "ERROR" || !is_shelved(server)),
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

/// The machines that are not shelved as they are.
fn obstacles(servers: &[Server]) -> Vec<Refusal> {
    let refusal = |(name, servers): (&str, Vec<_>)| Some(obstacle(&servers)?.refusal(name, CloudErrorKind::Refused));
    by_name(servers).into_iter().filter_map(refusal).collect()
}

/// The machines by name. While servers come back from a sleep that was given up, one that is shelved is no machine that
/// sleeps: it is asked for at once, however overdue the sleep is.
fn listing(infra_id: &str, servers: &[Server], comes_back: bool, now: Timestamp) -> Listing {
    let instance = |(name, servers): (&str, Vec<&Server>)| {
        let obstacle = obstacle(&servers).map(|obstacle| obstacle.to_string());
        let [server] = servers.as_slice() else {
            let several = Instance::new(name, InstanceState::Unknown).in_words("SEVERAL-SERVERS");
            return Instance { obstacle, ..several };
        };
        let (state, word) = state(server);
        let state = if comes_back && state == InstanceState::Stopped { InstanceState::Halted } else { state };
        let instance = Instance {
            node_names: vec![name.to_owned(), server.id.to_string()],
            control_plane: Instance::is_master(infra_id, name),
            obstacle,
            ..Instance::new(name, state).in_words(word)
        };
        instance.of_type(&server.flavor.name)
    };
    let is_late = |server: &&Server| server.status == "SHELVED" && now.duration_since(server.updated) > OFFLOAD_TIMEOUT;
    let late: Vec<&str> = servers.iter().filter(is_late).map(|server| server.name.as_str()).collect();
    let event = (!late.is_empty()).then(|| CloudEvent {
        reason: "NotOffloaded",
        message: format!(
            "these servers are shelved and asleep, but Nova has not taken them off their hypervisors, so that they hold what they \
             held; shelved_offload_time of Nova decides when it does: {}",
            name_some(&late, 10)
        ),
    });
    Listing { instances: by_name(servers).into_iter().map(instance).collect(), event, ..Listing::default() }
}

impl Shelving<'_> {
    /// The machines. Counts what keeps a sleep that has begun from its end: a server that fails on the way gets no request
    /// that Nova could refuse.
    pub(crate) fn list(&self) -> Listing {
        let (attempts, now) = (&self.driver.attempts, Instant::now());
        if self.servers.iter().all(|server| state(server).0 == InstanceState::Stopped) {
            attempts.forget(self.infra_id);
        } else if attempts.given_up(self.infra_id, now).is_none() && self.servers.iter().any(is_shelved) {
            attempts.record(self.infra_id, &[], &obstacles(&self.servers), now);
        }
        let comes_back = attempts.given_up(self.infra_id, now).is_some();
        listing(self.infra_id, &self.servers, comes_back, Timestamp::now())
    }

    /// A server that Nova has given up before is tried again, and refused all the same, so that the next try waits longer.
    async fn send(&self, server: &Server, step: Step) -> Result<(), Failure> {
        let calls = Calls { account: &self.driver.account, infra_id: self.infra_id };
        let action = match step {
            Step::Shelve => "shelve",
            Step::Unshelve => "unshelve",
            Step::Run => return calls.send(&Request::Run(server.id.to_string())).await,
        };
        let has_failed = calls.has_failed(&server.id, action).await;
        calls.act_or_refuse(&server.id, action).await?;
        if has_failed {
            let message =
                format!("Nova has given up its last {action}; openstack server event list {} says more", server.id);
            return Err(Failure::NoCapacity(Obstacle { code: "ServerFailed".to_owned(), message }));
        }
        Ok(())
    }

    pub(crate) async fn advance(&self, verb: Verb, ids: &[String]) -> Result<Outcome, CloudError> {
        let (begun, attempts) = (Instant::now(), &self.driver.attempts);
        // All come back from a sleep that was given up, whichever are tried next.
        let given_up = attempts.given_up(self.infra_id, begun);
        let verb = if given_up.is_some() { Verb::Start } else { verb };
        let has_begun = self.servers.iter().any(is_shelved);
        let refused = if verb == Verb::Stop { obstacles(&self.servers) } else { given_up.iter().cloned().collect() };
        // Before the first one is shelved; later the others go on for a while.
        if verb == Verb::Stop && !refused.is_empty() && !has_begun {
            return Ok(Outcome { refused, ..Outcome::default() });
        }
        let is_asked = |server: &Server| {
            given_up.is_some() || ids.contains(&server.name) && !refused.iter().any(|refusal| refusal.id == server.name)
        };
        let steps = self.servers.iter().filter(|server| is_asked(server));
        let steps: Vec<_> = steps.filter_map(|server| Some((server, step(server, verb)?))).collect();
        if verb == Verb::Stop && !has_begun && !steps.is_empty() {
            attempts.begin(self.infra_id, begun);
        }
        let (mut outcome, mut left) = (Outcome { refused: refused.clone(), ..Outcome::default() }, steps.len());
        let calls =
            steps.into_iter().map(|(server, step)| async move { (server, self.send(server, step).await) }.boxed());
        let mut answers = stream::iter(calls.collect::<Vec<_>>()).buffered(MAX_IN_FLIGHT);
        let state = if verb == Verb::Stop { InstanceState::Stopping } else { InstanceState::Pending };
        while let Some((server, answer)) = answers.next().await {
            match answer {
                Ok(()) => outcome.moved.push((server.name.clone(), state)),
                Err(failure) => failure.note(&server.name, &mut outcome)?,
            }
            left -= 1;
            if begun.elapsed() > SEND_WINDOW {
                outcome.unfinished = left > 0;
                break; // the rest is for the next pass
            }
        }
        // While every server runs, another try costs no capacity.
        if verb == Verb::Stop && (has_begun || !outcome.moved.is_empty()) {
            attempts.record(self.infra_id, ids, &outcome.refused, begun);
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{UPDATED, test_server};

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
            assert_eq!(state(&test_server("demo-master-0", word, task)).0, expected, "{word} {task:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_offloaded_is_an_event_and_two_of_a_name_are_unknown() {
        let at = |minutes: i64| UPDATED.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes);
        let servers = [
            test_server("demo-master-0", "SHELVED", None),
            test_server("demo-worker-1", "ACTIVE", None),
            test_server("demo-worker-2", "ACTIVE", None),
            test_server("demo-worker-2", "ACTIVE", None),
        ];
        assert_eq!(listing("demo", &servers, false, at(2)).event, None);
        let found = listing("demo", &servers, false, at(3));
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

    /// Those that Nova is starting get no second call, and those that are shelved are not taken for asleep.
    #[test]
    fn what_comes_back_from_a_sleep_that_was_given_up_is_halted() {
        for (word, task, is_halted, is_called) in [
            ("SHELVED_OFFLOADED", None, true, true),
            ("SHELVED", Some("shelving_offloading"), true, false),
            ("SHELVED_OFFLOADED", Some("unshelving"), false, false),
            ("ACTIVE", None, false, false),
        ] {
            let server = test_server("demo-worker-2", word, task);
            let found = listing("demo", std::slice::from_ref(&server), true, UPDATED.parse().unwrap());
            assert_eq!(found.instances[0].state == InstanceState::Halted, is_halted, "{word} {task:?}");
            assert_eq!(step(&server, Verb::Start).is_some(), is_called, "{word} {task:?}");
        }
    }

    #[test]
    fn a_server_that_fails_while_it_is_shelved_is_an_obstacle() {
        for (word, task, expected) in
            [("ERROR", None, true), ("ERROR", Some("shelving"), true), ("ACTIVE", Some("shelving"), false)]
        {
            assert_eq!(obstacle(&[&test_server("demo-worker-2", word, task)]).is_some(), expected, "{word} {task:?}");
        }
    }

    /// Its disk would be empty after the wake. One that is shelved already has lost it.
    #[test]
    fn a_server_with_an_ephemeral_disk_is_not_shelved() {
        let now = UPDATED.parse().unwrap();
        for (word, expected) in [("ACTIVE", true), ("SHUTOFF", true), ("SHELVED_OFFLOADED", false)] {
            let found = listing("demo", &[test_server("demo-etcd-0", word, None)], false, now);
            let obstacle = found.instances[0].obstacle.as_ref();
            assert_eq!(obstacle.is_some_and(|why| why.starts_with("EphemeralDisk: ")), expected, "{word} {obstacle:?}");
        }
    }
}
