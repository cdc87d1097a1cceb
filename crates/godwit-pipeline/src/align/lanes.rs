//! What each `--reads` is, found out before anything is aligned: FASTQ of one kind or another, or SAM, BAM or CRAM of reads.
//!
//! Flows in: paths. Flows out: lanes that can be opened when their turn comes. Files are looked at and closed again; a
//! pipe can be read only once, so it stays open from here on. A file of several read groups becomes a lane for each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_cram as cram;
use godwit_formats::bam;
use godwit_formats::bgzf::{self, BgzfError};
use godwit_formats::fastq::{FastqError, FilePlace, LaneInput, LaneOptions, LaneReader};
use godwit_formats::sam::{self, Header, InputFormat, ReadError};
use godwit_formats::unaligned::{self, Selection, Take, UnalignedError};
use godwit_model::BlockId;

use super::AlignOptions;
use super::header::invalid;
use super::trim::Trimming;
use crate::error::{AlignmentsError, PipelineError};
use crate::run_directory::BlockStart;

/// Bytes of the first batch of each lane, which is read before anything is aligned.
const CHECKED_BYTES: usize = 64 << 10;

/// How the reads of a run come.
#[derive(Clone, Debug, Default)]
pub struct ReadsOptions {
    /// FASTQ files of one name hold both mates, one after the other.
    pub interleaved: bool,
    /// Tags of SAM, BAM and CRAM that become the comments of reads.
    pub keep_tags: Vec<[u8; 2]>,
    /// Trim with fastp, and these further words for it.
    pub trim: Option<Vec<String>>,
}

/// A lane that waits for its turn.
pub(super) struct Lane {
    /// Its files, as they were named.
    pub(super) files: Vec<PathBuf>,
    /// The `@RG` line that the file has for it.
    pub(super) read_group: Option<String>,
    /// Name of its first read, where it could be made out.
    pub(super) first_name: String,
    kind: Kind,
    /// What is open already: pipes.
    opened: Option<LaneInput>,
}

impl Lane {
    /// Whether its reads can be had only once, from pipes.
    pub(super) fn is_read_once(&self) -> bool {
        self.opened.is_some()
    }

    /// Whether its reads come as pairs; `None` where only the reads tell.
    pub(super) fn is_paired(&self) -> Option<bool> {
        match self.kind {
            Kind::Fastq => Some(self.files.len() == 2),
            Kind::Interleaved => Some(true),
            Kind::Unaligned(_) => None,
        }
    }
}

#[derive(Clone)]
enum Kind {
    Fastq,
    Interleaved,
    Unaligned(Selection),
}

/// A lane at its turn.
pub(super) struct OpenLane {
    pub(super) reader: LaneReader,
    /// The program that its reads come through.
    pub(super) trimming: Option<Trimming>,
    /// The block that it is read from; its first one otherwise.
    pub(super) start: Option<BlockStart>,
}

/// Finds out what the lanes of a run are.
///
/// # Errors
/// [`PipelineError`]: combinations that make no sense, and files that cannot be opened or are neither.
pub(super) fn plan(options: &AlignOptions, cancelled: &Arc<AtomicBool>) -> Result<Vec<Lane>, PipelineError> {
    let mut lanes = Vec::new();
    for files in &options.lanes {
        let planned = Planner { options, cancelled, files }.plan();
        let checked = planned.and_then(|lanes| {
            lanes.iter().try_for_each(|lane| lane.check(options, cancelled))?;
            Ok(lanes)
        });
        lanes.extend(checked.map_err(|error| error.unless_cancelled(cancelled))?);
    }
    if lanes.len() >= BlockId::MAX_LANES as usize {
        return Err(PipelineError::Options { problem: format!("more than {} lanes", BlockId::MAX_LANES - 1) });
    }
    Ok(lanes)
}

struct Planner<'p> {
    options: &'p AlignOptions,
    cancelled: &'p Arc<AtomicBool>,
    files: &'p [PathBuf],
}

impl Planner<'_> {
    fn plan(&self) -> Result<Vec<Lane>, PipelineError> {
        let mut inputs = Vec::new();
        let mut formats = Vec::new();
        for file in self.files {
            let mut input = self.open(file)?;
            formats.push(sam::sniff(&mut input));
            inputs.push(input);
        }
        let aligned = formats.iter().position(|format| *format != InputFormat::Unknown);
        match (aligned, inputs.len()) {
            (Some(_), 1) => self.unaligned(inputs.remove(0), formats[0]),
            (Some(at), _) => Err(self.refused(at, "is SAM, BAM or CRAM, which holds both mates: name it alone")),
            (None, _) => self.fastq(inputs),
        }
    }

    fn open(&self, file: &Path) -> Result<bgzf::Reader, PipelineError> {
        open(file, self.options.job.threads.div_ceil(self.files.len().max(1)), self.options.lenient, self.cancelled)
    }

    fn refused(&self, file: usize, problem: &str) -> PipelineError {
        PipelineError::Options { problem: format!("{} {problem}", self.files[file].display()) }
    }

    fn fastq(&self, mut inputs: Vec<bgzf::Reader>) -> Result<Vec<Lane>, PipelineError> {
        let reads = &self.options.reads;
        if !reads.keep_tags.is_empty() {
            return Err(self.refused(0, "is not SAM, BAM or CRAM, but --keep-tags takes tags from there; FASTQ comments come along with --aligner-args -C"));
        }
        if reads.interleaved && inputs.len() > 1 {
            return Err(self.refused(1, "is a second file of a lane, but --interleaved says that one has both mates"));
        }
        let pipe = inputs.iter().position(bgzf::Reader::is_read_once);
        if let (Some(at), Some(_)) = (pipe, &reads.trim) {
            let problem = "is a pipe, but --trim reads files twice; put fastp into the pipe: \
                fastp --stdin --interleaved_in --stdout --thread 1 | godwit align --interleaved --reads -";
            return Err(self.refused(at, problem));
        }
        if let (Some(at), Some(_)) = (inputs.iter().position(bgzf::Reader::is_decrypted), &reads.trim) {
            return Err(
                self.refused(at, "is encrypted, and fastp, which --trim runs, cannot read it; decrypt it first")
            );
        }
        for input in &mut inputs {
            let path = input.path().to_owned();
            let is_pipe = input.is_read_once();
            match input.data() {
                Ok([]) => return Err(FastqError::Empty { file: path }.into()),
                Err(error) if is_pipe => return Err(PipelineError::alignments(&path, ReadError::from(error).into())),
                // A file that is damaged at its start is read again, and named with the record.
                Ok(_) | Err(_) => {}
            }
        }
        let first_name = first_name(inputs[0].peek());
        let kind = if reads.interleaved { Kind::Interleaved } else { Kind::Fastq };
        let opened = match (pipe, inputs.pop(), inputs.pop()) {
            (Some(_), Some(input), None) if reads.interleaved => Some(LaneInput::Interleaved(input)),
            (Some(_), Some(input), None) => Some(LaneInput::Single(input)),
            (Some(_), Some(second), Some(first)) => Some(LaneInput::Pair(first, second)),
            _ => None,
        };
        Ok(vec![Lane { files: self.files.to_vec(), read_group: None, first_name, kind, opened }])
    }

    fn unaligned(&self, input: bgzf::Reader, format: InputFormat) -> Result<Vec<Lane>, PipelineError> {
        if self.options.reads.trim.is_some() {
            return Err(self.refused(0, "is SAM, BAM or CRAM, but --trim takes FASTQ; make it with `samtools fastq`"));
        }
        let is_pipe = input.is_read_once();
        let records = Records::open(input, format, self.options)?;
        let origin = self.files[0].display().to_string();
        let groups = records.header().read_groups().map_err(|error| invalid(&origin, error))?;
        let all: Vec<Vec<u8>> = groups.iter().map(|group| group.id.clone().into_bytes()).collect();
        let selections: Vec<(Option<String>, Take)> = match &groups[..] {
            _ if !self.options.read_groups.is_empty() => vec![(None, Take::All)],
            [] => vec![(None, Take::All)],
            [only] => vec![(Some(only.line.clone()), Take::Only(all[0].clone()))],
            _ if is_pipe => {
                let problem = "has several read groups, and a pipe can be read only once: give a file, or split it \
                    with `samtools split`, or name one read group for all with --read-group";
                return Err(self.refused(0, problem));
            }
            several => several
                .iter()
                .zip(&all)
                .map(|(group, id)| (Some(group.line.clone()), Take::Group { id: id.clone(), all: all.clone() }))
                .collect(),
        };
        let lane = |(read_group, take): (Option<String>, Take)| Lane {
            files: self.files.to_vec(),
            read_group,
            first_name: String::new(),
            kind: Kind::Unaligned(Selection { take, tags: self.options.reads.keep_tags.clone() }),
            opened: None,
        };
        let mut lanes: Vec<Lane> = selections.into_iter().map(lane).collect();
        // What a first record tells is needed where it names the read group, and kept open where it comes but once.
        if let [lane] = &mut lanes[..]
            && let Kind::Unaligned(selection) = &lane.kind
        {
            let reader = records.into_reads(selection.clone())?;
            lane.first_name = String::from_utf8_lossy(reader.first_name()).into_owned();
            lane.opened = is_pipe.then_some(LaneInput::Unaligned(Box::new(reader)));
        }
        Ok(lanes)
    }
}

/// SAM, BAM or CRAM that stands at its first record.
enum Records {
    Sam(sam::Reader),
    Bam(bam::Reader),
    Cram(Box<cram::Reader>),
}

impl Records {
    fn open(input: bgzf::Reader, format: InputFormat, options: &AlignOptions) -> Result<Self, PipelineError> {
        let opened = match format {
            InputFormat::Cram => return open_cram(&input, options).map(Self::Cram),
            InputFormat::Bam => bam::Reader::new(input).map(Self::Bam).map_err(UnalignedError::from),
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

/// Opens CRAM, which htslib reads from its path. One whose header has contigs may hold aligned reads, as differences to the
/// reference they were aligned to. That is the run's own or not known; reads of no contig need none.
fn open_cram(input: &bgzf::Reader, options: &AlignOptions) -> Result<Box<cram::Reader>, PipelineError> {
    let path = input.path();
    if input.is_read_once() {
        return Err(PipelineError::alignments(path, AlignmentsError::CramPipe));
    }
    if input.is_decrypted() {
        return Err(PipelineError::alignments(path, AlignmentsError::CramEncrypted));
    }
    let failed = |error: cram::CramError| PipelineError::alignments(path, error.into());
    let program = &options.job.program;
    let mut request = cram::DecodeRequest { path: path.to_owned(), reference: None, threads: options.job.threads };
    let reader = cram::Reader::open(program, &request).map_err(failed)?;
    if reader.genome().contigs().is_empty() {
        return Ok(Box::new(reader));
    }
    // While a run is planned, its directories need not be there.
    let scratch = options.job.temp.as_deref().unwrap_or(&options.out);
    let scratch = if scratch.is_dir() { scratch.to_owned() } else { std::env::temp_dir() };
    request.reference = Some((options.reference.clone(), scratch));
    match cram::Reader::open(program, &request) {
        // Of another reference: what holds none of it can be read still.
        Err(cram::CramError::Decoder { .. }) => Ok(Box::new(reader)),
        opened => Ok(Box::new(opened.map_err(failed)?)),
    }
}

impl Lane {
    /// Opens the lane, at the start of a block where there is one, and starts what its reads come through.
    pub(super) fn open(
        &mut self,
        number: usize,
        start: Option<BlockStart>,
        lane_options: &LaneOptions,
        options: &AlignOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<OpenLane, PipelineError> {
        if let Some(arguments) = &options.reads.trim {
            let interleaved = matches!(self.kind, Kind::Interleaved);
            return Trimming::start(&self.files, interleaved, number, arguments, options, lane_options, cancelled);
        }
        if let Some(input) = self.opened.take() {
            return Ok(OpenLane { reader: LaneReader::new(input, lane_options), trimming: None, start: None });
        }
        if let Some(start) = start.filter(|start| start.places.len() == self.files.len()) {
            let input = self.input(lane_options, options, cancelled, Some(&start.places))?;
            if let Some(reader) = LaneReader::from_places(input, &start.places, lane_options) {
                return Ok(OpenLane { reader, trimming: None, start: Some(start) });
            }
        }
        let input = self.input(lane_options, options, cancelled, None)?;
        Ok(OpenLane { reader: LaneReader::new(input, lane_options), trimming: None, start: None })
    }

    /// Reads the first reads of FASTQ files, which would else be read when the lanes before them are aligned.
    fn check(&self, options: &AlignOptions, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
        let is_fastq = matches!(self.kind, Kind::Fastq | Kind::Interleaved);
        // fastp has rules of its own.
        if !is_fastq || options.reads.trim.is_some() {
            return Ok(());
        }
        let lane_options = LaneOptions { batch_bytes: CHECKED_BYTES, decompress_threads: 1, ..options.lane_options() };
        if let Some(mut reader) = self.look(&lane_options, options, cancelled)? {
            reader.next()?;
        }
        Ok(())
    }

    /// Its reads before anything is done to them, to be looked at; `None` for what can be read only once.
    pub(super) fn look(
        &self,
        lane_options: &LaneOptions,
        options: &AlignOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Option<LaneReader>, PipelineError> {
        if self.opened.is_some() {
            return Ok(None);
        }
        Ok(Some(LaneReader::new(self.input(lane_options, options, cancelled, None)?, lane_options)))
    }

    /// Opens its files, FASTQ at these places where there are any.
    fn input(
        &self,
        lane_options: &LaneOptions,
        options: &AlignOptions,
        cancelled: &Arc<AtomicBool>,
        places: Option<&[FilePlace]>,
    ) -> Result<LaneInput, PipelineError> {
        let threads = lane_options.decompress_threads.div_ceil(self.files.len());
        let reads = |file: usize| {
            let start = places.and_then(|places| places.get(file)).map(|place| &place.start);
            let path = &self.files[file];
            opened(path, bgzf::Reader::open_noting(path, threads, lane_options.lenient, start), cancelled)
        };
        Ok(match (&self.kind, &self.files[..]) {
            (Kind::Unaligned(selection), [file, ..]) => {
                let mut input = open(file, threads, lane_options.lenient, cancelled)?;
                let format = sam::sniff(&mut input);
                let records = Records::open(input, format, options)?;
                LaneInput::Unaligned(Box::new(records.into_reads(selection.clone())?))
            }
            (Kind::Interleaved, [_]) => LaneInput::Interleaved(reads(0)?),
            (_, [_]) => LaneInput::Single(reads(0)?),
            (_, [_, _]) => LaneInput::Pair(reads(0)?, reads(1)?),
            (_, files) => return Err(FastqError::FileCount { count: files.len() }.into()),
        })
    }
}

fn open(
    file: &Path,
    threads: usize,
    lenient: bool,
    cancelled: &Arc<AtomicBool>,
) -> Result<bgzf::Reader, PipelineError> {
    opened(file, bgzf::Reader::open_any(file, threads, lenient), cancelled)
}

/// A file that was opened, to be read until somebody cancels.
fn opened(
    file: &Path,
    opened: Result<bgzf::Reader, BgzfError>,
    cancelled: &Arc<AtomicBool>,
) -> Result<bgzf::Reader, PipelineError> {
    let mut input = opened.map_err(|error| PipelineError::alignments(file, ReadError::from(error).into()))?;
    input.cancel_with(Arc::clone(cancelled));
    Ok(input)
}

/// The name in the first line of FASTQ or FASTA, without `@`.
fn first_name(text: &[u8]) -> String {
    let name = text.get(1..).unwrap_or_default().split(u8::is_ascii_whitespace).next();
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}
