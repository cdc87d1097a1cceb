//! Parquet files, and directories of them, Arrow IPC, CSV and TSV, as datasets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::columnar::{ArrowFile, ParquetFiles, ParquetReadError};
use godwit_formats::csv::CsvFile;
use godwit_formats::random_access::LocalFile;
use godwit_model::schema::{columnar, variants};

use crate::batches::{blamed, one_part, until_done};
use crate::puts::listed;

/// A Parquet file, or the files of a directory in the order of their names.
#[derive(Debug)]
pub(crate) struct ParquetDataset {
    paths: Vec<PathBuf>,
    files: ParquetFiles,
    bytes: u64,
    version: u64,
}

impl ParquetDataset {
    pub(crate) fn open(path: &Path, version: u64) -> Result<Self, DatasetError> {
        let paths = if path.is_dir() { files_in(path)? } else { vec![path.to_owned()] };
        if paths.is_empty() {
            return Err(DatasetError::Refused { problem: format!("there is no .parquet file in {}", path.display()) });
        }
        let files = ParquetFiles::open(&paths).map_err(blamed_parquet)?;
        let bytes = paths.iter().filter_map(|path| fs::metadata(path).ok()).map(|found| found.len()).sum();
        Ok(Self { paths, files, bytes, version })
    }
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    if let Some(parts) = listed(directory).map_err(|source| crate::root::cannot_open(directory, source))? {
        return Ok(parts);
    }
    let entries = fs::read_dir(directory).map_err(|source| crate::root::cannot_open(directory, source))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "parquet"));
    paths.sort_unstable();
    Ok(paths)
}

fn blamed_parquet(error: ParquetReadError) -> DatasetError {
    match error {
        // It was there when the dataset was opened: somebody has put another in its place.
        ParquetReadError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
            DatasetError::Changed { name: path.display().to_string() }
        }
        ParquetReadError::Io { .. } => DatasetError::Machine(error.into()),
        _ => DatasetError::Data(error.into()),
    }
}

/// What files that godwit wrote say of themselves.
fn kind_of(schema: &Schema) -> Kind {
    let metadata = schema.metadata();
    if metadata.contains_key(columnar::VERSION_KEY) {
        Kind::Reads
    } else if metadata.contains_key(variants::VERSION_KEY) {
        Kind::Variants
    } else {
        Kind::Table
    }
}

fn sorted_by(kind: Kind) -> &'static [&'static str] {
    if kind == Kind::Reads { &["contig_id", "position"] } else { &[] }
}

impl Dataset for ParquetDataset {
    fn kind(&self) -> Kind {
        kind_of(self.files.schema())
    }

    fn schema(&self) -> SchemaRef {
        self.files.schema().clone()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.files.rows())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        false
    }

    fn sorted_by(&self) -> &[&'static str] {
        sorted_by(self.kind())
    }

    fn parquet_files(&self) -> Option<&[PathBuf]> {
        Some(&self.paths)
    }

    /// Row groups: start and end of their numbers, counted over all files.
    fn parts(&self, _scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(dealt(&self.files.row_group_bytes(), most))
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let [(start, end)] = part.stretches[..] else { return Ok(Box::new(std::iter::empty())) };
        let batches = self.files.batches(start as usize..end as usize, scan.columns.as_deref());
        Ok(Box::new(batches.map(|batch| batch.map_err(blamed_parquet))))
    }
}

/// Numbered pieces of a file, dealt in order to as many parts of like size, or fewer.
fn dealt(bytes: &[u64], most: usize) -> Vec<Part> {
    let share = bytes.iter().sum::<u64>().div_ceil(most.max(1) as u64).max(1);
    let (mut parts, mut start, mut filled) = (Vec::new(), 0, 0);
    for (at, piece_bytes) in (1u64..).zip(bytes) {
        filled += piece_bytes;
        if filled >= share || at == bytes.len() as u64 {
            parts.push(Part { stretches: vec![(start, at)] });
            (start, filled) = (at, 0);
        }
    }
    parts
}

/// Arrow IPC, a file or a stream.
#[derive(Debug)]
pub(crate) struct ArrowDataset {
    file: ArrowFile,
    version: u64,
}

impl ArrowDataset {
    pub(crate) fn open(path: &Path, version: u64) -> Result<Self, DatasetError> {
        let source = LocalFile::open(path).map_err(|source| crate::root::cannot_open(path, source))?;
        Ok(Self { file: ArrowFile::open(Arc::new(source)).map_err(blamed)?, version })
    }
}

impl Dataset for ArrowDataset {
    fn kind(&self) -> Kind {
        kind_of(self.file.schema())
    }

    fn schema(&self) -> SchemaRef {
        self.file.schema().clone()
    }

    fn rows(&self) -> Option<u64> {
        self.file.rows()
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        false
    }

    fn sorted_by(&self) -> &[&'static str] {
        sorted_by(self.kind())
    }

    /// Batches: start and end of their numbers.
    fn parts(&self, _scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(self.file.batch_count().map_or_else(one_part, |count| dealt(&vec![1; count], most)))
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let [(start, end)] = part.stretches[..] else { return Ok(Box::new(std::iter::empty())) };
        let mut batches = self.file.batches(start as usize..end as usize, scan.columns.as_deref());
        Ok(until_done(move || batches.next_batch().map_err(blamed)))
    }
}

/// CSV or TSV.
#[derive(Debug)]
pub(crate) struct CsvDataset {
    file: CsvFile,
    bytes: u64,
    version: u64,
}

impl CsvDataset {
    pub(crate) fn open(path: &Path, delimiter: u8, version: u64) -> Result<Self, DatasetError> {
        let bytes = fs::metadata(path).map_err(|source| crate::root::cannot_open(path, source))?.len();
        Ok(Self { file: CsvFile::open(path, delimiter).map_err(blamed)?, bytes, version })
    }
}

impl Dataset for CsvDataset {
    fn kind(&self) -> Kind {
        Kind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.file.schema().clone()
    }

    fn rows(&self) -> Option<u64> {
        None
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        false
    }

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(one_part())
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        if part.stretches.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let mut rows = self.file.rows(scan.columns.as_deref()).map_err(blamed)?;
        Ok(until_done(move || rows.next_batch().map_err(blamed)))
    }
}
