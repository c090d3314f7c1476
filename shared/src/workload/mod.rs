//! Workloads: objects whose size is `spec.replicas` and whose sleep is 0 replicas with the former count in an
//! annotation.

pub mod admission;
pub mod ownership;
pub mod replicas;
