//! Metrics of a BAM in one pass (`godwit metrics`): one thread reads the file, further threads count its records.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use godwit_files::{AtomicSet, create_directories};
use godwit_formats::bam::{self, RecordBuffer};
use godwit_formats::sam::{self, AlignmentFormat};
use godwit_io::bgzf;
use godwit_kernels::qc::AlignmentBuffer;
use godwit_metrics::{MetricsError, MetricsFile, OrderedMetrics, RecordMetrics};
use godwit_model::RawRecord;
use godwit_pipeline::job_report::{InputFile, check_inputs_remain};
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::reduce::{PicardInputs, PicardMetricsRequest};
use godwit_pipeline::{AlignmentsError, PipelineError};

use crate::reference;

/// Bytes of records that a thread counts at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Input, output and options of [`collect_picard_metrics`].
#[derive(Clone, Debug)]
pub struct PicardMetricsOptions {
    /// Path of the BAM; [`bgzf::STDIN_PATH`] stands for standard input.
    pub bam: PathBuf,
    /// Path of the reference, FASTA.
    pub reference: PathBuf,
    /// Directory of the metrics files, which is created if it does not exist.
    pub out: PathBuf,
    /// The requested metrics and their interval lists.
    pub request: PicardMetricsRequest,
    /// Number of threads, at least 1.
    pub threads: usize,
}

/// The outcome of [`collect_picard_metrics`].
#[derive(Clone, Debug)]
pub struct PicardMetricsReport {
    /// Number of records of the BAM.
    pub records: u64,
    /// Paths of the metrics files.
    pub files: Vec<PathBuf>,
}

/// Computes metrics of a BAM, and writes the files that Picard writes for them. The files have the name of the BAM
/// without its extension, and the suffixes of Picard's `CollectMultipleMetrics`; they get their names together.
///
/// # Errors
/// A [`PipelineError`], in which case no file is written: the BAM, the reference or an interval list is missing or
/// invalid, they belong to different genomes, or the records are not in the order that a metric needs.
pub fn collect_picard_metrics(
    options: &PicardMetricsOptions,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<PicardMetricsReport, PipelineError> {
    let mut source = open_bam(options, cancelled)?;
    reference::check_access(&options.reference)?;
    let origin = options.bam.display().to_string();
    let inputs = PicardInputs::open(&options.request, &options.reference, source.header(), &origin)?;
    create_directories(&options.out).map_err(PipelineError::file("create", &options.out))?;
    observer.event(&Event::Stage { name: "reading the reference" });
    let counts = inputs.count_reference(options.threads)?;
    observer.event(&Event::Stage { name: "computing metrics" });
    let job = CountingJob { options, inputs: &inputs, cancelled };
    let (records, unordered, ordered) = job.count_records(&mut source)?;
    let input = options.bam.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = unordered.into_files(&counts, &input);
    files.extend(ordered.into_files(&counts, &mut inputs.windows.clone(), &input)?);
    inputs.warn_of_omitted_oxog(&files, observer);
    Ok(PicardMetricsReport { records, files: write_files(options, &files)? })
}

fn open_bam(options: &PicardMetricsOptions, cancelled: &Arc<AtomicBool>) -> Result<bam::Reader, PipelineError> {
    if options.bam != Path::new(bgzf::STDIN_PATH) {
        InputFile::inspect("the BAM", &options.bam)?;
    }
    let failed = |source: AlignmentsError| PipelineError::alignments(&options.bam, source);
    let opened = bgzf::Reader::open_any(&options.bam, options.threads, false);
    let mut input = opened.map_err(|error| failed(bam::BamError::from(error).into()))?;
    input.set_cancel_flag(Arc::clone(cancelled));
    let format = sam::detect_format(&mut input);
    let is_empty = input.data().map_err(|error| failed(bam::BamError::from(error).into()))?.is_empty();
    match format {
        _ if is_empty => Err(failed(AlignmentsError::Empty)),
        AlignmentFormat::Bam => bam::Reader::new(input).map_err(|error| failed(error.into())),
        AlignmentFormat::Sam | AlignmentFormat::Cram | AlignmentFormat::Unknown => Err(failed(AlignmentsError::NotBam)),
    }
}

/// Waits for a thread, and continues its panic if it has one.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct CountingJob<'j> {
    options: &'j PicardMetricsOptions,
    inputs: &'j PicardInputs,
    cancelled: &'j AtomicBool,
}

impl CountingJob<'_> {
    /// Reads all records and counts them. Returns the number of records, and the counts.
    fn count_records(&self, source: &mut bam::Reader) -> Result<(u64, RecordMetrics, OrderedMetrics), PipelineError> {
        let (mut all, mut ordered) = (self.inputs.records.clone(), self.inputs.ordered.clone());
        let threads = if all.is_empty() { 0 } else { self.options.threads };
        let (send, receive) = bounded(2 * self.options.threads);
        let (send_ordered, receive_ordered) = bounded(2 * self.options.threads);
        let is_ordered = !ordered.is_empty();
        let records = thread::scope(|scope| {
            // Only the workers have the receiver, so that a send fails instead of waiting when all of them have failed.
            let receivers = std::iter::repeat_n(receive, threads);
            let count = |receive| scope.spawn(move || self.count_unordered(receive));
            let workers: Vec<_> = receivers.map(count).collect();
            let in_order = scope.spawn(|| self.count_ordered(receive_ordered, &mut ordered));
            let mut queues = Vec::new();
            queues.extend((threads > 0).then_some(send));
            queues.extend(is_ordered.then_some(send_ordered));
            let records = self.read_records(source, queues);
            for worker in workers {
                all.merge(join(worker)?);
            }
            join(in_order)?;
            records
        })?;
        Ok((records, all, ordered))
    }

    /// Reads all records and sends them to each queue. Stops if the receiver of a queue has failed; its thread returns
    /// the error.
    fn read_records(
        &self,
        source: &mut bam::Reader,
        queues: Vec<Sender<Arc<RecordBuffer>>>,
    ) -> Result<u64, PipelineError> {
        let mut records = 0;
        loop {
            let mut buffer = RecordBuffer::default();
            let more = source.read_records(&mut buffer, BUFFER_BYTES);
            let failed = |error: bam::BamError| PipelineError::alignments(&self.options.bam, error.into());
            if !more.map_err(|error| failed(error).or_interrupted(self.cancelled))? {
                return Ok(records);
            }
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            records += buffer.end_offsets.len() as u64;
            let buffer = Arc::new(buffer);
            let sent = queues.iter().filter(|queue| queue.send(Arc::clone(&buffer)).is_ok()).count();
            if sent < queues.len() {
                return Ok(records);
            }
        }
    }

    fn count_unordered(&self, receive: Receiver<Arc<RecordBuffer>>) -> Result<RecordMetrics, MetricsError> {
        let (mut counts, mut windows) = (self.inputs.records.clone(), self.inputs.windows.clone());
        let mut decoder = AlignmentBuffer::default();
        for buffer in receive {
            for bytes in buffer.records() {
                let record = RawRecord::from_trusted_bytes(bytes);
                counts.add(record, &decoder.decode(record, record.flag()), &mut windows)?;
            }
        }
        Ok(counts)
    }

    fn count_ordered(
        &self,
        receive: Receiver<Arc<RecordBuffer>>,
        counts: &mut OrderedMetrics,
    ) -> Result<(), PipelineError> {
        let (mut decoder, mut windows) = (AlignmentBuffer::default(), self.inputs.windows.clone());
        let mut last = (0, 0);
        for buffer in receive {
            for (at, bytes) in buffer.records().enumerate() {
                let record = RawRecord::from_trusted_bytes(bytes);
                let place = (record.contig() as u32, record.position());
                if place < last {
                    let number = buffer.first_record + at as u64 + 1;
                    let unsorted = AlignmentsError::NotSorted { record: number };
                    return Err(PipelineError::alignments(&self.options.bam, unsorted));
                }
                last = place;
                counts.add(record, &decoder.decode(record, record.flag()), &mut windows)?;
            }
        }
        Ok(())
    }
}

fn write_files(options: &PicardMetricsOptions, files: &[MetricsFile]) -> Result<Vec<PathBuf>, PipelineError> {
    let stem = options.bam.file_stem().unwrap_or_default().to_string_lossy();
    let paths: Vec<PathBuf> = files.iter().map(|file| options.out.join(format!("{stem}{}", file.suffix))).collect();
    let inputs = [options.bam.as_path(), &options.reference].into_iter().chain(options.request.interval_lists());
    check_inputs_remain(inputs, &paths)?;
    let mut staged = AtomicSet::default();
    for (file, path) in files.iter().zip(&paths) {
        staged.write_file(path, file.text.as_bytes()).map_err(PipelineError::file("write", path))?;
    }
    staged.publish().map_err(|(path, source)| PipelineError::file("write", path)(source))?;
    Ok(paths)
}
