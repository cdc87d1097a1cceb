//! An encoder of VCF records into BCF (VCFv4.4 §6.3), with the types and the padding of htslib.

use std::collections::HashMap;

use godwit_model::schema::variant_columns::{FieldDefinition, ValueType};

use super::{BCF_MAGIC, DictionariesBuilder, END_OF_VECTOR_FLOAT, MISSING_FLOAT};
use crate::vcf::field_builder::MISSING_VALUE;
use crate::vcf::fields::split_at_first;
use crate::vcf::genotype::Genotype;
use crate::vcf::header::Header;
use crate::vcf::record::Record;

/// Minor version of the files that this module writes.
const BCF_MINOR_VERSION: u8 = 2;
/// Numbers that stand for a missing integer and for the end of a vector, before they get the width of the vector.
const MISSING_INTEGER: i32 = i32::MIN;
const END_OF_VECTOR_INTEGER: i32 = i32::MIN + 1;
/// The smallest integer that is not reserved (VCFv4.4 §6.3.3).
const MIN_INTEGER: i32 = i32::MIN + 8;
/// Codes of the types of values.
const INT8: u8 = 1;
const INT16: u8 = 2;
const INT32: u8 = 3;
const FLOAT: u8 = 5;
const STRING: u8 = 7;
/// The descriptor of an absent vector, such as the value of a flag.
const ABSENT: u8 = 0;

/// An encoder of records with the dictionaries of a header.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::vcf::{BcfEncoder, Header, Record};
///
/// let contig = "##contig=<ID=chr20,length=64444167>";
/// let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
/// let header = Header::from_text(&format!("##fileformat=VCFv4.2\n{contig}\n{columns}\n"))?;
/// let mut encoder = BcfEncoder::new(&header);
/// let mut bytes = Vec::new();
/// encoder.encode(&Record::from_line("chr20\t1000\t.\tA\tC\t50\tPASS\t.", &header)?, &mut bytes)?;
/// // The first fields are the lengths of the record, the contig number and the 0-based position.
/// assert_eq!((bytes[8], bytes[12..16].try_into().map(u32::from_le_bytes)?), (0, 999));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BcfEncoder {
    header_text: String,
    strings: HashMap<String, u32>,
    contigs: HashMap<String, u32>,
    info_types: HashMap<String, ValueType>,
    format_types: HashMap<String, ValueType>,
    shared: Vec<u8>,
    individual: Vec<u8>,
}

impl BcfEncoder {
    /// Creates an encoder of records for a file with this header.
    pub fn new(header: &Header) -> Self {
        let mut names = DictionariesBuilder::default();
        for line in header.text().lines() {
            names.add_header_line(line);
        }
        let types = |fields: &[FieldDefinition]| {
            fields.iter().map(|field| (field.id.clone(), field.value_type)).collect::<HashMap<_, _>>()
        };
        Self {
            header_text: header.text().to_owned(),
            strings: names.strings.indexes_by_name,
            contigs: names.contigs.indexes_by_name,
            info_types: types(header.info()),
            format_types: types(header.formats()),
            shared: Vec::new(),
            individual: Vec::new(),
        }
    }

    /// Returns the bytes of a BCF file before its records, uncompressed.
    pub fn header_bytes(&self) -> Vec<u8> {
        let text_bytes = self.header_text.len() as u32 + 1;
        [BCF_MAGIC, &[BCF_MINOR_VERSION], &text_bytes.to_le_bytes(), self.header_text.as_bytes(), &[0]].concat()
    }

    /// Returns the number of a contig in records and indexes; `None` if the header does not define the contig.
    pub fn contig_number(&self, name: &str) -> Option<u32> {
        self.contigs.get(name).copied()
    }

    /// Appends the uncompressed bytes of a record to `out`.
    ///
    /// # Errors
    /// A description of the problem if the header does not define a contig, filter or key of the record, or if a value
    /// does not have the type that the header defines.
    pub fn encode(&mut self, record: &Record, out: &mut Vec<u8>) -> Result<(), String> {
        self.shared.clear();
        self.individual.clear();
        let contig = self.contig_number(record.contig);
        let contig = contig.ok_or_else(|| undefined_error("contig", record.contig))?;
        let quality = match record.quality {
            MISSING_VALUE => MISSING_FLOAT,
            text => parse_float("QUAL", text)?,
        };
        let alleles = 1 + record.alternates().count();
        let infos: Vec<&str> = split_present(record.info, ';').collect();
        let formats: Vec<&str> = split_present(record.format, ':').collect();
        let samples = record.samples().count();
        let too_many = |what: &str| format!("it has too many {what} for BCF");
        let allele_count = u16::try_from(alleles).map_err(|_| too_many("alleles"))?;
        let info_count = u16::try_from(infos.len()).map_err(|_| too_many("INFO keys"))?;
        let format_count = u8::try_from(formats.len()).map_err(|_| too_many("FORMAT keys"))?;
        let shared = &mut self.shared;
        for number in
            [contig, record.position as u32, record.end_position().saturating_sub(record.position) as u32, quality]
        {
            shared.extend_from_slice(&number.to_le_bytes());
        }
        shared.extend_from_slice(&info_count.to_le_bytes());
        shared.extend_from_slice(&allele_count.to_le_bytes());
        shared.extend_from_slice(&(u32::from(format_count) << 24 | samples as u32).to_le_bytes());
        append_text(split_present(record.identifiers, '\t').next().unwrap_or_default(), shared);
        append_text(record.reference, shared);
        record.alternates().for_each(|allele| append_text(allele, shared));
        self.append_filters(record.filters)?;
        for info in infos {
            self.append_info(info)?;
        }
        for (at, key) in formats.iter().enumerate() {
            let values = record.samples().map(|sample| sample.split(':').nth(at).unwrap_or(MISSING_VALUE));
            self.append_format(key, &values.collect::<Vec<_>>())?;
        }
        for part in [&self.shared, &self.individual] {
            let bytes = u32::try_from(part.len()).map_err(|_| "it is longer than 4 GiB in BCF".to_owned())?;
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        out.extend_from_slice(&self.shared);
        out.extend_from_slice(&self.individual);
        Ok(())
    }

    fn append_filters(&mut self, filters: &str) -> Result<(), String> {
        let numbers = split_present(filters, ';').map(|filter| self.string_number("FILTER", filter));
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        append_integers(&numbers, numbers.len(), &mut self.shared);
        Ok(())
    }

    fn append_info(&mut self, entry: &str) -> Result<(), String> {
        let (key, value) = split_at_first(entry, b'=');
        let number = self.string_number("INFO", key)?;
        let value_type = self.info_types.get(key).ok_or_else(|| undefined_error("INFO", key))?;
        append_integers(&[number], 1, &mut self.shared);
        match (value_type, value) {
            (ValueType::Flag, _) | (_, None) => self.shared.push(ABSENT),
            (ValueType::Integer, Some(text)) => {
                let values = parse_integers(key, text)?;
                append_integers(&values, values.len(), &mut self.shared);
            }
            (ValueType::Float, Some(text)) => {
                let values = parse_floats(key, text)?;
                append_descriptor(FLOAT, values.len(), &mut self.shared);
                values.iter().for_each(|bits| self.shared.extend_from_slice(&bits.to_le_bytes()));
            }
            (ValueType::Text, Some(text)) => append_text(text, &mut self.shared),
        }
        Ok(())
    }

    /// Appends a FORMAT field with the values of all samples, each padded to the same length.
    fn append_format(&mut self, key: &str, values: &[&str]) -> Result<(), String> {
        let number = self.string_number("FORMAT", key)?;
        append_integers(&[number], 1, &mut self.individual);
        let out = &mut self.individual;
        match self.format_types.get(key).ok_or_else(|| undefined_error("FORMAT", key))? {
            _ if key == "GT" => {
                let genotypes = values.iter().map(|text| genotype_numbers(text)).collect::<Result<Vec<_>, _>>()?;
                append_padded_integers(&genotypes, out);
            }
            ValueType::Integer => {
                let numbers = values.iter().map(|text| parse_integers(key, text)).collect::<Result<Vec<_>, _>>()?;
                append_padded_integers(&numbers, out);
            }
            ValueType::Float => {
                let floats = values.iter().map(|text| parse_floats(key, text)).collect::<Result<Vec<_>, _>>()?;
                let width = floats.iter().map(Vec::len).max().unwrap_or(0);
                append_descriptor(FLOAT, width, out);
                for sample in &floats {
                    let padded = sample.iter().copied().chain(std::iter::repeat(END_OF_VECTOR_FLOAT)).take(width);
                    padded.for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
                }
            }
            ValueType::Flag | ValueType::Text => {
                let width = values.iter().map(|text| text.len()).max().unwrap_or(0);
                append_descriptor(STRING, width, out);
                for text in values {
                    out.extend_from_slice(text.as_bytes());
                    out.resize(out.len() + width - text.len(), 0);
                }
            }
        }
        Ok(())
    }

    fn string_number(&self, kind: &str, name: &str) -> Result<i32, String> {
        let number = self.strings.get(name).and_then(|number| i32::try_from(*number).ok());
        number.ok_or_else(|| undefined_error(kind, name))
    }
}

fn undefined_error(kind: &str, name: &str) -> String {
    format!("the header does not define its {kind} {name:?}, which BCF requires; write VCF, or add a header line")
}

/// Splits a field; returns no parts if the field is missing.
fn split_present(text: &str, separator: char) -> impl Iterator<Item = &str> {
    (text != MISSING_VALUE && !text.is_empty()).then(|| text.split(separator)).into_iter().flatten()
}

fn parse_integers(key: &str, text: &str) -> Result<Vec<i32>, String> {
    let parse = |value: &str| match value.parse() {
        _ if value == MISSING_VALUE => Ok(MISSING_INTEGER),
        Ok(number) if number >= MIN_INTEGER => Ok(number),
        _ => Err(format!("its {key} is {value:?}, which is not an integer that BCF can store")),
    };
    text.split(',').map(parse).collect()
}

/// Parses floats, and returns their bits.
fn parse_floats(key: &str, text: &str) -> Result<Vec<u32>, String> {
    let parse = |value| if value == MISSING_VALUE { Ok(MISSING_FLOAT) } else { parse_float(key, value) };
    text.split(',').map(parse).collect()
}

fn parse_float(key: &str, text: &str) -> Result<u32, String> {
    text.parse::<f32>().map(f32::to_bits).map_err(|_| format!("its {key} is {text:?}, which is not a number"))
}

/// Returns the alleles of a genotype as BCF stores them: allele + 1, or 0 if it is missing, times two, plus one if the
/// allele is phased with the one before it (VCFv4.4 §6.3.3, "Genotype encoding").
fn genotype_numbers(text: &str) -> Result<Vec<i32>, String> {
    let genotype = Genotype::parse(text).ok_or_else(|| format!("its GT is {text:?}, which is not a genotype"))?;
    let separators = text.bytes().filter(|byte| matches!(byte, b'/' | b'|'));
    let has_prefix = text.starts_with(['/', '|']);
    let before = (!has_prefix).then_some(b'/').into_iter().chain(separators);
    let numbers = genotype.alleles().zip(before).map(|(allele, separator)| {
        let number = allele.map_or(Some(0), |allele| allele.checked_add(1))?;
        Some(number.checked_mul(2)? | i32::from(separator == b'|'))
    });
    numbers.collect::<Option<Vec<_>>>().ok_or_else(|| format!("its GT is {text:?}, whose alleles are too large"))
}

/// Appends the integers of each sample, padded to the longest list.
fn append_padded_integers(samples: &[Vec<i32>], out: &mut Vec<u8>) {
    let width = samples.iter().map(Vec::len).max().unwrap_or(0);
    let padded = samples
        .iter()
        .flat_map(|sample| sample.iter().copied().chain(std::iter::repeat(END_OF_VECTOR_INTEGER)).take(width));
    append_integers(&padded.collect::<Vec<_>>(), width, out);
}

/// Appends integers in the smallest type that can store all of them, with `count` as the length in the descriptor.
fn append_integers(values: &[i32], count: usize, out: &mut Vec<u8>) {
    let is_value = |value: &&i32| **value >= MIN_INTEGER;
    let least = values.iter().filter(is_value).min().copied().unwrap_or(0);
    let greatest = values.iter().filter(is_value).max().copied().unwrap_or(0);
    // As htslib does, the eight smallest numbers of each type are reserved.
    let kind = match count {
        0 => return out.push(ABSENT),
        _ if least >= i32::from(i8::MIN) + 8 && greatest <= i32::from(i8::MAX) => INT8,
        _ if least >= i32::from(i16::MIN) + 8 && greatest <= i32::from(i16::MAX) => INT16,
        _ => INT32,
    };
    append_descriptor(kind, count, out);
    for &value in values {
        // The reserved numbers of the narrower types are the low bits of these with the sign bit of the type.
        let reserved = value.wrapping_sub(MISSING_INTEGER);
        match kind {
            INT8 if value < MIN_INTEGER => out.push((i8::MIN as u8).wrapping_add(reserved as u8)),
            INT8 => out.push(value as u8),
            INT16 if value < MIN_INTEGER => out.extend_from_slice(&(i16::MIN as u16 + reserved as u16).to_le_bytes()),
            INT16 => out.extend_from_slice(&(value as u16).to_le_bytes()),
            _ => out.extend_from_slice(&value.to_le_bytes()),
        }
    }
}

fn append_text(text: &str, out: &mut Vec<u8>) {
    append_descriptor(STRING, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the type and the number of the values that follow. A number above 14 follows as an integer of its own.
fn append_descriptor(kind: u8, count: usize, out: &mut Vec<u8>) {
    if count < 15 {
        out.push((count as u8) << 4 | kind);
        return;
    }
    out.push(15 << 4 | kind);
    append_integers(&[i32::try_from(count).unwrap_or(i32::MAX)], 1, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(values: &[i32]) -> Vec<u8> {
        let mut out = Vec::new();
        append_integers(values, values.len(), &mut out);
        out
    }

    #[test]
    fn integers_have_the_smallest_type_that_stores_all_of_them() {
        assert_eq!(integers(&[1, -120]), [0x21, 1, 0x88]);
        assert_eq!(integers(&[MISSING_INTEGER, END_OF_VECTOR_INTEGER]), [0x21, 0x80, 0x81]);
        assert_eq!(integers(&[-121]), [0x12, 0x87, 0xff]);
        assert_eq!(integers(&[300, MISSING_INTEGER]), [0x22, 0x2c, 1, 0, 0x80]);
        assert_eq!(integers(&[70_000]), [0x13, 0x70, 0x11, 1, 0]);
        assert_eq!(integers(&[]), [0]);
        // A long vector has its length as a further integer.
        assert_eq!(integers(&[7; 15])[..3], [0xf1, 0x11, 15]);
    }

    #[test]
    fn genotypes_store_the_phase_with_each_allele() {
        assert_eq!(genotype_numbers("0/1").unwrap(), [2, 4]);
        assert_eq!(genotype_numbers("1|0").unwrap(), [4, 3]);
        assert_eq!(genotype_numbers("./.").unwrap(), [0, 0]);
        assert_eq!(genotype_numbers(".").unwrap(), [0]);
        assert_eq!(genotype_numbers("|1|2").unwrap(), [5, 7]);
        assert!(genotype_numbers("A").is_err());
    }

    #[test]
    fn what_the_header_does_not_define_is_an_error_that_names_it() {
        let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
        let info = "##INFO=<ID=DP,Number=1,Type=Integer,Description=\"x\">";
        let header = Header::from_text(&format!("##fileformat=VCFv4.2\n##contig=<ID=a>\n{info}\n{columns}")).unwrap();
        let mut encoder = BcfEncoder::new(&header);
        for (line, expected) in [
            ("b\t1\t.\tA\tC\t.\t.\t.", "contig \"b\""),
            ("a\t1\t.\tA\tC\t.\tq10\t.", "FILTER \"q10\""),
            ("a\t1\t.\tA\tC\t.\tPASS\tXX=1", "INFO \"XX\""),
            ("a\t1\t.\tA\tC\t.\tPASS\tDP=x", "DP is \"x\""),
        ] {
            let record = Record::from_line(line, &header).unwrap();
            let error = encoder.encode(&record, &mut Vec::new()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
