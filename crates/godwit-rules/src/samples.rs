//! The samples in a dataset, and those that a rule shows.
//!
//! A dataset of reads contains the samples in its header. A rule that selects samples either shows all of these
//! samples, or does not cover the dataset. A dataset of variants has columns with one list element per sample; the
//! elements of hidden samples are removed.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, ListArray, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType};
use godwit_dataset::{Dataset, DatasetKind};
use godwit_model::schema::alignment_columns;

use crate::rule::Rule;

/// Columns of variants that contain a list with one element per sample (docs/formats/variants.md).
const PER_SAMPLE_COLUMNS: [&str; 3] = ["genotype_alleles", "genotype_phased", "other_formats"];
/// Prefix of the names of the `FORMAT` columns, which also contain one list element per sample.
const PER_SAMPLE_COLUMN_PREFIX: &str = "format_";

/// Returns the names of the samples in a dataset, in the order of their list elements; `None` if they are unknown.
pub(crate) fn dataset_samples(dataset: &dyn Dataset) -> Option<Vec<String>> {
    match dataset.kind() {
        DatasetKind::Variants => dataset.samples(),
        DatasetKind::Reads => {
            let schema = dataset.schema();
            let header = schema.metadata().get(alignment_columns::HEADER_KEY);
            let named = header.map(|header| {
                let groups = header.lines().filter(|line| line.starts_with("@RG\t"));
                // A read group without a sample name may belong to any sample, so the samples are unknown.
                groups.map(|line| line.split('\t').find_map(|field| field.strip_prefix("SM:")).map(str::to_owned))
            });
            let mut named = named?.collect::<Option<Vec<String>>>()?;
            named.sort_unstable();
            named.dedup();
            (!named.is_empty()).then_some(named)
        }
        DatasetKind::Table => None,
    }
}

/// Returns whether a rule that selects samples covers a dataset.
pub(crate) fn covers_samples(rule: &Rule, dataset: &dyn Dataset) -> bool {
    let Some(samples) = dataset_samples(dataset) else { return false };
    let mut wanted = samples.iter().map(|sample| rule.selects_sample(sample));
    // A rule must select all samples of a dataset of reads, because not every file permits separating the reads of its
    // samples.
    if dataset.kind() == DatasetKind::Variants { wanted.any(|wanted| wanted) } else { wanted.all(|wanted| wanted) }
}

/// Returns the indexes of the visible samples among all samples of a dataset; `None` if all samples are visible.
pub(crate) fn visible_sample_indexes(rule: &Rule, dataset: &dyn Dataset) -> Option<Vec<u64>> {
    if !rule.depends_on_samples() {
        return None;
    }
    let samples = dataset_samples(dataset).unwrap_or_default();
    let wanted = (0..).zip(&samples).filter(|(_, sample)| rule.selects_sample(sample)).map(|(at, _)| at);
    let wanted: Vec<u64> = wanted.collect();
    (wanted.len() < samples.len()).then_some(wanted)
}

/// Returns whether a column of variants contains a list with one element per sample.
pub(crate) fn is_per_sample_column(column: &str, data_type: &DataType) -> bool {
    let named = PER_SAMPLE_COLUMNS.contains(&column) || column.starts_with(PER_SAMPLE_COLUMN_PREFIX);
    named && matches!(data_type, DataType::List(_))
}

/// Returns lists that contain only the elements with these indexes.
pub(crate) fn take_list_elements(lists: &ArrayRef, indexes: &[u64]) -> Result<ArrayRef, ArrowError> {
    let lists = lists.as_list::<i32>();
    let DataType::List(element) = lists.data_type() else {
        return Err(ArrowError::CastError("values of samples are not lists".to_owned()));
    };
    let (mut taken, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
    for row in 0..lists.len() {
        let (start, length) = (lists.value_offsets()[row] as u64, lists.value_length(row) as u64);
        let before = taken.len();
        if lists.is_valid(row) {
            taken.extend(indexes.iter().filter(|place| **place < length).map(|place| start + place));
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
        let taken = take_list_elements(&lists.slice(1, 3), &[1, 2]).unwrap();
        let expected =
            ListArray::from_iter_primitive::<Int32Type, _, _>([None, Some(vec![None, Some(6)]), Some(vec![])]);
        assert_eq!(taken.as_list::<i32>(), &expected);
        assert_eq!(taken.as_list::<i32>().values().len(), 2);
    }
}
