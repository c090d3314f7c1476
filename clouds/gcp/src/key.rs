//! A service account's key, and the tokens that it signs.

use std::time::Duration;

use cloud_http::{CallError, HeaderValue, Login, bearer};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde::{Deserialize, Serialize};
use shared::cloud::{CloudError, CloudErrorKind};
use shared::read::{self, Limits};
use shared::text::sanitize_to;

/// Key of the file in its Secret.
pub(crate) const KEY: &str = "osServiceAccount.json";

const AUDIENCE: &str = "https://compute.googleapis.com/";

const UNIVERSE_DOMAIN: &str = "googleapis.com";

const TOKEN_TTL: Duration = Duration::from_hours(1);

/// Tokens begin this much before now: clocks differ.
const CLOCK_SKEW: Duration = Duration::from_secs(30);

/// A service account: the fields of its file that are used. It has no `Debug`: it holds a secret.
#[derive(Hash, Deserialize)]
pub(crate) struct ServiceAccount {
    r#type: String,
    #[serde(default, rename = "project_id")]
    pub(crate) project: String,
    #[serde(default, rename = "client_email")]
    pub(crate) email: String,
    #[serde(default, rename = "private_key_id")]
    key_id: String,
    #[serde(default)]
    private_key: String,
    /// `None` once it was checked, so that accounts are the same whether their files write Google's own or none.
    universe_domain: Option<String>,
}

/// What a token says.
#[derive(Debug, Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'static str,
    iat: i64,
    exp: i64,
}

/// Reads a key.
///
/// # Errors
/// What is wrong with which field, without any value that could be secret.
pub(crate) fn parse(text: &str) -> Result<ServiceAccount, String> {
    // Its error would quote the file.
    let malformed = format!("{KEY} is malformed: it must be the JSON key of a service account");
    let mut found = read::json::<ServiceAccount>(text.as_bytes(), &Limits::OBJECT).map_err(|_| malformed)?.value;
    if found.r#type != "service_account" {
        let found = sanitize_to(&found.r#type, 40);
        return Err(format!(
            "{KEY} has type {found:?}: only a service account's own key (type service_account) is used, because other types run \
             programs or call services that the file names"
        ));
    }
    if let Some(other) = found.universe_domain.take().filter(|domain| !domain.is_empty() && domain != UNIVERSE_DOMAIN) {
        return Err(format!("{KEY} has universe_domain {:?}: it has to be {UNIVERSE_DOMAIN}", sanitize_to(&other, 60)));
    }
    let fields = [("project_id", &found.project), ("client_email", &found.email), ("private_key", &found.private_key)];
    if let Some((field, _)) = fields.iter().find(|(_, value)| value.is_empty()) {
        return Err(format!("{KEY} has no {field}"));
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
    if found.project.len() > 100 || !found.project.chars().all(is_plain) {
        return Err(format!("{KEY}: project_id is no ID of a project"));
    }
    found.encoding_key()?;
    Ok(found)
}

impl ServiceAccount {
    fn encoding_key(&self) -> Result<EncodingKey, String> {
        EncodingKey::from_rsa_pem(self.private_key.as_bytes())
            .map_err(|_| format!("{KEY}: private_key is no RSA key in PEM"))
    }

    fn sign(&self) -> Result<String, String> {
        let now = Timestamp::now().as_second();
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or_default();
        let (iat, exp) = (now - seconds(CLOCK_SKEW), now + seconds(TOKEN_TTL) - seconds(CLOCK_SKEW));
        let claims = Claims { iss: &self.email, sub: &self.email, aud: AUDIENCE, iat, exp };
        let kid = Some(self.key_id.clone()).filter(|id| !id.is_empty());
        let header = Header { kid, ..Header::new(Algorithm::RS256) };
        encode(&header, &claims, &self.encoding_key()?).map_err(|_| format!("{KEY}: private_key signs nothing"))
    }
}

impl Login for ServiceAccount {
    type Token = HeaderValue;

    async fn login(&self) -> Result<(HeaderValue, Duration), CallError> {
        let token = self.sign();
        let token = token.map_err(|why| CallError::NotSent(CloudError::new(CloudErrorKind::Credentials, why)))?;
        Ok((bearer(&token)?, TOKEN_TTL.saturating_sub(2 * CLOCK_SKEW)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_service_accounts_key_is_refused_by_its_field_and_never_quoted() {
        let key = cloud_simulators::service_account();
        let changed = |field: &str, value: &str| {
            let mut file: serde_json::Value = serde_json::from_str(&key).unwrap();
            file[field] = value.into();
            file.to_string()
        };
        assert_eq!(parse(&key).map(|found| found.project).as_deref(), Ok("simulated"));
        for (text, part) in [
            ("hush".to_owned(), "malformed"),
            (r#"{"type": 5, "x": "hush"}"#.to_owned(), "malformed"),
            (changed("type", "external_account"), "has type \"external_account\""),
            (changed("type", "authorized_user"), "has type \"authorized_user\""),
            (changed("type", "impersonated_service_account"), "has type"),
            (changed("type", "gdch_service_account"), "has type"),
            (changed("universe_domain", "evil.example"), "universe_domain \"evil.example\""),
            (changed("project_id", ""), "no project_id"),
            (changed("project_id", "../hush"), "project_id is no ID"),
            (changed("client_email", ""), "no client_email"),
            (changed("private_key", ""), "no private_key"),
            (changed("private_key", "hush"), "private_key is no RSA key"),
        ] {
            let why = parse(&text).err().unwrap_or_default();
            assert!(why.starts_with(KEY) && why.contains(part) && !why.contains("hush"), "{part}: {why}");
        }
    }
}
