//! Rows that are seen only as members of groups.
//!
//! A rule says by which columns rows are grouped, and how many have to be in a group. In place of its rows each group has as many
//! that are all alike: the values it is by, and means. Whatever is asked of such rows (counts, sums, any SQL, plans, the rows themselves) is
//! about whole groups, and the difference of two answers is one of whole groups, too: a threshold at the end of a statement
//! would be undone by asking twice (decision 37). Groups that are too small are not there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;
use arrow_array::{Array as _, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_cast::cast;
use arrow_row::{OwnedRow, RowConverter, SortField};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};

use crate::grants::Grants;
use crate::rule::{Groups, Rule};
use crate::view::{View, unfit, veiled};

/// Groups of a dataset, at most: they are held in memory, and with more of them there is nobody beside anybody.
const MOST_GROUPS: usize = 65_536;
/// Rows of a batch.
const BATCH_ROWS: u64 = 8192;

/// A dataset whose rows are seen only as members of groups.
#[derive(Debug)]
pub(crate) struct Grouped {
    name: String,
    rule: Rule,
    groups: Groups,
    /// The rows that groups are made of: what they are by as it is shown, and the other columns as they are.
    rows: Arc<dyn Dataset>,
    schema: SchemaRef,
    version: u64,
}

/// Who was counted: as many as there have to be, and no more.
#[derive(Default)]
struct Members {
    seen: HashSet<u64>,
    count: u64,
}

impl Members {
    fn add(&mut self, who: Who, enough: u64) {
        match who {
            Who::Row => self.count += 1,
            // Two whose marks are the same by chance count once, and a group is taken for smaller than it is.
            Who::Somebody(mark) if self.count < enough => self.count += u64::from(self.seen.insert(mark)),
            Who::Somebody(_) | Who::Nobody => {}
        }
    }
}

/// Whom a row is about.
#[derive(Clone, Copy)]
enum Who {
    /// Whoever no other row is about.
    Row,
    Somebody(u64),
    Nobody,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    values: u64,
    members: Members,
}

/// A group.
struct Group {
    rows: u64,
    members: Members,
    means: Vec<Mean>,
}

/// The columns of groups that may be seen, a row for each, and how many rows each group has.
struct Seen {
    columns: Vec<ArrayRef>,
    rows: Vec<u64>,
}

impl Grouped {
    /// A dataset by a rule that groups its rows.
    pub(crate) fn of(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        groups: &Groups,
        grants: &Grants,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        let rows = View::below_groups(name, dataset, &rule.of_rows(groups), grants)?;
        let below = rows.schema();
        let found = |column: &String| {
            let found = below.field_with_name(column);
            found.map_err(|_| unfit(name, rule, &format!("column {column} cannot be grouped")))
        };
        let mut fields = Vec::new();
        for column in &groups.by {
            let data_type = found(column)?.data_type();
            if data_type.is_nested() {
                return Err(unfit(name, rule, &format!("column {column} is {data_type}, by which nothing is grouped")));
            }
            fields.push(Field::new(column, data_type.clone(), true));
        }
        for column in &groups.means {
            let data_type = found(column)?.data_type();
            if !data_type.is_numeric() {
                return Err(unfit(name, rule, &format!("column {column} is {data_type}, of which there are no means")));
            }
            fields.push(Field::new(column, DataType::Float64, true));
        }
        groups.of.iter().try_for_each(|column| found(column).map(drop))?;
        let (schema, version) = (Arc::new(Schema::new(fields)), rows.version());
        let (name, rule, groups) = (name.to_owned(), rule.clone(), groups.clone());
        Ok(Arc::new(Self { name, rule, groups, rows, schema, version }))
    }

    /// All groups that may be seen, by the values they are by.
    fn seen(&self) -> Result<Seen, DatasetError> {
        let by = self.schema.fields().iter().take(self.groups.by.len());
        let fields = by.map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(of_arrow)?;
        let (scan, random) = (Scan::default(), RandomState::new());
        let mut groups: HashMap<OwnedRow, Group> = HashMap::new();
        for part in self.rows.parts(&scan, 1)? {
            for batch in self.rows.read(&scan, &part)? {
                self.add(&mut groups, &converter, &batch?, &random).map_err(of_arrow)?;
                if groups.len() > MOST_GROUPS {
                    let problem = format!("it has more than {MOST_GROUPS} groups; group by fewer or coarser columns");
                    return Err(unfit(&self.name, &self.rule, &problem));
                }
            }
        }
        groups.retain(|_, group| group.members.count >= self.groups.at_least);
        let groups: BTreeMap<OwnedRow, Group> = groups.into_iter().collect();
        let keys = groups.keys().map(OwnedRow::row);
        let mut columns = converter.convert_rows(keys).map_err(of_arrow)?;
        for at in 0..self.groups.means.len() {
            // What too few have a value of has no mean.
            let mean = |group: &Group| {
                let Mean { sum, values, members } = &group.means[at];
                (members.count >= self.groups.at_least).then(|| sum / *values as f64)
            };
            columns.push(Arc::new(groups.values().map(mean).collect::<Float64Array>()));
        }
        Ok(Seen { columns, rows: groups.values().map(|group| group.rows).collect() })
    }

    fn add(
        &self,
        groups: &mut HashMap<OwnedRow, Group>,
        converter: &RowConverter,
        batch: &RecordBatch,
        random: &RandomState,
    ) -> Result<(), ArrowError> {
        let schema = self.rows.schema();
        let column = |name: &String| Ok::<_, ArrowError>(batch.column(schema.index_of(name)?).clone());
        let by: Vec<ArrayRef> = self.groups.by.iter().map(column).collect::<Result<_, _>>()?;
        let keys = converter.convert_columns(&by)?;
        let numbers = |name: &String| cast(&column(name)?, &DataType::Float64);
        let means: Vec<ArrayRef> = self.groups.means.iter().map(numbers).collect::<Result<_, _>>()?;
        let of = self.groups.of.as_ref().map(|of| marks_of(&column(of)?, random)).transpose()?;
        let enough = self.groups.at_least;
        let new = || Group {
            rows: 0,
            members: Members::default(),
            means: self.groups.means.iter().map(|_| Mean::default()).collect(),
        };
        for (row, key) in keys.iter().enumerate() {
            let group = groups.entry(key.owned()).or_insert_with(new);
            let who = of.as_ref().map_or(Who::Row, |of| of[row]);
            group.rows += 1;
            group.members.add(who, enough);
            for (mean, values) in group.means.iter_mut().zip(&means) {
                let values = values.as_primitive::<Float64Type>();
                // What is no number would make no number of the mean of all others, and so be told.
                if values.is_valid(row) && values.value(row).is_finite() {
                    mean.sum += values.value(row);
                    mean.values += 1;
                    mean.members.add(who, enough);
                }
            }
        }
        Ok(())
    }
}

/// A mark for each value of a column, by which it is told from others.
fn marks_of(values: &ArrayRef, random: &RandomState) -> Result<Vec<Who>, ArrowError> {
    let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
    let rows = converter.convert_columns(std::slice::from_ref(values))?;
    let marks = rows.iter().enumerate().map(|(row, value)| match values.is_valid(row) {
        true => Who::Somebody(random.hash_one(value.as_ref())),
        false => Who::Nobody,
    });
    Ok(marks.collect())
}

fn of_arrow(error: ArrowError) -> DatasetError {
    DatasetError::Data(Box::new(error))
}

impl Dataset for Grouped {
    /// Whatever the rows were of, groups are a table.
    fn kind(&self) -> Kind {
        Kind::Table
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

    fn parts(&self, _: &Scan, _: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(vec![Part { stretches: vec![(0, 1)] }])
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        if part.stretches.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let Seen { columns, rows } = self.seen().map_err(|error| veiled(&self.name, error))?;
        let (schema, columns) = match &scan.columns {
            None => (self.schema.clone(), columns),
            Some(wanted) => {
                let schema = self.schema.project(wanted).map_err(of_arrow)?;
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
            (!indexes.is_empty()).then(|| batch_of(&schema, &columns, indexes).map_err(of_arrow))
        })))
    }
}

/// The rows at some places of columns.
fn batch_of(schema: &SchemaRef, columns: &[ArrayRef], indexes: Vec<u64>) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(indexes.len()));
    let indexes = UInt64Array::from(indexes);
    let columns = columns.iter().map(|column| arrow_select::take::take(column, &indexes, None));
    RecordBatch::try_new_with_options(schema.clone(), columns.collect::<Result<_, _>>()?, &options)
}

#[cfg(test)]
mod tests;
