//! The properties of template number `n`: its molecule, its position on the flow cell, and the template it duplicates.
//!
//! All of them are functions of the seed and `n`. A duplicate draws an earlier number and uses that one's molecule. No state
//! is kept, and any template can be made again at any time.

use super::SimulateError;
use super::assembly::Assembly;
use super::read_pairs::ReadOptions;
use super::rng::Rng;
use super::sample::Sample;

pub(super) const PURPOSE_GENOME: u64 = 1;
pub(super) const PURPOSE_SAMPLE: u64 = 2;
const PURPOSE_MOLECULE: u64 = 3;
const PURPOSE_ORIGIN: u64 = 4;
const PURPOSE_SLOT: u64 = 5;
pub(super) const PURPOSE_SEQUENCING: u64 = 6;

/// Side of a cell, pixels. A template that is not an optical duplicate has its own cell. Its optical duplicates are in the
/// same cell, closer than the 100 pixels within which Picard calls duplicates optical.
const CELL_PIXELS: u64 = 64;
/// Number of positions in a cell.
const CELL_SLOTS: u64 = CELL_PIXELS * CELL_PIXELS;
/// Number of cells along one side of a tile: coordinates run from 1000 to 33,767.
const TILE_CELLS: u64 = 512;
/// Maximum distance, exclusive, from the number of a cell's owner to that of its optical duplicates. The distance selects
/// the slot, so no two templates of a cell share one, and names are unique.
const OPTICAL_WINDOW: u64 = CELL_SLOTS;
/// Maximum number of tiles of a lane, limited by four-digit names: two surfaces, nine swaths, 99 tiles.
const MAX_TILES: u64 = 2 * 9 * 99;
/// Minimum number of tiles, so that small data sets, too, have duplicates on different tiles.
const MIN_TILES: u64 = 8;
/// Maximum number of pairs of a lane.
pub(super) const MAX_LANE_PAIRS: u64 = MAX_TILES * TILE_CELLS * TILE_CELLS;
/// Maximum number of positions tried for a molecule: fewer than one suitable position in ten thousand is an error.
const MAX_PLACEMENTS: u32 = 100_000;

/// The kind of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateKind {
    /// The first template of its molecule.
    None,
    /// A copy by amplification before sequencing: anywhere on the flow cell.
    Pcr,
    /// A cluster that was read twice: within 64 pixels of the template it copies.
    Optical,
}

impl DuplicateKind {
    /// Returns the name in the truth table.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pcr => "pcr",
            Self::Optical => "optical",
        }
    }
}

/// The position of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowCellPosition {
    /// 0-based lane.
    pub(super) lane: u64,
    /// Four digits: surface, swath, tile.
    pub(super) tile: u64,
    /// Column, pixels.
    pub(super) x: u64,
    /// Row, pixels.
    pub(super) y: u64,
}

/// The kind of a molecule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoleculeKind {
    Ordinary,
    /// The second read has another origin.
    ChimericPair,
    /// The first read changes to another origin half way.
    SplitRead,
    /// The second read is random.
    JunkMate,
    /// Both reads are random.
    JunkPair,
}

impl MoleculeKind {
    /// Returns the name in the truth table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::ChimericPair => "chimeric_pair",
            Self::SplitRead => "split_read",
            Self::JunkMate => "junk_mate",
            Self::JunkPair => "junk_pair",
        }
    }
}

/// An interval of one haplotype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Index of the contig.
    pub(super) contig: usize,
    /// 0 or 1.
    pub(super) haplotype: usize,
    /// 0-based reference position at or before its first base.
    pub(super) start: u32,
    /// Its length along the haplotype.
    pub(super) bases: usize,
}

/// A sequenced molecule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Molecule {
    pub(super) fragment: Fragment,
    /// The other origin of a chimera.
    pub(super) second_fragment: Fragment,
    pub(super) kind: MoleculeKind,
    /// True if read 1 is taken from the right end.
    pub(super) read1_from_right_end: bool,
}

/// The plan of a simulation, from which any template can be computed.
pub(super) struct Templates<'a> {
    assembly: &'a Assembly,
    sample: &'a Sample,
    options: &'a ReadOptions,
    /// Ends of the contigs in their concatenation, bases.
    contig_ends: Vec<u64>,
    lane_pairs: u64,
    tiles: u64,
}

impl<'a> Templates<'a> {
    /// Makes the plan; `options` are in range.
    pub(super) fn new(assembly: &'a Assembly, sample: &'a Sample, options: &'a ReadOptions) -> Self {
        let contig_ends = assembly
            .contigs()
            .iter()
            .scan(0, |end, contig| {
                *end += contig.bases.len() as u64;
                Some(*end)
            })
            .collect();
        let lane_pairs = options.pairs.div_ceil(u64::from(options.lanes)).max(1);
        let tiles = lane_pairs.div_ceil(TILE_CELLS * TILE_CELLS).max(MIN_TILES);
        Self { assembly, sample, options, contig_ends, lane_pairs, tiles }
    }

    /// Returns the kind of template `number`, and the earlier template it copies (itself if none).
    pub(super) fn origin(&self, number: u64) -> (DuplicateKind, u64) {
        let (kind, source) = self.draw_origin(number);
        if kind == DuplicateKind::Optical && number - self.cell_owner(source) >= OPTICAL_WINDOW {
            return (DuplicateKind::Pcr, source);
        }
        (kind, source)
    }

    fn draw_origin(&self, number: u64) -> (DuplicateKind, u64) {
        let mut rng = Rng::new(self.options.seed, PURPOSE_ORIGIN, number);
        let kind = rng.unit();
        let optical = self.options.optical_duplicate_fraction;
        if number == 0 || kind >= optical + self.options.pcr_duplicate_fraction {
            (DuplicateKind::None, number)
        } else if kind < optical {
            (DuplicateKind::Optical, number - 1 - rng.below(number.min(OPTICAL_WINDOW - 1)))
        } else {
            (DuplicateKind::Pcr, rng.below(number))
        }
    }

    /// Returns the first template of the same molecule.
    pub(super) fn first_of_molecule(&self, mut number: u64) -> u64 {
        loop {
            match self.draw_origin(number) {
                (DuplicateKind::None, _) => return number,
                (_, source) => number = source,
            }
        }
    }

    /// Returns the template that owns the cell of this one on the flow cell, which is not an optical duplicate.
    fn cell_owner(&self, number: u64) -> u64 {
        match self.origin(number) {
            (DuplicateKind::Optical, source) => self.cell_owner(source),
            _ => number,
        }
    }

    /// Returns the position of template `number`.
    pub(super) fn flow_cell_position(&self, number: u64) -> FlowCellPosition {
        let owner = self.cell_owner(number);
        let lanes = u64::from(self.options.lanes);
        let in_lane = owner / lanes;
        let per_tile = self.lane_pairs.div_ceil(self.tiles);
        let (tile, in_tile) = (in_lane / per_tile, in_lane % per_tile);
        // Multiplication by an odd number permutes the cells of a tile: consecutive numbers are far apart.
        let cell = in_tile.wrapping_mul(0x9E37_79B1) % (TILE_CELLS * TILE_CELLS);
        let owner_slot = Rng::new(self.options.seed, PURPOSE_SLOT, owner).below(CELL_SLOTS);
        let slot = (owner_slot + (number - owner)) % CELL_SLOTS;
        FlowCellPosition {
            lane: owner % lanes,
            tile: 1000 * (1 + tile % 2) + 100 * (1 + tile / 2 % 9) + 1 + tile / 18,
            x: 1000 + cell % TILE_CELLS * CELL_PIXELS + slot % CELL_PIXELS,
            y: 1000 + cell / TILE_CELLS * CELL_PIXELS + slot / CELL_PIXELS,
        }
    }

    /// Returns the molecule of a template that is the first of its molecule.
    pub(super) fn molecule(&self, first: u64) -> Result<Molecule, SimulateError> {
        let mut rng = Rng::new(self.options.seed, PURPOSE_MOLECULE, first);
        let kind = rng.unit();
        let (chimeric, junk) = (self.options.chimeric_fraction, self.options.junk_fraction);
        let kind = if kind < chimeric / 2.0 {
            MoleculeKind::ChimericPair
        } else if kind < chimeric {
            MoleculeKind::SplitRead
        } else if kind < chimeric + junk / 2.0 {
            MoleculeKind::JunkMate
        } else if kind < chimeric + junk {
            MoleculeKind::JunkPair
        } else {
            MoleculeKind::Ordinary
        };
        let read1_from_right_end = rng.bits() >> 63 == 1;
        let fragment = self.fragment(&mut rng)?;
        let second_fragment = match kind {
            MoleculeKind::ChimericPair | MoleculeKind::SplitRead => self.fragment(&mut rng)?,
            _ => fragment,
        };
        Ok(Molecule { fragment, second_fragment, kind, read1_from_right_end })
    }

    /// Draws a fragment of random length at a position without N.
    fn fragment(&self, rng: &mut Rng) -> Result<Fragment, SimulateError> {
        let (mean, deviation) = (f64::from(self.options.insert_mean), f64::from(self.options.insert_sd));
        let shortest = self.options.shortest_insert() as f64;
        let genome_bases = self.contig_ends.last().copied().unwrap_or(0);
        for _ in 0..MAX_PLACEMENTS {
            let bases = (mean + deviation * rng.normal()).round().max(shortest) as usize;
            let at = rng.below(genome_bases);
            let contig = self.contig_ends.partition_point(|&end| end <= at);
            let reference = self.assembly.contigs()[contig].bases.as_slice();
            let start = (at - (self.contig_ends[contig] - reference.len() as u64)) as usize;
            let haplotype = (rng.bits() >> 63) as usize;
            // Deletions may move the end further: the margin covers the longest few.
            let window = reference.get(start..start + bases + bases / 4 + 40).or_else(|| reference.get(start..));
            let crosses_gap = window.is_none_or(|window| window.contains(&b'N'));
            let fragment = Fragment { contig, haplotype, start: start as u32, bases };
            if !crosses_gap && start + bases <= reference.len() && self.is_within_contig(&fragment, reference) {
                return Ok(fragment);
            }
        }
        Err(SimulateError::NoPosition { insert_mean: self.options.insert_mean })
    }

    /// Reports whether the haplotype has all bases of the fragment before its contig ends.
    fn is_within_contig(&self, fragment: &Fragment, reference: &[u8]) -> bool {
        // Only fragments near the end can be too short, by deletions of at most one base in two.
        let end = fragment.start as usize + 2 * fragment.bases;
        if end < reference.len() {
            return true;
        }
        let mut bases = Vec::with_capacity(fragment.bases);
        self.append_fragment_bases(fragment, &mut bases);
        bases.len() == fragment.bases
    }

    /// Appends the bases of a fragment.
    pub(super) fn append_fragment_bases(&self, fragment: &Fragment, out: &mut Vec<u8>) {
        let reference = &self.assembly.contigs()[fragment.contig].bases;
        self.sample.append_haplotype_bases(
            reference,
            fragment.contig,
            fragment.haplotype,
            fragment.start,
            fragment.bases,
            out,
        );
    }
}
