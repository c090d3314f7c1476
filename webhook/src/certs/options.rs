//! What can be set about certificates.

use std::time::Duration;

use shared::duration;

/// How the webhook is its own authority.
#[derive(Clone, Debug)]
pub struct Managed {
    /// Namespace of the Secret and the Service.
    pub namespace: String,
    /// Secret with CA and leaf.
    pub secret: String,
    /// Service whose DNS names the leaf is for.
    pub service: String,
    /// More DNS names and IP addresses that the leaf is for.
    pub sans: Vec<String>,
    /// Name of the Validating- and the `MutatingWebhookConfiguration` whose caBundle is kept.
    pub configuration: String,
    /// Lifetimes.
    pub timing: Timing,
}

/// Lifetimes and intervals. The flags are hidden: nobody but a test has a reason to change them.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Timing {
    /// Lifetime of a CA; a new one is made when a third of it is left
    #[arg(long = "certificate-authority-lifetime", hide = true, value_parser = go_duration, default_value = "8760h")]
    pub authority: Duration,
    /// Lifetime of a serving certificate; a new one is made when a third of it is left
    #[arg(long = "certificate-lifetime", hide = true, value_parser = go_duration, default_value = "720h")]
    pub leaf: Duration,
    /// How often the clock and the files are looked at
    #[arg(long = "certificate-check-interval", hide = true, value_parser = go_duration, default_value = "30s")]
    pub check: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            authority: Duration::from_hours(365 * 24),
            leaf: Duration::from_hours(30 * 24),
            check: Duration::from_secs(30),
        }
    }
}

fn go_duration(text: &str) -> Result<Duration, duration::DurationError> {
    duration::parse_positive(text)
}

impl Managed {
    /// Every name that clients may call the webhook by, without repetition.
    pub(super) fn names(&self) -> Vec<String> {
        let Self { service, namespace, .. } = self;
        let dns = ["", ".svc", ".svc.cluster.local"].map(|suffix| format!("{service}.{namespace}{suffix}"));
        let mut names: Vec<String> = Vec::new();
        for name in dns.into_iter().chain(self.sans.iter().cloned()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        timing: Timing,
    }

    #[test]
    fn flags_and_default_agree_and_are_hidden() {
        let parsed = Flags::try_parse_from(["test"]).unwrap().timing;
        let default = Timing::default();
        assert_eq!((parsed.authority, parsed.leaf, parsed.check), (default.authority, default.leaf, default.check));
        assert!(!Flags::command().render_long_help().to_string().contains("certificate"));
    }

    #[test]
    fn names_are_those_of_the_service_and_the_extra_ones_once() {
        let managed = Managed {
            namespace: "hibernate-system".to_owned(),
            secret: String::new(),
            service: "hook".to_owned(),
            sans: vec!["127.0.0.1".to_owned(), "hook.hibernate-system.svc".to_owned()],
            configuration: String::new(),
            timing: Timing::default(),
        };
        assert_eq!(
            managed.names(),
            [
                "hook.hibernate-system",
                "hook.hibernate-system.svc",
                "hook.hibernate-system.svc.cluster.local",
                "127.0.0.1"
            ]
        );
    }
}
