//! bwa mem 0.7.17 inside the program `godwit-bwa`, and bwa-mem3 0.15.0 inside `godwit-bwa-mem3`: the same options, the same
//! records.
//!
//! This file starts them; [`index_state`] tells whether their index is there and belongs to the reference,
//! [`build_index`] makes one.

mod comparison;
pub mod fm_index;
mod index;
mod layout;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_process::Temporary;

use super::{ChildHandle, Session};
use crate::EngineError;
use crate::child;
use crate::locate::locate;

pub use index::{IndexError, IndexState, StaleReason, index_layout, index_state};
pub use layout::IndexKind;

/// A program around one of the two libraries.
struct Engine {
    program: &'static str,
    /// Environment variable that names the program's path.
    variable: &'static str,
    name: &'static str,
    version: &'static str,
}

/// bwa 0.7.19 adds a tag to every line.
const BWA: Engine = Engine { program: "godwit-bwa", variable: "GODWIT_BWA", name: "bwa", version: "0.7.17" };
const BWA_MEM3: Engine =
    Engine { program: "godwit-bwa-mem3", variable: "GODWIT_BWA_MEM3", name: "bwa-mem3", version: "0.15.0" };

/// Name and version of bwa: every program of this module writes the records of this version.
pub const RECORDS: (&str, &str) = (BWA.name, BWA.version);

/// Environment variable that names the best instructions that `godwit-bwa-mem3` may use: `avx2` or `avx512bw`.
pub const INSTRUCTIONS_VARIABLE: &str = "GODWIT_BWA_MEM3_INSTRUCTIONS";
/// The library's own variable for the same limit.
const LIBRARY_INSTRUCTIONS_VARIABLE: &str = "BWAMEM3_FORCE_TIER";
/// Beginnings of the variables that change what the library does; none of the user's reaches it.
const LIBRARY_VARIABLES: [&str; 4] = ["BWAMEM3_", "BWA3_", "BWA_MEM3_", "BWA_INDEX_"];

/// Name of the library that the program for such an index links.
pub fn library_name(kind: IndexKind) -> &'static str {
    engine(kind).name
}

/// Version of the library that the program for such an index has to link.
pub fn library_version(kind: IndexKind) -> &'static str {
    engine(kind).version
}

fn engine(kind: IndexKind) -> &'static Engine {
    match kind {
        IndexKind::Bwa => &BWA,
        IndexKind::BwaMem3 => &BWA_MEM3,
    }
}

/// Returns the reason why this processor cannot run the program for such an index; `None` if it can.
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

/// Paths of the index files that the program for such an index holds in memory.
pub fn loaded_files(reference: &Path, kind: IndexKind) -> Vec<PathBuf> {
    kind.extensions().iter().map(|extension| reference.with_added_extension(extension)).collect()
}

/// Bytes of [`loaded_files`]; a file that does not exist counts as empty.
pub fn loaded_bytes(reference: &Path, kind: IndexKind) -> u64 {
    loaded_files(reference, kind).iter().map(|file| std::fs::metadata(file).map_or(0, |found| found.len())).sum()
}

/// How to run the aligner.
#[derive(Clone, Debug)]
pub struct BwaOptions {
    /// Which of the two.
    pub kind: IndexKind,
    /// Path of the program; `None`: `GODWIT_BWA` or `GODWIT_BWA_MEM3`, else beside this executable, else on PATH.
    pub program: Option<PathBuf>,
    /// The reference; its index lies beside it.
    pub reference: PathBuf,
    /// Threads that align, at least 1. Reading and writing take two more, which hardly work.
    pub threads: usize,
    /// Options of `bwa mem`, as `["-M", "-k", "19"]`. Those that godwit sets itself (`-t -K -p -R -H -o -f -v -1`) are
    /// refused.
    pub arguments: Vec<String>,
    /// Map the index files instead of reading them, so that the processes on one machine share the memory. One process
    /// alone is better off without: memory it reads into can use huge pages. bwa-mem3 cannot share.
    pub share_index: bool,
}

impl BwaOptions {
    /// Starts the aligner and waits until its index is loaded.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], and those of [`Session::start`].
    pub fn start(&self) -> Result<Session, EngineError> {
        let program = program(self.kind, self.program.as_deref())?;
        let mut command = Command::new(&program);
        command.arg("align").arg("--reference").arg(&self.reference);
        command.args(["--threads", &self.threads.to_string()]);
        if self.share_index {
            command.arg("--share-index");
        }
        command.arg("--").args(&self.arguments);
        set_library_variables(&mut command);
        Session::start(program, command, (engine(self.kind).name, engine(self.kind).version))
    }
}

/// Keeps the user's variables from the library, but for the instructions that it may use.
fn set_library_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if LIBRARY_VARIABLES.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    if let Some(instructions) = std::env::var_os(INSTRUCTIONS_VARIABLE) {
        command.env(LIBRARY_INSTRUCTIONS_VARIABLE, instructions);
    }
}

/// Whether the program is there, is the right one, and would take these options of `bwa mem`; no index is loaded.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::VersionMismatch`], [`EngineError::Usage`], [`EngineError::Io`] and
/// [`EngineError::Died`].
pub fn check_arguments(kind: IndexKind, arguments: &[String]) -> Result<(), EngineError> {
    let (program, found) = installed(kind)?;
    let engine = engine(kind);
    for (component, expected, found) in
        [("godwit", env!("CARGO_PKG_VERSION"), found.godwit), (engine.name, engine.version, found.engine)]
    {
        if expected != found {
            let expected = expected.to_owned();
            return Err(EngineError::VersionMismatch { program, component, expected, found });
        }
    }
    let mut command = Command::new(&program);
    command.args(["check", "--"]).args(arguments);
    let started = child::start(program, command)?;
    let handle = ChildHandle::new(started.state.clone());
    drop((started.stdin, started.stdout));
    handle.wait()
}

/// What a program says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramVersion {
    /// Version of godwit it belongs to.
    pub godwit: String,
    /// Version of the library inside.
    pub engine: String,
}

/// Path and version of the program that would be run.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::Protocol`] when it is another program.
pub fn installed(kind: IndexKind) -> Result<(PathBuf, ProgramVersion), EngineError> {
    let program = program(kind, None)?;
    version(kind, &program).map(|version| (program, version))
}

fn version(kind: IndexKind, program: &Path) -> Result<ProgramVersion, EngineError> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|source| EngineError::Io { program: program.to_owned(), action: "start", source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `godwit-bwa 0.1.0 (bwa 0.7.17)`
    let Engine { program: own_name, name, .. } = *engine(kind);
    let versions = text.trim().strip_prefix(own_name).and_then(|rest| rest.trim().split_once(&format!(" ({name} ")));
    match versions.and_then(|(godwit, rest)| Some((godwit, rest.strip_suffix(')')?))) {
        Some((godwit, engine)) => Ok(ProgramVersion { godwit: godwit.to_owned(), engine: engine.to_owned() }),
        None => Err(EngineError::Protocol {
            program: program.to_owned(),
            problem: format!("asked for its version it said {:?}", text.lines().next().unwrap_or_default()),
            source: None,
        }),
    }
}

/// Name of the program around a library.
pub fn program_name(kind: IndexKind) -> &'static str {
    engine(kind).program
}

/// Environment variable that names that program's path.
pub fn program_variable(kind: IndexKind) -> &'static str {
    engine(kind).variable
}

/// Writes the index files of a kind beside `reference`, the same bytes as `bwa index`. The program writes them to a temporary
/// directory beside the reference, from which whole files are renamed.
///
/// # Errors
/// [`EngineError::NotFound`] and [`EngineError::Usage`] for the program, [`EngineError::Died`] when it cannot read the reference or
/// write the index, and [`EngineError::Io`] when the directory of the reference cannot be written to.
pub fn build_index(reference: &Path, kind: IndexKind, program_path: Option<&Path>) -> Result<(), EngineError> {
    let program = program(kind, program_path)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| EngineError::Io { program: path, action: "write to", source }
    };
    let directory = reference.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = Temporary::create(|| tempfile::Builder::new().prefix(".godwit-index-").tempdir_in(directory));
    let temporary = temporary.map_err(failed(directory))?;
    let prefix = temporary.path().join("index");
    let mut command = Command::new(&program);
    command.arg("index").arg(reference).arg(&prefix);
    let started = child::start(program, command)?;
    let handle = ChildHandle::new(started.state.clone());
    drop((started.stdin, started.stdout));
    handle.wait()?;
    // An index without its first file is not an index: that file is removed first and renamed last.
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

/// Path of the program: the environment variable's, else beside this executable, else on PATH.
///
/// # Errors
/// [`EngineError::NotFound`].
pub fn find(kind: IndexKind) -> Result<PathBuf, EngineError> {
    program(kind, None)
}

fn program(kind: IndexKind, given: Option<&Path>) -> Result<PathBuf, EngineError> {
    let Engine { program, variable, .. } = *engine(kind);
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => Err(EngineError::NotFound { program, tried: vec![path.to_owned()], variable }),
        None => locate(program, variable),
    }
}
