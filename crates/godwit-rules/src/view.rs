//! A dataset as a rule lets it be seen.
//!
//! Whoever reads it cannot tell it from a dataset that has only these rows and columns: what does not depend on them (sizes, places
//! in the file, metadata, the words of errors about values) is left out as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_model::Region;

use crate::cells::{masked, masked_type, plain_type, unmasked_type};
use crate::grants::Grants;
use crate::groups::Grouped;
use crate::pseudonyms::{Key, pseudonym};
use crate::rows::{PLACE, Places, Test, seen};
use crate::rule::{Mask, Rule};
use crate::samples::{is_of_samples, places_of_samples, samples_of, take_places};

/// What a mask is called that is for the samples of datasets, not for a column.
const SAMPLE: &str = "sample";

/// A dataset, and what of it may be seen.
#[derive(Debug)]
pub(crate) struct View {
    name: String,
    dataset: Arc<dyn Dataset>,
    columns: Arc<[Column]>,
    schema: SchemaRef,
    /// Regions whose rows may be seen, those that the dataset may have; `None`: all.
    regions: Option<Vec<Region>>,
    filter: Arc<Filter>,
    key: Option<Key>,
    sample: Option<String>,
    sorted_by: Vec<&'static str>,
    has_regions: bool,
    version: u64,
}

/// A column that is shown.
#[derive(Clone, Debug)]
struct Column {
    /// Where it is in the dataset.
    at: usize,
    /// Where the samples are in each of its lists that are shown.
    samples: Option<Arc<[u64]>>,
    mask: Option<Mask>,
    shown: DataType,
}

/// Which rows are seen.
#[derive(Debug)]
struct Filter {
    places: Option<(Places, [usize; 3])>,
    tests: Vec<Test>,
}

/// What is wrong with a rule for a dataset that it was not written for.
pub(crate) fn unfit(name: &str, rule: &Rule, problem: &str) -> DatasetError {
    let problem = format!(
        "{name} cannot be shown by rule {:?}: {problem}; whoever keeps the rules can say what is to be shown of it",
        rule.name
    );
    DatasetError::Forbidden { problem }
}

/// An error without the words of whoever reads the data, which may hold some of them.
pub(crate) fn veiled(name: &str, error: DatasetError) -> DatasetError {
    match error {
        DatasetError::Data(_) => {
            DatasetError::Data(format!("the data of {name} cannot be read; whoever keeps them can find out why").into())
        }
        DatasetError::Machine(_) => DatasetError::Machine(format!("{name} cannot be read on the server").into()),
        DatasetError::Remote(_) => DatasetError::Remote(format!("{name} cannot be reached by the server").into()),
        error => error,
    }
}

impl View {
    /// A dataset by a rule; the dataset itself where the rule shows all of it.
    pub(crate) fn of(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        grants: &Grants,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        match &rule.groups {
            Some(groups) => Grouped::of(name, dataset, rule, groups, grants),
            None => Self::typed(name, dataset, rule, grants, rule.hides_rows()),
        }
    }

    /// The rows that groups are made of: no column is a dictionary.
    pub(crate) fn below_groups(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        grants: &Grants,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        Self::typed(name, dataset, rule, grants, true)
    }

    fn typed(
        name: &str,
        dataset: Arc<dyn Dataset>,
        rule: &Rule,
        grants: &Grants,
        written_out: bool,
    ) -> Result<Arc<dyn Dataset>, DatasetError> {
        let samples: Option<Arc<[u64]>> = places_of_samples(rule, &*dataset).map(Into::into);
        if rule.shows_everything() && samples.is_none() {
            return Ok(dataset);
        }
        let inner = dataset.schema();
        if let Some(missing) = rule.named_columns().find(|column| *column != SAMPLE && inner.index_of(column).is_err())
        {
            return Err(unfit(name, rule, &format!("there is no column {missing}")));
        }
        let columns = columns_of(name, &inner, rule, samples.as_ref(), written_out)?;
        let fields = columns.iter().map(|column| {
            let field = inner.field(column.at);
            let nullable = field.is_nullable() || column.mask.is_some();
            Field::new(field.name(), column.shown.clone(), nullable)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let as_it_is = |name: &str| {
            let column = inner.index_of(name).ok().and_then(|at| columns.iter().find(|column| column.at == at));
            column.is_some_and(|column| column.mask.is_none() && column.samples.is_none())
        };
        let has_regions = dataset.has_regions() && PLACE.iter().all(|name| as_it_is(name));
        let sorted_by = dataset.sorted_by().iter().copied().take_while(|name| as_it_is(name)).collect();
        let regions = rule.regions_among(|contig| dataset.has_contig(contig));
        let regions = regions.map_err(|error| unfit(name, rule, &error.to_string()))?;
        let filter = Arc::new(Filter::new(name, &inner, rule, regions.as_deref())?);
        let version = version_of(&*dataset, rule, grants);
        let sample = shown_sample(&*dataset, rule, samples.as_deref(), grants);
        let columns = columns.into();
        let key = grants.key;
        let name = name.to_owned();
        Ok(Arc::new(Self {
            name,
            dataset,
            columns,
            schema,
            regions,
            filter,
            key,
            sample,
            sorted_by,
            has_regions,
            version,
        }))
    }

    fn hides_rows(&self) -> bool {
        self.regions.is_some() || !self.filter.tests.is_empty()
    }

    /// The scan of the dataset for one of the view, and whether the places of its rows are to be looked at. `None` where it has
    /// no rows.
    fn scan_below(&self, scan: &Scan) -> Option<(Scan, bool)> {
        let asked = scan.regions.as_ref().filter(|_| self.has_regions);
        let (regions, looks) = match (&self.regions, asked) {
            (None, asked) => (asked.cloned(), false),
            (Some(allowed), None) => (Some(allowed.clone()), false),
            (Some(allowed), Some(asked)) => {
                let places = Places::new(allowed);
                let asked: Vec<Region> =
                    asked.iter().filter(|region| places.has_contig(&region.contig)).cloned().collect();
                // A row may overlap what is asked for, and not what may be seen.
                let looks = !asked.iter().all(|region| places.hold(region));
                (Some(asked), looks)
            }
        };
        if regions.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        // Where nothing is looked up, each row is looked at.
        let (regions, looks) = match self.dataset.has_regions() {
            true => (regions, looks),
            false => (None, self.regions.is_some()),
        };
        let mut columns: BTreeSet<usize> = self.wanted(scan).iter().map(|column| column.at).collect();
        columns.extend(self.filter.tests.iter().map(|test| test.column));
        if let Some((_, place)) = self.filter.places.as_ref().filter(|_| looks) {
            columns.extend(place);
        }
        Some((Scan { columns: Some(columns.into_iter().collect()), regions }, looks))
    }

    fn wanted(&self, scan: &Scan) -> Vec<Column> {
        match &scan.columns {
            Some(columns) => columns.iter().filter_map(|at| self.columns.get(*at)).cloned().collect(),
            None => self.columns.to_vec(),
        }
    }

    fn shaping(&self, scan: &Scan, below: &Scan, looks: bool) -> Result<Shaping, DatasetError> {
        let schema = match &scan.columns {
            Some(columns) => {
                let projected = self.schema.project(columns);
                Arc::new(projected.map_err(|error| DatasetError::Refused { problem: error.to_string() })?)
            }
            None => self.schema.clone(),
        };
        Ok(Shaping {
            name: self.name.clone(),
            schema,
            columns: self.wanted(scan),
            filter: self.filter.clone(),
            looks,
            below: below.columns.clone().unwrap_or_default(),
            key: self.key,
        })
    }
}

fn columns_of(
    name: &str,
    inner: &Schema,
    rule: &Rule,
    samples: Option<&Arc<[u64]>>,
    written_out: bool,
) -> Result<Vec<Column>, DatasetError> {
    let mut columns = Vec::new();
    for (at, field) in inner.fields().iter().enumerate() {
        let mask = rule.mask_of(field.name());
        let samples = samples.filter(|_| is_of_samples(field.name(), field.data_type())).cloned();
        let shown = match mask {
            Some(Mask::Drop) => continue,
            Some(mask) => masked_type(field.data_type(), mask).map_err(|wanted| {
                unfit(name, rule, &format!("column {} is {}, not {wanted}", field.name(), field.data_type()))
            })?,
            // What cannot be shown in part is not shown.
            None => match unmasked_type(field.data_type(), written_out) {
                Some(shown) => shown,
                None => continue,
            },
        };
        columns.push(Column { at, samples, mask, shown });
    }
    Ok(columns)
}

/// Another number whenever the dataset, the rule or the key is another.
fn version_of(dataset: &dyn Dataset, rule: &Rule, grants: &Grants) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&dataset.version().to_le_bytes());
    hasher.update(grants.key.as_ref().map_or(&[][..], |key| &key[..]));
    hasher.update(&serde_json::to_vec(rule).unwrap_or_default());
    hasher.finalize().as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The sample that the dataset is said to be of: a column of that name in cohorts, masked as such a column would be.
fn shown_sample(dataset: &dyn Dataset, rule: &Rule, places: Option<&[u64]>, grants: &Grants) -> Option<String> {
    let sample = match places {
        None => dataset.sample().map(str::to_owned),
        Some([one]) => samples_of(dataset)?.get(usize::try_from(*one).ok()?).cloned(),
        Some(_) => None,
    }?;
    match rule.mask_of(SAMPLE) {
        None => Some(sample),
        Some(Mask::Hash) => grants.key.as_ref().map(|key| pseudonym(key, &sample)),
        Some(Mask::Keep(characters)) => Some(sample.chars().take(characters).collect()),
        Some(_) => None,
    }
}

impl Filter {
    fn new(name: &str, inner: &Schema, rule: &Rule, regions: Option<&[Region]>) -> Result<Self, DatasetError> {
        let place = PLACE.map(|column| inner.index_of(column));
        let places = match (regions, place) {
            (None, _) => None,
            (Some(regions), [Ok(contig), Ok(position), Ok(end)]) => {
                Some((Places::new(regions), [contig, position, end]))
            }
            (Some(_), _) => {
                return Err(unfit(name, rule, "its rows have no places, by which regions would choose them"));
            }
        };
        let tests = rule.conditions.iter().map(|condition| Test::new(condition, inner));
        let tests: Result<Vec<Test>, String> = tests.collect();
        let tests = tests.map_err(|problem| unfit(name, rule, &problem))?;
        Ok(Self { places, tests })
    }
}

/// What is done with each batch.
struct Shaping {
    name: String,
    schema: SchemaRef,
    columns: Vec<Column>,
    filter: Arc<Filter>,
    looks: bool,
    /// The columns of the dataset that are in batches, ascending.
    below: Vec<usize>,
    key: Option<Key>,
}

impl Shaping {
    /// What may be seen of a batch; `None` where that is nothing.
    fn shaped(&self, batch: &RecordBatch) -> Result<Option<RecordBatch>, ArrowError> {
        let place = |at: usize| self.below.binary_search(&at).unwrap_or_default();
        let places = self.filter.places.as_ref().filter(|_| self.looks).map(|(places, at)| (places, *at));
        let seen = match places.is_some() || !self.filter.tests.is_empty() {
            true => Some(seen(batch, places, &self.filter.tests, &place)?),
            false => None,
        };
        let rows = seen.as_ref().map_or(batch.num_rows(), arrow_array::BooleanArray::true_count);
        if rows == 0 {
            return Ok(None);
        }
        let columns = self.columns.iter().map(|column| {
            let values = batch.column(place(column.at));
            // A dictionary is looked at once for each of its values, so pseudonyms are made before it becomes plain.
            let values = match column.mask {
                Some(Mask::Hash) => values.clone(),
                Some(_) => plain(values)?,
                None => as_type(values, &column.shown)?,
            };
            let values = match &seen {
                Some(seen) => arrow_select::filter::filter(&values, seen)?,
                None => values,
            };
            let values = match &column.samples {
                Some(places) => take_places(&values, places)?,
                None => values,
            };
            match column.mask {
                Some(mask) => masked(&values, mask, &column.shown, self.key.as_ref()),
                None => Ok(values),
            }
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map(Some)
    }
}

/// The same values, each of which lies by itself.
fn plain(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    plain_type(values.data_type()).map_or_else(|| Ok(values.clone()), |plain| as_type(values, &plain))
}

fn as_type(values: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    if values.data_type() == wanted { Ok(values.clone()) } else { cast(values, wanted) }
}

impl Dataset for View {
    fn kind(&self) -> Kind {
        self.dataset.kind()
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.dataset.rows().filter(|_| !self.hides_rows())
    }

    /// Nothing is told of how much there is beside the rows that are seen.
    fn bytes(&self) -> u64 {
        if self.hides_rows() { 0 } else { self.dataset.bytes() }
    }

    fn sample(&self) -> Option<&str> {
        self.sample.as_deref()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        self.has_regions
    }

    /// Contigs without a region that may be seen are not told from those that do not exist.
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

    /// A part is said by its number and how many there are to be, never by where it lies.
    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        let most = most.max(1);
        let count = match self.scan_below(scan) {
            None => 0,
            Some(_) if self.hides_rows() => most,
            Some((below, _)) => self.dataset.parts(&below, most).map_err(|error| veiled(&self.name, error))?.len(),
        };
        Ok((0..count as u64).map(|at| Part { stretches: vec![(at, most as u64)] }).collect())
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let ([(at, most)], Some((below, looks))) = (&part.stretches[..], self.scan_below(scan)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let hidden = |error| veiled(&self.name, error);
        let parts = self.dataset.parts(&below, *most as usize).map_err(hidden)?;
        let Some(part) = usize::try_from(*at).ok().and_then(|at| parts.get(at)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let shaping = self.shaping(scan, &below, looks)?;
        let batches = self.dataset.read(&below, part).map_err(hidden)?;
        Ok(Box::new(batches.filter_map(move |batch| {
            let shaped =
                batch.and_then(|batch| shaping.shaped(&batch).map_err(|error| DatasetError::Data(Box::new(error))));
            shaped.map_err(|error| veiled(&shaping.name, error)).transpose()
        })))
    }
}
