//! The value of `--caller`.

use std::str::FromStr;

use super::Caller;
use super::bcftools::Bcftools;
use super::freebayes::{self, Freebayes};
use super::haplotype_caller::HaplotypeCaller;
use super::joint::{self, JointGatk};
use super::mutect2::{self, Mutect2};
use super::template::CallerTemplate;
use crate::{EngineError, bcftools, gatk};

/// A variant caller that the user can select with `--caller`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallerChoice {
    /// `bcftools mpileup` and `bcftools call`.
    #[default]
    Bcftools,
    /// The variant caller freebayes.
    Freebayes,
    /// GATK HaplotypeCaller.
    Gatk,
    /// GATK's joint genotyping of GVCFs.
    GatkJoint,
    /// GATK Mutect2.
    Mutect2,
    /// Any variant caller, given as a command line with placeholders.
    Template(CallerTemplate),
}

impl CallerChoice {
    /// The callers that `--caller` accepts by name, in the order in which messages list them.
    pub const NAMED: [Self; 5] = [Self::Bcftools, Self::Freebayes, Self::Gatk, Self::GatkJoint, Self::Mutect2];

    /// Returns the value of `--caller` that selects this caller.
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

    /// Returns the text for this caller in job fingerprints, which are stored on disk. The text does not depend on the
    /// names of types and variants. A change of the text makes unfinished jobs start from the beginning.
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

    /// Finds the programs of the caller. `arguments`: options that the user passes to a named caller.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], and [`EngineError::Arguments`] for a rejected
    /// option.
    pub fn find_caller(&self, arguments: &str) -> Result<Box<dyn Caller>, EngineError> {
        match self {
            Self::Bcftools => Ok(Box::new(Bcftools::find_installed(arguments)?)),
            Self::Freebayes => Ok(Box::new(Freebayes::find_installed(arguments)?)),
            Self::Gatk => Ok(Box::new(HaplotypeCaller::find_installed(arguments)?)),
            Self::GatkJoint => Ok(Box::new(JointGatk::find_installed(arguments)?)),
            Self::Mutect2 => Ok(Box::new(Mutect2::find_installed(arguments)?)),
            Self::Template(_) if !arguments.trim().is_empty() => {
                let message = "--caller-args cannot be used with a command line; put the options into the command line"
                    .to_owned();
                Err(EngineError::Arguments { message })
            }
            Self::Template(template) => Ok(Box::new(template.find_program()?)),
        }
    }
}

impl FromStr for CallerChoice {
    type Err = EngineError;

    /// Parses the value of `--caller`. A text with a space or an opening brace is a template; any other text is a name.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        if let Some(choice) = Self::NAMED.into_iter().find(|choice| choice.option_value() == text) {
            return Ok(choice);
        }
        if text.contains([' ', '{']) {
            return CallerTemplate::parse(text).map(Self::Template);
        }
        let names = Self::NAMED.each_ref().map(Self::option_value).join(", ");
        let example = "'octopus -R {reference} -I {bam} -T {region} -o {out}'";
        let message = format!("{text:?} is not one of the callers {names}, and not a command line such as {example}");
        Err(EngineError::Arguments { message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_caller_is_selected_by_its_name_and_listed_in_the_message_about_an_unknown_one() {
        let message = "no-such-caller".parse::<CallerChoice>().unwrap_err().to_string();
        for choice in CallerChoice::NAMED {
            let name = choice.option_value();
            assert_eq!(name.parse::<CallerChoice>().unwrap(), choice);
            assert!(message.contains(&format!(" {name},")), "{name}: {message}");
        }
    }

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
