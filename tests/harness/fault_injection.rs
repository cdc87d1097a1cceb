//! Injection of file system faults: the n-th change to a file below a directory fails, or kills the process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::binary::GodwitCommand;
use crate::scratch;
use crate::tool::{Tool, run_checked};

/// The fault that occurs at the n-th change to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call writes half of the bytes, then the process gets SIGKILL.
    Kill,
    /// The call fails with EIO.
    Error,
    /// This write and all later ones fail with ENOSPC.
    FullDisk,
}

impl Fault {
    fn env_value(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Error => "eio",
            Self::FullDisk => "enospc",
        }
    }
}

/// Returns the library to preload, compiled once.
fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/faults/faults.c");
        let library = scratch::directory("faults").join("faults.so");
        let mut command = Tool::require("cc").command();
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        run_checked(&mut command);
        library
    })
}

/// Makes `fault` occur in a command at its `at`th change to a file below `directory`.
pub fn inject_fault(run: GodwitCommand, directory: &Path, fault: Fault, at: u64) -> GodwitCommand {
    let run = run.env("LD_PRELOAD", preload_library()).env("FAULT_BELOW", directory);
    run.env("FAULT_KIND", fault.env_value()).env("FAULT_AT", at.to_string())
}

/// Returns the variables that [`inject_fault`] sets, as arguments of `env` in a shell's command line.
pub fn fault_environment(directory: &Path, fault: Fault, at: u64) -> String {
    let (library, directory, kind) = (preload_library().display(), directory.display(), fault.env_value());
    format!("env LD_PRELOAD={library} FAULT_BELOW={directory} FAULT_KIND={kind} FAULT_AT={at}")
}

/// Runs a command until it exits, and returns how many changes it made to files below `directory`.
///
/// # Panics
/// When the run fails.
pub fn count_file_changes(run: GodwitCommand, directory: &Path) -> u64 {
    let count = scratch::directory("count").join("calls");
    let run = run.env("LD_PRELOAD", preload_library()).env("FAULT_BELOW", directory).env("FAULT_COUNT", &count);
    run.run_ok();
    let text = std::fs::read_to_string(&count).expect("the library wrote the number of calls");
    text.trim().parse().expect("it is a number")
}
