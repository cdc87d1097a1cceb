//! Replaces hash joins on equal keys with two comparisons that mean that intervals overlap by interval joins. A hash
//! join would compare all pairs of rows on the same contig.

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

use crate::interval_join::{
    IntervalJoin, IntervalJoinExec, IntervalJoinType, JoinColumn, ResidualFilter, SideExpressions,
};

/// The physical optimizer rule that replaces hash joins by interval joins.
#[derive(Debug)]
pub(crate) struct IntervalJoinRule;

/// Name of the rule by which DataFusion selects the build side of joins. [`IntervalJoinRule`] runs directly after this
/// rule.
pub(crate) const PREDECESSOR_RULE: &str = "join_selection";

impl PhysicalOptimizerRule for IntervalJoinRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let rewritten = plan.transform_up(|plan| {
            let replaced = plan.downcast_ref::<HashJoinExec>().map(convert_hash_join).transpose()?.flatten();
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

/// Returns an interval join that is equivalent to a hash join; `None` if the conditions do not mean that intervals
/// overlap.
fn convert_hash_join(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = join.filter() else { return Ok(None) };
    if join.projection.is_some() || join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    // In outer, semi and anti joins, the side whose rows are preserved or returned once must be the probe side.
    let (join_type, held_side) = match join.join_type() {
        JoinType::Inner => (IntervalJoinType::Inner, JoinSide::Left),
        JoinType::Left => (IntervalJoinType::Outer, JoinSide::Right),
        JoinType::Right => (IntervalJoinType::Outer, JoinSide::Left),
        JoinType::LeftSemi => (IntervalJoinType::Semi, JoinSide::Right),
        JoinType::RightSemi => (IntervalJoinType::Semi, JoinSide::Left),
        JoinType::LeftAnti => (IntervalJoinType::Anti, JoinSide::Right),
        JoinType::RightAnti => (IntervalJoinType::Anti, JoinSide::Left),
        _ => return Ok(None),
    };
    let (left, right) = (join.left(), join.right());
    for (one, other) in join.on() {
        if one.data_type(&left.schema())? != other.data_type(&right.schema())? {
            return Ok(None);
        }
    }
    let Some(found) = OverlapConditions::from_filter(filter, held_side)? else { return Ok(None) };
    let (left_keys, right_keys): (Vec<_>, Vec<_>) = join.on().iter().cloned().unzip();
    let (held_keys, passing_keys) =
        if held_side == JoinSide::Left { (left_keys, right_keys) } else { (right_keys, left_keys) };
    let from = |column: &ColumnIndex| {
        if column.side == held_side { JoinColumn::Build(column.index) } else { JoinColumn::Probe(column.index) }
    };
    let (schema, columns) = build_join_schema(&left.schema(), &right.schema(), join.join_type());
    let residual_filter = (!found.residual.is_empty()).then(|| ResidualFilter {
        expression: conjunction(found.residual),
        columns: filter.column_indices().iter().map(from).collect(),
        schema: filter.schema().clone(),
    });
    let join = IntervalJoin {
        build: SideExpressions { keys: held_keys, low: found.build.0, high: found.build.1, bound_offsets: (0, 0) },
        probe: SideExpressions {
            keys: passing_keys,
            low: found.probe.0,
            high: found.probe.1,
            bound_offsets: found.bound_offsets,
        },
        residual_filter,
        join_type,
        columns: columns.iter().map(from).collect(),
        schema: Arc::new(schema),
    };
    let (held, passing) = if held_side == JoinSide::Left { (left, right) } else { (right, left) };
    Ok(Some(Arc::new(IntervalJoinExec::new(Arc::new(join), held.clone(), passing.clone()))))
}

type BoundExpressions = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>);

/// The conditions of a join filter, split into overlap and other conditions.
struct OverlapConditions {
    build: BoundExpressions,
    probe: BoundExpressions,
    bound_offsets: (i64, i64),
    /// The conditions that do not belong to the overlap.
    residual: Vec<Arc<dyn PhysicalExpr>>,
}

/// A comparison `lesser < greater` or `lesser <= greater` of expressions of the two sides.
struct Comparison {
    is_build_lesser: bool,
    build: Arc<dyn PhysicalExpr>,
    probe: Arc<dyn PhysicalExpr>,
    is_inclusive: bool,
}

impl OverlapConditions {
    fn from_filter(filter: &JoinFilter, held_side: JoinSide) -> Result<Option<Self>> {
        // Find one comparison that the build side begins before the probe side ends, and one with exchanged sides.
        let (mut begins, mut ends, mut residual) = (None, None, Vec::new());
        for condition in split_conjunction(filter.expression()) {
            match parse_comparison(condition, filter, held_side)? {
                Some(found) if found.is_build_lesser && begins.is_none() => begins = Some(found),
                Some(found) if !found.is_build_lesser && ends.is_none() => ends = Some(found),
                _ => residual.push(condition.clone()),
            }
        }
        let (Some(begins), Some(ends)) = (begins, ends) else { return Ok(None) };
        let bound_offsets = (-i64::from(ends.is_inclusive), i64::from(begins.is_inclusive));
        Ok(Some(Self { build: (begins.build, ends.build), probe: (ends.probe, begins.probe), bound_offsets, residual }))
    }
}

fn parse_comparison(
    condition: &Arc<dyn PhysicalExpr>,
    filter: &JoinFilter,
    held_side: JoinSide,
) -> Result<Option<Comparison>> {
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    let (lesser, greater, is_inclusive) = match binary.op() {
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
    let is_build_lesser = match (side_of(lesser, filter), side_of(greater, filter)) {
        (Some(lesser), Some(greater)) if lesser != greater => lesser == held_side,
        _ => return Ok(None),
    };
    let (held, passing) = if is_build_lesser { (lesser, greater) } else { (greater, lesser) };
    let (build, probe) = (rebase_to_input(held, filter)?, rebase_to_input(passing, filter)?);
    Ok(Some(Comparison { is_build_lesser, build, probe, is_inclusive }))
}

/// Returns whether the data type of an expression is an integer type whose values fit into an `i64`.
fn is_position(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<bool> {
    let data_type = expression.data_type(schema)?;
    Ok(data_type.is_integer() && data_type != DataType::UInt64)
}

/// Returns the side of the join whose columns an expression uses; `None` if it uses both sides or no column.
fn side_of(expression: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Option<JoinSide> {
    let columns = collect_columns(expression);
    let mut sides = columns.iter().map(|column| filter.column_indices().get(column.index()).map(|found| found.side));
    let first = sides.next()??;
    sides.all(|side| side == Some(first)).then_some(first)
}

/// Rewrites an expression of a join filter so that its column indexes refer to the input of one side.
fn rebase_to_input(expression: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Result<Arc<dyn PhysicalExpr>> {
    let rewritten = expression.clone().transform(|expression| {
        let Some(column) = expression.downcast_ref::<Column>() else { return Ok(Transformed::no(expression)) };
        let index = filter.column_indices()[column.index()].index;
        Ok(Transformed::yes(Arc::new(Column::new(column.name(), index)) as Arc<dyn PhysicalExpr>))
    });
    Ok(rewritten?.data)
}
