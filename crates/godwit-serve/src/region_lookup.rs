//! The index beside a file, and what it is good for.

use godwit_flight::{DatasetError, Part};
use godwit_formats::index::{FileChunk, IndexReadError, RegionIndex, merge_chunks};
use godwit_formats::with_causes;

use crate::batches::blamed;
use crate::bucket::remote_cause;
use crate::store::{Seen, SeenFile, Store};

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

impl Lookup {
    /// Reads the index beside a file. `command` makes it.
    ///
    /// # Errors
    /// Those of the way to a store elsewhere; here an index that cannot be read is one of no use.
    pub(crate) fn beside(store: &Store, seen: &Seen, command: &str) -> Result<Self, DatasetError> {
        let (file, Some(index)) = (seen.file()?, &seen.index) else { return Ok(Self::Missing) };
        let unusable = |problem: String| {
            let problem = format!("{problem} make it again with `{command} {}`", file.path.display());
            Ok(Self::Unusable { problem })
        };
        if let Some(problem) = stale(file, index) {
            return unusable(problem);
        }
        match read_index(store, index)? {
            Ok(found) if found.last_offset() > file.bytes => {
                unusable(format!("{} points behind the end of its file;", index.path.display()))
            }
            Ok(found) => Ok(Self::Index(Box::new(found))),
            Err(problem) => unusable(problem + ";"),
        }
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

/// What is wrong with an index that was there before its file.
pub(crate) fn stale(file: &SeenFile, index: &SeenFile) -> Option<String> {
    let (of_file, of_index) = file.modified.zip(index.modified)?;
    (of_index < of_file).then(|| {
        format!(
            "{} is older than its file, so it may be of another one; touch it if it is known to be right, or",
            index.path.display()
        )
    })
}

/// An index, or why it is none.
fn read_index(store: &Store, index: &SeenFile) -> Result<Result<RegionIndex, String>, DatasetError> {
    let input = match store.open_text(index) {
        Ok(input) => input,
        Err(error @ (DatasetError::Remote(_) | DatasetError::Changed { .. })) => return Err(error),
        Err(error) => return Ok(Err(with_causes(&error))),
    };
    match RegionIndex::read_from(input) {
        Ok(found) => Ok(Ok(found)),
        Err(error @ IndexReadError::Bgzf(_)) if remote_cause(&error).is_some() => Err(blamed(error)),
        Err(error) => Ok(Err(with_causes(&error))),
    }
}

/// Bytes of a file, as they are stored, that are worth a part of their own: reading them takes milliseconds.
const WORTHWHILE_BYTES: u64 = 1 << 20;

/// Deals stretches, in their order, to as many parts of like size, or fewer. The ends of an index' stretches are no starts of
/// records, so none is cut. Records between stretches may be read as well.
pub(crate) fn deal(stretches: Vec<FileChunk>, most: usize) -> Vec<Part> {
    // Regions of one file may meet in stretches that overlap: a record must not be read twice.
    let stretches = merge_chunks(stretches);
    let bytes = |stretch: &FileChunk| (stretch.1 >> 16) - (stretch.0 >> 16) + 1;
    let total = stretches.iter().map(bytes).sum::<u64>();
    let share = total.div_ceil(most.max(1) as u64).max(WORTHWHILE_BYTES);
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
        let dealt = |stretches: &[FileChunk], most| -> Vec<_> {
            deal(stretches.to_vec(), most).into_iter().map(|part| part.stretches).collect()
        };
        let few = [(5 << 16, 9 << 16), (0, 2 << 16), (8 << 16, 12 << 16), (1 << 16, 2 << 16)];
        assert_eq!(dealt(&few, 2), [vec![(0, 2 << 16), (5 << 16, 12 << 16)]]);
        let in_one_block = [(3 << 16, (5 << 16) | 100), ((5 << 16) | 700, (5 << 16) | 900), (6 << 16, 7 << 16)];
        assert_eq!(dealt(&in_one_block, 2), [vec![(3 << 16, (5 << 16) | 900), (6 << 16, 7 << 16)]]);
        let long = [0, 2, 4].map(|start| ((start * WORTHWHILE_BYTES) << 16, ((start + 1) * WORTHWHILE_BYTES) << 16));
        assert_eq!(dealt(&long, 3), long.map(|stretch| vec![stretch]));
        assert_eq!(dealt(&long, 1), [long]);
        let short = long.map(|(start, _)| (start, start + (9 << 16)));
        assert_eq!(dealt(&short, 3), [short], "not worth it");
        assert!(deal(Vec::new(), 3).is_empty());
    }
}
