//! Options of duplicate marking. They correspond to options of Picard MarkDuplicates.

use arrow_array::BinaryArray;
use godwit_kernels::markdup::{BarcodeError, BarcodeTags, BlockDetails, DuplicateMode};
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::error::PipelineError;

/// The treatment of duplicate records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicatePolicy {
    /// FLAG 0x400 is set on duplicates and cleared on all other records.
    Mark,
    /// Duplicates are removed.
    Remove,
    /// Optical duplicates are removed; other duplicates are marked (Picard's `REMOVE_SEQUENCING_DUPLICATES`).
    RemoveOptical,
    /// Duplicates are not searched, and the FLAG of records is not changed.
    None,
}

impl DuplicatePolicy {
    /// Returns the name of the policy in the options of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Remove => "remove",
            Self::RemoveOptical => "remove-optical",
            Self::None => "none",
        }
    }
}

/// The duplicates that receive a `DT` tag. Its value is `LB` for library duplicates and `SQ` for optical duplicates.
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
    /// The unit of duplicate marking: single reads, or all records of a template.
    pub mode: DuplicateMode,
    /// The duplicates that receive a `DT` tag.
    pub tagging: TaggingPolicy,
    /// True to add the tags `DI` and `DS` to the members of duplicate sets.
    pub tag_set_members: bool,
    /// Tags with barcodes that must be equal for reads to be duplicates.
    pub barcodes: BarcodeTags,
    /// Name of the tag for the identifier of the molecule of each record; `None`: no tag is written.
    pub molecule_tag: Option<[u8; 2]>,
}

impl MarkingOptions {
    /// Checks that the options do not contradict each other or the duplicate policy.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if they do.
    pub fn check(&self, policy: DuplicatePolicy) -> Result<(), PipelineError> {
        let problem = if policy == DuplicatePolicy::None && *self != Self::default() {
            "--duplicates none marks no duplicates, so options for marking have no effect; omit them"
        } else if self.barcodes.molecule.is_none() && (self.barcodes.duplex || self.molecule_tag.is_some()) {
            "--duplex-umi and --molecular-identifier-tag need --barcode-tag"
        } else {
            return Ok(());
        };
        Err(PipelineError::Options { problem: problem.to_owned() })
    }

    /// Returns the options that differ from the default, as a command line. The text is empty or starts with a space.
    pub fn command_line(&self) -> String {
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

    /// Reports whether duplicate marking has to distinguish optical duplicates from library duplicates.
    pub fn separates_optical(&self, policy: DuplicatePolicy) -> bool {
        self.tagging != TaggingPolicy::None || policy == DuplicatePolicy::RemoveOptical
    }

    /// Reports whether duplicate marking needs template data or barcodes in addition to signatures.
    pub(crate) fn needs_details(&self) -> bool {
        self.mode == DuplicateMode::Query || self.barcodes.has_any()
    }

    /// Reports whether `details` describe `records` records, as far as these options use the details.
    pub(crate) fn matches_details(&self, details: &BlockDetails, records: u64) -> bool {
        let templates = self.mode != DuplicateMode::Query || u64::from(details.templates.record_count()) == records;
        templates && (!self.barcodes.has_any() || details.barcodes.len() as u64 == records)
    }

    /// Returns the details of the records of a block that these options need: templates and barcodes. Both are empty
    /// for default options.
    ///
    /// # Errors
    /// [`BarcodeError`] if a barcode of a record is not valid.
    pub fn block_details(&self, chunks: &[BinaryArray]) -> Result<BlockDetails, BarcodeError> {
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
