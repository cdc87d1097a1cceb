//! BCF (VCFv4.4 §6), the binary form of VCF: its header, and its records as the lines of VCF that they stand for.
//!
//! Flows in: bytes that were unpacked. Flows out: text, of which everything behind is made, so that the two forms give the same
//! columns. Numbers with a point are written as exactly as they are; bcftools rounds them to six digits.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use super::error::VcfError;
use super::fields::MISSING;
use super::header::{Header, HeaderLines, attribute};
use super::reader::{MAX_HEADER_BYTES, MAX_LINE_BYTES};
use crate::bgzf::{BgzfError, Unpacked};

/// How such a file starts; the byte behind it is the minor version, 1 or 2, which differ in nothing that is read here.
pub(super) const START: &[u8] = b"BCF\x02";
/// Bytes before the identifiers of a record.
const FIXED_BYTES: u32 = 24;
/// A float that is missing, and one that ends a vector (VCFv4.4 §6.3.3).
const MISSING_FLOAT: u32 = 0x7f80_0001;
const END_FLOAT: u32 = 0x7f80_0002;
/// Text that stands for a missing one.
const MISSING_TEXT: &[u8] = &[7];

/// Names by their numbers in records.
#[derive(Debug)]
pub(super) struct Dictionaries {
    /// Of filters and of fields of both kinds.
    strings: HashMap<u32, String>,
    contigs: HashMap<u32, String>,
    samples: usize,
}

impl Dictionaries {
    /// Contigs by name, numbered as in the index.
    pub(super) fn contig_numbers(&self) -> HashMap<String, u32> {
        self.contigs.iter().map(|(number, name)| (name.clone(), *number)).collect()
    }
}

/// Reads the header of a file that nothing was read of.
///
/// # Errors
/// [`VcfError`].
pub(super) fn read_header(input: &mut impl Unpacked) -> Result<(Header, Dictionaries), VcfError> {
    let path = input.path().to_owned();
    let wrong = |line, problem: &str| VcfError::Header { path: path.clone(), line, problem: problem.to_owned() };
    let mut fixed = Vec::new();
    input.append_to(&mut fixed, START.len() + 5)?;
    let text_bytes = fixed.last_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let Some(text_bytes) = text_bytes.filter(|_| fixed.len() == START.len() + 5) else {
        return Err(wrong(1, "the file ends within its header; fetch or make it again"));
    };
    if text_bytes > MAX_HEADER_BYTES {
        let limit_mib = MAX_HEADER_BYTES >> 20;
        return Err(VcfError::TooLong { path, line: 1, what: "the header", limit_mib });
    }
    let mut text = Vec::new();
    if input.append_to(&mut text, text_bytes)? < text_bytes {
        return Err(wrong(1, "the file ends within its header; fetch or make it again"));
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).map_err(|_| wrong(1, "its header is not UTF-8 text"))?;
    let mut lines = HeaderLines::default();
    let mut names = Names::default();
    let mut last = 0;
    for (number, line) in (1..).zip(text.lines()) {
        lines.push_line(&names.take(line)).map_err(|problem| wrong(number, &problem))?;
        last = number;
    }
    if !lines.is_complete() {
        return Err(wrong(last + 1, "the header ends before the line that starts with #CHROM; fetch or make it again"));
    }
    let header = lines.finish();
    let samples = header.samples().len();
    Ok((header, Dictionaries { strings: names.strings.numbers, contigs: names.contigs.numbers, samples }))
}

/// Names with numbers: those that lines say, else one after the other, each name once.
#[derive(Default)]
struct Numbered {
    numbers: HashMap<u32, String>,
    known: HashMap<String, u32>,
    next: u32,
}

impl Numbered {
    fn add(&mut self, name: String, said: Option<u32>) {
        if self.known.contains_key(&name) && said.is_none() {
            return;
        }
        let number = said.unwrap_or(self.next);
        self.next = self.next.max(number.saturating_add(1));
        self.known.insert(name.clone(), number);
        self.numbers.insert(number, name);
    }
}

struct Names {
    strings: Numbered,
    contigs: Numbered,
}

impl Default for Names {
    fn default() -> Self {
        let mut names = Self { strings: Numbered::default(), contigs: Numbered::default() };
        // VCFv4.4 §6.2.1: PASS is the first, whether there is a line of it or not.
        names.strings.add("PASS".to_owned(), Some(0));
        names
    }
}

impl Names {
    /// Looks at a line of the header, and gives it back without the number that only BCF has.
    fn take<'l>(&mut self, line: &'l str) -> Cow<'l, str> {
        let Some((kind, structure)) = line.strip_prefix("##").and_then(|line| line.split_once("=<")) else {
            return line.into();
        };
        let names = match kind {
            "FILTER" | "INFO" | "FORMAT" => &mut self.strings,
            "contig" => &mut self.contigs,
            _ => return line.into(),
        };
        if let Some(id) = attribute(structure, "ID") {
            names.add(id, attribute(structure, "IDX").and_then(|number| number.parse().ok()));
        }
        without_number(line)
    }
}

/// A line without `,IDX=7` at its end.
fn without_number(line: &str) -> Cow<'_, str> {
    match line.strip_suffix('>').and_then(|line| line.rsplit_once(",IDX=")) {
        Some((before, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{before}>").into(),
        _ => line.into(),
    }
}

/// Turns records into lines.
#[derive(Debug)]
pub(super) struct Decoder {
    dictionaries: Arc<Dictionaries>,
    record: Vec<u8>,
}

/// What was read: whether there was a record, and if it says so, one past the last base that it is about, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) end_position: Option<i32>,
}

impl Decoder {
    pub(super) fn new(dictionaries: Arc<Dictionaries>) -> Self {
        Self { dictionaries, record: Vec::new() }
    }

    pub(super) fn dictionaries(&self) -> &Arc<Dictionaries> {
        &self.dictionaries
    }

    /// Replaces `line` by the next record; `None` at the end of the file. The inner error is what is wrong with it.
    pub(super) fn next_line(
        &mut self,
        input: &mut impl Unpacked,
        line: &mut Vec<u8>,
    ) -> Result<Result<Option<Found>, String>, BgzfError> {
        let truncated = || Ok(Err("the file ends within it; fetch or make it again".to_owned()));
        self.record.clear();
        let head = input.append_to(&mut self.record, 8)?;
        if head == 0 {
            return Ok(Ok(None));
        }
        let mut lengths = Cursor(&self.record);
        let (Ok(shared), Ok(individual)) = (lengths.u32(), lengths.u32()) else { return truncated() };
        let bytes = u64::from(shared) + u64::from(individual);
        if shared < FIXED_BYTES || bytes > MAX_LINE_BYTES as u64 {
            return Ok(Err(format!("it says to have {shared} and {individual} bytes, which none has")));
        }
        self.record.clear();
        if input.append_to(&mut self.record, bytes as usize)? < bytes as usize {
            return truncated();
        }
        line.clear();
        let (shared, individual) = self.record.split_at(shared as usize);
        Ok(self.dictionaries.write(shared, individual, line).map(Some))
    }
}

impl Dictionaries {
    fn write(&self, shared: &[u8], individual: &[u8], line: &mut Vec<u8>) -> Result<Found, String> {
        let mut shared = Cursor(shared);
        let contig = shared.u32()?;
        let contig = self.contigs.get(&contig).ok_or_else(|| format!("its contig {contig} is not in the header"))?;
        let (position, bases, quality) = (shared.u32()? as i32, shared.u32()? as i32, shared.u32()?);
        let (infos, alleles) = (shared.u16()?, shared.u16()?);
        let of_samples = shared.u32()?;
        let (samples, formats) = ((of_samples & 0xff_ffff) as usize, of_samples >> 24);
        if samples != self.samples {
            return Err(format!("it has {samples} samples, but the header names {}", self.samples));
        }
        if position < -1 || alleles == 0 {
            return Err("it has no place, or no alleles".to_owned());
        }
        push_text(contig.as_bytes(), line)?;
        append(line, format_args!("\t{}\t", i64::from(position) + 1));
        shared.vector()?.write(line)?;
        line.push(b'\t');
        shared.vector()?.write(line)?;
        for allele in 1..alleles {
            line.push(if allele == 1 { b'\t' } else { b',' });
            shared.vector()?.write(line)?;
        }
        line.extend_from_slice(if alleles == 1 { b"\t.\t" } else { b"\t" });
        Vector { kind: Kind::Float, bytes: &quality.to_le_bytes() }.write(line)?;
        line.push(b'\t');
        self.write_filters(&shared.vector()?, line)?;
        line.push(b'\t');
        self.write_infos(&mut shared, infos, line)?;
        if self.samples > 0 {
            self.write_samples(&mut Cursor(individual), formats, line)?;
        }
        let end_position = (bases > 0).then(|| position.checked_add(bases)).flatten();
        Ok(Found { end_position })
    }

    fn name(&self, number: i64) -> Result<&str, String> {
        let name = u32::try_from(number).ok().and_then(|number| self.strings.get(&number));
        name.map(String::as_str).ok_or_else(|| format!("its field or filter {number} is not in the header"))
    }

    fn write_filters(&self, filters: &Vector, line: &mut Vec<u8>) -> Result<(), String> {
        let mut is_first = true;
        for filter in filters.integers()? {
            let Integer::Number(filter) = filter else { return Err("its filters are none".to_owned()) };
            if !std::mem::replace(&mut is_first, false) {
                line.push(b';');
            }
            push_text(self.name(filter.into())?.as_bytes(), line)?;
        }
        if is_first {
            line.extend_from_slice(MISSING.as_bytes());
        }
        Ok(())
    }

    fn write_infos(&self, shared: &mut Cursor, infos: u16, line: &mut Vec<u8>) -> Result<(), String> {
        for info in 0..infos {
            if info > 0 {
                line.push(b';');
            }
            let key = shared.key()?;
            push_text(self.name(key)?.as_bytes(), line)?;
            let values = shared.vector()?;
            if values.kind != Kind::Nothing {
                line.push(b'=');
                values.write(line)?;
            }
        }
        if infos == 0 {
            line.extend_from_slice(MISSING.as_bytes());
        }
        Ok(())
    }

    fn write_samples(&self, individual: &mut Cursor, formats: u32, line: &mut Vec<u8>) -> Result<(), String> {
        let mut fields = Vec::new();
        line.push(b'\t');
        for format in 0..formats {
            let name = self.name(individual.key()?)?;
            let (kind, count) = individual.descriptor()?;
            let bytes = individual.take(self.samples.checked_mul(count * kind.width()).ok_or("it is damaged")?)?;
            if format > 0 {
                line.push(b':');
            }
            push_text(name.as_bytes(), line)?;
            fields.push((name == "GT", kind, bytes));
        }
        if fields.is_empty() {
            line.extend_from_slice(MISSING.as_bytes());
        }
        for sample in 0..self.samples {
            line.push(b'\t');
            for (at, (is_genotype, kind, bytes)) in fields.iter().enumerate() {
                if at > 0 {
                    line.push(b':');
                }
                let share = bytes.len() / self.samples;
                let values = Vector { kind: *kind, bytes: &bytes[sample * share..][..share] };
                if *is_genotype && kind.is_integer() {
                    values.write_genotype(line)?;
                } else {
                    values.write(line)?;
                }
            }
            if fields.is_empty() {
                line.extend_from_slice(MISSING.as_bytes());
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(format!("it is longer than {} MiB as text", MAX_LINE_BYTES >> 20));
            }
        }
        Ok(())
    }
}

/// The type of a value (VCFv4.4 §6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    Int8,
    Int16,
    Int32,
    Float,
    Text,
}

impl Kind {
    fn width(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Int8 | Self::Text => 1,
            Self::Int16 => 2,
            Self::Int32 | Self::Float => 4,
        }
    }

    fn is_integer(self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32)
    }
}

/// An integer as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Integer {
    Missing,
    Number(i32),
}

/// Values of one type, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Vector<'b> {
    kind: Kind,
    bytes: &'b [u8],
}

impl<'b> Vector<'b> {
    /// Up to the value that ends a vector before its time.
    fn integers(&self) -> Result<impl Iterator<Item = Integer> + use<'b>, String> {
        let kind = self.kind;
        if !kind.is_integer() && !self.bytes.is_empty() {
            return Err("numbers are expected where others are".to_owned());
        }
        // The two least of each width mean no numbers; what stands between them and the least number is reserved.
        let numbers = self.bytes.chunks_exact(kind.width().max(1)).map(move |bytes| match *bytes {
            [byte] => (i32::from(byte as i8), i32::from(i8::MIN)),
            [low, high] => (i32::from(i16::from_le_bytes([low, high])), i32::from(i16::MIN)),
            _ => (bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes)), i32::MIN),
        });
        let whole = numbers.take_while(|(number, least)| *number != least + 1);
        Ok(whole.map(|(number, least)| if number == least { Integer::Missing } else { Integer::Number(number) }))
    }

    /// Appends them as VCF has them, separated by commas; `.` for none.
    fn write(&self, line: &mut Vec<u8>) -> Result<(), String> {
        let start = line.len();
        let separate = |line: &mut Vec<u8>| {
            if line.len() > start {
                line.push(b',');
            }
        };
        match self.kind {
            Kind::Nothing => {}
            Kind::Text => {
                let end = memchr::memchr(0, self.bytes).unwrap_or(self.bytes.len());
                if self.bytes[..end] != *MISSING_TEXT {
                    push_text(&self.bytes[..end], line)?;
                }
            }
            Kind::Float => {
                for bits in self.bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)) {
                    if bits == END_FLOAT {
                        break;
                    }
                    separate(line);
                    match bits {
                        MISSING_FLOAT => line.extend_from_slice(MISSING.as_bytes()),
                        bits => append(line, format_args!("{}", f32::from_bits(bits))),
                    }
                }
            }
            Kind::Int8 | Kind::Int16 | Kind::Int32 => {
                for integer in self.integers()? {
                    separate(line);
                    match integer {
                        Integer::Missing => line.extend_from_slice(MISSING.as_bytes()),
                        Integer::Number(number) => append(line, format_args!("{number}")),
                    }
                }
            }
        }
        if line.len() == start {
            line.extend_from_slice(MISSING.as_bytes());
        }
        Ok(())
    }

    /// Alleles, each with whether it is phased with the one before (VCFv4.4 §6.3.3, "Genotype encoding").
    fn write_genotype(&self, line: &mut Vec<u8>) -> Result<(), String> {
        let start = line.len();
        for allele in self.integers()? {
            let number = match allele {
                Integer::Missing => 0,
                Integer::Number(number) => number,
            };
            if line.len() > start {
                line.push(if number & 1 == 1 { b'|' } else { b'/' });
            }
            match (number >> 1) - 1 {
                -1 => line.extend_from_slice(MISSING.as_bytes()),
                allele if allele >= 0 => append(line, format_args!("{allele}")),
                _ => return Err("its genotype has an allele below zero".to_owned()),
            }
        }
        if line.len() == start {
            line.extend_from_slice(MISSING.as_bytes());
        }
        Ok(())
    }
}

fn append(line: &mut Vec<u8>, text: std::fmt::Arguments) {
    line.write_fmt(text).expect("memory takes what is written");
}

/// Appends text that cannot be taken for two fields.
fn push_text(text: &[u8], line: &mut Vec<u8>) -> Result<(), String> {
    if text.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r')) {
        return Err("a text in it holds a tab or an end of a line".to_owned());
    }
    line.extend_from_slice(text);
    Ok(())
}

/// What is left of a record.
struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    fn take(&mut self, bytes: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("its values are longer than it is")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, String> {
        Ok(self.take(2)?.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes)))
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(self.take(4)?.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    /// Type and number of the values that follow.
    fn descriptor(&mut self) -> Result<(Kind, usize), String> {
        let byte = self.take(1)?[0];
        let kind = match byte & 0xf {
            0 => Kind::Nothing,
            1 => Kind::Int8,
            2 => Kind::Int16,
            3 => Kind::Int32,
            5 => Kind::Float,
            7 => Kind::Text,
            other => return Err(format!("a value in it has type {other}, which is none")),
        };
        let count = match byte >> 4 {
            15 => usize::try_from(self.key()?).map_err(|_| "a value in it has a length below zero")?,
            count => count.into(),
        };
        Ok((kind, count))
    }

    fn vector(&mut self) -> Result<Vector<'b>, String> {
        let (kind, count) = self.descriptor()?;
        let bytes = self.take(count.checked_mul(kind.width()).ok_or("it is damaged")?)?;
        Ok(Vector { kind, bytes })
    }

    /// One number with its type: that of a key, or a length.
    fn key(&mut self) -> Result<i64, String> {
        // A length may not have a length of its own in turn.
        let byte = *self.0.first().ok_or("its values are longer than it is")?;
        if byte >> 4 != 1 {
            return Err("one number is expected where others are".to_owned());
        }
        match self.vector()?.integers()?.next() {
            Some(Integer::Number(number)) => Ok(number.into()),
            _ => Err("a number in it is missing".to_owned()),
        }
    }
}
