//! What tests and players see of OpenStack: as a member of project `demo`, past the proxies.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::objects::CLOUD;
use crate::ec2::client::cluster_tag;
use crate::ec2::{Instance, NewInstance};
use crate::supervisor::clock::Clock;
use crate::world::helpers::eventually;

const VERSION: &str = "compute 2.100";

/// Talks to one world's services.
#[derive(Clone)]
pub struct OpenStack {
    keystone: String,
    /// By type of service.
    urls: BTreeMap<String, String>,
    http: reqwest::Client,
    token: String,
    /// Since when each server is in its state: Nova does not say.
    since: Arc<Mutex<HashMap<String, (String, f64)>>>,
}

/// A token of a user, and where the services are past the proxies.
async fn log_in(http: &reqwest::Client, keystone: &str, user: &str) -> Result<(String, BTreeMap<String, String>)> {
    let domain = json!({"id": "default"});
    let body = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {"name": user, "domain": domain, "password": "secret"}}},
        "scope": {"project": {"name": user, "domain": domain}},
    }});
    let answer = http.post(format!("{keystone}/v3/auth/tokens")).json(&body).send().await.context("log in")?;
    let token = answer.headers().get("x-subject-token").context("a token")?.to_str()?.to_owned();
    let answer: Value = answer.json().await.context("read the token")?;
    let mut urls = BTreeMap::new();
    for service in answer["token"]["catalog"].as_array().into_iter().flatten() {
        let endpoints = service["endpoints"].as_array().into_iter().flatten();
        let internal = endpoints.into_iter().find(|endpoint| endpoint["interface"] == "internal");
        if let (Some(kind), Some(url)) = (service["type"].as_str(), internal.and_then(|found| found["url"].as_str())) {
            urls.insert(kind.to_owned(), url.to_owned());
        }
    }
    Ok((token, urls))
}

impl OpenStack {
    /// Logs in, and makes what a project has before the first cluster: image, flavor, network, router, key.
    ///
    /// # Errors
    /// When a service refuses.
    pub(crate) async fn open(port: u16, proxy: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build().context("make a client")?;
        let own = format!("http://127.0.0.1:{port}");
        let keystone = proxy.to_owned();
        let log_in = async |user| {
            let (token, urls) = log_in(&http, &own, user).await?;
            let (keystone, http) = (keystone.clone(), http.clone());
            anyhow::Ok(Self { keystone, urls, http, token, since: Arc::default() })
        };
        let admin = log_in("admin").await?;
        let flavor = json!({"flavor": {"name": "m1.small", "ram": 64, "vcpus": 1, "disk": 1}});
        admin.compute(Method::POST, "/flavors", Some(flavor)).await?;
        let outside = json!({"network": {"name": "outside", "router:external": true}});
        let outside = admin.network(Method::POST, "/networks", Some(outside)).await?["network"]["id"].clone();
        let subnet =
            json!({"subnet": {"network_id": outside, "ip_version": 4, "cidr": "203.0.113.0/24", "enable_dhcp": false}});
        admin.network(Method::POST, "/subnets", Some(subnet)).await?;
        let project =
            admin.call("identity", Method::GET, "/projects?name=demo", None).await?["projects"][0]["id"].clone();
        let project = project.as_str().context("project demo")?;
        let quota = json!({"quota": {"security_group": -1, "security_group_rule": -1, "port": -1, "floatingip": -1}});
        admin.network(Method::PUT, &format!("/quotas/{project}"), Some(quota)).await?;
        let quota = json!({"quota_set": {"instances": -1, "cores": -1, "ram": -1, "server_groups": -1}});
        admin.compute(Method::PUT, &format!("/os-quota-sets/{project}"), Some(quota)).await?;
        let demo = log_in("demo").await?;
        let image = json!({"name": "rhcos", "disk_format": "raw", "container_format": "bare"});
        let image = demo.call("image", Method::POST, "/v2/images", Some(image)).await?["id"].clone();
        let file = format!("{}/v2/images/{}/file", demo.url("image")?, image.as_str().unwrap_or_default());
        let upload = demo.http.put(file).header("x-auth-token", &demo.token);
        let upload = upload.header("content-type", "application/octet-stream").body(vec![0; 4096]).send().await?;
        upload.error_for_status().context("upload an image")?;
        let router = json!({"router": {"name": "router", "external_gateway_info": {"network_id": outside}}});
        let router = demo.network(Method::POST, "/routers", Some(router)).await?["router"]["id"].clone();
        let network = json!({"network": {"name": "demo-openshift"}});
        let network = demo.network(Method::POST, "/networks", Some(network)).await?["network"]["id"].clone();
        let subnet = json!({"subnet": {"network_id": network, "ip_version": 4, "cidr": "10.0.0.0/16"}});
        let subnet = demo.network(Method::POST, "/subnets", Some(subnet)).await?["subnet"]["id"].clone();
        let router = format!("/routers/{}/add_router_interface", router.as_str().unwrap_or_default());
        demo.network(Method::PUT, &router, Some(json!({"subnet_id": subnet}))).await?;
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPhzYV0mYtGG4Lnv0mAkOUrNVi7kHFNQHMRS1kFPTmrg test";
        demo.compute(Method::POST, "/os-keypairs", Some(json!({"keypair": {"name": "core", "public_key": key}})))
            .await?;
        Ok(demo)
    }

    /// The services of a world that is up, as the administrator `admin` or as `demo`, the member that clusters log in as.
    ///
    /// # Errors
    /// When Keystone refuses.
    pub async fn of(keystone: &str, user: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build().context("make a client")?;
        let (token, urls) = log_in(&http, keystone, user).await?;
        Ok(Self { keystone: keystone.to_owned(), urls, http, token, since: Arc::default() })
    }

    /// URL of Keystone's proxy.
    pub fn keystone(&self) -> &str {
        &self.keystone
    }

    /// `clouds.yaml` of a cluster.
    pub fn clouds_yaml(&self) -> String {
        let domain = "user_domain_id: default, project_domain_id: default";
        let auth =
            format!("auth_url: '{}/v3', username: demo, password: secret, project_name: demo, {domain}", self.keystone);
        format!("clouds: {{{CLOUD}: {{auth: {{{auth}}}, region_name: R1}}}}\n")
    }

    fn url(&self, service: &str) -> Result<&String> {
        self.urls.get(service).with_context(|| format!("the catalog has no {service}"))
    }

    /// A call to a service, by its type. The answer is null where there is no body.
    ///
    /// # Errors
    /// When the service refuses: method, path, status and what it says.
    pub async fn call(&self, service: &str, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let url = format!("{}{path}", self.url(service)?);
        let mut request = self.http.request(method.clone(), url).header("x-auth-token", &self.token);
        if service == "compute" {
            request = request.header("openstack-api-version", VERSION);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.with_context(|| format!("{method} {path}"))?;
        let (status, text) = (answer.status(), answer.text().await?);
        if !status.is_success() {
            bail!("{method} {path}: {status}: {text}");
        }
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// A call to Nova.
    ///
    /// # Errors
    /// As [`OpenStack::call`].
    pub async fn compute(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        self.call("compute", method, path, body).await
    }

    /// A call to Neutron.
    ///
    /// # Errors
    /// As [`OpenStack::call`].
    pub async fn network(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        self.call("network", method, &format!("/v2.0{path}"), body).await
    }

    /// The servers of a cluster, by name, as Nova shows them.
    ///
    /// # Errors
    /// As [`OpenStack::call`].
    pub async fn servers(&self, infra_id: &str) -> Result<Vec<Value>> {
        let all = self.compute(Method::GET, "/servers/detail", None).await?;
        let all = all["servers"].as_array().cloned().unwrap_or_default();
        let mut servers: Vec<Value> = all.into_iter().filter(|server| is_of(server, infra_id)).collect();
        servers.sort_by_key(|server| server["name"].to_string());
        Ok(servers)
    }

    /// The images that a cluster's deprovision would find.
    ///
    /// # Errors
    /// As [`OpenStack::call`].
    pub async fn images(&self, infra_id: &str) -> Result<Vec<Value>> {
        let path = format!("/v2/images?tag=openshiftClusterID={infra_id}");
        let found = self.call("image", Method::GET, &path, None).await?;
        Ok(found["images"].as_array().cloned().unwrap_or_default())
    }

    /// Changes an image by a JSON patch.
    ///
    /// # Errors
    /// When Glance refuses.
    pub async fn change_image(&self, id: &str, patch: &Value) -> Result<()> {
        let request = self.http.patch(format!("{}/v2/images/{id}", self.url("image")?));
        let request = request.header("content-type", "application/openstack-images-v2.1-json-patch");
        let answer = request.header("x-auth-token", &self.token).body(patch.to_string()).send().await?;
        answer.error_for_status().context("change an image").map(drop)
    }

    /// Every server of the project as gates and nodes see instances.
    pub(crate) async fn instances(&self) -> Result<Vec<Instance>> {
        let all = self.compute(Method::GET, "/servers/detail", None).await?;
        let all = all["servers"].as_array().cloned().unwrap_or_default();
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(all.iter().map(|server| instance(server, &mut since)).collect())
    }

    /// Makes the servers of a cluster, with everything that a server can have: ports of the installer's and one of
    /// Nova's own, a floating IP, a server group, a volume, tags and metadata.
    ///
    /// # Errors
    /// When a service refuses.
    pub async fn create(&self, infra_id: &str, machines: &[NewInstance]) -> Result<Vec<Instance>> {
        let tag = format!("openshiftClusterID={infra_id}");
        let find = async |service: &str, path: &str, key: &str| {
            let found = self.call(service, Method::GET, path, None).await?;
            found[key][0]["id"].as_str().map(str::to_owned).with_context(|| format!("no {key} at {path}"))
        };
        let image = find("image", "/v2/images?name=rhcos", "images").await?;
        let flavor = find("compute", "/flavors", "flavors").await?;
        let network = find("network", "/v2.0/networks?name=demo-openshift", "networks").await?;
        let outside = find("network", "/v2.0/networks?name=outside", "networks").await?;
        let body = json!({"security_group": {"name": format!("{infra_id}-nodes")}});
        let group = self.network(Method::POST, "/security-groups", Some(body)).await?["security_group"]["id"].clone();
        let body = json!({"server_group": {"name": format!("{infra_id}-master"), "policy": "soft-anti-affinity"}});
        let servers = self.compute(Method::POST, "/os-server-groups", Some(body)).await?["server_group"]["id"].clone();
        let mut made = Vec::new();
        for (number, machine) in machines.iter().enumerate() {
            let (name, is_last) = (&machine.name, number + 1 == machines.len());
            let body = json!({"port": {
                "network_id": network, "name": format!("{name}-0"), "security_groups": [group],
                "allowed_address_pairs": [{"ip_address": "10.0.0.5"}],
            }});
            let port = self.network(Method::POST, "/ports", Some(body)).await?["port"]["id"].clone();
            let path = format!("/ports/{}/tags", port.as_str().unwrap_or_default());
            self.network(Method::PUT, &path, Some(json!({"tags": [tag]}))).await?;
            let mut networks = vec![json!({"port": port})];
            if is_last {
                networks.push(json!({"uuid": network})); // Nova makes a port, which goes with the server
            }
            let mut body = json!({"server": {
                "name": name, "imageRef": image, "flavorRef": flavor, "networks": networks, "key_name": "core",
                "config_drive": true, "description": format!("machine {number}"), "tags": [tag, "openshift"],
                "metadata": {"openshiftClusterID": infra_id, "Name": name},
            }});
            if name.contains("-master-") {
                body["os:scheduler_hints"] = json!({"group": servers});
            }
            made.push(self.compute(Method::POST, "/servers", Some(body)).await?["server"]["id"].clone());
            if number == 0 {
                let body = json!({"floatingip": {"floating_network_id": outside, "port_id": port}});
                self.network(Method::POST, "/floatingips", Some(body)).await?;
            }
        }
        self.all_active(infra_id, machines.len()).await?;
        if let Some(last) = made.last().and_then(Value::as_str) {
            // Of Nova's fixture, which knows any volume.
            let body = json!({"volumeAttachment": {"volumeId": uuid(), "tag": "etcd"}});
            self.compute(Method::POST, &format!("/servers/{last}/os-volume_attachments"), Some(body)).await?;
        }
        let all = self.instances().await?;
        let mut own: Vec<Instance> = all.into_iter().filter(|instance| instance.is_of(infra_id)).collect();
        own.sort_by_key(|instance| instance.private_dns.clone());
        Ok(own)
    }

    async fn all_active(&self, infra_id: &str, count: usize) -> Result<()> {
        eventually(Duration::from_mins(3), "ACTIVE servers", async || {
            let servers = self.servers(infra_id).await?;
            let active = servers.iter().filter(|server| server["status"] == "ACTIVE").count();
            anyhow::ensure!(active == count, "{active} of {count} are ACTIVE: {servers:?}");
            Ok(())
        })
        .await
    }

    /// Removes the servers of a cluster.
    pub(crate) async fn forget(&self, infra_id: &str) -> Result<()> {
        for server in self.servers(infra_id).await? {
            let path = format!("/servers/{}", server["id"].as_str().unwrap_or_default());
            let _ = self.compute(Method::DELETE, &path, None).await; // it may be gone
        }
        Ok(())
    }
}

fn uuid() -> String {
    let [a, b] = [rand::random::<u64>(), rand::random::<u64>()].map(|half| format!("{half:016x}"));
    format!("{}-{}-4{}-8{}-{}", &a[0..8], &a[8..12], &a[13..16], &b[1..4], &b[4..16])
}

fn is_of(server: &Value, infra_id: &str) -> bool {
    let tag = json!(format!("openshiftClusterID={infra_id}"));
    let tags = server["tags"].as_array();
    tags.is_some_and(|tags| tags.contains(&tag)) || server["metadata"]["openshiftClusterID"] == infra_id
}

/// A server in the words that gates and nodes know.
fn instance(server: &Value, since: &mut HashMap<String, (String, f64)>) -> Instance {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (id, name, status) = (text(&server["id"]), text(&server["name"]), text(&server["status"]));
    let state = match status.as_str() {
        "ACTIVE" => "running".to_owned(),
        status => status.to_lowercase(),
    };
    let entry = since.entry(id.clone()).or_insert_with(|| (state.clone(), Clock::now()));
    if entry.0 != state {
        *entry = (state.clone(), Clock::now());
    }
    let infra_id = text(&server["metadata"]["openshiftClusterID"]);
    let role = if name.contains("-master-") { "master" } else { "worker" };
    let addresses = server["addresses"].as_object().and_then(|networks| networks.values().next());
    let provider_id = format!("openstack:///{id}");
    Instance {
        id,
        account: "demo".to_owned(),
        region: "R1".to_owned(),
        zone: text(&server["OS-EXT-AZ:availability_zone"]),
        state,
        since: entry.1,
        launch_time: text(&server["OS-SRV-USG:launched_at"]),
        private_ip: addresses.map(|addresses| text(&addresses[0]["addr"])).unwrap_or_default(),
        private_dns: name.clone(),
        lifecycle: None,
        provider_id: Some(provider_id),
        tags: [
            (cluster_tag(&infra_id), "owned".to_owned()),
            ("Name".to_owned(), name),
            (Instance::ROLE.to_owned(), role.to_owned()),
        ]
        .into(),
    }
}
