//! The parser of filter expressions of bcftools, with the precedence of `filter_init` in `filter.c`: functions, `*` `/`
//! `%`, `+` `-`, comparisons, `&` `&&`, and `|` `||`. As in bcftools, operators of one level are evaluated from right to
//! left.

use datafusion::arrow::datatypes::DataType;

use super::field::{AlleleCountColumns, AlleleCountKind, Field, Subscript, ValueKind};
use super::genotype_forms::GenotypeForm;
use super::lexer::{Lexeme, Lexer};
use super::variant_types::named_types;
use super::{
    Arithmetic, Comparison, ExpressionColumn, FilterComparison, Function, IdentifierText, Operator, Special,
    TextPattern, Token,
};
use crate::number_text::parse_number;
use crate::posix_pattern::{PatternSyntax, compile};

/// Maximum number of parts of an expression.
const MAX_TOKENS: usize = 1024;

/// Names of fields that have no column of INFO or FORMAT, in the order in which bcftools compares them. A name may be
/// shortened.
const SITE_FIELDS: [&str; 12] =
    ["QUAL", "TYPE", "FILTER", "ID", "CHROM", "POS", "REF", "ALT", "N_ALT", "N_SAMPLES", "N_MISSING", "F_MISSING"];

/// Fields that are computed if INFO and FORMAT do not define them.
const ALLELE_COUNTS: [(&str, AlleleCountKind); 5] = [
    ("AN", AlleleCountKind::Total),
    ("AC", AlleleCountKind::Count),
    ("MAC", AlleleCountKind::MinorCount),
    ("AF", AlleleCountKind::Frequency),
    ("MAF", AlleleCountKind::MinorFrequency),
];

/// An operator that waits for its right operand.
#[derive(Clone, Copy)]
enum StackedOperator {
    Open,
    Operator(Operator),
    Function(Function),
    PassCount { is_fraction: bool },
}

impl StackedOperator {
    fn precedence(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Operator(operator) => operator.precedence(),
            Self::Function(_) | Self::PassCount { .. } => 8,
        }
    }
}

impl Operator {
    fn precedence(self) -> u8 {
        match self {
            Self::Logic { is_or: true, .. } => 2,
            Self::Logic { is_or: false, .. } => 3,
            Self::Compare(_) | Self::Match { .. } => 5,
            Self::Arithmetic(Arithmetic::Add | Arithmetic::Subtract) => 6,
            Self::Arithmetic(_) => 7,
        }
    }

    /// Returns the comparison of FILTER, ID or TYPE that the operator means.
    fn filter_comparison(self) -> Option<FilterComparison> {
        match self {
            Self::Compare(Comparison::Equal) => Some(FilterComparison::Equal),
            Self::Compare(Comparison::NotEqual) => Some(FilterComparison::NotEqual),
            Self::Match { is_negated: false } => Some(FilterComparison::Contains),
            Self::Match { is_negated: true } => Some(FilterComparison::NotContains),
            _ => None,
        }
    }
}

/// A parser of one expression.
pub(super) struct Parser<'t> {
    lexer: Lexer<'t>,
    find_type: &'t dyn Fn(&str) -> Result<Option<DataType>, String>,
    find_sample_count: &'t dyn Fn() -> Option<usize>,
    tokens: Vec<Token>,
    columns: Vec<ExpressionColumn>,
}

impl<'t> Parser<'t> {
    pub(super) fn new(
        text: &'t str,
        find_type: &'t dyn Fn(&str) -> Result<Option<DataType>, String>,
        find_sample_count: &'t dyn Fn() -> Option<usize>,
    ) -> Self {
        Self { lexer: Lexer::new(text), find_type, find_sample_count, tokens: Vec::new(), columns: Vec::new() }
    }

    /// Parses the expression by the shunting-yard algorithm. Returns its parts and the columns that they need.
    pub(super) fn parse(mut self) -> Result<(Vec<Token>, Vec<ExpressionColumn>), String> {
        let mut pending: Vec<StackedOperator> = Vec::new();
        let mut follows_operand = false;
        while let Some(lexeme) = self.lexer.next()? {
            if pending.len() + self.tokens.len() > MAX_TOKENS {
                return Err(format!("it has more than {MAX_TOKENS} parts"));
            }
            let is_operand = matches!(lexeme, Lexeme::Close | Lexeme::Text(_) | Lexeme::Value(_) | Lexeme::Binomial(_));
            match lexeme {
                Lexeme::Open => pending.push(StackedOperator::Open),
                Lexeme::Close => loop {
                    match pending.pop() {
                        Some(StackedOperator::Open) => break,
                        Some(operator) => self.push_pending(operator)?,
                        None => return Err(self.lexer.error("a ) without a ( is")),
                    }
                },
                Lexeme::Operator(Operator::Arithmetic(Arithmetic::Subtract)) if !follows_operand => {
                    self.tokens.push(Token::Number(-1.0));
                    pending.push(StackedOperator::Operator(Operator::Arithmetic(Arithmetic::Multiply)));
                }
                Lexeme::Operator(operator) => {
                    while let Some(top) = pending.pop_if(|top| operator.precedence() < top.precedence()) {
                        self.push_pending(top)?;
                    }
                    pending.push(StackedOperator::Operator(operator));
                }
                Lexeme::Function(function) => pending.push(StackedOperator::Function(function)),
                Lexeme::PassCount { is_fraction } => pending.push(StackedOperator::PassCount { is_fraction }),
                Lexeme::Binomial(arguments) => self.push_binomial(arguments)?,
                Lexeme::Text(text) => self.tokens.push(Token::Text(text.to_owned())),
                Lexeme::Value(value) => {
                    let token = self.value(value.strip_suffix(',').unwrap_or(value))?;
                    self.tokens.push(token);
                }
            }
            follows_operand = is_operand;
        }
        while let Some(operator) = pending.pop() {
            match operator {
                StackedOperator::Open => return Err(self.lexer.error("a ) is expected")),
                operator => self.push_pending(operator)?,
            }
        }
        self.check_operands()?;
        Ok((self.tokens, self.columns))
    }

    fn push_pending(&mut self, operator: StackedOperator) -> Result<(), String> {
        match operator {
            StackedOperator::Open => {}
            StackedOperator::Function(function) => self.tokens.push(Token::Function(function)),
            StackedOperator::PassCount { is_fraction } => self.tokens.push(Token::PassCount { is_fraction }),
            StackedOperator::Operator(operator) => self.push_operator(operator)?,
        }
        Ok(())
    }

    fn push_binomial(&mut self, arguments: &str) -> Result<(), String> {
        let arguments: Vec<&str> = arguments.split(',').map(str::trim_ascii).collect();
        for argument in &arguments {
            let token = self.value(argument)?;
            self.tokens.push(token);
        }
        let token = match arguments.len() {
            1 => Token::GenotypeBinomial { genotypes: self.optional_column("format_GT")? },
            2 => Token::Binomial,
            _ => return Err(self.lexer.error("binom() takes one or two fields; it ends")),
        };
        self.tokens.push(token);
        Ok(())
    }

    /// Adds an operator after its operands. A field that is compared with a text becomes a test.
    fn push_operator(&mut self, operator: Operator) -> Result<(), String> {
        let (Some(right), Some(left)) = (self.tokens.pop(), self.tokens.pop()) else {
            return Err("an operator has too few operands".to_owned());
        };
        match (left, right) {
            (Token::Special(special), Token::Text(text)) | (Token::Text(text), Token::Special(special)) => {
                self.tokens.push(special_test(special, &text, operator)?);
            }
            (Token::Field(field), Token::Text(text)) => self.push_field_and_text(field, text, operator)?,
            // A pattern follows its field.
            (Token::Text(text), Token::Field(field)) if !matches!(operator, Operator::Match { .. }) => {
                self.push_field_and_text(field, text, operator)?;
            }
            (left, right) => {
                let operator = match (operator, &right) {
                    (Operator::Match { is_negated }, Token::Text(text)) => {
                        self.tokens.push(left);
                        self.tokens.push(text_pattern(text, is_negated)?);
                        return Ok(());
                    }
                    (Operator::Match { .. }, _) => return Err("the text after ~ and !~ must be in quotes".to_owned()),
                    (operator, _) => operator,
                };
                self.tokens.extend([left, right, Token::Operator(operator)]);
            }
        }
        Ok(())
    }

    fn push_field_and_text(&mut self, field: Field, text: String, operator: Operator) -> Result<(), String> {
        let is_equality = operator.filter_comparison().is_some();
        let (field, text) = match field {
            Field::Genotype { column, samples, .. } if is_equality => {
                let (form, word) = GenotypeForm::of_word(&text);
                (Field::Genotype { column, form, samples }, word)
            }
            field => (field, text),
        };
        let is_missing = text == "." && field.accepts_missing_number();
        self.tokens.push(Token::Field(field));
        match operator {
            Operator::Match { is_negated } => self.tokens.push(text_pattern(&text, is_negated)?),
            Operator::Compare(Comparison::Equal | Comparison::NotEqual) if is_missing => {
                self.tokens.extend([Token::MissingNumber, Token::Operator(operator)]);
            }
            operator => self.tokens.extend([Token::Text(text), Token::Operator(operator)]),
        }
        Ok(())
    }

    /// Returns the index of a column, which is added to those that the expression needs.
    fn optional_column(&mut self, name: &str) -> Result<Option<usize>, String> {
        if let Some(at) = self.columns.iter().position(|column| column.name == name) {
            return Ok(Some(at));
        }
        let Some(found) = (self.find_type)(name)? else { return Ok(None) };
        let Some((kind, depth)) = ValueKind::of_type(&found) else {
            return Err(format!("the column {name} has a type that expressions do not support"));
        };
        self.columns.push(ExpressionColumn { name: name.to_owned(), data_type: kind.column_type(depth) });
        Ok(Some(self.columns.len() - 1))
    }

    /// Returns the index of a column that must have these values, in this number of lists.
    fn column(&mut self, name: &str, kind: ValueKind, depth: usize) -> Result<usize, String> {
        match self.optional_column(name)? {
            Some(at) if self.columns[at].data_type == kind.column_type(depth) => Ok(at),
            Some(_) => Err(format!("the column {name} does not have the type of a table of variants")),
            None => Err(format!("it needs the column {name}, which this table does not have")),
        }
    }

    /// Returns the field or the number with a name (`filters_init1` in `filter.c`).
    fn value(&mut self, name: &str) -> Result<Token, String> {
        let strip = |prefix: &str| {
            let start = name.get(..prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then(|| &name[prefix.len()..])
        };
        let (is_format, key) = match (strip("FMT/").or_else(|| strip("FORMAT/")), strip("INFO/")) {
            (Some(key), _) => (Some(true), key),
            (None, Some(key)) => (Some(false), key),
            (None, None) => (None, name),
        };
        let is_start = |field: &&&str| field.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if is_format.is_none()
            && !name.is_empty()
            && let Some(field) = SITE_FIELDS.iter().find(is_start)
        {
            return self.site_field(field);
        }
        let (tag, index) = match key.strip_suffix(']').and_then(|start| start.split_once('[')) {
            Some((tag, index)) => (tag, Some(index)),
            None => (key, None),
        };
        let is_tag = !tag.is_empty() && tag.chars().all(|letter| !letter.is_ascii_whitespace());
        let info = if is_tag && is_format != Some(true) { self.type_of(&format!("info_{tag}"))? } else { None };
        let format = if is_tag && is_format != Some(false) { self.type_of(&format!("format_{tag}"))? } else { None };
        match (info, format, is_format) {
            (Some(_), Some(_), _) => {
                Err(format!("{tag} is a field of INFO and of FORMAT; write INFO/{tag} or FMT/{tag}"))
            }
            (_, Some(kind), _) => self.format_field(tag, index, kind),
            (Some(kind), None, _) => self.info_field(tag, index, kind),
            (None, None, Some(true)) => {
                Err(format!("it needs the column format_{tag}, which this table does not have"))
            }
            (None, None, _) => self.computed_field_or_number(key, tag, index),
        }
    }

    fn type_of(&self, column: &str) -> Result<Option<(ValueKind, usize)>, String> {
        Ok((self.find_type)(column)?.as_ref().and_then(ValueKind::of_type))
    }

    fn site_field(&mut self, name: &str) -> Result<Token, String> {
        let mut column = |name: &str, kind, depth| self.column(name, kind, depth);
        Ok(match name {
            "QUAL" => Token::Field(Field::Number { column: column("quality", ValueKind::Float, 0)?, offset: 0.0 }),
            "TYPE" => Token::Special(Special::Types {
                reference: column("reference", ValueKind::Text, 0)?,
                alternates: column("alternates", ValueKind::Text, 1)?,
            }),
            "FILTER" => Token::Special(Special::Filters(column("filters", ValueKind::Text, 1)?)),
            "ID" => Token::Special(Special::Identifiers(column("identifiers", ValueKind::Text, 1)?)),
            "CHROM" => Token::Field(Field::Text(column("contig", ValueKind::Text, 0)?)),
            "POS" => Token::Field(Field::Number { column: column("position", ValueKind::Integer, 0)?, offset: 1.0 }),
            "REF" => Token::Field(Field::Text(column("reference", ValueKind::Text, 0)?)),
            "ALT" => Token::Field(Field::Alternates {
                column: column("alternates", ValueKind::Text, 1)?,
                subscript: Subscript::all(),
            }),
            "N_ALT" => Token::Field(Field::AlternateCount(column("alternates", ValueKind::Text, 1)?)),
            "N_SAMPLES" => match (self.find_sample_count)() {
                Some(count) => Token::Number(count as f64),
                None => return Err("N_SAMPLES needs the number of samples, which is not known here".to_owned()),
            },
            name => Token::Field(Field::MissingGenotypes {
                genotypes: column("format_GT", ValueKind::Text, 1)?,
                is_fraction: name == "F_MISSING",
            }),
        })
    }

    fn info_field(
        &mut self,
        tag: &str,
        index: Option<&str>,
        (kind, depth): (ValueKind, usize),
    ) -> Result<Token, String> {
        let subscript = index.map(Subscript::parse).transpose()?;
        let column = self.column(&format!("info_{tag}"), kind, depth)?;
        let subscript = match depth {
            0 => None,
            1 => Some(subscript.unwrap_or_else(Subscript::all)),
            _ => return Err(format!("INFO/{tag} has a type that expressions do not support")),
        };
        Ok(Token::Field(Field::Info { column, kind, subscript }))
    }

    fn format_field(
        &mut self,
        tag: &str,
        index: Option<&str>,
        (kind, depth): (ValueKind, usize),
    ) -> Result<Token, String> {
        let column = self.column(&format!("format_{tag}"), kind, depth)?;
        if !(1..=2).contains(&depth) || kind == ValueKind::Flag {
            return Err(format!("FORMAT/{tag} has a type that expressions do not support"));
        }
        let is_list = depth == 2;
        let all = || if is_list { Subscript::all() } else { Subscript::One(0) };
        let (samples, subscript) = match index.map(|index| index.rsplit_once(':').ok_or(index)) {
            None => (Subscript::all(), all()),
            Some(Ok((samples, values))) => (Subscript::parse(samples)?, Subscript::parse(values)?),
            Some(Err(samples)) if samples.starts_with('@') => {
                return Err("files of sample names are not supported".to_owned());
            }
            Some(Err(samples)) => match Subscript::parse(samples)? {
                every if every == Subscript::all() => (every, Subscript::all()),
                _ if is_list => {
                    return Err(format!("{tag} has several values; write {tag}[sample:value], such as {tag}[0:1]"));
                }
                samples => (samples, Subscript::One(0)),
            },
        };
        Ok(Token::Field(match tag {
            "GT" => Field::Genotype { column, form: GenotypeForm::Text, samples },
            _ => Field::Format { column, kind, is_list, subscript, samples },
        }))
    }

    fn computed_field_or_number(&mut self, key: &str, tag: &str, index: Option<&str>) -> Result<Token, String> {
        let subscript = index.map(Subscript::parse).transpose()?;
        let is_tag = |name: &str| tag.eq_ignore_ascii_case(name);
        if is_tag("ALT") {
            let column = self.column("alternates", ValueKind::Text, 1)?;
            return Ok(Token::Field(Field::Alternates { column, subscript: subscript.unwrap_or(Subscript::One(0)) }));
        }
        if let Some((_, kind)) = ALLELE_COUNTS.into_iter().find(|(name, _)| is_tag(name)) {
            let alternates = self.column("alternates", ValueKind::Text, 1)?;
            let is_list = |kind: Option<(ValueKind, usize)>, depth| kind == Some((ValueKind::Integer, depth));
            let has_counts = is_list(self.type_of("info_AN")?, 0) && is_list(self.type_of("info_AC")?, 1);
            let counts = match has_counts {
                true => Some((
                    self.column("info_AN", ValueKind::Integer, 0)?,
                    self.column("info_AC", ValueKind::Integer, 1)?,
                )),
                false => None,
            };
            let genotypes = self.optional_column("format_GT")?;
            let columns = AlleleCountColumns { alternates, counts, genotypes };
            let subscript = subscript.unwrap_or(Subscript::One(0));
            return Ok(Token::Field(Field::AlleleCounts { kind, columns, subscript }));
        }
        if is_tag("ILEN") || is_tag("%ILEN") {
            let reference = self.column("reference", ValueKind::Text, 0)?;
            let alternates = self.column("alternates", ValueKind::Text, 1)?;
            return Ok(Token::Field(Field::LengthChanges { reference, alternates }));
        }
        match parse_number(key) {
            Some((number, length)) if length == key.len() => Ok(Token::Number(number)),
            _ => Err(format!("there is no field {tag}: the table has no column info_{tag} or format_{tag}")),
        }
    }

    /// Checks the number and the kinds of the operands of each operator.
    fn check_operands(&self) -> Result<(), String> {
        let mut stack: Vec<Shape> = Vec::new();
        for token in &self.tokens {
            let count = token.operand_count();
            let Some(start) = stack.len().checked_sub(count) else {
                return Err("an operator has too few operands".to_owned());
            };
            let shape = token.shape(&stack[start..])?;
            stack.truncate(start);
            stack.push(shape);
        }
        match stack.len() {
            1 => Ok(()),
            0 => Err("it is empty".to_owned()),
            _ => Err("an operator is missing between two values".to_owned()),
        }
    }
}

/// The kind of an operand.
#[derive(Clone, Copy, Default)]
struct Shape {
    is_text: bool,
    has_samples: bool,
    /// True for the text of a genotype, which can only be compared with a text in quotes.
    is_genotype: bool,
    /// True for a text in quotes.
    is_constant: bool,
}

impl Token {
    fn operand_count(&self) -> usize {
        match self {
            Self::Operator(_) | Self::Binomial => 2,
            Self::Match(_) | Self::Function(_) | Self::PassCount { .. } | Self::GenotypeBinomial { .. } => 1,
            _ => 0,
        }
    }

    /// Returns the kind of the result for these operands. The error describes why they are not possible.
    fn shape(&self, operands: &[Shape]) -> Result<Shape, String> {
        let has_text = operands.iter().any(|operand| operand.is_text);
        let has_samples = operands.iter().any(|operand| operand.has_samples);
        let has_genotype = operands.iter().any(|operand| operand.is_genotype);
        let result = Shape { has_samples, ..Shape::default() };
        let problem = match self {
            Self::Text(_) => return Ok(Shape { is_text: true, is_constant: true, ..Shape::default() }),
            Self::Field(field) => {
                let is_genotype = matches!(field, Field::Genotype { .. });
                let (is_text, has_samples) = (field.is_text(), field.has_samples());
                return Ok(Shape { is_text, has_samples, is_genotype, is_constant: false });
            }
            Self::Special(_) => "FILTER, ID and TYPE can only be compared with a text in quotes, by =, !=, ~ or !~",
            Self::Match(_) if !has_text => "it compares a number with a pattern",
            Self::Operator(Operator::Compare(comparison)) => match operands {
                [left, right] if left.is_text != right.is_text => "it compares a text with a number",
                [left, right] if has_text && left.has_samples && right.has_samples => {
                    "it compares the texts of two FORMAT fields"
                }
                _ if has_genotype && !operands.iter().any(|operand| operand.is_constant) => {
                    "GT can only be compared with a text in quotes"
                }
                _ if has_text && !matches!(comparison, Comparison::Equal | Comparison::NotEqual) => {
                    "texts can only be compared by =, !=, ~ and !~"
                }
                _ => return Ok(result),
            },
            Self::Operator(Operator::Arithmetic(_)) | Self::Binomial | Self::GenotypeBinomial { .. } if has_text => {
                "it calculates with a text"
            }
            Self::Binomial if operands.iter().any(|operand| operand.has_samples != has_samples) => {
                "binom() takes two fields of INFO or two fields of FORMAT"
            }
            Self::Function(Function::TextLength) if !has_text || has_samples => "STRLEN() takes a text of the site",
            Self::Function(Function::Count) if has_text && has_samples => "COUNT() does not take texts of FORMAT",
            Self::Function(Function::Statistic { .. } | Function::Absolute | Function::Phred) if has_text => {
                "it calculates with a text"
            }
            Self::Function(Function::Phred) if !has_samples => "PHRED() takes values of samples",
            Self::PassCount { .. } if !has_samples => "N_PASS() and F_PASS() take a condition on FORMAT fields",
            Self::Function(Function::Statistic { is_per_sample, .. }) => {
                return Ok(Shape { has_samples: has_samples && *is_per_sample, ..result });
            }
            Self::Function(Function::Count | Function::TextLength) | Self::PassCount { .. } => {
                return Ok(Shape::default());
            }
            _ if has_genotype && !matches!(self, Self::Match(_)) => "GT can only be compared with a text in quotes",
            _ => return Ok(result),
        };
        Err(problem.to_owned())
    }
}

/// Returns the test that a comparison of FILTER, ID or TYPE with a text means.
fn special_test(special: Special, text: &str, operator: Operator) -> Result<Token, String> {
    let Some(comparison) = operator.filter_comparison() else {
        return Err("FILTER, ID and TYPE can only be compared by =, !=, ~ and !~".to_owned());
    };
    match special {
        Special::Filters(column) => {
            let names: Vec<String> = text.split_terminator(';').map(str::to_owned).collect();
            let is_missing = |name: &String| name == ".";
            match names.iter().filter(|name| is_missing(name)).count() {
                0 => Ok(Token::FilterTest { column, comparison, names }),
                missing if missing == names.len() => Ok(Token::FilterTest { column, comparison, names: Vec::new() }),
                _ => Err(format!("{text:?} contains filters and a missing value")),
            }
        }
        Special::Identifiers(_) if text.is_empty() => Err("ID is compared with an empty text".to_owned()),
        Special::Identifiers(column) => {
            let is_negated = matches!(comparison, FilterComparison::NotEqual | FilterComparison::NotContains);
            let text = match comparison {
                FilterComparison::Equal | FilterComparison::NotEqual => IdentifierText::Exact(text.to_owned()),
                _ => IdentifierText::Pattern(compile_pattern(text)?.0),
            };
            Ok(Token::IdentifierTest { column, text, is_negated })
        }
        Special::Types { reference, alternates } => match named_types(text) {
            Some(types) => Ok(Token::TypeTest { reference, alternates, comparison, types }),
            None => Err(format!("{text:?} is not a type; types are snp, indel, mnp, other, bnd, overlap and ref")),
        },
    }
}

fn text_pattern(text: &str, is_negated: bool) -> Result<Token, String> {
    let (regex, text) = compile_pattern(text)?;
    Ok(Token::Match(TextPattern { regex, text, is_negated }))
}

/// Compiles a pattern, which ignores case if it ends with `/i`. Returns the pattern and its text.
fn compile_pattern(text: &str) -> Result<(regex::bytes::Regex, String), String> {
    let start = text.strip_suffix("/i").filter(|start| !start.is_empty() && !start.ends_with('\\'));
    let regex = compile(start.unwrap_or(text), PatternSyntax::Basic, start.is_some())?;
    Ok((regex, start.unwrap_or(text).to_owned()))
}
