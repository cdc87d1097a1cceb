//! What the conditions of a statement say of places: the regions that its rows can only be in.
//!
//! Conditions stay with the engine, which applies them to every row. What is found here may hold more places than rows that
//! meet them, and never fewer.

use std::collections::BTreeSet;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use godwit_model::Region;

/// Most places of one statement that are told apart.
const MAX_PLACES: usize = 4096;

/// Rows on some contigs that overlap `[start, end)`, 0-based.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    /// `None`: any.
    contigs: Option<BTreeSet<String>>,
    start: i64,
    end: i64,
}

impl Place {
    const ANYWHERE: Self = Self { contigs: None, start: i64::MIN, end: i64::MAX };

    fn and(&self, other: &Self) -> Self {
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

/// The regions that rows meeting all conditions overlap; `None` where the conditions do not say.
pub(crate) fn regions_of<'e>(conditions: impl IntoIterator<Item = &'e Expr>) -> Option<Vec<Region>> {
    let mut places = vec![Place::ANYWHERE];
    for condition in conditions {
        places = both(&places, &places_of(condition));
    }
    let mut regions = Vec::new();
    for place in places {
        let contigs = place.contigs?;
        // A row may lie before the first base (the telomere, in VCF); it is looked up with that.
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

/// Whether a condition says something of places.
pub(crate) fn says_where(condition: &Expr) -> bool {
    places_of(condition) != [Place::ANYWHERE]
}

fn both(some: &[Place], others: &[Place]) -> Vec<Place> {
    if some.len() * others.len() > MAX_PLACES {
        return if some.len() < others.len() { some.to_vec() } else { others.to_vec() };
    }
    let pairs = some.iter().flat_map(|place| others.iter().map(|other| place.and(other)));
    pairs.filter(|place| !place.is_empty()).collect()
}

fn places_of(condition: &Expr) -> Vec<Place> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => both(&places_of(left), &places_of(right)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let places = [places_of(left), places_of(right)].concat();
            if places.len() > MAX_PLACES || places.contains(&Place::ANYWHERE) { vec![Place::ANYWHERE] } else { places }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let place = match (column(left), column(right)) {
                (Some(name), None) => literal(right).and_then(|value| compared(name, *op, value)),
                (None, Some(name)) => {
                    literal(left).and_then(|value| op.swap().and_then(|op| compared(name, op, value)))
                }
                _ => None,
            };
            vec![place.unwrap_or(Place::ANYWHERE)]
        }
        Expr::Between(between) if !between.negated => {
            let bound = |op, expr: &Expr| compared(column(&between.expr)?, op, literal(expr)?);
            let low = bound(Operator::GtEq, &between.low).unwrap_or(Place::ANYWHERE);
            let high = bound(Operator::LtEq, &between.high).unwrap_or(Place::ANYWHERE);
            vec![low.and(&high)]
        }
        Expr::InList(InList { expr, list, negated: false }) if column(expr) == Some("contig") => {
            let names: Option<BTreeSet<String>> = list.iter().map(|item| literal(item).and_then(text)).collect();
            vec![names.map_or(Place::ANYWHERE, |names| Place { contigs: Some(names), ..Place::ANYWHERE })]
        }
        _ => vec![Place::ANYWHERE],
    }
}

/// The place that `column op value` leaves.
fn compared(column: &str, op: Operator, value: &ScalarValue) -> Option<Place> {
    let place = Place::ANYWHERE;
    if column == "contig" {
        let name = text(value).filter(|_| op == Operator::Eq)?;
        return Some(Place { contigs: Some([name].into()), ..place });
    }
    let number = number(value)?;
    let next = number.saturating_add(1);
    Some(match (column, op) {
        // A row that starts at or behind a base ends behind it.
        ("position", Operator::Eq) => Place { start: number, end: next, ..place },
        ("position", Operator::GtEq) => Place { start: number, ..place },
        ("position", Operator::Gt) => Place { start: next, ..place },
        ("position", Operator::Lt) => Place { end: number, ..place },
        ("position", Operator::LtEq) => Place { end: next, ..place },
        ("end_position", Operator::Gt) => Place { start: number, ..place },
        ("end_position", Operator::GtEq) => Place { start: number.saturating_sub(1), ..place },
        ("end_position", Operator::LtEq) => Place { end: number, ..place },
        ("end_position", Operator::Lt) => Place { end: number.saturating_sub(1), ..place },
        ("end_position", Operator::Eq) => Place { start: number.saturating_sub(1), end: number, ..place },
        _ => return None,
    })
}

fn column(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => column(expr),
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

fn text(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Dictionary(_, value) => text(value),
        value => value.try_as_str().flatten().map(str::to_owned),
    }
}

fn number(value: &ScalarValue) -> Option<i64> {
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
    use datafusion::prelude::{col, lit};

    use super::*;

    fn shown(condition: Expr) -> Option<Vec<String>> {
        regions_of([&condition]).map(|regions| regions.iter().map(Region::to_string).collect())
    }

    #[test]
    fn conditions_become_regions() {
        let contig = |name: &str| col("contig").eq(lit(name));
        let within = |start: i64, end: i64| col("position").lt(lit(end)).and(col("end_position").gt(lit(start)));
        assert_eq!(shown(contig("a").and(within(9, 20))).unwrap(), ["a:10-20"]);
        assert_eq!(shown(within(9, 20)), None);
        assert_eq!(shown(contig("a").or(contig("b").and(within(9, 20)))).unwrap(), ["a", "b:10-20"]);
        assert_eq!(shown(contig("a").or(col("flags").eq(lit(4)))), None);
        assert_eq!(shown(contig("a").and(contig("b"))).unwrap(), [""; 0]);
        assert_eq!(shown(contig("a").and(col("position").eq(lit(5)))).unwrap(), ["a:6-6"]);
        assert_eq!(shown(contig("a").and(lit(5).gt_eq(col("position")))).unwrap(), ["a:1-6"]);
        assert_eq!(shown(contig("a").and(col("position").between(lit(5), lit(7)))).unwrap(), ["a:6-8"]);
        let listed = col("contig").in_list(vec![lit("b"), lit("a")], false);
        assert_eq!(shown(listed).unwrap(), ["a", "b"]);
        assert_eq!(shown(contig("a").and(col("position").gt(lit(i64::MAX)))).unwrap(), [""; 0]);
    }
}
