//! Checks of `godwit doctor`: each yields a finding with its meaning and, if something is wrong, a remedy.

mod engines;
mod input_rate;
mod machine;
mod network;
mod reference_index;
mod server;

use serde::Serialize;

pub use engines::engines;
pub use input_rate::input_rate;
pub use machine::machine;
pub use network::{NetworkPath, network};
pub use reference_index::indexes;
pub use server::server;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// No problem.
    Fine,
    /// Information.
    Note,
    /// Works, but could be improved.
    Warning,
    /// Something essential is missing: runs will fail.
    Missing,
}

/// Part of the system.
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
    /// The network of this host.
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

/// Finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Part of the system that was checked.
    pub area: Area,
    /// Subject of the check.
    #[serde(rename = "what")]
    pub subject: String,
    /// Result of the check.
    pub state: FindingState,
    /// Details of the result.
    #[serde(rename = "found")]
    pub details: String,
    /// Remedy, if there is a problem.
    pub remedy: Option<String>,
}

impl Finding {
    fn new(area: Area, what: impl Into<String>, state: FindingState, found: impl Into<String>) -> Self {
        Self { area, subject: what.into(), state, details: found.into(), remedy: None }
    }

    fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}
