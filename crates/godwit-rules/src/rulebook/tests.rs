use std::fs;

use arrow_schema::{Schema, SchemaRef};
use godwit_flight::{BatchReader, Kind, Part, Scan};
use godwit_model::schema::columnar;

use super::*;

/// A dataset of one sample, or none that anybody can open.
#[derive(Debug)]
struct Reads {
    sample: &'static str,
}

impl Dataset for Reads {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn schema(&self) -> SchemaRef {
        let header = format!("@RG\tID:g\tSM:{}\n", self.sample);
        Arc::new(Schema::new_with_metadata(
            Vec::<arrow_schema::Field>::new(),
            [(columnar::HEADER_KEY.to_owned(), header)].into(),
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

    fn parts(&self, _: &Scan, _: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(Vec::new())
    }

    fn read(&self, _: &Scan, _: &Part) -> Result<BatchReader, DatasetError> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// Names, each with its sample; `broken` cannot be opened.
#[derive(Debug)]
struct Names(Vec<(&'static str, &'static str)>);

impl Catalog for Names {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        Ok(self.0.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        match self.0.iter().find(|(known, _)| *known == name) {
            Some((_, "broken")) => Err(DatasetError::Data("nonsense".into())),
            Some((_, sample)) => Ok(Arc::new(Reads { sample })),
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

fn book(policy: &str) -> (Rulebook, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, policy).unwrap();
    let names = [("a.bam", "S1"), ("b.bam", "S2"), ("c.bam", "broken"), ("t.parquet", ""), ("whole.parquet", "")];
    (Rulebook::open(&path, Arc::new(Names(names.into()))).unwrap(), directory)
}

fn rule(name: &str, datasets: &str, rest: &str) -> String {
    format!("[[rule]]\nname = '{name}'\nwho = ['alice']\ndatasets = {datasets}\n{rest}\n")
}

fn read(book: &Rulebook, path: &str) -> &'static str {
    said(book.file(&Caller::named("alice"), path, FileUse::Read))
}

fn said(verdict: FileVerdict) -> &'static str {
    match verdict {
        FileVerdict::Allowed(_) => "allowed",
        FileVerdict::Hidden => "hidden",
        FileVerdict::Refused { .. } => "refused",
    }
}

#[test]
fn what_belongs_to_a_masked_dataset_is_not_had_by_another_rule() {
    let text = rule("part", "['a.bam', 't.parquet']", "regions = ['chr1']") + &rule("rest", "['**']", "");
    let (book, _directory) = book(&text);
    for (path, expected) in [
        ("a.bam", "refused"),
        ("./a.bam", "refused"),
        ("/a.bam/", "refused"),
        ("a.bam.bai", "refused"),
        ("a.bam.bai.gz", "refused"),
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
        assert_eq!(read(&book, path), expected, "{path}");
    }
    assert_eq!(said(book.file(&Caller::named("bob"), "b.bam", FileUse::Read)), "hidden");
    assert_eq!(said(book.file(&Caller::default(), "b.bam", FileUse::Read)), "hidden");
    assert_eq!(said(book.file(&Caller::named("alice"), "b.bam", FileUse::Write)), "refused");
}

#[test]
fn the_rule_of_a_dataset_is_that_of_its_parts_and_its_index_needs_one_of_its_own() {
    let (book, _directory) = book(&rule("one", "['whole.parquet', 'b.bam']", "write = true"));
    for (path, expected) in [
        ("whole.parquet/part-0.parquet", "allowed"),
        ("b.bam", "allowed"),
        ("b.bam.bai", "hidden"),
        ("a.bam", "hidden"),
        ("t.parquet/part-0.parquet", "hidden"),
    ] {
        assert_eq!(read(&book, path), expected, "{path}");
    }
    assert_eq!(said(book.file(&Caller::named("alice"), "b.bam", FileUse::Write)), "allowed");
}

#[test]
fn rules_that_ask_for_samples_look_into_files() {
    let text = rule("one", "['**']", "samples = ['S1']") + &rule("texts", "['*.txt', 'c.bam']", "");
    let (book, _directory) = book(&text);
    for (path, expected) in
        [("a.bam", "allowed"), ("b.bam", "hidden"), ("c.bam", "hidden"), ("notes.txt", "allowed"), ("x.md", "hidden")]
    {
        assert_eq!(read(&book, path), expected, "{path}");
    }
    let catalog = book.view(&Caller::named("alice"), &book.catalog);
    assert_eq!(catalog.names().unwrap(), ["a.bam"]);
    assert!(matches!(catalog.open("b.bam"), Err(DatasetError::NotFound { .. })));
    assert!(matches!(catalog.open("c.bam"), Err(DatasetError::NotFound { .. })));
}

#[test]
fn a_policy_that_changes_is_read_again_and_one_that_is_broken_changes_nothing() {
    let (book, directory) = book(&rule("one", "['a.bam']", ""));
    let path = directory.path().join("policy.toml");
    assert!(book.refresh().is_none());
    let replace = |text: &str| {
        let aside = directory.path().join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(&aside, &path).unwrap();
    };
    replace("[[rule]]\nname = ");
    assert!(book.refresh().is_none(), "it may still be written");
    assert!(book.refresh().unwrap().is_err());
    assert!(book.refresh().is_none(), "it is told once");
    assert_eq!((read(&book, "a.bam"), read(&book, "b.bam")), ("allowed", "hidden"));
    replace(&rule("other", "['b.bam']", ""));
    assert!(book.refresh().is_none());
    assert_eq!(book.refresh().unwrap().unwrap().len(), 1);
    assert_eq!((read(&book, "a.bam"), read(&book, "b.bam")), ("hidden", "allowed"));
    fs::remove_file(&path).unwrap();
    assert!(book.refresh().is_none());
    assert!(book.refresh().unwrap().is_err());
    assert_eq!(read(&book, "b.bam"), "allowed");
}
