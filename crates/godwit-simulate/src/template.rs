//! The properties of simulated template number `n`: its molecule, its position on the flow cell, and the template that
//! it duplicates.
//!
//! All properties are functions of the seed and `n`. A duplicate draws the number of an earlier template and has the
//! molecule of that template. No state is stored, and any template can be computed at any time.

use super::SimulateError;
use super::assembly::Assembly;
use super::read_options::ReadOptions;
use super::rng::{PURPOSE_MOLECULE, PURPOSE_ORIGIN, PURPOSE_SLOT, Rng};
use super::sample::Sample;

/// Side length of a cell, pixels. A tile is divided into cells. A template that is not an optical duplicate has its own
/// cell, and its optical duplicates are in the same cell. They are therefore closer than 100 pixels, within which
/// Picard regards duplicates as optical.
const CELL_PIXELS: u64 = 64;
/// Number of pixel positions in a cell.
const CELL_SLOTS: u64 = CELL_PIXELS * CELL_PIXELS;
/// Number of cells along each side of a tile. Pixel coordinates range from 1000 to 33,767.
const TILE_CELLS: u64 = 512;
/// Upper limit, exclusive, for the difference between the numbers of an optical duplicate and of the owner of the cell.
/// The difference determines the position within the cell. Templates of a cell therefore have different positions, and
/// their names are unique.
const OPTICAL_WINDOW: u64 = CELL_SLOTS;
/// Maximum number of tiles in a lane. It is limited by tile names of four digits: two surfaces, nine swaths, 99 tiles.
const MAX_TILES: u64 = 2 * 9 * 99;
/// Minimum number of tiles, so that small data sets also have duplicates on different tiles.
const MIN_TILES: u64 = 8;
/// Maximum number of read pairs in a lane.
pub(super) const MAX_LANE_PAIRS: u64 = MAX_TILES * TILE_CELLS * TILE_CELLS;
/// Maximum number of random positions that are tried for a molecule. The simulation fails if none of them is suitable.
const MAX_PLACEMENTS: u32 = 100_000;

/// The kind of duplicate that a template is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateKind {
    /// Not a duplicate: the first template of its molecule.
    None,
    /// A duplicate by PCR amplification before sequencing. Its position on the flow cell is random.
    Pcr,
    /// An optical duplicate: a cluster that the sequencer read twice. It is within 64 pixels of the template that it
    /// copies.
    Optical,
}

impl DuplicateKind {
    /// Returns the name of this kind in the table of templates.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pcr => "pcr",
            Self::Optical => "optical",
        }
    }
}

/// The position of a cluster on the flow cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowCellPosition {
    /// Number of the lane, 0-based.
    pub(super) lane: u64,
    /// Name of the tile, four digits: surface, swath, and tile with two digits.
    pub(super) tile: u64,
    /// Column on the tile, pixels.
    pub(super) x: u64,
    /// Row on the tile, pixels.
    pub(super) y: u64,
}

/// The kind of molecule that a template sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoleculeKind {
    Ordinary,
    /// The second read comes from another position of the genome.
    ChimericPair,
    /// In the middle of the first read, the origin changes to another position of the genome.
    SplitRead,
    /// The bases of the second read are random.
    JunkMate,
    /// The bases of both reads are random.
    JunkPair,
}

impl MoleculeKind {
    /// Returns the name of this kind in the table of templates.
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

/// A contiguous sequence of bases of one haplotype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Index of the contig in the genome.
    pub(super) contig: usize,
    /// Number of the haplotype, 0 or 1.
    pub(super) haplotype: usize,
    /// Reference position at or before the first base of the fragment, 0-based.
    pub(super) start: u32,
    /// Length of the fragment along the haplotype, bases.
    pub(super) bases: usize,
}

/// A molecule that is sequenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Molecule {
    pub(super) fragment: Fragment,
    /// The second origin of a chimera; equal to `fragment` for other molecules.
    pub(super) second_fragment: Fragment,
    pub(super) kind: MoleculeKind,
    /// True if read 1 comes from the right end of the fragment.
    pub(super) read1_from_right_end: bool,
}

/// The plan of a simulation, from which the properties of any template are computed.
pub(super) struct Templates<'a> {
    assembly: &'a Assembly,
    sample: &'a Sample,
    options: &'a ReadOptions,
    /// End of each contig in the concatenation of all contigs, bases.
    contig_ends: Vec<u64>,
    lane_pairs: u64,
    tiles: u64,
}

impl<'a> Templates<'a> {
    /// Creates the plan. `options` must be within their ranges.
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

    /// Returns the duplicate kind of template `number`, and the earlier template that it copies. A template that is not
    /// a duplicate returns its own number.
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

    /// Returns the number of the first template that has the same molecule as template `number`.
    pub(super) fn first_of_molecule(&self, mut number: u64) -> u64 {
        loop {
            match self.draw_origin(number) {
                (DuplicateKind::None, _) => return number,
                (_, source) => number = source,
            }
        }
    }

    /// Returns the template to which the cell of template `number` on the flow cell belongs. It is not an optical
    /// duplicate.
    fn cell_owner(&self, number: u64) -> u64 {
        match self.origin(number) {
            (DuplicateKind::Optical, source) => self.cell_owner(source),
            _ => number,
        }
    }

    /// Returns the position of template `number` on the flow cell.
    pub(super) fn flow_cell_position(&self, number: u64) -> FlowCellPosition {
        let owner = self.cell_owner(number);
        let lanes = u64::from(self.options.lanes);
        let in_lane = owner / lanes;
        let per_tile = self.lane_pairs.div_ceil(self.tiles);
        let (tile, in_tile) = (in_lane / per_tile, in_lane % per_tile);
        // Multiplication by an odd number permutes the cells of a tile, so that consecutive templates are far apart.
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

    /// Returns a molecule. `first`: the number of the first template of this molecule.
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

    /// Draws a fragment of random length at a random position without N.
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
            // Deletions may extend the fragment on the reference. The margin is sufficient for nearly all of them.
            let window = reference.get(start..start + bases + bases / 4 + 40).or_else(|| reference.get(start..));
            let crosses_gap = window.is_none_or(|window| window.contains(&b'N'));
            let fragment = Fragment { contig, haplotype, start: start as u32, bases };
            if !crosses_gap && start + bases <= reference.len() && self.is_within_contig(&fragment, reference) {
                return Ok(fragment);
            }
        }
        Err(SimulateError::NoPosition { insert_mean: self.options.insert_mean })
    }

    /// Reports whether the fragment ends before the end of the contig on its haplotype.
    fn is_within_contig(&self, fragment: &Fragment, reference: &[u8]) -> bool {
        // The fragment can be too short only near the end of the contig, because deletions remove at most every second
        // base.
        let end = fragment.start as usize + 2 * fragment.bases;
        if end < reference.len() {
            return true;
        }
        let mut bases = Vec::with_capacity(fragment.bases);
        self.append_fragment_bases(fragment, &mut bases);
        bases.len() == fragment.bases
    }

    /// Appends the bases of a fragment, with the variants of its haplotype, to `out`.
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
