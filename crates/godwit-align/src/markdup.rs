//! Sorting and duplicate marking of reads that are already aligned (`godwit markdup`). The input is SAM, BAM or CRAM in
//! any order. The reduce phase is the same as in `align`.

mod alignment_reader;
pub(crate) mod markdup_plan;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use arrow_array::BinaryArray;
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use godwit_files::parent_directory;
use godwit_formats::sam::Header;
use godwit_io::crypt4gh::FILE_SUFFIX;
use godwit_kernels::markdup::{BlockSignatures, DuplicateMode, SignatureBuilder};
use godwit_model::{BlockId, Genome, RawRecord, SortKey};
use godwit_pipeline::DuplicatePolicy;
use godwit_pipeline::JobOptions;
use godwit_pipeline::MemoryPlan;
use godwit_pipeline::PipelineError;
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::job_report::{InputFile, JobReport, ResumedWork, Stage, check_inputs_remain};
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::read_groups::{ReadGroupIndexes, ReadGroups, compatibility_warnings};
use godwit_pipeline::reduce::{Collector, Format, JobMonitor, Outputs, PicardMetricsRequest};
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::scratch::create_private_directory;
use parking_lot::Mutex;

use crate::reference;
use crate::report_publication::{ReportDestination, publish_report};
use alignment_reader::{AlignmentReader, AlignmentReaderOptions, InputBlock, RecordEncoder};

/// Bytes of input per block, which one thread holds in memory and sorts as one run. The size is constant, so that the
/// output does not depend on the memory limit.
const BLOCK_BYTES: usize = 32 << 20;

/// Input, outputs and options of `markdup`.
#[derive(Clone, Debug)]
pub struct MarkdupOptions {
    /// Path of a SAM, BAM or CRAM file; [`godwit_io::bgzf::STDIN_PATH`] stands for standard input.
    pub input: PathBuf,
    /// Path of the main output, whose extension decides the format. The names of all other output files start with this
    /// path without the extension.
    pub out: PathBuf,
    /// Formats that are written in addition to that of `out`.
    pub formats: Vec<Format>,
    /// Path of the reference, which CRAM input, CRAM output and some metrics need.
    pub reference: Option<PathBuf>,
    /// Options that `align` and `markdup` share.
    pub job: JobOptions,
}

/// Sorts a file of aligned reads, marks duplicates and writes the outputs.
///
/// # Errors
/// A [`PipelineError`], in which case no output is published.
pub fn markdup(
    options: &MarkdupOptions,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<JobReport, PipelineError> {
    let started = Instant::now();
    let MarkdupSetup { memory, mut input, outputs, directory } = MarkdupSetup::check(options)?;
    observer.event(&Event::Stage { name: "reading and sorting" });
    let temp = options.job.temp.as_deref().unwrap_or(&directory);
    create_private_directory(temp).map_err(PipelineError::file("create", temp))?;
    let mut written = outputs.create_files(false)?;
    let reference = options.reference.as_deref().map(|reference| (reference, temp));
    let how = AlignmentReaderOptions { program: &options.job.godwit_program, reference, threads: options.job.threads };
    let opened = AlignmentReader::open(&options.input, how, cancelled);
    let (mut source, mut header) = opened.map_err(|error| error.or_interrupted(cancelled))?;
    let genome = header.genome().map_err(|error| source.header_error(error))?;
    if options.job.marking.mode == DuplicateMode::Query && header.is_coordinate_sorted() {
        return Err(not_grouped_error(&options.input));
    }
    let read_groups = read_header_groups(&header, &source, observer)?;
    update_header(&mut header, options);
    if let (Some(reference), true) = (&options.reference, options.job.metrics) {
        // Without metrics, this check is not needed: the CRAM decoder itself compares the file with the reference.
        ScannedReference::check_header_md5(reference, &options.input, &header)?;
    }
    let compared = options.job.metrics_reference(options.reference.as_deref());
    written.prepare(&outputs, &header, (compared, options.job.picard_metrics.as_ref()), temp)?;
    let reduce_options = options.job.reduce_options(memory, temp, options.reference.as_deref(), None);
    let collector = Collector::new(reduce_options, &read_groups, cancelled, None)?;
    let job = MarkdupJob {
        collector: &collector,
        genome: &genome,
        read_groups: &read_groups,
        policy: options.job.duplicates,
        observer,
        cancelled,
    };
    let collected = job.collect_records(&mut source, options.job.threads);
    let bytes = collected.map_err(|error| error.or_interrupted(cancelled))?;
    input.blake3 = source.checksum();
    drop(source);
    let sorted = Instant::now();
    let records = collector.records();
    let watched = JobMonitor { bam_tail: None, observer, cancelled };
    let reduced = collector.write(&header, &genome, &outputs, written, watched)?;
    let stages = vec![
        Stage { name: "read and sort", seconds: (sorted - started).as_secs_f64(), rows: records, bytes },
        Stage { name: "decide duplicates", seconds: reduced.deciding_seconds, rows: records, bytes: 0 },
        Stage { name: "write", seconds: reduced.writing_seconds, rows: reduced.records, bytes: reduced.written_bytes },
    ];
    let report = JobReport::new("markdup", &options.job.command, ("", ""));
    let report = report.with_inputs(vec![input]).with_stages(stages).with_outputs(&reduced, started.elapsed());
    let report = report.with_resumed_work(options.job.threads, ResumedWork::default(), started.elapsed());
    let identity = [
        FingerprintKey::Input.entry(report.inputs[0].blake3.clone().unwrap_or_default()),
        FingerprintKey::Command.entry(command_line(options)),
    ];
    let [json_path, html_path] = report_paths(&outputs);
    publish_report(
        report,
        reduced,
        &ReportDestination {
            outputs: &outputs,
            json_path,
            html_path,
            sample: outputs.stem.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            reference: options.reference.as_deref(),
            fingerprint: &identity,
            job_directory: None,
        },
    )
}

/// Returns the read groups of the input. Warns about read groups that other tools reject.
fn read_header_groups(
    header: &Header,
    source: &AlignmentReader,
    observer: &dyn Observer,
) -> Result<ReadGroups, PipelineError> {
    let groups = header.read_groups().map_err(|error| source.header_error(error))?;
    for message in compatibility_warnings(groups.iter().map(|group| group.line.as_str())) {
        observer.event(&Event::Warning { message });
    }
    ReadGroups::new(&groups)
}

/// Inputs and outputs of a job, which are checked before the first record is read.
struct MarkdupSetup {
    memory: MemoryPlan,
    input: InputFile,
    outputs: Outputs,
    /// Directory of the outputs.
    directory: PathBuf,
}

impl MarkdupSetup {
    fn check(options: &MarkdupOptions) -> Result<Self, PipelineError> {
        options.job.check()?;
        if options.job.picard_metrics.is_some() && options.reference.is_none() {
            let problem = "the metrics of Picard need the reference; pass --reference REF.fa".to_owned();
            return Err(PipelineError::Options { problem });
        }
        let memory = MemoryPlan::for_markdup(options.job.memory_bytes, BLOCK_BYTES, options.job.threads)?;
        let outputs = parse_outputs(options)?;
        let input = InputFile::inspect("the input", &options.input)?;
        let lists = options.job.picard_metrics.iter().flat_map(PicardMetricsRequest::interval_lists);
        let inputs = [options.input.as_path()].into_iter().chain(options.reference.as_deref()).chain(lists);
        check_inputs_remain(inputs, &outputs.paths())?;
        let directory = parent_directory(&options.out);
        if !directory.is_dir() {
            let remedy = "create the directory, or choose another --out".to_owned();
            return Err(PipelineError::Missing {
                description: "the output directory",
                path: directory.to_owned(),
                remedy,
            });
        }
        outputs.check_names(&report_paths(&outputs))?;
        outputs.check_reference()?;
        let is_read = options.job.metrics || outputs.formats.contains(&Format::Cram);
        if let Some(reference) = options.reference.as_deref().filter(|_| is_read) {
            reference::check_access(reference)?;
        }
        Ok(Self { memory, input, outputs, directory: directory.to_owned() })
    }
}

/// Returns the paths of the job report and of the report page.
fn report_paths(outputs: &Outputs) -> [PathBuf; 2] {
    [outputs.path_with_suffix(".run.json"), outputs.path_with_suffix(".report.html")]
}

/// Returns the paths and formats of the outputs. The extension of `--out` decides the main format; all outputs share
/// the path without the extension.
fn parse_outputs(options: &MarkdupOptions) -> Result<Outputs, PipelineError> {
    // The name of an encrypted file ends with the suffix of Crypt4GH, after the extension of the format.
    let encrypted = options.out.to_str().and_then(|name| name.strip_suffix(FILE_SUFFIX));
    let out = match (encrypted, options.job.recipients.is_empty()) {
        (Some(_), true) => {
            let problem = format!(
                "--out {} selects encryption by its name, but --c4gh-recipient is not given",
                options.out.display()
            );
            return Err(PipelineError::Options { problem });
        }
        (Some(name), false) => Path::new(name),
        (None, _) => options.out.as_path(),
    };
    let extension = out.extension().filter(|_| out.file_stem().is_some());
    let format = extension.and_then(|ending| Format::ALL.into_iter().find(|format| *ending == *format.extension()));
    let Some(format) = format else {
        let problem = format!("--out {} does not end in .bam, .cram, .parquet or .arrow", out.display());
        return Err(PipelineError::Options { problem });
    };
    let mut formats = options.formats.clone();
    formats.push(format);
    let (reference, recipients) = (options.reference.clone(), options.job.recipients.clone());
    let outputs = Outputs { stem: out.with_extension(""), formats, reference, has_step_directory: false, recipients };
    outputs.check_recipients()?;
    Ok(outputs)
}

fn not_grouped_error(input: &Path) -> PipelineError {
    let problem = format!(
        "--duplicate-mode query needs records of a name as neighbours, but {} is sorted by coordinate (SO:coordinate); \
         group it, as with samtools collate, or use --duplicate-mode coordinate",
        input.display()
    );
    PipelineError::Options { problem }
}

fn update_header(header: &mut Header, options: &MarkdupOptions) {
    header.set_coordinate_sorted();
    header.add_program("godwit", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", &command_line(options))]);
}

/// Returns the part of the command line that changes records.
fn command_line(options: &MarkdupOptions) -> String {
    format!("godwit markdup {}", options.job.marking_command_line())
}

/// A reader that divides the input into numbered blocks.
struct BlockReader<'s> {
    source: &'s mut AlignmentReader,
    /// Buffers of blocks that are processed, for reuse.
    recycled_buffers: mpsc::Receiver<Vec<u8>>,
    next_ordinal: u32,
    bytes: u64,
}

impl BlockReader<'_> {
    fn next_block(&mut self) -> Result<Option<(u32, InputBlock)>, PipelineError> {
        self.recycled_buffers.try_iter().for_each(|memory| self.source.recycle(memory));
        let Some(chunk) = self.source.next_block(BLOCK_BYTES)? else { return Ok(None) };
        self.bytes += chunk.size_bytes() as u64;
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        if ordinal == BlockId::MAX_BLOCKS {
            return Err(PipelineError::Options { problem: "the input has more than 2^20 blocks of 32 MiB".into() });
        }
        Ok(Some((ordinal, chunk)))
    }
}

/// The error of the block that comes first in the input, out of the errors of all threads.
#[derive(Default)]
struct FirstFailure {
    is_set: AtomicBool,
    first: Mutex<Option<(u32, PipelineError)>>,
}

impl FirstFailure {
    fn record(&self, ordinal: u32, error: PipelineError) {
        let mut failure = self.first.lock();
        if failure.as_ref().is_none_or(|(first, _)| ordinal < *first) {
            *failure = Some((ordinal, error));
        }
        self.is_set.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    fn into_result(self) -> Result<(), PipelineError> {
        let failure = self.first.into_inner();
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }
}

struct MarkdupJob<'j> {
    collector: &'j Collector,
    genome: &'j Genome,
    read_groups: &'j ReadGroups,
    policy: DuplicatePolicy,
    observer: &'j dyn Observer,
    cancelled: &'j AtomicBool,
}

impl MarkdupJob<'_> {
    /// Reads the input. This thread divides it into blocks; the other threads convert the blocks to sorted runs.
    /// Returns the size of all blocks, bytes.
    fn collect_records(&self, source: &mut AlignmentReader, threads: usize) -> Result<u64, PipelineError> {
        let (done_with, recycled_buffers) = mpsc::channel();
        let mut blocks = BlockReader { source, recycled_buffers, next_ordinal: 0, bytes: 0 };
        // The first block determines how the genome is divided into partitions, so it is added before the other threads
        // start.
        let path = blocks.source.path().to_owned();
        if let Some((ordinal, chunk)) = blocks.next_block()? {
            self.add_block(&mut RecordEncoder::new(self.genome, done_with.clone()), ordinal, chunk, &path)?;
            self.report_progress(&blocks);
        }
        let (sender, receiver) = crossbeam_channel::bounded::<(u32, InputBlock)>(1);
        let failure = FirstFailure::default();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (receiver, path, failure, done_with) = (receiver.clone(), &path, &failure, done_with.clone());
                scope.spawn(move || {
                    let mut encoder = RecordEncoder::new(self.genome, done_with);
                    for (ordinal, chunk) in receiver {
                        if let Err(error) = self.add_block(&mut encoder, ordinal, chunk, path) {
                            failure.record(ordinal, error);
                        }
                    }
                });
            }
            // Drop this receiver: if all threads panic, sending a block then fails instead of waiting forever.
            drop(receiver);
            while !failure.is_set() {
                if self.cancelled.load(Ordering::Relaxed) {
                    failure.record(0, PipelineError::Interrupted);
                    break;
                }
                match blocks.next_block() {
                    Ok(None) => break,
                    Ok(Some(block)) => {
                        if sender.send(block).is_err() {
                            break;
                        }
                    }
                    Err(error) => failure.record(blocks.next_ordinal, error),
                }
                self.report_progress(&blocks);
            }
            drop(sender);
        });
        failure.into_result().map(|()| blocks.bytes)
    }

    fn report_progress(&self, blocks: &BlockReader<'_>) {
        let (bytes, total_bytes) = (blocks.bytes, blocks.source.plain_bytes());
        self.observer.event(&Event::Reading { bytes, total_bytes, reads: self.collector.records() });
    }

    /// Converts a block of input to a sorted run and to duplicate signatures, and adds both to the collector.
    fn add_block(
        &self,
        encoder: &mut RecordEncoder,
        ordinal: u32,
        chunk: InputBlock,
        path: &Path,
    ) -> Result<(), PipelineError> {
        let id = BlockId { lane: 0, ordinal };
        let mut signer = SignatureCollector::new(self.read_groups, id, self.policy != DuplicatePolicy::None);
        let (data, offsets) = encoder.encode_block(chunk, path, |record| signer.push(record))?;
        let array = BinaryArray::new(OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(data), None);
        let (keys, signatures) = signer.finish();
        self.collector.add_block(id, vec![array], &keys, &signatures)
    }
}

/// A collector of the sort keys and duplicate signatures of a block. It processes each record right after packing,
/// while the record is in the processor cache.
struct SignatureCollector<'j> {
    read_groups: &'j ReadGroups,
    block: BlockId,
    clear_duplicate_types: bool,
    builder: SignatureBuilder,
    keys: Vec<SortKey>,
    /// ID of the read group of the preceding record and its indexes. The next record usually has the same read group.
    last_read_group: (Vec<u8>, ReadGroupIndexes),
}

impl<'j> SignatureCollector<'j> {
    fn new(read_groups: &'j ReadGroups, block: BlockId, clear_duplicate_types: bool) -> Self {
        let last_read_group = (Vec::new(), read_groups.indexes_of(None));
        Self {
            read_groups,
            block,
            clear_duplicate_types,
            builder: SignatureBuilder::new(),
            keys: Vec::new(),
            last_read_group,
        }
    }

    /// Adds a record. Returns the range of its `DT` tag, which the caller removes: Picard removes the `DT` tags of an
    /// earlier duplicate marking.
    fn push(&mut self, record: RawRecord) -> Option<Range<usize>> {
        let (mut read_group, mut duplicate_type) = (None, None);
        for tag in record.iter_tags() {
            match (&tag.name, tag.type_code) {
                (b"RG", b'Z') if read_group.is_none() => read_group = Some(tag.value),
                (b"DT", _) => duplicate_type = Some(tag.start..tag.end),
                _ => {}
            }
        }
        let id = read_group.unwrap_or_default();
        if id != self.last_read_group.0 {
            self.last_read_group = (id.to_vec(), self.read_groups.indexes_of(read_group));
        }
        let ReadGroupIndexes { read_group, library } = self.last_read_group.1;
        self.builder.push(self.block.record(self.keys.len() as u32), record, read_group, library, id);
        self.keys.push(record.sort_key());
        duplicate_type.filter(|_| self.clear_duplicate_types)
    }

    fn finish(mut self) -> (Vec<SortKey>, BlockSignatures) {
        (self.keys, self.builder.finish_block())
    }
}
