//! A reader of UCSC chain files, which map positions between two assemblies of a genome, as Arrow record batches.
//!
//! Flows in: chain text (<https://genome.ucsc.edu/goldenPath/help/chain.html>), plain, gzip or BGZF. Flows out: record
//! batches of the ungapped blocks of all chains, in the order of the file. All positions are 0-based, half-open, and on
//! the forward strand.

use std::str::SplitAsciiWhitespace;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int32Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_formats::text_lines::{TextLineError, TextLineReader};
use godwit_io::bgzf::Reader;

/// Maximum rows of a record batch.
const BATCH_ROWS: usize = 8192;

/// A reason why a file is not a valid chain file.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The file cannot be read, or a line is invalid.
    #[error(transparent)]
    Lines(#[from] TextLineError),
    /// The columns of a batch do not fit its schema, which is a bug in godwit.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[from] ArrowError),
}

/// Returns the schema of the record batches: `contig`, `position` and `end_position` of a block in the old assembly,
/// `lifted_contig`, `lifted_position`, `lifted_end_position` and `lifted_strand` (`+` or `-`) in the new assembly, the
/// `score` of its chain, and the 1-based number of the `chain` in the file.
///
/// # Examples
///
/// ```
/// let schema = godwit_columnar::chain::schema();
/// let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
/// assert_eq!(names[..4], ["contig", "position", "end_position", "lifted_contig"]);
/// ```
pub fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("contig", DataType::Utf8),
        field("position", DataType::Int32),
        field("end_position", DataType::Int32),
        field("lifted_contig", DataType::Utf8),
        field("lifted_position", DataType::Int32),
        field("lifted_end_position", DataType::Int32),
        field("lifted_strand", DataType::Utf8),
        field("score", DataType::Float64),
        field("chain", DataType::Int64),
    ]))
}

/// The header line of a chain.
#[derive(Clone, Debug, Default, PartialEq)]
struct ChainHeader {
    score: f64,
    contig: String,
    end: i32,
    lifted_contig: String,
    lifted_contig_length: i32,
    is_reverse: bool,
    /// End of the chain in the new assembly, on the strand of the chain.
    lifted_end: i32,
}

/// An ungapped block of a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChainBlock<'r> {
    /// Contig of the old assembly.
    pub contig: &'r str,
    /// 0-based position of the first base in the old assembly.
    pub start: i32,
    /// 0-based position after the last base in the old assembly.
    pub end: i32,
    lifted_start: i32,
}

/// A reader of the blocks of a chain file.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_array::cast::AsArray;
/// use arrow_array::types::Int32Type;
/// use godwit_columnar::chain::ChainReader;
/// use godwit_io::bgzf;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("old-to-new.chain");
/// std::fs::write(&path, "chain 90 chr1 500 + 100 160 chr1 600 + 200 255 1\n30 5 0\n25\n\n")?;
/// let mut reader = ChainReader::new(bgzf::open_text(&path, 1)?);
/// let batch = reader.next_batch(|_| true)?.unwrap();
/// assert_eq!(batch["position"].as_primitive::<Int32Type>().values()[..], [100, 135]);
/// assert_eq!(batch["lifted_position"].as_primitive::<Int32Type>().values()[..], [200, 230]);
/// # Ok(())
/// # }
/// ```
pub struct ChainReader {
    lines: TextLineReader,
    header: ChainHeader,
    /// 1-based number of the chain of `header`; 0 before the first chain.
    chain: i64,
    /// Starts of the next block; `None` between chains.
    next_block: Option<BlockStarts>,
}

impl ChainReader {
    /// Creates a reader of an open file from which nothing has been consumed.
    pub fn new(input: Reader) -> Self {
        Self { lines: TextLineReader::new(input), header: ChainHeader::default(), chain: 0, next_block: None }
    }

    /// Returns a batch of the next blocks for which `predicate` is true, or `None` at the end of the file.
    ///
    /// # Errors
    /// [`ChainError`] if the file cannot be read, a line is invalid, or the blocks of a chain do not end at its end.
    pub fn next_batch(&mut self, predicate: impl Fn(&ChainBlock) -> bool) -> Result<Option<RecordBatch>, ChainError> {
        let mut columns = BlockBatchBuilder::default();
        while columns.row_count < BATCH_ROWS {
            let Some((start, end, lifted_start)) = self.next_block()? else { break };
            let block = ChainBlock { contig: &self.header.contig, start, end, lifted_start };
            if predicate(&block) {
                columns.push(&block, &self.header, self.chain);
            }
        }
        if columns.row_count == 0 {
            return Ok(None);
        }
        Ok(Some(RecordBatch::try_new(schema(), columns.finish())?))
    }

    /// Reads the next block: its start and end in the old assembly, and its start in the new assembly on the strand of
    /// the chain.
    fn next_block(&mut self) -> Result<Option<(i32, i32, i32)>, ChainError> {
        loop {
            let found = self.lines.read_line()?;
            match (found, self.next_block) {
                (false, None) => return Ok(None),
                (false, Some(_)) => return Err(self.lines.error("the file ends within a chain").into()),
                (true, None) => {
                    let mut words = self.lines.text()?.split_ascii_whitespace();
                    match words.next() {
                        None => {}
                        Some(word) if word.starts_with('#') => {}
                        Some("chain") => {
                            let parsed = parse_header(words).map_err(|problem| self.lines.error(problem))?;
                            (self.header, self.next_block) = (parsed.0, Some(parsed.1));
                            self.chain += 1;
                        }
                        Some(_) => {
                            let problem = "a line that starts with \"chain\" is expected";
                            return Err(self.lines.error(problem).into());
                        }
                    }
                }
                (true, Some(starts)) => {
                    let parsed = parse_block(self.lines.text()?, starts, &self.header);
                    let (end, next) = parsed.map_err(|problem| self.lines.error(problem))?;
                    let (start, lifted_start) = starts;
                    self.next_block = next;
                    return Ok(Some((start, end, lifted_start)));
                }
            }
        }
    }
}

/// Parses the words after `chain`; returns the header and the starts of the first block.
fn parse_header(words: SplitAsciiWhitespace) -> Result<(ChainHeader, BlockStarts), &'static str> {
    const EXPECTED: &str =
        "a chain line has a score, then name, length, strand, start and end in the old and in the new assembly";
    let words: Vec<&str> = words.collect();
    let [
        score,
        contig,
        length,
        strand,
        start,
        end,
        lifted_contig,
        lifted_length,
        lifted_strand,
        lifted_start,
        lifted_end,
        ..,
    ] = words[..]
    else {
        return Err(EXPECTED);
    };
    let number = |text: &str| text.parse::<i32>().ok().filter(|number| *number >= 0).ok_or(EXPECTED);
    let header = ChainHeader {
        score: score.parse().map_err(|_| EXPECTED)?,
        contig: contig.to_owned(),
        end: number(end)?,
        lifted_contig: lifted_contig.to_owned(),
        lifted_contig_length: number(lifted_length)?,
        is_reverse: lifted_strand == "-",
        lifted_end: number(lifted_end)?,
    };
    let starts = (number(start)?, number(lifted_start)?);
    if strand != "+" || !matches!(lifted_strand, "+" | "-") {
        return Err("the strand of the old assembly must be +, and that of the new assembly + or -");
    }
    if starts.0 > header.end || header.end > number(length)? {
        return Err("the start and the end in the old assembly are not within the contig");
    }
    if starts.1 > header.lifted_end || header.lifted_end > header.lifted_contig_length {
        return Err("the start and the end in the new assembly are not within the contig");
    }
    Ok((header, starts))
}

/// The starts of a block in both assemblies, on the strand of the chain.
type BlockStarts = (i32, i32);

/// Parses a line of a block with its starts; returns its end in the old assembly, and the starts of the next block,
/// which are `None` after the last block of a chain.
fn parse_block(
    text: &str,
    (start, lifted_start): BlockStarts,
    header: &ChainHeader,
) -> Result<(i32, Option<BlockStarts>), &'static str> {
    const EXPECTED: &str = "the size of a block is expected, with the gaps after it in both assemblies unless it is the \
                            last of its chain";
    let numbers: Option<Vec<i32>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok().filter(|number| *number >= 0)).collect();
    let (size, gaps) = match numbers.as_deref() {
        Some([size]) => (*size, None),
        Some([size, gap, lifted_gap]) => (*size, Some((*gap, *lifted_gap))),
        _ => return Err(EXPECTED),
    };
    // The sizes of the contigs are at most 2^31 - 1, so that a sum that overflows is beyond the end of the chain.
    let beyond = "the blocks of the chain do not end at the end of the chain";
    let sum = |start: i32, size: i32, end: i32| start.checked_add(size).filter(|sum| *sum <= end).ok_or(beyond);
    let end = sum(start, size, header.end)?;
    let lifted_end = sum(lifted_start, size, header.lifted_end)?;
    match gaps {
        None if (end, lifted_end) != (header.end, header.lifted_end) => Err(beyond),
        None => Ok((end, None)),
        Some((gap, lifted_gap)) => {
            Ok((end, Some((sum(end, gap, header.end)?, sum(lifted_end, lifted_gap, header.lifted_end)?))))
        }
    }
}

#[derive(Default)]
struct BlockBatchBuilder {
    row_count: usize,
    contig: StringBuilder,
    start: Int32Builder,
    end: Int32Builder,
    lifted_contig: StringBuilder,
    lifted_start: Int32Builder,
    lifted_end: Int32Builder,
    lifted_strand: StringBuilder,
    score: Float64Builder,
    chain: Int64Builder,
}

impl BlockBatchBuilder {
    fn push(&mut self, block: &ChainBlock, header: &ChainHeader, chain: i64) {
        let size = block.end - block.start;
        let lifted_start = match header.is_reverse {
            false => block.lifted_start,
            true => header.lifted_contig_length - block.lifted_start - size,
        };
        self.row_count += 1;
        self.contig.append_value(block.contig);
        self.start.append_value(block.start);
        self.end.append_value(block.end);
        self.lifted_contig.append_value(&header.lifted_contig);
        self.lifted_start.append_value(lifted_start);
        self.lifted_end.append_value(lifted_start + size);
        self.lifted_strand.append_value(if header.is_reverse { "-" } else { "+" });
        self.score.append_value(header.score);
        self.chain.append_value(chain);
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.contig.finish()),
            Arc::new(self.start.finish()),
            Arc::new(self.end.finish()),
            Arc::new(self.lifted_contig.finish()),
            Arc::new(self.lifted_start.finish()),
            Arc::new(self.lifted_end.finish()),
            Arc::new(self.lifted_strand.finish()),
            Arc::new(self.score.finish()),
            Arc::new(self.chain.finish()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type};
    use godwit_io::bgzf;

    use super::*;

    fn read(text: &str) -> Result<Option<RecordBatch>, ChainError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.chain");
        std::fs::write(&path, text).unwrap();
        ChainReader::new(bgzf::open_text(&path, 1).unwrap()).next_batch(|_| true)
    }

    #[test]
    fn blocks_of_both_strands_are_on_the_forward_strand() {
        let text = "# comment\nchain 10 a 100 + 5 40 b 200 + 7 52\n10 5 15\n20\n\n\
                    chain 9 a 100 + 50 60 c 300 - 20 30 7\n10\n";
        let batch = read(text).unwrap().unwrap();
        let numbers = |column: &str| batch[column].as_primitive::<Int32Type>().values().to_vec();
        assert_eq!((numbers("position"), numbers("end_position")), (vec![5, 20, 50], vec![15, 40, 60]));
        assert_eq!((numbers("lifted_position"), numbers("lifted_end_position")), (vec![7, 32, 270], vec![17, 52, 280]));
        assert_eq!(batch["chain"].as_primitive::<Int64Type>().values()[..], [1, 1, 2]);
        assert_eq!(batch["lifted_strand"].as_string::<i32>().value(2), "-");
        assert!(read("").unwrap().is_none());
    }

    #[test]
    fn invalid_lines_are_named() {
        let header = "chain 10 a 100 + 5 40 b 200 + 7 52 1\n";
        for (text, expected) in [
            ("chr1\t5\t6\n".to_owned(), "line 1: a line that starts with"),
            ("chain 10 a 100 + 5\n".to_owned(), "line 1: a chain line has"),
            (header.replace('+', "-"), "line 1: the strand of the old"),
            (header.replace("100", "30"), "line 1: the start and the end in the old"),
            (header.replace("200", "30"), "line 1: the start and the end in the new"),
            (format!("{header}10 5\n"), "line 2: the size of a block"),
            (format!("{header}10 5 15\n"), "line 3: the file ends within"),
            (format!("{header}10 5 15\n19\n"), "line 3: the blocks of the chain"),
            (format!("{header}10 5 15\n2000000000\n"), "line 3: the blocks of the chain"),
            (format!("{header}\n"), "line 2: the size of a block"),
        ] {
            let found = read(&text).unwrap_err().to_string();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
