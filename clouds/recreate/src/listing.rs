//! What the planner shows of a survey.

use jiff::Timestamp;
use shared::cloud::{CloudErrorKind, CloudEvent, Instance, InstanceState, Listing, Refusal};
use shared::text::name_some;

use crate::cloud::Attributes;
use crate::record::{Attempt, MAX_BACKOFF_FACTOR, REQUEST_LIFETIME, is_within};
use crate::survey::{Stage, Survey, View};

impl<A: Attributes> Survey<A> {
    /// As decisions see it.
    pub fn listing(&self) -> Listing {
        let views = self.views();
        let awake = !views.is_empty() && views.iter().all(|view| view.is_at(&Stage::Running));
        let marked = self.servers.iter().any(|server| server.cycle.is_some());
        let is_sealed = self.record.as_ref().is_none_or(|(record, _)| record.sealed);
        let is_described = self.unowned().next().is_none();
        let is_stored = self.record.as_ref().is_none_or(|(_, version)| version.is_some());
        let owed = if awake {
            self.record.is_some() || marked
        } else {
            !(is_sealed && is_stored && is_described && self.is_cleaned())
        };
        let failed = views.iter().filter_map(|view| failed_start(view, self.now)).collect();
        let event = (!is_stored).then(|| CloudEvent {
            reason: "RecordRebuilt",
            message: "the record of the cluster's machines was gone: it is made again from the copies that their images carry"
                .to_owned(),
        });
        let lost = self.servers.iter().flat_map(|server| {
            let lost = self.differences.get(&server.id).into_iter().flat_map(|found| &found.lost);
            lost.map(|what| format!("{}: {what}", server.machine))
        });
        let lost: Vec<String> = lost.collect();
        let not_given_back = || CloudEvent {
            reason: "NotGivenBack",
            message: format!("others have what machines had before the sleep: {}", name_some(&lost, 10)),
        };
        let event = event.or_else(|| (!lost.is_empty()).then(not_given_back));
        Listing { failed, owed, event, instances: views.iter().map(|view| self.instance(view)).collect() }
    }

    fn instance(&self, view: &View<'_, A>) -> Instance {
        let (state, due) = match &view.stage {
            Stage::Running if view.extra.is_some() => (InstanceState::Pending, true),
            Stage::Running => (InstanceState::Running, false),
            Stage::Halted => (InstanceState::Halted, false),
            Stage::Deleting if view.entry.is_none() => (InstanceState::ShuttingDown, false),
            Stage::Stopping => (InstanceState::Stopping, view.is_recorded_server()),
            Stage::Deleting => (InstanceState::Stopping, false),
            Stage::Useless | Stage::GivenUp | Stage::Stray => (InstanceState::Stopping, true),
            Stage::Gone => (InstanceState::Stopped, false),
            Stage::Starting => (InstanceState::Pending, view.extra.is_some()),
            Stage::Broken | Stage::Unrestored => (InstanceState::Pending, true),
            Stage::Odd(_) => (InstanceState::Unknown, false),
        };
        let instance = Instance {
            due,
            recorded: view.stage == Stage::Gone,
            node_names: vec![view.name.to_owned()],
            obstacle: view.obstacle().map(|obstacle| obstacle.to_string()),
            provider_id: view
                .live
                // Only until its Machine names it: one server of two of a name is anybody's.
                .filter(|server| server.cycle.is_some() && !matches!(view.stage, Stage::Odd(_)))
                .and_then(|server| server.provider_id.clone()),
            control_plane: Instance::is_master(&self.cluster.infra_id, view.name),
            ..Instance::new(view.name, state)
        };
        let live = view.live.map(|server| &server.attributes);
        let attributes = live.or_else(|| view.entry.map(|entry| &entry.attributes));
        let instance = instance.of_type(attributes.map_or("", A::machine_type));
        match (&view.stage, view.live) {
            (Stage::Odd(word), _) => instance.in_words(word),
            (_, Some(server)) => instance.in_words(&server.word),
            _ => instance,
        }
    }
}

/// A server that could not be made.
fn failed_start<A>(view: &View<'_, A>, now: Timestamp) -> Option<Refusal> {
    let fault = match view.stage {
        Stage::Broken => view.live.and_then(|server| server.fault.as_ref()),
        Stage::Gone | Stage::Starting => None,
        _ => return None,
    };
    // An older one is of an earlier wake.
    let is_of_now = |started: &&Attempt| is_within(now, started.at, REQUEST_LIFETIME * (MAX_BACKOFF_FACTOR + 1));
    let recorded = || view.entry?.started.as_ref().filter(is_of_now)?.fault.as_ref();
    let message = fault.or_else(recorded).cloned().or_else(|| (view.stage == Stage::Broken).then(String::new))?;
    let message = if message.is_empty() { "the server could not be made".to_owned() } else { message };
    let no_capacity = message.contains("No valid host") || message.to_lowercase().contains("quota");
    let (kind, code) =
        if no_capacity { (CloudErrorKind::Capacity, "NoValidHost") } else { (CloudErrorKind::Refused, "ServerFailed") };
    Some(Refusal { id: view.name.to_owned(), kind, code: code.to_owned(), message })
}
