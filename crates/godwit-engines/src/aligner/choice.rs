//! The word for `--aligner`.

use std::str::FromStr;

use super::Identity;
use super::template::CommandTemplate;
use crate::EngineError;

/// Which aligner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlignerChoice {
    /// The fastest aligner with the records of bwa for which the machine has processor, memory and index.
    Auto,
    /// bwa mem 0.7.17.
    Bwa,
    /// bwa-mem3, which gives the records of bwa.
    BwaMem3,
    /// Another name for bwa-mem3, which loads the index of bwa-mem2.
    BwaMem2,
    /// minimap2, the program.
    Minimap2,
    /// Any program, by a command line with open places.
    Template(CommandTemplate),
}

impl AlignerChoice {
    /// Its name: the word itself, or the template's program.
    pub fn name(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::Bwa => "bwa",
            Self::BwaMem3 => "bwa-mem3",
            Self::BwaMem2 => "bwa-mem2",
            Self::Minimap2 => "minimap2",
            Self::Template(template) => template.name(),
        }
    }

    /// As `--aligner` takes it.
    pub fn text(&self) -> &str {
        match self {
            Self::Template(template) => template.text(),
            named => named.name(),
        }
    }

    /// Returns whether the records equal those of bwa mem 0.7.17.
    pub fn has_records_of_bwa(&self) -> bool {
        matches!(self, Self::Auto | Self::Bwa | Self::BwaMem3 | Self::BwaMem2)
    }

    /// The name that stands for its records: `bwa` for all that have those, else [`text`](Self::text).
    pub fn records_text(&self) -> &str {
        if self.has_records_of_bwa() { Self::Bwa.name() } else { self.text() }
    }

    /// What it may keep from read to read. Of a template nothing is known.
    pub fn identity(&self) -> Identity {
        match self {
            Self::Template(_) => Identity::SingleStream,
            _ => Identity::AcrossBlocks,
        }
    }
}

impl FromStr for AlignerChoice {
    type Err = EngineError;

    /// A word alone is a name; anything with a space or a brace is a template.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text {
            "auto" => Ok(Self::Auto),
            "bwa" => Ok(Self::Bwa),
            "bwa-mem3" => Ok(Self::BwaMem3),
            "bwa-mem2" => Ok(Self::BwaMem2),
            "minimap2" => Ok(Self::Minimap2),
            _ if text.contains([' ', '{']) => CommandTemplate::parse(text).map(Self::Template),
            _ => Err(EngineError::Arguments {
                message: format!(
                    "{text:?} is none of auto, bwa, bwa-mem3 and minimap2, and not a command line such as 'bowtie2 -x \
                     {{index}} --interleaved {{reads}}'"
                ),
            }),
        }
    }
}
