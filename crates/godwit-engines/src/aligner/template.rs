//! Any aligner that reads FASTQ and prints SAM, by a command line with places left open.

use std::path::{Path, PathBuf};

use super::Identity;
use super::foreign::{FIRST_INPUT, Invocation, SECOND_INPUT, find_program, version_of};
use crate::EngineError;
use crate::words::Words;

/// What may stand between braces, and what it becomes.
pub const PLACEHOLDERS: [(&str, &str); 9] = [
    ("reference", "path of the reference"),
    ("index", "the same path, which indexes are named after"),
    ("reads", "where the program reads all reads, mates alternating"),
    ("reads1", "where it reads read 1"),
    ("reads2", "where it reads read 2"),
    ("threads", "number of threads"),
    ("read_group", "the @RG line, tabs written \\t"),
    ("read_group_id", "its ID"),
    ("sample", "the sample's name"),
];

/// A command line with open places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTemplate(Words);

/// What the open places become for a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneValues<'a> {
    /// The reference.
    pub reference: &'a Path,
    /// Threads.
    pub threads: usize,
    /// The `@RG` line, with tabs.
    pub read_group: &'a str,
    /// Its `ID`.
    pub read_group_id: &'a str,
    /// The sample.
    pub sample: &'a str,
    /// Reads come in pairs.
    pub paired: bool,
}

/// A line with tabs and backslashes escaped, as programs take it on their command line.
pub fn escaped(line: &str) -> String {
    line.replace('\\', "\\\\").replace('\t', "\\t")
}

fn wrong(message: String) -> EngineError {
    EngineError::Arguments { message }
}

impl CommandTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for an open quote, an unknown place, or inputs that do not go together.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let template = Self(Words::parse("aligner", text, &PLACEHOLDERS)?);
        let [reads, one, two] = ["reads", "reads1", "reads2"].map(|name| template.0.uses(name));
        if one != two || reads && one {
            let message = format!(
                "the aligner {text:?} must take its reads from {{reads}} or from both {{reads1}} and {{reads2}}"
            );
            return Err(wrong(message));
        }
        Ok(template)
    }

    /// The template as it was given.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// The program's name without its folder.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Finds the program: its path, and its version where it tells one.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`].
    pub fn find(&self) -> Result<(PathBuf, Option<String>), EngineError> {
        let remedy = crate::survey::remedy(self.name());
        let program = find_program(self.0.program(), remedy)?;
        let version = version_of(&program);
        Ok((program, version))
    }

    /// The command line for a lane.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] where the template takes pairs and the lane is of single reads.
    pub fn invocation(&self, program: &Path, lane: &LaneValues) -> Result<Invocation, EngineError> {
        let two_inputs = self.0.uses("reads2");
        if two_inputs && !lane.paired {
            let message = format!("the aligner {:?} takes pairs, but a lane has one file; use {{reads}}", self.text());
            return Err(wrong(message));
        }
        let arguments = self.0.arguments(|place| match place {
            "reference" | "index" => lane.reference.display().to_string(),
            "reads" | "reads1" => FIRST_INPUT.into(),
            "reads2" => SECOND_INPUT.into(),
            "threads" => lane.threads.to_string(),
            "read_group" => escaped(lane.read_group),
            "read_group_id" => lane.read_group_id.into(),
            _ => lane.sample.into(),
        });
        Ok(Invocation { program: program.to_owned(), arguments, two_inputs, identity: Identity::SingleStream })
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
        CommandTemplate::parse(text).unwrap().invocation(Path::new("/p"), &lane).unwrap().arguments
    }

    fn refusal(text: &str) -> String {
        CommandTemplate::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn places_are_filled_and_words_stay_words() {
        let found = arguments("bowtie2 -x {index} -p {threads} --rg 'SM:{sample} x' -R {read_group} {reads}");
        let expected = ["-x", "/ref dir/r.fa", "-p", "3", "--rg", "SM:s x", "-R", "@RG\\tID:a", "/dev/stdin"];
        assert_eq!(found, expected);
        assert_eq!(arguments("a -1 {reads1} -2 {reads2}"), ["-1", "/dev/stdin", "-2", "/dev/fd/3"]);
        assert_eq!(
            arguments(r#"a "" "b\" c" d\ e '{{x}}' --id={read_group_id}"#),
            ["", "b\" c", "d e", "{x}", "--id=a"]
        );
    }

    #[test]
    fn templates_that_cannot_work_are_refused() {
        assert!(refusal("a {reads1}").contains("both"));
        assert!(refusal("a {reads} {reads1} {reads2}").contains("both"));
        assert!(refusal("a {read} {reads}").contains("{reads1}"));
        assert!(refusal("a {reads").contains("brace"));
        assert!(refusal("a 'b {reads}").contains("quote"));
        assert!(refusal("{reads} b").contains("program"));
        assert!(refusal("").contains("program"));
    }
}
