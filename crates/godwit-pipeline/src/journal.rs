//! The entries of the journal of an `align` job: one for each finished and durable item, in the order of completion.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use godwit_files::{JournalEntry, is_relative_descendant};
use godwit_formats::fastq::FastqResumePoint;
use godwit_model::{BlockId, DuplicateCounts};
use serde::{Deserialize, Serialize};

use crate::partitioned_file::PartLocation;

/// Prefix of the name of a data directory. Such a directory is not in the job directory but beside it.
pub(crate) const DATA_DIRECTORY_PREFIX: &[u8] = b".godwit-";

/// A named value on which the output of a job depends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FingerprintEntry {
    /// The name that users know, for example `--block-bases` or `the reference`.
    pub name: String,
    /// The value, or a checksum of the value.
    pub value: String,
}

/// A line of the journal of an `align` job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(crate) enum AlignJournalEntry {
    /// The job started.
    Start {
        /// The fingerprint of the job, which a resumed job must match.
        #[serde(rename = "facts")]
        fingerprint: Vec<FingerprintEntry>,
        /// Temporary names of output files in the output directory. They are renamed when the job is complete.
        #[serde(rename = "aside")]
        temporary_names: Vec<String>,
        /// Path of the data directory, as bytes; `None`: the directory of the journal.
        #[serde(rename = "data")]
        data_directory: Option<Vec<u8>>,
        /// Properties of the cluster run; `None` if the job runs in one process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(rename = "over_nodes")]
        cluster_run: Option<ClusterRun>,
    },
    /// The genome is divided into partitions. This is done when the first block is finished.
    Plan {
        /// Smallest sort key of each partition, as `PartitionPlan::starts` returns them.
        starts: Vec<u64>,
    },
    /// A block is aligned, sorted and stored.
    Block(BlockEntry),
    /// The position of the first read of a block in the FASTQ files of its lane.
    BlockStart(BlockStartEntry),
    /// A partition is compressed and stored.
    Partition(PartitionEntry),
    /// All output files are complete and durable, and will be renamed next.
    Publish {
        /// Temporary name and final name of each file, relative to the output directory.
        names: Vec<(String, String)>,
    },
}

/// Properties of a cluster run that stay the same when the head restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRun {
    /// A unique identifier of the cluster run.
    #[serde(rename = "run")]
    pub id: String,
    /// Number of shards into which the genome is divided.
    #[serde(rename = "shares")]
    pub shards: u16,
}

/// A finished block in the `blocks` file. Its sections are contiguous: frames, pair signatures, end signatures, frame
/// table, templates and barcodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEntry {
    /// The identifier of the block.
    pub id: BlockId,
    /// Number of input reads.
    pub reads: u64,
    /// BLAKE3 of the input reads, hexadecimal.
    #[serde(rename = "content")]
    pub reads_checksum: String,
    /// Number of output records.
    pub records: u64,
    /// Maximum length of a record on the reference, bases; `u32::MAX` if an earlier version of godwit did not record
    /// it.
    #[serde(default = "unknown_longest_bases")]
    pub longest_bases: u32,
    /// Record counts per library, for the duplicate metrics.
    pub counts: Vec<DuplicateCounts>,
    /// Offset of the block in the `blocks` file, bytes.
    pub offset: u64,
    /// Size of the frames, which hold the sorted records, bytes.
    pub frame_bytes: u64,
    /// Size of the duplicate signatures of pairs, bytes.
    pub pair_bytes: u64,
    /// Size of the duplicate signatures of single read ends, bytes.
    pub end_bytes: u64,
    /// Size of the frame table, bytes.
    pub table_bytes: u64,
    /// Size of the template data for duplicate marking, bytes; 0 unless workers store the records.
    #[serde(default)]
    pub template_bytes: u64,
    /// Size of the barcodes, bytes; 0 unless workers store the records.
    #[serde(default)]
    pub barcode_bytes: u64,
    /// BLAKE3 of the whole block, hexadecimal.
    pub checksum: String,
}

fn unknown_longest_bases() -> u32 {
    u32::MAX
}

impl BlockEntry {
    /// Returns the size of all sections of the block, bytes.
    pub fn total_bytes(&self) -> u64 {
        self.sizes().into_iter().sum()
    }

    /// Returns the size of each section of the block, in the order of the sections, bytes.
    pub fn sizes(&self) -> [u64; 6] {
        [self.frame_bytes, self.pair_bytes, self.end_bytes, self.table_bytes, self.template_bytes, self.barcode_bytes]
    }

    /// Reports whether the sum of offset and sizes does not overflow.
    fn is_sound(&self) -> bool {
        self.sizes().iter().try_fold(self.offset, |end, bytes| end.checked_add(*bytes)).is_some()
    }
}

/// The position of the first read of a block in the FASTQ files of its lane. With it, a resumed job does not read the
/// bytes before the block again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockStartEntry {
    /// The identifier of the block; never the first block of a lane.
    pub id: BlockId,
    /// Number of reads of the lane before this block.
    pub first_ordinal: u64,
    /// Position in each FASTQ file, without its DEFLATE window.
    #[serde(rename = "places")]
    pub file_positions: Vec<FastqResumePoint>,
    /// Offset of the contiguous DEFLATE windows in the `windows` file, bytes.
    pub window_offset: u64,
    /// Size of the DEFLATE window for each FASTQ file, bytes.
    pub window_bytes: Vec<u32>,
    /// BLAKE3 of all windows of this entry, hexadecimal.
    pub window_checksum: String,
}

/// The journal entry of a finished partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartitionEntry {
    /// Number of the partition, 0-based.
    pub index: usize,
    /// Location of the compressed records of the partition.
    #[serde(rename = "place")]
    pub location: PartLocation,
    /// Offset of the summary in the `parts` file, bytes.
    pub summary_offset: u64,
    /// Size of the summary, bytes.
    pub summary_bytes: u64,
    /// BLAKE3 of the summary, hexadecimal.
    pub summary_checksum: String,
}

impl PartitionEntry {
    /// Returns the offset in the `parts` file behind the last byte of this partition, bytes.
    pub(crate) fn parts_end(&self) -> u64 {
        let pieces = match &self.location {
            PartLocation::Spill(pieces) => &pieces[..],
            PartLocation::File { .. } => &[],
        };
        let end = pieces.iter().map(|(offset, bytes)| offset + bytes).max().unwrap_or(0);
        end.max(self.summary_offset + self.summary_bytes)
    }

    /// Reports whether no sum of an offset and a size overflows.
    fn is_sound(&self) -> bool {
        let ends = |offset: &u64, bytes: &u64| offset.checked_add(*bytes).is_some();
        ends(&self.summary_offset, &self.summary_bytes)
            && match &self.location {
                PartLocation::Spill(pieces) => pieces.iter().all(|(offset, bytes)| ends(offset, bytes)),
                PartLocation::File { offset, bytes } => ends(offset, bytes),
            }
    }
}

impl JournalEntry for AlignJournalEntry {
    fn is_sound(&self) -> bool {
        match self {
            Self::Start { temporary_names, data_directory, .. } => {
                let name = data_directory.as_deref().map(|data| Path::new(OsStr::from_bytes(data)).file_name());
                let is_ours =
                    |name: Option<&OsStr>| name.is_some_and(|name| name.as_bytes().starts_with(DATA_DIRECTORY_PREFIX));
                temporary_names.iter().all(|name| is_relative_descendant(name)) && name.is_none_or(is_ours)
            }
            Self::Publish { names } => {
                names.iter().all(|(temporary, name)| is_relative_descendant(temporary) && is_relative_descendant(name))
            }
            Self::Block(block) => block.is_sound(),
            Self::BlockStart(start) => start.is_sound(),
            Self::Partition(partition) => partition.is_sound(),
            Self::Plan { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use godwit_files::Journal;

    use super::*;

    fn write_journal(path: &Path, entries: &[AlignJournalEntry]) {
        let (journal, _) = Journal::<AlignJournalEntry>::open(path).unwrap();
        entries.iter().for_each(|entry| journal.append(entry).unwrap());
    }

    #[test]
    fn entries_that_lead_out_of_the_run_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let start = |temporary: &str, data: Option<&str>| AlignJournalEntry::Start {
            fingerprint: Vec::new(),
            temporary_names: vec![temporary.to_owned()],
            data_directory: data.map(|data| data.as_bytes().to_vec()),
            cluster_run: None,
        };
        let publish = |temporary: &str, name: &str| AlignJournalEntry::Publish {
            names: vec![(temporary.to_owned(), name.to_owned())],
        };
        let place = PartLocation::Spill(vec![(u64::MAX, 1)]);
        let partition = |location, summary_bytes| {
            let (summary_offset, summary_checksum) = (1, String::new());
            AlignJournalEntry::Partition(PartitionEntry {
                index: 0,
                location,
                summary_offset,
                summary_bytes,
                summary_checksum,
            })
        };
        let sound = [
            start(".a.bam.part", Some("/scratch/.godwit-0123")),
            publish(".a.bam.part", "a.bam"),
            partition(PartLocation::File { offset: 1, bytes: 1 }, 1),
        ];
        write_journal(&path, &sound);
        assert_eq!(Journal::<AlignJournalEntry>::open(&path).unwrap().1, sound);
        let unsound = [
            start("/etc", None),
            start("../x", None),
            start("x", Some("/home/somebody")),
            start("x", Some("/home/.godwit-0123/..")),
            publish("x", "../y"),
            publish("", "y"),
            partition(place, 1),
            partition(PartLocation::File { offset: 2, bytes: u64::MAX - 1 }, 1),
            partition(PartLocation::File { offset: 1, bytes: 1 }, u64::MAX),
        ];
        for entry in unsound {
            fs::remove_file(&path).unwrap();
            write_journal(&path, std::slice::from_ref(&entry));
            assert_eq!(Journal::<AlignJournalEntry>::open(&path).unwrap().1, [], "{entry:?}");
        }
    }
}
