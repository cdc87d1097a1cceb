//! Collection of the signatures of all blocks, and decision of duplicates.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use godwit_model::{BlockId, DuplicateCounts, EndSignature, PairSignature, RecordId, end_flags};

use super::DuplicateMode;
use super::barcodes::Barcodes;
use super::duplicate_decider::{CrossLibraryMates, DuplicateDecider, Fragment, PendingEnd};
use super::duplicate_sets::DuplicateSets;
use super::duplication_metrics::{DuplicationMetrics, LibraryMetrics};
use super::mate_join::{RepeatedNameError, join_ends_of_name, join_mates, split_pair};
use super::record_set::RecordSet;
use super::signature::BlockSignatures;
use super::sort_items::{BarcodedEnd, EndItem, PairItem};
use super::template_lists::TemplateLists;
use super::templates::{BlockTemplates, Templates};
use crate::sort::{ExternalSorter, SortedItems, Spill};

/// Bit in a name key that is set if the mates with this name were joined within their block.
const JOINED_BIT: u64 = 1;
/// Number of signatures that are converted before they are added to the sorters. The batch fits the processor cache.
const SIGNATURES_PER_BATCH: usize = 256;

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
    paired_ends: ExternalSorter<E::Key>,
    /// Keys of the names of templates with mapped mates: 63 bits of the hash of the name, and [`JOINED_BIT`].
    names: ExternalSorter<u64>,
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
    paired_ends: Vec<E::Key>,
    names: Vec<u64>,
}

fn name_key(name: [u64; 2], joined: u64) -> u64 {
    name[1] & !JOINED_BIT | joined
}

impl<E: EndItem> SignatureSorters<E> {
    fn new(options: DuplicateMarkerOptions, spill: Arc<dyn Spill>) -> Self {
        // The memory is divided by the number of bytes that a pair of neighbouring mates needs: 72 as pair, 32 as two
        // ends, 8 as name. Aligner output has few fragments and pending ends, but other input may consist of them.
        let share = |percent: usize| options.memory_bytes / 100 * percent;
        Self {
            pairs: ExternalSorter::new(share(40), spill.clone()),
            pending_ends: ExternalSorter::new(share(20), spill.clone()),
            fragments: ExternalSorter::new(share(15), spill.clone()),
            paired_ends: ExternalSorter::new(share(20), spill.clone()),
            names: ExternalSorter::new(share(5), spill.clone()),
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
                paired_ends: Vec::new(),
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
        self.paired_ends.extend(&self.buffers.paired_ends)?;
        self.names.extend(&self.buffers.names)?;
        self.buffers.pairs.clear();
        self.buffers.pending_ends.clear();
        self.buffers.fragments.clear();
        self.buffers.paired_ends.clear();
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
        self.buffers.paired_ends.extend(item.position_keys());
        self.buffers.pairs.push(item);
        self.buffers.names.push(name_key(pair.name, JOINED_BIT));
        mark_contig_visited(&mut self.visited_contigs, pair.contig1);
        mark_contig_visited(&mut self.visited_contigs, pair.contig2);
    }

    fn add_end(&mut self, end: EndSignature, barcodes: &[Barcodes]) {
        let item = E::new(end, barcodes);
        if end.is_paired() {
            self.buffers.paired_ends.push(item.position_key());
        } else {
            self.buffers.fragments.push(Fragment(item));
        }
        if end.flags & end_flags::MATE_MAPPED != 0 {
            mark_contig_visited(&mut self.visited_contigs, end.contig);
            self.buffers.pending_ends.push(PendingEnd(item));
            self.buffers.names.push(name_key(end.name, 0));
        }
    }

    fn finish(self) -> Result<DuplicateMarks, MarkDuplicatesError> {
        let Self {
            options,
            pairs,
            mut pending_ends,
            fragments,
            paired_ends,
            names,
            counts,
            visited_contigs,
            template_state,
            spill,
            ..
        } = self;
        // The fragments and paired ends are sorted in another thread while this thread sorts the pairs.
        let (pairs, fragments_and_ends) = std::thread::scope(|scope| {
            let ends = scope.spawn(|| -> io::Result<_> { Ok((fragments.finish()?, paired_ends.finish()?)) });
            let pairs = pairs.finish();
            (pairs, ends.join())
        });
        let pairs = pairs?;
        let (fragments, paired_ends) = fragments_and_ends.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let superseded = split_repeated_names(&names.finish()?, &pairs, &mut pending_ends)?;
        let (joined_anew, foreign_libraries) =
            join_pending_ends(pending_ends, options.mode, &visited_contigs, options.memory_bytes / 5, &spill)?;
        let mut lists = (options.mode == DuplicateMode::Query)
            .then(|| template_state.into_template_lists(options.memory_bytes / 5, &spill));
        let mut libraries: Vec<LibraryMetrics> = options
            .libraries
            .iter()
            .zip(&counts)
            .map(|(name, counts)| LibraryMetrics { library: name.clone(), counts: *counts, ..Default::default() })
            .collect();
        let mut marking = DuplicateMarks {
            optical: options.report_optical.then(RecordSet::default),
            sets: options.report_sets.then(DuplicateSets::default),
            ..DuplicateMarks::default()
        };
        let mut decider = DuplicateDecider {
            libraries: &mut libraries,
            set_sizes: &mut marking.metrics.set_sizes,
            duplicates: &mut marking.duplicates,
            cross_library_mates: &foreign_libraries,
            optical_distance: options.optical_distance,
            optical: marking.optical.as_mut(),
            sets: marking.sets.as_mut(),
            template_lists: lists.as_mut(),
        };
        decider.decide_pairs(&pairs, &superseded, &joined_anew)?;
        decider.decide_fragments(&fragments, &paired_ends)?;
        if let Some(lists) = lists {
            lists.replay_second_pass(&mut marking)?;
        }
        if let Some(sets) = &mut marking.sets {
            sets.finish();
        }
        let header_libraries = options.header_libraries;
        marking.metrics.libraries = libraries
            .into_iter()
            .enumerate()
            .filter(|(index, library)| *index < header_libraries || library.counts != DuplicateCounts::default())
            .map(|(_, library)| library)
            .collect();
        marking.metrics.libraries.sort_by(|a, b| a.library.cmp(&b.library));
        Ok(marking)
    }
}

impl TemplateState {
    fn into_template_lists(self, memory_bytes: usize, spill: &Arc<dyn Spill>) -> TemplateLists {
        TemplateLists::new(Templates::new(self.blocks), &self.first_records, memory_bytes, spill)
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
    names: &SortedItems<u64>,
    pairs: &SortedItems<E::Pair>,
    waiting: &mut ExternalSorter<PendingEnd<E>>,
) -> io::Result<HashSet<[u64; 2]>> {
    let mut repeated: HashSet<u64> = HashSet::new();
    let mut iter = names.iter()?;
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
        let Some(name_key) = next else { break };
        members += 1;
        joined += name_key & JOINED_BIT;
    }
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

/// Joins the pending ends of each name. Returns the pairs, and the records that belong to another library than their
/// pair.
fn join_pending_ends<E: EndItem>(
    waiting: ExternalSorter<PendingEnd<E>>,
    mode: DuplicateMode,
    visited_contigs: &[bool],
    memory_bytes: usize,
    spill: &Arc<dyn Spill>,
) -> Result<(SortedItems<E::Pair>, CrossLibraryMates), MarkDuplicatesError> {
    let visited = |contig: i32| visited_contigs.get(contig as usize).copied().unwrap_or(false);
    let waiting = waiting.finish()?;
    let mut pairs = ExternalSorter::new(memory_bytes, spill.clone());
    let mut joined = Vec::new();
    let mut foreign = CrossLibraryMates::new();
    let mut group: Vec<E> = Vec::new();
    let mut iter = waiting.iter()?;
    loop {
        let next = iter.next()?.map(|PendingEnd(end)| end);
        let name = next.as_ref().map(|end| end.signature().name);
        if group.first().is_some_and(|first| name != Some(first.signature().name)) {
            join_ends_of_name(&mut group, mode, visited, |pair: E::Pair, second| {
                let (second, library) = (second.signature(), pair.signature().library);
                if second.library != library {
                    foreign.insert(second.record, second.library);
                }
                joined.push(pair);
            })?;
            group.clear();
        }
        if joined.len() >= 1024 || next.is_none() {
            pairs.extend(&joined)?;
            joined.clear();
        }
        match next {
            Some(end) => group.push(end),
            None => break,
        }
    }
    drop(iter);
    drop(waiting);
    Ok((pairs.finish()?, foreign))
}
