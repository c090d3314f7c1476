//! `PowerRollout`: `status` shows its progress. It has no power state: it changes that of others.

use super::{
    kind::Kind,
    row::{ShownKind, View},
};

/// The row.
pub static POWER_ROLLOUT: ShownKind = ShownKind {
    kind: Kind::cluster_scoped("hibernate.sh", &["v1alpha1"], "PowerRollout", "powerrollouts")
        .with_short(&["pr"])
        .with_aliases(&["rollout", "rollouts"]),
    word: "rollout",
    view: View::Rollout,
    many: "rollouts",
    refusal: "a PowerRollout is not put to sleep, it puts others to sleep or wakes them: `kubectl hibernate status \
              {target}` shows it, `kubectl hibernate rollout pause|resume|accept|retry|abort|undo` controls it",
    not_watched: None,
};
