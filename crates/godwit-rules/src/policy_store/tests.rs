use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_schema::{Schema, SchemaRef};
use godwit_dataset::{BatchReader, DatasetKind, Scan, ScanPart};
use godwit_model::schema::alignment_columns;

use super::*;
use crate::explain::{ExplainRequest, explain};

/// A dataset of reads with one sample, or with several ones if the text contains further lines of the header. If the
/// text is empty, the samples are unknown.
#[derive(Debug)]
struct TestReads {
    sample: &'static str,
}

impl Dataset for TestReads {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Reads
    }

    fn schema(&self) -> SchemaRef {
        let header = format!("@RG\tID:g\tSM:{}\n", self.sample);
        Arc::new(Schema::new_with_metadata(
            Vec::<arrow_schema::Field>::new(),
            [(alignment_columns::HEADER_KEY.to_owned(), header)].into(),
        ))
    }

    fn bytes(&self) -> u64 {
        1
    }

    fn version(&self) -> u64 {
        1
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(Vec::new())
    }

    fn read(&self, _: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// A catalog of dataset names with their samples. A dataset with the sample `broken` cannot be opened.
#[derive(Debug)]
struct TestCatalog(Vec<(&'static str, &'static str)>);

impl Catalog for TestCatalog {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        Ok(self.0.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        match self.0.iter().find(|(known, _)| *known == name) {
            Some((_, "broken")) => Err(DatasetError::Data("nonsense".into())),
            Some((_, sample)) => Ok(Arc::new(TestReads { sample })),
            None => Err(DatasetError::NotFound { name: name.to_owned() }),
        }
    }

    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        let ended = [".bam", ".parquet"].iter().any(|ending| name.ends_with(ending));
        if name.contains(".parquet/") {
            return Err(DatasetError::NotFound { name: name.to_owned() });
        }
        Ok(if ended { name.to_owned() } else { format!("{name}.parquet") })
    }
}

fn open_store(policy: &str) -> (PolicyStore, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, policy).unwrap();
    let names = [
        ("a.bam", "S1"),
        ("b.bam", "S2"),
        ("c.bam", "broken"),
        ("d.bam", "S1\n@RG\tID:h\tSM:S2"),
        ("t.parquet", ""),
        ("whole.parquet", ""),
    ];
    (PolicyStore::open(&path, Arc::new(TestCatalog(names.into()))).unwrap(), directory)
}

fn rule(name: &str, datasets: &str, rest: &str) -> String {
    format!("[[rule]]\nname = '{name}'\nwho = ['alice']\ndatasets = {datasets}\n{rest}\n")
}

fn authorize_read(book: &PolicyStore, path: &str) -> &'static str {
    authorization_name(book.authorize_file(&Principal::named("alice"), path, FileAccess::Read))
}

fn authorization_name(verdict: FileAuthorization) -> &'static str {
    match verdict {
        FileAuthorization::Allowed(_) => "allowed",
        FileAuthorization::Hidden => "hidden",
        FileAuthorization::Denied { .. } => "refused",
    }
}

#[test]
fn files_of_a_masked_dataset_are_not_readable_by_another_rule() {
    let text = rule("part", "['a.bam', 't.parquet']", "regions = ['chr1']") + &rule("rest", "['**']", "");
    let (book, _directory) = open_store(&text);
    for (path, expected) in [
        ("a.bam", "refused"),
        ("./a.bam", "refused"),
        ("/a.bam/", "refused"),
        ("a.bam.bai", "refused"),
        ("a.bam.bai.gz", "refused"),
        ("a.bai", "refused"),
        ("a.csi", "refused"),
        ("a.txt", "allowed"),
        ("b.bai", "allowed"),
        ("t.parquet", "refused"),
        ("t.parquet/part-0.parquet", "refused"),
        ("t.parquet//x/part-0.parquet", "refused"),
        ("whole.parquet/part-0.parquet", "allowed"),
        ("b.bam", "allowed"),
        ("b.bam.bai", "allowed"),
        ("d/a.bam", "allowed"),
        ("x/../a.bam", "hidden"),
        ("", "hidden"),
    ] {
        assert_eq!(authorize_read(&book, path), expected, "{path}");
    }
    assert_eq!(authorization_name(book.authorize_file(&Principal::named("bob"), "b.bam", FileAccess::Read)), "hidden");
    assert_eq!(authorization_name(book.authorize_file(&Principal::default(), "b.bam", FileAccess::Read)), "hidden");
    assert_eq!(
        authorization_name(book.authorize_file(&Principal::named("alice"), "b.bam", FileAccess::Write)),
        "refused"
    );
}

#[test]
fn the_rule_of_a_dataset_is_that_of_its_parts_and_its_index_needs_one_of_its_own() {
    let (book, _directory) = open_store(&rule("one", "['whole.parquet', 'b.bam']", "write = true"));
    for (path, expected) in [
        ("whole.parquet/part-0.parquet", "allowed"),
        ("b.bam", "allowed"),
        ("b.bam.bai", "hidden"),
        ("b.bai", "hidden"),
        ("a.bam", "hidden"),
        ("t.parquet/part-0.parquet", "hidden"),
    ] {
        assert_eq!(authorize_read(&book, path), expected, "{path}");
    }
    assert_eq!(
        authorization_name(book.authorize_file(&Principal::named("alice"), "b.bam", FileAccess::Write)),
        "allowed"
    );
}

#[test]
fn rules_with_samples_open_the_files() {
    let text = rule("one", "['**']", "samples = ['S1']") + &rule("texts", "['*.txt', 'c.bam']", "");
    let (book, _directory) = open_store(&text);
    for (path, expected) in
        [("a.bam", "allowed"), ("b.bam", "hidden"), ("c.bam", "hidden"), ("notes.txt", "allowed"), ("x.md", "hidden")]
    {
        assert_eq!(authorize_read(&book, path), expected, "{path}");
    }
    let catalog = book.authorized_catalog(&Principal::named("alice"), &book.catalog);
    assert_eq!(catalog.names().unwrap(), ["a.bam"]);
    assert!(matches!(catalog.open("b.bam"), Err(DatasetError::NotFound { .. })));
    assert!(matches!(catalog.open("c.bam"), Err(DatasetError::NotFound { .. })));
}

#[test]
fn a_denied_sample_hides_every_dataset_that_may_contain_it() {
    let text = rule("withdrawn", "['**']", "samples = ['S2']\ndeny = true") + &rule("rest", "['**']", "");
    let (book, _directory) = open_store(&text);
    for (path, expected) in [
        ("a.bam", "allowed"),
        ("a.bam.bai", "allowed"),
        ("a.bai", "allowed"),
        ("b.bam", "hidden"),
        ("b.bam.bai", "hidden"),
        ("c.bam", "hidden"),
        ("d.bam", "hidden"),
        ("d.bam.bai", "hidden"),
        ("d.bai", "hidden"),
        ("t.parquet/part-0.parquet", "hidden"),
        ("notes.txt", "allowed"),
    ] {
        assert_eq!(authorize_read(&book, path), expected, "{path}");
    }
    let catalog = book.authorized_catalog(&Principal::named("alice"), &book.catalog);
    assert_eq!(catalog.names().unwrap(), ["a.bam"]);
    for name in ["b.bam", "c.bam", "d.bam", "t.parquet"] {
        assert!(matches!(catalog.open(name), Err(DatasetError::NotFound { .. })), "{name}");
    }
    for (dataset, expected) in [
        ("b.bam", "rule 1, \"withdrawn\", denies it: the dataset contains a sample"),
        ("d.bam", "rule 1, \"withdrawn\", denies it: the dataset contains a sample"),
        ("t.parquet", "rule 1, \"withdrawn\", denies it: the samples in the dataset are unknown"),
        ("c.bam", "the dataset cannot be opened"),
    ] {
        let request =
            ExplainRequest { principal: "alice".to_owned(), dataset: dataset.to_owned(), ..ExplainRequest::default() };
        let explanation = explain(&book.policy(), book.catalog.clone(), &request).unwrap();
        assert!(!explanation.is_visible && explanation.text.contains(expected), "{}", explanation.text);
    }
}

/// A catalog with a dataset that is replaced after each attempt to open it: first it contains the sample S1, then S2.
#[derive(Debug, Default)]
struct ReplacedCatalog(AtomicUsize);

impl Catalog for ReplacedCatalog {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        Ok(vec!["a.bam".to_owned()])
    }

    fn open(&self, _: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        let sample = if self.0.fetch_add(1, Ordering::Relaxed) == 0 { "S1" } else { "S2" };
        Ok(Arc::new(TestReads { sample }))
    }

    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        Ok(name.to_owned())
    }
}

#[test]
fn the_dataset_that_is_shown_is_the_one_whose_samples_were_examined() {
    let text = rule("none", "['**']", "samples = ['S3']") + &rule("one", "['**']", "samples = ['S1']");
    let (book, _directory) = open_store(&text);
    let replaced: Arc<dyn Catalog> = Arc::new(ReplacedCatalog::default());
    let dataset = book.authorized_catalog(&Principal::named("alice"), &replaced).open("a.bam").unwrap();
    assert_eq!(crate::samples::dataset_samples(&*dataset).unwrap(), ["S1"]);
}

#[test]
fn a_policy_that_changes_is_read_again_and_one_that_is_broken_changes_nothing() {
    let (book, directory) = open_store(&rule("one", "['a.bam']", ""));
    let path = directory.path().join("policy.toml");
    assert!(book.reload_if_changed().is_none());
    let replace = |text: &str| {
        let aside = directory.path().join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(&aside, &path).unwrap();
    };
    replace("[[rule]]\nname = ");
    assert!(book.reload_if_changed().is_none(), "it may still be written");
    assert!(book.reload_if_changed().unwrap().is_err());
    assert!(book.reload_if_changed().is_none(), "it is told once");
    assert_eq!((authorize_read(&book, "a.bam"), authorize_read(&book, "b.bam")), ("allowed", "hidden"));
    replace(&rule("other", "['b.bam']", ""));
    assert!(book.reload_if_changed().is_none());
    assert_eq!(book.reload_if_changed().unwrap().unwrap().len(), 1);
    assert_eq!((authorize_read(&book, "a.bam"), authorize_read(&book, "b.bam")), ("hidden", "allowed"));
    fs::remove_file(&path).unwrap();
    assert!(book.reload_if_changed().is_none());
    assert!(book.reload_if_changed().unwrap().is_err());
    assert_eq!(authorize_read(&book, "b.bam"), "allowed");
}
