//! The samples of a dataset, and those of them that a rule lets be seen.
//!
//! Reads are of the samples that their header names; a rule either lets all of them be seen, or is not about the file. Variants
//! of several samples have a list with an element for each in some columns, of which the elements of others are taken out.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, ListArray, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType};
use godwit_flight::{Dataset, Kind};
use godwit_model::schema::{columnar, variants};

use crate::rule::Rule;

/// Columns of variants that have an element for each sample (docs/formats/variants.md).
const OF_SAMPLES: [&str; 3] = ["genotype_alleles", "genotype_phased", "other_formats"];
/// What the others begin with.
const OF_SAMPLES_TOO: &str = "format_";

/// The samples that a dataset is of, in the order of its columns; `None` where that is not known.
pub(crate) fn samples_of(dataset: &dyn Dataset) -> Option<Vec<String>> {
    let schema = dataset.schema();
    match dataset.kind() {
        Kind::Variants => {
            let header = schema.metadata().get(variants::HEADER_KEY)?;
            let columns = header.lines().rev().find(|line| line.starts_with("#CHROM"))?;
            Some(columns.split('\t').skip(9).map(str::to_owned).collect())
        }
        Kind::Reads => {
            let header = schema.metadata().get(columnar::HEADER_KEY);
            let named = header.map(|header| {
                let groups = header.lines().filter(|line| line.starts_with("@RG\t"));
                // A read group that names no sample may be of any.
                groups.map(|line| line.split('\t').find_map(|field| field.strip_prefix("SM:")).map(str::to_owned))
            });
            let mut named = named?.collect::<Option<Vec<String>>>()?;
            named.sort_unstable();
            named.dedup();
            (!named.is_empty()).then_some(named)
        }
        Kind::Table => None,
    }
}

/// Whether a rule that asks for samples is about a dataset.
pub(crate) fn fits_samples(rule: &Rule, dataset: &dyn Dataset) -> bool {
    let Some(samples) = samples_of(dataset) else { return false };
    let mut wanted = samples.iter().map(|sample| rule.wants_sample(sample));
    // Reads of several samples cannot be told apart in every file.
    if dataset.kind() == Kind::Variants { wanted.any(|wanted| wanted) } else { wanted.all(|wanted| wanted) }
}

/// Where the samples are that may be seen, among those of a dataset; `None` where all are.
pub(crate) fn places_of_samples(rule: &Rule, dataset: &dyn Dataset) -> Option<Vec<u64>> {
    if !rule.asks_for_samples() {
        return None;
    }
    let samples = samples_of(dataset).unwrap_or_default();
    let wanted = (0..).zip(&samples).filter(|(_, sample)| rule.wants_sample(sample)).map(|(at, _)| at);
    let wanted: Vec<u64> = wanted.collect();
    (wanted.len() < samples.len()).then_some(wanted)
}

/// Whether a column of variants has an element for each sample.
pub(crate) fn is_of_samples(column: &str, data_type: &DataType) -> bool {
    let named = OF_SAMPLES.contains(&column) || column.starts_with(OF_SAMPLES_TOO);
    named && matches!(data_type, DataType::List(_))
}

/// The elements at some places of each list.
pub(crate) fn take_places(lists: &ArrayRef, places: &[u64]) -> Result<ArrayRef, ArrowError> {
    let lists = lists.as_list::<i32>();
    let DataType::List(element) = lists.data_type() else {
        return Err(ArrowError::CastError("values of samples are no lists".to_owned()));
    };
    let (mut taken, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
    for row in 0..lists.len() {
        let (start, length) = (lists.value_offsets()[row] as u64, lists.value_length(row) as u64);
        let before = taken.len();
        if lists.is_valid(row) {
            taken.extend(places.iter().filter(|place| **place < length).map(|place| start + place));
        }
        lengths.push(taken.len() - before);
    }
    let values = arrow_select::take::take(lists.values(), &UInt64Array::from(taken), None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(element.clone(), offsets, values, lists.nulls().cloned())?))
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;

    use super::*;

    #[test]
    fn elements_of_other_samples_are_gone() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2), Some(3)]),
            None,
            Some(vec![Some(4), None, Some(6)]),
            Some(vec![Some(7)]),
        ]);
        let lists: ArrayRef = Arc::new(lists);
        let taken = take_places(&lists.slice(1, 3), &[1, 2]).unwrap();
        let expected =
            ListArray::from_iter_primitive::<Int32Type, _, _>([None, Some(vec![None, Some(6)]), Some(vec![])]);
        assert_eq!(taken.as_list::<i32>(), &expected);
        assert_eq!(taken.as_list::<i32>().values().len(), 2);
    }
}
