//! Parquet files of any origin, read by row groups.
//!
//! What lies on this machine is read as it is needed. Of what lies elsewhere the columns that are wanted of a row group are fetched
//! before any of it is decoded ([`super::parquet_ranges`]).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use godwit_model::panics::unless_it_panics;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;

use super::parquet_ranges::{Bytes, Fetched};
use crate::random_access::RandomAccess;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of the end of a file elsewhere that are fetched at once: mostly all that it says of itself.
const END_BYTES: u64 = 256 << 10;

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

/// Where a file is.
#[derive(Clone, Debug)]
enum Place {
    /// On this machine; it is opened when it is read.
    Here(PathBuf),
    Elsewhere(Arc<dyn RandomAccess>),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Here(path) => path,
            Self::Elsewhere(object) => object.path(),
        }
    }

    /// Its bytes, with some of them at hand where they lie elsewhere.
    fn bytes(&self, at_hand: impl IntoIterator<Item = Range<u64>>) -> Result<Bytes, ParquetReadError> {
        match self {
            Self::Here(path) => File::open(path).map(Bytes::File),
            Self::Elsewhere(object) => Fetched::new(object.clone(), at_hand).map(Bytes::Fetched),
        }
        .map_err(|source| ParquetReadError::Io { path: self.path().to_owned(), source })
    }

    fn metadata(&self) -> Result<ArrowReaderMetadata, ParquetReadError> {
        let end = match self {
            Self::Here(_) => None,
            Self::Elsewhere(object) => Some(object.bytes().saturating_sub(END_BYTES)..object.bytes()),
        };
        let bytes = self.bytes(end)?;
        // Bytes of strangers have made readers panic; nothing they hold outlives a panic.
        let loaded = unless_it_panics(|| ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new()));
        loaded.unwrap_or_else(|| Err(panicked())).map_err(|source| bytes.blamed(self.path(), source))
    }
}

/// Files with the same columns, one behind the other.
#[derive(Debug)]
pub struct ParquetFiles {
    files: Vec<(Place, ArrowReaderMetadata)>,
    schema: SchemaRef,
}

impl ParquetFiles {
    /// Reads what the ends of files say; at least one.
    ///
    /// # Errors
    /// [`ParquetReadError`].
    pub fn open(paths: &[PathBuf]) -> Result<Self, ParquetReadError> {
        Self::of(paths.iter().cloned().map(Place::Here))
    }

    /// As [`ParquetFiles::open`] for what lies elsewhere.
    ///
    /// # Errors
    /// [`ParquetReadError`].
    pub fn open_elsewhere(objects: Vec<Arc<dyn RandomAccess>>) -> Result<Self, ParquetReadError> {
        Self::of(objects.into_iter().map(Place::Elsewhere))
    }

    fn of(places: impl IntoIterator<Item = Place>) -> Result<Self, ParquetReadError> {
        let mut files: Vec<(Place, ArrowReaderMetadata)> = Vec::new();
        for place in places {
            let metadata = place.metadata()?;
            if let Some((first, found)) = files.first()
                && found.schema().fields() != metadata.schema().fields()
            {
                let (path, first) = (place.path().to_owned(), first.path().to_owned());
                return Err(ParquetReadError::Columns { path, first });
            }
            files.push((place, metadata));
        }
        let Some((_, metadata)) = files.first() else {
            let source = io::Error::new(io::ErrorKind::NotFound, "there is no file in it");
            return Err(ParquetReadError::Io { path: PathBuf::new(), source });
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
        for (place, metadata) in &self.files {
            let count = metadata.metadata().num_row_groups();
            let range = groups.start.max(first)..groups.end.min(first + count);
            // What is fetched is held: one row group at a time.
            let at_a_time = if matches!(place, Place::Here(_)) { count.max(1) } else { 1 };
            for start in range.clone().step_by(at_a_time) {
                let end = range.end.min(start.saturating_add(at_a_time));
                of_files.push((place.clone(), metadata.clone(), start - first..end - first));
            }
            first += count;
        }
        of_files.reverse();
        ParquetBatches { of_files, columns: columns.map(<[usize]>::to_vec), reader: None }
    }
}

fn panicked() -> ParquetError {
    ParquetError::General("its bytes make no sense".to_owned())
}

/// Batches on their way out of files.
pub struct ParquetBatches {
    /// Last first.
    of_files: Vec<(Place, ArrowReaderMetadata, Range<usize>)>,
    columns: Option<Vec<usize>>,
    reader: Option<(PathBuf, ParquetRecordBatchReader)>,
}

impl ParquetBatches {
    fn start(
        &self,
        place: &Place,
        metadata: ArrowReaderMetadata,
        groups: Range<usize>,
    ) -> Result<ParquetRecordBatchReader, ParquetReadError> {
        let mask = match &self.columns {
            Some(columns) => ProjectionMask::roots(metadata.parquet_schema(), columns.iter().copied()),
            None => ProjectionMask::all(),
        };
        let wanted: Vec<Range<u64>> = groups
            .clone()
            .filter_map(|group| metadata.metadata().row_groups().get(group))
            .flat_map(|group| group.columns().iter().enumerate())
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .map(|(_, column)| column.byte_range())
            .map(|(start, bytes)| start..start.saturating_add(bytes))
            .collect();
        let bytes = place.bytes(wanted)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata)
            .with_batch_size(BATCH_ROWS)
            .with_row_groups(groups.collect())
            .with_projection(mask);
        let built = unless_it_panics(|| builder.build()).unwrap_or_else(|| Err(panicked()));
        built.map_err(|source| ParquetReadError::Damaged { path: place.path().to_owned(), source })
    }
}

impl Iterator for ParquetBatches {
    type Item = Result<RecordBatch, ParquetReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((path, reader)) = &mut self.reader {
                let read = unless_it_panics(|| reader.next());
                let read = read.unwrap_or_else(|| Some(Err(ArrowError::from(panicked()))));
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
            let (place, metadata, groups) = self.of_files.pop()?;
            match self.start(&place, metadata, groups) {
                Ok(reader) => self.reader = Some((place.path().to_owned(), reader)),
                Err(error) => {
                    self.of_files.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
