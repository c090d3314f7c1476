//! What every cloud driver has to do, as checks that run against any of them.
//!
//! A driver's crate implements [`Bench`] for a simulator of its cloud and calls [`conformance_tests!`]: each check
//! becomes a test on a paused clock. The checks see a driver as the controller does, through [`shared::cloud::Driver`],
//! and the cloud as its owner does: what runs, and which requests arrived.

mod bench;
mod checks;
mod drive;
mod ledger;

pub use self::bench::{Bench, Fault, GIVEN_UP, PARTIAL, machine, process};
pub use self::checks::*;
pub use self::drive::{Intent, Next, drive, inventory, inventory_for, next, pass};
pub use self::ledger::TestLedger;

/// Makes a test of every check, for the [`Bench`] that the expression builds.
#[macro_export]
macro_rules! conformance_tests {
    ($bench:expr) => {
        $crate::conformance_tests!($bench =>
            finds_the_machines_of_its_cluster_and_no_others,
            finds_nothing_of_a_cluster_that_does_not_exist,
            sleeps_and_wakes,
            only_a_recreate_driver_uses_the_ledger,
            repeated_calls_do_no_harm,
            changes_its_mind_at_any_point,
            a_refused_machine_spoils_no_other,
            failures_are_told_by_kind,
            a_cloud_that_is_silent_is_given_up,
            an_unknown_state_is_neither_awake_nor_asleep,
            no_request_leaves_without_the_permit,
            the_permit_may_go_at_any_request,
            a_dropped_call_does_no_harm,
            the_number_of_calls_is_bounded,
            a_call_that_is_given_up_is_reported,
            a_part_that_does_not_answer_is_no_smaller_cluster,
            an_accepted_call_is_not_repeated_while_lists_lag,
        );
    };
    ($bench:expr => $($check:ident,)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $check() {
                $crate::$check(&$bench).await;
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// A check that no driver runs would prove nothing.
    #[test]
    fn every_check_is_a_test_of_each_driver() {
        let (checks, list) = (include_str!("checks.rs"), include_str!("lib.rs"));
        let names = checks.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('('));
        let missing: Vec<&str> =
            names.map(|(name, _)| name).filter(|name| !list.contains(&format!("    {name},\n"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
