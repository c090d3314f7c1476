//! OpenStack as the controller registers it: its Secrets, and its part of a cluster's spec.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;
use cloud_common::{Access, Platform, Pool, Process, SecretData, credentials_secret};
use cloud_recreate::Planner;
use shared::annotation::keys;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver, PlatformSpec};
use shared::duration::parse_positive;
use shared::power::Power;
use shared::text::sanitize_to;

use crate::account::Account;
use crate::clouds_yaml;
use crate::modes::{Mode, Modes};

/// What is not in `clouds.yaml`.
#[derive(Clone, Debug, clap::Args)]
pub struct OpenStackFlags {
    /// How clusters on OpenStack sleep that have no annotation hibernate.sh/openstack-mode
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    openstack_mode: Mode,
    /// Accept OpenStack clouds whose URL is http: passwords and tokens are sent without TLS
    #[arg(long)]
    pub openstack_allow_http: bool,
    /// How long a snapshot of a server may take: then it is tried once more, and after that the sleep is given up
    #[arg(long, default_value = "20m", value_name = "DURATION", value_parser = parse_positive)]
    openstack_image_deadline: Duration,
}

/// The platform `openstack`.
pub struct OpenStack {
    process: Process,
    flags: OpenStackFlags,
    pool: Pool<Planner<crate::driver::Driver>>,
}

/// The entry of `clouds.yaml`, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    cloud: String,
    namespace: String,
    mode: Mode,
}

impl Platform for OpenStack {
    const NAME: &'static str = "openstack";
    type Flags = OpenStackFlags;
    type Account = Entry;

    fn new(flags: &OpenStackFlags, process: &Process) -> Self {
        Self { process: process.clone(), flags: flags.clone(), pool: Pool::default() }
    }

    fn access(&self, cluster: &ClusterRef) -> Result<Access<Entry>, CloudError> {
        let mut secrets = vec![credentials_secret(Self::NAME, cluster)?];
        let namespace = cluster.namespace.clone();
        let (cloud, certificates, mode) = match &cluster.platform {
            PlatformSpec::OpenStack { cloud, certificates, mode, .. } if !cloud.is_empty() => {
                (cloud.clone(), certificates, mode.as_deref())
            }
            _ => return Err(CloudError::new(CloudErrorKind::Credentials, "spec.platform.openstack.cloud is empty")),
        };
        if !certificates.is_empty() {
            secrets.push((namespace.clone(), certificates.clone()));
        }
        Ok(Access { secrets, account: Entry { cloud, namespace, mode: self.mode(mode, cluster.desired)? } })
    }

    async fn connect(&self, account: &Entry, secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        let planner = self.driver(account, secrets)?;
        Ok(Arc::new(Modes { planner, mode: account.mode }) as Arc<dyn Driver>)
    }
}

impl OpenStack {
    /// How a cluster sleeps next. A word that is none is no reason not to wake it.
    fn mode(&self, word: Option<&str>, desired: Power) -> Result<Mode, CloudError> {
        let Some(word) = word else { return Ok(self.flags.openstack_mode) };
        match Mode::from_str(word, false) {
            Ok(mode) => Ok(mode),
            Err(_) if desired == Power::Running => Ok(self.flags.openstack_mode),
            Err(_) => {
                let word = sanitize_to(word, 40);
                let message =
                    format!("annotation {} is {word:?}: it has to be snapshot or shelve", keys::OPENSTACK_MODE);
                Err(CloudError::new(CloudErrorKind::Invalid, message))
            }
        }
    }

    fn driver(&self, entry: &Entry, secrets: &[SecretData]) -> Result<Arc<Planner<crate::driver::Driver>>, String> {
        let credentials = secrets.first().ok_or("there is no Secret")?;
        let cloud = clouds_yaml::parse(credentials, &entry.cloud, secrets.get(1))?;
        if cloud.keystone.scheme() != "https" && !self.flags.openstack_allow_http {
            let right = "write https://HOST[:PORT][/PATH], or have the controller run with --openstack-allow-http";
            return Err(format!("clouds.yaml: clouds.{}.auth.auth_url is http: {right}", entry.cloud));
        }
        self.pool.get(cloud, |cloud| {
            let region = cloud.region.as_deref().map_or_else(|| "-".to_owned(), |region| sanitize_to(region, 40));
            let domain = format!("openstack/{region}/{}", cloud.word()).into();
            let account = Account::new(cloud, self.process.clone(), entry.namespace.as_str().into())?;
            Ok(Planner::new(crate::driver::Driver::new(account, domain), self.flags.openstack_image_deadline))
        })
    }
}

#[cfg(test)]
mod tests {
    use cloud_common::{Dialer, MemoryLimit};

    use super::*;

    #[test]
    fn passwords_are_sent_without_tls_only_if_the_operator_allows_it() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (dialer, memory) = (Dialer::default(), MemoryLimit::default());
        let process = Process { identity: "test".to_owned(), permit: Arc::new(|| true), dialer, memory };
        let entry = Entry { cloud: "c".to_owned(), namespace: "ns".to_owned(), mode: Mode::default() };
        for (scheme, openstack_allow_http, refused) in
            [("https", false, false), ("https", true, false), ("http", true, false), ("http", false, true)]
        {
            let auth = format!("auth_url: '{scheme}://k:5000', user_id: u, password: hush, project_id: p");
            let file = format!("clouds: {{c: {{auth: {{{auth}}}}}}}").into_bytes();
            let openstack_image_deadline = Duration::from_hours(2);
            let openstack_mode = Mode::default();
            let flags = OpenStackFlags { openstack_mode, openstack_allow_http, openstack_image_deadline };
            let secrets = [SecretData::from([("clouds.yaml".to_owned(), file)])];
            let found = OpenStack::new(&flags, &process).driver(&entry, &secrets);
            let deadline = found.as_ref().map(|planner| planner.image_deadline);
            assert_eq!(deadline.ok(), (!refused).then_some(openstack_image_deadline), "{scheme}");
            assert!(found.err().is_none_or(|why| why.contains("clouds.c.auth.auth_url is http: write https://")));
        }
    }
}
