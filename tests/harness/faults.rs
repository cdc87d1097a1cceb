//! Runs of godwit whose n-th change to a file below a directory fails, or is its last.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::binary::Godwit;
use crate::scratch;
use crate::tool::{Tool, succeed};

/// What happens at the n-th call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Half of the bytes are written, then the process gets SIGKILL.
    Kill,
    /// The call fails with EIO.
    Error,
    /// This write and all later ones fail with ENOSPC.
    FullDisk,
}

impl Fault {
    fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Error => "eio",
            Self::FullDisk => "enospc",
        }
    }
}

/// The library to preload, compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/faults/faults.c");
        let library = scratch::directory("faults").join("faults.so");
        let mut command = Tool::need("cc").command();
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        succeed(&mut command);
        library
    })
}

/// A run that meets `fault` at its `at`th change to a file below `directory`.
pub fn with_fault(run: Godwit, directory: &Path, fault: Fault, at: u64) -> Godwit {
    let run = run.env("LD_PRELOAD", library()).env("FAULT_BELOW", directory);
    run.env("FAULT_KIND", fault.word()).env("FAULT_AT", at.to_string())
}

/// What [`with_fault`] sets, as words for `env` in a shell's command line.
pub fn environment(directory: &Path, fault: Fault, at: u64) -> String {
    let (library, directory, kind) = (library().display(), directory.display(), fault.word());
    format!("env LD_PRELOAD={library} FAULT_BELOW={directory} FAULT_KIND={kind} FAULT_AT={at}")
}

/// Runs to the end and returns how many changes to files below `directory` there were.
///
/// # Panics
/// When the run fails.
pub fn count_changes(run: Godwit, directory: &Path) -> u64 {
    let count = scratch::directory("count").join("calls");
    let run = run.env("LD_PRELOAD", library()).env("FAULT_BELOW", directory).env("FAULT_COUNT", &count);
    run.succeeds();
    let text = std::fs::read_to_string(&count).expect("the library wrote the number of calls");
    text.trim().parse().expect("it is a number")
}
