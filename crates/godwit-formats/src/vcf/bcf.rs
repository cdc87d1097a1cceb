//! A decoder of BCF (VCFv4.4 §6), the binary form of VCF: it reads the header, and converts records into lines of VCF
//! text.
//!
//! Flows in: decompressed bytes of a BCF file. Flows out: VCF text, which all later code parses, so that VCF and BCF
//! give the same columns. Floats are written exactly, whereas bcftools rounds them to six digits.

mod record_encoder;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use godwit_io::bgzf::{BgzfBufRead, BgzfError};

use super::MAX_LINE_BYTES;
use super::error::VcfError;
use super::field_builder::MISSING_VALUE;
use super::header::{Header, HeaderBuilder, attribute_value};
use super::reader::MAX_HEADER_BYTES;
pub use record_encoder::BcfEncoder;

/// First bytes of a BCF file. The next byte is the minor version, 1 or 2; this module reads both in the same way.
pub(super) const BCF_MAGIC: &[u8] = b"BCF\x02";
/// Bytes of the fixed fields of a record, before its identifiers.
const FIXED_FIELD_BYTES: u32 = 24;
/// Bit patterns of a missing float, and of the float that ends a vector (VCFv4.4 §6.3.3).
const MISSING_FLOAT: u32 = 0x7f80_0001;
const END_OF_VECTOR_FLOAT: u32 = 0x7f80_0002;
/// Bytes of a missing string.
const MISSING_STRING: &[u8] = &[7];

/// The dictionaries of a BCF header, which map the numbers in records to names.
#[derive(Debug)]
pub(super) struct Dictionaries {
    /// Names of filters, `INFO` fields and `FORMAT` fields, by number.
    strings: HashMap<u32, String>,
    contigs: HashMap<u32, String>,
    sample_count: usize,
}

impl Dictionaries {
    /// Returns the contig numbers that the index uses, by contig name.
    pub(super) fn contig_ids(&self) -> HashMap<String, u32> {
        self.contigs.iter().map(|(number, name)| (name.clone(), *number)).collect()
    }
}

/// Reads the header and the dictionaries from the start of a BCF file.
///
/// # Errors
/// [`VcfError`] if the header cannot be read or is invalid.
pub(super) fn read_header(input: &mut impl BgzfBufRead) -> Result<(Header, Dictionaries), VcfError> {
    let path = input.path().to_owned();
    let header_error = |line, problem: &str| VcfError::Header { path: path.clone(), line, problem: problem.to_owned() };
    let mut fixed = Vec::new();
    input.append_to(&mut fixed, BCF_MAGIC.len() + 5)?;
    let text_bytes = fixed.last_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let Some(text_bytes) = text_bytes.filter(|_| fixed.len() == BCF_MAGIC.len() + 5) else {
        return Err(header_error(1, "the file ends within its header; fetch or create it again"));
    };
    if text_bytes > MAX_HEADER_BYTES {
        let limit_mib = MAX_HEADER_BYTES >> 20;
        return Err(VcfError::TooLong { path, line: 1, subject: "the header", limit_mib });
    }
    let mut text = Vec::new();
    if input.append_to(&mut text, text_bytes)? < text_bytes {
        return Err(header_error(1, "the file ends within its header; fetch or create it again"));
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).map_err(|_| header_error(1, "its header is not UTF-8 text"))?;
    let mut lines = HeaderBuilder::default();
    let mut names = DictionariesBuilder::default();
    let mut last = 0;
    for (number, line) in (1..).zip(text.lines()) {
        lines.push_line(&names.add_header_line(line)).map_err(|problem| header_error(number, &problem))?;
        last = number;
    }
    if !lines.is_complete() {
        return Err(header_error(
            last + 1,
            "the header ends before the line that starts with #CHROM; fetch or create it again",
        ));
    }
    let header = lines.finish();
    let sample_count = header.samples().len();
    Ok((
        header,
        Dictionaries { strings: names.strings.names_by_index, contigs: names.contigs.names_by_index, sample_count },
    ))
}

/// A builder of a dictionary. A name gets the number given in its header line, or otherwise the next free number; each
/// name is numbered once.
#[derive(Default)]
struct DictionaryBuilder {
    names_by_index: HashMap<u32, String>,
    indexes_by_name: HashMap<String, u32>,
    next_index: u32,
}

impl DictionaryBuilder {
    fn add_name(&mut self, name: String, idx: Option<u32>) {
        if self.indexes_by_name.contains_key(&name) && idx.is_none() {
            return;
        }
        let number = idx.unwrap_or(self.next_index);
        self.next_index = self.next_index.max(number.saturating_add(1));
        self.indexes_by_name.insert(name.clone(), number);
        self.names_by_index.insert(number, name);
    }
}

struct DictionariesBuilder {
    strings: DictionaryBuilder,
    contigs: DictionaryBuilder,
}

impl Default for DictionariesBuilder {
    fn default() -> Self {
        let mut names = Self { strings: DictionaryBuilder::default(), contigs: DictionaryBuilder::default() };
        // PASS has number 0, even if the header has no line for it (VCFv4.4 §6.2.1).
        names.strings.add_name("PASS".to_owned(), Some(0));
        names
    }
}

impl DictionariesBuilder {
    /// Adds the name that a header line defines, and returns the line without `IDX`, which only BCF has.
    fn add_header_line<'l>(&mut self, line: &'l str) -> Cow<'l, str> {
        let Some((kind, structure)) = line.strip_prefix("##").and_then(|line| line.split_once("=<")) else {
            return line.into();
        };
        let names = match kind {
            "FILTER" | "INFO" | "FORMAT" => &mut self.strings,
            "contig" => &mut self.contigs,
            _ => return line.into(),
        };
        if let Some(id) = attribute_value(structure, "ID") {
            names.add_name(id, attribute_value(structure, "IDX").and_then(|number| number.parse().ok()));
        }
        strip_idx(line)
    }
}

/// Returns a header line without an `IDX` attribute, such as `,IDX=7`, at its end.
fn strip_idx(line: &str) -> Cow<'_, str> {
    match line.strip_suffix('>').and_then(|line| line.rsplit_once(",IDX=")) {
        Some((before, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{before}>").into(),
        _ => line.into(),
    }
}

/// A decoder of BCF records into lines of VCF text.
#[derive(Debug)]
pub(super) struct RecordDecoder {
    dictionaries: Arc<Dictionaries>,
    record: Vec<u8>,
}

/// The end of a decoded record, which BCF stores separately and the VCF text does not contain: the 0-based position
/// after the last base, or `None` if the stored length is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodedRecord {
    pub(super) end_position: Option<i32>,
}

impl RecordDecoder {
    pub(super) fn new(dictionaries: Arc<Dictionaries>) -> Self {
        Self { dictionaries, record: Vec::new() }
    }

    pub(super) fn dictionaries(&self) -> &Arc<Dictionaries> {
        &self.dictionaries
    }

    /// Reads the next record and replaces `line` by its VCF text; returns `None` at the end of the file. The inner
    /// error describes the problem of the record.
    pub(super) fn decode_next(
        &mut self,
        input: &mut impl BgzfBufRead,
        line: &mut Vec<u8>,
    ) -> Result<Result<Option<DecodedRecord>, String>, BgzfError> {
        let truncated = || Ok(Err("the file ends within it; fetch or create it again".to_owned()));
        self.record.clear();
        let head = input.append_to(&mut self.record, 8)?;
        if head == 0 {
            return Ok(Ok(None));
        }
        let mut lengths = ByteCursor(&self.record);
        let (Ok(shared), Ok(individual)) = (lengths.take_u32(), lengths.take_u32()) else { return truncated() };
        let bytes = u64::from(shared) + u64::from(individual);
        if shared < FIXED_FIELD_BYTES || bytes > MAX_LINE_BYTES as u64 {
            return Ok(Err(format!("it claims impossible lengths of {shared} and {individual} bytes")));
        }
        self.record.clear();
        if input.append_to(&mut self.record, bytes as usize)? < bytes as usize {
            return truncated();
        }
        line.clear();
        let (shared, individual) = self.record.split_at(shared as usize);
        Ok(self.dictionaries.append_record(shared, individual, line).map(Some))
    }
}

impl Dictionaries {
    fn append_record(&self, shared: &[u8], individual: &[u8], line: &mut Vec<u8>) -> Result<DecodedRecord, String> {
        let mut shared = ByteCursor(shared);
        let contig = shared.take_u32()?;
        let contig = self.contigs.get(&contig).ok_or_else(|| format!("its contig {contig} is not in the header"))?;
        let (position, bases, quality) = (shared.take_u32()? as i32, shared.take_u32()? as i32, shared.take_u32()?);
        let (infos, alleles) = (shared.take_u16()?, shared.take_u16()?);
        let sample_field = shared.take_u32()?;
        let (samples, formats) = ((sample_field & 0xff_ffff) as usize, sample_field >> 24);
        if samples != self.sample_count {
            return Err(format!("it has {samples} samples, but the header has {}", self.sample_count));
        }
        if position < -1 || alleles == 0 {
            return Err("it has no position, or no alleles".to_owned());
        }
        append_text(contig.as_bytes(), line)?;
        append_formatted(line, format_args!("\t{}\t", i64::from(position) + 1));
        shared.take_vector()?.append_values(line)?;
        line.push(b'\t');
        shared.take_vector()?.append_values(line)?;
        for allele in 1..alleles {
            line.push(if allele == 1 { b'\t' } else { b',' });
            shared.take_vector()?.append_values(line)?;
        }
        line.extend_from_slice(if alleles == 1 { b"\t.\t" } else { b"\t" });
        Vector { kind: BcfType::Float, bytes: &quality.to_le_bytes() }.append_values(line)?;
        line.push(b'\t');
        self.append_filters(&shared.take_vector()?, line)?;
        line.push(b'\t');
        self.append_infos(&mut shared, infos, line)?;
        if self.sample_count > 0 {
            self.append_samples(&mut ByteCursor(individual), formats, line)?;
        }
        let end_position = (bases > 0).then(|| position.checked_add(bases)).flatten();
        Ok(DecodedRecord { end_position })
    }

    fn string_at(&self, number: i64) -> Result<&str, String> {
        let name = u32::try_from(number).ok().and_then(|number| self.strings.get(&number));
        name.map(String::as_str).ok_or_else(|| format!("its field or filter {number} is not in the header"))
    }

    fn append_filters(&self, filters: &Vector, line: &mut Vec<u8>) -> Result<(), String> {
        let mut is_first = true;
        for filter in filters.integers()? {
            let Integer::Value(filter) = filter else { return Err("its filters are invalid".to_owned()) };
            if !std::mem::replace(&mut is_first, false) {
                line.push(b';');
            }
            append_text(self.string_at(filter.into())?.as_bytes(), line)?;
        }
        if is_first {
            line.extend_from_slice(MISSING_VALUE.as_bytes());
        }
        Ok(())
    }

    fn append_infos(&self, shared: &mut ByteCursor, infos: u16, line: &mut Vec<u8>) -> Result<(), String> {
        for info in 0..infos {
            if info > 0 {
                line.push(b';');
            }
            let key = shared.take_integer()?;
            append_text(self.string_at(key)?.as_bytes(), line)?;
            let values = shared.take_vector()?;
            if values.kind != BcfType::Missing {
                line.push(b'=');
                values.append_values(line)?;
            }
        }
        if infos == 0 {
            line.extend_from_slice(MISSING_VALUE.as_bytes());
        }
        Ok(())
    }

    fn append_samples(&self, individual: &mut ByteCursor, formats: u32, line: &mut Vec<u8>) -> Result<(), String> {
        let mut fields = Vec::new();
        line.push(b'\t');
        for format in 0..formats {
            let name = self.string_at(individual.take_integer()?)?;
            let (kind, count) = individual.take_descriptor()?;
            let bytes =
                individual.take_bytes(self.sample_count.checked_mul(count * kind.width()).ok_or("it is damaged")?)?;
            if format > 0 {
                line.push(b':');
            }
            append_text(name.as_bytes(), line)?;
            fields.push((name == "GT", kind, bytes));
        }
        if fields.is_empty() {
            line.extend_from_slice(MISSING_VALUE.as_bytes());
        }
        for sample in 0..self.sample_count {
            line.push(b'\t');
            for (at, (is_genotype, kind, bytes)) in fields.iter().enumerate() {
                if at > 0 {
                    line.push(b':');
                }
                let share = bytes.len() / self.sample_count;
                let values = Vector { kind: *kind, bytes: &bytes[sample * share..][..share] };
                if *is_genotype && kind.is_integer() {
                    values.append_genotype(line)?;
                } else {
                    values.append_values(line)?;
                }
            }
            if fields.is_empty() {
                line.extend_from_slice(MISSING_VALUE.as_bytes());
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(format!("it is longer than {} MiB as text", MAX_LINE_BYTES >> 20));
            }
        }
        Ok(())
    }
}

/// The type of the values of a vector (VCFv4.4 §6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BcfType {
    Missing,
    Int8,
    Int16,
    Int32,
    Float,
    String,
}

impl BcfType {
    fn width(self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Int8 | Self::String => 1,
            Self::Int16 => 2,
            Self::Int32 | Self::Float => 4,
        }
    }

    fn is_integer(self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32)
    }
}

/// An integer of a vector, which may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Integer {
    Missing,
    Value(i32),
}

/// A vector of consecutive values of one type.
#[derive(Clone, Copy, Debug)]
struct Vector<'b> {
    kind: BcfType,
    bytes: &'b [u8],
}

impl<'b> Vector<'b> {
    /// Returns the integers before the end-of-vector value.
    fn integers(&self) -> Result<impl Iterator<Item = Integer> + use<'b>, String> {
        let kind = self.kind;
        if !kind.is_integer() && !self.bytes.is_empty() {
            return Err("a value is not a list of integers, which its field requires".to_owned());
        }
        // For each integer width, the smallest value means "missing" and the second smallest "end of vector". A few
        // further values are reserved.
        let numbers = self.bytes.chunks_exact(kind.width().max(1)).map(move |bytes| match *bytes {
            [byte] => (i32::from(byte as i8), i32::from(i8::MIN)),
            [low, high] => (i32::from(i16::from_le_bytes([low, high])), i32::from(i16::MIN)),
            _ => (bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes)), i32::MIN),
        });
        let whole = numbers.take_while(|(number, least)| *number != least + 1);
        Ok(whole.map(|(number, least)| if number == least { Integer::Missing } else { Integer::Value(number) }))
    }

    /// Appends the values as VCF text, separated by commas, or `.` if there are no values.
    fn append_values(&self, line: &mut Vec<u8>) -> Result<(), String> {
        let start = line.len();
        let separate = |line: &mut Vec<u8>| {
            if line.len() > start {
                line.push(b',');
            }
        };
        match self.kind {
            BcfType::Missing => {}
            BcfType::String => {
                let end = memchr::memchr(0, self.bytes).unwrap_or(self.bytes.len());
                if self.bytes[..end] != *MISSING_STRING {
                    append_text(&self.bytes[..end], line)?;
                }
            }
            BcfType::Float => {
                for bits in self.bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)) {
                    if bits == END_OF_VECTOR_FLOAT {
                        break;
                    }
                    separate(line);
                    match bits {
                        MISSING_FLOAT => line.extend_from_slice(MISSING_VALUE.as_bytes()),
                        bits => append_formatted(line, format_args!("{}", f32::from_bits(bits))),
                    }
                }
            }
            BcfType::Int8 | BcfType::Int16 | BcfType::Int32 => {
                for integer in self.integers()? {
                    separate(line);
                    match integer {
                        Integer::Missing => line.extend_from_slice(MISSING_VALUE.as_bytes()),
                        Integer::Value(number) => append_formatted(line, format_args!("{number}")),
                    }
                }
            }
        }
        if line.len() == start {
            line.extend_from_slice(MISSING_VALUE.as_bytes());
        }
        Ok(())
    }

    /// Appends the alleles of a genotype as VCF text, with the separators `|` (phased) and `/` (VCFv4.4 §6.3.3,
    /// "Genotype encoding").
    fn append_genotype(&self, line: &mut Vec<u8>) -> Result<(), String> {
        let start = line.len();
        for allele in self.integers()? {
            let number = match allele {
                Integer::Missing => 0,
                Integer::Value(number) => number,
            };
            if line.len() > start {
                line.push(if number & 1 == 1 { b'|' } else { b'/' });
            }
            match (number >> 1) - 1 {
                -1 => line.extend_from_slice(MISSING_VALUE.as_bytes()),
                allele if allele >= 0 => append_formatted(line, format_args!("{allele}")),
                _ => return Err("its genotype has a negative allele".to_owned()),
            }
        }
        if line.len() == start {
            line.extend_from_slice(MISSING_VALUE.as_bytes());
        }
        Ok(())
    }
}

fn append_formatted(line: &mut Vec<u8>, text: std::fmt::Arguments) {
    line.write_fmt(text).expect("memory takes what is written");
}

/// Appends text to the line. Text with a tab or a line end is rejected, because it would become two fields or lines.
fn append_text(text: &[u8], line: &mut Vec<u8>) -> Result<(), String> {
    if text.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r')) {
        return Err("a text in it contains a tab or a line end".to_owned());
    }
    line.extend_from_slice(text);
    Ok(())
}

/// A cursor over the part of a record that has not been decoded.
struct ByteCursor<'b>(&'b [u8]);

impl<'b> ByteCursor<'b> {
    fn take_bytes(&mut self, bytes: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("its values extend past its end")?;
        self.0 = rest;
        Ok(taken)
    }

    fn take_u16(&mut self) -> Result<u16, String> {
        Ok(self.take_bytes(2)?.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes)))
    }

    fn take_u32(&mut self) -> Result<u32, String> {
        Ok(self.take_bytes(4)?.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    /// Reads the type and the number of the next values.
    fn take_descriptor(&mut self) -> Result<(BcfType, usize), String> {
        let byte = self.take_bytes(1)?[0];
        let kind = match byte & 0xf {
            0 => BcfType::Missing,
            1 => BcfType::Int8,
            2 => BcfType::Int16,
            3 => BcfType::Int32,
            5 => BcfType::Float,
            7 => BcfType::String,
            other => return Err(format!("a value in it has the unknown type {other}")),
        };
        let count = match byte >> 4 {
            15 => usize::try_from(self.take_integer()?).map_err(|_| "a value in it has a negative length")?,
            count => count.into(),
        };
        Ok((kind, count))
    }

    fn take_vector(&mut self) -> Result<Vector<'b>, String> {
        let (kind, count) = self.take_descriptor()?;
        let bytes = self.take_bytes(count.checked_mul(kind.width()).ok_or("it is damaged")?)?;
        Ok(Vector { kind, bytes })
    }

    /// Reads a typed integer, which is the number of a key or the length of a vector.
    fn take_integer(&mut self) -> Result<i64, String> {
        // Accept only a vector of one value, so that the length of a vector cannot itself be a vector with an extended
        // length.
        let byte = *self.0.first().ok_or("its values extend past its end")?;
        if byte >> 4 != 1 {
            return Err("a value is not an integer, which its field requires".to_owned());
        }
        match self.take_vector()?.integers()?.next() {
            Some(Integer::Value(number)) => Ok(number.into()),
            _ => Err("a number in it is missing".to_owned()),
        }
    }
}
