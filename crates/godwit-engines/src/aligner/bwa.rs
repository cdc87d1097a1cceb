//! bwa mem 0.7.17 in the program `godwit-bwa`, and bwa-mem3 0.15.0 in the program `godwit-bwa-mem3`. Both accept the
//! same options and write the same records.
//!
//! This module starts the two programs. [`index_state`] checks that an index exists and belongs to the reference;
//! [`build_index`] builds an index.

mod comparison;
pub mod fm_index;
mod index_files;
mod index_validation;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_files::{parent_directory, rename_durably};
use godwit_process::TemporaryItem;

use super::{ChildHandle, PipeSession};
use crate::EngineError;
use crate::child;
use crate::program_lookup::locate_program;

pub use index_files::IndexKind;
pub use index_validation::{IndexError, IndexState, StaleReason, index_files_state, index_state};

/// One of godwit's aligner programs, and the aligner library that it links.
struct EngineProgram {
    program: &'static str,
    /// Name of the environment variable that contains the path of the program.
    variable: &'static str,
    name: &'static str,
    version: &'static str,
}

/// Version 0.7.17 and not a later one, because bwa 0.7.19 adds a tag to every SAM line.
const BWA: EngineProgram =
    EngineProgram { program: "godwit-bwa", variable: "GODWIT_BWA", name: "bwa", version: "0.7.17" };
const BWA_MEM3: EngineProgram =
    EngineProgram { program: "godwit-bwa-mem3", variable: "GODWIT_BWA_MEM3", name: "bwa-mem3", version: "0.15.0" };

/// Name and version of bwa. Every program of this module writes the same records as this version.
pub const BWA_NAME_AND_VERSION: (&str, &str) = (BWA.name, BWA.version);

/// Name of the environment variable that limits the instruction set of `godwit-bwa-mem3` to `avx2` or `avx512bw`.
pub const INSTRUCTIONS_VARIABLE: &str = "GODWIT_BWA_MEM3_INSTRUCTIONS";
/// Name of the environment variable by which bwa-mem3 itself limits its instruction set.
const LIBRARY_INSTRUCTIONS_VARIABLE: &str = "BWAMEM3_FORCE_TIER";
/// Prefixes of the environment variables that change the behaviour of bwa-mem3. The program does not inherit such
/// variables.
const LIBRARY_VARIABLE_PREFIXES: [&str; 4] = ["BWAMEM3_", "BWA3_", "BWA_MEM3_", "BWA_INDEX_"];

/// Returns the name of the aligner library in the program for this kind of index.
pub fn library_name(kind: IndexKind) -> &'static str {
    engine_program(kind).name
}

/// Returns the version of the aligner library that the program for this kind of index must contain.
pub fn library_version(kind: IndexKind) -> &'static str {
    engine_program(kind).version
}

fn engine_program(kind: IndexKind) -> &'static EngineProgram {
    match kind {
        IndexKind::Bwa => &BWA,
        IndexKind::BwaMem3 => &BWA_MEM3,
    }
}

/// Returns the reason why the processor of this machine cannot run the program for this kind of index; `None` if it
/// can.
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

/// Returns the paths of the index files that the program for this kind of index loads into memory.
pub fn loaded_files(reference: &Path, kind: IndexKind) -> Vec<PathBuf> {
    kind.extensions().iter().map(|extension| reference.with_added_extension(extension)).collect()
}

/// Returns the total size of the [`loaded_files`], bytes. A missing file counts as 0 bytes.
pub fn loaded_bytes(reference: &Path, kind: IndexKind) -> u64 {
    loaded_files(reference, kind).iter().map(|file| std::fs::metadata(file).map_or(0, |found| found.len())).sum()
}

/// Options for starting the aligner.
#[derive(Clone, Debug)]
pub struct BwaOptions {
    /// Kind of the index, which determines the program.
    pub kind: IndexKind,
    /// Path of the program; `None` for the first of: `GODWIT_BWA` or `GODWIT_BWA_MEM3`, the directory of this
    /// executable, PATH.
    pub program: Option<PathBuf>,
    /// Path of the reference, a FASTA file with the index files beside it.
    pub reference: PathBuf,
    /// Number of aligning threads, at least 1. Reading and writing use two more threads, which are mostly idle.
    pub threads: usize,
    /// Options of `bwa mem`, such as `["-M", "-k", "19"]`. The options that godwit sets itself (`-t -K -p -R -H -o -f
    /// -v -1`) are rejected.
    pub arguments: Vec<String>,
    /// True to memory-map the index files, so that all processes on one machine share the memory; otherwise the program
    /// reads them into memory. A single process is faster with reading, because that memory can use huge pages.
    /// bwa-mem3 does not support sharing.
    pub share_index: bool,
}

impl BwaOptions {
    /// Starts the aligner program and waits until it has loaded its index.
    ///
    /// # Errors
    /// [`EngineError::NotFound`] if there is no program, and the errors of [`PipeSession::start`].
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

/// Removes the variables of bwa-mem3 that the user set from the environment of `command`, except the limit on
/// instructions.
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

/// Checks that the program exists, has the right version, and accepts `arguments` as options of `bwa mem`. Does not
/// load an index.
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

/// The versions that an aligner program prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramVersion {
    /// Version of the godwit release that the program belongs to.
    pub godwit_version: String,
    /// Version of the aligner library that the program contains.
    pub engine_version: String,
}

/// Returns the path and the versions of the program that godwit would start for this kind of index.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::Protocol`] if the file is a different program.
pub fn find_program_version(kind: IndexKind) -> Result<(PathBuf, ProgramVersion), EngineError> {
    let program = resolve_program(kind, None)?;
    query_program_version(kind, &program).map(|version| (program, version))
}

fn query_program_version(kind: IndexKind, program: &Path) -> Result<ProgramVersion, EngineError> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|source| EngineError::Io { program: program.to_owned(), action: "start", source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Example of the output: `godwit-bwa 0.1.0 (bwa 0.7.17)`.
    let EngineProgram { program: own_name, name, .. } = *engine_program(kind);
    let versions = text.trim().strip_prefix(own_name).and_then(|rest| rest.trim().split_once(&format!(" ({name} ")));
    match versions.and_then(|(godwit, rest)| Some((godwit, rest.strip_suffix(')')?))) {
        Some((godwit, engine)) => {
            Ok(ProgramVersion { godwit_version: godwit.to_owned(), engine_version: engine.to_owned() })
        }
        None => Err(EngineError::Protocol {
            program: program.to_owned(),
            problem: format!("it printed {:?} for --version", text.lines().next().unwrap_or_default()),
            source: None,
        }),
    }
}

/// Returns the name of godwit's aligner program for this kind of index.
pub fn program_name(kind: IndexKind) -> &'static str {
    engine_program(kind).program
}

/// Returns the name of the environment variable that contains the path of the program for this kind of index.
pub fn program_variable(kind: IndexKind) -> &'static str {
    engine_program(kind).variable
}

/// Writes the index files of this kind beside `reference`; for bwa, they equal those of `bwa index` byte by byte. The
/// program writes them to a temporary directory beside the reference, from where godwit renames the complete files.
///
/// [`EngineError::NotFound`] or [`EngineError::Usage`] if the program is missing or rejects its arguments,
/// [`EngineError::Exited`] if the program cannot read the reference or write the index, and [`EngineError::Io`] if the
/// directory of the reference is not writable.
pub fn build_index(reference: &Path, kind: IndexKind, program_path: Option<&Path>) -> Result<(), EngineError> {
    let program = resolve_program(kind, program_path)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| EngineError::Io { program: path, action: "write to", source }
    };
    let directory = parent_directory(reference);
    let temporary = TemporaryItem::create(|| tempfile::Builder::new().prefix(".godwit-index-").tempdir_in(directory));
    let temporary = temporary.map_err(failed(directory))?;
    let prefix = temporary.path().join("index");
    let mut command = Command::new(&program);
    command.arg("index").arg(reference).arg(&prefix);
    let started = child::start_piped(program, command)?;
    let handle = ChildHandle::new(started.state.clone());
    drop((started.stdin, started.stdout));
    handle.wait()?;
    // An index without its first file counts as missing. That file is removed first and renamed last, so that no
    // mixture of old and new files counts as an index.
    let first = reference.with_added_extension(kind.extensions()[0]);
    match fs::remove_file(&first) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed(&first)(source)),
        _ => {}
    }
    for extension in kind.extensions().iter().rev() {
        let target = reference.with_added_extension(extension);
        let written = prefix.with_added_extension(extension);
        rename_durably(&written, &target).map_err(failed(&target))?;
    }
    Ok(())
}

/// Returns the path of the program: the path in the environment variable, else beside this executable, else on PATH.
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
