//! Parquet files, and directories of them, as datasets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::columnar::{ParquetFiles, ParquetReadError};
use godwit_model::schema::{columnar, variants};

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
        let files = ParquetFiles::open(&paths).map_err(blamed)?;
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

fn blamed(error: ParquetReadError) -> DatasetError {
    match error {
        // It was there when the dataset was opened: somebody has put another in its place.
        ParquetReadError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
            DatasetError::Changed { name: path.display().to_string() }
        }
        ParquetReadError::Io { .. } => DatasetError::Machine(error.into()),
        _ => DatasetError::Data(error.into()),
    }
}

impl Dataset for ParquetDataset {
    fn kind(&self) -> Kind {
        let metadata = self.files.schema().metadata();
        if metadata.contains_key(columnar::VERSION_KEY) {
            Kind::Reads
        } else if metadata.contains_key(variants::VERSION_KEY) {
            Kind::Variants
        } else {
            Kind::Table
        }
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
        if self.kind() == Kind::Reads { &["contig_id", "position"] } else { &[] }
    }

    fn parquet_files(&self) -> Option<&[PathBuf]> {
        Some(&self.paths)
    }

    /// Row groups: start and end of their numbers, counted over all files.
    fn parts(&self, _scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        let bytes = self.files.row_group_bytes();
        let share = bytes.iter().sum::<u64>().div_ceil(most.max(1) as u64).max(1);
        let (mut parts, mut start, mut filled) = (Vec::new(), 0, 0);
        for (at, group_bytes) in (1u64..).zip(&bytes) {
            filled += group_bytes;
            if filled >= share || at == bytes.len() as u64 {
                parts.push(Part { stretches: vec![(start, at)] });
                (start, filled) = (at, 0);
            }
        }
        Ok(parts)
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let [(start, end)] = part.stretches[..] else { return Ok(Box::new(std::iter::empty())) };
        let batches = self.files.batches(start as usize..end as usize, scan.columns.as_deref());
        Ok(Box::new(batches.map(|batch| batch.map_err(blamed))))
    }
}
