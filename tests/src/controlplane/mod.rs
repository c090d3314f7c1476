//! Real etcd, kube-apiserver and kube-controller-manager.

pub mod assets;
pub mod server;
