//! Compares the output of `godwit demo` with that of bwa, samtools and Picard, if they are installed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use godwit_align::AlignOptions;
use godwit_process::TemporaryItem;

/// Bit of FLAG that marks a duplicate.
const DUPLICATE: u32 = 0x400;

/// Differences between the output of godwit and that of the reference tools.
#[derive(Debug, Default)]
pub struct ToolComparison {
    /// Names of the aligner and the sorter that godwit was compared with; `None` if they are not installed.
    pub aligner: Option<String>,
    /// Number of records that differ in anything except the duplicate flag.
    pub records_differing: u64,
    /// Number of records whose duplicate flag differs from Picard's; `None` if Picard is not installed.
    pub flags_differing: Option<u64>,
}

/// Runs the installed tools on the same input, and compares their records with those of `bam`, record by record in
/// order. The order of the tags in a record is ignored.
pub fn compare_with_tools(options: &AlignOptions, bam: &Path) -> Result<ToolComparison, String> {
    let mut comparison = ToolComparison::default();
    let installed = is_on_path("bwa") && is_on_path("samtools") && is_expected_bwa();
    if !installed {
        return Ok(comparison);
    }
    let temporary =
        TemporaryItem::create(|| tempfile::Builder::new().prefix(".godwit-reference-tools-").tempdir_in(&options.out));
    let temporary = temporary.map_err(|error| format!("cannot write to {}: {error}", options.out.display()))?;
    let work = temporary.path();
    let header = run_for_stdout(Command::new("samtools").arg("view").arg("-H").arg(bam))?;
    // Pass a header to `samtools cat`, which would otherwise only keep the read groups of the first lane.
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
    let (records, flags) = count_differences(bam, &expected)?;
    comparison.records_differing = records;
    comparison.flags_differing = picard.map(|_| flags);
    Ok(comparison)
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Returns whether the installed bwa is version 0.7.17; other versions write different tags.
fn is_expected_bwa() -> bool {
    let output = Command::new("bwa").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("Version: 0.7.17"))
}

/// Runs a command and returns its stdout as text.
fn run_for_stdout(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `bwa mem` for each lane, concatenates the lanes in order, and sorts the records. Returns the path of the sorted
/// BAM.
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
        run_for_stdout(&mut bwa)?;
        lanes.push(sam);
    }
    let (together, sorted) = (work.join("lanes.bam"), work.join("sorted.bam"));
    run_for_stdout(
        Command::new("samtools")
            .args(["cat", "-h"])
            .arg(header_path)
            .arg("-o")
            .arg(&together)
            .args(convert_to_bam(&lanes)?),
    )?;
    run_for_stdout(Command::new("samtools").args(["sort", "-o"]).arg(&sorted).arg(&together))?;
    Ok(sorted)
}

/// Converts SAM files to BAM files, because `samtools cat` only accepts BAM.
fn convert_to_bam(sams: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let convert = |sam: &PathBuf| {
        let bam = sam.with_extension("bam");
        run_for_stdout(Command::new("samtools").args(["view", "-b", "-o"]).arg(&bam).arg(sam)).map(|_| bam)
    };
    sams.iter().map(convert).collect()
}

/// Returns the command line that runs Picard 3.4.0 with Java; `None` if either is not installed.
fn picard_command() -> Option<Vec<String>> {
    let jar = picard_jar().filter(|_| is_on_path("java"))?;
    let class_path = format!("{}/*", jar.parent()?.display());
    Some(vec!["java".into(), "-cp".into(), class_path, "picard.cmdline.PicardCommandLine".into()])
}

/// Returns the path of the jar of Picard 3.4.0 in the cache directory of the tests, if the file exists.
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
    run_for_stdout(&mut command)?;
    Ok(marked)
}

/// A reader of the records of a BAM file as SAM text, from `samtools view`.
struct SamRecordReader {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl SamRecordReader {
    fn open(bam: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot run samtools view {}: {error}", bam.display());
        let mut child = Command::new("samtools").arg("view").arg(bam).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed(std::io::Error::other("no pipe")))?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    fn next_line(&mut self) -> Result<Option<String>, String> {
        self.lines.next().transpose().map_err(|error| format!("cannot read from samtools view: {error}"))
    }

    fn finish(mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("samtools view ended with {status}")) }
    }
}

/// Returns the number of records that differ in anything except the duplicate flag, and the number whose duplicate
/// flags differ. A record that is in only one of the files counts as differing.
fn count_differences(ours: &Path, theirs: &Path) -> Result<(u64, u64), String> {
    let (mut a, mut b) = (SamRecordReader::open(ours)?, SamRecordReader::open(theirs)?);
    let (mut records, mut flags) = (0, 0);
    loop {
        match (a.next_line()?, b.next_line()?) {
            (None, None) => break,
            (Some(one), Some(two)) => {
                let (one, two) = (SamRecord::parse(&one), SamRecord::parse(&two));
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

/// A parsed SAM line, for comparing two records.
struct SamRecord<'l> {
    duplicate: bool,
    flag: u32,
    fields: Vec<&'l str>,
    tags: BTreeSet<&'l str>,
}

impl<'l> SamRecord<'l> {
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
