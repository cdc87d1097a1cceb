//! Regions as callers take them: words on a command line, or a BED file.

use std::io::Write;
use std::path::PathBuf;

use godwit_model::Region;

use super::RegionWork;
use crate::EngineError;

/// How a caller is told where to look.
pub(super) enum Told<'a> {
    /// One stretch that words can name.
    Words(&'a Region),
    /// A BED file.
    Bed(PathBuf),
}

impl RegionWork<'_> {
    /// From the first to the last base that is shown; all is on one contig where a caller [lists](super::Habits::lists) nothing.
    pub(super) fn extent(&self) -> Region {
        let (first, last) = (&self.stretches[0], &self.stretches[self.stretches.len() - 1]);
        Region { end: last.end, ..first.clone() }
    }

    /// The stretch where there is one and its contig's name cannot be misread, else a file of all of them.
    pub(super) fn told(&self) -> Result<Told<'_>, EngineError> {
        match self.stretches {
            [only] if !only.contig.contains([':', ',', '{', '}']) => Ok(Told::Words(only)),
            _ => self.bed().map(Told::Bed),
        }
    }

    /// Writes the stretches as BED.
    pub(super) fn bed(&self) -> Result<PathBuf, EngineError> {
        let path = self.directory.join("region.bed");
        let mut text = Vec::new();
        for Region { contig, start, end } in self.stretches {
            // Memory takes everything.
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
