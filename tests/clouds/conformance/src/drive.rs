//! The controller's loop in miniature: list, choose as a decision does, advance.

use std::sync::Arc;

use shared::cloud::{CloudError, Driver, InstanceState, Inventory, Outcome, Priority, Target, Verb};

use crate::Bench;

/// Passes after which a transition must have ended.
const PASSES: usize = 40;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
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

impl Wish {
    /// The state of every machine in the end.
    pub fn end(self) -> InstanceState {
        match self {
            Self::Awake => InstanceState::Running,
            Self::Asleep => InstanceState::Stopped,
        }
    }
}

/// Chooses as the decisions of the controller do.
pub fn next(inventory: &Inventory, wish: Wish) -> Next {
    let ids = match wish {
        Wish::Asleep => inventory.to_stop(|_| true),
        Wish::Awake => inventory.to_start(|_| true),
    };
    match (inventory.all(wish.end()), wish) {
        (true, _) if inventory.owed => Next::Settle,
        (true, _) => Next::Rest,
        _ if ids.is_empty() => Next::Wait,
        (_, Wish::Asleep) => Next::Advance(Verb::Stop, ids),
        (_, Wish::Awake) => Next::Advance(Verb::Start, ids),
    }
}

/// What the driver finds.
///
/// # Errors
/// As the driver says.
pub async fn inventory(driver: &dyn Driver, target: &Target) -> Result<Inventory, CloudError> {
    let listing = driver.list(target, Priority::Waking).await?;
    Ok(Inventory::new(driver.profile(&target.cluster), listing))
}

/// One pass. Returns what it chose, and what came of it.
///
/// # Errors
/// As the driver says.
pub async fn pass(driver: &dyn Driver, target: &Target, wish: Wish) -> Result<(Next, Outcome), CloudError> {
    let next = next(&inventory(driver, target).await?, wish);
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
pub async fn drive(bench: &impl Bench, driver: &Arc<dyn Driver>, target: &Target, wish: Wish) -> usize {
    for passes in 1..=PASSES {
        match pass(&**driver, target, wish).await {
            Ok((Next::Rest, _)) => return passes,
            Ok(_) => bench.finish().await,
            Err(error) => panic!("{wish:?}, pass {passes}: {:?}: {error}", error.kind),
        }
    }
    panic!("{wish:?} is not reached after {PASSES} passes: {:?}", inventory(&**driver, target).await)
}
