//! Finds joins by overlap in plans: equal keys and two comparisons that say that intervals meet. A hash join would try each row of
//! a contig with each other.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};

use crate::interval_join::{Condition, Emit, From, IntervalJoin, IntervalJoinExec, Side};

/// The rule.
#[derive(Debug)]
pub(crate) struct OverlapJoins;

/// The engine's rule that decides which side is held; this one comes behind it.
pub(crate) const BEHIND: &str = "join_selection";

impl PhysicalOptimizerRule for OverlapJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let rewritten = plan.transform_up(|plan| {
            let replaced = plan.downcast_ref::<HashJoinExec>().map(interval_join).transpose()?.flatten();
            Ok(match replaced {
                Some(join) => Transformed::yes(join),
                None => Transformed::no(plan),
            })
        });
        Ok(rewritten?.data)
    }

    fn name(&self) -> &str {
        "godwit_overlap_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The join that does the same; `None` where it is another one.
fn interval_join(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = join.filter() else { return Ok(None) };
    if join.projection.is_some() || join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    // Where rows of one side are given once, or alone, that side passes by.
    let (emit, held_side) = match join.join_type() {
        JoinType::Inner => (Emit::Pairs, JoinSide::Left),
        JoinType::Left => (Emit::PairsAndLone, JoinSide::Right),
        JoinType::Right => (Emit::PairsAndLone, JoinSide::Left),
        JoinType::LeftSemi => (Emit::Met, JoinSide::Right),
        JoinType::RightSemi => (Emit::Met, JoinSide::Left),
        JoinType::LeftAnti => (Emit::Lone, JoinSide::Right),
        JoinType::RightAnti => (Emit::Lone, JoinSide::Left),
        _ => return Ok(None),
    };
    let (left, right) = (join.left(), join.right());
    for (one, other) in join.on() {
        if one.data_type(&left.schema())? != other.data_type(&right.schema())? {
            return Ok(None);
        }
    }
    let Some(found) = Comparisons::find(filter, held_side)? else { return Ok(None) };
    let (left_keys, right_keys): (Vec<_>, Vec<_>) = join.on().iter().cloned().unzip();
    let (held_keys, passing_keys) =
        if held_side == JoinSide::Left { (left_keys, right_keys) } else { (right_keys, left_keys) };
    let from = |column: &ColumnIndex| {
        if column.side == held_side { From::Held(column.index) } else { From::Passing(column.index) }
    };
    let (schema, columns) = build_join_schema(&left.schema(), &right.schema(), join.join_type());
    let condition = (!found.rest.is_empty()).then(|| Condition {
        expression: conjunction(found.rest),
        columns: filter.column_indices().iter().map(from).collect(),
        schema: filter.schema().clone(),
    });
    let join = IntervalJoin {
        held: Side { keys: held_keys, low: found.held.0, high: found.held.1, shift: (0, 0) },
        passing: Side { keys: passing_keys, low: found.passing.0, high: found.passing.1, shift: found.shift },
        condition,
        emit,
        columns: columns.iter().map(from).collect(),
        schema: Arc::new(schema),
    };
    let (held, passing) = if held_side == JoinSide::Left { (left, right) } else { (right, left) };
    Ok(Some(Arc::new(IntervalJoinExec::new(Arc::new(join), held.clone(), passing.clone()))))
}

type Bounds = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>);

/// What a filter says of two intervals.
struct Comparisons {
    held: Bounds,
    passing: Bounds,
    shift: (i64, i64),
    /// All else that it says.
    rest: Vec<Arc<dyn PhysicalExpr>>,
}

/// `lesser < greater`, or `lesser <= greater`, of expressions of the two sides.
struct Comparison {
    held_is_lesser: bool,
    held: Arc<dyn PhysicalExpr>,
    passing: Arc<dyn PhysicalExpr>,
    includes: bool,
}

impl Comparisons {
    fn find(filter: &JoinFilter, held_side: JoinSide) -> Result<Option<Self>> {
        // One comparison where the held side begins before the other ends, and one the other way.
        let (mut begins, mut ends, mut rest) = (None, None, Vec::new());
        for condition in split_conjunction(filter.expression()) {
            match comparison(condition, filter, held_side)? {
                Some(found) if found.held_is_lesser && begins.is_none() => begins = Some(found),
                Some(found) if !found.held_is_lesser && ends.is_none() => ends = Some(found),
                _ => rest.push(condition.clone()),
            }
        }
        let (Some(begins), Some(ends)) = (begins, ends) else { return Ok(None) };
        let shift = (-i64::from(ends.includes), i64::from(begins.includes));
        Ok(Some(Self { held: (begins.held, ends.held), passing: (ends.passing, begins.passing), shift, rest }))
    }
}

fn comparison(
    condition: &Arc<dyn PhysicalExpr>,
    filter: &JoinFilter,
    held_side: JoinSide,
) -> Result<Option<Comparison>> {
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    let (lesser, greater, includes) = match binary.op() {
        Operator::Lt => (binary.left(), binary.right(), false),
        Operator::LtEq => (binary.left(), binary.right(), true),
        Operator::Gt => (binary.right(), binary.left(), false),
        Operator::GtEq => (binary.right(), binary.left(), true),
        _ => return Ok(None),
    };
    let schema = filter.schema();
    if !is_position(lesser, schema)? || !is_position(greater, schema)? {
        return Ok(None);
    }
    let held_is_lesser = match (side_of(lesser, filter), side_of(greater, filter)) {
        (Some(lesser), Some(greater)) if lesser != greater => lesser == held_side,
        _ => return Ok(None),
    };
    let (held, passing) = if held_is_lesser { (lesser, greater) } else { (greater, lesser) };
    let (held, passing) = (of_input(held, filter)?, of_input(passing, filter)?);
    Ok(Some(Comparison { held_is_lesser, held, passing, includes }))
}

/// Whether an expression is a whole number that 64 bits with a sign hold.
fn is_position(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<bool> {
    let data_type = expression.data_type(schema)?;
    Ok(data_type.is_integer() && data_type != DataType::UInt64)
}

/// The one side that an expression is of.
fn side_of(expression: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Option<JoinSide> {
    let columns = collect_columns(expression);
    let mut sides = columns.iter().map(|column| filter.column_indices().get(column.index()).map(|found| found.side));
    let first = sides.next()??;
    sides.all(|side| side == Some(first)).then_some(first)
}

/// An expression of the columns that a filter has, as one of the columns of its input.
fn of_input(expression: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Result<Arc<dyn PhysicalExpr>> {
    let rewritten = expression.clone().transform(|expression| {
        let Some(column) = expression.downcast_ref::<Column>() else { return Ok(Transformed::no(expression)) };
        let index = filter.column_indices()[column.index()].index;
        Ok(Transformed::yes(Arc::new(Column::new(column.name(), index)) as Arc<dyn PhysicalExpr>))
    });
    Ok(rewritten?.data)
}
