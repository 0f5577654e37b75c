//! The cache: what commands depend on, what is stored of them, and where.

#[path = "../support/mod.rs"]
mod support;

mod action;
mod facts;
mod facts_hold;
mod facts_of_compilers;
mod facts_of_results;
mod observe;
mod observe_strace;
mod store;
mod store_damage;
mod store_heal;
mod store_volumes;
