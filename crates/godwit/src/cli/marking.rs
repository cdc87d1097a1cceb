//! Options of how duplicates are found, which `align` and `markdup` share.

use clap::{Args, ValueEnum};
use godwit_pipeline::{BarcodeTags, DuplicateMode, DuplicatePolicy, MarkingOptions, TaggingPolicy};

use super::values::parse_tag;

/// How records are sorted and duplicates found, and what becomes of them.
#[derive(Args)]
pub struct MarkingArgs {
    /// What to do with duplicates
    #[arg(long, value_enum, default_value_t = Duplicates::Mark, value_name = "POLICY")]
    pub duplicates: Duplicates,
    /// Greatest distance of optical duplicates, pixels (2500 for patterned flow cells)
    #[arg(long, value_name = "PIXELS", default_value_t = 100, value_parser = clap::value_parser!(i32).range(0..))]
    pub optical_distance: i32,
    /// What is marked: reads, as Picard does on coordinate-sorted input, or whole templates, as on query-grouped input
    #[arg(long, value_enum, default_value_t = Mode::Coordinate, value_name = "MODE")]
    pub duplicate_mode: Mode,
    /// Tell in tag DT of which kind duplicates are: LB of the library, SQ of sequencing (optical)
    #[arg(long, value_enum, default_value_t = Tagging::None, value_name = "POLICY")]
    pub tagging_policy: Tagging,
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
    /// The barcode is of both strands (AT-GA) and is swapped on the bottom strand
    #[arg(long, requires = "barcode_tag")]
    pub duplex_umi: bool,
    /// Tag to write each record's molecule to, such as MI
    #[arg(long, value_name = "TAG", value_parser = parse_tag, requires = "barcode_tag")]
    pub molecular_identifier_tag: Option<[u8; 2]>,
    /// Partitions of the genome that are sorted and written independently
    #[arg(long, value_name = "P", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub partitions: u32,
}

impl Default for MarkingArgs {
    /// What the command line has where nothing is said.
    fn default() -> Self {
        Self {
            duplicates: Duplicates::Mark,
            optical_distance: 100,
            duplicate_mode: Mode::Coordinate,
            tagging_policy: Tagging::None,
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
pub enum Duplicates {
    /// Set FLAG 0x400
    Mark,
    /// Leave them out
    Remove,
    /// Leave optical duplicates out, mark the others
    RemoveOptical,
    /// Do not look for them
    None,
}

impl From<Duplicates> for DuplicatePolicy {
    fn from(duplicates: Duplicates) -> Self {
        match duplicates {
            Duplicates::Mark => Self::Mark,
            Duplicates::Remove => Self::Remove,
            Duplicates::RemoveOptical => Self::RemoveOptical,
            Duplicates::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Mapped primary reads; ties are broken by coordinate order
    Coordinate,
    /// Every record of a duplicate's name; ties are broken by the order of the input
    Query,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tagging {
    /// No tags
    None,
    /// Optical duplicates only
    Optical,
    /// All duplicates
    All,
}

impl MarkingArgs {
    /// How duplicates are marked beyond policy and optical distance.
    pub fn marking(&self) -> MarkingOptions {
        MarkingOptions {
            mode: match self.duplicate_mode {
                Mode::Coordinate => DuplicateMode::Coordinate,
                Mode::Query => DuplicateMode::Query,
            },
            tagging: match self.tagging_policy {
                Tagging::None => TaggingPolicy::None,
                Tagging::Optical => TaggingPolicy::Optical,
                Tagging::All => TaggingPolicy::All,
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
