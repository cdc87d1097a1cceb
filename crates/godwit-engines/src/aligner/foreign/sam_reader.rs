//! SAM text back to blocks, checked against the reads that went in.

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;
use std::sync::Arc;

use arrow_array::RecordBatch;
use godwit_model::{Genome, flags};
use memchr::memmem;

use super::expected::{Due, Expected, fingerprint};
use super::foreign_contig;
use crate::EngineError;
use crate::aligner::encode::Placed;
use crate::aligner::{AlignedBlock, BlockEncoder, BlockHeader, Hello};
use crate::child::ChildState;

/// Longest line taken: an ultra-long read and its tags have a hundredth of that.
const MAX_LINE_BYTES: u64 = 256 << 20;
/// Bytes of a line shown in a message.
const SHOWN_BYTES: usize = 60;

/// Takes the answers of a program of somebody else's; see [`BlockReader`](super::BlockReader).
pub struct SamReader {
    state: Arc<ChildState>,
    output: BufReader<ChildStdout>,
    expected: Arc<Expected>,
    genome: Genome,
    encoder: BlockEncoder,
    /// The next record; empty where it was not read yet.
    line: Vec<u8>,
    /// 1-based number of that line.
    line_number: u64,
    /// `@SQ` lines so far.
    sq_lines: String,
    ended: bool,
}

/// A template in the making.
#[derive(Default)]
struct Template {
    name: Vec<u8>,
    /// Primary records of read 1 and read 2; a single read counts as read 1.
    primary: [Option<Placed>; 2],
}

impl SamReader {
    pub(super) fn new(state: Arc<ChildState>, output: ChildStdout, expected: Arc<Expected>, genome: Genome) -> Self {
        let encoder = BlockEncoder::new(&genome);
        let output = BufReader::with_capacity(1 << 20, output);
        let (line, sq_lines) = (Vec::new(), String::new());
        Self { state, output, expected, genome, encoder, line, line_number: 0, sq_lines, ended: false }
    }

    pub(in crate::aligner) fn next_block(&mut self) -> Result<Option<AlignedBlock>, EngineError> {
        let mut batches = Vec::new();
        let mut answered = 0;
        loop {
            self.fill_line()?;
            match self.expected.after(answered) {
                Due::Nothing if self.ended && answered == 0 => {
                    self.state.expect_success()?;
                    return Ok(None);
                }
                Due::Nothing if self.ended => return Err(self.wrong("it ended within a block")),
                Due::Nothing => return Err(self.wrong(format!("it gave more records than reads: {}", self.shown()))),
                Due::End { reads } => {
                    let Some(header) = self.expected.block() else { return Err(self.wrong("it lost a block")) };
                    self.expected.forget_block();
                    let mut block = self.encoder.finish(&header, reads);
                    batches.append(&mut block.batches);
                    return Ok(Some(AlignedBlock { batches, ..block }));
                }
                Due::Template(_) if self.ended => {
                    let problem = "it ended before it gave a record for every read; a program used here must print \
                                   unmapped reads too";
                    return Err(self.wrong(problem));
                }
                Due::Template(name) => {
                    let Some(header) = self.expected.block() else { return Err(self.wrong("it lost a block")) };
                    self.take_template(&header, name, &mut batches)?;
                    answered += 1;
                }
            }
        }
    }

    /// Takes all records of the template that is due.
    fn take_template(
        &mut self,
        header: &BlockHeader,
        due: u64,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<(), EngineError> {
        let mut template = Template { name: first_field(&self.line).to_owned(), ..Template::default() };
        if fingerprint(&template.name) != due {
            if !self.has_all_fields() {
                return Err(self.no_record(&"it has fewer than eleven fields"));
            }
            let problem = format!(
                "it answered out of step with the reads: {} came where another read was due; it must print all reads, \
                 unmapped ones too, in the order they came (for bowtie2 add --reorder)",
                self.shown()
            );
            return Err(self.wrong(problem));
        }
        while !self.ended && first_field(&self.line) == template.name {
            let flag = self.flag()?;
            let mate = self.mate_index(header, flag)?;
            let primary = flag & (flags::SECONDARY | flags::SUPPLEMENTARY) == 0;
            if primary && template.primary[mate].is_some() {
                // The next template may have the same name.
                break;
            }
            self.add_read_group(header)?;
            let pushed = self.encoder.push(header, &self.line);
            let (placed, batch) = pushed.map_err(|source| self.no_record(&source))?;
            batches.extend(batch);
            if primary {
                template.primary[mate] = Some(placed);
            }
            self.line.clear();
            self.fill_line()?;
        }
        self.check(header, &template)
    }

    /// Whether there is one primary record for each read, and mates name each other.
    fn check(&self, header: &BlockHeader, template: &Template) -> Result<(), EngineError> {
        let name = String::from_utf8_lossy(&template.name);
        match (template.primary, header.paired) {
            ([Some(_), _], false) => Ok(()),
            ([Some(one), Some(two)], true) => {
                let unmapped = (one.flag | two.flag) & flags::UNMAPPED != 0;
                if unmapped || one.mate == two.own && two.mate == one.own {
                    return Ok(());
                }
                Err(self.wrong(format!("the mates of {name} do not name each other's position")))
            }
            ([None, _], true) => Err(self.wrong(format!("read 1 of {name} has no primary record"))),
            ([_, None], true) => Err(self.wrong(format!("read 2 of {name} has no primary record"))),
            ([None, _], false) => Err(self.wrong(format!("the read {name} has no primary record"))),
        }
    }

    fn flag(&self) -> Result<u16, EngineError> {
        let field = self.line.split(|byte| *byte == b'\t').nth(1);
        let flag = field.and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
        flag.ok_or_else(|| self.no_record(&"it has no flag"))
    }

    /// 0 for read 1 and single reads, 1 for read 2.
    fn mate_index(&self, header: &BlockHeader, flag: u16) -> Result<usize, EngineError> {
        let mates = flag & (flags::FIRST | flags::LAST);
        match (header.paired, flag & flags::PAIRED != 0) {
            (false, false) => Ok(0),
            (true, true) if mates == flags::FIRST => Ok(0),
            (true, true) if mates == flags::LAST => Ok(1),
            (true, _) => Err(self.wrong(format!(
                "reads came in pairs, but its record {} is not of read 1 or read 2 of a pair; check that its command \
                 line takes pairs",
                self.shown()
            ))),
            (false, _) => Err(self.wrong(format!(
                "reads came singly, but its record {} is of a pair; check its command line, and that reads have names \
                 of their own",
                self.shown()
            ))),
        }
    }

    /// A record without a read group gets that of its lane; another one is refused.
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
        Err(self.wrong(format!(
            "its records have the read group {value}, but their lane has {id}; give it {{read_group_id}} or none"
        )))
    }

    /// Reads on until there is a record in `line`, or the end.
    fn fill_line(&mut self) -> Result<(), EngineError> {
        while self.line.is_empty() && !self.ended {
            let read = (&mut self.output).take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line);
            let bytes = read.map_err(|error| self.state.io("read from", error))?;
            self.line_number += 1;
            if bytes == 0 {
                self.ended = true;
                self.check_header()?;
            } else if self.line.pop_if(|last| *last == b'\n').is_none() {
                // The program died in the middle of a line, or it prints something else altogether.
                self.ended = (bytes as u64) < MAX_LINE_BYTES;
                return Err(self.wrong(format!("its output is cut in the middle of a line, at {}", self.shown())));
            } else if self.line.starts_with(b"@") && !self.is_record() {
                if self.line.starts_with(b"@SQ\t") {
                    self.sq_lines += &String::from_utf8_lossy(&self.line);
                    self.sq_lines.push('\n');
                }
                self.line.clear();
            } else if self.line.is_empty() {
                return Err(self.no_record(&"it is empty"));
            } else {
                self.check_header()?;
            }
        }
        Ok(())
    }

    /// Names of reads may start with `@`; header lines have a type of two letters.
    fn is_record(&self) -> bool {
        self.line.get(3).is_none_or(|byte| *byte != b'\t') || self.has_all_fields()
    }

    /// SAM has eleven fields, tags apart.
    fn has_all_fields(&self) -> bool {
        self.line.iter().filter(|byte| **byte == b'\t').count() >= 10
    }

    /// Compares the contigs of the program's header with the reference's, once.
    fn check_header(&mut self) -> Result<(), EngineError> {
        let sq_lines = std::mem::take(&mut self.sq_lines);
        let found = Hello::new(String::new(), String::new(), sq_lines)
            .map_err(|error| self.wrong(format!("its header is wrong: {error}")))?
            .genome;
        match foreign_contig(&found, &self.genome) {
            None => Ok(()),
            Some(contig) => Err(self.wrong(format!(
                "its index is not of this reference: it has a contig {} of {} bases, the reference has not",
                contig.name, contig.length
            ))),
        }
    }

    fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.line[..self.line.len().min(SHOWN_BYTES)]);
        format!("line {} ({:?}{})", self.line_number, text, if self.line.len() > SHOWN_BYTES { ".." } else { "" })
    }

    fn no_record(&self, reason: &dyn std::fmt::Display) -> EngineError {
        self.wrong(format!("{} of its output is no SAM record: {reason}", self.shown()))
    }

    fn wrong(&self, problem: impl Into<String>) -> EngineError {
        self.state.explain_output(problem.into(), self.ended)
    }
}

fn first_field(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b'\t').next().unwrap_or_default()
}
