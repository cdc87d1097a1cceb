//! What `godwit doctor` looks at: each check is a finding with what it means and, where something is wrong, what to do.

mod engines;
mod feeder;
mod index;
mod machine;
mod network;
mod server;

use serde::Serialize;

pub use engines::engines;
pub use feeder::feeder;
pub use index::indexes;
pub use machine::machine;
pub use network::{Path, network};
pub use server::server;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Fine,
    /// Good to know.
    Note,
    /// Works, but could be better.
    Warning,
    /// Something essential is missing: runs will fail.
    Missing,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `engines`, `index`, `machine`, `disk`, `network`, `server`, `cluster`.
    pub area: &'static str,
    /// What was looked at.
    pub what: String,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do, where something is to be done.
    pub remedy: Option<String>,
}

impl Finding {
    fn new(area: &'static str, what: impl Into<String>, state: State, found: impl Into<String>) -> Self {
        Self { area, what: what.into(), state, found: found.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}
