//! What our HTTP ports have in common. It looks at heads of requests only, and knows nothing of what is served.

pub mod asker;
