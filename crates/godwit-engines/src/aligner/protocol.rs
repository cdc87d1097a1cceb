//! What the streams between godwit and an aligner say beside their columns, as schema metadata.
//!
//! The aligner's first stream is a [`Hello`]. A block goes in as one stream of reads with a [`BlockHeader`]; it comes back
//! as streams of alignments, pairs and ends, closed by a [`BlockEnd`]. Blocks come back in the order they went in.

use std::collections::HashMap;

use godwit_model::schema::{self, metadata};
use godwit_model::{BlockId, Contig, DuplicateCounts, Genome, NO_READ_GROUP};

/// Metadata of a stream.
pub type Metadata = HashMap<String, String>;

/// Exit status of an aligner that refuses its arguments, before its [`Hello`]. The last line on stderr is then an [`error_line`].
pub const EXIT_USAGE: u8 = 2;
/// The mark between the name of the program and the message in that line.
const ERROR_MARK: &str = ": error: ";

/// Returns the line on stderr by which an aligner reports an error.
pub fn error_line(program: &str, message: &str) -> String {
    format!("{program}{ERROR_MARK}{message}")
}

/// Returns the message of an [`error_line`], or all of another line.
pub fn error_message(line: &str) -> &str {
    line.split_once(ERROR_MARK).map_or(line, |(_, message)| message)
}

/// Metadata that is not what it should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// A key is missing.
    #[error("a stream of kind {kind} lacks {key}")]
    Missing {
        /// The kind of stream.
        kind: String,
        /// The key.
        key: &'static str,
    },
    /// A value is not of the form it should have.
    #[error("{key} has the value {value:?}, which is not {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, cut after 100 characters.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Another kind of stream was due.
    #[error("a stream of kind {found} came where {expected} was due")]
    Kind {
        /// The kind that came.
        found: String,
        /// The kind or kinds that were due.
        expected: &'static str,
    },
    /// Two contigs of the index share a name.
    #[error(transparent)]
    Genome(#[from] godwit_model::GenomeError),
}

/// Who the aligner is and what it aligns to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of godwit the program belongs to.
    pub godwit_version: String,
    /// Version of the engine inside, as `0.7.17`.
    pub engine_version: String,
    /// `@SQ` lines as the aligner itself prints them, newline-ended.
    pub sq_lines: String,
    /// The contigs in those lines.
    pub genome: Genome,
}

impl Hello {
    /// A hello from its three texts.
    ///
    /// # Errors
    /// [`ProtocolError`] when the `@SQ` lines do not parse or two share a name.
    pub fn new(godwit_version: String, engine_version: String, sq_lines: String) -> Result<Self, ProtocolError> {
        let contigs = sq_lines.lines().map(parse_sq_line).collect::<Result<_, _>>()?;
        Ok(Self { godwit_version, engine_version, sq_lines, genome: Genome::new(contigs)? })
    }

    /// As stream metadata.
    pub fn to_metadata(&self) -> Metadata {
        HashMap::from([
            entry(metadata::KIND, schema::HELLO),
            entry(metadata::GODWIT_VERSION, &self.godwit_version),
            entry(metadata::ENGINE_VERSION, &self.engine_version),
            entry(metadata::SQ_LINES, &self.sq_lines),
        ])
    }

    /// From stream metadata.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn from_metadata(found: &Metadata) -> Result<Self, ProtocolError> {
        expect_kind(found, schema::HELLO)?;
        let text = |key| text(found, key).map(str::to_owned);
        Self::new(text(metadata::GODWIT_VERSION)?, text(metadata::ENGINE_VERSION)?, text(metadata::SQ_LINES)?)
    }
}

/// Reads `@SQ`, `SN`, `LN` and, for an alternate haplotype, `AH` (SAMv1 §1.3, 2023-05-24).
fn parse_sq_line(line: &str) -> Result<Contig, ProtocolError> {
    let field = |name: &str| line.split('\t').skip(1).find_map(|field| field.strip_prefix(name)?.strip_prefix(':'));
    let parsed = line.starts_with("@SQ\t").then_some(()).and_then(|()| {
        let length = field("LN")?.parse::<u32>().ok().filter(|length| i32::try_from(*length).is_ok())?;
        Some(Contig { name: field("SN")?.to_owned(), length, alternate: field("AH").is_some() })
    });
    parsed.ok_or_else(|| wrong_value(metadata::SQ_LINES, line, "an @SQ line"))
}

/// What an aligner must know of a block beside its reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The block.
    pub id: BlockId,
    /// Reads of the lane before this block: bwa breaks ties by it.
    pub first_ordinal: u64,
    /// Reads come in pairs, mates as neighbours.
    pub paired: bool,
    /// `ID` of the read group, at most 255 bytes; `None` for none.
    pub read_group: Option<String>,
    /// Index of that read group in the header, [`NO_READ_GROUP`] for none.
    pub read_group_index: u16,
    /// Index of its library.
    pub library_index: u16,
}

impl BlockHeader {
    /// As metadata of a stream of reads.
    pub fn to_metadata(&self) -> Metadata {
        let mut metadata = HashMap::from([
            entry(metadata::KIND, schema::READS),
            entry(metadata::LANE, self.id.lane),
            entry(metadata::BLOCK, self.id.ordinal),
            entry(metadata::FIRST_ORDINAL, self.first_ordinal),
            entry(metadata::PAIRED, u8::from(self.paired)),
            entry(metadata::LIBRARY_INDEX, self.library_index),
        ]);
        if let Some(id) = &self.read_group {
            metadata
                .extend([entry(metadata::READ_GROUP, id), entry(metadata::READ_GROUP_INDEX, self.read_group_index)]);
        }
        metadata
    }

    /// From the metadata of a stream of reads.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn from_metadata(found: &Metadata) -> Result<Self, ProtocolError> {
        expect_kind(found, schema::READS)?;
        let read_group = found.get(metadata::READ_GROUP).cloned();
        let read_group_index =
            if read_group.is_some() { number(found, metadata::READ_GROUP_INDEX)? } else { NO_READ_GROUP };
        Ok(Self {
            id: block_id(found)?,
            first_ordinal: number(found, metadata::FIRST_ORDINAL)?,
            paired: number::<u8>(found, metadata::PAIRED)? != 0,
            read_group,
            read_group_index,
            library_index: number(found, metadata::LIBRARY_INDEX)?,
        })
    }
}

/// Closes an aligned block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockEnd {
    /// The block.
    pub id: BlockId,
    /// Reads that went in.
    pub reads: u64,
    /// Records that came out.
    pub records: u64,
    /// The block's records as the duplicate metrics count them.
    pub counts: DuplicateCounts,
}

impl BlockEnd {
    /// As metadata of the closing message.
    pub fn to_metadata(&self) -> Metadata {
        let DuplicateCounts { unpaired_reads, paired_reads, not_primary, unmapped } = self.counts;
        HashMap::from([
            entry(metadata::KIND, schema::BLOCK_END),
            entry(metadata::LANE, self.id.lane),
            entry(metadata::BLOCK, self.id.ordinal),
            entry(metadata::READS, self.reads),
            entry(metadata::RECORDS, self.records),
            entry(metadata::DUPLICATE_COUNTS, format!("{unpaired_reads},{paired_reads},{not_primary},{unmapped}")),
        ])
    }

    /// From the metadata of a closing message.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn from_metadata(found: &Metadata) -> Result<Self, ProtocolError> {
        expect_kind(found, schema::BLOCK_END)?;
        let counts = text(found, metadata::DUPLICATE_COUNTS)?;
        let numbers: Vec<u64> = counts.split(',').map_while(|number| number.parse().ok()).collect();
        let [unpaired_reads, paired_reads, not_primary, unmapped] = numbers[..] else {
            return Err(wrong_value(metadata::DUPLICATE_COUNTS, counts, "four numbers"));
        };
        Ok(Self {
            id: block_id(found)?,
            reads: number(found, metadata::READS)?,
            records: number(found, metadata::RECORDS)?,
            counts: DuplicateCounts { unpaired_reads, paired_reads, not_primary, unmapped },
        })
    }
}

/// Metadata of a stream of alignments, pairs or ends of a block.
pub fn part_metadata(kind: &'static str, id: BlockId) -> Metadata {
    HashMap::from([entry(metadata::KIND, kind), entry(metadata::LANE, id.lane), entry(metadata::BLOCK, id.ordinal)])
}

/// The block a stream belongs to.
///
/// # Errors
/// [`ProtocolError`] when it does not say.
pub fn block_id(found: &Metadata) -> Result<BlockId, ProtocolError> {
    let id = BlockId { lane: number(found, metadata::LANE)?, ordinal: number(found, metadata::BLOCK)? };
    if u32::from(id.lane) >= BlockId::MAX_LANES || id.ordinal >= BlockId::MAX_BLOCKS {
        return Err(wrong_value(metadata::BLOCK, &format!("{}/{}", id.lane, id.ordinal), "a block of a run"));
    }
    Ok(id)
}

/// The kind of a stream, empty where it does not say.
pub fn kind(found: &Metadata) -> &str {
    found.get(metadata::KIND).map_or("", String::as_str)
}

fn expect_kind(found: &Metadata, expected: &'static str) -> Result<(), ProtocolError> {
    if kind(found) == expected { Ok(()) } else { Err(ProtocolError::Kind { found: kind(found).to_owned(), expected }) }
}

fn entry(key: &str, value: impl ToString) -> (String, String) {
    (key.to_owned(), value.to_string())
}

fn text<'a>(found: &'a Metadata, key: &'static str) -> Result<&'a str, ProtocolError> {
    found.get(key).map(String::as_str).ok_or_else(|| ProtocolError::Missing { kind: kind(found).to_owned(), key })
}

fn number<T: std::str::FromStr>(found: &Metadata, key: &'static str) -> Result<T, ProtocolError> {
    let value = text(found, key)?;
    value.parse().map_err(|_| wrong_value(key, value, "a number in range"))
}

fn wrong_value(key: &'static str, value: &str, expected: &'static str) -> ProtocolError {
    ProtocolError::Value { key, value: value.chars().take(100).collect(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_keeps_its_contigs_and_alternates() {
        let lines = "@SQ\tSN:chr1\tLN:1000\n@SQ\tSN:chr1_alt\tLN:10\tAH:*\n";
        let hello = Hello::new("0.1.0".into(), "0.7.17".into(), lines.into()).unwrap();
        assert_eq!(Hello::from_metadata(&hello.to_metadata()).unwrap(), hello);
        assert_eq!(hello.genome.contigs()[1], Contig { name: "chr1_alt".into(), length: 10, alternate: true });
    }

    #[test]
    fn hello_with_a_broken_sq_line_is_refused() {
        for lines in
            ["@SQ\tSN:a\n", "@SQ\tSN:a\tLN:x\n", "@SQ\tLN:1\n", "@HD\tSN:a\tLN:1\n", "@SQ\tSN:a\tLN:4294967295\n"]
        {
            Hello::new("0.1.0".into(), "0.7.17".into(), lines.into()).unwrap_err();
        }
    }

    #[test]
    fn the_message_of_an_error_line_is_what_was_put_into_it() {
        for message in ["bwa mem has no option -q", "x: error: y", ""] {
            assert_eq!(error_message(&error_line("godwit-bwa", message)), message);
        }
        assert_eq!(error_line("godwit-bwa", "m"), "godwit-bwa: error: m");
        assert_eq!(error_message("of another program"), "of another program");
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
        block_id(&metadata).unwrap_err();
    }
}
