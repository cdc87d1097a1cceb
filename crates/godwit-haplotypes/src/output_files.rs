//! The files of a comparison, named as vcfeval names them.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use godwit_formats::bgzf::Writer;

use crate::comparison_options::{HaplotypeOptions, OutputMode};
use crate::error::HaplotypeError;
use crate::output::{ContigOutput, VcfHeader, file_names, output_headers};
use crate::phasing::PhasingCounts;
use crate::report::ReportTexts;

const COMPRESSION_LEVEL: u8 = 6;

/// The VCF files while contigs are compared, and the directory of all files.
pub(crate) struct OutputFiles {
    directory: Option<PathBuf>,
    files: Vec<(PathBuf, Writer<File>)>,
    has_tables: bool,
}

impl OutputFiles {
    /// Creates the VCF files, and writes their headers. Without a directory, nothing is written.
    pub(crate) fn create(
        directory: Option<&Path>,
        options: &HaplotypeOptions,
        headers: [&VcfHeader; 2],
    ) -> Result<Self, HaplotypeError> {
        let names = file_names(options.output, options.has_allele_pass());
        let headers = output_headers(options.output, names.len(), headers);
        let mut files = Vec::new();
        for (name, header) in names.iter().zip(headers).filter(|_| directory.is_some()) {
            let path = directory.unwrap_or(Path::new("")).join(format!("{name}.gz"));
            let file = File::create(&path).map_err(write_error(&path))?;
            let mut writer = Writer::new(file, COMPRESSION_LEVEL);
            writer.write_bytes(header.as_bytes()).map_err(write_error(&path))?;
            files.push((path, writer));
        }
        let has_tables = options.output != OutputMode::Ga4gh;
        Ok(Self { directory: directory.map(Path::to_owned), files, has_tables })
    }

    /// Appends the records of a contig.
    pub(crate) fn append(&mut self, output: &ContigOutput) -> Result<(), HaplotypeError> {
        for ((path, writer), text) in self.files.iter_mut().zip(&output.files) {
            writer.write_bytes(text).map_err(write_error(path))?;
        }
        Ok(())
    }

    /// Completes the VCF files, and writes the tables.
    pub(crate) fn finish(self, texts: &ReportTexts) -> Result<(), HaplotypeError> {
        let Some(directory) = self.directory else { return Ok(()) };
        for (path, writer) in self.files {
            finish_file(writer).map_err(write_error(&path))?;
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
