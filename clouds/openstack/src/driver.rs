//! OpenStack as the planner sees it.

use std::sync::Arc;
use std::time::Duration;

use cloud_common::{Charge, ListBatcher};
use cloud_recreate::{
    Cloud, ClusterLists, Difference, Failure, Image, ImageStatus, MAX_IN_FLIGHT, Machines, Record, Request, Server,
    Status, check_size, keep,
};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use shared::cloud::{CloudError, ClusterRef, Lifecycle, Limits, PlatformSpec, Priority, Profile, ProviderIds};
use shared::text::sanitize_to;

use crate::account::Account;
use crate::attempts::SleepAttempts;
use crate::attributes::{Attributes, CYCLE_KEY};
use crate::names::{CLUSTER_KEY, tag};
use crate::obstacles::{incomplete, obstacle};
use crate::project::Project;
use crate::requests::Calls;
use crate::{export, lists, wire};

/// How long a sleep and a wake may take: six snapshots of 100 GB by a slow store.
const TRANSITION_LIMIT: Duration = Duration::from_mins(45);

/// One project for all clusters in it.
pub(crate) struct Driver {
    pub(crate) account: Arc<Account>,
    lists: ListBatcher<(), Arc<Project>>,
    domain: Arc<str>,
    pub(crate) attempts: SleepAttempts,
}

impl Driver {
    pub(crate) fn new(account: Account, domain: Arc<str>) -> Self {
        let account = Arc::new(account);
        Self { lists: lists::lists(&account), account, domain, attempts: SleepAttempts::default() }
    }

    async fn server(
        &self,
        server: &wire::Server,
        project: &Project,
        any_order: bool,
        priority: Priority,
    ) -> Result<Server<Attributes>, CloudError> {
        let attachments = self.account.attachments(server, priority).await?;
        let (status, word) = status(&server.status, server.task_state.as_deref());
        let attributes = Attributes::of(server, project, &attachments);
        Ok(Server {
            id: server.id.to_string(),
            machine: server.name.clone(),
            status,
            word: word.to_owned(),
            cycle: server.metadata.get(CYCLE_KEY).cloned(),
            provider_id: Some(format!("openstack:///{}", server.id)),
            created: server.created,
            has_run: server.launched_at.is_some(),
            fault: server.fault.as_ref().map(|fault| sanitize_to(&fault.message, 200)),
            obstacle: obstacle(server, project, any_order).or_else(|| incomplete(server, &attributes)),
            attributes,
        })
    }
}

/// What a server is doing, and Nova's word for it.
pub(crate) fn status<'a>(status: &'a str, task: Option<&'a str>) -> (Status, &'a str) {
    let down = ["image_", "paus", "powering-off", "suspend", "shelv"];
    let is_down = |task: &str| down.iter().any(|start| task.starts_with(start));
    let found = match (status, task) {
        (_, Some("deleting" | "soft-deleting")) | ("DELETED", _) => Status::Deleting,
        ("SOFT_DELETED", _) => Status::SoftDeleted,
        ("ERROR", _) => Status::Failed,
        (_, Some(task)) if is_down(task) => Status::Stopping,
        ("ACTIVE", None) => Status::Active,
        ("PAUSED" | "SUSPENDED" | "SHUTOFF", None) => Status::Halted,
        (
            "BUILD" | "REBOOT" | "HARD_REBOOT" | "REBUILD" | "RESIZE" | "VERIFY_RESIZE" | "MIGRATING" | "PASSWORD"
            | "RESCUE",
            None,
        )
        | (_, Some(_)) => Status::Starting,
        _ => Status::Unknown,
    };
    (found, task.unwrap_or(status))
}

fn image_status(found: &wire::Image) -> ImageStatus {
    match found.status.as_str() {
        "active" => ImageStatus::Active,
        "queued" | "saving" | "uploading" | "importing" => ImageStatus::Saving,
        "deactivated" => ImageStatus::Withheld,
        _ => ImageStatus::Failed,
    }
}

fn image(found: &wire::Image, infra_id: &str) -> Option<Image> {
    Some(Image {
        id: found.id.to_string(),
        server: found.hibernate_server.clone()?,
        machine: found.hibernate_machine.clone()?,
        cycle: found.hibernate_cycle.clone()?,
        status: image_status(found),
        is_tagged: found.tags.contains(&tag(infra_id)),
        copy: found.hibernate_record.clone(),
    })
}

impl Cloud for Driver {
    type Attributes = Attributes;

    fn domain(&self) -> Arc<str> {
        self.domain.clone()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        let cloud = if let PlatformSpec::OpenStack { cloud, .. } = &cluster.platform { cloud } else { "" };
        Profile {
            selector: format!("tag {CLUSTER_KEY}={} in the project of cloud {cloud}", cluster.infra_id),
            lifecycle: Lifecycle::Recreate,
            limits: Limits { sleep: TRANSITION_LIMIT, wake: TRANSITION_LIMIT },
            provider_ids: ProviderIds { prefix: "openstack://", id_prefix: "" },
            ..Profile::default()
        }
    }

    fn compare(&self, has: &Attributes, of: &Attributes) -> Difference<Attributes> {
        let project = self.account.last().ok();
        Difference {
            lacks: project.as_ref().is_some_and(|project| !has.lacking(of, project).is_complete()),
            lost: project.map(|project| has.lost(of, &project)).unwrap_or_default(),
            recorded: Attributes { volumes: has.volumes.clone(), ..of.clone() },
        }
    }

    fn imported(&self, cluster: &ClusterRef, text: &str) -> Option<Result<Machines<Attributes>, String>> {
        export::read(&cluster.infra_id, text, &*self.account.last().ok()?)
    }

    fn exported(&self, record: &Record<Attributes>) -> Option<String> {
        export::write(record)
    }

    fn image(&self, id: &str) -> Option<ImageStatus> {
        self.account.last().ok()?.snapshot(id).map(image_status)
    }

    fn charge(&self, part: &str) -> Charge {
        self.account.charge(part)
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn new_cycle(&self) -> String {
        format!("{:016x}", rand::random::<u64>())
    }

    async fn list(
        &self,
        cluster: &ClusterRef,
        priority: Priority,
        charge: &mut Charge,
    ) -> Result<ClusterLists<Attributes>, CloudError> {
        let project = self.lists.list((), false, priority).await?;
        let forced = matches!(cluster.platform, PlatformSpec::OpenStack { forced: true, .. });
        let mut calls = Vec::new();
        for server in project.servers_of(&cluster.infra_id) {
            calls.push(self.server(server, &project, forced, priority));
        }
        check_size(calls.len())?;
        let (mut answers, mut servers) = (stream::iter(calls).buffered(MAX_IN_FLIGHT), Vec::new());
        while let Some(server) = answers.try_next().await? {
            servers.push(keep(server, charge)?);
        }
        let images = project.images_of(&cluster.infra_id).filter_map(|found| image(found, &cluster.infra_id));
        let images: Result<_, _> = images.map(|image| keep(image, charge)).collect();
        Ok((servers, images?))
    }

    async fn send(&self, cluster: &ClusterRef, request: &Request<Attributes>) -> Result<(), Failure> {
        Calls { account: &self.account, infra_id: &cluster.infra_id }.send(request).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_is_of_one_cluster() {
        let tag = |of: &str| format!("{CLUSTER_KEY}={of}");
        for (metadata, tags, owner) in [
            (json!({CLUSTER_KEY: "a"}), vec![tag("a")], Some("a")),
            (json!({CLUSTER_KEY: "a"}), vec![tag("b"), tag("c")], Some("a")),
            (json!({CLUSTER_KEY: "a"}), vec![], Some("a")),
            (json!({}), vec!["x".to_owned(), tag("b"), tag("c")], Some("b")),
            (json!({}), vec![CLUSTER_KEY.to_owned()], None),
        ] {
            let server = json!({
                "id": "s", "name": "s", "status": "ACTIVE", "created": "2026-11-27T10:00:00Z",
                "updated": "2026-11-27T10:00:00Z", "image": "", "flavor": {"original_name": "f"}, "tags": tags,
                "metadata": metadata,
            });
            let server: wire::Server = serde_json::from_value(server).unwrap();
            let owners: Vec<_> = ["a", "b", "c", ""].into_iter().filter(|infra_id| server.is_of(infra_id)).collect();
            assert_eq!(owners, owner.into_iter().collect::<Vec<_>>(), "{metadata} {tags:?}");
        }
    }

    #[test]
    fn words_of_glance_are_known() {
        for (word, expected) in [
            ("active", ImageStatus::Active),
            ("queued", ImageStatus::Saving),
            ("deactivated", ImageStatus::Withheld),
            ("killed", ImageStatus::Failed),
        ] {
            let found = serde_json::from_value(json!({"id": "i", "status": word})).unwrap();
            assert_eq!(image_status(&found), expected, "{word}");
        }
    }

    #[test]
    fn words_of_nova_are_known_by_status_and_task() {
        for (word, task, expected) in [
            ("ACTIVE", None, Status::Active),
            ("ACTIVE", Some("pausing"), Status::Stopping),
            ("PAUSED", None, Status::Halted),
            ("PAUSED", Some("image_snapshot_pending"), Status::Stopping),
            ("PAUSED", Some("image_uploading"), Status::Stopping),
            ("PAUSED", Some("unpausing"), Status::Starting),
            ("SHUTOFF", None, Status::Halted),
            ("SHUTOFF", Some("powering-on"), Status::Starting),
            ("ACTIVE", Some("powering-off"), Status::Stopping),
            ("SUSPENDED", None, Status::Halted),
            ("SUSPENDED", Some("resuming"), Status::Starting),
            ("BUILD", Some("spawning"), Status::Starting),
            ("BUILD", None, Status::Starting),
            ("VERIFY_RESIZE", None, Status::Starting),
            ("ACTIVE", Some("deleting"), Status::Deleting),
            ("ERROR", Some("deleting"), Status::Deleting),
            ("ERROR", None, Status::Failed),
            ("SOFT_DELETED", None, Status::SoftDeleted),
            ("DELETED", None, Status::Deleting),
            ("SHELVED_OFFLOADED", None, Status::Unknown),
            ("UNKNOWN", None, Status::Unknown),
            ("something new", None, Status::Unknown),
        ] {
            assert_eq!(status(word, task).0, expected, "{word} {task:?}");
        }
    }
}
