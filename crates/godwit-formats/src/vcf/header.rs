//! The header: contigs, fields and samples, parsed from lines that stay unchanged.

use std::collections::HashSet;

use godwit_model::schema::variant_columns::{FieldDefinition, ValueCount, ValueType};

use super::error::excerpt;

/// Names of the columns of every VCF (VCFv4.4 §1.5).
const COLUMN_NAMES: [&str; 8] = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO"];

/// A contig of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderContig {
    /// `ID`.
    pub name: String,
    /// `length`, bases, if the line has one.
    pub length: Option<u64>,
}

/// The header of a VCF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    text: String,
    contigs: Vec<HeaderContig>,
    info: Vec<FieldDefinition>,
    formats: Vec<FieldDefinition>,
    samples: Vec<String>,
    has_format: bool,
}

/// A builder of a header.
#[derive(Debug, Default)]
pub(super) struct HeaderBuilder {
    header: Header,
    /// Kind and ID of the lines so far.
    defined_fields: HashSet<(&'static str, String)>,
    complete: bool,
}

impl Header {
    /// Returns all lines, each ended by a line feed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the contigs in the order of their lines, each once.
    pub fn contigs(&self) -> &[HeaderContig] {
        &self.contigs
    }

    /// Returns the definitions of `INFO` lines, in their order; of two with one ID, the first.
    pub fn info(&self) -> &[FieldDefinition] {
        &self.info
    }

    /// Returns the definitions of `FORMAT` lines, in their order; of two with one ID, the first.
    pub fn formats(&self) -> &[FieldDefinition] {
        &self.formats
    }

    /// Returns the names of samples, in the order of their columns.
    pub fn samples(&self) -> &[String] {
        &self.samples
    }

    /// Reports whether lines have a `FORMAT` field, with or without samples behind it.
    pub(super) fn has_format(&self) -> bool {
        self.has_format
    }
}

impl HeaderBuilder {
    /// Reports whether the line of column names was added: records follow.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the bytes of the lines so far.
    pub(super) fn text_bytes(&self) -> usize {
        self.header.text.len()
    }

    /// Returns the header.
    pub(super) fn finish(self) -> Header {
        self.header
    }

    /// Adds the next line, without its end.
    ///
    /// # Errors
    /// The problem of the line.
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
            return Err("a record comes before the line that starts with #CHROM; the header is cut off".to_owned());
        }
        self.header.text.push_str(line);
        self.header.text.push('\n');
        Ok(())
    }

    /// Parses `key=<...>`; a line of an unknown kind is only stored.
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
                    // Samples have values, which a flag would lose.
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
                    "column names are separated by tabs and {expected} is one, not {:?}",
                    excerpt(found)
                ));
            }
        }
        match names.next() {
            None => return Ok(()),
            Some("FORMAT") => self.has_format = true,
            Some(other) => return Err(format!("the column after INFO is FORMAT, not {:?}", excerpt(other))),
        }
        self.samples = names.map(str::to_owned).collect();
        let mut sorted: Vec<&str> = self.samples.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("two samples are called {:?}; rename one", excerpt(pair[0]))),
            None => Ok(()),
        }
    }
}

/// Returns the definition of a field with that `Number` and `Type`; text, which accepts everything, for unknown ones.
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

/// Returns the value of a key in the text behind `<` (VCFv4.4 §1.4): values may be quoted, with `\"` for a quote within.
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

/// Returns the position of the quote that ends a value, or the end of the text.
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
