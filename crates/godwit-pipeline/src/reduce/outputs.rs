//! The output files of a job: their names, and the temporary files before they are published.

use std::path::{Path, PathBuf};

use godwit_columnar::AlignmentLayout;
use godwit_cram as cram;
use godwit_files::{AtomicDirectory, AtomicFile, backup_name, check_available, temporary_name};
use godwit_formats::fasta::IndexedReader;
use godwit_formats::sam::Header;
use godwit_io::crypt4gh::PublicKey;

use super::picard::{PicardInputs, PicardMetricsRequest};
use super::qc;
use super::recalibration::REPORT_SUFFIX;
use crate::error::PipelineError;
use crate::manifest;

/// Suffix of the directory for files of a Python function. It is appended to the stem of the outputs.
const STEP_DIRECTORY_SUFFIX: &str = ".step";

/// A format in which records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// A BAM file with its index.
    Bam,
    /// A CRAM file with its index. Needs a reference.
    Cram,
    /// A directory with a Parquet file for each partition.
    Parquet,
    /// A directory with an Arrow IPC file for each partition.
    Arrow,
}

impl Format {
    /// All formats, in the order in which outputs are listed.
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

/// Paths and formats of the outputs of a job, all in one directory.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Common path of all outputs, to which `.bam`, `.flagstat.txt` and other suffixes are appended.
    pub stem: PathBuf,
    /// Formats in which records are written; at least one.
    pub formats: Vec<Format>,
    /// Path of the reference in FASTA, which CRAM needs.
    pub reference: Option<PathBuf>,
    /// True if a Python step may write additional files.
    pub has_step_directory: bool,
    /// Public keys of the recipients of encrypted BAM and CRAM; empty: the files are not encrypted.
    pub recipients: Vec<PublicKey>,
}

/// The output files and directories of a job. They are empty and have temporary names.
pub struct OutputFiles {
    pub(super) bam: Option<AtomicFile>,
    pub(super) cram: Option<AtomicFile>,
    pub(super) parquet: Option<AtomicDirectory>,
    pub(super) arrow: Option<AtomicDirectory>,
    /// Directory for files that the Python function writes.
    pub(super) step_directory: Option<AtomicDirectory>,
    pub(super) cram_encoder: Option<cram::Encoder>,
    pub(super) column_layout: Option<AlignmentLayout>,
    /// The reference with which the bases of reads are compared for the metrics.
    pub(super) reference: Option<IndexedReader>,
    /// The inputs of Picard's metrics; `None` if they are not requested.
    pub(super) picard: Option<PicardInputs>,
}

impl OutputFiles {
    /// Reports whether BAM is the only output.
    pub(super) fn is_bam_alone(&self) -> bool {
        let others = [&self.parquet, &self.arrow, &self.step_directory];
        self.bam.is_some() && self.cram.is_none() && others.iter().all(|directory| directory.is_none())
    }

    /// Opens the references and creates the encoders, so that a reference that does not match the header is reported
    /// before the first output is written. `compared`: the reference with which bases are compared for the metrics.
    /// `picard`: the requested metrics of Picard.
    ///
    /// # Errors
    /// [`PipelineError::Metrics`] if the metrics of Picard lack interval lists or read groups.
    /// [`PipelineError::Options`] if CRAM is requested without a reference, or if the reference of the metrics lacks
    /// contigs of the header. [`PipelineError::Cram`] if the reference does not match the header.
    /// [`PipelineError::Fasta`] or [`PipelineError::Columns`] if the reference or the header cannot be used.
    pub fn prepare(
        &mut self,
        outputs: &Outputs,
        header: &Header,
        (compared, picard): (Option<&Path>, Option<&PicardMetricsRequest>),
        scratch: &Path,
    ) -> Result<(), PipelineError> {
        let genome = header.genome().map_err(|source| PipelineError::Header { origin: "the output".into(), source })?;
        self.reference = compared.map(|path| qc::open_reference(path, &genome)).transpose()?;
        self.picard = PicardInputs::open_for_job(picard, compared, header)?;
        self.cram_encoder = outputs.cram_encoder(header, scratch)?;
        self.column_layout = outputs.column_layout(header)?;
        Ok(())
    }
}

impl Outputs {
    /// Returns the path of the output with this suffix.
    pub fn path_with_suffix(&self, suffix: &str) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// Returns the path of the file or directory in this format.
    pub fn path(&self, format: Format) -> PathBuf {
        self.path_with_suffix(&format!(".{}", format.extension()))
    }

    /// Returns the paths of the files and directories in all requested formats, in the order of [`Format`].
    pub fn paths(&self) -> Vec<PathBuf> {
        let written = Format::ALL.into_iter().filter(|format| self.formats.contains(format));
        written.map(|format| self.path(format)).collect()
    }

    /// Returns the path of the directory for files of a Python function.
    fn step_directory(&self) -> PathBuf {
        self.path_with_suffix(STEP_DIRECTORY_SUFFIX)
    }

    /// Returns the temporary names of all files and directories that a job may write.
    pub fn temporary_names(&self) -> Vec<String> {
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

    /// Returns the paths of the text outputs, such as counts and metrics.
    fn text_paths(&self) -> impl Iterator<Item = PathBuf> {
        let texts = [".flagstat.txt", ".idxstats.txt", ".duplicates.txt", REPORT_SUFFIX, manifest::MANIFEST_SUFFIX];
        texts.into_iter().chain(qc::metrics_suffixes()).map(|suffix| self.path_with_suffix(suffix))
    }

    /// Checks that all outputs, indexes and `reports` can be created under their names. Writes no files. Without this
    /// check, a job might fail at its end, when most of them are written.
    ///
    /// # Errors
    /// [`PipelineError::File`] if a directory has the name of an output file, or if another process is writing the
    /// file.
    pub fn check_names(&self, reports: &[PathBuf]) -> Result<(), PipelineError> {
        let files = [Format::Bam, Format::Cram].into_iter().filter(|format| self.formats.contains(format));
        let indexes = [".bam.bai", ".bam.csi", ".cram.crai"].map(|suffix| self.path_with_suffix(suffix));
        let names = files.map(|format| self.path(format)).chain(indexes).chain(self.text_paths());
        for path in names.chain(reports.iter().cloned()) {
            check_available(&path).map_err(PipelineError::file("write", &path))?;
        }
        Ok(())
    }

    /// Returns a comment line for metrics files: the godwit version, the equivalent Picard tool, and the name of the
    /// BAM. MultiQC derives the name of the sample from the name of the BAM.
    pub(crate) fn picard_comment(&self, tool: &str) -> String {
        let path = self.path(Format::Bam);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // MultiQC would read only the first word of a name that contains spaces, so omit such a name.
        let input = if name.contains(char::is_whitespace) { String::new() } else { format!(" --INPUT {name}") };
        format!("godwit {}, the numbers of Picard {tool}{input}", env!("CARGO_PKG_VERSION"))
    }

    /// Creates the output files and directories, so that an unwritable path is reported at the start of the job. If BAM
    /// is the only output and `kept` is set, its temporary file is kept for a later process, which resumes the job.
    ///
    /// # Errors
    /// [`PipelineError::File`] if a file or directory cannot be created.
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
            picard: None,
        })
    }

    /// Returns the CRAM encoder; `None` if CRAM is not requested. Reads the reference and compares it with the header.
    fn cram_encoder(&self, header: &Header, scratch: &Path) -> Result<Option<cram::Encoder>, PipelineError> {
        if !self.formats.contains(&Format::Cram) {
            return Ok(None);
        }
        self.check_reference()?;
        let Some(reference) = &self.reference else { return Ok(None) };
        let reference = cram::Reference::open(reference, scratch).map_err(PipelineError::Cram)?;
        cram::Encoder::new(header, &reference, scratch).map(Some).map_err(PipelineError::Cram)
    }

    /// Rejects encryption if an output is a directory.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if recipients are given and an output is a directory.
    pub fn check_recipients(&self) -> Result<(), PipelineError> {
        let tables = self.formats.iter().any(|format| matches!(format, Format::Parquet | Format::Arrow));
        if !self.recipients.is_empty() && (tables || self.has_step_directory) {
            let problem = "--c4gh-recipient encrypts only BAM and CRAM; remove parquet and arrow from --format, and \
                           omit --step"
                .into();
            return Err(PipelineError::Options { problem });
        }
        Ok(())
    }

    /// Returns the paths of the outputs that are encrypted if recipients are given.
    pub(crate) fn encryptable_paths(&self) -> Vec<PathBuf> {
        [Format::Bam, Format::Cram].map(|format| self.path(format)).into()
    }

    /// Checks that a reference is given if CRAM is requested.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if CRAM is requested without a reference.
    pub fn check_reference(&self) -> Result<(), PipelineError> {
        if self.formats.contains(&Format::Cram) && self.reference.is_none() {
            let problem = "CRAM holds differences to the reference; pass --reference REF.fa, or write BAM".into();
            return Err(PipelineError::Options { problem });
        }
        Ok(())
    }

    /// Returns the column layout for this header; `None` if neither Parquet nor Arrow is requested.
    fn column_layout(&self, header: &Header) -> Result<Option<AlignmentLayout>, PipelineError> {
        let wanted = self.formats.contains(&Format::Parquet) || self.formats.contains(&Format::Arrow);
        wanted.then(|| AlignmentLayout::new(header)).transpose().map_err(PipelineError::Columns)
    }
}
