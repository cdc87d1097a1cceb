//! Datasets that clients put: directories of Parquet files, each with a list of its valid files (parts).
//!
//! A dataset is a directory `NAME.parquet`. The file `_parts` in it contains the file names of the parts, one per line,
//! in order. A new part is written in a hidden staging directory below the same root, synced to disk and moved to the
//! dataset. Then one atomic rename replaces the list. After a crash, the directory contains either the old or the new
//! dataset. Files that are not in the list are ignored. Only datasets with such a list are modified, never files of
//! jobs and of users.

mod dataset_part;
mod staging_directory;
mod temporary_datasets;

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use godwit_columnar::{ColumnarError, PageCompression, ParquetFiles, TableParquetWriter};
use godwit_dataset::{DatasetError, DatasetWriter, PutRequest, PutSummary, WriteMode};
use godwit_files::{AtomicFile, sync_directory};

use self::dataset_part::{MemoryBudget, PutPart, remove_part};
use self::staging_directory::{StagingArea, StagingDirectory};
pub use self::temporary_datasets::TemporaryDatasets;
use crate::read_error::{dataset_error, file_read_error};

/// Name of the file that lists the parts of a dataset.
pub(crate) const PART_LIST_NAME: &str = "_parts";

/// An error of storing a dataset that a client puts.
#[derive(Debug, thiserror::Error)]
enum PutError {
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{name} cannot be stored as Parquet")]
    Encode {
        name: String,
        #[source]
        source: ColumnarError,
    },
}

fn cannot_write(path: &Path, source: io::Error) -> DatasetError {
    DatasetError::Local(Box::new(PutError::Write { path: path.to_owned(), source }))
}

/// Returns the file names in a list of parts. Names with a slash are ignored, because all parts are in the directory of
/// the list.
pub(crate) fn part_names(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'))
}

/// Returns the paths of the parts of a dataset, in order; `None` if the directory contains no list of parts.
fn read_part_list(directory: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let text = match fs::read_to_string(directory.join(PART_LIST_NAME)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(part_names(&text).map(|name| directory.join(name)).collect()))
}

/// A directory below which the server stores datasets that clients put.
#[derive(Debug)]
pub(crate) struct PutDirectory {
    directory: PathBuf,
    staging: StagingArea,
    /// Memory budget of temporary datasets, which stay in memory as long as it suffices; `None` for durable datasets.
    memory_budget: Option<Arc<MemoryBudget>>,
}

/// The put directories of a server: one for durable datasets, one for datasets that are removed when the server exits.
#[derive(Debug)]
pub(crate) struct PutDirectories {
    pub(crate) durable: Arc<PutDirectory>,
    pub(crate) temporary: Arc<PutDirectory>,
}

impl PutDirectories {
    pub(crate) fn new(root: &Path, temporary: &TemporaryDatasets, memory_bytes: u64) -> Result<Self, DatasetError> {
        let memory = Arc::new(MemoryBudget::new(memory_bytes, temporary.spill_path()));
        let durable = Arc::new(PutDirectory::new(root, None)?);
        Ok(Self { durable, temporary: Arc::new(PutDirectory::new(temporary.directory(), Some(memory))?) })
    }
}

/// The state of the path at which a dataset is put.
enum TargetState {
    Absent,
    /// The path is a dataset that a client put; the field contains the paths of its parts.
    Dataset(Vec<PathBuf>),
    /// The path is a file or directory that no client put, so it must not be modified.
    Foreign,
}

impl PutDirectory {
    fn new(directory: &Path, memory_budget: Option<Arc<MemoryBudget>>) -> Result<Self, DatasetError> {
        let staging = StagingArea::open_below(directory).map_err(|source| cannot_write(directory, source))?;
        Ok(Self { directory: directory.to_owned(), staging, memory_budget })
    }

    /// Returns a writer for a dataset. `path`: its path below the directory; `name`: its name, for error messages.
    pub(crate) fn create_writer(
        self: &Arc<Self>,
        path: &Path,
        name: String,
        put: &PutRequest,
        schema: SchemaRef,
    ) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        check_columns(&name, &schema)?;
        let schema = storable_schema(&schema);
        let path = self.directory.join(path);
        let target = PutTarget {
            path,
            name,
            existing: put.write_mode,
            must_exist: put.must_exist,
            upload: put.upload_id.clone(),
        };
        if target.contains_upload()? {
            return Ok(Box::new(DuplicateUploadWriter { dataset: target.name, rows: 0 }));
        }
        // The schema must match the existing parts. The commit repeats this check, because the parts may change until
        // then.
        let schema = match target.existing_parts()? {
            Some(parts) if put.write_mode == WriteMode::Append => target.matching_schema(&parts, &schema)?,
            _ => schema,
        };
        let staging = self.staging.create().map_err(|source| cannot_write(&self.directory, source))?;
        let file = staging.path().join("part");
        let file = PutPart::create(file, self.memory_budget.clone())
            .map_err(|source| cannot_write(&self.directory, source))?;
        let packing = if self.memory_budget.is_some() { PageCompression::Uncompressed } else { PageCompression::Zstd };
        let table =
            TableParquetWriter::new(schema.clone(), packing, file).map_err(|error| target.encode_error(error))?;
        Ok(Box::new(PutWriter { directory: self.clone(), target, staging, schema, table, rows: 0 }))
    }

    /// Removes a dataset that a client put.
    pub(crate) fn remove_dataset(&self, path: &Path, name: &str) -> Result<(), DatasetError> {
        let target = self.directory.join(path);
        let failed = |source| cannot_write(&target, source);
        let _lock = self.staging.lock().map_err(failed)?;
        match target_state(&target)? {
            TargetState::Absent => Err(DatasetError::NotFound { name: name.to_owned() }),
            TargetState::Foreign => Err(foreign_dataset_error(name)),
            TargetState::Dataset(parts) => {
                let staging_directory = self.staging.create_locked().map_err(failed)?;
                let gone = staging_directory.path().join("gone");
                fs::rename(&target, &gone).map_err(failed)?;
                for part in parts {
                    remove_part(&gone.join(part.file_name().unwrap_or_default()), self.memory_budget.as_deref());
                }
                Ok(())
            }
        }
    }
}

fn foreign_dataset_error(name: &str) -> DatasetError {
    DatasetError::Forbidden { problem: format!("{name} is read-only, because no client wrote it with DoPut") }
}

fn target_state(path: &Path) -> Result<TargetState, DatasetError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TargetState::Absent),
        Err(error) => Err(file_read_error(path, error)),
        Ok(metadata) if metadata.is_dir() => {
            let listed = read_part_list(path).map_err(|source| file_read_error(path, source))?;
            Ok(listed.map_or(TargetState::Foreign, TargetState::Dataset))
        }
        Ok(_) => Ok(TargetState::Foreign),
    }
}

fn check_columns(name: &str, schema: &Schema) -> Result<(), DatasetError> {
    let refused = |problem: String| Err(DatasetError::InvalidRequest { problem });
    if schema.fields().is_empty() {
        return refused(format!("{name} has no columns"));
    }
    let mut names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => refused(format!("{name} has two columns {:?}; rename one of them", pair[0])),
        None => Ok(()),
    }
}

/// Returns a schema in which dictionaries of text views, the categories of polars, are dictionaries of plain text. The
/// Parquet writer cannot store the former.
fn storable_schema(schema: &SchemaRef) -> SchemaRef {
    let storable = |field: &FieldRef| match field.data_type() {
        DataType::Dictionary(keys, values) if **values == DataType::Utf8View => {
            let data_type = DataType::Dictionary(keys.clone(), Box::new(DataType::Utf8));
            Arc::new(field.as_ref().clone().with_data_type(data_type))
        }
        _ => field.clone(),
    };
    let fields: Vec<FieldRef> = schema.fields().iter().map(storable).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Converts a column to its type in [`storable_schema`].
fn storable_column(column: &ArrayRef) -> ArrayRef {
    let dictionary = column.as_any_dictionary_opt();
    match dictionary.and_then(|dictionary| Some((dictionary, dictionary.values().as_string_view_opt()?))) {
        Some((dictionary, views)) => dictionary.with_values(Arc::new(views.iter().collect::<StringArray>())),
        None => column.clone(),
    }
}

/// The dataset that a put request creates, replaces or extends, and the write mode.
struct PutTarget {
    path: PathBuf,
    name: String,
    existing: WriteMode,
    must_exist: bool,
    /// Id of the upload, with which the file name of the part ends; `None` if the client sent none.
    upload: Option<String>,
}

impl PutTarget {
    /// Returns whether the dataset already contains this upload. A client repeats an upload if it received no
    /// confirmation.
    fn contains_upload(&self) -> Result<bool, DatasetError> {
        let Some(upload) = &self.upload else { return Ok(false) };
        let TargetState::Dataset(parts) = target_state(&self.path)? else { return Ok(false) };
        let ending = format!("-{upload}.parquet");
        let is_it = |part: &PathBuf| part.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&ending));
        Ok(parts.iter().any(is_it))
    }

    /// Returns the paths of the existing parts; `None` if the dataset does not exist and must be created.
    fn existing_parts(&self) -> Result<Option<Vec<PathBuf>>, DatasetError> {
        match (target_state(&self.path)?, self.existing) {
            (TargetState::Absent, _) if self.must_exist => Err(DatasetError::NotFound { name: self.name.clone() }),
            (TargetState::Absent, _) => Ok(None),
            (_, WriteMode::Create) => Err(DatasetError::AlreadyExists { name: self.name.clone() }),
            (TargetState::Foreign, _) => Err(foreign_dataset_error(&self.name)),
            (TargetState::Dataset(parts), _) => Ok(Some(parts)),
        }
    }

    /// Returns the schema of the first part. `given` must match it in column names, types and nullability.
    fn matching_schema(&self, parts: &[PathBuf], given: &SchemaRef) -> Result<SchemaRef, DatasetError> {
        let Some(first) = parts.first() else { return Ok(given.clone()) };
        let kept = ParquetFiles::open(std::slice::from_ref(first)).map_err(dataset_error)?.schema().clone();
        let same = |at: usize| {
            let (one, other) = (kept.field(at), given.field(at));
            (one.name(), one.data_type(), one.is_nullable()) == (other.name(), other.data_type(), other.is_nullable())
        };
        let number = kept.fields().len();
        let differing = (0..number.min(given.fields().len())).find(|at| !same(*at));
        let problem = match differing {
            None if number == given.fields().len() => return Ok(kept),
            None => format!("{} has {number} columns, but the appended data have {}", self.name, given.fields().len()),
            Some(at) => {
                let columns_text = |schema: &Schema| {
                    let field = schema.field(at);
                    let null = if field.is_nullable() { "" } else { ", never null" };
                    format!("{:?} ({}{null})", field.name(), field.data_type())
                };
                format!(
                    "column {at} of {} is {}, but the appended data have {}",
                    self.name,
                    columns_text(&kept),
                    columns_text(given)
                )
            }
        };
        Err(DatasetError::InvalidRequest { problem })
    }

    fn encode_error(&self, source: ColumnarError) -> DatasetError {
        match dataset_error(PutError::Encode { name: self.name.clone(), source }) {
            DatasetError::Data(error) => {
                DatasetError::InvalidRequest { problem: godwit_model::message_with_causes(&*error) }
            }
            other => other,
        }
    }
}

/// A writer for an upload that the dataset already contains: counts the rows and discards them.
struct DuplicateUploadWriter {
    dataset: String,
    rows: u64,
}

impl DatasetWriter for DuplicateUploadWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), DatasetError> {
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<PutSummary, DatasetError> {
        Ok(PutSummary { dataset: self.dataset, rows: self.rows })
    }
}

struct PutWriter {
    directory: Arc<PutDirectory>,
    target: PutTarget,
    table: TableParquetWriter<PutPart>,
    schema: SchemaRef,
    rows: u64,
    /// The last field, so that the writer of the part is dropped before the staging directory that contains the part.
    staging: StagingDirectory,
}

impl DatasetWriter for PutWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), DatasetError> {
        let fitting = RecordBatch::try_new(self.schema.clone(), batch.columns().iter().map(storable_column).collect());
        let fitting = fitting.map_err(|error| DatasetError::InvalidRequest { problem: error.to_string() })?;
        self.rows += batch.num_rows() as u64;
        self.table.write(&fitting).map_err(|error| self.target.encode_error(error))
    }

    fn commit(self: Box<Self>) -> Result<PutSummary, DatasetError> {
        let Self { directory, target, table, schema, rows, staging } = *self;
        let mut part = table.finish().map_err(|error| target.encode_error(error))?;
        let failed = |source| cannot_write(&target.path, source);
        part.make_durable().map_err(failed)?;
        let _lock = directory.staging.lock().map_err(failed)?;
        // Another pool member may have stored this upload meanwhile, because the client repeated it after its
        // connection broke.
        if target.contains_upload()? {
            return Ok(PutSummary { dataset: target.name, rows });
        }
        match target.existing_parts()? {
            None => {
                let whole = staging.path().join("dataset");
                fs::create_dir(&whole).map_err(failed)?;
                let name = part_name(0, &staging, &target);
                part.move_to(&whole.join(&name)).map_err(failed)?;
                replace_part_list(&whole, &[name]).map_err(failed)?;
                sync_directory(&whole).map_err(failed)?;
                let parent = target.path.parent().unwrap_or(&directory.directory);
                fs::create_dir_all(parent).map_err(failed)?;
                fs::rename(&whole, &target.path).map_err(failed)?;
                part.keep();
                // The parents may be new, so sync also the directories that contain them.
                let mut parents = parent.ancestors().take_while(|parent| parent.starts_with(&directory.directory));
                parents.try_for_each(sync_directory).map_err(failed)?;
            }
            Some(parts) => {
                let appends = target.existing == WriteMode::Append;
                if appends {
                    target.matching_schema(&parts, &schema)?;
                }
                let old =
                    |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
                let mut names: Vec<String> = if appends { parts.iter().map(old).collect() } else { Vec::new() };
                names.push(part_name(names.len(), &staging, &target));
                part.move_to(&target.path.join(&names[names.len() - 1])).map_err(failed)?;
                // The name of the part must be on disk before the list that contains it.
                sync_directory(&target.path).map_err(failed)?;
                replace_part_list(&target.path, &names).map_err(failed)?;
                part.keep();
                sync_directory(&target.path).map_err(failed)?;
                if !appends {
                    parts.iter().for_each(|part| remove_part(part, directory.memory_budget.as_deref()));
                }
            }
        }
        Ok(PutSummary { dataset: target.name, rows })
    }
}

/// Returns a unique file name that sorts after the names of the existing `parts` parts.
fn part_name(parts: usize, staging_directory: &StagingDirectory, target: &PutTarget) -> String {
    let upload = target.upload.as_ref().map(|upload| format!("-{upload}")).unwrap_or_default();
    format!("part-{parts:06}-{}{upload}.parquet", staging_directory.unique_name())
}

/// Replaces the list of the parts of a dataset atomically. The caller must sync the directory afterwards.
fn replace_part_list(directory: &Path, names: &[String]) -> io::Result<()> {
    // Clients of NFS may create links here, which must not select a file to replace.
    let mut list = AtomicFile::create_replacing_link(&directory.join(PART_LIST_NAME))?;
    list.file().set_permissions(Permissions::from_mode(0o600))?;
    list.write_all((names.join("\n") + "\n").as_bytes())?;
    list.file().sync_all()?;
    list.commit_unsynced()
}

#[cfg(test)]
mod tests {
    use arrow_array::Int32Array;
    use arrow_schema::Field;

    use super::*;

    /// Memory for a few rows, but not for a million.
    const MEMORY_BYTES: u64 = 1 << 20;

    fn file_count(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_link_with_the_name_of_the_part_list_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join(PART_LIST_NAME);
        std::os::unix::fs::symlink("/dev/null", &list).unwrap();
        replace_part_list(directory.path(), &["part".to_owned()]).unwrap();
        assert_eq!(fs::read_to_string(&list).unwrap(), "part\n");
        assert!(!list.is_symlink());
    }

    #[test]
    fn an_upload_that_cannot_be_committed_leaves_no_file_and_no_reserved_memory() {
        let root = tempfile::tempdir().unwrap();
        let (data, spilled) = (root.path().join("data"), root.path().join("spilled"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&spilled).unwrap();
        let memory = Arc::new(MemoryBudget::new(MEMORY_BYTES, spilled.clone()));
        let puts = Arc::new(PutDirectory::new(&data, Some(memory.clone())).unwrap());
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]));
        let append = |rows| {
            let put = PutRequest { write_mode: WriteMode::Append, ..PutRequest::default() };
            let mut writer =
                puts.create_writer(Path::new("a.parquet"), "a.parquet".to_owned(), &put, schema.clone())?;
            let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
            writer.write(&RecordBatch::try_new(schema.clone(), vec![column]).unwrap())?;
            writer.commit()
        };
        let dataset = data.join("a.parquet");
        append(3).unwrap();
        let (files, free) = (file_count(&dataset), memory.free_bytes());
        assert!(files == 2 && free < MEMORY_BYTES, "{files} files, {free} bytes");
        // A directory with the temporary name of the list makes the commit fail after the part was moved.
        let temporary_list = dataset.join(godwit_files::temporary_name(Path::new(PART_LIST_NAME)));
        fs::create_dir(&temporary_list).unwrap();
        for rows in [3, 1_000_000] {
            assert!(matches!(append(rows), Err(DatasetError::Local(_))));
            assert_eq!((file_count(&dataset), file_count(&spilled)), (files + 1, 0));
            assert_eq!(memory.free_bytes(), free);
        }
        fs::remove_dir(&temporary_list).unwrap();
        append(1_000_000).unwrap();
        assert_eq!((memory.free_bytes(), file_count(&spilled)), (free, 1));
        puts.remove_dataset(Path::new("a.parquet"), "a.parquet").unwrap();
        assert_eq!((memory.free_bytes(), file_count(&spilled)), (MEMORY_BYTES, 0));
    }
}
