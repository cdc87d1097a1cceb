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

/// A part of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Programs that godwit starts.
    Engines,
    /// Indexes of references.
    Index,
    /// Processors and memory.
    Machine,
    /// Scratch and output space.
    Disk,
    /// The network of this machine.
    Network,
    /// A server.
    Server,
    /// The scheduler of a cluster.
    Cluster,
}

impl Area {
    /// Returns the name, which is also its serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Engines => "engines",
            Self::Index => "index",
            Self::Machine => "machine",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Server => "server",
            Self::Cluster => "cluster",
        }
    }
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The part of the system that it belongs to.
    pub area: Area,
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
    fn new(area: Area, what: impl Into<String>, state: State, found: impl Into<String>) -> Self {
        Self { area, what: what.into(), state, found: found.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}
