//! Converts conditions on positions in a statement to the genomic regions that matching rows overlap, so that a dataset
//! reads only these regions.
//!
//! The regions may contain rows that do not meet the conditions, but every row that meets them is in a region.
//! DataFusion still applies the conditions to every row.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator};
use godwit_model::Region;

/// Maximum number of constraints for one statement. Conditions that would create more are ignored, so more rows are
/// read.
const MAX_CONSTRAINTS: usize = 4096;
const POSITION_COLUMNS: [&str; 2] = ["position", "end_position"];

/// A constraint that rows are on one of these contigs and overlap `[start, end)`, 0-based.
#[derive(Clone, Debug, PartialEq)]
struct RegionConstraint {
    /// Names of the contigs, also [`Region::UNPLACED`]; `None`: any contig, or none.
    contigs: Option<BTreeSet<String>>,
    start: i64,
    end: i64,
}

impl RegionConstraint {
    const UNCONSTRAINED: Self = Self { contigs: None, start: i64::MIN, end: i64::MAX };

    fn intersection(&self, other: &Self) -> Self {
        let contigs = match (&self.contigs, &other.contigs) {
            (Some(some), Some(others)) => Some(some.intersection(others).cloned().collect()),
            (some, others) => some.clone().or_else(|| others.clone()),
        };
        Self { contigs, start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    fn is_empty(&self) -> bool {
        self.start >= self.end || self.contigs.as_ref().is_some_and(BTreeSet::is_empty)
    }
}

/// Returns regions such that every row that meets all conditions overlaps one of them; `None` if the conditions do not
/// restrict positions.
pub(crate) fn regions_of_filters<'e>(conditions: impl IntoIterator<Item = &'e Expr>) -> Option<Vec<Region>> {
    let mut places = vec![RegionConstraint::UNCONSTRAINED];
    for condition in conditions {
        places = intersect_all(&places, &constraints_of(condition));
    }
    let mut regions = Vec::new();
    for place in places {
        let mut contigs = place.contigs?;
        regions.extend(contigs.take(Region::UNPLACED).map(|_| Region::unplaced()));
        // A VCF record may have the position before the first base (telomere). A lookup of the first base finds it too.
        let start = place.start.clamp(0, i64::from(Region::OPEN_END)) as u32;
        let end = place.end.clamp(1, i64::from(Region::OPEN_END)) as u32;
        if start < end {
            regions.extend(contigs.into_iter().map(|contig| Region { contig, start, end }));
        }
    }
    regions.sort_unstable();
    regions.dedup();
    Some(regions)
}

/// Returns whether a condition restricts contigs or positions.
pub(crate) fn constrains_region(condition: &Expr) -> bool {
    constraints_of(condition) != [RegionConstraint::UNCONSTRAINED]
}

fn intersect_all(some: &[RegionConstraint], others: &[RegionConstraint]) -> Vec<RegionConstraint> {
    if some.len() * others.len() > MAX_CONSTRAINTS {
        return if some.len() < others.len() { some.to_vec() } else { others.to_vec() };
    }
    let pairs = some.iter().flat_map(|place| others.iter().map(|other| place.intersection(other)));
    pairs.filter(|place| !place.is_empty()).collect()
}

fn constraints_of(condition: &Expr) -> Vec<RegionConstraint> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            intersect_all(&constraints_of(left), &constraints_of(right))
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let mut places = Vec::new();
            for operand in alternatives(condition) {
                let found = constraints_of(operand);
                if places.len() + found.len() > MAX_CONSTRAINTS || found.contains(&RegionConstraint::UNCONSTRAINED) {
                    return vec![RegionConstraint::UNCONSTRAINED];
                }
                places.extend(found);
            }
            // `region(..)` has two conditions on the start, which give the same constraint.
            places.dedup();
            places
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let place = match (column_name(left), column_name(right)) {
                (Some(name), None) => literal_value(right).and_then(|value| constraint_of_comparison(name, *op, value)),
                (None, Some(name)) => literal_value(left)
                    .and_then(|value| op.swap().and_then(|op| constraint_of_comparison(name, op, value))),
                _ => None,
            };
            vec![place.unwrap_or(RegionConstraint::UNCONSTRAINED)]
        }
        Expr::Between(between) if !between.negated => {
            let bound =
                |op, expr: &Expr| constraint_of_comparison(column_name(&between.expr)?, op, literal_value(expr)?);
            let low = bound(Operator::GtEq, &between.low).unwrap_or(RegionConstraint::UNCONSTRAINED);
            let high = bound(Operator::LtEq, &between.high).unwrap_or(RegionConstraint::UNCONSTRAINED);
            vec![low.intersection(&high)]
        }
        Expr::IsNull(expr) if column_name(expr) == Some("contig") => {
            let unplaced = Some([Region::UNPLACED.to_owned()].into());
            vec![RegionConstraint { contigs: unplaced, ..RegionConstraint::UNCONSTRAINED }]
        }
        Expr::InList(InList { expr, list, negated: false }) if column_name(expr) == Some("contig") => {
            let names: Option<BTreeSet<String>> =
                list.iter().map(|item| literal_value(item).and_then(text_value)).collect();
            vec![names.map_or(RegionConstraint::UNCONSTRAINED, |names| RegionConstraint {
                contigs: Some(names),
                ..RegionConstraint::UNCONSTRAINED
            })]
        }
        _ => vec![RegionConstraint::UNCONSTRAINED],
    }
}

/// Returns the operands of a chain of `OR`. A loop, because generated statements have chains of thousands of regions.
fn alternatives(condition: &Expr) -> impl Iterator<Item = &Expr> {
    let (mut rest, mut operands) = (condition, Vec::new());
    while let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) = rest {
        operands.push(&**right);
        rest = left;
    }
    operands.push(rest);
    operands.into_iter().rev()
}

/// Returns the constraint that a comparison `column op value` implies; `None` if it implies none.
fn constraint_of_comparison(column: &str, op: Operator, value: &ScalarValue) -> Option<RegionConstraint> {
    let place = RegionConstraint::UNCONSTRAINED;
    if column == "contig" {
        let name = text_value(value).filter(|_| op == Operator::Eq)?;
        return Some(RegionConstraint { contigs: Some([name].into()), ..place });
    }
    let number = integer_value(value)?;
    let next = number.saturating_add(1);
    Some(match (column, op) {
        // A row that starts at or after a base also ends after this base.
        ("position", Operator::Eq) => RegionConstraint { start: number, end: next, ..place },
        ("position", Operator::GtEq) => RegionConstraint { start: number, ..place },
        ("position", Operator::Gt) => RegionConstraint { start: next, ..place },
        ("position", Operator::Lt) => RegionConstraint { end: number, ..place },
        ("position", Operator::LtEq) => RegionConstraint { end: next, ..place },
        ("end_position", Operator::Gt) => RegionConstraint { start: number, ..place },
        ("end_position", Operator::GtEq) => RegionConstraint { start: number.saturating_sub(1), ..place },
        // An interval without bases, such as an insertion in a BED file, is found at the base after it.
        ("end_position", Operator::LtEq) => RegionConstraint { end: next, ..place },
        ("end_position", Operator::Lt) => RegionConstraint { end: number, ..place },
        ("end_position", Operator::Eq) => RegionConstraint { start: number.saturating_sub(1), end: next, ..place },
        _ => return None,
    })
}

/// Returns the name of a text or integer column, also if it is cast to a type that holds all its values, as DataFusion
/// does for comparisons. Other casts change values, or make them null.
pub(crate) fn column_name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(Cast { expr, field }) => match &**expr {
            Expr::Column(column) if is_lossless(&column.name, field.data_type()) => Some(&column.name),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether a cast of a column to a type keeps all values. Positions are integers of at most 64 bits; the other
/// columns that conditions select by are texts.
fn is_lossless(column: &str, to: &DataType) -> bool {
    match to {
        DataType::Dictionary(_, value) => is_lossless(column, value),
        DataType::Int64 => POSITION_COLUMNS.contains(&column),
        to => to.is_string() && !POSITION_COLUMNS.contains(&column),
    }
}

/// Returns the value of a literal; `None` for other expressions.
pub(crate) fn literal_value(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// Returns a text; `None` for null and for values of other types.
pub(crate) fn text_value(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Dictionary(_, value) => text_value(value),
        value => value.try_as_str().flatten().map(str::to_owned),
    }
}

/// Returns a whole number; `None` for null and for values of other types.
pub(crate) fn integer_value(value: &ScalarValue) -> Option<i64> {
    match *value {
        ScalarValue::Int8(number) => number.map(i64::from),
        ScalarValue::Int16(number) => number.map(i64::from),
        ScalarValue::Int32(number) => number.map(i64::from),
        ScalarValue::Int64(number) => number,
        ScalarValue::UInt8(number) => number.map(i64::from),
        ScalarValue::UInt16(number) => number.map(i64::from),
        ScalarValue::UInt32(number) => number.map(i64::from),
        ScalarValue::UInt64(number) => number.and_then(|number| i64::try_from(number).ok()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{cast, col, lit, try_cast};

    use super::*;

    fn shown_regions(condition: Expr) -> Option<Vec<String>> {
        regions_of_filters([&condition]).map(|regions| regions.iter().map(Region::to_string).collect())
    }

    #[test]
    fn conditions_become_regions() {
        let contig = |name: &str| col("contig").eq(lit(name));
        let within = |start: i64, end: i64| col("position").lt(lit(end)).and(col("end_position").gt(lit(start)));
        assert_eq!(shown_regions(contig("a").and(within(9, 20))).unwrap(), ["a:10-20"]);
        assert_eq!(shown_regions(within(9, 20)), None);
        assert_eq!(shown_regions(contig("a").or(contig("b").and(within(9, 20)))).unwrap(), ["a", "b:10-20"]);
        assert_eq!(shown_regions(contig("a").or(col("flags").eq(lit(4)))), None);
        assert_eq!(shown_regions(contig("a").and(contig("b"))).unwrap(), [""; 0]);
        assert_eq!(shown_regions(contig("a").and(col("position").eq(lit(5)))).unwrap(), ["a:6-6"]);
        assert_eq!(shown_regions(contig("a").and(lit(5).gt_eq(col("position")))).unwrap(), ["a:1-6"]);
        assert_eq!(shown_regions(contig("a").and(col("position").between(lit(5), lit(7)))).unwrap(), ["a:6-8"]);
        let listed = col("contig").in_list(vec![lit("b"), lit("a")], false);
        assert_eq!(shown_regions(listed).unwrap(), ["a", "b"]);
        assert_eq!(shown_regions(contig("a").and(col("position").gt(lit(i64::MAX)))).unwrap(), [""; 0]);
        assert_eq!(shown_regions(contig("a").or(col("contig").is_null())).unwrap(), ["*", "a"]);
        assert_eq!(shown_regions(contig("a").and(col("contig").is_null())).unwrap(), [""; 0]);
        assert_eq!(shown_regions(col("name").is_null()), None);
    }

    #[test]
    fn thousands_of_regions_stay_regions() {
        let region = |start: i64| {
            let after_start = col("end_position").gt(lit(start)).or(col("position").gt_eq(lit(start)));
            col("contig").eq(lit("a")).and(col("position").lt(lit(start + 2))).and(after_start)
        };
        let starts: Vec<i64> = (1..=3000).map(|number| number * 10).collect();
        let condition = starts.iter().map(|start| region(*start)).reduce(Expr::or).unwrap();
        assert_eq!(shown_regions(condition).unwrap().len(), starts.len());
    }

    #[test]
    fn intervals_without_bases_are_in_the_regions_of_their_ends() {
        let on_a = |condition: Expr| shown_regions(col("contig").eq(lit("a")).and(condition)).unwrap();
        // The interval [5, 5) is found at the base [5, 6).
        assert_eq!(on_a(col("end_position").eq(lit(5))), ["a:5-6"]);
        assert_eq!(on_a(col("end_position").lt_eq(lit(5))), ["a:1-6"]);
        assert_eq!(on_a(col("end_position").lt(lit(6))), ["a:1-6"]);
        assert_eq!(on_a(col("end_position").gt_eq(lit(5))), ["a:5-"]);
        assert_eq!(on_a(col("position").eq(lit(5))), ["a:6-6"]);
    }

    #[test]
    fn casts_that_change_values_select_no_regions() {
        let on_a = |to| shown_regions(cast(col("contig"), to).eq(lit("a")));
        assert_eq!(on_a(DataType::Utf8).unwrap(), ["a"]);
        assert_eq!(on_a(DataType::Int64), None);
        assert_eq!(shown_regions(try_cast(col("contig"), DataType::Int64).is_null()), None);
        assert_eq!(shown_regions(cast(cast(col("contig"), DataType::Int64), DataType::Utf8).eq(lit("1"))), None);
        let at = |to| shown_regions(col("contig").eq(lit("a")).and(cast(col("position"), to).eq(lit(1)))).unwrap();
        assert_eq!(at(DataType::Int64), ["a:2-2"]);
        assert_eq!(at(DataType::Boolean), ["a"]);
        assert_eq!(at(DataType::Int8), ["a"]);
    }
}
