//! Collects the signatures of all blocks and decides them.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use godwit_model::{BlockId, DuplicateCounts, EndSignature, PairSignature, RecordId, end_flags};

use super::DuplicateMode;
use super::barcodes::Barcodes;
use super::decide::{Decider, ForeignLibraries, Fragment, Waiting};
use super::item::{BarcodedEnd, End, Pair};
use super::join::{JoinError, ends_of, join, join_group};
use super::metrics::{LibraryMetrics, Metrics};
use super::query::TemplateLists;
use super::sets::DuplicateSets;
use super::signature::BlockSignatures;
use super::templates::{BlockTemplates, Templates};
use super::verdicts::Verdicts;
use crate::sort::{ExternalSorter, Sorted, Spill};

/// Set in a name's tag where its mates came joined.
const JOINED: u64 = 1;
/// Signatures that are looked at before they go to the sorters: few enough to stay in the cache.
const SIGNATURES_AT_A_TIME: usize = 256;

/// How to mark.
pub struct MarkerOptions {
    /// Names of the libraries, by index; [`super::UNKNOWN_LIBRARY`] may be among them.
    pub libraries: Vec<String>,
    /// Libraries that the header's read groups name: they are reported even without a record.
    pub header_libraries: usize,
    /// Greatest distance of optical duplicates, pixels in x and in y.
    pub optical_distance: i32,
    /// What a duplicate is: a read or a template.
    pub mode: DuplicateMode,
    /// Whether barcodes belong to what makes reads duplicates of one another; [`BlockDetails`] then has them.
    pub barcodes: bool,
    /// Whether to tell which reads are optical duplicates.
    pub tell_optical: bool,
    /// Whether to tell which reads are in which set.
    pub tell_sets: bool,
    /// Bytes of signatures held in memory.
    pub memory_bytes: usize,
}

/// What options other than the default ones need to know of a block beside its signatures.
#[derive(Debug, Default)]
pub struct BlockDetails {
    /// For [`DuplicateMode::Query`].
    pub templates: BlockTemplates,
    /// For [`MarkerOptions::barcodes`]: of each record, by index; those of mapped primary ones are looked at.
    pub barcodes: Vec<Barcodes>,
}

/// The outcome of marking.
#[derive(Debug, Default)]
pub struct Marking {
    /// Which records are duplicates.
    pub duplicates: Verdicts,
    /// Which are optical ones, where asked for.
    pub optical: Option<Verdicts>,
    /// Who is in which set, where asked for; numbered already with [`DuplicateMode::Query`].
    pub sets: Option<DuplicateSets>,
    /// What Picard prints. With [`DuplicateMode::Query`] the duplicates are yet to be counted, record by record.
    pub metrics: Metrics,
}

/// Why marking failed.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Scratch space failed.
    #[error("sorting duplicate signatures failed")]
    Spill(#[from] io::Error),
    /// More reads share a name than can be told apart.
    #[error(transparent)]
    RepeatedName(#[from] JoinError),
}

/// Takes the signatures of every block in any order, then decides all of them.
pub struct Marker(Kind);

/// Signatures grow by the barcodes only where these count.
enum Kind {
    Plain(Sorters<EndSignature>),
    Barcoded(Sorters<BarcodedEnd>),
}

impl Marker {
    /// A marker without signatures; what exceeds its memory goes to `spill`.
    pub fn new(options: MarkerOptions, spill: Arc<dyn Spill>) -> Self {
        Self(if options.barcodes {
            Kind::Barcoded(Sorters::new(options, spill))
        } else {
            Kind::Plain(Sorters::new(options, spill))
        })
    }

    /// Takes the signatures of a block.
    ///
    /// # Errors
    /// What the spill reports.
    ///
    /// # Panics
    /// When the details lack what the options ask for.
    pub fn add_block(&mut self, id: BlockId, block: &BlockSignatures, details: BlockDetails) -> io::Result<()> {
        match &mut self.0 {
            Kind::Plain(sorters) => sorters.add_block(id, block, details),
            Kind::Barcoded(sorters) => sorters.add_block(id, block, details),
        }
    }

    /// Decides every duplicate set.
    ///
    /// # Errors
    /// What the spill reports, and [`MarkError::RepeatedName`] where Picard stops too.
    pub fn finish(self) -> Result<Marking, MarkError> {
        match self.0 {
            Kind::Plain(sorters) => sorters.finish(),
            Kind::Barcoded(sorters) => sorters.finish(),
        }
    }
}

struct Sorters<E: End> {
    options: MarkerOptions,
    pairs: ExternalSorter<E::Pair>,
    waiting: ExternalSorter<Waiting<E>>,
    fragments: ExternalSorter<Fragment<E>>,
    paired_ends: ExternalSorter<E::Key>,
    /// One per template with mapped mates: a 63-bit hash of its name, and [`JOINED`].
    names: ExternalSorter<u64>,
    counts: Vec<DuplicateCounts>,
    /// For each contig whether it has a read with a mapped mate.
    visited_contigs: Vec<bool>,
    by_template: ByTemplate,
    scratch: Scratch<E>,
    spill: Arc<dyn Spill>,
}

/// What only [`DuplicateMode::Query`] needs.
#[derive(Default)]
struct ByTemplate {
    blocks: Vec<(BlockId, BlockTemplates)>,
    /// For each library its first mapped primary record.
    first_records: Vec<Option<RecordId>>,
}

/// Reused buffers.
struct Scratch<E: End> {
    pairs: Vec<E::Pair>,
    waiting: Vec<Waiting<E>>,
    fragments: Vec<Fragment<E>>,
    paired_ends: Vec<E::Key>,
    names: Vec<u64>,
}

fn name_tag(name: [u64; 2], joined: u64) -> u64 {
    name[1] & !JOINED | joined
}

impl<E: End> Sorters<E> {
    fn new(options: MarkerOptions, spill: Arc<dyn Spill>) -> Self {
        // Shares follow the bytes that a pair of neighbouring mates brings: 72 as pair, 32 as two ends, 8 as name.
        // Fragments and waiting ends are few in aligner output, but may be everything in other input.
        let share = |percent: usize| options.memory_bytes / 100 * percent;
        Self {
            pairs: ExternalSorter::new(share(40), spill.clone()),
            waiting: ExternalSorter::new(share(20), spill.clone()),
            fragments: ExternalSorter::new(share(15), spill.clone()),
            paired_ends: ExternalSorter::new(share(20), spill.clone()),
            names: ExternalSorter::new(share(5), spill.clone()),
            counts: vec![DuplicateCounts::default(); options.libraries.len()],
            visited_contigs: Vec::new(),
            by_template: ByTemplate { first_records: vec![None; options.libraries.len()], ..ByTemplate::default() },
            scratch: Scratch {
                pairs: Vec::new(),
                waiting: Vec::new(),
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
        for pairs in block.pairs.chunks(SIGNATURES_AT_A_TIME) {
            for pair in pairs {
                let pair = if by_template { self.pair_in_input_order(pair, &templates) } else { *pair };
                self.take_pair(pair, &barcodes);
            }
            self.scratch_to_sorters()?;
        }
        for ends in block.ends.chunks(SIGNATURES_AT_A_TIME) {
            for end in ends {
                let end = if by_template { self.end_in_input_order(*end, &templates) } else { *end };
                self.take_end(end, &barcodes);
            }
            self.scratch_to_sorters()?;
        }
        if by_template {
            self.by_template.blocks.push((id, templates));
        }
        Ok(())
    }

    fn scratch_to_sorters(&mut self) -> io::Result<()> {
        self.pairs.extend(&self.scratch.pairs)?;
        self.waiting.extend(&self.scratch.waiting)?;
        self.fragments.extend(&self.scratch.fragments)?;
        self.paired_ends.extend(&self.scratch.paired_ends)?;
        self.names.extend(&self.scratch.names)?;
        self.scratch.pairs.clear();
        self.scratch.waiting.clear();
        self.scratch.fragments.clear();
        self.scratch.paired_ends.clear();
        self.scratch.names.clear();
        Ok(())
    }

    /// A pair joined anew, with the end first that comes first in the input.
    fn pair_in_input_order(&mut self, pair: &PairSignature, templates: &BlockTemplates) -> PairSignature {
        let [one, two] = ends_of(pair).map(|end| self.end_in_input_order(end, templates));
        if one.record < two.record { join(&one, &two) } else { join(&two, &one) }
    }

    /// An end whose place in the file is that in the input.
    fn end_in_input_order(&mut self, end: EndSignature, templates: &BlockTemplates) -> EndSignature {
        let first = &mut self.by_template.first_records[usize::from(end.library)];
        *first = Some(first.map_or(end.record, |record| record.min(end.record)));
        let position = templates.place(end.record.index()) as i32;
        EndSignature { position, flags: end.flags | end_flags::INPUT_ORDER, ..end }
    }

    fn take_pair(&mut self, pair: PairSignature, barcodes: &[Barcodes]) {
        let item = E::Pair::new(pair, barcodes);
        self.scratch.paired_ends.extend(item.keys());
        self.scratch.pairs.push(item);
        self.scratch.names.push(name_tag(pair.name, JOINED));
        visit(&mut self.visited_contigs, pair.contig1);
        visit(&mut self.visited_contigs, pair.contig2);
    }

    fn take_end(&mut self, end: EndSignature, barcodes: &[Barcodes]) {
        let item = E::new(end, barcodes);
        if end.is_paired() {
            self.scratch.paired_ends.push(item.key());
        } else {
            self.scratch.fragments.push(Fragment(item));
        }
        if end.flags & end_flags::MATE_MAPPED != 0 {
            visit(&mut self.visited_contigs, end.contig);
            self.scratch.waiting.push(Waiting(item));
            self.scratch.names.push(name_tag(end.name, 0));
        }
    }

    fn finish(self) -> Result<Marking, MarkError> {
        let Self {
            options,
            pairs,
            mut waiting,
            fragments,
            paired_ends,
            names,
            counts,
            visited_contigs,
            by_template,
            spill,
            ..
        } = self;
        // Two sorts that depend on nothing run beside the join of mates.
        let (pairs, fragments_and_ends) = std::thread::scope(|scope| {
            let ends = scope.spawn(|| -> io::Result<_> { Ok((fragments.finish()?, paired_ends.finish()?)) });
            let pairs = pairs.finish();
            (pairs, ends.join())
        });
        let pairs = pairs?;
        let (fragments, paired_ends) = fragments_and_ends.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let superseded = split_repeated_names(&names.finish()?, &pairs, &mut waiting)?;
        let (joined_anew, foreign_libraries) =
            join_waiting(waiting, options.mode, &visited_contigs, options.memory_bytes / 5, &spill)?;
        let mut lists =
            (options.mode == DuplicateMode::Query).then(|| by_template.lists(options.memory_bytes / 5, &spill));
        let mut libraries: Vec<LibraryMetrics> = options
            .libraries
            .iter()
            .zip(&counts)
            .map(|(name, counts)| LibraryMetrics { library: name.clone(), counts: *counts, ..Default::default() })
            .collect();
        let mut marking = Marking {
            optical: options.tell_optical.then(Verdicts::default),
            sets: options.tell_sets.then(DuplicateSets::default),
            ..Marking::default()
        };
        let mut decider = Decider {
            libraries: &mut libraries,
            set_sizes: &mut marking.metrics.set_sizes,
            verdicts: &mut marking.duplicates,
            foreign_libraries: &foreign_libraries,
            optical_distance: options.optical_distance,
            optical: marking.optical.as_mut(),
            sets: marking.sets.as_mut(),
            lists: lists.as_mut(),
        };
        decider.decide_pairs(&pairs, &superseded, &joined_anew)?;
        decider.decide_fragments(&fragments, &paired_ends)?;
        if let Some(lists) = lists {
            lists.replay(&mut marking)?;
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

impl ByTemplate {
    fn lists(self, memory_bytes: usize, spill: &Arc<dyn Spill>) -> TemplateLists {
        TemplateLists::new(Templates::new(self.blocks), &self.first_records, memory_bytes, spill)
    }
}

/// Notes that a contig has a read with a mapped mate.
fn visit(contigs: &mut Vec<bool>, contig: i32) {
    let index = contig.max(0) as usize;
    if contigs.len() <= index {
        contigs.resize(index + 1, false);
    }
    contigs[index] = true;
}

/// Finds names that joined pairs share with other reads, and sends the ends of those pairs to `waiting`, to be joined
/// in the order of the file. Returns the names of these pairs.
fn split_repeated_names<E: End>(
    names: &Sorted<u64>,
    pairs: &Sorted<E::Pair>,
    waiting: &mut ExternalSorter<Waiting<E>>,
) -> io::Result<HashSet<[u64; 2]>> {
    let mut repeated: HashSet<u64> = HashSet::new();
    let mut iter = names.iter()?;
    let (mut current, mut members, mut joined) = (None, 0u64, 0u64);
    loop {
        let next = iter.next()?;
        let name = next.map(|tag| tag & !JOINED);
        if name != current {
            if members > 1 && joined > 0 {
                repeated.extend(current);
            }
            (current, members, joined) = (name, 0, 0);
        }
        let Some(tag) = next else { break };
        members += 1;
        joined += tag & JOINED;
    }
    let mut superseded = HashSet::new();
    if repeated.is_empty() {
        return Ok(superseded);
    }
    let mut iter = pairs.iter()?;
    while let Some(pair) = iter.next()? {
        let name = pair.signature().name;
        if repeated.contains(&(name[1] & !JOINED)) {
            superseded.insert(name);
            waiting.extend(&pair.ends().map(Waiting))?;
        }
    }
    Ok(superseded)
}

/// Joins the reads that wait for a mate, name by name.
fn join_waiting<E: End>(
    waiting: ExternalSorter<Waiting<E>>,
    mode: DuplicateMode,
    visited_contigs: &[bool],
    memory_bytes: usize,
    spill: &Arc<dyn Spill>,
) -> Result<(Sorted<E::Pair>, ForeignLibraries), MarkError> {
    let visited = |contig: i32| visited_contigs.get(contig as usize).copied().unwrap_or(false);
    let waiting = waiting.finish()?;
    let mut pairs = ExternalSorter::new(memory_bytes, spill.clone());
    let mut joined = Vec::new();
    let mut foreign = ForeignLibraries::new();
    let mut group: Vec<E> = Vec::new();
    let mut iter = waiting.iter()?;
    loop {
        let next = iter.next()?.map(|Waiting(end)| end);
        let name = next.as_ref().map(|end| end.signature().name);
        if group.first().is_some_and(|first| name != Some(first.signature().name)) {
            join_group(&mut group, mode, visited, |pair: E::Pair, second| {
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
