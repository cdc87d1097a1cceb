//! Comparisons, patterns and logic in filter expressions of bcftools.

use super::evaluation::Operand;
use super::{Comparison, TextPattern};

/// Numbers up to this one are compared as 32-bit floats, because the values of a file are.
const MAX_FLOAT_INTEGER: f64 = 16_777_216.0;

/// The result of comparisons with missing values: if one side is missing, and if both are.
#[derive(Clone, Copy)]
struct MissingLogic {
    one: bool,
    both: bool,
}

impl MissingLogic {
    fn result(self, count: usize) -> bool {
        if count == 1 { self.one } else { self.both }
    }
}

impl Comparison {
    fn missing_logic(self) -> MissingLogic {
        MissingLogic { one: self == Self::NotEqual, both: self == Self::Equal }
    }

    fn compare_pair(self, left: Option<f64>, right: Option<f64>) -> bool {
        match (left, right) {
            (Some(left), Some(right)) if left > MAX_FLOAT_INTEGER || right > MAX_FLOAT_INTEGER => {
                self.is_true(left, right)
            }
            (Some(left), Some(right)) => self.is_true(left as f32, right as f32),
            (left, right) => self.missing_logic().result(usize::from(left.is_none()) + usize::from(right.is_none())),
        }
    }

    fn compare_any(self, left: &[Option<f64>], right: &[Option<f64>]) -> bool {
        left.iter().any(|left| right.iter().any(|right| self.compare_pair(*left, *right)))
    }

    /// Compares each value with each value (`CMP_VECTORS` in `filter.c`). Values of two fields of samples are compared
    /// in pairs.
    pub(super) fn compare_numbers(self, left: &Operand, right: &Operand) -> Result<Operand, String> {
        let logic = self.missing_logic();
        let mut result = Operand::result_of(left, right);
        let of_sample = |operand: &Operand, sample: usize| match operand.samples {
            Some(_) => operand.numbers_of_sample(sample).to_vec(),
            None => operand.numbers.to_vec(),
        };
        let (is_left_empty, is_right_empty) = (left.numbers.is_empty(), right.numbers.is_empty());
        if result.samples.is_none() {
            result.passes = match (is_left_empty, is_right_empty) {
                (true, true) => logic.both,
                (false, false) => self.compare_any(&left.numbers, &right.numbers),
                _ => left.numbers.iter().chain(&right.numbers).any(|number| match number {
                    Some(_) => logic.one,
                    None => logic.both,
                }),
            };
            return Ok(result);
        }
        match (is_left_empty, is_right_empty) {
            (true, true) => result.pass_samples(|_| logic.both),
            (false, false) if left.samples.is_some() && right.samples.is_some() => {
                if left.width != right.width {
                    let widths = format!("{} and {} values", left.width, right.width);
                    return Err(format!("it compares fields with {widths} in each sample"));
                }
                let used = |operand: &Operand, sample: usize| {
                    operand.samples.as_ref().is_some_and(|samples| samples.get(sample) == Some(&true))
                };
                let both = |sample: &usize| used(left, *sample) && used(right, *sample);
                result.samples = Some((0..result.passing.len()).map(|sample| both(&sample)).collect());
                result.pass_samples(|sample| {
                    let mut pairs = left.numbers_of_sample(sample).iter().zip(right.numbers_of_sample(sample));
                    pairs.any(|(left, right)| self.compare_pair(*left, *right))
                });
            }
            (false, false) => {
                result.pass_samples(|sample| self.compare_any(&of_sample(left, sample), &of_sample(right, sample)));
            }
            _ => {
                let present = if is_left_empty { right } else { left };
                result.pass_samples(|sample| match &of_sample(present, sample)[..] {
                    [] => false,
                    numbers if numbers.contains(&None) => logic.both,
                    _ => logic.one,
                });
            }
        }
        Ok(result)
    }

    /// Compares texts, of which at most one belongs to samples (`cmp_vector_strings` in `filter.c`).
    pub(super) fn compare_texts(self, left: &Operand, right: &Operand) -> Operand {
        let mut result = Operand::result_of(left, right);
        let is_negated = self == Self::NotEqual;
        let logic = self.missing_logic();
        if result.samples.is_none() {
            result.passes = match (left.text.is_empty(), right.text.is_empty()) {
                (false, false) => match_texts(&left.text, &right.text, is_negated, logic),
                (true, true) => logic.both,
                (true, false) => logic.result(1 + usize::from(has_missing(&right.text))),
                (false, true) => logic.result(1 + usize::from(has_missing(&left.text))),
            };
            return result;
        }
        let (of_samples, of_site) = if left.samples.is_some() { (left, right) } else { (right, left) };
        compare_samples(&mut result, of_samples, &of_site.text, logic, |text| {
            match_texts(text, &of_site.text, is_negated, logic)
        });
        result
    }
}

impl TextPattern {
    /// Tests each text, and each part of it between commas.
    pub(super) fn test(&self, tested: &Operand) -> Operand {
        let logic = MissingLogic { one: self.is_negated, both: !self.is_negated };
        let mut result = Operand::result_of(tested, &Operand::default());
        let matches = |text: &str| {
            parts(text)
                .any(|part| (part == "." && logic.one) || self.regex.is_match(part.as_bytes()) != self.is_negated)
        };
        if result.samples.is_some() {
            compare_samples(&mut result, tested, &self.text, logic, matches);
            return result;
        }
        result.passes = match (tested.text.is_empty(), self.text.is_empty()) {
            (false, false) => matches(&tested.text),
            (true, true) => logic.both,
            (true, false) => logic.result(1 + usize::from(has_missing(&self.text))),
            (false, true) => logic.result(1 + usize::from(has_missing(&tested.text))),
        };
        result
    }
}

/// Compares the text of each sample with a text.
fn compare_samples(
    result: &mut Operand,
    of_samples: &Operand,
    text: &str,
    logic: MissingLogic,
    matches: impl Fn(&str) -> bool,
) {
    let texts = &of_samples.sample_texts;
    match (texts.is_empty(), text.is_empty()) {
        (true, true) => result.pass_samples(|_| logic.both),
        (true, false) => {
            let passes = logic.result(1 + usize::from(has_missing(text)));
            result.pass_samples(|_| passes);
        }
        // A sample without an element in the list of its row does not pass.
        (false, true) => result.pass_samples(|sample| {
            texts.get(sample).is_some_and(|text| logic.result(1 + usize::from(has_missing(text))))
        }),
        (false, false) => result.pass_samples(|sample| texts.get(sample).is_some_and(|text| matches(text))),
    }
}

/// Returns the parts of a text between commas. A comma at the end does not begin a part.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split_terminator(',')
}

fn has_missing(text: &str) -> bool {
    parts(text).any(|part| part == ".")
}

fn match_texts(left: &str, right: &str, is_negated: bool, logic: MissingLogic) -> bool {
    parts(left).any(|left| {
        parts(right).any(|right| match usize::from(left == ".") + usize::from(right == ".") {
            0 => (left == right) != is_negated,
            missing => logic.result(missing),
        })
    })
}

impl Operand {
    /// `|` and `||` (`vector_logic_or` in `filter.c`).
    pub(super) fn or(&self, other: &Self, within_samples: bool) -> Self {
        let mut result = Self::result_of(self, other);
        if !self.passes && !other.passes {
            return result;
        }
        result.passes = true;
        let is_failed_site = |operand: &Self| operand.samples.is_none() && !operand.passes;
        match (&self.samples, &other.samples) {
            (None, None) => {}
            (Some(_), Some(_)) if within_samples => {
                result.set_passing(|sample| self.passing[sample] || other.passing[sample]);
            }
            (Some(_), Some(_)) => result.set_passing(|_| true),
            (of_left, _) => {
                let of_samples = if of_left.is_some() { self } else { other };
                match within_samples || is_failed_site(self) || is_failed_site(other) {
                    true => result.set_passing(|sample| of_samples.passing[sample]),
                    false => result.set_passing(|_| true),
                }
            }
        }
        result
    }

    /// `&` and `&&` (`vector_logic_and` in `filter.c`).
    pub(super) fn and(&self, other: &Self, within_samples: bool) -> Self {
        let mut result = Self::result_of(self, other);
        if !self.passes || !other.passes {
            return result;
        }
        result.passes = true;
        match (&self.samples, &other.samples) {
            (None, None) => {}
            (Some(_), Some(_)) if within_samples => {
                result.set_passing(|sample| self.passing[sample] && other.passing[sample]);
                result.passes = result.passing.contains(&true);
            }
            (Some(_), Some(_)) => result.set_passing(|sample| self.passing[sample] || other.passing[sample]),
            (Some(_), None) => result.set_passing(|sample| self.passing[sample]),
            (None, Some(_)) => result.set_passing(|sample| other.passing[sample]),
        }
        result
    }

    fn set_passing(&mut self, passes: impl Fn(usize) -> bool) {
        for sample in self.used_samples() {
            self.passing[sample] = passes(sample);
        }
    }
}
