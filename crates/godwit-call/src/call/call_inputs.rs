//! The inputs of a caller: files with their indexes, contigs and samples.

mod gvcf;
mod read_indexes;

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use godwit_engines::caller::{Caller, NormalReads};
use godwit_formats::bam;
use godwit_formats::binning_index::{DataDensity, index_paths};
use godwit_formats::sam::Header;
use godwit_io::bgzf;
use godwit_io::bgzf::EOF_BLOCK;
use godwit_model::{Contig, Genome};
use godwit_pipeline::manifest::{Manifest, manifests_in};
use godwit_pipeline::{AlignmentsError, PipelineError};
use read_indexes::{BAM_INDEX_EXTENSIONS, check_bam_indexes, check_cram_index, index_read_error};

/// An indexed BAM or CRAM file of aligned reads, or an indexed GVCF.
pub(super) struct AlignedReads {
    pub(super) path: PathBuf,
    pub(super) index: PathBuf,
    pub(super) genome: Genome,
    pub(super) data_distribution: DataDensity,
    /// SAM header of a file of reads; empty for a GVCF.
    pub(super) header: Header,
    /// Sample names from the read groups or the GVCF header. If no read group has a sample name, the path of the file,
    /// as in callers.
    samples: Vec<String>,
}

/// The input files that are called together. All of them have the same contigs, and each sample is in one file only.
pub(super) struct CallInputs {
    /// The files, at least one. The file of the matched normal, if there is one, is the last.
    pub(super) files: Vec<AlignedReads>,
    /// Name of the normal sample; `None` unless a tumour is compared with a normal.
    normal: Option<String>,
}

/// The properties of the inputs from which the grid of regions is computed.
pub(super) struct GridInput<'r> {
    /// Contigs of the inputs.
    pub(super) genome: &'r Genome,
    /// Input file that error messages name.
    pub(super) path: &'r Path,
    /// Inputs that show how much data each region has. `None` if the reads are not written yet, so that the costs of
    /// regions are unknown.
    pub(super) inputs: Option<&'r CallInputs>,
}

impl GridInput<'_> {
    /// Returns the approximate compressed bytes in `[start, end)` of a contig, 0-based.
    pub(super) fn bytes(&self, contig: usize, start: u32, end: u32) -> f64 {
        self.inputs.map_or(0.0, |inputs| inputs.bytes(contig, start, end))
    }

    /// Returns the approximate compressed bytes of a contig.
    pub(super) fn contig_bytes(&self, contig: usize) -> f64 {
        self.inputs.map_or(0.0, |inputs| inputs.contig_bytes(contig))
    }
}

impl CallInputs {
    /// Opens BAM or CRAM files or output directories of `align`, as [`AlignedReads::open`] does. For a caller that
    /// reads GVCFs, opens GVCFs instead.
    ///
    /// # Errors
    /// The errors of [`AlignedReads::open`] and [`gvcf::open`]; [`PipelineError::Corrupt`] for other contigs than those
    /// of the first file; [`PipelineError::Options`] for a file or sample that is given twice, or a normal that the
    /// caller does not support.
    pub(super) fn open(
        reads: &[PathBuf],
        normal: Option<&Path>,
        program: &Path,
        caller: &dyn Caller,
    ) -> Result<Self, PipelineError> {
        let (name, capabilities) = (caller.name(), caller.capabilities());
        if normal.is_some() && !capabilities.takes_tumor_normal_pairs {
            let problem = format!(
                "{name} does not call a tumour with a normal; use --caller mutect2, or a command line with {{tumor}} \
                 and {{normal}}"
            );
            return Err(PipelineError::Options { problem });
        }
        let open = |given: &Path| {
            if capabilities.takes_gvcfs { gvcf::open(given) } else { AlignedReads::open(given, program) }
        };
        let files: Vec<AlignedReads> =
            reads.iter().map(PathBuf::as_path).chain(normal).map(open).collect::<Result<_, _>>()?;
        let normal = match (normal, files.last()) {
            (None, _) | (_, None) => None,
            (Some(_), Some(file)) => match &file.samples[..] {
                [sample] => Some(sample.clone()),
                several => {
                    let (path, count) = (file.path.display(), several.len());
                    let problem = format!("{path} has {count} samples, but a matched normal must have one");
                    return Err(PipelineError::Options { problem });
                }
            },
        };
        let Some(first) = files.first() else {
            return Err(PipelineError::Options { problem: "no file of reads is given".to_owned() });
        };
        let mut seen: HashMap<&str, &Path> = HashMap::new();
        for file in &files {
            if let Some(difference) = contig_difference(&first.genome, &file.genome) {
                let problem = format!(
                    "{difference} in {}; all files of reads must be aligned to the same reference",
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

    /// Returns the paths and SAM headers of the files.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&Path, &Header)> {
        self.files.iter().map(|file| (&*file.path, &file.header))
    }

    /// Returns the properties that decide the borders and the costs of regions.
    pub(super) fn grid_input(&self) -> GridInput<'_> {
        GridInput { genome: self.genome(), path: self.first_path(), inputs: Some(self) }
    }

    /// Returns the path of the first file.
    pub(super) fn first_path(&self) -> &Path {
        &self.files[0].path
    }

    /// Returns the paths of the files, without that of the normal sample.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let count = self.files.len() - usize::from(self.normal.is_some());
        self.files[..count].iter().map(|file| file.path.clone()).collect()
    }

    /// Returns the file and the name of the normal sample, if there is one.
    pub(super) fn normal(&self) -> Option<NormalReads<'_>> {
        let reads = &self.files.last()?.path;
        self.normal.as_ref().map(|sample| NormalReads { reads, sample })
    }

    /// Returns the contigs, which are the same in all files.
    pub(super) fn genome(&self) -> &Genome {
        &self.files[0].genome
    }

    /// Returns the approximate compressed bytes in `[start, end)` of a contig, 0-based, of all files.
    pub(super) fn bytes(&self, contig: usize, start: u32, end: u32) -> f64 {
        self.files.iter().map(|file| file.data_distribution.interval_bytes(contig, start, end)).sum()
    }

    /// Returns the approximate compressed bytes of a contig in all files.
    pub(super) fn contig_bytes(&self, contig: usize) -> f64 {
        self.files.iter().map(|file| file.data_distribution.contig_bytes(contig)).sum()
    }
}

/// Returns a text about the first contig that differs between two genomes. The contig of the second genome is named
/// first.
fn contig_difference(first: &Genome, second: &Genome) -> Option<String> {
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
    /// Opens a BAM or CRAM file; for an output directory of `align`, opens the BAM or CRAM in it. `program` is the
    /// godwit program, which decodes CRAM in a process of its own.
    ///
    /// # Errors
    /// [`PipelineError::Missing`] for a missing file or index, [`PipelineError::Alignments`] for a file that cannot be
    /// decoded, [`PipelineError::Corrupt`] for a truncated file or an index of another file.
    pub(super) fn open(given: &Path, program: &Path) -> Result<Self, PipelineError> {
        let path = if given.is_dir() { find_alignments(given)? } else { given.to_owned() };
        let mut magic = [0; 4];
        let read = File::open(&path).and_then(|mut file| file.read(&mut magic));
        read.map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                let remedy = "check the path".to_owned();
                PipelineError::Missing { description: "the file of reads", path: path.clone(), remedy }
            }
            _ => PipelineError::File { action: "read", path: path.clone(), source },
        })?;
        let is_cram = &magic == b"CRAM";
        let (genome, header) = if is_cram { read_cram_header(&path, program)? } else { read_bam_header(&path)? };
        let wrong = |source| PipelineError::Header { origin: path.display().to_string(), source };
        let mut samples: Vec<String> =
            header.read_groups().map_err(wrong)?.into_iter().filter_map(|group| group.sample).collect();
        samples.sort();
        samples.dedup();
        if samples.is_empty() {
            samples.push(path.display().to_string());
        }
        let endings: &[&str] = if is_cram { &["crai"] } else { &BAM_INDEX_EXTENSIONS };
        let index = find_index(&path, endings, "samtools index")?;
        let bases: Vec<u32> = genome.contigs().iter().map(|contig| contig.length).collect();
        let data_distribution =
            DataDensity::read(&index, &bases).map_err(|error| index_read_error(&path, &index, error))?;
        match is_cram {
            true => check_cram_index(&path, &index)?,
            false => check_bam_indexes(&path)?,
        }
        Ok(Self { path, index, genome, data_distribution, header, samples })
    }
}

/// Returns the BAM that a job wrote into `directory`, or its CRAM if there is no BAM.
fn find_alignments(directory: &Path) -> Result<PathBuf, PipelineError> {
    let (mut bams, mut crams) = (Vec::new(), Vec::new());
    for path in manifests_in(directory).map_err(PipelineError::file("read", directory))? {
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
            description: "the BAM or CRAM of a finished job in",
            path: directory.to_owned(),
            remedy: "give the directory that `godwit align` wrote to, or a file".to_owned(),
        }),
        several => Err(PipelineError::Options {
            problem: format!(
                "{} contains {several} files of reads, for example {}; give one of them",
                directory.display(),
                found[0].display()
            ),
        }),
    }
}

fn read_bam_header(path: &Path) -> Result<(Genome, Header), PipelineError> {
    let reader = bam::Reader::open(path, 1).map_err(|error| match error {
        bam::BamError::NotBam { .. } | bam::BamError::Bgzf(bgzf::BgzfError::NotBgzf { .. }) => PipelineError::Options {
            problem: format!(
                "{} is neither BAM nor CRAM; sort and index it first, as `godwit markdup` does",
                path.display()
            ),
        },
        error => PipelineError::alignments(path, AlignmentsError::Bam(error)),
    })?;
    // Check the end of the file: callers read it by its index and would not notice that it is truncated.
    let ends_well = || -> std::io::Result<bool> {
        let (mut file, mut end) = (File::open(path)?, [0; EOF_BLOCK.len()]);
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(EOF_BLOCK.len() as u64)))?;
        Ok(bytes >= EOF_BLOCK.len() as u64 && file.read_exact(&mut end).is_ok() && end == EOF_BLOCK)
    };
    if !ends_well().map_err(PipelineError::file("read", path))? {
        let problem = "it is truncated: the BGZF EOF block is missing; copy or create it again".to_owned();
        return Err(PipelineError::Corrupt { path: path.to_owned(), problem });
    }
    Ok((reader.genome().clone(), reader.header().clone()))
}

fn read_cram_header(path: &Path, program: &Path) -> Result<(Genome, Header), PipelineError> {
    let request = godwit_cram::DecodeRequest { path: path.to_owned(), reference: None, threads: 1 };
    let reader = godwit_cram::Reader::open(program, &request);
    let reader = reader.map_err(|error| PipelineError::alignments(path, AlignmentsError::Cram(error)))?;
    Ok((reader.genome().clone(), reader.header().clone()))
}

/// Returns the index beside a file, under any of the names that samtools accepts.
pub fn find_index(path: &Path, endings: &[&str], maker: &str) -> Result<PathBuf, PipelineError> {
    // Both names of an extension come before those of the next one.
    let candidates: Vec<PathBuf> = endings.chunks(1).flat_map(|ending| index_paths(path, ending)).collect();
    let found = candidates.iter().find(|candidate| candidate.is_file());
    found.cloned().ok_or_else(|| PipelineError::Missing {
        description: "the index",
        path: candidates[0].clone(),
        remedy: format!("create it with `{maker} {}`", path.display()),
    })
}
