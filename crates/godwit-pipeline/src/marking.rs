//! How duplicates are marked beyond the default, in Picard's terms.

use arrow_array::BinaryArray;
use godwit_kernels::markdup::{BarcodeError, BarcodeTags, BlockDetails, DuplicateMode};
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::error::PipelineError;
use crate::reduce::DuplicatePolicy;

/// Which duplicates get a `DT` tag: `LB` for those of the library, `SQ` for optical ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaggingPolicy {
    /// None (`TAGGING_POLICY=DontTag`).
    #[default]
    None,
    /// Optical ones (`OpticalOnly`).
    Optical,
    /// All (`All`).
    All,
}

/// Options of duplicate marking that are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkingOptions {
    /// What is marked: reads or whole templates.
    pub mode: DuplicateMode,
    /// Who gets a `DT` tag.
    pub tagging: TaggingPolicy,
    /// Tag members of duplicate sets with `DI` and `DS`.
    pub tag_set_members: bool,
    /// Barcodes that duplicates share.
    pub barcodes: BarcodeTags,
    /// Tag to write the molecule of each record to.
    pub molecule_tag: Option<[u8; 2]>,
}

impl MarkingOptions {
    /// Checks that the options go together.
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

    /// The options that are not the default, as on the command line: empty, or led by a space.
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

    /// Whether optical duplicates have to be told from others.
    pub(crate) fn tells_optical(&self, policy: DuplicatePolicy) -> bool {
        self.tagging != TaggingPolicy::None || policy == DuplicatePolicy::RemoveOptical
    }

    /// Whether signatures are not enough.
    pub(crate) fn wants_details(&self) -> bool {
        self.mode == DuplicateMode::Query || self.barcodes.is_any()
    }

    /// Whether details are of so many records, as far as these options need them.
    pub(crate) fn fits(&self, details: &BlockDetails, records: u64) -> bool {
        let templates = self.mode != DuplicateMode::Query || u64::from(details.templates.records()) == records;
        templates && (!self.barcodes.is_any() || details.barcodes.len() as u64 == records)
    }

    /// What these options need to know of the records of a block; nothing where they are the default.
    pub(crate) fn details(&self, chunks: &[BinaryArray]) -> Result<BlockDetails, BarcodeError> {
        let mut details = BlockDetails::default();
        if !self.wants_details() {
            return Ok(details);
        }
        let (by_template, barcodes) = (self.mode == DuplicateMode::Query, self.barcodes.is_any());
        for record in chunks.iter().flat_map(|chunk| chunk.iter().flatten()).map(RawRecord::trusted) {
            if by_template {
                details.templates.push(record);
            }
            if barcodes {
                let judged = record.flag() & (flags::UNMAPPED | flags::NOT_PRIMARY) == 0;
                details.barcodes.push(if judged { self.barcodes.of(record)? } else { Default::default() });
            }
        }
        Ok(details)
    }
}
