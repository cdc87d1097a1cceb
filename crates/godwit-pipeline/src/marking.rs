//! Options of duplicate marking beyond the default, in Picard's terms.

use arrow_array::BinaryArray;
use godwit_kernels::markdup::{BarcodeError, BarcodeTags, BlockDetails, DuplicateMode};
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::error::PipelineError;
use crate::reduce::DuplicatePolicy;

/// Duplicates that get a `DT` tag: `LB` for those of the library, `SQ` for optical ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaggingPolicy {
    /// No duplicates (`TAGGING_POLICY=DontTag`).
    #[default]
    None,
    /// Optical duplicates (`OpticalOnly`).
    Optical,
    /// All duplicates (`All`).
    All,
}

/// Options of duplicate marking that are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkingOptions {
    /// Unit of marking: reads or whole templates.
    pub mode: DuplicateMode,
    /// Duplicates that get a `DT` tag.
    pub tagging: TaggingPolicy,
    /// Tag members of duplicate sets with `DI` and `DS`.
    pub tag_set_members: bool,
    /// Barcodes that duplicates share.
    pub barcodes: BarcodeTags,
    /// Tag to write the molecule of each record to.
    pub molecule_tag: Option<[u8; 2]>,
}

impl MarkingOptions {
    /// Checks that the options are compatible.
    pub(crate) fn check(&self, policy: DuplicatePolicy) -> Result<(), PipelineError> {
        let problem = if policy == DuplicatePolicy::None && *self != Self::default() {
            "--duplicates none looks for no duplicates, so options on how to mark them have no effect; leave them out"
        } else if self.barcodes.molecule.is_none() && (self.barcodes.duplex || self.molecule_tag.is_some()) {
            "--duplex-umi and --molecular-identifier-tag need --barcode-tag"
        } else {
            return Ok(());
        };
        Err(PipelineError::Options { problem: problem.to_owned() })
    }

    /// Returns the options that are not the default, as on the command line: empty, or starting with a space.
    pub(crate) fn command_line(&self) -> String {
        let mut line = String::new();
        if self.mode == DuplicateMode::Query {
            line += " --duplicate-mode query";
        }
        line += match self.tagging {
            TaggingPolicy::None => "",
            TaggingPolicy::Optical => " --tagging-policy optical",
            TaggingPolicy::All => " --tagging-policy all",
        };
        if self.tag_set_members {
            line += " --tag-duplicate-set-members";
        }
        for (option, tag) in [
            ("--barcode-tag", self.barcodes.molecule),
            ("--read-one-barcode-tag", self.barcodes.read1),
            ("--read-two-barcode-tag", self.barcodes.read2),
            ("--molecular-identifier-tag", self.molecule_tag),
        ] {
            if let Some(tag) = tag {
                line += &format!(" {option} {}", String::from_utf8_lossy(&tag));
            }
        }
        if self.barcodes.duplex {
            line += " --duplex-umi";
        }
        line
    }

    /// Reports whether optical duplicates have to be distinguished from others.
    pub(crate) fn separates_optical(&self, policy: DuplicatePolicy) -> bool {
        self.tagging != TaggingPolicy::None || policy == DuplicatePolicy::RemoveOptical
    }

    /// Reports whether marking needs more than signatures.
    pub(crate) fn needs_details(&self) -> bool {
        self.mode == DuplicateMode::Query || self.barcodes.has_any()
    }

    /// Reports whether details are of `records` records, as far as these options need them.
    pub(crate) fn matches_details(&self, details: &BlockDetails, records: u64) -> bool {
        let templates = self.mode != DuplicateMode::Query || u64::from(details.templates.record_count()) == records;
        templates && (!self.barcodes.has_any() || details.barcodes.len() as u64 == records)
    }

    /// Returns the details that these options need of the records of a block; empty where they are the default.
    pub(crate) fn block_details(&self, chunks: &[BinaryArray]) -> Result<BlockDetails, BarcodeError> {
        let mut details = BlockDetails::default();
        if !self.needs_details() {
            return Ok(details);
        }
        let (by_template, barcodes) = (self.mode == DuplicateMode::Query, self.barcodes.has_any());
        for record in chunks.iter().flat_map(|chunk| chunk.iter().flatten()).map(RawRecord::from_trusted_bytes) {
            if by_template {
                details.templates.push(record);
            }
            if barcodes {
                let judged = record.flag() & (flags::UNMAPPED | flags::NOT_PRIMARY) == 0;
                details.barcodes.push(if judged {
                    self.barcodes.barcodes_of_record(record)?
                } else {
                    Default::default()
                });
            }
        }
        Ok(details)
    }
}
