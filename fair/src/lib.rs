//! Limits that tenants and clients share, so that none of them takes the last of it.
//!
//! | limit | of what | who has none left |
//! |---|---|---|
//! | [`FairLimit`] | what runs at once | waits; tenants are served in turn |
//! | [`MemoryLimit`] | bytes of what strangers wrote | is refused, alone |
//! | [`EvictingLimit`] | what clients of a port hold | takes the place of who holds more |

mod capacity;
mod evicting;
mod fair_limit;
mod memory;

pub use self::capacity::Capacity;
pub use self::evicting::{ClientCapacity, EvictingLimit, EvictingPermit};
pub use self::fair_limit::{FairLimit, FairPermit};
pub use self::memory::{
    Charge, ChargeGuard, ChargedValue, Consumer, ConsumerMemory, MemoryFull, MemoryLimit, MemorySizes,
};
