//! Collects the signatures of all blocks and decides duplicates.

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

/// Bit of a name's hash that is set if its mates were joined within a block.
const JOINED_BIT: u64 = 1;
/// Number of signatures that are converted before they go to the sorters: few enough to stay in the cache.
const SIGNATURES_PER_BATCH: usize = 256;

/// Options of duplicate marking.
pub struct DuplicateMarkerOptions {
    /// Names of the libraries, by index; [`super::UNKNOWN_LIBRARY`] may be among them.
    pub libraries: Vec<String>,
    /// Number of libraries that the header's read groups name: they are reported even without a record.
    pub header_libraries: usize,
    /// Maximum distance of optical duplicates, pixels in x and in y.
    pub optical_distance: i32,
    /// Marking of reads or of templates.
    pub mode: DuplicateMode,
    /// True if barcodes distinguish duplicates; [`BlockDetails`] then contains them.
    pub uses_barcodes: bool,
    /// True if the result includes the optical duplicates.
    pub report_optical: bool,
    /// True if the result includes the duplicate sets.
    pub report_sets: bool,
    /// Memory for signatures, bytes.
    pub memory_bytes: usize,
}

/// Data of a block that options other than the default ones need besides its signatures.
#[derive(Debug, Default)]
pub struct BlockDetails {
    /// Templates, for [`DuplicateMode::Query`].
    pub templates: BlockTemplates,
    /// For [`DuplicateMarkerOptions::uses_barcodes`], of each record by index; only mapped primary ones are read.
    pub barcodes: Vec<Barcodes>,
}

/// The outcome of marking.
#[derive(Debug, Default)]
pub struct DuplicateMarks {
    /// The duplicates.
    pub duplicates: RecordSet,
    /// The optical duplicates, if requested.
    pub optical: Option<RecordSet>,
    /// The duplicate sets, if requested; with [`DuplicateMode::Query`] they already have their indices.
    pub sets: Option<DuplicateSets>,
    /// Picard's metrics. With [`DuplicateMode::Query`] the caller still has to count the duplicates, record by record.
    pub metrics: DuplicationMetrics,
}

/// An error of duplicate marking.
#[derive(Debug, thiserror::Error)]
pub enum MarkDuplicatesError {
    /// An I/O error of the scratch space.
    #[error("sorting duplicate signatures failed")]
    Spill(#[from] io::Error),
    /// More reads share a name than Picard can distinguish.
    #[error(transparent)]
    RepeatedName(#[from] RepeatedNameError),
}

/// A marker that receives the signatures of every block in any order, then decides all of them.
pub struct DuplicateMarker(MarkerSorters);

/// Sorters with or without barcodes: signatures are larger with them.
enum MarkerSorters {
    Plain(SignatureSorters<EndSignature>),
    Barcoded(SignatureSorters<BarcodedEnd>),
}

impl DuplicateMarker {
    /// Creates a marker without signatures; data beyond its memory goes to `spill`.
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
    /// If the details lack data that the options require.
    pub fn add_block(&mut self, id: BlockId, block: &BlockSignatures, details: BlockDetails) -> io::Result<()> {
        match &mut self.0 {
            MarkerSorters::Plain(sorters) => sorters.add_block(id, block, details),
            MarkerSorters::Barcoded(sorters) => sorters.add_block(id, block, details),
        }
    }

    /// Decides every duplicate set.
    ///
    /// # Errors
    /// The I/O error of the spill; [`MarkDuplicatesError::RepeatedName`] where Picard stops too.
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
    /// For each template with mapped mates a 63-bit hash of its name, and [`JOINED_BIT`].
    names: ExternalSorter<u64>,
    counts: Vec<DuplicateCounts>,
    /// For each contig, whether it has a read with a mapped mate.
    visited_contigs: Vec<bool>,
    template_state: TemplateState,
    buffers: SorterBuffers<E>,
    spill: Arc<dyn Spill>,
}

/// State that only [`DuplicateMode::Query`] needs.
#[derive(Default)]
struct TemplateState {
    blocks: Vec<(BlockId, BlockTemplates)>,
    /// For each library, its first mapped primary record.
    first_records: Vec<Option<RecordId>>,
}

/// Reused buffers.
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
        // Percentages follow the bytes of a pair of neighbouring mates: 72 as pair, 32 as two ends, 8 as name. Fragments and
        // pending ends are few in aligner output, but may be everything in other input.
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

    /// Returns a pair that was joined again, with the end first that is first in the input.
    fn pair_in_input_order(&mut self, pair: &PairSignature, templates: &BlockTemplates) -> PairSignature {
        let [one, two] = split_pair(pair).map(|end| self.end_in_input_order(end, templates));
        if one.record < two.record { join_mates(&one, &two) } else { join_mates(&two, &one) }
    }

    /// Returns an end whose file order is that of the input.
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
        // Two independent sorts run in parallel with the join of mates.
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

/// Records that a contig has a read with a mapped mate.
fn mark_contig_visited(contigs: &mut Vec<bool>, contig: i32) {
    let index = contig.max(0) as usize;
    if contigs.len() <= index {
        contigs.resize(index + 1, false);
    }
    contigs[index] = true;
}

/// Finds names that joined pairs share with other reads, and sends the ends of those pairs to `waiting`, to be joined in the
/// order of the file. Returns the names of these pairs.
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

/// Joins the pending ends, name by name.
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
