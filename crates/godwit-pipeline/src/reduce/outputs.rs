//! The outputs of a job: their names, and the files before they have them.

use std::path::{Path, PathBuf};

use godwit_cram as cram;
use godwit_formats::columnar::AlignmentLayout;
use godwit_formats::crypt4gh::PublicKey;
use godwit_formats::fasta::IndexedReader;
use godwit_formats::sam::Header;

use super::qc;
use crate::atomic_files::{AtomicDirectory, AtomicFile, backup_name, check_available, temporary_name};
use crate::error::PipelineError;
use crate::manifest;

/// Suffix of the directory for files of a Python step, after the stem of the outputs.
const STEP_DIRECTORY_SUFFIX: &str = ".step";

/// A format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// One BAM file with its index.
    Bam,
    /// One CRAM file with its index; needs a reference.
    Cram,
    /// A directory of Parquet files, one per partition.
    Parquet,
    /// A directory of Arrow IPC files, one per partition.
    Arrow,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Bam, Self::Cram, Self::Parquet, Self::Arrow];

    /// Returns the file name extension, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Bam => "bam",
            Self::Cram => "cram",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }
}

/// Names of the outputs, all in one directory.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Path to which `.bam`, `.flagstat.txt` and all other suffixes are appended.
    pub stem: PathBuf,
    /// Formats of the records, at least one.
    pub formats: Vec<Format>,
    /// The reference that CRAM needs, FASTA.
    pub reference: Option<PathBuf>,
    /// True if a Python step may write files of its own beside the outputs.
    pub has_step_directory: bool,
    /// Public keys of those who may read BAM and CRAM; the files are not encrypted if this is empty.
    pub recipients: Vec<PublicKey>,
}

/// Output files and directories that are still empty and do not have their names yet.
pub struct OutputFiles {
    pub(super) bam: Option<AtomicFile>,
    pub(super) cram: Option<AtomicFile>,
    pub(super) parquet: Option<AtomicDirectory>,
    pub(super) arrow: Option<AtomicDirectory>,
    /// Directory for files that a Python step writes itself.
    pub(super) step_directory: Option<AtomicDirectory>,
    pub(super) cram_encoder: Option<cram::Encoder>,
    pub(super) column_layout: Option<AlignmentLayout>,
    /// The reference that metrics compare bases with.
    pub(super) reference: Option<IndexedReader>,
}

impl OutputFiles {
    /// Reports whether there is a BAM and no other output.
    pub(super) fn is_bam_alone(&self) -> bool {
        let others = [&self.parquet, &self.arrow, &self.step_directory];
        self.bam.is_some() && self.cram.is_none() && others.iter().all(|directory| directory.is_none())
    }

    /// Prepares what depends on the header, so that a reference that does not match is reported before anything is written.
    /// Must be called before writing. `compared`: the reference that metrics compare bases with.
    ///
    /// # Errors
    /// [`PipelineError::Options`] where CRAM is requested without a reference, or the reference of metrics lacks contigs of
    /// the header; [`PipelineError::Cram`] where it does not match; [`PipelineError::Fasta`]; [`PipelineError::Columns`].
    pub fn prepare(
        &mut self,
        outputs: &Outputs,
        header: &Header,
        compared: Option<&Path>,
        scratch: &Path,
    ) -> Result<(), PipelineError> {
        let genome = header.genome().map_err(|source| PipelineError::Header { origin: "the output".into(), source })?;
        self.reference = compared.map(|path| qc::open_reference(path, &genome)).transpose()?;
        self.cram_encoder = outputs.cram_encoder(header, scratch)?;
        self.column_layout = outputs.column_layout(header)?;
        Ok(())
    }
}

impl Outputs {
    /// Returns the stem followed by a suffix.
    pub(crate) fn path_with_suffix(&self, suffix: &str) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// Returns the file or directory of a format.
    pub fn path(&self, format: Format) -> PathBuf {
        self.path_with_suffix(&format!(".{}", format.extension()))
    }

    /// Returns files and directories of all formats, in the order of [`Format`].
    pub fn paths(&self) -> Vec<PathBuf> {
        let written = Format::ALL.into_iter().filter(|format| self.formats.contains(format));
        written.map(|format| self.path(format)).collect()
    }

    /// Returns the directory for files of a Python step.
    fn step_directory(&self) -> PathBuf {
        self.path_with_suffix(STEP_DIRECTORY_SUFFIX)
    }

    /// Returns the temporary names of all files and directories.
    pub(crate) fn temporary_names(&self) -> Vec<String> {
        let bam = [
            ".bam",
            ".bam.bai",
            ".bam.csi",
            ".cram",
            ".cram.crai",
            ".parquet",
            ".arrow",
            ".bam.c4gh",
            ".cram.c4gh",
            STEP_DIRECTORY_SUFFIX,
        ];
        let beside = bam.iter().map(|suffix| self.path_with_suffix(suffix)).chain(self.text_paths());
        let reports = ["run.json", "report.html"].map(|name| self.stem.with_file_name(name));
        let directories = [self.path(Format::Parquet), self.path(Format::Arrow), self.step_directory()];
        let replaced = directories.map(|path| backup_name(&path));
        beside.chain(reports).map(|path| temporary_name(&path)).chain(replaced).collect()
    }

    /// Returns the text files beside the records.
    fn text_paths(&self) -> impl Iterator<Item = PathBuf> {
        let texts = [".flagstat.txt", ".idxstats.txt", ".duplicates.txt", manifest::MANIFEST_SUFFIX];
        texts.into_iter().chain(qc::METRICS_SUFFIXES).map(|suffix| self.path_with_suffix(suffix))
    }

    /// Checks that files can have the names of all outputs, indexes and `reports`, without writing: most of them are written
    /// at the end of the job.
    ///
    /// # Errors
    /// [`PipelineError::File`] where a directory has the name of a file, or another process writes it.
    pub(crate) fn check_names(&self, reports: &[PathBuf]) -> Result<(), PipelineError> {
        let files = [Format::Bam, Format::Cram].into_iter().filter(|format| self.formats.contains(format));
        let indexes = [".bam.bai", ".bam.csi", ".cram.crai"].map(|suffix| self.path_with_suffix(suffix));
        let names = files.map(|format| self.path(format)).chain(indexes).chain(self.text_paths());
        for path in names.chain(reports.iter().cloned()) {
            check_available(&path).map_err(PipelineError::file("write", &path))?;
        }
        Ok(())
    }

    /// Returns the comment in a metrics file that names the origin of the numbers and the file they are of: MultiQC takes
    /// the name of the sample from it.
    pub(crate) fn picard_comment(&self, tool: &str) -> String {
        let path = self.path(Format::Bam);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // MultiQC would read only a part of the name.
        let input = if name.contains(char::is_whitespace) { String::new() } else { format!(" --INPUT {name}") };
        format!("godwit {}, the numbers of Picard {tool}{input}", env!("CARGO_PKG_VERSION"))
    }

    /// Creates the files and directories, so that an unwritable path is reported before there is anything to write. Where
    /// BAM is the only format and `kept` is set, its temporary file stays for a later process to resume.
    ///
    /// # Errors
    /// [`PipelineError::File`] if one cannot be created.
    pub fn create_files(&self, kept: bool) -> Result<OutputFiles, PipelineError> {
        let kept = kept && !self.has_step_directory && self.formats.iter().all(|format| *format == Format::Bam);
        let stage = if kept { AtomicFile::open_resumable } else { AtomicFile::create };
        let wanted = |format| self.formats.contains(&format).then(|| self.path(format));
        let file = |format| {
            let path = wanted(format);
            path.map(|path| stage(&path).map_err(PipelineError::file("write", &path))).transpose()
        };
        let directory = |path: Option<PathBuf>| {
            path.map(|path| AtomicDirectory::create(&path).map_err(PipelineError::file("write", &path))).transpose()
        };
        Ok(OutputFiles {
            bam: file(Format::Bam)?,
            cram: file(Format::Cram)?,
            parquet: directory(wanted(Format::Parquet))?,
            arrow: directory(wanted(Format::Arrow))?,
            step_directory: directory(self.has_step_directory.then(|| self.step_directory()))?,
            cram_encoder: None,
            column_layout: None,
            reference: None,
        })
    }

    /// Returns the CRAM encoder where CRAM is requested: reads the reference and compares it with the header.
    fn cram_encoder(&self, header: &Header, scratch: &Path) -> Result<Option<cram::Encoder>, PipelineError> {
        if !self.formats.contains(&Format::Cram) {
            return Ok(None);
        }
        self.check_reference()?;
        let Some(reference) = &self.reference else { return Ok(None) };
        let reference = cram::Reference::open(reference, scratch).map_err(PipelineError::Cram)?;
        cram::Encoder::new(header, &reference, scratch).map(Some).map_err(PipelineError::Cram)
    }

    /// Rejects encryption of outputs that are not single files.
    ///
    /// # Errors
    /// [`PipelineError::Options`] for recipients with a directory among the outputs.
    pub(crate) fn check_recipients(&self) -> Result<(), PipelineError> {
        let tables = self.formats.iter().any(|format| matches!(format, Format::Parquet | Format::Arrow));
        if !self.recipients.is_empty() && (tables || self.has_step_directory) {
            let problem = "--c4gh-recipient encrypts BAM and CRAM; leave parquet, arrow and --step out".into();
            return Err(PipelineError::Options { problem });
        }
        Ok(())
    }

    /// Returns the files that are encrypted if there are recipients.
    pub(crate) fn encryptable_paths(&self) -> Vec<PathBuf> {
        [Format::Bam, Format::Cram].map(|format| self.path(format)).into()
    }

    /// Rejects CRAM without a reference.
    ///
    /// # Errors
    /// [`PipelineError::Options`] for CRAM without a reference.
    pub(crate) fn check_reference(&self) -> Result<(), PipelineError> {
        if self.formats.contains(&Format::Cram) && self.reference.is_none() {
            let problem = "CRAM holds differences to the reference; pass --reference REF.fa, or write BAM".into();
            return Err(PipelineError::Options { problem });
        }
        Ok(())
    }

    /// Returns the columns of this header, where a format with columns is requested.
    fn column_layout(&self, header: &Header) -> Result<Option<AlignmentLayout>, PipelineError> {
        let wanted = self.formats.contains(&Format::Parquet) || self.formats.contains(&Format::Arrow);
        wanted.then(|| AlignmentLayout::new(header)).transpose().map_err(PipelineError::Columns)
    }
}
