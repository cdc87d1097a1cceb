//! Splits the SAM output of an external aligner into blocks and checks it against the input reads.

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;
use std::sync::Arc;

use arrow_array::RecordBatch;
use godwit_model::{Genome, flags};
use memchr::memmem;

use super::first_unknown_contig;
use super::pending_reads::{PendingItem, PendingReads, name_fingerprint};
use crate::EngineError;
use crate::aligner::block_encoder::RecordPosition;
use crate::aligner::{AlignedBlock, AlignerInfo, BlockEncoder, BlockHeader};
use crate::child::ChildState;

/// Maximum length of a SAM line, bytes: about 100 times the length of an ultra-long read with its tags.
const MAX_LINE_BYTES: u64 = 256 << 20;
/// Maximum number of bytes of a SAM line in an error message.
const EXCERPT_BYTES: usize = 60;

/// A reader of the SAM output of an external aligner; see [`BlockReader`](super::BlockReader).
pub struct SamReader {
    state: Arc<ChildState>,
    output: BufReader<ChildStdout>,
    pending_reads: Arc<PendingReads>,
    genome: Genome,
    encoder: BlockEncoder,
    /// The SAM line of the next record; empty if it was not read yet.
    line: Vec<u8>,
    /// 1-based number in the program's output of the line that was read last.
    line_number: u64,
    /// The `@SQ` lines read so far.
    sq_lines: String,
    is_at_end: bool,
}

/// The records of the template that is currently read.
#[derive(Default)]
struct TemplateRecords {
    name: Vec<u8>,
    /// Positions of the primary records of read 1 and read 2. An unpaired read counts as read 1.
    primary_positions: [Option<RecordPosition>; 2],
}

impl SamReader {
    pub(super) fn new(
        state: Arc<ChildState>,
        output: ChildStdout,
        pending_reads: Arc<PendingReads>,
        genome: Genome,
    ) -> Self {
        let encoder = BlockEncoder::new(&genome);
        let output = BufReader::with_capacity(1 << 20, output);
        let (line, sq_lines) = (Vec::new(), String::new());
        Self { state, output, pending_reads, genome, encoder, line, line_number: 0, sq_lines, is_at_end: false }
    }

    pub(in crate::aligner) fn next_block(&mut self) -> Result<Option<AlignedBlock>, EngineError> {
        let mut batches = Vec::new();
        let mut answered = 0;
        loop {
            self.fill_line()?;
            match self.pending_reads.item_after(answered) {
                PendingItem::Nothing if self.is_at_end && answered == 0 => {
                    self.state.expect_success()?;
                    return Ok(None);
                }
                PendingItem::Nothing if self.is_at_end => {
                    return Err(self.output_error("its output ends within a block"));
                }
                PendingItem::Nothing => {
                    return Err(
                        self.output_error(format!("it printed more records than reads: {}", self.line_excerpt()))
                    );
                }
                PendingItem::BlockEnd { reads } => {
                    let Some(header) = self.pending_reads.oldest_header() else {
                        return Err(self.output_error("its output has more blocks than its input"));
                    };
                    self.pending_reads.remove_oldest_block();
                    let mut block = self.encoder.finish(&header, reads);
                    batches.append(&mut block.batches);
                    return Ok(Some(AlignedBlock { batches, ..block }));
                }
                PendingItem::Template(_) if self.is_at_end => {
                    let problem = "it exited before it printed a record for every read; an aligner must also print \
                                   unmapped reads";
                    return Err(self.output_error(problem));
                }
                PendingItem::Template(name) => {
                    let Some(header) = self.pending_reads.oldest_header() else {
                        return Err(self.output_error("its output has more blocks than its input"));
                    };
                    self.read_template(&header, name, &mut batches)?;
                    answered += 1;
                }
            }
        }
    }

    /// Reads all records of the template whose name has the fingerprint `due`.
    fn read_template(
        &mut self,
        header: &BlockHeader,
        due: u64,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<(), EngineError> {
        let mut template = TemplateRecords { name: first_field(&self.line).to_owned(), ..TemplateRecords::default() };
        if name_fingerprint(&template.name) != due {
            if !self.has_all_fields() {
                return Err(self.invalid_record_error(&"it has fewer than eleven fields"));
            }
            let problem = format!(
                "its records are not in the order of the reads: it printed {} where another read was expected; an \
                 aligner must print all reads, also unmapped reads, in the order of its input (for bowtie2 add \
                 --reorder)",
                self.line_excerpt()
            );
            return Err(self.output_error(problem));
        }
        while !self.is_at_end && first_field(&self.line) == template.name {
            let flag = self.parse_flag()?;
            let mate = self.mate_index(header, flag)?;
            let primary = flag & (flags::SECONDARY | flags::SUPPLEMENTARY) == 0;
            if primary && template.primary_positions[mate].is_some() {
                // A second primary record of the same read belongs to the next template, which has the same name.
                break;
            }
            self.add_read_group(header)?;
            let pushed = self.encoder.push(header, &self.line);
            let (placed, batch) = pushed.map_err(|source| self.invalid_record_error(&source))?;
            batches.extend(batch);
            if primary {
                template.primary_positions[mate] = Some(placed);
            }
            self.line.clear();
            self.fill_line()?;
        }
        self.check_template(header, &template)
    }

    /// Checks that each read has one primary record, and that the records of mates contain each other's position.
    fn check_template(&self, header: &BlockHeader, template: &TemplateRecords) -> Result<(), EngineError> {
        let name = String::from_utf8_lossy(&template.name);
        match (template.primary_positions, header.paired) {
            ([Some(_), _], false) => Ok(()),
            ([Some(one), Some(two)], true) => {
                let unmapped = (one.flag | two.flag) & flags::UNMAPPED != 0;
                if unmapped || one.mate_position == two.position && two.mate_position == one.position {
                    return Ok(());
                }
                Err(self
                    .output_error(format!("the records of the mates of {name} do not contain each other's position")))
            }
            ([None, _], true) => Err(self.output_error(format!("read 1 of {name} has no primary record"))),
            ([_, None], true) => Err(self.output_error(format!("read 2 of {name} has no primary record"))),
            ([None, _], false) => Err(self.output_error(format!("the read {name} has no primary record"))),
        }
    }

    fn parse_flag(&self) -> Result<u16, EngineError> {
        let field = self.line.split(|byte| *byte == b'\t').nth(1);
        let flag = field.and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
        flag.ok_or_else(|| self.invalid_record_error(&"it has no flag"))
    }

    /// Returns 0 for read 1 and unpaired reads, and 1 for read 2.
    fn mate_index(&self, header: &BlockHeader, flag: u16) -> Result<usize, EngineError> {
        let mates = flag & (flags::FIRST | flags::LAST);
        match (header.paired, flag & flags::PAIRED != 0) {
            (false, false) => Ok(0),
            (true, true) if mates == flags::FIRST => Ok(0),
            (true, true) if mates == flags::LAST => Ok(1),
            (true, _) => Err(self.output_error(format!(
                "the reads are paired, but its record {} is not of read 1 or read 2 of a pair; check that its command \
                 line takes pairs",
                self.line_excerpt()
            ))),
            (false, _) => Err(self.output_error(format!(
                "the reads are unpaired, but its record {} is of a pair; check its command line, and that no two reads \
                 have one name",
                self.line_excerpt()
            ))),
        }
    }

    /// Adds the read group of the lane to a record that has none. Rejects a record with a different read group.
    fn add_read_group(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        let Some(id) = &header.read_group else { return Ok(()) };
        let Some(at) = memmem::find(&self.line, b"\tRG:Z:") else {
            self.line.extend_from_slice(b"\tRG:Z:");
            self.line.extend_from_slice(id.as_bytes());
            return Ok(());
        };
        let value = first_field(&self.line[at + 6..]);
        if value == id.as_bytes() {
            return Ok(());
        }
        let value = String::from_utf8_lossy(value);
        Err(self.output_error(format!(
            "its records have the read group {value}, but their lane has {id}; pass {{read_group_id}} or no read \
             group to the aligner"
        )))
    }

    /// Reads lines until `line` contains a record or the output ends.
    fn fill_line(&mut self) -> Result<(), EngineError> {
        while self.line.is_empty() && !self.is_at_end {
            let read = (&mut self.output).take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line);
            let bytes = read.map_err(|error| self.state.io_error("read from", error))?;
            self.line_number += 1;
            if bytes == 0 {
                self.is_at_end = true;
                self.check_header()?;
            } else if self.line.pop_if(|last| *last == b'\n').is_none() {
                // If the line is shorter than the maximum, the output ended: the program exited in the middle of a
                // line, or the output is not SAM.
                self.is_at_end = (bytes as u64) < MAX_LINE_BYTES;
                return Err(self.output_error(format!(
                    "its output is truncated in the middle of a line, at {}",
                    self.line_excerpt()
                )));
            } else if self.line.starts_with(b"@") && !self.is_record_line() {
                if self.line.starts_with(b"@SQ\t") {
                    self.sq_lines += &String::from_utf8_lossy(&self.line);
                    self.sq_lines.push('\n');
                }
                self.line.clear();
            } else if self.line.is_empty() {
                return Err(self.invalid_record_error(&"it is empty"));
            } else {
                self.check_header()?;
            }
        }
        Ok(())
    }

    /// Returns whether the line is a record and not a header line. A read name may start with `@`, but a header line
    /// has two letters and a tab there.
    fn is_record_line(&self) -> bool {
        self.line.get(3).is_none_or(|byte| *byte != b'\t') || self.has_all_fields()
    }

    /// Returns whether the line has the eleven mandatory fields of SAM.
    fn has_all_fields(&self) -> bool {
        self.line.iter().filter(|byte| **byte == b'\t').count() >= 10
    }

    /// Checks that the reference contains all contigs in the `@SQ` lines read so far, and discards these lines.
    fn check_header(&mut self) -> Result<(), EngineError> {
        let sq_lines = std::mem::take(&mut self.sq_lines);
        let found = AlignerInfo::new(String::new(), String::new(), sq_lines)
            .map_err(|error| self.output_error(format!("the header of its output is invalid: {error}")))?
            .genome;
        match first_unknown_contig(&found, &self.genome) {
            None => Ok(()),
            Some(contig) => Err(self.output_error(format!(
                "its index was built from another reference: it has a contig {} of {} bases that --reference lacks",
                contig.name, contig.length
            ))),
        }
    }

    fn line_excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.line[..self.line.len().min(EXCERPT_BYTES)]);
        format!("line {} ({:?}{})", self.line_number, text, if self.line.len() > EXCERPT_BYTES { ".." } else { "" })
    }

    fn invalid_record_error(&self, reason: &dyn std::fmt::Display) -> EngineError {
        self.output_error(format!("{} of its output is an invalid SAM record: {reason}", self.line_excerpt()))
    }

    fn output_error(&self, problem: impl Into<String>) -> EngineError {
        self.state.output_error(problem.into(), self.is_at_end)
    }
}

fn first_field(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b'\t').next().unwrap_or_default()
}
