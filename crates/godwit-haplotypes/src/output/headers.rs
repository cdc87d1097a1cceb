//! Headers of the input and output files.

use std::path::Path;

use godwit_formats::vcf::Header;

use crate::comparison_options::{OutputMode, SampleChoice};
use crate::error::HaplotypeError;
use crate::search::{CALLS, TRUTH};

/// INFO lines that the annotated and the combined files add.
const SYNC_LINE: &str = r#"##INFO=<ID=SYNC,Number=.,Type=Integer,Description="Sync section of the contig; of both sides where they differ">"#;
const BASE_LINE: &str =
    r#"##INFO=<ID=BASE,Number=1,Type=String,Description="Outcome of the truth: TP, FN, FN_CA, OUT, HARD, IGN">"#;
const CALL_LINE: &str =
    r#"##INFO=<ID=CALL,Number=1,Type=String,Description="Outcome of the call: TP, FP, FP_CA, OUT, HARD, IGN">"#;
const CALL_WEIGHT_LINE: &str = r#"##INFO=<ID=CALL_WEIGHT,Number=1,Type=Float,Description="Number of truth variants that the call stands for; 1 if missing">"#;
const GENOTYPE_LINE: &str = r#"##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">"#;
const GA4GH_LINES: [&str; 5] = [
    r#"##INFO=<ID=BS,Number=.,Type=Integer,Description="Sync section of the contig; of both sides where they differ">"#,
    r#"##FORMAT=<ID=BD,Number=1,Type=String,Description="Decision: TP, FP, FN, or N for records that are not judged">"#,
    r#"##FORMAT=<ID=BK,Number=1,Type=String,Description="Kind of match: gm, am, lm, or missing for none">"#,
    r#"##FORMAT=<ID=BI,Number=1,Type=String,Description="Reason or detail of the decision">"#,
    r#"##FORMAT=<ID=QQ,Number=1,Type=Float,Description="Score of the call">"#,
];
const COLUMNS: &str = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT";

/// The header of an input file.
#[derive(Clone, Debug)]
pub(crate) struct VcfHeader {
    lines: Vec<String>,
    columns: String,
}

impl VcfHeader {
    pub(crate) fn new(header: &Header) -> Self {
        let mut lines: Vec<String> = header.text().lines().map(str::to_owned).collect();
        let columns = lines.pop().unwrap_or_default();
        Self { lines, columns }
    }

    /// Returns the names of the samples.
    pub(crate) fn samples(&self) -> Vec<&str> {
        self.columns.split('\t').skip(9).collect()
    }

    /// Returns the names of the contigs that the header declares.
    pub(crate) fn contigs(&self) -> impl Iterator<Item = &str> {
        let fields = self.lines.iter().filter_map(|line| line.strip_prefix("##contig=<"));
        fields.filter_map(|fields| fields.split([',', '>']).find_map(|field| field.strip_prefix("ID=")))
    }

    /// Returns the index of a sample; `None` to use all alternates.
    ///
    /// # Errors
    /// [`HaplotypeError::Options`] if the sample does not exist, or the file has several and none is named.
    pub(crate) fn sample_index(&self, choice: &SampleChoice, path: &Path) -> Result<Option<usize>, HaplotypeError> {
        let samples = self.samples();
        let failed = |problem: &str| {
            let names = samples.iter().take(5).copied().collect::<Vec<_>>().join(", ");
            let problem = format!("{} {problem}; its samples: {names}", path.display());
            HaplotypeError::Options { problem }
        };
        match choice {
            SampleChoice::AllAlternates => Ok(None),
            SampleChoice::Name(name) => match samples.iter().position(|sample| sample == name) {
                Some(index) => Ok(Some(index)),
                None => Err(failed(&format!("has no sample {name:?}"))),
            },
            SampleChoice::Preferred(name) if samples.len() > 1 => {
                self.sample_index(&SampleChoice::Name(name.clone()), path)
            }
            SampleChoice::Only | SampleChoice::Preferred(_) => match samples.len() {
                1 => Ok(Some(0)),
                0 => Err(HaplotypeError::Options {
                    problem: format!("{} has no samples; name ALT as its sample with --sample", path.display()),
                }),
                _ => Err(failed("has several samples; name one of them with --sample")),
            },
        }
    }

    fn lines_of(&self, kind: &str) -> impl Iterator<Item = String> {
        let prefix = format!("##{kind}=");
        self.lines.iter().filter(move |line| line.starts_with(&prefix)).cloned()
    }

    /// Returns the text of the header with lines that it does not have yet.
    fn text_with(&self, added: &[&str]) -> String {
        let key = |line: &str| line.split(',').next().unwrap_or_default().to_owned();
        let is_missing = |line: &&&str| !self.lines.iter().any(|own| key(own) == key(line));
        let added = added.iter().filter(is_missing).map(|line| (*line).to_owned());
        let lines: Vec<String> = self.lines.iter().cloned().chain(added).chain([self.columns.clone()]).collect();
        lines.join("\n") + "\n"
    }
}

/// Returns the headers of the files of [`super::file_names`].
pub(crate) fn output_headers(output: OutputMode, file_count: usize, headers: [&VcfHeader; 2]) -> Vec<String> {
    let [calls, truth] = [headers[CALLS], headers[TRUTH]];
    let joined = |lines: Vec<String>, samples: &str| {
        let lines = ["##fileformat=VCFv4.2".to_owned()].into_iter().chain(lines);
        lines.chain([format!("{COLUMNS}\t{samples}\n")]).collect::<Vec<_>>().join("\n")
    };
    let texts = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    match output {
        // Files with an odd index contain records of the truth.
        OutputMode::Split => (0..file_count).map(|file| [calls, truth][file % 2].text_with(&[])).collect(),
        OutputMode::Annotate => {
            vec![truth.text_with(&[SYNC_LINE, BASE_LINE]), calls.text_with(&[SYNC_LINE, CALL_LINE, CALL_WEIGHT_LINE])]
        }
        OutputMode::Combine => {
            let own = texts(&[SYNC_LINE, BASE_LINE, CALL_LINE, CALL_WEIGHT_LINE, GENOTYPE_LINE]);
            vec![joined(truth.lines_of("contig").chain(own).collect(), "BASELINE\tCALLS")]
        }
        OutputMode::Ga4gh => {
            let own = texts(&GA4GH_LINES).into_iter().chain([GENOTYPE_LINE.to_owned()]);
            let lines = truth.lines_of("contig").chain(calls.lines_of("FILTER")).chain(own);
            vec![joined(lines.collect(), "TRUTH\tQUERY")]
        }
        OutputMode::RocOnly => Vec::new(),
    }
}
