//! The rows of the SQL table function `genotypes`: a dataset over one of variants, with a row for each sample of each
//! variant.
//!
//! Each list with one element per sample becomes a column of its elements. Lists that are not requested are not read.
//! Rows are in the order of the variants, and within a variant in the order of the samples in the header.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};

/// The column with the name of the sample.
pub(crate) const SAMPLE_COLUMN: &str = "sample";
/// Columns of variants that are repeated for each sample.
const SITE_COLUMNS: [&str; 8] =
    ["contig", "position", "end_position", "identifiers", "reference", "alternates", "quality", "filters"];
/// Columns of variants with one list element per sample that have other names here.
const RENAMED_COLUMNS: [(&str, &str); 2] = [("genotype_alleles", "alleles"), ("genotype_phased", "phased")];
/// The column with the number of alleles of a genotype that are not the reference.
const DOSAGE_COLUMN: &str = "dosage";
/// Prefix of the names of the columns of `FORMAT` fields in datasets of variants.
const FIELD_PREFIX: &str = "format_";
/// The column of variants with the text of values that do not fit a column.
const OTHERS_COLUMN: &str = "other_formats";
/// Number of rows in an output batch, unless one variant has more samples.
const BATCH_ROWS: usize = 32_768;

/// The source of the values of a column. Numbers are indexes of columns in the schema of the variants.
#[derive(Clone, Copy, Debug)]
enum ColumnSource {
    /// The value of the variant.
    Site(usize),
    /// The name of the sample.
    SampleName,
    /// The element of a list.
    Element(usize),
    /// The number of alternate alleles in the element of the column `genotype_alleles`.
    Dosage(usize),
}

impl ColumnSource {
    fn variant_column(self) -> Option<usize> {
        match self {
            Self::Site(column) | Self::Element(column) | Self::Dosage(column) => Some(column),
            Self::SampleName => None,
        }
    }
}

/// A dataset with a row for each selected sample of each variant.
#[derive(Debug)]
pub(crate) struct GenotypeDataset {
    variants: Arc<dyn Dataset>,
    sources: Vec<ColumnSource>,
    schema: SchemaRef,
    /// Names of the selected samples.
    samples: StringArray,
    /// Indexes of the selected samples among the elements of each list.
    sample_indexes: Vec<usize>,
    /// Number of elements of each list.
    list_length: usize,
}

impl GenotypeDataset {
    /// Creates the dataset of the genotypes of `samples`, the names of all samples of the variants. If `selected` is
    /// set, only samples with these names have rows.
    pub(crate) fn new(variants: Arc<dyn Dataset>, samples: &[String], selected: Option<&BTreeSet<String>>) -> Self {
        let (sources, fields) = genotype_columns(&variants.schema());
        let is_selected = |name: &str| selected.is_none_or(|selected| selected.contains(name));
        let sample_indexes: Vec<usize> = (0..samples.len()).filter(|at| is_selected(&samples[*at])).collect();
        let names = sample_indexes.iter().map(|at| Some(&samples[*at]));
        let (samples, list_length) = (names.collect(), samples.len());
        Self { variants, sources, schema: Arc::new(Schema::new(fields)), samples, sample_indexes, list_length }
    }

    fn source_scan(&self, scan: &Scan) -> Scan {
        let columns: BTreeSet<usize> =
            self.projected_sources(scan).into_iter().filter_map(ColumnSource::variant_column).collect();
        Scan { columns: Some(columns.into_iter().collect()), regions: scan.regions.clone() }
    }

    fn projected_sources(&self, scan: &Scan) -> Vec<ColumnSource> {
        match &scan.columns {
            Some(columns) => columns.iter().filter_map(|at| self.sources.get(*at)).copied().collect(),
            None => self.sources.clone(),
        }
    }
}

/// Returns the sources and the fields of the columns of genotypes.
fn genotype_columns(variants: &Schema) -> (Vec<ColumnSource>, Vec<Field>) {
    let (mut sources, mut fields) = (Vec::new(), Vec::new());
    let mut push = |source, field| {
        sources.push(source);
        fields.push(field);
    };
    for name in SITE_COLUMNS {
        if let Some((at, field)) = variants.column_with_name(name) {
            push(ColumnSource::Site(at), field.clone());
        }
    }
    push(ColumnSource::SampleName, Field::new(SAMPLE_COLUMN, DataType::Utf8, false));
    let elements = variants.fields().iter().enumerate().filter_map(|(at, field)| match field.data_type() {
        DataType::List(element) => Some((at, field.name().as_str(), element.data_type())),
        _ => None,
    });
    let elements: Vec<(usize, &str, &DataType)> = elements.collect();
    for (list, name) in RENAMED_COLUMNS {
        if let Some((at, _, data_type)) = elements.iter().find(|(_, column, _)| *column == list) {
            push(ColumnSource::Element(*at), Field::new(name, (*data_type).clone(), true));
        }
    }
    let of_alleles = elements.iter().find(|(_, column, data_type)| {
        *column == RENAMED_COLUMNS[0].0
            && matches!(data_type, DataType::List(allele) if *allele.data_type() == DataType::Int32)
    });
    if let Some((at, ..)) = of_alleles {
        push(ColumnSource::Dosage(*at), Field::new(DOSAGE_COLUMN, DataType::Int32, true));
    }
    let used: HashSet<&str> = SITE_COLUMNS.into_iter().chain(RENAMED_COLUMNS.map(|(_, name)| name)).collect();
    let is_used = |key: &str| used.contains(key) || [SAMPLE_COLUMN, DOSAGE_COLUMN, OTHERS_COLUMN].contains(&key);
    for (at, column, data_type) in elements {
        let name = match column.strip_prefix(FIELD_PREFIX) {
            Some(key) if !is_used(key) => key,
            Some(_) => column,
            None if column == OTHERS_COLUMN => column,
            None => continue,
        };
        push(ColumnSource::Element(at), Field::new(name, data_type.clone(), true));
    }
    (sources, fields)
}

impl Dataset for GenotypeDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.variants.rows()?.saturating_mul(self.sample_indexes.len() as u64))
    }

    fn bytes(&self) -> u64 {
        self.variants.bytes()
    }

    fn version(&self) -> u64 {
        self.variants.version()
    }

    fn has_regions(&self) -> bool {
        self.variants.has_regions()
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        self.variants.has_contig(name)
    }

    fn parts(&self, scan: &Scan, max_parts: usize) -> Result<Vec<ScanPart>, DatasetError> {
        match self.sample_indexes.is_empty() {
            true => Ok(Vec::new()),
            false => self.variants.parts(&self.source_scan(scan), max_parts),
        }
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if self.sample_indexes.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let of_variants = self.source_scan(scan);
        let schema = match &scan.columns {
            Some(columns) => Arc::new(self.schema.project(columns).map_err(|error| DatasetError::Data(error.into()))?),
            None => self.schema.clone(),
        };
        let expansion = SampleExpansion {
            sources: self.projected_sources(scan),
            variant_columns: of_variants.columns.clone().unwrap_or_default(),
            schema,
            samples: self.samples.clone(),
            sample_indexes: self.sample_indexes.clone(),
            list_length: self.list_length,
        };
        let variants = self.variants.read(&of_variants, part)?;
        Ok(Box::new(GenotypeReader { variants, expansion, batch: None }))
    }
}

/// An iterator over batches of genotypes, which are built from batches of variants.
struct GenotypeReader {
    variants: BatchReader,
    expansion: SampleExpansion,
    /// The variants whose genotypes are not returned yet.
    batch: Option<RecordBatch>,
}

impl Iterator for GenotypeReader {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.batch.take() {
            Some(batch) => batch,
            None => match self.variants.next()? {
                Ok(batch) => batch,
                Err(error) => return Some(Err(error)),
            },
        };
        let variants = (BATCH_ROWS / self.expansion.sample_indexes.len()).max(1).min(batch.num_rows());
        if variants < batch.num_rows() {
            self.batch = Some(batch.slice(variants, batch.num_rows() - variants));
        }
        let rows = self.expansion.expand(&batch.slice(0, variants));
        Some(rows.map_err(|error| DatasetError::Data(error.into())))
    }
}

/// The conversion of batches of variants to batches of genotypes.
struct SampleExpansion {
    sources: Vec<ColumnSource>,
    /// Indexes of the columns of variants that the batches contain, ascending.
    variant_columns: Vec<usize>,
    schema: SchemaRef,
    samples: StringArray,
    sample_indexes: Vec<usize>,
    list_length: usize,
}

impl SampleExpansion {
    fn expand(&self, variants: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let column = |at: usize| variants.column(self.variant_columns.binary_search(&at).unwrap_or_default());
        let row_count = variants.num_rows() * self.sample_indexes.len();
        let columns = self.sources.iter().map(|source| match *source {
            ColumnSource::Site(at) => take(column(at), &self.repeated_rows(variants.num_rows()), None),
            ColumnSource::SampleName => take(&self.samples, &self.repeated_samples(variants.num_rows()), None),
            ColumnSource::Element(at) => self.elements(column(at)),
            ColumnSource::Dosage(at) => Ok(Arc::new(dosages(self.elements(column(at))?.as_list())) as ArrayRef),
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }

    /// Returns each index of a variant, as often as there are samples.
    fn repeated_rows(&self, variants: usize) -> UInt32Array {
        (0..variants as u32).flat_map(|row| std::iter::repeat_n(row, self.sample_indexes.len())).collect()
    }

    /// Returns the indexes of all selected samples, once for each variant.
    fn repeated_samples(&self, variants: usize) -> UInt32Array {
        (0..variants).flat_map(|_| 0..self.sample_indexes.len() as u32).collect()
    }

    /// Returns the elements of the selected samples in each list. Elements of null lists are null.
    fn elements(&self, lists: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let lists: &ListArray = lists.as_list();
        let offsets = lists.value_offsets();
        let is_complete = |row: usize| lists.is_valid(row) && lists.value_length(row) as usize == self.list_length;
        if self.sample_indexes.len() == self.list_length && (0..lists.len()).all(is_complete) {
            let (start, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
            return Ok(lists.values().slice(start, end - start));
        }
        let element = |row: usize, sample: usize| {
            let is_present = lists.is_valid(row) && sample < lists.value_length(row) as usize;
            is_present.then(|| offsets[row] as u32 + sample as u32)
        };
        let indexes: UInt32Array = (0..lists.len())
            .flat_map(|row| self.sample_indexes.iter().map(move |sample| (row, *sample)))
            .map(|(row, sample)| element(row, sample))
            .collect();
        take(lists.values(), &indexes, None)
    }
}

/// Returns the number of alleles of each genotype that are not the reference; null if an allele is missing.
fn dosages(genotypes: &ListArray) -> Int32Array {
    let alleles = genotypes.values().as_primitive::<Int32Type>();
    let offsets = genotypes.value_offsets();
    let dosage = |row: usize| {
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        let is_missing = genotypes.is_null(row) || range.clone().any(|at| alleles.is_null(at));
        (!is_missing).then(|| range.filter(|at| alleles.value(*at) != 0).count() as i32)
    };
    (0..genotypes.len()).map(dosage).collect()
}
