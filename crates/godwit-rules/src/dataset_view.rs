//! A dataset that shows only the rows, columns and values that a rule permits.
//!
//! Clients cannot distinguish the view from a dataset that has only these rows and columns. The view therefore also
//! hides properties that depend on the whole dataset: sizes, file offsets, metadata, and error messages that contain
//! values.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_model::Region;

use crate::grants::Grants;
use crate::masks::{mask_column, masked_type, plain_type, unmasked_type};
use crate::pseudonyms::{PseudonymKey, pseudonym};
use crate::row_filter::{POSITION_COLUMNS, RegionSet, RowCondition, visible_rows};
use crate::rule::{Mask, Rule};
use crate::samples::{dataset_samples, is_per_sample_column, take_list_elements, visible_sample_indexes};

/// Name for which a rule defines the mask of sample names. It is not the name of a column.
const SAMPLE_COLUMN: &str = "sample";

/// The part of a dataset that a rule shows.
#[derive(Debug)]
pub(crate) struct DatasetView {
    name: String,
    dataset: Arc<dyn Dataset>,
    columns: Arc<[ViewColumn]>,
    schema: SchemaRef,
    /// Visible regions on contigs of the dataset; `None` if all regions are visible.
    regions: Option<Vec<Region>>,
    row_filter: Arc<RowFilter>,
    key: Option<PseudonymKey>,
    sample: Option<String>,
    samples: Option<Vec<String>>,
    sorted_by: Vec<&'static str>,
    has_regions: bool,
    version: u64,
}

/// A column of the dataset that is visible.
#[derive(Clone, Debug)]
struct ViewColumn {
    /// 0-based index of the column in the dataset.
    source_index: usize,
    /// Indexes of the visible samples within each list of the column; `None` if all samples are visible or the values
    /// are not per sample.
    sample_indexes: Option<Arc<[u64]>>,
    mask: Option<Mask>,
    data_type: DataType,
}

/// The regions and conditions that decide which rows are visible.
#[derive(Debug)]
struct RowFilter {
    regions: Option<(RegionSet, [usize; 3])>,
    conditions: Vec<RowCondition>,
}

/// Returns the error that a rule cannot be applied to a dataset, for the reason `problem`.
pub(crate) fn unsuitable_rule_error(name: &str, rule: &Rule, problem: &str) -> DatasetError {
    let problem = format!(
        "{name} cannot be shown by rule {:?}: {problem}; the administrator of the rules can correct the rule",
        rule.name
    );
    DatasetError::Forbidden { problem }
}

/// Returns the error without the message of the file reader, because that message may contain hidden data.
pub(crate) fn redact_error(name: &str, error: DatasetError) -> DatasetError {
    match error {
        DatasetError::Data(_) => DatasetError::Data(
            format!("the server cannot read the data of {name}; ask its administrator for the cause").into(),
        ),
        DatasetError::Local(_) => DatasetError::Local(format!("the server cannot read {name}").into()),
        DatasetError::Remote(_) => {
            DatasetError::Remote(format!("the server cannot reach the storage of {name}").into())
        }
        error => error,
    }
}

impl DatasetView {
    /// Returns the view of a dataset that a rule defines, without the grouping of the rule. If the rule shows the whole
    /// dataset, returns the dataset itself.
    pub(crate) fn open(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        grants: &Grants,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        Self::build(name, dataset, rule, grants, rule.hides_rows())
    }

    /// Returns the rows from which groups are built. Dictionary columns are expanded.
    pub(crate) fn open_member_rows(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        grants: &Grants,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        Self::build(name, dataset, rule, grants, true)
    }

    fn build(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        grants: &Grants,
        expand_dictionaries: bool,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        let samples: Option<Arc<[u64]>> = visible_sample_indexes(rule, &*dataset).map(Into::into);
        if rule.shows_everything() && samples.is_none() {
            return Ok(dataset);
        }
        let inner = dataset.schema();
        if let Some(missing) =
            rule.required_columns().find(|column| *column != SAMPLE_COLUMN && inner.index_of(column).is_err())
        {
            return Err(unsuitable_rule_error(name, rule, &format!("column {missing} does not exist")));
        }
        let columns = view_columns(name, &inner, rule, samples.as_ref(), expand_dictionaries)?;
        let fields = columns.iter().map(|column| {
            let field = inner.field(column.source_index);
            let nullable = field.is_nullable() || column.mask.is_some();
            Field::new(field.name(), column.data_type.clone(), nullable)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let as_it_is = |name: &str| {
            let column =
                inner.index_of(name).ok().and_then(|at| columns.iter().find(|column| column.source_index == at));
            column.is_some_and(|column| column.mask.is_none() && column.sample_indexes.is_none())
        };
        let has_regions = dataset.has_regions() && POSITION_COLUMNS.iter().all(|name| as_it_is(name));
        let sorted_by = dataset.sorted_by().iter().copied().take_while(|name| as_it_is(name)).collect();
        let regions = rule.regions_on_contigs(|contig| dataset.has_contig(contig));
        let regions = regions.map_err(|error| unsuitable_rule_error(name, rule, &error.to_string()))?;
        let row_filter = Arc::new(RowFilter::new(name, &inner, rule, regions.as_deref())?);
        let version = view_version(&*dataset, rule, grants);
        let sample = shown_sample(&*dataset, rule, samples.as_deref(), grants);
        let samples = shown_samples(&*dataset, rule, samples.as_deref(), grants);
        let columns = columns.into();
        let key = grants.key;
        let name = name.to_owned();
        Ok(Arc::new(Self {
            name,
            dataset,
            columns,
            schema,
            regions,
            row_filter,
            key,
            sample,
            samples,
            sorted_by,
            has_regions,
            version,
        }))
    }

    fn hides_rows(&self) -> bool {
        self.regions.is_some() || !self.row_filter.conditions.is_empty()
    }

    /// Returns the scan of the underlying dataset for a scan of the view. Also returns whether the positions of the
    /// rows must be checked. Returns `None` if the scan yields no rows.
    fn source_scan(&self, scan: &Scan) -> Option<(Scan, bool)> {
        let requested = scan.regions.as_ref().filter(|_| self.has_regions);
        let (regions, looks) = match (&self.regions, requested) {
            (None, requested) => (requested.cloned(), false),
            (Some(allowed), None) => (Some(allowed.clone()), false),
            (Some(allowed), Some(requested)) => {
                let region_set = RegionSet::new(allowed);
                let requested: Vec<Region> =
                    requested.iter().filter(|region| region_set.has_contig(&region.contig)).cloned().collect();
                // A row may overlap a requested region without overlapping a visible region.
                let looks = !requested.iter().all(|region| region_set.contains(region));
                (Some(requested), looks)
            }
        };
        if regions.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        // If the dataset cannot search by region, scan it completely and check the position of each row.
        let (regions, looks) = match self.dataset.has_regions() {
            true => (regions, looks),
            false => (None, self.regions.is_some()),
        };
        let mut columns: BTreeSet<usize> =
            self.projected_columns(scan).iter().map(|column| column.source_index).collect();
        columns.extend(self.row_filter.conditions.iter().map(|test| test.column));
        if let Some((_, position_columns)) = self.row_filter.regions.as_ref().filter(|_| looks) {
            columns.extend(position_columns);
        }
        Some((Scan { columns: Some(columns.into_iter().collect()), regions }, looks))
    }

    fn projected_columns(&self, scan: &Scan) -> Vec<ViewColumn> {
        match &scan.columns {
            Some(columns) => columns.iter().filter_map(|at| self.columns.get(*at)).cloned().collect(),
            None => self.columns.to_vec(),
        }
    }

    fn batch_transform(&self, scan: &Scan, below: &Scan, checks_regions: bool) -> Result<BatchTransform, DatasetError> {
        let schema = match &scan.columns {
            Some(columns) => {
                let projected = self.schema.project(columns);
                Arc::new(projected.map_err(|error| DatasetError::InvalidRequest { problem: error.to_string() })?)
            }
            None => self.schema.clone(),
        };
        Ok(BatchTransform {
            name: self.name.clone(),
            schema,
            columns: self.projected_columns(scan),
            filter: self.row_filter.clone(),
            checks_regions,
            source_columns: below.columns.clone().unwrap_or_default(),
            key: self.key,
        })
    }
}

fn view_columns(
    name: &str,
    inner: &Schema,
    rule: &Rule,
    samples: Option<&Arc<[u64]>>,
    expand_dictionaries: bool,
) -> Result<Vec<ViewColumn>, DatasetError> {
    let mut columns = Vec::new();
    for (source_index, field) in inner.fields().iter().enumerate() {
        let mask = rule.column_mask(field.name());
        let sample_indexes = samples.filter(|_| is_per_sample_column(field.name())).cloned();
        // Hide a column whose values cannot be separated by sample.
        if sample_indexes.is_some() && !matches!(field.data_type(), DataType::List(_)) {
            continue;
        }
        let data_type = match mask {
            Some(Mask::Drop) => continue,
            Some(mask) => masked_type(field.data_type(), mask).map_err(|wanted| {
                unsuitable_rule_error(
                    name,
                    rule,
                    &format!("column {} is {}, not {wanted}", field.name(), field.data_type()),
                )
            })?,
            // Hide a column whose type has no plain form: it cannot be shown without also exposing hidden values.
            None => match unmasked_type(field.data_type(), expand_dictionaries) {
                Some(data_type) => data_type,
                None => continue,
            },
        };
        columns.push(ViewColumn { source_index, sample_indexes, mask, data_type });
    }
    Ok(columns)
}

/// Returns a version that changes if the dataset, the rule or the pseudonym key changes.
fn view_version(dataset: &dyn Dataset, rule: &Rule, grants: &Grants) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&dataset.version().to_le_bytes());
    hasher.update(grants.key.as_ref().map_or(&[][..], |key| &key[..]));
    hasher.update(&serde_json::to_vec(rule).unwrap_or_default());
    hasher.finalize().as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns the name of the visible sample if there is exactly one. The name is masked like a value of the column
/// `sample`.
fn shown_sample(dataset: &dyn Dataset, rule: &Rule, sample_indexes: Option<&[u64]>, grants: &Grants) -> Option<String> {
    let sample = match sample_indexes {
        None => dataset.sample().map(str::to_owned),
        Some([one]) => dataset_samples(dataset)?.get(usize::try_from(*one).ok()?).cloned(),
        Some(_) => None,
    }?;
    masked_sample(sample, rule, grants)
}

/// Returns the names of the visible samples of a dataset of variants, each masked like a value of the column `sample`.
fn shown_samples(
    dataset: &dyn Dataset,
    rule: &Rule,
    sample_indexes: Option<&[u64]>,
    grants: &Grants,
) -> Option<Vec<String>> {
    let mut samples = dataset.samples()?;
    if let Some(indexes) = sample_indexes {
        let visible = indexes.iter().map(|at| samples.get(usize::try_from(*at).ok()?).cloned());
        samples = visible.collect::<Option<_>>()?;
    }
    samples.into_iter().map(|sample| masked_sample(sample, rule, grants)).collect()
}

/// Returns the name of a sample, masked like a value of the column `sample`; `None` if the rule hides it.
fn masked_sample(sample: String, rule: &Rule, grants: &Grants) -> Option<String> {
    match rule.column_mask(SAMPLE_COLUMN) {
        None => Some(sample),
        Some(Mask::Hash) => grants.key.as_ref().map(|key| pseudonym(key, &sample)),
        Some(Mask::Prefix(characters)) => Some(sample.chars().take(characters).collect()),
        Some(_) => None,
    }
}

impl RowFilter {
    fn new(name: &str, inner: &Schema, rule: &Rule, regions: Option<&[Region]>) -> Result<Self, DatasetError> {
        let position_columns = POSITION_COLUMNS.map(|column| inner.index_of(column));
        let region_set = match (regions, position_columns) {
            (None, _) => None,
            (Some(regions), [Ok(contig), Ok(position), Ok(end)]) => {
                Some((RegionSet::new(regions), [contig, position, end]))
            }
            (Some(_), _) => {
                return Err(unsuitable_rule_error(
                    name,
                    rule,
                    "its rows have no positions, so regions cannot select them",
                ));
            }
        };
        let tests = rule.conditions.iter().map(|condition| RowCondition::new(condition, inner));
        let tests: Result<Vec<RowCondition>, String> = tests.collect();
        let conditions = tests.map_err(|problem| unsuitable_rule_error(name, rule, &problem))?;
        Ok(Self { regions: region_set, conditions })
    }
}

/// The conversion of batches of the underlying dataset to batches of the view.
struct BatchTransform {
    name: String,
    schema: SchemaRef,
    columns: Vec<ViewColumn>,
    filter: Arc<RowFilter>,
    checks_regions: bool,
    /// Indexes of the dataset's columns that the batches contain, in ascending order.
    source_columns: Vec<usize>,
    key: Option<PseudonymKey>,
}

impl BatchTransform {
    /// Returns the visible part of a batch; `None` if no row is visible.
    fn apply(&self, batch: &RecordBatch) -> Result<Option<RecordBatch>, ArrowError> {
        let batch_index = |at: usize| self.source_columns.binary_search(&at).unwrap_or_default();
        let region_set = self.filter.regions.as_ref().filter(|_| self.checks_regions).map(|(places, at)| (places, *at));
        let seen = match region_set.is_some() || !self.filter.conditions.is_empty() {
            true => Some(visible_rows(batch, region_set, &self.filter.conditions, &batch_index)?),
            false => None,
        };
        let rows = seen.as_ref().map_or(batch.num_rows(), arrow_array::BooleanArray::true_count);
        if rows == 0 {
            return Ok(None);
        }
        let columns = self.columns.iter().map(|column| {
            let values = batch.column(batch_index(column.source_index));
            // Keep a dictionary here, so that each of its values is pseudonymized only once. Then it is expanded.
            let values = match column.mask {
                Some(Mask::Hash) => values.clone(),
                Some(_) => expand_encoded(values)?,
                None => cast_if_needed(values, &column.data_type)?,
            };
            let values = match &seen {
                Some(seen) => arrow_select::filter::filter(&values, seen)?,
                None => values,
            };
            let values = match &column.sample_indexes {
                Some(sample_indexes) => take_list_elements(&values, sample_indexes)?,
                None => values,
            };
            match column.mask {
                Some(mask) => mask_column(&values, mask, &column.data_type, self.key.as_ref()),
                None => Ok(values),
            }
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map(Some)
    }
}

/// Converts dictionary and view arrays to plain arrays, in which each value is stored separately.
fn expand_encoded(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    plain_type(values.data_type()).map_or_else(|| Ok(values.clone()), |plain| cast_if_needed(values, &plain))
}

fn cast_if_needed(values: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    if values.data_type() == wanted { Ok(values.clone()) } else { cast(values, wanted) }
}

impl Dataset for DatasetView {
    fn kind(&self) -> DatasetKind {
        self.dataset.kind()
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.dataset.rows().filter(|_| !self.hides_rows())
    }

    /// Returns 0 if the view hides rows, because the size would reveal the number of all rows.
    fn bytes(&self) -> u64 {
        if self.hides_rows() { 0 } else { self.dataset.bytes() }
    }

    fn sample(&self) -> Option<&str> {
        self.sample.as_deref()
    }

    fn samples(&self) -> Option<Vec<String>> {
        self.samples.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        self.has_regions
    }

    /// Returns `None` for contigs without visible regions as well as for absent contigs, so that clients cannot
    /// distinguish them.
    fn has_contig(&self, name: &str) -> Option<bool> {
        match &self.regions {
            Some(regions) => regions.iter().any(|region| region.contig == name).then_some(true),
            None if self.has_regions => self.dataset.has_contig(name),
            None => None,
        }
    }

    fn sorted_by(&self) -> &[&'static str] {
        &self.sorted_by
    }

    /// Returns parts that contain only their index and their number, not file offsets.
    fn parts(&self, scan: &Scan, max_parts: usize) -> Result<Vec<ScanPart>, DatasetError> {
        let max_parts = max_parts.max(1);
        let count = match self.source_scan(scan) {
            None => 0,
            Some(_) if self.hides_rows() => max_parts,
            Some((below, _)) => {
                self.dataset.parts(&below, max_parts).map_err(|error| redact_error(&self.name, error))?.len()
            }
        };
        Ok((0..count as u64).map(|at| ScanPart { ranges: vec![(at, max_parts as u64)] }).collect())
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let ([(at, max_parts)], Some((below, looks))) = (&part.ranges[..], self.source_scan(scan)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let hidden = |error| redact_error(&self.name, error);
        let parts = self.dataset.parts(&below, *max_parts as usize).map_err(hidden)?;
        let Some(part) = usize::try_from(*at).ok().and_then(|at| parts.get(at)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let shaping = self.batch_transform(scan, &below, looks)?;
        let batches = self.dataset.read(&below, part).map_err(hidden)?;
        Ok(Box::new(batches.filter_map(move |batch| {
            let shaped =
                batch.and_then(|batch| shaping.apply(&batch).map_err(|error| DatasetError::Data(Box::new(error))));
            shaped.map_err(|error| redact_error(&shaping.name, error)).transpose()
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_whose_values_cannot_be_separated_by_sample_are_hidden() {
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let schema = Schema::new(vec![
            Field::new("position", DataType::Int64, false),
            Field::new("format_DP", DataType::List(item.clone()), true),
            Field::new("format_GQ", DataType::LargeList(item), true),
            Field::new("genotype_phased", DataType::Boolean, true),
        ]);
        let rule: Rule = toml::from_str("name = 'x'\nwho = ['*']\ndatasets = ['**']\nsamples = ['S1']").unwrap();
        let shown = |samples: Option<&Arc<[u64]>>| {
            let columns = view_columns("v", &schema, &rule, samples, true).unwrap();
            columns.iter().map(|column| column.source_index).collect::<Vec<_>>()
        };
        assert_eq!(shown(None), [0, 1, 2, 3]);
        assert_eq!(shown(Some(&Arc::from([0]))), [0, 1]);
    }
}
