//! Credentials of an AWS account from the data of a Secret.

use std::collections::BTreeMap;

use aws_config::SdkConfig;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::sts::AssumeRoleProvider;
use aws_sdk_ec2::config::{Credentials, SharedCredentialsProvider};
use cloud_common::{MAX_CREDENTIALS, account_word, digest};

use crate::config_file::{self, Role};

/// The error for a Secret without credentials.
const NEEDS: &str = "the Secret needs aws_access_key_id and aws_secret_access_key, or aws_config";

/// Where credentials come from. Two that are equal open the same account in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Keys, or `None` for what this process itself may do.
    keys: Option<Credentials>,
    /// Roles, the first to be assumed first.
    roles: Vec<Role>,
}

impl Source {
    /// Reads `aws_config` if it is there, otherwise `aws_access_key_id` and `aws_secret_access_key`.
    ///
    /// # Errors
    /// Why a Secret gives no credentials.
    pub(crate) fn read(secret: &BTreeMap<String, Vec<u8>>) -> Result<Self, String> {
        let text = |key: &str| match secret.get(key).map(|value| str::from_utf8(value)) {
            None => Ok(None),
            Some(Ok(text)) if text.len() <= MAX_CREDENTIALS => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(format!("{key} is not text of at most {} KiB", MAX_CREDENTIALS >> 10)),
        };
        if let Some(file) = text("aws_config")? {
            let (keys, roles) = config_file::read(file)?;
            return Ok(Self { keys: Some(keys), roles });
        }
        let need = |key| text(key)?.ok_or_else(|| format!("{key} is missing or empty; {NEEDS}"));
        let (id, secret) = (need("aws_access_key_id")?, need("aws_secret_access_key")?);
        Ok(Self { keys: Some(Credentials::new(id, secret, None, None, "Secret")), roles: Vec::new() })
    }

    /// The credentials of this process: its environment, its role, its machine's role.
    pub(crate) fn process() -> Self {
        Self { keys: None, roles: Vec::new() }
    }

    /// The same, and then this role.
    pub(crate) fn assume(mut self, arn: &str, external_id: Option<&str>) -> Self {
        self.roles.push(Role {
            arn: arn.to_owned(),
            external_id: external_id.filter(|id| !id.is_empty()).map(str::to_owned),
            session_name: None,
        });
        self
    }

    /// What tells it from others, in a region.
    pub(crate) fn digest(&self, region: &str) -> [u8; 32] {
        let keys = self.keys.as_ref();
        let keys = keys.map(|keys| (keys.access_key_id(), keys.secret_access_key(), keys.session_token()));
        digest(&(region, keys, &self.roles))
    }

    /// The roles that are assumed, the first one first.
    pub(crate) fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.iter().map(|role| role.arn.as_str())
    }

    /// An opaque word for the account that these credentials open: the one that the last role is of, otherwise the one
    /// of the access key. A hash, because an access key ID is nobody else's business. Two keys of one account are two
    /// words: EC2 alone knows better.
    pub(crate) fn account(&self) -> String {
        let known = match self.roles.last() {
            Some(Role { arn, .. }) => format!("role {}", arn.split(':').nth(4).unwrap_or(arn)),
            None => format!("key {}", self.keys.as_ref().map_or("", |keys| keys.access_key_id())),
        };
        account_word(&known)
    }

    /// A provider that assumes the roles one after the other, and again before they expire.
    pub(crate) async fn provider(self, base: &SdkConfig) -> SharedCredentialsProvider {
        let mut provider = if let Some(keys) = self.keys {
            SharedCredentialsProvider::new(keys)
        } else {
            let chain = DefaultCredentialsChain::builder().region(base.region().cloned()).build().await;
            SharedCredentialsProvider::new(chain)
        };
        for role in self.roles {
            let session = role.session_name.unwrap_or_else(|| "hibernate-controller".to_owned());
            let mut builder = AssumeRoleProvider::builder(role.arn).session_name(session).configure(base);
            if let Some(id) = role.external_id {
                builder = builder.external_id(id);
            }
            provider = SharedCredentialsProvider::new(builder.build_from_provider(provider).await);
        }
        provider
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &[u8])]) -> Result<Source, String> {
        Source::read(&entries.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect())
    }

    #[test]
    fn takes_static_keys_with_a_stray_newline() {
        let source = read(&[("aws_access_key_id", b"AKIA\n"), ("aws_secret_access_key", b"hush")]).unwrap();
        assert_eq!(source.keys.unwrap().access_key_id(), "AKIA");
    }

    #[test]
    fn only_the_same_content_is_the_same_source() {
        let keys = |id: &str, secret: &str| {
            read(&[("aws_access_key_id", id.as_bytes()), ("aws_secret_access_key", secret.as_bytes())]).unwrap()
        };
        let role = |external_id| keys("AKIA", "hush").assume("arn:a", external_id);
        let of = |source: &Source| source.digest("us-east-1");
        assert_eq!(of(&keys("AKIA", "hush")), of(&keys("AKIA", "hush")));
        assert_ne!(of(&keys("AKIA", "hush")), keys("AKIA", "hush").digest("eu-west-1"));
        assert_eq!(of(&role(Some("x"))), of(&role(Some("x"))));
        assert_eq!(of(&role(Some(""))), of(&role(None)));
        for other in [
            keys("AKIA", "guess"),
            keys("AKIB", "hush"),
            role(None),
            role(Some("x")),
            Source::process(),
            keys("AKIA", "hush").assume("arn:b", None),
        ] {
            assert_ne!(of(&keys("AKIA", "hush")), of(&other));
            assert_ne!(of(&Source::process().assume("arn:a", None)), of(&other));
        }
        assert_ne!(of(&role(Some("x"))), of(&role(Some("y"))));
        assert_ne!(of(&role(Some("x"))), of(&role(None)));
    }

    #[test]
    fn an_account_is_known_by_its_key_or_by_its_role_and_never_named() {
        let keys = |id: &str, secret: &str| {
            read(&[("aws_access_key_id", id.as_bytes()), ("aws_secret_access_key", secret.as_bytes())]).unwrap()
        };
        let role = |id: &str, arn: &str| keys(id, "hush").assume(arn, None).account();
        let own = keys("AKIA0123456789ABCDEF", "hush").account();
        assert_eq!(own.len(), 16);
        assert!(own.chars().all(|c| c.is_ascii_hexdigit()) && !own.contains("AKIA"), "{own}");
        assert_eq!(own, keys("AKIA0123456789ABCDEF", "other").account(), "copies of a Secret are one account");
        assert_ne!(own, keys("AKIA0123456789ABCDEG", "hush").account());
        assert_ne!(own, Source::process().account());
        let (one, another) = ("arn:aws:iam::100000000042:role/a", "arn:aws:iam::100000000043:role/a");
        assert_eq!(role("A", one), role("B", "arn:aws:iam::100000000042:role/path/b"), "one account, whoever assumes");
        assert_ne!(role("A", one), role("A", another));
        assert_ne!(role("A", one), keys("100000000042", "hush").account());
        assert_eq!(role("A", "nonsense").len(), 16);
    }

    #[test]
    fn names_what_is_wrong() {
        assert_eq!(read(&[]).unwrap_err(), format!("aws_access_key_id is missing or empty; {NEEDS}"));
        let half: &[(&str, &[u8])] = &[("aws_access_key_id", b"AKIA"), ("aws_secret_access_key", b" ")];
        assert_eq!(read(half).unwrap_err(), format!("aws_secret_access_key is missing or empty; {NEEDS}"));
        assert_eq!(read(&[("aws_config", b"\xff")]).unwrap_err(), "aws_config is not text of at most 64 KiB");
        let long = vec![b'x'; MAX_CREDENTIALS + 1];
        for key in ["aws_config", "aws_access_key_id"] {
            let error = read(&[(key, &long), ("aws_secret_access_key", b"hush")]).unwrap_err();
            assert_eq!(error, format!("{key} is not text of at most 64 KiB"));
        }
    }
}
