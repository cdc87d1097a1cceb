//! Collects the signatures of all blocks and decides them.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use godwit_model::{DuplicateCounts, EndSignature, PairSignature};

use super::decide::{Decider, ForeignLibraries, Fragment, Waiting, end_key};
use super::join::{JoinError, ends_of, join_group};
use super::metrics::{LibraryMetrics, Metrics};
use super::signature::BlockSignatures;
use super::verdicts::Verdicts;
use crate::sort::{ExternalSorter, Sorted, Spill};

/// Set in a name's tag where its mates came joined.
const JOINED: u64 = 1;

/// How to mark.
pub struct MarkerOptions {
    /// Names of the libraries, by index; [`super::UNKNOWN_LIBRARY`] may be among them.
    pub libraries: Vec<String>,
    /// Libraries that the header's read groups name: they are reported even without a record.
    pub header_libraries: usize,
    /// Greatest distance of optical duplicates, pixels in x and in y.
    pub optical_distance: i32,
    /// Bytes of signatures held in memory.
    pub memory_bytes: usize,
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
pub struct Marker {
    options: MarkerOptions,
    pairs: ExternalSorter<PairSignature>,
    waiting: ExternalSorter<Waiting>,
    fragments: ExternalSorter<Fragment>,
    paired_ends: ExternalSorter<u128>,
    /// One per template with mapped mates: a 63-bit hash of its name, and [`JOINED`].
    names: ExternalSorter<u64>,
    counts: Vec<DuplicateCounts>,
    /// For each contig whether it has a read with a mapped mate.
    visited_contigs: Vec<bool>,
    scratch: Scratch,
    spill: Arc<dyn Spill>,
}

/// Reused buffers.
#[derive(Default)]
struct Scratch {
    waiting: Vec<Waiting>,
    fragments: Vec<Fragment>,
    paired_ends: Vec<u128>,
    names: Vec<u64>,
}

fn name_tag(name: [u64; 2], joined: u64) -> u64 {
    name[1] & !JOINED | joined
}

impl Marker {
    /// A marker without signatures; what exceeds its memory goes to `spill`.
    pub fn new(options: MarkerOptions, spill: Arc<dyn Spill>) -> Self {
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
            scratch: Scratch::default(),
            options,
            spill,
        }
    }

    /// Takes the signatures of a block.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn add_block(&mut self, block: &BlockSignatures) -> io::Result<()> {
        for (total, counts) in self.counts.iter_mut().zip(&block.counts) {
            total.add(counts);
        }
        self.pairs.extend(&block.pairs)?;
        for pair in &block.pairs {
            let library = pair.library;
            self.scratch.paired_ends.extend([
                end_key(library, pair.contig1, pair.five_prime1, pair.is_reverse1()),
                end_key(library, pair.contig2, pair.five_prime2, pair.is_reverse2()),
            ]);
            self.scratch.names.push(name_tag(pair.name, JOINED));
            visit(&mut self.visited_contigs, pair.contig1);
            visit(&mut self.visited_contigs, pair.contig2);
        }
        for end in &block.ends {
            self.sort_out(end);
        }
        self.waiting.extend(&self.scratch.waiting)?;
        self.fragments.extend(&self.scratch.fragments)?;
        self.paired_ends.extend(&self.scratch.paired_ends)?;
        self.names.extend(&self.scratch.names)?;
        self.scratch.waiting.clear();
        self.scratch.fragments.clear();
        self.scratch.paired_ends.clear();
        self.scratch.names.clear();
        Ok(())
    }

    fn sort_out(&mut self, end: &EndSignature) {
        if end.is_paired() {
            let key = end_key(end.library, end.contig, end.five_prime, end.is_reverse());
            self.scratch.paired_ends.push(key);
        } else {
            self.scratch.fragments.push(Fragment(*end));
        }
        if end.flags & godwit_model::end_flags::MATE_MAPPED != 0 {
            visit(&mut self.visited_contigs, end.contig);
            self.scratch.waiting.push(Waiting(*end));
            self.scratch.names.push(name_tag(end.name, 0));
        }
    }

    /// Decides every duplicate set.
    ///
    /// # Errors
    /// What the spill reports, and [`MarkError::RepeatedName`] where Picard stops too.
    pub fn finish(self) -> Result<(Verdicts, Metrics), MarkError> {
        let Self { options, pairs, mut waiting, fragments, paired_ends, names, counts, visited_contigs, spill, .. } =
            self;
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
            join_waiting(waiting, &visited_contigs, options.memory_bytes / 5, spill)?;
        let mut libraries: Vec<LibraryMetrics> = options
            .libraries
            .iter()
            .zip(&counts)
            .map(|(name, counts)| LibraryMetrics { library: name.clone(), counts: *counts, ..Default::default() })
            .collect();
        let mut metrics = Metrics::default();
        let mut verdicts = Verdicts::default();
        let mut decider = Decider {
            libraries: &mut libraries,
            set_sizes: &mut metrics.set_sizes,
            verdicts: &mut verdicts,
            foreign_libraries: &foreign_libraries,
            optical_distance: options.optical_distance,
        };
        decider.decide_pairs(&pairs, &superseded, &joined_anew)?;
        decider.decide_fragments(&fragments, &paired_ends)?;
        let header_libraries = options.header_libraries;
        metrics.libraries = libraries
            .into_iter()
            .enumerate()
            .filter(|(index, library)| *index < header_libraries || library.counts != DuplicateCounts::default())
            .map(|(_, library)| library)
            .collect();
        metrics.libraries.sort_by(|a, b| a.library.cmp(&b.library));
        Ok((verdicts, metrics))
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
fn split_repeated_names(
    names: &Sorted<u64>,
    pairs: &Sorted<PairSignature>,
    waiting: &mut ExternalSorter<Waiting>,
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
        if repeated.contains(&(pair.name[1] & !JOINED)) {
            superseded.insert(pair.name);
            waiting.extend(&ends_of(&pair).map(Waiting))?;
        }
    }
    Ok(superseded)
}

/// Joins the reads that wait for a mate, name by name.
fn join_waiting(
    waiting: ExternalSorter<Waiting>,
    visited_contigs: &[bool],
    memory_bytes: usize,
    spill: Arc<dyn Spill>,
) -> Result<(Sorted<PairSignature>, ForeignLibraries), MarkError> {
    let visited = |contig: i32| visited_contigs.get(contig as usize).copied().unwrap_or(false);
    let waiting = waiting.finish()?;
    let mut pairs = ExternalSorter::new(memory_bytes, spill);
    let mut joined = Vec::new();
    let mut foreign = ForeignLibraries::new();
    let mut group: Vec<EndSignature> = Vec::new();
    let mut iter = waiting.iter()?;
    loop {
        let next = iter.next()?.map(|Waiting(end)| end);
        if group.first().is_some_and(|first| next.is_none_or(|end| end.name != first.name)) {
            join_group(&mut group, visited, |pair, second| {
                if second.library != pair.library {
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
