//! Confident regions: intervals of the genome in which the truth set is reliable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use godwit_formats::intervals::read_bed;
use godwit_pipeline::PipelineError;

use super::call_set::{Allele, CallSet};
use super::{ContigNames, no_contig_in_common};

/// Confident intervals of each contig: 0-based, half-open, sorted, neither overlapping nor adjacent.
#[derive(Debug)]
pub(super) struct ConfidentRegions {
    path: PathBuf,
    by_contig: BTreeMap<u32, Vec<(u32, u32)>>,
}

impl ConfidentRegions {
    pub(super) fn read(path: &Path, contigs: &mut ContigNames) -> Result<Self, PipelineError> {
        let mut by_contig: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for region in read_bed(path)? {
            by_contig.entry(contigs.id(&region.contig)).or_default().push((region.start, region.end));
        }
        for regions in by_contig.values_mut() {
            regions.sort_unstable();
            regions.dedup_by(|next, before| {
                let touching = next.0 <= before.1;
                if touching {
                    before.1 = before.1.max(next.1);
                }
                touching
            });
        }
        Ok(Self { path: path.to_owned(), by_contig })
    }

    /// Rejects confident regions that have no contig in common with the truth set.
    pub(super) fn check_contigs(&self, truth: &CallSet, contigs: &ContigNames) -> Result<(), PipelineError> {
        let expected = truth.contigs();
        if expected.is_empty() || expected.iter().any(|contig| self.by_contig.contains_key(contig)) {
            return Ok(());
        }
        let names = |ids: &mut dyn Iterator<Item = u32>| ids.map(|id| contigs.name(id).to_owned()).collect::<Vec<_>>();
        let (found, expected) = (names(&mut self.by_contig.keys().copied()), names(&mut expected.into_iter()));
        Err(no_contig_in_common(&self.path, &found, truth.path(), &expected))
    }

    /// Returns whether one region contains all reference bases that an allele replaces.
    pub(super) fn contains(&self, allele: &Allele) -> bool {
        let Some(regions) = self.by_contig.get(&allele.contig) else { return false };
        let after = regions.partition_point(|(start, _)| i64::from(*start) <= i64::from(allele.position));
        after > 0 && allele.end() <= i64::from(regions[after - 1].1)
    }

    /// Returns the number of bases in the regions.
    pub(super) fn bases(&self) -> u64 {
        self.by_contig.values().flatten().map(|(start, end)| u64::from(end - start)).sum()
    }
}
