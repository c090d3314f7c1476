//! What a denial says: which group, since when, until when, and the ways out.

use super::known::Cluster;
use super::object::{Deleted, Kind};
use crate::annotation::{format, keys};
use crate::fdb::suspension::{Minimum, Stamp, Suspension};
use crate::text::quoted;

/// The cache is stale (S4).
pub(super) fn stale(kind: Kind, object: &Deleted, stamp: &Stamp, why: &str) -> String {
    let owner = object.owners().next().map(|owner| owner.name.as_str()).unwrap_or_default();
    let held = stamp.record.as_ref().map(|record| {
        let until = until(stamp, &Minimum::Off).unwrap_or_default();
        format!(" (process group {} is suspended{}{until})", record.group, since(stamp))
    });
    format!(
        "denied, because the webhook does not know whether FoundationDBCluster {owner} suspends removed process groups{}: {why}. \
         The next attempt is evaluated again; {}",
        held.unwrap_or_default(),
        key(kind, object)
    )
}

/// What decides cannot be read: a field, or the cluster.
pub(super) fn undecided(kind: Kind, object: &Deleted, fields: &str) -> String {
    format!("denied, because it cannot be told whether it is kept: {fields}; {}", key(kind, object))
}

/// ` since ...`, if that can be read.
fn since(stamp: &Stamp) -> String {
    stamp.since.map(|since| format!(" since {}", format::seconds(since))).unwrap_or_default()
}

/// ` until ... at least`, if there is an end.
fn until(stamp: &Stamp, in_force: &Minimum) -> Option<String> {
    stamp.until(in_force).map(|until| format!(" until {} at least", format::seconds(until)))
}

/// The human's way out.
fn key(kind: Kind, object: &Deleted) -> String {
    format!("to delete it anyway: {}", unlock(kind, object))
}

/// The command that sets the key.
fn unlock(kind: Kind, object: &Deleted) -> String {
    let meta = &object.metadata;
    let (name, namespace, uid) = (quoted(&meta.name), quoted(&meta.namespace), quoted(&meta.uid));
    format!("kubectl annotate {} {name} -n {namespace} {}={uid} --overwrite", kind.resource(), keys::RELEASE)
}

/// What is held, and of which cluster.
pub(super) struct Held<'a> {
    pub(super) kind: Kind,
    pub(super) object: &'a Deleted,
    pub(super) cluster: &'a Cluster,
    pub(super) group: Option<&'a str>,
}

impl Held<'_> {
    /// Its group is being brought back (S10).
    pub(super) fn recovering(&self, stamp: &Stamp) -> String {
        let until = until(stamp, &self.cluster.minimum).unwrap_or_default();
        let Cluster { namespace, name, .. } = self.cluster;
        let again = self.group.map(quoted).map(|group| {
            format!(
                "if there is no progress: kubectl hibernate recover process-groups -n {namespace} -c {name} {group}; "
            )
        });
        let (subject, since, again, key) =
            (self.subject(), since(stamp), again.unwrap_or_default(), key(self.kind, self.object));
        format!("{subject} is being recovered{since}, and kept{until}; {again}{key}")
    }

    /// The release is for another removal than the present one (S12).
    pub(super) fn released_for_another(&self, stamp: &Stamp, record: &Suspension, removal: Option<&str>) -> String {
        let recorded = record.removal.as_deref().unwrap_or("none");
        let found = match removal {
            Some(removal) => format!("the group was marked again at {removal}"),
            None => "the group is not marked for removal".to_owned(),
        };
        let (subject, since, ways_out) = (self.subject(), since(stamp), self.ways_out());
        format!(
            "{subject} is kept: it was held{since} and released for the removal of {recorded}, but {found}, and the controller holds it \
             anew once the group's Pod is deleted; {ways_out}"
        )
    }

    /// The window runs, or its end has not been acted on yet (S13).
    pub(super) fn stamped(&self, stamp: &Stamp) -> String {
        let since = stamp.since.map_or("a time that cannot be read".to_owned(), format::seconds);
        let until = until(stamp, &self.cluster.minimum).unwrap_or_else(|| match &self.cluster.minimum {
            Minimum::Unreadable(text) => {
                format!(" without end, because {} of the cluster is {text:?}", keys::MINIMUM_SUSPENSION)
            }
            _ => " without end, because its stamp cannot be read".to_owned(),
        });
        format!("{} has been suspended since {since},{until}; {}", self.subject(), self.ways_out())
    }

    /// The controller has not stamped it (S14).
    pub(super) fn unstamped(&self) -> String {
        let (subject, word, ways_out, key) = (self.subject(), self.word(), self.ways_out(), keys::MINIMUM_SUSPENSION);
        if self.in_use().is_some() {
            return format!("{subject} is not marked for removal: this {word} is in use and not released; {ways_out}");
        }
        let released = match &self.cluster.minimum {
            Minimum::Unreadable(text) => {
                format!("the controller keeps them until {key} ({text:?} is not a duration) is corrected")
            }
            minimum => format!("the controller releases them {} after the deletion of the group's Pod", minimum.text()),
        };
        format!("{subject} is not released: volume and Service of a removed group are kept; {released}; {ways_out}")
    }

    fn subject(&self) -> String {
        let Cluster { namespace, name, .. } = self.cluster;
        match self.group {
            Some(group) => format!("process group {group} of FoundationDBCluster {namespace}/{name}"),
            None => format!("a volume of FoundationDBCluster {namespace}/{name} that names no process group"),
        }
    }

    /// The group, if the status lists it without a removal mark: it is not being removed.
    fn in_use(&self) -> Option<&str> {
        self.group.filter(|group| self.cluster.removal_of(group) == Some(None))
    }

    fn word(&self) -> &'static str {
        match self.kind {
            Kind::Pvc => "volume",
            Kind::Service => "Service",
        }
    }

    /// The group's Pod, by which `kubectl fdb` knows it: the Service has its name, and the volume begins with it.
    fn pod(&self) -> &str {
        let name = self.object.metadata.name.as_str();
        match self.kind {
            Kind::Pvc => name.strip_suffix("-data").unwrap_or("POD"),
            Kind::Service => name,
        }
    }

    fn ways_out(&self) -> String {
        let Cluster { namespace, name, .. } = self.cluster;
        if let Some(group) = self.in_use() {
            let (pod, word, unlock) = (quoted(self.pod()), self.word(), unlock(self.kind, self.object));
            return format!(
                "to remove the group: kubectl fdb remove process-groups -n {namespace} -c {name} {pod} (or add {group} to \
                 spec.processGroupsToRemove); only to delete a {word} that is in use: {unlock}"
            );
        }
        let back = self.group.map(quoted).map(|group| {
            format!(
                "to bring the group back: kubectl hibernate recover process-groups -n {namespace} -c {name} {group}; "
            )
        });
        format!("{}{}", back.unwrap_or_default(), key(self.kind, self.object))
    }
}
