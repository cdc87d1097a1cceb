//! The SAM header of the output: `@SQ` lines from the aligner, `@RG` lines (from options, from input files, or
//! generated), and the chain of `@PG` lines.

use std::collections::BTreeSet;

use godwit_formats::sam::{Header, HeaderError};
use godwit_pipeline::PipelineError;
use godwit_pipeline::read_groups::{ReadGroups, compatibility_warnings, header_tag};

use super::AlignOptions;
use super::aligner::RunningAligner;
use super::feed::FeedLane;
use super::lanes::Lane;
use super::read_names::NameOrigin;
use crate::reference::check_contig_names;

/// Maximum length of a read group ID that bwa can write (its buffer `bwa_rg_id`), bytes.
const MAX_READ_GROUP_ID_BYTES: usize = 255;

/// The read groups of all lanes. Several lanes may share a read group.
pub(super) struct LaneReadGroups {
    /// Distinct `@RG` lines, in order of their first lane.
    lines: Vec<String>,
    /// ID of the read group of each lane.
    ids: Vec<String>,
    /// Warnings about read groups that other tools reject, or that name another sample than the job.
    warnings: Vec<String>,
}

impl LaneReadGroups {
    /// Takes the `@RG` lines from the options. If the options have none, takes them from the input files, or generates
    /// them from the sample and the names of reads.
    ///
    /// # Errors
    /// [`PipelineError::Options`] for an invalid line or a wrong number of lines.
    pub(super) fn new(options: &AlignOptions, planned: &[Lane]) -> Result<Self, PipelineError> {
        let lanes = planned.len();
        let lane_lines = match &options.read_groups[..] {
            [] => lane_read_group_lines(&options.sample, planned)?,
            [line] => vec![parse_read_group_line(line)?; lanes],
            lines if lines.len() == lanes => {
                lines.iter().map(|line| parse_read_group_line(line)).collect::<Result<_, _>>()?
            }
            lines => {
                let problem = format!(
                    "--read-group is given {} times for {lanes} lanes; give it once for all lanes, or once for each \
                     lane",
                    lines.len()
                );
                return Err(PipelineError::Options { problem });
            }
        };
        let mut groups = Self { lines: Vec::new(), ids: Vec::new(), warnings: Vec::new() };
        for line in lane_lines {
            let line = with_sample(line, &options.sample);
            let id = header_tag(&line, "ID").unwrap_or_default().to_owned();
            let same_id = groups.lines.iter().find(|other| header_tag(other, "ID") == Some(&id));
            match same_id {
                Some(other) if *other != line => {
                    return Err(PipelineError::Options {
                        problem: format!(
                            "two lanes have different read groups with ID {id}; give each read group a unique ID"
                        ),
                    });
                }
                Some(_) => {}
                None => groups.lines.push(line),
            }
            groups.ids.push(id);
        }
        groups.warnings = groups.compatibility_warnings(&options.sample);
        Ok(groups)
    }

    fn compatibility_warnings(&self, sample: &str) -> Vec<String> {
        let mut warnings = compatibility_warnings(self.lines.iter().map(String::as_str));
        for line in &self.lines {
            let (id, named) = (header_tag(line, "ID").unwrap_or_default(), header_tag(line, "SM").unwrap_or_default());
            if named != sample {
                warnings.push(format!(
                    "read group {id} has SM:{named}, but --sample is {sample}: variant callers will name the sample \
                     {named}, and later steps that select {sample} will fail"
                ));
            }
        }
        let samples: BTreeSet<&str> = self.lines.iter().filter_map(|line| header_tag(line, "SM")).collect();
        if samples.len() > 1 {
            let names = samples.into_iter().collect::<Vec<_>>().join(", ");
            warnings.push(format!(
                "the read groups are of several samples ({names}): GATK rejects such a file for GVCFs; align each \
                 sample separately"
            ));
        }
        warnings
    }

    /// Returns warnings about read groups that other tools reject, or that name another sample than the job.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the distinct `@RG` lines, in order of their first lane.
    pub(super) fn read_group_lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns the `ID` of a lane's read group.
    pub(super) fn read_group_id(&self, lane: usize) -> &str {
        &self.ids[lane]
    }

    /// Returns a lane's `@RG` line.
    pub(super) fn read_group_line(&self, lane: usize) -> &str {
        let id = self.read_group_id(lane);
        self.lines.iter().find(|line| header_tag(line, "ID") == Some(id)).map_or("", String::as_str)
    }

    /// Returns the lanes with the read groups of their reads.
    pub(super) fn feed_lanes(&self, lanes: Vec<Lane>, read_groups: &ReadGroups) -> Vec<FeedLane> {
        let pairs = lanes.into_iter().zip(&self.ids);
        pairs
            .map(|(lane, id)| FeedLane {
                lane,
                read_group: Some(id.clone()),
                read_group_indexes: read_groups.indexes_of(Some(id.as_bytes())),
            })
            .collect()
    }
}

/// Adds the sample of the job to an `@RG` line without a sample: GATK rejects reads without a sample.
fn with_sample(line: String, sample: &str) -> String {
    match header_tag(&line, "SM") {
        Some(_) => line,
        None => format!("{line}\tSM:{sample}"),
    }
}

/// Replaces the escapes `\t` and `\\` in an `@RG` line from the options, as bwa does, and validates the line.
fn parse_read_group_line(given: &str) -> Result<String, PipelineError> {
    validate_read_group_line(unescape(given), given)
}

/// Validates an `@RG` line and returns it. Error messages quote the line as `given`.
fn validate_read_group_line(line: String, given: &str) -> Result<String, PipelineError> {
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
        return Err(wrong("has a tag twice"));
    }
    match header_tag(&line, "ID") {
        None | Some("") => Err(wrong("has no ID")),
        Some(id) if id.len() > MAX_READ_GROUP_ID_BYTES => Err(wrong("has an ID of more than 255 bytes")),
        Some(_) => Ok(line),
    }
}

/// Replaces `\t` by a tab and `\\` by a backslash, from left to right as in bwa.
fn unescape(given: &str) -> String {
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

/// Returns one `@RG` line per lane. A SAM, BAM or CRAM file may contain the line. Otherwise it is generated from the
/// name of the first read, or else from the number of the lane. Inputs whose read names show the same lane of the same
/// flow cell share a line, so that optical duplicates are searched across these inputs. In generated lines, the library
/// is the sample.
fn lane_read_group_lines(sample: &str, lanes: &[Lane]) -> Result<Vec<String>, PipelineError> {
    let mut lines = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        if let Some(line) = &lane.read_group {
            lines.push(validate_read_group_line(line.clone(), line)?);
            continue;
        }
        let origin = NameOrigin::from_name(strip_mate_suffix(&lane.first_read_name));
        let id = origin.id.unwrap_or_else(|| format!("{sample}.{}", index + 1));
        let mut line = format!("@RG\tID:{id}\tSM:{sample}\tLB:{sample}");
        for (tag, value) in [("PL", origin.platform), ("PU", origin.platform_unit.as_deref())] {
            line += &value.map(|value| format!("\t{tag}:{value}")).unwrap_or_default();
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Returns a read name without the suffix `/1` or `/2`, which marks the mate.
fn strip_mate_suffix(name: &str) -> &str {
    name.strip_suffix("/1").or(name.strip_suffix("/2")).unwrap_or(name)
}

/// Builds the header of the output.
///
/// # Errors
/// [`PipelineError::Fasta`] when SAM does not permit the name of a contig, and [`PipelineError::Header`] when the contigs
/// of the reference are not a valid header.
pub(super) fn build_header(
    engine: &RunningAligner,
    groups: &LaneReadGroups,
    options: &AlignOptions,
    trimmer: Option<&str>,
) -> Result<Header, PipelineError> {
    let contigs = engine.hello().genome.contigs();
    check_contig_names(&options.reference, contigs.iter().map(|contig| contig.name.as_str()))?;
    let mut text = String::from("@HD\tVN:1.6\tSO:coordinate\n");
    text += &engine.hello().sq_lines;
    for line in &groups.lines {
        text += line;
        text.push('\n');
    }
    let after = match (trimmer, &options.reads.trim) {
        (Some(version), Some(arguments)) => {
            text += &format!("@PG\tID:fastp\tPN:fastp\tVN:{version}\tCL:{}\n", join_command_line("fastp", arguments));
            "\tPP:fastp"
        }
        _ => "",
    };
    let (name, version, command_line_of_aligner) = engine.program_line(options);
    let version = if version.is_empty() { String::new() } else { format!("\tVN:{version}") };
    text += &format!("@PG\tID:{name}\tPN:{name}{after}{version}\tCL:{command_line_of_aligner}\n");
    let mut header =
        Header::parse(text.as_bytes()).map_err(|source| header_error("the reference and read groups", source))?;
    header.add_program("godwit", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", &command_line(options))]);
    Ok(header)
}

/// Returns the command line for the `@PG` line of godwit. It contains only options that change records, so that jobs
/// with the same records write identical files.
pub(super) fn command_line(options: &AlignOptions) -> String {
    let marking = options.job.marking_command_line();
    let aligner = quote_if_needed(options.aligner.records_name());
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
    if let Some(recalibration) = &options.job.recalibration {
        line += &recalibration.command_line();
    }
    if let Some(step) = &options.job.python_step {
        line += &format!(" --step {}", quote_if_needed(&step.function));
    }
    line
}

/// Returns a program and its arguments, separated by spaces.
fn join_command_line(program: &str, arguments: &[String]) -> String {
    let words = std::iter::once(program).chain(arguments.iter().map(String::as_str));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns `text`, in single quotes if it contains a space.
fn quote_if_needed(text: &str) -> String {
    if text.contains(' ') { format!("'{text}'") } else { text.to_owned() }
}

/// Returns the error for an invalid header.
pub(super) fn header_error(origin: &str, source: HeaderError) -> PipelineError {
    PipelineError::Header { origin: origin.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_once_from_left_to_right() {
        assert_eq!(unescape("@RG\\tID:a"), "@RG\tID:a");
        assert_eq!(unescape("a\\\\tb\\"), "a\\tb\\");
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
            assert!(parse_read_group_line(line).is_err(), "{line:?}");
        }
        assert!(parse_read_group_line(&format!("@RG\tID:{}", "x".repeat(256))).is_err());
        assert_eq!(parse_read_group_line("@RG\\tID:a\\tLB:b").unwrap(), "@RG\tID:a\tLB:b");
    }

    #[test]
    fn a_read_group_without_a_sample_gets_that_of_the_run() {
        assert_eq!(with_sample("@RG\tID:x\tLB:l".to_owned(), "s"), "@RG\tID:x\tLB:l\tSM:s");
        assert_eq!(with_sample("@RG\tID:x\tSM:other".to_owned(), "s"), "@RG\tID:x\tSM:other");
    }

    #[test]
    fn defects_that_other_tools_reject_are_reported_before_the_job() {
        let warnings = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            LaneReadGroups { lines, ids: Vec::new(), warnings: Vec::new() }.compatibility_warnings("s")
        };
        assert!(warnings(&["@RG\tID:a\tSM:s", "@RG\tID:b\tSM:s\tPL:illumina"]).is_empty());
        let platform = warnings(&["@RG\tID:a\tSM:s\tPL:HiSeq"]);
        assert!(platform.len() == 1 && platform[0].contains("PL:HiSeq"), "{platform:?}");
        let samples = warnings(&["@RG\tID:a\tSM:s", "@RG\tID:b\tSM:t"]);
        assert!(samples.len() == 2 && samples[0].contains("SM:t") && samples[1].contains("s, t"), "{samples:?}");
    }
}
