//! The clouds of this controller. Each is one line in [`clouds!`].

use std::sync::LazyLock;

use cloud_common::{Platform, Process};
use shared::admission::Settings;

use crate::cloud::{Cached, Cloud};

macro_rules! clouds {
    ($($name:ident: $platform:ty,)*) => {
        /// The platforms that drivers of ours serve, as the spec of a cluster spells them.
        pub const PLATFORMS: &[&str] = &[$(<$platform as Platform>::NAME),*];

        /// The API's own name of a call to a platform, if Hive counts calls to it.
        pub fn api_call(platform: &str, call: &'static str) -> Option<&'static str> {
            match platform {
                $(<$platform as Platform>::NAME => <$platform as Platform>::api_call(call),)*
                _ => None,
            }
        }

        /// The flags of every cloud.
        #[derive(Clone, Debug, clap::Args)]
        pub struct CloudFlags {
            $(#[command(flatten)]
            $name: <$platform as Platform>::Flags,)*
        }

        /// Every cloud, ready to connect.
        pub fn clouds(flags: &CloudFlags, process: &Process) -> Vec<Box<dyn Cloud>> {
            vec![$(Box::new(Cached::new(<$platform as Platform>::new(&flags.$name, process)))),*]
        }
    };
}

clouds! {
    aws: aws::Aws,
    azure: azure::Azure,
    gcp: gcp::Gcp,
    ibm: ibm::IbmCloud,
    openstack: openstack::OpenStack,
}

/// The rules about a sleep, as a webhook has them that serves these platforms.
pub static RULES: LazyLock<Settings> = LazyLock::new(|| Settings::serving(PLATFORMS));

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use shared::hive::api::{HIVE_PLATFORMS, SERVED_PLATFORMS};

    /// The same controller with one cloud more.
    mod two {
        use super::super::{Cached, Cloud, Platform, Process};

        clouds! {
            aws: aws::Aws,
            memory: cloud_memory::Memory,
        }
    }

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        clouds: two::CloudFlags,
    }

    /// The webhook, the manifests and `check` name the platforms, and link no driver.
    #[test]
    fn we_serve_what_hive_serves_and_more() {
        assert_eq!(super::PLATFORMS, SERVED_PLATFORMS);
        assert!(HIVE_PLATFORMS.iter().all(|platform| SERVED_PLATFORMS.contains(platform)));
    }

    #[test]
    fn another_cloud_is_one_line() {
        assert_eq!(two::PLATFORMS, ["aws", "memory"]);
        assert_eq!(two::api_call("aws", "list"), Some("DescribeInstances"));
        assert_eq!(two::api_call("memory", "list"), None, "Hive counts calls to AWS only");
        let args = Args::try_parse_from(["c", "--memory-cloud", "a", "--aws-endpoint-url", "http://b"]).unwrap();
        let process = cloud_conformance::process(Arc::new(|| true));
        let names: Vec<_> = two::clouds(&args.clouds, &process).iter().map(|cloud| cloud.name()).collect();
        assert_eq!(names, two::PLATFORMS);
    }
}
