//! What benchmarks share: a fleet of clusters, counts of what is asked of hub, spoke and cloud, and the table of results.

pub mod hundred;
pub mod meter;
pub mod table;
