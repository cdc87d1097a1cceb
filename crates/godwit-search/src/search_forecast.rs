//! Predicts how long the search of a database takes, from the rate at which its files are read and the search of a
//! sample.

use std::time::Instant;

use crate::database_ranges::DatabaseRanges;
use crate::search_worker_pool::SearchWorkerPool;
use crate::summary::SearchForecast;
use crate::thresholds::EvalueThresholds;
use crate::work_items::unexpected_response;
use crate::worker_protocol::{BatchInfo, OPEN_BATCH, ProtocolFrame, Response};
use crate::{SearchError, SearchOptions, SearchProgram, read_ahead};

/// Number of bytes by which the rate of reading is measured.
const RATE_SAMPLE_BYTES: u64 = 64 << 20;
/// Number of letters of the database in the sample: a part of the database within these limits. The sample costs 0.2 %
/// of the search of one batch.
const SAMPLE_DIVISOR: u64 = 500;
const MIN_SAMPLE_LETTERS: u64 = 1 << 20;
const MAX_SAMPLE_LETTERS: u64 = 64 << 20;
/// CPU time of the traceback and the report of a query, seconds, if the sample has too few hits to measure it: 5.2 s for
/// 42 proteins with the default number of subjects. It differs between queries by a factor of ten.
const REPORT_SECONDS_PER_QUERY: f64 = 0.12;
/// Minimum number of subjects in the sample by which the time of reports is measured.
const MIN_SAMPLE_SUBJECTS: f64 = 50.0;

/// The facts from which a search is predicted.
pub(crate) struct ForecastInputs<'a> {
    pub(crate) options: &'a SearchOptions,
    pub(crate) ranges: &'a DatabaseRanges,
    /// First sequence, end and letters of each range, in the order of the database.
    pub(crate) cuts: &'a [(u32, u32, u64)],
    /// Number of letters of queries that the program puts into a batch; 0 if unknown.
    pub(crate) batch_letters: u64,
    pub(crate) database_bytes: u64,
    pub(crate) query_count: u64,
    pub(crate) query_letters: u64,
    /// Maximum number of queries that search a range before the next range is read; `None` for one batch of queries.
    pub(crate) group_queries: Option<u64>,
    /// True if the size of a batch depends on the results of earlier ones.
    pub(crate) batch_sizes_vary: bool,
}

/// Predicts a search. Returns `None` if its first batch cannot be searched by ranges.
pub(crate) fn forecast_search(
    inputs: &ForecastInputs<'_>,
    workers: &mut SearchWorkerPool<'_>,
) -> Result<Option<SearchForecast>, SearchError> {
    let Some(sample) = search_sample(inputs, workers)? else { return Ok(None) };
    let cached_bytes = inputs.ranges.resident_bytes();
    // The range that is searched last is the least likely to be in the page cache.
    let last = inputs.ranges.search_order().last().map(|number| inputs.ranges.range(*number).extents.clone());
    let rate = last.and_then(|extents| read_ahead::measure_read_rate(&extents, RATE_SAMPLE_BYTES));
    Ok(Some(predict(inputs, workers.worker_count() as f64, &sample, cached_bytes, rate)))
}

/// The search of a sample, extrapolated to all queries and the whole database on one worker.
struct Sample {
    search_s: f64,
    /// Number of subjects in the lists of all queries.
    subjects: f64,
    /// Time of the traceback and the report of a subject; `None` if the sample has too few.
    report_s_per_subject: Option<f64>,
}

/// Computes the forecast.
fn predict(
    inputs: &ForecastInputs<'_>,
    workers: f64,
    sample: &Sample,
    cached_bytes: u64,
    rate: Option<f64>,
) -> SearchForecast {
    let batches = inputs.query_letters.div_ceil(inputs.batch_letters.max(1)).max(1);
    let passes = match inputs.group_queries {
        // If all sizes of batches are predicted, three times as many batches are finished after each group.
        Some(queries) => {
            let least = if inputs.batch_sizes_vary { u64::from(batches.ilog(3)) + 1 } else { 1 };
            inputs.query_count.div_ceil(queries).max(least).min(batches)
        }
        None => batches,
    };
    let bytes = inputs.database_bytes;
    // Each pass after the first one finds what fits into memory.
    let found_bytes = inputs.options.cache_bytes.map_or(bytes, |cache| cache.min(bytes));
    let read_bytes = bytes - cached_bytes.min(bytes) + passes.saturating_sub(1) * (bytes - found_bytes);
    let read_s = rate.map_or(0.0, |rate| read_bytes as f64 / rate);
    let search_s = sample.search_s / workers;
    let all_reports_s = match sample.report_s_per_subject {
        Some(seconds) => sample.subjects * seconds,
        None => inputs.query_count as f64 * REPORT_SECONDS_PER_QUERY,
    };
    let report_s = all_reports_s / workers;
    // Nothing is searched while the first range is read.
    let first_s = read_s / (inputs.ranges.count().max(1) as u64 * passes.max(1)) as f64;
    let total_s = read_s.max(search_s) + first_s.min(search_s) + report_s;
    SearchForecast {
        database_bytes: bytes,
        cached_bytes,
        cache_memory_bytes: inputs.options.cache_bytes,
        range_count: inputs.ranges.count() as u32,
        queries: inputs.query_count,
        passes,
        read_bytes,
        read_bytes_per_s: rate,
        read_s,
        search_s,
        report_s,
        report_s_per_subject: sample.report_s_per_subject.map(|seconds| seconds / workers),
        total_s,
    }
}

/// Searches the start of the database with the first batch on one worker, reports on the hits, and discards both. Returns
/// `None` if the batch cannot be searched by ranges.
fn search_sample(
    inputs: &ForecastInputs<'_>,
    workers: &mut SearchWorkerPool<'_>,
) -> Result<Option<Sample>, SearchError> {
    // Any worker can search the sample.
    let number = 0;
    let open = ProtocolFrame::new(b'B').with_u32(0).with_i32s(&[inputs.batch_letters as i32]);
    let batch = match workers.request(number, &open)? {
        Response::Batch(batch) => batch,
        other => return Err(unexpected_response(&other)),
    };
    let sample = match batch.is_unsplittable || batch.queries == 0 {
        true => None,
        false => Some(search_sample_with(inputs, &batch, (workers, number))?),
    };
    // A worker opens each batch once, so another process takes its place.
    workers.replace_worker(number, &[])?;
    Ok(sample)
}

/// Reads the sample into the page cache, so that its search does not wait for the disk: sequences from the start of the
/// database. Returns the end of the sample (exclusive), and its share of the sequences, 0 to 1.
fn read_sample(inputs: &ForecastInputs<'_>) -> (u32, f64) {
    let letters: u64 = inputs.cuts.iter().map(|(.., letters)| letters).sum();
    let sequences = inputs.cuts.last().map_or(0, |(_, end, _)| *end);
    let sample_letters = (letters / SAMPLE_DIVISOR).clamp(MIN_SAMPLE_LETTERS, MAX_SAMPLE_LETTERS).min(letters);
    let sample_share = sample_letters as f64 / letters.max(1) as f64;
    let end = ((f64::from(sequences) * sample_share).ceil() as u32).clamp(1, sequences.max(1));
    let file_share = (inputs.database_bytes as f64 * sample_share) as u64;
    let first = inputs.cuts.first().map_or(0, |(first, ..)| *first);
    let mut ranges = (0..inputs.ranges.count()).map(|number| inputs.ranges.range(number));
    if let Some(start) = ranges.find(|range| range.first == first) {
        read_ahead::measure_read_rate(&start.extents, file_share);
    }
    (end, f64::from(end) / f64::from(sequences.max(1)))
}

/// Searches the start of the database with the open batch, and reports on the hits.
fn search_sample_with(
    inputs: &ForecastInputs<'_>,
    batch: &BatchInfo,
    (workers, number): (&mut SearchWorkerPool<'_>, usize),
) -> Result<Sample, SearchError> {
    let (end, share) = read_sample(inputs);
    let request = ProtocolFrame::new(b'R').with_u64(0).with_u32(OPEN_BATCH).with_u32(OPEN_BATCH).with_u32(0);
    let started = Instant::now();
    let answer = workers.request(number, &request.with_u32(0).with_u32(end).with_u32(0))?;
    let seconds = started.elapsed().as_secs_f64();
    workers.send(number, &ProtocolFrame::new(b'E'));
    let Response::Hits { hits, list_capacity, .. } = answer else { return Err(unexpected_response(&answer)) };
    let mut lists = EvalueThresholds::default();
    lists.add_hits(&hits, list_capacity);
    let sampled_subjects = lists.expected_subjects(1.0);
    let request = ProtocolFrame::new(b'O').with_u64(0).with_u32(0).with_u32(batch.queries).with_u8(0).with_u8(0);
    let started = Instant::now();
    let answer = workers.request(number, &hits.iter().fold(request, |request, hits| request.with_text(hits)))?;
    let report_s = started.elapsed().as_secs_f64();
    let Response::Report { .. } = answer else { return Err(unexpected_response(&answer)) };
    // The letters of a translated batch are those of its six frames.
    let is_translated = [SearchProgram::Blastx, SearchProgram::Tblastx].contains(&inputs.options.command.program);
    let batch_share = match inputs.query_letters {
        letters if letters > 0 && !is_translated => (batch.letters as f64 / letters as f64).min(1.0),
        _ => f64::from(batch.queries) / inputs.query_count.max(1) as f64,
    };
    Ok(Sample {
        search_s: seconds / share.max(1e-12) / batch_share.max(1e-12),
        subjects: lists.expected_subjects(share) / batch_share.max(1e-12),
        report_s_per_subject: (sampled_subjects >= MIN_SAMPLE_SUBJECTS).then(|| report_s / sampled_subjects),
    })
}
