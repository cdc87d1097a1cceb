//! The two ways to pass a region to a caller: as text on the command line, or in a BED file.

use std::io::Write;
use std::path::PathBuf;

use godwit_model::Region;

use super::CallerInvocation;
use crate::EngineError;

/// A region in a form that a caller accepts.
pub(super) enum RegionArgument<'a> {
    /// A single interval whose text form is unambiguous, to pass on the command line.
    Text(&'a Region),
    /// Path of a BED file that contains all intervals.
    Bed(PathBuf),
}

impl CallerInvocation<'_> {
    /// Returns the interval from the start of the first region to the end of the last one. Both must be on one contig.
    pub(super) fn spanning_region(&self) -> Region {
        let (first, last) = (&self.regions[0], &self.regions[self.regions.len() - 1]);
        Region { end: last.end, ..first.clone() }
    }

    /// Returns the region as text if it is a single interval and the contig name is unambiguous; otherwise writes a BED
    /// file of all intervals.
    pub(super) fn region_argument(&self) -> Result<RegionArgument<'_>, EngineError> {
        match self.regions {
            [only] if !only.contig.contains([':', ',', '{', '}']) => Ok(RegionArgument::Text(only)),
            _ => self.write_bed().map(RegionArgument::Bed),
        }
    }

    /// Writes all intervals to a BED file in the private directory of the region, and returns its path.
    pub(super) fn write_bed(&self) -> Result<PathBuf, EngineError> {
        let path = self.directory.join("region.bed");
        let mut text = Vec::new();
        for Region { contig, start, end } in self.regions {
            // Writing to a vector in memory cannot fail.
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
