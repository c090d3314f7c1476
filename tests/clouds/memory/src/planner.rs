//! The cloud as the planner sees it.

use std::sync::Arc;
use std::time::Duration;

use cloud_common::{Charge, Consumer, MemoryLimit};
use cloud_recreate::{
    Cloud, ClusterLists, Difference, Failure, ImageStatus, Machine, Machines, Obstacle, Planner, Record,
};
use jiff::{Timestamp, ToSpan};
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Lifecycle, Priority, Profile, ProviderIds};

use crate::cloud::{Server, Status};
use crate::faults::{Account, NO_ANSWER};
use crate::request::{Answer, Refusal, Request, ServerAttributes};

impl crate::Cloud {
    pub(crate) fn listed(&self, id: &str, server: &Server) -> cloud_recreate::Server<ServerAttributes> {
        use cloud_recreate::Status as Planned;
        let (status, word) = match &server.status {
            _ if server.imaging => (Planned::Stopping, "image-saving"),
            Status::Build => (Planned::Starting, "BUILD"),
            Status::Active => (Planned::Active, "ACTIVE"),
            Status::Paused => (Planned::Halted, "PAUSED"),
            Status::Off => (Planned::Halted, "SHUTOFF"),
            Status::Error => (Planned::Failed, "ERROR"),
            Status::SoftDeleted(_) => (Planned::SoftDeleted, "SOFT_DELETED"),
            Status::Deleting => (Planned::Deleting, "deleting"),
            Status::Busy => (Planned::Stopping, "image_uploading"),
            Status::Odd(word) => (Planned::Unknown, word.as_str()),
        };
        let number: i64 = id.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        cloud_recreate::Server {
            id: id.to_owned(),
            machine: server.machine.clone(),
            status,
            word: word.to_owned(),
            cycle: server.cycle.clone(),
            provider_id: None,
            created: Timestamp::UNIX_EPOCH + number.seconds(),
            has_run: server.has_run,
            fault: (status == Planned::Failed).then(|| "No valid host was found".to_owned()),
            obstacle: match &self.obstacle {
                Some((of, why)) if *of == server.machine => Some(why.clone()),
                _ => (server.status == Status::Busy)
                    .then(|| Obstacle::new(Obstacle::BUSY, "its task is image_uploading")),
            },
            attributes: ServerAttributes { tagged: server.tagged, bound: self.is_bound(id, server) },
        }
    }
}

impl Account {
    pub fn planner(&self) -> Planner<Self> {
        Planner::new(self.clone(), Duration::from_mins(20))
    }

    async fn ask(&self, request: Request) -> Result<Answer, CloudError> {
        self.send(request).await?.map_err(|refused| unexpected(&refused))
    }
}

fn unexpected(answer: &impl std::fmt::Debug) -> CloudError {
    CloudError::new(CloudErrorKind::Unavailable, format!("the cloud answers {answer:?}"))
}

impl Cloud for Account {
    type Attributes = ServerAttributes;

    fn domain(&self) -> Arc<str> {
        Arc::from("memory")
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile {
            selector: format!("servers of {}", cluster.infra_id),
            lifecycle: Lifecycle::Recreate,
            provider_ids: ProviderIds { prefix: "memory:///", id_prefix: "" },
            ..Profile::default()
        }
    }

    fn compare(&self, has: &ServerAttributes, of: &ServerAttributes) -> Difference<ServerAttributes> {
        Difference { lacks: has != of, lost: Vec::new(), recorded: of.clone() }
    }

    /// Pairs of a machine and its image.
    fn imported(&self, _cluster: &ClusterRef, text: &str) -> Option<Result<Machines<ServerAttributes>, String>> {
        let pairs: Vec<(String, String)> = serde_json::from_str(text).ok()?;
        let machine = |image: String| Machine {
            server: image.clone(),
            cycle: image.clone(),
            image: Some(image),
            given_up: true,
            imaged: None,
            started: None,
            attributes: ServerAttributes { tagged: true, bound: true },
        };
        Some(Ok(pairs.into_iter().map(|(name, image)| (name, machine(image))).collect()))
    }

    fn exported(&self, _record: &Record<ServerAttributes>) -> Option<String> {
        None
    }

    fn image(&self, id: &str) -> Option<ImageStatus> {
        self.cloud().images.get(id).map(|image| image.status)
    }

    fn charge(&self, part: &str) -> Charge {
        MemoryLimit::default().of(Consumer::new("memory", part)).charge()
    }

    fn now(&self) -> Timestamp {
        self.cloud().now
    }

    fn new_cycle(&self) -> String {
        self.cloud().id("cycle")
    }

    async fn list(
        &self,
        cluster: &ClusterRef,
        _priority: Priority,
        _charge: &mut Charge,
    ) -> Result<ClusterLists<ServerAttributes>, CloudError> {
        let infra_id = &cluster.infra_id;
        let servers = self.ask(Request::Servers { infra_id: infra_id.clone() }).await?;
        let images = self.ask(Request::Images { infra_id: infra_id.clone() }).await?;
        match (servers, images) {
            (Answer::Servers(servers), Answer::Images(images)) => Ok((servers, images)),
            (servers, images) => Err(unexpected(&(servers, images))),
        }
    }

    async fn send(
        &self,
        cluster: &ClusterRef,
        request: &cloud_recreate::Request<ServerAttributes>,
    ) -> Result<(), Failure> {
        let request = Request::Plan { infra_id: cluster.infra_id.clone(), request: request.clone() };
        let failed = |error: CloudError| match error.message.as_str() {
            NO_ANSWER => Failure::Unknown(error),
            _ => Failure::NotDone(error),
        };
        match self.send(request).await.map_err(failed)? {
            Ok(_) => Ok(()),
            Err(Refusal::NotFound) => Err(Failure::Gone),
            Err(Refusal::Conflict) => Err(Failure::Conflict),
            Err(Refusal::Quota) => Err(Failure::NoCapacity(Obstacle::new("QuotaExceeded", "no more of them"))),
            Err(Refusal::Locked) => {
                let (code, message) = ("Locked".to_owned(), "the machine is locked".to_owned());
                Err(Failure::Refused(Obstacle { code, message }))
            }
        }
    }
}
