//! Leases numbered work items to workers until all are done, even if workers exit.
//!
//! Input: [`WorkItems`], which make requests and interpret responses. Output: reports at their offsets in the output
//! file, if the items have reports. [`Leases`] decides which worker gets which item. This module exchanges frames with
//! the workers, and restarts them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_fleet::leases::{CommitResult, ItemId, Lease};
use godwit_fleet::{Leases, WorkerId};

use crate::database_volumes::DatabaseExtent;
use crate::output_offsets::OutputOffsets;
use crate::worker_backend::WorkerBackend;
use crate::worker_process::WorkerExit;
use crate::worker_protocol::{self, InitResponse, ProtocolFrame, Response};
use crate::{SearchError, output_file};

/// Maximum number of starts of a worker that exits before it is ready.
const MAX_STARTS: u32 = 3;
/// Maximum number of leases of an item. If every worker that leased the item exits, the item is the cause and the
/// search fails.
const MAX_LEASES_PER_ITEM: u32 = 3;
/// Age of a lease after which an idle worker receives the same item as well, unless [`WorkItems::straggler_age`] differs.
/// No item takes this long unless its worker hangs.
const STRAGGLER_AGE: Duration = Duration::from_secs(600);
/// Description, for error messages, of the work of a worker that is not ready yet.
const OPENING_WORK: &str = "opening the database and the queries";

/// The result of a work item.
pub(crate) enum ItemResult {
    /// The item is done.
    Done,
    /// The item is done, and the worker holds a report of `bytes` bytes. If `last` is true, no later item exists.
    Report { bytes: u64, last: bool },
    /// The item does not exist, and no later item exists.
    NoSuchItem,
}

/// Work items of one kind.
pub(crate) trait WorkItems {
    /// Returns the request for an item.
    fn item_request(&mut self, item: ItemId) -> ProtocolFrame;
    /// Returns whether an item suits a host, by the number of the host, better than items of which this returns false.
    fn suits_host(&self, _host: usize, _item: ItemId) -> bool {
        true
    }
    /// Records that a worker of a host has leased an item. Returns the extents of the database that the host should
    /// read ahead; empty for none.
    fn record_lease(&mut self, _host: usize, _item: ItemId) -> Vec<DatabaseExtent> {
        Vec::new()
    }
    /// Stores the data in the response for an item, and returns the result of the item.
    fn accept_response(&mut self, item: ItemId, answer: Response) -> Result<ItemResult, SearchError>;
    /// Returns the requests that a new worker receives before any item.
    fn setup_requests(&self) -> Vec<ProtocolFrame>;
    /// Returns whether a worker whose previous item was `last` can process `item` without a restart.
    fn can_follow(&self, _last: Option<ItemId>, _item: ItemId) -> bool {
        true
    }
    /// Returns the size of the item's report in bytes if an earlier search finished the item, otherwise `None`.
    fn resumed_report_bytes(&self, _item: ItemId) -> Option<u64> {
        None
    }
    /// Records that a worker has written the report of an item at this offset of the output file.
    fn record_written(&mut self, _item: ItemId, _offset: u64) -> Result<(), SearchError> {
        Ok(())
    }
    /// Returns the age of a lease after which an idle worker receives the same item as well.
    fn straggler_age(&self) -> Duration {
        STRAGGLER_AGE
    }
    /// Describes an item, for the error message if workers exit while they process the item.
    fn describe_item(&self, item: ItemId) -> String;
}

/// The output file that receives the reports, and the offsets of the reports in it.
pub(crate) struct ReportOutput {
    pub(crate) path: PathBuf,
    pub(crate) offsets: OutputOffsets,
}

/// A response from a worker.
struct WorkerResponse {
    worker: usize,
    /// The response; `None` if the worker has exited.
    response: Option<Response>,
}

/// The workers of a search.
pub(crate) struct SearchWorkerPool<'a> {
    backend: Box<dyn WorkerBackend + 'a>,
    /// Number of restarts of each worker. Frames from an earlier process of a worker carry a lower number and are
    /// ignored.
    attempts: Vec<u64>,
    init_request: ProtocolFrame,
    /// The init response that arrived first; the init responses of all other workers must be equal to it.
    init_response: Option<InitResponse>,
    cancelled: &'a AtomicBool,
    program: &'static str,
    /// Responses that arrived from other workers while the pool waited for a response from one worker.
    queued_responses: VecDeque<WorkerResponse>,
    /// The exit of the most recently restarted worker.
    last_exit: Option<WorkerExit>,
    pub(crate) worker_restarts: u32,
}

impl<'a> SearchWorkerPool<'a> {
    /// Starts all workers at once. Returns the pool and the init response, which all workers share, when all are ready.
    pub(crate) fn start_all(
        backend: Box<dyn WorkerBackend + 'a>,
        init_request: ProtocolFrame,
        program: &'static str,
        cancelled: &'a AtomicBool,
    ) -> Result<(Self, InitResponse), SearchError> {
        let attempts = vec![0; backend.worker_count()];
        let queued_responses = VecDeque::new();
        let (init_response, last_exit) = (None, None);
        let mut pool = Self {
            backend,
            attempts,
            init_request,
            init_response,
            cancelled,
            program,
            queued_responses,
            last_exit,
            worker_restarts: 0,
        };
        for number in 0..pool.worker_count() {
            pool.backend.start_worker(number, 0)?;
            pool.send_init_request(number);
        }
        for number in 0..pool.worker_count() {
            match pool.receive_from(number)? {
                Some(answer) => pool.check_init_response(answer)?,
                // A worker on another host may exit before it starts its work, for example if its host is lost.
                None if pool.backend.is_multi_host() => pool.replace_exited_worker(number, &[])?,
                None => return Err(pool.worker_failed_error(number, 1, OPENING_WORK)),
            }
        }
        let ready = pool
            .init_response
            .clone()
            .ok_or_else(|| SearchError::Protocol { problem: "no search worker is left".into() })?;
        Ok((pool, ready))
    }

    /// Returns the number of workers.
    pub(crate) fn worker_count(&self) -> usize {
        self.attempts.len()
    }

    /// Returns the backend that runs the workers.
    pub(crate) fn backend(&self) -> &dyn WorkerBackend {
        &*self.backend
    }

    /// Sends a request to an idle worker and returns the response. If the worker exits, its replacement receives the
    /// request.
    pub(crate) fn request(&mut self, number: usize, request: &ProtocolFrame) -> Result<Response, SearchError> {
        for _ in 0..MAX_LEASES_PER_ITEM {
            self.send(number, request);
            match self.receive_from(number)? {
                Some(answer) => return Ok(answer),
                None => self.replace_exited_worker(number, &[])?,
            }
        }
        Err(self.worker_failed_error(number, MAX_LEASES_PER_ITEM, "answering a request"))
    }

    /// Sends a request without waiting for a response.
    pub(crate) fn send(&mut self, number: usize, request: &ProtocolFrame) {
        self.backend.send_frame(number, request.to_bytes());
    }

    fn send_init_request(&mut self, number: usize) {
        self.backend.send_frame(number, self.init_request.to_bytes());
    }

    /// Sends a request to all workers, which must be idle, and returns their responses. Workers that exit are restarted
    /// and receive the request again.
    pub(crate) fn request_all(&mut self, request: &ProtocolFrame) -> Result<Vec<Response>, SearchError> {
        (0..self.worker_count()).for_each(|number| self.send(number, request));
        let mut answers = Vec::new();
        for number in 0..self.worker_count() {
            answers.push(match self.receive_from(number)? {
                Some(answer) => answer,
                None => {
                    self.replace_exited_worker(number, &[])?;
                    self.request(number, request)?
                }
            });
        }
        Ok(answers)
    }

    /// Sends a request to all workers and returns the responses of those that are still running. Exited workers stay
    /// stopped.
    pub(crate) fn request_all_without_restart(
        &mut self,
        request: &ProtocolFrame,
    ) -> Result<Vec<Response>, SearchError> {
        (0..self.worker_count()).for_each(|number| self.send(number, request));
        let mut answers = Vec::new();
        for number in 0..self.worker_count() {
            answers.extend(self.receive_from(number)?);
        }
        Ok(answers)
    }

    /// Waits for the next response of this worker; returns `None` if the worker has exited.
    fn receive_from(&mut self, number: usize) -> Result<Option<Response>, SearchError> {
        if let Some(at) = self.queued_responses.iter().position(|queued| queued.worker == number) {
            return self.queued_responses.remove(at).map_or(Ok(None), |queued| self.check_failure(queued.response));
        }
        loop {
            let Some(queued) = self.receive()? else { continue };
            if queued.worker == number {
                return self.check_failure(queued.response);
            }
            self.queued_responses.push_back(queued);
        }
    }

    /// Returns an error if the worker reported a failure, because any other worker would fail in the same way.
    fn check_failure(&self, answer: Option<Response>) -> Result<Option<Response>, SearchError> {
        match answer {
            Some(Response::Failed { kind, message }) => Err(kind.error(self.program, message)),
            answer => Ok(answer),
        }
    }

    /// Checks that a worker has opened the same database and queries as the first worker, by comparing the init
    /// responses.
    fn check_init_response(&mut self, answer: Response) -> Result<(), SearchError> {
        let Response::Init(ready) = answer else {
            return Err(SearchError::Protocol { problem: "a worker did not send its init response".into() });
        };
        if *self.init_response.get_or_insert_with(|| ready.clone()) == ready {
            return Ok(());
        }
        Err(SearchError::DatabaseMismatch)
    }

    /// Waits for the next response of any worker; returns `None` if there is none for a short time.
    fn next_response(&mut self) -> Result<Option<WorkerResponse>, SearchError> {
        match self.queued_responses.pop_front() {
            Some(queued) => Ok(Some(queued)),
            None => self.receive(),
        }
    }

    /// Waits a short time for a response that is not queued yet.
    fn receive(&mut self) -> Result<Option<WorkerResponse>, SearchError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(SearchError::Interrupted { is_resumable: false });
        }
        let frame = self.backend.receive_frame()?;
        let Some(frame) = frame.filter(|frame| self.attempts.get(frame.worker) == Some(&frame.attempt)) else {
            return Ok(None);
        };
        let response = frame.frame.as_deref().map(worker_protocol::parse_response).transpose()?;
        Ok(Some(WorkerResponse { worker: frame.worker, response }))
    }

    fn worker_failed_error(&mut self, number: usize, attempts: u32, what: &str) -> SearchError {
        // If the worker was already replaced, its exit is in `last_exit`; the replacement has not exited.
        let WorkerExit { description, stderr_tail } =
            self.last_exit.take().unwrap_or_else(|| self.backend.take_exit(number));
        SearchError::WorkerFailed { exit_description: description, attempts, work: what.to_owned(), stderr_tail }
    }

    /// Starts a new process for a worker that has exited, and sends it the requests of `preparation`.
    fn replace_exited_worker(&mut self, number: usize, preparation: &[ProtocolFrame]) -> Result<(), SearchError> {
        self.worker_restarts += 1;
        self.last_exit = Some(self.backend.take_exit(number));
        self.replace_worker(number, preparation)
    }

    /// Kills the process of a worker and starts a new one; retries if the new process exits before it is ready.
    pub(crate) fn replace_worker(&mut self, number: usize, preparation: &[ProtocolFrame]) -> Result<(), SearchError> {
        for _ in 1..MAX_STARTS {
            if self.restart_worker(number, preparation)? {
                return Ok(());
            }
            self.worker_restarts += 1;
        }
        match self.restart_worker(number, preparation)? {
            true => Ok(()),
            false => Err(self.worker_failed_error(number, MAX_STARTS, OPENING_WORK)),
        }
    }

    /// Restarts a worker and sends it the requests of `preparation`; returns false if the new process exits meanwhile.
    fn restart_worker(&mut self, number: usize, preparation: &[ProtocolFrame]) -> Result<bool, SearchError> {
        self.backend.kill_worker(number);
        // Drop the responses of the killed process.
        self.queued_responses.retain(|queued| queued.worker != number);
        self.attempts[number] += 1;
        self.backend.start_worker(number, self.attempts[number])?;
        self.send_init_request(number);
        match self.receive_from(number)? {
            Some(answer) => self.check_init_response(answer)?,
            None => return Ok(false),
        }
        for request in preparation {
            self.send(number, request);
            if self.receive_from(number)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Processes the items 0 to `count` - 1, or without `count` until a worker responds that an item does not exist.
    /// Workers write the reports of the items to `output`.
    pub(crate) fn process_items(
        &mut self,
        items: &mut dyn WorkItems,
        count: Option<u64>,
        output: Option<&mut ReportOutput>,
    ) -> Result<(), SearchError> {
        let mut leases = Leases::new(items.straggler_age());
        let added = leases.add_items(count.unwrap_or(0));
        if count.is_some() {
            leases.close();
        }
        let slots = (0..self.worker_count()).map(|_| WorkerSlot::default()).collect();
        let mut shift = ItemDispatcher {
            pool: self,
            items,
            leases,
            slots,
            output,
            started_at: Instant::now(),
            accepts_more_items: count.is_none(),
        };
        for number in added {
            shift.skip_resumed_item(ItemId(number));
        }
        shift.run_to_end()
    }
}

/// The current task of a worker, and the reports that it holds.
#[derive(Default)]
struct WorkerSlot {
    current_task: Option<WorkerTask>,
    /// The item that this worker received most recently.
    last_item: Option<ItemId>,
    /// Items whose reports this worker holds and has not yet written to the output file.
    held_reports: Vec<ItemId>,
}

enum WorkerTask {
    Item(ItemId),
    WriteReports(Vec<ItemId>),
}

/// Returns the owner of the leases of a worker. A restarted worker has the same number; the leases of its predecessor
/// were removed before.
fn lease_owner(number: usize) -> WorkerId {
    WorkerId(number as u32)
}

/// The loop that assigns items of one kind to workers and handles their responses.
struct ItemDispatcher<'c, 'a> {
    pool: &'c mut SearchWorkerPool<'a>,
    items: &'c mut dyn WorkItems,
    leases: Leases,
    slots: Vec<WorkerSlot>,
    output: Option<&'c mut ReportOutput>,
    started_at: Instant,
    /// True if items that have no lease yet may exist; false as soon as the number of items is known.
    accepts_more_items: bool,
}

impl ItemDispatcher<'_, '_> {
    fn run_to_end(&mut self) -> Result<(), SearchError> {
        loop {
            for number in 0..self.slots.len() {
                if self.slots[number].current_task.is_none() {
                    self.assign_work(number)?;
                }
            }
            if self.is_finished() {
                return self.restart_busy_workers();
            }
            // Without a response, look again for work: a lease may have become old enough for an idle worker.
            let Some(queued) = self.pool.next_response()? else { continue };
            match self.pool.check_failure(queued.response)? {
                Some(answer) => self.handle_response(queued.worker, answer)?,
                None => self.handle_worker_exit(queued.worker)?,
            }
        }
    }

    fn is_finished(&self) -> bool {
        let idle = self.slots.iter().all(|post| {
            post.held_reports.is_empty() && !matches!(post.current_task, Some(WorkerTask::WriteReports(_)))
        });
        idle && self.leases.is_finished()
    }

    /// Restarts workers that still work on an item that another worker has finished.
    fn restart_busy_workers(&mut self) -> Result<(), SearchError> {
        for number in 0..self.slots.len() {
            if self.slots[number].current_task.take().is_some() {
                self.pool.replace_worker(number, &self.items.setup_requests())?;
            }
        }
        Ok(())
    }

    fn assign_work(&mut self, number: usize) -> Result<(), SearchError> {
        if self.write_placed_reports(number) {
            return Ok(());
        }
        let now = self.started_at.elapsed();
        if self.accepts_more_items && self.leases.unleased_count() == 0 {
            while self.leases.add_items(1).any(|number| self.skip_resumed_item(ItemId(number))) {}
        }
        let (owner, host) = (lease_owner(number), self.pool.backend.host_number(number));
        let items = &*self.items;
        let suitable = self.leases.request_suitable_item(owner, |item| items.suits_host(host, item), now);
        let Some(Lease { item, lease_count }) = suitable.or_else(|| self.leases.request_item(owner, now)) else {
            return Ok(());
        };
        if lease_count > MAX_LEASES_PER_ITEM {
            let what = self.items.describe_item(item);
            return Err(self.pool.worker_failed_error(number, lease_count - 1, &what));
        }
        let post = &self.slots[number];
        if !self.items.can_follow(post.last_item, item) {
            // The restart loses the reports that the worker holds, so their items must be processed again.
            for held in std::mem::take(&mut self.slots[number].held_reports) {
                self.leases.reopen_item(held);
            }
            self.pool.replace_worker(number, &self.items.setup_requests())?;
            self.slots[number] = WorkerSlot::default();
            self.leases.remove_worker(lease_owner(number));
            // Request an item again, possibly a different one: a restarted worker can process any item.
            return self.assign_work(number);
        }
        let ahead = self.items.record_lease(host, item);
        if !ahead.is_empty() {
            self.pool.backend.read_ahead(number, ahead);
        }
        let request = self.items.item_request(item);
        self.pool.send(number, &request);
        self.slots[number].current_task = Some(WorkerTask::Item(item));
        self.slots[number].last_item = Some(item);
        Ok(())
    }

    /// Marks an item as committed if an earlier search has finished it. Returns true if the item was skipped.
    fn skip_resumed_item(&mut self, item: ItemId) -> bool {
        let Some(bytes) = self.items.resumed_report_bytes(item) else { return false };
        if let Some(output) = &mut self.output {
            output.offsets.set_size(item.0 as usize, bytes);
        }
        self.leases.mark_committed(item)
    }

    /// Requests a worker to write those reports it holds whose offsets are known. Returns false if there are none.
    fn write_placed_reports(&mut self, number: usize) -> bool {
        let Some(output) = &self.output else { return false };
        let holds = std::mem::take(&mut self.slots[number].held_reports);
        let is_placed = |item: &ItemId| output.offsets.piece_offset(item.0 as usize).is_some();
        let (placed, kept): (Vec<ItemId>, Vec<ItemId>) = holds.into_iter().partition(is_placed);
        self.slots[number].held_reports = kept;
        if placed.is_empty() {
            return false;
        }
        let page = if self.pool.backend().is_multi_host() { output_file::PAGE_BYTES } else { 1 };
        let mut request = ProtocolFrame::new(b'W').with_text(output.path.as_os_str().as_encoded_bytes()).with_u64(page);
        for item in &placed {
            let offset = output.offsets.piece_offset(item.0 as usize).unwrap_or_default();
            request = request.with_u64(item.0).with_u64(offset);
        }
        self.pool.send(number, &request);
        self.slots[number].current_task = Some(WorkerTask::WriteReports(placed));
        true
    }

    fn handle_response(&mut self, number: usize, answer: Response) -> Result<(), SearchError> {
        let item = match (self.slots[number].current_task.take(), answer) {
            (Some(WorkerTask::WriteReports(items)), Response::Written { edges }) => {
                let Some(output) = &self.output else { return Ok(()) };
                edges.iter().try_for_each(|(offset, bytes)| output_file::write_at(&output.path, bytes, *offset))?;
                let places =
                    items.iter().map(|item| (*item, output.offsets.piece_offset(item.0 as usize).unwrap_or_default()));
                let places: Vec<(ItemId, u64)> = places.collect();
                return places.into_iter().try_for_each(|(item, offset)| self.items.record_written(item, offset));
            }
            (Some(WorkerTask::Item(item)), answer) => {
                let outcome = self.items.accept_response(item, answer)?;
                return self.commit_item(number, item, outcome);
            }
            (_, answer) => format!("the worker sent an unexpected response {answer:?}"),
        };
        Err(SearchError::Protocol { problem: item })
    }

    fn commit_item(&mut self, number: usize, item: ItemId, outcome: ItemResult) -> Result<(), SearchError> {
        if let ItemResult::NoSuchItem | ItemResult::Report { last: true, .. } = outcome {
            self.accepts_more_items = false;
            self.leases.close();
        }
        let first = matches!(self.leases.commit_item(lease_owner(number), item), CommitResult::First { .. });
        let bytes = match outcome {
            ItemResult::Report { bytes, .. } => bytes,
            _ => return Ok(()),
        };
        if let (true, Some(output)) = (first, &mut self.output) {
            output.offsets.set_size(item.0 as usize, bytes);
            self.slots[number].held_reports.push(item);
        }
        Ok(())
    }

    /// Handles the exit of a worker: other workers process its current item, and the items of the reports that it held,
    /// again.
    fn handle_worker_exit(&mut self, number: usize) -> Result<(), SearchError> {
        let post = std::mem::take(&mut self.slots[number]);
        self.leases.remove_worker(lease_owner(number));
        let writing = match post.current_task {
            Some(WorkerTask::WriteReports(items)) => items,
            _ => Vec::new(),
        };
        for item in post.held_reports.into_iter().chain(writing) {
            self.leases.reopen_item(item);
        }
        self.pool.replace_exited_worker(number, &self.items.setup_requests())
    }
}
