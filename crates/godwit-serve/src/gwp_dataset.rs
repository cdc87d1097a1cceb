//! Packed genomes (gwp) as datasets, with the same rows as the FASTA files they were made from. A scan decodes only the
//! chunks that contain requested rows.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_delta::{DeltaError, DeltaFileError, GwpFile, ReferenceStore};

use crate::batch_reader::{fused_reader, single_part};
use crate::file_snapshot::DatasetSnapshot;
use crate::read_error::dataset_error;
use crate::unindexed_dataset::{ROW_BASES, UnindexedFormat, project_columns};

/// Number of rows in a batch. A chunk of the packed genome, up to 32 MiB, is decoded only once for all of these rows.
const BATCH_ROWS: u64 = 128;

/// A dataset of the sequences in a packed genome.
#[derive(Debug)]
pub(crate) struct GwpDataset {
    file: Arc<GwpFile>,
    schema: SchemaRef,
    bytes: u64,
    version: u64,
}

/// A range of rows of one sequence, by 0-based row numbers within the sequence.
#[derive(Debug)]
struct RowRange {
    sequence: String,
    residues: u64,
    first_row: u64,
    end_row: u64,
}

impl GwpDataset {
    /// Opens a packed genome. The reference that is needed to decode it is searched in `references`, then among the
    /// FASTA files that `others` returns.
    pub(crate) fn open(
        seen: &DatasetSnapshot,
        references: &ReferenceStore,
        others: impl FnOnce() -> Result<Vec<PathBuf>, DatasetError>,
    ) -> Result<Self, DatasetError> {
        let seen_file = seen.single_file()?;
        let lacks = |error: &DeltaFileError| matches!(error.source, DeltaError::MissingReference { .. });
        let file = match GwpFile::open(&seen_file.path, references) {
            Err(error) if lacks(&error) => {
                GwpFile::open(&seen_file.path, &ReferenceStore::without_cache_files(others()?, 1)).map_err(|error| match error {
                    DeltaFileError { source: DeltaError::MissingReference { expected_digest }, path } => {
                        let problem = format!(
                            "{} was packed against the reference {expected_digest}, which is neither among the references of this server nor below its \
                             root; name it with --reference",
                            path.display()
                        );
                        DatasetError::InvalidRequest { problem }
                    }
                    error => dataset_error(error),
                })?
            }
            opened => opened.map_err(dataset_error)?,
        };
        let schema = UnindexedFormat::Fasta.schema();
        Ok(Self { file: Arc::new(file), schema, bytes: seen_file.bytes, version: seen.version })
    }

    /// Returns the row ranges that a scan requests, in the order of the sequences in the file.
    fn row_ranges(&self, scan: &Scan) -> VecDeque<RowRange> {
        let mut ranges = VecDeque::new();
        for sequence in self.file.sequences() {
            let rows = sequence.residue_count.div_ceil(ROW_BASES as u64);
            let mut wanted: Vec<(u64, u64)> = match &scan.regions {
                None => vec![(0, rows)],
                Some(regions) => {
                    let here =
                        regions.iter().filter(|region| region.contig == sequence.name && region.start < region.end);
                    let of_rows = here.map(|region| {
                        let (start, end) = (u64::from(region.start), u64::from(region.end));
                        (start / ROW_BASES as u64, end.div_ceil(ROW_BASES as u64).min(rows))
                    });
                    of_rows.collect()
                }
            };
            wanted.sort_unstable();
            let mut done = 0;
            for (first, end_row) in wanted {
                let first_row = first.max(done);
                if first_row < end_row {
                    let (sequence, residues) = (sequence.name.clone(), sequence.residue_count);
                    ranges.push_back(RowRange { sequence, residues, first_row, end_row });
                    done = end_row;
                }
            }
        }
        ranges
    }
}

/// Decodes the next batch of rows; `None` if `ranges` is empty. Removes the decoded rows from `ranges`.
fn next_batch(
    file: &GwpFile,
    schema: &SchemaRef,
    ranges: &mut VecDeque<RowRange>,
) -> Result<Option<RecordBatch>, DatasetError> {
    let Some(range) = ranges.front_mut() else { return Ok(None) };
    let row_bases = ROW_BASES as u64;
    let end = range.end_row.min(range.first_row + BATCH_ROWS);
    let start = range.first_row * row_bases;
    let letters = file.letters(&range.sequence, start, (end * row_bases).min(range.residues)).map_err(dataset_error)?;
    let rows = letters.chunks(ROW_BASES).count();
    let starts = (0..rows as i64).map(|row| start as i64 + row * row_bases as i64);
    let ends = starts.clone().zip(letters.chunks(ROW_BASES)).map(|(start, bases)| start + bases.len() as i64);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&range.sequence, rows))),
        Arc::new(Int64Array::from_iter_values(starts.clone())),
        Arc::new(Int64Array::from_iter_values(ends)),
        Arc::new(StringArray::from_iter_values(letters.chunks(ROW_BASES).map(String::from_utf8_lossy))),
    ];
    range.first_row = end;
    if range.first_row == range.end_row {
        ranges.pop_front();
    }
    RecordBatch::try_new(schema.clone(), columns).map(Some).map_err(|error| DatasetError::Data(error.into()))
}

impl Dataset for GwpDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.file.sequences().iter().map(|sequence| sequence.residue_count.div_ceil(ROW_BASES as u64)).sum())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        Some(self.file.sequences().iter().any(|sequence| sequence.name == name))
    }

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(single_part())
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if part.ranges.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let (file, schema, columns) = (self.file.clone(), self.schema.clone(), scan.columns.clone());
        let mut ranges = self.row_ranges(scan);
        Ok(fused_reader(move || {
            let batch = next_batch(&file, &schema, &mut ranges)?;
            batch.map(|batch| project_columns(batch, columns.as_deref())).transpose()
        }))
    }
}
