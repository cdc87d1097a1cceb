//! The report and the qualities equal those of GATK 4.6.2.0 in `tests/golden/recalibration`, whose script makes the
//! expected files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use godwit_formats::sam::{Header, LineEncoder};
use godwit_formats::vcf;
use godwit_kernels::qc::ReferenceBases;
use godwit_model::{BASE_LETTERS, Genome, RawRecord};
use godwit_recalibrate::{
    KnownSites, KnownSitesBuilder, QualityOptions, ReadCounter, RecalibrationCounts, RecalibrationGroups, Recalibrator,
    RecordBuffers,
};

/// The inputs of the golden case.
struct Case {
    groups: RecalibrationGroups,
    contig_lengths: Vec<u32>,
    sites: KnownSites,
    reference: Reference,
    records: Vec<Vec<u8>>,
}

/// The 4-bit codes of the bases of all contigs.
#[derive(Clone)]
struct Reference(Vec<Vec<u8>>);

impl ReferenceBases for Reference {
    fn codes(&mut self, contig: i32, start: u32, end: u32) -> io::Result<&[u8]> {
        let codes = &self.0[contig as usize];
        Ok(&codes[(start as usize).min(codes.len())..(end as usize).min(codes.len())])
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/recalibration").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(golden(name)).expect("the golden file is in the repository")
}

fn read_sites(genome: &Genome) -> KnownSites {
    let mut sites = KnownSitesBuilder::new(genome.contigs().len());
    let mut reader = vcf::Reader::open(&golden("known.vcf"), 1).expect("a valid VCF");
    while let Some(record) = reader.next_record().expect("a valid VCF") {
        let contig = genome.contigs().iter().position(|contig| contig.name == record.contig).expect("a contig");
        sites.push(contig, record.position as u32, record.end_position() as u32);
    }
    sites.finish()
}

impl Case {
    fn load() -> Self {
        let text = read("reads.sam");
        let (header, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('@'));
        let header = Header::parse(header.join("\n").as_bytes()).expect("a valid header");
        let genome = header.genome().expect("valid contigs");
        let mut encoder = LineEncoder::new(&genome);
        let encode = |line: &str| {
            let mut record = Vec::new();
            encoder.encode(line.as_bytes(), &mut record).expect("a valid line");
            record
        };
        let groups = header.read_groups().expect("valid read groups");
        let groups = groups.iter().map(|group| {
            let unit = group.line.split('\t').find_map(|field| field.strip_prefix("PU:"));
            (group.id.as_str(), unit)
        });
        let codes = |letter: u8| {
            let letter = letter.to_ascii_uppercase();
            BASE_LETTERS.iter().position(|other| *other == letter).expect("a base") as u8
        };
        let fasta = read("reference.fa");
        let contigs = fasta.split('>').skip(1);
        let contigs = contigs.map(|contig| contig.lines().skip(1).flat_map(str::bytes).map(codes).collect());
        Self {
            groups: RecalibrationGroups::new(groups),
            contig_lengths: genome.contigs().iter().map(|contig| contig.length).collect(),
            sites: read_sites(&genome),
            reference: Reference(contigs.collect()),
            records: lines.into_iter().map(encode).collect(),
        }
    }

    /// Counts the records whose index has the remainder `part` when it is divided by `parts`.
    fn count(&self, part: usize, parts: usize, use_original: bool) -> RecalibrationCounts {
        let mut counter = ReadCounter::new(&self.groups, &self.contig_lengths, &self.sites, use_original);
        let mut reference = self.reference.clone();
        for record in self.records.iter().skip(part).step_by(parts) {
            let record = RawRecord::from_trusted_bytes(record);
            counter.add(record, record.flag(), &mut reference).expect("a read that GATK counts too");
        }
        counter.into_counts()
    }

    /// Recalibrates all records with `options`, and compares them with an expected file. Records that GATK drops must be
    /// unchanged.
    fn assert_qualities(&self, options: QualityOptions, expected: &str) {
        let counts = self.count(0, 1, options.use_original);
        let recalibrator = Recalibrator::new(&counts, &self.groups, self.contig_lengths.clone(), options);
        let text = read(expected);
        let mut expected: HashMap<(&str, u16), Vec<&str>> = HashMap::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t');
            let (name, flag) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            let rest = fields.next().unwrap_or_default();
            expected.entry((name, flag.parse().expect("a flag"))).or_default().push(rest);
        }
        let mut buffers = RecordBuffers::default();
        let mut compared = 0;
        for bytes in &self.records {
            let record = RawRecord::from_trusted_bytes(bytes);
            let changed = recalibrator.recalibrate(record, record.flag(), &mut buffers).expect("a read of GATK");
            let name = std::str::from_utf8(changed.name()).expect("an ASCII name");
            let Some(fields) = expected.get(&(name, changed.flag())) else {
                assert_eq!(changed.bytes(), &bytes[..], "{name} is changed, but GATK drops it");
                continue;
            };
            let mut found: String = changed.qualities().iter().map(|quality| char::from(quality + b'!')).collect();
            if fields[0].contains("\tOQ:Z:") {
                let (_, original) = changed.tag(*b"OQ").expect("a tag OQ");
                found += &format!("\tOQ:Z:{}", String::from_utf8_lossy(original));
            }
            assert!(fields.contains(&found.as_str()), "{name} {}:\n{found}\n{fields:?}", changed.flag());
            compared += 1;
        }
        assert_eq!(compared, text.lines().count());
    }
}

#[test]
fn the_report_is_that_of_gatk() {
    let report = Case::load().count(0, 1, false).to_report();
    let expected = read("expected.table");
    for (at, (found, expected)) in report.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {}", at + 1);
    }
    assert!(report == expected, "the reports differ in length");
}

#[test]
fn counts_of_parts_add_up_to_the_report_of_all_reads() {
    let case = Case::load();
    let whole = case.count(0, 1, false).to_report();
    let (mut merged, mut read) = (RecalibrationCounts::default(), RecalibrationCounts::default());
    for part in 0..3 {
        let counts = case.count(part, 3, false);
        read.add_report(&counts.to_report()).expect("a valid report");
        merged.merge(&counts);
    }
    assert!(merged.to_report() == whole, "merged counts give another report");
    assert!(read.to_report() == whole, "counts that were read from reports give another report");
}

#[test]
fn the_report_of_gatk_is_read() {
    let mut counts = RecalibrationCounts::default();
    counts.add_report(&read("expected.table")).expect("a valid report");
    assert!(counts.to_report() == read("expected.table"));
}

#[test]
fn qualities_are_those_of_gatk() {
    let case = Case::load();
    case.assert_qualities(QualityOptions::default(), "expected.default.tsv");
    let original = QualityOptions { use_original: true, ..QualityOptions::default() };
    case.assert_qualities(original, "expected.original.tsv");
}

#[test]
fn rounded_qualities_are_those_of_gatk() {
    let case = Case::load();
    let fixed = QualityOptions { static_levels: vec![10, 20, 30], emit_original: true, ..QualityOptions::default() };
    case.assert_qualities(fixed, "expected.static.tsv");
    let reduced = QualityOptions { quantizing_levels: Some(6), ..QualityOptions::default() };
    case.assert_qualities(reduced, "expected.quantized.tsv");
}
