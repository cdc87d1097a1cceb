//! A block through the three phases of the library, on as many threads as wanted.
//!
//! Segments have as many reads as one call of the library's kernels takes. Records do not depend on which thread has which
//! segment: insert sizes come from the whole block, and ties are broken by the ordinal of a read in its lane.

use std::sync::{Mutex, PoisonError};

use godwit_mem::{AlignmentOptions, BlockReads, BuildIndex, Error, LoadOptions, MemLibrary, ReadBatches, ReadBlock};
use godwit_model::{Genome, GenomeError};

use crate::library::{self, Cohort, InsertSizeModel, LoadedIndex, Options, Scratch, Segment};
use crate::records::{PackedBlock, PackedRecords, RecordPacker};
use crate::{index, options};

/// The library with a loaded index.
pub struct Mem3 {
    index: LoadedIndex,
    genome: Genome,
    /// Working memory that no thread uses now.
    scratches: Mutex<Vec<Scratch>>,
}

/// State that the threads of a block share.
struct BlockWork<'b> {
    library: &'b Mem3,
    options: Options,
    threads: usize,
    block: &'b ReadBlock<ReadBatches>,
}

impl MemLibrary for Mem3 {
    const PROGRAM: &'static str = "godwit-bwa-mem3";
    const ENGINE: &'static str = "bwa-mem3";
    const VERSION: &'static str = library::VERSION;
    const BUILD_INDEX: Option<BuildIndex> = None;
    type Reads = ReadBatches;
    type Answer = PackedBlock;

    fn prepare() -> Result<(), String> {
        #[cfg(target_arch = "x86_64")]
        if !is_x86_feature_detected!("avx2") {
            return Err("this processor lacks AVX2, which bwa-mem3 needs; use --aligner bwa".into());
        }
        library::print_warnings_only();
        Ok(())
    }

    fn check(options: &AlignmentOptions) -> Result<(), String> {
        options::check(options)
    }

    /// Sharing is not possible: the library reads its index into memory of its own.
    fn load(options: &LoadOptions<'_>) -> Result<Self, Error> {
        let (index, genome) = index::load(options)?;
        Ok(Self { index, genome, scratches: Mutex::default() })
    }

    fn genome(&self) -> Result<Genome, GenomeError> {
        Ok(self.genome.clone())
    }

    fn align(&self, options: &AlignmentOptions, block: ReadBlock<ReadBatches>) -> Result<PackedBlock, Error> {
        let reads = block.reads.reads();
        let given = options.insert_sizes.as_ref().map(options::insert_sizes);
        let work = BlockWork {
            library: self,
            options: options::of_bwa(&options.mem),
            threads: options.threads(),
            block: &block,
        };
        let segments = work.run(given)?;
        Ok(PackedBlock { reads: reads as u64, segments })
    }
}

impl BlockWork<'_> {
    /// The records of each segment. `given`: insert sizes that are not inferred.
    fn run(&self, given: Option<InsertSizeModel>) -> Result<Vec<PackedRecords>, Error> {
        let (reads, paired) = (&self.block.reads, self.block.header.paired);
        if reads.reads() == 0 {
            return Ok(Vec::new());
        }
        let index = &self.library.index;
        let cohort = Cohort::new(reads.reads(), library::kernel_batch_reads(), paired);
        let mut cohort = cohort.map_err(|problem| self.failed(problem))?;
        self.each_segment(&mut cohort, |segment, scratch| {
            let range = segment.first()..segment.first() + segment.reads();
            let written = segment.write(range.map(|read| reads.read(read)));
            written
                .and_then(|()| segment.seed_extend(index, &self.options, scratch))
                .map_err(|problem| self.failed(problem))
        })?;
        let model = match given {
            _ if !paired => None,
            Some(given) => Some(given),
            None => {
                let inferred = cohort.infer_insert_sizes(index, &self.options);
                Some(inferred.map_err(|problem| self.failed(problem))?)
            }
        };
        self.each_segment(&mut cohort, |segment, scratch| self.emit(segment, scratch, model.as_ref()))
    }

    /// Packs the records of a segment.
    fn emit(
        &self,
        segment: &mut Segment,
        scratch: &mut Scratch,
        model: Option<&InsertSizeModel>,
    ) -> Result<PackedRecords, Error> {
        let ReadBlock { header, read_group, first_ordinal, reads } = self.block;
        let mut packer = RecordPacker::default();
        let mut wrong = None;
        let mut sink = |record: library::EmittedRecord<'_>| {
            if wrong.is_none() {
                let pushed = packer.push(&record, &reads.read(record.read), read_group.as_bytes());
                wrong = pushed.err().map(|source| Error::Record { id: header.id, index: record.read, source });
            }
        };
        let (index, first_ordinal) = (&self.library.index, u64::try_from(*first_ordinal).unwrap_or(0));
        let emitted = segment.emit(index, &self.options, scratch, model, first_ordinal, &mut sink);
        emitted.map_err(|problem| self.failed(problem))?;
        wrong.map_or_else(|| Ok(packer.take()), Err)
    }

    /// Returns the results of `work` for all segments, in order; all threads work.
    ///
    /// # Errors
    /// One of those of `work`: that of the first segment among those that failed.
    fn each_segment<T: Send>(
        &self,
        cohort: &mut Cohort,
        work: impl Fn(&mut Segment, &mut Scratch) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let segments = cohort.segments();
        let threads = self.threads.min(segments.len()).max(1);
        let queue = Mutex::new(segments.iter_mut().enumerate());
        let done = Mutex::new(Vec::new());
        let take_turns = || -> Result<(), Error> {
            let mut scratch = self.library.scratch().map_err(|problem| self.failed(problem))?;
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((number, segment)) = next else { break };
                let outcome = work(segment, &mut scratch);
                done.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome));
            }
            self.library.keep(scratch);
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(take_turns)).collect();
            let own = take_turns();
            others.into_iter().fold(own, |outcome, thread| {
                outcome.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })?;
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn failed(&self, problem: String) -> Error {
        Error::Align { id: self.block.header.id, problem }
    }
}

impl Mem3 {
    /// Working memory for one thread.
    fn scratch(&self) -> Result<Scratch, String> {
        let kept = self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(Scratch::new, Ok)
    }

    fn keep(&self, scratch: Scratch) {
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}
