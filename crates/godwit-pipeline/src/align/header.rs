//! The header of an aligned run: contigs from the aligner, read groups given or made, the chain of programs.

use std::path::PathBuf;

use arrow_array::cast::AsArray;
use godwit_engines::aligner::Hello;
use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
use godwit_formats::sam::{Header, HeaderError};

use super::AlignOptions;
use super::feed::FeedLane;
use super::read_names::NameOrigin;
use crate::error::PipelineError;
use crate::read_groups::ReadGroups;

/// Longest ID that bwa can write (`bwa_rg_id`).
const MAX_ID_BYTES: usize = 255;

/// The read group of every lane. Lanes may share one.
pub(super) struct LaneGroups {
    /// Distinct `@RG` lines, in order of their first lane.
    lines: Vec<String>,
    /// For each lane the ID of its read group.
    ids: Vec<String>,
}

impl LaneGroups {
    /// The given `@RG` lines, or lines made from sample and read names.
    ///
    /// # Errors
    /// [`PipelineError::Options`] for a wrong line or number of lines, [`PipelineError::Fastq`] when the first read of a
    /// lane cannot be read.
    pub(super) fn new(options: &AlignOptions) -> Result<Self, PipelineError> {
        let lanes = options.lanes.len();
        let lane_lines = match &options.read_groups[..] {
            [] => made(options)?,
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
        let mut groups = Self { lines: Vec::new(), ids: Vec::new() };
        for line in lane_lines {
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
        Ok(groups)
    }

    /// Distinct `@RG` lines, in order of their first lane.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The ID of each lane's read group.
    pub(super) fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Lanes with what their reads belong to.
    pub(super) fn feed_lanes(&self, lanes: &[Vec<PathBuf>], read_groups: &ReadGroups) -> Vec<FeedLane> {
        let pairs = lanes.iter().zip(&self.ids);
        pairs
            .map(|(files, id)| FeedLane {
                files: files.clone(),
                read_group: Some(id.clone()),
                membership: read_groups.membership(Some(id.as_bytes())),
            })
            .collect()
    }
}

/// A given line with its escapes undone (as bwa does: `\t`, `\\`), checked.
fn checked(given: &str) -> Result<String, PipelineError> {
    let line = unescaped(given);
    let wrong = |problem: &str| PipelineError::Options { problem: format!("the read group {given:?} {problem}") };
    if !line.starts_with("@RG\t") {
        return Err(wrong("does not start with @RG and a tab (write \\t)"));
    }
    if line.contains(['\n', '\r']) {
        return Err(wrong("has more than one line"));
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

/// Value of a tag of a header line.
fn tag<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split('\t').skip(1).find_map(|field| field.strip_prefix(name)?.strip_prefix(':'))
}

/// One line per lane, from what the name of its first read tells, else from the lane's number. Files whose names tell of
/// one lane of one flow cell share a line: they are one lane, and optical duplicates are looked for across them. The
/// sample is its own library. Pipes can be read only once, so their read names are not looked at.
fn made(options: &AlignOptions) -> Result<Vec<String>, PipelineError> {
    let sample = &options.sample;
    let mut lines = Vec::new();
    for (index, files) in options.lanes.iter().enumerate() {
        let origin = NameOrigin::of(&first_read_name(files)?);
        let id = origin.id.unwrap_or_else(|| format!("{sample}.{}", index + 1));
        let mut line = format!("@RG\tID:{id}\tSM:{sample}\tLB:{sample}");
        for (tag, value) in [("PL", origin.platform), ("PU", origin.unit.as_deref())] {
            line += &value.map(|value| format!("\t{tag}:{value}")).unwrap_or_default();
        }
        lines.push(line);
    }
    Ok(lines)
}

fn first_read_name(files: &[PathBuf]) -> Result<String, PipelineError> {
    if !files.iter().all(|file| file.is_file()) {
        return Ok(String::new());
    }
    let options = LaneOptions { batch_bytes: 1, decompress_threads: 1, lenient: true, ..LaneOptions::default() };
    let Some(LaneEvent::Reads(batch)) = LaneReader::open(files, &options)?.next()? else { return Ok(String::new()) };
    let name = batch.column_by_name("name").map(|names| names.as_binary::<i32>().value(0)).unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The header of the output.
///
/// # Errors
/// [`PipelineError::Header`] when the contigs of the reference are no valid header.
pub(super) fn of_run(hello: &Hello, groups: &LaneGroups, options: &AlignOptions) -> Result<Header, PipelineError> {
    let mut text = String::from("@HD\tVN:1.6\tSO:coordinate\n");
    text += &hello.sq_lines;
    for line in &groups.lines {
        text += line;
        text.push('\n');
    }
    let mut bwa_arguments = vec![format!("-K {}", options.block_bases)];
    bwa_arguments.extend(options.aligner_args.iter().cloned());
    text += &format!("@PG\tID:bwa\tPN:bwa\tVN:{}\tCL:bwa mem {}\n", hello.engine_version, bwa_arguments.join(" "));
    let mut header =
        Header::parse(text.as_bytes()).map_err(|source| invalid("the reference and read groups", source))?;
    header.add_program("godwit", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", &command_line(options))]);
    Ok(header)
}

/// Only what changes records: with equal options the whole file is the same, wherever and however it was made.
pub(super) fn command_line(options: &AlignOptions) -> String {
    let marking = options.job.marking_command_line();
    let mut line = format!("godwit align --aligner bwa --block-bases {} {marking}", options.block_bases);
    if !options.aligner_args.is_empty() {
        line += &format!(" --aligner-args '{}'", options.aligner_args.join(" "));
    }
    line
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
        for line in ["ID:a", "@RG", "@RG\tID:", "@RG\tSM:s", "@RG\tID:a\tID:b", "@RG\tID:a\nx", "@RG\tID:a\tLB:"] {
            assert!(checked(line).is_err(), "{line:?}");
        }
        assert!(checked(&format!("@RG\tID:{}", "x".repeat(256))).is_err());
        assert_eq!(checked("@RG\\tID:a\\tLB:b").unwrap(), "@RG\tID:a\tLB:b");
    }
}
