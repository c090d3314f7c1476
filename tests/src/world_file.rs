//! `DIR/world.json`: where everything of a world is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterInfo, Platform};
use crate::kubeconfig::write_private;

/// The name of the file in a world's folder.
pub const NAME: &str = "world.json";

/// Where everything of a world is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorldFile {
    /// The hub.
    pub hub: Hub,
    /// The spokes, by index.
    pub spokes: Vec<Server>,
    /// The EC2 simulator.
    pub ec2: Ec2Address,
    /// URL of Keystone, in a world with OpenStack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openstack: Option<String>,
    /// URLs of the simulators of ours, by platform.
    #[serde(default)]
    pub simulators: BTreeMap<Platform, String>,
    /// Our webhook, while one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<ProgramAddress>,
    /// Our controller, while one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ProgramAddress>,
    /// Sample clusters.
    pub clusters: Vec<ClusterInfo>,
    /// The supervisor's own interface.
    pub control: Control,
    /// Folder of all logs.
    pub logs: PathBuf,
    /// Certificate of the authority that signed every certificate of the world.
    pub authority: PathBuf,
    /// Every process that runs, by name.
    pub pids: BTreeMap<String, i32>,
}

/// An API server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// Kubeconfig of its administrator.
    pub kubeconfig: PathBuf,
    /// Its URL.
    pub url: String,
}

/// The hub, with its users and the fault proxy in front of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hub {
    /// Kubeconfig of its administrator.
    pub kubeconfig: PathBuf,
    /// Its URL.
    pub url: String,
    /// The administrator's way through the fault proxy.
    pub proxy: Server,
    /// Kubeconfigs of everybody else: `alice` may edit, `bob` may nothing, and our programs' service accounts.
    pub users: BTreeMap<String, PathBuf>,
}

/// The EC2 simulator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ec2Address {
    /// Endpoint for AWS clients.
    pub endpoint: String,
    /// Access key ID of the shared account.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
}

/// A program of ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramAddress {
    /// Base URL of what it serves; the controller serves nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// URL of its metrics.
    pub metrics: String,
}

/// The supervisor's own interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Control {
    /// Base URL.
    pub url: String,
    /// Bearer token that every call needs.
    pub token: String,
}

impl WorldFile {
    /// Reads a world's file.
    ///
    /// # Errors
    /// When there is none in this folder.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(NAME);
        let text = fs::read(&path).with_context(|| format!("no world in {}: {}", dir.display(), path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    }

    /// Replaces a world's file as a whole, so that no reader sees half of it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let (path, new) = (dir.join(NAME), dir.join("world.json.new"));
        write_private(&new, &format!("{}\n", serde_json::to_string_pretty(self)?))?;
        fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
    }
}
