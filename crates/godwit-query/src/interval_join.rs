//! Joins of intervals: one side is held, indexed by its keys and bounds; the other passes by.
//!
//! Two rows meet where their keys are equal, `held.low < passing.high` and `passing.low < held.high`; or, where the nearest are
//! asked for, where nothing of the same keys is nearer. Memory goes by the side that is held, and is taken from the pool of
//! the statement, which refuses what is too much.

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

use crate::intervals::{BYTES_PER_ENTRY, Entry, IntervalIndex};

/// What is evaluated on the rows of one side.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// Equal for rows that meet; null meets nothing.
    pub(crate) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(crate) low: Arc<dyn PhysicalExpr>,
    pub(crate) high: Arc<dyn PhysicalExpr>,
    /// Added to the bounds: comparisons that include them are made ones that do not.
    pub(crate) shift: (i64, i64),
}

/// Which side a column is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Held(usize),
    Passing(usize),
    /// How far the two rows are from each other.
    Distance,
}

/// What becomes of rows of the passing side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emit {
    /// Each with each row that it meets.
    Pairs,
    /// The same, and once alone where it meets none.
    PairsAndLone,
    /// Once, if it meets any.
    Met,
    /// Once, if it meets none.
    Lone,
    /// With each of those that are nearest, and once alone where there are none.
    Nearest,
}

/// Further conditions, on some columns of both sides.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) expression: Arc<dyn PhysicalExpr>,
    pub(crate) columns: Vec<From>,
    pub(crate) schema: SchemaRef,
}

/// A join as it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct IntervalJoin {
    pub(crate) held: Side,
    pub(crate) passing: Side,
    pub(crate) condition: Option<Condition>,
    pub(crate) emit: Emit,
    pub(crate) columns: Vec<From>,
    pub(crate) schema: SchemaRef,
}

/// Carries a join out.
#[derive(Debug)]
pub(crate) struct IntervalJoinExec {
    join: Arc<IntervalJoin>,
    /// The side that is held, and the other.
    inputs: [Arc<dyn ExecutionPlan>; 2],
    held: Arc<OnceCell<Arc<Held>>>,
    properties: Arc<PlanProperties>,
}

impl IntervalJoinExec {
    pub(crate) fn new(join: Arc<IntervalJoin>, held: Arc<dyn ExecutionPlan>, passing: Arc<dyn ExecutionPlan>) -> Self {
        let partitioning = Partitioning::UnknownPartitioning(passing.output_partitioning().partition_count());
        let equivalences = EquivalenceProperties::new(join.schema.clone());
        let properties =
            PlanProperties::new(equivalences, partitioning, EmissionType::Incremental, Boundedness::Bounded);
        Self { join, inputs: [held, passing], held: Arc::default(), properties: Arc::new(properties) }
    }
}

impl DisplayAs for IntervalJoinExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let Side { keys, low, high, .. } = &self.join.held;
        write!(f, "IntervalJoinExec: {:?}, held=[{low}, {high})", self.join.emit)?;
        let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
        write!(f, ", passing=[{}, {}), keys=[{}]", self.join.passing.low, self.join.passing.high, keys.join(", "))?;
        match &self.join.condition {
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
        let sides = [&self.join.held, &self.join.passing];
        let of_sides = sides.into_iter().flat_map(|side| side.keys.iter().chain([&side.low, &side.high]));
        for expression in of_sides.chain(self.join.condition.as_ref().map(|condition| &condition.expression)) {
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
        let most = context.session_config().batch_size();
        let (held, cell, join) = (held.clone(), self.held.clone(), self.join.clone());
        let input = passing.execute(partition, context.clone())?;
        let start = async move {
            let filled = cell.get_or_try_init(|| async { Held::collect(&join, &held, context, reservation).await });
            let held = filled.await?.clone();
            let keys = Keys::new(&join.passing, &input.schema())?;
            Ok::<_, datafusion::error::DataFusionError>(Joining { join, held, keys, input, current: None, most })
        };
        let batches = stream::once(start).map_ok(|joining| {
            stream::try_unfold(
                joining,
                |mut joining| async move { Ok(joining.next().await?.map(|batch| (batch, joining))) },
            )
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches.try_flatten())))
    }
}

/// Turns keys into bytes that are equal where the keys are.
struct Keys {
    converter: RowConverter,
}

/// What is known of the rows of a batch.
struct Evaluated {
    keys: KeyRows,
    /// Whether any of the keys is null.
    nulls: Vec<bool>,
    low: Int64Array,
    high: Int64Array,
}

impl Keys {
    fn new(side: &Side, schema: &SchemaRef) -> Result<Self> {
        let fields: Result<Vec<SortField>> =
            side.keys.iter().map(|key| Ok(SortField::new(key.data_type(schema)?))).collect();
        Ok(Self { converter: RowConverter::new(fields?)? })
    }

    fn evaluate(&mut self, side: &Side, batch: &RecordBatch) -> Result<Evaluated> {
        let array = |expression: &Arc<dyn PhysicalExpr>| expression.evaluate(batch)?.into_array(batch.num_rows());
        let keys = side.keys.iter().map(array).collect::<Result<Vec<ArrayRef>>>()?;
        let nulls = (0..batch.num_rows()).map(|row| keys.iter().any(|key| key.is_null(row))).collect();
        let bound = |expression, shift: i64| -> Result<Int64Array> {
            let values = cast(&array(expression)?, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            Ok(if shift == 0 { values.clone() } else { values.unary(|value| value.saturating_add(shift)) })
        };
        let (low, high) = (bound(&side.low, side.shift.0)?, bound(&side.high, side.shift.1)?);
        Ok(Evaluated { keys: self.converter.convert_columns(&keys)?, nulls, low, high })
    }
}

impl Evaluated {
    /// The bounds of a row that may meet others.
    fn bounds(&self, row: usize) -> Option<(i64, i64)> {
        let is_null = self.nulls[row] || self.low.is_null(row) || self.high.is_null(row);
        (!is_null).then(|| (self.low.value(row), self.high.value(row)))
    }
}

/// The side that is held.
#[derive(Debug)]
struct Held {
    rows: RecordBatch,
    by_key: HashMap<Box<[u8]>, IntervalIndex>,
    /// Given back with it.
    _reservation: MemoryReservation,
}

impl Held {
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
                "a join of intervals holds 4294967295 rows at most, and one of its tables has {rows}"
            );
        }
        // For a moment the batches are there twice.
        reservation.try_grow(bytes)?;
        let rows = concat_batches(&input.schema(), &batches)?;
        drop(batches);
        reservation.shrink(bytes);
        let evaluated = Keys::new(&join.held, &input.schema())?.evaluate(&join.held, &rows)?;
        let mut entries: HashMap<Box<[u8]>, Vec<Entry>> = HashMap::new();
        for row in 0..rows.num_rows() {
            let Some((low, high)) = evaluated.bounds(row) else { continue };
            let key = evaluated.keys.row(row);
            let entry = Entry { low, high, row: row as u32 };
            match entries.get_mut(key.as_ref()) {
                Some(of_key) => of_key.push(entry),
                None => {
                    entries.insert(key.as_ref().into(), vec![entry]);
                }
            }
        }
        let index = |(key, entries)| (key, IntervalIndex::new(entries, join.emit == Emit::Nearest));
        Ok(Arc::new(Self { rows, by_key: entries.into_iter().map(index).collect(), _reservation: reservation }))
    }
}

/// A batch of the passing side, and how far it got.
struct Passing {
    batch: RecordBatch,
    evaluated: Evaluated,
    /// The row that is next.
    row: usize,
    /// Rows that the one before it meets and that were not given yet, last first; and their distance.
    ahead: Vec<u32>,
    distance: i64,
    /// Rows that met another.
    met: Vec<bool>,
}

/// Rows of both sides that meet.
#[derive(Default)]
struct Pairs {
    held: Vec<Option<u32>>,
    passing: Vec<u32>,
    distances: Vec<Option<i64>>,
}

struct Joining {
    join: Arc<IntervalJoin>,
    held: Arc<Held>,
    keys: Keys,
    input: SendableRecordBatchStream,
    current: Option<Passing>,
    /// Rows of a batch, at most.
    most: usize,
}

impl Joining {
    /// The next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(current) = &mut self.current else {
                let Some(batch) = self.input.try_next().await? else { return Ok(None) };
                let evaluated = self.keys.evaluate(&self.join.passing, &batch)?;
                let met = vec![false; batch.num_rows()];
                self.current = Some(Passing { batch, evaluated, row: 0, ahead: Vec::new(), distance: 0, met });
                continue;
            };
            let pairs = current.advance(&self.join, &self.held, self.most);
            let (pairs, is_over) = if pairs.passing.is_empty() {
                (current.at_end(self.join.emit), true)
            } else {
                let pairs = self.join.met(pairs, &self.held.rows, &current.batch)?;
                pairs.passing.iter().for_each(|row| current.met[*row as usize] = true);
                (if matches!(self.join.emit, Emit::Met | Emit::Lone) { Pairs::default() } else { pairs }, false)
            };
            let rows = (!pairs.passing.is_empty()).then(|| {
                self.join.rows(&pairs, &self.join.columns, &self.join.schema, &self.held.rows, &current.batch)
            });
            if is_over {
                self.current = None;
            }
            if let Some(rows) = rows {
                return rows.map(Some);
            }
        }
    }
}

impl Passing {
    /// The next pairs, before further conditions; none at the end of the batch.
    fn advance(&mut self, join: &IntervalJoin, held: &Held, most: usize) -> Pairs {
        let mut pairs = Pairs::default();
        // One that meets another is all that is asked, where nothing else is to be looked at.
        let first_is_enough = matches!(join.emit, Emit::Met | Emit::Lone) && join.condition.is_none();
        while pairs.passing.len() < most {
            if let Some(row) = self.ahead.pop() {
                pairs.held.push(Some(row));
                pairs.passing.push(self.row as u32 - 1);
                pairs.distances.push(Some(self.distance));
                continue;
            }
            if self.row == self.batch.num_rows() {
                break;
            }
            let row = self.row;
            self.row += 1;
            let Some((low, high)) = self.evaluated.bounds(row) else { continue };
            let Some(index) = held.by_key.get(self.evaluated.keys.row(row).as_ref()) else { continue };
            if join.emit == Emit::Nearest {
                self.distance = index.nearest(low, high, &mut self.ahead).unwrap_or_default();
            } else {
                index.overlapping(low, high, |row| {
                    self.ahead.push(row);
                    if first_is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
            // Those that come first are given first.
            self.ahead.reverse();
        }
        pairs
    }

    /// What is to be given of the batch when all pairs are known.
    fn at_end(&self, emit: Emit) -> Pairs {
        let wanted = match emit {
            Emit::Pairs => return Pairs::default(),
            Emit::Met => true,
            Emit::PairsAndLone | Emit::Lone | Emit::Nearest => false,
        };
        let rows: Vec<u32> = (0..).zip(&self.met).filter(|(_, met)| **met == wanted).map(|(row, _)| row).collect();
        Pairs { held: vec![None; rows.len()], distances: vec![None; rows.len()], passing: rows }
    }
}

impl IntervalJoin {
    /// Those of some pairs that meet the further conditions, too.
    fn met(&self, pairs: Pairs, held: &RecordBatch, passing: &RecordBatch) -> Result<Pairs> {
        let Some(condition) = &self.condition else { return Ok(pairs) };
        let rows = self.rows(&pairs, &condition.columns, &condition.schema, held, passing)?;
        let is_met = condition.expression.evaluate(&rows)?.into_array(rows.num_rows())?;
        let is_met: &BooleanArray = is_met.as_boolean();
        let keep = |at: &usize| is_met.is_valid(*at) && is_met.value(*at);
        let kept: Vec<usize> = (0..rows.num_rows()).filter(keep).collect();
        Ok(Pairs {
            held: kept.iter().map(|at| pairs.held[*at]).collect(),
            passing: kept.iter().map(|at| pairs.passing[*at]).collect(),
            distances: kept.iter().map(|at| pairs.distances[*at]).collect(),
        })
    }

    /// Columns of pairs.
    fn rows(
        &self,
        pairs: &Pairs,
        columns: &[From],
        schema: &SchemaRef,
        held: &RecordBatch,
        passing: &RecordBatch,
    ) -> Result<RecordBatch> {
        let of_held = UInt32Array::from(pairs.held.clone());
        let of_passing = UInt32Array::from(pairs.passing.clone());
        let arrays = columns.iter().map(|column| match *column {
            From::Held(at) => Ok(take(held.column(at), &of_held, None)?),
            From::Passing(at) => Ok(take(passing.column(at), &of_passing, None)?),
            From::Distance => Ok(Arc::new(Int64Array::from(pairs.distances.clone())) as ArrayRef),
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(pairs.passing.len()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &rows)?)
    }
}
