//! The work items of a search: ranges of the database, reports on queries, and whole batches.

use std::collections::BTreeMap;
use std::time::Duration;

use godwit_fleet::leases::ItemId;

use crate::SearchError;
use crate::database_ranges::DatabaseRanges;
use crate::database_volumes::DatabaseExtent;
use crate::hit_store::HitStore;
use crate::hits::HitsFile;
use crate::search_checkpoint::{self, CheckpointEntry, FileExtent, FinishedRange, FinishedSlice, SearchCheckpoint};
use crate::search_worker_pool::{ItemResult, WorkItems};
use crate::summary::SearchProgress;
use crate::thresholds::EvalueThresholds;
use crate::worker_protocol::{BatchInfo, FieldReader, OPEN_BATCH, ProtocolFrame, Response};

/// Returns the error for a response of the wrong kind.
pub(crate) fn unexpected_response(answer: &Response) -> SearchError {
    SearchError::Protocol { problem: format!("the worker sent an unexpected response {answer:?}") }
}

/// Returns the request to open a group of batches: at most `max_batches`, and no more after `max_queries` queries.
pub(crate) fn group_request(first: u32, max_queries: u32, max_batches: u32, sizes: &[i32]) -> ProtocolFrame {
    ProtocolFrame::new(b'G').with_u32(first).with_u32(max_queries).with_u32(max_batches).with_i32s(sizes)
}

/// A batch of queries in the preliminary search.
struct BatchSearch {
    /// Number of the batch, from 0.
    number: u32,
    /// First query of the batch, counted from 0 over the search.
    first_query: u64,
    info: BatchInfo,
    /// By range: the number of extensions and the extent of the hits; `None` for a range that is not finished.
    ranges: Vec<Option<(i64, FileExtent)>>,
    thresholds: EvalueThresholds,
    /// Expected number of subjects in the lists of all queries at the end of the preliminary search; `None` before the
    /// first range.
    expected_subjects: Option<f64>,
}

impl BatchSearch {
    /// Returns the number of elements in the hits of a range: one for each query, or one for all queries.
    fn hit_groups(&self) -> usize {
        if self.info.has_joint_hits { 1 } else { self.info.queries as usize }
    }

    /// Parses the stored hits of a range.
    fn parse_hits(&self, bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut fields = FieldReader::new(bytes);
        let hits = (0..self.hit_groups()).map(|_| fields.read_text()).collect::<Option<_>>()?;
        fields.is_empty().then_some(hits)
    }
}

/// A group of consecutive batches of queries.
pub(crate) struct BatchGroup {
    /// Number of the first batch, from 0.
    pub(crate) first_batch: u32,
    /// First query of the first batch, counted from 0 over the search.
    pub(crate) first_query: u64,
    pub(crate) batches: Vec<BatchInfo>,
    /// Sizes of all batches up to the last one of the group, letters; the last size applies to all later batches.
    pub(crate) sizes: Vec<i32>,
    /// The request that opens the batch, if the group is one batch that all workers have open; `None` if workers open
    /// batches of the group as they need them.
    pub(crate) open_request: Option<ProtocolFrame>,
}

impl BatchGroup {
    /// Returns the number of queries.
    pub(crate) fn queries(&self) -> u64 {
        self.batches.iter().map(|batch| u64::from(batch.queries)).sum()
    }
}

/// Work items for the preliminary search of a group of batches: each item is one range of the database with one batch.
/// All batches search a range before the first one searches the next range.
pub(crate) struct RangeItems<'a, 's> {
    ranges: &'a mut DatabaseRanges,
    /// Numbers of the ranges, in the order of the search.
    order: Vec<usize>,
    /// By position in `order`: true if a host reads this range or was requested to read it ahead.
    is_read: Vec<bool>,
    batches: Vec<BatchSearch>,
    group: &'a BatchGroup,
    finished_items: u64,
    /// Function to call with the finished fraction of the items, 0 to 1, and the expected number of subjects in the
    /// lists of all queries.
    report_progress: &'a dyn Fn(f64, f64),
    store: &'s HitStore,
    /// Number of batches that have searched a range, and the sum of their expected numbers of subjects.
    searched_batches: u64,
    expected_subjects: f64,
    /// Number of subjects that workers dropped because the list of the query was full of better subjects.
    pub(crate) dropped_subjects: u64,
    checkpoint: Option<&'a mut SearchCheckpoint>,
}

impl<'a, 's> RangeItems<'a, 's> {
    /// Creates the items of a group of batches.
    pub(crate) fn new(
        ranges: &'a mut DatabaseRanges,
        group: &'a BatchGroup,
        store: &'s HitStore,
        report_progress: &'a dyn Fn(f64, f64),
        checkpoint: Option<&'a mut SearchCheckpoint>,
    ) -> Self {
        let mut first_query = group.first_query;
        let batches = (group.first_batch..).zip(&group.batches).map(|(number, info)| {
            let batch = BatchSearch {
                number,
                first_query,
                info: *info,
                ranges: vec![None; ranges.count()],
                thresholds: EvalueThresholds::default(),
                expected_subjects: None,
            };
            first_query += u64::from(info.queries);
            batch
        });
        let (batches, order) = (batches.collect(), ranges.search_order());
        Self {
            is_read: vec![false; order.len()],
            ranges,
            order,
            batches,
            group,
            finished_items: 0,
            report_progress,
            store,
            searched_batches: 0,
            expected_subjects: 0.0,
            dropped_subjects: 0,
            checkpoint,
        }
    }

    /// Records a finished range of a batch, whose hits were added to the thresholds.
    fn finish_range(&mut self, index: usize, range: usize, extensions: i64, hits: FileExtent) {
        let batch = &mut self.batches[index];
        batch.ranges[range] = Some((extensions, hits));
        let share = batch.ranges.iter().flatten().count() as f64 / batch.ranges.len() as f64;
        let expected = batch.thresholds.expected_subjects(share);
        self.searched_batches += u64::from(batch.expected_subjects.is_none());
        self.expected_subjects += expected - batch.expected_subjects.replace(expected).unwrap_or(0.0);
        self.finished_items += 1;
    }

    /// Reports the finished fraction of the items. Batches that have not searched a range are expected to have as many
    /// subjects as the others.
    pub(crate) fn report_fraction(&self) {
        let subjects = self.expected_subjects * self.batches.len() as f64 / self.searched_batches.max(1) as f64;
        (self.report_progress)(self.finished_fraction(), subjects);
    }

    /// Takes those ranges out of `finished` that the stopped search had finished for batches of this group. If the batch
    /// had other queries, or the hits of a range cannot be parsed, the range is searched again.
    pub(crate) fn restore_ranges(
        &mut self,
        finished: &mut BTreeMap<(u32, u64), FinishedRange>,
    ) -> Result<(), SearchError> {
        for index in 0..self.batches.len() {
            let number = self.batches[index].number;
            let own: Vec<(u32, u64)> = finished.range((number, 0)..=(number, u64::MAX)).map(|(key, _)| *key).collect();
            for key in own {
                let (Some(found), batch) = (finished.remove(&key), &mut self.batches[index]) else { continue };
                if (found.first_query, found.queries) != (batch.first_query, batch.info.queries) {
                    continue;
                }
                let hits = batch.parse_hits(&self.store.read(found.hits)?);
                let range = Some(key.1 as usize).filter(|range| *range < batch.ranges.len());
                let (Some(hits), Some(range)) = (hits, range) else { continue };
                batch.thresholds.add_hits(&hits, 0);
                self.finish_range(index, range, found.extensions, found.hits);
            }
        }
        Ok(())
    }

    /// Returns the finished fraction of the items, 0 to 1.
    pub(crate) fn finished_fraction(&self) -> f64 {
        self.finished_items as f64 / self.item_count().max(1) as f64
    }

    /// Returns the number of items.
    pub(crate) fn item_count(&self) -> u64 {
        (self.order.len() * self.batches.len()) as u64
    }

    /// Returns the results of the batches: the number of extensions, and the hits. The outer index of hits is the
    /// query, the inner index the range.
    pub(crate) fn into_results(self) -> Vec<BatchHits<'s>> {
        let results = self.batches.into_iter().map(|batch| {
            let extensions = batch.ranges.iter().flatten().map(|(extensions, _)| *extensions).sum();
            BatchHits { extensions, batch, store: self.store }
        });
        results.collect()
    }

    /// Returns the position in the order of the search, the number of the range, and the index of the batch in the
    /// group.
    fn item_place(&self, item: ItemId) -> (usize, usize, usize) {
        let (position, batch) = (item.0 as usize / self.batches.len(), item.0 as usize % self.batches.len());
        (position, self.order[position], batch)
    }
}

/// The stored hits of a batch after the preliminary search.
pub(crate) struct BatchHits<'s> {
    /// Number of extensions in all ranges.
    pub(crate) extensions: i64,
    batch: BatchSearch,
    store: &'s HitStore,
}

impl BatchHits<'_> {
    /// Returns the description of the batch.
    pub(crate) fn info(&self) -> BatchInfo {
        self.batch.info
    }

    /// Reads the hits. The outer index is the query, the inner index the range; there is one query if the hits of the
    /// batch are joint.
    pub(crate) fn read(&self) -> Result<Vec<Vec<Vec<u8>>>, SearchError> {
        let mut hits = vec![Vec::with_capacity(self.batch.ranges.len()); self.batch.hit_groups()];
        for (_, kept) in self.batch.ranges.iter().flatten() {
            let range = self.batch.parse_hits(&self.store.read(*kept)?);
            let range = range.ok_or_else(|| SearchError::Protocol { problem: "stored hits cannot be read".into() })?;
            for (query, range) in range.into_iter().enumerate() {
                hits[query].push(range);
            }
        }
        Ok(hits)
    }
}

impl WorkItems for RangeItems<'_, '_> {
    fn item_request(&mut self, item: ItemId) -> ProtocolFrame {
        let (_, range, batch) = self.item_place(item);
        let (range, batch) = (self.ranges.range(range), &mut self.batches[batch]);
        let is_open = self.group.open_request.is_some();
        let (number, start) = if is_open { (OPEN_BATCH, OPEN_BATCH) } else { (batch.number, self.group.first_batch) };
        let sizes: &[i32] = if is_open { &[] } else { &self.group.sizes };
        let request = ProtocolFrame::new(b'R').with_u64(item.0).with_u32(number).with_u32(start);
        let request = request.with_u32(sizes.len() as u32).with_i32s(sizes);
        batch.thresholds.append_to(request.with_u32(range.first).with_u32(range.end))
    }

    fn suits_host(&self, host: usize, item: ItemId) -> bool {
        self.ranges.suits_host(self.item_place(item).1, host)
    }

    /// The host reads the range of the item now. It also gets the next range that no other host reads, and reads it
    /// ahead if the database exceeds the memory.
    fn record_lease(&mut self, host: usize, item: ItemId) -> Vec<DatabaseExtent> {
        let (position, range, _) = self.item_place(item);
        self.ranges.assign_host(range, host);
        self.is_read[position] = true;
        let next = (position + 1..self.order.len()).find(|next| self.ranges.suits_host(self.order[*next], host));
        let Some(next) = next.filter(|next| !self.is_read[*next]) else { return Vec::new() };
        self.ranges.assign_host(self.order[next], host);
        self.is_read[next] = true;
        if self.ranges.exceeds_memory { self.ranges.range(self.order[next]).extents.clone() } else { Vec::new() }
    }

    fn accept_response(&mut self, item: ItemId, answer: Response) -> Result<ItemResult, SearchError> {
        let (_, range, index) = self.item_place(item);
        let batch = &mut self.batches[index];
        let Response::Hits { item: found, extensions, list_capacity, dropped_subjects, hits } = answer else {
            return Err(unexpected_response(&answer));
        };
        if found != item || hits.len() != batch.hit_groups() {
            return Err(SearchError::Protocol { problem: "the worker sent the hits of another range".into() });
        }
        // If two workers searched the same range, ignore the second response.
        if batch.ranges[range].is_some() {
            return Ok(ItemResult::Done);
        }
        let bytes = hits.iter().fold(ProtocolFrame::new(b'H'), |frame, hits| frame.with_text(hits)).into_body();
        let kept = self.store.append(&bytes)?;
        if let Some(journal) = &mut self.checkpoint {
            journal.append_entry(&CheckpointEntry::Range(FinishedRange {
                batch: batch.number,
                range: range as u64,
                first_query: batch.first_query,
                queries: batch.info.queries,
                extensions,
                hits: kept,
            }))?;
        }
        batch.thresholds.add_hits(&hits, list_capacity);
        self.dropped_subjects += dropped_subjects;
        self.finish_range(index, range, extensions, kept);
        self.report_fraction();
        Ok(ItemResult::Done)
    }

    fn resumed_report_bytes(&self, item: ItemId) -> Option<u64> {
        let (_, range, batch) = self.item_place(item);
        let batch = &self.batches[batch];
        // An unsplittable batch is searched when its report is made.
        (batch.info.is_unsplittable || batch.ranges[range].is_some()).then_some(0)
    }

    fn setup_requests(&self) -> Vec<ProtocolFrame> {
        self.group.open_request.iter().cloned().collect()
    }

    fn describe_item(&self, item: ItemId) -> String {
        let (_, range, batch) = self.item_place(item);
        let (range, batch) = (self.ranges.range(range), self.batches[batch].number + 1);
        format!("sequences {} to {} of the database with batch {batch} of the queries", range.first + 1, range.end)
    }
}

/// Work items for the reports of a batch: each item is a slice of the queries, for which one worker computes the
/// reports.
pub(crate) struct SliceItems<'a> {
    /// The slices, in the order of the queries. A slice whose reports are not written yet has extents of 0 bytes.
    pub(crate) slices: Vec<FinishedSlice>,
    /// By slice: true if its reports are written to the output.
    pub(crate) is_written: Vec<bool>,
    pub(crate) batch: BatchInfo,
    /// True if the database exceeds the memory. The subjects of a report are spread over the database, so reading around
    /// each of them would read all of it again for each report.
    pub(crate) exceeds_memory: bool,
    pub(crate) hits: &'a [Vec<Vec<u8>>],
    pub(crate) open_request: ProtocolFrame,
    pub(crate) sent_bytes: u64,
    pub(crate) hits_file: Option<&'a mut HitsFile>,
    /// Number of slices of all earlier batches.
    pub(crate) earlier_slices: u64,
    /// Function to call with the fraction of the queries whose reports are written, 0 to 1.
    pub(crate) report_progress: &'a dyn Fn(f64),
    pub(crate) checkpoint: Option<&'a mut SearchCheckpoint>,
}

impl WorkItems for SliceItems<'_> {
    fn item_request(&mut self, item: ItemId) -> ProtocolFrame {
        let FinishedSlice { first, end, .. } = self.slices[item.0 as usize];
        let alone = u8::from(self.batch.is_unsplittable);
        let request = ProtocolFrame::new(b'O').with_u64(item.0).with_u32(first).with_u32(end).with_u8(alone);
        let mut request = request.with_u8(u8::from(self.exceeds_memory));
        if !self.batch.is_unsplittable {
            let groups = if self.batch.has_joint_hits { self.hits } else { &self.hits[first as usize..end as usize] };
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
        let slice = &mut self.slices[item.0 as usize];
        slice.header_lines = lines;
        // Of a slice that two workers searched, the extent may already have the offset of the report in the output.
        if (slice.report.bytes, slice.report.checksum) != (bytes, checksum) {
            slice.report = FileExtent { offset: 0, bytes, checksum };
        }
        if let Some(table) = &mut self.hits_file
            && let Some(kept) = table.add_rows(self.earlier_slices + item.0, &rows)?
        {
            slice.rows = Some(kept);
        }
        // `last` has no effect here, because the number of slices was known from the start.
        Ok(ItemResult::Report { bytes, last: false })
    }

    fn resumed_report_bytes(&self, item: ItemId) -> Option<u64> {
        self.is_written[item.0 as usize].then(|| self.slices[item.0 as usize].report.bytes)
    }

    fn record_written(&mut self, item: ItemId, offset: u64) -> Result<(), SearchError> {
        let slice = &mut self.slices[item.0 as usize];
        slice.report.offset = offset;
        self.is_written[item.0 as usize] = true;
        if let Some(journal) = &mut self.checkpoint {
            journal.append_entry(&CheckpointEntry::Slice(slice.clone()))?;
        }
        let written = self.slices.iter().zip(&self.is_written).filter(|(_, is_written)| **is_written);
        let queries: u32 = written.map(|(slice, _)| slice.end - slice.first).sum();
        (self.report_progress)(f64::from(queries) / f64::from(self.batch.queries.max(1)));
        Ok(())
    }

    fn setup_requests(&self) -> Vec<ProtocolFrame> {
        vec![self.open_request.clone()]
    }

    fn describe_item(&self, item: ItemId) -> String {
        let FinishedSlice { first, end, .. } = &self.slices[item.0 as usize];
        format!("queries {} to {end} of a batch", first + 1)
    }
}

/// Work items for searching whole batches of queries: one worker searches each batch in the whole database.
pub(crate) struct BatchItems<'a> {
    /// Number of letters in a batch; `None` if the worker chooses it by the results of earlier batches.
    pub(crate) batch_letters: Option<i32>,
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
        ProtocolFrame::new(b'A').with_u64(item.0).with_i32s(self.batch_letters.as_slice())
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
        let reported = self.reported_queries();
        (self.report_progress)(SearchProgress::new(reported, self.total_queries, reported as f64));
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

    fn straggler_age(&self) -> Duration {
        // No batch has two workers: a worker that receives an earlier batch than its last one is restarted and loses the
        // reports that it holds, and a run of an installed tool may take hours.
        Duration::MAX
    }

    fn can_follow(&self, last: Option<ItemId>, item: ItemId) -> bool {
        last.is_none_or(|last| last < item)
    }

    fn describe_item(&self, item: ItemId) -> String {
        format!("batch {} of the queries", item.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database_volumes::DatabaseVolumes;

    const BATCH: BatchInfo =
        BatchInfo { queries: 2, letters: 99, is_last: false, has_joint_hits: false, is_unsplittable: false };

    fn group(first_batch: u32, batches: Vec<BatchInfo>) -> BatchGroup {
        BatchGroup { first_batch, first_query: 40, batches, sizes: vec![99], open_request: None }
    }

    fn response(item: u64) -> Response {
        let hits = vec![vec![7; item as usize], Vec::new()];
        Response::Hits { item: ItemId(item), extensions: 3, list_capacity: 0, dropped_subjects: 1, hits }
    }

    #[test]
    fn all_batches_of_a_group_search_a_range_before_the_next_one() {
        let directory = tempfile::tempdir().expect("scratch");
        let store = HitStore::create_unnamed(directory.path()).expect("scratch can be written");
        let cuts = [(0, 5, 10), (5, 9, 30), (9, 12, 20)];
        let mut ranges = DatabaseRanges::new(&cuts, &DatabaseVolumes::default(), true);
        let alone = BatchInfo { is_unsplittable: true, ..BATCH };
        let group = group(5, vec![BATCH, alone, BATCH]);
        let mut items = RangeItems::new(&mut ranges, &group, &store, &|_, _| {}, None);
        assert_eq!(items.item_count(), 9);
        let request = |number, first, end| {
            let request = ProtocolFrame::new(b'R').with_u64(3 * u64::from(first == 5) + u64::from(number == 7) * 2);
            let request = request.with_u32(number).with_u32(5).with_u32(1).with_i32s(&[99]);
            request.with_u32(first).with_u32(end).with_u32(0).to_bytes()
        };
        assert_eq!(items.item_request(ItemId(0)).to_bytes(), request(5, 0, 5));
        assert_eq!(items.item_request(ItemId(2)).to_bytes(), request(7, 0, 5));
        assert_eq!(items.item_request(ItemId(3)).to_bytes(), request(5, 5, 9));
        for item in [0, 2, 3, 5, 6, 8] {
            assert_eq!(items.resumed_report_bytes(ItemId(item)), None);
            items.accept_response(ItemId(item), response(item)).expect("it is the response");
        }
        assert!((0..9).all(|item| items.resumed_report_bytes(ItemId(item)) == Some(0)));
        assert_eq!(items.dropped_subjects, 6);
        let results = items.into_results();
        assert_eq!(results.iter().map(|batch| batch.extensions).collect::<Vec<_>>(), [9, 0, 9]);
        // The range with the most letters has the number 0, but this one is searched in the order of the database.
        let hits = results[2].read().expect("they were stored");
        assert_eq!(hits, [vec![vec![7; 5], vec![7; 8], vec![7; 2]], vec![Vec::new(); 3]]);
    }

    #[test]
    fn a_stopped_search_keeps_ranges_of_batches_with_the_same_queries() {
        let directory = tempfile::tempdir().expect("scratch");
        let store = HitStore::create_unnamed(directory.path()).expect("scratch can be written");
        let mut ranges = DatabaseRanges::new(&[(0, 5, 10), (5, 9, 30)], &DatabaseVolumes::default(), true);
        let group = group(3, vec![BATCH, BATCH]);
        let body = ProtocolFrame::new(b'H').with_text(b"").with_text(b"").into_body();
        let hits = store.append(&body).expect("scratch can be written");
        let found = |batch, range, first_query, queries| {
            ((batch, range), FinishedRange { batch, range, first_query, queries, extensions: 3, hits })
        };
        // The second batch begins with query 42. A batch of the predicted size had other queries.
        let finished =
            [found(3, 0, 40, 2), found(3, 1, 40, 3), found(4, 0, 43, 2), found(4, 1, 42, 2), found(5, 0, 44, 2)];
        let mut finished = BTreeMap::from(finished);
        let mut items = RangeItems::new(&mut ranges, &group, &store, &|_, _| {}, None);
        items.restore_ranges(&mut finished).expect("the hits can be read");
        assert_eq!(items.finished_items, 2);
        assert_eq!(items.batches[0].ranges, [Some((3, hits)), None]);
        assert_eq!(items.batches[1].ranges, [None, Some((3, hits))]);
        assert_eq!(finished.into_keys().collect::<Vec<_>>(), [(5, 0)]);
    }

    #[test]
    fn a_host_gets_the_range_that_it_searches_and_the_next_one() {
        let directory = tempfile::tempdir().expect("scratch");
        let store = HitStore::create_unnamed(directory.path()).expect("scratch can be written");
        let cuts = [(0, 5, 10), (5, 9, 10), (9, 12, 10), (12, 13, 10)];
        let mut ranges = DatabaseRanges::new(&cuts, &DatabaseVolumes::default(), true);
        let group = group(0, vec![BATCH, BATCH]);
        let mut items = RangeItems::new(&mut ranges, &group, &store, &|_, _| {}, None);
        let suited = |items: &RangeItems<'_, '_>, host| -> Vec<u64> {
            (0..8).filter(|item| items.suits_host(host, ItemId(*item))).collect()
        };
        items.record_lease(1, ItemId(0));
        assert_eq!(suited(&items, 2), [4, 5, 6, 7]);
        items.record_lease(2, ItemId(4));
        items.record_lease(1, ItemId(1));
        assert_eq!((suited(&items, 1), suited(&items, 2)), (vec![0, 1, 2, 3], vec![4, 5, 6, 7]));
        assert_eq!(suited(&items, 3), [] as [u64; 0]);
    }
}
