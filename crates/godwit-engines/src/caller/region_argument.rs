//! Regions as callers accept them: text on a command line, or a BED file.

use std::io::Write;
use std::path::PathBuf;

use godwit_model::Region;

use super::CallerInvocation;
use crate::EngineError;

/// The region argument of a caller.
pub(super) enum RegionArgument<'a> {
    /// One interval that is unambiguous as text.
    Text(&'a Region),
    /// A BED file.
    Bed(PathBuf),
}

impl CallerInvocation<'_> {
    /// Returns the interval from the first to the last shown base; without region lists, both are on one contig.
    pub(super) fn spanning_region(&self) -> Region {
        let (first, last) = (&self.regions[0], &self.regions[self.regions.len() - 1]);
        Region { end: last.end, ..first.clone() }
    }

    /// Returns a single interval with an unambiguous contig name as text, else a BED file of all intervals.
    pub(super) fn region_argument(&self) -> Result<RegionArgument<'_>, EngineError> {
        match self.regions {
            [only] if !only.contig.contains([':', ',', '{', '}']) => Ok(RegionArgument::Text(only)),
            _ => self.write_bed().map(RegionArgument::Bed),
        }
    }

    /// Writes the intervals as BED.
    pub(super) fn write_bed(&self) -> Result<PathBuf, EngineError> {
        let path = self.directory.join("region.bed");
        let mut text = Vec::new();
        for Region { contig, start, end } in self.regions {
            // Writing to memory cannot fail.
            let _ = writeln!(text, "{contig}\t{start}\t{end}");
        }
        std::fs::write(&path, text).map_err(|source| EngineError::Io {
            program: path.clone(),
            action: "write",
            source,
        })?;
        Ok(path)
    }
}
