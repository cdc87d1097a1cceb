//! Regions that are called while the BAM is written.
//!
//! Partitions go into the BAM in the order of the genome, so the start of the file is whole long before its end. A region can be
//! called once all that a caller may look at of it lies in that start. The caller then gets a link to the growing file under a
//! name of its own, and beside it an index of what is there: nothing is copied, and what has no place in the index is not looked
//! at. What is called is kept as [`call`](super::call) keeps it, which does the rest when the BAM has its name: regions that
//! were not called here, those whose caller failed here, and putting all of them together.
//!
//! Callers and writers share one number of threads ([`Turns`]).

mod turns;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use godwit_engines::caller::Caller;
use godwit_formats::index::{IndexBuilder, IndexFormat};
use godwit_model::{Genome, SortKey};

use super::identity::{of_files, of_unwritten_reads};
use super::kept::{CallRun, Effort, Opened};
use super::plan::{self, PlannedRegion};
use super::reads::ToPlan;
use super::reference::ScannedReference;
use super::targets::Targets;
use super::work::{RegionCaller, Tally};
use super::{Budget, CALLER_MEMORY, CallOptions, Workers, check_output, identity, make_directories, tell_dropped};
use crate::error::PipelineError;
use crate::observer::{Event, Observer};
use crate::partitioned_file::PartExtent;
use crate::reduce::{BegunBam, Follower};
use crate::scratch::{ScratchDirectory, create_private_directory, unique};
use crate::staging::Staged;
use turns::Turns;

/// How far beyond what it is told to call a caller may look at reads: HaplotypeCaller does 100 bases.
const LOOKS_BEYOND_BASES: u32 = 10_000;
/// How long to wait before looking whether the run was stopped.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Callers that wait for a BAM to grow.
pub(crate) struct LiveCalling<'r> {
    options: &'r CallOptions,
    caller: Box<dyn Caller>,
    workers: Workers,
    reference: Arc<ScannedReference>,
    targets: Option<Targets>,
    /// Whether equal reads have equal records.
    same_again: bool,
    /// Until the BAM is begun.
    opened: Mutex<Option<CallRun>>,
    begun: OnceLock<Begun>,
    schedule: Mutex<Schedule>,
    /// Something is ready, a thread is free, or all is over.
    changed: Condvar,
    called: AtomicUsize,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
}

/// What is known when the BAM is begun.
struct Begun {
    run: CallRun,
    genome: Genome,
    regions: Vec<PlannedRegion>,
    /// Regions that are not called yet, in the order of the genome.
    left: Vec<usize>,
    tally: Mutex<Tally>,
    /// Smallest key of each partition.
    starts: Vec<SortKey>,
    /// Where callers write.
    scratch: ScratchDirectory,
    growing: Mutex<Growing>,
}

/// The BAM, as far as it can be read.
struct Growing {
    aside: PathBuf,
    path: PathBuf,
    /// Where links to it go, and how many there were.
    links: (PathBuf, usize),
    /// Indexes of partitions that are not in the file yet.
    made: BTreeMap<usize, IndexBuilder>,
    /// The index of what is in the file.
    index: IndexBuilder,
    /// Parts that it covers, the header among them.
    parts: usize,
    /// The link of that state, once somebody asked for one.
    link: Option<Arc<Link>>,
}

/// A name of the growing BAM, with an index beside it. Dropping it removes both.
struct Link {
    directory: PathBuf,
    bam: PathBuf,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Best effort: the run's directory goes as a whole.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What is to be done next, and by whom.
struct Schedule {
    turns: Turns,
    /// Partitions that are in the file.
    landed: usize,
    /// Of the regions that are left, those that somebody took.
    taken: usize,
    over: bool,
}

/// Ends calling, however the writing ends.
pub(crate) struct EndOfWriting<'l, 'r>(pub(crate) &'l LiveCalling<'r>);

impl Drop for EndOfWriting<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A caller whose options, reference and regions were checked.
pub(crate) struct CheckedCaller {
    caller: Box<dyn Caller>,
    workers: Workers,
    reference: Arc<ScannedReference>,
    targets: Option<Targets>,
}

/// Checks all that can be checked before there are reads, and writes nothing.
///
/// # Errors
/// [`PipelineError`].
pub(crate) fn check(options: &CallOptions) -> Result<CheckedCaller, PipelineError> {
    let caller = options.caller.find(&options.caller_args)?;
    let workers = Workers::new(&Budget::of(options), caller.habits().memory_bytes, (caller.name(), CALLER_MEMORY))?;
    let no_headers = std::iter::empty();
    let reference = ScannedReference::of_reads(&options.reference, options.scanned.as_ref(), no_headers)?;
    reference.check_for(&options.reference, &*caller)?;
    let targets = Targets::read(&options.regions, &reference.genome(&options.reference)?)?;
    Ok(CheckedCaller { caller, workers, reference, targets })
}

impl<'r> LiveCalling<'r> {
    /// Checks all that can be checked before there are reads ([`check`]), and takes the place of the output; `None` where nothing can be
    /// called before they are whole. `same_again`: whether aligning the same reads once more gives the same records.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn open(
        options: &'r CallOptions,
        same_again: bool,
        observer: &'r dyn Observer,
        cancelled: &'r AtomicBool,
    ) -> Result<Option<Self>, PipelineError> {
        let CheckedCaller { caller, workers, reference, targets } = check(options)?;
        let habits = caller.habits();
        reference.prepare(&options.reference, habits.needs_dictionary)?;
        check_output(&options.out)?;
        if !habits.region_alone {
            return Ok(None);
        }
        let facts = identity::facts(options, &*caller, &reference, targets.as_ref());
        make_directories(&options.out, options.temp.as_deref())?;
        // Where only the names of a whole VCF were lacking, there is nothing to call.
        let Opened::Run(run) = CallRun::open(&options.out, &facts, options.resume)? else { return Ok(None) };
        if !options.resume {
            tell_dropped(&run, "with --resume they would have been kept", observer);
        }
        let turns = Turns::new(options.threads, options.caller_threads, workers.count);
        Ok(Some(Self {
            options,
            caller,
            workers,
            reference,
            targets,
            same_again,
            opened: Mutex::new(Some(*run)),
            begun: OnceLock::new(),
            schedule: Mutex::new(Schedule { turns, landed: 0, taken: 0, over: false }),
            changed: Condvar::new(),
            called: AtomicUsize::new(0),
            observer,
            cancelled,
        }))
    }

    /// Callers that may run at a time.
    pub(crate) fn workers(&self) -> usize {
        self.workers.count
    }

    /// The reference.
    pub(crate) fn reference(&self) -> &Arc<ScannedReference> {
        &self.reference
    }

    /// Lets regions that are being called be the last ones.
    fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Gives up the output's place. Returns how many regions were called.
    pub(crate) fn close(self) -> usize {
        let begun = self.begun.into_inner();
        let run = match begun {
            Some(Begun { run, .. }) => Some(run),
            None => self.opened.into_inner().unwrap_or_else(PoisonError::into_inner),
        };
        run.filter(|run| !run.has_work()).into_iter().for_each(CallRun::remove);
        self.called.into_inner()
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        // A panicking thread ends the run.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls regions as they become ready, until the BAM is whole. For several threads.
    pub(crate) fn work(&self) {
        while let Some((begun, index)) = self.next() {
            let called = self.region(begun, index);
            self.lock().turns.end_call();
            self.changed.notify_all();
            if let Err(error) = called {
                self.give_up(&error);
            }
        }
    }

    /// What cannot be called now may be called when the BAM is whole; whether it can is found out there.
    fn give_up(&self, error: &PipelineError) {
        let first = !std::mem::replace(&mut self.lock().over, true);
        self.changed.notify_all();
        if first && !self.cancelled.load(Ordering::Relaxed) {
            let reason = godwit_formats::with_causes(error).replace('\n', " | ");
            let message = format!("{reason}; regions that are left are called when the BAM is whole");
            self.observer.event(&Event::Warning { message });
        }
    }

    /// Waits for a region that can be called, and for a thread that is free.
    fn next(&self) -> Option<(&Begun, usize)> {
        let mut schedule = self.lock();
        loop {
            if schedule.over || self.cancelled.load(Ordering::Relaxed) {
                return None;
            }
            if let Some((begun, index)) = self.ready(&schedule)
                && schedule.turns.begin_call()
            {
                schedule.taken += 1;
                return Some((begun, index));
            }
            schedule = self.wait(schedule);
        }
    }

    /// Waits until something changed, or somebody may have stopped the run, of which nobody tells.
    fn wait<'l>(&self, schedule: MutexGuard<'l, Schedule>) -> MutexGuard<'l, Schedule> {
        self.changed.wait_timeout(schedule, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The next region, if all that a caller looks at of it is in the file.
    fn ready(&self, schedule: &Schedule) -> Option<(&Begun, usize)> {
        let begun = self.begun.get().filter(|_| !schedule.over)?;
        let index = *begun.left.get(schedule.taken)?;
        let lacking = begun.starts.get(schedule.landed).copied().unwrap_or(SortKey::UNPLACED);
        begun.regions[index].is_before(lacking).then_some((begun, index))
    }

    fn region(&self, begun: &Begun, index: usize) -> Result<(), PipelineError> {
        let failed = |error| PipelineError::file("call from", &self.options.out)(error);
        let link = begun.growing.lock().unwrap_or_else(PoisonError::into_inner).link(&begun.genome).map_err(failed)?;
        let on = RegionCaller {
            caller: &*self.caller,
            reference: &self.options.reference,
            reads: std::slice::from_ref(&link.bam),
            normal: None,
            genome: &begun.genome,
            threads_per_caller: self.options.caller_threads,
            memory_per_caller: self.workers.memory_per_caller,
        };
        let stop = || self.cancelled.load(Ordering::Relaxed);
        let region = &begun.regions[index];
        let called = on.call(region, &begun.scratch.path().join(index.to_string()), &stop)?;
        let kept = begun.run.keep(index, called, Effort { attempts: 1, node: None });
        let kept = kept.map_err(PipelineError::file("keep what was called in", begun.scratch.path()))?;
        self.called.fetch_add(1, Ordering::Relaxed);
        begun.tally.lock().unwrap_or_else(PoisonError::into_inner).take(index, kept, self.observer);
        Ok(())
    }
}

impl PlannedRegion {
    /// Whether no read that a caller looks at for it has this key or a larger one.
    fn is_before(&self, key: SortKey) -> bool {
        let last = self.region.stretches.last();
        last.is_some_and(|last| {
            let beyond = last.end.saturating_add(LOOKS_BEYOND_BASES).min(i32::MAX as u32 - 1);
            SortKey::new(last.contig.0 as i32, beyond as i32, true) < key
        })
    }
}

impl Follower for LiveCalling<'_> {
    fn begin(&self, bam: &BegunBam) -> Result<(), PipelineError> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut run) = opened else { return Ok(()) };
        let failed = |error| PipelineError::file("use the run directory of", &self.options.out)(error);
        let identity = if self.same_again { bam.identity.clone() } else { unique() };
        run.take_reads(&of_unwritten_reads(&identity)).map_err(failed)?;
        if self.options.resume {
            tell_dropped(&run, "they were called from other reads", self.observer);
        }
        if !run.finished.is_empty() {
            self.observer.event(&Event::CallResumed { regions: run.finished.len() });
        }
        let to_plan = ToPlan { genome: bam.genome, path: bam.path, inputs: None };
        let habits = self.caller.habits();
        let regions = plan::regions(self.options, &habits, &to_plan, &self.reference, self.targets.as_ref())?;
        let tally = Tally::new(&run, regions.len());
        let all: Vec<usize> = (0..regions.len()).collect();
        let growing = Growing {
            aside: std::path::absolute(bam.aside).map_err(failed)?,
            path: bam.path.to_owned(),
            links: (run.for_reads().map_err(failed)?, 0),
            made: BTreeMap::new(),
            index: IndexBuilder::new(bam.genome),
            parts: 0,
            link: None,
        };
        let begun = Begun {
            scratch: run.scratch(self.options.temp.as_deref()).map_err(failed)?,
            genome: bam.genome.clone(),
            left: tally.left(&all),
            tally: Mutex::new(tally),
            starts: bam.starts.clone(),
            growing: Mutex::new(growing),
            regions,
            run,
        };
        let mut schedule = self.lock();
        schedule.turns.expect_partitions(bam.starts.len());
        // Callers take samples by read group, and where there is none they name it after the file.
        schedule.over |= !names_samples(bam);
        let _ = self.begun.set(begun);
        drop(schedule);
        self.changed.notify_all();
        Ok(())
    }

    fn take_turn(&self) {
        let mut schedule = self.lock();
        loop {
            let is_ready = self.ready(&schedule).is_some() && !self.cancelled.load(Ordering::Relaxed);
            if schedule.turns.begin_partition(is_ready) {
                return;
            }
            schedule = self.wait(schedule);
        }
    }

    fn end_turn(&self) {
        self.lock().turns.end_partition();
        self.changed.notify_all();
    }

    fn made(&self, partition: usize, index: &IndexBuilder) {
        let Some(begun) = self.begun.get() else { return };
        let mut growing = begun.growing.lock().unwrap_or_else(PoisonError::into_inner);
        growing.made.insert(partition, index.clone());
    }

    fn landed(&self, parts: &[PartExtent]) {
        let Some(begun) = self.begun.get() else { return };
        let grown = begun.growing.lock().unwrap_or_else(PoisonError::into_inner).grow(parts);
        match grown {
            Ok(parts) => {
                let mut schedule = self.lock();
                schedule.landed = schedule.landed.max(parts.saturating_sub(1));
                drop(schedule);
                self.changed.notify_all();
            }
            Err(error) => self.give_up(&PipelineError::file("index", &self.options.out)(error)),
        }
    }

    fn written(&self, staged: &Staged) -> Result<(), PipelineError> {
        let Some(begun) = self.begun.get() else { return Ok(()) };
        let (bam, index) = begun.growing.lock().unwrap_or_else(PoisonError::into_inner).names(&begun.genome);
        let aside = |path: &Path| staged.files().iter().find(|file| file.path() == path).map(|file| file.aside());
        // Without them nothing that was called is ever taken over.
        let (Some(bam), Some(index)) = (aside(&bam), aside(&index)) else { return Ok(()) };
        let facts = of_files(std::iter::once((bam, index)), "none")?;
        let failed = PipelineError::file("write the journal of", &self.options.out);
        begun.run.also_known_as(&facts).map_err(failed)
    }
}

/// Whether every read has a read group that names its sample, as far as the header tells.
fn names_samples(bam: &BegunBam) -> bool {
    let groups = bam.header.read_groups().unwrap_or_default();
    !groups.is_empty() && groups.iter().all(|group| group.sample.is_some())
}

impl Growing {
    /// The names of BAM and index.
    fn names(&self, genome: &Genome) -> (PathBuf, PathBuf) {
        let ending = IndexFormat::for_genome(genome).extension();
        (self.path.clone(), PathBuf::from(format!("{}.{ending}", self.path.display())))
    }

    /// Takes the indexes of parts that are in the file now. Returns how many there are.
    fn grow(&mut self, parts: &[PartExtent]) -> io::Result<usize> {
        for (at, part) in parts.iter().enumerate().skip(self.parts) {
            // Part 0 is the header.
            if let Some(partition) = at.checked_sub(1) {
                let missing = || io::Error::other(format!("partition {partition} is in the file without its index"));
                let index = self.made.remove(&partition).ok_or_else(missing)?;
                let before =
                    std::mem::replace(&mut self.index, IndexBuilder::merge(Vec::new()).map_err(io::Error::other)?);
                let whole = IndexBuilder::merge(vec![(before, 0), (index, part.offset)]);
                self.index = whole.map_err(io::Error::other)?;
            }
            self.parts = at + 1;
            self.link = None;
        }
        Ok(self.parts)
    }

    /// A name of what is there, and of nothing else, for callers.
    fn link(&mut self, genome: &Genome) -> io::Result<Arc<Link>> {
        if let Some(link) = &self.link {
            return Ok(link.clone());
        }
        let (links, count) = &mut self.links;
        *count += 1;
        let directory = links.join(count.to_string());
        create_private_directory(&directory)?;
        let bam = directory.join(self.path.file_name().unwrap_or_default());
        let format = IndexFormat::for_genome(genome);
        let link = Arc::new(Link { directory, bam });
        fs::hard_link(&self.aside, &link.bam)?;
        let mut index = Vec::new();
        self.index.write(format, genome, &mut index)?;
        fs::write(format!("{}.{}", link.bam.display(), format.extension()), index)?;
        self.link = Some(link.clone());
        Ok(link)
    }
}
