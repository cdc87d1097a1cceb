//! Converts errors of DataFusion to messages for users. Messages about unknown names list the known names, data types
//! are described in words, and text for developers is removed.

use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, SchemaError};
use datafusion::sql::sqlparser::parser::ParserError;
use godwit_flight::{SQL_CATALOG, SQL_SCHEMA};
use godwit_model::{did_you_mean, nearest_name};

use crate::dataset_table::TABLE_FUNCTIONS;

/// Maximum number of names that a list in a message shows.
const MAX_NAMES_SHOWN: usize = 40;
/// Pairs of a column name that SAM, VCF or BED uses, and the name of this column in godwit.
const COLUMN_SYNONYMS: [(&str, &str); 23] = [
    ("qname", "name"),
    ("read_name", "name"),
    ("flag", "flags"),
    ("rname", "contig"),
    ("chrom", "contig"),
    ("chromosome", "contig"),
    ("chr", "contig"),
    ("pos", "position"),
    ("start", "position"),
    ("end", "end_position"),
    ("stop", "end_position"),
    ("mapq", "mapping_quality"),
    ("rnext", "mate_contig"),
    ("pnext", "mate_position"),
    ("tlen", "template_length"),
    ("insert_size", "template_length"),
    ("seq", "bases"),
    ("sequence", "bases"),
    ("qual", "qualities"),
    ("qual", "quality"),
    ("id", "identifiers"),
    ("ref", "reference"),
    ("alt", "alternates"),
];
/// Prefixes by which DataFusion marks error texts with the component that failed.
const ERROR_PREFIXES: [&str; 17] = [
    "Arrow error: ",
    "Arrow: ",
    "Parquet error: ",
    "Parquet argument error: ",
    "External error: ",
    "External: ",
    "Execution error: ",
    "Error during planning: ",
    "Compute error: ",
    "Cast error: ",
    "Parser error: ",
    "Invalid argument error: ",
    "Schema error: ",
    "Internal error: ",
    "Optimizer rule failed: ",
    "Error evaluating filter predicate: ",
    "This feature is not implemented: ",
];

/// Formats a list of at most [`MAX_NAMES_SHOWN`] names for a message.
pub(crate) fn name_list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names[..names.len().min(MAX_NAMES_SHOWN)].join(", ");
    match names.len().checked_sub(MAX_NAMES_SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// Returns the message for an error about columns of a statement.
pub(crate) fn schema_error_message(error: &SchemaError) -> String {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => missing_column_message(field, valid_fields),
        SchemaError::AmbiguousReference { field } => {
            let name = &field.name;
            format!("column {name} is in several tables; write the table before it, as in x.{name}")
        }
        SchemaError::DuplicateUnqualifiedField { name } | SchemaError::DuplicateQualifiedField { name, .. } => {
            format!("two columns have the name {name}; rename one of them with AS")
        }
    }
}

fn missing_column_message(field: &Column, valid: &[Column]) -> String {
    let written = match &field.relation {
        Some(table) => format!("{table}.{}", field.name),
        None => field.name.clone(),
    };
    let mut names: Vec<&str> = Vec::new();
    for column in valid {
        if !names.contains(&column.name.as_str()) {
            names.push(&column.name);
        }
    }
    if names.is_empty() {
        return format!(
            "there is no column {written}: the statement names no table; add FROM, or write text in single quotes"
        );
    }
    let lower = field.name.to_ascii_lowercase();
    let known_as =
        COLUMN_SYNONYMS.iter().find(|(other, name)| *other == lower && names.contains(name)).map(|(_, name)| *name);
    let tables: Vec<&str> =
        valid.iter().filter_map(|column| column.relation.as_ref().map(|table| table.table())).collect();
    // The column may exist, but the table name before it may be wrong.
    let wrong_table = field
        .relation
        .as_ref()
        .filter(|table| !tables.contains(&table.table()) && names.contains(&field.name.as_str()));
    let hint = match (wrong_table, known_as.or_else(|| nearest_name(&field.name, names.iter().copied()))) {
        (Some(table), _) => format!("; no table of the statement is named {table}."),
        (None, Some(name)) => format!("; did you mean {name}?"),
        (None, None) => "; write text in single quotes.".to_owned(),
    };
    format!("there is no column {written}{hint} The columns are {}", name_list(names))
}

/// Returns the message for an SQL syntax error.
pub(crate) fn parser_error_message(error: &ParserError) -> String {
    let problem = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => "the statement is nested too deeply",
    };
    let mut letters = problem.chars();
    let problem: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    let problem = problem
        .replace(" at Line: ", " at line ")
        .replace(", Column: ", ", column ")
        .replace("expected: ", "expected ");
    format!("the statement cannot be read as SQL: {}", problem.replace("found: ", "found "))
}

/// Returns the table name if a message of DataFusion means that a table is missing.
pub(crate) fn missing_table_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix("table '")?.strip_suffix("' not found")?;
    let prefix = format!("{SQL_CATALOG}.{SQL_SCHEMA}.");
    Some(name.strip_prefix(&prefix).unwrap_or(name))
}

/// Returns the message for a statement that cannot be planned, from the text of DataFusion.
pub(crate) fn plan_error_message(text: &str) -> String {
    let text = strip_error_prefixes(text);
    if let Some(rest) = text.strip_prefix("Invalid function '") {
        let (name, rest) = rest.split_once('\'').unwrap_or((rest, ""));
        let near = rest.split_once("mean '").and_then(|(_, near)| near.split('\'').next());
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        return format!("there is no function {name}{near}");
    }
    if let Some(name) =
        text.to_ascii_lowercase().strip_prefix("table function '").and_then(|rest| rest.strip_suffix("' not found"))
    {
        let near = did_you_mean(name, TABLE_FUNCTIONS);
        let near = if near.is_empty() { ";" } else { &near };
        return format!(
            "there is no table function {name}{near} the table functions are {}",
            name_list(TABLE_FUNCTIONS)
        );
    }
    if let Some((expr, kind)) = text_between(&text, "non-boolean predicate '", "' returning ") {
        return format!("WHERE takes a condition that is true or false; {expr} is {}", replace_type_names(kind));
    }
    if let Some((column, _)) = text_between(&text, "column \"", "\" must appear in the GROUP BY") {
        return format!(
            "{column} is neither grouped nor aggregated; add it to GROUP BY, or take min({column}) or another aggregate"
        );
    }
    // Keep the description of the arguments, but remove the list of all signatures of the function.
    let text = text.split(" No function matches").next().unwrap_or_default();
    user_message(&text.replace("expects Numeric", "takes numbers").replace(" but received String", ", not text"))
}

/// Returns the message for a statement with a feature that the engine does not have.
pub(crate) fn unsupported_message(text: &str) -> String {
    if text.contains("Unsupported binary operator: PGOverlap") {
        return "&& is not an operator of SQL; use AND, or filter('..') for an expression of samtools or bcftools"
            .to_owned();
    }
    format!("this is not supported: {}", user_message(text))
}

/// Returns the text between the delimiters `before` and `behind`, and the text after `behind`.
fn text_between<'t>(text: &'t str, before: &str, behind: &str) -> Option<(&'t str, &'t str)> {
    text.split_once(before)?.1.split_once(behind)
}

/// Returns the message for an error while values are computed.
pub(crate) fn arrow_error_message(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => "a number is divided by zero; use NULLIF(.., 0) for the divisor".to_owned(),
        ArrowError::ArithmeticOverflow(text) => {
            format!("a number becomes too large for its type: {}", user_message(text))
        }
        error => user_message(&error.to_string()),
    }
}

/// Removes the parts for developers from an error text of DataFusion.
pub(crate) fn user_message(text: &str) -> String {
    let text = strip_error_prefixes(text);
    if text == "Divide by zero error" {
        return arrow_error_message(&ArrowError::DivideByZero);
    }
    if let Some((value, wanted)) =
        text.strip_prefix("Cannot cast string '").and_then(|rest| rest.rsplit_once("' to value of "))
    {
        let wanted = replace_type_names(wanted.strip_suffix(" type").unwrap_or(wanted));
        let article = if wanted == "true or false" { "" } else { "a " };
        return format!(
            "the text '{value}' cannot be read as {article}{wanted}; a column of text is compared with text in single quotes, as in column = '5'"
        );
    }
    let first = text.lines().next().unwrap_or_default();
    // The list of operators that use most memory is on the next lines.
    let first = first.split(" with top memory consumers").next().unwrap_or_default();
    replace_type_names(first)
}

/// Returns the innermost message of an error text, without the names of the components that wrapped it.
fn strip_error_prefixes(text: &str) -> String {
    let mut text = innermost_debug_message(text).unwrap_or_else(|| text.to_owned());
    while let Some(rest) = ERROR_PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)) {
        text = rest.to_owned();
    }
    text
}

/// Returns the last quoted text in the debug format of an error, such as `..Error("..")`.
fn innermost_debug_message(text: &str) -> Option<String> {
    let start = text.rfind("Error(\"")? + "Error(\"".len();
    let mut message = String::new();
    let mut letters = text[start..].chars();
    loop {
        match letters.next()? {
            '"' => return Some(message),
            '\\' => match letters.next()? {
                'n' => message.push('\n'),
                't' => message.push('\t'),
                other => message.push(other),
            },
            other => message.push(other),
        }
    }
}

/// Replaces names of Arrow data types in a text by words, such as "text" for `Utf8`.
fn replace_type_names(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let is_boundary = !words.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == '\'');
        match leading_type_in_words(rest).filter(|_| is_boundary) {
            Some((length, word)) => {
                words.push_str(word);
                rest = &rest[length..];
            }
            None => {
                words.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    words
}

/// If a text begins with the name of an Arrow data type, returns the length of the name and the type in words.
fn leading_type_in_words(text: &str) -> Option<(usize, &'static str)> {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(text.len());
    let word = match &text[..end] {
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64" => "whole number",
        "Float16" | "Float32" | "Float64" | "Decimal128" | "Decimal256" => "number",
        "Boolean" => "true or false",
        "Date32" | "Date64" => "date",
        "Timestamp" => "time",
        "Binary" | "LargeBinary" | "BinaryView" => "bytes",
        "Dictionary" => "text",
        "List" | "LargeList" => "list",
        _ => return None,
    };
    // Include type parameters in parentheses in the length, because users do not need them.
    let arguments = text[end..].starts_with('(').then(|| parenthesized_length(&text[end..])).flatten().unwrap_or(0);
    Some((end + arguments, word))
}

/// Returns the length of the parenthesized text at the start of a text, including the parentheses.
fn parenthesized_length(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at + 1),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}
