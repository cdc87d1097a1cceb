//! Searches ranges of a database with an installed BLAST+, one run for each range, and merges the tables. An alias file
//! of BLAST+ defines each range.
//!
//! A run writes an archive (`-outfmt 11`), from which `blast_formatter` makes rows. The sort keys of the rows come from
//! the archive, where e-values have 15 digits. [`merge_tables`] merges the rows in the order of BLAST+. The result is
//! usually but not always that of one run over the whole database: each run limits the subjects of a query before the
//! traceback, so all runs together can keep more subjects than one run.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ToolSearch;
use super::preparation::tool_error;
use crate::SearchError;
use crate::search_plan::partition_by_weight;

/// E-value below which BLAST+ treats all e-values as equal (blast_hits.c, `s_EvalueComp`).
const MIN_EVALUE: f64 = 1e-180;
/// Default maximum number of subjects in the results for a query (`-max_target_seqs`).
pub(crate) const DEFAULT_MAX_SUBJECTS: usize = 500;

/// The ranges of the database, and the options for merging their tables.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RangeTables {
    /// Value of `-outfmt` for `blast_formatter`: the number of the format and the fields, then the score.
    #[serde(rename = "format")]
    output_format: String,
    /// Separator between the fields of a row.
    delimiter: char,
    /// Maximum number of subjects in the results for a query.
    #[serde(rename = "subjects")]
    max_subjects: usize,
    /// First and last sequence of each range; sequences of the database are numbered from 1.
    pub(crate) ranges: Vec<(u64, u64)>,
    is_protein: bool,
}

impl RangeTables {
    /// Creates the options without ranges, which are cut when the database is known.
    pub(crate) fn new(output_format: String, delimiter: char, max_subjects: usize, is_protein: bool) -> Self {
        Self { output_format, delimiter, max_subjects, ranges: Vec::new(), is_protein }
    }

    /// Returns the format and the maximum number of subjects as options of BLAST+.
    pub(super) fn description(&self) -> String {
        format!("-outfmt '{}' -max_target_seqs {}", self.output_format, self.max_subjects)
    }
}

/// Reads the sequence lengths of the database with `blastdbcmd`, and cuts the database into ranges of about equal total
/// length.
pub(super) fn cut_database(
    bulk: &mut ToolSearch,
    program: &Path,
    pieces: usize,
    name: &'static str,
) -> Result<(), SearchError> {
    let Some(tables) = &mut bulk.range_tables else { return Ok(()) };
    let names = bulk.database.to_string_lossy().into_owned();
    let absolute: Vec<String> = names.split_whitespace().map(absolute_database_path).collect();
    bulk.database = PathBuf::from(absolute.join(" "));
    let blastdbcmd = program.with_file_name("blastdbcmd");
    let kind = if tables.is_protein { "prot" } else { "nucl" };
    let mut command = Command::new(&blastdbcmd);
    command.arg("-db").arg(&bulk.database).args(["-dbtype", kind, "-entry", "all", "-outfmt", "%l"]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| SearchError::File { action: "start", path: blastdbcmd.clone(), source })?;
    if !output.status.success() {
        let message = super::preparation::output_tail(&String::from_utf8_lossy(&output.stderr));
        return Err(SearchError::Database { message });
    }
    let lengths: Option<Vec<u64>> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().parse().ok()).collect();
    let lengths = lengths.filter(|lengths| !lengths.is_empty());
    let lengths = lengths.ok_or_else(|| tool_error(name, "blastdbcmd reports no sequence lengths of the database"))?;
    let cuts = partition_by_weight(&lengths, pieces);
    tables.ranges = cuts.windows(2).map(|pair| (pair[0] as u64 + 1, pair[1] as u64)).collect();
    Ok(())
}

/// Returns the absolute path of a database that exists relative to the current directory; returns any other name
/// unchanged, because BLAST+ looks for it in its own search path.
fn absolute_database_path(name: &str) -> String {
    let endings = ["pin", "pal", "nin", "nal", "pdb", "ndb"];
    match endings.iter().any(|ending| Path::new(&format!("{name}.{ending}")).exists()) {
        true => std::path::absolute(name).map_or_else(|_| name.to_owned(), |path| path.display().to_string()),
        false => name.to_owned(),
    }
}

/// Writes the alias file of a range. Returns the command that searches the range and writes an archive, and the command
/// of `blast_formatter` that converts the archive to rows.
pub(super) fn range_commands(
    bulk: &ToolSearch,
    program: &Path,
    query: &Path,
    range: usize,
    place: &Path,
) -> io::Result<[Command; 2]> {
    let Some((tables, (first, last))) =
        bulk.range_tables.as_ref().and_then(|tables| Some((tables, *tables.ranges.get(range)?)))
    else {
        return Err(io::Error::other("the range is not part of the database"));
    };
    let ending = if tables.is_protein { "pal" } else { "nal" };
    let alias = place.with_extension(ending);
    let list: Vec<String> =
        bulk.database.to_string_lossy().split_whitespace().map(|name| format!("\"{name}\"")).collect();
    let text = format!("TITLE range\nDBLIST {}\nFIRST_OID {first}\nLAST_OID {last}\n", list.join(" "));
    std::fs::write(&alias, text)?;
    let mut search = Command::new(program);
    let archive = place.with_extension("asn");
    search.args(&bulk.arguments).arg("-query").arg(query).arg("-db").arg(place).args([
        "-num_threads",
        "1",
        "-outfmt",
        "11",
    ]);
    search.arg("-out").arg(&archive);
    let mut format = Command::new(program.with_file_name("blast_formatter"));
    format.arg("-archive").arg(&archive).args([OsString::from("-outfmt"), tables.output_format.clone().into()]);
    format.args(["-max_target_seqs", &tables.max_subjects.to_string()]).arg("-out").arg(place.with_extension("rows"));
    for command in [&mut search, &mut format] {
        command.env("BLAST_USAGE_REPORT", "false");
    }
    Ok([search, format])
}

/// The sort key of an alignment in the merged table.
#[derive(Clone, Debug, PartialEq)]
struct AlignmentKey {
    /// 1-based number of the query.
    query: u64,
    subject: String,
    evalue: f64,
    score: i64,
}

/// Writes the rows of a range to `out`, each preceded by its sort key. The key has four fields: number of the query, 1
/// if the subject differs from that of the previous row (otherwise 0), e-value, score. Fails if rows and archive do not
/// match.
pub(super) fn write_keyed_rows(bulk: &ToolSearch, place: &Path, out: &Path) -> io::Result<()> {
    let delimiter = bulk.range_tables.as_ref().map_or('\t', |tables| tables.delimiter);
    let keys = read_alignment_keys(BufReader::new(std::fs::File::open(place.with_extension("asn"))?))?;
    let rows = std::fs::read_to_string(place.with_extension("rows"))?;
    let mut to = io::BufWriter::new(std::fs::File::create(out)?);
    let disagree = || io::Error::other("the rows of blast_formatter are not those of its archive");
    let (mut count, mut before) = (0, None);
    for (row, key) in rows.lines().zip(&keys) {
        let (row, score) = row.rsplit_once(delimiter).ok_or_else(disagree)?;
        if score.parse() != Ok(key.score) {
            return Err(disagree());
        }
        let is_new = before != Some((key.query, &key.subject));
        before = Some((key.query, &key.subject));
        writeln!(to, "{}\t{}\t{:e}\t{}\t{row}", key.query, u8::from(is_new), key.evalue, key.score)?;
        count += 1;
    }
    if count != keys.len() || rows.lines().count() != count {
        return Err(disagree());
    }
    to.flush()
}

/// Reads the sort keys of all alignments of an archive, in the order of the archive (NCBI's ASN.1 text, type
/// `Seq-align`).
fn read_alignment_keys(archive: impl BufRead) -> io::Result<Vec<AlignmentKey>> {
    let mut keys: Vec<AlignmentKey> = Vec::new();
    let (mut is_result, mut name, mut ids, mut has_ids) = (false, String::new(), 0, false);
    for line in archive.lines() {
        let line = line?;
        let line = line.trim();
        // Skip the queries and options, which precede the results in an archive.
        is_result |= line.starts_with("results {");
        if !is_result {
            continue;
        }
        if line.starts_with("type ") && ["partial", "diags", "global"].iter().any(|kind| line.contains(kind)) {
            keys.push(AlignmentKey { query: 0, subject: String::new(), evalue: 0.0, score: 0 });
            has_ids = false;
        }
        let Some(key) = keys.last_mut() else { continue };
        if let Some(found) = line.strip_prefix("id str \"") {
            name = found.trim_end_matches(['"', ',']).to_owned();
        } else if let Some(value) = line.strip_prefix("value int ").filter(|_| name == "score" && !has_ids) {
            key.score = value.trim_end_matches(',').parse().unwrap_or(key.score);
        } else if let Some(value) = line.strip_prefix("value real {").filter(|_| name == "e_value" && !has_ids) {
            let numbers: Vec<&str> = value.trim_end_matches([',', '}', ' ']).split(',').map(str::trim).collect();
            let [mantissa, _, exponent] = numbers.as_slice() else { continue };
            key.evalue = format!("{mantissa}e{exponent}").parse().unwrap_or(key.evalue);
        } else if line.starts_with("ids {") && !has_ids {
            (ids, has_ids) = (1, true);
        } else if ids > 0 {
            if key.query == 0 {
                let number = line.split("Query_").nth(1).map(|rest| rest.trim_end_matches(['"', ',', ' ']));
                key.query = number.and_then(|number| number.parse().ok()).unwrap_or(0);
            } else {
                key.subject.push_str(line);
            }
            ids += line.matches('{').count();
            ids -= line.matches('}').count().min(ids);
        }
    }
    Ok(keys)
}

/// The rows of one query and one subject, from the table of one range.
struct SubjectRows {
    query: u64,
    evalue: f64,
    score: i64,
    rows: Vec<String>,
}

impl SubjectRows {
    /// Returns whether this subject sorts before one of an earlier range: by query, lowest e-value and score of the
    /// first row. If all are equal, the subject of the later range is first, because BLAST+ puts higher sequence
    /// numbers first.
    fn sorts_before(&self, earlier: &Self) -> bool {
        let flat = |evalue: f64| if evalue < MIN_EVALUE { 0.0 } else { evalue };
        let order = self.query.cmp(&earlier.query);
        let order = order.then(flat(self.evalue).total_cmp(&flat(earlier.evalue)));
        order.then(earlier.score.cmp(&self.score)).is_le()
    }
}

/// A reader of the table of a range, subject by subject.
struct RangeTableReader<R> {
    lines: io::Lines<R>,
    /// The first row of the next subject, already read; true if its key marks a new subject.
    next_row: Option<(SubjectRows, bool)>,
}

impl<R: BufRead> RangeTableReader<R> {
    fn new(from: R) -> io::Result<Self> {
        let mut table = Self { lines: from.lines(), next_row: None };
        table.next_row = table.read_row()?;
        Ok(table)
    }

    fn read_row(&mut self) -> io::Result<Option<(SubjectRows, bool)>> {
        let Some(line) = self.lines.next().transpose()? else { return Ok(None) };
        let mut fields = line.splitn(5, '\t');
        let mut next = || fields.next().ok_or_else(|| io::Error::other("a row of hits of blast_formatter has no key"));
        let wrong = |_| io::Error::other("a row of hits has an invalid key");
        let (query, is_new) = (next()?.parse().map_err(wrong)?, next()? == "1");
        let evalue = next()?.parse().map_err(|_| io::Error::other("a row of hits has an invalid key"))?;
        let score = next()?.parse().map_err(wrong)?;
        Ok(Some((SubjectRows { query, evalue, score, rows: vec![next()?.to_owned()] }, is_new)))
    }

    fn next_subject(&mut self) -> io::Result<Option<SubjectRows>> {
        let Some((mut subject, _)) = self.next_row.take() else { return Ok(None) };
        while let Some((row, is_new)) = self.read_row()? {
            if is_new {
                self.next_row = Some((row, true));
                break;
            }
            subject.evalue = subject.evalue.min(row.evalue);
            subject.rows.extend(row.rows);
        }
        Ok(Some(subject))
    }
}

/// Merges the tables of ranges into `to`. `tables` are in the order of the ranges, and contain rows with sort keys,
/// which are not written to `to`.
pub(crate) fn merge_tables(bulk: &ToolSearch, tables: Vec<impl BufRead>, to: &mut impl Write) -> io::Result<()> {
    let most = bulk.range_tables.as_ref().map_or(DEFAULT_MAX_SUBJECTS, |tables| tables.max_subjects);
    let mut tables: Vec<_> = tables.into_iter().map(RangeTableReader::new).collect::<io::Result<_>>()?;
    let mut heads =
        tables.iter_mut().map(RangeTableReader::next_subject).collect::<io::Result<Vec<Option<SubjectRows>>>>()?;
    let (mut query, mut kept) = (0, 0);
    loop {
        let mut best: Option<(usize, &SubjectRows)> = None;
        for (range, subject) in heads.iter().enumerate().filter_map(|(range, head)| Some((range, head.as_ref()?))) {
            if best.is_none_or(|(_, before)| subject.sorts_before(before)) {
                best = Some((range, subject));
            }
        }
        let Some((range, _)) = best else { return Ok(()) };
        let Some(subject) = std::mem::replace(&mut heads[range], tables[range].next_subject()?) else { return Ok(()) };
        kept = if subject.query == query { kept + 1 } else { 1 };
        query = subject.query;
        if kept <= most {
            subject.rows.iter().try_for_each(|row| writeln!(to, "{row}"))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SearchTool;
    use super::*;

    #[test]
    fn keys_are_those_of_the_archive_to_all_digits() {
        let archive = "queries { id str \"score\" }\n results {\n alignments {\n {\n type partial,\n dim 2,\n score {\n {\n \
            id str \"score\",\n value int 70\n },\n {\n id str \"e_value\",\n value real { 123456789012345, 10, -44 }\n }\n },\n \
            segs denseg {\n ids {\n local str \"Query_20\",\n general {\n db \"BL_ORD_ID\",\n tag id 7\n }\n },\n starts {\n 0\n }\n";
        let found = read_alignment_keys(archive.as_bytes()).unwrap();
        assert_eq!((found.len(), found[0].query, found[0].score, found[0].evalue), (1, 20, 70, 1.23456789012345e-30));
        assert!(found[0].subject.contains("tag id 7") && !found[0].subject.contains("starts"), "{found:?}");
    }

    #[test]
    fn tables_are_merged_by_value_then_score_then_the_later_range() {
        let mut bulk = ToolSearch::from_words(SearchTool::Blast, "blastp", &[]);
        bulk.range_tables = Some(RangeTables::new("6 std score".into(), '\t', 3, true));
        // Fields: number of the query, 1 if the subject is new, e-value, score, row.
        let first = "1\t1\t1e-30\t50\ta\n1\t1\t1e-20\t40\tb\n1\t0\t1e-9\t9\tb2\n2\t1\t1e-190\t90\tc\n";
        let second = "1\t1\t1e-20\t40\td\n1\t1\t1e-20\t39\te\n2\t1\t1e-185\t91\tf\n3\t1\t1\t1\tg\n";
        let mut merge_all = |most: usize| {
            bulk.range_tables.as_mut().unwrap().max_subjects = most;
            let mut out = Vec::new();
            merge_tables(&bulk, vec![first.as_bytes(), second.as_bytes()], &mut out).unwrap();
            String::from_utf8(out).unwrap().replace('\n', " ")
        };
        assert_eq!(merge_all(3), "a d b b2 f c g ");
        assert_eq!(merge_all(9), "a d b b2 e f c g ");
    }
}
