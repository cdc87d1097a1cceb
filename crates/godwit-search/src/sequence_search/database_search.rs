//! Searches the ranges of the database with groups of batches of queries.
//!
//! A group is one batch if the database fits into memory. Otherwise a group has as many batches as `--memory` allows: all
//! of them search a range before the first one searches the next range, so that the database is read once for each group.
//! If the size of a batch depends on the results of earlier ones, a group has those batches whose sizes can be predicted.

use std::cell::Cell;
use std::time::Instant;

use super::Search;
use crate::SearchError;
use crate::hit_store::HitStore;
use crate::output_offsets::OutputOffsets;
use crate::search_checkpoint::{CheckpointEntry, FileExtent, FinishedBatch, FinishedSlice};
use crate::search_plan::{UNITS_PER_WORKER, partition_by_weight};
use crate::search_worker_pool::ReportOutput;
use crate::summary::{SearchForecast, SearchProgress};
use crate::work_items::{BatchGroup, BatchHits, RangeItems, SliceItems, group_request, unexpected_response};
use crate::worker_protocol::{BatchInfo, HeaderLine, ProtocolFrame, Response};

/// Minimum number of slices per worker into which the queries of a batch are divided; one owner reports on each slice.
/// With fewer, workers wait for the last slice of each batch.
const SLICES_PER_WORKER: u32 = 8;
/// Memory for a query of a group, bytes: the e-values of a full list of 1050 subjects in the head, and the sequence with
/// its description in each worker.
const GROUP_QUERY_BYTES: u64 = 16 << 10;
/// Share of the time of a search that its reports take, until the search has measured it. In searches of proteins in
/// 64,421 proteins, traceback and format took 34 to 41 % of the CPU time.
const DEFAULT_REPORT_SHARE: f64 = 0.35;

/// The number of extensions of a batch may differ from the expected number by this factor without another size of the
/// next batch, if that size is predicted.
const EXTENSION_LEEWAY_FACTOR: f64 = 2.0;
/// Maximum number of batches with predicted sizes in a group.
const MAX_GROUP_BATCHES: usize = 64;

/// The sizes of the batches of queries, letters.
struct BatchSizes {
    sizes: Vec<i32>,
    /// Number of extensions of each batch so far.
    extensions: Vec<i32>,
}

impl BatchSizes {
    /// Returns the number of extensions that is expected of a batch of this size, at the rate of the last batch; `None`
    /// before the first batch is searched.
    fn expected_extensions(&self, size: i32) -> Option<f64> {
        let last = self.extensions.len().checked_sub(1)?;
        Some(f64::from(self.extensions[last]) / f64::from(self.sizes[last].max(1)) * f64::from(size))
    }
}

/// The share of the time of a group that its reports take. Reports begin when all ranges are searched, so the share is
/// estimated from the duration of the search so far, and from the number of subjects that will be reported.
#[derive(Clone, Copy, Debug)]
struct ReportShare {
    /// Time of the report of a subject, seconds, with all workers; `None` if it was not measured.
    seconds_per_subject: Option<f64>,
    /// The share, 0 to 1; before the first estimate, that of earlier groups or a common value.
    share: f64,
}

impl ReportShare {
    /// Estimates the share after `seconds`, in which this fraction of the ranges was searched, if `subjects` subjects
    /// are expected in the lists of all queries.
    fn estimate(&mut self, seconds: f64, fraction: f64, subjects: f64) {
        if let Some(each) = self.seconds_per_subject.filter(|_| seconds > 0.0 && fraction > 0.0) {
            let (search_s, report_s) = (seconds / fraction, each * subjects);
            self.share = report_s / (search_s + report_s);
        }
    }

    /// Sets the time of a subject and the share by a finished group with `subjects` subjects.
    fn measure(&mut self, search_s: f64, report_s: f64, subjects: f64) {
        self.share = report_s / (search_s + report_s).max(1e-9);
        if subjects > 0.0 {
            self.seconds_per_subject = Some(report_s / subjects);
        }
    }
}

/// The fraction of a group of batches that is done.
struct GroupProgress<'p> {
    report: &'p dyn Fn(SearchProgress),
    /// Number of queries in earlier groups, in this group, and in total.
    earlier_queries: u64,
    group_queries: u64,
    total_queries: u64,
    report_share: Cell<ReportShare>,
    /// Start of the search of the ranges, and the fraction of them that an earlier search had finished.
    started: Instant,
    restored: Cell<f64>,
    /// Expected number of subjects in the lists of all queries.
    subjects: Cell<f64>,
}

impl GroupProgress<'_> {
    /// Reports the finished fraction of the ranges, 0 to 1, and the expected number of subjects in the lists of all
    /// queries.
    fn report_ranges(&self, fraction: f64, subjects: f64) {
        let mut share = self.report_share.get();
        share.estimate(self.started.elapsed().as_secs_f64(), fraction - self.restored.get(), subjects);
        self.report_share.set(share);
        self.subjects.set(subjects);
        self.report(self.earlier_queries, fraction * (1.0 - share.share));
    }

    /// Reports the number of queries of this group with complete reports; a fraction for a batch in progress.
    fn report_queries(&self, complete_batches: u64, queries: f64) {
        let share = queries / self.group_queries.max(1) as f64;
        self.report(self.earlier_queries + complete_batches, 1.0 - self.report_share.get().share * (1.0 - share));
    }

    fn report(&self, reported: u64, group_share: f64) {
        let done = self.earlier_queries as f64 + self.group_queries as f64 * group_share;
        (self.report)(SearchProgress::new(reported, self.total_queries, done));
    }
}

impl Search<'_> {
    /// Returns the number of slices into which the queries of a batch are divided. A search that is killed loses the slice
    /// that each worker has in progress, and one that waits for those before it: of 20 slices for each worker a tenth,
    /// which is a twentieth of the search, because reports take less than half of its time.
    fn slice_count(&self) -> usize {
        let batches = self.query_letters.checked_div(self.init_response.fixed_batch_letters()).unwrap_or(1);
        let per_worker = UNITS_PER_WORKER.div_ceil(batches.clamp(1, u64::from(UNITS_PER_WORKER)) as u32);
        self.workers.worker_count() * per_worker.max(SLICES_PER_WORKER) as usize
    }

    /// Returns the maximum number of queries of a group, without its last batch.
    pub(super) fn group_queries(&self) -> u64 {
        (self.options.memory_bytes / GROUP_QUERY_BYTES).clamp(1, u64::from(u32::MAX))
    }

    pub(super) fn search_database_ranges(
        &mut self,
        output: &mut ReportOutput,
        step: &dyn Fn(SearchProgress),
    ) -> Result<(), SearchError> {
        let store = match &self.checkpoint {
            Some(journal) => HitStore::open_named(journal.file_path("hits"))?,
            None => HitStore::create_unnamed(&self.options.scratch_directory)?,
        };
        let mut sizes = BatchSizes { sizes: vec![self.init_response.batch_size], extensions: Vec::new() };
        // The finished batches of an earlier search are always the first ones, because batches are reported in order.
        let finished = (0..).map_while(|number| self.resume_state.batches.remove(&number)).collect::<Vec<_>>();
        self.resume_state.batches = finished.iter().map(|batch| (batch.number, batch.clone())).collect();
        self.counts.header_lines = self.restore_batches()?;
        self.counts.resumed_batches = finished.len() as u32;
        for batch in &finished {
            let end = batch.reports.last().map_or(output.offsets.known_end(), |report| report.offset + report.bytes);
            output.offsets = OutputOffsets::starting_at(end);
            if batch.is_last {
                return Ok(());
            }
            self.size_next_batch(&mut sizes, batch.extensions)?;
        }
        let mut report_share = ReportShare {
            seconds_per_subject: self.forecast.as_ref().and_then(|forecast| forecast.report_s_per_subject),
            share: self.forecast.as_ref().map_or(DEFAULT_REPORT_SHARE, SearchForecast::report_share),
        };
        let mut next = finished.len() as u32;
        loop {
            let group = self.open_group(next, &sizes)?;
            let queries = group.queries();
            if queries == 0 {
                return Ok(());
            }
            let progress = GroupProgress {
                report: step,
                earlier_queries: self.counts.queries,
                group_queries: queries,
                total_queries: self.query_count,
                report_share: Cell::new(report_share),
                started: Instant::now(),
                restored: Cell::new(0.0),
                subjects: Cell::new(0.0),
            };
            let seconds = self.seconds;
            for hits in self.search_group(&store, &group, &progress)? {
                // If the size of this batch was predicted wrongly, it has other queries: the next group starts with it.
                if sizes.sizes.get(next as usize) != group.sizes.get(next as usize) {
                    break;
                }
                if self.report_batch(next, &hits, group.open_request.as_ref(), &sizes, output, &progress)? {
                    return Ok(());
                }
                self.size_next_batch(&mut sizes, hits.extensions)?;
                next += 1;
            }
            let (search, report) = (self.seconds.search - seconds.search, self.seconds.report - seconds.report);
            report_share.measure(search, report, progress.subjects.get());
        }
    }

    /// Records the extensions of a batch, and requests the size of the next batch if it depends on them.
    fn size_next_batch(&mut self, sizes: &mut BatchSizes, extensions: i64) -> Result<(), SearchError> {
        if !self.init_response.batch_sizes_vary {
            return Ok(());
        }
        sizes.extensions.push(extensions as i32);
        let size = self.request_batch_size(&sizes.extensions)?;
        sizes.sizes.push(size);
        Ok(())
    }

    /// Returns the size of the next batch, letters, given the numbers of extensions of all batches before it.
    fn request_batch_size(&mut self, extensions: &[i32]) -> Result<i32, SearchError> {
        match self.workers.request(0, &ProtocolFrame::new(b'M').with_i32s(extensions))? {
            Response::BatchSize(size) => Ok(size),
            other => Err(unexpected_response(&other)),
        }
    }

    /// Returns the sizes of all batches up to the last one of the group that starts with batch `first`. The size of
    /// `first` is known. A later size is predicted if it is the same for half and for twice the expected number of
    /// extensions, as are the largest and the smallest size. A group has at most twice as many batches as are
    /// finished, so that a wrong prediction repeats little, and at most [`MAX_GROUP_BATCHES`], because each prediction sends
    /// the numbers of all batches.
    fn predict_batch_sizes(&mut self, first: u32, sizes: &BatchSizes) -> Result<Vec<i32>, SearchError> {
        let (mut predicted, mut extensions) = (sizes.sizes.clone(), sizes.extensions.clone());
        let limit = (3 * first as usize).min(first as usize + MAX_GROUP_BATCHES);
        while self.init_response.batch_sizes_vary && predicted.len() < limit {
            let Some(expected) = predicted.last().and_then(|size| sizes.expected_extensions(*size)) else { break };
            let mut next_size = |expected: f64| {
                extensions.push(expected as i32);
                let size = self.request_batch_size(&extensions);
                extensions.pop();
                size
            };
            let size = next_size(expected / EXTENSION_LEEWAY_FACTOR)?;
            if next_size(expected * EXTENSION_LEEWAY_FACTOR)? != size {
                break;
            }
            predicted.push(size);
            extensions.push(expected as i32);
        }
        Ok(predicted)
    }

    /// Opens the group that starts with a batch.
    fn open_group(&mut self, first: u32, sizes: &BatchSizes) -> Result<BatchGroup, SearchError> {
        let mut group = BatchGroup {
            first_batch: first,
            first_query: self.counts.queries,
            batches: Vec::new(),
            sizes: sizes.sizes.clone(),
            open_request: None,
        };
        if !self.ranges.exceeds_memory {
            let open = open_request(first, sizes);
            group.batches = vec![self.open_batch(&open)?];
            group.open_request = Some(open);
            return Ok(group);
        }
        group.sizes = self.predict_batch_sizes(first, sizes)?;
        let max_batches = match self.init_response.batch_sizes_vary {
            true => group.sizes.len() as u32 - first,
            false => u32::MAX,
        };
        let request = group_request(first, self.group_queries() as u32, max_batches, &group.sizes);
        match self.workers.request(0, &request)? {
            Response::Group(batches) => Ok(BatchGroup { batches, ..group }),
            other => Err(unexpected_response(&other)),
        }
    }

    /// Searches the ranges with the batches of a group, and returns the hits of each batch.
    fn search_group<'s>(
        &mut self,
        store: &'s HitStore,
        group: &BatchGroup,
        progress: &GroupProgress<'_>,
    ) -> Result<Vec<BatchHits<'s>>, SearchError> {
        if self.resume_state.ranges.is_empty() {
            // The reports of earlier groups are written, so their hits are no longer needed.
            store.clear()?;
        }
        let begun = Instant::now();
        let report = |fraction: f64, subjects: f64| progress.report_ranges(fraction, subjects);
        let mut items = RangeItems::new(&mut self.ranges, group, store, &report, self.checkpoint.as_mut());
        items.restore_ranges(&mut self.resume_state.ranges)?;
        progress.restored.set(items.finished_fraction());
        if items.finished_fraction() > 0.0 {
            items.report_fraction();
        }
        let count = items.item_count();
        self.workers.process_items(&mut items, Some(count), None)?;
        // After its last range, every worker waits for another range until it receives this frame.
        (0..self.workers.worker_count()).for_each(|worker| self.workers.send(worker, &ProtocolFrame::new(b'E')));
        self.counts.dropped_subjects += items.dropped_subjects;
        self.counts.passes += 1;
        self.seconds.search += begun.elapsed().as_secs_f64();
        Ok(items.into_results())
    }

    /// Requests every worker to open a batch of queries, and returns its description, which is the same from all
    /// workers.
    fn open_batch(&mut self, open: &ProtocolFrame) -> Result<BatchInfo, SearchError> {
        let answers = self.workers.request_all(open)?;
        match answers.first() {
            Some(Response::Batch(batch)) => Ok(*batch),
            Some(other) => Err(unexpected_response(other)),
            None => Err(SearchError::Protocol { problem: "no search worker is left".into() }),
        }
    }

    /// Sends the hits of a batch to the owners, which write the reports. Returns whether this is the last batch.
    /// `open_request` is the request that opened the batch, if it is open.
    fn report_batch(
        &mut self,
        number: u32,
        hits: &BatchHits<'_>,
        open: Option<&ProtocolFrame>,
        sizes: &BatchSizes,
        output: &mut ReportOutput,
        progress: &GroupProgress<'_>,
    ) -> Result<bool, SearchError> {
        let begun = Instant::now();
        let (batch, lists) = (hits.info(), hits.read()?);
        let open = match open {
            Some(open) => open.clone(),
            None => {
                let open = open_request(number, sizes);
                self.open_batch(&open)?;
                open
            }
        };
        let finished = std::mem::take(&mut self.resume_state.slices);
        let finished =
            finished.into_iter().filter(|slice| slice.batch == u64::from(number) && slice.end <= batch.queries);
        let slices = cut_slices(number, batch, &lists, finished.collect(), self.slice_count());
        let is_written: Vec<bool> = slices.iter().map(|slice| slice.report.bytes > 0).collect();
        let earlier_slices = self.counts.slices;
        for (index, slice) in (earlier_slices..).zip(&slices).filter(|(_, slice)| slice.report.bytes > 0) {
            if let (Some(table), Some(rows)) = (&mut self.hits_file, slice.rows) {
                table.restore_rows(index, rows)?;
            }
        }
        let earlier_queries = self.counts.queries - progress.earlier_queries;
        let report = |share: f64| {
            let queries = earlier_queries as f64 + share * f64::from(batch.queries);
            progress.report_queries(earlier_queries, queries);
        };
        let count = slices.len() as u64;
        let mut job = SliceItems {
            slices,
            is_written,
            batch,
            exceeds_memory: self.ranges.exceeds_memory,
            hits: &lists,
            open_request: open,
            sent_bytes: 0,
            hits_file: self.hits_file.as_mut(),
            earlier_slices,
            report_progress: &report,
            checkpoint: self.checkpoint.as_mut(),
        };
        let mut layout =
            ReportOutput { path: output.path.clone(), offsets: OutputOffsets::starting_at(output.offsets.known_end()) };
        self.workers.process_items(&mut job, Some(count), Some(&mut layout))?;
        output.offsets = OutputOffsets::starting_at(layout.offsets.known_end());
        self.counts.hits_bytes += job.sent_bytes;
        let slices = job.slices;
        self.record_batch(number, hits, slices)?;
        self.seconds.report += begun.elapsed().as_secs_f64();
        Ok(batch.is_last)
    }

    /// Counts a batch whose reports are written, and records it in the checkpoint.
    fn record_batch(
        &mut self,
        number: u32,
        hits: &BatchHits<'_>,
        slices: Vec<FinishedSlice>,
    ) -> Result<(), SearchError> {
        let batch = hits.info();
        self.counts.slices += slices.len() as u64;
        self.counts.queries += u64::from(batch.queries);
        self.counts.batches += 1;
        let reports = slices.iter().map(|slice| slice.report).collect();
        let rows = slices.iter().filter_map(|slice| slice.rows).collect();
        let lines: Vec<HeaderLine> = slices.into_iter().flat_map(|slice| slice.header_lines).collect();
        self.counts.header_lines.extend(lines.iter().cloned());
        let Some(journal) = &mut self.checkpoint else { return Ok(()) };
        journal.append_entry(&CheckpointEntry::Batch(FinishedBatch {
            number: u64::from(number),
            queries: batch.queries,
            is_last: batch.is_last,
            extensions: hits.extensions,
            reports,
            rows,
            header_lines: lines,
        }))
    }
}

/// Returns the request to open a batch.
fn open_request(number: u32, sizes: &BatchSizes) -> ProtocolFrame {
    ProtocolFrame::new(b'B').with_u32(number).with_i32s(&sizes.sizes)
}

/// Divides the queries of a batch into slices: the finished ones of a stopped search, and between them up to `count`
/// slices of about equal numbers of hits.
fn cut_slices(
    number: u32,
    batch: BatchInfo,
    hits: &[Vec<Vec<u8>>],
    finished: Vec<FinishedSlice>,
    count: usize,
) -> Vec<FinishedSlice> {
    let is_whole = batch.has_joint_hits || batch.is_unsplittable;
    let weights: Vec<u64> = hits.iter().map(|hits| hits.iter().map(|hits| hits.len() as u64).sum()).collect();
    let new = |first: usize, end: usize| FinishedSlice {
        batch: u64::from(number),
        first: first as u32,
        end: end as u32,
        report: FileExtent { offset: 0, bytes: 0, checksum: 0 },
        rows: None,
        header_lines: Vec::new(),
    };
    let cut = |slices: &mut Vec<FinishedSlice>, first: usize, end: usize| {
        if first >= end {
            return;
        }
        let cuts = if is_whole { vec![0, end - first] } else { partition_by_weight(&weights[first..end], count) };
        slices.extend(cuts.windows(2).map(|pair| new(first + pair[0], first + pair[1])));
    };
    let (mut slices, mut end) = (Vec::new(), 0);
    for slice in finished {
        cut(&mut slices, end, slice.first as usize);
        end = slice.end as usize;
        slices.push(slice);
    }
    cut(&mut slices, end, batch.queries as usize);
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_expected_at_the_rate_of_the_last_batch() {
        let sizes = BatchSizes { sizes: vec![10_000, 500, 999_000], extensions: vec![7, 20] };
        assert_eq!(sizes.expected_extensions(1000), Some(40.0));
        assert_eq!(BatchSizes { sizes: vec![10_000], extensions: Vec::new() }.expected_extensions(1000), None);
    }

    /// The true and the reported fraction of a simulated search when a tenth of its time has passed: 40 ranges, and then
    /// reports that take `report_s`. Each query has `subjects` subjects in the database, of which 100 are reported.
    fn reported_after_a_tenth(range_s: f64, subjects: &[f64], seconds_per_subject: f64) -> (f64, f64) {
        let listed = |found: f64| found.min(100.0);
        let report_s: f64 = subjects.iter().map(|found| listed(*found) * seconds_per_subject).sum();
        let total_s = 40.0 * range_s + report_s;
        // The measurement on the sample is 10 percent too high.
        let mut share =
            ReportShare { seconds_per_subject: Some(1.1 * seconds_per_subject), share: DEFAULT_REPORT_SHARE };
        let ranges =
            (1..=40).find(|ranges| f64::from(*ranges) * range_s >= total_s / 10.0).expect("ranges take a tenth");
        let (passed_s, fraction) = (f64::from(ranges) * range_s, f64::from(ranges) / 40.0);
        let expected = subjects.iter().map(|found| listed((found * fraction).floor() / fraction)).sum();
        share.estimate(passed_s, fraction, expected);
        (passed_s / total_s, fraction * (1.0 - share.share))
    }

    #[test]
    fn the_remaining_time_is_right_to_a_fifth_after_a_tenth() {
        let subjects: Vec<f64> = (0..30).map(|query| f64::from(query * query)).collect();
        // Reports take from 1 % to 80 % of the time.
        for seconds_per_subject in [0.0002, 0.002, 0.01, 0.03, 0.08] {
            let (true_fraction, reported) = reported_after_a_tenth(1.0, &subjects, seconds_per_subject);
            let (left, predicted) = (1.0 / true_fraction - 1.0, 1.0 / reported - 1.0);
            assert!((predicted / left - 1.0).abs() < 0.2, "{seconds_per_subject}: {predicted} instead of {left}");
        }
    }

    #[test]
    fn new_slices_fill_the_gaps_between_the_finished_ones() {
        let batch =
            BatchInfo { queries: 10, letters: 99, is_last: true, has_joint_hits: false, is_unsplittable: false };
        let hits = vec![vec![vec![0; 5]]; 10];
        let ends = |slices: &[FinishedSlice]| -> Vec<(u32, u32)> {
            slices.iter().map(|slice| (slice.first, slice.end)).collect()
        };
        let all = cut_slices(3, batch, &hits, Vec::new(), 8);
        assert_eq!((all.len(), all[0].first, all[7].end), (8, 0, 10));
        let finished: Vec<FinishedSlice> =
            [(2, 4), (4, 9)].map(|(first, end)| FinishedSlice { first, end, ..all[0].clone() }).into();
        let filled = cut_slices(3, batch, &hits, finished, 8);
        assert_eq!(ends(&filled), [(0, 1), (1, 2), (2, 4), (4, 9), (9, 10)]);
        let joint = BatchInfo { has_joint_hits: true, ..batch };
        assert_eq!(ends(&cut_slices(3, joint, &hits[..1], Vec::new(), 32)), [(0, 10)]);
    }
}
