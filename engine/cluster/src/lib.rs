//! What waflib-extras needs of clusters: a library for the program `wafd-cluster`.
//!
//! Clusters speak the Remote Execution API, and that is gRPC. What it takes is here, and not in `wafd`, which stays small
//! and starts this program if a setting names a cluster.
//!
//! ```text
//! engine ─► bridge ─► contents, action results ─┐
//!      └──► executing ─► contents, execution ───┼─► connection ─► the cluster
//!           worker ─► contents, leases ─────────┘
//! ```

pub mod bridge;
pub mod capabilities;
pub mod connection;
pub mod contents;
pub mod digests;
pub mod executing;
#[cfg(test)]
pub mod test_support;
pub mod worker;

pub use bazel_remote_apis::build::bazel::remote::execution::v2 as reapi;
