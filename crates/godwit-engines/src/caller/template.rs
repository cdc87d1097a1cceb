//! Any caller that takes a region and writes VCF, by a command line with places left open.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Caller, Habits, RegionWork, output_file};
use crate::aligner::foreign::{find_program, version_of};
use crate::words::Words;
use crate::{Chain, EngineError, Link};

/// What may stand between braces, and what it becomes.
pub const PLACEHOLDERS: [(&str, &str); 11] = [
    ("reference", "path of the reference"),
    ("bam", "path of the BAM or CRAM"),
    ("bams", "path of a file with the paths of the BAMs or CRAMs of all samples, one a line"),
    ("tumor", "path of the BAM or CRAM of a tumour"),
    ("normal", "path of that of the normal"),
    ("region", "the region to call, as chr1:1-1000, 1-based"),
    ("bed", "path of a BED file with the region, or with its targets where there are any"),
    ("out", "path to write the VCF to, ending in .vcf; without it, the VCF is what the program prints"),
    ("ploidy", "copies of the contig there, 2 where --ploidy says nothing"),
    ("threads", "number of threads"),
    ("temp", "an empty directory of the region's own"),
];
/// Copies where nothing is said.
const DIPLOID: u8 = 2;

/// A command line with open places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTemplate(Words);

impl CallTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for an open quote, an unknown place, or one without reads or region.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let template = Self(Words::parse("caller", text, &PLACEHOLDERS)?);
        let uses = |place| template.0.uses(place);
        if !(uses("bam") || uses("bams") || uses("tumor")) || !(uses("region") || uses("bed")) {
            let message = format!(
                "the caller {text:?} must be told the reads by {{bam}}, {{bams}} or {{tumor}} and the region by {{region}} or {{bed}}"
            );
            return Err(EngineError::Arguments { message });
        }
        Ok(template)
    }

    /// The template as it was given.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Writes the text that fingerprints of runs contain, independent of the names of types and fields.
    pub(super) fn fingerprint_text(&self) -> String {
        format!("CallTemplate({})", self.0.fingerprint_text())
    }

    /// The program's name without its folder.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Finds the program.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`].
    pub fn find(&self) -> Result<TemplateCaller, EngineError> {
        let program = find_program(self.0.program(), "install it, or give its path")?;
        let version = version_of(&program).unwrap_or_default();
        Ok(TemplateCaller { template: self.clone(), program, version })
    }
}

/// A template whose program was found.
#[derive(Clone, Debug)]
pub struct TemplateCaller {
    template: CallTemplate,
    program: PathBuf,
    version: String,
}

impl Caller for TemplateCaller {
    fn name(&self) -> &str {
        self.template.name()
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn command_line(&self) -> String {
        self.template.text().to_owned()
    }

    fn habits(&self) -> Habits {
        // A region in words is one stretch of one contig.
        let lists = !self.template.0.uses("region");
        Habits { pairs: self.template.0.uses("normal"), lists, ..Habits::USUAL }
    }

    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError> {
        let uses = |place| self.template.0.uses(place);
        let wrong = |message: &str| Err(EngineError::Arguments { message: message.to_owned() });
        if (uses("bam") || uses("tumor")) && work.reads.len() > 1 {
            return wrong("{bam} and {tumor} are one file, and there are reads of several; use {bams}");
        }
        if uses("normal") && work.normal.is_none() {
            return wrong("the caller asks for {normal}: name its reads with --normal");
        }
        let bed = if uses("bed") { work.bed()? } else { PathBuf::new() };
        let bams = if uses("bams") { list(work)? } else { PathBuf::new() };
        let show = |path: &std::path::Path| path.display().to_string();
        let arguments = self.template.0.arguments(|place| match place {
            "reference" => show(work.reference),
            "normal" => work.normal.map(|normal| show(normal.reads)).unwrap_or_default(),
            "bam" | "tumor" => work.reads.first().map(|reads| show(reads)).unwrap_or_default(),
            "bams" => show(&bams),
            "region" => work.extent().title(),
            "bed" => show(&bed),
            "out" => show(work.output),
            "ploidy" => work.ploidy.unwrap_or(DIPLOID).to_string(),
            "threads" => work.threads.to_string(),
            _ => show(work.directory),
        });
        let mut command = Command::new(&self.program);
        command.args(arguments);
        let printed = if self.template.0.uses("out") { Stdio::null() } else { Stdio::from(output_file(work)?) };
        let link = Link { program: self.program.clone(), version: self.version.clone(), command };
        Chain::start(vec![link], printed)
    }
}

/// Writes the list of files of reads.
fn list(work: &RegionWork) -> Result<PathBuf, EngineError> {
    let path = work.directory.join("reads.list");
    let lines: String = work.reads.iter().map(|reads| format!("{}\n", reads.display())).collect();
    let written = std::fs::write(&path, lines);
    written.map_err(|source| EngineError::Io { program: path.clone(), action: "write", source })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_that_cannot_work_are_refused() {
        let refusal = |text: &str| CallTemplate::parse(text).unwrap_err().to_string();
        assert!(refusal("octopus -R {reference} -T {region}").contains("{bam}"));
        assert!(refusal("octopus -R {reference} -I {bam}").contains("{region}"));
        assert!(refusal("octopus -I {bam} -T {place}").contains("{region}"));
        assert!(refusal("{bam} {region}").contains("program"));
        assert_eq!(CallTemplate::parse("/opt/octopus -I {bam} -t {bed}").unwrap().name(), "octopus");
    }
}
