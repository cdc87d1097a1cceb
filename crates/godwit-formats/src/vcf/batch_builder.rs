//! A builder of Arrow record batches from VCF records.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float32Builder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use super::error::{VcfError, excerpt};
use super::field_builder::{FieldBuilder, ListOffsetsBuilder, MISSING_VALUE, TextListBuilder};
use super::fields::{split_at_first, split_fields};
use super::genotype::Genotype;
use super::record::Record;
use super::variant_layout::VariantLayout;

/// Number of columns before those of the `INFO` fields ([`godwit_model::schema::variant_columns`]).
const FIXED_COLUMN_COUNT: usize = 9;
/// Number of columns of genotypes between the column `other_info` and those of the `FORMAT` fields.
const GENOTYPE_COLUMN_COUNT: usize = 2;
/// Indexes of those columns before `INFO` that are only built if they were requested.
const END_POSITION_COLUMN: usize = 3;
const IDENTIFIERS_COLUMN: usize = 4;
const ALTERNATES_COLUMN: usize = 6;
const FILTERS_COLUMN: usize = 8;
/// Number of rows at which a batch is full.
const MAX_BATCH_ROWS: usize = 4096;
/// Bytes of VCF text at which a batch is full. Records of cohorts are long, so that their batches have fewer rows.
const MAX_BATCH_TEXT_BYTES: usize = 4 << 20;
/// Number of cells, including nulls, at which a batch is full. It limits the size of batches if the header has many
/// fields.
const MAX_BATCH_CELLS: usize = 1 << 20;
/// Maximum number of cells of a record: half a million samples with 32 fields each.
const MAX_RECORD_CELLS: usize = 1 << 24;

/// A builder of record batches of variants.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_array::cast::AsArray;
/// use arrow_array::types::{Float32Type, Int32Type};
/// use godwit_formats::vcf::{Reader, VariantBatchBuilder, VariantLayout};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.vcf");
/// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
/// std::fs::write(&path, format!("{header}chr20\t1000\trs1\tA\tC\t50.5\tPASS\t.\n"))?;
/// let mut reader = Reader::open(&path, 1)?;
/// let layout = VariantLayout::new(reader.header())?;
/// let mut builder = VariantBatchBuilder::new(&layout);
/// while let Some(record) = reader.next_record()? {
///     builder.push(&record)?;
/// }
/// let batch = builder.take_batch()?;
/// assert_eq!(batch["position"].as_primitive::<Int32Type>().value(0), 999);
/// assert_eq!(batch["quality"].as_primitive::<Float32Type>().value(0), 50.5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VariantBatchBuilder<'l> {
    layout: &'l VariantLayout,
    projection: VariantProjection,
    row_count: usize,
    text_bytes: usize,
    cell_count: usize,
    contig: StringBuilder,
    contig_id: Int32Builder,
    position: Int32Builder,
    end_position: Int32Builder,
    identifiers: TextListBuilder,
    reference: StringBuilder,
    alternates: TextListBuilder,
    quality: Float32Builder,
    filters: TextListBuilder,
    info: Vec<FieldBuilder>,
    other_info: StringBuilder,
    samples: SampleColumnsBuilder,
}

/// The columns of a batch that the caller requested. Columns that cost little are always built, and removed from the
/// batch if they were not requested.
#[derive(Debug)]
struct VariantProjection {
    schema: SchemaRef,
    columns: Vec<bool>,
    /// For each `INFO` field, whether its values are needed. If `other_info` was requested, all are, because whether a value
    /// belongs there is known only after it was parsed.
    info: Vec<bool>,
    includes_other_info: bool,
    includes_info: bool,
    includes_samples: bool,
}

/// The per-sample columns of a projection. Values of other fields are not parsed.
#[derive(Debug)]
struct SampleProjection {
    /// True if `genotype_alleles` or `genotype_phased` was requested.
    includes_genotypes: bool,
    /// For each `FORMAT` field with a column, whether the column was requested.
    formats: Vec<bool>,
    /// True if `other_formats` was requested. Whether a value belongs there is known only after it was parsed.
    includes_others: bool,
}

impl SampleProjection {
    fn new(layout: &VariantLayout, projection: &VariantProjection) -> Self {
        let columns = projection.columns.get(FIXED_COLUMN_COUNT + layout.info.len() + 1..).unwrap_or_default();
        let is_requested = |column: usize| columns.get(column).copied().unwrap_or_default();
        let end = GENOTYPE_COLUMN_COUNT + layout.formats.len();
        let includes_others = is_requested(end);
        Self {
            includes_genotypes: is_requested(0) || is_requested(1),
            formats: (GENOTYPE_COLUMN_COUNT..end).map(|column| includes_others || is_requested(column)).collect(),
            includes_others,
        }
    }
}

impl VariantProjection {
    fn new(layout: &VariantLayout, columns: Option<&[usize]>) -> Self {
        let all = layout.schema.fields();
        let (schema, columns) = match columns {
            None => (layout.schema.clone(), vec![true; all.len()]),
            Some(indexes) => {
                let columns: Vec<bool> = (0..all.len()).map(|column| indexes.contains(&column)).collect();
                let requested = all.iter().zip(&columns).filter(|(_, is_requested)| **is_requested);
                (Arc::new(Schema::new(requested.map(|(field, _)| field.clone()).collect::<Vec<_>>())), columns)
            }
        };
        let other_info = FIXED_COLUMN_COUNT + layout.info.len();
        let includes_other_info = columns[other_info];
        let info = &columns[FIXED_COLUMN_COUNT..other_info];
        let info = info.iter().map(|is_requested| *is_requested || includes_other_info).collect();
        let includes_info = columns[FIXED_COLUMN_COUNT..=other_info].contains(&true);
        let includes_samples = columns[other_info + 1..].contains(&true);
        Self { schema, columns, info, includes_other_info, includes_info, includes_samples }
    }
}

/// Builders of the columns that contain a list with an element for each sample.
#[derive(Debug)]
struct SampleColumnsBuilder {
    projection: SampleProjection,
    /// Allele numbers of the genotypes, as a list for each sample.
    alleles: Int32Builder,
    allele_count: usize,
    sample_allele_lists: ListOffsetsBuilder,
    row_allele_lists: ListOffsetsBuilder,
    phased: BooleanBuilder,
    row_phased_lists: ListOffsetsBuilder,
    /// Number of genotypes appended to the current batch.
    genotype_count: usize,
    formats: Vec<(FieldBuilder, ListOffsetsBuilder)>,
    other_formats: TextListBuilder,
    /// For each `FORMAT` key of the current row, the index of its column; `None` for a key that has no column.
    format_columns: Vec<Option<usize>>,
    /// Text of those fields of the current sample that have no column.
    other_values: String,
}

impl<'l> VariantBatchBuilder<'l> {
    /// Creates an empty builder of batches with all columns of a layout.
    pub fn new(layout: &'l VariantLayout) -> Self {
        Self::from_columns(layout, None)
    }

    /// Creates a builder of batches with some columns of a layout. `columns` are 0-based indexes in the schema of the
    /// layout; the batches have the columns in the order of that schema. Fields without a requested column are not
    /// parsed.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use arrow_array::cast::AsArray;
    /// use godwit_formats::vcf::{Reader, VariantBatchBuilder, VariantLayout};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf");
    /// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    /// std::fs::write(&path, format!("{header}chr20\t1000\trs1\tAT\tC\t50\tPASS\t.\n"))?;
    /// let mut reader = Reader::open(&path, 1)?;
    /// let layout = VariantLayout::new(reader.header())?;
    /// let columns = [layout.schema.index_of("position")?, layout.schema.index_of("reference")?];
    /// let mut builder = VariantBatchBuilder::with_projection(&layout, &columns);
    /// builder.push(&reader.next_record()?.unwrap())?;
    /// let batch = builder.take_batch()?;
    /// assert_eq!(batch.num_columns(), 2);
    /// assert_eq!(batch.column(1).as_string::<i32>().value(0), "AT");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_projection(layout: &'l VariantLayout, columns: &[usize]) -> Self {
        Self::from_columns(layout, Some(columns))
    }

    fn from_columns(layout: &'l VariantLayout, columns: Option<&[usize]>) -> Self {
        let projection = VariantProjection::new(layout, columns);
        let samples = SampleColumnsBuilder::new(layout, SampleProjection::new(layout, &projection));
        Self {
            layout,
            projection,
            row_count: 0,
            text_bytes: 0,
            cell_count: 0,
            contig: StringBuilder::new(),
            contig_id: Int32Builder::new(),
            position: Int32Builder::new(),
            end_position: Int32Builder::new(),
            identifiers: TextListBuilder::new(),
            reference: StringBuilder::new(),
            alternates: TextListBuilder::new(),
            quality: Float32Builder::new(),
            filters: TextListBuilder::new(),
            info: layout.info.iter().map(FieldBuilder::new).collect(),
            other_info: StringBuilder::new(),
            samples,
        }
    }

    /// Appends a record of the file whose header is that of the layout.
    ///
    /// # Errors
    /// A description of the problem of the record. The builder cannot be used after an error.
    pub fn push(&mut self, record: &Record) -> Result<(), String> {
        let layout = self.layout;
        let keys = if record.format.is_empty() { 0 } else { split_fields(record.format, b':').count() };
        let cells = keys.saturating_mul(layout.sample_count);
        if cells > MAX_RECORD_CELLS {
            return Err(format!(
                "it has {keys} fields for each of {} samples, more than the limit of columns",
                layout.sample_count
            ));
        }
        self.row_count += 1;
        self.cell_count += cells + layout.cells_per_row();
        self.contig.append_value(record.contig);
        self.contig_id.append_option(layout.contigs.get(record.contig).copied());
        self.position.append_value(record.position);
        self.reference.append_value(record.reference);
        self.quality.append_option(parse_quality(record.quality)?);
        let is_requested = &self.projection.columns;
        if is_requested[END_POSITION_COLUMN] {
            self.end_position.append_value(record.end_position());
        }
        if is_requested[IDENTIFIERS_COLUMN] {
            push_separated(&mut self.identifiers, record.identifiers);
        }
        if is_requested[ALTERNATES_COLUMN] {
            record.alternates().for_each(|allele| self.alternates.push(Some(allele)));
            self.alternates.end_list();
        }
        if is_requested[FILTERS_COLUMN] {
            push_separated(&mut self.filters, record.filters);
        }
        if self.projection.includes_info {
            self.push_info(record.info);
        }
        if self.projection.includes_samples {
            self.samples.push(record, layout);
        }
        self.text_bytes += record.text_bytes();
        Ok(())
    }

    fn push_info(&mut self, text: &str) {
        let mut others = String::new();
        let VariantProjection { info: is_needed, includes_other_info, .. } = &self.projection;
        let entries =
            (text != MISSING_VALUE && !text.is_empty()).then(|| split_fields(text, b';')).into_iter().flatten();
        for entry in entries {
            let (key, value) = split_at_first(entry, b'=');
            let column = self.layout.info_index.get(key).filter(|at| is_needed[**at]).map(|at| &mut self.info[*at]);
            let fits_column = column.is_some_and(|column| !column.is_filled() && column.try_fill(value));
            if *includes_other_info && !fits_column && !entry.is_empty() {
                if !others.is_empty() {
                    others.push(';');
                }
                others.push_str(entry);
            }
        }
        let needed = self.info.iter_mut().zip(is_needed).filter(|(_, is_needed)| **is_needed);
        needed.for_each(|(column, _)| column.end_value());
        self.other_info.append_option((!others.is_empty()).then_some(others));
    }

    /// Returns the number of rows since the last batch.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Returns whether the rows since the last batch fill a batch.
    pub fn is_full(&self) -> bool {
        self.row_count >= MAX_BATCH_ROWS
            || self.text_bytes >= MAX_BATCH_TEXT_BYTES
            || self.cell_count >= MAX_BATCH_CELLS
    }

    /// Returns a batch of the rows since the last batch.
    ///
    /// # Errors
    /// [`VcfError::Columns`] if the columns do not fit the schema.
    pub fn take_batch(&mut self) -> Result<RecordBatch, VcfError> {
        let rows = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        (self.row_count, self.text_bytes, self.cell_count) = (0, 0, 0);
        let columns = self.take_columns();
        let schema = self.projection.schema.clone();
        columns.and_then(|columns| RecordBatch::try_new_with_options(schema, columns, &rows)).map_err(VcfError::Columns)
    }

    fn take_columns(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.contig.finish()),
            Arc::new(self.contig_id.finish()),
            Arc::new(self.position.finish()),
            Arc::new(self.end_position.finish()),
            self.identifiers.finish()?,
            Arc::new(self.reference.finish()),
            self.alternates.finish()?,
            Arc::new(self.quality.finish()),
            self.filters.finish()?,
        ];
        for column in &mut self.info {
            columns.push(column.finish()?);
        }
        columns.push(Arc::new(self.other_info.finish()));
        if self.layout.sample_count > 0 {
            self.samples.finish_into(&mut columns)?;
        }
        let mut projection = self.projection.columns.iter();
        columns.retain(|_| projection.next() == Some(&true));
        Ok(columns)
    }
}

impl SampleColumnsBuilder {
    fn new(layout: &VariantLayout, projection: SampleProjection) -> Self {
        Self {
            projection,
            alleles: Int32Builder::new(),
            allele_count: 0,
            sample_allele_lists: ListOffsetsBuilder::new(),
            row_allele_lists: ListOffsetsBuilder::new(),
            phased: BooleanBuilder::new(),
            row_phased_lists: ListOffsetsBuilder::new(),
            genotype_count: 0,
            formats: layout.formats.iter().map(|field| (FieldBuilder::new(field), ListOffsetsBuilder::new())).collect(),
            other_formats: TextListBuilder::new(),
            format_columns: Vec::new(),
            other_values: String::new(),
        }
    }

    fn push(&mut self, record: &Record, layout: &VariantLayout) {
        let mut seen = vec![false; self.formats.len()];
        self.format_columns.clear();
        for key in split_fields(record.format, b':') {
            let column = layout.format_index.get(key).copied().filter(|at| !std::mem::replace(&mut seen[*at], true));
            self.format_columns.push(column);
        }
        // Genotypes are parsed from the `FORMAT` field GT, whose column is the first.
        let has_genotype = self.projection.includes_genotypes && seen.first() == Some(&true);
        seen.iter_mut().zip(&self.projection.formats).for_each(|(seen, requested)| *seen &= requested);
        let has_others = self.push_samples(record, has_genotype, layout.sample_count);
        for ((column, rows), seen) in self.formats.iter_mut().zip(seen) {
            if seen { rows.end_list(column.len()) } else { rows.push_null_list(column.len()) }
        }
        if has_genotype {
            self.row_allele_lists.end_list(self.genotype_count);
            self.row_phased_lists.end_list(self.genotype_count);
        } else {
            self.row_allele_lists.push_null_list(self.genotype_count);
            self.row_phased_lists.push_null_list(self.genotype_count);
        }
        if has_others { self.other_formats.end_list() } else { self.other_formats.push_null_list() }
    }

    /// Appends the fields of each sample; returns whether any field was appended to `other_formats`.
    fn push_samples(&mut self, record: &Record, has_genotype: bool, samples: usize) -> bool {
        let is_parsed = |column: &Option<usize>| match column {
            Some(column) => self.projection.formats[*column] || (*column == 0 && has_genotype),
            None => false,
        };
        let parsed_keys = match self.projection.includes_others {
            // A value without a key belongs to `other_formats`.
            true => usize::MAX,
            false => self.format_columns.iter().rposition(is_parsed).map_or(0, |last| last + 1),
        };
        let mut others = 0;
        for (at, sample) in record.samples().enumerate() {
            self.other_values.clear();
            let mut genotype = None;
            let mut keys = split_fields(record.format, b':').zip(&self.format_columns);
            for value in split_fields(sample, b':').take(parsed_keys) {
                let (key, column) = match keys.next() {
                    Some((key, column)) => (key, *column),
                    // The sample has more values than `FORMAT` has keys.
                    None => ("", None),
                };
                if has_genotype && column == Some(0) && value != MISSING_VALUE {
                    genotype = Genotype::parse(value);
                }
                let column = column.filter(|column| self.projection.formats[*column]);
                let fits_column = column.is_some_and(|column| self.formats[column].0.try_fill(Some(value)));
                if self.projection.includes_others && !fits_column && value != MISSING_VALUE {
                    if !self.other_values.is_empty() {
                        self.other_values.push(':');
                    }
                    self.other_values.extend([key, "=", value]);
                }
            }
            let requested = self.format_columns.iter().flatten().filter(|column| self.projection.formats[**column]);
            requested.for_each(|column| self.formats[*column].0.end_value());
            if has_genotype {
                self.push_genotype(genotype);
            }
            if !self.other_values.is_empty() {
                while others < at {
                    self.other_formats.push(None);
                    others += 1;
                }
                self.other_formats.push(Some(&self.other_values));
                others += 1;
            }
        }
        if others == 0 {
            return false;
        }
        (others..samples).for_each(|_| self.other_formats.push(None));
        true
    }

    fn push_genotype(&mut self, genotype: Option<Genotype>) {
        self.genotype_count += 1;
        match genotype {
            Some(genotype) => {
                for allele in genotype.alleles() {
                    self.alleles.append_option(allele);
                    self.allele_count += 1;
                }
                self.sample_allele_lists.end_list(self.allele_count);
                self.phased.append_value(genotype.is_phased());
            }
            None => {
                self.sample_allele_lists.push_null_list(self.allele_count);
                self.phased.append_null();
            }
        }
    }

    fn finish_into(&mut self, columns: &mut Vec<ArrayRef>) -> Result<(), ArrowError> {
        let alleles = self.sample_allele_lists.finish(Arc::new(self.alleles.finish()))?;
        columns.push(self.row_allele_lists.finish(alleles)?);
        columns.push(self.row_phased_lists.finish(Arc::new(self.phased.finish()))?);
        (self.allele_count, self.genotype_count) = (0, 0);
        for (column, rows) in &mut self.formats {
            let values = column.finish()?;
            columns.push(rows.finish(values)?);
        }
        columns.push(self.other_formats.finish()?);
        Ok(())
    }
}

/// Appends the list of the values between semicolons; appends null for the text `.`.
fn push_separated(lists: &mut TextListBuilder, text: &str) {
    if text == MISSING_VALUE {
        return lists.push_null_list();
    }
    split_fields(text, b';').for_each(|value| lists.push(Some(value)));
    lists.end_list();
}

/// Parses `QUAL`, a 32-bit floating-point number (VCFv4.4 §1.3); returns `None` for `.`.
fn parse_quality(text: &str) -> Result<Option<f32>, String> {
    match text.parse() {
        _ if text == MISSING_VALUE => Ok(None),
        Ok(quality) => Ok(Some(quality)),
        Err(_) => Err(format!("its QUAL is {:?}, which is not a number", excerpt(text))),
    }
}
