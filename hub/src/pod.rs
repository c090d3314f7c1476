//! The hub in which the program runs as a Pod, by the Pod's service account.

use std::{env, fs};

use kube::Config;

use crate::connection::Connection;
use crate::error::ConfigError;
use crate::login::apply_user_flags;

/// Whether it is meant: we are in a Pod, and nothing is named that only a kubeconfig has.
pub fn is_meant(args: &Connection) -> bool {
    env::var_os("KUBERNETES_SERVICE_HOST").is_some() && !names_kubeconfig(args)
}

fn names_kubeconfig(args: &Connection) -> bool {
    args.context.is_some() || args.cluster.is_some() || args.user.is_some()
}

/// What the Pod's service account says, with the flags' changes. Not `--server`: as in kubectl, another server is not
/// shown the service account's token.
///
/// # Errors
/// When there is no service account, or the flags name a certificate authority that cannot be read.
pub fn config(args: &Connection) -> Result<Config, ConfigError> {
    let mut config = Config::incluster().map_err(ConfigError::InCluster)?;
    apply(&mut config, args)?;
    Ok(config)
}

fn apply(config: &mut Config, args: &Connection) -> Result<(), ConfigError> {
    apply_user_flags(&mut config.auth_info, args);
    if let Some(path) = &args.certificate_authority {
        // kube reads it too, but would not say which file it cannot read.
        fs::read(path).map_err(|source| ConfigError::Authority { path: path.clone(), source })?;
        config.root_cert_file = Some(path.clone());
    }
    config.accept_invalid_certs |= args.insecure_skip_tls_verify;
    config.tls_server_name = args.tls_server_name.clone().or(config.tls_server_name.take());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_pod(args: &Connection) -> Result<Config, ConfigError> {
        let mut config = Config::new("https://10.0.0.1".parse().unwrap());
        config.auth_info.token_file = Some("/pod/token".to_owned());
        config.root_cert_file = Some("/pod/ca.crt".into());
        apply(&mut config, args).map(|()| config)
    }

    #[test]
    fn what_only_a_kubeconfig_has_is_not_looked_for_in_a_pod() {
        let name = || Some("x".to_owned());
        for (args, named) in [
            (Connection::default(), false),
            (Connection { token: name(), namespace: name(), ..Connection::default() }, false),
            (Connection { context: name(), ..Connection::default() }, true),
            (Connection { cluster: name(), ..Connection::default() }, true),
            (Connection { user: name(), ..Connection::default() }, true),
        ] {
            assert_eq!(names_kubeconfig(&args), named, "{args:?}");
        }
    }

    #[test]
    fn flags_go_before_the_service_account() {
        let config = in_pod(&Connection::default()).unwrap();
        assert_eq!(config.auth_info.token_file.as_deref(), Some("/pod/token"));
        let args = Connection { token: Some("t".into()), tls_server_name: Some("hub".into()), ..Connection::default() };
        let config = in_pod(&args).unwrap();
        assert_eq!((config.auth_info.token.is_some(), config.auth_info.token_file), (true, None));
        assert_eq!(config.tls_server_name.as_deref(), Some("hub"));
        assert!(!config.accept_invalid_certs);
        let config = in_pod(&Connection { insecure_skip_tls_verify: true, ..Connection::default() }).unwrap();
        assert!(config.accept_invalid_certs);
    }

    #[test]
    fn an_authority_by_flag_must_be_there() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("ca.crt");
        let args = Connection { certificate_authority: Some(path.clone()), ..Connection::default() };
        let error = in_pod(&args).unwrap_err().to_string();
        assert!(error.contains("--certificate-authority") && error.contains("ca.crt"), "{error}");
        fs::write(&path, "").unwrap();
        assert_eq!(in_pod(&args).unwrap().root_cert_file, Some(path));
    }
}
