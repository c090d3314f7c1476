//! The webhook's flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::server::Limits;
use ::server::log::Format;
use clap::{Args as ClapArgs, Parser};
use shared::admission::{Exempt, Settings};
use shared::duration::parse_unsigned;
use shared::hive::{admission as hive, exempt};
use shared::kkp::admission as kkp;

use crate::certs::Managed;
use crate::server::LIMITS;

const AFTER_HELP: &str = "\
Examples:
  hibernate-webhook                                             # in a Pod: manages its own certificates
  hibernate-webhook --tls-cert tls.crt --tls-key tls.key        # with files from another source, such as cert-manager

Exit codes: 0 terminated by a signal, 1 error, 2 usage.";

/// Admission webhook: refuses hibernation requests that cannot work, and records who asked and the previous state
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = AFTER_HELP, args_override_self = true)]
pub struct Args {
    /// Address of /validate and /mutate (HTTPS); [::] is every address, and where the kernel has no IPv6 0.0.0.0
    #[arg(long, default_value = "[::]:9443")]
    pub listen: SocketAddr,
    /// Address of /healthz, /readyz and /metrics (plain HTTP); [::] is every address, and where the kernel has no IPv6 0.0.0.0
    #[arg(long, default_value = "[::]:8080")]
    pub listen_plain: SocketAddr,
    /// Platforms whose clusters can be put to sleep
    #[arg(long, value_delimiter = ',', value_name = "PLATFORM", default_values_t = hive::default_settings().served_platforms)]
    pub served_platforms: Vec<String>,
    /// Group whose members are never denied, but for the claims of rollouts; repeatable
    #[arg(long = "exempt-group", value_name = "GROUP", default_values_t = exempt::GROUPS.iter().copied().map(str::to_owned))]
    pub exempt_groups: Vec<String>,
    /// User who is never denied, who writes the claims of rollouts, and who may end the pause of a dehydrated KKP
    /// cluster; repeatable
    #[arg(long = "exempt-user", value_name = "USER", default_values_t = exempt::USERS.iter().copied().map(str::to_owned))]
    pub exempt_users: Vec<String>,
    /// Default minimum suspension for removed process groups of a FoundationDBCluster without the annotation
    /// hibernate.sh/minimum-suspension; 0 turns suspension off
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_unsigned)]
    pub fdb_minimum_suspension: Duration,
    /// Group whose members may delete a dehydrated KKP cluster whose certificates end within a day, as KKP does in the
    /// deletion of a project; repeatable
    #[arg(long, value_name = "GROUP", default_values_t = kkp::DELETERS.iter().copied().map(str::to_owned))]
    pub kkp_deleters: Vec<String>,
    /// CA certificates (PEM file): only clients with a certificate that one of them has signed are served, such as an
    /// API server with a kubeconfig for this webhook; reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// Largest number of HTTPS connections from one client address; without it there is no limit, because API servers
    /// may share an address
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_connections_per_client: Option<u16>,
    /// How long after SIGTERM the ports still serve, while /readyz fails: API servers dial the Pod until they know.
    /// Running requests then have 5s more, all within terminationGracePeriodSeconds
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_unsigned)]
    pub shutdown_delay_duration: Duration,
    /// Where the serving certificate comes from
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// Format of the log lines
    #[arg(long, value_enum, default_value_t)]
    pub log_format: Format,
}

/// Where the serving certificate comes from: files, or else a Secret that the webhook manages itself.
#[derive(Clone, Debug, ClapArgs)]
pub struct CertificateArgs {
    /// Certificate chain (PEM file); reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM file)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Kubeconfig of the hub; without it $KUBECONFIG, then the Pod's service account
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// The webhook as its own authority
    #[command(flatten)]
    pub managed: Managed,
}

impl Args {
    /// Connection limits of the HTTPS port.
    pub fn limits(&self) -> Limits {
        Limits { per_client: self.max_connections_per_client.map(usize::from), ..LIMITS }
    }

    /// What the rules have to know of the flags.
    pub fn settings(&self) -> Settings {
        Settings {
            exempt: Exempt { users: self.exempt_users.clone(), groups: self.exempt_groups.clone() },
            served_platforms: self.served_platforms.clone(),
            minimum_suspension: self.fdb_minimum_suspension,
            deleters: self.kkp_deleters.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_sound_and_their_defaults_are_the_rules_defaults() {
        Args::command().debug_assert();
        let deleters = kkp::DELETERS.iter().copied().map(str::to_owned).collect();
        let of_rules = Settings { deleters, ..hive::default_settings() };
        assert_eq!(Args::parse_from(["hibernate-webhook"]).settings(), of_rules);
    }

    /// What a chart adds at the end overrides what it has at the beginning.
    #[test]
    fn of_a_flag_that_is_given_twice_the_last_one_counts() {
        let twice = ["x", "--listen=[::]:9443", "--listen=127.0.0.1:1", "--exempt-user=a", "--exempt-user=b"];
        let args = Args::parse_from(twice);
        assert_eq!(args.listen, "127.0.0.1:1".parse().unwrap());
        assert_eq!(args.exempt_users, ["a", "b"], "a list is one");
        assert_eq!(Args::parse_from(["x"]).listen, "[::]:9443".parse().unwrap());
    }

    #[test]
    fn lists_replace_their_defaults() {
        let args = Args::parse_from([
            "x",
            "--served-platforms",
            "aws,openstack",
            "--exempt-group",
            "a",
            "--exempt-group",
            "b",
            "--kkp-deleters",
            "c",
        ]);
        let settings = args.settings();
        assert_eq!(settings.served_platforms, ["aws", "openstack"]);
        assert_eq!(settings.exempt.groups, ["a", "b"]);
        assert_eq!(settings.exempt.users, exempt::USERS);
        assert_eq!(settings.deleters, ["c"]);
    }

    #[test]
    fn a_certificate_needs_its_key() {
        assert!(Args::try_parse_from(["x", "--tls-cert", "tls.crt"]).is_err());
        assert!(Args::try_parse_from(["x", "--tls-key", "tls.key"]).is_err());
        assert!(Args::try_parse_from(["x", "--tls-cert", "tls.crt", "--tls-key", "tls.key"]).is_ok());
    }
}
