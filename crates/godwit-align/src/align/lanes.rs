//! Detects the format of each `--reads` input before the alignment starts: FASTQ (single-end, paired or interleaved),
//! SAM, BAM or CRAM.
//!
//! Input: the paths of the job. Output: lanes, which the caller opens one after the other. Files are inspected and
//! closed again; a pipe stays open, because it can be read only once. A file with several read groups becomes one lane
//! per read group.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_cram as cram;
use godwit_formats::bam;
use godwit_formats::fastq::{FastqError, FastqResumePoint, LaneInput, LaneOptions, LaneReader};
use godwit_formats::sam::{self, AlignmentFormat, Header, SamReadError};
use godwit_formats::unaligned::{self, ReadGroupFilter, Selection, UnalignedError};
use godwit_io::bgzf::{self, BgzfError};
use godwit_model::BlockId;
use godwit_pipeline::job_directory::BlockStart;
use godwit_pipeline::{AlignmentsError, PipelineError};

use super::AlignOptions;
use super::header::header_error;
use super::trim::LaneTrimmer;

/// Size in bytes of the first batch of reads of a lane. This batch is read before the alignment starts, to detect
/// invalid files.
const FIRST_BATCH_BYTES: usize = 64 << 10;

/// Formats and preprocessing of the reads of a job.
#[derive(Clone, Debug, Default)]
pub struct ReadsOptions {
    /// True if one FASTQ file contains both mates of each pair, one after the other.
    pub interleaved: bool,
    /// Tags in SAM, BAM or CRAM input whose values become the comments of reads.
    pub keep_tags: Vec<[u8; 2]>,
    /// Additional arguments for fastp, which trims the reads; `None` if reads are not trimmed.
    pub trim: Option<Vec<String>>,
}

/// A lane, which is one input of the job or one read group of an input. Its reading has not started.
pub(super) struct Lane {
    /// Input files of the lane, as they were named on the command line.
    pub(super) files: Vec<PathBuf>,
    /// `@RG` line of the lane, from the header of its SAM, BAM or CRAM file.
    pub(super) read_group: Option<String>,
    /// Name of the first read; empty if it is unknown.
    pub(super) first_read_name: String,
    kind: LaneKind,
    /// Input of the lane if it is a pipe, which is already open.
    open_pipe: Option<LaneInput>,
}

impl Lane {
    /// Returns whether the lane is read from a pipe, which can be read only once.
    pub(super) fn is_read_once(&self) -> bool {
        self.open_pipe.is_some()
    }

    /// Returns whether the reads of the lane are paired; `None` for SAM, BAM and CRAM, in which only the records show
    /// it.
    pub(super) fn is_paired(&self) -> Option<bool> {
        match self.kind {
            LaneKind::Fastq => Some(self.files.len() == 2),
            LaneKind::Interleaved => Some(true),
            LaneKind::Unaligned(_) => None,
        }
    }
}

#[derive(Clone)]
enum LaneKind {
    Fastq,
    Interleaved,
    Unaligned(Selection),
}

/// A lane whose files are open.
pub(super) struct OpenLane {
    pub(super) reader: LaneReader,
    /// The fastp process that trims the reads of the lane.
    pub(super) trimmer: Option<LaneTrimmer>,
    /// The block at which reading starts; `None` for the first block.
    pub(super) start: Option<BlockStart>,
}

/// Detects the lanes of a job.
///
/// # Errors
/// [`PipelineError`] for combinations of inputs and options that are not supported, and for files that cannot be opened
/// or have another format.
pub(super) fn plan_lanes(options: &AlignOptions, cancelled: &Arc<AtomicBool>) -> Result<Vec<Lane>, PipelineError> {
    let mut lanes = Vec::new();
    for files in &options.lanes {
        let planned = LanePlanner { options, cancelled, files }.plan();
        let checked = planned.and_then(|lanes| {
            lanes.iter().try_for_each(|lane| lane.check_first_reads(options, cancelled))?;
            Ok(lanes)
        });
        lanes.extend(checked.map_err(|error| error.or_interrupted(cancelled))?);
    }
    if lanes.len() >= BlockId::MAX_LANES as usize {
        return Err(PipelineError::Options { problem: format!("more than {} lanes", BlockId::MAX_LANES - 1) });
    }
    Ok(lanes)
}

struct LanePlanner<'p> {
    options: &'p AlignOptions,
    cancelled: &'p Arc<AtomicBool>,
    files: &'p [PathBuf],
}

impl LanePlanner<'_> {
    fn plan(&self) -> Result<Vec<Lane>, PipelineError> {
        let mut inputs = Vec::new();
        let mut formats = Vec::new();
        for file in self.files {
            let mut input = self.open_file(file)?;
            formats.push(sam::detect_format(&mut input));
            inputs.push(input);
        }
        let aligned = formats.iter().position(|format| *format != AlignmentFormat::Unknown);
        match (aligned, inputs.len()) {
            (Some(_), 1) => self.plan_unaligned(inputs.remove(0), formats[0]),
            (Some(at), _) => {
                Err(self
                    .lane_error(at, "is SAM, BAM or CRAM, which contains both mates: give it without a second file"))
            }
            (None, _) => self.plan_fastq(inputs),
        }
    }

    fn open_file(&self, file: &Path) -> Result<bgzf::Reader, PipelineError> {
        open_input(
            file,
            self.options.job.threads.div_ceil(self.files.len().max(1)),
            self.options.lenient,
            self.cancelled,
        )
    }

    fn lane_error(&self, file: usize, problem: &str) -> PipelineError {
        PipelineError::Options { problem: format!("{} {problem}", self.files[file].display()) }
    }

    fn plan_fastq(&self, mut inputs: Vec<bgzf::Reader>) -> Result<Vec<Lane>, PipelineError> {
        let reads = &self.options.reads;
        if !reads.keep_tags.is_empty() {
            let problem = "is not SAM, BAM or CRAM, but --keep-tags reads tags of these formats; --aligner-args -C \
                           keeps FASTQ comments";
            return Err(self.lane_error(0, problem));
        }
        if reads.interleaved && inputs.len() > 1 {
            return Err(self.lane_error(
                1,
                "is the second file of a lane, but --interleaved means that one file contains both mates",
            ));
        }
        let pipe = inputs.iter().position(bgzf::Reader::is_single_pass);
        if let (Some(at), Some(_)) = (pipe, &reads.trim) {
            let problem = "is a pipe, but --trim reads files twice; put fastp into the pipe: \
                fastp --stdin --interleaved_in --stdout --thread 1 | godwit align --interleaved --reads -";
            return Err(self.lane_error(at, problem));
        }
        if let (Some(at), Some(_)) = (inputs.iter().position(bgzf::Reader::is_decrypted), &reads.trim) {
            return Err(
                self.lane_error(at, "is encrypted, and fastp, which --trim runs, cannot read it; decrypt it first")
            );
        }
        for input in &mut inputs {
            let path = input.path().to_owned();
            let is_pipe = input.is_single_pass();
            match input.data() {
                Ok([]) => return Err(FastqError::Empty { file: path }.into()),
                Err(error) if is_pipe => {
                    return Err(PipelineError::alignments(&path, SamReadError::from(error).into()));
                }
                // A file that is damaged at its start is accepted here. It is read again later, with an error that
                // names the damaged record.
                Ok(_) | Err(_) => {}
            }
        }
        let first_read_name = first_read_name(inputs[0].peek());
        let kind = if reads.interleaved { LaneKind::Interleaved } else { LaneKind::Fastq };
        let open_pipe = match (pipe, inputs.pop(), inputs.pop()) {
            (Some(_), Some(input), None) if reads.interleaved => Some(LaneInput::Interleaved(input)),
            (Some(_), Some(input), None) => Some(LaneInput::Single(input)),
            (Some(_), Some(second), Some(first)) => Some(LaneInput::Pair(first, second)),
            _ => None,
        };
        Ok(vec![Lane { files: self.files.to_vec(), read_group: None, first_read_name, kind, open_pipe }])
    }

    fn plan_unaligned(&self, input: bgzf::Reader, format: AlignmentFormat) -> Result<Vec<Lane>, PipelineError> {
        if self.options.reads.trim.is_some() {
            return Err(
                self.lane_error(0, "is SAM, BAM or CRAM, but --trim reads FASTQ; convert it with `samtools fastq`")
            );
        }
        let is_pipe = input.is_single_pass();
        let records = UnalignedRecords::open(input, format, self.options)?;
        let origin = self.files[0].display().to_string();
        let groups = records.header().read_groups().map_err(|error| header_error(&origin, error))?;
        let all: Vec<Vec<u8>> = groups.iter().map(|group| group.id.clone().into_bytes()).collect();
        let selections: Vec<(Option<String>, ReadGroupFilter)> = match &groups[..] {
            _ if !self.options.read_groups.is_empty() => vec![(None, ReadGroupFilter::All)],
            [] => vec![(None, ReadGroupFilter::All)],
            [only] => vec![(Some(only.line.clone()), ReadGroupFilter::Single(all[0].clone()))],
            _ if is_pipe => {
                let problem = "has several read groups, and a pipe can be read only once: give a file, or split it \
                    with `samtools split`, or name one read group for all with --read-group";
                return Err(self.lane_error(0, problem));
            }
            several => several
                .iter()
                .zip(&all)
                .map(|(group, id)| {
                    (Some(group.line.clone()), ReadGroupFilter::OneOf { id: id.clone(), known_ids: all.clone() })
                })
                .collect(),
        };
        let lane = |(read_group, read_groups): (Option<String>, ReadGroupFilter)| Lane {
            files: self.files.to_vec(),
            read_group,
            first_read_name: String::new(),
            kind: LaneKind::Unaligned(Selection { read_groups, tags: self.options.reads.keep_tags.clone() }),
            open_pipe: None,
        };
        let mut lanes: Vec<Lane> = selections.into_iter().map(lane).collect();
        // If there is only one lane, the name of its first read may identify the read group. A pipe stays open, because
        // it can be read only once.
        if let [lane] = &mut lanes[..]
            && let LaneKind::Unaligned(selection) = &lane.kind
        {
            let reader = records.into_reads(selection.clone())?;
            lane.first_read_name = String::from_utf8_lossy(reader.first_name()).into_owned();
            lane.open_pipe = is_pipe.then_some(LaneInput::Unaligned(Box::new(reader)));
        }
        Ok(lanes)
    }
}

/// A reader of SAM, BAM or CRAM at its first record.
enum UnalignedRecords {
    Sam(sam::Reader),
    Bam(bam::Reader),
    Cram(Box<cram::Reader>),
}

impl UnalignedRecords {
    fn open(input: bgzf::Reader, format: AlignmentFormat, options: &AlignOptions) -> Result<Self, PipelineError> {
        let opened = match format {
            AlignmentFormat::Cram => return open_cram(&input, options).map(Self::Cram),
            AlignmentFormat::Bam => bam::Reader::new(input).map(Self::Bam).map_err(UnalignedError::from),
            _ => sam::Reader::new(input).map(Self::Sam).map_err(UnalignedError::from),
        };
        opened.map_err(|error| FastqError::from(error).into())
    }

    fn header(&self) -> &Header {
        match self {
            Self::Sam(reader) => reader.header(),
            Self::Bam(reader) => reader.header(),
            Self::Cram(reader) => reader.header(),
        }
    }

    fn into_reads(self, selection: Selection) -> Result<unaligned::Reader, PipelineError> {
        let reads = match self {
            Self::Sam(reader) => unaligned::Reader::from_sam(reader, selection),
            Self::Bam(reader) => unaligned::Reader::from_bam(reader, selection),
            Self::Cram(reader) => unaligned::Reader::from_source(reader, selection),
        };
        reads.map_err(|error| FastqError::from(error).into())
    }
}

/// Opens a CRAM file, which htslib reads by its path. If its header has contigs, it may contain aligned reads, stored
/// as differences to a reference sequence. This function then tries the reference of the job. Unaligned reads need no
/// reference.
fn open_cram(input: &bgzf::Reader, options: &AlignOptions) -> Result<Box<cram::Reader>, PipelineError> {
    let path = input.path();
    if input.is_single_pass() {
        return Err(PipelineError::alignments(path, AlignmentsError::CramPipe));
    }
    if input.is_decrypted() {
        return Err(PipelineError::alignments(path, AlignmentsError::CramEncrypted));
    }
    let failed = |error: cram::CramError| PipelineError::alignments(path, error.into());
    let program = &options.job.godwit_program;
    let mut request = cram::DecodeRequest { path: path.to_owned(), reference: None, threads: options.job.threads };
    let reader = cram::Reader::open(program, &request).map_err(failed)?;
    if reader.genome().contigs().is_empty() {
        return Ok(Box::new(reader));
    }
    // If a job is only planned, its scratch directory may not exist.
    let scratch = options.job.temp.as_deref().unwrap_or(&options.out);
    let scratch = if scratch.is_dir() { scratch.to_owned() } else { std::env::temp_dir() };
    request.reference = Some((options.reference.clone(), scratch));
    match cram::Reader::open(program, &request) {
        // The file was written with another reference: without a reference, records that are not stored as differences
        // can be read.
        Err(cram::CramError::DecoderFailure { .. }) => Ok(Box::new(reader)),
        opened => Ok(Box::new(opened.map_err(failed)?)),
    }
}

impl Lane {
    /// Opens the lane at the block start `start`, if there is one, and otherwise at its beginning. Starts fastp if
    /// reads are trimmed. `trim_reports`: the path of its reports without the extension.
    pub(super) fn open(
        &mut self,
        trim_reports: &Path,
        start: Option<BlockStart>,
        lane_options: &LaneOptions,
        options: &AlignOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<OpenLane, PipelineError> {
        if let Some(arguments) = &options.reads.trim {
            let interleaved = matches!(self.kind, LaneKind::Interleaved);
            let threads = options.job.threads;
            return LaneTrimmer::start(
                &self.files,
                interleaved,
                trim_reports,
                arguments,
                threads,
                lane_options,
                cancelled,
            );
        }
        if let Some(input) = self.open_pipe.take() {
            return Ok(OpenLane { reader: LaneReader::new(input, lane_options), trimmer: None, start: None });
        }
        if let Some(start) = start.filter(|start| start.file_positions.len() == self.files.len()) {
            let input = self.open_input(lane_options, options, cancelled, Some(&start.file_positions))?;
            if let Some(reader) = LaneReader::from_resume_points(input, &start.file_positions, lane_options) {
                return Ok(OpenLane { reader, trimmer: None, start: Some(start) });
            }
        }
        let input = self.open_input(lane_options, options, cancelled, None)?;
        Ok(OpenLane { reader: LaneReader::new(input, lane_options), trimmer: None, start: None })
    }

    /// Reads the first reads of a FASTQ lane, to detect an invalid file before earlier lanes are aligned.
    fn check_first_reads(&self, options: &AlignOptions, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
        let is_fastq = matches!(self.kind, LaneKind::Fastq | LaneKind::Interleaved);
        // With --trim, do not check the file here, because fastp accepts some FASTQ files that godwit rejects.
        if !is_fastq || options.reads.trim.is_some() {
            return Ok(());
        }
        let lane_options =
            LaneOptions { batch_bytes: FIRST_BATCH_BYTES, decompress_threads: 1, ..options.lane_options() };
        if let Some(mut reader) = self.open_for_inspection(&lane_options, options, cancelled)? {
            reader.next()?;
        }
        Ok(())
    }

    /// Opens the untrimmed reads of the lane for inspection; `None` for a pipe, which can be read only once.
    pub(super) fn open_for_inspection(
        &self,
        lane_options: &LaneOptions,
        options: &AlignOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Option<LaneReader>, PipelineError> {
        if self.open_pipe.is_some() {
            return Ok(None);
        }
        Ok(Some(LaneReader::new(self.open_input(lane_options, options, cancelled, None)?, lane_options)))
    }

    /// Opens the files of the lane. If `places` are given, FASTQ files are opened at these positions.
    fn open_input(
        &self,
        lane_options: &LaneOptions,
        options: &AlignOptions,
        cancelled: &Arc<AtomicBool>,
        places: Option<&[FastqResumePoint]>,
    ) -> Result<LaneInput, PipelineError> {
        let threads = lane_options.decompress_threads.div_ceil(self.files.len());
        let reads = |file: usize| {
            let start = places.and_then(|places| places.get(file)).map(|place| &place.resume_point);
            let path = &self.files[file];
            with_cancellation(path, bgzf::Reader::open_resumable(path, threads, lane_options.lenient, start), cancelled)
        };
        Ok(match (&self.kind, &self.files[..]) {
            (LaneKind::Unaligned(selection), [file, ..]) => {
                let mut input = open_input(file, threads, lane_options.lenient, cancelled)?;
                let format = sam::detect_format(&mut input);
                let records = UnalignedRecords::open(input, format, options)?;
                LaneInput::Unaligned(Box::new(records.into_reads(selection.clone())?))
            }
            (LaneKind::Interleaved, [_]) => LaneInput::Interleaved(reads(0)?),
            (_, [_]) => LaneInput::Single(reads(0)?),
            (_, [_, _]) => LaneInput::Pair(reads(0)?, reads(1)?),
            (_, files) => return Err(FastqError::FileCount { count: files.len() }.into()),
        })
    }
}

fn open_input(
    file: &Path,
    threads: usize,
    lenient: bool,
    cancelled: &Arc<AtomicBool>,
) -> Result<bgzf::Reader, PipelineError> {
    with_cancellation(file, bgzf::Reader::open_any(file, threads, lenient), cancelled)
}

/// Returns an opened file of which reading stops when the job is cancelled.
fn with_cancellation(
    file: &Path,
    opened: Result<bgzf::Reader, BgzfError>,
    cancelled: &Arc<AtomicBool>,
) -> Result<bgzf::Reader, PipelineError> {
    let mut input = opened.map_err(|error| PipelineError::alignments(file, SamReadError::from(error).into()))?;
    input.set_cancel_flag(Arc::clone(cancelled));
    Ok(input)
}

/// Returns the read name in the first line of FASTQ or FASTA, without its first character `@` or `>`.
fn first_read_name(text: &[u8]) -> String {
    let name = text.get(1..).unwrap_or_default().split(u8::is_ascii_whitespace).next();
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}
