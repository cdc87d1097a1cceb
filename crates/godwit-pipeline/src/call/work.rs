//! Regions over workers: each called, checked, cut to what it owns, and kept.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use godwit_engines::caller::{Caller, Normal, RegionWork};
use godwit_engines::{Chain, EngineError};
use godwit_formats::bgzf;
use godwit_formats::vcf_lines::Reader;
use godwit_model::Genome;

use super::attempts::{Named, attempted};
use super::kept::{CallRun, KeptRegion};
use super::plan::PlannedRegion;
use crate::error::{PipelineError, with_causes};
use crate::observer::{Event, Observer};

/// What workers share.
pub(super) struct Calling<'r> {
    pub(super) caller: &'r dyn Caller,
    pub(super) reference: &'r Path,
    pub(super) reads: &'r [PathBuf],
    pub(super) normal: Option<Normal<'r>>,
    pub(super) genome: &'r Genome,
    pub(super) regions: &'r [PlannedRegion],
    pub(super) run: &'r CallRun,
    pub(super) scratch: &'r Path,
    pub(super) threads_per_caller: usize,
    pub(super) memory_per_caller: u64,
    pub(super) observer: &'r dyn Observer,
    pub(super) cancelled: &'r AtomicBool,
}

/// What was done so far.
struct Done {
    kept: Vec<Option<KeptRegion>>,
    regions: usize,
    records: u64,
    /// Why the run ends early: the failure of the first region in the order of the genome.
    failure: Option<(usize, PipelineError)>,
}

/// What a caller wrote of a region, as far as it counts.
struct CalledRegion {
    header: Vec<u8>,
    lines: Vec<u8>,
    records: u64,
}

impl Calling<'_> {
    /// Calls the regions that are not kept yet, in `order`, on that many workers; returns what all of them left.
    ///
    /// # Errors
    /// [`PipelineError::Region`] after the second failure, [`PipelineError::Interrupted`], [`PipelineError::File`].
    pub(super) fn work(&self, order: &[usize], workers: usize) -> Result<Vec<KeptRegion>, PipelineError> {
        let mut kept: Vec<Option<KeptRegion>> = vec![None; self.regions.len()];
        for (index, region) in &self.run.finished {
            if let Some(place) = kept.get_mut(*index) {
                *place = Some(region.clone());
            }
        }
        let records = kept.iter().flatten().map(|region| region.records).sum();
        let left: Vec<usize> = order.iter().copied().filter(|index| kept[*index].is_none()).collect();
        let regions = self.regions.len() - left.len();
        let done = Mutex::new(Done { kept, regions, records, failure: None });
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let stop = || failed.load(Ordering::Relaxed) || self.cancelled.load(Ordering::Relaxed);
        let worker = || {
            while !stop() {
                let Some(index) = left.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                let called = self.region(*index, &stop);
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                match called {
                    Ok(region) => {
                        (done.regions, done.records) = (done.regions + 1, done.records + region.records);
                        done.kept[*index] = Some(region);
                        let (regions, of, records) = (done.regions, self.regions.len(), done.records);
                        self.observer.event(&Event::Called { regions, of, records });
                    }
                    // Another worker's failure, or the user, stopped this one.
                    Err(PipelineError::Interrupted) => {}
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        if done.failure.as_ref().is_none_or(|(before, _)| index < before) {
                            done.failure = Some((*index, error));
                        }
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..workers.clamp(1, left.len().max(1))).map(|_| scope.spawn(worker)).collect();
            for worker in started {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, error)) = done.failure {
            return Err(error);
        }
        let (taken, written) = (self.regions.len() as u64, done.regions as u64);
        if self.cancelled.load(Ordering::Relaxed) && written < taken {
            return Err(PipelineError::Interrupted);
        }
        let kept: Option<Vec<KeptRegion>> = done.kept.into_iter().collect();
        kept.ok_or(PipelineError::Lost { what: "regions", taken, written })
    }

    /// Calls one region, again if it fails, and keeps it.
    fn region(&self, index: usize, stop: &impl Fn() -> bool) -> Result<KeptRegion, PipelineError> {
        let region = &self.regions[index];
        let directory = self.scratch.join(index.to_string());
        let named = Named { doing: "calling", piece: &region.name };
        let attempt = || self.attempt(region, &directory, stop);
        let called = attempted(named, &directory, self.observer, stop, attempt)?;
        let CalledRegion { header, lines, records } = called.value;
        self.run
            .keep(index, header, (&lines, records), called.seconds, called.attempts)
            .map_err(PipelineError::file("keep what was called in", self.scratch))
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
        let contig = &self.genome.contigs()[region.region.contig().0 as usize];
        let (mut lines, mut records, mut last) = (Vec::new(), 0, -1);
        loop {
            let problem = match reader.next_record().map_err(|error| wrong(&error))? {
                None => break,
                Some(record) if record.contig != contig.name => {
                    if self.genome.find(record.contig).is_some() {
                        continue;
                    }
                    "it is on no contig of the reads"
                }
                Some(record) if record.start >= i64::from(contig.length) => "it starts behind the end of its contig",
                // A record at the telomere is the first base's.
                Some(record) if !region.region.owns(record.start.max(0) as u32) => continue,
                Some(record) if record.start < last => "it starts before the record in front of it",
                Some(record) => {
                    last = record.start;
                    lines.extend_from_slice(record.line);
                    lines.push(b'\n');
                    records += 1;
                    continue;
                }
            };
            return Err(wrong(&reader.wrong(problem)));
        }
        let mut header = reader.header().clone();
        header.drop_volatile();
        Ok(CalledRegion { header: header.text(), lines, records })
    }
}
