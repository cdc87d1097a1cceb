//! The progress of a running statement, estimated from the rows that its scans have read.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::StatisticsArgs;

/// The scans of a statement that report or estimate their number of rows.
#[derive(Debug)]
pub(crate) struct ScanProgress {
    /// Each scan with its number of rows.
    scans: Vec<(Arc<dyn ExecutionPlan>, usize)>,
}

impl ScanProgress {
    /// Finds the scans of a physical plan.
    pub(crate) fn new(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut scans = Vec::new();
        add_scans(plan, &mut scans);
        Self { scans }
    }

    /// Returns the rows that the scans have read as a fraction of all their rows; 0 if no number of rows is known.
    /// Conditions that a scan applies itself, and the work after the scans, are not considered.
    pub(crate) fn fraction(&self) -> f32 {
        let all: usize = self.scans.iter().map(|(_, rows)| rows).sum();
        let read = |(scan, rows): &(Arc<dyn ExecutionPlan>, usize)| {
            let read = scan.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or_default();
            // The number of rows may be an estimate that is too small.
            read.min(*rows)
        };
        self.scans.iter().map(read).sum::<usize>() as f32 / all.max(1) as f32
    }
}

fn add_scans(plan: &Arc<dyn ExecutionPlan>, scans: &mut Vec<(Arc<dyn ExecutionPlan>, usize)>) {
    let children = plan.children();
    if children.is_empty() {
        let statistics = plan.statistics_from_inputs(&[], &StatisticsArgs::new()).ok();
        let rows = statistics.and_then(|statistics| statistics.num_rows.get_value().copied());
        scans.extend(rows.map(|rows| (plan.clone(), rows)));
    }
    for child in children {
        add_scans(child, scans);
    }
}
