//! Options of duplicate marking, shared by `align` and `markdup`.

use clap::{Args, ValueEnum};
use godwit_kernels::markdup::{BarcodeTags, DuplicateMode};
use godwit_pipeline::{DuplicatePolicy, MarkingOptions, TaggingPolicy};

use super::value_parsers::parse_tag;

/// Options of sorting and duplicate marking.
#[derive(Args)]
pub struct MarkingArgs {
    /// Treatment of duplicates
    #[arg(long, value_enum, default_value_t = DuplicatePolicyName::Mark, value_name = "POLICY")]
    pub duplicates: DuplicatePolicyName,
    /// Greatest distance of optical duplicates, pixels (2500 for patterned flow cells)
    #[arg(long, value_name = "PIXELS", default_value_t = 100, value_parser = clap::value_parser!(i32).range(0..))]
    pub optical_distance: i32,
    /// Unit of marking: reads, as Picard does on coordinate-sorted input, or whole templates, as on query-grouped input
    #[arg(long, value_enum, default_value_t = DuplicateModeName::Coordinate, value_name = "MODE")]
    pub duplicate_mode: DuplicateModeName,
    /// Write the kind of a duplicate to tag DT: LB of the library, SQ of sequencing (optical)
    #[arg(long, value_enum, default_value_t = TaggingPolicyName::None, value_name = "POLICY")]
    pub tagging_policy: TaggingPolicyName,
    /// Tag the pairs of duplicate sets: DI names the set, DS is its number of pairs
    #[arg(long)]
    pub tag_duplicate_set_members: bool,
    /// Tag of a barcode that duplicates share, such as RX
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    pub barcode_tag: Option<[u8; 2]>,
    /// Tag of a barcode of read 1 that duplicates share
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    pub read_one_barcode_tag: Option<[u8; 2]>,
    /// Tag of a barcode of read 2 that duplicates share
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    pub read_two_barcode_tag: Option<[u8; 2]>,
    /// The barcode has both strands (AT-GA) and is swapped on the bottom strand
    #[arg(long, requires = "barcode_tag")]
    pub duplex_umi: bool,
    /// Tag in which the molecular identifier of each record is written, such as MI
    #[arg(long, value_name = "TAG", value_parser = parse_tag, requires = "barcode_tag")]
    pub molecular_identifier_tag: Option<[u8; 2]>,
    /// Partitions of the genome that are sorted and written independently
    #[arg(long, value_name = "P", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub partitions: u32,
}

impl Default for MarkingArgs {
    /// Returns the default values of the options.
    fn default() -> Self {
        Self {
            duplicates: DuplicatePolicyName::Mark,
            optical_distance: 100,
            duplicate_mode: DuplicateModeName::Coordinate,
            tagging_policy: TaggingPolicyName::None,
            tag_duplicate_set_members: false,
            barcode_tag: None,
            read_one_barcode_tag: None,
            read_two_barcode_tag: None,
            duplex_umi: false,
            molecular_identifier_tag: None,
            partitions: 128,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DuplicatePolicyName {
    /// Set FLAG 0x400
    Mark,
    /// Remove duplicates
    Remove,
    /// Remove optical duplicates, mark the others
    RemoveOptical,
    /// Do not mark duplicates
    None,
}

impl From<DuplicatePolicyName> for DuplicatePolicy {
    fn from(duplicates: DuplicatePolicyName) -> Self {
        match duplicates {
            DuplicatePolicyName::Mark => Self::Mark,
            DuplicatePolicyName::Remove => Self::Remove,
            DuplicatePolicyName::RemoveOptical => Self::RemoveOptical,
            DuplicatePolicyName::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DuplicateModeName {
    /// Mapped primary reads; ties are broken by coordinate order
    Coordinate,
    /// Every record of a duplicate's name; ties are broken by the order of the input
    Query,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TaggingPolicyName {
    /// No tags
    None,
    /// Optical duplicates only
    Optical,
    /// All duplicates
    All,
}

impl MarkingArgs {
    /// Converts the options of duplicate marking, except the duplicate policy and the optical distance.
    pub(crate) fn marking_options(&self) -> MarkingOptions {
        MarkingOptions {
            mode: match self.duplicate_mode {
                DuplicateModeName::Coordinate => DuplicateMode::Coordinate,
                DuplicateModeName::Query => DuplicateMode::Query,
            },
            tagging: match self.tagging_policy {
                TaggingPolicyName::None => TaggingPolicy::None,
                TaggingPolicyName::Optical => TaggingPolicy::Optical,
                TaggingPolicyName::All => TaggingPolicy::All,
            },
            tag_set_members: self.tag_duplicate_set_members,
            barcodes: BarcodeTags {
                molecule: self.barcode_tag,
                read1: self.read_one_barcode_tag,
                read2: self.read_two_barcode_tag,
                duplex: self.duplex_umi,
            },
            molecule_tag: self.molecular_identifier_tag,
        }
    }
}
