//! The table from (endpoint, group, resource, subresource, operation) to a rule: the only place that knows resources.

use shared::fdb::admission as fdb;
use shared::hive::admission as hive;
use shared::kkp::admission as kkp;
use shared::rollout::admission as rollout;
use shared::schedule::admission as schedule;
use shared::workload::admission as workload;

use crate::answer::{Answer, Context, judge_fdb_deletion, judge_kkp_deletion, mutate, validate};
use crate::review::{Operation, Request};

/// The endpoint that a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Is the write allowed? `POST /validate`.
    Validate,
    /// Which changes are made before it is stored? `POST /mutate`.
    Mutate,
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    endpoint: Endpoint,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    operations: &'static [Operation],
    answer: fn(&Request<'_>, &Context<'_>) -> Answer,
}

const fn row(
    endpoint: Endpoint,
    (group, resource, subresource): (&'static str, &'static str, &'static str),
    operations: &'static [Operation],
    answer: fn(&Request<'_>, &Context<'_>) -> Answer,
) -> Row {
    Row { endpoint, group, resource, subresource, operations, answer }
}

const WRITES: &[Operation] = &[Operation::Create, Operation::Update];
const CREATES: &[Operation] = &[Operation::Create];
const UPDATES: &[Operation] = &[Operation::Update];
const DELETES: &[Operation] = &[Operation::Delete];

const TABLE: &[Row] = {
    use Endpoint::{Mutate, Validate};
    &[
        row(Validate, ("hive.openshift.io", "clusterdeployments", ""), WRITES, |r, c| validate(r, c, hive::judge)),
        row(Mutate, ("hive.openshift.io", "clusterdeployments", ""), WRITES, |r, c| mutate(r, c, hive::stamp)),
        row(Validate, ("", "persistentvolumeclaims", ""), DELETES, |r, c| judge_fdb_deletion(r, c, fdb::Kind::Pvc)),
        row(Validate, ("", "services", ""), DELETES, |r, c| judge_fdb_deletion(r, c, fdb::Kind::Service)),
        row(Validate, ("apps.foundationdb.org", "foundationdbclusters", ""), WRITES, |r, c| {
            validate(r, c, fdb::judge_cluster)
        }),
        row(Validate, ("kubermatic.k8c.io", "clusters", ""), WRITES, |r, c| validate(r, c, kkp::judge)),
        row(Validate, ("kubermatic.k8c.io", "clusters", ""), DELETES, judge_kkp_deletion),
        row(Mutate, ("kubermatic.k8c.io", "clusters", ""), WRITES, |r, c| mutate(r, c, kkp::stamp)),
        row(Mutate, ("", "configmaps", ""), WRITES, |r, c| mutate(r, c, kkp::stamp_record)),
        row(Validate, ("hibernate.sh", "powerrollouts", ""), CREATES, |r, c| validate(r, c, rollout::judge)),
        row(Mutate, ("hibernate.sh", "powerrollouts", ""), WRITES, |r, c| mutate(r, c, rollout::stamp)),
        row(Validate, ("hibernate.sh", "powerschedules", ""), WRITES, |r, c| validate(r, c, schedule::judge)),
        row(Mutate, ("hibernate.sh", "powerschedules", ""), WRITES, |r, c| mutate(r, c, schedule::stamp)),
        row(Validate, ("hibernate.sh", "clusterpowerschedules", ""), WRITES, |r, c| validate(r, c, schedule::judge)),
        row(Mutate, ("hibernate.sh", "clusterpowerschedules", ""), WRITES, |r, c| mutate(r, c, schedule::stamp)),
        row(Mutate, ("apps", "deployments", ""), UPDATES, |r, c| mutate(r, c, workload::record)),
        row(Mutate, ("apps", "deployments", "scale"), UPDATES, |r, c| mutate(r, c, workload::scale)),
        row(Mutate, ("apps", "statefulsets", ""), UPDATES, |r, c| mutate(r, c, workload::record)),
        row(Mutate, ("apps", "statefulsets", "scale"), UPDATES, |r, c| mutate(r, c, workload::scale)),
        row(Mutate, ("cluster.x-k8s.io", "machinedeployments", ""), UPDATES, |r, c| mutate(r, c, workload::record)),
        row(Mutate, ("cluster.x-k8s.io", "machinedeployments", "scale"), UPDATES, |r, c| mutate(r, c, workload::scale)),
        row(Mutate, ("cluster.k8s.io", "machinedeployments", ""), UPDATES, |r, c| mutate(r, c, workload::record)),
        row(Mutate, ("cluster.k8s.io", "machinedeployments", "scale"), UPDATES, |r, c| mutate(r, c, workload::scale)),
    ]
};

/// Label of the metrics for everything that is not in the table.
pub const FOREIGN: &str = "foreign";

/// Answers a request. Also returns its resource as a metrics label, from the table, so that clients cannot create labels.
///
/// For a resource in the table, an unlisted subresource or operation is allowed: the status of an object is never
/// judged. A resource that is not in the table is allowed with a warning: the webhook configuration registers too much.
pub fn answer(endpoint: Endpoint, request: &Request<'_>, context: &Context<'_>) -> (&'static str, Answer) {
    let mut rows =
        TABLE.iter().filter(|row| row.group == request.resource.group && row.resource == request.resource.resource);
    let Some(first) = rows.clone().next() else {
        return (FOREIGN, Answer::warn(FOREIGN, foreign(request)));
    };
    let row = rows.find(|row| {
        row.endpoint == endpoint
            && row.subresource == request.sub_resource
            && row.operations.contains(&request.operation)
    });
    (first.resource, row.map_or_else(Answer::default, |row| (row.answer)(request, context)))
}

fn foreign(request: &Request<'_>) -> String {
    let (group, resource) = (&request.resource.group, &request.resource.resource);
    let dot = if group.is_empty() { "" } else { "." };
    format!("hibernate-webhook has no rules for {resource}{dot}{group}: remove it from the webhook configuration")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_workload_has_its_record_and_its_scale() {
        for kind in shared::kinds::workload::ROWS.iter().map(|row| &row.kind) {
            for subresource in ["", "scale"] {
                let fits = |row: &&Row| {
                    (row.endpoint, row.group, row.resource, row.subresource)
                        == (Endpoint::Mutate, kind.group, kind.plural, subresource)
                };
                assert_eq!(TABLE.iter().filter(fits).count(), 1, "{}.{}/{subresource}", kind.plural, kind.group);
            }
        }
    }

    #[test]
    fn no_two_rows_claim_the_same_request() {
        for (index, one) in TABLE.iter().enumerate() {
            for two in &TABLE[index + 1..] {
                let key = |row: &Row| (row.endpoint, row.group, row.resource, row.subresource);
                let shared = one.operations.iter().any(|operation| two.operations.contains(operation));
                assert!(key(one) != key(two) || !shared, "{:?}", key(one));
            }
        }
    }
}
