//! Evaluates filter expressions of bcftools for one variant.

use datafusion::arrow::array::AsArray;
use smallvec::{SmallVec, smallvec};

use super::field::texts_at;
use super::variant_types::types_of_allele;
use super::{FilterComparison, IdentifierText, Operator, Token, VariantExpression, VariantRow};

/// Numbers of a variant. Most fields have one, which is stored without an allocation.
pub(super) type Numbers = SmallVec<[Option<f64>; 1]>;

/// Values of a variant, or of each of its samples, and whether they pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Operand {
    pub(super) is_text: bool,
    /// Numbers; of samples, [`Operand::width`] for each sample. Empty if the variant has no value.
    pub(super) numbers: Numbers,
    pub(super) width: usize,
    /// The text of the variant, with commas between several values; empty if there is none.
    pub(super) text: String,
    /// The text of each sample; empty if the variant has no value.
    pub(super) sample_texts: Vec<String>,
    /// Which samples are used; `None` for a value of the variant.
    pub(super) samples: Option<Vec<bool>>,
    /// Whether the variant passes.
    pub(super) passes: bool,
    /// Whether each sample passes.
    pub(super) passing: Vec<bool>,
    /// True for a field itself, false for a result.
    pub(super) is_field: bool,
    /// True for several values that are selected by an index.
    pub(super) is_list: bool,
}

impl Operand {
    pub(super) fn numbers(numbers: Numbers) -> Self {
        Self { numbers, ..Self::default() }
    }

    pub(super) fn number(number: Option<f64>) -> Self {
        Self::numbers(smallvec![number])
    }

    pub(super) fn text(text: String) -> Self {
        Self { is_text: true, text, ..Self::default() }
    }

    pub(super) fn sample_numbers(numbers: Vec<Option<f64>>, width: usize, samples: Vec<bool>) -> Self {
        let passing = vec![false; samples.len()];
        let numbers = numbers.into();
        Self { numbers, width, samples: Some(samples), passing, is_field: true, ..Self::default() }
    }

    pub(super) fn sample_texts(sample_texts: Vec<String>, samples: Vec<bool>) -> Self {
        let passing = vec![false; samples.len()];
        Self { is_text: true, sample_texts, samples: Some(samples), passing, is_field: true, ..Self::default() }
    }

    /// Returns a result without values that uses the samples of either operand; nothing passes.
    pub(super) fn result_of(left: &Self, right: &Self) -> Self {
        let samples = match (&left.samples, &right.samples) {
            (Some(left), Some(right)) => {
                Some(left.iter().zip(right).map(|(left, right)| *left || *right).collect::<Vec<bool>>())
            }
            (left, right) => left.clone().or_else(|| right.clone()),
        };
        let passing = vec![false; samples.as_ref().map_or(0, Vec::len)];
        Self { samples, passing, ..Self::default() }
    }

    /// Returns the numbers of a sample.
    pub(super) fn numbers_of_sample(&self, sample: usize) -> &[Option<f64>] {
        self.numbers.get(sample * self.width..(sample + 1) * self.width).unwrap_or_default()
    }

    /// Returns the indexes of the samples that are used.
    pub(super) fn used_samples(&self) -> Vec<usize> {
        let samples = self.samples.as_deref().unwrap_or_default();
        (0..samples.len()).filter(|sample| samples[*sample]).collect()
    }

    /// Lets the used samples pass for which a test is true, and the variant if there is one.
    pub(super) fn pass_samples(&mut self, test: impl Fn(usize) -> bool) {
        for sample in self.used_samples() {
            if test(sample) {
                (self.passing[sample], self.passes) = (true, true);
            }
        }
    }

    /// Returns the number of used samples that pass, or their fraction of all samples.
    fn passing_samples(&self, is_fraction: bool) -> Self {
        let passing = self.used_samples().iter().filter(|sample| self.passing[**sample]).count() as f64;
        let count = if is_fraction { self.passing.len().max(1) as f64 } else { 1.0 };
        Self::number(Some(passing / count))
    }

    fn passed(passes: bool) -> Self {
        Self { passes, ..Self::default() }
    }
}

impl VariantExpression {
    /// Returns whether the expression is true for a variant. The error describes an operation that is not possible, such
    /// as the sum of lists of different lengths.
    pub(crate) fn matches(&self, variant: VariantRow) -> Result<bool, String> {
        let mut stack: Vec<Operand> = Vec::with_capacity(self.tokens.len());
        for token in &self.tokens {
            let result = token.evaluate(variant, &mut stack)?;
            stack.push(result);
        }
        Ok(stack.pop().is_some_and(|result| result.passes))
    }
}

impl Token {
    /// Returns the result of the token, whose operands are removed from the stack.
    fn evaluate(&self, variant: VariantRow, stack: &mut Vec<Operand>) -> Result<Operand, String> {
        let mut pop = || stack.pop().ok_or_else(|| "an operator has too few operands".to_owned());
        let texts = |column: &usize| texts_at(&variant.columns[*column], variant.row);
        Ok(match self {
            Self::Number(number) => Operand::number(Some(*number)),
            Self::SampleCount => Operand::number(Some(variant.sample_count as f64)),
            Self::MissingNumber => Operand::number(None),
            Self::Text(text) => Operand::text(text.clone()),
            Self::Field(field) => field.load(variant)?,
            Self::Special(_) => return Err("a field is not compared with a text".to_owned()),
            Self::FilterTest { column, comparison, names } => {
                Operand::passed(passes_filters(*comparison, names, &texts(column)))
            }
            Self::IdentifierTest { column, text, is_negated } => {
                let identifiers = texts(column);
                let joined = if identifiers.is_empty() { ".".to_owned() } else { identifiers.join(";") };
                let is_equal = match text {
                    IdentifierText::Exact(text) => *text == joined,
                    IdentifierText::Pattern(pattern) => pattern.is_match(joined.as_bytes()),
                };
                Operand::passed(is_equal != *is_negated)
            }
            Self::TypeTest { reference, alternates, comparison, types } => {
                let bases = variant.columns[*reference].as_string::<i32>().value(variant.row);
                let found = texts(alternates).iter().fold(0, |all, allele| all | types_of_allele(bases, allele));
                Operand::passed(passes_types(*comparison, *types, found))
            }
            Self::Operator(operator) => {
                let (right, left) = (pop()?, pop()?);
                operator.apply(&left, &right)?
            }
            Self::Match(pattern) => pattern.test(&pop()?),
            Self::Function(function) => function.apply(&pop()?),
            Self::PassCount { is_fraction } => pop()?.passing_samples(*is_fraction),
            Self::GenotypeBinomial { genotypes } => {
                let genotypes = genotypes.map(|column| texts(&column));
                pop()?.binomial_of_genotypes(&genotypes.unwrap_or_default())
            }
            Self::Binomial => {
                let (second, first) = (pop()?, pop()?);
                first.binomial(&second)?
            }
        })
    }
}

impl Operator {
    fn apply(self, left: &Operand, right: &Operand) -> Result<Operand, String> {
        match self {
            Self::Logic { is_or: true, within_samples } => Ok(left.or(right, within_samples)),
            Self::Logic { is_or: false, within_samples } => Ok(left.and(right, within_samples)),
            Self::Compare(comparison) if left.is_text => Ok(comparison.compare_texts(left, right)),
            Self::Compare(comparison) => comparison.compare_numbers(left, right),
            Self::Arithmetic(arithmetic) => arithmetic.calculate(left, right),
            Self::Match { .. } => Err("a pattern must be a text".to_owned()),
        }
    }
}

/// Compares the filters of a variant with those of an expression (`filters_cmp_filter` in `filter.c`).
fn passes_filters(comparison: FilterComparison, names: &[String], filters: &[String]) -> bool {
    let contains_all = || names.iter().all(|name| filters.contains(name));
    let contains = match (names.is_empty(), filters.is_empty()) {
        (true, is_empty) => is_empty,
        (false, true) => false,
        (false, false) => contains_all(),
    };
    match comparison {
        FilterComparison::Contains => contains,
        FilterComparison::NotContains => !contains,
        FilterComparison::Equal => names.len() == filters.len() && contains_all(),
        FilterComparison::NotEqual => names.len() != filters.len() || !contains_all(),
    }
}

/// Compares the types of a variant with that of an expression.
fn passes_types(comparison: FilterComparison, types: u32, found: u32) -> bool {
    let shares = if types == 0 { found == 0 } else { types & found != 0 };
    match comparison {
        FilterComparison::Equal => types == found,
        FilterComparison::NotEqual => types != found,
        FilterComparison::Contains => shares,
        FilterComparison::NotContains => !shares,
    }
}
