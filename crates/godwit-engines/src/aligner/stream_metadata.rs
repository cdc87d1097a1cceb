//! The schema metadata of the Arrow streams between godwit and its own aligner programs.
//!
//! The first stream from the aligner contains an [`AlignerInfo`]. godwit sends each block as one stream of reads with a
//! [`BlockHeader`]. The aligner returns it as streams of alignments, pairs and ends, followed by a [`BlockEnd`]. It
//! returns the blocks in the order in which godwit sent them.

use std::collections::HashMap;

use godwit_model::schema::{self, metadata};
use godwit_model::{BlockId, Contig, DuplicateCounts, Genome, NO_READ_GROUP};

/// Metadata of an Arrow stream, by key.
pub type StreamMetadata = HashMap<String, String>;

/// An error in the metadata of a stream.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// The metadata lacks a required key.
    #[error("a stream of kind {kind} lacks {key}")]
    Missing {
        /// Kind of the stream.
        kind: String,
        /// The missing key.
        key: &'static str,
    },
    /// The value of a key has the wrong form.
    #[error("{key} has the value {value:?}, which is not {expected}")]
    Value {
        /// The key of the value.
        key: &'static str,
        /// The value, truncated after 100 characters.
        value: String,
        /// Description of the expected form.
        expected: &'static str,
    },
    /// A stream has a different kind than expected.
    #[error("received a stream of the kind {found:?}, but expected one of the kind {expected}")]
    Kind {
        /// Kind of the received stream.
        found: String,
        /// Expected kind or kinds.
        expected: &'static str,
    },
    /// Two contigs of the index share a name.
    #[error(transparent)]
    Genome(#[from] godwit_model::GenomeError),
}

/// The versions and contigs that an aligner program sends first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlignerInfo {
    /// Version of the godwit release that the program belongs to.
    pub godwit_version: String,
    /// Version of the aligner library in the program, such as `0.7.17`.
    pub engine_version: String,
    /// `@SQ` lines of the SAM header, as the aligner itself prints them; each ends with a newline.
    pub sq_lines: String,
    /// The contigs that the `@SQ` lines describe.
    pub genome: Genome,
}

impl AlignerInfo {
    /// Creates an info from two versions and the `@SQ` lines of the SAM header.
    ///
    /// # Errors
    /// [`ProtocolError`] if the `@SQ` lines are invalid or two contigs share a name.
    pub fn new(godwit_version: String, engine_version: String, sq_lines: String) -> Result<Self, ProtocolError> {
        let contigs = sq_lines.lines().map(parse_sq_line).collect::<Result<_, _>>()?;
        Ok(Self { godwit_version, engine_version, sq_lines, genome: Genome::new(contigs)? })
    }

    /// Converts the info to stream metadata.
    pub fn to_metadata(&self) -> StreamMetadata {
        HashMap::from([
            metadata_entry(metadata::KIND, schema::HELLO),
            metadata_entry(metadata::GODWIT_VERSION, &self.godwit_version),
            metadata_entry(metadata::ENGINE_VERSION, &self.engine_version),
            metadata_entry(metadata::SQ_LINES, &self.sq_lines),
        ])
    }

    /// Reads the info from stream metadata.
    ///
    /// # Errors
    /// [`ProtocolError`] for a missing key or an invalid value.
    pub fn from_metadata(found: &StreamMetadata) -> Result<Self, ProtocolError> {
        check_kind(found, schema::HELLO)?;
        let text = |key| required_text(found, key).map(str::to_owned);
        Self::new(text(metadata::GODWIT_VERSION)?, text(metadata::ENGINE_VERSION)?, text(metadata::SQ_LINES)?)
    }
}

/// Parses an `@SQ` line with the fields `SN`, `LN` and, for an alternate contig, `AH` (SAMv1 §1.3, 2023-05-24).
fn parse_sq_line(line: &str) -> Result<Contig, ProtocolError> {
    let field = |name: &str| line.split('\t').skip(1).find_map(|field| field.strip_prefix(name)?.strip_prefix(':'));
    let parsed = line.starts_with("@SQ\t").then_some(()).and_then(|()| {
        let length = field("LN")?.parse::<u32>().ok().filter(|length| i32::try_from(*length).is_ok())?;
        Some(Contig { name: field("SN")?.to_owned(), length, alternate: field("AH").is_some() })
    });
    parsed.ok_or_else(|| value_error(metadata::SQ_LINES, line, "an @SQ line"))
}

/// The values that an aligner needs for a block besides its reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Id of the block.
    pub id: BlockId,
    /// Number of reads of the lane before this block. bwa breaks ties by the number of a read in the lane.
    pub first_ordinal: u64,
    /// True if the reads are paired. The two mates of a pair are then adjacent.
    pub paired: bool,
    /// `ID` of the read group, at most 255 bytes; `None` if the reads have no read group.
    pub read_group: Option<String>,
    /// Index of the reads' read group in the SAM header; [`NO_READ_GROUP`] if they have none.
    pub read_group_index: u16,
    /// Index of the library of the reads.
    pub library_index: u16,
}

impl BlockHeader {
    /// Converts the header to the metadata of a stream of reads.
    pub fn to_metadata(&self) -> StreamMetadata {
        let mut metadata = HashMap::from([
            metadata_entry(metadata::KIND, schema::READS),
            metadata_entry(metadata::LANE, self.id.lane),
            metadata_entry(metadata::BLOCK, self.id.ordinal),
            metadata_entry(metadata::FIRST_ORDINAL, self.first_ordinal),
            metadata_entry(metadata::PAIRED, u8::from(self.paired)),
            metadata_entry(metadata::LIBRARY_INDEX, self.library_index),
        ]);
        if let Some(id) = &self.read_group {
            metadata.extend([
                metadata_entry(metadata::READ_GROUP, id),
                metadata_entry(metadata::READ_GROUP_INDEX, self.read_group_index),
            ]);
        }
        metadata
    }

    /// Parses the header from the metadata of a stream of reads.
    ///
    /// # Errors
    /// [`ProtocolError`] for a missing key or an invalid value.
    pub fn from_metadata(found: &StreamMetadata) -> Result<Self, ProtocolError> {
        check_kind(found, schema::READS)?;
        let read_group = found.get(metadata::READ_GROUP).cloned();
        let read_group_index =
            if read_group.is_some() { parse_number(found, metadata::READ_GROUP_INDEX)? } else { NO_READ_GROUP };
        Ok(Self {
            id: parse_block_id(found)?,
            first_ordinal: parse_number(found, metadata::FIRST_ORDINAL)?,
            paired: parse_number::<u8>(found, metadata::PAIRED)? != 0,
            read_group,
            read_group_index,
            library_index: parse_number(found, metadata::LIBRARY_INDEX)?,
        })
    }
}

/// The message that follows the last stream of an aligned block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockEnd {
    /// Id of the block.
    pub id: BlockId,
    /// Number of reads in the input block.
    pub reads: u64,
    /// Number of SAM records in the aligned block.
    pub records: u64,
    /// Numbers of records in the block, by the categories of the duplicate metrics.
    pub counts: DuplicateCounts,
}

impl BlockEnd {
    /// Converts the block end to the metadata of the message that closes a block.
    pub fn to_metadata(&self) -> StreamMetadata {
        let DuplicateCounts { unpaired_reads, paired_reads, not_primary, unmapped } = self.counts;
        HashMap::from([
            metadata_entry(metadata::KIND, schema::BLOCK_END),
            metadata_entry(metadata::LANE, self.id.lane),
            metadata_entry(metadata::BLOCK, self.id.ordinal),
            metadata_entry(metadata::READS, self.reads),
            metadata_entry(metadata::RECORDS, self.records),
            metadata_entry(
                metadata::DUPLICATE_COUNTS,
                format!("{unpaired_reads},{paired_reads},{not_primary},{unmapped}"),
            ),
        ])
    }

    /// Parses the block end from the metadata of the message that closes a block.
    ///
    /// # Errors
    /// [`ProtocolError`] for a missing key or an invalid value.
    pub fn from_metadata(found: &StreamMetadata) -> Result<Self, ProtocolError> {
        check_kind(found, schema::BLOCK_END)?;
        let counts = required_text(found, metadata::DUPLICATE_COUNTS)?;
        let numbers: Vec<u64> = counts.split(',').map_while(|number| number.parse().ok()).collect();
        let [unpaired_reads, paired_reads, not_primary, unmapped] = numbers[..] else {
            return Err(value_error(metadata::DUPLICATE_COUNTS, counts, "four numbers"));
        };
        Ok(Self {
            id: parse_block_id(found)?,
            reads: parse_number(found, metadata::READS)?,
            records: parse_number(found, metadata::RECORDS)?,
            counts: DuplicateCounts { unpaired_reads, paired_reads, not_primary, unmapped },
        })
    }
}

/// Returns the metadata of a stream that contains alignments, pairs or ends of block `id`.
pub fn part_metadata(kind: &'static str, id: BlockId) -> StreamMetadata {
    HashMap::from([
        metadata_entry(metadata::KIND, kind),
        metadata_entry(metadata::LANE, id.lane),
        metadata_entry(metadata::BLOCK, id.ordinal),
    ])
}

/// Returns the id of the block to which a stream with this metadata belongs.
///
/// # Errors
/// [`ProtocolError`] if the metadata lacks the id or the id is invalid.
pub fn parse_block_id(found: &StreamMetadata) -> Result<BlockId, ProtocolError> {
    let id = BlockId { lane: parse_number(found, metadata::LANE)?, ordinal: parse_number(found, metadata::BLOCK)? };
    if u32::from(id.lane) >= BlockId::MAX_LANES || id.ordinal >= BlockId::MAX_BLOCKS {
        return Err(value_error(metadata::BLOCK, &format!("{}/{}", id.lane, id.ordinal), "a valid block id"));
    }
    Ok(id)
}

/// Returns the kind of a stream with this metadata, or an empty string if the metadata lacks it.
pub fn stream_kind(found: &StreamMetadata) -> &str {
    found.get(metadata::KIND).map_or("", String::as_str)
}

fn check_kind(found: &StreamMetadata, expected: &'static str) -> Result<(), ProtocolError> {
    if stream_kind(found) == expected {
        Ok(())
    } else {
        Err(ProtocolError::Kind { found: stream_kind(found).to_owned(), expected })
    }
}

fn metadata_entry(key: &str, value: impl ToString) -> (String, String) {
    (key.to_owned(), value.to_string())
}

fn required_text<'a>(found: &'a StreamMetadata, key: &'static str) -> Result<&'a str, ProtocolError> {
    found
        .get(key)
        .map(String::as_str)
        .ok_or_else(|| ProtocolError::Missing { kind: stream_kind(found).to_owned(), key })
}

fn parse_number<T: std::str::FromStr>(found: &StreamMetadata, key: &'static str) -> Result<T, ProtocolError> {
    let value = required_text(found, key)?;
    value.parse().map_err(|_| value_error(key, value, "a number in range"))
}

fn value_error(key: &'static str, value: &str, expected: &'static str) -> ProtocolError {
    ProtocolError::Value { key, value: value.chars().take(100).collect(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_keeps_its_contigs_and_alternates() {
        let lines = "@SQ\tSN:chr1\tLN:1000\n@SQ\tSN:chr1_alt\tLN:10\tAH:*\n";
        let hello = AlignerInfo::new("0.1.0".into(), "0.7.17".into(), lines.into()).unwrap();
        assert_eq!(AlignerInfo::from_metadata(&hello.to_metadata()).unwrap(), hello);
        assert_eq!(hello.genome.contigs()[1], Contig { name: "chr1_alt".into(), length: 10, alternate: true });
    }

    #[test]
    fn hello_with_a_broken_sq_line_is_refused() {
        for lines in
            ["@SQ\tSN:a\n", "@SQ\tSN:a\tLN:x\n", "@SQ\tLN:1\n", "@HD\tSN:a\tLN:1\n", "@SQ\tSN:a\tLN:4294967295\n"]
        {
            AlignerInfo::new("0.1.0".into(), "0.7.17".into(), lines.into()).unwrap_err();
        }
    }

    #[test]
    fn block_headers_survive_metadata() {
        let with_group = BlockHeader {
            id: BlockId { lane: 3, ordinal: 9 },
            first_ordinal: 12_345_678_901,
            paired: true,
            read_group: Some("lane 3".into()),
            read_group_index: 2,
            library_index: 1,
        };
        let without = BlockHeader { read_group: None, read_group_index: NO_READ_GROUP, ..with_group.clone() };
        for header in [with_group, without] {
            assert_eq!(BlockHeader::from_metadata(&header.to_metadata()).unwrap(), header);
        }
    }

    #[test]
    fn block_ends_survive_metadata() {
        let counts = DuplicateCounts { unpaired_reads: 1, paired_reads: 2, not_primary: 3, unmapped: 4 };
        let end = BlockEnd { id: BlockId { lane: 0, ordinal: 1 }, reads: 10, records: 11, counts };
        assert_eq!(BlockEnd::from_metadata(&end.to_metadata()).unwrap(), end);
        let mut broken = end.to_metadata();
        broken.insert(metadata::DUPLICATE_COUNTS.into(), "1,2,x,4".into());
        BlockEnd::from_metadata(&broken).unwrap_err();
    }

    #[test]
    fn blocks_outside_a_run_are_refused() {
        let mut metadata = part_metadata(schema::PAIRS, BlockId { lane: 0, ordinal: 0 });
        metadata.insert(metadata::LANE.into(), "4096".into());
        parse_block_id(&metadata).unwrap_err();
    }
}
