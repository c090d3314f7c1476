//! `clouds.yaml`, as OpenStack's clients read it and Hive's Secrets hold it.
//!
//! It belongs to a tenant: what would weaken TLS, read a file of ours or run a login that needs a person is refused by
//! the name of its field.

use std::collections::BTreeMap;

use cloud_common::{MAX_CREDENTIALS, SecretData, account_word, text};
use cloud_http::{Url, is_plain};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use shared::read::yaml::{self, YamlError};

/// Key of the file in its Secret.
const KEY: &str = "clouds.yaml";

/// Bytes of all certificates: those of all public authorities have about 220 KiB.
const MAX_CERTIFICATES: usize = 512 << 10;

/// Where Hive mounts the Secret with certificates.
const CA_MOUNT: &str = "/etc/openstack-ca/";

/// Where Hive's installer has the system's certificates and those of the Secret.
const SYSTEM_BUNDLES: [&str; 2] =
    ["/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt"];

/// One cloud of the file. It has no `Debug`: it holds a secret.
#[derive(Hash)]
pub(crate) struct Cloud {
    /// Keystone's URL, without a version.
    pub(crate) keystone: Url,
    /// The `auth` of the request for a token.
    pub(crate) auth: Value,
    /// The region; `None` where the catalog has only one.
    pub(crate) region: Option<String>,
    /// Which of each service's endpoints is used.
    pub(crate) interface: String,
    /// PEM certificates that are trusted; `None` for those of the system.
    pub(crate) authorities: Option<Vec<u8>>,
    /// A word for user and project that is no secret.
    pub(crate) account: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    clouds: BTreeMap<String, Option<Box<Entry>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Auth,
    auth_type: Option<String>,
    region_name: Option<String>,
    interface: Option<String>,
    endpoint_type: Option<String>,
    identity_api_version: Option<String>,
    verify: Option<String>,
    cacert: Option<String>,
    cert: Option<IgnoredAny>,
    key: Option<IgnoredAny>,
    profile: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    #[serde(rename = "auth_url")]
    url: Option<String>,
    username: Option<String>,
    user_id: Option<String>,
    password: Option<String>,
    application_credential_id: Option<String>,
    application_credential_name: Option<String>,
    application_credential_secret: Option<String>,
    project_id: Option<String>,
    project_name: Option<String>,
    user_domain_id: Option<String>,
    user_domain_name: Option<String>,
    project_domain_id: Option<String>,
    project_domain_name: Option<String>,
    domain_id: Option<String>,
    domain_name: Option<String>,
    default_domain: Option<String>,
}

/// Reads one cloud. `certificates` is the content of the Secret in `certificatesSecretRef`.
///
/// # Errors
/// What is wrong with which field, without any value that could be secret.
pub(crate) fn parse(secret: &SecretData, name: &str, certificates: Option<&SecretData>) -> Result<Cloud, String> {
    let text = text(Some(secret), KEY)?;
    let mut file = yaml::read::<File>(text, MAX_CREDENTIALS).map_err(|why| match why {
        // It would quote the file.
        YamlError::Malformed(_) => {
            format!("{KEY} is malformed: it must be YAML with the clouds, by name, below clouds")
        }
        why => format!("{KEY} {why}"),
    })?;
    let Some(entry) = file.clouds.remove(name).flatten() else {
        let names = shared::text::list(file.clouds.keys());
        return Err(format!("{KEY} has no cloud {name}, which spec.platform.openstack.cloud names: it has {names}"));
    };
    let found = entry.read(certificates);
    found.map_err(|why| format!("{KEY}: clouds.{name}.{why}"))
}

impl Entry {
    fn read(&self, certificates: Option<&SecretData>) -> Result<Cloud, String> {
        if self.verify.as_ref().is_some_and(|verify| !verify.eq_ignore_ascii_case("true")) {
            return Err("verify must be true: put the CA into the Secret of certificatesSecretRef".to_owned());
        }
        if self.profile.is_some() {
            return Err("profile is not supported: write its fields into the entry".to_owned());
        }
        for (field, value) in [("cert", &self.cert), ("key", &self.key)] {
            if value.is_some() {
                return Err(format!("{field} is not supported: log in by password or application credential"));
            }
        }
        if self.identity_api_version.as_ref().is_some_and(|version| !version.starts_with('3')) {
            return Err("identity_api_version must be 3".to_owned());
        }
        let interface = self.interface.as_ref().or(self.endpoint_type.as_ref());
        let interface = interface.map_or("public", |interface| interface.trim_end_matches("URL"));
        if !["public", "internal", "admin"].contains(&interface) {
            return Err("interface must be public, internal or admin".to_owned());
        }
        let (auth, account) = self.auth.request(self.auth_type.as_deref())?;
        Ok(Cloud {
            keystone: keystone(self.auth.url.as_deref())?,
            auth,
            region: self.region_name.clone().filter(|region| !region.is_empty()),
            interface: interface.to_owned(),
            authorities: authorities(self.cacert.as_deref(), certificates)?,
            account,
        })
    }
}

impl Auth {
    /// The `auth` of the request for a token, and a word for whose it is.
    fn request(&self, auth_type: Option<&str>) -> Result<(Value, String), String> {
        let has_credential = self.application_credential_id.is_some() || self.application_credential_name.is_some();
        match auth_type {
            None if has_credential => self.by_application_credential(),
            Some("v3applicationcredential") => self.by_application_credential(),
            None | Some("password" | "v3password") => self.by_password(),
            Some(_) => Err("auth_type must be password or v3applicationcredential".to_owned()),
        }
    }

    fn by_password(&self) -> Result<(Value, String), String> {
        let mut user = self.user()?;
        let password = self.password.as_ref().ok_or("auth.password is missing")?;
        let project = match (&self.project_id, &self.project_name) {
            (Some(id), _) => json!({"id": id}),
            (None, Some(name)) => {
                json!({"name": name, "domain": self.domain([&self.project_domain_id, &self.project_domain_name], "project")?})
            }
            (None, None) => return Err("auth.project_name is missing".to_owned()),
        };
        let account = format!("{user} {project}");
        user["password"] = json!(password);
        let auth = json!({
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": project},
        });
        Ok((auth, account))
    }

    fn by_application_credential(&self) -> Result<(Value, String), String> {
        let secret = self.application_credential_secret.as_ref();
        let secret = secret.ok_or("auth.application_credential_secret is missing")?;
        let mut credential = match (&self.application_credential_id, &self.application_credential_name) {
            (Some(id), _) => json!({"id": id}),
            (None, Some(name)) => json!({"name": name, "user": self.user()?}),
            (None, None) => return Err("auth.application_credential_id is missing".to_owned()),
        };
        let account = format!("{credential}");
        credential["secret"] = json!(secret);
        let identity = json!({"methods": ["application_credential"], "application_credential": credential});
        Ok((json!({"identity": identity}), account))
    }

    fn user(&self) -> Result<Value, String> {
        match (&self.user_id, &self.username) {
            (Some(id), _) => Ok(json!({"id": id})),
            (None, Some(name)) => Ok(
                json!({"name": name, "domain": self.domain([&self.user_domain_id, &self.user_domain_name], "user")?}),
            ),
            (None, None) => Err("auth.username is missing".to_owned()),
        }
    }

    /// The domain of a user or project, by the ID or name that it has of its own.
    fn domain(&self, own: [&Option<String>; 2], of: &str) -> Result<Value, String> {
        let common = [self.domain_id.as_ref().or(self.default_domain.as_ref()), self.domain_name.as_ref()];
        let domain = |[id, name]: [Option<&String>; 2]| match (id, name) {
            (Some(id), _) => Some(json!({"id": id})),
            (None, Some(name)) => Some(json!({"name": name})),
            (None, None) => None,
        };
        let found = domain(own.map(Option::as_ref)).or_else(|| domain(common));
        found.ok_or_else(|| format!("auth.{of}_domain_name is missing"))
    }
}

impl Cloud {
    /// An opaque word for the account.
    pub(crate) fn word(&self) -> String {
        account_word(&format!("{} {}", self.keystone, self.account))
    }
}

/// Keystone's URL without a version, and without what only a browser would understand.
fn keystone(auth_url: Option<&str>) -> Result<Url, String> {
    let text = auth_url.ok_or("auth.auth_url is missing")?.trim_end_matches('/');
    if text.ends_with("/v2.0") {
        return Err("auth.auth_url names Keystone v2.0: write the URL of v3".to_owned());
    }
    let url = Url::parse(text.strip_suffix("/v3").unwrap_or(text)).ok();
    url.filter(is_plain).ok_or_else(|| "auth.auth_url must be https://HOST[:PORT][/PATH]".to_owned())
}

/// What is trusted beside the system's authorities: all of the Secret, as Hive installs it. A path is one of the pod in
/// which Hive's installer runs, never ours: of the Secret that is mounted there only the key counts.
fn authorities(cacert: Option<&str>, certificates: Option<&SecretData>) -> Result<Option<Vec<u8>>, String> {
    let path = cacert.filter(|path| !path.is_empty() && !SYSTEM_BUNDLES.contains(path));
    let key = path.map(|path| path.strip_prefix(CA_MOUNT));
    if key.is_some_and(|key| !key.zip(certificates).is_some_and(|(key, all)| all.contains_key(key))) {
        let right = format!("write {CA_MOUNT}KEY, and name a Secret with that KEY in certificatesSecretRef");
        return Err(format!("cacert names a file that the controller does not read: {right}"));
    }
    let Some(certificates) = certificates.filter(|all| !all.is_empty()) else { return Ok(None) };
    let found: Vec<&[u8]> = certificates.values().map(Vec::as_slice).collect();
    if found.iter().map(|pem| pem.len()).sum::<usize>() > MAX_CERTIFICATES {
        return Err(format!("certificatesSecretRef: the certificates have more than {} KiB", MAX_CERTIFICATES >> 10));
    }
    Ok(Some(found.join(&b'\n')))
}

#[cfg(test)]
mod tests;
