//! The sample sheet of a workflow: a CSV file (RFC 4180) with one line for each lane of each sample.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use godwit_model::PloidyTable;
use godwit_pipeline::PipelineError;
use serde::{Deserialize, Serialize};

use super::remote_files::is_address;

/// Names of the columns of a sample sheet. The first two are required.
const SHEET_COLUMNS: [&str; 8] = ["sample", "fastq_1", "fastq_2", "lane", "library", "platform", "sex", "reference"];
/// Maximum number of problems in an error message.
const MAX_REPORTED_PROBLEMS: usize = 20;
const REQUIRED_COLUMNS: usize = 2;
/// Sequencing platform of a line that names no platform: the `PL` value of the read group (SAMv1 §1.3).
const DEFAULT_PLATFORM: &str = "ILLUMINA";
/// File names that godwit uses in the output directory, so that samples cannot have them.
const RESERVED_NAMES: [&str; 3] = ["run.json", "report.html", "cohort.html"];

/// A sample and its lanes, which are in the order of the sheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetSample {
    /// Name of the sample.
    pub name: String,
    /// Sex of the sample, as named in the ploidy table; `None` if the sheet does not name a sex.
    pub sex: Option<String>,
    /// Lanes of the sample, at least one.
    pub lanes: Vec<SheetLane>,
    /// Message about the first file of the sample that does not exist, with its position in the sheet; `None` if all
    /// files exist.
    pub missing_file: Option<String>,
}

/// The reads of one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SheetLane {
    /// Path or address of the file with read 1 and, for paired reads, of the file with read 2.
    pub files: Vec<PathBuf>,
    /// The `@RG` line of the lane, in which `\t` stands for a tab.
    pub read_group: String,
}

/// Returns the problem of a sample name, or `None` if it is valid. The name is used for files and directories.
pub fn sample_name_problem(name: &str) -> Option<&'static str> {
    let fine = !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && name.chars().all(|c| !c.is_control() && c != '/');
    (!fine).then_some("a sample name is a file name: no /, no control characters, no leading dot")
}

/// Reads a sample sheet. Relative paths in it are relative to its directory. `ploidy`: the table that defines the
/// allowed sexes. `reference`: path or address of the reference of all samples.
///
/// # Errors
/// [`PipelineError::Sheet`] with the lines and columns of all problems. [`PipelineError::Missing`] or
/// [`PipelineError::File`] if the sheet cannot be read. Missing read files are an error only if every sample has one;
/// otherwise they are in [`SheetSample::missing_file`].
pub(crate) fn read_sample_sheet(
    path: &Path,
    ploidy: Option<&PloidyTable>,
    reference: &Path,
) -> Result<Vec<SheetSample>, PipelineError> {
    let text = std::fs::read(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            let remedy = "check the path".to_owned();
            PipelineError::Missing { description: "the sample sheet", path: path.to_owned(), remedy }
        }
        _ => PipelineError::File { action: "read", path: path.to_owned(), source },
    })?;
    let text = with_unix_line_ends(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text));
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&*text);
    let mut lines = LineCounter { text: &text, offset: 0, line: 1 };
    let mut sheet = SampleSheetParser {
        path,
        ploidy,
        reference,
        columns: BTreeMap::new(),
        samples: Vec::new(),
        first_lines: Vec::new(),
        file_lines: HashMap::new(),
        read_group_ids: HashSet::new(),
        missing_files: Vec::new(),
    };
    let (mut problems, mut is_refused) = (Vec::new(), false);
    for row in reader.records() {
        let row = row.map_err(|error| {
            let line = lines.line_at(error.position());
            sheet.error_at(line, None, &error.to_string())
        })?;
        let line = lines.line_at(row.position());
        match sheet.columns.is_empty() {
            true => sheet.parse_header(line, &row)?,
            false => {
                let problem = sheet.parse_row(line, &row).err();
                is_refused |= problem.is_some();
                problems.extend(sheet.missing_files.drain(..).chain(problem));
            }
        }
    }
    if is_refused || sheet.samples.iter().all(|sample| sample.missing_file.is_some()) {
        combine_problems(problems)?;
    }
    if sheet.samples.is_empty() {
        return Err(sheet.error_at(
            1,
            None,
            "the sheet has no samples; it must have a line of column names and a line for each lane",
        ));
    }
    Ok(sheet.samples)
}

/// Returns a text in which all line ends are line feeds.
fn with_unix_line_ends(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len());
    let mut rest = text.iter().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            b'\r' if rest.peek() == Some(&&b'\n') => {}
            b'\r' => lines.push(b'\n'),
            byte => lines.push(*byte),
        }
    }
    lines
}

/// A counter of the lines of a text.
struct LineCounter<'t> {
    text: &'t [u8],
    /// Offset up to which lines are counted, bytes.
    offset: usize,
    /// Number of the line at the offset, 1-based.
    line: u64,
}

impl LineCounter<'_> {
    /// Returns the number of the line with the first field of a record. The positions of records must ascend. For the
    /// parser, a record begins with the empty lines before it.
    fn line_at(&mut self, record: Option<&csv::Position>) -> u64 {
        let start = record.map_or(self.offset, |position| position.byte() as usize).clamp(self.offset, self.text.len());
        let start = start + self.text[start..].iter().take_while(|byte| **byte == b'\n').count();
        self.line += self.text[self.offset..start].iter().filter(|byte| **byte == b'\n').count() as u64;
        self.offset = start;
        self.line
    }
}

/// Combines all problems of a sheet into a single error.
fn combine_problems(problems: Vec<PipelineError>) -> Result<(), PipelineError> {
    let more = problems.len().saturating_sub(MAX_REPORTED_PROBLEMS);
    let mut problems = problems.into_iter().take(MAX_REPORTED_PROBLEMS);
    let Some(mut first) = problems.next() else { return Ok(()) };
    if let PipelineError::Sheet { problem: told, .. } = &mut first {
        for other in problems {
            if let PipelineError::Sheet { position, problem, .. } = other {
                *told += &format!("; {position}: {problem}");
            }
        }
        if more > 0 {
            *told += &format!("; and {more} more");
        }
    }
    Err(first)
}

struct SampleSheetParser<'p> {
    path: &'p Path,
    ploidy: Option<&'p PloidyTable>,
    /// Path or address of the reference of all samples.
    reference: &'p Path,
    /// Index of each column that the sheet has, 0-based, by its name.
    columns: BTreeMap<&'static str, usize>,
    samples: Vec<SheetSample>,
    /// Number of the line with the first lane of each sample.
    first_lines: Vec<u64>,
    /// Number of the line that first names a file.
    file_lines: HashMap<PathBuf, u64>,
    /// Identifiers of the read groups so far.
    read_group_ids: HashSet<String>,
    /// Errors for the files of the current line that do not exist.
    missing_files: Vec<PipelineError>,
}

impl SampleSheetParser<'_> {
    fn error_at(&self, line: u64, column: Option<&str>, problem: &str) -> PipelineError {
        let column = column.map(|column| format!(", column {column}")).unwrap_or_default();
        PipelineError::Sheet {
            path: self.path.to_owned(),
            position: format!("line {line}{column}"),
            problem: problem.to_owned(),
        }
    }

    fn parse_header(&mut self, line: u64, row: &csv::StringRecord) -> Result<(), PipelineError> {
        let separators = [(";", "semicolons"), ("\t", "tabs")];
        let other = separators.into_iter().find(|(separator, _)| row.len() == 1 && row[0].contains(separator));
        if let Some((_, name)) = other {
            let problem = format!("the columns are separated by {name}; save the sheet with commas (CSV)");
            return Err(self.error_at(line, None, &problem));
        }
        let mut problems = Vec::new();
        for (place, given) in row.iter().enumerate() {
            let Some(name) = SHEET_COLUMNS.iter().find(|name| **name == given.trim()) else {
                let problem = format!("unknown column {given:?}; the columns are {}", SHEET_COLUMNS.join(", "));
                problems.push(self.error_at(line, Some(&(place + 1).to_string()), &problem));
                continue;
            };
            if self.columns.insert(name, place).is_some() {
                problems.push(self.error_at(line, Some(name), "duplicate column"));
            }
        }
        for name in SHEET_COLUMNS[..REQUIRED_COLUMNS].iter().filter(|name| !self.columns.contains_key(*name)) {
            problems.push(self.error_at(
                line,
                Some(name),
                "the column is missing; the first line must name the columns",
            ));
        }
        combine_problems(problems)
    }

    fn parse_row(&mut self, line: u64, row: &csv::StringRecord) -> Result<(), PipelineError> {
        if row.len() != self.columns.len() {
            let problem = format!("it has {} fields, and the first line has {}", row.len(), self.columns.len());
            return Err(self.error_at(line, None, &problem));
        }
        let field = |name: &str| self.columns.get(name).map_or("", |place| row.get(*place).unwrap_or("").trim());
        let name = field("sample");
        let problem = match RESERVED_NAMES.contains(&name) {
            true => Some("an output file of the workflow has this name"),
            false => sample_name_problem(name),
        };
        if let Some(problem) = problem {
            return Err(self.error_at(line, Some("sample"), problem));
        }
        for column in ["sample", "lane", "library", "platform"] {
            if field(column).contains(['\\', '\t', '\n', '\r']) {
                let problem = "the value becomes part of a read group, which cannot contain \\, tabs and line ends";
                return Err(self.error_at(line, Some(column), problem));
            }
        }
        if let Some(problem) = self.reference_problem(field("reference")) {
            return Err(self.error_at(line, Some("reference"), &problem));
        }
        if field("fastq_1").is_empty() {
            return Err(self.error_at(line, Some("fastq_1"), "the value is empty"));
        }
        let known = self.samples.iter().position(|sample| sample.name == name);
        let sex = Some(field("sex")).filter(|sex| !sex.is_empty()).map(str::to_owned);
        if let Some(problem) = self.sex_problem(sex.as_deref(), known) {
            return Err(self.error_at(line, Some("sex"), &problem));
        }
        let number = known.map_or(0, |at| self.samples[at].lanes.len()) + 1;
        let lane = Some(field("lane")).filter(|lane| !lane.is_empty()).map_or(number.to_string(), str::to_owned);
        let or = |value: &'static str, column: &str| match field(column) {
            "" => value.to_owned(),
            given => given.to_owned(),
        };
        let library = if field("library").is_empty() { name } else { field("library") };
        let (id, platform) = (format!("{name}.{lane}"), or(DEFAULT_PLATFORM, "platform"));
        let read_group = format!("@RG\\tID:{id}\\tSM:{name}\\tLB:{library}\\tPL:{platform}");
        let mut files = Vec::new();
        for column in ["fastq_1", "fastq_2"].into_iter().filter(|column| !field(column).is_empty()) {
            files.push((column, self.resolve_path(field(column))));
        }
        let name = name.to_owned();
        for (column, file) in &files {
            if let Some(before) = self.file_lines.insert(file.clone(), line) {
                let problem = format!("{} is also in line {before}; list each file once", file.display());
                return Err(self.error_at(line, Some(column), &problem));
            }
            if !is_address(file) && !file.exists() {
                let missing = self.error_at(line, Some(column), &format!("{} does not exist", file.display()));
                self.missing_files.push(missing);
            }
        }
        if !self.read_group_ids.insert(id) {
            return Err(self.error_at(line, Some("lane"), &format!("{name} has lane {lane} in an earlier line")));
        }
        let lane = SheetLane { files: files.into_iter().map(|(_, file)| file).collect(), read_group };
        let at = known.unwrap_or(self.samples.len());
        if known.is_none() {
            self.samples.push(SheetSample { name, sex, lanes: Vec::new(), missing_file: None });
            self.first_lines.push(line);
        }
        let sample = &mut self.samples[at];
        sample.lanes.push(lane);
        sample.missing_file =
            sample.missing_file.take().or_else(|| self.missing_files.first().map(ToString::to_string));
        Ok(())
    }

    /// Returns the path of a file that a field names. Addresses stay unchanged; relative paths are relative to the
    /// sheet.
    fn resolve_path(&self, named: &str) -> PathBuf {
        let named = Path::new(named);
        if is_address(named) { named.to_owned() } else { self.path.parent().unwrap_or(Path::new("")).join(named) }
    }

    /// Returns the problem of the reference that a line names; `None` if it is valid or empty.
    fn reference_problem(&self, named: &str) -> Option<String> {
        let reference = self.resolve_path(named);
        if named.is_empty() || is_same_file(&reference, self.reference) {
            return None;
        }
        let (found, wanted) = (reference.display(), self.reference.display());
        Some(format!(
            "{found} is not the reference {wanted} of this workflow; run samples of another reference separately"
        ))
    }

    /// Returns the problem of the sex that a line names; `None` if it is valid. `known`: index of the sample if an
    /// earlier line names it.
    fn sex_problem(&self, sex: Option<&str>, known: Option<usize>) -> Option<String> {
        let in_words = |sex: Option<&str>| sex.map_or("no sex".to_owned(), |sex| format!("the sex {sex}"));
        if let Some(at) = known.filter(|at| self.samples[*at].sex.as_deref() != sex) {
            let SheetSample { name, sex: before, .. } = &self.samples[at];
            let (before, line) = (in_words(before.as_deref()), self.first_lines[at]);
            return Some(format!("{name} has {before} in line {line}, but {} in this line", in_words(sex)));
        }
        match (sex?, self.ploidy) {
            (sex, None) => {
                Some(format!("{sex} has no effect without --ploidy: give a ploidy table, or omit the column"))
            }
            (sex, Some(table)) => table.check_sex(sex).err().map(|error| error.to_string()),
        }
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| std::fs::canonicalize(path).ok();
    one == other || found(one).is_some_and(|one| Some(one) == found(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<SheetSample>, String> {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a_1.fq", "a_2.fq", "b_1.fq", "b_2.fq"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let path = directory.path().join("sheet.csv");
        std::fs::write(&path, text).unwrap();
        let reference = directory.path().join("a_1.fq");
        read_sample_sheet(&path, PloidyTable::built_in("GRCh38").as_ref(), &reference)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn lanes_of_a_sample_come_together() {
        let text = "\u{feff}sample,platform,fastq_2,fastq_1,lane\n\"s 1\",ILLUMINA,a_2.fq,a_1.fq,L1\nt,,,b_1.fq,\n\"s 1\",,,b_2.fq,L2\n";
        let samples = read(text).unwrap();
        assert_eq!(
            samples.iter().map(|sample| (&*sample.name, sample.lanes.len())).collect::<Vec<_>>(),
            [("s 1", 2), ("t", 1)]
        );
        assert_eq!(samples[0].lanes[0].files.len(), 2);
        assert_eq!(samples[0].lanes[1].read_group, "@RG\\tID:s 1.L2\\tSM:s 1\\tLB:s 1\\tPL:ILLUMINA");
        assert_eq!(samples[1].lanes[0].read_group, "@RG\\tID:t.1\\tSM:t\\tLB:t\\tPL:ILLUMINA");
    }

    #[test]
    fn what_is_wrong_is_named_by_line_and_column() {
        for (text, named) in [
            ("", &["line 1", "no samples"][..]),
            ("sample,fastq_1\n", &["line 1", "no samples"]),
            ("sample,fastq1\n", &["line 1, column 2", "\"fastq1\"", "fastq_1"]),
            ("sample,fastq_1,sample\n", &["line 1, column sample", "duplicate"]),
            ("sample,lane\n", &["line 1, column fastq_1", "missing"]),
            ("sample,fastq_1\na,a_1.fq,a_2.fq\n", &["line 2", "3 fields"]),
            ("sample,fastq_1\na,a_1.fq\n.b,b_1.fq\n", &["line 3, column sample", "file name"]),
            ("sample,fastq_1\nrun.json,a_1.fq\n", &["line 2, column sample"]),
            ("sample,fastq_1\na,\n", &["line 2, column fastq_1", "empty"]),
            ("sample,fastq_1\na,c_1.fq\n", &["line 2, column fastq_1", "c_1.fq does not exist"]),
            ("sample,fastq_1\na,a_1.fq\nb,a_1.fq\n", &["line 3, column fastq_1", "line 2"]),
            ("sample,fastq_1,lane\na,a_1.fq,1\na,b_1.fq,1\n", &["line 3, column lane", "in an earlier line"]),
            ("sample,fastq_1,library\na,a_1.fq,x\ty\n", &["line 2, column library"]),
            ("sample,fastq_1,sex\na,a_1.fq,M\nb,b_1.fq,male\n", &["line 3, column sex", "sex male", "F and M"]),
            ("sample,sex,fastq_1\na,M,a_1.fq\nb,F,b_1.fq\na,F,a_2.fq\n", &["line 4, column sex", "sex M in line 2"]),
            (
                "sample,sex,fastq_1\na,,a_1.fq\na,F,a_2.fq\n",
                &["line 3, column sex", "no sex in line 2", "sex F in this line"],
            ),
            (
                "sample,sex,fastq_1\na,F,a_1.fq\na,,a_2.fq\n",
                &["line 3, column sex", "sex F in line 2", "no sex in this line"],
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains("sheet.csv") && named.iter().all(|word| error.contains(word)), "{text:?}: {error}");
        }
        assert!(read("sample,fastq_1\na,\"a_1.fq\nb,b_1.fq\n").is_err());
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        for end in ["\n", "\r\n", "\r"] {
            let text =
                ["", "sample,fastq_1", "", "a,\"a_1.fq\"", "", "", "b,", "c,", "\"d\nd\",b_1.fq", "e,"].join(end);
            let error = read(&text).unwrap_err();
            // The name of the sample in line 9 has a line break.
            for line in [7, 8, 9, 11] {
                assert!(error.contains(&format!("line {line}, column ")), "{end:?}, {line}: {error}");
            }
            assert_eq!(error.matches("line ").count(), 4, "{end:?}: {error}");
        }
    }

    #[test]
    fn all_problems_of_the_first_line_are_reported_at_once() {
        let error = read("name,fastq_2,lane,lane,fastq\na,a_1.fq,1,1,b_1.fq\n").unwrap_err();
        for named in [
            "line 1, column 1: unknown column \"name\"",
            "line 1, column lane: duplicate",
            "line 1, column 5: unknown column \"fastq\"",
            "line 1, column sample: the column is missing",
            "line 1, column fastq_1: the column is missing",
        ] {
            assert!(error.contains(named), "{named}: {error}");
        }
        for (text, name) in [("sample;fastq_1\na;a_1.fq\n", "semicolons"), ("sample\tfastq_1\na\ta_1.fq\n", "tabs")] {
            let error = read(text).unwrap_err();
            assert!(error.contains("line 1") && error.contains(name) && error.contains("commas"), "{error}");
        }
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let text =
            "sample,fastq_1,reference\na,none.fq,\n,b_1.fq,\nb,b_2.fq,b_1.fq\nc,a_2.fq,a_1.fq\nd,b_1.fq,./a_1.fq\n";
        let error = read(text).unwrap_err();
        for named in ["line 2, column fastq_1", "line 3, column sample", "line 4, column reference", "separately"] {
            assert!(error.contains(named), "{named}: {error}");
        }
        assert!(!error.contains("line 5") && !error.contains("line 6"), "{error}");
        let many: String = (0..100).map(|line| format!("s{line},none.fq\n")).collect();
        assert!(read(&format!("sample,fastq_1\n{many}")).unwrap_err().ends_with("; and 80 more"));
    }

    #[test]
    fn a_reference_is_compared_by_its_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sheet.csv");
        std::fs::write(&path, "sample,fastq_1,reference\na,godwit+pool://s/a.fq,godwit+pool://s/r.fa\n").unwrap();
        let read = |reference: &str| read_sample_sheet(&path, None, Path::new(reference)).map(|samples| samples.len());
        assert_eq!(read("godwit+pool://s/r.fa").unwrap(), 1);
        assert!(read("godwit+pool://s/other.fa").unwrap_err().to_string().contains("godwit+pool://s/r.fa is not"));
    }

    #[test]
    fn a_sample_whose_files_do_not_exist_does_not_keep_the_others() {
        let samples = read("sample,fastq_1,fastq_2\na,a_1.fq,none.fq\nb,b_1.fq,\na,a_2.fq,\n").unwrap();
        let missing: Vec<_> = samples.iter().map(|sample| sample.missing_file.as_deref()).collect();
        assert!(
            missing[0].is_some_and(|problem| problem.contains("line 2, column fastq_2") && problem.contains("none.fq"))
        );
        assert_eq!((missing[1], samples[0].lanes.len()), (None, 2));
    }

    #[test]
    fn samples_have_the_sex_of_their_lanes() {
        let text = "sex,sample,fastq_1\nM,a,a_1.fq\n,b,b_1.fq\n M ,a,a_2.fq\n";
        let samples = read(text).unwrap();
        assert_eq!(samples.iter().map(|sample| sample.sex.as_deref()).collect::<Vec<_>>(), [Some("M"), None]);
    }
}
