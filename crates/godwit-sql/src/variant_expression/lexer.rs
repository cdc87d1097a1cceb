//! Splits a filter expression of bcftools into its parts, as `filters_next_token` of bcftools does.

use super::{Arithmetic, Comparison, Function, Operator, Statistic};
use crate::number_text::parse_number;

/// A part of the text of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lexeme<'t> {
    Open,
    Close,
    Operator(Operator),
    Function(Function),
    PassCount {
        is_fraction: bool,
    },
    /// The function `binom` with the text of its arguments.
    Binomial(&'t str),
    /// A text in quotes.
    Text(&'t str),
    /// The name of a field, or a number.
    Value(&'t str),
}

const fn statistic(statistic: Statistic, is_per_sample: bool) -> Function {
    Function::Statistic { statistic, is_per_sample }
}

/// The functions, whose names are followed by a parenthesis. Upper and lower case are not distinguished.
const FUNCTIONS: [(&str, Function); 29] = [
    ("SMPL_MAX(", statistic(Statistic::Maximum, true)),
    ("SMPL_MIN(", statistic(Statistic::Minimum, true)),
    ("SMPL_MEAN(", statistic(Statistic::Mean, true)),
    ("SMPL_MEDIAN(", statistic(Statistic::Median, true)),
    ("SMPL_AVG(", statistic(Statistic::Mean, true)),
    ("SMPL_STDEV(", statistic(Statistic::StandardDeviation, true)),
    ("SMPL_SUM(", statistic(Statistic::Sum, true)),
    ("sMAX(", statistic(Statistic::Maximum, true)),
    ("sMIN(", statistic(Statistic::Minimum, true)),
    ("sMEAN(", statistic(Statistic::Mean, true)),
    ("sMEDIAN(", statistic(Statistic::Median, true)),
    ("sAVG(", statistic(Statistic::Mean, true)),
    ("sSTDEV(", statistic(Statistic::StandardDeviation, true)),
    ("sSUM(", statistic(Statistic::Sum, true)),
    ("MAX(", statistic(Statistic::Maximum, false)),
    ("MIN(", statistic(Statistic::Minimum, false)),
    ("MEAN(", statistic(Statistic::Mean, false)),
    ("MEDIAN(", statistic(Statistic::Median, false)),
    ("AVG(", statistic(Statistic::Mean, false)),
    ("STDEV(", statistic(Statistic::StandardDeviation, false)),
    ("SUM(", statistic(Statistic::Sum, false)),
    ("ABS(", Function::Absolute),
    ("COUNT(", Function::Count),
    ("STRLEN(", Function::TextLength),
    ("PHRED(", Function::Phred),
    ("%MAX(", statistic(Statistic::Maximum, false)),
    ("%MIN(", statistic(Statistic::Minimum, false)),
    ("%AVG(", statistic(Statistic::Mean, false)),
    ("%SUM(", statistic(Statistic::Sum, false)),
];

/// The operators; an operator precedes those that are its prefix.
const OPERATORS: [(&str, Operator); 18] = [
    ("!=", Operator::Compare(Comparison::NotEqual)),
    ("!~", Operator::Match { is_negated: true }),
    ("<=", Operator::Compare(Comparison::LessOrEqual)),
    ("<", Operator::Compare(Comparison::Less)),
    (">=", Operator::Compare(Comparison::GreaterOrEqual)),
    (">", Operator::Compare(Comparison::Greater)),
    ("==", Operator::Compare(Comparison::Equal)),
    ("=", Operator::Compare(Comparison::Equal)),
    ("&&", Operator::Logic { is_or: false, within_samples: false }),
    ("||", Operator::Logic { is_or: true, within_samples: false }),
    ("&", Operator::Logic { is_or: false, within_samples: true }),
    ("|", Operator::Logic { is_or: true, within_samples: true }),
    ("+", Operator::Arithmetic(Arithmetic::Add)),
    ("-", Operator::Arithmetic(Arithmetic::Subtract)),
    ("*", Operator::Arithmetic(Arithmetic::Multiply)),
    ("/", Operator::Arithmetic(Arithmetic::Divide)),
    ("~", Operator::Match { is_negated: false }),
    ("%", Operator::Arithmetic(Arithmetic::Remainder)),
];

/// Prefixes of names that contain the character of an operator.
const PREFIXES: [&str; 3] = ["INFO/", "FORMAT/", "FMT/"];

/// The letters that end a name outside of brackets, besides blanks.
const NAME_ENDS: &str = "\"'<>=!&|()+*-/~%";

/// A reader of the parts of an expression.
pub(super) struct Lexer<'t> {
    text: &'t str,
    /// Number of bytes that are read.
    position: usize,
}

/// Returns whether a text starts with a prefix in upper or lower case.
fn starts_with(text: &str, prefix: &str) -> bool {
    text.as_bytes().get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    pub(super) fn error(&self, problem: &str) -> String {
        format!("{problem} at character {}", self.text[..self.position].chars().count() + 1)
    }

    /// Returns the next part; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Lexeme<'t>>, String> {
        let rest = self.text[self.position..].trim_ascii_start();
        self.position = self.text.len() - rest.len();
        let Some(first) = rest.bytes().next() else { return Ok(None) };
        if (first.is_ascii_digit() || first == b'.')
            && let Some((_, length)) = parse_number(rest)
            && !rest[length..].starts_with(|next: char| next.is_ascii_alphanumeric())
        {
            return Ok(Some(self.take_value(length)));
        }
        if let Some((name, function)) = FUNCTIONS.into_iter().find(|(name, _)| starts_with(rest, name)) {
            self.position += name.len() - 1;
            return Ok(Some(Lexeme::Function(function)));
        }
        for (name, is_fraction) in [("N_PASS(", false), ("F_PASS(", true)] {
            if starts_with(rest, name) {
                self.position += name.len() - 1;
                return Ok(Some(Lexeme::PassCount { is_fraction }));
            }
        }
        if starts_with(rest, "BINOM(") {
            let arguments = &rest["BINOM(".len()..];
            let Some(length) = arguments.find(')') else { return Err(self.error("a function without a ) begins")) };
            self.position += "BINOM(".len() + length + 1;
            return Ok(Some(Lexeme::Binomial(&arguments[..length])));
        }
        if starts_with(rest, "PERL.") {
            return Err(self.error("a Perl function, which is not supported, begins"));
        }
        if starts_with(rest, "%ILEN") {
            return Ok(Some(self.take_value("%ILEN".len())));
        }
        if first == b'@' {
            return Err(self.error("the name of a file, which is not supported, begins"));
        }
        self.next_name_or_operator(rest)
    }

    fn take_value(&mut self, length: usize) -> Lexeme<'t> {
        let value = &self.text[self.position..self.position + length];
        self.position += length;
        Lexeme::Value(value)
    }

    fn next_name_or_operator(&mut self, rest: &'t str) -> Result<Option<Lexeme<'t>>, String> {
        let length = name_length(rest);
        if length > 0 {
            return Ok(Some(self.take_value(length)));
        }
        if let Some(quote @ ('"' | '\'')) = rest.chars().next() {
            let Some(length) = rest[1..].find(quote) else {
                return Err(self.error("a text without an end begins"));
            };
            self.position += length + 2;
            return Ok(Some(Lexeme::Text(&rest[1..=length])));
        }
        for (parenthesis, lexeme) in [("(", Lexeme::Open), (")", Lexeme::Close)] {
            if rest.starts_with(parenthesis) {
                self.position += 1;
                return Ok(Some(lexeme));
            }
        }
        match OPERATORS.into_iter().find(|(operator, _)| rest.starts_with(operator)) {
            Some((operator, of_text)) => {
                self.position += operator.len();
                Ok(Some(Lexeme::Operator(of_text)))
            }
            None => Err(self.error("a value, a field such as QUAL or INFO/DP, or an operator is expected")),
        }
    }
}

/// Returns the length of the name with which a text begins, with its index in brackets, bytes.
fn name_length(text: &str) -> usize {
    let mut length = 0;
    for prefix in PREFIXES {
        if starts_with(&text[length..], prefix) {
            length += prefix.len();
        }
    }
    let mut is_in_brackets = false;
    for (at, letter) in text[length..].char_indices() {
        match letter {
            ']' if is_in_brackets => return length + at + 1,
            ']' => return length + at,
            '[' => is_in_brackets = true,
            _ if is_in_brackets => {}
            letter if letter.is_ascii_whitespace() || NAME_ENDS.contains(letter) => return length + at,
            _ => {}
        }
    }
    text.len()
}
