//! Parquet files of any origin, read by row groups.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// Why Parquet files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ParquetReadError {
    /// A file that is not there, or may not be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is damaged, cut short, or no Parquet.
    #[error("{} is damaged, or no Parquet file", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: ParquetError,
    },
    /// Damage that was met while rows were decoded.
    #[error("{} is damaged", path.display())]
    Rows {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: ArrowError,
    },
    /// Files that are read as one have other columns.
    #[error("{} has other columns than {}", path.display(), first.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// The first file.
        first: PathBuf,
    },
}

/// Files with the same columns, one behind the other.
#[derive(Debug)]
pub struct ParquetFiles {
    files: Vec<(PathBuf, ArrowReaderMetadata)>,
    schema: SchemaRef,
}

impl ParquetFiles {
    /// Reads what the ends of files say; at least one.
    ///
    /// # Errors
    /// [`ParquetReadError`].
    pub fn open(paths: &[PathBuf]) -> Result<Self, ParquetReadError> {
        let mut files: Vec<(PathBuf, ArrowReaderMetadata)> = Vec::with_capacity(paths.len());
        for path in paths {
            let metadata = metadata_of(path)?;
            if let Some((first, found)) = files.first()
                && found.schema().fields() != metadata.schema().fields()
            {
                return Err(ParquetReadError::Columns { path: path.clone(), first: first.clone() });
            }
            files.push((path.clone(), metadata));
        }
        let Some((_, metadata)) = files.first() else {
            let source = io::Error::new(io::ErrorKind::NotFound, "there is no file in it");
            return Err(ParquetReadError::Io { path: paths.first().cloned().unwrap_or_default(), source });
        };
        let schema = metadata.schema().clone();
        Ok(Self { files, schema })
    }

    /// The columns, with the metadata of the first file.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows of all files.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|(_, metadata)| metadata.metadata().file_metadata().num_rows().max(0) as u64).sum()
    }

    /// Compressed bytes of each row group of each file, in order.
    pub fn row_group_bytes(&self) -> Vec<u64> {
        let groups = self.files.iter().flat_map(|(_, metadata)| metadata.metadata().row_groups());
        groups.map(|group| group.compressed_size().max(0) as u64).collect()
    }

    /// Reads some row groups, counted over all files, and some columns, by their index in the schema.
    pub fn batches(&self, groups: Range<usize>, columns: Option<&[usize]>) -> ParquetBatches {
        let mut first = 0;
        let mut of_files = Vec::new();
        for (path, metadata) in &self.files {
            let count = metadata.metadata().num_row_groups();
            let range = groups.start.max(first)..groups.end.min(first + count);
            if !range.is_empty() {
                of_files.push((path.clone(), metadata.clone(), range.start - first..range.end - first));
            }
            first += count;
        }
        of_files.reverse();
        ParquetBatches { of_files, columns: columns.map(<[usize]>::to_vec), reader: None }
    }
}

fn metadata_of(path: &Path) -> Result<ArrowReaderMetadata, ParquetReadError> {
    let file = File::open(path).map_err(|source| ParquetReadError::Io { path: path.to_owned(), source })?;
    let damaged = |source| ParquetReadError::Damaged { path: path.to_owned(), source };
    // Bytes of strangers have made readers panic; nothing they hold outlives a panic.
    let loaded = catch_unwind(AssertUnwindSafe(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())));
    loaded.unwrap_or_else(|_| Err(panicked())).map_err(damaged)
}

fn panicked() -> ParquetError {
    ParquetError::General("its bytes make no sense".to_owned())
}

/// Batches on their way out of files.
pub struct ParquetBatches {
    /// Last first.
    of_files: Vec<(PathBuf, ArrowReaderMetadata, Range<usize>)>,
    columns: Option<Vec<usize>>,
    reader: Option<(PathBuf, ParquetRecordBatchReader)>,
}

impl ParquetBatches {
    fn start(
        &self,
        path: &Path,
        metadata: ArrowReaderMetadata,
        groups: Range<usize>,
    ) -> Result<ParquetRecordBatchReader, ParquetReadError> {
        let file = File::open(path).map_err(|source| ParquetReadError::Io { path: path.to_owned(), source })?;
        let mask = match &self.columns {
            Some(columns) => ProjectionMask::roots(metadata.parquet_schema(), columns.iter().copied()),
            None => ProjectionMask::all(),
        };
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_batch_size(BATCH_ROWS)
            .with_row_groups(groups.collect())
            .with_projection(mask);
        let built = catch_unwind(AssertUnwindSafe(|| builder.build())).unwrap_or_else(|_| Err(panicked()));
        built.map_err(|source| ParquetReadError::Damaged { path: path.to_owned(), source })
    }
}

impl Iterator for ParquetBatches {
    type Item = Result<RecordBatch, ParquetReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((path, reader)) = &mut self.reader {
                let read = catch_unwind(AssertUnwindSafe(|| reader.next()));
                let read = read.unwrap_or_else(|_| Some(Err(ArrowError::from(panicked()))));
                let failed = |source| ParquetReadError::Rows { path: path.clone(), source };
                match read {
                    Some(Ok(batch)) => return Some(Ok(batch)),
                    Some(Err(source)) => {
                        let error = failed(source);
                        self.of_files.clear();
                        self.reader = None;
                        return Some(Err(error));
                    }
                    None => self.reader = None,
                }
            }
            let (path, metadata, groups) = self.of_files.pop()?;
            match self.start(&path, metadata, groups) {
                Ok(reader) => self.reader = Some((path, reader)),
                Err(error) => {
                    self.of_files.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
