//! The fields of a variant that an expression names, and their values.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray};
use datafusion::arrow::datatypes::{DataType, Field as ColumnField, Float64Type, Int64Type};

use super::VariantRow;
use super::evaluation::{Numbers, Operand};
use super::genotype_forms::GenotypeForm;

/// The value that bcftools uses for a missing integer in a list of INFO.
const MISSING_INFO_INTEGER: f64 = i32::MIN as f64;
/// Maximum index in brackets.
const MAX_INDEX: usize = 1 << 16;

/// A field. Numbers are indexes of columns of [`VariantRow`].
#[derive(Debug)]
pub(super) enum Field {
    /// QUAL, or the position minus 1 of POS.
    Number {
        column: usize,
        offset: f64,
    },
    /// CHROM and REF.
    Text(usize),
    Alternates {
        column: usize,
        subscript: Subscript,
    },
    AlternateCount(usize),
    /// The lengths of the alternate alleles minus that of the reference; missing if they are equal.
    LengthChanges {
        reference: usize,
        alternates: usize,
    },
    MissingGenotypes {
        genotypes: usize,
        is_fraction: bool,
    },
    AlleleCounts {
        kind: AlleleCountKind,
        columns: AlleleCountColumns,
        subscript: Subscript,
    },
    Info {
        column: usize,
        kind: ValueKind,
        /// `None` for a field with one value.
        subscript: Option<Subscript>,
    },
    Format {
        column: usize,
        kind: ValueKind,
        is_list: bool,
        subscript: Subscript,
        samples: Subscript,
    },
    Genotype {
        column: usize,
        form: GenotypeForm,
        samples: Subscript,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Flag,
    Integer,
    Float,
    Text,
}

/// Values that bcftools computes from INFO/AC and INFO/AN, or else from the genotypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlleleCountKind {
    Total,
    Count,
    MinorCount,
    Frequency,
    MinorFrequency,
}

/// Columns from which alleles are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct AlleleCountColumns {
    pub(super) alternates: usize,
    /// The columns of AN and AC in INFO.
    pub(super) counts: Option<(usize, usize)>,
    pub(super) genotypes: Option<usize>,
}

/// An index in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subscript {
    /// `[2]`
    One(usize),
    /// `[*]`, `[0,2]`, `[1-3]` and `[1-]`: whether each index is selected, and whether all later ones are.
    Several { is_selected: Vec<bool>, is_open: bool },
}

impl Subscript {
    /// Returns the index that selects all values.
    pub(super) fn all() -> Self {
        Self::Several { is_selected: vec![true], is_open: true }
    }

    /// Parses the text in brackets.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number = |digits: &str| match digits.parse::<usize>() {
            Ok(number) if number <= MAX_INDEX && digits.bytes().all(|digit| digit.is_ascii_digit()) => Ok(number),
            _ => Err(format!("the index [{text}] is not valid")),
        };
        if text.is_empty() || text == "*" {
            return Ok(Self::all());
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return number(text).map(Self::One);
        }
        let (mut is_selected, mut is_open) = (Vec::new(), false);
        let mut select = |from: usize, to: usize| {
            is_selected.resize(is_selected.len().max(to + 1), false);
            is_selected[from..=to].fill(true);
        };
        let parts: Vec<&str> = text.split(',').collect();
        for (at, part) in parts.iter().enumerate() {
            match part.split_once('-') {
                None => number(part).map(|index| select(index, index))?,
                Some((from, "")) if at + 1 == parts.len() => {
                    let from = number(from)?;
                    select(from, from);
                    is_open = true;
                }
                Some((from, to)) => match (number(from)?, number(to)?) {
                    (from, to) if from <= to => select(from, to),
                    _ => return Err(format!("the index [{text}] is not valid")),
                },
            }
        }
        Ok(Self::Several { is_selected, is_open })
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::Several { .. })
    }

    pub(super) fn selects(&self, index: usize) -> bool {
        match self {
            Self::One(one) => *one == index,
            Self::Several { is_selected, is_open } => is_selected.get(index).copied().unwrap_or(*is_open),
        }
    }

    /// Returns the number of values for each sample whose longest list has `longest` values.
    fn width(&self, longest: usize) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Several { is_open: true, .. } => longest,
            Self::Several { is_selected, .. } => is_selected.iter().filter(|selected| **selected).count(),
        }
    }

    /// Returns whether each sample is selected.
    fn mask(&self, sample_count: usize) -> Result<Vec<bool>, String> {
        let last = match self {
            Self::One(index) => *index + 1,
            Self::Several { is_open: true, .. } => 0,
            Self::Several { is_selected, .. } => is_selected.len(),
        };
        if last > sample_count {
            return Err(format!(
                "the index of a sample is at least {}, but there are {sample_count} samples",
                last - 1
            ));
        }
        Ok((0..sample_count).map(|sample| self.selects(sample)).collect())
    }
}

impl ValueKind {
    /// Returns the kind of the values of a column, and the number of lists around them.
    pub(super) fn of_type(data_type: &DataType) -> Option<(Self, usize)> {
        match data_type {
            DataType::List(element) | DataType::LargeList(element) => {
                Self::of_type(element.data_type()).map(|(kind, depth)| (kind, depth + 1))
            }
            DataType::Dictionary(_, values) => Self::of_type(values),
            DataType::Boolean => Some((Self::Flag, 0)),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some((Self::Text, 0)),
            number if number.is_integer() => Some((Self::Integer, 0)),
            number if number.is_floating() => Some((Self::Float, 0)),
            _ => None,
        }
    }

    /// Returns the type to which a column is converted.
    pub(super) fn column_type(self, depth: usize) -> DataType {
        let values = match self {
            Self::Flag => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
        };
        (0..depth).fold(values, |values, _| DataType::List(Arc::new(ColumnField::new("item", values, true))))
    }
}

/// Returns a number of a column.
fn number_at(array: &dyn Array, row: usize) -> Option<f64> {
    match array.data_type() {
        _ if array.is_null(row) => None,
        DataType::Float64 => Some(array.as_primitive::<Float64Type>().value(row)),
        _ => Some(array.as_primitive::<Int64Type>().value(row) as f64),
    }
}

/// Returns the elements of a list; none for null.
fn list_at(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    let lists: &ListArray = array.as_list();
    lists.is_valid(row).then(|| lists.value(row))
}

fn text_at(array: &dyn Array, row: usize) -> Option<&str> {
    array.is_valid(row).then(|| array.as_string::<i32>().value(row))
}

fn texts_of(list: &ArrayRef) -> impl Iterator<Item = &str> {
    (0..list.len()).map(move |at| text_at(list, at).unwrap_or("."))
}

/// Returns the texts of a list; none for null.
pub(super) fn texts_at(array: &ArrayRef, row: usize) -> Vec<String> {
    list_at(array, row).iter().flat_map(texts_of).map(str::to_owned).collect()
}

impl Field {
    pub(super) fn is_text(&self) -> bool {
        match self {
            Self::Text(_) | Self::Alternates { .. } | Self::Genotype { .. } => true,
            Self::Info { kind, .. } | Self::Format { kind, .. } => *kind == ValueKind::Text,
            _ => false,
        }
    }

    pub(super) fn has_samples(&self) -> bool {
        matches!(self, Self::Format { .. } | Self::Genotype { .. })
    }

    /// Returns whether an index selects some of the samples.
    pub(super) fn selects_samples(&self) -> bool {
        match self {
            Self::Format { samples, .. } | Self::Genotype { samples, .. } => *samples != Subscript::all(),
            _ => false,
        }
    }

    /// Returns whether bcftools reads the text `.` as a missing value of this field.
    pub(super) fn accepts_missing_number(&self) -> bool {
        match self {
            Self::Number { offset, .. } => *offset == 0.0,
            Self::Info { kind, .. } | Self::Format { kind, .. } => {
                matches!(kind, ValueKind::Integer | ValueKind::Float)
            }
            _ => false,
        }
    }

    /// Returns the values of a variant.
    pub(super) fn load(&self, variant: VariantRow) -> Result<Operand, String> {
        let (columns, row) = (variant.columns, variant.row);
        Ok(match self {
            Self::Number { column, offset } => {
                Operand::number(number_at(&columns[*column], row).map(|number| number + offset))
            }
            Self::Text(column) => Operand::text(text_at(&columns[*column], row).unwrap_or(".").to_owned()),
            Self::Alternates { column, subscript } => alternates(list_at(&columns[*column], row), subscript),
            Self::AlternateCount(column) => {
                let count = list_at(&columns[*column], row).map_or(0, |list| list.len());
                Operand::number(Some(count as f64))
            }
            Self::LengthChanges { reference, alternates } => {
                let reference = text_at(&columns[*reference], row).unwrap_or_default().len() as f64;
                let alternates = list_at(&columns[*alternates], row);
                let change = |text: &str| Some(text.len() as f64 - reference).filter(|change| *change != 0.0);
                Operand::numbers(alternates.iter().flat_map(texts_of).map(change).collect())
            }
            Self::MissingGenotypes { genotypes, is_fraction } => {
                missing_genotypes(list_at(&columns[*genotypes], row), *is_fraction)
            }
            Self::AlleleCounts { kind, columns, subscript } => columns.load(variant, *kind, subscript)?,
            Self::Info { column, kind, subscript } => info(&columns[*column], row, *kind, subscript.as_ref()),
            Self::Format { column, kind, is_list, subscript, samples } => {
                let samples = samples.mask(variant.sample_count)?;
                let values = list_at(&columns[*column], row);
                match kind {
                    ValueKind::Text => format_texts(values, *is_list, subscript, samples),
                    _ => format_numbers(values, *is_list, subscript, samples),
                }
            }
            Self::Genotype { column, form, samples } => {
                let samples = samples.mask(variant.sample_count)?;
                let values = list_at(&columns[*column], row);
                let texts = values.iter().flat_map(texts_of).map(|text| form.write(text).to_owned()).collect();
                Operand::sample_texts(texts, samples)
            }
        })
    }
}

fn alternates(list: Option<ArrayRef>, subscript: &Subscript) -> Operand {
    let list: Vec<&str> = list.iter().flat_map(texts_of).collect();
    match subscript {
        Subscript::One(index) => Operand::text(list.get(*index).unwrap_or(&".").to_string()),
        Subscript::Several { is_selected, is_open } => {
            // As in bcftools, the number of selected indexes limits the last one.
            let last = if *is_open { list.len() } else { is_selected.iter().filter(|selected| **selected).count() };
            let selected = list.iter().enumerate().filter(|(at, _)| *at <= last && subscript.selects(*at));
            let texts: Vec<&str> = selected.map(|(_, text)| *text).collect();
            Operand { is_list: true, ..Operand::text(texts.join(",")) }
        }
    }
}

/// Returns the number of genotypes with a missing allele that is not phased (`filters_set_nmissing` in `filter.c`).
fn missing_genotypes(genotypes: Option<ArrayRef>, is_fraction: bool) -> Operand {
    let Some(genotypes) = genotypes else { return Operand::numbers(Numbers::new()) };
    let is_missing = |text: &&str| text.starts_with('.') || text.contains("/.");
    let missing = texts_of(&genotypes).filter(is_missing).count() as f64;
    let number = if is_fraction { missing / genotypes.len() as f64 } else { missing };
    Operand::number(Some(number))
}

fn info(column: &ArrayRef, row: usize, kind: ValueKind, subscript: Option<&Subscript>) -> Operand {
    match (kind, subscript) {
        (ValueKind::Flag, _) => {
            let flags: &BooleanArray = column.as_boolean();
            Operand::number(Some(f64::from(flags.is_valid(row) && flags.value(row))))
        }
        (ValueKind::Text, None) => Operand::text(text_at(column, row).unwrap_or_default().to_owned()),
        (_, None) => Operand::numbers(number_at(column, row).into_iter().map(Some).collect()),
        (ValueKind::Text, Some(subscript)) => {
            let list = list_at(column, row);
            let texts: Vec<&str> = list.iter().flat_map(texts_of).collect();
            let is_closed = matches!(subscript, Subscript::Several { is_open: false, .. });
            let selected = texts.iter().enumerate().filter(|(at, _)| subscript.selects(*at)).map(|(_, text)| *text);
            let mut text = selected.collect::<Vec<_>>().join(",");
            // As in bcftools, a comma follows the last of several selected values.
            if is_closed && !text.is_empty() {
                text.push(',');
            }
            Operand { is_list: subscript.is_list(), ..Operand::text(text) }
        }
        (_, Some(subscript)) => {
            let list = list_at(column, row);
            let numbers: Vec<Option<f64>> =
                list.iter().flat_map(|list| (0..list.len()).map(move |at| number_at(list, at))).collect();
            info_numbers(&numbers, kind, subscript)
        }
    }
}

fn info_numbers(numbers: &[Option<f64>], kind: ValueKind, subscript: &Subscript) -> Operand {
    let selected = match (subscript, numbers) {
        // As in bcftools, any index selects the only value.
        (Subscript::One(_), [only]) => only.iter().map(|number| Some(*number)).collect(),
        (Subscript::One(index), _) => numbers.get(*index).copied().flatten().into_iter().map(Some).collect(),
        (subscript, _) => {
            let selected = numbers.iter().enumerate().filter(|(at, _)| subscript.selects(*at));
            let value = |number: &Option<f64>| match kind {
                ValueKind::Integer => Some(number.unwrap_or(MISSING_INFO_INTEGER)),
                _ => *number,
            };
            selected.map(|(_, number)| value(number)).collect()
        }
    };
    Operand::numbers(selected)
}

fn format_numbers(values: Option<ArrayRef>, is_list: bool, subscript: &Subscript, samples: Vec<bool>) -> Operand {
    let Some(values) = values else { return Operand::sample_numbers(Vec::new(), 0, samples) };
    let of_sample = |sample: usize| -> Vec<Option<f64>> {
        match is_list {
            false => vec![number_at(&values, sample)],
            true => match list_at(&values, sample) {
                Some(list) => (0..list.len()).map(|at| number_at(&list, at)).collect(),
                None => vec![None],
            },
        }
    };
    let lists: Vec<Vec<Option<f64>>> = (0..values.len()).map(of_sample).collect();
    let width = subscript.width(lists.iter().map(Vec::len).max().unwrap_or_default());
    let mut numbers = Vec::with_capacity(lists.len() * width);
    for list in &lists {
        let selected = list.iter().enumerate().filter(|(at, _)| subscript.selects(*at)).map(|(_, number)| *number);
        numbers.extend(selected.chain(std::iter::repeat(None)).take(width));
    }
    Operand::sample_numbers(numbers, width, samples)
}

fn format_texts(values: Option<ArrayRef>, is_list: bool, subscript: &Subscript, samples: Vec<bool>) -> Operand {
    let Some(values) = values else { return Operand::sample_texts(Vec::new(), samples) };
    let of_sample = |sample: usize| {
        let text = match is_list {
            false => text_at(&values, sample).unwrap_or(".").to_owned(),
            true => match list_at(&values, sample) {
                Some(list) => texts_of(&list).collect::<Vec<_>>().join(","),
                None => ".".to_owned(),
            },
        };
        let parts: Vec<&str> =
            text.split(',').enumerate().filter(|(at, _)| subscript.selects(*at)).map(|(_, part)| part).collect();
        if parts.is_empty() { ".".to_owned() } else { parts.join(",") }
    };
    let texts = (0..values.len()).map(of_sample).collect();
    Operand { is_list: subscript.is_list(), ..Operand::sample_texts(texts, samples) }
}

impl AlleleCountColumns {
    fn load(&self, variant: VariantRow, kind: AlleleCountKind, subscript: &Subscript) -> Result<Operand, String> {
        let counts = self.counts(variant)?;
        let total = counts.as_ref().map_or(0.0, |counts| counts.iter().sum());
        if kind == AlleleCountKind::Total {
            return Ok(Operand::number(Some(total)));
        }
        let Some(counts) = counts.filter(|_| total > 0.0) else { return Ok(Operand::numbers(Numbers::new())) };
        let alternates = match subscript {
            Subscript::One(index) => vec![counts.get(index + 1).copied().unwrap_or_default()],
            Subscript::Several { .. } if counts.len() == 1 => vec![0.0],
            Subscript::Several { .. } => counts[1..].to_vec(),
        };
        let value = |count: f64| match kind {
            AlleleCountKind::MinorCount if count > total * 0.5 => total - count,
            AlleleCountKind::Frequency => count / total,
            AlleleCountKind::MinorFrequency if count / total > 0.5 => 1.0 - count / total,
            AlleleCountKind::MinorFrequency => count / total,
            _ => count,
        };
        Ok(Operand::numbers(alternates.into_iter().map(|count| Some(value(count))).collect()))
    }

    /// Returns the count of each allele, the reference first (`bcf_calc_ac` of htslib); `None` if it is not known.
    fn counts(&self, variant: VariantRow) -> Result<Option<Vec<f64>>, String> {
        let (columns, row) = (variant.columns, variant.row);
        let alternates = list_at(&columns[self.alternates], row).map_or(0, |list| list.len());
        if let Some((total, counts)) = self.counts
            && let Some(total) = number_at(&columns[total], row)
            && let Some(list) = list_at(&columns[counts], row)
        {
            let numbers: Vec<f64> =
                (0..list.len()).map(|at| number_at(&list, at).unwrap_or(MISSING_INFO_INTEGER)).collect();
            if numbers.len() != alternates {
                return Ok(None);
            }
            let sum: f64 = numbers.iter().sum();
            if sum > total {
                return Err(format!("a variant has the allele counts {sum}, but the total number {total}"));
            }
            return Ok(Some([total - sum].into_iter().chain(numbers).collect()));
        }
        let genotypes = self.genotypes.and_then(|column| list_at(&columns[column], row));
        let Some(genotypes) = genotypes else { return Ok(None) };
        let mut counts = vec![0.0; alternates + 1];
        for allele in texts_of(&genotypes).flat_map(|text| text.split(['/', '|'])) {
            if let Ok(allele) = allele.parse::<usize>() {
                *counts.get_mut(allele).ok_or_else(|| format!("a genotype has the allele {allele}"))? += 1.0;
            }
        }
        Ok(Some(counts))
    }
}
