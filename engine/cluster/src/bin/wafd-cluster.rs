//! `wafd-cluster`: what `wafd` needs of clusters. `wafd` starts it.

fn main() {}
