//! Datasets stored as a Parquet file, an Arrow IPC file or stream, a directory of such files, or a CSV or TSV file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use godwit_columnar::csv::CsvFile;
use godwit_columnar::{ArrowFile, ParquetFiles, ParquetReadError};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_model::schema::{alignment_columns, variant_columns};

use crate::batch_reader::{fused_reader, single_part};
use crate::bucket::find_remote_error;
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};
use crate::file_store::FileStore;
use crate::puts;
use crate::read_error::dataset_error;

/// A dataset of one Parquet file, or of all Parquet files in a directory in the order of their names.
#[derive(Debug)]
pub(crate) struct ParquetDataset {
    paths: Vec<PathBuf>,
    /// URLs of the files for the Parquet reader of DataFusion; `None` if it opens the files by their paths.
    urls: Option<Vec<String>>,
    files: ParquetFiles,
    bytes: u64,
    version: u64,
}

impl ParquetDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot) -> Result<Self, DatasetError> {
        let of = dataset_files(store, seen, "parquet")?;
        let paths: Vec<PathBuf> = of.iter().map(|file| file.path.clone()).collect();
        let urls: Option<Vec<String>> = of.iter().map(|file| store.engine_url(file)).collect();
        let files = match urls {
            None => ParquetFiles::open(&paths),
            Some(_) => ParquetFiles::open_objects(of.iter().map(|file| store.open(file)).collect::<Result<_, _>>()?),
        };
        let bytes = of.iter().map(|file| file.bytes).sum();
        Ok(Self { paths, urls, files: files.map_err(parquet_error)?, bytes, version: seen.version })
    }
}

/// Returns the files of a dataset. For a directory, these are the files in its list of parts or, without a list, all
/// files with the extension `ending`, sorted by name. There is at least one.
fn dataset_files(store: &FileStore, seen: &DatasetSnapshot, ending: &str) -> Result<Vec<FileSnapshot>, DatasetError> {
    if !seen.is_directory {
        return Ok(seen.files.clone());
    }
    let with_name =
        |name: &str| seen.files.iter().find(|file| file.path.file_name().is_some_and(|found| found == name));
    if let Some(list) = with_name(puts::PART_LIST_NAME) {
        let text = store.read_text(list)?;
        let gone = |name: &str| DatasetError::Changed { name: seen.path.join(name).display().to_string() };
        return puts::part_names(&text).map(|name| with_name(name).cloned().ok_or_else(|| gone(name))).collect();
    }
    let mut files = seen.files.clone();
    files.retain(|file| file.path.extension().is_some_and(|found| found == ending));
    if files.is_empty() {
        return Err(DatasetError::InvalidRequest {
            problem: format!("the directory {} contains no file that ends in .{ending}", seen.path.display()),
        });
    }
    Ok(files)
}

fn parquet_error(error: ParquetReadError) -> DatasetError {
    if let Some(remote) = find_remote_error(&error) {
        return remote.into();
    }
    match error {
        // The file existed when the dataset was opened, so the dataset has changed since.
        ParquetReadError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
            DatasetError::Changed { name: path.display().to_string() }
        }
        ParquetReadError::Io { .. } => DatasetError::Local(error.into()),
        _ => DatasetError::Data(error.into()),
    }
}

/// Returns the kind of dataset that the schema metadata declares, if godwit wrote the files; otherwise a plain table.
fn kind_of_schema(schema: &Schema) -> DatasetKind {
    let metadata = schema.metadata();
    if metadata.contains_key(alignment_columns::VERSION_KEY) {
        DatasetKind::Reads
    } else if metadata.contains_key(variant_columns::VERSION_KEY) {
        DatasetKind::Variants
    } else {
        DatasetKind::Table
    }
}

fn sorted_by(kind: DatasetKind) -> &'static [&'static str] {
    if kind == DatasetKind::Reads { &["contig_id", "position"] } else { &[] }
}

impl Dataset for ParquetDataset {
    fn kind(&self) -> DatasetKind {
        kind_of_schema(self.files.schema())
    }

    fn schema(&self) -> SchemaRef {
        self.files.schema().clone()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.files.row_count())
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

    fn parquet_urls(&self) -> Option<&[String]> {
        self.urls.as_deref()
    }

    /// Splits the dataset into ranges of row groups, which are numbered over all files.
    fn parts(&self, _scan: &Scan, most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(split_evenly(&self.files.row_group_bytes(), most))
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let [(start, end)] = part.ranges[..] else { return Ok(Box::new(std::iter::empty())) };
        let batches = self.files.batches(start as usize..end as usize, scan.columns.as_deref());
        Ok(Box::new(batches.map(|batch| batch.map_err(parquet_error))))
    }
}

/// Distributes items to at most `most` parts of similar size, and returns the range of item indexes of each part.
/// `bytes`: size of each item.
fn split_evenly(bytes: &[u64], most: usize) -> Vec<ScanPart> {
    let share = bytes.iter().sum::<u64>().div_ceil(most.max(1) as u64).max(1);
    let (mut parts, mut start, mut filled) = (Vec::new(), 0, 0);
    for (at, piece_bytes) in (1u64..).zip(bytes) {
        filled += piece_bytes;
        if filled >= share || at == bytes.len() as u64 {
            parts.push(ScanPart { ranges: vec![(start, at)] });
            (start, filled) = (at, 0);
        }
    }
    parts
}

/// A dataset of an Arrow IPC file or stream, or of all Arrow files in a directory in the order of their names.
#[derive(Debug)]
pub(crate) struct ArrowDataset {
    files: Vec<ArrowFile>,
    schema: SchemaRef,
    version: u64,
}

impl ArrowDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot) -> Result<Self, DatasetError> {
        let of = dataset_files(store, seen, "arrow")?;
        let mut files: Vec<ArrowFile> = Vec::with_capacity(of.len());
        for part in &of {
            let file = ArrowFile::open(store.open(part)?).map_err(dataset_error)?;
            if files.first().is_some_and(|first| first.schema().fields() != file.schema().fields()) {
                let problem =
                    format!("the columns of {} differ from those of {}", part.path.display(), of[0].path.display());
                return Err(DatasetError::Data(problem.into()));
            }
            files.push(file);
        }
        let schema = files.first().map_or_else(|| Arc::new(Schema::empty()), |file| file.schema().clone());
        Ok(Self { files, schema, version: seen.version })
    }

    /// Returns the number of record batches in each file. A file in the Arrow stream format counts as one batch.
    fn batch_counts(&self) -> impl Iterator<Item = usize> {
        self.files.iter().map(|file| file.batch_count().unwrap_or(1))
    }
}

impl Dataset for ArrowDataset {
    fn kind(&self) -> DatasetKind {
        kind_of_schema(&self.schema)
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.files.iter().map(ArrowFile::row_count).sum()
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(ArrowFile::byte_len).sum()
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

    /// Splits the dataset into ranges of record batches, which are numbered over all files.
    fn parts(&self, _scan: &Scan, most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(split_evenly(&vec![1; self.batch_counts().sum()], most))
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let [(start, end)] = part.ranges[..] else { return Ok(Box::new(std::iter::empty())) };
        let (start, end) = (start as usize, end as usize);
        let mut first = 0;
        let mut of_files = Vec::new();
        for (file, count) in self.files.iter().zip(self.batch_counts()) {
            let range = start.max(first)..end.min(first + count);
            if !range.is_empty() {
                of_files.push(file.batches(range.start - first..range.end - first, scan.columns.as_deref()));
            }
            first += count;
        }
        of_files.reverse();
        Ok(fused_reader(move || {
            while let Some(batches) = of_files.last_mut() {
                if let Some(batch) = batches.next_batch().map_err(dataset_error)? {
                    return Ok(Some(batch));
                }
                of_files.pop();
            }
            Ok(None)
        }))
    }
}

/// A dataset of the rows in a CSV or TSV file.
#[derive(Debug)]
pub(crate) struct CsvDataset {
    file: CsvFile,
    bytes: u64,
    version: u64,
}

impl CsvDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot, delimiter: u8) -> Result<Self, DatasetError> {
        let file = CsvFile::open(store.open(seen.single_file()?)?, delimiter).map_err(dataset_error)?;
        Ok(Self { file, bytes: seen.total_bytes(), version: seen.version })
    }
}

impl Dataset for CsvDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.file.schema().clone()
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

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(single_part())
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if part.ranges.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let mut rows = self.file.batches(scan.columns.as_deref()).map_err(dataset_error)?;
        Ok(fused_reader(move || rows.next_batch().map_err(dataset_error)))
    }
}
