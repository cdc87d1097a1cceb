//! The samples in a dataset, and those that a rule shows.
//!
//! A dataset of reads contains the samples in its header. A rule that selects samples either shows all of these
//! samples, or does not cover the dataset. A dataset of variants has columns with one list element per sample; the
//! elements of hidden samples are removed. A rule that denies access hides each dataset with a sample that it selects.
//! If the samples are unknown, a rule that denies access covers the dataset, and a rule that shows data does not. Tables
//! have no samples, so rules that select samples do not cover them.

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
                groups.map(|line| {
                    let sample = line.split('\t').find_map(|field| field.strip_prefix("SM:"));
                    sample.filter(|sample| !sample.is_empty()).map(str::to_owned)
                })
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
    let Some(samples) = dataset_samples(dataset) else {
        // The unknown samples may include one that the rule denies.
        return rule.deny && dataset.kind() != DatasetKind::Table;
    };
    let mut selected = samples.iter().map(|sample| rule.selects_sample(sample));
    // A rule that shows reads must select all samples of the dataset, because not every file permits separating the
    // reads of its samples. For the same reason, a rule that denies one of the samples hides the whole dataset.
    match rule.deny || dataset.kind() == DatasetKind::Variants {
        true => selected.any(|is_selected| is_selected),
        false => selected.all(|is_selected| is_selected),
    }
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

/// Returns whether a column of variants has one value per sample, by its name.
pub(crate) fn is_per_sample_column(column: &str) -> bool {
    PER_SAMPLE_COLUMNS.contains(&column) || column.starts_with(PER_SAMPLE_COLUMN_PREFIX)
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
    use arrow_schema::{Field, Schema, SchemaRef};
    use godwit_dataset::{BatchReader, DatasetError, Scan, ScanPart};
    use godwit_model::schema::variant_columns;

    use super::*;

    /// A dataset without rows, of a kind and with a header.
    #[derive(Debug)]
    struct HeaderDataset(DatasetKind, Option<&'static str>);

    impl Dataset for HeaderDataset {
        fn kind(&self) -> DatasetKind {
            self.0
        }

        fn schema(&self) -> SchemaRef {
            let key = match self.0 {
                DatasetKind::Variants => variant_columns::HEADER_KEY,
                DatasetKind::Reads | DatasetKind::Table => alignment_columns::HEADER_KEY,
            };
            let metadata = self.1.map(|header| (key.to_owned(), header.to_owned()));
            Arc::new(Schema::new_with_metadata(Vec::<Field>::new(), metadata.into_iter().collect()))
        }

        fn bytes(&self) -> u64 {
            1
        }

        fn version(&self) -> u64 {
            1
        }

        fn has_regions(&self) -> bool {
            false
        }

        fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
            Ok(Vec::new())
        }

        fn read(&self, _: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
            Ok(Box::new(std::iter::empty()))
        }
    }

    /// Returns whether a rule that shows data and a rule that denies access cover a dataset.
    fn covers(selection: &str, kind: DatasetKind, header: Option<&'static str>) -> (bool, bool) {
        let text = format!("name = 'x'\nwho = ['*']\ndatasets = ['**']\n{selection}\n");
        let rule: Rule = toml::from_str(&text).unwrap();
        let denying = Rule { deny: true, ..rule.clone() };
        let dataset = HeaderDataset(kind, header);
        (covers_samples(&rule, &dataset), covers_samples(&denying, &dataset))
    }

    #[test]
    fn one_denied_sample_hides_reads_that_are_shown_only_with_all_samples() {
        let reads = |selection, header| covers(selection, DatasetKind::Reads, Some(header));
        let (one, both) = ("@RG\tID:a\tSM:S017\n", "@RG\tID:a\tSM:S1\n@RG\tID:b\tSM:S017\n");
        assert_eq!(reads("samples = ['S017']", one), (true, true));
        assert_eq!(reads("samples = ['S017']", both), (false, true));
        assert_eq!(reads("samples = ['S1', 'S017']", both), (true, true));
        assert_eq!(reads("samples = ['S2']", both), (false, false));
        assert_eq!(reads("without_samples = ['S017']", one), (false, false));
        assert_eq!(reads("without_samples = ['S017']", both), (false, true));
        assert_eq!(reads("without_samples = ['S2']", both), (true, true));
    }

    #[test]
    fn unknown_samples_are_denied_and_not_shown() {
        let headers = [
            None,
            Some("@HD\tVN:1.6\n"),
            Some("@RG\tID:a\n"),
            Some("@RG\tID:a\tSM:\n"),
            Some("@RG\tID:a\tSM:S1\n@RG\tID:b\n"),
        ];
        for header in headers {
            for selection in ["samples = ['S1']", "without_samples = ['S2']"] {
                assert_eq!(covers(selection, DatasetKind::Reads, header), (false, true), "{selection} {header:?}");
            }
        }
        assert_eq!(covers("samples = ['S1']", DatasetKind::Variants, None), (false, true));
        assert_eq!(covers("samples = ['S1']", DatasetKind::Table, None), (false, false));
    }

    #[test]
    fn one_selected_sample_is_enough_for_variants() {
        let columns = "##fileformat=VCFv4.4\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
        let variants = |selection, header| covers(selection, DatasetKind::Variants, Some(header));
        let header: &'static str = format!("{columns}\tFORMAT\tS1\tS017").leak();
        assert_eq!(variants("samples = ['S017']", header), (true, true));
        assert_eq!(variants("samples = ['S2']", header), (false, false));
        assert_eq!(variants("without_samples = ['S017']", header), (true, true));
        assert_eq!(variants("samples = ['S017']", columns), (false, false), "no samples");
    }

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
