//! minimap2, the program: `-ax sr` for short reads, its other presets for single long ones.
//!
//! Each template is aligned by itself: insert sizes are not estimated, ties are broken by a hash of the name, and what is
//! computed from data (how many hits make a seed too frequent) comes from the index. So records do not depend on where the
//! reads are cut, which the tests show on the program itself.

mod index;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Identity;
use super::foreign::{Invocation, find_program, version_of};
use super::template::{LaneValues, escaped};
use crate::{ChildHandle, EngineError, child};
use godwit_model::Genome;

/// Name of the program.
pub const PROGRAM: &str = "minimap2";
/// The oldest version it is tested with.
const OLDEST: [u32; 2] = [2, 24];
/// The preset where none is given.
const SHORT_READS: &str = "sr";
/// Options that godwit sets itself or that belong to the index, and why.
const REFUSED: [(&str, &str); 11] = [
    ("-a", "SAM is always asked for"),
    ("-t", "threads are set by --threads"),
    ("-o", "the output is set by --out"),
    ("-d", "the index is made by godwit index"),
    ("-R", "the read group is set by --read-group"),
    ("-k", "it belongs to the index, whose parameters are the preset's"),
    ("-w", "it belongs to the index, whose parameters are the preset's"),
    ("-H", "it belongs to the index, whose parameters are the preset's"),
    ("-I", "the index is always made in one part"),
    ("--split-prefix", "the index is always made in one part"),
    ("--sam-hit-only", "godwit needs a record for every read"),
];

/// minimap2, found, with its options.
#[derive(Clone, Debug)]
pub struct Minimap2 {
    program: PathBuf,
    version: String,
    preset: String,
    /// Options beside the preset.
    arguments: Vec<String>,
}

impl Minimap2 {
    /// Finds the program and reads its options, as `["-x", "map-ont", "--MD"]`.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find(arguments: &[String]) -> Result<Self, EngineError> {
        let (preset, arguments) = options(arguments)?;
        let program = find_program(PROGRAM, crate::survey::remedy(PROGRAM))?;
        let version = version_of(&program).unwrap_or_default();
        let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        if [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] < OLDEST {
            let expected = format!("{}.{} or later", OLDEST[0], OLDEST[1]);
            return Err(EngineError::VersionMismatch { program, component: PROGRAM, expected, found: version });
        }
        Ok(Self { program, version, preset, arguments })
    }

    /// Version of the program.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The command line as a header shows it: what changes records.
    pub fn command_line(&self) -> String {
        let mut line = format!("minimap2 -a -x {}", self.preset);
        for argument in &self.arguments {
            line.push(' ');
            line += argument;
        }
        line
    }

    /// Where the index of a reference lies.
    pub fn index_path(reference: &Path) -> PathBuf {
        reference.with_added_extension("mmi")
    }

    /// The contigs of a reference whose index is there, whole, made from it and for this preset.
    ///
    /// # Errors
    /// [`EngineError::MissingIndex`], [`EngineError::WrongIndex`], [`EngineError::Reference`], [`EngineError::Arguments`]
    /// for a preset minimap2 does not know.
    pub fn check_index(&self, reference: &Path) -> Result<Genome, EngineError> {
        let path = Self::index_path(reference);
        let parameters = self.preset_parameters()?;
        let preset =
            if self.preset == SHORT_READS { String::new() } else { format!(" --aligner-args '-x {}'", self.preset) };
        let remedy = format!("run `godwit index {} --aligner minimap2{preset}`", reference.display());
        if !path.is_file() {
            return Err(EngineError::MissingIndex { path, remedy });
        }
        index::check(&path, reference, parameters, &self.preset, remedy)
    }

    /// Makes the index of a reference; nothing half-made is left in place of it.
    ///
    /// # Errors
    /// [`EngineError::Io`] and [`EngineError::Died`].
    pub fn build_index(&self, reference: &Path, threads: usize) -> Result<(), EngineError> {
        let path = Self::index_path(reference);
        let aside = path.with_added_extension(format!("{}.part", std::process::id()));
        let _temporary = godwit_process::TemporaryPath::new(&aside);
        let mut command = Command::new(&self.program);
        command.args(["-x", &self.preset, "-I", "1000G", "-t", &threads.to_string(), "-d"]).arg(&aside).arg(reference);
        let started = child::start(self.program.clone(), command)?;
        started.state.set_version(&self.version);
        let handle = ChildHandle::new(started.state.clone());
        drop((started.stdin, started.stdout));
        let failed = |source| EngineError::Io { program: path.clone(), action: "write", source };
        let made = handle.wait().and_then(|()| {
            let file = std::fs::File::open(&aside).map_err(failed)?;
            file.sync_all().and_then(|()| std::fs::rename(&aside, &path)).map_err(failed)
        });
        if made.is_err() {
            // It may not have come to be.
            let _ = std::fs::remove_file(&aside);
        }
        made
    }

    /// What the program says the preset's index is like, from the index of a few bases.
    fn preset_parameters(&self) -> Result<index::Parameters, EngineError> {
        let failed = |source| EngineError::Io { program: self.program.clone(), action: "start", source };
        let mut command = Command::new(&self.program);
        command.args(["-x", &self.preset, "-d", "/dev/stdout", "-"]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // It may have refused the preset already.
            let _ = std::io::Write::write_all(&mut stdin, b">a\nACGTTGCATGTCGCATGATGCATGAGAGCT\n");
        }
        let output = child.wait_with_output().map_err(failed)?;
        index::Parameters::read(&output.stdout).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            EngineError::Arguments { message: format!("minimap2 does not take -x {}: {said}", self.preset) }
        })
    }

    /// The command line for a lane.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for pairs with a preset for long reads.
    pub fn invocation(&self, lane: &LaneValues) -> Result<Invocation, EngineError> {
        if lane.paired && !self.preset.ends_with(SHORT_READS) {
            let preset = &self.preset;
            let message = format!("minimap2's preset {preset} takes single reads; give one file for each lane");
            return Err(EngineError::Arguments { message });
        }
        let threads = lane.threads.to_string();
        let read_group = escaped(lane.read_group);
        let mut arguments: Vec<String> =
            ["-a", "-x", &self.preset, "-t", &threads, "-R", &read_group].map(str::to_owned).into();
        arguments.extend(self.arguments.iter().cloned());
        arguments.push(Self::index_path(lane.reference).display().to_string());
        arguments.push("-".into());
        let program = self.program.clone();
        Ok(Invocation { program, arguments, two_inputs: false, identity: Identity::AcrossBlocks })
    }
}

/// Takes the preset out of the options and refuses what godwit sets itself.
fn options(arguments: &[String]) -> Result<(String, Vec<String>), EngineError> {
    let wrong = |message| EngineError::Arguments { message };
    let (mut preset, mut others) = (SHORT_READS.to_owned(), Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let long = word.starts_with("--");
        let refused = REFUSED.iter().find(|(option, _)| {
            if long {
                word.split('=').next() == Some(option)
            } else {
                !option.starts_with("--") && word.starts_with(option)
            }
        });
        if let Some((option, instead)) = refused {
            return Err(wrong(format!("minimap2 option {option} cannot be passed on: {instead}")));
        }
        match word.strip_prefix("-x") {
            Some("") => {
                let value = words.next();
                preset = value.ok_or_else(|| wrong("minimap2 option -x needs a value".into()))?.clone();
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
        options(&words)
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
