//! Regions over workers: each called, checked, cut to what it owns, and kept.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use godwit_engines::caller::{Caller, Normal, RegionWork};
use godwit_engines::{Chain, EngineError};
use godwit_formats::bgzf;
use godwit_formats::vcf_lines::Reader;
use godwit_formats::with_causes;
use godwit_model::Genome;

use super::attempts::{Attempted, FirstFailure, Named, attempted, once};
use super::kept::{CallRun, Effort, KeptRegion};
use super::plan::PlannedRegion;
use crate::error::PipelineError;
use crate::observer::{Event, Observer};

/// How regions are called, on whichever machine.
pub(super) struct RegionCaller<'r> {
    pub(super) caller: &'r dyn Caller,
    pub(super) reference: &'r Path,
    pub(super) reads: &'r [PathBuf],
    pub(super) normal: Option<Normal<'r>>,
    pub(super) genome: &'r Genome,
    pub(super) threads_per_caller: usize,
    pub(super) memory_per_caller: u64,
}

/// What workers share.
pub(super) struct Calling<'r> {
    pub(super) on: RegionCaller<'r>,
    pub(super) regions: &'r [PlannedRegion],
    pub(super) run: &'r CallRun,
    pub(super) scratch: &'r Path,
    pub(super) observer: &'r dyn Observer,
    pub(super) cancelled: &'r AtomicBool,
}

/// What a caller wrote of a region, as far as it counts.
pub(super) struct CalledRegion {
    pub(super) header: Vec<u8>,
    pub(super) lines: Vec<u8>,
    pub(super) records: u64,
    /// Wall time of the caller.
    pub(super) seconds: f64,
}

/// What all regions left so far.
pub(super) struct Tally {
    kept: Vec<Option<KeptRegion>>,
    regions: usize,
    records: u64,
}

impl Tally {
    /// What an earlier process left of so many regions.
    pub(super) fn new(run: &CallRun, regions: usize) -> Self {
        let mut kept: Vec<Option<KeptRegion>> = vec![None; regions];
        for (index, region) in &run.finished {
            if let Some(place) = kept.get_mut(*index) {
                *place = Some(region.clone());
            }
        }
        let records = kept.iter().flatten().map(|region| region.records).sum();
        Self { regions: kept.iter().flatten().count(), records, kept }
    }

    /// Those of `order` that are not called yet.
    pub(super) fn left(&self, order: &[usize]) -> Vec<usize> {
        order.iter().copied().filter(|index| self.kept[*index].is_none()).collect()
    }

    /// Takes what a region left.
    pub(super) fn take(&mut self, index: usize, region: KeptRegion, observer: &dyn Observer) {
        (self.regions, self.records) = (self.regions + 1, self.records + region.records);
        self.kept[index] = Some(region);
        observer.event(&Event::Called { regions: self.regions, of: self.kept.len(), records: self.records });
    }

    /// What all of them left.
    ///
    /// # Errors
    /// [`PipelineError::Lost`] where some are missing.
    pub(super) fn complete(self) -> Result<Vec<KeptRegion>, PipelineError> {
        let (taken, written) = (self.kept.len() as u64, self.regions as u64);
        let kept: Option<Vec<KeptRegion>> = self.kept.into_iter().collect();
        kept.ok_or(PipelineError::Lost { what: "regions", taken, written })
    }
}

impl Calling<'_> {
    /// Calls the regions that are not kept yet, in `order`, on that many workers; returns what all of them left.
    ///
    /// # Errors
    /// [`PipelineError::Region`] after the second failure, [`PipelineError::Interrupted`], [`PipelineError::File`].
    pub(super) fn work(&self, order: &[usize], workers: usize) -> Result<Vec<KeptRegion>, PipelineError> {
        let tally = Tally::new(self.run, self.regions.len());
        let left = tally.left(order);
        let (tally, next, failure) = (Mutex::new(tally), AtomicUsize::new(0), FirstFailure::default());
        let stop = || failure.is_set() || self.cancelled.load(Ordering::Relaxed);
        let worker = || {
            while !stop() {
                let Some(index) = left.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                match self.region(*index, &stop) {
                    Ok(region) => {
                        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                        tally.take(*index, region, self.observer);
                    }
                    Err(error) => failure.take(*index, error),
                }
            }
        };
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..workers.clamp(1, left.len().max(1))).map(|_| scope.spawn(worker)).collect();
            for worker in started {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        failure.into_result()?;
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        tally.complete().map_err(|error| error.unless_cancelled(self.cancelled))
    }

    /// Calls one region, again if it fails, and keeps it.
    fn region(&self, index: usize, stop: &impl Fn() -> bool) -> Result<KeptRegion, PipelineError> {
        let region = &self.regions[index];
        let directory = self.scratch.join(index.to_string());
        let named = Named { doing: "calling", piece: &region.name };
        let attempt = || self.on.attempt(region, &directory, stop);
        let Attempted { value, seconds, attempts } = attempted(named, &directory, self.observer, stop, attempt)?;
        let kept = self.run.keep(index, CalledRegion { seconds, ..value }, Effort { attempts, node: None });
        kept.map_err(PipelineError::file("keep what was called in", self.scratch))
    }
}

impl RegionCaller<'_> {
    /// Calls one region once, in a directory of its own, which is made anew and stays where it fails.
    ///
    /// # Errors
    /// [`PipelineError::Engine`], also where `stop` said so; [`PipelineError::File`].
    pub(super) fn call(
        &self,
        region: &PlannedRegion,
        directory: &Path,
        stop: &impl Fn() -> bool,
    ) -> Result<CalledRegion, PipelineError> {
        let (called, seconds) = once(directory, || self.attempt(region, directory, stop))?;
        Ok(CalledRegion { seconds, ..called })
    }

    fn attempt(
        &self,
        region: &PlannedRegion,
        directory: &Path,
        stop: &impl Fn() -> bool,
    ) -> Result<CalledRegion, EngineError> {
        let output = directory.join("out.vcf");
        let work = RegionWork {
            reference: self.reference,
            reads: self.reads,
            normal: self.normal,
            stretches: &region.stretches,
            ploidy: region.ploidy,
            directory,
            output: &output,
            threads: self.threads_per_caller,
            memory_bytes: self.memory_per_caller,
        };
        if let Some(before) = self.caller.prepare(&work)? {
            before.wait(stop)?;
        }
        let chain = self.caller.start(&work)?;
        chain.wait(stop)?;
        self.owned(region, &output, &chain)
    }

    /// The records of a caller's output that are the region's, every line of it checked.
    fn owned(&self, region: &PlannedRegion, output: &Path, chain: &Chain) -> Result<CalledRegion, EngineError> {
        let wrong = |error: &dyn std::error::Error| chain.wrong_output(format!("what it wrote {}", with_causes(error)));
        if !output.is_file() {
            return Err(chain.wrong_output("it ended well, but wrote no VCF".to_owned()));
        }
        let input = bgzf::open_text(output, 1).map_err(|error| wrong(&error))?;
        let mut reader = Reader::new(BufReader::new(input)).map_err(|error| wrong(&error))?;
        let (mut lines, mut records, mut last) = (Vec::new(), 0, None);
        loop {
            let problem = match reader.next_record().map_err(|error| wrong(&error))? {
                None => break,
                Some(record) => {
                    match self.genome.find(record.contig).map(|id| (id, &self.genome.contigs()[id.0 as usize])) {
                        None => "it is on no contig of the reads",
                        Some((_, contig)) if record.start >= i64::from(contig.length) => {
                            "it starts behind the end of its contig"
                        }
                        // A record at the telomere is the first base's.
                        Some((id, _)) if !region.region.owns(id, record.start.max(0) as u32) => continue,
                        Some((id, _)) if last.is_some_and(|last| (id, record.start) < last) => {
                            "it starts before the record in front of it"
                        }
                        Some((id, _)) => {
                            last = Some((id, record.start));
                            lines.extend_from_slice(record.line);
                            lines.push(b'\n');
                            records += 1;
                            continue;
                        }
                    }
                }
            };
            return Err(wrong(&reader.wrong(problem)));
        }
        let mut header = reader.header().clone();
        header.drop_volatile();
        Ok(CalledRegion { header: header.text(), lines, records, seconds: 0.0 })
    }
}
