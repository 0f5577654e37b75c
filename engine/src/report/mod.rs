//! What is told to people, as types that travel as JSON: questions about the store with their answers, statistics,
//! explanations, `wafd status`. It only words what others have counted.

pub mod explanation;
pub mod misuse;
pub mod question;
pub mod remote;
pub mod statistics;
pub mod status;
