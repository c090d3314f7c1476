//! From a request to its answer: decode the objects, evaluate the rules, build the response.

use std::collections::BTreeMap;
use std::fmt::Display;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use serde_json::value::RawValue;
use shared::admission::{
    self, Change, Denial, Edits, Evaluation, Exempt, Exempts, Fault, Finding, Object, Settings, UNREADABLE,
    UnreadFields, User, read, shortened,
};
use shared::fdb::admission as fdb;
use shared::hive::admission as hive;
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

/// Settings without flags.
pub fn default_settings() -> Settings {
    let deleters = kkp::DELETERS.iter().copied().map(str::to_owned).collect();
    Settings { deleters, ..hive::default_settings() }
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
enum Unreadable {
    #[error("{0} is missing from the request")]
    Missing(&'static str),
    #[error("{0} cannot be read: {1}")]
    Malformed(&'static str, #[source] serde_json::Error),
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
    let (user, manager) = (request.user(), request.field_manager());
    let evaluation = match change(request, context, &user, &manager) {
        Ok(change) => judge(&change),
        Err(unreadable) => unread(&unreadable),
    };
    Answer { evaluation: exempted::<K>(request, context, evaluation), patch: None }
}

/// Validates the deletion of a volume or a Service of a `FoundationDBCluster`. Nobody is exempt.
pub fn judge_deletion(request: &Request<'_>, context: &Context<'_>, kind: fdb::Kind) -> Answer {
    let evaluation = match deleted(request, fdb::Deleted::read) {
        Ok(object) => context.fdb.ask(context.now, |cache| fdb::judge_deletion(kind, &object, cache)),
        Err(why) => fdb::unreadable(&why.to_string()),
    };
    Answer { evaluation, patch: None }
}

/// Validates the deletion of a KKP Cluster. Exempt are users, and members of the groups that may delete what KKP cannot
/// finish.
pub fn judge_cluster_deletion(request: &Request<'_>, context: &Context<'_>) -> Answer {
    let evaluation = match deleted(request, kkp::Deletion::read) {
        Ok(deletion) => kkp::judge_deletion(&deletion, context.now),
        Err(why) => kkp::unreadable(&why.to_string()),
    };
    let Settings { exempt, deleters, .. } = context.settings;
    let exempt = Exempt { users: exempt.users.clone(), groups: deleters.clone() };
    let may = exempt.covers(&request.user(), request.user_info.groups);
    Answer { evaluation: evaluation.exempted(|_| may), patch: None }
}

/// What is to be deleted.
fn deleted<T>(request: &Request<'_>, read: fn(&str) -> serde_json::Result<T>) -> Result<T, Unreadable> {
    let object = request.old_object.ok_or(Unreadable::Missing("oldObject"))?;
    read(object.get()).map_err(|error| Unreadable::Malformed("oldObject", error))
}

/// The evaluation without the denials from which the user of the request is exempt.
fn exempted<K: Object>(request: &Request<'_>, context: &Context<'_>, evaluation: Evaluation) -> Evaluation {
    let covers = |groups| context.settings.exempt.covers(&request.user(), groups);
    evaluation.exempted(|denial| match K::exempts(denial) {
        Exempts::None => false,
        Exempts::Users => covers(None),
        Exempts::UsersAndGroups => covers(request.user_info.groups),
    })
}

/// Mutates: asks which annotations the rule wants changed. Denies what the rule refuses, for every user, and what has
/// no annotations that can be read and is no wake.
pub fn mutate<K: Object>(request: &Request<'_>, context: &Context<'_>, rule: fn(&Change<'_, K>) -> Edits) -> Answer {
    let (user, manager) = (request.user(), request.field_manager());
    let change = match change(request, context, &user, &manager) {
        Ok(change) => change,
        Err(unreadable) => return Answer { evaluation: unread(&unreadable), patch: None },
    };
    if change.unread.new.iter().any(|field| field.covers(&["metadata", "annotations"])) {
        return Answer { evaluation: admission::judge(&change, &[]), patch: None };
    }
    let Edits { annotations, warnings, denial } = rule(&change);
    let patch = patch::annotations(&change.new.meta().annotations, &annotations);
    let warnings = warnings.into_iter().map(|detail| Finding { row: "mutate", detail });
    let denials = denial.into_iter().map(|detail| Finding { row: "mutate", detail });
    let evaluation = Evaluation { warnings: warnings.collect(), denials: denials.collect(), ..Evaluation::default() };
    Answer { evaluation, patch: if patch.is_empty() { None } else { serde_json::to_vec(&patch).ok() } }
}

fn change<'a, K: Object>(
    request: &'a Request<'_>,
    context: &Context<'a>,
    user: &'a User,
    field_manager: &'a str,
) -> Result<Change<'a, K>, Unreadable> {
    let object = request.object.ok_or(Unreadable::Missing("object"))?.get();
    let (new, unread) = read(object).map_err(|error| Unreadable::Malformed("object", error))?;
    let before = request.old_object.map(RawValue::get);
    let old = before.map(read).transpose().map_err(|error| Unreadable::Malformed("oldObject", error))?;
    let (old, unread_before) = old.unzip();
    Ok(Change {
        old,
        new,
        user,
        field_manager,
        now: context.now,
        settings: context.settings,
        unread: UnreadFields::new(before.zip(unread_before), (object, unread)),
    })
}

/// Denial of a request whose object is missing or malformed.
fn unread(why: &Unreadable) -> Evaluation {
    let detail = Denial {
        fault: Fault::Invalid,
        field: match why {
            Unreadable::Missing(field) | Unreadable::Malformed(field, _) => (*field).to_owned(),
        },
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
