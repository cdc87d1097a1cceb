//! Calculations with numbers in filter expressions of bcftools, and the binomial test.

use super::Arithmetic;
use super::evaluation::Operand;

/// Limits of the continued fraction (`KF_TINY` and `KF_GAMMA_EPS` of htslib's `kfunc.c`).
const SMALLEST_DENOMINATOR: f64 = 1e-290;
const PRECISION: f64 = 1e-14;
/// Maximum number of steps of the continued fraction.
const MAX_STEPS: i32 = 200;

impl Arithmetic {
    /// Calculates with each value. A list and a single value are combined value by value.
    pub(super) fn calculate(self, left: &Operand, right: &Operand) -> Result<Operand, String> {
        let mut result = Operand::result_of(left, right);
        if left.numbers.is_empty() || right.numbers.is_empty() {
            return Ok(result);
        }
        let numbers = match (&left.samples, &right.samples) {
            (Some(samples), Some(_)) => {
                result.width = left.width.max(right.width);
                let of_sample = |sample| self.combine(left.numbers_of_sample(sample), right.numbers_of_sample(sample));
                (0..samples.len()).map(of_sample).collect::<Result<Vec<_>, String>>()?.concat()
            }
            (None, None) => self.combine(&left.numbers, &right.numbers)?,
            _ if left.samples.is_none() && left.numbers.len() != 1
                || right.samples.is_none() && right.numbers.len() != 1 =>
            {
                return Err("it calculates with a list of INFO and the values of samples".to_owned());
            }
            _ => {
                result.width = left.width.max(right.width);
                self.combine(&left.numbers, &right.numbers)?
            }
        };
        if numbers.iter().any(Option::is_some) {
            result.numbers = numbers.into();
        }
        Ok(result)
    }

    fn combine(self, left: &[Option<f64>], right: &[Option<f64>]) -> Result<Vec<Option<f64>>, String> {
        let count = left.len().max(right.len());
        if [left.len(), right.len()].iter().any(|length| *length != count && *length != 1) {
            return Err(format!("it calculates with lists of {} and {} values", left.len(), right.len()));
        }
        let value = |list: &[Option<f64>], at: usize| if list.len() == 1 { list[0] } else { list[at] };
        let pairs = (0..count).map(|at| value(left, at).zip(value(right, at)));
        Ok(pairs.map(|pair| pair.and_then(|(left, right)| self.apply(left, right))).collect())
    }

    fn apply(self, left: f64, right: f64) -> Option<f64> {
        Some(match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            // bcftools stops at a division of integers by 0.
            Self::Remainder => f64::from((left as i32).checked_rem(right as i32)?),
        })
    }
}

impl Operand {
    /// Returns the probability of the two values that the genotype of each sample selects, or of the two values of INFO.
    pub(super) fn binomial_of_genotypes(&self, genotypes: &[String]) -> Self {
        let Some(samples) = &self.samples else {
            let probability = match self.numbers[..] {
                [Some(first), Some(second)] => binomial_probability(first, second),
                _ => None,
            };
            return Self::number(probability);
        };
        let mut alleles = genotypes.iter().map(|genotype| {
            let mut alleles = genotype.split(['/', '|']).map(|allele| allele.parse::<usize>().ok());
            alleles.next().flatten().zip(alleles.next().flatten())
        });
        let of_sample = |sample: usize| {
            let (first, second) = alleles.next().flatten()?;
            let numbers = self.numbers_of_sample(sample);
            binomial_probability((*numbers.get(first)?)?, (*numbers.get(second)?)?)
        };
        let numbers = (0..samples.len()).map(of_sample).collect();
        Self { is_field: false, ..Self::sample_numbers(numbers, 1, samples.clone()) }
    }

    /// Returns the probability of two values of each sample, or of INFO.
    pub(super) fn binomial(&self, other: &Self) -> Result<Self, String> {
        let Some(samples) = &self.samples else {
            let probability = match (&self.numbers[..], &other.numbers[..]) {
                ([Some(first)], [Some(second)]) => binomial_probability(*first, *second),
                _ => None,
            };
            return Ok(Self::number(probability));
        };
        if !self.numbers.is_empty() && !other.numbers.is_empty() && (self.width, other.width) != (1, 1) {
            return Err("binom() of two fields takes one value of each sample, such as AD[:0]".to_owned());
        }
        let only = |operand: &Self, sample: usize| operand.numbers_of_sample(sample).first().copied().flatten();
        let of_sample = |sample| binomial_probability(only(self, sample)?, only(other, sample)?);
        let numbers = (0..samples.len()).map(of_sample).collect();
        Ok(Self { is_field: false, ..Self::sample_numbers(numbers, 1, samples.clone()) })
    }
}

/// Returns the probability of two counts if both are equally likely (`calc_binom` in `filter.c` of bcftools).
fn binomial_probability(first: f64, second: f64) -> Option<f64> {
    let (first, second) = (first as i32, second as i32);
    match (first, second) {
        (0, 0) => None,
        (first, second) if first == second => Some(1.0),
        (first, second) => {
            let (more, less) = (first.max(second), first.min(second));
            let probability = 2.0 * incomplete_beta(f64::from(more), f64::from(less) + 1.0, 0.5);
            // bcftools marks missing results by negative numbers.
            Some(probability.min(1.0)).filter(|probability| *probability >= 0.0)
        }
    }
}

/// Logarithm of the gamma function (AS245, as in htslib's `kf_lgamma`).
fn log_gamma(z: f64) -> f64 {
    let mut x = 0.1659470187408462e-06 / (z + 7.0);
    x += 0.9934937113930748e-05 / (z + 6.0);
    x -= 0.1385710331296526 / (z + 5.0);
    x += 12.50734324009056 / (z + 4.0);
    x -= 176.6150291498386 / (z + 3.0);
    x += 771.3234287757674 / (z + 2.0);
    x -= 1259.139216722289 / (z + 1.0);
    x += 676.5203681218835 / z;
    x += 0.9999999999995183;
    x.ln() - 5.581061466795328 - z + (z - 0.5) * (z + 6.5).ln()
}

/// Regularized incomplete beta function (htslib's `kf_betai`).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    match x < (a + 1.0) / (a + b + 2.0) {
        true => beta_fraction(a, b, x),
        false => 1.0 - beta_fraction(b, a, 1.0 - x),
    }
}

/// The continued fraction of the incomplete beta function, by the modified algorithm of Lentz.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for step in 1..MAX_STEPS {
        let m = f64::from(step / 2);
        let term = match step % 2 {
            1 => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
            _ => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
        };
        d = 1.0 / (1.0 + term * d).max(SMALLEST_DENOMINATOR);
        c = (1.0 + term / c).max(SMALLEST_DENOMINATOR);
        value *= c * d;
        if (c * d - 1.0).abs() < PRECISION {
            break;
        }
    }
    let scale = log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    scale.exp() / a / value
}
