//! The planner's requests, as calls.

use std::collections::{BTreeMap, BTreeSet};

use cloud_common::ChargedValue;
use cloud_http::{Answer, Body, CallError, Method, StatusCode};
use cloud_recreate::{Failure, Image, Obstacle, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared::cloud::Priority;

use crate::account::Account;
use crate::attributes::{Attributes, CYCLE_KEY, GroupKind, Port, Volume, described};
use crate::failures::{failure, has_status, is_own_word, not_done, refused_if};
use crate::keystone::Service::{self, Compute, Network};
use crate::lists::groups_now;
use crate::names::{Id, image_name, tag};
use crate::project::Project;
use crate::wire::Group;

/// The content type of changes to images.
const PATCH: &str = "application/openstack-images-v2.1-json-patch";

/// Calls about one cluster.
pub(crate) struct Calls<'a> {
    pub(crate) account: &'a Account,
    pub(crate) infra_id: &'a str,
}

/// What was done to a server, the last one first.
#[derive(Deserialize)]
struct Actions {
    #[serde(rename = "instanceActions")]
    all: Vec<Action>,
}

#[derive(Deserialize)]
struct Action {
    action: String,
    message: Option<String>,
}

/// What an answer about one thing wraps.
#[derive(Deserialize)]
struct One<T> {
    #[serde(alias = "port", alias = "server_group")]
    server: T,
}

#[derive(Deserialize)]
struct ServerStatus {
    status: String,
}

#[derive(Deserialize)]
struct PortHolder {
    device_id: String,
}

#[derive(Deserialize)]
struct NewId {
    id: Id,
}

impl Calls<'_> {
    /// Sends one request of the planner, which may take several calls: each is good on its own, and the last one is
    /// what was asked for.
    pub(crate) async fn send(&self, request: &Request<Attributes>) -> Result<(), Failure> {
        match request {
            Request::Pause(server) => self.act(server, json!({"pause": null})).await,
            Request::Run(server) => self.run(server).await,
            Request::CreateImage { server, machine, cycle } => self.create_image(server, machine, cycle).await,
            Request::Describe(image, copy) => self.describe(image, copy).await,
            Request::DeleteImage(image) => self.delete_image(image).await,
            Request::CreateServer { machine, image, cycle, attributes } => {
                self.create_server(machine, image, cycle, attributes).await
            }
            Request::DeleteServer(server) => self.delete_server(server).await,
            Request::Restore(server, attributes) => self.restore(server, attributes).await,
            Request::Unmark(server) => {
                let path = format!("/servers/{server}/metadata/{CYCLE_KEY}");
                self.call(Compute, Method::DELETE, &path, None).await.map(drop).map_err(failure)
            }
        }
    }

    /// An action without arguments, which Nova refuses by name: the server is in no transit.
    pub(crate) async fn act_or_refuse(&self, server: &Id, action: &str) -> Result<(), Failure> {
        let path = format!("/servers/{server}/action");
        let answer = self.call(Compute, Method::POST, &path, Some(json!({action: null}))).await;
        answer.map(drop).map_err(|error| refused_if("Conflict", has_status(StatusCode::CONFLICT), error))
    }

    /// Whether the last thing that was done to a server is this action, and Nova has given it up. What Nova does not say
    /// is no reason to leave the server as it is.
    pub(crate) async fn has_failed(&self, server: &Id, action: &str) -> bool {
        let path = format!("/servers/{server}/os-instance-actions");
        let done = self.read::<Actions>(Compute, Method::GET, &path, None).await.ok();
        let last = done.as_ref().and_then(|done| done.all.first());
        last.is_some_and(|last| last.action == action && last.message.as_deref() == Some("Error"))
    }

    async fn call(
        &self,
        service: Service,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, CallError> {
        self.account.call(Priority::Waking, service, method, path, body.map(Body::Json)).await
    }

    async fn read<T: DeserializeOwned>(
        &self,
        service: Service,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<ChargedValue<T>, CallError> {
        self.call(service, method, path, body).await?.json().await
    }

    async fn act(&self, server: &str, action: Value) -> Result<(), Failure> {
        let path = format!("/servers/{server}/action");
        self.call(Compute, Method::POST, &path, Some(action)).await.map(drop).map_err(failure)
    }

    /// There are three ways to be halted, each with its own way back.
    async fn run(&self, server: &str) -> Result<(), Failure> {
        let found = self.read::<One<ServerStatus>>(Compute, Method::GET, &format!("/servers/{server}"), None).await;
        let found = found.map_err(|error| not_done(failure(error)))?;
        match found.server.status.as_str() {
            "PAUSED" => self.act(server, json!({"unpause": null})).await,
            "SUSPENDED" => self.act(server, json!({"resume": null})).await,
            "SHUTOFF" => self.act(server, json!({"os-start": null})).await,
            _ => Err(Failure::Conflict),
        }
    }

    /// Properties by which an image is known as ours.
    fn marks<'a>(&'a self, server: &'a str, machine: &'a str, cycle: &'a str) -> [(&'static str, &'a str); 4] {
        [
            ("hibernate_cluster", self.infra_id),
            ("hibernate_server", server),
            ("hibernate_machine", machine),
            ("hibernate_cycle", cycle),
        ]
    }

    async fn create_image(&self, server: &str, machine: &str, cycle: &str) -> Result<(), Failure> {
        let metadata: BTreeMap<_, _> = self.marks(server, machine, cycle).into();
        let body = json!({"createImage": {"name": image_name(machine, cycle), "metadata": metadata}});
        self.act(server, body).await
    }

    /// One call for the tag and the copy: an image is complete or it is not. `add` replaces what is there.
    async fn describe(&self, image: &Image, copy: &str) -> Result<(), Failure> {
        let Image { id, server, machine, cycle, .. } = image;
        let properties = self.marks(server, machine, cycle).into_iter().chain([("hibernate_record", copy)]);
        let properties = properties.map(|(key, value)| json!({"op": "add", "path": format!("/{key}"), "value": value}));
        let tags = json!({"op": "replace", "path": "/tags", "value": [tag(self.infra_id)]});
        let patch = std::iter::once(tags).chain(properties).collect();
        let (path, body) = (format!("/images/{id}"), Some(Body::As(PATCH, patch)));
        let answer = self.account.call(Priority::Sleeping, Service::Image, Method::PATCH, &path, body).await;
        answer.map(drop).map_err(failure)
    }

    async fn delete_image(&self, image: &str) -> Result<(), Failure> {
        let answer = self.call(Service::Image, Method::DELETE, &format!("/images/{image}"), None).await;
        // Someone protects it.
        answer.map(drop).map_err(|error| refused_if("Protected", has_status(StatusCode::FORBIDDEN), error))
    }

    /// Where a cloud keeps deleted servers for a while, they keep their ports, too.
    async fn delete_server(&self, server: &str) -> Result<(), Failure> {
        let (path, action) = (format!("/servers/{server}"), json!({"forceDelete": null}));
        let forced = self.call(Compute, Method::POST, &format!("{path}/action"), Some(action)).await;
        let answer = match forced {
            Err(CallError::Rejected(rejection)) if rejection.status == StatusCode::FORBIDDEN => {
                self.call(Compute, Method::DELETE, &path, None).await
            }
            answer => answer,
        };
        answer.map(drop).map_err(failure)
    }

    async fn create_server(&self, machine: &str, image: &str, cycle: &str, of: &Attributes) -> Result<(), Failure> {
        let project = self.account.last().map_err(Failure::NotDone)?;
        if let Some((flavor, size)) = project.flavor(|flavor| flavor.id == of.flavor).zip(of.size)
            && flavor.size() != size
        {
            let (now, was) = (described(flavor.size()), described(size));
            let why = format!("its flavor {} is now {now}, and it had {was}: make a flavor of its size", flavor.name);
            return Err(Failure::Refused(Obstacle::new("FlavorChanged", &why)));
        }
        let group = match &of.group {
            Some(group) => Some(self.group(group, of.group_kind.as_deref(), &project).await.map_err(not_done)?),
            None => None,
        };
        let mut networks = Vec::new();
        for port in &of.ports {
            // A port is no server: whatever becomes of it, no create is under way.
            let id = self.port(port, &project).await.map_err(not_done)?;
            networks.push(json!({"port": id}));
        }
        let mut metadata = of.metadata.clone();
        metadata.insert(CYCLE_KEY.to_owned(), cycle.to_owned());
        let mut server = json!({
            "name": machine,
            "imageRef": image,
            "flavorRef": of.flavor,
            "config_drive": of.config_drive,
            "tags": of.tags,
            "metadata": metadata,
            "networks": if networks.is_empty() { json!("none") } else { json!(networks) },
            "block_device_mapping_v2": disks(image, &of.volumes),
        });
        let hostname = of.hostname.as_ref().filter(|_| project.version >= 90);
        let zone = of.zone.as_ref();
        let named = [
            // A key is its user's, and on the disk since the first boot.
            ("key_name", of.key_name.as_ref().filter(|key| project.has_key(key))),
            ("availability_zone", zone),
            ("description", of.description.as_ref()),
            ("hostname", hostname),
        ];
        for (key, value) in named {
            if let Some(value) = value {
                server[key] = json!(value);
            }
        }
        let mut body = json!({"server": server});
        if let Some(group) = group {
            body["os:scheduler_hints"] = json!({"group": group});
        }
        let answer = self.call(Compute, Method::POST, "/servers", Some(body)).await;
        answer.map(drop).map_err(|error| refused_if("ServerRefused", is_own_word, error))
    }

    /// The server group, or the one that was made in its place, one for all servers: of the same name and kind, and with no
    /// server of others.
    async fn group(&self, id: &Id, kind: Option<&GroupKind>, project: &Project) -> Result<Id, Failure> {
        let Some(GroupKind { name, policy, rules }) = kind.filter(|_| !project.has_group(id)) else {
            return Ok(id.clone()); // where nothing more is known, Nova says that it is gone
        };
        let _alone = self.account.groups.lock().await;
        let found = groups_now(self.account).await.map_err(Failure::NotDone)?;
        let others = project.servers.iter().filter(|server| !server.is_of(self.infra_id));
        let others: BTreeSet<&str> = others.map(|server| server.id.as_str()).collect();
        let is_it = |found: &Group| {
            (&found.name, &found.policy, &found.rules) == (name, policy, rules)
                && !found.members.iter().any(|member| others.contains(member.as_str()))
        };
        if let Some(same) = found.into_iter().find(is_it) {
            return Ok(same.id);
        }
        let mut group = json!({"name": name, "policy": policy});
        if !rules.is_empty() {
            group["rules"] = json!(rules);
        }
        let body = json!({"server_group": group});
        self.create(Compute, "/os-server-groups", body, "GroupRefused").await
    }

    /// The port in its place, which is made if it is gone.
    async fn port(&self, port: &Port, project: &Project) -> Result<Id, Failure> {
        let same = project.ports.iter().find(|found| found.id == port.id);
        let in_its_place = || {
            let is_it = |found: &&crate::wire::Port| found.mac_address == port.mac && found.network_id == port.network;
            project.ports.iter().find(is_it)
        };
        let (id, tags) = match same.or_else(in_its_place) {
            Some(found) => (found.id.clone(), &found.tags),
            None => (self.create_port(port).await?, &BTreeSet::new()),
        };
        // The destroyer of the cluster finds ports by this tag. Nova would have removed its own.
        let mut wanted = port.tags.clone();
        if id != port.id {
            wanted.insert(tag(self.infra_id));
        }
        if !wanted.is_subset(tags) && same.is_none() {
            let (path, body) = (format!("/ports/{id}/tags"), json!({"tags": wanted}));
            self.call(Network, Method::PUT, &path, Some(body)).await.map_err(failure)?;
        }
        Ok(id)
    }

    async fn create_port(&self, port: &Port) -> Result<Id, Failure> {
        let mut body = json!(port.rare.as_deref().cloned().unwrap_or_default());
        let rest = [
            ("network_id", json!(port.network)),
            ("name", json!(port.name)),
            ("mac_address", json!(port.mac)),
            ("fixed_ips", port.fixed_ips.iter().map(|ip| ip.to_ask_for(&port.mac)).collect()),
            ("security_groups", json!(port.security_groups)),
            ("allowed_address_pairs", json!(port.address_pairs)),
            ("description", json!(port.description)),
            ("binding:vnic_type", json!(port.vnic_type)),
            ("port_security_enabled", json!(port.is_secured)),
        ];
        for (key, value) in rest.into_iter().filter(|(_, value)| !value.is_null()) {
            body[key] = value;
        }
        self.create(Network, "/ports", json!({"port": body}), "PortRefused").await
    }

    /// Makes something, and answers its ID.
    async fn create(&self, service: Service, path: &str, body: Value, refusal: &str) -> Result<Id, Failure> {
        let made = self.read::<One<NewId>>(service, Method::POST, path, Some(body)).await;
        made.map(|made| made.server.id.clone()).map_err(|error| refused_if(refusal, is_own_word, error))
    }

    /// What the server lacks by the last list. Each call is one more thing that it has.
    async fn restore(&self, server: &str, of: &Attributes) -> Result<(), Failure> {
        let project = self.account.last().map_err(Failure::NotDone)?;
        let Some(found) = project.servers.iter().find(|found| found.id.as_str() == server) else {
            return Err(Failure::Gone);
        };
        let missing = Attributes::of(found, &project, &[]).lacking(of, &project); // whatever its volumes
        let path = format!("/servers/{server}");
        let call = async |service, method, path: &str, body| {
            self.call(service, method, path, body).await.map(drop).map_err(failure)
        };
        if !missing.tags.is_empty() {
            let tags = json!({"tags": found.tags.union(&missing.tags).collect::<Vec<_>>()});
            call(Compute, Method::PUT, &format!("{path}/tags"), Some(tags)).await?;
        }
        if !missing.metadata.is_empty() {
            call(Compute, Method::POST, &format!("{path}/metadata"), Some(json!({"metadata": missing.metadata})))
                .await?;
        }
        for port in &missing.ports {
            let id = self.port(port, &project).await?;
            let is_bound = project.ports_of(&found.id).any(|bound| bound.id == id);
            if is_bound {
                for (floating, address) in &port.floating_ips {
                    let mut body = json!({"floatingip": {"port_id": id}});
                    if let Some(address) = address {
                        body["floatingip"]["fixed_ip_address"] = json!(address);
                    }
                    call(Network, Method::PUT, &format!("/floatingips/{floating}"), Some(body)).await?;
                }
            } else if found.addresses.all.contains(&port.mac) {
                // The lists are of two moments.
                let shown = self.read::<One<PortHolder>>(Network, Method::GET, &format!("/ports/{id}"), None).await;
                let shown = shown.map_err(failure)?;
                if !shown.server.device_id.is_empty() {
                    continue;
                }
                // Nova still believes that it is bound: attaching it would fail, and bind it behind Nova's back.
                call(Compute, Method::DELETE, &format!("{path}/os-interface/{id}"), None).await?;
            } else {
                let body = json!({"interfaceAttachment": {"port_id": id}});
                call(Compute, Method::POST, &format!("{path}/os-interface"), Some(body)).await?;
            }
        }
        Ok(())
    }
}

/// The root disk from the image, and the volumes.
fn disks(image: &str, volumes: &[Volume]) -> Value {
    let root = json!({
        "boot_index": 0, "uuid": image, "source_type": "image", "destination_type": "local", "delete_on_termination": true,
    });
    let volumes = volumes.iter().map(|volume| {
        let mut disk = json!({
            "boot_index": -1, "uuid": volume.id, "source_type": "volume", "destination_type": "volume",
            "delete_on_termination": false,
        });
        for (key, value) in [("device_name", &volume.device), ("tag", &volume.tag)] {
            if let Some(value) = value {
                disk[key] = json!(value);
            }
        }
        disk
    });
    std::iter::once(root).chain(volumes).collect()
}
