//! The SQL function `filter('mapq > 30 && [NM] < 2')` on tables of reads, which tests them by a filter expression of samtools.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, Result, plan_err};
use datafusion::logical_expr::Expr;
use godwit_dataset::{ContigLine, Dataset, contig_lines};
use godwit_model::schema::alignment_columns::{HEADER_KEY, TAG_COLUMNS, TagType, alignments_without_dictionaries};

use crate::filter_expression::{CigarLength, FilterExpression, Symbol, SymbolSource, Value};
use crate::filter_function::{FUNCTION_NAME, RowFilter, condition, excerpt, invalid_expression};

/// The column with tags that have no column of their own.
const OTHER_TAGS_COLUMN: &str = "other_tags";
/// The column with the tag `RG`.
const READ_GROUP_COLUMN: &str = "read_group";
/// The column with the base qualities.
const QUALITIES_COLUMN: &str = "qualities";
/// The value of each base quality if a read has bases without qualities (SAMv1 §4.2.3).
const MISSING_QUALITY: u8 = 0xff;

/// Returns the condition that replaces `filter('..')`. `find_column` returns the column of the table with a name, or
/// `None` if the table does not have it; `find_dataset` returns the dataset of the table if it is known.
pub(crate) fn filter_condition(
    text: &str,
    find_column: impl Fn(&str) -> Result<Option<Column>>,
    find_dataset: impl FnOnce() -> Option<Arc<dyn Dataset>>,
) -> Result<Expr> {
    let expression = FilterExpression::parse(text).map_err(|problem| invalid_expression(text, &problem))?;
    let (mut names, mut arguments): (Vec<String>, Vec<Expr>) = (Vec::new(), Vec::new());
    let mut columns = BTreeSet::new();
    for symbol in expression.symbols() {
        columns.extend(required_columns(*symbol).into_iter().map(|name| (name, is_optional(*symbol, name))));
    }
    for (name, is_optional) in columns {
        match find_column(name)? {
            Some(_) if names.iter().any(|used| used == name) => {}
            Some(column) => {
                names.push(name.to_owned());
                arguments.push(Expr::Column(column));
            }
            None if is_optional => {}
            None => {
                return plan_err!(
                    "{FUNCTION_NAME}() is for tables of reads; the expression {} needs the column {name}, which this \
                     table does not have",
                    excerpt(text)
                );
            }
        }
    }
    let needs_header = |symbol: &Symbol| matches!(symbol, Symbol::Library | Symbol::MateContigId);
    let header = match expression.symbols().iter().any(needs_header) {
        true => Some(HeaderNames::of_dataset(find_dataset().as_deref())?),
        false => None,
    };
    let filter = ReadFilter { columns: names, header: header.unwrap_or_default(), expression };
    Ok(condition(text, filter, arguments))
}

/// Returns the names of the columns that contain the value of a symbol.
fn required_columns(symbol: Symbol) -> Vec<&'static str> {
    match symbol {
        Symbol::Bases => vec!["bases"],
        Symbol::Cigar | Symbol::Cigars(_) => vec!["cigar"],
        Symbol::ContigId => vec!["contig_id"],
        Symbol::ContigName => vec!["contig"],
        Symbol::EndPosition => vec!["end_position"],
        Symbol::Flags(_) => vec!["flags"],
        Symbol::Library => vec![READ_GROUP_COLUMN],
        Symbol::MappingQuality => vec!["mapping_quality"],
        Symbol::MateContigId | Symbol::MateContigName => vec!["mate_contig"],
        Symbol::MatePosition => vec!["mate_position"],
        Symbol::Name => vec!["name"],
        Symbol::Position => vec!["position"],
        Symbol::Qualities => vec![QUALITIES_COLUMN, "bases"],
        Symbol::Tag([b'R', b'G']) => vec![READ_GROUP_COLUMN, OTHER_TAGS_COLUMN],
        Symbol::Tag(tag) => tag_column(tag).map(|(name, _)| name).into_iter().chain([OTHER_TAGS_COLUMN]).collect(),
        Symbol::TemplateLength => vec!["template_length"],
    }
}

/// Returns whether a symbol can be evaluated without one of its columns. A tag with a column of its own is in
/// `other_tags` only if its value does not fit the column.
fn is_optional(symbol: Symbol, column: &str) -> bool {
    match symbol {
        Symbol::Tag(tag) => column == OTHER_TAGS_COLUMN && (tag == *b"RG" || tag_column(tag).is_some()),
        _ => false,
    }
}

/// Returns the name and the type of the column of a tag; `None` if the tag has no column.
fn tag_column(tag: [u8; 2]) -> Option<(&'static str, TagType)> {
    TAG_COLUMNS.iter().find(|column| column.tag == tag).map(|column| (column.name, column.tag_type))
}

/// Names from the SAM header that some symbols need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct HeaderNames {
    /// The library of each read group.
    libraries: BTreeMap<String, String>,
    contig_ids: BTreeMap<String, i64>,
}

impl HeaderNames {
    fn of_dataset(dataset: Option<&dyn Dataset>) -> Result<Self> {
        let schema = dataset.map(Dataset::schema);
        let Some((schema, header)) =
            schema.as_ref().and_then(|schema| Some((schema, schema.metadata().get(HEADER_KEY)?)))
        else {
            return plan_err!(
                "{FUNCTION_NAME}(): library and mrefid need the SAM header of one dataset, which is not known here"
            );
        };
        let field =
            |line: &str, key: &str| line.split('\t').find_map(|field| field.strip_prefix(key)).map(str::to_owned);
        let groups = header.lines().filter(|line| line.starts_with("@RG\t"));
        let contigs = contig_lines(schema).filter(|line| matches!(line, ContigLine::Sam(_)));
        let contigs = contigs.filter_map(|line| line.field("SN:", "ID=").map(str::to_owned));
        Ok(Self {
            libraries: groups.filter_map(|line| Some((field(line, "ID:")?, field(line, "LB:")?))).collect(),
            contig_ids: contigs.zip(0..).collect(),
        })
    }
}

/// A filter expression of reads.
#[derive(Debug)]
struct ReadFilter {
    /// The names of the columns that the expression needs.
    columns: Vec<String>,
    header: HeaderNames,
    expression: FilterExpression,
}

impl RowFilter for ReadFilter {
    fn binding(&self) -> impl Eq + Hash + '_ {
        (&self.columns, &self.header)
    }

    fn row_test(&self, arrays: &[ArrayRef]) -> Result<impl Fn(usize) -> Result<bool, String>, ArrowError> {
        let columns = ReadColumns::new(&self.columns, arrays, &self.header)?;
        Ok(move |row| self.expression.matches(&ReadRow { columns: &columns, row }))
    }
}

/// The columns of a batch of reads, by their names. A column that no symbol needs is absent.
struct ReadColumns<'f> {
    integers: BTreeMap<&'f str, Int64Array>,
    texts: BTreeMap<&'f str, StringArray>,
    qualities: Option<BinaryArray>,
    other_tags: Option<BinaryArray>,
    header: &'f HeaderNames,
}

impl<'f> ReadColumns<'f> {
    fn new(names: &'f [String], arrays: &[ArrayRef], header: &'f HeaderNames) -> Result<Self, ArrowError> {
        let mut columns =
            Self { integers: BTreeMap::new(), texts: BTreeMap::new(), qualities: None, other_tags: None, header };
        let schema = alignments_without_dictionaries();
        for (name, array) in names.iter().zip(arrays) {
            match (name.as_str(), schema.field_with_name(name)?.data_type()) {
                (QUALITIES_COLUMN, _) => columns.qualities = Some(binary_array(array)?),
                (OTHER_TAGS_COLUMN, _) => columns.other_tags = Some(binary_array(array)?),
                (name, DataType::Utf8) => {
                    columns.texts.insert(name, cast(array, &DataType::Utf8)?.as_string::<i32>().clone());
                }
                (name, DataType::UInt8 | DataType::UInt16 | DataType::Int32) => {
                    columns.integers.insert(name, cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone());
                }
                (name, data_type) => {
                    let problem = format!("{FUNCTION_NAME}() cannot use the column {name} of type {data_type}");
                    return Err(ArrowError::SchemaError(problem));
                }
            }
        }
        Ok(columns)
    }
}

fn binary_array(array: &ArrayRef) -> Result<BinaryArray, ArrowError> {
    Ok(cast(array, &DataType::Binary)?.as_binary::<i32>().clone())
}

/// One read of a batch.
struct ReadRow<'c> {
    columns: &'c ReadColumns<'c>,
    row: usize,
}

impl ReadRow<'_> {
    fn integer(&self, column: &str) -> Option<i64> {
        let values = self.columns.integers.get(column)?;
        values.is_valid(self.row).then(|| values.value(self.row))
    }

    fn text(&self, column: &str) -> Option<&str> {
        let values = self.columns.texts.get(column)?;
        values.is_valid(self.row).then(|| values.value(self.row))
    }

    fn load_qualities(&self, value: &mut Value) {
        let qualities = self.columns.qualities.as_ref().filter(|values| values.is_valid(self.row));
        match (qualities, self.text("bases")) {
            (Some(values), _) => value.set_text(values.value(self.row)),
            (None, bases) => value.set_text(&vec![MISSING_QUALITY; bases.map_or(0, str::len)]),
        }
    }

    fn load_tag(&self, tag: [u8; 2], value: &mut Value) -> Result<(), String> {
        let column = match tag {
            [b'R', b'G'] => Some((READ_GROUP_COLUMN, TagType::Text)),
            tag => tag_column(tag),
        };
        match column {
            Some((column, TagType::Integer)) if let Some(number) = self.integer(column) => {
                value.set_tag_number(number as f64);
                return Ok(());
            }
            Some((column, TagType::Text)) if let Some(text) = self.text(column) => {
                value.set_tag_text(text.as_bytes());
                return Ok(());
            }
            _ => {}
        }
        let others = self.columns.other_tags.as_ref().filter(|tags| tags.is_valid(self.row));
        let packed = others.map(|tags| tags.value(self.row)).unwrap_or_default();
        let Some(found) = godwit_model::iter_packed_tags(packed).find(|found| found.name == tag) else {
            value.set_absent_tag();
            return Ok(());
        };
        match (found.float(), found.type_code) {
            (Some(number), _) => value.set_tag_number(number),
            (None, b'Z' | b'H' | b'A') => value.set_tag_text(found.value),
            (None, _) => {
                return Err(format!("the tag {} of a read is an array", String::from_utf8_lossy(&tag)));
            }
        }
        Ok(())
    }
}

impl SymbolSource for ReadRow<'_> {
    fn load(&self, symbol: &Symbol, value: &mut Value) -> Result<(), String> {
        let number = |column: &str, if_null: i64| self.integer(column).unwrap_or(if_null) as f64;
        let text = |column: &str, if_null: &'static str| self.text(column).unwrap_or(if_null).as_bytes();
        let cigar_length = |length: CigarLength| length.of_cigar(self.text("cigar").unwrap_or_default()) as f64;
        match *symbol {
            Symbol::Bases => value.set_text(text("bases", "")),
            Symbol::Cigar => value.set_text(text("cigar", "*")),
            Symbol::Cigars(length) => value.set_number(cigar_length(length)),
            Symbol::ContigId => value.set_number(number("contig_id", -1)),
            Symbol::ContigName => value.set_text(text("contig", "*")),
            Symbol::EndPosition => value.set_number(number("end_position", 0)),
            Symbol::Flags(mask) => {
                let flags = self.integer("flags").unwrap_or_default() & i64::from(mask);
                value.set_number(flags as f64);
            }
            Symbol::Library => {
                let library = self.text(READ_GROUP_COLUMN).and_then(|group| self.columns.header.libraries.get(group));
                value.set_text(library.map(String::as_bytes).unwrap_or_default());
            }
            Symbol::MappingQuality => value.set_number(number("mapping_quality", 0)),
            Symbol::MateContigId => {
                let id = self.text("mate_contig").and_then(|contig| self.columns.header.contig_ids.get(contig));
                value.set_number(id.copied().unwrap_or(-1) as f64);
            }
            Symbol::MateContigName => value.set_text(text("mate_contig", "*")),
            Symbol::MatePosition => value.set_number(number("mate_position", -1) + 1.0),
            Symbol::Name => value.set_text(text("name", "*")),
            Symbol::Position => value.set_number(number("position", -1) + 1.0),
            Symbol::Qualities => self.load_qualities(value),
            Symbol::Tag(tag) => self.load_tag(tag, value)?,
            Symbol::TemplateLength => value.set_number(number("template_length", 0)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_reads_do_not_have_are_rejected() {
        let arrays: [ArrayRef; 1] = [Arc::new(StringArray::from(vec!["x"]))];
        let names = |name: &str| [name.to_owned()];
        let header = HeaderNames::default();
        assert!(ReadColumns::new(&names("bases"), &arrays, &header).is_ok());
        assert!(ReadColumns::new(&names("qualities"), &arrays, &header).is_ok_and(|found| found.qualities.is_some()));
        assert!(ReadColumns::new(&names("altitude"), &arrays, &header).is_err());
    }
}
