//! Functions of numbers and texts in filter expressions of bcftools.

use super::evaluation::Operand;
use super::{Function, Statistic};

/// Factor of the natural logarithm in `phred()`.
const PHRED_FACTOR: f64 = -4.34294481903;

impl Function {
    pub(super) fn apply(self, argument: &Operand) -> Operand {
        match self {
            Self::Statistic { statistic, is_per_sample } => match (&argument.samples, is_per_sample) {
                (Some(samples), true) => {
                    let of_sample = |sample| statistic.compute(argument.numbers_of_sample(sample));
                    let numbers = (0..samples.len()).map(of_sample).collect();
                    Operand { is_field: false, ..Operand::sample_numbers(numbers, 1, samples.clone()) }
                }
                (Some(_), false) => {
                    let used = argument.used_samples();
                    let numbers: Vec<_> =
                        used.iter().flat_map(|sample| argument.numbers_of_sample(*sample)).copied().collect();
                    single(statistic.compute(&numbers))
                }
                (None, _) => {
                    // As in bcftools, these functions of the values of a sample return the mean of values of INFO.
                    let is_mean = is_per_sample && !matches!(statistic, Statistic::Maximum | Statistic::Minimum);
                    let statistic = if is_mean { Statistic::Mean } else { statistic };
                    single(statistic.compute(&argument.numbers))
                }
            },
            Self::Absolute => argument.map_numbers(f64::abs),
            Self::Phred => argument.map_numbers(|number| PHRED_FACTOR * number.ln()),
            Self::Count => Operand::number(Some(argument.count() as f64)),
            Self::TextLength => Operand::numbers(argument.text_lengths().into()),
        }
    }
}

fn single(number: Option<f64>) -> Operand {
    Operand::numbers(number.into_iter().map(Some).collect())
}

impl Operand {
    fn map_numbers(&self, function: impl Fn(f64) -> f64) -> Self {
        let numbers = self.numbers.iter().map(|number| number.map(&function)).collect();
        let passing = vec![false; self.passing.len()];
        Self { numbers, width: self.width, samples: self.samples.clone(), passing, ..Self::default() }
    }

    /// Returns the number of values of a field, or of samples that pass.
    fn count(&self) -> usize {
        match &self.samples {
            Some(_) if self.is_field => {
                let used = self.used_samples();
                used.iter().flat_map(|sample| self.numbers_of_sample(*sample)).flatten().count()
            }
            Some(_) => self.passing.iter().filter(|passes| **passes).count(),
            None if self.is_text && self.text.is_empty() => 0,
            None if self.is_text => 1 + self.text.matches(',').count(),
            None => self.numbers.len(),
        }
    }

    fn text_lengths(&self) -> Vec<Option<f64>> {
        let length = |text: &str| Some(text.len() as f64);
        match self.text.as_str() {
            "" => Vec::new(),
            text if self.is_list => text.split_terminator(',').map(length).collect(),
            "." => vec![Some(0.0)],
            text => vec![length(text)],
        }
    }
}

impl Statistic {
    /// Returns the statistic of the numbers that are not missing; `None` if there are none.
    fn compute(self, numbers: &[Option<f64>]) -> Option<f64> {
        let mut present: Vec<f64> = numbers.iter().flatten().copied().collect();
        let count = present.len();
        if count == 0 {
            return None;
        }
        let mean = || present.iter().sum::<f64>() / count as f64;
        Some(match self {
            Self::Maximum => present.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Minimum => present.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Mean => mean(),
            Self::Sum => present.iter().sum(),
            Self::StandardDeviation => {
                let mean = mean();
                let squares: f64 = present.iter().map(|number| (number - mean) * (number - mean)).sum();
                (squares / count as f64).sqrt()
            }
            Self::Median => {
                present.sort_unstable_by(f64::total_cmp);
                match count % 2 {
                    1 => present[count / 2],
                    _ => (present[count / 2 - 1] + present[count / 2]) * 0.5,
                }
            }
        })
    }
}
