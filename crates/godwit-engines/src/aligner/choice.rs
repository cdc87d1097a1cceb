//! The value of `--aligner`.

use std::str::FromStr;

use super::BlockDependence;
use super::template::AlignerTemplate;
use crate::EngineError;

/// An aligner that the user can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlignerChoice {
    /// The fastest aligner with the records of bwa for which the machine has processor, memory and index.
    Auto,
    /// bwa mem 0.7.17.
    Bwa,
    /// bwa-mem3, which yields the records of bwa.
    BwaMem3,
    /// Another name for bwa-mem3, which loads the index of bwa-mem2.
    BwaMem2,
    /// minimap2, as a program.
    Minimap2,
    /// Any program, by a command line with placeholders.
    Template(AlignerTemplate),
}

impl AlignerChoice {
    /// Returns the name: the option value itself, or the template's program.
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

    /// Returns the value that `--aligner` accepts.
    pub fn option_value(&self) -> &str {
        match self {
            Self::Template(template) => template.text(),
            named => named.name(),
        }
    }

    /// Reports whether the records equal those of bwa mem 0.7.17.
    pub fn matches_bwa_records(&self) -> bool {
        matches!(self, Self::Auto | Self::Bwa | Self::BwaMem3 | Self::BwaMem2)
    }

    /// Returns the name of its kind of records: `bwa` for all with those records, else [`option_value`](Self::option_value).
    pub fn records_name(&self) -> &str {
        if self.matches_bwa_records() { Self::Bwa.name() } else { self.option_value() }
    }

    /// Returns whether it may carry state from read to read. Templates count as dependent.
    pub fn block_dependence(&self) -> BlockDependence {
        match self {
            Self::Template(_) => BlockDependence::Dependent,
            _ => BlockDependence::Independent,
        }
    }
}

impl FromStr for AlignerChoice {
    type Err = EngineError;

    /// Parses a value: a text with a space or a brace is a template, any other text is a name.
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
