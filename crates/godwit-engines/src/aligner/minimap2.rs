//! minimap2 as an external program, with `-ax sr` for short reads and its other presets for unpaired long reads.
//!
//! minimap2 aligns each template independently of the others. It does not estimate insert sizes, it breaks ties by a
//! hash of the read name, and the index determines the seed frequency limit. So records do not depend on block borders.
//! The tests verify this with the program itself.

mod mmi_index;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_files::AtomicFile;

use super::BlockDependence;
use super::sam_program::{AlignerInvocation, install_remedy};
use super::template::{LaneValues, escape_tabs};
use crate::program_lookup::{find_program, query_program_version};
use crate::refused_options::{RefusedOption, find_refused};
use crate::{ChildHandle, EngineError, check_version, child};
use godwit_model::Genome;

/// Name of the minimap2 program on PATH.
pub const PROGRAM: &str = "minimap2";
/// The oldest supported version, as major and minor version.
const MIN_VERSION: [u32; 2] = [2, 24];
/// The default value of `-x`, the preset for short reads.
const SHORT_READ_PRESET: &str = "sr";
/// Options that the user cannot pass, because godwit sets them or the index contains them, each with the reason.
const REFUSED_OPTIONS: [RefusedOption; 11] = [
    ("-a", "godwit always requests SAM"),
    ("-t", "threads are set by --threads"),
    ("-o", "the output is set by --out"),
    ("-d", "godwit index builds the index"),
    ("-R", "the read group is set by --read-group"),
    ("-k", "the preset -x sets this parameter of the index"),
    ("-w", "the preset -x sets this parameter of the index"),
    ("-H", "the preset -x sets this parameter of the index"),
    ("-I", "godwit supports only an index in one part"),
    ("--split-prefix", "godwit supports only an index in one part"),
    ("--sam-hit-only", "godwit needs a record for every read"),
];

/// An installed minimap2 with the options that the user passes to it.
#[derive(Clone, Debug)]
pub struct Minimap2 {
    program: PathBuf,
    version: String,
    preset: String,
    /// Options of the user besides the preset.
    arguments: Vec<String>,
}

impl Minimap2 {
    /// Finds minimap2 and parses the options of the user, such as `["-x", "map-ont", "--MD"]`.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], and [`EngineError::Arguments`] for a rejected
    /// option.
    pub fn find_installed(arguments: &[String]) -> Result<Self, EngineError> {
        let (preset, arguments) = split_preset(arguments)?;
        let program = find_program(PROGRAM, install_remedy(PROGRAM))?;
        let version = query_program_version(&program, &["--version"]).unwrap_or_default();
        check_version(&program, PROGRAM, &version, MIN_VERSION)?;
        Ok(Self { program, version, preset, arguments })
    }

    /// Returns the version of minimap2.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the command line that the SAM header contains, with only those options that change records.
    pub fn command_line(&self) -> String {
        let mut line = format!("minimap2 -a -x {}", self.preset);
        for argument in &self.arguments {
            line.push(' ');
            line += argument;
        }
        line
    }

    /// Returns the path of the minimap2 index beside a reference.
    pub fn index_path(reference: &Path) -> PathBuf {
        reference.with_added_extension("mmi")
    }

    /// Returns the contigs of `reference`. The minimap2 index beside it must be complete and built from this reference
    /// with this preset.
    ///
    /// # Errors
    /// [`EngineError::MissingIndex`], [`EngineError::WrongIndex`], [`EngineError::Reference`], and
    /// [`EngineError::Arguments`] if minimap2 does not know the preset.
    pub fn check_index(&self, reference: &Path) -> Result<Genome, EngineError> {
        let path = Self::index_path(reference);
        let parameters = self.query_preset_parameters()?;
        let preset = if self.preset == SHORT_READ_PRESET {
            String::new()
        } else {
            format!(" --aligner-args '-x {}'", self.preset)
        };
        let remedy = format!("run `godwit index {} --aligner minimap2{preset}`", reference.display());
        if !path.is_file() {
            return Err(EngineError::MissingIndex { path, remedy });
        }
        mmi_index::check_index(&path, reference, parameters, &self.preset, remedy)
    }

    /// Builds the index beside a reference. An existing index is replaced only by a complete one.
    ///
    /// # Errors
    /// [`EngineError::Io`] and [`EngineError::Exited`].
    pub fn build_index(&self, reference: &Path, threads: usize) -> Result<(), EngineError> {
        let path = Self::index_path(reference);
        let failed = |source| EngineError::Io { program: path.clone(), action: "write", source };
        let index = AtomicFile::create_unique(&path, 0o666).map_err(failed)?;
        let mut command = Command::new(&self.program);
        command
            .args(["-x", &self.preset, "-I", "1000G", "-t", &threads.to_string(), "-d"])
            .arg(index.temporary_path())
            .arg(reference);
        let started = child::start_piped(self.program.clone(), command)?;
        started.state.set_version(&self.version);
        let handle = ChildHandle::new(started.state.clone());
        drop((started.stdin, started.stdout));
        handle.wait()?;
        index.commit().map_err(failed)
    }

    /// Returns the index parameters of the preset. minimap2 has no option that prints them, so it builds an index of a
    /// few bases.
    fn query_preset_parameters(&self) -> Result<mmi_index::IndexParameters, EngineError> {
        let failed = |source| EngineError::Io { program: self.program.clone(), action: "start", source };
        let mut command = Command::new(&self.program);
        command.args(["-x", &self.preset, "-d", "/dev/stdout", "-"]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // Ignore the error: minimap2 may already have rejected the preset and exited.
            let _ = std::io::Write::write_all(&mut stdin, b">a\nACGTTGCATGTCGCATGATGCATGAGAGCT\n");
        }
        let output = child.wait_with_output().map_err(failed)?;
        mmi_index::IndexParameters::read(&output.stdout).ok_or_else(|| {
            let stderr_text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            EngineError::Arguments { message: format!("minimap2 rejects -x {}: {stderr_text}", self.preset) }
        })
    }

    /// Returns the command line that aligns the reads of a lane.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] if the reads are paired and the preset is for long reads.
    pub fn invocation(&self, lane: &LaneValues) -> Result<AlignerInvocation, EngineError> {
        if lane.paired && !self.preset.ends_with(SHORT_READ_PRESET) {
            let preset = &self.preset;
            let message = format!("minimap2's preset {preset} is for single reads; give one file for each lane");
            return Err(EngineError::Arguments { message });
        }
        let threads = lane.threads.to_string();
        let read_group = escape_tabs(lane.read_group);
        let mut arguments: Vec<String> =
            ["-a", "-x", &self.preset, "-t", &threads, "-R", &read_group].map(str::to_owned).into();
        arguments.extend(self.arguments.iter().cloned());
        arguments.push(Self::index_path(lane.reference).display().to_string());
        arguments.push("-".into());
        let program = self.program.clone();
        Ok(AlignerInvocation { program, arguments, two_inputs: false, block_dependence: BlockDependence::Independent })
    }
}

/// Splits the options of the user into the preset and the other options. Rejects options that godwit sets itself.
fn split_preset(arguments: &[String]) -> Result<(String, Vec<String>), EngineError> {
    let wrong = |message| EngineError::Arguments { message };
    let (mut preset, mut others) = (SHORT_READ_PRESET.to_owned(), Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if let Some((option, instead)) = find_refused(word, &[&REFUSED_OPTIONS]) {
            return Err(wrong(format!("godwit does not accept the minimap2 option {option}: {instead}")));
        }
        match word.strip_prefix("-x") {
            Some("") => {
                let value = words.next();
                preset = value.ok_or_else(|| wrong("the minimap2 option -x needs a value".into()))?.clone();
            }
            Some(value) => preset = value.to_owned(),
            None => others.push(word.clone()),
        }
    }
    Ok((preset, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, Vec<String>), EngineError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        split_preset(&words)
    }

    #[test]
    fn the_preset_is_taken_out_of_the_options() {
        assert_eq!(read("").unwrap(), ("sr".into(), vec![]));
        assert_eq!(
            read("--MD -x map-ont -N 3").unwrap(),
            ("map-ont".into(), ["--MD", "-N", "3"].map(String::from).into())
        );
        assert_eq!(read("-xmap-hifi").unwrap().0, "map-hifi");
    }

    #[test]
    fn options_that_are_not_the_users_are_refused() {
        for line in ["-ax sr", "-t4", "-k 19", "-I 4G", "--split-prefix=x", "--sam-hit-only", "-x"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
