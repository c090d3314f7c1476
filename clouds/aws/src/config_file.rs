//! The `aws_config` key of a Secret: an AWS configuration file of which only what is harmless in our process is taken.
//!
//! A configuration file can name a program to run (`credential_process`), a file to read (`web_identity_token_file`),
//! an address to ask (`credential_source`, `endpoint_url`, `sso_*`). The Secret belongs to a tenant and the process is
//! ours, so the file is never handed to the SDK: it is read here, against a list of what is allowed, and everything
//! else is refused.

use std::collections::BTreeMap;

use aws_sdk_ec2::config::Credentials;

/// Keys that are taken.
const ALLOWED_KEYS: &[&str] = &[
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "external_id",
    "role_arn",
    "role_session_name",
    "source_profile",
];
/// Keys that are accepted and ignored: the region comes from the cluster, and nothing reads the output format.
const IGNORED_KEYS: &[&str] = &["output", "region", "sts_regional_endpoints"];

/// How many profiles may build on one another.
const MAX_CHAIN: usize = 5;

/// A role to assume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Role {
    /// ARN.
    pub arn: String,
    /// External ID, if the role asks for one.
    pub external_id: Option<String>,
    /// Session name, if the file sets one.
    pub session_name: Option<String>,
}

type Profile = BTreeMap<String, String>;

/// Reads the static keys at the root of the profile `default`, and the roles to assume one after the other.
///
/// # Errors
/// Why the file is refused.
pub fn read(text: &str) -> Result<(Credentials, Vec<Role>), String> {
    let profiles = parse(text)?;
    let (mut roles, mut passed) = (Vec::new(), Vec::new());
    let mut name = "default".to_owned();
    for _ in 0..MAX_CHAIN {
        let profile = profiles.get(&name).ok_or_else(|| format!("aws_config: profile {name} is not in this Secret"))?;
        let get = |key: &str| profile.get(key).filter(|value| !value.is_empty()).cloned();
        if let Some(arn) = get("role_arn") {
            roles.insert(0, Role { arn, external_id: get("external_id"), session_name: get("role_session_name") });
            if let Some(source) = get("source_profile").filter(|source| *source != name) {
                passed.push(name);
                if passed.contains(&source) {
                    return Err(format!("aws_config: source_profile of {source} is a cycle"));
                }
                name = source;
                continue;
            }
        }
        let (Some(id), Some(secret)) = (get("aws_access_key_id"), get("aws_secret_access_key")) else {
            let lacks = "neither aws_access_key_id and aws_secret_access_key nor role_arn and source_profile";
            return Err(format!("aws_config: profile {name} has {lacks}"));
        };
        let keys = Credentials::new(id, secret, get("aws_session_token"), None, "Secret");
        return Ok((keys, roles));
    }
    Err(format!("aws_config: source_profile of default leads through more than {MAX_CHAIN} profiles"))
}

fn parse(text: &str) -> Result<BTreeMap<String, Profile>, String> {
    let mut profiles: BTreeMap<String, Profile> = BTreeMap::new();
    let mut current = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let malformed = || format!("aws_config line {number}: expected `[profile]` or `key = value`");
        if let Some(section) = line.strip_prefix('[') {
            let section = section.split_once(']').ok_or_else(malformed)?.0.trim();
            let name = section.strip_prefix("profile ").map_or(section, str::trim);
            profiles.entry(name.to_owned()).or_default();
            current = Some(name.to_owned());
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(malformed)?;
        let key = key.trim().to_ascii_lowercase();
        if IGNORED_KEYS.contains(&key.as_str()) {
            continue;
        }
        if !ALLOWED_KEYS.contains(&key.as_str()) {
            let right = "the controller accepts only static keys, role_arn, external_id and source_profile";
            return Err(format!("aws_config line {number}: {} is not supported: {right}", printable(&key)));
        }
        let profile = current.as_ref().and_then(|name| profiles.get_mut(name)).ok_or_else(malformed)?;
        profile.insert(key, value.trim().to_owned());
    }
    Ok(profiles)
}

/// A key that is one. The rest of a value that was broken into two lines is not repeated: it may be part of a secret.
fn printable(key: &str) -> String {
    let known = key.len() <= 40 && key.contains('_') && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    if known { key.to_owned() } else { "this key".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "aws_access_key_id = AKIA\naws_secret_access_key = hush\n";

    #[test]
    fn fuzz_aws_config() {
        let chain = format!(
            "[default]\nrole_arn = arn:c\nexternal_id = x\nsource_profile = mid\n\
             [profile mid]\nrole_arn = arn:b\nsource_profile = root\n[profile root]\n{KEYS}"
        );
        let plain = format!("# mine\n[default]\nregion = us-east-1\n{KEYS}");
        ::fuzz::run("aws_config", &[chain.as_bytes(), plain.as_bytes()], |bytes| {
            std::str::from_utf8(bytes).is_ok_and(|text| read(text).is_ok())
        });
    }

    #[test]
    fn takes_static_keys_of_the_default_profile() {
        let (keys, roles) = read(&format!("# mine\n[default]\nregion = us-east-1\n{KEYS}")).unwrap();
        assert_eq!((keys.access_key_id(), roles.len()), ("AKIA", 0));
    }

    #[test]
    fn follows_source_profiles_inside_the_secret() {
        let text = format!(
            "[default]\nrole_arn = arn:c\nexternal_id = x\nsource_profile = mid\n\
             [profile mid]\nrole_arn = arn:b\nsource_profile = root\n[profile root]\n{KEYS}"
        );
        let (_, roles) = read(&text).unwrap();
        assert_eq!(roles.iter().map(|role| role.arn.as_str()).collect::<Vec<_>>(), ["arn:b", "arn:c"]);
        assert_eq!(roles[1].external_id.as_deref(), Some("x"));
    }

    #[test]
    fn refuses_what_runs_code_or_reads_files() {
        for key in [
            "credential_process",
            "credential_source",
            "web_identity_token_file",
            "sso_start_url",
            "sso_session",
            "ca_bundle",
            "endpoint_url",
            "services",
            "mfa_serial",
            "login_session",
            "  credential_process",
            "Credential_Process",
            "s3",
        ] {
            let text = format!("[default]\n{KEYS}{key} = /bin/sh\n");
            let error = read(&text).unwrap_err();
            assert!(
                error.starts_with("aws_config line 4: ") && error.contains(" is not supported: "),
                "{key}: {error}"
            );
        }
    }

    #[test]
    fn refuses_what_leads_nowhere() {
        let empty = "aws_config: profile default has neither aws_access_key_id and aws_secret_access_key nor role_arn and source_profile";
        for (text, error) in [
            ("", "aws_config: profile default is not in this Secret"),
            ("[default]\n", empty),
            ("[default]\naws_access_key_id = A\n", empty),
            ("[default]\nrole_arn = a\nsource_profile = b\n", "aws_config: profile b is not in this Secret"),
            ("[default\n", "aws_config line 1: expected `[profile]` or `key = value`"),
            ("aws_access_key_id = A\n", "aws_config line 1: expected `[profile]` or `key = value`"),
            ("[default]\nnonsense\n", "aws_config line 2: expected `[profile]` or `key = value`"),
            (
                "[default]\nrole_arn = a\nsource_profile = b\n[b]\nrole_arn = b\nsource_profile = default\n",
                "aws_config: source_profile of default is a cycle",
            ),
            (
                "[default]\nrole_arn = a\nsource_profile = b\n[b]\nrole_arn = b\nsource_profile = c\n\
                 [c]\nrole_arn = c\nsource_profile = b\n",
                "aws_config: source_profile of b is a cycle",
            ),
        ] {
            assert_eq!(read(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_chain_of_too_many_profiles_is_not_called_a_cycle() {
        let chain = |profiles: usize| {
            let role = |at: usize| format!("[p{at}]\nrole_arn = arn:{at}\nsource_profile = p{}\n", at + 1);
            let roles: Vec<String> = (1..profiles).map(role).collect();
            format!("{}[p{profiles}]\n{KEYS}", roles.concat()).replacen("[p1]", "[default]", 1)
        };
        assert_eq!(read(&chain(MAX_CHAIN)).map(|(_, roles)| roles.len()), Ok(MAX_CHAIN - 1));
        let error = "aws_config: source_profile of default leads through more than 5 profiles".to_owned();
        assert_eq!(read(&chain(MAX_CHAIN + 1)).map(|(_, roles)| roles.len()), Err(error));
    }
}
