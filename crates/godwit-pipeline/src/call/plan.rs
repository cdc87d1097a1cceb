//! What is to be called: the grid over the contigs that reads and reference share, and what each region costs.

use godwit_engines::caller::Habits;
use godwit_model::region_grid::{CallingRegion, GridContig, GridOptions, cut};
use godwit_model::{Genome, PloidyTable, Region, Span};

use super::CallOptions;
use super::reads::ToPlan;
use super::reference::ScannedReference;
use super::targets::Targets;
use crate::error::PipelineError;

/// What one base without data counts, in compressed bytes of reads: starting a caller on an empty megabase is not free.
const BASE_COST: f64 = 0.01;

/// A region with all that a caller needs to know of it.
pub(super) struct PlannedRegion {
    pub(super) region: CallingRegion,
    pub(super) name: String,
    pub(super) stretches: Vec<Region>,
    pub(super) ploidy: Option<u8>,
    /// Larger ones are called first.
    pub(super) cost: f64,
}

impl PlannedRegion {
    /// A region of contigs that the genome has.
    pub(super) fn new(region: CallingRegion, genome: &Genome, ploidy: Option<u8>, cost: f64) -> Self {
        let contig = |span: &Span| genome.contigs()[span.contig.0 as usize].name.clone();
        let stretch = |span: &Span| Region { contig: contig(span), start: span.start, end: span.end };
        let stretches = region.stretches.iter().map(stretch).collect();
        let [first, last] = region.extents();
        let name = match first == last {
            true => stretch(&first).title(),
            false => format!("{} to {}", stretch(&first).title(), stretch(&last).title()),
        };
        Self { name, stretches, region, ploidy, cost }
    }
}

/// A region of the grid, before it has a name.
struct Drawn {
    region: CallingRegion,
    ploidy: Option<u8>,
    cost: f64,
    /// Whether it is all there is of its contigs, so that it may be called together with others that are.
    whole: bool,
}

/// The regions, in the order of the genome.
///
/// # Errors
/// [`PipelineError::Corrupt`] where reads and reference do not belong together, [`PipelineError::Options`] where nothing
/// is left to call.
pub(super) fn regions(
    options: &CallOptions,
    habits: &Habits,
    reads: &ToPlan,
    reference: &ScannedReference,
    targets: Option<&Targets>,
) -> Result<Vec<PlannedRegion>, PipelineError> {
    let targets = targets.map(|targets| targets.by_contig(reads.genome));
    let grid = grid_options(options, habits);
    let mut drawn: Vec<Drawn> = Vec::new();
    for contig in grid_contigs(options, reads, reference, targets.as_deref())? {
        let name = &reads.genome.contigs()[contig.id.0 as usize].name;
        let regions = cut(&contig, grid);
        let whole = habits.lists && regions.len() == 1;
        for region in regions {
            let start = region.targets[0].start;
            let ploidy = options.ploidy.as_ref().map(|table| table.ploidy(name, start, options.sex.as_deref()));
            // Nothing to call where there is no copy.
            if ploidy == Some(0) {
                continue;
            }
            let bytes = |span: &Span| {
                reads.bytes(span.contig.0 as usize, span.start, span.end) + f64::from(span.bases()) * BASE_COST
            };
            let cost = region.stretches.iter().map(bytes).sum();
            let next = Drawn { region, ploidy, cost, whole };
            match drawn.last_mut() {
                Some(last) if last.takes(&next, grid) => last.extend(next),
                _ => drawn.push(next),
            }
        }
    }
    if drawn.is_empty() {
        let problem = "nothing is left to call: no contig has bases that --regions and --ploidy leave".to_owned();
        return Err(PipelineError::Options { problem });
    }
    let planned = |Drawn { region, ploidy, cost, .. }| PlannedRegion::new(region, reads.genome, ploidy, cost);
    Ok(drawn.into_iter().map(planned).collect())
}

impl Drawn {
    /// Whether the next small contig is called together with these: starting a caller costs more than a small contig does.
    fn takes(&self, next: &Self, grid: GridOptions) -> bool {
        let bases = self.region.bases() + next.region.bases();
        self.whole && next.whole && self.ploidy == next.ploidy && bases <= u64::from(grid.window_bases)
    }

    fn extend(&mut self, next: Self) {
        self.region.extend(next.region);
        self.cost += next.cost;
    }
}

/// The grid's measures for a caller.
pub(super) fn grid_options(options: &CallOptions, habits: &Habits) -> GridOptions {
    let padding_bases = if habits.blocks { 0 } else { options.padding_bases.unwrap_or(habits.padding_bases) };
    GridOptions { window_bases: options.window_bases, padding_bases }
}

/// The order in which regions are called: the most expensive first.
pub(super) fn order(regions: &[PlannedRegion]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_by(|one, other| regions[*other].cost.total_cmp(&regions[*one].cost).then(one.cmp(other)));
    order
}

fn grid_contigs(
    options: &CallOptions,
    reads: &ToPlan,
    reference: &ScannedReference,
    targets: Option<&[Vec<(u32, u32)>]>,
) -> Result<Vec<GridContig>, PipelineError> {
    let apart = |problem: String| PipelineError::Corrupt {
        path: reads.path.to_owned(),
        problem: format!("{problem}; give --reference the one that the reads were aligned to"),
    };
    let mut contigs = Vec::new();
    for (index, contig) in reads.genome.contigs().iter().enumerate() {
        let asked = targets.is_none_or(|targets| !targets[index].is_empty());
        let found = reference.contigs.iter().position(|record| record.name == contig.name);
        let Some(at) = found else {
            if asked && reads.contig_bytes(index) > 0.0 {
                return Err(apart(format!("its reads lie on {}, which the reference does not have", contig.name)));
            }
            continue;
        };
        let bases = reference.contigs[at].bases;
        if bases != u64::from(contig.length) {
            let length = contig.length;
            return Err(apart(format!("{} has {length} bases in it and {bases} in the reference", contig.name)));
        }
        if asked {
            let borders = options
                .ploidy
                .as_ref()
                .map(|table: &PloidyTable| table.borders(&contig.name, contig.length, options.sex.as_deref()));
            contigs.push(GridContig {
                id: godwit_model::ContigId(index as u32),
                bases: contig.length,
                targets: targets.map(|targets| targets[index].clone()),
                gaps: reference.gaps[at].clone(),
                borders: borders.unwrap_or_default(),
            });
        }
    }
    if contigs.is_empty() && targets.is_none() {
        return Err(apart("it has no contig in common with the reference".to_owned()));
    }
    Ok(contigs)
}
