//! Datasets whose rows are visible only as members of groups, so that single individuals cannot be recognized.
//!
//! A rule defines the columns by which rows are grouped, and the minimum number of members of a visible group. Each row
//! is replaced by a row of its group: the values of the grouping columns, and means of other columns. All rows of a
//! group are equal. Every query of such rows (counts, sums, any SQL, plans, the rows themselves) therefore describes
//! whole groups, and so does the difference between two results. A threshold that is applied to query results, in
//! contrast, can be circumvented by two queries (decision 37). Groups that are too small are hidden.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;
use arrow_array::{Array as _, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_cast::cast;
use arrow_row::{OwnedRow, RowConverter, SortField};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};

use crate::dataset_view::{DatasetView, redact_error, unsuitable_rule_error};
use crate::grants::Grants;
use crate::rule::{Grouping, Rule};

/// Maximum number of groups in a dataset. All groups are in memory, and with more groups they would almost be single
/// individuals.
const MAX_GROUPS: usize = 65_536;
/// Number of rows in a batch.
const BATCH_ROWS: u64 = 8192;

/// A dataset whose rows are visible only as members of groups.
#[derive(Debug)]
pub(crate) struct GroupedDataset {
    name: String,
    rule: Rule,
    grouping: Grouping,
    /// The rows from which groups are built: the grouping columns with their masks, and the other columns unmasked.
    member_rows: Arc<dyn Dataset>,
    schema: SchemaRef,
    version: u64,
}

/// The number of distinct members of a group, counted only up to the required minimum.
#[derive(Default)]
struct MemberCount {
    hashes: HashSet<u64>,
    count: u64,
}

impl MemberCount {
    fn add_member(&mut self, member: GroupMember, enough: u64) {
        match member {
            GroupMember::PerRow => self.count += 1,
            // Two members whose hashes are equal by chance count as one. The group then only appears smaller.
            GroupMember::Hash(mark) if self.count < enough => self.count += u64::from(self.hashes.insert(mark)),
            GroupMember::Hash(_) | GroupMember::Missing => {}
        }
    }
}

/// The individual to which a row belongs.
#[derive(Clone, Copy)]
enum GroupMember {
    /// An individual that has only this row, because the rule names no column that identifies individuals.
    PerRow,
    Hash(u64),
    Missing,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: u64,
    members: MemberCount,
}

/// The rows with equal values in all grouping columns.
struct Group {
    rows: u64,
    members: MemberCount,
    means: Vec<Mean>,
}

/// The visible groups: their columns with one value per group, and the number of rows in each group.
struct VisibleGroups {
    columns: Vec<ArrayRef>,
    rows: Vec<u64>,
}

impl GroupedDataset {
    /// Opens a dataset with a rule that groups its rows.
    pub(crate) fn open(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        groups: &Grouping,
        grants: &Grants,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        let member_rows = DatasetView::open_member_rows(name, dataset, &rule.for_member_rows(groups), grants)?;
        let below = member_rows.schema();
        let found = |column: &String| {
            let found = below.field_with_name(column);
            found.map_err(|_| unsuitable_rule_error(name, rule, &format!("column {column} cannot be grouped")))
        };
        let mut fields = Vec::new();
        for column in &groups.by {
            let data_type = found(column)?.data_type();
            if data_type.is_nested() {
                return Err(unsuitable_rule_error(
                    name,
                    rule,
                    &format!("column {column} is {data_type}, which cannot be grouped"),
                ));
            }
            fields.push(Field::new(column, data_type.clone(), true));
        }
        for column in &groups.mean_columns {
            let data_type = found(column)?.data_type();
            if !data_type.is_numeric() {
                return Err(unsuitable_rule_error(
                    name,
                    rule,
                    &format!("column {column} is {data_type}, which has no mean"),
                ));
            }
            fields.push(Field::new(column, DataType::Float64, true));
        }
        groups.member_column.iter().try_for_each(|column| found(column).map(drop))?;
        let (schema, version) = (Arc::new(Schema::new(fields)), member_rows.version());
        let (name, rule, grouping) = (name.to_owned(), rule.clone(), groups.clone());
        Ok(Arc::new(Self { name, rule, grouping, member_rows, schema, version }))
    }

    /// Reads the whole dataset and returns all visible groups, sorted by the values of the grouping columns.
    fn visible_groups(&self) -> Result<VisibleGroups, DatasetError> {
        let by = self.schema.fields().iter().take(self.grouping.by.len());
        let fields = by.map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(arrow_error)?;
        let (scan, random) = (Scan::default(), RandomState::new());
        let mut groups: HashMap<OwnedRow, Group> = HashMap::new();
        for part in self.member_rows.parts(&scan, 1)? {
            for batch in self.member_rows.read(&scan, &part)? {
                self.add_batch(&mut groups, &converter, &batch?, &random).map_err(arrow_error)?;
                if groups.len() > MAX_GROUPS {
                    let problem = format!("it has more than {MAX_GROUPS} groups; group by fewer or coarser columns");
                    return Err(unsuitable_rule_error(&self.name, &self.rule, &problem));
                }
            }
        }
        groups.retain(|_, group| group.members.count >= self.grouping.min_members);
        let groups: BTreeMap<OwnedRow, Group> = groups.into_iter().collect();
        let keys = groups.keys().map(OwnedRow::row);
        let mut columns = converter.convert_rows(keys).map_err(arrow_error)?;
        for at in 0..self.grouping.mean_columns.len() {
            // If too few members have a value in this column, the group has no mean.
            let mean = |group: &Group| {
                let Mean { sum, count, members } = &group.means[at];
                (members.count >= self.grouping.min_members).then(|| sum / *count as f64)
            };
            columns.push(Arc::new(groups.values().map(mean).collect::<Float64Array>()));
        }
        Ok(VisibleGroups { columns, rows: groups.values().map(|group| group.rows).collect() })
    }

    fn add_batch(
        &self,
        groups: &mut HashMap<OwnedRow, Group>,
        converter: &RowConverter,
        batch: &RecordBatch,
        random: &RandomState,
    ) -> Result<(), ArrowError> {
        let schema = self.member_rows.schema();
        let column = |name: &String| Ok::<_, ArrowError>(batch.column(schema.index_of(name)?).clone());
        let by: Vec<ArrayRef> = self.grouping.by.iter().map(column).collect::<Result<_, _>>()?;
        let keys = converter.convert_columns(&by)?;
        let numbers = |name: &String| cast(&column(name)?, &DataType::Float64);
        let means: Vec<ArrayRef> = self.grouping.mean_columns.iter().map(numbers).collect::<Result<_, _>>()?;
        let of = self.grouping.member_column.as_ref().map(|of| member_hashes(&column(of)?, random)).transpose()?;
        let enough = self.grouping.min_members;
        let new = || Group {
            rows: 0,
            members: MemberCount::default(),
            means: self.grouping.mean_columns.iter().map(|_| Mean::default()).collect(),
        };
        for (row, key) in keys.iter().enumerate() {
            let group = groups.entry(key.owned()).or_insert_with(new);
            let member = of.as_ref().map_or(GroupMember::PerRow, |of| of[row]);
            group.rows += 1;
            group.members.add_member(member, enough);
            for (mean, values) in group.means.iter_mut().zip(&means) {
                let values = values.as_primitive::<Float64Type>();
                // Ignore infinite values and NaN: a single one would make the mean infinite or NaN and thus become
                // visible.
                if values.is_valid(row) && values.value(row).is_finite() {
                    mean.sum += values.value(row);
                    mean.count += 1;
                    mean.members.add_member(member, enough);
                }
            }
        }
        Ok(())
    }
}

/// Returns a hash of each value in a column, by which individuals are distinguished.
fn member_hashes(values: &ArrayRef, random: &RandomState) -> Result<Vec<GroupMember>, ArrowError> {
    let mut values = values.clone();
    if values.data_type().is_floating() {
        let numbers = cast(&values, &DataType::Float64)?;
        // NaN is a missing number in tables from pandas. Zero and negative zero are the same individual.
        let known = |number: f64| (!number.is_nan()).then_some(number + 0.0);
        values = Arc::new(numbers.as_primitive::<Float64Type>().unary_opt::<_, Float64Type>(known));
    }
    let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
    let rows = converter.convert_columns(std::slice::from_ref(&values))?;
    let marks = rows.iter().enumerate().map(|(row, value)| match values.is_valid(row) {
        true => GroupMember::Hash(random.hash_one(value.as_ref())),
        false => GroupMember::Missing,
    });
    Ok(marks.collect())
}

fn arrow_error(error: ArrowError) -> DatasetError {
    DatasetError::Data(Box::new(error))
}

impl Dataset for GroupedDataset {
    /// Returns `Table`, because groups of rows are a table, whatever the kind of the underlying dataset is.
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        false
    }

    fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(vec![ScanPart { ranges: vec![(0, 1)] }])
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if part.ranges.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let VisibleGroups { columns, rows } = self.visible_groups().map_err(|error| redact_error(&self.name, error))?;
        let (schema, columns) = match &scan.columns {
            None => (self.schema.clone(), columns),
            Some(wanted) => {
                let schema = self.schema.project(wanted).map_err(arrow_error)?;
                (Arc::new(schema), wanted.iter().map(|at| columns[*at].clone()).collect())
            }
        };
        let (mut group, mut taken) = (0, 0);
        Ok(Box::new(std::iter::from_fn(move || {
            let mut indexes = Vec::new();
            while group < rows.len() && (indexes.len() as u64) < BATCH_ROWS {
                let now = (rows[group] - taken).min(BATCH_ROWS - indexes.len() as u64);
                indexes.extend(std::iter::repeat_n(group as u64, now as usize));
                taken += now;
                if taken == rows[group] {
                    (group, taken) = (group + 1, 0);
                }
            }
            (!indexes.is_empty()).then(|| take_batch(&schema, &columns, indexes).map_err(arrow_error))
        })))
    }
}

/// Returns a batch of the rows of `columns` with these indexes.
fn take_batch(schema: &SchemaRef, columns: &[ArrayRef], indexes: Vec<u64>) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(indexes.len()));
    let indexes = UInt64Array::from(indexes);
    let columns = columns.iter().map(|column| arrow_select::take::take(column, &indexes, None));
    RecordBatch::try_new_with_options(schema.clone(), columns.collect::<Result<_, _>>()?, &options)
}

#[cfg(test)]
mod tests;
