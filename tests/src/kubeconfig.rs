//! Kubeconfig files: written for people and programs, read into clients.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// What a kubeconfig says: one cluster, one user, one context.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// Name of cluster and context.
    pub cluster: &'a str,
    /// URL of the API server.
    pub server: &'a str,
    /// Certificate of the authority that signed the server's, PEM.
    pub authority: &'a str,
    /// Name of the user.
    pub user: &'a str,
    /// The user's bearer token.
    pub token: &'a str,
    /// Default namespace of the context.
    pub namespace: &'a str,
}

impl Access<'_> {
    /// The file's text. Everything is inside; it refers to no other file and runs no program.
    ///
    /// # Errors
    /// Never in practice: when the text cannot be written.
    pub fn yaml(&self) -> Result<String> {
        let user = json!({"token": self.token});
        document((self.cluster, self.server, self.authority), (self.user, &user), self.namespace)
    }

    /// Writes the file, readable by its owner only.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_private(path, &self.yaml()?)
    }
}

/// A kubeconfig's text: name, URL and authority (PEM) of the cluster, name and credentials of the user, and the context's
/// default namespace.
///
/// # Errors
/// Never in practice: when the text cannot be written.
pub(crate) fn document(
    (cluster, server, authority): (&str, &str, &str),
    (user, credentials): (&str, &Value),
    namespace: &str,
) -> Result<String> {
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": base64(authority)}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user, "namespace": namespace}}],
    });
    serde_saphyr::to_string(&document).with_context(|| format!("write the kubeconfig of {cluster}"))
}

/// Writes a file that only its owner may read: tokens and keys.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    open.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| format!("write {}", path.display()))
}

/// A client from a kubeconfig's text. It does not retry: a test wants to see each answer.
///
/// # Errors
/// When the text is not a kubeconfig.
pub async fn client(yaml: &str) -> Result<Client> {
    let config = config(yaml).await?;
    Client::try_from(config).context("make a client from a kubeconfig")
}

/// A client that is known by its certificate. It does not retry.
///
/// # Errors
/// When the certificate and the key do not fit.
pub async fn client_with_certificate(server: &str, authority: &str, certificate: &str, key: &str) -> Result<Client> {
    let user = json!({"client-certificate-data": base64(certificate), "client-key-data": base64(key)});
    client(&document(("it", server, authority), ("it", &user), "default")?).await
}

/// The client settings of a kubeconfig's text.
///
/// # Errors
/// When the text is not a kubeconfig.
pub async fn config(yaml: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::from_yaml(yaml).context("read a kubeconfig")?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.context("use a kubeconfig")?;
    config.default_retry = false;
    Ok(config)
}

/// A client from a kubeconfig file.
///
/// # Errors
/// When the file cannot be read.
pub async fn client_from(path: &Path) -> Result<Client> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    client(&text).await
}

/// A client from a kubeconfig file whose user acts as another one, with these groups.
///
/// # Errors
/// When the file cannot be read.
pub async fn client_as(path: &Path, user: &str, groups: &[&str]) -> Result<Client> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut config = config(&text).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
    config.auth_info.impersonate_groups = Some(groups).filter(|groups| !groups.is_empty());
    Client::try_from(config).context("make a client from a kubeconfig")
}

/// Base64 as Secrets and kubeconfigs want it.
pub fn base64(text: &str) -> String {
    let quoted = serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap_or_default();
    quoted.as_str().unwrap_or_default().to_owned()
}
