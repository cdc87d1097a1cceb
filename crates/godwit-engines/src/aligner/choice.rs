//! The value of `--aligner`.

use std::str::FromStr;

use super::BlockDependence;
use super::template::AlignerTemplate;
use crate::EngineError;

/// An aligner that the user can select with `--aligner`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlignerChoice {
    /// The fastest aligner that yields the records of bwa. It must suit the processor, the free memory and the existing
    /// index files of the machine.
    Auto,
    /// bwa mem 0.7.17.
    Bwa,
    /// bwa-mem3, which yields the same records as bwa mem.
    BwaMem3,
    /// An alias of bwa-mem3, which loads the index of bwa-mem2.
    BwaMem2,
    /// An installed minimap2, run as an external program.
    Minimap2,
    /// Any external aligner, given as a command line with placeholders.
    Template(AlignerTemplate),
}

impl AlignerChoice {
    /// Returns the name of the aligner: the value of `--aligner`, or the program name of a template.
    pub fn name(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::Bwa => "bwa",
            Self::BwaMem3 => "bwa-mem3",
            Self::BwaMem2 => "bwa-mem2",
            Self::Minimap2 => "minimap2",
            Self::Template(template) => template.program_name(),
        }
    }

    /// Returns the value of `--aligner` that selects this aligner.
    pub fn option_value(&self) -> &str {
        match self {
            Self::Template(template) => template.text(),
            named => named.name(),
        }
    }

    /// Returns whether the aligner yields the same records as bwa mem 0.7.17.
    pub(crate) fn matches_bwa_records(&self) -> bool {
        matches!(self, Self::Auto | Self::Bwa | Self::BwaMem3 | Self::BwaMem2)
    }

    /// Returns the name of the records that the aligner yields: `bwa` if they equal those of bwa mem, else
    /// [`option_value`](Self::option_value).
    pub fn records_name(&self) -> &str {
        if self.matches_bwa_records() { Self::Bwa.name() } else { self.option_value() }
    }

    /// Returns whether the records of a read may depend on earlier reads. Every template counts as dependent.
    pub fn block_dependence(&self) -> BlockDependence {
        match self {
            Self::Template(_) => BlockDependence::Dependent,
            _ => BlockDependence::Independent,
        }
    }
}

impl FromStr for AlignerChoice {
    type Err = EngineError;

    /// Parses the value of `--aligner`. A text with a space or an opening brace is a template; any other text is a
    /// name.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text {
            "auto" => Ok(Self::Auto),
            "bwa" => Ok(Self::Bwa),
            "bwa-mem3" => Ok(Self::BwaMem3),
            "bwa-mem2" => Ok(Self::BwaMem2),
            "minimap2" => Ok(Self::Minimap2),
            _ if text.contains([' ', '{']) => AlignerTemplate::parse(text).map(Self::Template),
            _ => Err(EngineError::Arguments {
                message: format!(
                    "{text:?} is none of auto, bwa, bwa-mem3 and minimap2, and not a command line such as 'bowtie2 -x \
                     {{index}} --interleaved {{reads}}'"
                ),
            }),
        }
    }
}
