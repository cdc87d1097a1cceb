//! The files of a comparison, named as vcfeval names them. Each VCF file has an index beside it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use godwit_formats::binning_index::TabixBuilder;
use godwit_formats::fasta::FaiRecord;
use godwit_formats::vcf::lines::Record;
use godwit_io::bgzf::Writer;
use godwit_model::{Contig, Genome};

use crate::comparison_options::{HaplotypeOptions, OutputMode};
use crate::error::HaplotypeError;
use crate::output::{SegmentOutput, VcfHeader, file_names, output_headers};
use crate::phasing::PhasingCounts;
use crate::report::ReportTexts;

const COMPRESSION_LEVEL: u8 = 6;

/// The VCF files while contigs are compared, and the directory of all files.
pub(crate) struct OutputFiles {
    directory: Option<PathBuf>,
    files: Vec<IndexedVcf>,
    has_tables: bool,
}

/// A VCF file and its index while they are written.
struct IndexedVcf {
    path: PathBuf,
    writer: Writer<File>,
    index: TabixBuilder,
}

impl OutputFiles {
    /// Creates the VCF files, and writes their headers. Without a directory, nothing is written. `contigs` are those of
    /// the reference.
    pub(crate) fn create(
        directory: Option<&Path>,
        options: &HaplotypeOptions,
        headers: [&VcfHeader; 2],
        contigs: &[FaiRecord],
    ) -> Result<Self, HaplotypeError> {
        let names = file_names(options.output, options.has_allele_pass());
        let headers = output_headers(options.output, names.len(), headers);
        let mut files = Vec::new();
        if let Some(directory) = directory {
            let genome = Genome::new(contigs.iter().map(model_contig).collect()).map_err(|error| {
                let problem = format!("{}: {error}", options.reference.display());
                HaplotypeError::Incomparable { problem }
            })?;
            for (name, header) in names.iter().zip(headers) {
                let path = directory.join(format!("{name}.gz"));
                files.push(IndexedVcf::create(path, &header, &genome)?);
            }
        }
        let has_tables = options.output != OutputMode::Ga4gh;
        Ok(Self { directory: directory.map(Path::to_owned), files, has_tables })
    }

    /// Appends the records of a segment.
    pub(crate) fn append(&mut self, contig: &FaiRecord, output: &SegmentOutput) -> Result<(), HaplotypeError> {
        let contig = model_contig(contig);
        self.files.iter_mut().zip(&output.files).try_for_each(|(file, text)| file.append(&contig, text))
    }

    /// Completes the VCF files, and writes the tables.
    pub(crate) fn finish(self, texts: &ReportTexts) -> Result<(), HaplotypeError> {
        let Some(directory) = self.directory else { return Ok(()) };
        self.files.into_iter().try_for_each(IndexedVcf::finish)?;
        if let Some(text) = &texts.summary_csv {
            write_text(&directory.join("summary.csv"), text)?;
        }
        if !self.has_tables {
            return Ok(());
        }
        write_text(&directory.join("summary.txt"), &texts.summary)?;
        write_text(&directory.join("phasing.txt"), &phasing_text(texts.phasing))?;
        for (name, text) in &texts.tables {
            let path = directory.join(format!("{name}.gz"));
            let write = || -> io::Result<()> {
                let mut writer = Writer::new(File::create(&path)?, COMPRESSION_LEVEL);
                writer.write_bytes(text.as_bytes())?;
                finish_file(writer)
            };
            write().map_err(write_error(&path))?;
        }
        Ok(())
    }
}

impl IndexedVcf {
    fn create(path: PathBuf, header: &str, genome: &Genome) -> Result<Self, HaplotypeError> {
        let file = File::create(&path).map_err(write_error(&path))?;
        let mut writer = Writer::new(file, COMPRESSION_LEVEL);
        writer.write_bytes(header.as_bytes()).map_err(write_error(&path))?;
        Ok(Self { path, writer, index: TabixBuilder::new(genome) })
    }

    /// Appends the lines of a contig, and adds them to the index.
    fn append(&mut self, contig: &Contig, text: &[u8]) -> Result<(), HaplotypeError> {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let offsets = self.writer.write_record(&[line]).map_err(write_error(&self.path))?;
            let (start, end) = line_interval(line, contig.length);
            self.index.push(contig, start, end, offsets).map_err(|error| {
                let position = format!("{}:{}", contig.name, i64::from(start) + 1);
                let problem = format!("cannot be indexed: {error}");
                HaplotypeError::Record { path: self.path.clone(), position, problem }
            })?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), HaplotypeError> {
        finish_file(self.writer).map_err(write_error(&self.path))?;
        let path = self.path.with_added_extension(self.index.extension());
        let write = || -> io::Result<()> {
            let file = File::create(&path)?;
            self.index.write(&file)?;
            file.sync_all()
        };
        write().map_err(write_error(&path))
    }
}

/// Returns the 0-based, half-open interval of a record for the index; its end is at most that of the contig. A record
/// with a column that is not valid VCF, but which the comparison does not use, has the interval of its position.
fn line_interval(line: &[u8], contig_bases: u32) -> (i32, i32) {
    let limit = |position: i64| i32::try_from(position).unwrap_or(i32::MAX);
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if let Some(record) = Record::from_line(line) {
        let start = limit(record.start);
        return (start, limit(record.end.min(i64::from(contig_bases))).max(start.saturating_add(1)));
    }
    let position = line.split(|byte| *byte == b'\t').nth(1).and_then(|text| str::from_utf8(text).ok());
    let start = position.and_then(|text| text.parse::<i64>().ok()).map_or(0, |pos_1based| limit(pos_1based - 1));
    (start, start.saturating_add(1))
}

fn model_contig(contig: &FaiRecord) -> Contig {
    let length = u32::try_from(contig.bases).unwrap_or(u32::MAX);
    Contig { name: contig.name.clone(), length, alternate: false }
}

/// Completes a file, and flushes it to disk.
fn finish_file(writer: Writer<File>) -> io::Result<()> {
    let (file, _) = writer.finish_file()?;
    file.sync_all()
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> HaplotypeError + use<> {
    let path = path.to_owned();
    move |source| HaplotypeError::Write { path, source }
}

fn write_text(path: &Path, text: &str) -> Result<(), HaplotypeError> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(write_error(path))
}

fn phasing_text(counts: PhasingCounts) -> String {
    let PhasingCounts { correct, incorrect, unresolvable } = counts;
    format!("Correct phasings: {correct}\nIncorrect phasings: {incorrect}\nUnresolvable phasings: {unresolvable}\n")
}
