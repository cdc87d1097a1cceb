//! Scans the reference for callers: its contigs, checksums and indexes, and the assembly gaps in which regions may end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_cram::{ChecksumScan, ReferenceChecksums};
use godwit_engines::caller::Caller;
use godwit_files::{FileStamp, write_atomically};
use godwit_formats::fasta::{self, FaiEvent, FaiRecord, FastaError};
use godwit_formats::sam::Header;
use godwit_io::bgzf::BlockTable;
use godwit_model::{Contig, Genome, GenomeError};

use crate::error::{AlignmentsError, PipelineError};

/// Minimum length of an assembly gap (a run of `N`) in which a region may end, bases. Scaffolds have thousands of
/// shorter gaps, which are not better ends of regions than other bases.
const MIN_GAP_BASES: u32 = 500;

/// A reference that was read completely.
#[derive(Debug)]
pub struct ScannedReference {
    /// Contigs in the order of the file.
    pub contigs: Vec<FaiRecord>,
    /// Assembly gaps of each contig, 0-based and half-open.
    pub gaps: Vec<Vec<(u32, u32)>>,
    /// BLAKE3 of the names and bases of all contigs, hexadecimal.
    pub checksum: String,
    /// Table of the BGZF blocks; `None` for an uncompressed file.
    blocks: Option<BlockTable>,
    /// MD5 of each contig; `None` if it was not computed.
    md5: Option<ReferenceChecksums>,
    /// Stamp of the file before it was read. If it changes, the file is read again.
    stamp: Option<FileStamp>,
}

/// A finder of assembly gaps in the bases of a contig, which arrive in pieces.
#[derive(Default)]
struct GapFinder {
    position: u32,
    start: Option<u32>,
    gaps: Vec<(u32, u32)>,
}

impl GapFinder {
    fn push_bases(&mut self, mut bases: &[u8]) {
        while !bases.is_empty() {
            let is_gap = |base: &u8| matches!(base, b'N' | b'n');
            let run = match self.start {
                None => bases.iter().position(is_gap).unwrap_or(bases.len()),
                Some(_) => bases.iter().position(|base| !is_gap(base)).unwrap_or(bases.len()),
            };
            self.position = self.position.saturating_add(run as u32);
            bases = &bases[run..];
            if !bases.is_empty() {
                match self.start {
                    None => self.start = Some(self.position),
                    Some(_) => self.close_gap(),
                }
            }
        }
    }

    fn close_gap(&mut self) {
        if let Some(start) = self.start.take().filter(|start| self.position - start >= MIN_GAP_BASES) {
            self.gaps.push((start, self.position));
        }
    }
}

impl ScannedReference {
    /// Reads a reference. If one of `headers` contains the MD5 of contigs, computes the MD5 of all contigs (5 s more
    /// for 3 Gb) and compares them. `known` is an earlier scan of the same file, which is returned if it suffices.
    ///
    /// # Errors
    /// [`PipelineError::Missing`] for a missing file, [`PipelineError::Fasta`] for invalid FASTA;
    /// [`PipelineError::Alignments`] if the bases of a contig differ from those to which the reads of a file were
    /// aligned.
    pub fn scan_for_headers<'h>(
        path: &Path,
        known: Option<&Arc<Self>>,
        headers: impl Iterator<Item = (&'h Path, &'h Header)>,
    ) -> Result<Arc<Self>, PipelineError> {
        let headers: Vec<_> = headers.filter(|(_, header)| header.has_checksums()).collect();
        let reference = match known {
            Some(known) if known.stamp == FileStamp::read(path).ok() && (headers.is_empty() || known.md5.is_some()) => {
                known.clone()
            }
            _ => Arc::new(Self::read_fasta(path, !headers.is_empty())?),
        };
        for (reads, header) in headers {
            let compared = reference.md5.as_ref().map_or(Ok(()), |md5| md5.check_listed_checksums(header));
            compared.map_err(|error| PipelineError::alignments(reads, AlignmentsError::Cram(error)))?;
        }
        Ok(reference)
    }

    /// Compares a reference with the header of a file of reads, if this header contains the MD5 of contigs.
    ///
    /// # Errors
    /// The errors of [`ScannedReference::scan_for_headers`].
    pub fn check_header_md5(path: &Path, reads: &Path, header: &Header) -> Result<(), PipelineError> {
        match header.has_checksums() {
            true => Self::scan_for_headers(path, None, [(reads, header)].into_iter()).map(drop),
            false => Ok(()),
        }
    }

    /// Reads a reference without computing the MD5 of its contigs.
    ///
    /// # Errors
    /// [`PipelineError::Missing`] for a missing file, [`PipelineError::Fasta`] for invalid FASTA.
    pub fn scan(path: &Path) -> Result<Self, PipelineError> {
        Self::read_fasta(path, false)
    }

    fn read_fasta(path: &Path, with_md5: bool) -> Result<Self, PipelineError> {
        if !path.exists() {
            let remedy = "check its path".to_owned();
            return Err(PipelineError::Missing { description: "the reference", path: path.to_owned(), remedy });
        }
        let stamp = FileStamp::read(path).ok();
        let failed = |source: FastaError| PipelineError::Fasta { path: path.to_owned(), source };
        let blocks = fasta::read_block_table(path).map_err(failed)?;
        let (mut gaps, mut hasher) = (Vec::new(), blake3::Hasher::new());
        let mut finder = GapFinder::default();
        let md5 = with_md5.then(ChecksumScan::new).transpose();
        let mut md5 = md5.map_err(PipelineError::file("compute the checksums of", path))?;
        let contigs = fasta::build_fai_with(path, |event| {
            md5.iter_mut().for_each(|md5| md5.add_event(event));
            match event {
                FaiEvent::ContigStart => {}
                FaiEvent::Bases(bases) => {
                    hasher.update(bases);
                    finder.push_bases(bases);
                }
                FaiEvent::ContigEnd => {
                    finder.close_gap();
                    gaps.push(std::mem::take(&mut finder).gaps);
                }
            }
            true
        });
        let contigs = contigs.map_err(failed)?;
        for contig in &contigs {
            hasher.update(format!(">{}\t{}\n", contig.name, contig.bases).as_bytes());
        }
        let checksum = hasher.finalize().to_hex()[..16].to_owned();
        let md5 = md5.map(|md5| md5.finish(path, &contigs));
        Ok(Self { contigs, gaps, checksum, blocks, md5, stamp })
    }

    /// Returns the contigs of the reference as a genome.
    ///
    /// # Errors
    /// [`PipelineError::Corrupt`] if two contigs have the same name.
    pub fn genome(&self, path: &Path) -> Result<Genome, PipelineError> {
        let contig = |record: &FaiRecord| Contig {
            name: record.name.clone(),
            length: u32::try_from(record.bases).unwrap_or(u32::MAX),
            alternate: false,
        };
        let wrong = |error: GenomeError| PipelineError::Corrupt { path: path.to_owned(), problem: error.to_string() };
        Genome::new(self.contigs.iter().map(contig).collect()).map_err(wrong)
    }

    /// Rejects a reference that a caller cannot read.
    ///
    /// # Errors
    /// [`PipelineError::Options`] for a compressed reference that the caller does not read.
    pub fn check_caller_support(&self, path: &Path, caller: &dyn Caller) -> Result<(), PipelineError> {
        if self.blocks.is_none() || caller.capabilities().reads_bgzf_reference {
            return Ok(());
        }
        let problem = format!(
            "{} cannot read the compressed reference {}; decompress it (`bgzip -dk {1}`) and pass {} as --reference",
            caller.name(),
            path.display(),
            path.with_extension("").display()
        );
        Err(PipelineError::Options { problem })
    }

    /// Writes missing indexes of the reference beside it. Otherwise several callers would write them at the same time.
    ///
    /// # Errors
    /// [`PipelineError::Corrupt`] for an index of another file; [`PipelineError::Missing`] for a missing index in a read-only
    /// file system, [`PipelineError::File`] if an index cannot be written for another reason.
    pub fn write_indexes(&self, path: &Path, needs_dictionary: bool) -> Result<(), PipelineError> {
        let beside = |ending: &str| PathBuf::from(format!("{}.{ending}", path.display()));
        let fai = beside("fai");
        let remedy = format!("create it with `samtools faidx {}`", path.display());
        if let Some(blocks) = &self.blocks {
            write_gzi(blocks, &beside("gzi"))?;
        }
        match std::fs::read_to_string(&fai) {
            Ok(text) if fasta::parse_fai(&text).as_ref() == Some(&self.contigs) => {}
            Ok(_) => {
                let problem = format!("it is the index of another file than {}; {remedy}", path.display());
                return Err(PipelineError::Corrupt { path: fai, problem });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut text = Vec::new();
                fasta::write_fai(&self.contigs, &mut text)
                    .and_then(|()| write_atomically(&fai, &text))
                    .map_err(|error| index_error(&fai, "samtools faidx", error))?;
            }
            Err(error) => return Err(PipelineError::file("read", fai)(error)),
        }
        let stem = if path.extension().is_some_and(|extension| extension == "gz") {
            path.with_extension("")
        } else {
            path.to_owned()
        };
        let dictionary = stem.with_extension("dict");
        if needs_dictionary && !dictionary.is_file() {
            let line = |contig: &FaiRecord| format!("@SQ\tSN:{}\tLN:{}\n", contig.name, contig.bases);
            let text: String = ["@HD\tVN:1.6\n".to_owned()].into_iter().chain(self.contigs.iter().map(line)).collect();
            write_atomically(&dictionary, text.as_bytes())
                .map_err(|error| index_error(&dictionary, "samtools dict", error))?;
        }
        Ok(())
    }
}

/// Returns the error for an index of the reference that is missing and could not be written. `program`: the program that
/// creates the index.
fn index_error(path: &Path, program: &str, error: io::Error) -> PipelineError {
    if error.kind() != io::ErrorKind::ReadOnlyFilesystem {
        return PipelineError::file("write", path)(error);
    }
    let remedy =
        format!("create it with `{program}` where the reference is stored, because its file system is read-only here");
    PipelineError::Missing { description: "the index of the reference", path: path.to_owned(), remedy }
}

/// Writes the `.gzi` of a reference, unless it exists with the same content. Returns whether it was written.
///
/// # Errors
/// [`PipelineError::File`] if it cannot be written.
pub fn write_gzi(blocks: &BlockTable, path: &Path) -> Result<bool, PipelineError> {
    let mut gzi = Vec::new();
    blocks.write_gzi(&mut gzi).map_err(PipelineError::file("write", path))?;
    if std::fs::read(path).is_ok_and(|present| present == gzi) {
        return Ok(false);
    }
    write_atomically(path, &gzi).map_err(PipelineError::file("write", path))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_however_the_bases_are_split() {
        let bases = [vec![b'N'; 600], vec![b'A'; 10], vec![b'n'; 499], vec![b'C'; 5], vec![b'n'; 700]].concat();
        for run in [1, 7, 300, 5000] {
            let mut finder = GapFinder::default();
            bases.chunks(run).for_each(|bases| finder.push_bases(bases));
            finder.close_gap();
            assert_eq!(finder.gaps, [(0, 600), (1114, 1814)], "{run}");
        }
    }
}
