//! The word for `--aligner`.

use std::str::FromStr;

use super::Identity;
use super::template::CommandTemplate;
use crate::EngineError;

/// Which aligner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlignerChoice {
    /// bwa mem 0.7.17.
    Bwa,
    /// bwa-mem2 2.2.1.
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
            Self::Bwa => "bwa",
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

    /// What it may keep from read to read. Of a template nothing is known.
    pub fn identity(&self) -> Identity {
        match self {
            Self::Bwa | Self::BwaMem2 | Self::Minimap2 => Identity::AcrossBlocks,
            Self::Template(_) => Identity::SingleStream,
        }
    }
}

impl FromStr for AlignerChoice {
    type Err = EngineError;

    /// A word alone is a name; anything with a space or a brace is a template.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text {
            "bwa" => Ok(Self::Bwa),
            "bwa-mem2" => Ok(Self::BwaMem2),
            "minimap2" => Ok(Self::Minimap2),
            _ if text.contains([' ', '{']) => CommandTemplate::parse(text).map(Self::Template),
            _ => Err(EngineError::Arguments {
                message: format!(
                    "{text:?} is none of bwa, bwa-mem2 and minimap2, and no command line such as 'bowtie2 -x {{index}} \
                     --interleaved {{reads}}'"
                ),
            }),
        }
    }
}
