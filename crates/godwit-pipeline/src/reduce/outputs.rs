//! What a run writes, and the files in the making.

use std::path::{Path, PathBuf};

use godwit_cram as cram;
use godwit_formats::columnar::ColumnLayout;
use godwit_formats::crypt4gh::PublicKey;
use godwit_formats::fasta::Windows;
use godwit_formats::sam::Header;

use super::qc;
use crate::error::PipelineError;
use crate::manifest;
use crate::staging::{StagedDirectory, StagedFile, aside_name, check_available, replaced_name};

/// What the directory for files of a step has behind the stem of the outputs.
const STEP: &str = ".step";

/// A format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// One BAM file with its index.
    Bam,
    /// One CRAM file with its index; takes a reference.
    Cram,
    /// A directory of Parquet files, one per partition.
    Parquet,
    /// A directory of Arrow IPC files, one per partition.
    Arrow,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bam, Self::Cram, Self::Parquet, Self::Arrow];

    /// The file name's ending, without the dot.
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
    /// What `.bam`, `.flagstat.txt` and all the others are put behind.
    pub stem: PathBuf,
    /// Formats of the records, at least one.
    pub formats: Vec<Format>,
    /// The reference that CRAM needs, FASTA.
    pub reference: Option<PathBuf>,
    /// Whether a step may put files of its own beside them.
    pub step: bool,
    /// Who may read BAM and CRAM; they are not encrypted where there is nobody.
    pub recipients: Vec<PublicKey>,
}

/// Files and directories that lack their names and their contents.
pub struct Opened {
    pub(super) bam: Option<StagedFile>,
    pub(super) cram: Option<StagedFile>,
    pub(super) parquet: Option<StagedDirectory>,
    pub(super) arrow: Option<StagedDirectory>,
    /// Where a step puts files of its own.
    pub(super) step: Option<StagedDirectory>,
    pub(super) encoder: Option<cram::Encoder>,
    pub(super) columns: Option<ColumnLayout>,
    /// The bases that metrics compare with.
    pub(super) reference: Option<Windows>,
}

impl Opened {
    /// Whether there is a BAM and nothing else.
    pub(super) fn is_bam_alone(&self) -> bool {
        let others = [&self.parquet, &self.arrow, &self.step];
        self.bam.is_some() && self.cram.is_none() && others.iter().all(|directory| directory.is_none())
    }

    /// Prepares what depends on the header, so that a reference that does not fit is known before there is anything to
    /// write. Must be called before writing. `compared`: the reference that metrics compare bases with.
    ///
    /// # Errors
    /// [`PipelineError::Options`] where CRAM is wanted and no reference was given, or that of metrics lacks contigs of the
    /// header; [`PipelineError::Cram`] where it does not fit; [`PipelineError::Fasta`]; [`PipelineError::Columns`].
    pub fn prepare(
        &mut self,
        outputs: &Outputs,
        header: &Header,
        compared: Option<&Path>,
        scratch: &Path,
    ) -> Result<(), PipelineError> {
        let genome = header.genome().map_err(|source| PipelineError::Header { origin: "the output".into(), source })?;
        self.reference = compared.map(|path| qc::open_reference(path, &genome)).transpose()?;
        self.encoder = outputs.cram_encoder(header, scratch)?;
        self.columns = outputs.columns(header)?;
        Ok(())
    }
}

impl Outputs {
    /// The stem followed by a suffix.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// The file or directory of a format.
    pub fn path(&self, format: Format) -> PathBuf {
        self.beside(&format!(".{}", format.extension()))
    }

    /// Files and directories of all formats, in the order of [`Format`].
    pub fn paths(&self) -> Vec<PathBuf> {
        let written = Format::ALL.into_iter().filter(|format| self.formats.contains(format));
        written.map(|format| self.path(format)).collect()
    }

    /// The directory for files of a step.
    fn of_step(&self) -> PathBuf {
        self.beside(STEP)
    }

    /// What all files and directories may be called while they lie aside.
    pub(crate) fn aside_names(&self) -> Vec<String> {
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
            STEP,
        ];
        let beside = bam.iter().map(|suffix| self.beside(suffix)).chain(self.texts());
        let reports = ["run.json", "report.html"].map(|name| self.stem.with_file_name(name));
        let directories = [self.path(Format::Parquet), self.path(Format::Arrow), self.of_step()];
        let replaced = directories.map(|path| replaced_name(&path));
        beside.chain(reports).map(|path| aside_name(&path)).chain(replaced).collect()
    }

    /// Small files of text beside the records.
    fn texts(&self) -> impl Iterator<Item = PathBuf> {
        let texts = [".flagstat.txt", ".idxstats.txt", ".duplicates.txt", manifest::SUFFIX];
        texts.into_iter().chain(qc::SUFFIXES).map(|suffix| self.beside(suffix))
    }

    /// Checks that files can have the names of all outputs, indexes and `reports`, without writing: most of them are written
    /// when all work is done.
    ///
    /// # Errors
    /// [`PipelineError::File`] where a directory has a name of a file, or another run writes it.
    pub(crate) fn check_names(&self, reports: &[PathBuf]) -> Result<(), PipelineError> {
        let files = [Format::Bam, Format::Cram].into_iter().filter(|format| self.formats.contains(format));
        let indexes = [".bam.bai", ".bam.csi", ".cram.crai"].map(|suffix| self.beside(suffix));
        let names = files.map(|format| self.path(format)).chain(indexes).chain(self.texts());
        for path in names.chain(reports.iter().cloned()) {
            check_available(&path).map_err(PipelineError::file("write", &path))?;
        }
        Ok(())
    }

    /// The comment in a metrics file that says whose numbers these are and of which file: MultiQC takes the name of the
    /// sample from it.
    pub(crate) fn picard_comment(&self, tool: &str) -> String {
        let path = self.path(Format::Bam);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // MultiQC would take a part of the name for the whole.
        let input = if name.contains(char::is_whitespace) { String::new() } else { format!(" --INPUT {name}") };
        format!("godwit {}, the numbers of Picard {tool}{input}", env!("CARGO_PKG_VERSION"))
    }

    /// Makes the files and directories, so that what cannot be written is known before there is anything to write. Where
    /// BAM is the only format and it is to be `kept`, it stays aside for a later process to go on with.
    ///
    /// # Errors
    /// [`PipelineError::File`].
    pub fn open(&self, kept: bool) -> Result<Opened, PipelineError> {
        let kept = kept && !self.step && self.formats.iter().all(|format| *format == Format::Bam);
        let stage = if kept { StagedFile::keep } else { StagedFile::create };
        let wanted = |format| self.formats.contains(&format).then(|| self.path(format));
        let file = |format| {
            let path = wanted(format);
            path.map(|path| stage(&path).map_err(PipelineError::file("write", &path))).transpose()
        };
        let directory = |path: Option<PathBuf>| {
            path.map(|path| StagedDirectory::create(&path).map_err(PipelineError::file("write", &path))).transpose()
        };
        Ok(Opened {
            bam: file(Format::Bam)?,
            cram: file(Format::Cram)?,
            parquet: directory(wanted(Format::Parquet))?,
            arrow: directory(wanted(Format::Arrow))?,
            step: directory(self.step.then(|| self.of_step()))?,
            encoder: None,
            columns: None,
            reference: None,
        })
    }

    /// What encodes CRAM under this header, where it is wanted: the reference is read and compared with the header.
    fn cram_encoder(&self, header: &Header, scratch: &Path) -> Result<Option<cram::Encoder>, PipelineError> {
        if !self.formats.contains(&Format::Cram) {
            return Ok(None);
        }
        self.check_reference()?;
        let Some(reference) = &self.reference else { return Ok(None) };
        let reference = cram::Reference::open(reference, scratch).map_err(PipelineError::Cram)?;
        cram::Encoder::new(header, &reference, scratch).map(Some).map_err(PipelineError::Cram)
    }

    /// Refuses to encrypt what is no single file.
    ///
    /// # Errors
    /// [`PipelineError::Options`].
    pub(crate) fn check_recipients(&self) -> Result<(), PipelineError> {
        let tables = self.formats.iter().any(|format| matches!(format, Format::Parquet | Format::Arrow));
        if !self.recipients.is_empty() && (tables || self.step) {
            let problem = "--c4gh-recipient encrypts BAM and CRAM; leave parquet, arrow and --step out".into();
            return Err(PipelineError::Options { problem });
        }
        Ok(())
    }

    /// The files that are encrypted where somebody is to read them.
    pub(crate) fn to_encrypt(&self) -> Vec<PathBuf> {
        [Format::Bam, Format::Cram].map(|format| self.path(format)).into()
    }

    /// Refuses CRAM without a reference.
    ///
    /// # Errors
    /// [`PipelineError::Options`].
    pub(crate) fn check_reference(&self) -> Result<(), PipelineError> {
        if self.formats.contains(&Format::Cram) && self.reference.is_none() {
            let problem = "CRAM holds differences to the reference; pass --reference REF.fa, or write BAM".into();
            return Err(PipelineError::Options { problem });
        }
        Ok(())
    }

    /// The columns under this header, where a format with columns is wanted.
    fn columns(&self, header: &Header) -> Result<Option<ColumnLayout>, PipelineError> {
        let wanted = self.formats.contains(&Format::Parquet) || self.formats.contains(&Format::Arrow);
        wanted.then(|| ColumnLayout::new(header)).transpose().map_err(PipelineError::Columns)
    }
}
