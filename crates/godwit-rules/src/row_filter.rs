//! Selects the visible rows of a batch: those that overlap a visible region and meet all conditions.

use std::collections::{HashMap, HashSet};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_cast::{can_cast_types, cast};
use arrow_schema::{ArrowError, DataType, Schema};
use godwit_model::{IntervalSet, Region};

use crate::rule::Condition;

/// Names of the columns that contain the position of a row.
pub(crate) const POSITION_COLUMNS: [&str; 3] = ["contig", "position", "end_position"];

/// A set of regions, indexed by contig name.
#[derive(Debug)]
pub(crate) struct RegionSet {
    contigs: HashMap<String, u32>,
    intervals: IntervalSet,
}

impl RegionSet {
    pub(crate) fn new(regions: &[Region]) -> Self {
        let mut contigs = HashMap::new();
        for region in regions {
            let next = contigs.len() as u32;
            contigs.entry(region.contig.clone()).or_insert(next);
        }
        let spans = regions.iter().map(|region| (contigs[&region.contig], region.start, region.end));
        let intervals = IntervalSet::new(spans.collect::<Vec<_>>());
        Self { contigs, intervals }
    }

    pub(crate) fn has_contig(&self, contig: &str) -> bool {
        self.contigs.contains_key(contig)
    }

    /// Returns whether a region is completely inside one interval of the set.
    pub(crate) fn contains(&self, region: &Region) -> bool {
        let Some(contig) = self.contigs.get(&region.contig) else { return false };
        self.intervals.iter().any(|(at, start, end)| at == *contig && start <= region.start && region.end <= end)
    }

    /// Returns for each row whether it overlaps a region of the set. `place`: the position columns. A row covers the
    /// bases from its position to its end position, exclusive, but at least one base. A row without a position does not
    /// overlap any region.
    fn overlapping_rows(&self, place: [&ArrayRef; 3]) -> Result<BooleanArray, ArrowError> {
        let [contigs, starts, ends] = place;
        let (contigs, starts) = (cast(contigs, &DataType::Utf8)?, cast(starts, &DataType::Int64)?);
        let ends = cast(ends, &DataType::Int64)?;
        let contigs = contigs.as_string::<i32>();
        let (starts, ends) = (starts.as_primitive::<Int64Type>(), ends.as_primitive::<Int64Type>());
        let mut last: (&str, Option<u32>) = ("", self.contigs.get("").copied());
        let overlaps = |row: usize| {
            if contigs.is_null(row) || starts.is_null(row) {
                return false;
            }
            if contigs.value(row) != last.0 {
                last = (contigs.value(row), self.contigs.get(contigs.value(row)).copied());
            }
            let start = starts.value(row).max(0);
            let end = if ends.is_null(row) { start + 1 } else { ends.value(row).max(start + 1) };
            let (start, end) = (u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(end).unwrap_or(u32::MAX));
            last.1.is_some_and(|contig| self.intervals.overlaps(contig, start, end))
        };
        Ok(BooleanArray::new(BooleanBuffer::collect_bool(contigs.len(), overlaps), None))
    }
}

/// A condition of a rule, prepared for the schema of a dataset.
#[derive(Debug)]
pub(crate) struct RowCondition {
    /// 0-based index in the dataset of the column to which the condition applies.
    pub(crate) column: usize,
    one_of: Option<HashSet<String>>,
    not_in: Option<HashSet<String>>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

impl RowCondition {
    /// Prepares a condition. The error describes why the column does not support the condition.
    pub(crate) fn new(condition: &Condition, schema: &Schema) -> Result<Self, String> {
        let name = &condition.column;
        let column = schema.index_of(name).map_err(|_| format!("column {name} does not exist"))?;
        let data_type = schema.field(column).data_type();
        let of = |wanted: &DataType| !data_type.is_nested() && can_cast_types(data_type, wanted);
        let texts = |values: &Option<Vec<_>>| {
            values.as_ref().map(|values: &Vec<crate::rule::ConditionValue>| {
                values.iter().map(crate::rule::ConditionValue::text).collect()
            })
        };
        let test = Self {
            column,
            one_of: texts(&condition.one_of),
            not_in: texts(&condition.not_in),
            at_least: condition.at_least,
            at_most: condition.at_most,
        };
        let text = (test.one_of.is_some() || test.not_in.is_some()) && !of(&DataType::Utf8);
        let number =
            (test.at_least.is_some() || test.at_most.is_some()) && !(data_type.is_numeric() && of(&DataType::Float64));
        match text || number {
            true => Err(format!("column {name} is {data_type}, which does not support this condition")),
            false => Ok(test),
        }
    }

    fn evaluate(&self, values: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let mut met = BooleanBuffer::new_set(values.len());
        if self.one_of.is_some() || self.not_in.is_some() {
            let texts = cast(values, &DataType::Utf8)?;
            let texts = texts.as_string::<i32>();
            let meets = |row: usize| {
                let text = texts.value(row);
                self.one_of.as_ref().is_none_or(|one_of| one_of.contains(text))
                    && self.not_in.as_ref().is_none_or(|not_in| !not_in.contains(text))
            };
            met = &met & &valid_and(texts, meets);
        }
        if self.at_least.is_some() || self.at_most.is_some() {
            let numbers = cast(values, &DataType::Float64)?;
            let numbers = numbers.as_primitive::<Float64Type>();
            // NaN meets neither an upper nor a lower bound.
            let meets = |row: usize| {
                let number = numbers.value(row);
                self.at_least.is_none_or(|least| number >= least) && self.at_most.is_none_or(|most| number <= most)
            };
            met = &met & &valid_and(numbers, meets);
        }
        Ok(BooleanArray::new(met, None))
    }
}

/// Returns for each row whether it has a value for which `meets` returns true.
fn valid_and(values: &dyn Array, meets: impl FnMut(usize) -> bool) -> BooleanBuffer {
    let met = BooleanBuffer::collect_bool(values.len(), meets);
    values.nulls().map_or_else(|| met.clone(), |there| &met & there.inner())
}

/// Returns for each row of a batch whether it is visible. `column` converts a column index of the dataset to one of the
/// batch.
pub(crate) fn visible_rows(
    batch: &RecordBatch,
    regions: Option<(&RegionSet, [usize; 3])>,
    tests: &[RowCondition],
    column: &dyn Fn(usize) -> usize,
) -> Result<BooleanArray, ArrowError> {
    let mut seen = match regions {
        Some((regions, at)) => regions.overlapping_rows(at.map(|at| batch.column(column(at))))?,
        None => BooleanArray::new(BooleanBuffer::new_set(batch.num_rows()), None),
    };
    // The result of a condition contains no nulls, so the buffers of both operands are combined without a null mask.
    for test in tests {
        let met = test.evaluate(batch.column(column(test.column)))?;
        seen = BooleanArray::new(seen.values() & met.values(), None);
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int32Array, Int64Array, StringArray};
    use arrow_schema::Field;

    use super::*;
    use crate::rule::ConditionValue;

    fn region(text: &str) -> Region {
        Region::parse(text, |_| None).unwrap()
    }

    #[test]
    fn rows_overlap_from_their_position_to_before_their_end() {
        let regions = RegionSet::new(&[region("a:11-20"), region("b")]);
        let rows = [
            ("a", 9, 10, false),
            ("a", 9, 11, true),
            ("a", 19, 19, true),
            ("a", 20, 25, false),
            ("a", 0, 100, true),
            ("b", -1, 0, true),
            ("c", 12, 13, false),
        ];
        let contigs: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0)));
        let starts: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1)));
        let ends: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2)));
        let seen = regions.overlapping_rows([&contigs, &starts, &ends]).unwrap();
        assert_eq!(seen.iter().flatten().collect::<Vec<_>>(), rows.map(|row| row.3));
        let nowhere: ArrayRef = Arc::new(StringArray::new_null(rows.len()));
        assert_eq!(regions.overlapping_rows([&nowhere, &starts, &ends]).unwrap().true_count(), 0);
        assert!(regions.contains(&region("a:12-20")) && !regions.contains(&region("a:12-21")));
        assert!(regions.contains(&region("b:5-6")) && !regions.contains(&region("c")));
    }

    #[test]
    fn rows_without_a_value_meet_no_condition() {
        let schema =
            Schema::new(vec![Field::new("use", DataType::Utf8, true), Field::new("age", DataType::Float64, true)]);
        let uses: ArrayRef = Arc::new(StringArray::from(vec![Some("GRU"), Some("HMB"), None, Some("")]));
        let ages: ArrayRef = Arc::new(Float64Array::from(vec![Some(17.9), Some(18.0), None, Some(f64::NAN)]));
        let values = |texts: &[&str]| Some(texts.iter().map(|text| ConditionValue::Text((*text).to_owned())).collect());
        let met = |condition: Condition| {
            let test = RowCondition::new(&condition, &schema).unwrap();
            let values = if test.column == 0 { &uses } else { &ages };
            test.evaluate(values).unwrap().iter().flatten().collect::<Vec<_>>()
        };
        let of = |column: &str| Condition { column: column.to_owned(), ..Condition::default() };
        assert_eq!(met(Condition { one_of: values(&["GRU"]), ..of("use") }), [true, false, false, false]);
        assert_eq!(met(Condition { not_in: values(&["GRU"]), ..of("use") }), [false, true, false, true]);
        assert_eq!(met(Condition { at_least: Some(18.0), ..of("age") }), [false, true, false, false]);
        assert_eq!(met(Condition { at_most: Some(18.0), ..of("age") }), [true, true, false, false]);
        assert!(RowCondition::new(&Condition { at_most: Some(1.0), ..of("use") }, &schema).is_err());
        assert!(RowCondition::new(&of("sex"), &schema).is_err());
    }
}
