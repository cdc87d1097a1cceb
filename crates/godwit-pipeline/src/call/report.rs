//! `OUT.run.json`: what was called with what, how long each region took, and what came out.

use serde::Serialize;

use super::{CallJob, Called};
use crate::observer::seconds;
use crate::run_report::{InputFile, OutputFile, Stage};
use crate::staging::Staged;

/// The report of a `call`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallReport {
    /// Version of godwit.
    pub godwit: String,
    /// The verb.
    pub verb: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// Name of the caller.
    pub caller: String,
    /// Its version; empty where it tells none.
    pub caller_version: String,
    /// Callers that ran at a time, at most, over all nodes.
    pub workers: usize,
    /// How the genome was cut.
    pub grid: Cutting,
    /// Files read.
    pub inputs: Vec<InputFile>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
    /// What took how long.
    pub stages: Vec<Stage>,
    /// Nodes that were part of the run, where it was spread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<CallingNode>,
    /// Those of them that were lost on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_nodes: Option<usize>,
    /// Regions in the order of the genome.
    pub regions: Vec<CalledRegionReport>,
    /// Regions that an earlier, stopped process had called.
    pub resumed_regions: usize,
    /// Regions that were called while the reads were still being written.
    pub regions_while_writing: usize,
    /// Records written.
    pub records: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// The outputs were there already; nothing ran.
    #[serde(skip)]
    pub already_complete: bool,
}

/// How the genome was cut.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cutting {
    /// Most bases of a region.
    pub window_bases: u32,
    /// Bases shown to the caller on either side.
    pub padding_bases: u32,
}

/// One region.
#[derive(Clone, Debug, Serialize)]
pub struct CalledRegionReport {
    /// From its first to its last base, as `chr1:1-1000`, 1-based.
    pub region: String,
    /// Bases called.
    pub bases: u64,
    /// Copies, where that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ploidy: Option<u8>,
    /// Records.
    pub records: u64,
    /// Wall time of the caller, seconds.
    pub seconds: f64,
    /// How often the caller was started.
    pub attempts: u32,
    /// The node that called it, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A node of a run.
#[derive(Clone, Debug, Serialize)]
pub struct CallingNode {
    /// Machine and process.
    pub name: String,
    /// Regions whose records are its.
    pub regions: usize,
}

impl CallReport {
    /// The report of a job whose files are written.
    pub(super) fn new(job: &CallJob, called: &Called, records: u64, mut stages: Vec<Stage>, staged: &Staged) -> Self {
        stages.iter_mut().for_each(|stage| stage.seconds = (stage.seconds * 1000.0).round() / 1000.0);
        let grid = super::plan::grid_options(job.options, &job.caller.habits());
        let regions = job.regions.iter().zip(&called.kept).map(|(planned, kept)| CalledRegionReport {
            region: planned.name.clone(),
            bases: planned.region.bases(),
            ploidy: planned.ploidy,
            records: kept.records,
            seconds: kept.seconds,
            attempts: kept.effort.attempts,
            node: kept.effort.node.clone(),
        });
        let of_node = |name: &String| {
            let own = called.kept.iter().filter(|region| region.effort.node.as_ref() == Some(name));
            CallingNode { name: name.clone(), regions: own.count() }
        };
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: "call",
            command: job.options.command.clone(),
            caller: job.caller.name().to_owned(),
            caller_version: job.caller.version().to_owned(),
            workers: called.workers,
            nodes: called.nodes.iter().map(of_node).collect(),
            lost_nodes: called.lost_nodes,
            grid: Cutting { window_bases: grid.window_bases, padding_bases: grid.padding_bases },
            inputs: job.inputs.clone(),
            outputs: OutputFile::of(staged),
            stages,
            regions: regions.collect(),
            resumed_regions: job.resumed,
            regions_while_writing: job.called_live,
            records,
            seconds: seconds(job.started.elapsed()),
            already_complete: false,
        }
    }
}
