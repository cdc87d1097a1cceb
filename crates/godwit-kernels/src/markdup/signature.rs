//! Conversion of records to signatures, while the records of a template are still neighbours.

use godwit_model::{
    DuplicateCounts, EndSignature, NO_READ_GROUP, PairSignature, RawRecord, ReadLocation, RecordId, end_flags, flags,
};
use xxhash_rust::xxh3::xxh3_128;

use super::mate_join::join_mates;
use super::read_location::read_location;

/// Minimum base quality that counts for the duplicate score (htsjdk 4.2.0 `DuplicateScoringStrategy`).
const MIN_SCORED_QUALITY: u8 = 15;
/// Maximum score of one read: `Short.MAX_VALUE / 2` of Java, so that the sum of two scores cannot overflow 16 bits.
const MAX_SCORE: u32 = 16_383;
/// Number added to the score of a read that failed the vendor's quality checks: `Short.MIN_VALUE / 2` of Java.
const QC_FAIL_PENALTY: i16 = -16_384;

/// The signatures of the records of one block.
#[derive(Debug, Default)]
pub struct BlockSignatures {
    /// Signatures of pairs whose mates were neighbours.
    pub pairs: Vec<PairSignature>,
    /// Signatures of reads without a mapped mate, and of reads whose mate was not a neighbour.
    pub ends: Vec<EndSignature>,
    /// Record counts of each library, by library index.
    pub counts: Vec<DuplicateCounts>,
}

/// A builder of the signatures of a block, from the records of the block in order.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::markdup::SignatureBuilder;
/// use godwit_model::{BlockId, RawRecord};
///
/// # let read = |name: &[u8; 4], position: i32, mate: i32, flag: i32, quality: i32| {
/// #     let (name, qualities) = (i32::from_le_bytes(*name), quality * 0x0101_0101);
/// #     let fixed = [0, position, 4681 << 16 | 60 << 8 | 4, flag << 16 | 1, 8, 0, mate, 0];
/// #     [&fixed[..], &[name, 8 << 4, 0x4812_4812, qualities, qualities]].concat()
/// # };
/// # let bytes = |words: Vec<i32>| words.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<u8>>();
/// # let mates = [read(b"r01\0", 999, 1_291, 99, 30), read(b"r01\0", 1_291, 999, 147, 30)].map(bytes);
/// let block = BlockId { lane: 0, ordinal: 0 };
/// let mut builder = SignatureBuilder::new();
/// // `mates` are two records of eight aligned bases, at the 0-based positions 999 and 1,291.
/// for (index, mate) in (0..).zip(&mates) {
///     builder.push(block.record(index), RawRecord::from_bytes(mate, 1)?, 0, 0, b"rg1");
/// }
/// let signatures = builder.finish_block();
/// assert_eq!((signatures.pairs[0].five_prime1, signatures.pairs[0].five_prime2), (999, 1_298));
/// assert_eq!(signatures.counts[0].paired_reads, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct SignatureBuilder {
    block: BlockSignatures,
    /// Primary mapped reads of the current template that have a mapped mate.
    mates: Vec<EndSignature>,
    template: Template,
    hash_input: Vec<u8>,
}

/// The values that all records of the current template share.
struct Template {
    name: Vec<u8>,
    read_group_id: Vec<u8>,
    read_group: u16,
    hash: [u64; 2],
    location: ReadLocation,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            name: Vec::new(),
            read_group_id: Vec::new(),
            read_group: NO_READ_GROUP,
            hash: [0; 2],
            location: ReadLocation::NONE,
        }
    }
}

impl SignatureBuilder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next record of the block.
    ///
    /// `read_group` and `library` are indices; `read_group` is [`NO_READ_GROUP`] if the record has no read group.
    /// `read_group_id` is the `ID` of the read group, or empty. As in Picard, mates are joined by the concatenation of
    /// this `ID` and the read name.
    pub fn push(&mut self, id: RecordId, record: RawRecord, read_group: u16, library: u16, read_group_id: &[u8]) {
        let flag = record.flag();
        let has_mapped_mate = flag & flags::PAIRED != 0 && flag & flags::MATE_UNMAPPED == 0;
        let counts = self.library_counts_mut(library);
        if flag & flags::UNMAPPED != 0 {
            counts.unmapped += 1;
            return;
        }
        if flag & flags::NOT_PRIMARY != 0 {
            counts.not_primary += 1;
            return;
        }
        if has_mapped_mate {
            counts.paired_reads += 1;
        } else {
            counts.unpaired_reads += 1;
        }
        // Read groups that are not in the header have the same index, so the IDs are compared instead.
        if self.template.name != record.name() || self.template.read_group_id != read_group_id {
            self.start_template(record.name(), read_group, read_group_id);
        }
        let end = self.end_signature(id, record, library, has_mapped_mate);
        if has_mapped_mate {
            self.mates.push(end);
        } else {
            self.block.ends.push(end);
        }
    }

    /// Returns the signatures of all records pushed so far, and resets the builder.
    pub fn finish_block(&mut self) -> BlockSignatures {
        self.flush_mates();
        self.template = Template::default();
        std::mem::take(&mut self.block)
    }

    fn library_counts_mut(&mut self, library: u16) -> &mut DuplicateCounts {
        let counts = &mut self.block.counts;
        let index = usize::from(library);
        if counts.len() <= index {
            counts.resize(index + 1, DuplicateCounts::default());
        }
        &mut counts[index]
    }

    fn start_template(&mut self, name: &[u8], read_group: u16, read_group_id: &[u8]) {
        self.flush_mates();
        self.hash_input.clear();
        self.hash_input.extend_from_slice(read_group_id);
        self.hash_input.extend_from_slice(name);
        let hash = xxh3_128(&self.hash_input);
        self.template.name.clear();
        self.template.name.extend_from_slice(name);
        self.template.read_group = read_group;
        self.template.read_group_id.clear();
        self.template.read_group_id.extend_from_slice(read_group_id);
        self.template.hash = [(hash >> 64) as u64, hash as u64];
        self.template.location = read_location(name);
    }

    fn end_signature(&self, id: RecordId, record: RawRecord, library: u16, with_mate: bool) -> EndSignature {
        let flag = record.flag();
        let mut bits = 0;
        if flag & flags::REVERSE != 0 {
            bits |= end_flags::REVERSE;
        }
        if flag & flags::FIRST != 0 {
            bits |= end_flags::FIRST;
        }
        if with_mate {
            bits |= end_flags::MATE_MAPPED;
        }
        EndSignature {
            name: self.template.hash,
            record: id,
            contig: record.contig(),
            five_prime: record.unclipped_five_prime(),
            position: record.position(),
            mate_contig: if with_mate { record.mate_contig() } else { -1 },
            library,
            read_group: self.template.read_group,
            location: self.template.location,
            score: duplicate_score(record),
            flags: bits,
            padding: 0,
        }
    }

    /// Joins the two mates of the current template. If they cannot be joined here, the later join over all blocks
    /// handles them.
    fn flush_mates(&mut self) {
        if let [a, b] = self.mates[..]
            && a.mate_contig == b.contig
            && b.mate_contig == a.contig
        {
            let (earlier, later) = if a.file_order() <= b.file_order() { (a, b) } else { (b, a) };
            self.block.pairs.push(join_mates(&earlier, &later));
        } else {
            self.block.ends.extend_from_slice(&self.mates);
        }
        self.mates.clear();
    }
}

/// Returns the duplicate score of one read as Picard computes it: the sum of its qualities of 15 and above, capped at
/// [`MAX_SCORE`], with a penalty for a QC failure.
fn duplicate_score(record: RawRecord) -> i16 {
    let qualities = record.qualities();
    let sum: u32 = if record.has_qualities() {
        // Bytes are signed in Java: a quality above 127 is negative there and is ignored.
        qualities.iter().map(|q| if (MIN_SCORED_QUALITY..=127).contains(q) { u32::from(*q) } else { 0 }).sum()
    } else {
        0
    };
    let penalty = if record.flag() & flags::QC_FAIL != 0 { QC_FAIL_PENALTY } else { 0 };
    sum.min(MAX_SCORE) as i16 + penalty
}
