//! Numbered work handed to workers until all of it is done, whoever of them ends on the way.
//!
//! In: a [`Job`], which says how an item is asked for and what an answer means. Out: reports at their places in the output, where the
//! job has any. Who works on what is [`Leases`]' business; this only asks, listens, and starts workers anew.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use godwit_engines::EngineError;
use godwit_fleet::Leases;
use godwit_fleet::leases::{Answer as Lease, Attempt, Commit, ItemId, Terms};

use crate::SearchError;
use crate::layout::Layout;
use crate::protocol::{Answer, Request};
use crate::worker::{Heard, Worker};

/// How often a worker is started that ends before it is ready.
const MAX_STARTS: u32 = 3;
/// How often an item is handed out before it is taken to be the item's fault that workers end.
const MAX_ISSUES: u32 = 3;
/// Age from which on an idle worker takes another's item too. It is long beside any item's time, and short beside a hang.
const STRAGGLER_AFTER: Duration = Duration::from_secs(600);
/// How often it is looked whether the user has had enough.
const PATIENCE: Duration = Duration::from_millis(50);

/// What an answer means.
pub(crate) enum Outcome {
    /// The item is done.
    Done,
    /// The item is done, and the worker has a report of that size. Where it is the last, no more items are asked for.
    Report { bytes: u64, last: bool },
    /// It is to be asked for again, in another way.
    Again,
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
    /// What an item is called where workers end over it.
    fn name(&self, item: ItemId) -> String;
}

/// Where reports go.
pub(crate) struct Output {
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
}

/// Starts the worker of that number, for that time; what it says goes to the sender.
pub(crate) type Starter<'a> = Box<dyn Fn(usize, Attempt, Sender<Heard>) -> Result<Worker, EngineError> + 'a>;

/// The workers of a search, and how to start one.
pub(crate) struct Crew<'a> {
    workers: Vec<Option<Worker>>,
    start: Starter<'a>,
    greeting: Request,
    heard: Receiver<Heard>,
    speaker: Sender<Heard>,
    cancelled: &'a AtomicBool,
    program: &'static str,
    /// What is heard of workers while one of them is waited for.
    waiting: VecDeque<Heard>,
    pub(crate) restarts: u32,
}

impl<'a> Crew<'a> {
    /// Starts that many workers, all at once, and returns what each says when it is ready.
    pub(crate) fn gather(
        count: usize,
        greeting: Request,
        program: &'static str,
        start: Starter<'a>,
        cancelled: &'a AtomicBool,
    ) -> Result<(Self, Vec<Answer>), SearchError> {
        let (speaker, heard) = std::sync::mpsc::channel();
        let workers = Vec::new();
        let waiting = VecDeque::new();
        let mut crew = Self { workers, start, greeting, heard, speaker, cancelled, program, waiting, restarts: 0 };
        for number in 0..count {
            let mut worker = (crew.start)(number, Attempt(0), crew.speaker.clone())?;
            worker.ask(&crew.greeting);
            crew.workers.push(Some(worker));
        }
        let ready = (0..count).map(|number| crew.answer_of(number)).collect::<Result<_, _>>()?;
        Ok((crew, ready))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Asks a worker that has nothing else to do.
    pub(crate) fn ask(&mut self, number: usize, request: &Request) -> Result<Answer, SearchError> {
        self.tell(number, request);
        self.answer_of(number)
    }

    /// Says what has no answer.
    pub(crate) fn tell(&mut self, number: usize, request: &Request) {
        if let Some(worker) = &mut self.workers[number] {
            worker.ask(request);
        }
    }

    /// Asks all, who have nothing else to do, and starts those anew that end over it.
    pub(crate) fn ask_all(&mut self, request: &Request, job: &dyn Job) -> Result<Vec<Answer>, SearchError> {
        (0..self.count()).for_each(|number| self.tell(number, request));
        let mut answers = Vec::new();
        for number in 0..self.count() {
            let answer = self.listen(number)?;
            answers.push(match answer {
                Some(answer) => answer,
                None => {
                    self.restarts += 1;
                    self.replace(number, &job.prepare())?;
                    self.ask(number, request)?
                }
            });
        }
        Ok(answers)
    }

    fn answer_of(&mut self, number: usize) -> Result<Answer, SearchError> {
        match self.listen(number)? {
            Some(answer) => Ok(answer),
            None => Err(self.died(number, 1, "opening the database and the queries")),
        }
    }

    /// What a worker says next; `None`: it has ended.
    fn listen(&mut self, number: usize) -> Result<Option<Answer>, SearchError> {
        let mut others = VecDeque::new();
        let answer = loop {
            let heard = self.next()?.expect("without a deadline there is something");
            if heard.worker == number && self.is_current(&heard) {
                break heard.answer?;
            }
            if self.is_current(&heard) {
                others.push_back(heard);
            }
        };
        others.append(&mut self.waiting);
        self.waiting = others;
        self.checked(answer)
    }

    /// A failure that a worker tells of is everybody's: the next would fail over the same.
    fn checked(&self, answer: Option<Answer>) -> Result<Option<Answer>, SearchError> {
        match answer {
            Some(Answer::Failed { kind, message }) => Err(match kind {
                b'u' => SearchError::Options { program: self.program, message },
                b'i' => SearchError::Queries { program: self.program, message },
                b'd' => SearchError::Database { message },
                _ => SearchError::Failed { message },
            }),
            answer => Ok(answer),
        }
    }

    fn is_current(&self, heard: &Heard) -> bool {
        self.workers[heard.worker].as_ref().is_some_and(|worker| worker.attempt == heard.attempt)
    }

    fn next(&mut self) -> Result<Option<Heard>, SearchError> {
        if let Some(heard) = self.waiting.pop_front() {
            return Ok(Some(heard));
        }
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(SearchError::Interrupted);
            }
            match self.heard.recv_timeout(PATIENCE) {
                Ok(heard) => return Ok(Some(heard)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("this holds a sender"),
            }
        }
    }

    fn died(&mut self, number: usize, times: u32, what: &str) -> SearchError {
        let (ending, last_words) = match self.workers[number].take() {
            Some(worker) => worker.end(),
            None => ("was never started".into(), "none".into()),
        };
        SearchError::Died { ending, times, what: what.to_owned(), last_words }
    }

    /// Starts a worker in the place of one that has ended, or ends here; again where it ends before it is ready.
    fn replace(&mut self, number: usize, preparation: &[Request]) -> Result<(), SearchError> {
        let mut attempt = self.workers[number].take().map_or(Attempt(0), |mut worker| {
            worker.kill();
            worker.attempt
        });
        for _ in 1..MAX_STARTS {
            attempt = Attempt(attempt.0 + 1);
            if self.start_as(number, attempt, preparation)? {
                return Ok(());
            }
            self.restarts += 1;
        }
        match self.start_as(number, Attempt(attempt.0 + 1), preparation)? {
            true => Ok(()),
            false => Err(self.died(number, MAX_STARTS, "opening the database and the queries")),
        }
    }

    /// Starts a worker and has it prepare itself; false where it ends over it.
    fn start_as(&mut self, number: usize, attempt: Attempt, preparation: &[Request]) -> Result<bool, SearchError> {
        let mut worker = (self.start)(number, attempt, self.speaker.clone())?;
        worker.ask(&self.greeting);
        self.workers[number] = Some(worker);
        if self.listen(number)?.is_none() {
            return Ok(false);
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
        leases.add(count.unwrap_or(0));
        if count.is_some() {
            leases.close();
        }
        let posts = (0..self.count()).map(|_| Post::default()).collect();
        let mut shift = Shift { crew: self, job, leases, posts, output, begun: Instant::now(), open: count.is_none() };
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
            let heard = self.crew.next()?.expect("without a deadline there is something");
            if !self.crew.is_current(&heard) {
                continue;
            }
            match heard.answer.and_then(|answer| self.crew.checked(answer))? {
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
            self.leases.add(1);
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
        let mut request = Request::new(b'W').text(output.path.as_os_str().as_encoded_bytes());
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
            (Some(Task::Writing(_)), Answer::Written) => return Ok(()),
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
        if let Outcome::Again = outcome {
            self.leases.give_back(&name, attempt, item, now);
            return Ok(());
        }
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
        self.crew.restarts += 1;
        let post = std::mem::take(&mut self.posts[number]);
        self.leases.leave(&number.to_string());
        let writing = match post.busy {
            Some(Task::Writing(items)) => items,
            _ => Vec::new(),
        };
        for item in post.holds.into_iter().chain(writing) {
            self.leases.reopen(item);
        }
        self.crew.replace(number, &self.job.prepare())
    }

    fn attempt_of(&self, number: usize) -> Attempt {
        self.crew.workers[number].as_ref().map_or(Attempt(0), |worker| worker.attempt)
    }
}
