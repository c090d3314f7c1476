//! The clouds of this controller. Each is one line in [`clouds!`].

use cloud_common::{Platform, Process};

use crate::hive::drivers::{Cached, Cloud};

macro_rules! clouds {
    ($($name:ident: $platform:ty,)*) => {
        /// The platforms that drivers of ours serve, as the spec of a cluster spells them.
        pub const PLATFORMS: &[&str] = &[$(<$platform as Platform>::NAME),*];

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
}
