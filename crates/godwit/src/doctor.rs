//! Checks of `godwit doctor`. Each check returns a finding: a state, an explanation and, if there is a problem, a
//! remedy.

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

/// State that a check has found, in ascending severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// There is no problem.
    Fine,
    /// The finding is information for the user.
    Note,
    /// Runs succeed, but something could be improved.
    Warning,
    /// Something essential is missing, so runs will fail.
    Missing,
}

/// Part of the system that a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Programs that godwit starts.
    Engines,
    /// Indexes of references.
    Index,
    /// Processors and memory.
    Machine,
    /// Disk space for scratch files and outputs.
    Disk,
    /// The network settings of this host.
    Network,
    /// A remote godwit server.
    Server,
    /// The scheduler of a cluster.
    Cluster,
}

impl Area {
    /// Returns the name of the area, which is also its form in JSON.
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

/// The finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Part of the system that was checked.
    pub area: Area,
    /// Name of the checked program, file or setting.
    #[serde(rename = "what")]
    pub subject: String,
    /// State that was found.
    pub state: FindingState,
    /// Details, such as a version, a path or a size.
    #[serde(rename = "found")]
    pub details: String,
    /// The action that corrects the problem; `None` if there is no problem.
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
