//! What the cache knows of stores that machines share: the texts that are handed round, and what may be taken of them.

pub mod foreign;
pub mod shelf;
pub mod wrapped;
