//! Plans the regions to call: the grid over the contigs that are in the reads and in the reference, and the cost of
//! each region.

use godwit_engines::caller::{Caller, Capabilities};
use godwit_model::region_grid::{CallingRegion, GridContig, GridOptions, cut_contig};
use godwit_model::{Genome, Interval, PloidyTable, Region};
use godwit_pipeline::PipelineError;
use godwit_pipeline::scanned_reference::ScannedReference;

use super::CallOptions;
use super::call_inputs::GridInput;
use super::targets::Targets;

/// Cost of one base in addition to that of its reads, in compressed bytes of reads: calling an empty megabase takes
/// time too.
const EMPTY_BASE_COST_BYTES: f64 = 0.01;

/// A region of the plan, with the intervals and the ploidy for the caller.
pub(super) struct PlannedRegion {
    pub(super) region: CallingRegion,
    pub(super) label: String,
    pub(super) intervals: Vec<Region>,
    pub(super) ploidy: Option<u8>,
    /// Estimated cost, in compressed bytes of reads; regions with higher costs are called first.
    pub(super) cost: f64,
}

impl PlannedRegion {
    /// Returns a planned region. All contigs of `region` have to be in `genome`.
    pub(super) fn new(region: CallingRegion, genome: &Genome, ploidy: Option<u8>, cost: f64) -> Self {
        let contig = |span: &Interval| genome.contigs()[span.contig.0 as usize].name.clone();
        let region_of = |span: &Interval| Region { contig: contig(span), start: span.start, end: span.end };
        let intervals = region.padded_targets.iter().map(region_of).collect();
        let [first, last] = region.bounding_intervals();
        let label = match first == last {
            true => region_of(&first).title(),
            false => format!("{} to {}", region_of(&first).title(), region_of(&last).title()),
        };
        Self { label, intervals, region, ploidy, cost }
    }

    /// Returns the halves of the region for a caller that stalls in it; `None` if it is too short to be cut.
    pub(super) fn halves(&self, min_bases: u32, padding_bases: u32, genome: &Genome) -> Option<[Self; 2]> {
        let halves = self.region.halves(min_bases, padding_bases)?;
        Some(halves.map(|half| Self::new(half, genome, self.ploidy, self.cost)))
    }
}

/// A region of the grid, before it has a label.
struct GridRegion {
    region: CallingRegion,
    ploidy: Option<u8>,
    cost: f64,
    /// True if the region covers its contigs completely, so that it may be merged with other such regions.
    covers_contigs: bool,
}

/// Returns the regions, in the order of the genome.
///
/// # Errors
/// [`PipelineError::Corrupt`] if reads and reference do not match, [`PipelineError::Options`] if nothing is left to
/// call, [`PipelineError::Engine`] if the caller does not support the ploidy of a region.
pub(super) fn plan_regions(
    options: &CallOptions,
    caller: &dyn Caller,
    reads: &GridInput,
    reference: &ScannedReference,
    targets: Option<&Targets>,
) -> Result<Vec<PlannedRegion>, PipelineError> {
    let targets = targets.map(|targets| targets.by_contig(reads.genome));
    let capabilities = caller.capabilities();
    let grid = grid_options(options, &capabilities);
    let mut drawn: Vec<GridRegion> = Vec::new();
    for contig in grid_contigs(options, reads, reference, targets.as_deref())? {
        let name = &reads.genome.contigs()[contig.id.0 as usize].name;
        let regions = cut_contig(&contig, grid);
        let covers_contigs = capabilities.takes_region_lists && regions.len() == 1;
        for region in regions {
            let start = region.targets[0].start;
            let ploidy = options.ploidy.as_ref().map(|table| table.ploidy(name, start, options.sex.as_deref()));
            // Omit contigs and intervals of ploidy 0.
            if ploidy == Some(0) {
                continue;
            }
            ploidy.map_or(Ok(()), |ploidy| caller.check_ploidy(ploidy))?;
            let bytes = |span: &Interval| {
                reads.bytes(span.contig.0 as usize, span.start, span.end)
                    + f64::from(span.bases()) * EMPTY_BASE_COST_BYTES
            };
            let cost = region.padded_targets.iter().map(bytes).sum();
            let next = GridRegion { region, ploidy, cost, covers_contigs };
            match drawn.last_mut() {
                Some(last) if last.can_merge(&next, grid) => last.extend(next),
                _ => drawn.push(next),
            }
        }
    }
    if drawn.is_empty() {
        let problem =
            "--regions and --ploidy exclude all bases of all contigs, so no region is left to call".to_owned();
        return Err(PipelineError::Options { problem });
    }
    let planned = |GridRegion { region, ploidy, cost, .. }| PlannedRegion::new(region, reads.genome, ploidy, cost);
    Ok(drawn.into_iter().map(planned).collect())
}

impl GridRegion {
    /// Returns whether `next`, a small contig, can join this region: starting a caller takes longer than calling a
    /// small contig.
    fn can_merge(&self, next: &Self, grid: GridOptions) -> bool {
        let bases = self.region.bases() + next.region.bases();
        self.covers_contigs
            && next.covers_contigs
            && self.ploidy == next.ploidy
            && bases <= u64::from(grid.max_region_bases)
    }

    fn extend(&mut self, next: Self) {
        self.region.extend(next.region);
        self.cost += next.cost;
    }
}

/// Returns the size of regions and their padding for a caller.
pub(super) fn grid_options(options: &CallOptions, capabilities: &Capabilities) -> GridOptions {
    let padding_bases = if capabilities.writes_reference_blocks {
        0
    } else {
        options.padding_bases.unwrap_or(capabilities.padding_bases)
    };
    GridOptions { max_region_bases: options.max_region_bases, padding_bases }
}

/// Returns the order in which regions are called: the most expensive first.
pub(super) fn order_by_cost(regions: &[PlannedRegion]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_by(|one, other| regions[*other].cost.total_cmp(&regions[*one].cost).then(one.cmp(other)));
    order
}

fn grid_contigs(
    options: &CallOptions,
    reads: &GridInput,
    reference: &ScannedReference,
    targets: Option<&[Vec<(u32, u32)>]>,
) -> Result<Vec<GridContig>, PipelineError> {
    let apart = |problem: String| PipelineError::Corrupt {
        path: reads.path.to_owned(),
        problem: format!("{problem}; pass the reference that the reads were aligned to as --reference"),
    };
    let mut contigs = Vec::new();
    for (index, contig) in reads.genome.contigs().iter().enumerate() {
        let is_targeted = targets.is_none_or(|targets| !targets[index].is_empty());
        let found = reference.contigs.iter().position(|record| record.name == contig.name);
        let Some(at) = found else {
            if is_targeted && reads.contig_bytes(index) > 0.0 {
                return Err(apart(format!("its reads are on contig {}, which is not in the reference", contig.name)));
            }
            continue;
        };
        let bases = reference.contigs[at].bases;
        if bases != u64::from(contig.length) {
            let length = contig.length;
            return Err(apart(format!(
                "contig {} has {length} bases in this file and {bases} in the reference",
                contig.name
            )));
        }
        if is_targeted {
            let borders = options
                .ploidy
                .as_ref()
                .map(|table: &PloidyTable| table.ploidy_changes(&contig.name, contig.length, options.sex.as_deref()));
            contigs.push(GridContig {
                id: godwit_model::ContigId(index as u32),
                bases: contig.length,
                targets: targets.map(|targets| targets[index].clone()),
                assembly_gaps: reference.gaps[at].clone(),
                required_cuts: borders.unwrap_or_default(),
            });
        }
    }
    if contigs.is_empty() && targets.is_none() {
        return Err(apart("it has no contig in common with the reference".to_owned()));
    }
    Ok(contigs)
}
