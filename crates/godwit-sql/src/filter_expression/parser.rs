//! The parser of filter expressions, with the precedence of htslib's `hts_expr.c`: unary operators, `*` `/` `%`, `+` `-`,
//! `&`, `^`, `|`, order, equality, and `&&` and `||` on one level.

use std::collections::BTreeSet;

use super::{ChainOperator, Comparison, Function, MAX_NESTING, Node, Symbol, UnaryOperator};
use crate::number_text::parse_number;
use crate::posix_pattern::{PatternSyntax, compile};

/// The functions; the opening parenthesis follows the name directly.
const FUNCTIONS: [(&str, Function); 10] = [
    ("avg(", Function::Average),
    ("default(", Function::Default),
    ("exists(", Function::Exists),
    ("exp(", Function::Exponential),
    ("length(", Function::Length),
    ("log(", Function::Logarithm),
    ("max(", Function::Maximum),
    ("min(", Function::Minimum),
    ("pow(", Function::Power),
    ("sqrt(", Function::SquareRoot),
];

/// The precedence levels of operators that are evaluated from left to right, from the tightest. An operator with a
/// second text is not recognized if that text follows instead.
static CHAINS: [&[(&str, Option<&str>, ChainOperator)]; 5] = [
    &[("*", None, ChainOperator::Multiply), ("/", None, ChainOperator::Divide), ("%", None, ChainOperator::Remainder)],
    &[("+", None, ChainOperator::Add), ("-", None, ChainOperator::Subtract)],
    &[("&", Some("&&"), ChainOperator::BitAnd)],
    &[("^", None, ChainOperator::BitXor)],
    &[("|", Some("||"), ChainOperator::BitOr)],
];

const ORDER_COMPARISONS: [(&str, Comparison); 4] = [
    (">=", Comparison::GreaterOrEqual),
    (">", Comparison::Greater),
    ("<=", Comparison::LessOrEqual),
    ("<", Comparison::Less),
];

/// A parser of one expression.
pub(super) struct Parser<'t> {
    text: &'t str,
    /// Number of bytes that are parsed.
    position: usize,
    nesting: usize,
    symbols: BTreeSet<Symbol>,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, position: 0, nesting: 0, symbols: BTreeSet::new() }
    }

    /// Returns the symbols of the parsed expression.
    pub(super) fn into_symbols(self) -> BTreeSet<Symbol> {
        self.symbols
    }

    /// Parses the whole text.
    pub(super) fn parse(&mut self) -> Result<Node, String> {
        let root = self.expression()?;
        match self.rest().is_empty() {
            true => Ok(root),
            false => Err(self.error("an operator is expected")),
        }
    }

    /// Returns the text that is not parsed yet, without blanks at its start.
    fn rest(&mut self) -> &'t str {
        let rest = &self.text[self.position..];
        let trimmed = rest.trim_start_matches([' ', '\t']);
        self.position += rest.len() - trimmed.len();
        trimmed
    }

    fn skip(&mut self, text: &str) -> bool {
        let starts = self.rest().starts_with(text);
        if starts {
            self.position += text.len();
        }
        starts
    }

    fn error(&self, problem: &str) -> String {
        format!("{problem} at character {}", self.text[..self.position].chars().count() + 1)
    }

    /// Parses one level deeper.
    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Result<Node, String>) -> Result<Node, String> {
        if self.nesting == MAX_NESTING {
            return Err(self.error(&format!("more than {MAX_NESTING} levels of nesting begin")));
        }
        self.nesting += 1;
        let node = parse(self);
        self.nesting -= 1;
        node
    }

    fn expression(&mut self) -> Result<Node, String> {
        let first = self.equality()?;
        let mut rest = Vec::new();
        loop {
            let operator = if self.skip("&&") {
                ChainOperator::And
            } else if self.skip("||") {
                ChainOperator::Or
            } else {
                break;
            };
            rest.push((operator, self.equality()?));
        }
        Ok(chain(first, rest))
    }

    fn equality(&mut self) -> Result<Node, String> {
        let left = self.order()?;
        for (text, comparison) in [("==", Comparison::Equal), ("!=", Comparison::NotEqual)] {
            if self.skip(text) {
                let right = self.nested(Self::equality)?;
                return Ok(Node::Comparison(comparison, left.into(), right.into()));
            }
        }
        for (text, matches) in [("=~", true), ("!~", false)] {
            if self.skip(text) {
                let Node::Text(pattern) = self.nested(Self::equality)? else {
                    return Err(self.error("a pattern in double quotes is expected before the text"));
                };
                let pattern = compile(&String::from_utf8_lossy(&pattern), PatternSyntax::Extended, false)?;
                return Ok(Node::Pattern { text: left.into(), pattern, matches });
            }
        }
        Ok(left)
    }

    fn order(&mut self) -> Result<Node, String> {
        let left = self.chain_level(CHAINS.len())?;
        for (text, comparison) in ORDER_COMPARISONS {
            if self.skip(text) {
                let right = self.nested(Self::order)?;
                return Ok(Node::Comparison(comparison, left.into(), right.into()));
            }
        }
        Ok(left)
    }

    /// Parses the operators of the first `levels` precedence levels.
    fn chain_level(&mut self, levels: usize) -> Result<Node, String> {
        let Some((operators, tighter)) = CHAINS[..levels].split_last() else { return self.unary() };
        let first = self.chain_level(tighter.len())?;
        let mut rest = Vec::new();
        while let Some(operator) = self.chain_operator(operators) {
            rest.push((operator, self.chain_level(tighter.len())?));
        }
        Ok(chain(first, rest))
    }

    fn chain_operator(&mut self, operators: &[(&str, Option<&str>, ChainOperator)]) -> Option<ChainOperator> {
        let rest = self.rest();
        let is_next = |(text, longer, _): &&(&str, Option<&str>, ChainOperator)| {
            rest.starts_with(text) && !longer.is_some_and(|longer| rest.starts_with(longer))
        };
        let (text, _, operator) = operators.iter().find(is_next)?;
        self.position += text.len();
        Some(*operator)
    }

    fn unary(&mut self) -> Result<Node, String> {
        // The operand of a sign is not an expression with a sign, as that of `!` and `~` may be.
        for (text, operator) in [("+", UnaryOperator::Plus), ("-", UnaryOperator::Minus)] {
            if self.skip(text) {
                return Ok(Node::Unary(operator, self.simple()?.into()));
            }
        }
        for (text, operator) in [("!", UnaryOperator::Not), ("~", UnaryOperator::BitNot)] {
            if self.skip(text) {
                return Ok(Node::Unary(operator, self.nested(Self::unary)?.into()));
            }
        }
        self.simple()
    }

    fn simple(&mut self) -> Result<Node, String> {
        if self.skip("(") {
            let inner = self.nested(Self::expression)?;
            return if self.skip(")") { Ok(inner) } else { Err(self.error("a ) is expected")) };
        }
        let rest = self.rest();
        if let Some((number, length)) = parse_number(rest) {
            self.position += length;
            return Ok(Node::Number(number));
        }
        if rest.starts_with('"') {
            return self.quoted_text();
        }
        if let Some((symbol, length)) = Symbol::parse(rest.as_bytes()) {
            if !rest.is_char_boundary(length) {
                return Err(self.error("a tag of two letters is expected"));
            }
            self.position += length;
            self.symbols.insert(symbol);
            return Ok(Node::Symbol(symbol));
        }
        match FUNCTIONS.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, function)) => {
                self.position += name.len();
                self.arguments(*function)
            }
            None => Err(self.error("a value, a symbol such as mapq, or a tag such as [NM] is expected")),
        }
    }

    fn arguments(&mut self, function: Function) -> Result<Node, String> {
        let mut arguments = vec![self.nested(Self::expression)?];
        if matches!(function, Function::Default | Function::Power) {
            // A comma follows the first argument directly.
            if !self.text[self.position..].starts_with(',') {
                return Err(self.error("a comma is expected"));
            }
            self.position += 1;
            arguments.push(self.nested(Self::expression)?);
        }
        match self.skip(")") {
            true => Ok(Node::Call(function, arguments)),
            false => Err(self.error("a ) is expected")),
        }
    }

    /// Parses a text in double quotes, with the escapes of htslib. An unknown escape keeps its backslash.
    fn quoted_text(&mut self) -> Result<Node, String> {
        let bytes = self.text.as_bytes();
        let (mut text, mut at) = (Vec::new(), self.position + 1);
        loop {
            match (bytes.get(at), bytes.get(at + 1)) {
                (None, _) | (Some(b'\\'), None) => return Err(self.error("a text without an end begins")),
                (Some(b'"'), _) => break,
                (Some(b'\\'), Some(escaped)) => {
                    match escaped {
                        b'"' | b'\\' => text.push(*escaped),
                        b't' => text.push(b'\t'),
                        b'n' => text.push(b'\n'),
                        b'r' => text.push(b'\r'),
                        other => text.extend([b'\\', *other]),
                    }
                    at += 2;
                }
                (Some(byte), _) => {
                    text.push(*byte);
                    at += 1;
                }
            }
        }
        self.position = at + 1;
        Ok(Node::Text(text))
    }
}

fn chain(first: Node, rest: Vec<(ChainOperator, Node)>) -> Node {
    if rest.is_empty() { first } else { Node::Chain(first.into(), rest) }
}
