//! Parquet files, and directories of them, Arrow IPC, CSV and TSV, as datasets.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::columnar::{ArrowFile, ParquetFiles, ParquetReadError};
use godwit_formats::csv::CsvFile;
use godwit_model::schema::{columnar, variants};

use crate::batches::{blamed, one_part, until_done};
use crate::bucket::remote_cause;
use crate::puts;
use crate::store::{Seen, SeenFile, Store};

/// A Parquet file, or the files of a directory in the order of their names.
#[derive(Debug)]
pub(crate) struct ParquetDataset {
    paths: Vec<PathBuf>,
    /// Where they are for an engine, if that is not said by their paths.
    urls: Option<Vec<String>>,
    files: ParquetFiles,
    bytes: u64,
    version: u64,
}

impl ParquetDataset {
    pub(crate) fn open(store: &Store, seen: &Seen) -> Result<Self, DatasetError> {
        let of = files_of(store, seen, "parquet")?;
        let paths: Vec<PathBuf> = of.iter().map(|file| file.path.clone()).collect();
        let urls: Option<Vec<String>> = of.iter().map(|file| store.engine_url(file)).collect();
        let files = match urls {
            None => ParquetFiles::open(&paths),
            Some(_) => ParquetFiles::open_elsewhere(of.iter().map(|file| store.open(file)).collect::<Result<_, _>>()?),
        };
        let bytes = of.iter().map(|file| file.bytes).sum();
        Ok(Self { paths, urls, files: files.map_err(blamed_parquet)?, bytes, version: seen.version })
    }
}

/// The files of a dataset: itself, or where it is a directory those in it with an ending, by name; at least one.
fn files_of(store: &Store, seen: &Seen, ending: &str) -> Result<Vec<SeenFile>, DatasetError> {
    if !seen.is_directory {
        return Ok(seen.files.clone());
    }
    let with_name =
        |name: &str| seen.files.iter().find(|file| file.path.file_name().is_some_and(|found| found == name));
    if let Some(list) = with_name(puts::LIST) {
        let text = store.read_small(list)?;
        let gone = |name: &str| DatasetError::Changed { name: seen.path.join(name).display().to_string() };
        return puts::names_in(&text).map(|name| with_name(name).cloned().ok_or_else(|| gone(name))).collect();
    }
    let mut files = seen.files.clone();
    files.retain(|file| file.path.extension().is_some_and(|found| found == ending));
    if files.is_empty() {
        return Err(DatasetError::Refused {
            problem: format!("there is no .{ending} file in {}", seen.path.display()),
        });
    }
    Ok(files)
}

fn blamed_parquet(error: ParquetReadError) -> DatasetError {
    if let Some(remote) = remote_cause(&error) {
        return remote.into();
    }
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

    fn parquet_urls(&self) -> Option<&[String]> {
        self.urls.as_deref()
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

/// Arrow IPC: a file, a stream, or the files of a directory in the order of their names.
#[derive(Debug)]
pub(crate) struct ArrowDataset {
    files: Vec<ArrowFile>,
    schema: SchemaRef,
    version: u64,
}

impl ArrowDataset {
    pub(crate) fn open(store: &Store, seen: &Seen) -> Result<Self, DatasetError> {
        let of = files_of(store, seen, "arrow")?;
        let mut files: Vec<ArrowFile> = Vec::with_capacity(of.len());
        for part in &of {
            let file = ArrowFile::open(store.open(part)?).map_err(blamed)?;
            if files.first().is_some_and(|first| first.schema().fields() != file.schema().fields()) {
                let problem = format!("{} has other columns than {}", part.path.display(), of[0].path.display());
                return Err(DatasetError::Data(problem.into()));
            }
            files.push(file);
        }
        let schema = files.first().map_or_else(|| Arc::new(Schema::empty()), |file| file.schema().clone());
        Ok(Self { files, schema, version: seen.version })
    }

    /// Batches of each file; a stream is read as one.
    fn batch_counts(&self) -> impl Iterator<Item = usize> {
        self.files.iter().map(|file| file.batch_count().unwrap_or(1))
    }
}

impl Dataset for ArrowDataset {
    fn kind(&self) -> Kind {
        kind_of(&self.schema)
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.files.iter().map(ArrowFile::rows).sum()
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(ArrowFile::bytes).sum()
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

    /// Batches: start and end of their numbers, counted over all files.
    fn parts(&self, _scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(dealt(&vec![1; self.batch_counts().sum()], most))
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let [(start, end)] = part.stretches[..] else { return Ok(Box::new(std::iter::empty())) };
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
        Ok(until_done(move || {
            while let Some(batches) = of_files.last_mut() {
                if let Some(batch) = batches.next_batch().map_err(blamed)? {
                    return Ok(Some(batch));
                }
                of_files.pop();
            }
            Ok(None)
        }))
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
    pub(crate) fn open(store: &Store, seen: &Seen, delimiter: u8) -> Result<Self, DatasetError> {
        let file = CsvFile::open(store.open(seen.file()?)?, delimiter).map_err(blamed)?;
        Ok(Self { file, bytes: seen.bytes(), version: seen.version })
    }
}

impl Dataset for CsvDataset {
    fn kind(&self) -> Kind {
        Kind::Table
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
