//! Sorting and marking reads that were aligned elsewhere: SAM, BAM or CRAM in any order in, the
//! same reduce half as `align`.

pub(crate) mod plan;
mod source;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use arrow_array::BinaryArray;
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use godwit_formats::crypt4gh::ENDING;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::{BlockSignatures, DuplicateMode, SignatureBuilder};
use godwit_model::{BlockId, Genome, RawRecord, SortKey};

use crate::call::ScannedReference;
use crate::error::PipelineError;
use crate::fingerprint::FingerprintKey;
use crate::job::JobOptions;
use crate::memory::MemoryPlan;
use crate::observer::{Event, Observer};
use crate::read_groups::{Membership, ReadGroups, refused_later};
use crate::reduce::{Collector, DuplicatePolicy, Format, Outputs, Watched};
use crate::reference;
use crate::run_report::{InputFile, Publication, ResumedWork, RunReport, Stage, check_distinct};
use crate::scratch::create_private_directory;

use source::{Chunk, Encoder, OpenOptions, Source};

/// Bytes of input per block. A block is sorted as one run, so this is what a thread holds; it does not depend on the
/// memory limit, so that the output does not.
const BLOCK_BYTES: usize = 32 << 20;

/// What to mark and how.
#[derive(Clone, Debug)]
pub struct MarkdupOptions {
    /// SAM, BAM or CRAM; standard input under its name, [`godwit_formats::bgzf::STDIN`].
    pub input: PathBuf,
    /// What to write, in the format its ending says; what goes beside it takes its name without the ending.
    pub out: PathBuf,
    /// Formats to write beside that one.
    pub formats: Vec<Format>,
    /// The reference that CRAM needs, in or out, and some metrics.
    pub reference: Option<PathBuf>,
    /// What `align` has too.
    pub job: JobOptions,
}

/// Sorts and marks a file.
///
/// # Errors
/// [`PipelineError`]; no output has its name then.
pub fn markdup(
    options: &MarkdupOptions,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<RunReport, PipelineError> {
    let started = Instant::now();
    let Checked { memory, mut input, outputs, directory } = Checked::of(options)?;
    observer.event(&Event::Stage { name: "reading and sorting" });
    let temp = options.job.temp.as_deref().unwrap_or(&directory);
    create_private_directory(temp).map_err(PipelineError::file("create", temp))?;
    let mut written = outputs.open(false)?;
    let reference = options.reference.as_deref().map(|reference| (reference, temp));
    let how = OpenOptions { program: &options.job.program, reference, threads: options.job.threads };
    let opened = Source::open(&options.input, how, cancelled);
    let (mut source, mut header) = opened.map_err(|error| error.unless_cancelled(cancelled))?;
    let genome = header.genome().map_err(|error| source.header_error(error))?;
    if options.job.marking.mode == DuplicateMode::Query && header.is_coordinate_sorted() {
        return Err(not_grouped(&options.input));
    }
    let read_groups = read_groups_of(&header, &source, observer)?;
    mark_header(&mut header, options);
    if let (Some(reference), true) = (&options.reference, options.job.metrics) {
        // CRAM compares by itself.
        ScannedReference::compare(reference, &options.input, &header)?;
    }
    written.prepare(&outputs, &header, options.job.compared_with(options.reference.as_deref()), temp)?;
    let reduce_options = options.job.reduce_options(memory, temp, options.reference.as_deref(), None);
    let collector = Collector::new(reduce_options, &read_groups, cancelled, None)?;
    let job = Job {
        collector: &collector,
        genome: &genome,
        read_groups: &read_groups,
        policy: options.job.duplicates,
        observer,
        cancelled,
    };
    let collected = job.collect(&mut source, options.job.threads);
    let bytes = collected.map_err(|error| error.unless_cancelled(cancelled))?;
    input.blake3 = source.checksum();
    drop(source);
    let sorted = Instant::now();
    let records = collector.records();
    let watched = Watched { follower: None, observer, cancelled };
    let reduced = collector.write(&header, &genome, &outputs, written, watched)?;
    let stages = vec![
        Stage { name: "read and sort", seconds: (sorted - started).as_secs_f64(), rows: records, bytes },
        Stage { name: "decide duplicates", seconds: reduced.deciding_seconds, rows: records, bytes: 0 },
        Stage { name: "write", seconds: reduced.writing_seconds, rows: reduced.records, bytes: reduced.written_bytes },
    ];
    let report = RunReport::new("markdup", &options.job.command, ("", ""));
    let report = report.inputs(vec![input]).stages(stages).reduced(&reduced, started.elapsed());
    let report = report.ran(options.job.threads, ResumedWork::default(), started.elapsed());
    let identity = [
        FingerprintKey::Input.fact(report.inputs[0].blake3.clone().unwrap_or_default()),
        FingerprintKey::Command.fact(command_line(options)),
    ];
    let [json, page] = reports(&outputs);
    report.publish(
        reduced,
        &Publication {
            outputs: &outputs,
            json,
            page,
            sample: outputs.stem.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            reference: options.reference.as_deref(),
            identity: &identity,
            run: None,
        },
    )
}

/// The read groups of the input, with warnings about those that other tools refuse.
fn read_groups_of(header: &Header, source: &Source, observer: &dyn Observer) -> Result<ReadGroups, PipelineError> {
    let groups = header.read_groups().map_err(|error| source.header_error(error))?;
    for message in refused_later(groups.iter().map(|group| group.line.as_str())) {
        observer.event(&Event::Warning { message });
    }
    ReadGroups::new(&groups)
}

/// What is known before anything is read.
struct Checked {
    memory: MemoryPlan,
    input: InputFile,
    outputs: Outputs,
    /// The output's directory.
    directory: PathBuf,
}

impl Checked {
    fn of(options: &MarkdupOptions) -> Result<Self, PipelineError> {
        options.job.check()?;
        let memory = MemoryPlan::for_markdup(options.job.memory_bytes, BLOCK_BYTES, options.job.threads)?;
        let outputs = outputs(options)?;
        let input = InputFile::of("the input", &options.input)?;
        check_distinct(std::slice::from_ref(&input), &outputs.paths())?;
        let directory = options.out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            let remedy = "make it, or choose another --out".to_owned();
            return Err(PipelineError::Missing { what: "the output directory", path: directory.to_owned(), remedy });
        }
        outputs.check_names(&reports(&outputs))?;
        outputs.check_reference()?;
        let is_read = options.job.metrics || outputs.formats.contains(&Format::Cram);
        if let Some(reference) = options.reference.as_deref().filter(|_| is_read) {
            reference::check_access(reference)?;
        }
        Ok(Self { memory, input, outputs, directory: directory.to_owned() })
    }
}

/// The report and its page.
fn reports(outputs: &Outputs) -> [PathBuf; 2] {
    [outputs.beside(".run.json"), outputs.beside(".report.html")]
}

/// The output's format, which its ending says, and its path without that.
fn outputs(options: &MarkdupOptions) -> Result<Outputs, PipelineError> {
    // What is encrypted says so behind the format.
    let encrypted = options.out.to_str().and_then(|name| name.strip_suffix(ENDING));
    let out = match (encrypted, options.job.recipients.is_empty()) {
        (Some(_), true) => {
            let problem =
                format!("--out {} is to be encrypted, but no --c4gh-recipient is given", options.out.display());
            return Err(PipelineError::Options { problem });
        }
        (Some(name), false) => Path::new(name),
        (None, _) => options.out.as_path(),
    };
    let extension = out.extension().filter(|_| out.file_stem().is_some());
    let format = extension.and_then(|ending| Format::ALL.into_iter().find(|format| *ending == *format.extension()));
    let Some(format) = format else {
        let problem = format!("--out {} ends in none of .bam, .cram, .parquet and .arrow", out.display());
        return Err(PipelineError::Options { problem });
    };
    let mut formats = options.formats.clone();
    formats.push(format);
    let (reference, recipients) = (options.reference.clone(), options.job.recipients.clone());
    let outputs = Outputs { stem: out.with_extension(""), formats, reference, step: false, recipients };
    outputs.check_recipients()?;
    Ok(outputs)
}

fn not_grouped(input: &Path) -> PipelineError {
    let problem = format!(
        "--duplicate-mode query needs records of a name as neighbours, but {} is sorted by coordinate (SO:coordinate); \
         group it, as with samtools collate, or use --duplicate-mode coordinate",
        input.display()
    );
    PipelineError::Options { problem }
}

fn mark_header(header: &mut Header, options: &MarkdupOptions) {
    header.set_coordinate_sorted();
    header.add_program("godwit", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", &command_line(options))]);
}

/// Only what changes records.
fn command_line(options: &MarkdupOptions) -> String {
    format!("godwit markdup {}", options.job.marking_command_line())
}

/// The input as numbered blocks.
struct BlockReader<'s> {
    source: &'s mut Source,
    /// Memory of blocks that are done with.
    returned: mpsc::Receiver<Vec<u8>>,
    next_ordinal: u32,
    bytes: u64,
}

impl BlockReader<'_> {
    fn next(&mut self) -> Result<Option<(u32, Chunk)>, PipelineError> {
        self.returned.try_iter().for_each(|memory| self.source.recycle(memory));
        let Some(chunk) = self.source.next_chunk(BLOCK_BYTES)? else { return Ok(None) };
        self.bytes += chunk.bytes() as u64;
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        if ordinal == BlockId::MAX_BLOCKS {
            return Err(PipelineError::Options { problem: "the input has more than 2^20 blocks of 32 MiB".into() });
        }
        Ok(Some((ordinal, chunk)))
    }
}

/// The failure that comes first in the input, whoever met it.
#[derive(Default)]
struct FirstFailure {
    noted: AtomicBool,
    failure: Mutex<Option<(u32, PipelineError)>>,
}

impl FirstFailure {
    fn note(&self, ordinal: u32, error: PipelineError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(|(first, _)| ordinal < *first) {
            *failure = Some((ordinal, error));
        }
        self.noted.store(true, Ordering::Relaxed);
    }

    fn is_noted(&self) -> bool {
        self.noted.load(Ordering::Relaxed)
    }

    fn into_result(self) -> Result<(), PipelineError> {
        let failure = self.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }
}

struct Job<'j> {
    collector: &'j Collector,
    genome: &'j Genome,
    read_groups: &'j ReadGroups,
    policy: DuplicatePolicy,
    observer: &'j dyn Observer,
    cancelled: &'j AtomicBool,
}

impl Job<'_> {
    /// Reads everything: this thread cuts the input into blocks, the others turn them into sorted runs. Returns the
    /// bytes of all blocks.
    fn collect(&self, source: &mut Source, threads: usize) -> Result<u64, PipelineError> {
        let (done_with, returned) = mpsc::channel();
        let mut blocks = BlockReader { source, returned, next_ordinal: 0, bytes: 0 };
        // The first block decides the partitions, so nobody else may come before it.
        let path = blocks.source.path().to_owned();
        if let Some((ordinal, chunk)) = blocks.next()? {
            self.add_chunk(&mut Encoder::new(self.genome, done_with.clone()), ordinal, chunk, &path)?;
            self.tell(&blocks);
        }
        let (sender, receiver) = mpsc::sync_channel::<(u32, Chunk)>(1);
        let receiver = Mutex::new(receiver);
        let failure = FirstFailure::default();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (receiver, path, failure, done_with) = (&receiver, &path, &failure, done_with.clone());
                scope.spawn(move || {
                    let mut encoder = Encoder::new(self.genome, done_with);
                    loop {
                        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok((ordinal, chunk)) = next else { return };
                        if let Err(error) = self.add_chunk(&mut encoder, ordinal, chunk, path) {
                            failure.note(ordinal, error);
                        }
                    }
                });
            }
            while !failure.is_noted() {
                if self.cancelled.load(Ordering::Relaxed) {
                    failure.note(0, PipelineError::Interrupted);
                    break;
                }
                match blocks.next() {
                    Ok(None) => break,
                    Ok(Some(block)) => {
                        if sender.send(block).is_err() {
                            break;
                        }
                    }
                    Err(error) => failure.note(blocks.next_ordinal, error),
                }
                self.tell(&blocks);
            }
            drop(sender);
        });
        failure.into_result().map(|()| blocks.bytes)
    }

    fn tell(&self, blocks: &BlockReader<'_>) {
        let (bytes, total_bytes) = (blocks.bytes, blocks.source.plain_bytes());
        self.observer.event(&Event::Reading { bytes, total_bytes, reads: self.collector.records() });
    }

    /// Turns a block of input into a sorted run and its signatures.
    fn add_chunk(&self, encoder: &mut Encoder, ordinal: u32, chunk: Chunk, path: &Path) -> Result<(), PipelineError> {
        let id = BlockId { lane: 0, ordinal };
        let mut signer = Signer::new(self.read_groups, id, self.policy != DuplicatePolicy::None);
        let (data, offsets) = encoder.packed(chunk, path, |record| signer.push(record))?;
        let array = BinaryArray::new(OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(data), None);
        let (keys, signatures) = signer.finish();
        self.collector.add_block(id, vec![array], &keys, &signatures)
    }
}

/// Looks at each record once, right after it was packed and while it is in the cache.
struct Signer<'j> {
    read_groups: &'j ReadGroups,
    block: BlockId,
    clear_duplicate_types: bool,
    builder: SignatureBuilder,
    keys: Vec<SortKey>,
    /// The read group of the last record, which mostly is that of the next.
    last: (Vec<u8>, Membership),
}

impl<'j> Signer<'j> {
    fn new(read_groups: &'j ReadGroups, block: BlockId, clear_duplicate_types: bool) -> Self {
        let last = (Vec::new(), read_groups.membership(None));
        Self { read_groups, block, clear_duplicate_types, builder: SignatureBuilder::new(), keys: Vec::new(), last }
    }

    /// Returns where a `DT` tag lies in the record, which is to be taken out: Picard clears what an earlier marking said.
    fn push(&mut self, record: RawRecord) -> Option<Range<usize>> {
        let (mut read_group, mut duplicate_type) = (None, None);
        for tag in record.each_tag() {
            match (&tag.name, tag.kind) {
                (b"RG", b'Z') if read_group.is_none() => read_group = Some(tag.value),
                (b"DT", _) => duplicate_type = Some(tag.start..tag.end),
                _ => {}
            }
        }
        let id = read_group.unwrap_or_default();
        if id != self.last.0 {
            self.last = (id.to_vec(), self.read_groups.membership(read_group));
        }
        let Membership { read_group, library } = self.last.1;
        self.builder.push(self.block.record(self.keys.len() as u32), record, read_group, library, id);
        self.keys.push(record.sort_key());
        duplicate_type.filter(|_| self.clear_duplicate_types)
    }

    fn finish(mut self) -> (Vec<SortKey>, BlockSignatures) {
        (self.keys, self.builder.finish_block())
    }
}
