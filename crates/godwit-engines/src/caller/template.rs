//! Variant callers given as a command line with placeholders: any program that accepts a region and writes VCF.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Caller, CallerInvocation, Capabilities, create_output_file};
use crate::command_template::CommandTemplate;
use crate::program_lookup::{find_program, query_program_version};
use crate::{EngineError, PipelineCommand, ProcessPipeline};

/// Names of the placeholders that a command line may contain; `docs/guide/calling.md` describes their values.
pub(crate) const PLACEHOLDERS: [&str; 11] =
    ["reference", "bam", "bams", "tumor", "normal", "region", "bed", "out", "ploidy", "threads", "temp"];
/// Value of the placeholder `ploidy` if the user sets no ploidy.
const DEFAULT_PLOIDY: u8 = 2;

/// The command line of a variant caller, with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerTemplate(CommandTemplate);

impl CallerTemplate {
    /// Parses a command line with placeholders.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for an unclosed quote, an unknown placeholder, or a command line without placeholders
    /// for the reads and the region.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let template = Self(CommandTemplate::parse("caller", text, &PLACEHOLDERS)?);
        let uses = |name| template.0.uses_placeholder(name);
        if !(uses("bam") || uses("bams") || uses("tumor")) || !(uses("region") || uses("bed")) {
            let message = format!(
                "the caller {text:?} needs the reads as {{bam}}, {{bams}} or {{tumor}} and the region as {{region}} or \
                 {{bed}}"
            );
            return Err(EngineError::Arguments { message });
        }
        Ok(template)
    }

    /// Returns the command line as the user wrote it, with placeholders.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Returns the text for this template in job fingerprints. The text does not depend on the names of types and
    /// fields.
    pub(super) fn fingerprint_text(&self) -> String {
        format!("CallTemplate({})", self.0.fingerprint_text())
    }

    /// Returns the file name of the program, without its directory.
    pub fn program_name(&self) -> &str {
        self.0.program_name()
    }

    /// Finds the program of the template, and its version if `--version` prints one.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if the program does not exist.
    pub fn find_program(&self) -> Result<TemplateCaller, EngineError> {
        let program = find_program(self.0.program(), "install it, or give its path")?;
        let version = query_program_version(&program, &["--version"]).unwrap_or_default();
        Ok(TemplateCaller { template: self.clone(), program, version })
    }
}

/// A template together with the path and the version of its installed program.
#[derive(Clone, Debug)]
pub struct TemplateCaller {
    template: CallerTemplate,
    program: PathBuf,
    version: String,
}

impl TemplateCaller {
    /// Returns the arguments of the program, with all placeholders replaced. Writes the files that placeholders name.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] if the reads do not fit the placeholders, [`EngineError::Io`] if a file cannot be
    /// written.
    fn arguments(&self, work: &CallerInvocation) -> Result<Vec<String>, EngineError> {
        let uses = |name| self.template.0.uses_placeholder(name);
        let wrong = |message: &str| Err(EngineError::Arguments { message: message.to_owned() });
        if (uses("bam") || uses("tumor")) && work.reads.len() > 1 {
            return wrong("{bam} and {tumor} stand for one file, but several files of reads are given; use {bams}");
        }
        if uses("normal") && work.normal_reads.is_none() {
            return wrong("the caller uses {normal}: set its reads with --normal");
        }
        let bed = if uses("bed") { work.write_bed()? } else { PathBuf::new() };
        let bams = if uses("bams") { write_reads_list(work)? } else { PathBuf::new() };
        let show = |path: &Path| path.display().to_string();
        Ok(self.template.0.fill_arguments(|name| match name {
            "reference" => show(work.reference),
            "normal" => work.normal_reads.map(|normal| show(normal.reads)).unwrap_or_default(),
            "bam" | "tumor" => work.reads.first().map(|reads| show(reads)).unwrap_or_default(),
            "bams" => show(&bams),
            "region" => work.spanning_region().title(),
            "bed" => show(&bed),
            "out" => show(work.output),
            "ploidy" => work.ploidy.unwrap_or(DEFAULT_PLOIDY).to_string(),
            "threads" => work.threads.to_string(),
            "temp" => show(work.directory),
            other => format!("{{{other}}}"),
        }))
    }
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
        // The placeholder `region` is replaced by a single interval on one contig.
        let takes_region_lists = !self.template.0.uses_placeholder("region");
        Capabilities {
            takes_tumor_normal_pairs: self.template.0.uses_placeholder("normal"),
            takes_region_lists,
            ..Capabilities::OF_COMMAND_LINES
        }
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        let mut command = Command::new(&self.program);
        command.args(self.arguments(work)?);
        let printed = if self.template.0.uses_placeholder("out") {
            Stdio::null()
        } else {
            Stdio::from(create_output_file(work)?)
        };
        let link = PipelineCommand { program: self.program.clone(), version: self.version.clone(), command };
        ProcessPipeline::start(vec![link], printed)
    }
}

/// Writes a text file with the paths of the read files, one per line, and returns its path.
fn write_reads_list(work: &CallerInvocation) -> Result<PathBuf, EngineError> {
    let path = work.directory.join("reads.list");
    let lines: String = work.reads.iter().map(|reads| format!("{}\n", reads.display())).collect();
    let written = std::fs::write(&path, lines);
    written.map_err(|source| EngineError::Io { program: path.clone(), action: "write", source })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use godwit_model::Region;

    use super::*;
    use crate::caller::NormalReads;

    #[test]
    fn every_placeholder_has_a_value() {
        let directory = tempfile::tempdir().unwrap();
        let text: String = PLACEHOLDERS.iter().map(|name| format!(" {{{name}}}")).collect();
        let template = CallerTemplate::parse(&format!("a{text}")).unwrap();
        let caller = TemplateCaller { template, program: PathBuf::from("a"), version: String::new() };
        let work = CallerInvocation {
            reference: Path::new("ref.fa"),
            reads: &[PathBuf::from("tumor.bam")],
            normal_reads: Some(NormalReads { reads: Path::new("normal.bam"), sample: "n" }),
            regions: &[Region { contig: "chr1".to_owned(), start: 10, end: 20 }],
            ploidy: Some(1),
            directory: directory.path(),
            output: Path::new("out.vcf"),
            threads: 3,
            memory_bytes: 1 << 30,
        };
        let filled = caller.arguments(&work).unwrap();
        assert_eq!(filled.len(), PLACEHOLDERS.len());
        assert!(!filled.iter().any(|word| word.is_empty() || word.contains(['{', '}'])), "{filled:?}");
        assert_eq!(filled.last().map(Path::new), Some(directory.path()));
    }

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
