//! Whose pause a Cluster has: ours is written with its reason and with the sleep that it is of.

use super::api::Cluster;
use super::keys::{CERTIFICATES_EXPIRE_AT, PAUSED_BY_SLEEP, PAUSED_BY_US, TO_UNPAUSE};
use super::phase::Phase;
use super::record::Record;
use crate::text::sanitize;

/// Whether a sleep of ours paused the cluster: the pause has our reason and names the sleep of this record. Without a
/// record, or with a rebuilt one, only the UID of the Cluster can be compared. False once another client has ended the
/// pause of this sleep.
///
/// A record that was restored with its Cluster and corrected since has another UID than the name, and the same time.
pub fn is_paused_by_us(cluster: &Cluster, record: Option<&Record>) -> bool {
    let Some((uid, since)) = named_sleep(cluster) else { return false };
    match record {
        Some(record) if record.woken.is_some() => false,
        Some(record) if !record.rebuilt => since == record.since,
        _ => uid == cluster.uid() || record.is_some_and(|record| uid == record.uid),
    }
}

/// The reason of our condition on a Cluster with such a pause.
pub const PAUSE_FOREIGN: &str = "PauseForeign";

/// The message about a pause with our reason that belongs to no sleep of this Cluster: it was created from the spec of a
/// sleeping Cluster, or restored from a backup. It has the way out of each.
pub fn foreign_pause(cluster: &Cluster) -> Option<String> {
    let is_ours = named_sleep(cluster).is_some_and(|(uid, _)| uid.is_empty() || uid == cluster.uid());
    if is_ours || !cluster.spec.pause || !has_our_reason(cluster) {
        return None;
    }
    let named = cluster.annotation(PAUSED_BY_SLEEP);
    let found = named
        .map_or("is missing".to_owned(), |sleep| format!("names the sleep of another Cluster, {}", sanitize(sleep)));
    let own = format!("{}/{}", cluster.uid(), named_sleep(cluster).map_or("restored", |(_, since)| since));
    Some(format!(
        "annotation {PAUSED_BY_SLEEP} {found}: nothing is done, and no wake follows. If this cluster was made from the spec of a sleeping \
         one, {TO_UNPAUSE}. If it was restored in its sleep, set the annotation to {:?}: a wake rebuilds the record from the copies on the \
         objects",
        sanitize(&own)
    ))
}

/// The sleep that a pause with our reason names: the UID of its Cluster, and since when.
fn named_sleep(cluster: &Cluster) -> Option<(&str, &str)> {
    let sleep = cluster.annotation(PAUSED_BY_SLEEP)?.rsplit_once('/');
    sleep.filter(|_| cluster.spec.pause && has_our_reason(cluster))
}

/// Whether it carries the reason of our pause, which stays when another client ends the pause.
fn has_our_reason(cluster: &Cluster) -> bool {
    cluster.spec.pause_reason.as_deref().is_some_and(|reason| reason.starts_with(PAUSED_BY_US))
}

/// Whether another client ended our pause while the cluster slept, or was about to: KKP brings up everything but etcd
/// (row 8).
pub fn is_unpaused_by_others(cluster: &Cluster, record: &Record) -> bool {
    !cluster.spec.pause && matches!(record.phase, Phase::ScalingDownControlPlane | Phase::Dehydrated)
}

/// Whether another client has ended our pause, and something of it is left on the Cluster.
pub fn has_leftover(cluster: &Cluster) -> bool {
    !cluster.spec.pause && (has_our_reason(cluster) || is_annotated(cluster))
}

/// Whether the Cluster carries what was written with a pause of ours.
pub fn is_annotated(cluster: &Cluster) -> bool {
    [CERTIFICATES_EXPIRE_AT, PAUSED_BY_SLEEP].into_iter().any(|key| cluster.annotation(key).is_some())
}
