//! External aligners given as a command line with placeholders: any program that reads FASTQ and writes SAM.

use std::path::{Path, PathBuf};

use super::BlockDependence;
use super::sam_program::{AlignerInvocation, FIRST_INPUT_PATH, SECOND_INPUT_PATH, install_remedy};
use crate::EngineError;
use crate::command_template::CommandTemplate;
use crate::program_lookup::{find_program, query_program_version};

/// Names of the placeholders that a command line may contain; `docs/guide/aligners.md` describes their values.
pub(crate) const PLACEHOLDERS: [&str; 9] =
    ["reference", "index", "reads", "reads1", "reads2", "threads", "read_group", "read_group_id", "sample"];

/// The command line of an external aligner, with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlignerTemplate(CommandTemplate);

/// The values of the placeholders for the reads of one lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneValues<'a> {
    /// Path of the reference.
    pub reference: &'a Path,
    /// Number of aligning threads.
    pub threads: usize,
    /// The `@RG` line of the SAM header, with tabs.
    pub read_group: &'a str,
    /// `ID` of the read group.
    pub read_group_id: &'a str,
    /// Name of the sample.
    pub sample: &'a str,
    /// True if the reads of the lane are paired.
    pub paired: bool,
}

/// Returns a header line with escaped tabs and backslashes, the form that aligners expect in an argument.
pub(crate) fn escape_tabs(line: &str) -> String {
    line.replace('\\', "\\\\").replace('\t', "\\t")
}

fn arguments_error(message: String) -> EngineError {
    EngineError::Arguments { message }
}

impl AlignerTemplate {
    /// Parses a command line with placeholders.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for an unclosed quote, an unknown placeholder, or an invalid combination of input
    /// placeholders.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let template = Self(CommandTemplate::parse("aligner", text, &PLACEHOLDERS)?);
        let [reads, one, two] = ["reads", "reads1", "reads2"].map(|name| template.0.uses_placeholder(name));
        if one != two || reads && one {
            let message =
                format!("the aligner {text:?} must have the placeholder {{reads}}, or both {{reads1}} and {{reads2}}");
            return Err(arguments_error(message));
        }
        Ok(template)
    }

    /// Returns the command line as the user wrote it, with placeholders.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Returns the file name of the program, without its directory.
    pub fn program_name(&self) -> &str {
        self.0.program_name()
    }

    /// Finds the program. Returns its path, and its version if `--version` prints one.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if the program does not exist.
    pub fn find_program(&self) -> Result<(PathBuf, Option<String>), EngineError> {
        let remedy = install_remedy(self.program_name());
        let program = find_program(self.0.program(), remedy)?;
        let version = query_program_version(&program, &["--version"]);
        Ok((program, version))
    }

    /// Returns the command line that aligns the reads of a lane, with all placeholders replaced.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] if the template needs paired reads, but the reads of the lane are unpaired.
    pub fn invocation(&self, program: &Path, lane: &LaneValues) -> Result<AlignerInvocation, EngineError> {
        let two_inputs = self.0.uses_placeholder("reads2");
        if two_inputs && !lane.paired {
            let message = format!(
                "the aligner command {:?} needs two files ({{reads1}} and {{reads2}}), but a lane has one; use {{reads}}",
                self.text()
            );
            return Err(arguments_error(message));
        }
        let arguments = self.0.fill_arguments(|name| match name {
            "reference" | "index" => lane.reference.display().to_string(),
            "reads" | "reads1" => FIRST_INPUT_PATH.into(),
            "reads2" => SECOND_INPUT_PATH.into(),
            "threads" => lane.threads.to_string(),
            "read_group" => escape_tabs(lane.read_group),
            "read_group_id" => lane.read_group_id.into(),
            "sample" => lane.sample.into(),
            other => format!("{{{other}}}"),
        });
        Ok(AlignerInvocation {
            program: program.to_owned(),
            arguments,
            two_inputs,
            block_dependence: BlockDependence::Dependent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        let lane = LaneValues {
            reference: Path::new("/ref dir/r.fa"),
            threads: 3,
            read_group: "@RG\tID:a",
            read_group_id: "a",
            sample: "s",
            paired: true,
        };
        AlignerTemplate::parse(text).unwrap().invocation(Path::new("/p"), &lane).unwrap().arguments
    }

    fn refusal(text: &str) -> String {
        AlignerTemplate::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn placeholders_are_filled_and_arguments_stay_separate() {
        let found = arguments("bowtie2 -x {index} -p {threads} --rg 'SM:{sample} x' -R {read_group} {reads}");
        let expected = ["-x", "/ref dir/r.fa", "-p", "3", "--rg", "SM:s x", "-R", "@RG\\tID:a", "/dev/stdin"];
        assert_eq!(found, expected);
        assert_eq!(arguments("a -1 {reads1} -2 {reads2}"), ["-1", "/dev/stdin", "-2", "/dev/fd/3"]);
        assert_eq!(
            arguments(r#"a "" "b\" c" d\ e '{{x}}' --id={read_group_id}"#),
            ["", "b\" c", "d e", "{x}", "--id=a"]
        );
        // As in a shell, a backslash between double quotes stays before other characters.
        assert_eq!(arguments(r#"a "b\tc\\" \#d # {reads}"#), ["b\\tc\\", "#d"]);
    }

    #[test]
    fn every_placeholder_has_a_value() {
        let of = |names: &[&str]| names.iter().map(|name| format!(" {{{name}}}")).collect::<String>();
        let (inputs, others): (Vec<&str>, Vec<&str>) =
            PLACEHOLDERS.into_iter().partition(|name| name.starts_with("reads"));
        for text in [of(&["reads"]), of(&inputs[1..])] {
            let filled = arguments(&format!("a{text}{}", of(&others)));
            assert!(!filled.iter().any(|word| word.contains(['{', '}'])), "{filled:?}");
        }
    }

    #[test]
    fn templates_that_cannot_work_are_refused() {
        assert!(refusal("a {reads1}").contains("both"));
        assert!(refusal("a {reads} {reads1} {reads2}").contains("both"));
        assert!(refusal("a {read} {reads}").contains("{reads1}"));
        assert!(refusal("a {reads").contains("unknown placeholder"));
        assert!(refusal("a 'b {reads}").contains("quote"));
        assert!(refusal("{reads} b").contains("program"));
        assert!(refusal("").contains("program"));
    }
}
