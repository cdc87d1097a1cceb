//! Runs that are spread over nodes, whatever these do for them: who starts the nodes, where they find the head, and which of
//! them are there.

mod crew;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use godwit_fleet::FleetError;

use crate::error::PipelineError;

pub(crate) use crew::{Crew, News};

/// What nodes are told, as JSON.
///
/// # Errors
/// [`PipelineError::Options`] where a path in it is not UTF-8.
pub(crate) fn for_nodes(told: &impl serde::Serialize) -> Result<serde_json::Value, PipelineError> {
    serde_json::to_value(told).map_err(|error| PipelineError::Options {
        problem: format!(
            "nodes cannot be told what to do: {error}; over nodes the paths of all files and directories must be UTF-8: rename \
             the one that is not"
        ),
    })
}

/// How a run is spread over nodes.
pub struct Spread<'l> {
    /// Number of nodes that are started; more may come, and some may go.
    pub nodes: u32,
    /// Addresses of this machine that nodes come to, best first: where there is one the head listens there alone.
    pub addresses: Vec<IpAddr>,
    /// The directory where nodes find it, where the launcher has one that they know already.
    pub meeting: Option<PathBuf>,
    /// The start of the job that this is; nodes of earlier ones are turned away.
    pub attempt: u64,
    /// Whether all nodes are on one machine.
    pub one_machine: bool,
    /// Starts them.
    pub launch: &'l dyn Launch,
}

/// Starts nodes.
pub trait Launch: Sync {
    /// Starts all nodes, which find the run in this directory.
    ///
    /// # Errors
    /// [`PipelineError`].
    fn start(&self, meeting: &Path) -> Result<(), PipelineError>;

    /// What nodes said last that have ended since this was asked before, each with its number.
    fn gone(&self) -> Vec<String>;

    /// Whether none of them can come any more.
    fn ended(&self) -> bool;

    /// Stops those that still run, after they had time to end by themselves.
    fn stop(&self);

    /// The number of a later start of this very job, where there is one: this one has to end.
    fn later_start(&self) -> Option<u64>;
}

impl Spread<'_> {
    /// Ends this head where its job was started again: two would write the same files.
    ///
    /// # Errors
    /// [`FleetError::Superseded`].
    pub(crate) fn check_current(&self) -> Result<(), PipelineError> {
        match self.launch.later_start() {
            Some(current) => Err(FleetError::Superseded { own: self.attempt, current }.into()),
            None => Ok(()),
        }
    }
}
