//! Datasets that clients put: directories of Parquet files, each with a list of those that count.
//!
//! A dataset is a directory `NAME.parquet`, and its list is the file `_parts` in it: names of files, one in a line, in order. A part is written
//! aside, in a hidden directory below the same root, made durable and moved; then the list takes the place of the old one by a
//! single rename, which every file system has. So a dataset is as it was or as it is, whatever ends the server in between, and
//! what lies in the directory without being listed is nobody's. Only what has a list is written again: files of
//! runs, and of users, are not.

mod aside;
mod part_file;
mod temporary;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use godwit_flight::{DatasetError, DatasetWriter, Existing, Put, Stored};
use godwit_formats::columnar::{ColumnarError, Packing, ParquetFiles, ParquetTable};

use self::aside::{Aside, Asides};
use self::part_file::{Memory, PartFile, forget_part};
pub use self::temporary::Temporary;
use crate::batches::blamed;
use crate::root::cannot_open;

/// The list of a dataset's parts.
pub(crate) const LIST: &str = "_parts";

/// What keeps a dataset from being kept.
#[derive(Debug, thiserror::Error)]
enum PutError {
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{name} cannot be kept as Parquet")]
    Encode {
        name: String,
        #[source]
        source: ColumnarError,
    },
}

fn cannot_write(path: &Path, source: io::Error) -> DatasetError {
    DatasetError::Machine(Box::new(PutError::Write { path: path.to_owned(), source }))
}

/// The names in a list. Names alone: a list leads nowhere else.
pub(crate) fn names_in(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'))
}

/// The files of a dataset that was put, in order; `None` where it was not.
fn listed(directory: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let text = match fs::read_to_string(directory.join(LIST)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(names_in(&text).map(|name| directory.join(name)).collect()))
}

/// A directory that datasets are put below.
#[derive(Debug)]
pub(crate) struct Shelf {
    directory: PathBuf,
    asides: Asides,
    /// Where what is put stays in memory as long as there is room.
    memory: Option<Arc<Memory>>,
}

/// Where clients put datasets: what lasts, and what ends with the server.
#[derive(Debug)]
pub(crate) struct Shelves {
    pub(crate) lasting: Arc<Shelf>,
    pub(crate) passing: Arc<Shelf>,
}

impl Shelves {
    pub(crate) fn new(root: &Path, temporary: &Temporary, memory_bytes: u64) -> Result<Self, DatasetError> {
        let memory = Arc::new(Memory::new(memory_bytes, temporary.spill()));
        let lasting = Arc::new(Shelf::new(root, None)?);
        Ok(Self { lasting, passing: Arc::new(Shelf::new(temporary.directory(), Some(memory))?) })
    }
}

/// What lies where a dataset is to be.
enum Found {
    Nothing,
    /// One that was put: its parts.
    Put(Vec<PathBuf>),
    /// Something else, which is not touched.
    Foreign,
}

impl Shelf {
    fn new(directory: &Path, memory: Option<Arc<Memory>>) -> Result<Self, DatasetError> {
        let asides = Asides::below(directory).map_err(|source| cannot_write(directory, source))?;
        Ok(Self { directory: directory.to_owned(), asides, memory })
    }

    /// Begins a dataset at a path below the directory, which is told as `name`.
    pub(crate) fn begin(
        self: &Arc<Self>,
        path: &Path,
        name: String,
        put: &Put,
        schema: SchemaRef,
    ) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        refuse_columns(&name, &schema)?;
        let path = self.directory.join(path);
        let target =
            Target { path, name, existing: put.existing, must_exist: put.must_exist, upload: put.upload.clone() };
        if target.has_upload()? {
            return Ok(Box::new(Again { dataset: target.name, rows: 0 }));
        }
        // What is there says what columns are; it is looked at again in the end.
        let schema = match target.parts()? {
            Some(parts) if put.existing == Existing::Append => target.columns_of(&parts, &schema)?,
            _ => schema,
        };
        let aside = self.asides.make().map_err(|source| cannot_write(&self.directory, source))?;
        let file = aside.path().join("part");
        let file =
            PartFile::create(file, self.memory.clone()).map_err(|source| cannot_write(&self.directory, source))?;
        let packing = if self.memory.is_some() { Packing::Plain } else { Packing::Zstd };
        let table = ParquetTable::new(schema.clone(), packing, file).map_err(|error| target.not_kept(error))?;
        Ok(Box::new(PutWriter { shelf: self.clone(), target, aside, schema, table, rows: 0 }))
    }

    /// Removes a dataset that was put.
    pub(crate) fn remove(&self, path: &Path, name: &str) -> Result<(), DatasetError> {
        let target = self.directory.join(path);
        let failed = |source| cannot_write(&target, source);
        let _lock = self.asides.lock().map_err(failed)?;
        match found_at(&target)? {
            Found::Nothing => Err(DatasetError::NotFound { name: name.to_owned() }),
            Found::Foreign => Err(foreign(name)),
            Found::Put(parts) => {
                let aside = self.asides.make_locked().map_err(failed)?;
                let gone = aside.path().join("gone");
                fs::rename(&target, &gone).map_err(failed)?;
                for part in parts {
                    forget_part(&gone.join(part.file_name().unwrap_or_default()), self.memory.as_deref());
                }
                Ok(())
            }
        }
    }
}

fn foreign(name: &str) -> DatasetError {
    DatasetError::Forbidden { problem: format!("{name} was not put by a client: it is only read") }
}

fn found_at(path: &Path) -> Result<Found, DatasetError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(cannot_open(path, error)),
        Ok(metadata) if metadata.is_dir() => {
            let listed = listed(path).map_err(|source| cannot_open(path, source))?;
            Ok(listed.map_or(Found::Foreign, Found::Put))
        }
        Ok(_) => Ok(Found::Foreign),
    }
}

fn refuse_columns(name: &str, schema: &Schema) -> Result<(), DatasetError> {
    let refused = |problem: String| Err(DatasetError::Refused { problem });
    if schema.fields().is_empty() {
        return refused(format!("{name} has no columns; there is nothing to keep"));
    }
    let mut names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => refused(format!("{name} has two columns {:?}; give each a name of its own", pair[0])),
        None => Ok(()),
    }
}

/// Where a dataset goes, and what becomes of the one that is there.
struct Target {
    path: PathBuf,
    name: String,
    existing: Existing,
    must_exist: bool,
    /// Ends the name of the part that it becomes.
    upload: Option<String>,
}

impl Target {
    /// Whether this very upload is among the parts: whoever sent it did not hear so, and sends it again.
    fn has_upload(&self) -> Result<bool, DatasetError> {
        let Some(upload) = &self.upload else { return Ok(false) };
        let Found::Put(parts) = found_at(&self.path)? else { return Ok(false) };
        let ending = format!("-{upload}.parquet");
        let is_it = |part: &PathBuf| part.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&ending));
        Ok(parts.iter().any(is_it))
    }

    /// The parts that are there; `None` where the dataset is to be made.
    fn parts(&self) -> Result<Option<Vec<PathBuf>>, DatasetError> {
        match (found_at(&self.path)?, self.existing) {
            (Found::Nothing, _) if self.must_exist => Err(DatasetError::NotFound { name: self.name.clone() }),
            (Found::Nothing, _) => Ok(None),
            (_, Existing::Create) => Err(DatasetError::AlreadyThere { name: self.name.clone() }),
            (Found::Foreign, _) => Err(foreign(&self.name)),
            (Found::Put(parts), _) => Ok(Some(parts)),
        }
    }

    /// The columns of the first part, which those of another have to be: names, types, and whether they may be null.
    fn columns_of(&self, parts: &[PathBuf], given: &SchemaRef) -> Result<SchemaRef, DatasetError> {
        let Some(first) = parts.first() else { return Ok(given.clone()) };
        let kept = ParquetFiles::open(std::slice::from_ref(first)).map_err(blamed)?.schema().clone();
        let same = |at: usize| {
            let (one, other) = (kept.field(at), given.field(at));
            (one.name(), one.data_type(), one.is_nullable()) == (other.name(), other.data_type(), other.is_nullable())
        };
        let number = kept.fields().len();
        let differing = (0..number.min(given.fields().len())).find(|at| !same(*at));
        let problem = match differing {
            None if number == given.fields().len() => return Ok(kept),
            None => format!("{} has {number} columns, what is appended has {}", self.name, given.fields().len()),
            Some(at) => {
                let told = |schema: &Schema| {
                    let field = schema.field(at);
                    let null = if field.is_nullable() { "" } else { ", never null" };
                    format!("{:?} ({}{null})", field.name(), field.data_type())
                };
                format!("column {at} of {} is {}, that of what is appended {}", self.name, told(&kept), told(given))
            }
        };
        Err(DatasetError::Refused { problem })
    }

    fn not_kept(&self, source: ColumnarError) -> DatasetError {
        match blamed(PutError::Encode { name: self.name.clone(), source }) {
            DatasetError::Data(error) => DatasetError::Refused { problem: godwit_formats::with_causes(&*error) },
            other => other,
        }
    }
}

/// What is there already, sent again: counted, and not kept once more.
struct Again {
    dataset: String,
    rows: u64,
}

impl DatasetWriter for Again {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), DatasetError> {
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<Stored, DatasetError> {
        Ok(Stored { dataset: self.dataset, rows: self.rows })
    }
}

struct PutWriter {
    shelf: Arc<Shelf>,
    target: Target,
    table: ParquetTable<PartFile>,
    schema: SchemaRef,
    rows: u64,
    /// Last: what is in it is dropped before it.
    aside: Aside,
}

impl DatasetWriter for PutWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), DatasetError> {
        let fitting = RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec());
        let fitting = fitting.map_err(|error| DatasetError::Refused { problem: error.to_string() })?;
        self.rows += batch.num_rows() as u64;
        self.table.write(&fitting).map_err(|error| self.target.not_kept(error))
    }

    fn commit(self: Box<Self>) -> Result<Stored, DatasetError> {
        let Self { shelf, target, table, schema, rows, aside } = *self;
        let mut part = table.finish().map_err(|error| target.not_kept(error))?;
        let failed = |source| cannot_write(&target.path, source);
        part.make_durable().map_err(failed)?;
        let _lock = shelf.asides.lock().map_err(failed)?;
        // Another node may have kept it meanwhile, for a client that lost this one.
        if target.has_upload()? {
            return Ok(Stored { dataset: target.name, rows });
        }
        match target.parts()? {
            None => {
                let whole = aside.path().join("dataset");
                fs::create_dir(&whole).map_err(failed)?;
                let name = part_name(0, &aside, &target);
                part.move_to(&whole.join(&name)).map_err(failed)?;
                write_list(&whole, &[name]).map_err(failed)?;
                let parent = target.path.parent().unwrap_or(&shelf.directory);
                fs::create_dir_all(parent).map_err(failed)?;
                fs::rename(&whole, &target.path).map_err(failed)?;
                sync_directory(parent).map_err(failed)?;
            }
            Some(parts) => {
                let appends = target.existing == Existing::Append;
                if appends {
                    target.columns_of(&parts, &schema)?;
                }
                let old =
                    |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
                let mut names: Vec<String> = if appends { parts.iter().map(old).collect() } else { Vec::new() };
                names.push(part_name(names.len(), &aside, &target));
                part.move_to(&target.path.join(&names[names.len() - 1])).map_err(failed)?;
                write_list(&target.path, &names).map_err(failed)?;
                if !appends {
                    parts.iter().for_each(|part| forget_part(part, shelf.memory.as_deref()));
                }
            }
        }
        Ok(Stored { dataset: target.name, rows })
    }
}

/// A name that comes behind those of so many parts, and that no other part ever had.
fn part_name(parts: usize, aside: &Aside, target: &Target) -> String {
    let upload = target.upload.as_ref().map(|upload| format!("-{upload}")).unwrap_or_default();
    format!("part-{parts:06}-{}{upload}.parquet", aside.name())
}

/// Replaces the list of a dataset, at once.
fn write_list(directory: &Path, names: &[String]) -> io::Result<()> {
    let fresh = directory.join("._parts");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all((names.join("\n") + "\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, directory.join(LIST))?;
    sync_directory(directory)
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
