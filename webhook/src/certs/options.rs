//! What can be set about certificates.

use std::net::IpAddr;
use std::time::Duration;

use shared::annotation::keys;
use shared::duration::parse_positive;

/// How the webhook is its own authority.
#[derive(Clone, Debug, clap::Args)]
pub struct Managed {
    /// Namespace of the Secret and the Service
    #[arg(long, default_value = keys::NAMESPACE)]
    pub namespace: String,
    /// Secret with the webhook's own CA and serving certificate
    #[arg(long = "certificate-secret", value_name = "NAME", default_value = "hibernate-webhook-tls")]
    pub secret: String,
    /// Service whose DNS names go into the certificate
    #[arg(long, value_name = "NAME", default_value = keys::WEBHOOK)]
    pub service: String,
    /// Additional IP address or DNS name for the certificate; repeatable
    #[arg(long = "san", value_name = "IP-OR-DNS")]
    pub sans: Vec<String>,
    /// Name of the webhook configurations, validating and mutating, whose caBundle is kept up to date
    #[arg(long, value_name = "NAME", default_value = keys::WEBHOOK)]
    pub configuration: String,
    /// Lifetimes, for tests
    #[command(flatten)]
    pub timing: Timing,
}

/// Lifetimes and intervals. The flags are hidden: nobody but a test has a reason to change them.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Timing {
    /// Lifetime of a CA; a new one is made when a third of it is left
    #[arg(long = "certificate-authority-lifetime", hide = true, value_parser = parse_positive, default_value = "8760h")]
    pub authority: Duration,
    /// Lifetime of a serving certificate; a new one is made when a third of it is left
    #[arg(long = "certificate-lifetime", hide = true, value_parser = parse_positive, default_value = "720h")]
    pub leaf: Duration,
    /// How often the clock and the files are looked at
    #[arg(long = "certificate-check-interval", hide = true, value_parser = parse_positive, default_value = "30s")]
    pub check: Duration,
}

impl Managed {
    /// Every name that clients may call the webhook by, without repetition.
    pub(super) fn names(&self) -> Vec<String> {
        let Self { service, namespace, .. } = self;
        let dns = ["", ".svc", ".svc.cluster.local"].map(|suffix| format!("{service}.{namespace}{suffix}"));
        let mut names: Vec<String> = Vec::new();
        for name in dns.into_iter().chain(self.sans.iter().map(|name| as_certified(name))) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// A name as [`super::parse::Facts`] reads it from a certificate, where an IP address is its octets. A DNS name keeps
/// its letters.
fn as_certified(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        managed: Managed,
    }

    #[test]
    fn lifetimes_are_hidden() {
        let timing = Flags::try_parse_from(["test"]).unwrap().managed.timing;
        let (authority, leaf) = (Duration::from_hours(365 * 24), Duration::from_hours(30 * 24));
        assert_eq!((timing.authority, timing.leaf, timing.check), (authority, leaf, Duration::from_secs(30)));
        let help = Flags::command().render_long_help().to_string();
        assert!(help.contains("--certificate-secret") && !help.contains("--certificate-lifetime"));
    }

    #[test]
    fn names_are_those_of_the_service_and_the_extra_ones_once() {
        let sans = ["127.0.0.1", "hook.hibernate-system.svc", "FD00::1", "fd00:0:0:0:0:0:0:1", "Hook.Example"];
        let flags = ["test", "--service=hook"].into_iter().map(str::to_owned);
        let flags = flags.chain(sans.map(|name| format!("--san={name}")));
        let managed = Flags::try_parse_from(flags).unwrap().managed;
        assert_eq!(
            managed.names(),
            [
                "hook.hibernate-system",
                "hook.hibernate-system.svc",
                "hook.hibernate-system.svc.cluster.local",
                "127.0.0.1",
                "fd00::1",
                "Hook.Example",
            ]
        );
    }
}
