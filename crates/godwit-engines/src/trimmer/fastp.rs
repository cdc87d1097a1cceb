//! fastp, as a child that reads the files of a lane and writes what is left of them into pipes.
//!
//! Flows in: paths of files, which fastp opens itself, twice: it looks for adapters first. Flows out: a pipe for each
//! mate, with FASTQ in the order of the input. That order needs one output per mate: `--stdout` of fastp 0.23.2 mixes up
//! chunks of pairs with more than one thread. Whether what goes in is sound is not judged here, and hardly by fastp.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::child;
use crate::locate::locate;
use crate::{ChildHandle, EngineError};

/// Name of the program.
pub const PROGRAM: &str = "fastp";
/// Environment variable that names the program's path.
pub const PROGRAM_VARIABLE: &str = "GODWIT_FASTP";
/// The oldest version whose output has the order of its input, as major and minor.
const OLDEST: [u32; 2] = [0, 23];
/// Most threads that fastp takes; it lowers more to this with a warning.
const MAX_THREADS: usize = 16;

/// Options that say where reads come from or go to, or leave some out unseen: those are set here, or would break what
/// the lane is read as.
const REFUSED_LONG: [&str; 24] = [
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
];
/// The short forms of those.
const REFUSED_SHORT: &[u8] = b"iIoOmjhwsSd?v";

/// How to trim a lane.
#[derive(Clone, Debug)]
pub struct FastpOptions {
    /// Path of the program; `None`: `GODWIT_FASTP`, else beside this executable, else on PATH.
    pub program: Option<PathBuf>,
    /// One file, or read 1 and read 2.
    pub files: Vec<PathBuf>,
    /// The one file has both mates.
    pub interleaved: bool,
    /// Threads; they change nothing but time.
    pub threads: usize,
    /// Further words, checked by [`check_arguments`].
    pub arguments: Vec<String>,
    /// Where the report goes, as JSON.
    pub json: PathBuf,
    /// And as a page.
    pub html: PathBuf,
}

/// A fastp at work.
pub struct Fastp {
    /// One pipe, or those of read 1 and read 2. They end when the program does.
    pub outputs: Vec<File>,
    /// The program.
    pub child: ChildHandle,
}

/// The version of the program that would be run.
///
/// # Errors
/// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::VersionMismatch`] for one that is too old or says
/// no version.
pub fn version(program: Option<&Path>) -> Result<String, EngineError> {
    let program = find(program)?;
    let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|source| EngineError::Io { program: program.clone(), action: "start", source })?;
    // It says so on stderr.
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let found = said.lines().find_map(|line| line.trim().strip_prefix("fastp ")).unwrap_or("an unknown version");
    if is_recent(found) {
        return Ok(found.to_owned());
    }
    let expected = format!("{}.{} or later", OLDEST[0], OLDEST[1]);
    Err(EngineError::VersionMismatch { program, component: "fastp", expected, found: found.to_owned() })
}

fn is_recent(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => [major, minor] >= OLDEST,
        _ => false,
    }
}

/// The first word that cannot be passed to fastp here.
pub fn check_arguments(arguments: &[String]) -> Option<&str> {
    let refused = |word: &&String| match word.strip_prefix("--") {
        Some(_) => REFUSED_LONG.contains(&word.split('=').next().unwrap_or_default()),
        None => matches!(word.as_bytes(), [b'-', letter, ..] if REFUSED_SHORT.contains(letter)),
    };
    arguments.iter().find(refused).map(String::as_str)
}

impl FastpOptions {
    /// Starts the program.
    ///
    /// # Errors
    /// Those of [`version`].
    pub fn start(&self) -> Result<Fastp, EngineError> {
        let version = version(self.program.as_deref())?;
        let program = find(self.program.as_deref())?;
        let mut command = Command::new(&program);
        for (option, file) in ["--in1", "--in2"].iter().zip(&self.files) {
            command.arg(option).arg(file);
        }
        if self.interleaved {
            command.arg("--interleaved_in");
        }
        let mates = if self.interleaved { 2 } else { self.files.len() };
        let pipes = child::output_pipes(&mut command, mates);
        let pipes = pipes.map_err(|source| EngineError::Io { program: program.clone(), action: "start", source })?;
        let mut outputs = Vec::new();
        for (option, (output, path)) in ["--out1", "--out2"].iter().zip(pipes) {
            command.arg(option).arg(path);
            outputs.push(output);
        }
        command.arg("--json").arg(&self.json).arg("--html").arg(&self.html);
        command.args(["--thread", &self.threads.clamp(1, MAX_THREADS).to_string()]).args(&self.arguments);
        let started = child::start(program, command)?;
        started.state.set_version(&version);
        Ok(Fastp { outputs, child: ChildHandle::new(started.state) })
    }
}

fn find(given: Option<&Path>) -> Result<PathBuf, EngineError> {
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => {
            Err(EngineError::NotFound { program: PROGRAM, tried: vec![path.to_owned()], variable: PROGRAM_VARIABLE })
        }
        None => locate(PROGRAM, PROGRAM_VARIABLE),
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
            assert_eq!(is_recent(version), recent, "{version}");
        }
    }

    #[test]
    fn options_about_files_are_refused_however_they_are_written() {
        let first = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            check_arguments(&words).map(str::to_owned)
        };
        for word in ["--out1=x", "--json", "-ox", "-i", "--merge", "--reads_to_process=5", "-w8"] {
            assert_eq!(first(&format!("-q 20 {word}")).as_deref(), Some(word));
        }
        assert_eq!(first("-q 20 -l 36 --detect_adapter_for_pe --cut_tail --umi --umi_loc=read1 -g"), None);
    }
}
