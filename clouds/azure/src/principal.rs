//! A service principal.

use std::collections::BTreeMap;

use serde::Deserialize;
use shared::read::{self, Limits, lenient};
use shared::text::sanitize_to;

/// Key of the file in its Secret.
pub(crate) const KEY: &str = "osServicePrincipal.json";

/// One of Microsoft's clouds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Environment {
    Public,
    UsGovernment,
    China,
}

impl Environment {
    /// Of `spec.platform.azure.cloudName`.
    ///
    /// # Errors
    /// Why there is no such cloud.
    pub(crate) fn of_name(name: &str) -> Result<Self, String> {
        match name {
            "" | "AzurePublicCloud" => Ok(Self::Public),
            "AzureUSGovernmentCloud" => Ok(Self::UsGovernment),
            "AzureChinaCloud" => Ok(Self::China),
            "AzureGermanCloud" => Err("AzureGermanCloud, which Microsoft closed in 2021".to_owned()),
            "AzureStackCloud" => Err("AzureStackCloud, which is not supported".to_owned()),
            other => Err(format!("{:?}, which is no cloud of Microsoft's", sanitize_to(other, 40))),
        }
    }

    /// Hosts of its logins and of its API.
    pub(crate) fn hosts(self) -> [&'static str; 2] {
        match self {
            Self::Public => ["https://login.microsoftonline.com", "https://management.azure.com"],
            Self::UsGovernment => ["https://login.microsoftonline.us", "https://management.usgovcloudapi.net"],
            Self::China => ["https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"],
        }
    }
}

/// A service principal. It has no `Debug`: it holds a secret.
#[derive(Hash)]
pub(crate) struct Principal {
    pub(crate) subscription: String,
    pub(crate) tenant: String,
    pub(crate) client: String,
    secret: String,
}

/// The fields of a service principal's file.
const FIELDS: [&str; 4] = ["subscriptionId", "tenantId", "clientId", "clientSecret"];

/// Which of them a key is, ignoring case: there are files of either spelling.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(from = "String")]
struct Field(Option<usize>);

impl From<String> for Field {
    fn from(key: String) -> Self {
        Self(FIELDS.iter().position(|field| field.eq_ignore_ascii_case(&key)))
    }
}

/// A value; empty if it is no text.
#[derive(Deserialize)]
struct Value(#[serde(deserialize_with = "lenient")] String);

/// Reads a service principal.
///
/// # Errors
/// What is wrong with which field, without any value that could be secret.
pub(crate) fn parse(text: &str) -> Result<Principal, String> {
    // Its error would quote the file.
    let file = read::json::<BTreeMap<Field, Value>>(text.as_bytes(), &Limits::OBJECT);
    let mut file = file.map_err(|_| format!("{KEY} is malformed: it must be a JSON object"))?.value;
    let mut field = |at: usize| {
        let name = FIELDS[at];
        let value = file.remove(&Field(Some(at))).filter(|value| !value.0.is_empty());
        let Value(value) = value.ok_or_else(|| format!("{KEY} has no {name}"))?;
        let is_id = value.len() <= 100 && value.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
        if is_id || name == "clientSecret" {
            Ok(value)
        } else {
            Err(format!("{KEY}: {name} is no ID: it has letters, digits, hyphens and dots"))
        }
    };
    Ok(Principal { subscription: field(0)?, tenant: field(1)?, client: field(2)?, secret: field(3)? })
}

impl Principal {
    /// Where Entra gives tokens, below its host.
    pub(crate) fn token_path(&self) -> [&str; 4] {
        [&self.tenant, "oauth2", "v2.0", "token"]
    }

    /// What Entra is asked with.
    pub(crate) fn form(&self, environment: Environment) -> Vec<(&'static str, String)> {
        let [_, management] = environment.hosts();
        vec![
            ("grant_type", "client_credentials".to_owned()),
            ("client_id", self.client.clone()),
            ("client_secret", self.secret.clone()),
            ("scope", format!("{management}/.default")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_principal_is_read_in_any_case_and_never_quoted() {
        let all =
            r#"{"subscriptionId": "s", "CLIENTID": "c", "clientsecret": "hu/sh~", "tenantid": "t.example", "x": 1}"#;
        let found = parse(all).ok().unwrap();
        assert_eq!([found.subscription, found.client, found.secret, found.tenant], ["s", "c", "hu/sh~", "t.example"]);
        for (text, part) in [
            ("hush", "malformed"),
            ("[]", "malformed"),
            (r#"{"subscriptionId": "s", "clientId": "c", "clientSecret": "hush"}"#, "no tenantId"),
            (r#"{"subscriptionId": "s", "tenantId": "t", "clientId": "c", "clientSecret": ""}"#, "no clientSecret"),
            (r#"{"subscriptionId": "s", "tenantId": "t", "clientId": 5, "clientSecret": "hush"}"#, "no clientId"),
            (
                r#"{"subscriptionId": "s", "tenantId": "../hush", "clientId": "c", "clientSecret": "x"}"#,
                "tenantId is no ID",
            ),
        ] {
            let why = parse(text).err().unwrap_or_default();
            assert!(why.starts_with(KEY) && why.contains(part) && !why.contains("hush"), "{part}: {why}");
        }
    }

    #[test]
    fn a_cloud_of_microsofts_is_known_by_the_name_that_hive_uses() {
        for (name, found) in [
            ("", Ok("https://management.azure.com")),
            ("AzurePublicCloud", Ok("https://management.azure.com")),
            ("AzureUSGovernmentCloud", Ok("https://management.usgovcloudapi.net")),
            ("AzureChinaCloud", Ok("https://management.chinacloudapi.cn")),
            ("AzureGermanCloud", Err("closed")),
            ("AzureStackCloud", Err("not supported")),
            ("azurepubliccloud", Err("no cloud of")),
        ] {
            match (Environment::of_name(name), found) {
                (Ok(environment), Ok(host)) => assert_eq!(environment.hosts()[1], host, "{name}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{name}: {why}"),
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }
}
