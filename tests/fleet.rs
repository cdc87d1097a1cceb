//! Several servers as one, and many samples on many nodes: nothing fails where one of them does.

mod cohort;
mod failover;
mod fetched;
mod pool;
