//! What is on the hub beside the objects that a command is about: our installation, and what else acts on a target.

pub(crate) mod fdb;
pub(crate) mod kinds_file;
pub(crate) mod reverts;
pub(crate) mod untouched;
pub(crate) mod wake;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared::annotation::format;
use shared::kinds::Kind;

use view::age::age;

/// A lock that its holder renews.
pub(crate) static LEASE: Kind = Kind::namespaced("coordination.k8s.io", &["v1"], "Lease", "leases");
/// What defines a kind of an operator.
pub(crate) static DEFINITIONS: Kind =
    Kind::cluster_scoped("apiextensions.k8s.io", &["v1"], "CustomResourceDefinition", "customresourcedefinitions");
/// How long a Lease is held, if it does not say.
const HELD: i64 = 15;

/// The text of a file, up to one byte more than its parser takes.
pub(crate) fn file(path: &Path, max: usize) -> io::Result<String> {
    let mut text = String::new();
    let most = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(most).read_to_string(&mut text)).map(|_| text)
}

/// Whether a Lease is held now, or why not.
pub(crate) fn held(lease: &Value, now: Timestamp) -> Result<(), String> {
    let text = |field: &str| lease.get("spec")?.get(field)?.as_str().filter(|text| !text.is_empty());
    if text("holderIdentity").is_none() {
        return Err("has no holder".to_owned());
    }
    let Some(renewed) = text("renewTime").and_then(format::time) else {
        return Err("was never renewed".to_owned());
    };
    let length = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(HELD);
    match renewed.checked_add(SignedDuration::from_secs(length)) {
        Ok(end) if end < now => {
            let ago = age(renewed, now);
            Err(format!("was last renewed {ago} ago, by this machine's clock"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_counts_while_it_is_held() {
        let now = "2026-11-24T18:00:00Z".parse().unwrap();
        let lease = |holder: &str, renewed: &str, length: Option<i64>| json!({ "spec": { "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": length } });
        for (lease, part) in [
            (lease("a", "2026-11-24T17:59:50.123456Z", Some(15)), None),
            (lease("a", "2026-11-24T17:59:46.000000Z", None), None),
            (lease("a", "2026-11-24T18:00:30.000000Z", Some(15)), None),
            (lease("a", "2026-11-24T17:59:44.000000Z", Some(15)), Some("was last renewed 16s ago")),
            (lease("", "2026-11-24T17:59:50.123456Z", Some(15)), Some("has no holder")),
            (json!({ "spec": { "holderIdentity": "a" } }), Some("was never renewed")),
            (json!({}), Some("has no holder")),
        ] {
            let held = held(&lease, now);
            match part {
                None => assert_eq!(held, Ok(()), "{lease}"),
                Some(part) => assert!(held.unwrap_err().contains(part), "{lease}"),
            }
        }
    }
}
