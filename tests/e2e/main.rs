//! End-to-end tests: the real plugin, webhook and controller on a world of real parts, a module per subject.
//!
//! One program, so that it is linked once and worlds are shared: tests with the same options use the same world, in
//! namespaces and with cluster names of their own. A test that kills, freezes or injects faults for all clusters needs
//! a private world, `World::up`; a module does all of that in as few worlds as it can. Tests whose verdict depends on
//! the pace of the machine are in modules named `alone`: `make test` runs them afterwards, four at a time.
//!
//! `make e2e TEST=hive_aws` runs the tests whose names contain a word.

mod clock;
mod corpus;
mod fdb_guard;
mod hive_common;
mod match_writes;
mod plugin_common;
mod rendered;
mod terminal;

mod admission_hive;
mod admission_replicas;
mod certificates;
mod cgu;
mod chart;
mod controller_confined;
mod controller_crash;
mod fdb_down;
mod fdb_gone;
mod fdb_recover;
mod fdb_suspend;
mod hive_aws;
mod hive_bad_input;
mod hive_clouds;
mod hive_csr;
mod hive_faults;
mod hive_gone;
mod hive_identity;
mod hive_refused_writes;
mod hive_sleep_wake;
mod hive_unreachable;
mod hive_wake;
mod hostile_clients;
mod kkp_common;
mod kkp_faults;
mod kkp_guard;
mod kkp_rollout;
mod kkp_sleep_wake;
mod krew;
mod manifests;
mod manifests_namespace;
mod match_conditions;
mod namespace_operators;
mod openstack;
mod operator_rollout;
mod operators;
mod other_programs;
mod page;
mod page_browser;
mod page_faults;
mod plugin_check;
mod plugin_hive;
mod plugin_kinds;
mod plugin_kkp;
mod plugin_namespace;
mod plugin_plan;
mod plugin_pool;
mod plugin_rollout;
mod plugin_schedule;
mod plugin_schedule_verbs;
mod plugin_workloads;
mod policy_twin;
mod restricted;
mod rights;
mod rollout_admission;
mod rollout_clock;
mod rollout_common;
mod rollout_crash;
mod rollout_definition;
mod rollout_kill_points;
mod rollout_rules;
mod rollout_upgrades;
mod rollout_waves;
mod savings;
mod savings_quarter;
mod schedule_admission;
mod schedule_clock;
mod schedule_common;
mod schedule_edges;
mod schedule_fortnight;
mod schedule_leader;
mod schedule_workloads;

/// What takes minutes of waiting on OpenStack's own services: `make test-openstack` runs it.
mod on_openstack {
    mod conformance;
    mod deaths;
    mod faults;
    mod hostile;
    mod mind;
    mod obstacles;
    mod records;
    mod shelve;
}

/// Tests that run after all others, a few at a time.
mod alone {
    mod controller_kill_points;
    pub(crate) mod controller_leader;
    mod fdb_scale;
    mod hive_fleet_faults;
    mod hive_words;
}
