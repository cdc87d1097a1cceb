//! The work items of a search: ranges of the database, reports on queries, and whole batches.

use std::collections::BTreeMap;

use godwit_fleet::leases::ItemId;

use crate::SearchError;
use crate::hits::HitsFile;
use crate::search_checkpoint::{self, CheckpointEntry, FileExtent, SearchCheckpoint};
use crate::search_worker_pool::{ItemResult, WorkItems};
use crate::summary::SearchProgress;
use crate::thresholds::EvalueThresholds;
use crate::worker_protocol::{BatchInfo, FieldReader, HeaderLine, InitResponse, ProtocolFrame, Response};

/// Returns the error for a response of the wrong kind.
pub(crate) fn unexpected_response(answer: &Response) -> SearchError {
    SearchError::Protocol { problem: format!("the worker sent an unexpected response {answer:?}") }
}

/// Work items for the preliminary search of a batch of queries: each item is one range of the database.
pub(crate) struct RangeItems<'a> {
    /// First sequence and end (exclusive, 0-based) of each range; ranges with the most letters are first.
    ranges: Vec<(u32, u32)>,
    finished_ranges: usize,
    /// Function to call with the finished fraction of the ranges, 0 to 1.
    report_progress: &'a dyn Fn(f64),
    /// Serialized hits: the outer index is the query, the inner index the range.
    pub(crate) hits: Vec<Vec<Vec<u8>>>,
    /// Number of extensions in each range; `None` for a range that is not finished.
    extensions: Vec<Option<i64>>,
    thresholds: EvalueThresholds,
    /// Number of subjects that workers dropped because the list of the query was full of better subjects.
    pub(crate) dropped_subjects: u64,
    open_request: ProtocolFrame,
    /// Number of the batch of queries, from 0.
    batch_number: u32,
    checkpoint: Option<&'a mut SearchCheckpoint>,
}

impl<'a> RangeItems<'a> {
    pub(crate) fn new(
        ready: &InitResponse,
        (batch_number, batch): (u32, BatchInfo),
        open_request: ProtocolFrame,
        report_progress: &'a dyn Fn(f64),
        checkpoint: Option<&'a mut SearchCheckpoint>,
    ) -> Self {
        let mut order = ready.ranges.clone();
        order.sort_by_key(|(.., letters)| std::cmp::Reverse(*letters));
        let ranges: Vec<(u32, u32)> = order.into_iter().map(|(first, last, _)| (first, last)).collect();
        let groups = if batch.has_joint_hits { 1 } else { batch.queries as usize };
        let (hits, extensions) = (vec![vec![Vec::new(); ranges.len()]; groups], vec![None; ranges.len()]);
        let (thresholds, dropped_subjects) = (EvalueThresholds::default(), 0);
        Self {
            hits,
            ranges,
            finished_ranges: 0,
            report_progress,
            extensions,
            thresholds,
            dropped_subjects,
            open_request,
            batch_number,
            checkpoint,
        }
    }

    /// Restores the hits of the ranges that the stopped search had finished. If the hits of a range cannot be parsed,
    /// the range is searched again.
    pub(crate) fn restore_ranges(&mut self, ranges: BTreeMap<u64, (i64, FileExtent)>) -> Result<(), SearchError> {
        for (range, (extensions, kept)) in ranges {
            let Some(journal) = &self.checkpoint else { return Ok(()) };
            let bytes = journal.read_hits(kept)?;
            let mut fields = FieldReader::new(&bytes);
            let hits: Option<Vec<Vec<u8>>> = self.hits.iter().map(|_| fields.read_text()).collect();
            let (Some(hits), true) = (hits, fields.is_empty() && range < self.ranges.len() as u64) else { continue };
            self.thresholds.add_hits(&hits, 0);
            self.store_range(range as usize, extensions, hits);
        }
        Ok(())
    }

    fn store_range(&mut self, range: usize, extensions: i64, hits: Vec<Vec<u8>>) {
        self.extensions[range] = Some(extensions);
        for (query, hits) in hits.into_iter().enumerate() {
            self.hits[query][range] = hits;
        }
        self.finished_ranges += 1;
        (self.report_progress)(self.finished_ranges as f64 / self.ranges.len() as f64);
    }

    /// Returns the number of ranges of the database.
    pub(crate) fn range_count(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// Returns the total number of extensions in all finished ranges.
    pub(crate) fn total_extensions(&self) -> i64 {
        self.extensions.iter().flatten().sum()
    }
}

impl WorkItems for RangeItems<'_> {
    fn item_request(&mut self, item: ItemId) -> ProtocolFrame {
        let (first, last) = self.ranges[item.0 as usize];
        self.thresholds.append_to(ProtocolFrame::new(b'R').with_u64(item.0).with_u32(first).with_u32(last))
    }

    fn accept_response(&mut self, item: ItemId, answer: Response) -> Result<ItemResult, SearchError> {
        let Response::Hits { item: found, extensions, list_capacity, dropped_subjects, hits } = answer else {
            return Err(unexpected_response(&answer));
        };
        if found != item || hits.len() != self.hits.len() {
            return Err(SearchError::Protocol { problem: "the worker sent the hits of another range".into() });
        }
        // If two workers searched the same range, ignore the second response.
        if self.extensions[item.0 as usize].is_some() {
            return Ok(ItemResult::Done);
        }
        if let Some(journal) = &mut self.checkpoint {
            let bytes = hits.iter().fold(ProtocolFrame::new(b'H'), |frame, hits| frame.with_text(hits)).into_body();
            journal.store_range(self.batch_number, item.0, extensions, &bytes)?;
        }
        self.thresholds.add_hits(&hits, list_capacity);
        self.dropped_subjects += dropped_subjects;
        self.store_range(item.0 as usize, extensions, hits);
        Ok(ItemResult::Done)
    }

    fn resumed_report_bytes(&self, item: ItemId) -> Option<u64> {
        self.extensions[item.0 as usize].map(|_| 0)
    }

    fn setup_requests(&self) -> Vec<ProtocolFrame> {
        vec![self.open_request.clone()]
    }

    fn describe_item(&self, item: ItemId) -> String {
        let (first, last) = self.ranges[item.0 as usize];
        format!("sequences {} to {last} of the database", first + 1)
    }
}

/// Work items for the reports of a batch: each item is a slice of the queries, for which one worker computes the
/// reports.
pub(crate) struct SliceItems<'a> {
    pub(crate) slices: Vec<(usize, usize)>,
    pub(crate) batch: BatchInfo,
    pub(crate) hits: &'a [Vec<Vec<u8>>],
    pub(crate) header_lines: Vec<Vec<HeaderLine>>,
    /// For each slice, the extent of its report in the output, and of its rows in the row log.
    pub(crate) extents: Vec<(FileExtent, Option<FileExtent>)>,
    pub(crate) open_request: ProtocolFrame,
    pub(crate) sent_bytes: u64,
    pub(crate) hits_file: Option<&'a mut HitsFile>,
    /// Number of slices of all earlier batches.
    pub(crate) earlier_slices: u64,
}

impl WorkItems for SliceItems<'_> {
    fn item_request(&mut self, item: ItemId) -> ProtocolFrame {
        let index = item.0 as usize;
        let (first, last) = self.slices[index];
        let alone = u8::from(self.batch.is_unsplittable);
        let mut request =
            ProtocolFrame::new(b'O').with_u64(item.0).with_u32(first as u32).with_u32(last as u32).with_u8(alone);
        if !self.batch.is_unsplittable {
            let groups = if self.batch.has_joint_hits { self.hits } else { &self.hits[first..last] };
            for hits in groups.iter().flatten() {
                self.sent_bytes += hits.len() as u64;
                request = request.with_text(hits);
            }
        }
        request
    }

    fn accept_response(&mut self, item: ItemId, answer: Response) -> Result<ItemResult, SearchError> {
        let Response::Report { item: found, bytes, checksum, lines, rows } = answer else {
            return Err(unexpected_response(&answer));
        };
        if found != item {
            return Err(SearchError::Protocol { problem: "the worker sent a report on other queries".into() });
        }
        self.header_lines[item.0 as usize] = lines;
        let place = &mut self.extents[item.0 as usize];
        place.0 = FileExtent { offset: 0, bytes, checksum };
        if let Some(table) = &mut self.hits_file
            && let Some(kept) = table.add_rows(self.earlier_slices + item.0, &rows)?
        {
            place.1 = Some(kept);
        }
        // `last` has no effect here, because the number of slices was known from the start.
        Ok(ItemResult::Report { bytes, last: false })
    }

    fn record_written(&mut self, item: ItemId, offset: u64) -> Result<(), SearchError> {
        self.extents[item.0 as usize].0.offset = offset;
        Ok(())
    }

    fn setup_requests(&self) -> Vec<ProtocolFrame> {
        vec![self.open_request.clone()]
    }

    fn describe_item(&self, item: ItemId) -> String {
        let (first, last) = self.slices[item.0 as usize];
        format!("queries {} to {last} of a batch", first + 1)
    }
}

/// Work items for searching whole batches of queries: one worker searches each batch in the whole database.
pub(crate) struct BatchItems<'a> {
    pub(crate) batch_letters: i32,
    /// Batches whose reports are complete, by number; workers may still have to write them to the output.
    pub(crate) batches: BTreeMap<u64, search_checkpoint::FinishedBatch>,
    pub(crate) total_queries: u64,
    pub(crate) report_progress: &'a dyn Fn(SearchProgress),
    pub(crate) hits_file: Option<&'a mut HitsFile>,
    pub(crate) checkpoint: Option<&'a mut SearchCheckpoint>,
}

impl BatchItems<'_> {
    /// Returns the number of queries whose reports are complete.
    pub(crate) fn reported_queries(&self) -> u64 {
        self.batches.values().map(|batch| u64::from(batch.queries)).sum()
    }
}

impl WorkItems for BatchItems<'_> {
    fn item_request(&mut self, item: ItemId) -> ProtocolFrame {
        ProtocolFrame::new(b'A').with_u64(item.0).with_i32s(&[self.batch_letters])
    }

    fn accept_response(&mut self, item: ItemId, answer: Response) -> Result<ItemResult, SearchError> {
        let Response::BatchReport { item: found, queries, last: is_last, bytes, checksum, lines: header_lines, rows } =
            answer
        else {
            return Err(unexpected_response(&answer));
        };
        if found != item {
            return Err(SearchError::Protocol { problem: "the worker sent a report on another batch".into() });
        }
        if queries == 0 {
            return Ok(ItemResult::NoSuchItem);
        }
        let mut rows_kept = self.batches.remove(&item.0).map(|batch| batch.rows).unwrap_or_default();
        if let Some(table) = &mut self.hits_file {
            rows_kept.extend(table.add_rows(item.0, &rows)?);
        }
        let reports = vec![FileExtent { offset: 0, bytes, checksum }];
        let batch = search_checkpoint::FinishedBatch {
            number: item.0,
            queries,
            is_last,
            extensions: 0,
            reports,
            rows: rows_kept,
            header_lines,
        };
        self.batches.insert(item.0, batch);
        (self.report_progress)(SearchProgress::new(self.reported_queries(), self.total_queries, 0.0));
        Ok(ItemResult::Report { bytes, last: is_last })
    }

    fn resumed_report_bytes(&self, item: ItemId) -> Option<u64> {
        self.batches.get(&item.0).map(|batch| batch.reports.iter().map(|report| report.bytes).sum())
    }

    fn record_written(&mut self, item: ItemId, offset: u64) -> Result<(), SearchError> {
        let Some(batch) = self.batches.get_mut(&item.0) else { return Ok(()) };
        batch.reports.iter_mut().for_each(|report| report.offset = offset);
        match &mut self.checkpoint {
            Some(journal) => journal.append_entry(&CheckpointEntry::Batch(batch.clone())),
            None => Ok(()),
        }
    }

    fn setup_requests(&self) -> Vec<ProtocolFrame> {
        Vec::new()
    }

    fn can_follow(&self, last: Option<ItemId>, item: ItemId) -> bool {
        last.is_none_or(|last| last < item)
    }

    fn describe_item(&self, item: ItemId) -> String {
        format!("batch {} of the queries", item.0 + 1)
    }
}
