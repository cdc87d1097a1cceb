//! The header: contigs, fields and samples, out of lines that stay as they are.

use std::collections::HashSet;

use godwit_model::schema::variants::{FieldDefinition, ValueCount, ValueType};

use super::error::shown;

/// Names of the columns of every VCF (VCFv4.4 §1.5).
const COLUMN_NAMES: [&str; 8] = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO"];

/// A contig as the header has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderContig {
    /// `ID`.
    pub name: String,
    /// `length`, bases, where it is given.
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

/// A header in the making.
#[derive(Debug, Default)]
pub(super) struct HeaderLines {
    header: Header,
    /// Kind and ID of what was defined.
    seen: HashSet<(&'static str, String)>,
    complete: bool,
}

impl Header {
    /// All its lines, each ended by a line feed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Contigs in the order of their lines, each once.
    pub fn contigs(&self) -> &[HeaderContig] {
        &self.contigs
    }

    /// What `INFO` lines define, in their order; of two with one ID, the first.
    pub fn info(&self) -> &[FieldDefinition] {
        &self.info
    }

    /// What `FORMAT` lines define, in their order; of two with one ID, the first.
    pub fn formats(&self) -> &[FieldDefinition] {
        &self.formats
    }

    /// Names of samples, in the order of their columns.
    pub fn samples(&self) -> &[String] {
        &self.samples
    }

    /// Whether lines have a `FORMAT` field, with or without samples behind it.
    pub(super) fn has_format(&self) -> bool {
        self.has_format
    }
}

impl HeaderLines {
    /// Whether the line of column names was seen: records follow.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Bytes of the lines so far.
    pub(super) fn bytes(&self) -> usize {
        self.header.text.len()
    }

    /// The header.
    pub(super) fn finish(self) -> Header {
        self.header
    }

    /// Takes the next line, without its end.
    ///
    /// # Errors
    /// What is wrong with it.
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

    /// Looks at `key=<...>`; what is not understood is only kept.
    fn push_meta(&mut self, line: &str) {
        let Some((kind, structure)) = line.split_once("=<") else { return };
        let Some(kind) = ["contig", "INFO", "FORMAT"].into_iter().find(|known| *known == kind) else { return };
        let value = |key: &str| attribute(structure, key);
        let Some(id) = value("ID").filter(|id| !id.is_empty()) else { return };
        if !self.seen.insert((kind, id.clone())) {
            return;
        }
        match kind {
            "INFO" => self.header.info.push(definition(id, &value("Number"), &value("Type"))),
            "FORMAT" => {
                let mut field = definition(id, &value("Number"), &value("Type"));
                if field.value_type == ValueType::Flag {
                    // Samples have values, so that a flag would say less than the file does.
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
                    shown(found)
                ));
            }
        }
        match names.next() {
            None => return Ok(()),
            Some("FORMAT") => self.has_format = true,
            Some(other) => return Err(format!("the column after INFO is FORMAT, not {:?}", shown(other))),
        }
        self.samples = names.map(str::to_owned).collect();
        let mut sorted: Vec<&str> = self.samples.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("two samples are called {:?}; rename one", shown(pair[0]))),
            None => Ok(()),
        }
    }
}

/// What a field with that `Number` and `Type` holds; text where they say nothing known, which takes everything.
fn definition(id: String, number: &Option<String>, value_type: &Option<String>) -> FieldDefinition {
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

/// The value of a key in what stands behind `<` (VCFv4.4 §1.4): values may be quoted, with `\"` for a quote within.
pub(super) fn attribute(mut text: &str, key: &str) -> Option<String> {
    loop {
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = end_of_quoted(quoted);
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

/// Where the quote is that ends a value, or the end of the text.
fn end_of_quoted(text: &str) -> usize {
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
