//! An object of a policy, of any kind: what an upgrade reads of it.

use serde::de::IgnoredAny;

use crate::read::lenient_types;

lenient_types! {
    /// A name.
    Name {
        ;
        /// The name.
        name,
        /// The namespace.
        namespace,
    }

    /// An object of a policy, of any kind.
    TemplateObject {
        /// Name and namespace.
        metadata: Name,
        /// Whether it has a status.
        status: Option<IgnoredAny>,
        /// What it is to be.
        spec: Option<ObjectSpec>,
        ;
        /// Its kind.
        kind,
        /// Group and version.
        api_version,
    }

    /// The spec of such an object: a Subscription, a `CatalogSource` or a `ClusterVersion`.
    ObjectSpec {
        /// The release.
        desired_update: DesiredUpdate,
        ;
        /// Package of a Subscription.
        name,
        /// Channel of either.
        channel,
        /// Image of a catalog.
        image,
        /// URL of the update graph.
        upstream,
    }

    /// The release of a `ClusterVersion`.
    DesiredUpdate {
        ;
        /// Its version.
        version,
        /// Its image.
        image,
    }
}
