//! INFO fields with the outcome of a record, for the annotated and the combined files.

use crate::evaluation::SegmentVerdicts;
use crate::number_format::three_digits;
use crate::outcome::{CallOutcome, TruthOutcome};
use crate::search::{CALLS, TRUTH};

/// Largest difference of a weight from 1 that is not reported.
const WEIGHT_TOLERANCE: f64 = 0.001;

/// INFO keys that are removed from the input, because the comparison adds them.
pub(super) const OWN_KEYS: [&str; 4] = ["SYNC", "BASE", "CALL", "CALL_WEIGHT"];

/// INFO fields in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct InfoFields(Vec<(&'static str, String)>);

impl InfoFields {
    /// Returns the fields as keys and values.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(key, value)| (*key, value.as_str())).collect()
    }

    /// Adds the outcome of a record of the truth; `variant` is `None` if the record is not used.
    pub(super) fn add_truth(&mut self, verdicts: &SegmentVerdicts, variant: Option<usize>) {
        let Some(index) = variant else {
            self.0.push(("BASE", "IGN".to_owned()));
            return;
        };
        let (status, section) = match verdicts.truth_outcome(index) {
            TruthOutcome::TooComplex => ("HARD", None),
            TruthOutcome::Outside => ("OUT", None),
            TruthOutcome::GenotypeMatch => ("TP", Some(verdicts.genotype_section(TRUTH, index))),
            TruthOutcome::AlleleMatch => ("FN_CA", Some(verdicts.allele_section(TRUTH, index))),
            TruthOutcome::Missed => ("FN", Some(verdicts.last_section(TRUTH, index))),
        };
        self.add_section(section);
        self.0.push(("BASE", status.to_owned()));
    }

    /// Adds the outcome of a call; `variant` is `None` if the record is not used.
    pub(super) fn add_call(&mut self, verdicts: &SegmentVerdicts, variant: Option<usize>) {
        let Some(index) = variant else {
            self.0.push(("CALL", "IGN".to_owned()));
            return;
        };
        let counted = |weight: f64, status| if weight > 0.0 { (status, Some(weight)) } else { ("OUT", None) };
        let ((status, weight), section) = match verdicts.call_outcome(index) {
            CallOutcome::TooComplex => (("HARD", None), None),
            CallOutcome::GenotypeMatch { weight } => {
                (counted(weight, "TP"), Some(verdicts.genotype_section(CALLS, index)))
            }
            CallOutcome::AlleleMatch { weight } => {
                (counted(weight, "FP_CA"), Some(verdicts.allele_section(CALLS, index)))
            }
            CallOutcome::Outside => (("OUT", None), None),
            CallOutcome::False => (("FP", None), Some(verdicts.last_section(CALLS, index))),
        };
        self.add_section(section);
        if let Some(weight) = weight.filter(|weight| (weight - 1.0).abs() > WEIGHT_TOLERANCE) {
            self.0.push(("CALL_WEIGHT", three_digits(weight)));
        }
        self.0.push(("CALL", status.to_owned()));
    }

    /// Adds a sync section to the sections of the record, unless the record has it already.
    fn add_section(&mut self, section: Option<i32>) {
        let Some(section) = section.map(|section| section.to_string()) else { return };
        match self.0.iter_mut().find(|(key, _)| *key == "SYNC") {
            Some((_, sections)) if *sections != section => *sections += &format!(",{section}"),
            Some(_) => {}
            None => self.0.push(("SYNC", section)),
        }
    }
}
