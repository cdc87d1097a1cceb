//! The filter expressions of samtools (`samtools view -e`), as htslib evaluates them.
//!
//! [`FilterExpression::parse`] parses a text, and [`FilterExpression::matches`] evaluates it for one read, whose values
//! a [`SymbolSource`] returns. The results, including those for absent tags, follow htslib 1.19 (`hts_expr.c` and
//! `bam_sym_lookup` in `sam.c`; manual page of samtools, "FILTER EXPRESSIONS"). Two things differ. Patterns are
//! compiled once and match in linear time, so a pattern must be a text in the expression and cannot have back
//! references. An expression may be nested at most [`MAX_NESTING`] times.

mod evaluation;
mod parser;
mod symbol;

use std::collections::BTreeSet;

pub(crate) use evaluation::{SymbolSource, Value};
use parser::Parser;
use regex::bytes::Regex;
pub(crate) use symbol::{CigarLength, Symbol};

/// Maximum nesting of an expression.
const MAX_NESTING: usize = 64;

/// A parsed filter expression.
#[derive(Debug)]
pub(crate) struct FilterExpression {
    root: Node,
    symbols: BTreeSet<Symbol>,
}

/// A node of the syntax tree.
#[derive(Debug)]
enum Node {
    Number(f64),
    Text(Vec<u8>),
    Symbol(Symbol),
    Call(Function, Vec<Node>),
    Unary(UnaryOperator, Box<Node>),
    /// A chain of operators of one precedence level, which is evaluated from left to right.
    Chain(Box<Node>, Vec<(ChainOperator, Node)>),
    /// A comparison; the right side of a chain of comparisons is evaluated first.
    Comparison(Comparison, Box<Node>, Box<Node>),
    /// The test of a text by a pattern; true in the result if `matches` is whether the pattern matches.
    Pattern {
        text: Box<Node>,
        pattern: Regex,
        matches: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Average,
    Default,
    Exists,
    Exponential,
    Length,
    Logarithm,
    Maximum,
    Minimum,
    Power,
    SquareRoot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnaryOperator {
    Plus,
    Minus,
    Not,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainOperator {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
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

impl FilterExpression {
    /// Parses an expression. The error describes the problem and its position.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser::new(text);
        let root = parser.parse()?;
        Ok(Self { root, symbols: parser.into_symbols() })
    }

    /// Returns the symbols and tags that the expression contains.
    pub(crate) fn symbols(&self) -> &BTreeSet<Symbol> {
        &self.symbols
    }

    /// Returns whether the expression is true for a read. The error describes an operation that is not possible, such
    /// as the sum of two texts.
    pub(crate) fn matches(&self, read: &impl SymbolSource) -> Result<bool, String> {
        let mut result = Value::default();
        self.root.evaluate(read, &mut result)?;
        Ok(result.is_true_result())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of one read: number 7 for `mapq`, the text `ACGT` for `seq`, tag `NM` 0, and no other tags.
    struct TestRead;

    impl SymbolSource for TestRead {
        fn load(&self, symbol: &Symbol, value: &mut Value) -> Result<(), String> {
            match symbol {
                Symbol::MappingQuality => value.set_number(7.0),
                Symbol::Bases => value.set_text(b"ACGT"),
                Symbol::Tag([b'N', b'M']) => value.set_tag_number(0.0),
                _ => value.set_absent_tag(),
            }
            Ok(())
        }
    }

    fn evaluate(text: &str) -> Result<bool, String> {
        FilterExpression::parse(text)?.matches(&TestRead)
    }

    #[test]
    fn expressions_have_the_results_of_htslib() {
        // Cases of htslib's test/test_expr.c, and absent tags as in its documentation.
        for (text, expected) in [
            ("1", true),
            ("0", false),
            ("2+3*4 == 14", true),
            ("(2+3)*4 == 20", true),
            ("-10 == 0-10", true),
            ("!!mapq", true),
            ("~5 == -6", true),
            ("7 & 2 == 2", true),
            ("mapq > 6 && seq == \"ACGT\"", true),
            ("1 || 0 && 0", false),
            ("seq =~ \"^A.*T$\"", true),
            ("seq !~ \"^A.*T$\"", false),
            ("length(seq) == 4", true),
            ("min(seq) == 65 && max(seq) == 84", true),
            ("[NM]", true),
            ("[NM] == 0", true),
            ("[XX]", false),
            ("![XX]", true),
            ("[XX] < 5", false),
            ("[XX] >= 5", false),
            ("exists([XX]) || exists([NM])", true),
            ("default([XX], 9) == 9", true),
            ("pow(2,3) == 8 && sqrt(16) == 4", true),
            ("0x10 == 16 && 1e2 == 100 && .5*2 == 1", true),
            ("\"a\\tb\" == \"a\tb\"", true),
        ] {
            assert_eq!(evaluate(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_expressions_are_rejected() {
        let nested = "(".repeat(1000) + "1" + &")".repeat(1000);
        let many_signs = "!".repeat(10_000) + "1";
        for text in [
            "",
            "mapq >",
            "(mapq",
            "mapq mapq",
            "nothing",
            "flag.nothing",
            "\"open",
            "seq + 1",
            "mapq =~ \"a\"",
            "seq =~ seq",
            "seq =~ \"(\"",
            "seq =~ \"(a)\\\\1\"",
            "length(mapq)",
            "pow(2)",
            "[N]",
            &nested,
            &many_signs,
        ] {
            assert!(evaluate(text).is_err(), "{}", text.get(..40).unwrap_or(text));
        }
    }
}
