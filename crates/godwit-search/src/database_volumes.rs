//! The layout of the volumes of a BLAST database: which bytes of which files contain the letters of a range of sequences.
//!
//! The index of a volume (`.pin`, `.nin`; versions 4 and 5) consists of a header, and of the offsets of all headers and
//! of all sequences in the files beside it, as big-endian numbers of 32 bits (the BLAST database format in NCBI's
//! `writedb` and `seqdb_reader`, as in BLAST+ 2.17). The layout serves only to read data ahead: a search is correct
//! without it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Extensions of the index and of the letters of a volume: of proteins, and of nucleotides.
const VOLUME_EXTENSIONS: [(&str, &str); 2] = [(".pin", ".psq"), (".nin", ".nsq")];
/// Size of an offset in the index, bytes.
const OFFSET_BYTES: u64 = 4;
/// Maximum length of a title, name or date in an index, bytes. A longer one shows that the file is not an index.
const MAX_TEXT_BYTES: u32 = 1 << 20;

/// Consecutive bytes of a file of the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseExtent {
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The volumes of a database, in the order of its sequences.
#[derive(Debug, Default)]
pub(crate) struct DatabaseVolumes {
    volumes: Vec<Volume>,
}

#[derive(Debug)]
struct Volume {
    index: File,
    /// Offset in the index of the offset of the first sequence.
    offsets_start: u64,
    sequences: u32,
    letters_path: PathBuf,
    letters_bytes: u64,
}

impl DatabaseVolumes {
    /// Opens the indexes of volumes, given their paths without extensions. Returns `None` if a volume has no index that
    /// this version can read.
    pub(crate) fn open(paths: &[String]) -> Option<Self> {
        let volumes = paths.iter().map(|path| Volume::open(path)).collect::<Option<_>>()?;
        Some(Self { volumes })
    }

    /// Returns the size of the letters of all sequences on disk, bytes.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.letters_bytes).sum()
    }

    /// Returns the extents of the letters of the sequences from `first` to `end` (exclusive), counted from 0 over all
    /// volumes. Parts of an index that cannot be read are left out.
    pub(crate) fn range_extents(&self, first: u32, end: u32) -> Vec<DatabaseExtent> {
        let mut extents = Vec::new();
        let mut volume_start: u64 = 0;
        for volume in &self.volumes {
            let volume_end = volume_start + u64::from(volume.sequences);
            let (from, to) = (u64::from(first).max(volume_start), u64::from(end).min(volume_end));
            if from < to {
                let offset = |sequence: u64| volume.sequence_offset(sequence - volume_start);
                if let (Ok(offset), Ok(extent_end)) = (offset(from), offset(to)) {
                    let bytes = extent_end.saturating_sub(offset);
                    extents.push(DatabaseExtent { path: volume.letters_path.clone(), offset, bytes });
                }
            }
            volume_start = volume_end;
        }
        extents
    }
}

impl Volume {
    fn open(path: &str) -> Option<Self> {
        let extensions = VOLUME_EXTENSIONS.into_iter();
        let (index_path, letters_path) = extensions
            .map(|(index, letters)| {
                (PathBuf::from(format!("{path}{index}")), PathBuf::from(format!("{path}{letters}")))
            })
            .find(|(index, _)| index.is_file())?;
        let letters_bytes = letters_path.metadata().ok()?.len();
        let (sequences, header_offsets_start) = read_index_header(&index_path).ok().flatten()?;
        // A list of offsets has one more entry than there are sequences: the end of the last one.
        let offsets_start = header_offsets_start + (u64::from(sequences) + 1) * OFFSET_BYTES;
        Some(Self { index: File::open(&index_path).ok()?, offsets_start, sequences, letters_path, letters_bytes })
    }

    /// Returns the offset in the file of letters of a sequence, counted from 0; for the number of sequences, the end of
    /// the last one.
    fn sequence_offset(&self, sequence: u64) -> std::io::Result<u64> {
        let mut bytes = [0; OFFSET_BYTES as usize];
        self.index.read_exact_at(&mut bytes, self.offsets_start + sequence * OFFSET_BYTES)?;
        Ok(u64::from(u32::from_be_bytes(bytes)))
    }
}

/// Reads the number of sequences from an index, and the offset at which the offsets of headers begin. Returns `None` if
/// the file is not an index of version 4 or 5.
fn read_index_header(path: &Path) -> std::io::Result<Option<(u32, u64)>> {
    let mut from = CountingReader { from: BufReader::new(File::open(path)?), bytes: 0 };
    let version = from.read_u32()?;
    let _is_protein = from.read_u32()?;
    // Version 5 has the number of the volume, the title, the name of the file of accessions, and the date; version 4 has
    // the title and the date.
    let texts = match version {
        4 => 2,
        5 => {
            from.read_u32()?;
            3
        }
        _ => return Ok(None),
    };
    for _ in 0..texts {
        let length = from.read_u32()?;
        if length > MAX_TEXT_BYTES {
            return Ok(None);
        }
        from.skip(u64::from(length))?;
    }
    let sequences = from.read_u32()?;
    // The number of letters (eight bytes) and the length of the longest sequence.
    from.skip(12)?;
    Ok(Some((sequences, from.bytes)))
}

/// A reader that counts the bytes that were read.
struct CountingReader {
    from: BufReader<File>,
    bytes: u64,
}

impl CountingReader {
    fn read_u32(&mut self) -> std::io::Result<u32> {
        let mut bytes = [0; 4];
        self.from.read_exact(&mut bytes)?;
        self.bytes += 4;
        Ok(u32::from_be_bytes(bytes))
    }

    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        let skipped = std::io::copy(&mut (&mut self.from).take(bytes), &mut std::io::sink())?;
        self.bytes += skipped;
        if skipped == bytes { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a volume whose sequences have these lengths, as `makeblastdb` does: a zero byte precedes each sequence.
    fn write_volume(path: &Path, version: u32, lengths: &[u32]) -> String {
        let text = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
        let mut index = [version.to_be_bytes(), 1_u32.to_be_bytes()].concat();
        if version == 5 {
            index.extend(0_u32.to_be_bytes());
        }
        index.extend(text("title"));
        if version == 5 {
            index.extend(text("name.pdb"));
        }
        index.extend(text("Nov 27, 2026  9:22 AM\0\0"));
        index.extend((lengths.len() as u32).to_be_bytes());
        index.extend(u64::from(lengths.iter().sum::<u32>()).to_le_bytes());
        index.extend(lengths.iter().max().copied().unwrap_or(0).to_be_bytes());
        index.extend(vec![0; 4 * (lengths.len() + 1)]);
        let mut end = 1;
        index.extend(1_u32.to_be_bytes());
        for length in lengths {
            end += length + 1;
            index.extend(end.to_be_bytes());
        }
        let name = path.display().to_string();
        std::fs::write(format!("{name}.pin"), index).expect("scratch can be written");
        std::fs::write(format!("{name}.psq"), vec![0; end as usize]).expect("scratch can be written");
        name
    }

    #[test]
    fn a_range_has_an_extent_in_each_of_its_volumes() {
        let directory = tempfile::tempdir().expect("scratch");
        let one = write_volume(&directory.path().join("one"), 5, &[10, 20, 30]);
        let two = write_volume(&directory.path().join("two"), 4, &[5, 6]);
        let volumes = DatabaseVolumes::open(&[one.clone(), two.clone()]).expect("they are volumes");
        assert_eq!(volumes.total_bytes(), 64 + 14);
        let extent = |name: &str, offset, bytes| DatabaseExtent { path: format!("{name}.psq").into(), offset, bytes };
        assert_eq!(volumes.range_extents(1, 2), [extent(&one, 12, 21)]);
        assert_eq!(volumes.range_extents(2, 4), [extent(&one, 33, 31), extent(&two, 1, 6)]);
        assert_eq!(volumes.range_extents(0, 9), [extent(&one, 1, 63), extent(&two, 1, 13)]);
        assert_eq!(volumes.range_extents(5, 9), []);
    }

    #[test]
    fn a_file_of_another_format_is_not_an_index() {
        let directory = tempfile::tempdir().expect("scratch");
        let name = write_volume(&directory.path().join("one"), 5, &[10, 20, 30]);
        let index = std::fs::read(format!("{name}.pin")).expect("it was written");
        for end in 0..40 {
            std::fs::write(format!("{name}.pin"), &index[..end]).expect("scratch can be written");
            assert!(DatabaseVolumes::open(std::slice::from_ref(&name)).is_none(), "{end}");
        }
        let other = write_volume(&directory.path().join("other"), 3, &[10]);
        assert!(DatabaseVolumes::open(&[other]).is_none());
        assert!(DatabaseVolumes::open(&["no-such-volume".to_owned()]).is_none());
    }
}
