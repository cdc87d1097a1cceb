//! Depth of the whole file out of the depths of its partitions, in order.

use std::collections::{BTreeMap, HashMap};

use godwit_model::Genome;

use super::depth::{ContigPart, FinishedDepth, Run, Track};
use super::histogram::Histogram;
use super::mosdepth::{ContigDepth, Mosdepth};
use super::overlap::Mate;

/// Takes partitions in the order of the file. What comes early waits, which is at most what other threads finish while one
/// partition is written.
pub struct DepthMerger {
    genome_lengths: Vec<u32>,
    next: usize,
    early: BTreeMap<usize, FinishedDepth>,
    contig: i32,
    mosdepth: Joint,
    samtools: Joint,
    waiting: HashMap<u128, Mate>,
    contigs: Vec<Option<Histogram>>,
    all_records: Histogram,
}

/// What is known of depth at the end.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// As mosdepth counts it; `None` where an alignment reached too far across a border for its depth to be known.
    pub mosdepth: Option<Mosdepth>,
    /// Positions by depth as samtools stats counts them; those of depth 0 are not counted.
    pub all_records: Option<Histogram>,
}

/// One contig's depth where partitions meet.
#[derive(Default)]
struct Joint {
    /// Final before this position.
    at: u32,
    /// Depth there of what started before.
    depth: i32,
    /// Changes to come, of what started before.
    changes: BTreeMap<u32, i32>,
    counts: Histogram,
    /// Something reached further than a partition's head.
    lost: bool,
}

impl DepthMerger {
    /// For a file with these contigs.
    pub fn new(genome: &Genome) -> Self {
        Self {
            genome_lengths: genome.contigs().iter().map(|contig| contig.length).collect(),
            next: 0,
            early: BTreeMap::new(),
            contig: -1,
            mosdepth: Joint::default(),
            samtools: Joint::default(),
            waiting: HashMap::new(),
            contigs: vec![None; genome.contigs().len()],
            all_records: Histogram::default(),
        }
    }

    /// Takes a finished partition: the `at`th of the file.
    pub fn add(&mut self, at: usize, partition: FinishedDepth) {
        self.early.insert(at, partition);
        while let Some(partition) = self.early.remove(&self.next) {
            partition.0.into_iter().for_each(|part| self.merge(part));
            self.next += 1;
        }
    }

    /// Ends the file.
    pub fn finish(mut self, genome: &Genome) -> Coverage {
        self.finish_contig();
        let contigs = genome.contigs().iter().zip(self.contigs);
        let contigs = contigs.map(|(contig, depths)| ContigDepth::new(contig, depths)).collect();
        Coverage {
            mosdepth: (!self.mosdepth.lost).then_some(Mosdepth { contigs }),
            all_records: (!self.samtools.lost).then_some(self.all_records),
        }
    }

    fn merge(&mut self, part: ContigPart) {
        if part.contig != self.contig {
            self.finish_contig();
            self.contig = part.contig;
        }
        for (key, mate) in &part.unjoined.unmet {
            if let Some(earlier) = self.waiting.remove(key) {
                self.mosdepth.take_back(&earlier, mate);
            }
        }
        for (key, mate) in part.unjoined.waiting {
            match self.waiting.remove(&key) {
                // Mates that start at one position, a border between them: the later one takes itself for the first.
                Some(earlier) if earlier.start == mate.start => self.mosdepth.take_back(&earlier, &mate),
                _ => {
                    self.waiting.insert(key, mate);
                }
            }
        }
        let end = part.mosdepth.end;
        self.waiting.retain(|_, mate| mate.end > end);
        self.mosdepth.merge(part.mosdepth);
        self.samtools.merge(part.samtools);
    }

    fn finish_contig(&mut self) {
        let Some(length) = usize::try_from(self.contig).ok().and_then(|at| self.genome_lengths.get(at).copied()) else {
            return;
        };
        self.waiting.clear();
        self.contigs[self.contig as usize] = Some(self.mosdepth.finish(length));
        self.all_records.merge(&self.samtools.finish(length));
    }
}

impl Joint {
    /// Counts once where both mates lie.
    fn take_back(&mut self, earlier: &Mate, later: &Mate) {
        for (start, end) in earlier.shared(later) {
            *self.changes.entry(start).or_default() -= 1;
            *self.changes.entry(end).or_default() += 1;
        }
    }

    fn merge(&mut self, track: Track) {
        self.advance(track.start);
        for Run { positions, depth } in track.head {
            let end = self.at + positions;
            self.count_until(end, depth);
        }
        if track.end > track.head_end {
            self.apply_changes_at(self.at);
            if self.depth != 0 || self.changes.values().any(|change| *change != 0) {
                self.lost = true;
            }
            self.counts.merge(&track.body);
            self.at = track.end;
        }
        for (position, change) in track.tail {
            *self.changes.entry(position).or_default() += change;
        }
    }

    /// Counts positions up to `end`, `on_top` of what started before.
    fn count_until(&mut self, end: u32, on_top: i32) {
        while self.at < end {
            self.apply_changes_at(self.at);
            let next = self.changes.keys().next().map_or(end, |next| (*next).min(end));
            self.counts.add_times((self.depth + on_top).max(0) as u64, u64::from(next - self.at));
            self.at = next;
        }
    }

    fn apply_changes_at(&mut self, at: u32) {
        while let Some(entry) = self.changes.first_entry()
            && *entry.key() <= at
        {
            self.depth += entry.remove();
        }
    }

    fn advance(&mut self, to: u32) {
        self.count_until(to, 0);
    }

    /// Counts the rest of the contig; positions by depth.
    fn finish(&mut self, length: u32) -> Histogram {
        self.advance(length);
        let counts = std::mem::take(&mut self.counts);
        *self = Self { lost: self.lost, ..Self::default() };
        counts
    }
}
