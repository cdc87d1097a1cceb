//! Collection of the signatures of all blocks, and decision of duplicates.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use godwit_model::{BlockId, DuplicateCounts, EndSignature, PairSignature, RecordId, end_flags};
use parking_lot::Mutex;

use super::DuplicateMode;
use super::barcodes::Barcodes;
use super::duplicate_decider::{
    CrossLibraryMates, DecidedRange, DecidingContext, DuplicateDecider, Fragment, PendingEnd, SortedSignatures,
};
use super::duplicate_sets::DuplicateSets;
use super::duplication_metrics::{DuplicationMetrics, LibraryMetrics};
use super::mate_join::{RepeatedNameError, join_ends_of_name, join_mates, split_pair};
use super::paired_ends::{PairedEndBatch, PairedEnds};
use super::record_set::{RecordSet, SharedRecordSet};
use super::signature::BlockSignatures;
use super::sort_items::{BarcodedEnd, EndItem, PairItem};
use super::template_lists::TemplateLists;
use super::templates::{BlockTemplates, Templates};
use crate::sort::{ExternalSorter, RangeBorders, SortedItems, Spill};
use crate::threads::for_each_index;

/// Bit in a name key that is set if the mates with this name were joined within their block.
const JOINED_BIT: u64 = 1;
/// Number of signatures that are converted before they are added to the sorters. The batch fits the processor cache.
const SIGNATURES_PER_BATCH: usize = 256;
/// Number of joined pairs that a thread adds to the sorter of all threads at once.
const PAIRS_PER_BATCH: usize = 1024;

/// Options of duplicate marking.
pub struct DuplicateMarkerOptions {
    /// Names of the libraries, by index. [`super::UNKNOWN_LIBRARY`] may be one of them.
    pub libraries: Vec<String>,
    /// Number of libraries that the read groups in the header name. They are the first in `libraries` and are reported
    /// even if they have no records.
    pub header_libraries: usize,
    /// Maximum distance between optical duplicates, in pixels, for x and for y.
    pub optical_distance: i32,
    /// Mode of marking: single reads or whole templates.
    pub mode: DuplicateMode,
    /// True if reads with different barcodes are not duplicates. [`BlockDetails`] must then contain the barcodes.
    pub uses_barcodes: bool,
    /// True if the result includes the set of optical duplicates.
    pub report_optical: bool,
    /// True if the result includes the duplicate sets.
    pub report_sets: bool,
    /// Memory budget for signatures, bytes.
    pub memory_bytes: usize,
    /// Number of threads that sort signatures and decide duplicates, at least one. The result does not depend on it.
    pub threads: usize,
}

/// Data of a block that only some options need, in addition to its signatures.
#[derive(Debug, Default)]
pub struct BlockDetails {
    /// Templates of the block; needed for [`DuplicateMode::Query`].
    pub templates: BlockTemplates,
    /// Barcodes of each record, by index; needed for [`DuplicateMarkerOptions::uses_barcodes`]. Only those of mapped
    /// primary records are used.
    pub barcodes: Vec<Barcodes>,
}

/// The result of duplicate marking.
#[derive(Debug, Default)]
pub struct DuplicateMarks {
    /// The records that are duplicates.
    pub duplicates: RecordSet,
    /// The records that are optical duplicates, if requested.
    pub optical: Option<RecordSet>,
    /// The duplicate sets, if requested. In the mode [`DuplicateMode::Query`], the `index` of each set is already set.
    pub sets: Option<DuplicateSets>,
    /// The metrics that Picard prints. In the mode [`DuplicateMode::Query`], the caller has to count the duplicate
    /// records and call [`DuplicationMetrics::set_duplicates`].
    pub metrics: DuplicationMetrics,
}

/// An error of duplicate marking.
#[derive(Debug, thiserror::Error)]
pub enum MarkDuplicatesError {
    /// Writing or reading the scratch storage failed.
    #[error("sorting duplicate signatures failed")]
    Spill(#[from] io::Error),
    /// More reads share a name than Picard can join.
    #[error(transparent)]
    RepeatedName(#[from] RepeatedNameError),
}

/// A duplicate marker. It receives the signatures of all blocks in any order and then decides which records are
/// duplicates.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::markdup::{BlockDetails, DuplicateMarker};
/// # use std::{io, sync::Arc};
/// # use godwit_kernels::markdup::{DuplicateMarkerOptions, DuplicateMode, SignatureBuilder};
/// # use godwit_kernels::sort::Spill;
/// # use godwit_model::{BlockId, RawRecord};
///
/// # let read = |name: &[u8; 4], position: i32, mate: i32, flag: i32, quality: i32| {
/// #     let (name, qualities) = (i32::from_le_bytes(*name), quality * 0x0101_0101);
/// #     let fixed = [0, position, 4681 << 16 | 60 << 8 | 4, flag << 16 | 1, 8, 0, mate, 0];
/// #     [&fixed[..], &[name, 8 << 4, 0x4812_4812, qualities, qualities]].concat()
/// # };
/// # let bytes = |words: Vec<i32>| words.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<u8>>();
/// # struct NoSpill;
/// # impl Spill for NoSpill {
/// #     fn append(&self, _: &[u8]) -> io::Result<u64> {
/// #         Err(io::ErrorKind::Unsupported.into())
/// #     }
/// #     fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
/// #         Err(io::ErrorKind::Unsupported.into())
/// #     }
/// # }
/// # let options = DuplicateMarkerOptions {
/// #     libraries: vec!["lib1".to_owned()],
/// #     header_libraries: 1,
/// #     optical_distance: 100,
/// #     mode: DuplicateMode::Coordinate,
/// #     uses_barcodes: false,
/// #     report_optical: false,
/// #     report_sets: false,
/// #     memory_bytes: 1 << 20,
/// #     threads: 1,
/// # };
/// # let reads = [
/// #     read(b"r01\0", 999, 1_291, 99, 30),
/// #     read(b"r01\0", 1_291, 999, 147, 30),
/// #     read(b"r02\0", 999, 1_291, 99, 20),
/// #     read(b"r02\0", 1_291, 999, 147, 20),
/// # ];
/// # let (block, spill) = (BlockId { lane: 0, ordinal: 0 }, Arc::new(NoSpill));
/// # let mut builder = SignatureBuilder::new();
/// # for (index, words) in reads.into_iter().enumerate() {
/// #     builder.push(block.record(index as u32), RawRecord::from_bytes(&bytes(words), 1)?, 0, 0, b"rg1");
/// # }
/// # let signatures = builder.finish_block();
/// // `signatures` are those of two pairs with equal 5' positions; the second one has the lower base qualities.
/// let mut marker = DuplicateMarker::new(options, spill);
/// marker.add_block(block, &signatures, BlockDetails::default())?;
/// let marks = marker.finish()?;
/// assert_eq!([0, 1, 2, 3].map(|index| marks.duplicates.contains(block.record(index))), [false, false, true, true]);
/// assert_eq!(marks.metrics.libraries[0].pair_duplicates(), 1);
/// # Ok(())
/// # }
/// ```
pub struct DuplicateMarker(MarkerSorters);

/// The sorters of signatures, without or with barcodes. Signatures with barcodes are larger.
enum MarkerSorters {
    Plain(SignatureSorters<EndSignature>),
    Barcoded(SignatureSorters<BarcodedEnd>),
}

impl DuplicateMarker {
    /// Creates a marker without signatures. Data that exceed the memory budget are written to `spill`.
    pub fn new(options: DuplicateMarkerOptions, spill: Arc<dyn Spill>) -> Self {
        Self(if options.uses_barcodes {
            MarkerSorters::Barcoded(SignatureSorters::new(options, spill))
        } else {
            MarkerSorters::Plain(SignatureSorters::new(options, spill))
        })
    }

    /// Adds the signatures of a block.
    ///
    /// # Errors
    /// The I/O error of the spill.
    ///
    /// # Panics
    /// If `details` lacks data that the options require.
    pub fn add_block(&mut self, id: BlockId, block: &BlockSignatures, details: BlockDetails) -> io::Result<()> {
        match &mut self.0 {
            MarkerSorters::Plain(sorters) => sorters.add_block(id, block, details),
            MarkerSorters::Barcoded(sorters) => sorters.add_block(id, block, details),
        }
    }

    /// Decides every duplicate set and returns the result.
    ///
    /// # Errors
    /// The I/O error of the spill; [`MarkDuplicatesError::RepeatedName`] if reads share a name in a way with which
    /// Picard also fails.
    pub fn finish(self) -> Result<DuplicateMarks, MarkDuplicatesError> {
        match self.0 {
            MarkerSorters::Plain(sorters) => sorters.finish(),
            MarkerSorters::Barcoded(sorters) => sorters.finish(),
        }
    }
}

struct SignatureSorters<E: EndItem> {
    options: DuplicateMarkerOptions,
    pairs: ExternalSorter<E::Pair>,
    pending_ends: ExternalSorter<PendingEnd<E>>,
    fragments: ExternalSorter<Fragment<E>>,
    /// Keys of the names of templates with mapped mates: 63 bits of the hash of the name, and [`JOINED_BIT`].
    names: ExternalSorter<u64>,
    /// For each block: a number above the index of every record that has a signature.
    record_counts: HashMap<BlockId, u32>,
    counts: Vec<DuplicateCounts>,
    /// For each contig: true if the contig has a read with a mapped mate.
    visited_contigs: Vec<bool>,
    template_state: TemplateState,
    buffers: SorterBuffers<E>,
    spill: Arc<dyn Spill>,
}

/// State that only [`DuplicateMode::Query`] needs.
#[derive(Default)]
struct TemplateState {
    blocks: Vec<(BlockId, BlockTemplates)>,
    /// For each library: its first mapped primary record in input order.
    first_records: Vec<Option<RecordId>>,
}

/// Buffers of converted signatures that have not yet been added to the sorters.
struct SorterBuffers<E: EndItem> {
    pairs: Vec<E::Pair>,
    pending_ends: Vec<PendingEnd<E>>,
    fragments: Vec<Fragment<E>>,
    names: Vec<u64>,
}

fn name_key(name: [u64; 2], joined: u64) -> u64 {
    name[1] & !JOINED_BIT | joined
}

impl<E: EndItem> SignatureSorters<E> {
    fn new(options: DuplicateMarkerOptions, spill: Arc<dyn Spill>) -> Self {
        // A pair of neighbouring mates needs 72 bytes as pair and 8 as name. Aligner output has few fragments and pending
        // ends, but other input may consist of them. A tenth remains for the paired ends that fragments may have.
        let share = |percent: usize| options.memory_bytes / 100 * percent;
        let threads = options.threads;
        Self {
            pairs: ExternalSorter::new(share(50), threads, spill.clone()),
            pending_ends: ExternalSorter::new(share(20), threads, spill.clone()),
            fragments: ExternalSorter::new(share(15), threads, spill.clone()),
            names: ExternalSorter::new(share(5), threads, spill.clone()),
            record_counts: HashMap::new(),
            counts: vec![DuplicateCounts::default(); options.libraries.len()],
            visited_contigs: Vec::new(),
            template_state: TemplateState {
                first_records: vec![None; options.libraries.len()],
                ..TemplateState::default()
            },
            buffers: SorterBuffers {
                pairs: Vec::new(),
                pending_ends: Vec::new(),
                fragments: Vec::new(),
                names: Vec::new(),
            },
            options,
            spill,
        }
    }

    fn add_block(&mut self, id: BlockId, block: &BlockSignatures, details: BlockDetails) -> io::Result<()> {
        for (total, counts) in self.counts.iter_mut().zip(&block.counts) {
            total.add(counts);
        }
        let records = block.pairs.iter().flat_map(|pair| [pair.record1, pair.record2]);
        let last_record = records.chain(block.ends.iter().map(|end| end.record)).map(RecordId::index).max();
        self.record_counts.insert(id, last_record.map_or(0, |last| last + 1));
        let BlockDetails { templates, barcodes } = details;
        let by_template = self.options.mode == DuplicateMode::Query;
        for pairs in block.pairs.chunks(SIGNATURES_PER_BATCH) {
            for pair in pairs {
                let pair = if by_template { self.pair_in_input_order(pair, &templates) } else { *pair };
                self.add_pair(pair, &barcodes);
            }
            self.flush_buffers()?;
        }
        for ends in block.ends.chunks(SIGNATURES_PER_BATCH) {
            for end in ends {
                let end = if by_template { self.end_in_input_order(*end, &templates) } else { *end };
                self.add_end(end, &barcodes);
            }
            self.flush_buffers()?;
        }
        if by_template {
            self.template_state.blocks.push((id, templates));
        }
        Ok(())
    }

    fn flush_buffers(&mut self) -> io::Result<()> {
        self.pairs.extend(&self.buffers.pairs)?;
        self.pending_ends.extend(&self.buffers.pending_ends)?;
        self.fragments.extend(&self.buffers.fragments)?;
        self.names.extend(&self.buffers.names)?;
        self.buffers.pairs.clear();
        self.buffers.pending_ends.clear();
        self.buffers.fragments.clear();
        self.buffers.names.clear();
        Ok(())
    }

    /// Returns the pair with input order as its file order; end 1 and end 2 are determined again by this order.
    fn pair_in_input_order(&mut self, pair: &PairSignature, templates: &BlockTemplates) -> PairSignature {
        let [one, two] = split_pair(pair).map(|end| self.end_in_input_order(end, templates));
        if one.record < two.record { join_mates(&one, &two) } else { join_mates(&two, &one) }
    }

    /// Returns the end with input order as its file order. Also updates the first record of the library.
    fn end_in_input_order(&mut self, end: EndSignature, templates: &BlockTemplates) -> EndSignature {
        let first = &mut self.template_state.first_records[usize::from(end.library)];
        *first = Some(first.map_or(end.record, |record| record.min(end.record)));
        let position = templates.index_in_template(end.record.index()) as i32;
        EndSignature { position, flags: end.flags | end_flags::INPUT_ORDER, ..end }
    }

    fn add_pair(&mut self, pair: PairSignature, barcodes: &[Barcodes]) {
        let item = E::Pair::new(pair, barcodes);
        self.buffers.pairs.push(item);
        self.buffers.names.push(name_key(pair.name, JOINED_BIT));
        mark_contig_visited(&mut self.visited_contigs, pair.contig1);
        mark_contig_visited(&mut self.visited_contigs, pair.contig2);
    }

    fn add_end(&mut self, end: EndSignature, barcodes: &[Barcodes]) {
        let item = E::new(end, barcodes);
        if !end.is_paired() {
            self.buffers.fragments.push(Fragment(item));
        }
        if end.flags & end_flags::MATE_MAPPED != 0 {
            mark_contig_visited(&mut self.visited_contigs, end.contig);
            self.buffers.pending_ends.push(PendingEnd(item));
            self.buffers.names.push(name_key(end.name, 0));
        }
    }

    fn finish(self) -> Result<DuplicateMarks, MarkDuplicatesError> {
        let Self { options, mut pending_ends, visited_contigs, template_state, spill, .. } = self;
        let pairs = self.pairs.finish()?;
        let fragments = self.fragments.finish()?;
        let paired_ends = PairedEnds::new(&fragments, options.memory_bytes / 10, options.threads, &spill)?;
        let superseded_names = split_repeated_names(options.threads, &self.names.finish()?, &pairs, &mut pending_ends)?;
        let (rejoined_pairs, cross_library_mates) =
            join_pending_ends(pending_ends.finish()?, &options, &visited_contigs, &paired_ends, &spill)?;
        let signatures = SortedSignatures { pairs, superseded_names, rejoined_pairs, fragments };
        let mut lists = (options.mode == DuplicateMode::Query)
            .then(|| template_state.into_template_lists(options.memory_bytes / 5, options.threads, &spill));
        let duplicates = SharedRecordSet::new(&self.record_counts);
        let optical = options.report_optical.then(|| SharedRecordSet::new(&self.record_counts));
        let context = DecidingContext {
            cross_library_mates: &cross_library_mates,
            libraries: options.libraries.len(),
            optical_distance: options.optical_distance,
            duplicates: &duplicates,
            optical: optical.as_ref(),
            report_sets: options.report_sets,
        };
        let DecidedRange { libraries: decided, set_sizes, sets } =
            decide(&signatures, paired_ends, &context, options.threads, lists.as_mut())?;
        let mut marking = DuplicateMarks {
            duplicates: duplicates.finish(),
            optical: optical.map(SharedRecordSet::finish),
            sets,
            metrics: DuplicationMetrics { libraries: Vec::new(), set_sizes },
        };
        if let Some(lists) = lists {
            lists.replay_second_pass(&mut marking)?;
        }
        if let Some(sets) = &mut marking.sets {
            sets.finish();
        }
        let libraries = options.libraries.into_iter().zip(self.counts).zip(decided);
        marking.metrics.libraries = libraries
            .enumerate()
            .map(|(index, ((library, counts), decided))| (index, LibraryMetrics { library, counts, ..decided }))
            .filter(|(index, library)| {
                *index < options.header_libraries || library.counts != DuplicateCounts::default()
            })
            .map(|(_, library)| library)
            .collect();
        marking.metrics.libraries.sort_by(|a, b| a.library.cmp(&b.library));
        Ok(marking)
    }
}

/// Decides all duplicates. Threads decide ranges of the signatures, but one thread decides all with `template_lists`,
/// whose entries must be in the order of the signatures.
fn decide<E: EndItem>(
    signatures: &SortedSignatures<E>,
    paired_ends: PairedEnds<E::Key>,
    context: &DecidingContext,
    threads: usize,
    template_lists: Option<&mut TemplateLists>,
) -> io::Result<DecidedRange> {
    let fragments = &signatures.fragments;
    if template_lists.is_some() {
        let mut decider = DuplicateDecider::new(context, template_lists);
        decider.decide_pairs(signatures, &RangeBorders::none(), 0, &paired_ends)?;
        decider.decide_fragments(fragments, &paired_ends.finish()?, &RangeBorders::none(), 0)?;
        return Ok(decider.decided);
    }
    let (pairs, rejoined_pairs) = (&signatures.pairs, &signatures.rejoined_pairs);
    let larger = if pairs.item_count() < rejoined_pairs.item_count() { rejoined_pairs } else { pairs };
    let borders = larger.range_borders()?;
    let mut decided = for_each_index(
        threads,
        borders.range_count(),
        || (),
        |(), range| {
            let mut decider = DuplicateDecider::new(context, None);
            decider.decide_pairs(signatures, &borders, range, &paired_ends).map(|()| decider.decided)
        },
    )?;
    let paired_ends = paired_ends.finish()?;
    let borders = fragments.range_borders()?.map(|Fragment(end)| end.position_key());
    decided.extend(for_each_index(
        threads,
        borders.range_count(),
        || (),
        |(), range| {
            let mut decider = DuplicateDecider::new(context, None);
            decider.decide_fragments(fragments, &paired_ends, &borders, range).map(|()| decider.decided)
        },
    )?);
    let mut all = DecidedRange::new(context);
    decided.into_iter().for_each(|range| all.append(range));
    Ok(all)
}

impl TemplateState {
    fn into_template_lists(self, memory_bytes: usize, threads: usize, spill: &Arc<dyn Spill>) -> TemplateLists {
        TemplateLists::new(Templates::new(self.blocks), &self.first_records, memory_bytes, threads, spill)
    }
}

/// Marks a contig as having a read with a mapped mate.
fn mark_contig_visited(contigs: &mut Vec<bool>, contig: i32) {
    let index = contig.max(0) as usize;
    if contigs.len() <= index {
        contigs.resize(index + 1, false);
    }
    contigs[index] = true;
}

/// Finds names that joined pairs share with other reads. Splits these pairs and adds their ends to `waiting`, so that
/// all reads of the name are joined in file order. Returns the names of the split pairs.
fn split_repeated_names<E: EndItem>(
    threads: usize,
    names: &SortedItems<u64>,
    pairs: &SortedItems<E::Pair>,
    waiting: &mut ExternalSorter<PendingEnd<E>>,
) -> io::Result<HashSet<[u64; 2]>> {
    let borders = names.range_borders()?;
    let repeated =
        for_each_index(threads, borders.range_count(), || (), |(), range| repeated_names(names, &borders, range))?;
    let repeated: HashSet<u64> = repeated.into_iter().flatten().collect();
    let mut superseded = HashSet::new();
    if repeated.is_empty() {
        return Ok(superseded);
    }
    let mut iter = pairs.iter()?;
    while let Some(pair) = iter.next()? {
        let name = pair.signature().name;
        if repeated.contains(&(name[1] & !JOINED_BIT)) {
            superseded.insert(name);
            waiting.extend(&pair.ends().map(PendingEnd))?;
        }
    }
    Ok(superseded)
}

/// Returns the names in a range that joined pairs share with other reads.
fn repeated_names(names: &SortedItems<u64>, borders: &RangeBorders<u64>, range: usize) -> io::Result<Vec<u64>> {
    let mut repeated = Vec::new();
    let mut iter = names.range(borders, range, |name, border| *name < border & !JOINED_BIT)?;
    let (mut current, mut members, mut joined) = (None, 0u64, 0u64);
    loop {
        let next = iter.next()?;
        let name = next.map(|tag| tag & !JOINED_BIT);
        if name != current {
            if members > 1 && joined > 0 {
                repeated.extend(current);
            }
            (current, members, joined) = (name, 0, 0);
        }
        let Some(name_key) = next else { return Ok(repeated) };
        members += 1;
        joined += name_key & JOINED_BIT;
    }
}

/// Joins the pending ends of each name, and adds them to `paired_ends`. Returns the pairs, and the records that belong
/// to another library than their pair.
fn join_pending_ends<E: EndItem>(
    waiting: SortedItems<PendingEnd<E>>,
    options: &DuplicateMarkerOptions,
    visited_contigs: &[bool],
    paired_ends: &PairedEnds<E::Key>,
    spill: &Arc<dyn Spill>,
) -> Result<(SortedItems<E::Pair>, CrossLibraryMates), MarkDuplicatesError> {
    let pairs = Mutex::new(ExternalSorter::new(options.memory_bytes / 5, options.threads, spill.clone()));
    let borders = waiting.range_borders()?;
    let mates = for_each_index(
        options.threads,
        borders.range_count(),
        || (),
        |(), range| {
            let mut ends = paired_ends.batch();
            let mates =
                join_pending_range(&waiting, &borders, range, options.mode, visited_contigs, &mut ends, &pairs)?;
            ends.flush()?;
            Ok::<_, MarkDuplicatesError>(mates)
        },
    )?;
    drop(waiting);
    let pairs = pairs.into_inner();
    Ok((pairs.finish()?, mates.into_iter().flatten().collect()))
}

/// Joins the pending ends in a range of names. Adds the ends to `paired_ends` and the pairs to `pairs`. Returns the
/// records that belong to another library than their pair.
fn join_pending_range<E: EndItem>(
    waiting: &SortedItems<PendingEnd<E>>,
    borders: &RangeBorders<PendingEnd<E>>,
    range: usize,
    mode: DuplicateMode,
    visited_contigs: &[bool],
    paired_ends: &mut PairedEndBatch<E::Key>,
    pairs: &Mutex<ExternalSorter<E::Pair>>,
) -> Result<CrossLibraryMates, MarkDuplicatesError> {
    let visited = |contig: i32| visited_contigs.get(contig as usize).copied().unwrap_or(false);
    let name_of = |PendingEnd(end): &PendingEnd<E>| end.signature().name;
    let mut joined = Vec::new();
    let mut foreign = CrossLibraryMates::new();
    let mut group: Vec<E> = Vec::new();
    let mut iter = waiting.range(borders, range, |end, border| name_of(end) < name_of(border))?;
    loop {
        let next = iter.next()?;
        if group.first().is_some_and(|first| next.as_ref().map(name_of) != Some(first.signature().name)) {
            join_ends_of_name(&mut group, mode, visited, |pair: E::Pair, second| {
                let (second, library) = (second.signature(), pair.signature().library);
                if second.library != library {
                    foreign.insert(second.record, second.library);
                }
                joined.push(pair);
            })?;
            group.clear();
        }
        if joined.len() >= PAIRS_PER_BATCH || next.is_none() {
            pairs.lock().extend(&joined)?;
            joined.clear();
        }
        let Some(PendingEnd(end)) = next else { return Ok(foreign) };
        if end.signature().is_paired() {
            paired_ends.push(end.position_key())?;
        }
        group.push(end);
    }
}
