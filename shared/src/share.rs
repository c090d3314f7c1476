//! How tenants share capacity of one kind: slots, or bytes.

/// Whether a tenant that holds `held` of the `taken` of `most` may have so many more: `of_one` while no other has any,
/// and the less the less is free. Tenants that take all they get soon have the same, and leave something to one that
/// has nothing.
pub const fn may(most: usize, of_one: usize, taken: usize, held: usize, more: usize) -> bool {
    let free = most.saturating_sub(taken);
    free >= more && free > 0 && held * most.saturating_sub(of_one) < free * of_one
}
