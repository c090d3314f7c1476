//! Limits that tenants share, so that none of them takes the last of it: capacity by number, memory by bytes.

mod memory;
mod shares;

pub use self::memory::Share as MemoryShare;
pub use self::memory::{Charge, Full, Held, Kept, Memory, Sizes, Whose};
pub use self::shares::{Share, Shares, may};
