//! One file out of all regions: one header, the records in order, one index.

use std::collections::HashSet;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use godwit_formats::bgzf;
use godwit_formats::index::TabixBuilder;
use godwit_formats::vcf_lines::{Header, Reader, Record};
use godwit_model::Genome;

use super::kept::{CallRun, KeptRegion};
use super::plan::PlannedRegion;
use crate::error::PipelineError;
use crate::staging::{Staged, StagedFile};

/// bgzip's own level: variants are written once and kept for years.
const LEVEL: u8 = 6;

/// A file that is put together from regions.
pub(super) struct Assembly<'a> {
    pub(super) out: &'a Path,
    pub(super) genome: &'a Genome,
    pub(super) regions: &'a [PlannedRegion],
    pub(super) kept: &'a [KeptRegion],
    pub(super) run: &'a CallRun,
    /// Lines that say how the records came to be.
    pub(super) provenance: Vec<String>,
}

impl Assembly<'_> {
    /// Writes the VCF and its index aside, durable; returns the number of records.
    ///
    /// # Errors
    /// [`PipelineError::Called`] where headers or records of two regions do not go together, [`PipelineError::File`].
    pub(super) fn write(&self, staged: &mut Staged) -> Result<u64, PipelineError> {
        let failed = |error| PipelineError::file("write", self.out)(error);
        let header = self.header()?;
        let vcf = StagedFile::create(self.out).map_err(failed)?;
        let mut writer = bgzf::Writer::new(BufWriter::with_capacity(1 << 20, vcf.file()), LEVEL);
        writer.write_bytes(&header.text()).map_err(failed)?;
        let mut index = TabixBuilder::new(self.genome);
        let mut records = 0;
        for (region, kept) in self.regions.iter().zip(self.kept) {
            let lines = self.run.read(kept.lines).map_err(failed)?;
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                let wrong = |problem: String| PipelineError::Called { region: region.name.clone(), problem };
                let record = line.strip_suffix(b"\n").and_then(Record::checked);
                let contig = record.as_ref().and_then(|record| self.genome.contig(self.genome.find(record.contig)?));
                let (Some(record), Some(contig)) = (record, contig) else {
                    return Err(wrong("is damaged on disk; run again without --resume".into()));
                };
                let place = writer.write_record(&[line]).map_err(failed)?;
                index
                    .push(contig, record.start as i32, i32::try_from(record.end).unwrap_or(i32::MAX), place)
                    .map_err(|error| wrong(format!("cannot be indexed: {error}")))?;
                records += 1;
            }
        }
        let (buffer, _) = writer.finish_file().map_err(failed)?;
        buffer.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
        staged.add(vcf);
        let index_path = PathBuf::from(format!("{}.{}", self.out.display(), index.extension()));
        let mut bytes = Vec::new();
        index
            .write(&mut bytes)
            .and_then(|()| staged.write(&index_path, &bytes))
            .map_err(PipelineError::file("write", &index_path))?;
        Ok(records)
    }

    /// One header for all: what callers said of their records, each line once; nothing of single processes.
    fn header(&self) -> Result<Header, PipelineError> {
        let (mut whole, mut seen) = (None::<Header>, HashSet::new());
        for (region, kept) in self.regions.iter().zip(self.kept) {
            if !seen.insert(kept.header) {
                continue;
            }
            let wrong = |error: godwit_formats::vcf_lines::VcfLinesError| PipelineError::Called {
                region: region.name.clone(),
                problem: error.to_string(),
            };
            let text = self.run.read(kept.header).map_err(PipelineError::file("read", self.out))?;
            let header = Reader::new(&text[..]).map_err(wrong)?.header().clone();
            match &mut whole {
                Some(whole) => whole.add(&header).map_err(wrong)?,
                None => whole = Some(header),
            }
        }
        let missing = || PipelineError::Lost { what: "headers", taken: self.regions.len() as u64, written: 0 };
        let mut whole = whole.ok_or_else(missing)?;
        if !whole.has("contig") {
            for contig in self.genome.contigs() {
                whole.push(format!("##contig=<ID={},length={}>", contig.name, contig.length).into_bytes());
            }
        }
        self.provenance.iter().for_each(|line| whole.push(line.clone().into_bytes()));
        Ok(whole)
    }
}

/// Writes a small file with the others.
pub(crate) fn stage_json(staged: &mut Staged, path: &Path, value: &impl serde::Serialize) -> Result<(), PipelineError> {
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::other);
    text.and_then(|text| staged.write(path, &text)).map_err(PipelineError::file("write", path))
}
