//! Reads a kubeconfig. It belongs to a tenant: of a bounded size, without aliases, and with nothing in it that would
//! have this process run programs, read files, trust anybody's certificate or ask for more than a credential of its
//! own.

use http::HeaderValue;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::IgnoredAny;
use shared::read::yaml;

/// Bytes of a kubeconfig. An installer's has 10 KiB.
const MOST: usize = 64 << 10;

/// Why a field is refused.
const REACHES_OUT: &str = "which would run code, read files or weaken TLS in the controller's process";
const NO_CREDENTIAL: &str = "which the controller does not use: a user has a token or a client certificate";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct File {
    current_context: Option<String>,
    clusters: Vec<ClusterEntry>,
    users: Vec<UserEntry>,
    contexts: Vec<ContextEntry>,
}

#[derive(Deserialize)]
struct ClusterEntry {
    name: String,
    cluster: Option<ClusterFields>,
}

#[derive(Deserialize)]
struct UserEntry {
    name: String,
    user: Option<UserFields>,
}

#[derive(Deserialize)]
struct ContextEntry {
    name: String,
    context: Option<ContextFields>,
}

#[derive(Deserialize)]
struct ContextFields {
    cluster: String,
    user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct ClusterFields {
    server: Option<String>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<IgnoredAny>,
    proxy_url: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct UserFields {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "tokenFile")]
    token_file: Option<IgnoredAny>,
    client_certificate: Option<IgnoredAny>,
    client_key: Option<IgnoredAny>,
    #[serde(rename = "as")]
    as_user: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    password: Option<IgnoredAny>,
}

/// Reads a kubeconfig and holds it to the rules, every user and cluster of it, whichever the current context names.
///
/// # Errors
/// What is wrong with it.
pub fn parse(kubeconfig: &[u8]) -> Result<Kubeconfig, String> {
    let text = str::from_utf8(kubeconfig).map_err(|_| "is not text".to_owned())?;
    let file: File = yaml::read(text, MOST).map_err(|error| error.to_string())?;
    let clusters = file.clusters.into_iter().map(|ClusterEntry { name, cluster }| {
        let cluster = cluster.map(ClusterFields::accept).transpose()?;
        Ok(NamedCluster { name, cluster, ..NamedCluster::default() })
    });
    let users = file.users.into_iter().map(|UserEntry { name, user }| {
        let auth_info = user.map(UserFields::accept).transpose()?;
        Ok(NamedAuthInfo { name, auth_info, ..NamedAuthInfo::default() })
    });
    let contexts = file.contexts.into_iter().map(|ContextEntry { name, context }| {
        let context = context.map(|ContextFields { cluster, user }| Context { cluster, user, ..Context::default() });
        NamedContext { name, context, ..NamedContext::default() }
    });
    Ok(Kubeconfig {
        contexts: contexts.collect(),
        auth_infos: users.collect::<Result<_, String>>()?,
        clusters: clusters.collect::<Result<_, String>>()?,
        current_context: file.current_context,
        ..Kubeconfig::default()
    })
}

impl UserFields {
    fn accept(self) -> Result<AuthInfo, String> {
        refuse(&[
            (self.exec.is_some(), "exec", REACHES_OUT),
            (self.auth_provider.is_some(), "auth-provider", REACHES_OUT),
            (self.token_file.is_some(), "tokenFile", REACHES_OUT),
            (self.client_certificate.is_some(), "client-certificate (a file path)", REACHES_OUT),
            (self.client_key.is_some(), "client-key (a file path)", REACHES_OUT),
            (self.as_user.is_some(), "as", NO_CREDENTIAL),
            (self.as_uid.is_some(), "as-uid", NO_CREDENTIAL),
            (self.as_groups.is_some(), "as-groups", NO_CREDENTIAL),
            (self.as_user_extra.is_some(), "as-user-extra", NO_CREDENTIAL),
            (self.username.is_some(), "username", NO_CREDENTIAL),
            (self.password.is_some(), "password", NO_CREDENTIAL),
        ])?;
        Ok(AuthInfo {
            token: self.token.as_deref().map(trimmed).transpose()?,
            client_certificate_data: self.client_certificate_data,
            client_key_data: self.client_key_data.map(SecretString::from),
            ..AuthInfo::default()
        })
    }
}

impl ClusterFields {
    fn accept(self) -> Result<Cluster, String> {
        let is_https = self.server.as_deref().unwrap_or_default().starts_with("https://");
        refuse(&[
            (self.certificate_authority.is_some(), "certificate-authority (a file path)", REACHES_OUT),
            (self.proxy_url.is_some(), "proxy-url", REACHES_OUT),
            (self.insecure_skip_tls_verify == Some(true), "insecure-skip-tls-verify", REACHES_OUT),
            (!is_https, "a server that is not https", REACHES_OUT),
        ])?;
        Ok(Cluster {
            server: self.server,
            certificate_authority_data: self.certificate_authority_data,
            tls_server_name: self.tls_server_name,
            ..Cluster::default()
        })
    }
}

fn refuse(fields: &[(bool, &str, &str)]) -> Result<(), String> {
    match fields.iter().find(|(found, ..)| *found) {
        Some((_, field, why)) => Err(format!("is refused: it has {field}, {why}")),
        None => Ok(()),
    }
}

/// Removes white space around a token, which many a tool leaves there. kube's client panics at a token that is no
/// header value.
fn trimmed(token: &str) -> Result<SecretString, String> {
    let trimmed = token.trim();
    if HeaderValue::try_from(format!("Bearer {trimmed}")).is_err() {
        return Err("cannot be used: it has a token with characters that no HTTP header can hold".to_owned());
    }
    Ok(SecretString::from(trimmed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_with_aliases_or_of_more_than_64_kib_is_refused() {
        let groups = |count: usize| {
            let aliases = vec!["*s"; count].join(", ");
            format!(
                "clusters: [{{name: c, cluster: {{server: 'https://a'}}}}]\nusers: [{{name: u, user: {{token: t, \
                 as-groups: [&s {}, {aliases}]}}}}]",
                "g".repeat(1_000)
            )
        };
        assert_eq!(parse(groups(100).as_bytes()).unwrap_err(), "is refused: it has YAML anchors or aliases");
        let large = groups(155_000);
        assert!(large.len() > 600_000);
        let expected = format!("is refused: it has {} bytes, more than 64 KiB", large.len());
        assert_eq!(parse(large.as_bytes()).unwrap_err(), expected);
        for text in ["a: &a 1", "a: &a {}\nb: {<<: *a}", "x: &a [1]\ny: *a"] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), "is refused: it has YAML anchors or aliases", "{text}");
        }
        let many = format!("clusters: [{}]", vec!["{name: c}"; 3_000].join(", "));
        let expected = "is refused: it has more keys and values than a file of 64 KiB";
        assert_eq!(parse(many.as_bytes()).unwrap_err(), expected);
        let two = "clusters: []\n---\nclusters: []\n";
        assert!(parse(two.as_bytes()).is_err());
    }
}
