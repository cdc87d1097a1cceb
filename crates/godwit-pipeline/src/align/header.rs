//! The header of an aligned run: contigs from the aligner, read groups given or made, the chain of programs.

use std::collections::BTreeSet;

use godwit_formats::sam::{Header, HeaderError};

use super::AlignOptions;
use super::engine::Engine;
use super::feed::FeedLane;
use super::lanes::Lane;
use super::read_names::NameOrigin;
use crate::error::PipelineError;
use crate::read_groups::{ReadGroups, refused_later, tag};

/// Longest ID that bwa can write (`bwa_rg_id`).
const MAX_ID_BYTES: usize = 255;

/// The read group of every lane. Lanes may share one.
pub(super) struct LaneGroups {
    /// Distinct `@RG` lines, in order of their first lane.
    lines: Vec<String>,
    /// For each lane the ID of its read group.
    ids: Vec<String>,
    /// Notes on read groups that were changed, or that make other tools reject the output.
    warnings: Vec<String>,
}

impl LaneGroups {
    /// The given `@RG` lines, or those that files bring along, or lines made from sample and read names.
    ///
    /// # Errors
    /// [`PipelineError::Options`] for a wrong line or number of lines.
    pub(super) fn new(options: &AlignOptions, planned: &[Lane]) -> Result<Self, PipelineError> {
        let lanes = planned.len();
        let lane_lines = match &options.read_groups[..] {
            [] => brought_or_made(&options.sample, planned)?,
            [line] => vec![checked(line)?; lanes],
            lines if lines.len() == lanes => lines.iter().map(|line| checked(line)).collect::<Result<_, _>>()?,
            lines => {
                let problem = format!(
                    "{} read groups were given for {lanes} lanes; give one for all or one for each",
                    lines.len()
                );
                return Err(PipelineError::Options { problem });
            }
        };
        let mut groups = Self { lines: Vec::new(), ids: Vec::new(), warnings: Vec::new() };
        for line in lane_lines {
            let line = with_sample(line, &options.sample);
            let id = tag(&line, "ID").unwrap_or_default().to_owned();
            let same_id = groups.lines.iter().find(|other| tag(other, "ID") == Some(&id));
            match same_id {
                Some(other) if *other != line => {
                    return Err(PipelineError::Options {
                        problem: format!("two lanes have read groups of ID {id} that differ; give them two IDs"),
                    });
                }
                Some(_) => {}
                None => groups.lines.push(line),
            }
            groups.ids.push(id);
        }
        groups.warnings = groups.refused_later(&options.sample);
        Ok(groups)
    }

    fn refused_later(&self, sample: &str) -> Vec<String> {
        let mut warnings = refused_later(self.lines.iter().map(String::as_str));
        for line in &self.lines {
            let (id, named) = (tag(line, "ID").unwrap_or_default(), tag(line, "SM").unwrap_or_default());
            if named != sample {
                warnings.push(format!(
                    "read group {id} has SM:{named}, but --sample is {sample}: variant callers name the sample {named}, \
                     and steps that look for {sample} do not find it"
                ));
            }
        }
        let samples: BTreeSet<&str> = self.lines.iter().filter_map(|line| tag(line, "SM")).collect();
        if samples.len() > 1 {
            let names = samples.into_iter().collect::<Vec<_>>().join(", ");
            warnings.push(format!(
                "the read groups are of several samples ({names}): GATK refuses such a file for GVCFs; align each sample \
                 by itself"
            ));
        }
        warnings
    }

    /// Returns notes on read groups that make other tools reject the output.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Distinct `@RG` lines, in order of their first lane.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// `ID` of a lane's read group.
    pub(super) fn id(&self, lane: usize) -> &str {
        &self.ids[lane]
    }

    /// A lane's `@RG` line.
    pub(super) fn line(&self, lane: usize) -> &str {
        let id = self.id(lane);
        self.lines.iter().find(|line| tag(line, "ID") == Some(id)).map_or("", String::as_str)
    }

    /// Lanes with what their reads belong to.
    pub(super) fn feed_lanes(&self, lanes: Vec<Lane>, read_groups: &ReadGroups) -> Vec<FeedLane> {
        let pairs = lanes.into_iter().zip(&self.ids);
        pairs
            .map(|(lane, id)| FeedLane {
                lane,
                read_group: Some(id.clone()),
                membership: read_groups.membership(Some(id.as_bytes())),
            })
            .collect()
    }
}

/// A read group without a sample gets that of the run: GATK refuses reads without one.
fn with_sample(line: String, sample: &str) -> String {
    match tag(&line, "SM") {
        Some(_) => line,
        None => format!("{line}\tSM:{sample}"),
    }
}

/// A given line with its escapes undone (as bwa does: `\t`, `\\`), checked.
fn checked(given: &str) -> Result<String, PipelineError> {
    checked_line(unescaped(given), given)
}

/// A line, checked; `given` is what it is called in errors.
fn checked_line(line: String, given: &str) -> Result<String, PipelineError> {
    let wrong = |problem: &str| PipelineError::Options { problem: format!("the read group {given:?} {problem}") };
    if !line.starts_with("@RG\t") {
        return Err(wrong("does not start with @RG and a tab (write \\t)"));
    }
    if line.contains(['\n', '\r']) {
        return Err(wrong("has more than one line"));
    }
    if line.chars().any(|character| character.is_control() && character != '\t') {
        return Err(wrong("has a control character"));
    }
    let mut tags: Vec<&str> = Vec::new();
    for field in line.split('\t').skip(1) {
        match field.split_once(':') {
            Some((tag, value)) if tag.len() == 2 && !value.is_empty() => tags.push(tag),
            _ => return Err(wrong("has a field that is not TAG:value, or whose value is empty")),
        }
    }
    tags.sort_unstable();
    if tags.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(wrong("has one tag twice"));
    }
    match tag(&line, "ID") {
        None | Some("") => Err(wrong("has no ID")),
        Some(id) if id.len() > MAX_ID_BYTES => Err(wrong("has an ID of more than 255 bytes")),
        Some(_) => Ok(line),
    }
}

/// `\t` becomes a tab and `\\` a backslash, from left to right as in bwa.
fn unescaped(given: &str) -> String {
    let mut line = String::with_capacity(given.len());
    let mut characters = given.chars();
    while let Some(character) = characters.next() {
        match (character, characters.as_str().chars().next()) {
            ('\\', Some(escaped @ ('t' | '\\'))) => {
                line.push(if escaped == 't' { '\t' } else { escaped });
                characters.next();
            }
            _ => line.push(character),
        }
    }
    line
}

/// One line per lane. A SAM or BAM file may bring one. Otherwise it is made of what the name of the first read tells, else
/// of the lane's number. Files whose names tell of one lane of one flow cell share a line: they are one lane, and optical
/// duplicates are looked for across them. The sample is its own library.
fn brought_or_made(sample: &str, lanes: &[Lane]) -> Result<Vec<String>, PipelineError> {
    let mut lines = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        if let Some(line) = &lane.read_group {
            lines.push(checked_line(line.clone(), line)?);
            continue;
        }
        let origin = NameOrigin::of(without_mate(&lane.first_name));
        let id = origin.id.unwrap_or_else(|| format!("{sample}.{}", index + 1));
        let mut line = format!("@RG\tID:{id}\tSM:{sample}\tLB:{sample}");
        for (tag, value) in [("PL", origin.platform), ("PU", origin.unit.as_deref())] {
            line += &value.map(|value| format!("\t{tag}:{value}")).unwrap_or_default();
        }
        lines.push(line);
    }
    Ok(lines)
}

/// A name without the `/1` or `/2` of its mate.
fn without_mate(name: &str) -> &str {
    name.strip_suffix("/1").or(name.strip_suffix("/2")).unwrap_or(name)
}

/// The header of the output.
///
/// # Errors
/// [`PipelineError::Header`] when the contigs of the reference are no valid header.
pub(super) fn of_run(
    engine: &Engine,
    groups: &LaneGroups,
    options: &AlignOptions,
    trimmer: Option<&str>,
) -> Result<Header, PipelineError> {
    let mut text = String::from("@HD\tVN:1.6\tSO:coordinate\n");
    text += &engine.hello().sq_lines;
    for line in &groups.lines {
        text += line;
        text.push('\n');
    }
    let after = match (trimmer, &options.reads.trim) {
        (Some(version), Some(arguments)) => {
            text += &format!("@PG\tID:fastp\tPN:fastp\tVN:{version}\tCL:{}\n", joined("fastp", arguments));
            "\tPP:fastp"
        }
        _ => "",
    };
    let (name, version, command_line_of_aligner) = engine.program_line(options);
    let version = if version.is_empty() { String::new() } else { format!("\tVN:{version}") };
    text += &format!("@PG\tID:{name}\tPN:{name}{after}{version}\tCL:{command_line_of_aligner}\n");
    let mut header =
        Header::parse(text.as_bytes()).map_err(|source| invalid("the reference and read groups", source))?;
    header.add_program("godwit", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", &command_line(options))]);
    Ok(header)
}

/// Only what changes records: with equal options the whole file is the same, wherever and however it was made.
pub(super) fn command_line(options: &AlignOptions) -> String {
    let marking = options.job.marking_command_line();
    let aligner = quoted(options.aligner.records_text());
    let mut line = format!("godwit align --aligner {aligner} --block-bases {} {marking}", options.block_bases);
    if !options.aligner_args.is_empty() {
        line += &format!(" --aligner-args '{}'", options.aligner_args.join(" "));
    }
    if !options.reads.keep_tags.is_empty() {
        let tags: Vec<_> = options.reads.keep_tags.iter().map(|tag| String::from_utf8_lossy(tag)).collect();
        line += &format!(" --keep-tags {}", tags.join(","));
    }
    if let Some(arguments) = &options.reads.trim {
        line += " --trim fastp";
        if !arguments.is_empty() {
            line += &format!(" --trim-args '{}'", arguments.join(" "));
        }
    }
    if let Some(step) = &options.job.step {
        line += &format!(" --step {}", quoted(&step.function));
    }
    line
}

/// A program and its words.
fn joined(program: &str, arguments: &[String]) -> String {
    let words = std::iter::once(program).chain(arguments.iter().map(String::as_str));
    words.collect::<Vec<_>>().join(" ")
}

/// A word, or words between quotes.
fn quoted(text: &str) -> String {
    if text.contains(' ') { format!("'{text}'") } else { text.to_owned() }
}

/// A header that is wrong.
pub(super) fn invalid(origin: &str, source: HeaderError) -> PipelineError {
    PipelineError::Header { origin: origin.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_once_from_left_to_right() {
        assert_eq!(unescaped("@RG\\tID:a"), "@RG\tID:a");
        assert_eq!(unescaped("a\\\\tb\\"), "a\\tb\\");
    }

    #[test]
    fn read_groups_that_no_tool_would_take_are_refused() {
        for line in [
            "ID:a",
            "@RG",
            "@RG\tID:",
            "@RG\tSM:s",
            "@RG\tID:a\tID:b",
            "@RG\tID:a\nx",
            "@RG\tID:a\tLB:",
            "@RG\tID:a\tLB:\u{1}",
        ] {
            assert!(checked(line).is_err(), "{line:?}");
        }
        assert!(checked(&format!("@RG\tID:{}", "x".repeat(256))).is_err());
        assert_eq!(checked("@RG\\tID:a\\tLB:b").unwrap(), "@RG\tID:a\tLB:b");
    }

    #[test]
    fn a_read_group_without_a_sample_gets_that_of_the_run() {
        assert_eq!(with_sample("@RG\tID:x\tLB:l".to_owned(), "s"), "@RG\tID:x\tLB:l\tSM:s");
        assert_eq!(with_sample("@RG\tID:x\tSM:other".to_owned(), "s"), "@RG\tID:x\tSM:other");
    }

    #[test]
    fn what_makes_other_tools_refuse_the_output_is_told_before_the_run() {
        let warnings = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            LaneGroups { lines, ids: Vec::new(), warnings: Vec::new() }.refused_later("s")
        };
        assert!(warnings(&["@RG\tID:a\tSM:s", "@RG\tID:b\tSM:s\tPL:illumina"]).is_empty());
        let platform = warnings(&["@RG\tID:a\tSM:s\tPL:HiSeq"]);
        assert!(platform.len() == 1 && platform[0].contains("PL:HiSeq"), "{platform:?}");
        let samples = warnings(&["@RG\tID:a\tSM:s", "@RG\tID:b\tSM:t"]);
        assert!(samples.len() == 2 && samples[0].contains("SM:t") && samples[1].contains("s, t"), "{samples:?}");
    }
}
