//! The reference pipeline: `bwa mem -K` per lane, or another aligner, `samtools cat` in lane order, `samtools sort`, Picard MarkDuplicates.
//!
//! Each step runs once per distinct input and options in a process, however many tests use its output.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::duplicate_options::MarkingOptions;
use crate::picard::{self, PicardOptions};
use crate::scratch;
use crate::tool::Tool;

/// One lane of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    /// One file, or two files with read 1 and read 2.
    pub reads: Vec<PathBuf>,
    /// The `@RG` line, tabs written `\t`.
    pub read_group: String,
}

/// The handling of duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DuplicateHandling {
    /// Duplicates are flagged.
    Mark,
    /// Duplicates are removed.
    Remove,
    /// Duplicates are not detected.
    None,
}

impl DuplicateHandling {
    /// Returns the value of godwit's `--duplicates`.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Remove => "remove",
            Self::None => "none",
        }
    }
}

/// The program that aligns a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aligner {
    /// `bwa mem -K`.
    Bwa,
    /// `minimap2 -a` with a preset, on the index `REF.fa.mmi`.
    Minimap2(&'static str),
    /// `bowtie2`, on the index `REF.fa`.
    Bowtie2,
}

impl Aligner {
    /// Returns the aligner's command line for a lane, without the reads.
    fn command(self, reference: &Path, lane: &Lane, options: &AlignOptions) -> Command {
        let program = match self {
            Self::Bwa => "bwa",
            Self::Minimap2(_) => "minimap2",
            Self::Bowtie2 => "bowtie2",
        };
        let mut command = Tool::require(program).command();
        match self {
            Self::Bwa => {
                command.args(["mem", "-t", "2", "-K", &options.block_bases.to_string(), "-R", &lane.read_group]);
                command.args(&options.aligner_args).arg(reference);
            }
            Self::Minimap2(preset) => {
                command.args(["-a", "-x", preset, "-t", "2", "-R", &lane.read_group]).args(&options.aligner_args);
                command.arg(reference.with_extension("fa.mmi"));
            }
            Self::Bowtie2 => {
                let mut fields = lane.read_group.split("\\t").skip(1);
                let id = fields.next().and_then(|id| id.strip_prefix("ID:")).expect("the ID comes first");
                command.args(["-p", "2", "--reorder", "--rg-id", id]);
                for field in fields {
                    command.args(["--rg", field]);
                }
                command.args(&options.aligner_args).arg("-x").arg(reference);
            }
        }
        command
    }
}

/// Options of the pipeline that change records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlignOptions {
    /// bwa's `-K`, in bases.
    pub block_bases: u64,
    /// The program that aligns.
    pub aligner: Aligner,
    /// Additional arguments of the aligner.
    pub aligner_args: Vec<String>,
    /// The handling of duplicates.
    pub duplicates: DuplicateHandling,
    /// The optical distance, in pixels.
    pub optical_distance: u32,
    /// Further options of duplicate marking.
    pub marking: MarkingOptions,
}

impl Default for AlignOptions {
    fn default() -> Self {
        Self {
            block_bases: 100_000_000,
            aligner: Aligner::Bwa,
            aligner_args: Vec::new(),
            duplicates: DuplicateHandling::Mark,
            optical_distance: 100,
            marking: MarkingOptions::default(),
        }
    }
}

/// The output of the reference pipeline.
#[derive(Clone, Debug)]
pub struct ReferenceOutput {
    /// Sorted records, with duplicates handled as requested.
    pub bam: PathBuf,
    /// Picard's metrics; `None` with [`DuplicateHandling::None`].
    pub metrics: Option<PathBuf>,
}

/// Runs the reference pipeline on `lanes`.
///
/// # Panics
/// When one of its tools fails.
pub fn run_reference_pipeline(reference: &Path, lanes: &[Lane], options: &AlignOptions) -> ReferenceOutput {
    let sorted = memoized(
        &format!(
            "sorted {reference:?} {lanes:?} {:?} {:?} {:?}",
            options.block_bases, options.aligner, options.aligner_args
        ),
        || align_and_sort(reference, lanes, options),
    );
    if options.duplicates == DuplicateHandling::None {
        return ReferenceOutput { bam: sorted, metrics: None };
    }
    let bam = memoized(
        &format!("marked {sorted:?} {:?} {} {:?}", options.duplicates, options.optical_distance, options.marking),
        || {
            let bam = scratch::directory("marked").join("expected.bam");
            let marking = PicardOptions {
                optical_distance: options.optical_distance,
                remove: options.duplicates == DuplicateHandling::Remove,
                marking: options.marking.clone(),
            };
            let (input, marked) = match options.marking.query_grouped {
                true => (sorted.with_file_name("joined.bam"), bam.with_file_name("grouped.bam")),
                false => (sorted.clone(), bam.clone()),
            };
            picard::mark_duplicates(&input, &marked, &bam.with_extension("duplicates.txt"), &marking)
                .unwrap_or_else(|refusal| panic!("Picard refused {}: {}", input.display(), refusal.0));
            if marked != bam {
                picard::sort_by_coordinate(&marked, &bam, "bam");
            }
            bam
        },
    );
    ReferenceOutput { metrics: Some(bam.with_extension("duplicates.txt")), bam }
}

/// Returns the result of `work`, which runs only once for each `key` in this process.
fn memoized(key: &str, work: impl FnOnce() -> PathBuf) -> PathBuf {
    type Cell = Arc<OnceLock<PathBuf>>;
    static DONE: Mutex<Option<HashMap<String, Cell>>> = Mutex::new(None);
    let cell = {
        let mut done = DONE.lock();
        done.get_or_insert_default().entry(key.to_owned()).or_default().clone()
    };
    cell.get_or_init(work).clone()
}

fn align_and_sort(reference: &Path, lanes: &[Lane], options: &AlignOptions) -> PathBuf {
    let directory = scratch::directory("reference-run");
    let samtools = Tool::require("samtools");
    let parts: Vec<PathBuf> = (0..lanes.len())
        .map(|lane| align_lane(reference, &lanes[lane], options, &directory.join(format!("lane{lane}.bam"))))
        .collect();
    let header = directory.join("header.sam");
    std::fs::write(&header, merged_header(&parts)).expect("the scratch directory can be written to");
    let (joined, sorted) = (directory.join("joined.bam"), directory.join("sorted.bam"));
    let mut command = samtools.command();
    command.args(["cat", "--no-PG", "-h"]).arg(&header).arg("-o").arg(&joined).args(&parts);
    crate::tool::run_checked(&mut command);
    let mut command = samtools.command();
    command.args(["sort", "--no-PG", "-l", "1", "-o"]).arg(&sorted).arg(&joined);
    crate::tool::run_checked(&mut command);
    sorted
}

/// Returns the header of the first part with the `@RG` lines of all parts: `samtools cat` 1.16 keeps only those of the
/// first.
fn merged_header(parts: &[PathBuf]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let header =
            Tool::require("samtools").run(["view".as_ref(), "--no-PG".as_ref(), "-H".as_ref(), part.as_os_str()]);
        for line in String::from_utf8_lossy(&header.stdout).lines() {
            let wanted = part == &parts[0] || line.starts_with("@RG");
            if wanted && lines.iter().all(|known| known != line) {
                lines.push(line.to_owned());
            }
        }
    }
    lines.join("\n") + "\n"
}

fn align_lane(reference: &Path, lane: &Lane, options: &AlignOptions, output: &Path) -> PathBuf {
    let stderr =
        std::fs::File::create(output.with_extension("stderr")).expect("the scratch directory can be written to");
    let mut command = options.aligner.command(reference, lane, options);
    match (&lane.reads[..], options.aligner) {
        ([one, two], Aligner::Bowtie2) => command.arg("-1").arg(one).arg("-2").arg(two),
        (reads, _) => command.args(reads),
    };
    let mut aligner =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().expect("the aligner can be started");
    let lines = aligner.stdout.take().expect("stdout is piped");
    let packed = Tool::require("samtools")
        .command()
        .args(["view", "--no-PG", "-b", "-1", "-o"])
        .arg(output)
        .stdin(lines)
        .status()
        .expect("samtools can be started");
    let status = aligner.wait().expect("the aligner can be waited for");
    assert!(status.success(), "the aligner ended with {status}: see {}", output.with_extension("stderr").display());
    assert!(packed.success(), "samtools view ended with {packed}");
    output.to_path_buf()
}
