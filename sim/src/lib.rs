//! The ledger of a run, unchanged, in a simulated world: nodes that align, fetch and write in simulated time, a network
//! with delay and loss, and faults drawn from a seed. Nothing here depends on a real clock, so a seed that fails fails
//! again.
//!
//! What is checked: every run ends, with every part in the file once at its place, made of every block; a node writes a part
//! only when it holds all its slices; no node is given more than its limits; and blocks are aligned again only where a
//! node was lost or slow.

mod copies;
mod random;
mod speed;
mod world;

pub use copies::{CopyOutcome, copy};
pub use speed::{Speed, speed};
pub use world::{Faults, Outcome, Scenario, run};
