//! What template number `n` is: its molecule, its place on the flow cell and which template it is a duplicate of.
//!
//! All of it is a function of the seed and `n`. A duplicate draws an earlier number and goes to that one's molecule; nothing
//! is remembered, and any template can be made again at any time.

use super::SimulateError;
use super::assembly::Assembly;
use super::reads::ReadOptions;
use super::rng::Rng;
use super::sample::Sample;

pub(super) const PURPOSE_GENOME: u64 = 1;
pub(super) const PURPOSE_SAMPLE: u64 = 2;
const PURPOSE_MOLECULE: u64 = 3;
const PURPOSE_ORIGIN: u64 = 4;
const PURPOSE_SLOT: u64 = 5;
pub(super) const PURPOSE_SEQUENCING: u64 = 6;

/// Side of a cell in pixels. A template that is no optical duplicate has a cell to itself and its optical duplicates lie in
/// it, closer than the 100 pixels within which Picard calls duplicates optical.
const CELL_PIXELS: u64 = 64;
/// Places in a cell.
const CELL_SLOTS: u64 = CELL_PIXELS * CELL_PIXELS;
/// Cells along one side of a tile: coordinates run from 1000 to 33,767.
const TILE_CELLS: u64 = 512;
/// An optical duplicate has a number less than this far above that of its cell's owner. The distance picks its slot, so no two of a
/// cell share one and names are unique.
const OPTICAL_WINDOW: u64 = CELL_SLOTS;
/// Tiles of a lane, as far as four-digit names go: two surfaces, nine swaths, 99 tiles.
const MAX_TILES: u64 = 2 * 9 * 99;
/// Small runs are spread over this many tiles too, so that they have duplicates on different ones.
const MIN_TILES: u64 = 8;
/// Pairs one lane has room for.
pub(super) const MAX_LANE_PAIRS: u64 = MAX_TILES * TILE_CELLS * TILE_CELLS;
/// Places tried for a molecule before giving up: a genome with one fit place in ten thousand is not worth simulating.
const MAX_PLACEMENTS: u32 = 100_000;

/// How a template came to be a copy of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateKind {
    /// It is the first of its molecule.
    None,
    /// Amplified before sequencing: anywhere on the flow cell.
    Pcr,
    /// One cluster seen twice: within 64 pixels of the template it copies.
    Optical,
}

impl DuplicateKind {
    /// Its name in the table of templates.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pcr => "pcr",
            Self::Optical => "optical",
        }
    }
}

/// Where a cluster was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// 0-based lane.
    pub(super) lane: u64,
    /// Four digits: surface, swath, tile.
    pub(super) tile: u64,
    /// Pixels.
    pub(super) x: u64,
    /// Pixels.
    pub(super) y: u64,
}

/// What sets a molecule apart from an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oddity {
    Ordinary,
    /// Its second read comes from elsewhere.
    ChimericPair,
    /// Its first read changes over to elsewhere half way.
    SplitRead,
    /// Its second read is random.
    JunkMate,
    /// Both reads are random.
    JunkPair,
}

impl Oddity {
    /// Its name in the table of templates.
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

/// A stretch of one haplotype.
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

/// What was sequenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Molecule {
    pub(super) fragment: Fragment,
    /// Where the odd part of a chimera comes from.
    pub(super) elsewhere: Fragment,
    pub(super) oddity: Oddity,
    /// Read 1 is taken from the right end.
    pub(super) flipped: bool,
}

/// The plan of a run: answers what any template is.
pub(super) struct Templates<'a> {
    assembly: &'a Assembly,
    sample: &'a Sample,
    options: &'a ReadOptions,
    /// End of each contig when all are laid end to end.
    contig_ends: Vec<u64>,
    lane_pairs: u64,
    tiles: u64,
}

impl<'a> Templates<'a> {
    /// `options` are in range.
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

    /// How template `number` came about, and the earlier template it copies (itself if none).
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

    /// The first template of the same molecule.
    pub(super) fn first_of_molecule(&self, mut number: u64) -> u64 {
        loop {
            match self.draw_origin(number) {
                (DuplicateKind::None, _) => return number,
                (_, source) => number = source,
            }
        }
    }

    /// The template whose cell on the flow cell this one is in: not an optical duplicate itself.
    fn cell_owner(&self, number: u64) -> u64 {
        match self.origin(number) {
            (DuplicateKind::Optical, source) => self.cell_owner(source),
            _ => number,
        }
    }

    /// Where template `number` was seen.
    pub(super) fn place(&self, number: u64) -> Place {
        let owner = self.cell_owner(number);
        let lanes = u64::from(self.options.lanes);
        let in_lane = owner / lanes;
        let per_tile = self.lane_pairs.div_ceil(self.tiles);
        let (tile, in_tile) = (in_lane / per_tile, in_lane % per_tile);
        // Multiplying by an odd number permutes the cells of a tile: neighbours in number are far apart.
        let cell = in_tile.wrapping_mul(0x9E37_79B1) % (TILE_CELLS * TILE_CELLS);
        let owner_slot = Rng::new(self.options.seed, PURPOSE_SLOT, owner).below(CELL_SLOTS);
        let slot = (owner_slot + (number - owner)) % CELL_SLOTS;
        Place {
            lane: owner % lanes,
            tile: 1000 * (1 + tile % 2) + 100 * (1 + tile / 2 % 9) + 1 + tile / 18,
            x: 1000 + cell % TILE_CELLS * CELL_PIXELS + slot % CELL_PIXELS,
            y: 1000 + cell / TILE_CELLS * CELL_PIXELS + slot / CELL_PIXELS,
        }
    }

    /// The molecule of a template that is the first of its molecule.
    pub(super) fn molecule(&self, first: u64) -> Result<Molecule, SimulateError> {
        let mut rng = Rng::new(self.options.seed, PURPOSE_MOLECULE, first);
        let kind = rng.unit();
        let (chimeric, junk) = (self.options.chimeric_fraction, self.options.junk_fraction);
        let oddity = if kind < chimeric / 2.0 {
            Oddity::ChimericPair
        } else if kind < chimeric {
            Oddity::SplitRead
        } else if kind < chimeric + junk / 2.0 {
            Oddity::JunkMate
        } else if kind < chimeric + junk {
            Oddity::JunkPair
        } else {
            Oddity::Ordinary
        };
        let flipped = rng.bits() >> 63 == 1;
        let fragment = self.fragment(&mut rng)?;
        let elsewhere = match oddity {
            Oddity::ChimericPair | Oddity::SplitRead => self.fragment(&mut rng)?,
            _ => fragment,
        };
        Ok(Molecule { fragment, elsewhere, oddity, flipped })
    }

    /// A place without N for a fragment of a random length.
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
            // Deletions may push the end further: leave room for the longest few.
            let window = reference.get(start..start + bases + bases / 4 + 40).or_else(|| reference.get(start..));
            let crosses_gap = window.is_none_or(|window| window.contains(&b'N'));
            let fragment = Fragment { contig, haplotype, start: start as u32, bases };
            if !crosses_gap && start + bases <= reference.len() && self.fits(&fragment, reference) {
                return Ok(fragment);
            }
        }
        Err(SimulateError::NoPlace { insert_mean: self.options.insert_mean })
    }

    /// Whether the haplotype has all the bases of the fragment before its contig ends.
    fn fits(&self, fragment: &Fragment, reference: &[u8]) -> bool {
        // Only fragments near the end can be cut short, by deletions of at most one base in two.
        let end = fragment.start as usize + 2 * fragment.bases;
        if end < reference.len() {
            return true;
        }
        let mut bases = Vec::with_capacity(fragment.bases);
        self.copy(fragment, &mut bases);
        bases.len() == fragment.bases
    }

    /// Appends the bases of a fragment.
    pub(super) fn copy(&self, fragment: &Fragment, out: &mut Vec<u8>) {
        let reference = &self.assembly.contigs()[fragment.contig].bases;
        self.sample.copy(reference, fragment.contig, fragment.haplotype, fragment.start, fragment.bases, out);
    }
}
