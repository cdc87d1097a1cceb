//! The filter expressions of bcftools (`bcftools view -i`), as bcftools evaluates them.
//!
//! [`VariantExpression::parse`] parses a text and finds the columns that it needs. [`VariantExpression::matches`]
//! evaluates it for one variant. The results, including those for absent values, follow bcftools 1.16 (`filter.c`;
//! manual page of bcftools, "EXPRESSIONS"). Arithmetic on lists of different lengths follows bcftools 1.23, because
//! 1.16 reads beyond the end of a list. These differ: a value `.` of an INFO key is the absence of the key; values that
//! are not of the type of their header line are absent; files of names (`@file`) and Perl functions are rejected.

mod arithmetic;
mod comparison;
mod evaluation;
mod field;
mod genotype_forms;
mod lexer;
mod parser;
mod statistics;
mod variant_types;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use field::Field;
use parser::Parser;
use regex::bytes::Regex;

/// A parsed filter expression.
#[derive(Debug)]
pub(crate) struct VariantExpression {
    /// The expression in reverse Polish notation.
    tokens: Vec<Token>,
    columns: Vec<ExpressionColumn>,
}

/// A column that an expression needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpressionColumn {
    pub(crate) name: String,
    /// The type to which the column is converted: 64-bit integers, 64-bit floats, texts or booleans, and lists of them.
    pub(crate) data_type: DataType,
}

/// A part of an expression in reverse Polish notation.
#[derive(Debug)]
enum Token {
    Number(f64),
    /// The text `.` that is compared with a number.
    MissingNumber,
    Text(String),
    Field(Field),
    /// A field that can only be compared with a text. The parser replaces it and the text by a test.
    Special(Special),
    FilterTest {
        column: usize,
        comparison: FilterComparison,
        names: Vec<String>,
    },
    IdentifierTest {
        column: usize,
        text: IdentifierText,
        is_negated: bool,
    },
    TypeTest {
        reference: usize,
        alternates: usize,
        comparison: FilterComparison,
        types: u32,
    },
    Operator(Operator),
    /// The test of a text by a pattern.
    Match(TextPattern),
    Function(Function),
    /// `N_PASS` and `F_PASS`.
    PassCount {
        is_fraction: bool,
    },
    /// `binom` of one field, in which the genotype selects the two values of each sample.
    GenotypeBinomial {
        genotypes: Option<usize>,
    },
    /// `binom` of two fields.
    Binomial,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// FILTER, with its column.
    Filters(usize),
    /// ID, with its column.
    Identifiers(usize),
    /// TYPE, with the columns from which it is computed.
    Types { reference: usize, alternates: usize },
}

/// The comparison of FILTER or TYPE with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterComparison {
    Equal,
    NotEqual,
    Contains,
    NotContains,
}

#[derive(Debug)]
enum IdentifierText {
    Exact(String),
    Pattern(Regex),
}

/// A pattern, and the text of it that decides how absent values are treated.
#[derive(Debug)]
struct TextPattern {
    regex: Regex,
    text: String,
    is_negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    /// `|` and `||`, `&` and `&&`. With `|` and `&`, conditions on samples must be true in the same sample.
    Logic {
        is_or: bool,
        within_samples: bool,
    },
    Compare(Comparison),
    Match {
        is_negated: bool,
    },
    Arithmetic(Arithmetic),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// A statistic over all values, or over the values of each sample.
    Statistic {
        statistic: Statistic,
        is_per_sample: bool,
    },
    Absolute,
    Count,
    TextLength,
    Phred,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistic {
    Maximum,
    Minimum,
    Mean,
    Median,
    StandardDeviation,
    Sum,
}

/// A row of the columns that an expression needs, which are in the order of [`VariantExpression::columns`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct VariantRow<'c> {
    pub(crate) columns: &'c [ArrayRef],
    pub(crate) row: usize,
    /// Number of samples.
    pub(crate) sample_count: usize,
}

impl VariantExpression {
    /// Parses an expression. `find_type` returns the type of the column with a name, or `None` if the table does not
    /// have it; `find_sample_count` returns the number of samples if it is known. The error describes the problem.
    pub(crate) fn parse(
        text: &str,
        find_type: &dyn Fn(&str) -> Result<Option<DataType>, String>,
        find_sample_count: &dyn Fn() -> Option<usize>,
    ) -> Result<Self, String> {
        let (tokens, columns) = Parser::new(text, find_type, find_sample_count).parse()?;
        Ok(Self { tokens, columns })
    }

    /// Returns the columns that the expression needs.
    pub(crate) fn columns(&self) -> &[ExpressionColumn] {
        &self.columns
    }
}

#[cfg(test)]
mod tests;
