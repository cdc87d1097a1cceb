//! Regions as callers take them: words on a command line, or a BED file.

use std::io::Write;
use std::path::PathBuf;

use super::RegionWork;
use crate::EngineError;

/// Part of a contig, `[start, end)`, 0-based.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The contig's name.
    pub contig: String,
    /// First base.
    pub start: u32,
    /// One past the last base.
    pub end: u32,
}

impl Stretch {
    /// As samtools and its kin write it: `chr1:1-100`, 1-based, closed.
    pub fn text(&self) -> String {
        let first_1based = u64::from(self.start) + 1;
        format!("{}:{first_1based}-{}", self.contig, self.end)
    }

    /// As freebayes writes it: `chr1:0-100`, 0-based, half-open.
    pub fn text_0based(&self) -> String {
        format!("{}:{}-{}", self.contig, self.start, self.end)
    }
}

/// How a caller is told where to look.
pub(super) enum Told<'a> {
    /// One stretch that words can name.
    Words(&'a Stretch),
    /// A BED file.
    Bed(PathBuf),
}

impl RegionWork<'_> {
    /// From the first to the last base that is shown; all is on one contig where a caller [lists](super::Habits::lists) nothing.
    pub(super) fn extent(&self) -> Stretch {
        let (first, last) = (&self.stretches[0], &self.stretches[self.stretches.len() - 1]);
        Stretch { end: last.end, ..first.clone() }
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
        for Stretch { contig, start, end } in self.stretches {
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
