//! Aligns a block of reads in the three phases of the library, on the requested number of threads.
//!
//! A block is divided into segments; one call of the library's kernels processes a segment. The records do not depend
//! on which thread processes which segment: insert sizes are inferred from the whole block, and the library chooses
//! between equally good alignments by the ordinal of the read in its lane.

use godwit_mem::{AlignmentOptions, BlockReads, BuildIndex, Error, LoadOptions, MemLibrary, ReadBatches, ReadBlock};
use godwit_model::{Genome, GenomeError};
use parking_lot::Mutex;

use crate::library::{self, Cohort, InsertSizeModel, LibraryOptions, LoadedIndex, Scratch, Segment};
use crate::records::{PackedBlock, PackedRecords, RecordPacker};
use crate::{index_loader, options};

/// The bwa-mem3 library with a loaded index.
pub struct BwaMem3Library {
    index: LoadedIndex,
    genome: Genome,
    /// Working memory of earlier threads, for reuse by the threads of the next phase or block.
    free_scratches: Mutex<Vec<Scratch>>,
}

/// State that the threads share while they align a block.
struct BlockContext<'b> {
    library: &'b BwaMem3Library,
    options: LibraryOptions,
    threads: usize,
    block: &'b ReadBlock<ReadBatches>,
}

impl MemLibrary for BwaMem3Library {
    const PROGRAM: &'static str = "godwit-bwa-mem3";
    const ENGINE: &'static str = "bwa-mem3";
    const VERSION: &'static str = library::VERSION;
    const BUILD_INDEX: Option<BuildIndex> = None;
    type Reads = ReadBatches;
    type Answer = PackedBlock;

    fn prepare_process() -> Result<(), String> {
        #[cfg(target_arch = "x86_64")]
        if !is_x86_feature_detected!("avx2") {
            return Err("this processor lacks AVX2, which bwa-mem3 needs; use --aligner bwa".into());
        }
        library::set_verbosity_to_warnings();
        Ok(())
    }

    fn check_options(options: &AlignmentOptions) -> Result<(), String> {
        options::check_options(options)
    }

    /// Loads the index. Ignores [`LoadOptions::share_index`], because the library always reads the index into private
    /// memory.
    fn load(options: &LoadOptions<'_>) -> Result<Self, Error> {
        let (index, genome) = index_loader::load_checked_index(options)?;
        Ok(Self { index, genome, free_scratches: Mutex::default() })
    }

    fn genome(&self) -> Result<Genome, GenomeError> {
        Ok(self.genome.clone())
    }

    fn align(&self, options: &AlignmentOptions, block: ReadBlock<ReadBatches>) -> Result<PackedBlock, Error> {
        let reads = block.reads.read_count();
        let explicit_insert_sizes = options.insert_sizes.as_ref().map(options::insert_size_model);
        let work = BlockContext {
            library: self,
            options: options::options_from_bwa(&options.mem),
            threads: options.threads(),
            block: &block,
        };
        let segments = work.align(explicit_insert_sizes)?;
        Ok(PackedBlock { reads: reads as u64, segments })
    }
}

impl BlockContext<'_> {
    /// Aligns the block and returns the records of each segment. Infers insert sizes unless `explicit_insert_sizes` is
    /// set.
    fn align(&self, explicit_insert_sizes: Option<InsertSizeModel>) -> Result<Vec<PackedRecords>, Error> {
        let (reads, paired) = (&self.block.reads, self.block.header.paired);
        if reads.read_count() == 0 {
            return Ok(Vec::new());
        }
        let index = &self.library.index;
        let cohort = Cohort::new(reads.read_count(), library::kernel_batch_reads(), paired);
        let mut cohort = cohort.map_err(|problem| self.align_error(problem))?;
        self.map_segments(&mut cohort, |segment, scratch| {
            let range = segment.first_read()..segment.first_read() + segment.read_count();
            let written = segment.write_reads(range.map(|read| reads.read(read)));
            written
                .and_then(|()| segment.seed_extend(index, &self.options, scratch))
                .map_err(|problem| self.align_error(problem))
        })?;
        let model = match explicit_insert_sizes {
            _ if !paired => None,
            Some(given) => Some(given),
            None => {
                let inferred = cohort.infer_insert_sizes(index, &self.options);
                Some(inferred.map_err(|problem| self.align_error(problem))?)
            }
        };
        self.map_segments(&mut cohort, |segment, scratch| self.pack_segment(segment, scratch, model.as_ref()))
    }

    /// Resolves the pairs of a segment, and returns its records in BAM's packing.
    fn pack_segment(
        &self,
        segment: &mut Segment,
        scratch: &mut Scratch,
        model: Option<&InsertSizeModel>,
    ) -> Result<PackedRecords, Error> {
        let ReadBlock { header, read_group, first_ordinal, reads } = self.block;
        let mut packer = RecordPacker::default();
        let mut first_error = None;
        let mut sink = |record: library::EmittedRecord<'_>| {
            if first_error.is_none() {
                let pushed = packer.push(&record, &reads.read(record.read), read_group.as_bytes());
                first_error =
                    pushed.err().map(|source| Error::InvalidRecord { id: header.id, index: record.read, source });
            }
        };
        let (index, first_ordinal) = (&self.library.index, u64::try_from(*first_ordinal).unwrap_or(0));
        let emitted = segment.emit_records(index, &self.options, scratch, model, first_ordinal, &mut sink);
        emitted.map_err(|problem| self.align_error(problem))?;
        first_error.map_or_else(|| Ok(packer.take_records()), Err)
    }

    /// Calls `work` for all segments on all threads, and returns the results in the order of the segments.
    ///
    /// # Errors
    /// The error of `work` for the first segment, in order, that failed, or the error of allocating working memory.
    fn map_segments<T: Send>(
        &self,
        cohort: &mut Cohort,
        work: impl Fn(&mut Segment, &mut Scratch) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let segments = cohort.segments();
        let threads = self.threads.min(segments.len()).max(1);
        let queue = Mutex::new(segments.iter_mut().enumerate());
        let done = Mutex::new(Vec::new());
        let process_queue = || -> Result<(), Error> {
            let mut scratch = self.library.take_scratch().map_err(|problem| self.align_error(problem))?;
            loop {
                let next = queue.lock().next();
                let Some((number, segment)) = next else { break };
                let outcome = work(segment, &mut scratch);
                done.lock().push((number, outcome));
            }
            self.library.return_scratch(scratch);
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(process_queue)).collect();
            let own = process_queue();
            others.into_iter().fold(own, |outcome, thread| {
                outcome.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })?;
        let mut done = done.into_inner();
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn align_error(&self, problem: String) -> Error {
        Error::AlignBlock { id: self.block.header.id, problem }
    }
}

impl BwaMem3Library {
    /// Returns working memory for one thread: reuses returned memory, or allocates new memory.
    fn take_scratch(&self) -> Result<Scratch, String> {
        let free_scratch = self.free_scratches.lock().pop();
        free_scratch.map_or_else(Scratch::new, Ok)
    }

    fn return_scratch(&self, scratch: Scratch) {
        self.free_scratches.lock().push(scratch);
    }
}
