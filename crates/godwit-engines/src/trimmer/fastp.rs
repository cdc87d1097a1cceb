//! fastp as a child process that reads the FASTQ files of a lane and writes the trimmed reads to pipes.
//!
//! fastp opens the input files itself, and it reads them twice, because it first detects adapters. The output is FASTQ
//! in input order, through one pipe per mate. A single pipe for both mates would not keep the order: with several
//! threads, `--stdout` of fastp 0.23.2 reorders groups of pairs. This module does not validate the input, and fastp
//! validates little of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child;
use crate::program_lookup::{locate_program, query_required_version};
use crate::refused_options::is_given_by;
use crate::{ChildHandle, EngineError};

/// Name of the program.
pub const PROGRAM: &str = "fastp";
/// Environment variable that names the program's path.
pub const PROGRAM_VARIABLE: &str = "GODWIT_FASTP";
/// Instructions for installing fastp.
pub const REMEDY: &str = "install fastp 0.23 or later (Debian and Ubuntu: apt-get install fastp; bioconda: fastp)";
/// The oldest supported version, as major and minor version: the first one that keeps the input order.
const MIN_VERSION: [u32; 2] = [0, 23];
/// Maximum number of threads of fastp. For a higher number, fastp prints a warning and uses 16.
const MAX_THREADS: usize = 16;

/// Options that the user cannot pass to fastp: they set inputs, outputs or threads, or they drop reads silently. godwit
/// sets these options itself, or they would change which reads it receives.
const REFUSED_OPTIONS: [&str; 37] = [
    "--in1",
    "--in2",
    "--out1",
    "--out2",
    "--unpaired1",
    "--unpaired2",
    "--overlapped_out",
    "--failed_out",
    "--merge",
    "--merged_out",
    "--include_unmerged",
    "--stdin",
    "--stdout",
    "--interleaved_in",
    "--reads_to_process",
    "--dont_overwrite",
    "--json",
    "--html",
    "--thread",
    "--split",
    "--split_by_lines",
    "--split_prefix_digits",
    "--help",
    "--version",
    "-i",
    "-I",
    "-o",
    "-O",
    "-m",
    "-j",
    "-h",
    "-w",
    "-s",
    "-S",
    "-d",
    "-?",
    "-v",
];

/// The inputs and options for trimming the reads of a lane.
#[derive(Clone, Debug)]
pub struct FastpOptions {
    /// Path of fastp; `None` for the first of: the path in `GODWIT_FASTP`, the directory of this executable, PATH.
    pub program: Option<PathBuf>,
    /// Paths of the FASTQ files: one file, or the files of read 1 and read 2.
    pub files: Vec<PathBuf>,
    /// True if `files` is one file in which the mates of a pair alternate.
    pub interleaved: bool,
    /// Number of threads of fastp, which does not affect the output.
    pub threads: usize,
    /// Options of the user for fastp. Check them with [`first_refused_argument`] before.
    pub arguments: Vec<String>,
    /// Path of the JSON report that fastp writes.
    pub json_report: PathBuf,
    /// Path of the HTML report that fastp writes.
    pub html_report: PathBuf,
}

/// A running fastp process.
pub struct FastpProcess {
    /// Pipes from which the trimmed FASTQ is read: one pipe, or those of read 1 and read 2. They end when fastp exits.
    pub outputs: Vec<File>,
    /// Handle that can wait for fastp or kill it.
    pub child: ChildHandle,
}

/// Returns the version of the fastp that godwit would start.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::VersionMismatch`] if the program is too old or
/// prints no version.
pub fn query_version(program: Option<&Path>) -> Result<String, EngineError> {
    query_required_version(&find_program(program)?, PROGRAM, MIN_VERSION)
}

/// Returns the first argument that the user cannot pass to fastp; `None` if all are accepted.
pub fn first_refused_argument(arguments: &[String]) -> Option<&str> {
    let refused = |word: &&String| REFUSED_OPTIONS.iter().any(|option| is_given_by(option, word));
    arguments.iter().find(refused).map(String::as_str)
}

impl FastpOptions {
    /// Starts fastp.
    ///
    /// # Errors
    /// The errors of [`query_version`].
    pub fn start(&self) -> Result<FastpProcess, EngineError> {
        let version = query_version(self.program.as_deref())?;
        let program = find_program(self.program.as_deref())?;
        let mut command = Command::new(&program);
        for (option, file) in ["--in1", "--in2"].iter().zip(&self.files) {
            command.arg(option).arg(file);
        }
        if self.interleaved {
            command.arg("--interleaved_in");
        }
        let mates = if self.interleaved { 2 } else { self.files.len() };
        let pipes = child::create_output_pipes(&mut command, mates);
        let pipes = pipes.map_err(|source| EngineError::Io { program: program.clone(), action: "start", source })?;
        let mut outputs = Vec::new();
        for (option, (output, path)) in ["--out1", "--out2"].iter().zip(pipes) {
            command.arg(option).arg(path);
            outputs.push(output);
        }
        command.arg("--json").arg(&self.json_report).arg("--html").arg(&self.html_report);
        command.args(["--thread", &self.threads.clamp(1, MAX_THREADS).to_string()]).args(&self.arguments);
        let started = child::start_piped(program, command)?;
        started.state.set_version(&version);
        Ok(FastpProcess { outputs, child: ChildHandle::new(started.state) })
    }
}

fn find_program(program_path: Option<&Path>) -> Result<PathBuf, EngineError> {
    match program_path {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => Err(EngineError::NotFound {
            program: PROGRAM,
            searched_paths: vec![path.to_owned()],
            variable: PROGRAM_VARIABLE,
        }),
        None => locate_program(PROGRAM, PROGRAM_VARIABLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_keep_the_order_are_taken() {
        for (version, recent) in
            [("0.23.2", true), ("0.24.0", true), ("1.0.1", true), ("0.22.0", false), ("0.9", false), ("x", false)]
        {
            assert_eq!(crate::is_version_at_least(version, MIN_VERSION), recent, "{version}");
        }
    }

    #[test]
    fn options_about_files_are_refused_however_they_are_written() {
        let first = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            first_refused_argument(&words).map(str::to_owned)
        };
        for word in ["--out1=x", "--json", "-ox", "-i", "--merge", "--reads_to_process=5", "-w8"] {
            assert_eq!(first(&format!("-q 20 {word}")).as_deref(), Some(word));
        }
        assert_eq!(first("-q 20 -l 36 --detect_adapter_for_pe --cut_tail --umi --umi_loc=read1 -g"), None);
    }
}
