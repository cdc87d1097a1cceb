//! Selects the visible rows of a batch: those that overlap a visible region and meet all conditions.

use std::collections::HashMap;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Schema};
use godwit_model::{IntervalSet, Region};

use crate::masks::plain_type;
use crate::number_range::NumberRange;
use crate::rule::{Condition, ConditionValue};
use crate::value_set::ValueSet;

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
    /// The type of the column without dictionaries and views, in which the values are compared.
    data_type: DataType,
    one_of: Option<ValueSet>,
    not_in: Option<ValueSet>,
    range: Option<NumberRange>,
}

impl RowCondition {
    /// Prepares a condition. The error describes why the column does not support the condition.
    pub(crate) fn new(condition: &Condition, schema: &Schema) -> Result<Self, String> {
        let name = &condition.column;
        let mut fields = schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
        let (column, field) = fields.next().ok_or_else(|| format!("column {name} does not exist"))?;
        if fields.next().is_some() {
            return Err(format!("several columns have the name {name}"));
        }
        let written_type = field.data_type();
        let unsupported = || format!("column {name} is {written_type}, which does not support this condition");
        let data_type = plain_type(written_type).ok_or_else(unsupported)?;
        let convert = |entries: &Option<Vec<ConditionValue>>| match entries {
            Some(entries) => ValueSet::new(entries, &data_type).ok_or_else(unsupported).map(Some),
            None => Ok(None),
        };
        // An entry of `in` that is not a value of the column's type equals no value, so it shows nothing.
        let one_of = convert(&condition.one_of)?.map(|(values, _)| values);
        let not_in = match convert(&condition.not_in)? {
            // The entry is meant to hide values, but it equals none.
            Some((_, Some(number))) => {
                return Err(format!(
                    "entry {number} of `not_in` is not a value of column {name}, which is {written_type}"
                ));
            }
            converted => converted.map(|(values, _)| values),
        };
        let range = match (condition.at_least, condition.at_most) {
            (None, None) => None,
            (at_least, at_most) => Some(NumberRange::new(at_least, at_most, &data_type).ok_or_else(unsupported)?),
        };
        Ok(Self { column, data_type, one_of, not_in, range })
    }

    fn evaluate(&self, values: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let values = cast(values, &self.data_type)?;
        let mut met = BooleanBuffer::new_set(values.len());
        if let Some(one_of) = &self.one_of {
            met = &met & &rows_with_result(&one_of.contains(&values)?, true);
        }
        if let Some(not_in) = &self.not_in {
            met = &met & &rows_with_result(&not_in.contains(&values)?, false);
        }
        if let Some(range) = &self.range {
            met = &met & &rows_with_result(&range.contains(&values)?, true);
        }
        Ok(BooleanArray::new(met, None))
    }
}

/// Returns for each row whether a test has the result `expected`. Rows without a value have no result.
fn rows_with_result(results: &BooleanArray, expected: bool) -> BooleanBuffer {
    let rows = if expected { results.values().clone() } else { !results.values() };
    results.nulls().map_or_else(|| rows.clone(), |nulls| &rows & nulls.inner())
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

    use arrow_array::types::Int8Type;
    use arrow_array::{
        BinaryArray, Date32Array, Decimal32Array, Decimal128Array, Decimal256Array, DictionaryArray,
        DurationSecondArray, Float32Array, Float64Array, Int8Array, Int32Array, Int64Array, NullArray, StringArray,
        Time32SecondArray, TimestampMicrosecondArray, UInt64Array,
    };
    use arrow_buffer::i256;
    use arrow_schema::Field;

    use super::*;
    use crate::rule::Number;

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

    /// Returns for each value whether it meets a condition, which is written as in a policy file; the error if the type of
    /// the values does not support it.
    fn try_met(values: &ArrayRef, condition: &str) -> Result<Vec<bool>, String> {
        let schema = Schema::new(vec![Field::new("x", values.data_type().clone(), true)]);
        let condition: Condition = toml::from_str(&format!("column = 'x'\n{condition}")).unwrap();
        let met = RowCondition::new(&condition, &schema)?.evaluate(values).unwrap();
        Ok(met.iter().flatten().collect())
    }

    /// Returns the indexes of the values that meet a condition.
    fn met(values: &ArrayRef, condition: &str) -> Vec<usize> {
        let met = try_met(values, condition).unwrap();
        assert_eq!(met.len(), values.len());
        (0..).zip(met).filter(|(_, is_met)| *is_met).map(|(row, _)| row).collect()
    }

    /// Checks the values that `in` and `not_in` select with a list of entries.
    fn assert_equal_values(values: &ArrayRef, entries: &str, equal: &[usize], different: &[usize]) {
        assert_eq!(met(values, &format!("in = {entries}")), equal, "in {entries}: {values:?}");
        assert_eq!(met(values, &format!("not_in = {entries}")), different, "not_in {entries}: {values:?}");
    }

    #[test]
    fn rows_without_a_value_meet_no_condition() {
        let uses: ArrayRef = Arc::new(StringArray::from(vec![Some("GRU"), Some("HMB"), None, Some("")]));
        let ages: ArrayRef = Arc::new(Float64Array::from(vec![Some(17.9), Some(18.0), None, Some(f64::NAN)]));
        assert_equal_values(&uses, "['GRU']", &[0], &[1, 3]);
        assert_eq!(met(&uses, "not_in = []"), [0, 1, 3]);
        assert_eq!(met(&ages, "at_least = 18"), [1]);
        assert_eq!(met(&ages, "at_most = 18.0"), [0, 1]);
        assert!(try_met(&uses, "at_most = 1").unwrap_err().contains("Utf8"));
        let empty: ArrayRef = Arc::new(NullArray::new(2));
        assert_equal_values(&empty, "[1, 'GRU']", &[], &[]);
    }

    #[test]
    fn floating_point_numbers_are_compared_as_numbers() {
        let numbers = vec![Some(0.0), Some(1.0), Some(0.5), Some(f64::NAN), None, Some(-0.0), Some(f64::INFINITY)];
        let numbers: ArrayRef = Arc::new(Float64Array::from(numbers));
        for entries in ["[1]", "[1.0]", "['1']", "['1.00']", "['1e0', 7, 1e300]"] {
            assert_equal_values(&numbers, entries, &[1], &[0, 2, 3, 5, 6]);
        }
        assert_equal_values(&numbers, "[0]", &[0, 5], &[1, 2, 3, 6]);
        assert_equal_values(&numbers, "['-0.0', 0.5]", &[0, 2, 5], &[1, 3, 6]);
        assert_equal_values(&numbers, "['inf']", &[6], &[0, 1, 2, 3, 5]);
        assert_equal_values(&numbers, "['1e400']", &[], &[0, 1, 2, 3, 5, 6]);
        let single: ArrayRef = Arc::new(Float32Array::from(vec![0.1, 1.0, 16_777_216.0]));
        assert_equal_values(&single, "[0.1]", &[0], &[1, 2]);
        assert_equal_values(&single, "[1, 16777216]", &[1, 2], &[0]);
    }

    #[test]
    fn integers_are_compared_exactly() {
        let large = 9_007_199_254_740_993;
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(large), Some(large - 1), None]));
        for entries in ["[1]", "[1.0]", "['1']", "['01']", "['1.00']", "[1, 1.5]"] {
            assert_equal_values(&numbers, entries, &[0], &[1, 2]);
        }
        assert_equal_values(&numbers, "[9007199254740993]", &[1], &[0, 2]);
        assert_eq!(met(&numbers, "at_least = 9007199254740993"), [1]);
        assert_eq!(met(&numbers, "at_most = 9007199254740992"), [0, 2]);
        assert_eq!(met(&numbers, "at_least = 0.5\nat_most = 1.5"), [0]);
        assert_eq!(met(&numbers, "at_most = 1e300"), [0, 1, 2]);
        assert_eq!(met(&numbers, "at_least = 1e300"), [0; 0]);
        let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 1]));
        assert_equal_values(&unsigned, "['18446744073709551615']", &[0], &[1]);
        assert_equal_values(&unsigned, "[-1]", &[], &[0, 1]);
        let small: ArrayRef = Arc::new(Int8Array::from(vec![44, -1]));
        assert_equal_values(&small, "[300, -300, '1e60']", &[], &[0, 1]);
    }

    #[test]
    fn decimals_are_compared_exactly() {
        let columns: [ArrayRef; 3] = [
            Arc::new(Decimal32Array::from(vec![100, 101, 10]).with_precision_and_scale(9, 2).unwrap()),
            Arc::new(Decimal128Array::from(vec![100, 101, 10]).with_precision_and_scale(20, 2).unwrap()),
            Arc::new(
                Decimal256Array::from_iter_values([100, 101, 10].map(i256::from_i128))
                    .with_precision_and_scale(60, 2)
                    .unwrap(),
            ),
        ];
        for values in &columns {
            assert_equal_values(values, "[1]", &[0], &[1, 2]);
            assert_equal_values(values, "['1.000', 0.1]", &[0, 2], &[1]);
            assert_equal_values(values, "['1.005', 1000000000000]", &[], &[0, 1, 2]);
            assert_eq!(met(values, "at_least = 0.1\nat_most = 1.009"), [0, 2]);
        }
    }

    #[test]
    fn dates_times_and_booleans_are_compared_by_their_value() {
        let second: i64 = 1_577_923_200;
        let times = TimestampMicrosecondArray::from(vec![second * 1_000_000, second * 1_000_000 + 1]);
        let local: ArrayRef = Arc::new(times.clone().with_timezone("+02:00"));
        let times: ArrayRef = Arc::new(times);
        for entries in ["['2020-01-02']", "['2020-01-02 00:00:00']", "['2020-01-02T00:00:00.000Z']"] {
            assert_equal_values(&times, entries, &[0], &[1]);
        }
        assert_equal_values(&times, "['2020-01-02T00:00:00.000001']", &[1], &[0]);
        assert_equal_values(&local, "['2020-01-02T02:00:00']", &[0], &[1]);
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![18_263, 18_264]));
        assert_equal_values(&dates, "['2020-01-02T00:00:00']", &[0], &[1]);
        let clock: ArrayRef = Arc::new(Time32SecondArray::from(vec![23_400, 0]));
        assert_equal_values(&clock, "['06:30', '06:30:00']", &[0], &[1]);
        let truths: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]));
        for entries in ["[true]", "['true']", "['TRUE']", "[1]"] {
            assert_equal_values(&truths, entries, &[0], &[1]);
        }
    }

    #[test]
    fn texts_are_compared_as_texts_in_any_encoding() {
        let texts = vec![Some("1"), Some("1.0"), None, Some("true")];
        let plain: ArrayRef = Arc::new(StringArray::from(texts.clone()));
        let dictionary: DictionaryArray<Int8Type> = texts.iter().copied().collect();
        let binary = BinaryArray::from_iter(texts.iter().map(|text| text.map(str::as_bytes)));
        let large = cast(&plain, &DataType::LargeUtf8).unwrap();
        let view = cast(&plain, &DataType::Utf8View).unwrap();
        let columns: [ArrayRef; 5] = [plain, Arc::new(dictionary), Arc::new(binary), large, view];
        for values in &columns {
            assert_equal_values(values, "[1]", &[0], &[1, 3]);
            assert_equal_values(values, "['1.0', true]", &[1, 3], &[0]);
        }
        let keys = Int8Array::from(vec![Some(0), None]);
        let numbers: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(Float64Array::from(vec![1.0]))));
        assert_equal_values(&numbers, "[1]", &[0], &[]);
        assert_eq!(met(&numbers, "at_least = 1"), [0]);
    }

    #[test]
    fn an_entry_that_is_not_a_value_of_the_column_hides_the_dataset_or_shows_nothing() {
        let columns: [(ArrayRef, &str); 7] = [
            (Arc::new(Float64Array::from(vec![1.0])), "unknown"),
            (Arc::new(Float64Array::from(vec![f64::NAN])), "NaN"),
            (Arc::new(Int32Array::from(vec![1])), "1 000"),
            (Arc::new(Decimal128Array::from(vec![1])), "1,5"),
            (Arc::new(Date32Array::from(vec![1])), "02.01.2020"),
            (Arc::new(TimestampMicrosecondArray::from(vec![1])), "1970"),
            (Arc::new(BooleanArray::from(vec![true])), "maybe"),
        ];
        for (values, entry) in &columns {
            let error = try_met(values, &format!("not_in = ['{entry}']")).unwrap_err();
            assert!(error.contains("entry 1 of `not_in`") && error.contains("column x"), "{error}");
            assert!(!error.contains(entry), "{error}");
            assert_eq!(met(values, &format!("in = ['{entry}']")), [0; 0], "{entry}");
        }
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
        assert!(try_met(&numbers, "not_in = [1, 2, true]").unwrap_err().contains("entry 3 "));
        assert_eq!(met(&numbers, "in = ['unknown', 2]"), [1]);
        let durations: ArrayRef = Arc::new(DurationSecondArray::from(vec![1]));
        assert!(try_met(&durations, "in = ['PT1S']").unwrap_err().contains("does not support"));
    }

    #[test]
    fn the_column_of_a_condition_exists_once() {
        let field = |name: &str| Field::new(name, DataType::Int32, true);
        let schema = Schema::new(vec![field("age"), field("use"), field("use")]);
        let problem = |column: &str| {
            let at_most = Some(Number::Integer(1));
            let condition = Condition { column: column.to_owned(), at_most, ..Condition::default() };
            RowCondition::new(&condition, &schema).err()
        };
        assert_eq!(problem("age"), None);
        assert!(problem("sex").unwrap().contains("does not exist"));
        assert!(problem("use").unwrap().contains("several columns"));
    }
}
