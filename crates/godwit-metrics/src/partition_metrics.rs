//! Metrics of a file whose partitions are counted at the same time, each in the order of its records.
//!
//! A position may be covered by records of several partitions. The first positions of each partition are therefore not
//! counted with it. When the partitions are joined, they are counted from the records that cover them, in the order of
//! the file: those of earlier partitions that reach beyond the border, then the first ones of the partition.

use std::collections::BTreeMap;

use godwit_kernels::qc::{Alignment, AlignmentBuffer, ReferenceBases};
use godwit_model::{RawRecord, SortKey, flags};
use serde::{Deserialize, Serialize};

use crate::collector::{OrderedCounts, OrderedMetrics, RecordMetrics};
use crate::count_scope::CountScope;
use crate::error::MetricsError;

/// Number of positions at the start of a partition that are counted when partitions are joined. Alignments of short reads
/// are much shorter. The records that start there are in memory until all earlier partitions are finished.
const BORDER_BASES: u32 = 5_000;
/// Maximum size of the records that a partition holds until it is joined, bytes. A partition that has more is not joined,
/// and the metrics are computed from the finished file. At a depth of 30, reads of 150 bases at a border take less than
/// 1 MiB.
const MAX_BORDER_BYTES: usize = 16 << 20;
/// Records with one of these flags have no bases in any metric that needs the order.
const UNCOUNTED_FLAGS: u16 = flags::UNMAPPED | flags::SECONDARY | flags::DUPLICATE;

/// A position in the genome: index of a contig, and 0-based position. Records without a contig are behind all contigs.
type GenomePosition = (u32, u32);

/// First position of a partition, and first position after it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PartitionBounds {
    start: GenomePosition,
    /// First position after the partition.
    end: GenomePosition,
}

impl PartitionBounds {
    fn new(from: SortKey, until: SortKey) -> Self {
        let position = |key: SortKey| (key.contig() as u32, key.position().max(0) as u32);
        Self { start: position(from), end: position(until) }
    }

    /// Returns the first position that is counted with the partition.
    fn inner_start(&self) -> GenomePosition {
        (self.start.0, self.start.1.saturating_add(BORDER_BASES))
    }

    /// Returns the positions of a contig that are counted with the partition.
    fn inner_scope(&self, contig: u32) -> CountScope {
        let start = if contig == self.start.0 { self.inner_start().1 } else { 0 };
        let end = if contig == self.end.0 { self.end.1 } else { u32::MAX };
        CountScope { start, end, counts_record: true }
    }

    /// Returns the positions of the first contig that are counted when partitions are joined.
    fn border_scope(&self) -> CountScope {
        let end = self.inner_scope(self.start.0);
        CountScope { start: self.start.1, end: end.start.min(end.end), counts_record: false }
    }
}

/// Records of one contig near a border, in the order of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct BorderRecords {
    #[serde(with = "base64_text")]
    bytes: Vec<u8>,
    records: Vec<BorderRecord>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct BorderRecord {
    flag: u16,
    /// Position after the last aligned base, 0-based.
    end: u32,
    /// End of the packed record in the bytes.
    end_offset: usize,
}

/// Bytes as base64, which is much shorter in JSON than a list of numbers.
mod base64_text {
    use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD_NO_PAD.encode(bytes))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)
    }
}

impl BorderRecords {
    fn push(&mut self, record: RawRecord, flag: u16, end: u32) {
        self.bytes.extend_from_slice(record.bytes());
        self.records.push(BorderRecord { flag, end, end_offset: self.bytes.len() });
    }

    fn iter(&self) -> impl Iterator<Item = (RawRecord<'_>, BorderRecord)> {
        let starts = [0].into_iter().chain(self.records.iter().map(|record| record.end_offset));
        let records = self.records.iter().zip(starts);
        records.map(move |(entry, start)| (RawRecord::from_trusted_bytes(&self.bytes[start..entry.end_offset]), *entry))
    }

    fn reaches_beyond(&self, position: u32) -> bool {
        self.records.iter().any(|record| record.end > position)
    }

    /// Appends the records of `others` that reach beyond a position.
    fn append_beyond(&mut self, others: &Self, position: u32) {
        for (record, entry) in others.iter().filter(|(_, entry)| entry.end > position) {
            self.push(record, entry.flag, entry.end);
        }
    }
}

/// The metrics of one partition while its records are counted.
#[derive(Clone, Debug)]
pub struct PartitionMetrics {
    records: RecordMetrics,
    ordered: OrderedMetrics,
    bounds: PartitionBounds,
    first_records: BorderRecords,
    last_records: BorderRecords,
    /// Maximum size of both groups of records together, bytes.
    max_border_bytes: usize,
    /// True if the records near the borders were too large, so that none is held.
    is_incomplete: bool,
}

/// The counts of a finished partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartitionCounts {
    /// Under this name, a head of 0.2.0 rejects the counts, which lack the alignment summary and the insert sizes.
    #[serde(rename = "other_records")]
    records: RecordMetrics,
    ordered: OrderedCounts,
    bounds: PartitionBounds,
    /// Records that start at the first positions of the partition.
    first_records: BorderRecords,
    /// Records that reach beyond the last position of the partition.
    last_records: BorderRecords,
    /// True if the records near the borders are missing, because they were too large.
    is_incomplete: bool,
}

impl PartitionMetrics {
    /// Returns counts of no records for the metrics of `records` and `ordered`. The keys of the partition's records are at
    /// least `from` and less than `until`.
    pub fn new(records: RecordMetrics, ordered: &OrderedMetrics, from: SortKey, until: SortKey) -> Self {
        let bounds = PartitionBounds::new(from, until);
        Self {
            records,
            ordered: ordered.for_bounds(bounds.inner_start(), bounds.end),
            bounds,
            first_records: BorderRecords::default(),
            last_records: BorderRecords::default(),
            max_border_bytes: MAX_BORDER_BYTES,
            is_incomplete: false,
        }
    }

    /// Counts a record. Records must come in the order of the file.
    ///
    /// # Errors
    /// As [`OrderedMetrics::add`].
    pub fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        reference: &mut R,
    ) -> Result<(), MetricsError> {
        self.records.add(record, alignment, reference)?;
        if self.ordered.is_empty() {
            return Ok(());
        }
        let contig = record.contig() as u32;
        let scope = self.bounds.inner_scope(contig);
        self.ordered.add_within(record, alignment, scope, reference)?;
        let flag = alignment.flag;
        if flag & UNCOUNTED_FLAGS == 0 && !self.is_incomplete {
            let start = record.position().max(0) as u32;
            let end = start + alignment.reference_bases as u32;
            if contig == self.bounds.start.0 && start < scope.start {
                self.first_records.push(record, flag, end);
            }
            if contig == self.bounds.end.0 && end > self.bounds.end.1 {
                self.last_records.push(record, flag, end);
            }
            self.limit_border_bytes();
        }
        Ok(())
    }

    /// Drops the records near the borders if they are too large.
    fn limit_border_bytes(&mut self) {
        if self.first_records.bytes.len() + self.last_records.bytes.len() > self.max_border_bytes {
            self.is_incomplete = true;
            self.first_records = BorderRecords::default();
            self.last_records = BorderRecords::default();
        }
    }

    /// Ends the partition and returns its counts.
    pub fn finish(self) -> PartitionCounts {
        PartitionCounts {
            records: self.records,
            ordered: self.ordered.into_counts(),
            bounds: self.bounds,
            first_records: self.first_records,
            last_records: self.last_records,
            is_incomplete: self.is_incomplete,
        }
    }
}

/// Joins the counts of the partitions of a file, in the order of the file. Counts that are added too early are stored.
#[derive(Debug)]
pub struct PartitionJoiner<R> {
    buffer: AlignmentBuffer,
    records: RecordMetrics,
    ordered: OrderedMetrics,
    reference: R,
    /// Records of joined partitions that reach beyond them.
    carried: BorderRecords,
    next_partition: usize,
    out_of_order: BTreeMap<usize, PartitionCounts>,
    /// True if a record reached so far into the next partition that its bases were not counted, or if a partition held no
    /// records. Then partitions are no longer joined, and no records are held.
    is_incomplete: bool,
}

/// The metrics of all partitions.
#[derive(Debug)]
pub struct JoinedMetrics {
    /// Counts that do not depend on the order.
    pub records: RecordMetrics,
    /// Counts that depend on the order.
    pub ordered: OrderedMetrics,
    /// True if `ordered` lacks bases, because an alignment reached too far beyond the border of its partition, or the
    /// records near a border were too large. The records must be counted again in one partition.
    pub is_incomplete: bool,
}

impl<R: ReferenceBases> PartitionJoiner<R> {
    /// Returns a joiner without partitions. `records`, `ordered`: counts of no records for the requested metrics.
    pub fn new(records: RecordMetrics, ordered: OrderedMetrics, reference: R) -> Self {
        Self {
            buffer: AlignmentBuffer::default(),
            records,
            ordered,
            reference,
            carried: BorderRecords::default(),
            next_partition: 0,
            out_of_order: BTreeMap::new(),
            is_incomplete: false,
        }
    }

    /// Adds the partition with the 0-based index `at` in the file.
    ///
    /// # Errors
    /// [`MetricsError::Reference`] if the reference cannot be read.
    pub fn add(&mut self, at: usize, partition: PartitionCounts) -> Result<(), MetricsError> {
        if self.is_incomplete || partition.is_incomplete {
            self.is_incomplete = true;
            self.carried = BorderRecords::default();
            self.records.merge(partition.records);
            for (_, partition) in std::mem::take(&mut self.out_of_order) {
                self.records.merge(partition.records);
            }
            return Ok(());
        }
        self.out_of_order.insert(at, partition);
        while let Some(partition) = self.out_of_order.remove(&self.next_partition) {
            self.join(partition)?;
            self.next_partition += 1;
        }
        Ok(())
    }

    fn join(&mut self, partition: PartitionCounts) -> Result<(), MetricsError> {
        let PartitionCounts { records, ordered, bounds, first_records, last_records, .. } = partition;
        self.records.merge(records);
        self.ordered.add_counts(&ordered);
        let scope = bounds.border_scope();
        for (record, entry) in self.carried.iter().chain(first_records.iter()) {
            let alignment = self.buffer.decode(record, entry.flag);
            self.ordered.add_within(record, &alignment, scope, &mut self.reference)?;
        }
        self.ordered.finish_contig();
        let is_one_contig = bounds.start.0 == bounds.end.0;
        let is_border_alone = is_one_contig && scope.end == bounds.end.1;
        self.is_incomplete |= !is_border_alone && self.carried.reaches_beyond(scope.end);
        let earlier = std::mem::take(&mut self.carried);
        if is_one_contig {
            self.carried.append_beyond(&earlier, bounds.end.1);
        }
        self.carried.append_beyond(&last_records, bounds.end.1);
        Ok(())
    }

    /// Returns the metrics of all partitions.
    pub fn finish(self) -> JoinedMetrics {
        let Self { records, ordered, is_incomplete, .. } = self;
        JoinedMetrics { records, ordered, is_incomplete }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use godwit_model::{Contig, Genome};

    use super::*;
    use crate::collector::TargetLists;
    use crate::metric::Metric;
    use crate::reference_scan::ReferenceCounts;

    /// Length of the contig, bases.
    const CONTIG_BASES: u32 = 100_000;

    /// A reference of the base A.
    struct OnlyA(Vec<u8>);

    impl ReferenceBases for OnlyA {
        fn codes(&mut self, _contig: i32, start: u32, end: u32) -> io::Result<&[u8]> {
            Ok(&self.0[start as usize..end.min(CONTIG_BASES) as usize])
        }
    }

    fn reference() -> OnlyA {
        OnlyA(vec![1; CONTIG_BASES as usize])
    }

    fn empty_metrics() -> (RecordMetrics, OrderedMetrics) {
        let contig = Contig { name: "one".to_owned(), length: CONTIG_BASES, alternate: false };
        let genome = Genome::new(vec![contig]).expect("the genome is valid");
        let metrics = [Metric::WgsMetrics];
        let ordered = OrderedMetrics::new(&metrics, &genome, &[], TargetLists::default(), false);
        (RecordMetrics::new(&metrics, &genome), ordered.expect("WgsMetrics needs no read groups"))
    }

    /// Returns the packed first read of a pair with eight bases, and a deletion in its middle.
    fn packed_record(position: i32, deletion: i32) -> Vec<u8> {
        let cigar = [4 << 4, deletion << 4 | 2, 4 << 4];
        let cigar = if deletion > 0 { &cigar[..] } else { &[8 << 4] };
        let name = i32::from_le_bytes([b'a' + (position % 20) as u8, b'0', b'1', 0]);
        let start = [0, position, 60 << 8 | 4, 99 << 16 | cigar.len() as i32, 8, 0, position, 8, name];
        let bases = [0x1111_1111, 0x1e1e_1e1e, 0x1e1e_1e1e];
        start.iter().chain(cigar).chain(&bases).flat_map(|word: &i32| word.to_le_bytes()).collect()
    }

    /// Joins the partitions between `borders`, of records before and after 10,000, one of which has a deletion. Partitions
    /// hold at most `max_border_bytes`.
    fn join(borders: &[i32], deletion: i32, max_border_bytes: usize) -> JoinedMetrics {
        let records: Vec<_> = (0..20).map(|at| packed_record(9_990 + at, if at == 5 { deletion } else { 0 })).collect();
        let (empty, ordered) = empty_metrics();
        let mut joiner = PartitionJoiner::new(empty.clone(), ordered.clone(), reference());
        for (at, bounds) in borders.windows(2).enumerate() {
            let [from, until] = [bounds[0], bounds[1]].map(|position| SortKey::new(0, position, false));
            let mut partition = PartitionMetrics::new(empty.clone(), &ordered, from, until);
            partition.max_border_bytes = max_border_bytes;
            let mut buffer = AlignmentBuffer::default();
            for bytes in &records {
                let record = RawRecord::from_bytes(bytes, 1).expect("the record is valid");
                if (bounds[0]..bounds[1]).contains(&record.position()) {
                    partition
                        .add(record, &buffer.decode(record, record.flag()), &mut reference())
                        .expect("the reference can be read");
                }
            }
            let counts = serde_json::to_vec(&partition.finish()).expect("counts are JSON");
            let counts = serde_json::from_slice(&counts).expect("counts are read as they were written");
            joiner.add(at, counts).expect("the reference can be read");
        }
        joiner.finish()
    }

    fn text(joined: JoinedMetrics) -> String {
        let files = joined.ordered.into_files(&ReferenceCounts::default(), &mut reference(), "a.bam");
        files.expect("the reference can be read").remove(0).text
    }

    #[test]
    fn only_an_alignment_far_beyond_a_border_makes_the_joined_metrics_incomplete() {
        for (deletion, is_incomplete) in [(0, false), (700, false), (20_000, true)] {
            let joined = join(&[0, 10_000, CONTIG_BASES as i32], deletion, MAX_BORDER_BYTES);
            assert_eq!(joined.is_incomplete, is_incomplete, "a deletion of {deletion} bases");
            if !is_incomplete {
                let whole = join(&[0, CONTIG_BASES as i32], deletion, MAX_BORDER_BYTES);
                assert_eq!(text(joined), text(whole), "a deletion of {deletion} bases");
            }
        }
    }

    #[test]
    fn records_above_the_limit_at_a_border_are_dropped_and_make_the_joined_metrics_incomplete() {
        let borders = [0, 10_000, 10_005, CONTIG_BASES as i32];
        assert!(!join(&borders, 0, MAX_BORDER_BYTES).is_incomplete);
        assert!(join(&borders, 0, 300).is_incomplete);
        let (empty, ordered) = empty_metrics();
        let [from, until] = [10_000, 20_000].map(|position| SortKey::new(0, position, false));
        let mut partition = PartitionMetrics::new(empty, &ordered, from, until);
        partition.max_border_bytes = 300;
        let mut buffer = AlignmentBuffer::default();
        let bytes = packed_record(10_000, 0);
        let record = RawRecord::from_bytes(&bytes, 1).expect("the record is valid");
        for _ in 0..100 {
            partition
                .add(record, &buffer.decode(record, record.flag()), &mut reference())
                .expect("the reference can be read");
        }
        let counts = partition.finish();
        assert!(counts.is_incomplete && counts.first_records.bytes.is_empty());
    }
}
