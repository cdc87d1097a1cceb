//! Records to record batches.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float32Builder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use super::error::{VcfError, shown};
use super::fields::{FieldColumn, Lists, MISSING, TextLists};
use super::genotype::Genotype;
use super::layout::VariantLayout;
use super::record::Record;

/// Columns before those of `INFO` ([`godwit_model::schema::variants`]).
const FIXED_COLUMNS: usize = 9;
/// Rows after which a batch is full.
const BATCH_ROWS: usize = 4096;
/// Bytes of text after which a batch is full: cohorts fill one with fewer rows.
const BATCH_BYTES: usize = 4 << 20;
/// Cells, nulls included, after which a batch is full: so that no header makes a row out of proportion to its text.
const BATCH_CELLS: usize = 1 << 20;
/// Most cells of a record: half a million samples with 32 fields each.
const MAX_RECORD_CELLS: usize = 1 << 24;

/// Columns of a batch in the making.
#[derive(Debug)]
pub struct Columns<'l> {
    layout: &'l VariantLayout,
    wanted: Wanted,
    rows: usize,
    text_bytes: usize,
    cells: usize,
    contig: StringBuilder,
    contig_id: Int32Builder,
    position: Int32Builder,
    end_position: Int32Builder,
    identifiers: TextLists,
    reference: StringBuilder,
    alternates: TextLists,
    quality: Float32Builder,
    filters: TextLists,
    info: Vec<FieldColumn>,
    other_info: StringBuilder,
    samples: SampleColumns,
}

/// Which columns are made. Those that cost little are made in any case, and left out in the end.
#[derive(Debug)]
struct Wanted {
    schema: SchemaRef,
    columns: Vec<bool>,
    info: bool,
    samples: bool,
}

impl Wanted {
    fn new(layout: &VariantLayout, columns: Option<&[usize]>) -> Self {
        let all = layout.schema.fields();
        let Some(indexes) = columns else {
            let (columns, samples) = (vec![true; all.len()], layout.samples > 0);
            return Self { schema: layout.schema.clone(), columns, info: true, samples };
        };
        let columns: Vec<bool> = (0..all.len()).map(|column| indexes.contains(&column)).collect();
        let fields: Vec<_> =
            all.iter().zip(&columns).filter(|(_, wanted)| **wanted).map(|(field, _)| field.clone()).collect();
        let info_end = FIXED_COLUMNS + layout.info.len() + 1;
        let info = columns[FIXED_COLUMNS..info_end].contains(&true);
        let samples = columns[info_end..].contains(&true);
        Self { schema: Arc::new(Schema::new(fields)), columns, info, samples }
    }
}

/// Columns of lists over samples.
#[derive(Debug)]
struct SampleColumns {
    /// Which alleles, in a list for each sample.
    alleles: Int32Builder,
    allele_count: usize,
    alleles_of_sample: Lists,
    alleles_of_row: Lists,
    phased: BooleanBuilder,
    phased_of_row: Lists,
    /// How many genotypes were taken.
    genotypes: usize,
    formats: Vec<(FieldColumn, Lists)>,
    others: TextLists,
    /// Column of each key of the row in hand; `None` for one that has none.
    keys: Vec<Option<usize>>,
    /// Fields of the sample in hand that no column takes.
    misfits: String,
}

impl<'l> Columns<'l> {
    /// All columns of a layout, without rows.
    pub fn new(layout: &'l VariantLayout) -> Self {
        Self::with(layout, None)
    }

    /// Some columns of a layout, by their 0-based index in its schema, in the order of that schema. What is not wanted is not
    /// read.
    pub fn some(layout: &'l VariantLayout, columns: &[usize]) -> Self {
        Self::with(layout, Some(columns))
    }

    fn with(layout: &'l VariantLayout, columns: Option<&[usize]>) -> Self {
        Self {
            layout,
            wanted: Wanted::new(layout, columns),
            rows: 0,
            text_bytes: 0,
            cells: 0,
            contig: StringBuilder::new(),
            contig_id: Int32Builder::new(),
            position: Int32Builder::new(),
            end_position: Int32Builder::new(),
            identifiers: TextLists::new(),
            reference: StringBuilder::new(),
            alternates: TextLists::new(),
            quality: Float32Builder::new(),
            filters: TextLists::new(),
            info: layout.info.iter().map(FieldColumn::new).collect(),
            other_info: StringBuilder::new(),
            samples: SampleColumns::new(layout),
        }
    }

    /// Appends a record of the file whose header the layout is of.
    ///
    /// # Errors
    /// What is wrong with it; the columns are of no use then.
    pub fn push(&mut self, record: &Record) -> Result<(), String> {
        let layout = self.layout;
        let keys = if record.format.is_empty() { 0 } else { record.format.split(':').count() };
        let cells = keys.saturating_mul(layout.samples);
        if cells > MAX_RECORD_CELLS {
            return Err(format!("it has {keys} fields for each of {} samples, more than columns take", layout.samples));
        }
        self.rows += 1;
        self.cells += cells + layout.cells_of_a_row();
        self.contig.append_value(record.contig);
        self.contig_id.append_option(layout.contigs.get(record.contig).copied());
        self.position.append_value(record.position);
        self.end_position.append_value(record.end_position());
        push_list(&mut self.identifiers, record.identifiers, ';');
        self.reference.append_value(record.reference);
        record.alternates().for_each(|allele| self.alternates.push(Some(allele)));
        self.alternates.end_list();
        self.quality.append_option(parse_quality(record.quality)?);
        push_list(&mut self.filters, record.filters, ';');
        if self.wanted.info {
            self.push_info(record.info);
        }
        if self.wanted.samples {
            self.samples.push(record, layout);
        }
        self.text_bytes += record.text_bytes();
        Ok(())
    }

    fn push_info(&mut self, text: &str) {
        let mut others = String::new();
        let entries = (text != MISSING && !text.is_empty()).then(|| text.split(';')).into_iter().flatten();
        for entry in entries {
            let (key, value) = entry.split_once('=').map_or((entry, None), |(key, value)| (key, Some(value)));
            let column = self.layout.info_index.get(key).map(|at| &mut self.info[*at]);
            let taken = column.is_some_and(|column| !column.is_filled() && column.try_fill(value));
            if !taken && !entry.is_empty() {
                if !others.is_empty() {
                    others.push(';');
                }
                others.push_str(entry);
            }
        }
        self.info.iter_mut().for_each(FieldColumn::end_place);
        self.other_info.append_option((!others.is_empty()).then_some(others));
    }

    /// Rows since the last batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether it is time to take the batch.
    pub fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.text_bytes >= BATCH_BYTES || self.cells >= BATCH_CELLS
    }

    /// The rows since the last batch.
    ///
    /// # Errors
    /// [`VcfError::Columns`].
    pub fn take_batch(&mut self) -> Result<RecordBatch, VcfError> {
        let rows = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.text_bytes, self.cells) = (0, 0, 0);
        let columns = self.take_columns();
        let schema = self.wanted.schema.clone();
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
        if self.layout.samples > 0 {
            self.samples.finish_into(&mut columns)?;
        }
        let mut wanted = self.wanted.columns.iter();
        columns.retain(|_| wanted.next() == Some(&true));
        Ok(columns)
    }
}

impl SampleColumns {
    fn new(layout: &VariantLayout) -> Self {
        Self {
            alleles: Int32Builder::new(),
            allele_count: 0,
            alleles_of_sample: Lists::new(),
            alleles_of_row: Lists::new(),
            phased: BooleanBuilder::new(),
            phased_of_row: Lists::new(),
            genotypes: 0,
            formats: layout.formats.iter().map(|field| (FieldColumn::new(field), Lists::new())).collect(),
            others: TextLists::new(),
            keys: Vec::new(),
            misfits: String::new(),
        }
    }

    fn push(&mut self, record: &Record, layout: &VariantLayout) {
        let mut seen = vec![false; self.formats.len()];
        self.keys.clear();
        for key in record.format.split(':') {
            let column = layout.format_index.get(key).copied().filter(|at| !std::mem::replace(&mut seen[*at], true));
            self.keys.push(column);
        }
        let has_genotype = seen.first() == Some(&true);
        let has_others = self.push_samples(record, has_genotype, layout.samples);
        for ((column, rows), seen) in self.formats.iter_mut().zip(seen) {
            if seen { rows.end(column.places()) } else { rows.push_null(column.places()) }
        }
        if has_genotype {
            self.alleles_of_row.end(self.genotypes);
            self.phased_of_row.end(self.genotypes);
        } else {
            self.alleles_of_row.push_null(self.genotypes);
            self.phased_of_row.push_null(self.genotypes);
        }
        if has_others { self.others.end_list() } else { self.others.push_null_list() }
    }

    /// Fills a place for each sample; says whether `others` got any.
    fn push_samples(&mut self, record: &Record, has_genotype: bool, samples: usize) -> bool {
        let mut others = 0;
        for (at, sample) in record.samples().enumerate() {
            self.misfits.clear();
            let mut genotype = None;
            let mut keys = record.format.split(':').zip(&self.keys);
            for value in sample.split(':') {
                let (key, column) = match keys.next() {
                    Some((key, column)) => (key, *column),
                    // More values than keys.
                    None => ("", None),
                };
                if column == Some(0) && value != MISSING {
                    genotype = Genotype::parse(value);
                }
                let taken = column.is_some_and(|column| self.formats[column].0.try_fill(Some(value)));
                if !taken && value != MISSING {
                    if !self.misfits.is_empty() {
                        self.misfits.push(':');
                    }
                    self.misfits.extend([key, "=", value]);
                }
            }
            self.keys.iter().flatten().for_each(|column| self.formats[*column].0.end_place());
            if has_genotype {
                self.push_genotype(genotype);
            }
            if !self.misfits.is_empty() {
                while others < at {
                    self.others.push(None);
                    others += 1;
                }
                self.others.push(Some(&self.misfits));
                others += 1;
            }
        }
        if others == 0 {
            return false;
        }
        (others..samples).for_each(|_| self.others.push(None));
        true
    }

    fn push_genotype(&mut self, genotype: Option<Genotype>) {
        self.genotypes += 1;
        match genotype {
            Some(genotype) => {
                for allele in genotype.alleles() {
                    self.alleles.append_option(allele);
                    self.allele_count += 1;
                }
                self.alleles_of_sample.end(self.allele_count);
                self.phased.append_value(genotype.is_phased());
            }
            None => {
                self.alleles_of_sample.push_null(self.allele_count);
                self.phased.append_null();
            }
        }
    }

    fn finish_into(&mut self, columns: &mut Vec<ArrayRef>) -> Result<(), ArrowError> {
        let alleles = self.alleles_of_sample.finish(Arc::new(self.alleles.finish()))?;
        columns.push(self.alleles_of_row.finish(alleles)?);
        columns.push(self.phased_of_row.finish(Arc::new(self.phased.finish()))?);
        (self.allele_count, self.genotypes) = (0, 0);
        for (column, rows) in &mut self.formats {
            let values = column.finish()?;
            columns.push(rows.finish(values)?);
        }
        columns.push(self.others.finish()?);
        Ok(())
    }
}

/// Appends the list of what is between separators; null for `.`.
fn push_list(lists: &mut TextLists, text: &str, separator: char) {
    if text == MISSING {
        return lists.push_null_list();
    }
    text.split(separator).for_each(|value| lists.push(Some(value)));
    lists.end_list();
}

/// `QUAL`, a number of 32 bits (VCFv4.4 §1.3); `None` for `.`.
fn parse_quality(text: &str) -> Result<Option<f32>, String> {
    match text.parse() {
        _ if text == MISSING => Ok(None),
        Ok(quality) => Ok(Some(quality)),
        Err(_) => Err(format!("its QUAL is {:?}, which is no number", shown(text))),
    }
}
