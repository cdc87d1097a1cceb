//! Reads to call from: which file, with which index, on which contigs.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use godwit_formats::bgzf::EOF_BLOCK;
use godwit_formats::index::{DataSpread, IndexReadError};
use godwit_formats::{bam, bgzf};
use godwit_model::Genome;

use crate::error::{AlignmentsError, PipelineError};
use crate::manifest::{Manifest, SUFFIX};

/// A file of aligned reads that callers can enter anywhere.
pub(super) struct AlignedReads {
    pub(super) path: PathBuf,
    pub(super) index: PathBuf,
    pub(super) genome: Genome,
    pub(super) spread: DataSpread,
}

impl AlignedReads {
    /// Opens a BAM or CRAM, or the one that `align` left in a directory. `program`: godwit itself, which reads CRAM in a
    /// process of its own.
    ///
    /// # Errors
    /// [`PipelineError::Missing`] for a file or an index that is not there, [`PipelineError::Alignments`],
    /// [`PipelineError::Corrupt`] for a file that is cut short, or an index of another file.
    pub(super) fn open(given: &Path, program: &Path) -> Result<Self, PipelineError> {
        let path = if given.is_dir() { of_run(given)? } else { given.to_owned() };
        let mut magic = [0; 4];
        let read = File::open(&path).and_then(|mut file| file.read(&mut magic));
        read.map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                let remedy = "check the path".to_owned();
                PipelineError::Missing { what: "the file of reads", path: path.clone(), remedy }
            }
            _ => PipelineError::File { action: "read", path: path.clone(), source },
        })?;
        let is_cram = &magic == b"CRAM";
        let genome = if is_cram { cram_contigs(&path, program)? } else { bam_contigs(&path)? };
        let index = index_of(&path, is_cram)?;
        let bases: Vec<u32> = genome.contigs().iter().map(|contig| contig.length).collect();
        let spread = DataSpread::read(&index, &bases).map_err(|error| match error {
            IndexReadError::Bgzf(bgzf::BgzfError::Io { source, .. }) => {
                PipelineError::File { action: "read", path: index.clone(), source }
            }
            error => PipelineError::Corrupt {
                path: index.clone(),
                problem: format!("{error}; make it again with `samtools index {}`", path.display()),
            },
        })?;
        Ok(Self { path, index, genome, spread })
    }
}

/// The BAM of a run, or its CRAM where there is no BAM.
fn of_run(directory: &Path) -> Result<PathBuf, PipelineError> {
    let failed = |error| PipelineError::file("read", directory)(error);
    let (mut bams, mut crams) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || !name.ends_with(SUFFIX) {
            continue;
        }
        let Some(manifest) = Manifest::read(&path).map_err(PipelineError::file("read", &path))? else { continue };
        let files = manifest.files.into_iter().map(|file| path.with_file_name(file.name));
        for file in files {
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("bam") => bams.push(file),
                Some("cram") => crams.push(file),
                _ => {}
            }
        }
    }
    let mut found = if bams.is_empty() { crams } else { bams };
    found.sort();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(PipelineError::Missing {
            what: "the BAM or CRAM of a finished run in",
            path: directory.to_owned(),
            remedy: "name the directory that `godwit align` wrote to, or a file".to_owned(),
        }),
        several => Err(PipelineError::Options {
            problem: format!(
                "{} holds {several} files of reads, {} the first of them; name one",
                directory.display(),
                found[0].display()
            ),
        }),
    }
}

fn bam_contigs(path: &Path) -> Result<Genome, PipelineError> {
    let reader = bam::Reader::open(path, 1).map_err(|error| match error {
        bam::BamError::NotBam { .. } | bam::BamError::Bgzf(bgzf::BgzfError::NotBgzf { .. }) => PipelineError::Options {
            problem: format!(
                "{} is neither BAM nor CRAM; sort and index it first, as `godwit markdup` does",
                path.display()
            ),
        },
        error => PipelineError::alignments(path, AlignmentsError::Bam(error)),
    })?;
    // Callers enter the file by its index and would not notice.
    let ends_well = || -> std::io::Result<bool> {
        let (mut file, mut end) = (File::open(path)?, [0; EOF_BLOCK.len()]);
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(EOF_BLOCK.len() as u64)))?;
        Ok(bytes >= EOF_BLOCK.len() as u64 && file.read_exact(&mut end).is_ok() && end == EOF_BLOCK)
    };
    if !ends_well().map_err(PipelineError::file("read", path))? {
        let problem = "it is cut short: the block that ends a BAM is missing; fetch or make it again".to_owned();
        return Err(PipelineError::Corrupt { path: path.to_owned(), problem });
    }
    Ok(reader.genome().clone())
}

fn cram_contigs(path: &Path, program: &Path) -> Result<Genome, PipelineError> {
    let request = godwit_cram::DecodeRequest { path: path.to_owned(), reference: None, threads: 1 };
    let reader = godwit_cram::Reader::open(program, &request);
    let reader = reader.map_err(|error| PipelineError::alignments(path, AlignmentsError::Cram(error)))?;
    Ok(reader.genome().clone())
}

/// The index beside a file, under any of the names that samtools looks for.
fn index_of(path: &Path, is_cram: bool) -> Result<PathBuf, PipelineError> {
    let endings: &[&str] = if is_cram { &["crai"] } else { &["bai", "csi"] };
    let appended = |ending: &&str| PathBuf::from(format!("{}.{ending}", path.display()));
    let replaced = |ending: &&str| path.with_extension(ending);
    let candidates: Vec<PathBuf> = endings.iter().flat_map(|ending| [appended(ending), replaced(ending)]).collect();
    let found = candidates.iter().find(|candidate| candidate.is_file());
    found.cloned().ok_or_else(|| PipelineError::Missing {
        what: "the index",
        path: candidates[0].clone(),
        remedy: format!("make it with `samtools index {}`", path.display()),
    })
}
