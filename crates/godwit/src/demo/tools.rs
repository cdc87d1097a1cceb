//! The output against bwa, samtools and Picard, where they are installed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use godwit_pipeline::AlignOptions;
use godwit_process::Temporary;

/// FLAG of duplicates.
const DUPLICATE: u32 = 0x400;

/// Differences from the reference tools.
#[derive(Debug, Default)]
pub struct ToolComparison {
    /// The aligner and sorter compared with, `None` where they are not installed.
    pub aligner: Option<String>,
    /// Records that differ in anything but the duplicate flag.
    pub records_differing: u64,
    /// Records whose duplicate flag differs from Picard's, `None` where Picard is not installed.
    pub flags_differing: Option<u64>,
}

/// Runs the tools that are there on the same input and compares record by record, in order; tags as a set.
pub fn compare_with_tools(options: &AlignOptions, bam: &Path) -> Result<ToolComparison, String> {
    let mut comparison = ToolComparison::default();
    let installed = on_path("bwa") && on_path("samtools") && bwa_is_the_same();
    if !installed {
        return Ok(comparison);
    }
    let temporary =
        Temporary::create(|| tempfile::Builder::new().prefix(".godwit-reference-tools-").tempdir_in(&options.out));
    let temporary = temporary.map_err(|error| format!("cannot write to {}: {error}", options.out.display()))?;
    let work = temporary.path();
    let header = text_of(Command::new("samtools").arg("view").arg("-H").arg(bam))?;
    // `samtools cat` would keep the read groups of the first lane only.
    let header_path = work.join("header.sam");
    std::fs::write(&header_path, &header)
        .map_err(|error| format!("cannot write {}: {error}", header_path.display()))?;
    let sorted = align_and_sort(options, &header, &header_path, work)?;
    comparison.aligner = Some("bwa mem | samtools sort".into());
    let picard = picard_command();
    let expected = match &picard {
        Some(picard) => mark_duplicates(picard, &sorted, work)?,
        None => sorted,
    };
    let (records, flags) = differences(bam, &expected)?;
    comparison.records_differing = records;
    comparison.flags_differing = picard.map(|_| flags);
    Ok(comparison)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Other versions of bwa write other tags.
fn bwa_is_the_same() -> bool {
    let output = Command::new("bwa").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("Version: 0.7.17"))
}

/// A command's stdout as text.
fn text_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `bwa mem` per lane, put together in lane order and sorted.
fn align_and_sort(options: &AlignOptions, header: &str, header_path: &Path, work: &Path) -> Result<PathBuf, String> {
    let groups: Vec<&str> = header.lines().filter(|line| line.starts_with("@RG")).collect();
    let mut lanes = Vec::new();
    for (index, files) in options.lanes.iter().enumerate() {
        let sam = work.join(format!("lane{}.sam", index + 1));
        let group = groups.get(index).or(groups.first()).copied().unwrap_or_default().replace('\t', "\\t");
        let mut bwa = Command::new("bwa");
        bwa.arg("mem").args(["-v", "1", "-K", &options.block_bases.to_string()]);
        bwa.args(["-t", &options.job.threads.to_string(), "-R", &group, "-o"]).arg(&sam);
        bwa.args(&options.aligner_args).arg(&options.reference).args(files);
        text_of(&mut bwa)?;
        lanes.push(sam);
    }
    let (together, sorted) = (work.join("lanes.bam"), work.join("sorted.bam"));
    text_of(
        Command::new("samtools").args(["cat", "-h"]).arg(header_path).arg("-o").arg(&together).args(as_bam(&lanes)?),
    )?;
    text_of(Command::new("samtools").args(["sort", "-o"]).arg(&sorted).arg(&together))?;
    Ok(sorted)
}

/// `samtools cat` takes BAM only.
fn as_bam(sams: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let convert = |sam: &PathBuf| {
        let bam = sam.with_extension("bam");
        text_of(Command::new("samtools").args(["view", "-b", "-o"]).arg(&bam).arg(sam)).map(|_| bam)
    };
    sams.iter().map(convert).collect()
}

/// How to start Picard 3.4.0, with Java.
fn picard_command() -> Option<Vec<String>> {
    let jar = picard_jar().filter(|_| on_path("java"))?;
    let class_path = format!("{}/*", jar.parent()?.display());
    Some(vec!["java".into(), "-cp".into(), class_path, "picard.cmdline.PicardCommandLine".into()])
}

/// Picard 3.4.0 where the tests keep its jars, if it is there.
pub fn picard_jar() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("godwit/picard-3.4.0/picard-3.4.0.jar")).filter(|jar| jar.is_file())
}

fn mark_duplicates(picard: &[String], sorted: &Path, work: &Path) -> Result<PathBuf, String> {
    let marked = work.join("marked.bam");
    let mut command = Command::new(&picard[0]);
    command.args(&picard[1..]).arg("MarkDuplicates");
    command.arg("--INPUT").arg(sorted).arg("--OUTPUT").arg(&marked);
    command.arg("--METRICS_FILE").arg(work.join("metrics.txt"));
    command.args(["--ADD_PG_TAG_TO_READS", "false", "--QUIET", "true", "--VERBOSITY", "ERROR"]);
    text_of(&mut command)?;
    Ok(marked)
}

/// Records of a BAM as text.
struct Records {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Records {
    fn of(bam: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot run samtools view {}: {error}", bam.display());
        let mut child = Command::new("samtools").arg("view").arg(bam).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed(std::io::Error::other("no pipe")))?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    fn next(&mut self) -> Result<Option<String>, String> {
        self.lines.next().transpose().map_err(|error| format!("cannot read from samtools view: {error}"))
    }

    fn finish(mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("samtools view ended with {status}")) }
    }
}

/// Numbers of records that differ, without and in the duplicate flag. Records that one side lacks count as differing.
fn differences(ours: &Path, theirs: &Path) -> Result<(u64, u64), String> {
    let (mut a, mut b) = (Records::of(ours)?, Records::of(theirs)?);
    let (mut records, mut flags) = (0, 0);
    loop {
        match (a.next()?, b.next()?) {
            (None, None) => break,
            (Some(one), Some(two)) => {
                let (one, two) = (Record::parse(&one), Record::parse(&two));
                flags += u64::from(one.duplicate != two.duplicate);
                records += u64::from((one.flag, one.fields, one.tags) != (two.flag, two.fields, two.tags));
            }
            _ => records += 1,
        }
    }
    a.finish()?;
    b.finish()?;
    Ok((records, flags))
}

/// A line of SAM, taken apart for comparing.
struct Record<'l> {
    duplicate: bool,
    flag: u32,
    fields: Vec<&'l str>,
    tags: BTreeSet<&'l str>,
}

impl<'l> Record<'l> {
    fn parse(line: &'l str) -> Self {
        let mut fields: Vec<&str> = line.split('\t').collect();
        let tags = fields.split_off(fields.len().min(11)).into_iter().collect();
        let flag: u32 = fields.get(1).and_then(|flag| flag.parse().ok()).unwrap_or(0);
        if fields.len() > 1 {
            fields.remove(1);
        }
        Self { duplicate: flag & DUPLICATE != 0, flag: flag & !DUPLICATE, fields, tags }
    }
}
