//! The index beside a file, and what it is good for.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_flight::{DatasetError, Part};
use godwit_formats::index::{FileChunk, RegionIndex};
use godwit_formats::with_causes;

/// The index of a file.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// It is there.
    Index(Box<RegionIndex>),
    /// There is none: regions are found by reading everything.
    Missing,
    /// It is there, and of no use.
    Unusable {
        /// Why, and what to do.
        problem: String,
    },
}

/// The index file of a file, by one of some endings: `a.bam.bai`, or `a.bai`.
pub(crate) fn index_beside(path: &Path, endings: &[&str]) -> Option<PathBuf> {
    let appended = endings.iter().map(|ending| {
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(ending);
        PathBuf::from(name)
    });
    let replaced = endings.iter().map(|ending| path.with_extension(ending));
    appended.chain(replaced).find(|index| index.is_file())
}

impl Lookup {
    /// Reads the index beside a file. `command` makes it.
    pub(crate) fn beside(path: &Path, endings: &[&str], command: &str) -> Self {
        let Some(index_path) = index_beside(path, endings) else { return Self::Missing };
        let unusable = |problem: String| Self::Unusable {
            problem: format!("{problem} make it again with `{command} {}`", path.display()),
        };
        let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
        if let (Ok(of_file), Ok(of_index)) = (modified(path), modified(&index_path))
            && of_index < of_file
        {
            return unusable(format!(
                "{} is older than its file, so it may be of another one; touch it if it is known to be right, or",
                index_path.display()
            ));
        }
        let index = match RegionIndex::read(&index_path) {
            Ok(index) => index,
            Err(error) => return unusable(with_causes(&error) + ";"),
        };
        if fs::metadata(path).is_ok_and(|file| index.last_offset() > file.len()) {
            return unusable(format!("{} points behind the end of its file;", index_path.display()));
        }
        Self::Index(Box::new(index))
    }

    /// The index; `None` where everything has to be read.
    ///
    /// # Errors
    /// Where there is one that cannot be used.
    pub(crate) fn index(&self) -> Result<Option<&RegionIndex>, DatasetError> {
        match self {
            Self::Index(index) => Ok(Some(index)),
            Self::Missing => Ok(None),
            Self::Unusable { problem } => Err(DatasetError::Refused { problem: problem.clone() }),
        }
    }

    /// The index, where it is there and good.
    pub(crate) fn usable(&self) -> Option<&RegionIndex> {
        match self {
            Self::Index(index) => Some(index),
            Self::Missing | Self::Unusable { .. } => None,
        }
    }

    /// The whole file, from its first record on, in as many parts or fewer.
    pub(crate) fn whole_file(&self, first: u64, bytes: u64, most: usize) -> Vec<Part> {
        let cuts = self.usable().map(|index| index.cuts(first, bytes, most)).unwrap_or_default();
        let starts = [first].into_iter().chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([u64::MAX]);
        starts.zip(ends).map(|stretch| Part { stretches: vec![stretch] }).collect()
    }
}

/// Deals stretches, in their order, to as many parts of like size, or fewer. The ends of an index' stretches are no starts of
/// records, so none is cut.
pub(crate) fn deal(mut stretches: Vec<FileChunk>, most: usize) -> Vec<Part> {
    // Regions of one file may meet in stretches that overlap: a record must not be read twice.
    stretches.sort_unstable();
    stretches.dedup_by(|next, stretch| {
        let joined = next.0 <= stretch.1;
        if joined {
            stretch.1 = stretch.1.max(next.1);
        }
        joined
    });
    let bytes = |stretch: &FileChunk| (stretch.1 >> 16) - (stretch.0 >> 16) + 1;
    let share = stretches.iter().map(bytes).sum::<u64>().div_ceil(most.max(1) as u64);
    let (mut parts, mut filled) = (Vec::new(), 0);
    for stretch in stretches {
        if parts.is_empty() || filled >= share {
            parts.push(Part::default());
            filled = 0;
        }
        filled += bytes(&stretch);
        if let Some(part) = parts.last_mut() {
            part.stretches.push(stretch);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_overlap_are_read_once_and_dealt_in_order() {
        let parts = deal(vec![(5 << 16, 9 << 16), (0, 2 << 16), (8 << 16, 12 << 16), (1 << 16, 2 << 16)], 2);
        let stretches: Vec<_> = parts.into_iter().map(|part| part.stretches).collect();
        assert_eq!(stretches, [vec![(0, 2 << 16), (5 << 16, 12 << 16)]]);
        let parts = deal(vec![(0, 10 << 16), (20 << 16, 30 << 16), (40 << 16, 50 << 16)], 3);
        assert_eq!(parts.len(), 3);
        assert!(deal(Vec::new(), 3).is_empty());
    }
}
