//! The report of a `call` job, which is written as `OUT.run.json`: inputs, caller, time of each region, and outputs.

use godwit_files::AtomicSet;
use godwit_pipeline::job_report::{InputFile, OutputFile, Stage};
use godwit_pipeline::observer::rounded_seconds;
use serde::Serialize;

use super::stall::RegionStall;
use super::{CallJob, CalledRegions};

/// The report of a `call`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallReport {
    /// Version of godwit.
    pub godwit: String,
    /// The subcommand.
    pub verb: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// Name of the caller.
    pub caller: String,
    /// Version of the caller; empty if the caller reports none.
    pub caller_version: String,
    /// Maximum number of concurrent callers, over all workers.
    #[serde(rename = "workers")]
    pub concurrent_callers: usize,
    /// The grid that divided the genome into regions.
    pub grid: GridReport,
    /// Files read.
    pub inputs: Vec<InputFile>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
    /// Time of each stage.
    pub stages: Vec<Stage>,
    /// Workers of a cluster run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "nodes")]
    pub cluster_workers: Vec<CallWorkerReport>,
    /// Number of workers that were lost during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "lost_nodes")]
    pub lost_workers: Option<usize>,
    /// The called regions, in the order of the genome.
    pub regions: Vec<RegionReport>,
    /// Number of regions that an earlier, stopped process had called.
    pub resumed_regions: usize,
    /// Number of regions that were called while the BAM was still being written.
    pub regions_while_writing: usize,
    /// Number of records written.
    pub records: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// True if the outputs existed already, so that nothing was called.
    #[serde(skip)]
    pub already_complete: bool,
}

/// Size and padding of the regions of the grid.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct GridReport {
    /// Maximum number of target bases of a region, not counting assembly gaps.
    #[serde(rename = "window_bases")]
    pub max_region_bases: u32,
    /// Bases before and after a region that the caller also reads.
    pub padding_bases: u32,
}

/// The report of one region.
#[derive(Clone, Debug, Serialize)]
pub struct RegionReport {
    /// The region from its first to its last base, such as `chr1:1-1000`, 1-based.
    pub region: String,
    /// Number of bases that were called.
    pub bases: u64,
    /// Ploidy of the region; `None` if the user gave no ploidy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ploidy: Option<u8>,
    /// Number of records in the region.
    pub records: u64,
    /// Wall time of the caller, seconds.
    pub seconds: f64,
    /// Number of times that the caller was started.
    pub attempts: u32,
    /// Name of the worker that called the region; `None` without a cluster run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "node")]
    pub worker: Option<String>,
    /// The region or its pieces, where the caller stalled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<RegionStall>,
}

/// The report of one worker of a cluster run.
#[derive(Clone, Debug, Serialize)]
pub struct CallWorkerReport {
    /// Name of the worker: its host and its process.
    pub name: String,
    /// Number of regions that this worker called.
    pub regions: usize,
}

impl CallReport {
    /// Returns the regions that are set apart, without records, because the caller stalled there.
    pub fn regions_set_apart(&self) -> Vec<&str> {
        let stalls = self.regions.iter().flat_map(|region| &region.stalls);
        stalls.filter(|stall| stall.is_set_apart()).map(|stall| &*stall.region).collect()
    }

    /// Returns the report of a job whose files are written.
    pub(super) fn new(
        job: &CallJob,
        called: &CalledRegions,
        records: u64,
        mut stages: Vec<Stage>,
        staged: &AtomicSet,
    ) -> Self {
        stages.iter_mut().for_each(|stage| stage.seconds = (stage.seconds * 1000.0).round() / 1000.0);
        let grid = super::region_plan::grid_options(job.options, &job.caller.capabilities());
        let regions = job.regions.iter().zip(&called.checkpoints).map(|(planned, kept)| RegionReport {
            region: planned.label.clone(),
            bases: planned.region.bases(),
            ploidy: planned.ploidy,
            records: kept.records,
            seconds: kept.seconds,
            attempts: kept.effort.attempts,
            worker: kept.effort.worker.clone(),
            stalls: kept.effort.stalls.clone(),
        });
        let of_node = |name: &String| {
            let own = called.checkpoints.iter().filter(|region| region.effort.worker.as_ref() == Some(name));
            CallWorkerReport { name: name.clone(), regions: own.count() }
        };
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: "call",
            command: job.options.command.clone(),
            caller: job.caller.name().to_owned(),
            caller_version: job.caller.version().to_owned(),
            concurrent_callers: called.concurrent_callers,
            cluster_workers: called.worker_names.iter().map(of_node).collect(),
            lost_workers: called.lost_workers,
            grid: GridReport { max_region_bases: grid.max_region_bases, padding_bases: grid.padding_bases },
            inputs: job.inputs.clone(),
            outputs: OutputFile::from_files(staged),
            stages,
            regions: regions.collect(),
            resumed_regions: job.resumed_regions,
            regions_while_writing: job.regions_called_while_writing,
            records,
            seconds: rounded_seconds(job.started_at.elapsed()),
            already_complete: false,
        }
    }
}
