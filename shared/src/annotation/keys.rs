//! Our names on other systems' objects: annotations, labels, field managers.

/// The API group of everything that is ours.
pub const GROUP: &str = "hibernate.sh";

/// Who requested the current power state. Stamped by the mutating webhook from the request's user, never by a client.
pub const REQUESTED_BY: &str = "hibernate.sh/requested-by";
/// When the current power state was requested, RFC 3339. Stamped by the mutating webhook.
pub const REQUESTED_AT: &str = "hibernate.sh/requested-at";
/// Why the current power state was requested: free text of the user.
pub const REASON: &str = "hibernate.sh/reason";
/// How many replicas a workload had before it was put to sleep, a positive integer.
pub const REPLICAS: &str = "hibernate.sh/replicas";
/// Whether a `CronJob` was suspended before it was put to sleep, `true` or `false`.
pub const CRON_JOB_SUSPEND: &str = "hibernate.sh/cronjob-suspend";
/// What a sleep has changed of an object of an operator's kind: a JSON object of JSON pointers and the values before, null
/// for none.
pub const BEFORE: &str = "hibernate.sh/before";
/// Until when the target must stay awake, RFC 3339. Ignored once it has passed.
pub const HOLD_AWAKE_UNTIL: &str = "hibernate.sh/hold-awake-until";
/// Who holds the target awake. Stamped by the mutating webhook together with [`HOLD_AWAKE_UNTIL`], never by a client.
pub const HOLD_AWAKE_BY: &str = "hibernate.sh/hold-awake-by";
/// When the controller is to wake the target, RFC 3339.
pub const WAKE_AT: &str = "hibernate.sh/wake-at";
/// When a preflight was requested, a check of everything that would block or slow a sleep or a wake, RFC 3339. Answered
/// by the controller in the condition [`crate::hive::preflight::PREFLIGHT`].
pub const PREFLIGHT_REQUESTED_AT: &str = "hibernate.sh/preflight-requested-at";
/// `"true"`: the target must not be put to sleep.
pub const PROTECTED: &str = "hibernate.sh/protected";
/// How a cluster on OpenStack sleeps, `snapshot` or `shelve`. A change counts from its next sleep.
pub const OPENSTACK_MODE: &str = "hibernate.sh/openstack-mode";

/// `"true"`: accepts what would otherwise refuse a sleep, where a force can override it.
pub const FORCE: &str = "hibernate.sh/force";

/// The rollout that works on the target, or did last: see [`super::mark::Mark`]. Written by the controller alone.
pub const ROLLOUT: &str = "hibernate.sh/rollout";

/// On a `FoundationDBCluster`: how long a removed process group's volume is kept at least, a duration such as `2h`. `0`
/// is off.
pub const MINIMUM_SUSPENSION: &str = "hibernate.sh/minimum-suspension";
/// On a PVC or Service of a removed process group: since when it is held, RFC 3339. Written by the controller, and by the
/// plugin while it recovers the group.
pub const SUSPENDED_AT: &str = "hibernate.sh/suspended-at";
/// Beside [`SUSPENDED_AT`]: what is held and why, see [`crate::fdb::suspension::Suspension`].
pub const SUSPENSION: &str = "hibernate.sh/suspension";
/// When the controller released a held object, RFC 3339. Counts only for the removal that [`SUSPENSION`] names.
pub const RELEASED_AT: &str = "hibernate.sh/released-at";
/// When the controller, after a release, or a recovery last touched this object to trigger the operator, RFC 3339.
pub const WOKEN_AT: &str = "hibernate.sh/woken-at";
/// On a PVC or Service, with its own UID as the value: a user's permission to delete it now.
pub const RELEASE: &str = "hibernate.sh/release";
/// On a `FoundationDBCluster`, while the plugin recovers process groups: its record of them.
pub const RECOVERY: &str = "hibernate.sh/recovery";
/// On a PVC: when its process group was last recovered, RFC 3339. Written by the plugin.
pub const RECOVERED_AT: &str = "hibernate.sh/recovered-at";
/// On a PVC whose process group was removed in exchange for a recovered one: the `removalTimestamp` of that removal.
/// Written by the plugin.
pub const EXCHANGED_AT: &str = "hibernate.sh/exchanged-at";

/// On an Event about process groups: which ones, see [`crate::annotation::groups::ProcessGroups`]. Written by the
/// controller.
pub const PROCESS_GROUPS: &str = "hibernate.sh/process-groups";

/// Label of a namespace in which the webhook records replica counts, whichever client scales to 0.
pub const RECORD_REPLICAS: &str = "hibernate.sh/record-replicas";

/// Label of a namespace whose `FoundationDBClusters` are guarded, where the overlay `labeled-databases` is installed.
pub const SUSPEND: &str = "hibernate.sh/suspend";

/// Field manager of the controller's writes.
pub const CONTROLLER: &str = "hibernate-controller";
/// Field manager of the plugin's writes, and the plugin's program name.
pub const PLUGIN: &str = "kubectl-hibernate";
/// Field manager of the webhook's certificate task.
pub const WEBHOOK: &str = "hibernate-webhook";
/// The namespace in which the manifests install webhook and controller.
pub const NAMESPACE: &str = "hibernate-system";

/// Our annotations on a target that admission rules judge. Users may set all of them except [`ROLLOUT`].
pub const TARGET_ANNOTATIONS: &[&str] = &[
    REQUESTED_BY,
    REQUESTED_AT,
    REASON,
    REPLICAS,
    HOLD_AWAKE_UNTIL,
    HOLD_AWAKE_BY,
    WAKE_AT,
    PROTECTED,
    PREFLIGHT_REQUESTED_AT,
    ROLLOUT,
];
