//! From a request to its answer: decode the objects, evaluate the rules, build the response.

use std::collections::BTreeMap;
use std::fmt::Display;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use serde::de::DeserializeOwned;
use shared::admission::{
    self, Change, Denial, Edits, Evaluation, Exempt, Exempts, Fault, Finding, Object, Objects, Settings, UNREADABLE,
    Unread, shortened,
};
use shared::fdb::admission as fdb;
use shared::kkp::admission as kkp;
use shared::text::{sanitize, sanitize_to};

use crate::fdb::Clusters;
use crate::patch;
use crate::review::{Operation, Patch, Request, Response};

/// Key of the audit annotation that records which denials an exempt identity bypassed. The API server puts the name of
/// the webhook and a slash in front.
pub const EXEMPTED_DENIALS: &str = "would-have-been-denied";

/// Characters that are kept of what one rule says.
const MAX_SENTENCE_CHARS: usize = 2_048;

/// Everything besides the request that an answer may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What the operator decided.
    pub settings: &'a Settings,
    /// When the request was received.
    pub now: Timestamp,
    /// What is known of the hub's `FoundationDBClusters`.
    pub fdb: &'a Clusters,
}

/// The answer to a request.
#[derive(Debug, Default)]
pub struct Answer {
    /// What the rules found.
    pub evaluation: Evaluation,
    /// JSON patch, if anything is to be changed.
    pub patch: Option<Vec<u8>>,
}

/// Why the objects of a request cannot be judged.
#[derive(Debug, thiserror::Error)]
#[error("{object} {why}")]
struct Unreadable {
    object: &'static str,
    why: String,
}

impl Unreadable {
    fn missing(object: &'static str) -> Self {
        Self { object, why: "is missing from the request".to_owned() }
    }

    fn malformed(object: &'static str, why: impl Display) -> Self {
        Self { object, why: format!("cannot be read: {why}") }
    }
}

impl Answer {
    /// Allows the request with a warning.
    pub fn warn(row: &'static str, detail: impl Into<String>) -> Self {
        let mut answer = Self::default();
        answer.evaluation.warnings.push(Finding { row, detail: detail.into() });
        answer
    }

    /// One word for metrics.
    pub fn verdict(&self) -> &'static str {
        match self {
            _ if !self.evaluation.allows() => "deny",
            _ if !self.evaluation.exempted.is_empty() => "exempt",
            _ if self.patch.is_some() => "patch",
            _ if !self.evaluation.warnings.is_empty() => "warn",
            _ => "allow",
        }
    }

    /// The answer as the API server reads it.
    pub fn respond<'a>(self, request: &'a Request<'_>) -> Response<'a> {
        let status = status(&self.evaluation, request);
        let exempted =
            self.evaluation.exempted.iter().map(|Finding { row, detail }| format!("{row} {}", bounded(detail)));
        let exempted = exempted.collect::<Vec<_>>().join("; ");
        Response {
            uid: &request.uid,
            allowed: status.is_none(),
            status,
            patch: self.patch.map(Patch::json),
            audit_annotations: BTreeMap::from_iter((!exempted.is_empty()).then_some((EXEMPTED_DENIALS, exempted))),
            warnings: self.evaluation.warnings.into_iter().map(|warning| shortened(bounded(&warning.detail))).collect(),
        }
    }
}

/// Validates: asks what the rules say.
pub fn validate<K: Object>(
    request: &Request<'_>,
    context: &Context<'_>,
    judge: fn(&Change<'_, K>) -> Evaluation,
) -> Answer {
    let evaluation = of_change(request, context, judge).unwrap_or_else(|unreadable| unread(&unreadable));
    Answer { evaluation: exempted::<K>(request, context, evaluation), patch: None }
}

/// Validates the deletion of a volume or a Service of a `FoundationDBCluster`. Nobody is exempt.
pub fn judge_fdb_deletion(request: &Request<'_>, context: &Context<'_>, kind: fdb::Kind) -> Answer {
    let evaluation = match deleted::<fdb::Deleted>(request) {
        Ok((object, unread)) => {
            let object = fdb::Deleted { unread, ..object };
            context.fdb.ask(context.now, |cache| fdb::judge_deletion(kind, &object, cache))
        }
        Err(why) => fdb::unreadable(&why.to_string()),
    };
    Answer { evaluation, patch: None }
}

/// Validates the deletion of a KKP Cluster. Exempt are users, and members of the groups that may delete what KKP cannot
/// finish.
pub fn judge_kkp_deletion(request: &Request<'_>, context: &Context<'_>) -> Answer {
    let evaluation = match deleted(request) {
        Ok((cluster, unread)) => kkp::judge_deletion(&kkp::Deletion { cluster, unread }, context.now),
        Err(why) => kkp::unreadable(&why.to_string()),
    };
    let Settings { exempt, deleters, .. } = context.settings;
    let exempt = Exempt { users: exempt.users.clone(), groups: deleters.clone() };
    let may = exempt.covers(&request.user(), request.groups());
    Answer { evaluation: evaluation.exempted(|_| may), patch: None }
}

/// What is to be deleted, and what cannot be read of it.
fn deleted<K: DeserializeOwned>(request: &Request<'_>) -> Result<(K, Vec<Unread>), Unreadable> {
    let objects = objects(request)?;
    let object =
        whole("oldObject", objects.old_object, &objects.unread.old)?.ok_or(Unreadable::missing("oldObject"))?;
    Ok((object, objects.unread.old))
}

fn objects<K: DeserializeOwned>(request: &Request<'_>) -> Result<Objects<K>, Unreadable> {
    Objects::read(request.body).map_err(|error| Unreadable::malformed("object", error))
}

/// One of the objects, unless nothing of it can be read.
fn whole<K>(name: &'static str, object: Option<K>, unread: &[Unread]) -> Result<Option<K>, Unreadable> {
    match unread.iter().find_map(Unread::of_all) {
        Some(why) => Err(Unreadable::malformed(name, why)),
        None => Ok(object),
    }
}

/// The evaluation without the denials from which the user of the request is exempt.
fn exempted<K: Object>(request: &Request<'_>, context: &Context<'_>, evaluation: Evaluation) -> Evaluation {
    let covers = |groups| context.settings.exempt.covers(&request.user(), groups);
    evaluation.exempted(|denial| match K::exempts(denial) {
        Exempts::None => false,
        Exempts::Users => covers(None),
        Exempts::UsersAndGroups => covers(request.groups()),
    })
}

/// Mutates: asks which annotations the rule wants changed. Denies what the rule refuses, for every user, and what has
/// no annotations that can be read and is no wake.
pub fn mutate<K: Object>(request: &Request<'_>, context: &Context<'_>, rule: fn(&Change<'_, K>) -> Edits) -> Answer {
    let answer = of_change(request, context, |change: &Change<'_, K>| {
        if change.unread.new.iter().any(|field| field.covers(&["metadata", "annotations"])) {
            return Answer { evaluation: admission::judge(change, &[]), patch: None };
        }
        let Edits { annotations, warnings, denial } = rule(change);
        let patch = patch::annotations(&change.new.meta().annotations, &annotations);
        let warnings = warnings.into_iter().map(|detail| Finding { row: "mutate", detail }).collect();
        let denials = denial.into_iter().map(|detail| Finding { row: "mutate", detail }).collect();
        let evaluation = Evaluation { warnings, denials, ..Evaluation::default() };
        Answer { evaluation, patch: if patch.is_empty() { None } else { serde_json::to_vec(&patch).ok() } }
    });
    answer.unwrap_or_else(|unreadable| Answer { evaluation: unread(&unreadable), patch: None })
}

/// Asks about the change that is requested.
fn of_change<K: Object, T>(
    request: &Request<'_>,
    context: &Context<'_>,
    ask: impl FnOnce(&Change<'_, K>) -> T,
) -> Result<T, Unreadable> {
    let mut objects = objects(request)?;
    let (user, field_manager) = (request.user(), objects.field_manager());
    Ok(ask(&Change {
        new: whole("object", objects.object, &objects.unread.new)?.ok_or(Unreadable::missing("object"))?,
        old: whole("oldObject", objects.old_object, &objects.unread.old)?,
        user: &user,
        field_manager: &field_manager,
        now: context.now,
        settings: context.settings,
        unread: objects.unread,
    }))
}

/// Denial of a request whose object is missing or malformed.
fn unread(why: &Unreadable) -> Evaluation {
    let detail = Denial {
        fault: Fault::Invalid,
        field: why.object.to_owned(),
        message: format!("{why}; the webhook cannot evaluate the request"),
    };
    Evaluation { denials: vec![Finding { row: UNREADABLE, detail }], ..Evaluation::default() }
}

/// What a rule says, sanitized: it may quote names, annotations and labels.
fn bounded(detail: &impl Display) -> String {
    sanitize_to(detail, MAX_SENTENCE_CHARS)
}

/// The refusal, if it is one: code and reason of the most severe fault, and every fault with its field.
///
/// kubectl prints either the message (403) or the causes (422), so each of them says everything.
fn status(evaluation: &Evaluation, request: &Request<'_>) -> Option<Status> {
    let most_severe = evaluation.most_severe()?;
    let name = match (request.namespace.as_ref(), request.name.as_ref()) {
        ("", "") if request.operation == Operation::Delete => "of a collection".to_owned(),
        ("", name) => name.to_owned(),
        (namespace, "") if request.operation == Operation::Delete => format!("of a collection in {namespace}"),
        (namespace, "") => format!("to be named in {namespace}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    let detail = evaluation.denials.iter().map(|denial| bounded(&denial.detail)).collect::<Vec<_>>().join("; ");
    let cause = |Finding { detail, .. }: &Finding<Denial>| StatusCause {
        field: Some(detail.field.clone()),
        message: Some(bounded(&detail.message)),
        reason: Some(detail.fault.cause().to_owned()),
    };
    Some(Status {
        status: Some("Failure".to_owned()),
        code: Some(most_severe.code().into()),
        reason: Some(most_severe.reason().to_owned()),
        message: Some(format!("{} {}: {detail}", request.kind.kind, sanitize(&name))),
        details: Some(StatusDetails {
            name: Some(request.name.as_ref().to_owned()),
            group: Some(request.kind.group.as_ref().to_owned()),
            kind: Some(request.kind.kind.as_ref().to_owned()),
            causes: Some(evaluation.denials.iter().map(cause).collect()),
            ..StatusDetails::default()
        }),
        ..Status::default()
    })
}
