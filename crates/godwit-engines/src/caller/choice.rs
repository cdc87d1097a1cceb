//! The value of `--caller`.

use std::str::FromStr;

use super::Caller;
use super::bcftools::{self, Bcftools};
use super::freebayes::{self, Freebayes};
use super::gatk::Gatk;
use super::joint::{self, JointGatk};
use super::mutect2::{self, Mutect2};
use super::template::CallerTemplate;
use crate::{EngineError, gatk};

/// A caller that the user can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerChoice {
    /// bcftools mpileup and call.
    Bcftools,
    /// freebayes.
    Freebayes,
    /// GATK HaplotypeCaller.
    Gatk,
    /// GATK's joint genotyping of GVCFs.
    GatkJoint,
    /// GATK Mutect2.
    Mutect2,
    /// Any program, by a command line with placeholders.
    Template(CallerTemplate),
}

impl CallerChoice {
    /// Returns the value that `--caller` accepts.
    pub fn option_value(&self) -> &str {
        match self {
            Self::Bcftools => bcftools::PROGRAM,
            Self::Freebayes => freebayes::PROGRAM,
            Self::Gatk => gatk::PROGRAM,
            Self::GatkJoint => joint::NAME,
            Self::Mutect2 => mutect2::NAME,
            Self::Template(template) => template.text(),
        }
    }

    /// Writes the text that job fingerprints contain. Files on disk hold it: the text is independent of the names of types
    /// and variants, and changing it makes samples start over.
    pub fn fingerprint_text(&self) -> String {
        match self {
            Self::Bcftools => "Bcftools".to_owned(),
            Self::Freebayes => "Freebayes".to_owned(),
            Self::Gatk => "Gatk".to_owned(),
            Self::GatkJoint => "GatkJoint".to_owned(),
            Self::Mutect2 => "Mutect2".to_owned(),
            Self::Template(template) => format!("Template({})", template.fingerprint_text()),
        }
    }

    /// Finds the caller. `arguments`: further options of a named caller.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find_caller(&self, arguments: &str) -> Result<Box<dyn Caller>, EngineError> {
        match self {
            Self::Bcftools => Ok(Box::new(Bcftools::find_installed(arguments)?)),
            Self::Freebayes => Ok(Box::new(Freebayes::find_installed(arguments)?)),
            Self::Gatk => Ok(Box::new(Gatk::find_installed(arguments)?)),
            Self::GatkJoint => Ok(Box::new(JointGatk::find_installed(arguments)?)),
            Self::Mutect2 => Ok(Box::new(Mutect2::find_installed(arguments)?)),
            Self::Template(_) if !arguments.trim().is_empty() => {
                let message = "options of a caller given as a command line belong into it".to_owned();
                Err(EngineError::Arguments { message })
            }
            Self::Template(template) => Ok(Box::new(template.find_program()?)),
        }
    }
}

impl FromStr for CallerChoice {
    type Err = EngineError;

    /// Parses a value: a text with a space or a brace is a template, any other text is a name.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text {
            bcftools::PROGRAM => Ok(Self::Bcftools),
            freebayes::PROGRAM => Ok(Self::Freebayes),
            gatk::PROGRAM => Ok(Self::Gatk),
            joint::NAME => Ok(Self::GatkJoint),
            mutect2::NAME => Ok(Self::Mutect2),
            _ if text.contains([' ', '{']) => CallerTemplate::parse(text).map(Self::Template),
            _ => Err(EngineError::Arguments {
                message: format!(
                    "{text:?} is none of bcftools, freebayes, gatk and mutect2, and no command line such as 'octopus -R {{reference}} \
                     -I {{bam}} -T {{region}} -o {{out}}'"
                ),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_in_fingerprints_has_the_bytes_of_earlier_versions() {
        let text = |choice: &str| choice.parse::<CallerChoice>().unwrap().fingerprint_text();
        assert_eq!(
            ["bcftools", "freebayes", "gatk", joint::NAME, mutect2::NAME].map(text),
            ["Bcftools", "Freebayes", "Gatk", "GatkJoint", "Mutect2"]
        );
        let expected = concat!(
            r#"Template(CallTemplate(Words { text: "x -r={region} {bam}", "#,
            r#"words: [[Text("x")], [Text("-r="), Place("region")], [Place("bam")]] }))"#
        );
        assert_eq!(text("x -r={region} {bam}"), expected);
    }
}
