//! The header of a VCF file: contigs, fields and samples, which are parsed from its lines. The text of the lines is
//! stored unchanged.

use std::collections::HashSet;

use godwit_model::schema::variant_columns::{FieldDefinition, ValueCount, ValueType};

use super::error::excerpt;

/// Names of the first eight columns, which every VCF file has (VCFv4.4 §1.5).
const COLUMN_NAMES: [&str; 8] = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO"];

/// A contig that a `##contig` line of the header defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderContig {
    /// Name of the contig (`ID`).
    pub name: String,
    /// Length in bases (`length`), if the line contains it.
    pub length: Option<u64>,
}

/// The header of a VCF or BCF file.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::vcf::Reader;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.vcf");
/// let contig = "##contig=<ID=chr20,length=64444167>";
/// let info = "##INFO=<ID=DP,Number=1,Type=Integer,Description=\"Depth\">";
/// let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
/// std::fs::write(&path, format!("##fileformat=VCFv4.2\n{contig}\n{info}\n{columns}\n"))?;
/// let reader = Reader::open(&path, 1)?;
/// let header = reader.header();
/// assert_eq!((header.contigs()[0].name.as_str(), header.contigs()[0].length), ("chr20", Some(64_444_167)));
/// assert_eq!(header.info()[0].id, "DP");
/// assert!(header.samples().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    text: String,
    contigs: Vec<HeaderContig>,
    info: Vec<FieldDefinition>,
    formats: Vec<FieldDefinition>,
    samples: Vec<String>,
    has_format: bool,
}

/// A builder of a header, to which lines are added.
#[derive(Debug, Default)]
pub(super) struct HeaderBuilder {
    header: Header,
    /// Kind and ID of the fields and contigs that the lines so far define.
    defined_fields: HashSet<(&'static str, String)>,
    complete: bool,
}

impl Header {
    /// Parses the text of a header, from `##fileformat` to the line of column names.
    ///
    /// # Errors
    /// A description of the problem, with the 1-based number of the line.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut builder = HeaderBuilder::default();
        for (number, line) in (1..).zip(text.lines()) {
            builder.push_line(line).map_err(|problem| format!("line {number} of the header: {problem}"))?;
        }
        match builder.is_complete() {
            true => Ok(builder.finish()),
            false => Err("the header ends before the line that starts with #CHROM".to_owned()),
        }
    }

    /// Returns the text of the header, with a line feed after each line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the contigs in the order of their lines, without duplicates.
    pub fn contigs(&self) -> &[HeaderContig] {
        &self.contigs
    }

    /// Returns the definitions of the `INFO` fields in the order of their lines. If two lines have the same ID, only
    /// the first counts.
    pub fn info(&self) -> &[FieldDefinition] {
        &self.info
    }

    /// Returns the definitions of the `FORMAT` fields in the order of their lines. If two lines have the same ID, only
    /// the first counts.
    pub fn formats(&self) -> &[FieldDefinition] {
        &self.formats
    }

    /// Returns the sample names in the order of their columns.
    pub fn samples(&self) -> &[String] {
        &self.samples
    }

    /// Returns whether the file has a `FORMAT` column, whether or not samples follow it.
    pub(super) fn has_format(&self) -> bool {
        self.has_format
    }
}

impl HeaderBuilder {
    /// Returns whether the line of column names, which ends the header, has been added.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the length in bytes of the lines added so far.
    pub(super) fn text_bytes(&self) -> usize {
        self.header.text.len()
    }

    /// Returns the header that was built.
    pub(super) fn finish(self) -> Header {
        self.header
    }

    /// Adds the next line, given without its line end.
    ///
    /// # Errors
    /// A description of the problem of the line.
    pub(super) fn push_line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(value) = line.strip_prefix("##") {
            self.push_meta(value);
        } else if line.starts_with('#') {
            self.header.push_column_names(line)?;
            self.complete = true;
        } else {
            return Err("a record precedes the line that starts with #CHROM; the header is truncated".to_owned());
        }
        self.header.text.push_str(line);
        self.header.text.push('\n');
        Ok(())
    }

    /// Parses a line of the form `key=<...>`. A line of an unknown kind is stored but not parsed.
    fn push_meta(&mut self, line: &str) {
        let Some((kind, structure)) = line.split_once("=<") else { return };
        let Some(kind) = ["contig", "INFO", "FORMAT"].into_iter().find(|known| *known == kind) else { return };
        let value = |key: &str| attribute_value(structure, key);
        let Some(id) = value("ID").filter(|id| !id.is_empty()) else { return };
        if !self.defined_fields.insert((kind, id.clone())) {
            return;
        }
        match kind {
            "INFO" => self.header.info.push(field_definition(id, &value("Number"), &value("Type"))),
            "FORMAT" => {
                let mut field = field_definition(id, &value("Number"), &value("Type"));
                if field.value_type == ValueType::Flag {
                    // Samples have a value for the field, which a column of flags could not store.
                    (field.value_type, field.count) = (ValueType::Text, ValueCount::One);
                }
                self.header.formats.push(field);
            }
            _ => {
                let length = value("length").and_then(|text| text.parse().ok());
                self.header.contigs.push(HeaderContig { name: id, length });
            }
        }
    }
}

impl Header {
    fn push_column_names(&mut self, line: &str) -> Result<(), String> {
        let mut names = line.split('\t');
        for expected in COLUMN_NAMES {
            let found = names.next().unwrap_or_default();
            if found != expected {
                return Err(format!(
                    "the column name {expected} is expected, separated by tabs, not {:?}",
                    excerpt(found)
                ));
            }
        }
        match names.next() {
            None => return Ok(()),
            Some("FORMAT") => self.has_format = true,
            Some(other) => return Err(format!("the column after INFO must be FORMAT, not {:?}", excerpt(other))),
        }
        self.samples = names.map(str::to_owned).collect();
        let mut sorted: Vec<&str> = self.samples.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("two samples have the name {:?}; rename one", excerpt(pair[0]))),
            None => Ok(()),
        }
    }
}

/// Returns the definition of a field with this `Number` and `Type`. An unknown type becomes text, for which every value
/// is valid.
fn field_definition(id: String, number: &Option<String>, value_type: &Option<String>) -> FieldDefinition {
    let value_type = match value_type.as_deref() {
        _ if number.as_deref() == Some("0") => ValueType::Flag,
        Some("Flag") => ValueType::Flag,
        Some("Integer") => ValueType::Integer,
        Some("Float") => ValueType::Float,
        _ => ValueType::Text,
    };
    let count = match number.as_deref() {
        Some("1") | None => ValueCount::One,
        _ if value_type == ValueType::Flag => ValueCount::One,
        _ => ValueCount::List,
    };
    FieldDefinition { id, value_type, count }
}

/// Returns the value of a key in the text after `<` of a header line (VCFv4.4 §1.4). Values may be quoted, and may
/// contain `\"` for a quote.
pub(super) fn attribute_value(mut text: &str, key: &str) -> Option<String> {
    loop {
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = find_closing_quote(quoted);
                (&quoted[..end], quoted[end..].split_once([',', '>']).map_or("", |(_, rest)| rest))
            }
            None => {
                let end = rest.find([',', '>']).unwrap_or(rest.len());
                (&rest[..end], rest.get(end + 1..).unwrap_or_default())
            }
        };
        if name.trim() == key {
            return Some(value.to_owned());
        }
        text = rest;
    }
}

/// Returns the position of the quote that ends a quoted value, or the end of the text.
fn find_closing_quote(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at,
            _ => {}
        }
    }
    text.len()
}
