//! The annotated files: the records of both sides with their outcome in INFO.

use super::info_fields::{InfoFields, OWN_KEYS};
use crate::evaluation::{Contig, SegmentVerdicts};
use crate::outcome::VariantCursor;
use crate::search::{CALLS, TRUTH};

/// Returns the text of the files of the truth and of the call set.
pub(super) fn write(contig: &Contig, verdicts: &SegmentVerdicts) -> Vec<Vec<u8>> {
    let file = |side: usize| {
        let mut text = Vec::new();
        let mut cursor = VariantCursor::new(&verdicts.sides[side]);
        for number in verdicts.records[side].clone() {
            let record = contig.records[side].record(number);
            let mut fields = InfoFields::default();
            let variant = cursor.variant_of(number);
            match side {
                CALLS => fields.add_call(verdicts, variant),
                _ => fields.add_truth(verdicts, variant),
            }
            record.write_to(&mut text, &OWN_KEYS, &fields.pairs());
        }
        text
    };
    vec![file(TRUTH), file(CALLS)]
}
