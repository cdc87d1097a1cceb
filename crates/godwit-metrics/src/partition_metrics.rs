//! Metrics of a file whose partitions are counted at the same time, each in the order of its records.
//!
//! A position may be covered by records of several partitions. The first positions of each partition are therefore not
//! counted with it. When the partitions are joined, they are counted from the records that cover them, in the order of
//! the file: those of earlier partitions that reach beyond the border, then the first ones of the partition.

use std::collections::BTreeMap;

use godwit_kernels::qc::{AlignmentBuffer, RecordTags, ReferenceBases};
use godwit_model::{RawRecord, SortKey, flags};
use serde::{Deserialize, Serialize};

use crate::collector::{OrderedCounts, OrderedMetrics, RecordMetrics};
use crate::count_scope::CountScope;
use crate::error::MetricsError;

/// Number of positions at the start of a partition that are counted when partitions are joined. Alignments of short reads
/// are much shorter. The records that start there are in memory until all earlier partitions are finished.
const BORDER_BASES: u32 = 5_000;
/// Records with one of these flags have no bases in any metric that needs the order.
const UNCOUNTED_FLAGS: u16 = flags::UNMAPPED | flags::SECONDARY | flags::DUPLICATE;

/// A position in the genome: index of a contig, and 0-based position. Records without a contig are behind all contigs.
type GenomePosition = (u32, u32);

/// The places of a partition.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PartitionPlaces {
    start: GenomePosition,
    /// First place after the partition.
    end: GenomePosition,
}

impl PartitionPlaces {
    fn new(from: SortKey, until: SortKey) -> Self {
        let place = |key: SortKey| (key.contig() as u32, key.position().max(0) as u32);
        Self { start: place(from), end: place(until) }
    }

    /// Returns the first place that is counted with the partition.
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
    buffer: AlignmentBuffer,
    records: RecordMetrics,
    ordered: OrderedMetrics,
    places: PartitionPlaces,
    first_records: BorderRecords,
    last_records: BorderRecords,
}

/// The counts of a finished partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartitionCounts {
    records: RecordMetrics,
    ordered: OrderedCounts,
    places: PartitionPlaces,
    /// Records that start at the first positions of the partition.
    first_records: BorderRecords,
    /// Records that reach beyond the last position of the partition.
    last_records: BorderRecords,
}

impl PartitionMetrics {
    /// Returns counts of no records for the metrics of `records` and `ordered`. The keys of the partition's records are at
    /// least `from` and less than `until`.
    pub fn new(records: RecordMetrics, ordered: &OrderedMetrics, from: SortKey, until: SortKey) -> Self {
        let places = PartitionPlaces::new(from, until);
        Self {
            buffer: AlignmentBuffer::default(),
            records,
            ordered: ordered.for_places(places.inner_start(), places.end),
            places,
            first_records: BorderRecords::default(),
            last_records: BorderRecords::default(),
        }
    }

    /// Counts a record. Records must come in the order of the file. `flag` replaces the FLAG in the packed record.
    ///
    /// # Errors
    /// As [`OrderedMetrics::add`].
    pub fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        flag: u16,
        reference: &mut R,
    ) -> Result<(), MetricsError> {
        let alignment = self.buffer.decode(record, flag);
        let tags = RecordTags::from_record(record);
        self.records.add_decoded(record, &alignment, &tags, reference)?;
        if self.ordered.is_empty() {
            return Ok(());
        }
        let contig = record.contig() as u32;
        let scope = self.places.inner_scope(contig);
        self.ordered.add_decoded((record, &alignment, &tags), scope, reference)?;
        if flag & UNCOUNTED_FLAGS == 0 {
            let start = record.position().max(0) as u32;
            let end = start + alignment.reference_bases as u32;
            if contig == self.places.start.0 && start < scope.start {
                self.first_records.push(record, flag, end);
            }
            if contig == self.places.end.0 && end > self.places.end.1 {
                self.last_records.push(record, flag, end);
            }
        }
        Ok(())
    }

    /// Ends the partition and returns its counts.
    pub fn finish(self) -> PartitionCounts {
        PartitionCounts {
            records: self.records,
            ordered: self.ordered.into_counts(),
            places: self.places,
            first_records: self.first_records,
            last_records: self.last_records,
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
    /// True if a record reached so far into the next partition that its bases were not counted.
    is_incomplete: bool,
}

/// The metrics of all partitions.
#[derive(Debug)]
pub struct JoinedMetrics {
    /// Counts that do not depend on the order.
    pub records: RecordMetrics,
    /// Counts that depend on the order.
    pub ordered: OrderedMetrics,
    /// True if `ordered` lacks bases, because an alignment reached too far beyond the border of its partition. The
    /// records must be counted again in one partition.
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
        self.out_of_order.insert(at, partition);
        while let Some(partition) = self.out_of_order.remove(&self.next_partition) {
            self.join(partition)?;
            self.next_partition += 1;
        }
        Ok(())
    }

    fn join(&mut self, partition: PartitionCounts) -> Result<(), MetricsError> {
        let PartitionCounts { records, ordered, places, first_records, last_records } = partition;
        self.records.merge(records);
        self.ordered.add_counts(&ordered);
        let scope = places.border_scope();
        for (record, entry) in self.carried.iter().chain(first_records.iter()) {
            let alignment = self.buffer.decode(record, entry.flag);
            let tags = RecordTags::from_record(record);
            self.ordered.add_decoded((record, &alignment, &tags), scope, &mut self.reference)?;
        }
        self.ordered.finish_contig();
        let is_one_contig = places.start.0 == places.end.0;
        let is_border_alone = is_one_contig && scope.end == places.end.1;
        self.is_incomplete |= !is_border_alone && self.carried.reaches_beyond(scope.end);
        let earlier = std::mem::take(&mut self.carried);
        if is_one_contig {
            self.carried.append_beyond(&earlier, places.end.1);
        }
        self.carried.append_beyond(&last_records, places.end.1);
        Ok(())
    }

    /// Returns the metrics of all partitions.
    pub fn finish(self) -> JoinedMetrics {
        let Self { records, ordered, is_incomplete, .. } = self;
        JoinedMetrics { records, ordered, is_incomplete }
    }
}
