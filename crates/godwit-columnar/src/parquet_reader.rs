//! A reader of Parquet files of any origin, by row groups.
//!
//! Local files are read while their rows are decoded. Of remote files, all requested columns of a row group are fetched
//! before decoding of the row group begins ([`super::parquet_source`]).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use godwit_io::random_access::RandomAccess;
use godwit_model::panics::catch_panic;
use godwit_model::schema::check_version;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;

use super::parquet_error::ParquetReadError;
use super::parquet_source::{ParquetSource, PrefetchedObject};

/// Maximum rows of a record batch.
const MAX_BATCH_ROWS: usize = 8192;
/// Bytes at the end of a remote file that are fetched at once. They usually contain all metadata of the file.
const FOOTER_FETCH_BYTES: u64 = 256 << 10;

/// The location of a Parquet file.
#[derive(Clone, Debug)]
enum FileLocation {
    /// Path of a local file, which is opened for each read.
    Local(PathBuf),
    Remote(Arc<dyn RandomAccess>),
}

impl FileLocation {
    fn path(&self) -> &Path {
        match self {
            Self::Local(path) => path,
            Self::Remote(object) => object.path(),
        }
    }

    /// Opens the file for reading. Of a remote file, the ranges in `prefetch` are fetched at once.
    fn open(&self, prefetch: impl IntoIterator<Item = Range<u64>>) -> Result<ParquetSource, ParquetReadError> {
        match self {
            Self::Local(path) => File::open(path).map(ParquetSource::File),
            Self::Remote(object) => PrefetchedObject::new(object.clone(), prefetch).map(ParquetSource::Prefetched),
        }
        .map_err(|source| ParquetReadError::Io { path: self.path().to_owned(), source })
    }

    fn read_metadata(&self) -> Result<ArrowReaderMetadata, ParquetReadError> {
        let end = match self {
            Self::Local(_) => None,
            Self::Remote(object) => Some(object.byte_len().saturating_sub(FOOTER_FETCH_BYTES)..object.byte_len()),
        };
        let bytes = self.open(end)?;
        // Malformed bytes have caused panics in the parquet crate. Its objects are dropped after a panic, so no invalid
        // state remains.
        let loaded = catch_panic(|| ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new()));
        loaded.unwrap_or_else(|| Err(panic_error())).map_err(|source| bytes.read_error(self.path(), source))
    }
}

/// A table that consists of one or more Parquet files with the same columns.
#[derive(Debug)]
pub struct ParquetFiles {
    files: Vec<(FileLocation, ArrowReaderMetadata)>,
    schema: SchemaRef,
}

impl ParquetFiles {
    /// Reads the metadata of local files, of which there must be at least one.
    ///
    /// # Errors
    /// [`ParquetReadError`] if the metadata of a file cannot be read, its columns have an unknown version, or two files
    /// have different columns.
    pub fn open(paths: &[PathBuf]) -> Result<Self, ParquetReadError> {
        Self::from_locations(paths.iter().cloned().map(FileLocation::Local))
    }

    /// Reads the metadata of remote files, as [`ParquetFiles::open`] does for local files.
    ///
    /// # Errors
    /// [`ParquetReadError`] if the metadata of a file cannot be read, its columns have an unknown version, or two files
    /// have different columns.
    pub fn open_objects(objects: Vec<Arc<dyn RandomAccess>>) -> Result<Self, ParquetReadError> {
        Self::from_locations(objects.into_iter().map(FileLocation::Remote))
    }

    fn from_locations(locations: impl IntoIterator<Item = FileLocation>) -> Result<Self, ParquetReadError> {
        let mut files: Vec<(FileLocation, ArrowReaderMetadata)> = Vec::new();
        for location in locations {
            let metadata = location.read_metadata()?;
            check_version(metadata.schema().metadata())
                .map_err(|version| ParquetReadError::Version { path: location.path().to_owned(), version })?;
            if let Some((first, found)) = files.first()
                && found.schema().fields() != metadata.schema().fields()
            {
                let (path, first) = (location.path().to_owned(), first.path().to_owned());
                return Err(ParquetReadError::Columns { path, first });
            }
            files.push((location, metadata));
        }
        let Some((_, metadata)) = files.first() else {
            let source = io::Error::new(io::ErrorKind::NotFound, "it contains no file");
            return Err(ParquetReadError::Io { path: PathBuf::new(), source });
        };
        let schema = metadata.schema().clone();
        Ok(Self { files, schema })
    }

    /// Returns the schema, with the metadata of the first file.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of rows of all files.
    pub fn row_count(&self) -> u64 {
        self.files.iter().map(|(_, metadata)| metadata.metadata().file_metadata().num_rows().max(0) as u64).sum()
    }

    /// Returns the compressed size in bytes of each row group of all files, in order.
    pub fn row_group_bytes(&self) -> Vec<u64> {
        let groups = self.files.iter().flat_map(|(_, metadata)| metadata.metadata().row_groups());
        groups.map(|group| group.compressed_size().max(0) as u64).collect()
    }

    /// Returns an iterator over the rows of a range of row groups, which are counted over all files. `columns` are
    /// indexes in the schema; `None` means all columns.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::File;
    /// use std::sync::Arc;
    ///
    /// use arrow_array::cast::AsArray;
    /// use arrow_array::{ArrayRef, RecordBatch, StringArray};
    /// use godwit_columnar::{PageCompression, ParquetFiles, TableParquetWriter};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("samples.parquet");
    /// let samples: ArrayRef = Arc::new(StringArray::from(vec!["NA12878", "NA12891"]));
    /// let batch = RecordBatch::try_from_iter([("sample", samples)])?;
    /// let mut writer = TableParquetWriter::new(batch.schema(), PageCompression::Zstd, File::create(&path)?)?;
    /// writer.write(&batch)?;
    /// writer.finish()?;
    ///
    /// let files = ParquetFiles::open(&[path])?;
    /// let groups = 0..files.row_group_bytes().len();
    /// let batch = files.batches(groups, Some(&[0])).next().unwrap()?;
    /// assert_eq!(batch["sample"].as_string::<i32>().value(1), "NA12891");
    /// # Ok(())
    /// # }
    /// ```
    pub fn batches(&self, groups: Range<usize>, columns: Option<&[usize]>) -> ParquetBatches {
        let mut first = 0;
        let mut pending = Vec::new();
        for (location, metadata) in &self.files {
            let count = metadata.metadata().num_row_groups();
            let range = groups.start.max(first)..groups.end.min(first + count);
            // Read only one row group of a remote file at a time, because prefetched bytes stay in memory.
            let at_a_time = if matches!(location, FileLocation::Local(_)) { count.max(1) } else { 1 };
            for start in range.clone().step_by(at_a_time) {
                let end = range.end.min(start.saturating_add(at_a_time));
                pending.push((location.clone(), metadata.clone(), start - first..end - first));
            }
            first += count;
        }
        pending.reverse();
        ParquetBatches { pending, columns: columns.map(<[usize]>::to_vec), reader: None }
    }
}

fn panic_error() -> ParquetError {
    ParquetError::General("its content is invalid".to_owned())
}

/// An iterator over record batches of Parquet files.
pub struct ParquetBatches {
    /// Files and ranges of their row groups that are still to be read, in reverse order.
    pending: Vec<(FileLocation, ArrowReaderMetadata, Range<usize>)>,
    columns: Option<Vec<usize>>,
    reader: Option<(PathBuf, ParquetRecordBatchReader)>,
}

impl ParquetBatches {
    fn open_row_groups(
        &self,
        location: &FileLocation,
        metadata: ArrowReaderMetadata,
        groups: Range<usize>,
    ) -> Result<ParquetRecordBatchReader, ParquetReadError> {
        let mask = match &self.columns {
            Some(columns) => ProjectionMask::roots(metadata.parquet_schema(), columns.iter().copied()),
            None => ProjectionMask::all(),
        };
        let prefetch: Vec<Range<u64>> = groups
            .clone()
            .filter_map(|group| metadata.metadata().row_groups().get(group))
            .flat_map(|group| group.columns().iter().enumerate())
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .map(|(_, column)| column.byte_range())
            .map(|(start, bytes)| start..start.saturating_add(bytes))
            .collect();
        let bytes = location.open(prefetch)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata)
            .with_batch_size(MAX_BATCH_ROWS)
            .with_row_groups(groups.collect())
            .with_projection(mask);
        let built = catch_panic(|| builder.build()).unwrap_or_else(|| Err(panic_error()));
        built.map_err(|source| ParquetReadError::Damaged { path: location.path().to_owned(), source })
    }
}

impl Iterator for ParquetBatches {
    type Item = Result<RecordBatch, ParquetReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((path, reader)) = &mut self.reader {
                let read = catch_panic(|| reader.next());
                let read = read.unwrap_or_else(|| Some(Err(ArrowError::from(panic_error()))));
                let failed = |source| ParquetReadError::Rows { path: path.clone(), source };
                match read {
                    Some(Ok(batch)) => return Some(Ok(batch)),
                    Some(Err(source)) => {
                        let error = failed(source);
                        self.pending.clear();
                        self.reader = None;
                        return Some(Err(error));
                    }
                    None => self.reader = None,
                }
            }
            let (location, metadata, groups) = self.pending.pop()?;
            match self.open_row_groups(&location, metadata, groups) {
                Ok(reader) => self.reader = Some((location.path().to_owned(), reader)),
                Err(error) => {
                    self.pending.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
