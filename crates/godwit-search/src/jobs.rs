//! What is done in parts: ranges of the database, reports on queries, and whole batches.

use godwit_fleet::leases::ItemId;

use crate::SearchError;
use crate::coordinator::Step;
use crate::hits::HitsFile;
use crate::protocol::{Answer, Batch, HeaderLine, Ready, Request};
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
    open: Request,
}

impl<'a> RangeJob<'a> {
    pub(crate) fn new(ready: &Ready, batch: Batch, open: Request, tell: &'a dyn Fn(f64)) -> Self {
        let mut order = ready.ranges.clone();
        order.sort_by_key(|(.., letters)| std::cmp::Reverse(*letters));
        let order: Vec<(u32, u32)> = order.into_iter().map(|(first, last, _)| (first, last)).collect();
        let groups = if batch.whole { 1 } else { batch.queries as usize };
        let (hits, extensions) = (vec![vec![Vec::new(); order.len()]; groups], vec![None; order.len()]);
        Self { hits, order, done: 0, tell, extensions, open }
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
        Request::new(b'R').u64(item.0).u32(first).u32(last)
    }

    fn take(&mut self, item: ItemId, answer: Answer) -> Result<Outcome, SearchError> {
        let Answer::Hits { item: found, extensions, hits } = answer else { return Err(unasked(&answer)) };
        if found != item || hits.len() != self.hits.len() {
            return Err(SearchError::Protocol { problem: "hits of another range".into() });
        }
        // A range that two workers were handed counts once.
        if self.extensions[item.0 as usize].replace(extensions).is_some() {
            return Ok(Outcome::Done);
        }
        for (query, hits) in hits.into_iter().enumerate() {
            self.hits[query][item.0 as usize] = hits;
        }
        self.done += 1;
        (self.tell)(self.done as f64 / self.order.len() as f64);
        Ok(Outcome::Done)
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
        let Answer::Report { item: found, bytes, lines, rows } = answer else { return Err(unasked(&answer)) };
        if found != item {
            return Err(SearchError::Protocol { problem: "a report on other queries".into() });
        }
        self.lines[item.0 as usize] = lines;
        if let Some(table) = &mut self.table {
            table.put(self.before + item.0, &rows)?;
        }
        // How many slices there are is known.
        Ok(Outcome::Report { bytes, last: false })
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
    /// Lines for the header.
    pub(crate) batches: Vec<Vec<HeaderLine>>,
    pub(crate) queries: u64,
    pub(crate) of: u64,
    pub(crate) step: &'a dyn Fn(Step),
    pub(crate) table: Option<&'a mut HitsFile>,
}

impl Job for BatchJob<'_> {
    fn request(&mut self, item: ItemId) -> Request {
        Request::new(b'A').u64(item.0).numbers(&[self.size])
    }

    fn take(&mut self, item: ItemId, answer: Answer) -> Result<Outcome, SearchError> {
        let Answer::Alone { item: found, queries, last, bytes, lines, rows } = answer else {
            return Err(unasked(&answer));
        };
        if found != item {
            return Err(SearchError::Protocol { problem: "a report on another batch".into() });
        }
        if queries == 0 {
            return Ok(Outcome::End);
        }
        let index = item.0 as usize;
        if self.batches.len() <= index {
            self.batches.resize(index + 1, Vec::new());
        }
        self.batches[index] = lines;
        if let Some(table) = &mut self.table {
            table.put(item.0, &rows)?;
        }
        self.queries += u64::from(queries);
        (self.step)(Step::new(self.queries, self.of, 0.0));
        Ok(Outcome::Report { bytes, last })
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
