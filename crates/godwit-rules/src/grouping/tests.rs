use arrow_array::{Int32Array, StringArray};
use proptest::prelude::*;

use super::*;
use crate::policy::Policy;

/// A table in memory, which is read in batches of a few rows.
#[derive(Debug)]
struct TestTable(RecordBatch);

impl Dataset for TestTable {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.0.num_rows() as u64)
    }

    fn bytes(&self) -> u64 {
        9
    }

    fn version(&self) -> u64 {
        1
    }

    fn has_regions(&self) -> bool {
        false
    }

    fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
        let halves = [(0, self.0.num_rows() as u64 / 2), (self.0.num_rows() as u64 / 2, self.0.num_rows() as u64)];
        Ok(halves.map(|half| ScanPart { ranges: vec![half] }).to_vec())
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let (start, end) = part.ranges[0];
        let wanted = self.0.project(scan.columns.as_ref().unwrap()).unwrap();
        let batches: Vec<_> = (start..end)
            .step_by(7)
            .map(|first| wanted.slice(first as usize, (end - first).min(7) as usize))
            .map(Ok)
            .collect();
        Ok(Box::new(batches.into_iter()))
    }
}

type Row = (Option<u8>, i32, Option<u8>, Option<f64>);

/// Creates a table with the columns sex, age, individual and measure.
fn table(rows: &[Row]) -> Arc<dyn Dataset> {
    let text = |name: &str, value: Option<u8>| value.map(|value| format!("{name}{value}"));
    let columns: [(&str, ArrayRef); 4] = [
        ("sex", Arc::new(StringArray::from_iter(rows.iter().map(|row| text("s", row.0))))),
        ("age", Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1)))),
        ("subject", Arc::new(StringArray::from_iter(rows.iter().map(|row| text("zq", row.2))))),
        ("measure", Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.3)))),
    ];
    let nullable = columns.map(|(name, values)| (name, values, true));
    Arc::new(TestTable(RecordBatch::try_from_iter_with_nullable(nullable).unwrap()))
}

fn grants_with_grouping(groups: &str) -> Grants {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let rule = "[[rule]]\nname = 'r'\nwho = ['*']\ndatasets = ['**']\nmask = { age = { bin = 10 } }\n";
    std::fs::write(&path, format!("{rule}groups = {groups}\n")).unwrap();
    Policy::read(&path).unwrap().grants_by_name("")
}

fn open_grouped(rows: &[Row], groups: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
    let grants = grants_with_grouping(groups);
    let rule = &grants.rules[0];
    GroupedDataset::open("t", table(rows), rule, rule.grouping.as_ref().unwrap(), &grants)
}

/// Returns the visible values of sex, age and mean of each row, as text.
fn shown_rows(dataset: &dyn Dataset, scan: &Scan) -> Vec<Vec<String>> {
    let mut shown = Vec::new();
    for part in dataset.parts(scan, 3).unwrap() {
        for batch in dataset.read(scan, &part).unwrap() {
            let batch = batch.unwrap();
            assert!((1..=BATCH_ROWS as usize).contains(&batch.num_rows()));
            let options = arrow_cast::display::FormatOptions::default().with_null("-");
            let columns: Vec<_> = batch
                .columns()
                .iter()
                .map(|column| arrow_cast::display::ArrayFormatter::try_new(column, &options).unwrap())
                .collect();
            let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect();
            shown.extend((0..batch.num_rows()).map(row));
        }
    }
    shown
}

const GROUPING: &str = "{ by = ['sex', 'age'], at_least = 3, of = 'subject', means = ['measure'] }";

#[test]
fn rows_show_the_values_of_their_group_and_small_groups_are_hidden() {
    let rows = [
        (Some(1), 31, Some(1), Some(1.0)),
        (Some(1), 35, Some(2), Some(2.0)),
        (Some(1), 39, Some(3), Some(6.0)),
        // An individual with two rows counts as one member.
        (Some(2), 31, Some(4), Some(1.0)),
        (Some(2), 32, Some(5), Some(1.0)),
        (Some(2), 33, Some(5), Some(1.0)),
        // A row without an individual does not count as a member.
        (None, 41, Some(6), None),
        (None, 42, Some(7), Some(5.0)),
        (None, 43, Some(8), Some(f64::NAN)),
        (None, 44, None, Some(5.0)),
    ];
    let dataset = open_grouped(&rows, GROUPING).unwrap();
    let facts = (dataset.rows(), dataset.bytes(), dataset.has_regions(), dataset.sorted_by(), dataset.sample());
    assert_eq!(facts, (None, 0, false, &[][..], None));
    // Only two members have a value of the measure, which is too few for a mean.
    let expected = [["-", "40", "-"]; 4].into_iter().chain([["s1", "30", "3.0"]; 3]);
    assert_eq!(shown_rows(&*dataset, &Scan::default()), expected.collect::<Vec<_>>());
    let some = Scan { columns: Some(vec![1]), regions: None };
    assert_eq!(shown_rows(&*dataset, &some), [["40"]; 4].into_iter().chain([["30"]; 3]).collect::<Vec<_>>());
    let counted = Scan { columns: Some(vec![]), regions: None };
    assert_eq!(shown_rows(&*dataset, &counted).len(), 7);
    let by_rows = open_grouped(&rows, "{ by = ['sex'], at_least = 4 }").unwrap();
    assert_eq!(shown_rows(&*by_rows, &Scan::default()), [["-"]; 4]);
}

#[test]
fn a_number_that_is_nan_is_not_an_individual() {
    let shown = |subjects: Vec<f64>| {
        let sexes = StringArray::from(vec!["s1"; subjects.len()]);
        let columns: [(&str, ArrayRef); 2] =
            [("sex", Arc::new(sexes)), ("subject", Arc::new(Float64Array::from(subjects)))];
        let table = Arc::new(TestTable(RecordBatch::try_from_iter(columns).unwrap()));
        let grants = grants_with_grouping("{ by = ['sex'], at_least = 2, of = 'subject' }");
        let rule = &grants.rules[0];
        let dataset = GroupedDataset::open("t", table, rule, rule.grouping.as_ref().unwrap(), &grants).unwrap();
        shown_rows(&*dataset, &Scan::default()).len()
    };
    assert_eq!(shown(vec![1.0, f64::NAN, -f64::NAN]), 0);
    assert_eq!(shown(vec![0.0, -0.0, 0.0]), 0);
    assert_eq!(shown(vec![1.0, f64::NAN, 2.0]), 3);
}

#[test]
fn impossible_groupings_are_reported_without_values() {
    let rows = [(Some(1), 31, Some(1), Some(1.0))];
    for (groups, expected) in [
        ("{ by = ['nothing'], at_least = 3 }", "nothing"),
        ("{ by = ['age'], at_least = 3, of = 'nobody' }", "nobody"),
        ("{ by = ['age'], at_least = 3, means = ['subject'] }", "no mean"),
    ] {
        let error = open_grouped(&rows, groups).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("rule \"r\"") && !error.contains("zq"), "{error}");
    }
    let many: Vec<Row> = (0..70_000).map(|age| (None, age * 10, Some(1), None)).collect();
    let dataset = open_grouped(&many, "{ by = ['age'], at_least = 2 }").unwrap();
    let error = dataset.read(&Scan::default(), &dataset.parts(&Scan::default(), 1).unwrap()[0]).err().unwrap();
    assert!(error.to_string().contains("65536"), "{error}");
}

#[test]
fn a_large_group_is_returned_in_batches() {
    let rows: Vec<Row> = (0..20_000).map(|at| (Some(u8::from(at % 3 == 0)), 30, None, None)).collect();
    let dataset = open_grouped(&rows, "{ by = ['sex'], at_least = 5 }").unwrap();
    let shown = shown_rows(&*dataset, &Scan::default());
    assert_eq!(shown.iter().filter(|row| row[0] == "s1").count(), 6667);
    assert_eq!(shown.len(), 20_000);
}

proptest! {
    #[test]
    fn no_query_distinguishes_fewer_members_than_a_group(
        rows in proptest::collection::vec(
            (proptest::option::of(0u8..3), 0i32..40, proptest::option::of(0u8..12), proptest::option::of(0.0..9.0)), 0..60),
        asked in proptest::collection::vec(any::<bool>(), 20),
    ) {
        let dataset = open_grouped(&rows, GROUPING).unwrap();
        let shown = shown_rows(&*dataset, &Scan::default());
        // Compute the expected result by a different method: build the groups, then count their members.
        let key = |row: &Row| (row.0.map_or("-".to_owned(), |sex| format!("s{sex}")), (row.1 / 10 * 10).to_string());
        let mut groups: BTreeMap<(String, String), Vec<Row>> = BTreeMap::new();
        rows.iter().for_each(|row| groups.entry(key(row)).or_default().push(*row));
        let people = |rows: &[Row]| rows.iter().filter_map(|row| row.2).collect::<HashSet<_>>().len();
        groups.retain(|_, rows| people(rows) >= 3);
        prop_assert_eq!(shown.len(), groups.values().map(Vec::len).sum::<usize>());
        for ((sex, age), rows) in &groups {
            let alike: Vec<_> = shown.iter().filter(|row| row[0] == *sex && row[1] == *age).collect();
            prop_assert_eq!(alike.len(), rows.len());
            prop_assert!(alike.iter().all(|row| *row == alike[0]));
            let measured: Vec<Row> = rows.iter().filter(|row| row.3.is_some()).copied().collect();
            let mean = measured.iter().filter_map(|row| row.3).sum::<f64>() / measured.len() as f64;
            let shown: Option<f64> = alike[0][2].parse().ok();
            prop_assert_eq!(shown.is_some(), people(&measured) >= 3);
            prop_assert!(shown.is_none_or(|shown| (shown - mean).abs() < 1e-9));
        }
        // Two queries differ by whole groups, because a query either selects all rows of a group or none of them.
        let alike: BTreeMap<&Vec<String>, bool> = shown.iter().zip(asked.iter().cycle()).map(|(row, one)| (row, *one)).collect();
        let counted = shown.iter().filter(|row| alike[row]).count();
        prop_assert!(counted == 0 || counted >= 3);
        prop_assert!(shown.len() == counted || shown.len() - counted >= 3);
    }
}
