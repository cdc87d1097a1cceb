//! Callers given as a command line with placeholders: any program that takes a region and writes VCF.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Caller, CallerInvocation, Capabilities, create_output_file};
use crate::aligner::sam_program::{find_program, query_program_version};
use crate::command_template::CommandTemplate;
use crate::{EngineError, PipelineCommand, ProcessPipeline};

/// The placeholders and their values.
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
/// The default ploidy.
const DEFAULT_PLOIDY: u8 = 2;

/// A command line of a caller with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerTemplate(CommandTemplate);

impl CallerTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for an unclosed quote, an unknown placeholder, or a template without reads or region.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let template = Self(CommandTemplate::parse("caller", text, &PLACEHOLDERS)?);
        let uses = |place| template.0.uses_placeholder(place);
        if !(uses("bam") || uses("bams") || uses("tumor")) || !(uses("region") || uses("bed")) {
            let message = format!(
                "the caller {text:?} must be told the reads by {{bam}}, {{bams}} or {{tumor}} and the region by {{region}} or {{bed}}"
            );
            return Err(EngineError::Arguments { message });
        }
        Ok(template)
    }

    /// Returns the template as it was given.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Writes the text that job fingerprints contain, independent of the names of types and fields.
    pub(super) fn fingerprint_text(&self) -> String {
        format!("CallTemplate({})", self.0.fingerprint_text())
    }

    /// Returns the program's file name without its directory.
    pub fn program_name(&self) -> &str {
        self.0.program_name()
    }

    /// Finds the program.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if there is no such program.
    pub fn find_program(&self) -> Result<TemplateCaller, EngineError> {
        let program = find_program(self.0.program(), "install it, or give its path")?;
        let version = query_program_version(&program).unwrap_or_default();
        Ok(TemplateCaller { template: self.clone(), program, version })
    }
}

/// A template with the path of its program.
#[derive(Clone, Debug)]
pub struct TemplateCaller {
    template: CallerTemplate,
    program: PathBuf,
    version: String,
}

impl Caller for TemplateCaller {
    fn name(&self) -> &str {
        self.template.program_name()
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn command_line(&self) -> String {
        self.template.text().to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        // A region as text is one interval of one contig.
        let takes_region_lists = !self.template.0.uses_placeholder("region");
        Capabilities {
            takes_tumor_normal_pairs: self.template.0.uses_placeholder("normal"),
            takes_region_lists,
            ..Capabilities::DEFAULT
        }
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        let uses = |place| self.template.0.uses_placeholder(place);
        let wrong = |message: &str| Err(EngineError::Arguments { message: message.to_owned() });
        if (uses("bam") || uses("tumor")) && work.reads.len() > 1 {
            return wrong("{bam} and {tumor} are one file, and there are reads of several; use {bams}");
        }
        if uses("normal") && work.normal_reads.is_none() {
            return wrong("the caller asks for {normal}: name its reads with --normal");
        }
        let bed = if uses("bed") { work.write_bed()? } else { PathBuf::new() };
        let bams = if uses("bams") { write_reads_list(work)? } else { PathBuf::new() };
        let show = |path: &std::path::Path| path.display().to_string();
        let arguments = self.template.0.fill_arguments(|place| match place {
            "reference" => show(work.reference),
            "normal" => work.normal_reads.map(|normal| show(normal.reads)).unwrap_or_default(),
            "bam" | "tumor" => work.reads.first().map(|reads| show(reads)).unwrap_or_default(),
            "bams" => show(&bams),
            "region" => work.spanning_region().title(),
            "bed" => show(&bed),
            "out" => show(work.output),
            "ploidy" => work.ploidy.unwrap_or(DEFAULT_PLOIDY).to_string(),
            "threads" => work.threads.to_string(),
            _ => show(work.directory),
        });
        let mut command = Command::new(&self.program);
        command.args(arguments);
        let printed = if self.template.0.uses_placeholder("out") {
            Stdio::null()
        } else {
            Stdio::from(create_output_file(work)?)
        };
        let link = PipelineCommand { program: self.program.clone(), version: self.version.clone(), command };
        ProcessPipeline::start(vec![link], printed)
    }
}

/// Writes the list of the read files.
fn write_reads_list(work: &CallerInvocation) -> Result<PathBuf, EngineError> {
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
        let refusal = |text: &str| CallerTemplate::parse(text).unwrap_err().to_string();
        assert!(refusal("octopus -R {reference} -T {region}").contains("{bam}"));
        assert!(refusal("octopus -R {reference} -I {bam}").contains("{region}"));
        assert!(refusal("octopus -I {bam} -T {place}").contains("{region}"));
        assert!(refusal("{bam} {region}").contains("program"));
        assert_eq!(CallerTemplate::parse("/opt/octopus -I {bam} -t {bed}").unwrap().program_name(), "octopus");
    }
}
