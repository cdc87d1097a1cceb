//! bwa mem 0.7.17 inside the program `godwit-bwa`, and bwa-mem3 0.15.0 inside `godwit-bwa-mem3`: the same options, the same
//! records.
//!
//! This file starts them; [`index_state`] checks that their index exists and belongs to the reference, [`build_index`]
//! builds one.

mod comparison;
pub mod fm_index;
mod index_files;
mod index_validation;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_process::TemporaryItem;

use super::{ChildHandle, PipeSession};
use crate::EngineError;
use crate::child;
use crate::program_lookup::locate_program;

pub use index_files::IndexKind;
pub use index_validation::{IndexError, IndexState, StaleReason, index_files_state, index_state};

/// A program around one of the two libraries.
struct EngineProgram {
    program: &'static str,
    /// Environment variable that names the program's path.
    variable: &'static str,
    name: &'static str,
    version: &'static str,
}

/// bwa 0.7.19 adds a tag to every line.
const BWA: EngineProgram =
    EngineProgram { program: "godwit-bwa", variable: "GODWIT_BWA", name: "bwa", version: "0.7.17" };
const BWA_MEM3: EngineProgram =
    EngineProgram { program: "godwit-bwa-mem3", variable: "GODWIT_BWA_MEM3", name: "bwa-mem3", version: "0.15.0" };

/// Name and version of bwa: every program of this module writes the records of this version.
pub const BWA_NAME_AND_VERSION: (&str, &str) = (BWA.name, BWA.version);

/// Environment variable that names the highest instruction set that `godwit-bwa-mem3` may use: `avx2` or `avx512bw`.
pub const INSTRUCTIONS_VARIABLE: &str = "GODWIT_BWA_MEM3_INSTRUCTIONS";
/// The library's own variable for the same limit.
const LIBRARY_INSTRUCTIONS_VARIABLE: &str = "BWAMEM3_FORCE_TIER";
/// Prefixes of the variables that change the library's behaviour; the user's variables are not passed on.
const LIBRARY_VARIABLE_PREFIXES: [&str; 4] = ["BWAMEM3_", "BWA3_", "BWA_MEM3_", "BWA_INDEX_"];

/// Returns the name of the library that the program for this kind of index links.
pub fn library_name(kind: IndexKind) -> &'static str {
    engine_program(kind).name
}

/// Returns the version of the library that the program for this kind of index must link.
pub fn library_version(kind: IndexKind) -> &'static str {
    engine_program(kind).version
}

fn engine_program(kind: IndexKind) -> &'static EngineProgram {
    match kind {
        IndexKind::Bwa => &BWA,
        IndexKind::BwaMem3 => &BWA_MEM3,
    }
}

/// Returns the reason why this processor cannot run the program for this kind of index; `None` if it can.
pub fn processor_problem(kind: IndexKind) -> Option<&'static str> {
    match kind {
        IndexKind::Bwa => None,
        IndexKind::BwaMem3 => bwa_mem3_problem(),
    }
}

#[cfg(target_arch = "x86_64")]
fn bwa_mem3_problem() -> Option<&'static str> {
    (!std::arch::is_x86_feature_detected!("avx2")).then_some("this processor lacks AVX2, which bwa-mem3 needs")
}

#[cfg(target_arch = "aarch64")]
fn bwa_mem3_problem() -> Option<&'static str> {
    None
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn bwa_mem3_problem() -> Option<&'static str> {
    Some("bwa-mem3 runs on x86-64 and ARM64 processors only")
}

/// Returns the paths of the index files that the program for this kind of index holds in memory.
pub fn loaded_files(reference: &Path, kind: IndexKind) -> Vec<PathBuf> {
    kind.extensions().iter().map(|extension| reference.with_added_extension(extension)).collect()
}

/// Returns the size of the [`loaded_files`], bytes; a file that does not exist counts as empty.
pub fn loaded_bytes(reference: &Path, kind: IndexKind) -> u64 {
    loaded_files(reference, kind).iter().map(|file| std::fs::metadata(file).map_or(0, |found| found.len())).sum()
}

/// Options for starting the aligner.
#[derive(Clone, Debug)]
pub struct BwaOptions {
    /// Kind of index, which decides the program.
    pub kind: IndexKind,
    /// Path of the program; `None`: `GODWIT_BWA` or `GODWIT_BWA_MEM3`, else beside this executable, else on PATH.
    pub program: Option<PathBuf>,
    /// Path of the reference, with its index beside it.
    pub reference: PathBuf,
    /// Number of aligning threads, at least 1. Reading and writing take two more threads, which are mostly idle.
    pub threads: usize,
    /// Options of `bwa mem`, as `["-M", "-k", "19"]`. Options that godwit sets itself (`-t -K -p -R -H -o -f -v -1`) are
    /// rejected.
    pub arguments: Vec<String>,
    /// True to map the index files instead of reading them, so that the processes on one machine share the memory. A single
    /// process is faster without it, because memory it reads into can use huge pages. bwa-mem3 cannot share.
    pub share_index: bool,
}

impl BwaOptions {
    /// Starts the aligner and waits until its index is loaded.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], and those of [`PipeSession::start`].
    pub fn start(&self) -> Result<PipeSession, EngineError> {
        let program = resolve_program(self.kind, self.program.as_deref())?;
        let mut command = Command::new(&program);
        command.arg("align").arg("--reference").arg(&self.reference);
        command.args(["--threads", &self.threads.to_string()]);
        if self.share_index {
            command.arg("--share-index");
        }
        command.arg("--").args(&self.arguments);
        filter_library_variables(&mut command);
        PipeSession::start(program, command, (engine_program(self.kind).name, engine_program(self.kind).version))
    }
}

/// Removes the user's variables for the library, except the limit on instructions.
fn filter_library_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if LIBRARY_VARIABLE_PREFIXES.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    if let Some(instructions) = std::env::var_os(INSTRUCTIONS_VARIABLE) {
        command.env(LIBRARY_INSTRUCTIONS_VARIABLE, instructions);
    }
}

/// Checks that the program exists, has the right version, and accepts these options of `bwa mem`; loads no index.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::VersionMismatch`], [`EngineError::Usage`] for rejected options,
/// [`EngineError::Io`] and [`EngineError::Exited`].
pub fn check_arguments(kind: IndexKind, arguments: &[String]) -> Result<(), EngineError> {
    let (program, found) = find_program_version(kind)?;
    let engine = engine_program(kind);
    for (component, expected, found) in [
        ("godwit", env!("CARGO_PKG_VERSION"), found.godwit_version),
        (engine.name, engine.version, found.engine_version),
    ] {
        if expected != found {
            let expected = expected.to_owned();
            return Err(EngineError::VersionMismatch { program, component, expected, found });
        }
    }
    let mut command = Command::new(&program);
    command.args(["check", "--"]).args(arguments);
    let started = child::start_piped(program, command)?;
    let handle = ChildHandle::new(started.state.clone());
    drop((started.stdin, started.stdout));
    handle.wait()
}

/// The versions that a program reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramVersion {
    /// Version of the godwit release that the program belongs to.
    pub godwit_version: String,
    /// Version of the linked library.
    pub engine_version: String,
}

/// Returns the path and version of the program that would be started.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::Protocol`] if it is another program.
pub fn find_program_version(kind: IndexKind) -> Result<(PathBuf, ProgramVersion), EngineError> {
    let program = resolve_program(kind, None)?;
    query_program_version(kind, &program).map(|version| (program, version))
}

fn query_program_version(kind: IndexKind, program: &Path) -> Result<ProgramVersion, EngineError> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|source| EngineError::Io { program: program.to_owned(), action: "start", source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `godwit-bwa 0.1.0 (bwa 0.7.17)`
    let EngineProgram { program: own_name, name, .. } = *engine_program(kind);
    let versions = text.trim().strip_prefix(own_name).and_then(|rest| rest.trim().split_once(&format!(" ({name} ")));
    match versions.and_then(|(godwit, rest)| Some((godwit, rest.strip_suffix(')')?))) {
        Some((godwit, engine)) => {
            Ok(ProgramVersion { godwit_version: godwit.to_owned(), engine_version: engine.to_owned() })
        }
        None => Err(EngineError::Protocol {
            program: program.to_owned(),
            problem: format!("asked for its version it said {:?}", text.lines().next().unwrap_or_default()),
            source: None,
        }),
    }
}

/// Returns the name of the program that links the library.
pub fn program_name(kind: IndexKind) -> &'static str {
    engine_program(kind).program
}

/// Returns the environment variable that names the program's path.
pub fn program_variable(kind: IndexKind) -> &'static str {
    engine_program(kind).variable
}

/// Writes the index files of a kind beside `reference`, the same bytes as `bwa index`. The program writes them to a
/// temporary directory beside the reference; complete files are renamed from there.
///
/// # Errors
/// [`EngineError::NotFound`] and [`EngineError::Usage`] for the program, [`EngineError::Exited`] if it cannot read the
/// reference or write the index, and [`EngineError::Io`] if the directory of the reference is not writable.
pub fn build_index(reference: &Path, kind: IndexKind, program_path: Option<&Path>) -> Result<(), EngineError> {
    let program = resolve_program(kind, program_path)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| EngineError::Io { program: path, action: "write to", source }
    };
    let directory = reference.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = TemporaryItem::create(|| tempfile::Builder::new().prefix(".godwit-index-").tempdir_in(directory));
    let temporary = temporary.map_err(failed(directory))?;
    let prefix = temporary.path().join("index");
    let mut command = Command::new(&program);
    command.arg("index").arg(reference).arg(&prefix);
    let started = child::start_piped(program, command)?;
    let handle = ChildHandle::new(started.state.clone());
    drop((started.stdin, started.stdout));
    handle.wait()?;
    // Without its first file an index does not count as one: that file is removed first and renamed last.
    let first = reference.with_added_extension(kind.extensions()[0]);
    match fs::remove_file(&first) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed(&first)(source)),
        _ => {}
    }
    for extension in kind.extensions().iter().rev() {
        let target = reference.with_added_extension(extension);
        let written = prefix.with_added_extension(extension);
        let synced = File::open(&written).and_then(|file| file.sync_all());
        synced.and_then(|()| fs::rename(&written, &target)).map_err(failed(&target))?;
    }
    Ok(())
}

/// Returns the path of the program: the environment variable's, else beside this executable, else on PATH.
///
/// # Errors
/// [`EngineError::NotFound`] if the program is in none of these places.
pub fn find_program(kind: IndexKind) -> Result<PathBuf, EngineError> {
    resolve_program(kind, None)
}

fn resolve_program(kind: IndexKind, given: Option<&Path>) -> Result<PathBuf, EngineError> {
    let EngineProgram { program, variable, .. } = *engine_program(kind);
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => Err(EngineError::NotFound { program, searched_paths: vec![path.to_owned()], variable }),
        None => locate_program(program, variable),
    }
}
