//! What is done in parts: ranges of the database, reports on queries, and whole batches.

use std::collections::BTreeMap;

use godwit_fleet::leases::ItemId;

use crate::SearchError;
use crate::coordinator::Step;
use crate::hits::HitsFile;
use crate::journal::{self, Journal, Kept, Line};
use crate::protocol::{Answer, Batch, Fields, HeaderLine, Ready, Request};
use crate::thresholds::Thresholds;
use crate::work::{Job, Outcome};

/// An answer to another question.
pub(crate) fn unasked(answer: &Answer) -> SearchError {
    SearchError::Protocol { problem: format!("{answer:?} was not asked for") }
}

/// The preliminary search of a batch, a range an item.
pub(crate) struct RangeJob<'a> {
    /// Largest first.
    order: Vec<(u32, u32)>,
    done: usize,
    /// Hears which share of the ranges is done.
    tell: &'a dyn Fn(f64),
    /// By query, by range.
    pub(crate) hits: Vec<Vec<Vec<u8>>>,
    /// Of each range that is done.
    extensions: Vec<Option<i64>>,
    thresholds: Thresholds,
    /// Subjects that were not sent.
    pub(crate) dropped: u64,
    open: Request,
    /// Number of the batch.
    number: u32,
    journal: Option<&'a mut Journal>,
}

impl<'a> RangeJob<'a> {
    pub(crate) fn new(
        ready: &Ready,
        (number, batch): (u32, Batch),
        open: Request,
        tell: &'a dyn Fn(f64),
        journal: Option<&'a mut Journal>,
    ) -> Self {
        let mut order = ready.ranges.clone();
        order.sort_by_key(|(.., letters)| std::cmp::Reverse(*letters));
        let order: Vec<(u32, u32)> = order.into_iter().map(|(first, last, _)| (first, last)).collect();
        let groups = if batch.whole { 1 } else { batch.queries as usize };
        let (hits, extensions) = (vec![vec![Vec::new(); order.len()]; groups], vec![None; order.len()]);
        let (thresholds, dropped) = (Thresholds::default(), 0);
        Self { hits, order, done: 0, tell, extensions, thresholds, dropped, open, number, journal }
    }

    /// Takes what an earlier search has found in some ranges, as far as it can be read.
    pub(crate) fn restore(&mut self, ranges: BTreeMap<u64, (i64, Kept)>) -> Result<(), SearchError> {
        for (range, (extensions, kept)) in ranges {
            let Some(journal) = &self.journal else { return Ok(()) };
            let bytes = journal.hits(kept)?;
            let mut fields = Fields::new(&bytes);
            let hits: Option<Vec<Vec<u8>>> = self.hits.iter().map(|_| fields.text()).collect();
            let (Some(hits), true) = (hits, fields.is_empty() && range < self.order.len() as u64) else { continue };
            self.thresholds.add(&hits, 0);
            self.set(range as usize, extensions, hits);
        }
        Ok(())
    }

    fn set(&mut self, range: usize, extensions: i64, hits: Vec<Vec<u8>>) {
        self.extensions[range] = Some(extensions);
        for (query, hits) in hits.into_iter().enumerate() {
            self.hits[query][range] = hits;
        }
        self.done += 1;
        (self.tell)(self.done as f64 / self.order.len() as f64);
    }

    /// How many ranges there are.
    pub(crate) fn count(&self) -> u64 {
        self.order.len() as u64
    }

    /// Extensions in all ranges.
    pub(crate) fn extensions(&self) -> i64 {
        self.extensions.iter().flatten().sum()
    }
}

impl Job for RangeJob<'_> {
    fn request(&mut self, item: ItemId) -> Request {
        let (first, last) = self.order[item.0 as usize];
        self.thresholds.put(Request::new(b'R').u64(item.0).u32(first).u32(last))
    }

    fn take(&mut self, item: ItemId, answer: Answer) -> Result<Outcome, SearchError> {
        let Answer::Hits { item: found, extensions, most, dropped, hits } = answer else {
            return Err(unasked(&answer));
        };
        if found != item || hits.len() != self.hits.len() {
            return Err(SearchError::Protocol { problem: "hits of another range".into() });
        }
        // A range that two workers were handed counts once.
        if self.extensions[item.0 as usize].is_some() {
            return Ok(Outcome::Done);
        }
        if let Some(journal) = &mut self.journal {
            let bytes = hits.iter().fold(Request::new(b'H'), |frame, hits| frame.text(hits)).body();
            journal.keep_range(self.number, item.0, extensions, &bytes)?;
        }
        self.thresholds.add(&hits, most);
        self.dropped += dropped;
        self.set(item.0 as usize, extensions, hits);
        Ok(Outcome::Done)
    }

    fn kept(&self, item: ItemId) -> Option<u64> {
        self.extensions[item.0 as usize].map(|_| 0)
    }

    fn prepare(&self) -> Vec<Request> {
        vec![self.open.clone()]
    }

    fn name(&self, item: ItemId) -> String {
        let (first, last) = self.order[item.0 as usize];
        format!("sequences {} to {last} of the database", first + 1)
    }
}

/// The reports of a batch, some queries an item.
pub(crate) struct SliceJob<'a> {
    pub(crate) slices: Vec<(usize, usize)>,
    pub(crate) batch: Batch,
    pub(crate) hits: &'a [Vec<Vec<u8>>],
    pub(crate) lines: Vec<Vec<HeaderLine>>,
    /// Where each report is, and where its rows are.
    pub(crate) places: Vec<(Kept, Option<Kept>)>,
    pub(crate) open: Request,
    pub(crate) sent_bytes: u64,
    pub(crate) table: Option<&'a mut HitsFile>,
    /// Slices of earlier batches.
    pub(crate) before: u64,
}

impl Job for SliceJob<'_> {
    fn request(&mut self, item: ItemId) -> Request {
        let index = item.0 as usize;
        let (first, last) = self.slices[index];
        let alone = u8::from(self.batch.alone);
        let mut request = Request::new(b'O').u64(item.0).u32(first as u32).u32(last as u32).u8(alone);
        if !self.batch.alone {
            let groups = if self.batch.whole { self.hits } else { &self.hits[first..last] };
            for hits in groups.iter().flatten() {
                self.sent_bytes += hits.len() as u64;
                request = request.text(hits);
            }
        }
        request
    }

    fn take(&mut self, item: ItemId, answer: Answer) -> Result<Outcome, SearchError> {
        let Answer::Report { item: found, bytes, checksum, lines, rows } = answer else {
            return Err(unasked(&answer));
        };
        if found != item {
            return Err(SearchError::Protocol { problem: "a report on other queries".into() });
        }
        self.lines[item.0 as usize] = lines;
        let place = &mut self.places[item.0 as usize];
        place.0 = Kept { offset: 0, bytes, checksum };
        if let Some(table) = &mut self.table
            && let Some(kept) = table.put(self.before + item.0, &rows)?
        {
            place.1 = Some(kept);
        }
        // How many slices there are is known.
        Ok(Outcome::Report { bytes, last: false })
    }

    fn written(&mut self, item: ItemId, offset: u64) -> Result<(), SearchError> {
        self.places[item.0 as usize].0.offset = offset;
        Ok(())
    }

    fn prepare(&self) -> Vec<Request> {
        vec![self.open.clone()]
    }

    fn name(&self, item: ItemId) -> String {
        let (first, last) = self.slices[item.0 as usize];
        format!("queries {} to {last} of a batch", first + 1)
    }
}

/// Whole batches, each searched by one worker.
pub(crate) struct BatchJob<'a> {
    pub(crate) size: i32,
    /// Those that are reported, whether they are in their places or not.
    pub(crate) batches: BTreeMap<u64, journal::Batch>,
    pub(crate) of: u64,
    pub(crate) step: &'a dyn Fn(Step),
    pub(crate) table: Option<&'a mut HitsFile>,
    pub(crate) journal: Option<&'a mut Journal>,
}

impl BatchJob<'_> {
    /// How many queries are reported.
    pub(crate) fn queries(&self) -> u64 {
        self.batches.values().map(|batch| u64::from(batch.queries)).sum()
    }
}

impl Job for BatchJob<'_> {
    fn request(&mut self, item: ItemId) -> Request {
        Request::new(b'A').u64(item.0).numbers(&[self.size])
    }

    fn take(&mut self, item: ItemId, answer: Answer) -> Result<Outcome, SearchError> {
        let Answer::Alone { item: found, queries, last, bytes, checksum, lines, rows } = answer else {
            return Err(unasked(&answer));
        };
        if found != item {
            return Err(SearchError::Protocol { problem: "a report on another batch".into() });
        }
        if queries == 0 {
            return Ok(Outcome::End);
        }
        let mut rows_kept = self.batches.remove(&item.0).map(|batch| batch.rows).unwrap_or_default();
        if let Some(table) = &mut self.table {
            rows_kept.extend(table.put(item.0, &rows)?);
        }
        let reports = vec![Kept { offset: 0, bytes, checksum }];
        let batch = journal::Batch { number: item.0, queries, last, extensions: 0, reports, rows: rows_kept, lines };
        self.batches.insert(item.0, batch);
        (self.step)(Step::new(self.queries(), self.of, 0.0));
        Ok(Outcome::Report { bytes, last })
    }

    fn kept(&self, item: ItemId) -> Option<u64> {
        self.batches.get(&item.0).map(|batch| batch.reports.iter().map(|report| report.bytes).sum())
    }

    fn written(&mut self, item: ItemId, offset: u64) -> Result<(), SearchError> {
        let Some(batch) = self.batches.get_mut(&item.0) else { return Ok(()) };
        batch.reports.iter_mut().for_each(|report| report.offset = offset);
        match &mut self.journal {
            Some(journal) => journal.say(&Line::Batch(batch.clone())),
            None => Ok(()),
        }
    }

    fn prepare(&self) -> Vec<Request> {
        Vec::new()
    }

    fn follows(&self, last: Option<ItemId>, item: ItemId) -> bool {
        last.is_none_or(|last| last < item)
    }

    fn name(&self, item: ItemId) -> String {
        format!("batch {} of the queries", item.0 + 1)
    }
}
