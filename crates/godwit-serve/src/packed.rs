//! Packed genomes, with the rows of the FASTA file that they are of. Only what holds the rows that are asked for is decoded.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_transfer::delta::{DeltaError, PackedFile};
use godwit_transfer::{References, TransferError};

use crate::batches::{blamed, one_part, until_done};
use crate::store::Seen;
use crate::whole_files::{Content, ROW_BASES, projected};

/// Rows of a batch: what holds them is decoded once for all of them, and may be 32 MiB.
const BATCH_ROWS: u64 = 128;

/// A packed genome.
#[derive(Debug)]
pub(crate) struct PackedDataset {
    file: Arc<PackedFile>,
    schema: SchemaRef,
    bytes: u64,
    version: u64,
}

/// Rows of a sequence that follow each other, by their number, 0-based.
#[derive(Debug)]
struct Stretch {
    sequence: String,
    residues: u64,
    first: u64,
    end: u64,
}

impl PackedDataset {
    /// Opens a packed genome. Its reference is looked for among those that were named, then among FASTA files that `others` finds.
    pub(crate) fn open(
        seen: &Seen,
        references: &References,
        others: impl FnOnce() -> Result<Vec<PathBuf>, DatasetError>,
    ) -> Result<Self, DatasetError> {
        let seen_file = seen.file()?;
        let lacks = |error: &TransferError| {
            matches!(error, TransferError::Packing { source: DeltaError::NoReference { .. }, .. })
        };
        let file = match PackedFile::open(&seen_file.path, references) {
            Err(error) if lacks(&error) => {
                PackedFile::open(&seen_file.path, &References::unkept(others()?, 1)).map_err(|error| match error {
                    TransferError::Packing { source: DeltaError::NoReference { wanted }, place } => {
                        let problem = format!(
                            "{place} was packed against the reference {wanted}, which is neither among the references of this server nor below its \
                             root; name it with --reference"
                        );
                        DatasetError::Refused { problem }
                    }
                    error => blamed(error),
                })?
            }
            opened => opened.map_err(blamed)?,
        };
        let schema = Content::Fasta.schema();
        Ok(Self { file: Arc::new(file), schema, bytes: seen_file.bytes, version: seen.version })
    }

    /// The rows that a scan wants, in the order of the file.
    fn stretches(&self, scan: &Scan) -> VecDeque<Stretch> {
        let mut stretches = VecDeque::new();
        for sequence in self.file.sequences() {
            let rows = sequence.residues.div_ceil(ROW_BASES as u64);
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
            for (first, end) in wanted {
                let first = first.max(done);
                if first < end {
                    let (sequence, residues) = (sequence.name.clone(), sequence.residues);
                    stretches.push_back(Stretch { sequence, residues, first, end });
                    done = end;
                }
            }
        }
        stretches
    }
}

/// The next batch of rows.
fn next_batch(
    file: &PackedFile,
    schema: &SchemaRef,
    stretches: &mut VecDeque<Stretch>,
) -> Result<Option<RecordBatch>, DatasetError> {
    let Some(stretch) = stretches.front_mut() else { return Ok(None) };
    let row_bases = ROW_BASES as u64;
    let end = stretch.end.min(stretch.first + BATCH_ROWS);
    let start = stretch.first * row_bases;
    let letters = file.letters(&stretch.sequence, start, (end * row_bases).min(stretch.residues)).map_err(blamed)?;
    let rows = letters.chunks(ROW_BASES).count();
    let starts = (0..rows as i64).map(|row| start as i64 + row * row_bases as i64);
    let ends = starts.clone().zip(letters.chunks(ROW_BASES)).map(|(start, bases)| start + bases.len() as i64);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&stretch.sequence, rows))),
        Arc::new(Int64Array::from_iter_values(starts.clone())),
        Arc::new(Int64Array::from_iter_values(ends)),
        Arc::new(StringArray::from_iter_values(letters.chunks(ROW_BASES).map(String::from_utf8_lossy))),
    ];
    stretch.first = end;
    if stretch.first == stretch.end {
        stretches.pop_front();
    }
    RecordBatch::try_new(schema.clone(), columns).map(Some).map_err(|error| DatasetError::Data(error.into()))
}

impl Dataset for PackedDataset {
    fn kind(&self) -> Kind {
        Kind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.file.sequences().iter().map(|sequence| sequence.residues.div_ceil(ROW_BASES as u64)).sum())
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

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(one_part())
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        if part.stretches.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let (file, schema, columns) = (self.file.clone(), self.schema.clone(), scan.columns.clone());
        let mut stretches = self.stretches(scan);
        Ok(until_done(move || {
            let batch = next_batch(&file, &schema, &mut stretches)?;
            batch.map(|batch| projected(batch, columns.as_deref())).transpose()
        }))
    }
}
