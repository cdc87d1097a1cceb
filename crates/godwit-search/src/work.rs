//! Numbered work handed to workers until all of it is done, whoever of them ends on the way.
//!
//! In: a [`Job`], which says how an item is asked for and what an answer means. Out: reports at their places in the output, where the
//! job has any. Who works on what is [`Leases`]' business; this only asks, listens, and starts workers anew.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_fleet::Leases;
use godwit_fleet::leases::{Answer as Lease, Attempt, Commit, ItemId, Terms};

use crate::SearchError;
use crate::aside;
use crate::layout::Layout;
use crate::place::Place;
use crate::protocol::{self, Answer, Ready, Request};
use crate::worker::Ending;

/// How often a worker is started that ends before it is ready.
const MAX_STARTS: u32 = 3;
/// How often an item is handed out before it is taken to be the item's fault that workers end.
const MAX_ISSUES: u32 = 3;
/// Age from which on an idle worker takes another's item too. It is long beside any item's time, and short beside a hang.
const STRAGGLER_AFTER: Duration = Duration::from_secs(600);
/// What a worker is at that is not ready yet.
const OPENING: &str = "opening the database and the queries";

/// What an answer means.
pub(crate) enum Outcome {
    /// The item is done.
    Done,
    /// The item is done, and the worker has a report of that size. Where it is the last, no more items are asked for.
    Report { bytes: u64, last: bool },
    /// There is no such item, nor any after it.
    End,
}

/// Work of one kind.
pub(crate) trait Job {
    /// Asks for an item.
    fn request(&mut self, item: ItemId) -> Request;
    /// Takes its answer.
    fn take(&mut self, item: ItemId, answer: Answer) -> Result<Outcome, SearchError>;
    /// What a new worker is told before it gets any item.
    fn prepare(&self) -> Vec<Request>;
    /// Whether a worker that had `last` can still be asked for `item`.
    fn follows(&self, _last: Option<ItemId>, _item: ItemId) -> bool {
        true
    }
    /// The bytes of the report on an item that was done by an earlier search, where it was.
    fn kept(&self, _item: ItemId) -> Option<u64> {
        None
    }
    /// The report on an item is in its place.
    fn written(&mut self, _item: ItemId, _offset: u64) -> Result<(), SearchError> {
        Ok(())
    }
    /// What an item is called where workers end over it.
    fn name(&self, item: ItemId) -> String;
}

/// Where reports go.
pub(crate) struct Output {
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
}

/// What is heard of a worker.
struct Heard {
    worker: usize,
    /// What it says; `None`: it has ended.
    answer: Option<Answer>,
}

/// The workers of a search.
pub(crate) struct Crew<'a> {
    place: Box<dyn Place + 'a>,
    /// Which start of each is there.
    attempts: Vec<u64>,
    greeting: Request,
    /// What the first one said when it was ready; others see the same.
    ready: Option<Ready>,
    cancelled: &'a AtomicBool,
    program: &'static str,
    /// What is heard of workers while one of them is waited for.
    waiting: VecDeque<Heard>,
    /// How the last one ended that was started anew.
    ended: Option<Ending>,
    pub(crate) restarts: u32,
}

impl<'a> Crew<'a> {
    /// Starts all workers at once, and returns what they say when they are ready.
    pub(crate) fn gather(
        place: Box<dyn Place + 'a>,
        greeting: Request,
        program: &'static str,
        cancelled: &'a AtomicBool,
    ) -> Result<(Self, Ready), SearchError> {
        let attempts = vec![0; place.workers()];
        let waiting = VecDeque::new();
        let (ready, ended) = (None, None);
        let mut crew = Self { place, attempts, greeting, ready, cancelled, program, waiting, ended, restarts: 0 };
        for number in 0..crew.count() {
            crew.place.start(number, 0)?;
            crew.tell_greeting(number);
        }
        for number in 0..crew.count() {
            match crew.listen(number)? {
                Some(answer) => crew.check_ready(answer)?,
                // On other machines anything may happen to a worker before it begins.
                None if crew.place.is_spread() => crew.bury(number, &[])?,
                None => return Err(crew.died(number, 1, OPENING)),
            }
        }
        let ready =
            crew.ready.clone().ok_or_else(|| SearchError::Protocol { problem: "there are no workers".into() })?;
        Ok((crew, ready))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.attempts.len()
    }

    /// Where they are.
    pub(crate) fn place(&self) -> &dyn Place {
        &*self.place
    }

    /// Asks a worker that has nothing else to do, and whoever takes its place where it ends over it.
    pub(crate) fn ask(&mut self, number: usize, request: &Request) -> Result<Answer, SearchError> {
        for _ in 0..MAX_ISSUES {
            self.tell(number, request);
            match self.listen(number)? {
                Some(answer) => return Ok(answer),
                None => self.bury(number, &[])?,
            }
        }
        Err(self.died(number, MAX_ISSUES, "answering a question"))
    }

    /// Says what has no answer.
    pub(crate) fn tell(&mut self, number: usize, request: &Request) {
        self.place.ask(number, request.frame());
    }

    fn tell_greeting(&mut self, number: usize) {
        self.place.ask(number, self.greeting.frame());
    }

    /// Asks all, who have nothing else to do. Those that end over it are started anew, and asked again.
    pub(crate) fn ask_all(&mut self, request: &Request) -> Result<Vec<Answer>, SearchError> {
        (0..self.count()).for_each(|number| self.tell(number, request));
        let mut answers = Vec::new();
        for number in 0..self.count() {
            answers.push(match self.listen(number)? {
                Some(answer) => answer,
                None => {
                    self.bury(number, &[])?;
                    self.ask(number, request)?
                }
            });
        }
        Ok(answers)
    }

    /// What each worker that is there says to a last question.
    pub(crate) fn ask_last(&mut self, request: &Request) -> Result<Vec<Answer>, SearchError> {
        (0..self.count()).for_each(|number| self.tell(number, request));
        let mut answers = Vec::new();
        for number in 0..self.count() {
            answers.extend(self.listen(number)?);
        }
        Ok(answers)
    }

    /// What a worker says next; `None`: it has ended.
    fn listen(&mut self, number: usize) -> Result<Option<Answer>, SearchError> {
        if let Some(at) = self.waiting.iter().position(|heard| heard.worker == number) {
            return self.waiting.remove(at).map_or(Ok(None), |heard| self.checked(heard.answer));
        }
        loop {
            let heard = self.hear()?;
            if heard.worker == number {
                return self.checked(heard.answer);
            }
            self.waiting.push_back(heard);
        }
    }

    /// A failure that a worker tells of is everybody's: the next would fail over the same.
    fn checked(&self, answer: Option<Answer>) -> Result<Option<Answer>, SearchError> {
        match answer {
            Some(Answer::Failed { kind, message }) => Err(kind.error(self.program, message)),
            answer => Ok(answer),
        }
    }

    /// Whether a worker that has opened its files sees what the first one saw.
    fn check_ready(&mut self, answer: Answer) -> Result<(), SearchError> {
        let Answer::Ready(ready) = answer else {
            return Err(SearchError::Protocol { problem: "a worker did not greet".into() });
        };
        if *self.ready.get_or_insert_with(|| ready.clone()) == ready {
            return Ok(());
        }
        Err(SearchError::OtherDatabase)
    }

    /// What is said next by whoever is there.
    fn next(&mut self) -> Result<Heard, SearchError> {
        match self.waiting.pop_front() {
            Some(heard) => Ok(heard),
            None => self.hear(),
        }
    }

    fn hear(&mut self) -> Result<Heard, SearchError> {
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(SearchError::Interrupted { kept: false });
            }
            let Some(said) = self.place.hear()? else { continue };
            if self.attempts.get(said.worker) == Some(&said.attempt) {
                let answer = said.frame.as_deref().map(protocol::answer).transpose()?;
                return Ok(Heard { worker: said.worker, answer });
            }
        }
    }

    fn died(&mut self, number: usize, times: u32, what: &str) -> SearchError {
        // Who has taken its place has nothing to tell.
        let Ending { how, last_words } = self.ended.take().unwrap_or_else(|| self.place.end(number));
        SearchError::Died { ending: how, times, what: what.to_owned(), last_words }
    }

    /// A worker has ended, and another takes its place.
    fn bury(&mut self, number: usize, preparation: &[Request]) -> Result<(), SearchError> {
        self.restarts += 1;
        self.ended = Some(self.place.end(number));
        self.replace(number, preparation)
    }

    /// Starts a worker in the place of one that has ended, or ends here; again where it ends before it is ready.
    fn replace(&mut self, number: usize, preparation: &[Request]) -> Result<(), SearchError> {
        for _ in 1..MAX_STARTS {
            if self.start_anew(number, preparation)? {
                return Ok(());
            }
            self.restarts += 1;
        }
        match self.start_anew(number, preparation)? {
            true => Ok(()),
            false => Err(self.died(number, MAX_STARTS, OPENING)),
        }
    }

    /// Starts a worker and has it prepare itself; false where it ends over it.
    fn start_anew(&mut self, number: usize, preparation: &[Request]) -> Result<bool, SearchError> {
        self.place.kill(number);
        // What the earlier one has said is of no use any more.
        self.waiting.retain(|heard| heard.worker != number);
        self.attempts[number] += 1;
        self.place.start(number, self.attempts[number])?;
        self.tell_greeting(number);
        match self.listen(number)? {
            Some(answer) => self.check_ready(answer)?,
            None => return Ok(false),
        }
        for request in preparation {
            self.tell(number, request);
            if self.listen(number)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Has all items of a job done, numbered from 0; with no `count`, until one is said to be beyond the end. Reports are written.
    pub(crate) fn run(
        &mut self,
        job: &mut dyn Job,
        count: Option<u64>,
        output: Option<&mut Output>,
    ) -> Result<(), SearchError> {
        let mut leases = Leases::new(Terms { lease: Duration::MAX, straggler_after: STRAGGLER_AFTER });
        let added = leases.add(count.unwrap_or(0));
        if count.is_some() {
            leases.close();
        }
        let posts = (0..self.count()).map(|_| Post::default()).collect();
        let mut shift = Shift { crew: self, job, leases, posts, output, begun: Instant::now(), open: count.is_none() };
        for number in added {
            shift.settle_kept(ItemId(number));
        }
        shift.run()
    }
}

/// What a worker is at.
#[derive(Default)]
struct Post {
    busy: Option<Task>,
    /// The last item it had.
    last: Option<ItemId>,
    /// Reports it holds.
    holds: Vec<ItemId>,
}

enum Task {
    Item(ItemId),
    Writing(Vec<ItemId>),
}

/// A job being done.
struct Shift<'c, 'a> {
    crew: &'c mut Crew<'a>,
    job: &'c mut dyn Job,
    leases: Leases,
    posts: Vec<Post>,
    output: Option<&'c mut Output>,
    begun: Instant,
    /// Further items may be asked for.
    open: bool,
}

impl Shift<'_, '_> {
    fn run(&mut self) -> Result<(), SearchError> {
        loop {
            for number in 0..self.posts.len() {
                if self.posts[number].busy.is_none() {
                    self.give_work(number)?;
                }
            }
            if self.is_done() {
                return self.dismiss();
            }
            let heard = self.crew.next()?;
            match self.crew.checked(heard.answer)? {
                Some(answer) => self.take(heard.worker, answer)?,
                None => self.bury(heard.worker)?,
            }
        }
    }

    fn is_done(&self) -> bool {
        let idle = self.posts.iter().all(|post| post.holds.is_empty() && !matches!(post.busy, Some(Task::Writing(_))));
        idle && self.leases.is_finished()
    }

    /// Nobody waits for who still works on what another has done.
    fn dismiss(&mut self) -> Result<(), SearchError> {
        for number in 0..self.posts.len() {
            if self.posts[number].busy.take().is_some() {
                self.crew.replace(number, &self.job.prepare())?;
            }
        }
        Ok(())
    }

    fn give_work(&mut self, number: usize) -> Result<(), SearchError> {
        if self.write_what_has_a_place(number) {
            return Ok(());
        }
        let now = self.begun.elapsed();
        if self.open && self.leases.waiting() == 0 {
            while self.leases.add(1).any(|number| self.settle_kept(ItemId(number))) {}
        }
        let name = number.to_string();
        let Lease::Work { item, issue, .. } = self.leases.ask(&name, self.attempt_of(number), now) else {
            return Ok(());
        };
        if issue > MAX_ISSUES {
            let what = self.job.name(item);
            return Err(self.crew.died(number, issue - 1, &what));
        }
        let post = &self.posts[number];
        if !self.job.follows(post.last, item) {
            // What it holds would go with it.
            for held in std::mem::take(&mut self.posts[number].holds) {
                self.leases.reopen(held);
            }
            self.crew.replace(number, &self.job.prepare())?;
            self.posts[number] = Post::default();
            self.leases.leave(&name);
            // What is first in line may be another item by now; its new start can be asked for any.
            return self.give_work(number);
        }
        let request = self.job.request(item);
        self.crew.tell(number, &request);
        self.posts[number].busy = Some(Task::Item(item));
        self.posts[number].last = Some(item);
        Ok(())
    }

    /// Leaves out an item that an earlier search has done. Returns whether it has.
    fn settle_kept(&mut self, item: ItemId) -> bool {
        let Some(bytes) = self.job.kept(item) else { return false };
        if let Some(output) = &mut self.output {
            output.layout.set(item.0 as usize, bytes);
        }
        self.leases.settle(item)
    }

    /// Has a worker write the reports it holds whose places are known. Returns whether there were any.
    fn write_what_has_a_place(&mut self, number: usize) -> bool {
        let Some(output) = &self.output else { return false };
        let holds = std::mem::take(&mut self.posts[number].holds);
        let is_placed = |item: &ItemId| output.layout.offset(item.0 as usize).is_some();
        let (placed, kept): (Vec<ItemId>, Vec<ItemId>) = holds.into_iter().partition(is_placed);
        self.posts[number].holds = kept;
        if placed.is_empty() {
            return false;
        }
        let page = if self.crew.place().is_spread() { aside::PAGE_BYTES } else { 1 };
        let mut request = Request::new(b'W').text(output.path.as_os_str().as_encoded_bytes()).u64(page);
        for item in &placed {
            let offset = output.layout.offset(item.0 as usize).unwrap_or_default();
            request = request.u64(item.0).u64(offset);
        }
        self.crew.tell(number, &request);
        self.posts[number].busy = Some(Task::Writing(placed));
        true
    }

    fn take(&mut self, number: usize, answer: Answer) -> Result<(), SearchError> {
        let item = match (self.posts[number].busy.take(), answer) {
            (Some(Task::Writing(items)), Answer::Written { edges }) => {
                let Some(output) = &self.output else { return Ok(()) };
                edges.iter().try_for_each(|(offset, bytes)| aside::write_at(&output.path, bytes, *offset))?;
                let places =
                    items.iter().map(|item| (*item, output.layout.offset(item.0 as usize).unwrap_or_default()));
                let places: Vec<(ItemId, u64)> = places.collect();
                return places.into_iter().try_for_each(|(item, offset)| self.job.written(item, offset));
            }
            (Some(Task::Item(item)), answer) => {
                let outcome = self.job.take(item, answer)?;
                return self.settle(number, item, outcome);
            }
            (_, answer) => format!("{answer:?} was not asked for"),
        };
        Err(SearchError::Protocol { problem: item })
    }

    fn settle(&mut self, number: usize, item: ItemId, outcome: Outcome) -> Result<(), SearchError> {
        let (name, attempt, now) = (number.to_string(), self.attempt_of(number), self.begun.elapsed());
        if let Outcome::End | Outcome::Report { last: true, .. } = outcome {
            self.open = false;
            self.leases.close();
        }
        let first = matches!(self.leases.commit(&name, attempt, item, now), Commit::First { .. });
        let bytes = match outcome {
            Outcome::Report { bytes, .. } => bytes,
            _ => return Ok(()),
        };
        if let (true, Some(output)) = (first, &mut self.output) {
            output.layout.set(item.0 as usize, bytes);
            self.posts[number].holds.push(item);
        }
        Ok(())
    }

    /// A worker has ended: what it had, and what it held, is done again.
    fn bury(&mut self, number: usize) -> Result<(), SearchError> {
        let post = std::mem::take(&mut self.posts[number]);
        self.leases.leave(&number.to_string());
        let writing = match post.busy {
            Some(Task::Writing(items)) => items,
            _ => Vec::new(),
        };
        for item in post.holds.into_iter().chain(writing) {
            self.leases.reopen(item);
        }
        self.crew.bury(number, &self.job.prepare())
    }

    fn attempt_of(&self, number: usize) -> Attempt {
        Attempt(self.crew.attempts[number])
    }
}
