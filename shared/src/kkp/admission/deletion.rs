//! Row K13: the DELETE of a sleeping Cluster.
//!
//! KKP alone never finishes it: its cleanup needs the user cluster's API server, and it neither starts the control
//! plane nor renews certificates of a Cluster that is being deleted (rows 19 to 23). Our controller starts the control
//! plane, which needs valid certificates.

use jiff::Timestamp;

use super::cluster::Cluster;
use crate::admission::{Denial, Evaluation, Fault, Finding, Target as _, Unread, annotation_field};
use crate::annotation::format;
use crate::kkp::certificates::end_before_a_deletion;
use crate::kkp::keys;

const ROW: &str = "K13";

/// A Cluster that is to be deleted.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// The Cluster.
    pub cluster: Cluster,
    /// What cannot be read of it.
    pub unread: Vec<Unread>,
}

impl Deletion {
    fn removes(&self, finalizer: &str) -> bool {
        self.cluster.metadata.finalizers.iter().any(|found| found == finalizer)
    }

    /// Whether this is the first DELETE of a cluster that sleeps and is to go on sleeping.
    fn is_of_a_sleeping_cluster(&self) -> bool {
        self.cluster.may_be_asleep(&self.unread)
            && self.cluster.wants_sleep()
            && self.cluster.metadata.deletion_timestamp.is_none()
    }
}

/// Judges a DELETE by row K13.
pub fn judge_deletion(deletion: &Deletion, now: Timestamp) -> Evaluation {
    let mut evaluation = Evaluation::default();
    if let Some(field) = deletion.unread.iter().find(|field| field.covers(&["metadata", "annotations"])) {
        return unreadable(&format!("oldObject cannot be read: {}", field.denial().detail));
    }
    if !deletion.is_of_a_sleeping_cluster() {
        return evaluation;
    }
    let mut warn = |detail: String| evaluation.warnings.push(Finding { row: ROW, detail });
    warn(
        "the cluster is dehydrated: hibernate-controller starts its control plane first, and KKP then deletes it"
            .to_owned(),
    );
    for (finalizer, what) in
        [(keys::CLEANUP_LOAD_BALANCERS, "load balancers"), (keys::CLEANUP_VOLUMES, "disks of PersistentVolumes")]
    {
        if !deletion.removes(finalizer) {
            warn(format!("finalizer {finalizer} is absent: the cluster's {what} remain in the cloud and stay billed"));
        }
    }
    let annotations = &deletion.cluster.metadata.annotations;
    let (found, key) = (annotations.get(keys::CERTIFICATES_EXPIRE_AT), keys::CERTIFICATES_EXPIRE_AT);
    let state = match (found, found.and_then(format::time)) {
        (None, _) => {
            warn(format!(
                "{key} is absent: if a control-plane certificate has expired, KKP cannot finish the deletion; wake the cluster first to be sure"
            ));
            return evaluation;
        }
        (Some(_), Some(expiry)) if !end_before_a_deletion(expiry, now) => return evaluation,
        (Some(text), None) => {
            format!("found {text:?}, which is not a time: a control-plane certificate may have expired")
        }
        (Some(_), Some(expiry)) => {
            let state = if expiry <= now { "expired at" } else { "expires within a day, at" };
            format!("a control-plane certificate {state} {}", format::seconds(expiry))
        }
    };
    evaluation.denials.push(Finding { row: ROW, detail: too_late(&state, &deletion.cluster.metadata.name) });
    if annotations.get(keys::ALLOW_DELETE).and_then(format::boolean) == Some(true) {
        evaluation.softened()
    } else {
        evaluation
    }
}

fn too_late(state: &str, name: &str) -> Denial {
    Denial {
        fault: Fault::Forbidden,
        field: annotation_field(keys::CERTIFICATES_EXPIRE_AT),
        message: format!(
            "{state}, and KKP renews none while it deletes a cluster: hydrate first with kubectl hibernate resume cluster/{name} --wait, \
             then delete. With annotation {}=true it is deleted nevertheless, which may never complete",
            keys::ALLOW_DELETE
        ),
    }
}

/// What is said of a DELETE whose Cluster cannot be read: whether it sleeps, and with which certificates, is unknown.
pub fn unreadable(why: &str) -> Evaluation {
    let detail = Denial {
        fault: Fault::Forbidden,
        field: "oldObject".to_owned(),
        message: format!("{why}; the webhook cannot evaluate the deletion: correct the Cluster first"),
    };
    Evaluation { denials: vec![Finding { row: ROW, detail }], ..Evaluation::default() }
}
