//! Searches the ranges of the database with groups of batches of queries.
//!
//! A group is one batch if the database fits into memory, or if the size of a batch depends on the results of earlier
//! ones. Otherwise a group has as many batches as `--memory` allows: all of them search a range before the first one
//! searches the next range, so that the database is read once for each group.

use std::time::Instant;

use super::Search;
use crate::SearchError;
use crate::hit_store::HitStore;
use crate::output_offsets::OutputOffsets;
use crate::search_checkpoint::{CheckpointEntry, FileExtent, FinishedBatch, FinishedSlice};
use crate::search_plan::partition_by_weight;
use crate::search_worker_pool::ReportOutput;
use crate::summary::{SearchForecast, SearchProgress};
use crate::work_items::{BatchHits, RangeItems, SliceItems, unexpected_response};
use crate::worker_protocol::{BatchInfo, HeaderLine, ProtocolFrame, Response};

/// Number of slices per worker into which the queries of a batch are divided; one owner reports on each slice. A search
/// that is killed loses the slices in progress.
const SLICES_PER_WORKER: usize = 8;
/// Memory for a query of a group, bytes: the e-values of a full list of 1050 subjects in the head, and the sequence with
/// its description in each worker.
const GROUP_QUERY_BYTES: u64 = 16 << 10;
/// Share of the time of a search that its reports take, until the search has measured it. In searches of proteins in
/// 64,421 proteins, traceback and format took 34 to 41 % of the CPU time.
const DEFAULT_REPORT_SHARE: f64 = 0.35;

/// The sizes of the batches of queries, letters.
struct BatchSizes {
    sizes: Vec<i32>,
    /// Number of extensions of each batch so far.
    extensions: Vec<i32>,
}

/// The fraction of a group of batches that is done.
struct GroupProgress<'p> {
    report: &'p dyn Fn(SearchProgress),
    /// Number of queries in earlier groups, in this group, and in total.
    earlier_queries: u64,
    group_queries: u64,
    total_queries: u64,
    /// Share of the time of the group that its reports take, 0 to 1.
    report_share: f64,
}

impl GroupProgress<'_> {
    /// Reports the finished fraction of the ranges, 0 to 1.
    fn report_ranges(&self, fraction: f64) {
        self.report(self.earlier_queries, fraction * (1.0 - self.report_share));
    }

    /// Reports the number of queries of this group with complete reports; a fraction for a batch in progress.
    fn report_queries(&self, complete_batches: u64, queries: f64) {
        let share = queries / self.group_queries.max(1) as f64;
        self.report(self.earlier_queries + complete_batches, 1.0 - self.report_share * (1.0 - share));
    }

    fn report(&self, reported: u64, group_share: f64) {
        let done = self.earlier_queries as f64 + self.group_queries as f64 * group_share;
        (self.report)(SearchProgress::new(reported, self.total_queries, done));
    }
}

impl Search<'_> {
    /// Returns whether several batches search a range before the next range is read.
    pub(super) fn is_grouped(&self) -> bool {
        self.ranges.exceeds_memory && !self.init_response.batch_sizes_vary
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
        let mut report_share = self.forecast.as_ref().map_or(DEFAULT_REPORT_SHARE, SearchForecast::report_share);
        let mut next = finished.len() as u32;
        loop {
            let (group, open_request) = self.open_group(next, &sizes)?;
            let queries: u64 = group.iter().map(|batch| u64::from(batch.queries)).sum();
            if queries == 0 {
                return Ok(());
            }
            let progress = GroupProgress {
                report: step,
                earlier_queries: self.counts.queries,
                group_queries: queries,
                total_queries: self.query_count,
                report_share,
            };
            let seconds = self.seconds;
            let results = self.search_group(&store, (next, &group), open_request.clone(), &progress)?;
            for hits in results {
                if self.report_batch(next, &hits, open_request.as_ref(), &sizes, output, &progress)? {
                    return Ok(());
                }
                self.size_next_batch(&mut sizes, hits.extensions)?;
                next += 1;
            }
            let (search, report) = (self.seconds.search - seconds.search, self.seconds.report - seconds.report);
            report_share = report / (search + report).max(1e-9);
        }
    }

    /// Records the extensions of a batch, and requests the size of the next batch if it depends on them.
    fn size_next_batch(&mut self, sizes: &mut BatchSizes, extensions: i64) -> Result<(), SearchError> {
        if !self.init_response.batch_sizes_vary {
            return Ok(());
        }
        sizes.extensions.push(extensions as i32);
        match self.workers.request(0, &ProtocolFrame::new(b'M').with_i32s(&sizes.extensions))? {
            Response::BatchSize(size) => sizes.sizes.push(size),
            other => return Err(unexpected_response(&other)),
        }
        Ok(())
    }

    /// Opens the group that starts with a batch. Returns the batches, and the request that all workers must have received
    /// before they search the group, if there is one.
    fn open_group(
        &mut self,
        first: u32,
        sizes: &BatchSizes,
    ) -> Result<(Vec<BatchInfo>, Option<ProtocolFrame>), SearchError> {
        if !self.is_grouped() {
            let open = open_request(first, sizes);
            return Ok((vec![self.open_batch(&open)?], Some(open)));
        }
        let request = ProtocolFrame::new(b'G').with_u32(first).with_u32(self.group_queries() as u32);
        match self.workers.request(0, &request)? {
            Response::Group(group) => Ok((group, None)),
            other => Err(unexpected_response(&other)),
        }
    }

    /// Searches the ranges with the batches of a group, and returns the hits of each batch.
    fn search_group<'s>(
        &mut self,
        store: &'s HitStore,
        group: (u32, &[BatchInfo]),
        open_request: Option<ProtocolFrame>,
        progress: &GroupProgress<'_>,
    ) -> Result<Vec<BatchHits<'s>>, SearchError> {
        if self.resume_state.ranges.is_empty() {
            // The reports of earlier groups are written, so their hits are no longer needed.
            store.clear()?;
        }
        let begun = Instant::now();
        let (tell, journal) = (|fraction| progress.report_ranges(fraction), self.checkpoint.as_mut());
        let mut items = RangeItems::new(&mut self.ranges, group, open_request, store, &tell, journal);
        items.restore_ranges(&mut self.resume_state.ranges)?;
        let count = items.item_count();
        self.workers.process_items(&mut items, Some(count), None)?;
        // After its last range, every worker waits for another range until it receives this frame.
        (0..self.workers.worker_count()).for_each(|worker| self.workers.send(worker, &ProtocolFrame::new(b'E')));
        self.counts.dropped_subjects += items.dropped_subjects;
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
        let slices = cut_slices(number, batch, &lists, finished.collect(), self.workers.worker_count());
        let is_written: Vec<bool> = slices.iter().map(|slice| slice.report.bytes > 0).collect();
        let earlier_slices = self.counts.slices;
        for (index, slice) in (earlier_slices..).zip(&slices).filter(|(_, slice)| slice.report.bytes > 0) {
            if let (Some(table), Some(rows)) = (&mut self.hits_file, slice.rows) {
                table.restore_rows(index, rows)?;
            }
        }
        let earlier_queries = self.counts.queries - progress.earlier_queries;
        let tell = |share: f64| {
            let queries = earlier_queries as f64 + share * f64::from(batch.queries);
            progress.report_queries(earlier_queries, queries);
        };
        let count = slices.len() as u64;
        let mut job = SliceItems {
            slices,
            is_written,
            batch,
            hits: &lists,
            open_request: open,
            sent_bytes: 0,
            hits_file: self.hits_file.as_mut(),
            earlier_slices,
            report_progress: &tell,
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

/// Divides the queries of a batch into slices: the finished ones of a stopped search, and slices of about equal numbers
/// of hits between them.
fn cut_slices(
    number: u32,
    batch: BatchInfo,
    hits: &[Vec<Vec<u8>>],
    finished: Vec<FinishedSlice>,
    workers: usize,
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
        let parts = if is_whole { 1 } else { workers * SLICES_PER_WORKER };
        let cuts = if is_whole { vec![0, end - first] } else { partition_by_weight(&weights[first..end], parts) };
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
    fn new_slices_fill_the_gaps_between_the_finished_ones() {
        let batch =
            BatchInfo { queries: 10, letters: 99, is_last: true, has_joint_hits: false, is_unsplittable: false };
        let hits = vec![vec![vec![0; 5]]; 10];
        let ends = |slices: &[FinishedSlice]| -> Vec<(u32, u32)> {
            slices.iter().map(|slice| (slice.first, slice.end)).collect()
        };
        let all = cut_slices(3, batch, &hits, Vec::new(), 1);
        assert_eq!((all.len(), all[0].first, all[7].end), (8, 0, 10));
        let finished: Vec<FinishedSlice> =
            [(2, 4), (4, 9)].map(|(first, end)| FinishedSlice { first, end, ..all[0].clone() }).into();
        let filled = cut_slices(3, batch, &hits, finished, 1);
        assert_eq!(ends(&filled), [(0, 1), (1, 2), (2, 4), (4, 9), (9, 10)]);
        let joint = BatchInfo { has_joint_hits: true, ..batch };
        assert_eq!(ends(&cut_slices(3, joint, &hits[..1], Vec::new(), 4)), [(0, 10)]);
    }
}
