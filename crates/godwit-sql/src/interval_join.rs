//! Interval joins. The build side is kept in memory with an index of its keys and bounds. The probe side is read batch
//! by batch, and each of its rows is looked up in the index.
//!
//! Two rows match if their keys are equal, `build.low < probe.high` and `probe.low < build.high`. In a nearest join
//! they match if their keys are equal and no other build row with these keys is nearer. Memory grows with the build
//! side. It is reserved from the memory pool of the statement; if it exceeds the limit, the statement fails.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array,
};
use datafusion::arrow::compute::{cast, concat_batches, take};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::arrow::row::{RowConverter, Rows as KeyRows, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, resources_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ExecutionPlanProperties as _};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures_util::{TryStreamExt as _, stream};
use tokio::sync::OnceCell;

use crate::interval_index::{BYTES_PER_ENTRY, IntervalEntry, IntervalIndex};

/// Expressions for keys and bounds, which are evaluated on the rows of one side of the join.
#[derive(Clone, Debug)]
pub(crate) struct SideExpressions {
    /// Expressions whose values must be equal in matching rows, such as the contig. A null value matches no row.
    pub(crate) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(crate) low: Arc<dyn PhysicalExpr>,
    pub(crate) high: Arc<dyn PhysicalExpr>,
    /// Numbers that are added to the two bounds, to convert inclusive comparisons in the statement to exclusive ones.
    pub(crate) bound_offsets: (i64, i64),
}

/// The origin of an output column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinColumn {
    Build(usize),
    Probe(usize),
    /// The distance between the two intervals, in bases.
    Distance,
}

/// The rows that the join returns for each row of the probe side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntervalJoinType {
    /// The probe row paired with each matching build row.
    Inner,
    /// As `Inner`. A probe row without a match is returned once, with nulls for the build side.
    Outer,
    /// The probe row once if any build row matches.
    Semi,
    /// The probe row once if no build row matches.
    Anti,
    /// The probe row paired with each of the nearest build rows; once with nulls for the build side if no build row has
    /// its keys.
    Nearest,
}

/// The join conditions other than keys and overlap, on columns of both sides.
#[derive(Clone, Debug)]
pub(crate) struct ResidualFilter {
    pub(crate) expression: Arc<dyn PhysicalExpr>,
    pub(crate) columns: Vec<JoinColumn>,
    pub(crate) schema: SchemaRef,
}

/// The parameters of an interval join: expressions, join type, filter and output columns.
#[derive(Clone, Debug)]
pub(crate) struct IntervalJoin {
    pub(crate) build: SideExpressions,
    pub(crate) probe: SideExpressions,
    pub(crate) residual_filter: Option<ResidualFilter>,
    pub(crate) join_type: IntervalJoinType,
    pub(crate) columns: Vec<JoinColumn>,
    pub(crate) schema: SchemaRef,
}

/// The execution plan of an interval join.
#[derive(Debug)]
pub(crate) struct IntervalJoinExec {
    join: Arc<IntervalJoin>,
    /// The plans of the build side and of the probe side, in this order.
    inputs: [Arc<dyn ExecutionPlan>; 2],
    build_side: Arc<OnceCell<Arc<BuildSide>>>,
    properties: Arc<PlanProperties>,
}

impl IntervalJoinExec {
    pub(crate) fn new(join: Arc<IntervalJoin>, held: Arc<dyn ExecutionPlan>, passing: Arc<dyn ExecutionPlan>) -> Self {
        let partitioning = Partitioning::UnknownPartitioning(passing.output_partitioning().partition_count());
        let equivalences = EquivalenceProperties::new(join.schema.clone());
        let properties =
            PlanProperties::new(equivalences, partitioning, EmissionType::Incremental, Boundedness::Bounded);
        Self { join, inputs: [held, passing], build_side: Arc::default(), properties: Arc::new(properties) }
    }
}

impl DisplayAs for IntervalJoinExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let SideExpressions { keys, low, high, .. } = &self.join.build;
        write!(f, "IntervalJoinExec: {:?}, build=[{low}, {high})", self.join.join_type)?;
        let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
        write!(f, ", probe=[{}, {}), keys=[{}]", self.join.probe.low, self.join.probe.high, keys.join(", "))?;
        match &self.join.residual_filter {
            Some(condition) => write!(f, ", filter={}", condition.expression),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for IntervalJoinExec {
    fn name(&self) -> &str {
        "IntervalJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition, Distribution::UnspecifiedDistribution])
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let sides = [&self.join.build, &self.join.probe];
        let of_sides = sides.into_iter().flat_map(|side| side.keys.iter().chain([&side.low, &side.high]));
        for expression in of_sides.chain(self.join.residual_filter.as_ref().map(|condition| &condition.expression)) {
            if visit(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut children = children.into_iter();
        match (children.next(), children.next()) {
            (Some(held), Some(passing)) => Ok(Arc::new(Self::new(self.join.clone(), held, passing))),
            _ => Ok(self),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let [held, passing] = &self.inputs;
        let reservation = MemoryConsumer::new("IntervalJoinExec").register(context.memory_pool());
        let max_batch_rows = context.session_config().batch_size();
        let (held, cell, join) = (held.clone(), self.build_side.clone(), self.join.clone());
        let input = passing.execute(partition, context.clone())?;
        let start = async move {
            let filled =
                cell.get_or_try_init(|| async { BuildSide::collect(&join, &held, context, reservation).await });
            let build_side = filled.await?.clone();
            let key_converter = KeyConverter::new(&join.probe, &input.schema())?;
            Ok::<_, datafusion::error::DataFusionError>(IntervalJoinStream {
                join,
                build_side,
                key_converter,
                input,
                probe_batch: None,
                max_batch_rows,
            })
        };
        let batches = stream::once(start).map_ok(|joining| {
            stream::try_unfold(joining, |mut joining| async move {
                Ok(joining.next_batch().await?.map(|batch| (batch, joining)))
            })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches.try_flatten())))
    }
}

/// A converter of key values into bytes that are equal if and only if the keys are equal.
struct KeyConverter {
    converter: RowConverter,
}

/// The values of keys and bounds for all rows of a batch.
struct BatchIntervals {
    keys: KeyRows,
    /// For each row: true if a key is null.
    has_null_key: Vec<bool>,
    low: Int64Array,
    high: Int64Array,
}

impl KeyConverter {
    fn new(side: &SideExpressions, schema: &SchemaRef) -> Result<Self> {
        let fields: Result<Vec<SortField>> =
            side.keys.iter().map(|key| Ok(SortField::new(key.data_type(schema)?))).collect();
        Ok(Self { converter: RowConverter::new(fields?)? })
    }

    fn evaluate(&mut self, side: &SideExpressions, batch: &RecordBatch) -> Result<BatchIntervals> {
        let array = |expression: &Arc<dyn PhysicalExpr>| expression.evaluate(batch)?.into_array(batch.num_rows());
        let keys = side.keys.iter().map(array).collect::<Result<Vec<ArrayRef>>>()?;
        let has_null_key = (0..batch.num_rows()).map(|row| keys.iter().any(|key| key.is_null(row))).collect();
        let bound = |expression, shift: i64| -> Result<Int64Array> {
            let values = cast(&array(expression)?, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            Ok(if shift == 0 { values.clone() } else { values.unary(|value| value.saturating_add(shift)) })
        };
        let (low, high) = (bound(&side.low, side.bound_offsets.0)?, bound(&side.high, side.bound_offsets.1)?);
        Ok(BatchIntervals { keys: self.converter.convert_columns(&keys)?, has_null_key, low, high })
    }
}

impl BatchIntervals {
    /// Returns the bounds of a row; `None` if a key or a bound is null, so that the row cannot match.
    fn bounds(&self, row: usize) -> Option<(i64, i64)> {
        let is_null = self.has_null_key[row] || self.low.is_null(row) || self.high.is_null(row);
        (!is_null).then(|| (self.low.value(row), self.high.value(row)))
    }
}

/// The collected rows of the build side, and their index.
#[derive(Debug)]
struct BuildSide {
    rows: RecordBatch,
    indexes_by_key: HashMap<Box<[u8]>, IntervalIndex>,
    /// The reserved memory, which is released when the build side is dropped.
    _reservation: MemoryReservation,
}

impl BuildSide {
    async fn collect(
        join: &IntervalJoin,
        input: &Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        reservation: MemoryReservation,
    ) -> Result<Arc<Self>> {
        let mut stream = input.execute(0, context)?;
        let (mut batches, mut bytes, mut rows) = (Vec::new(), 0, 0usize);
        while let Some(batch) = stream.try_next().await? {
            let of_batch = batch.get_array_memory_size() + batch.num_rows() * BYTES_PER_ENTRY;
            reservation.try_grow(of_batch)?;
            rows += batch.num_rows();
            bytes += batch.get_array_memory_size();
            batches.push(batch);
        }
        if u32::try_from(rows).is_err() {
            return resources_err!(
                "the build side of an interval join holds at most 4294967295 rows, and one of its tables has {rows}"
            );
        }
        // Reserve the size again: while the batches are concatenated, both copies are in memory.
        reservation.try_grow(bytes)?;
        let rows = concat_batches(&input.schema(), &batches)?;
        drop(batches);
        reservation.shrink(bytes);
        let evaluated = KeyConverter::new(&join.build, &input.schema())?.evaluate(&join.build, &rows)?;
        let mut entries: HashMap<Box<[u8]>, Vec<IntervalEntry>> = HashMap::new();
        for row in 0..rows.num_rows() {
            let Some((low, high)) = evaluated.bounds(row) else { continue };
            let key = evaluated.keys.row(row);
            let entry = IntervalEntry { low, high, row: row as u32 };
            match entries.get_mut(key.as_ref()) {
                Some(of_key) => of_key.push(entry),
                None => {
                    entries.insert(key.as_ref().into(), vec![entry]);
                }
            }
        }
        let index = |(key, entries)| (key, IntervalIndex::new(entries, join.join_type == IntervalJoinType::Nearest));
        Ok(Arc::new(Self { rows, indexes_by_key: entries.into_iter().map(index).collect(), _reservation: reservation }))
    }
}

/// A batch of the probe side, and the state of its processing.
struct ProbeBatch {
    batch: RecordBatch,
    intervals: BatchIntervals,
    /// Index of the next row to look up.
    next_row: usize,
    /// Build rows that match the row before `next_row` and are not returned yet, in reverse order. In a nearest join,
    /// their distance is `pending_distance`.
    pending_build_rows: Vec<u32>,
    pending_distance: i64,
    /// For each row: true if it has matched a build row.
    is_matched: Vec<bool>,
}

/// Matched pairs of build rows and probe rows, by index.
#[derive(Default)]
struct RowPairs {
    build_rows: Vec<Option<u32>>,
    probe_rows: Vec<u32>,
    distances: Vec<Option<i64>>,
}

struct IntervalJoinStream {
    join: Arc<IntervalJoin>,
    build_side: Arc<BuildSide>,
    key_converter: KeyConverter,
    input: SendableRecordBatchStream,
    probe_batch: Option<ProbeBatch>,
    /// Maximum number of rows in an output batch.
    max_batch_rows: usize,
}

impl IntervalJoinStream {
    /// Returns the next batch of joined rows; `None` at the end.
    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(current) = &mut self.probe_batch else {
                let Some(batch) = self.input.try_next().await? else { return Ok(None) };
                let intervals = self.key_converter.evaluate(&self.join.probe, &batch)?;
                let is_matched = vec![false; batch.num_rows()];
                self.probe_batch = Some(ProbeBatch {
                    batch,
                    intervals,
                    next_row: 0,
                    pending_build_rows: Vec::new(),
                    pending_distance: 0,
                    is_matched,
                });
                continue;
            };
            let pairs = current.next_pairs(&self.join, &self.build_side, self.max_batch_rows);
            let (pairs, is_over) = if pairs.probe_rows.is_empty() {
                (current.remaining_pairs(self.join.join_type), true)
            } else {
                let pairs = self.join.apply_residual_filter(pairs, &self.build_side.rows, &current.batch)?;
                pairs.probe_rows.iter().for_each(|row| current.is_matched[*row as usize] = true);
                (
                    if matches!(self.join.join_type, IntervalJoinType::Semi | IntervalJoinType::Anti) {
                        RowPairs::default()
                    } else {
                        pairs
                    },
                    false,
                )
            };
            let rows = (!pairs.probe_rows.is_empty()).then(|| {
                self.join.gather_columns(
                    &pairs,
                    &self.join.columns,
                    &self.join.schema,
                    &self.build_side.rows,
                    &current.batch,
                )
            });
            if is_over {
                self.probe_batch = None;
            }
            if let Some(rows) = rows {
                return rows.map(Some);
            }
        }
    }
}

impl ProbeBatch {
    /// Returns the next matching pairs of the batch, at most `most`, before the residual filter. Returns no pairs at
    /// the end of the batch.
    fn next_pairs(&mut self, join: &IntervalJoin, held: &BuildSide, most: usize) -> RowPairs {
        let mut pairs = RowPairs::default();
        // For semi and anti joins without a residual filter, the first match of a row is sufficient.
        let first_is_enough =
            matches!(join.join_type, IntervalJoinType::Semi | IntervalJoinType::Anti) && join.residual_filter.is_none();
        while pairs.probe_rows.len() < most {
            if let Some(row) = self.pending_build_rows.pop() {
                pairs.build_rows.push(Some(row));
                pairs.probe_rows.push(self.next_row as u32 - 1);
                pairs.distances.push(Some(self.pending_distance));
                continue;
            }
            if self.next_row == self.batch.num_rows() {
                break;
            }
            let row = self.next_row;
            self.next_row += 1;
            let Some((low, high)) = self.intervals.bounds(row) else { continue };
            let Some(index) = held.indexes_by_key.get(self.intervals.keys.row(row).as_ref()) else { continue };
            if join.join_type == IntervalJoinType::Nearest {
                self.pending_distance = index.nearest(low, high, &mut self.pending_build_rows).unwrap_or_default();
            } else {
                index.for_each_overlap(low, high, |row| {
                    self.pending_build_rows.push(row);
                    if first_is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
            // `pending_build_rows` is emptied from its end, so reverse it to return the first entries first.
            self.pending_build_rows.reverse();
        }
        pairs
    }

    /// Returns the rows that can be returned only after all pairs of the batch are known, such as rows without a match.
    fn remaining_pairs(&self, emit: IntervalJoinType) -> RowPairs {
        let wanted = match emit {
            IntervalJoinType::Inner => return RowPairs::default(),
            IntervalJoinType::Semi => true,
            IntervalJoinType::Outer | IntervalJoinType::Anti | IntervalJoinType::Nearest => false,
        };
        let rows: Vec<u32> =
            (0..).zip(&self.is_matched).filter(|(_, met)| **met == wanted).map(|(row, _)| row).collect();
        RowPairs { build_rows: vec![None; rows.len()], distances: vec![None; rows.len()], probe_rows: rows }
    }
}

impl IntervalJoin {
    /// Returns only those pairs that meet the residual filter.
    fn apply_residual_filter(&self, pairs: RowPairs, held: &RecordBatch, passing: &RecordBatch) -> Result<RowPairs> {
        let Some(condition) = &self.residual_filter else { return Ok(pairs) };
        let rows = self.gather_columns(&pairs, &condition.columns, &condition.schema, held, passing)?;
        let is_met = condition.expression.evaluate(&rows)?.into_array(rows.num_rows())?;
        let is_met: &BooleanArray = is_met.as_boolean();
        let keep = |at: &usize| is_met.is_valid(*at) && is_met.value(*at);
        let kept: Vec<usize> = (0..rows.num_rows()).filter(keep).collect();
        Ok(RowPairs {
            build_rows: kept.iter().map(|at| pairs.build_rows[*at]).collect(),
            probe_rows: kept.iter().map(|at| pairs.probe_rows[*at]).collect(),
            distances: kept.iter().map(|at| pairs.distances[*at]).collect(),
        })
    }

    /// Creates columns with the values of the rows in the pairs.
    fn gather_columns(
        &self,
        pairs: &RowPairs,
        columns: &[JoinColumn],
        schema: &SchemaRef,
        held: &RecordBatch,
        passing: &RecordBatch,
    ) -> Result<RecordBatch> {
        let of_held = UInt32Array::from(pairs.build_rows.clone());
        let of_passing = UInt32Array::from(pairs.probe_rows.clone());
        let arrays = columns.iter().map(|column| match *column {
            JoinColumn::Build(at) => Ok(take(held.column(at), &of_held, None)?),
            JoinColumn::Probe(at) => Ok(take(passing.column(at), &of_passing, None)?),
            JoinColumn::Distance => Ok(Arc::new(Int64Array::from(pairs.distances.clone())) as ArrayRef),
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(pairs.probe_rows.len()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &rows)?)
    }
}
