//! bwa mem 0.7.17, inside the program `godwit-bwa`.
//!
//! This file starts it; [`index_state`] tells whether its index is there and belongs to the reference, [`build_index`]
//! makes one.

mod comparison;
mod index;
mod layout;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ChildHandle, Session};
use crate::EngineError;
use crate::child;
use crate::locate::locate;

pub use index::{IndexError, IndexState, StaleReason, index_layout, index_state};
pub use layout::INDEX_EXTENSIONS;

/// Name of the program.
pub const PROGRAM: &str = "godwit-bwa";
/// Environment variable that names the program's path.
pub const PROGRAM_VARIABLE: &str = "GODWIT_BWA";
/// The version of bwa whose output is reproduced; 0.7.19 adds a tag to every line.
pub const BWA_VERSION: &str = "0.7.17";

/// How to run the aligner.
#[derive(Clone, Debug)]
pub struct BwaOptions {
    /// Path of the program; `None`: `GODWIT_BWA`, else beside this executable, else on PATH.
    pub program: Option<PathBuf>,
    /// The reference; its index lies beside it.
    pub reference: PathBuf,
    /// Threads that align, at least 1. Reading and writing take two more, which hardly work.
    pub threads: usize,
    /// Options of `bwa mem`, as `["-M", "-k", "19"]`. Those that godwit sets itself (`-t -K -p -R -H -o -f -v -1`) are
    /// refused.
    pub arguments: Vec<String>,
    /// Map the index files instead of reading them, so that the processes on one machine share the memory. One process
    /// alone is better off without: memory it reads into can use huge pages.
    pub share_index: bool,
}

impl BwaOptions {
    /// Starts the aligner and waits until its index is loaded.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], and those of [`Session::start`].
    pub fn start(&self) -> Result<Session, EngineError> {
        let program = program(self.program.as_deref())?;
        let mut command = Command::new(&program);
        command.arg("align").arg("--reference").arg(&self.reference);
        command.args(["--threads", &self.threads.to_string()]);
        if self.share_index {
            command.arg("--share-index");
        }
        command.arg("--").args(&self.arguments);
        Session::start(program, command, ("bwa", BWA_VERSION))
    }
}

/// Whether the program is there, is the right one, and would take these options of `bwa mem`; no index is loaded.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::VersionMismatch`], [`EngineError::Usage`], [`EngineError::Io`] and
/// [`EngineError::Died`].
pub fn check_arguments(arguments: &[String]) -> Result<(), EngineError> {
    let program = program(None)?;
    let found = version(&program)?;
    for (component, expected, found) in
        [("godwit", env!("CARGO_PKG_VERSION"), found.godwit), ("bwa", BWA_VERSION, found.engine)]
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
    /// Version of bwa inside.
    pub engine: String,
}

/// Path and version of the program that would be run.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::Protocol`] when it is another program.
pub fn installed() -> Result<(PathBuf, ProgramVersion), EngineError> {
    let program = program(None)?;
    version(&program).map(|version| (program, version))
}

fn version(program: &Path) -> Result<ProgramVersion, EngineError> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|source| EngineError::Io { program: program.to_owned(), action: "start", source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `godwit-bwa 0.1.0 (bwa 0.7.17)`
    let versions = text.trim().strip_prefix(PROGRAM).and_then(|rest| rest.trim().split_once(" (bwa "));
    match versions.and_then(|(godwit, rest)| Some((godwit, rest.strip_suffix(')')?))) {
        Some((godwit, engine)) => Ok(ProgramVersion { godwit: godwit.to_owned(), engine: engine.to_owned() }),
        None => Err(EngineError::Protocol {
            program: program.to_owned(),
            problem: format!("asked for its version it said {:?}", text.lines().next().unwrap_or_default()),
            source: None,
        }),
    }
}

/// Makes the five index files beside `reference`, byte for byte those of `bwa index`. Nothing half-made is left in
/// place of a file.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::Io`], [`EngineError::Usage`] and [`EngineError::Died`].
pub fn build_index(reference: &Path, program_path: Option<&Path>) -> Result<(), EngineError> {
    let program = program(program_path)?;
    let mut command = Command::new(&program);
    command.arg("index").arg(reference);
    let started = child::start(program, command)?;
    let handle = ChildHandle::new(started.state.clone());
    drop((started.stdin, started.stdout));
    handle.wait()
}

fn program(given: Option<&Path>) -> Result<PathBuf, EngineError> {
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => {
            Err(EngineError::NotFound { program: PROGRAM, tried: vec![path.to_owned()], variable: PROGRAM_VARIABLE })
        }
        None => locate(PROGRAM, PROGRAM_VARIABLE),
    }
}
