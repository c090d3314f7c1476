//! The controller's loop in miniature: list, choose as a decision does, advance.

use std::sync::Arc;

use shared::cloud::{CloudError, Driver, InstanceState, Inventory, Outcome, Priority, Target, Verb};

use crate::Bench;

/// Passes after which a transition must have ended.
const PASSES: usize = 40;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// All machines are to run.
    Awake,
    /// All machines are to sleep.
    Asleep,
}

/// What is to be done after a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These are to move.
    Advance(Verb, Vec<String>),
    /// Everything is where it should be; the driver has something to remove.
    Settle,
    /// Something moves by itself.
    Wait,
    /// Everything is where it should be.
    Rest,
}

impl Intent {
    /// The state of every machine in the end.
    pub fn end(self) -> InstanceState {
        match self {
            Self::Awake => InstanceState::Running,
            Self::Asleep => InstanceState::Stopped,
        }
    }
}

/// Chooses as the decisions of the controller do.
pub fn next(inventory: &Inventory, intent: Intent) -> Next {
    let ids = match intent {
        Intent::Asleep => inventory.to_stop(|_| true),
        Intent::Awake => inventory.to_start(|_| true),
    };
    match (inventory.all(intent.end()), intent) {
        (true, _) if inventory.owed => Next::Settle,
        (true, _) => Next::Rest,
        _ if ids.is_empty() => Next::Wait,
        (_, Intent::Asleep) => Next::Advance(Verb::Stop, ids),
        (_, Intent::Awake) => Next::Advance(Verb::Start, ids),
    }
}

/// What the driver finds.
pub async fn inventory(driver: &dyn Driver, target: &Target) -> Result<Inventory, CloudError> {
    inventory_for(driver, target, Intent::Awake).await
}

/// What the driver finds on the way to an end.
pub async fn inventory_for(driver: &dyn Driver, target: &Target, intent: Intent) -> Result<Inventory, CloudError> {
    let priority = if intent == Intent::Awake { Priority::Waking } else { Priority::Sleeping };
    let listing = driver.list(target, priority).await?;
    Ok(Inventory::new(driver.profile(&target.cluster), listing))
}

/// One pass. Returns what it chose, and what came of it.
pub async fn pass(driver: &dyn Driver, target: &Target, intent: Intent) -> Result<(Next, Outcome), CloudError> {
    let next = next(&inventory_for(driver, target, intent).await?, intent);
    let outcome = match &next {
        Next::Advance(verb, ids) => driver.advance(target, *verb, ids).await?,
        Next::Settle => {
            driver.settle(target).await?;
            Outcome::default()
        }
        Next::Wait | Next::Rest => Outcome::default(),
    };
    Ok((next, outcome))
}

/// Passes until everything is where it should be. Returns how many it took.
///
/// # Panics
/// When a pass fails, or the end is not reached.
#[expect(clippy::panic, reason = "it is part of tests")]
pub async fn drive(bench: &impl Bench, driver: &Arc<dyn Driver>, target: &Target, intent: Intent) -> usize {
    for passes in 1..=PASSES {
        match pass(&**driver, target, intent).await {
            Ok((Next::Rest, _)) => return passes,
            Ok(_) => bench.finish().await,
            Err(error) => panic!("{intent:?}, pass {passes}: {:?}: {error}", error.kind),
        }
    }
    panic!("{intent:?} is not reached after {PASSES} passes: {:?}", inventory(&**driver, target).await)
}
