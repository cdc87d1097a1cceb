//! The DataFusion execution plan that scans a dataset. Each part of the scan is a partition, which is read on a thread
//! that may block.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use godwit_dataset::{Dataset, Scan, ScanPart};
use godwit_query::without_metadata;

/// Maximum number of batches that are queued between the reading thread and DataFusion.
const MAX_QUEUED_BATCHES: usize = 2;
/// Assumed size of a row in a file, bytes. If row counts are unknown, DataFusion estimates them by this size, and uses
/// the smaller table as the build side of a join.
const TYPICAL_ROW_BYTES: usize = 64;
/// Row count that is reported for regions that form only one part. It is below the DataFusion batch size of 8192 rows,
/// so that DataFusion does not repartition the rows.
const ESTIMATED_PART_ROWS: usize = 4096;

/// The execution plan that reads a dataset.
#[derive(Debug)]
pub(crate) struct DatasetExec {
    dataset: Arc<dyn Dataset>,
    name: String,
    scan: Scan,
    /// For each output column, its index among the columns that are read from the dataset.
    column_order: Vec<usize>,
    parts: Vec<ScanPart>,
    rows: Precision<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DatasetExec {
    /// Creates the plan that reads these columns, by index in any order, and only the rows in these regions.
    pub(crate) fn new(
        dataset: Arc<dyn Dataset>,
        name: &str,
        columns: &[usize],
        regions: Option<Vec<godwit_model::Region>>,
        partitions: usize,
    ) -> Result<Self> {
        let mut ascending = columns.to_vec();
        ascending.sort_unstable();
        ascending.dedup();
        let place = |column: &usize| ascending.binary_search(column).unwrap_or_default();
        let column_order = columns.iter().map(place).collect();
        let scan = Scan { columns: Some(ascending), regions };
        let mut parts = dataset.parts(&scan, partitions).map_err(|error| DataFusionError::External(error.into()))?;
        let guessed = dataset.rows().map_or(dataset.bytes() as usize / TYPICAL_ROW_BYTES + 1, |rows| rows as usize);
        let rows = match dataset.rows() {
            Some(rows) if scan.regions.is_none() => Precision::Exact(rows as usize),
            // The regions form only one part: report few rows, so that DataFusion does not repartition them.
            _ if scan.regions.is_some() && partitions > 1 && parts.len() < 2 => {
                Precision::Inexact(guessed.min(ESTIMATED_PART_ROWS))
            }
            // Size 0 means that the size is unknown, or hidden because the principal may see only some rows.
            _ if dataset.bytes() == 0 => Precision::Absent,
            _ => Precision::Inexact(guessed),
        };
        if parts.is_empty() {
            // DataFusion requires at least one partition, so add one without rows.
            parts.push(ScanPart::default());
        }
        let schema = Arc::new(without_metadata(&dataset.schema()).project(columns)?);
        let mut equivalences = EquivalenceProperties::new(schema.clone());
        if let Some(ordering) = ordering(&schema, dataset.sorted_by()) {
            equivalences.add_ordering(ordering);
        }
        let partitioning = Partitioning::UnknownPartitioning(parts.len());
        let properties =
            PlanProperties::new(equivalences, partitioning, EmissionType::Incremental, Boundedness::Bounded);
        let (name, properties) = (name.to_owned(), Arc::new(properties));
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { dataset, name, scan, column_order, parts, rows, properties, metrics })
    }
}

/// Returns the sort order of the rows in DataFusion's form, up to the first sort column that is not read.
fn ordering(schema: &SchemaRef, sorted_by: &[&str]) -> Option<LexOrdering> {
    let options = SortOptions { descending: false, nulls_first: false };
    let column = |name: &&str| schema.index_of(name).ok().map(|at| Arc::new(Column::new(name, at)) as _);
    let there = sorted_by.iter().map_while(column);
    LexOrdering::new(there.map(|column| PhysicalSortExpr::new(column, options)))
}

impl DisplayAs for DatasetExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "DatasetExec: {}, parts={}", self.name, self.parts.len())?;
        let names: Vec<_> = self.schema().fields().iter().map(|field| field.name().clone()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        if let Some(regions) = &self.scan.regions {
            let regions: Vec<_> = regions.iter().map(ToString::to_string).collect();
            write!(f, ", regions=[{}]", regions.join(", "))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for DatasetExec {
    fn name(&self) -> &str {
        "DatasetExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema(), MAX_QUEUED_BATCHES);
        let (sender, schema) = (builder.tx(), self.schema());
        let (dataset, scan, part) = (self.dataset.clone(), self.scan.clone(), self.parts[partition].clone());
        let in_order = self.column_order.iter().copied().eq(0..self.column_order.len());
        let order = self.column_order.clone();
        let rows_read = MetricBuilder::new(&self.metrics).output_rows(partition);
        builder.spawn_blocking(move || {
            let external = |error: godwit_dataset::DatasetError| DataFusionError::External(error.into());
            for batch in dataset.read(&scan, &part).map_err(external)? {
                let batch = batch.map_err(external)?;
                rows_read.add(batch.num_rows());
                let batch = if in_order { batch } else { batch.project(&order)? };
                let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let batch = RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &rows)?;
                // Sending fails if DataFusion needs no more rows (LIMIT), or if the statement was cancelled.
                if sender.blocking_send(Ok(batch)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if args.partition().is_none() {
            statistics.num_rows = self.rows;
        }
        Ok(Arc::new(statistics))
    }
}
