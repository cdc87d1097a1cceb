//! What is called from: which files, with which indexes, on which contigs, of which samples.

mod gvcf;

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use godwit_engines::caller::{Caller, Normal};
use godwit_formats::bgzf::EOF_BLOCK;
use godwit_formats::index::{DataSpread, IndexReadError};
use godwit_formats::sam::Header;
use godwit_formats::{bam, bgzf};
use godwit_model::{Contig, Genome};

use crate::error::{AlignmentsError, PipelineError};
use crate::manifest::{Manifest, SUFFIX};

/// A file of aligned reads that callers can enter anywhere.
pub(super) struct AlignedReads {
    pub(super) path: PathBuf,
    pub(super) index: PathBuf,
    pub(super) genome: Genome,
    pub(super) spread: DataSpread,
    /// Its header, where it is of reads.
    pub(super) header: Header,
    /// Samples of its read groups; the path where they name none, as callers do.
    samples: Vec<String>,
}

/// What is called together: the same contigs in all files, and every sample in one of them.
pub(super) struct CallInputs {
    /// At least one; that of the normal, where there is one, is the last.
    pub(super) files: Vec<AlignedReads>,
    /// The sample that is the normal.
    normal: Option<String>,
}

/// What has to be known of reads to cut their genome into regions.
pub(super) struct ToPlan<'r> {
    /// Their contigs.
    pub(super) genome: &'r Genome,
    /// The file that messages name.
    pub(super) path: &'r Path,
    /// Where the data lie; `None` while nothing is written yet: then nothing is known of what regions cost.
    pub(super) inputs: Option<&'r CallInputs>,
}

impl ToPlan<'_> {
    /// Compressed bytes in `[start, end)` of a contig, 0-based, about.
    pub(super) fn bytes(&self, contig: usize, start: u32, end: u32) -> f64 {
        self.inputs.map_or(0.0, |inputs| inputs.bytes(contig, start, end))
    }

    /// Compressed bytes of a contig, about.
    pub(super) fn contig_bytes(&self, contig: usize) -> f64 {
        self.inputs.map_or(0.0, |inputs| inputs.contig_bytes(contig))
    }
}

impl CallInputs {
    /// Opens files or directories of `align`, as [`AlignedReads::open`] does, or GVCFs for a caller that takes those.
    ///
    /// # Errors
    /// Those of [`AlignedReads::open`] and [`gvcf::open`]; [`PipelineError::Corrupt`] for other contigs than those of the first, [`PipelineError::Options`] for a
    /// file or sample that comes twice.
    pub(super) fn open(
        reads: &[PathBuf],
        normal: Option<&Path>,
        program: &Path,
        caller: &dyn Caller,
    ) -> Result<Self, PipelineError> {
        let (name, habits) = (caller.name(), caller.habits());
        if normal.is_some() && !habits.pairs {
            let problem = format!(
                "{name} calls no tumour beside a normal; use --caller mutect2, or a command line with {{tumor}} and {{normal}}"
            );
            return Err(PipelineError::Options { problem });
        }
        let open = |given: &Path| if habits.gvcfs { gvcf::open(given) } else { AlignedReads::open(given, program) };
        let files: Vec<AlignedReads> =
            reads.iter().map(PathBuf::as_path).chain(normal).map(open).collect::<Result<_, _>>()?;
        let normal = match (normal, files.last()) {
            (None, _) | (_, None) => None,
            (Some(_), Some(file)) => match &file.samples[..] {
                [sample] => Some(sample.clone()),
                several => {
                    let (path, count) = (file.path.display(), several.len());
                    let problem = format!("{path} has {count} samples; the normal is one");
                    return Err(PipelineError::Options { problem });
                }
            },
        };
        let Some(first) = files.first() else {
            return Err(PipelineError::Options { problem: "no reads were named to call from".to_owned() });
        };
        let mut seen: HashMap<&str, &Path> = HashMap::new();
        for file in &files {
            if let Some(difference) = difference(&first.genome, &file.genome) {
                let problem = format!(
                    "{difference} in {}; what is called together is aligned to one reference",
                    first.path.display()
                );
                return Err(PipelineError::Corrupt { path: file.path.clone(), problem });
            }
            for sample in &file.samples {
                if let Some(other) = seen.insert(sample, &file.path) {
                    let path = file.path.display();
                    let problem = match other == file.path {
                        true => format!("{path} is given twice; give each sample once"),
                        false => format!(
                            "the sample {sample} is in {} and in {path}; give each sample once, in one file",
                            other.display()
                        ),
                    };
                    return Err(PipelineError::Options { problem });
                }
            }
        }
        Ok(Self { files, normal })
    }

    /// The headers of the files.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&Path, &Header)> {
        self.files.iter().map(|file| (&*file.path, &file.header))
    }

    /// What of them decides where regions end, and what these cost.
    pub(super) fn to_plan(&self) -> ToPlan<'_> {
        ToPlan { genome: self.genome(), path: self.first(), inputs: Some(self) }
    }

    /// The file that was named first.
    pub(super) fn first(&self) -> &Path {
        &self.files[0].path
    }

    /// The files, but for that of the normal.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let count = self.files.len() - usize::from(self.normal.is_some());
        self.files[..count].iter().map(|file| file.path.clone()).collect()
    }

    /// The normal, where there is one.
    pub(super) fn normal(&self) -> Option<Normal<'_>> {
        let reads = &self.files.last()?.path;
        self.normal.as_ref().map(|sample| Normal { reads, sample })
    }

    /// The contigs of all files.
    pub(super) fn genome(&self) -> &Genome {
        &self.files[0].genome
    }

    /// Compressed bytes in `[start, end)` of a contig, 0-based, of all files, about.
    pub(super) fn bytes(&self, contig: usize, start: u32, end: u32) -> f64 {
        self.files.iter().map(|file| file.spread.bytes(contig, start, end)).sum()
    }

    /// Compressed bytes of a contig in all files, about.
    pub(super) fn contig_bytes(&self, contig: usize) -> f64 {
        self.files.iter().map(|file| file.spread.contig_bytes(contig)).sum()
    }
}

/// The first place where contigs differ, as the second genome has it and then the first.
fn difference(first: &Genome, second: &Genome) -> Option<String> {
    let show = |contig: Option<&Contig>| match contig {
        Some(contig) => format!("{} of {} bases", contig.name, contig.length),
        None => "none".to_owned(),
    };
    let most = first.contigs().len().max(second.contigs().len());
    let pairs = (0..most).map(|at| (at, first.contigs().get(at), second.contigs().get(at)));
    let same = |one: &Contig, other: &Contig| (&one.name, one.length) == (&other.name, other.length);
    let differs = |(_, one, other): &(usize, Option<&Contig>, Option<&Contig>)| match (one, other) {
        (Some(one), Some(other)) => !same(one, other),
        _ => true,
    };
    let (at, one, other) = pairs.into_iter().find(differs)?;
    Some(format!("contig {} is {} here, and {}", at + 1, show(other), show(one)))
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
        let (genome, header) = if is_cram { cram_head(&path, program)? } else { bam_head(&path)? };
        let wrong = |source| PipelineError::Header { origin: path.display().to_string(), source };
        let mut samples: Vec<String> =
            header.read_groups().map_err(wrong)?.into_iter().filter_map(|group| group.sample).collect();
        samples.sort();
        samples.dedup();
        if samples.is_empty() {
            samples.push(path.display().to_string());
        }
        let endings: &[&str] = if is_cram { &["crai"] } else { &["bai", "csi"] };
        let index = index_of(&path, endings, "samtools index")?;
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
        Ok(Self { path, index, genome, spread, header, samples })
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

fn bam_head(path: &Path) -> Result<(Genome, Header), PipelineError> {
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
    Ok((reader.genome().clone(), reader.header().clone()))
}

fn cram_head(path: &Path, program: &Path) -> Result<(Genome, Header), PipelineError> {
    let request = godwit_cram::DecodeRequest { path: path.to_owned(), reference: None, threads: 1 };
    let reader = godwit_cram::Reader::open(program, &request);
    let reader = reader.map_err(|error| PipelineError::alignments(path, AlignmentsError::Cram(error)))?;
    Ok((reader.genome().clone(), reader.header().clone()))
}

/// The index beside a file, under any of the names that samtools looks for.
pub(crate) fn index_of(path: &Path, endings: &[&str], maker: &str) -> Result<PathBuf, PipelineError> {
    let appended = |ending: &&str| PathBuf::from(format!("{}.{ending}", path.display()));
    let replaced = |ending: &&str| path.with_extension(ending);
    let candidates: Vec<PathBuf> = endings.iter().flat_map(|ending| [appended(ending), replaced(ending)]).collect();
    let found = candidates.iter().find(|candidate| candidate.is_file());
    found.cloned().ok_or_else(|| PipelineError::Missing {
        what: "the index",
        path: candidates[0].clone(),
        remedy: format!("make it with `{maker} {}`", path.display()),
    })
}
