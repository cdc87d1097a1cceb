//! The programs of an installed BLAST+, each over a range of the database that an alias file names, and their tables merged.
//!
//! A range is one run to an archive, of which `blast_formatter` makes rows; keys of the rows are read from the archive, where e-values have
//! 15 digits. Rows are merged in the order of BLAST+ ([`merge`]). That the result is the program's is likely and not certain: each run keeps a
//! limited number of subjects of a query before the traceback, so that what all of them kept can be more than what one run keeps.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::prepare::failed;
use super::{BulkSearch, Tool};
use crate::SearchError;
use crate::command_line::SearchCommand;
use crate::plan::cut_by_weight;

/// Subjects of a query that are kept where nothing is said.
const DEFAULT_SUBJECTS: usize = 500;
/// E-values below are all the same to BLAST+ (blast_hits.c, `s_EvalueComp`).
const LEAST_EVALUE: f64 = 1e-180;
/// What programs print where nothing is said of fields.
const STANDARD: &str = "std";
/// Options with which rows cannot be put in order.
const REFUSED: [&str; 6] =
    ["parse_deflines", "sorthits", "sorthsps", "num_descriptions", "num_alignments", "sum_stats"];

/// How tables of ranges are made and merged.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tables {
    /// The number of the format, and its fields.
    format: String,
    /// Between fields.
    delimiter: char,
    /// Subjects of a query that are kept.
    subjects: usize,
    /// Ordinals of each range, from 1, ends included.
    pub(crate) ranges: Vec<(u64, u64)>,
    is_protein: bool,
}

impl Tables {
    /// What they are of, and how much of it they keep.
    pub(super) fn told(&self) -> String {
        format!("-outfmt '{}' -max_target_seqs {}", self.format, self.subjects)
    }
}

impl SearchCommand {
    /// The same by an installed BLAST+ over alias files.
    ///
    /// # Errors
    /// [`SearchError::Unsupported`] for a format that cannot be merged, or an option with which rows have another order.
    pub fn with_aliases(mut self) -> Result<Self, SearchError> {
        let unsupported = |option: String, problem| Err(SearchError::Unsupported { option, problem });
        if self.bulk.is_some() {
            return unsupported("--engine alias".into(), "it is for programs of BLAST+");
        }
        if !["6", "10"].contains(&self.format.to_string().as_str()) {
            let problem = "--engine alias merges tables; use 6 or 10, or --engine exact";
            return unsupported(format!("-outfmt {}", self.format), problem);
        }
        let (mut arguments, mut fields, mut subjects) = (Vec::new(), STANDARD.to_owned(), DEFAULT_SUBJECTS);
        let mut database = PathBuf::new();
        let mut words = self.arguments.iter();
        while let Some(word) = words.next() {
            let name = word.trim_start_matches('-');
            if REFUSED.contains(&name) {
                return unsupported(
                    word.clone(),
                    "with it rows have another order; leave it out, or use --engine exact",
                );
            }
            match name {
                "outfmt" => {
                    let value = words.next().cloned().unwrap_or_default();
                    let custom = value.split_once(' ').map_or("", |(_, fields)| fields.trim());
                    if custom.contains("delim=") {
                        return unsupported("delim=".into(), "--engine alias takes tables as they are; leave it out");
                    }
                    fields = if custom.is_empty() { STANDARD.to_owned() } else { custom.to_owned() };
                }
                "db" => database = words.next().map(PathBuf::from).unwrap_or_default(),
                "max_target_seqs" => {
                    let value = words.next().cloned().unwrap_or_default();
                    subjects = value.parse().unwrap_or(DEFAULT_SUBJECTS);
                    arguments.extend([word.clone(), value]);
                }
                _ => arguments.push(word.clone()),
            }
        }
        let delimiter = if self.format == 10 { ',' } else { '\t' };
        let format = format!("{} {fields} score", self.format);
        let is_protein = matches!(self.program.name(), "blastp" | "blastx");
        let tables = Tables { format, delimiter, subjects, ranges: Vec::new(), is_protein };
        let mut bulk = BulkSearch::of(Tool::Blast, self.program.name(), &self.words);
        (bulk.arguments, bulk.named, bulk.database, bulk.tables) =
            (arguments, database.clone(), database, Some(tables));
        self.bulk = Some(bulk);
        Ok(self)
    }
}

/// Finds out how long the sequences of the database are, and cuts it into ranges of about equal numbers of letters.
pub(super) fn cut(bulk: &mut BulkSearch, program: &Path, pieces: usize, name: &'static str) -> Result<(), SearchError> {
    let Some(tables) = &mut bulk.tables else { return Ok(()) };
    let names = bulk.database.to_string_lossy().into_owned();
    let absolute: Vec<String> = names.split_whitespace().map(absolute).collect();
    bulk.database = PathBuf::from(absolute.join(" "));
    let teller = program.with_file_name("blastdbcmd");
    let kind = if tables.is_protein { "prot" } else { "nucl" };
    let mut ask = Command::new(&teller);
    ask.arg("-db").arg(&bulk.database).args(["-dbtype", kind, "-entry", "all", "-outfmt", "%l"]);
    let told = ask.stdin(Stdio::null()).output();
    let told = told.map_err(|source| SearchError::File { action: "start", path: teller.clone(), source })?;
    if !told.status.success() {
        let message = super::prepare::last_words(&String::from_utf8_lossy(&told.stderr));
        return Err(SearchError::Database { message });
    }
    let lengths: Option<Vec<u64>> =
        String::from_utf8_lossy(&told.stdout).lines().map(|line| line.trim().parse().ok()).collect();
    let lengths = lengths.filter(|lengths| !lengths.is_empty());
    let lengths = lengths.ok_or_else(|| failed(name, "blastdbcmd tells no lengths of the database"))?;
    let cuts = cut_by_weight(&lengths, pieces);
    tables.ranges = cuts.windows(2).map(|pair| (pair[0] as u64 + 1, pair[1] as u64)).collect();
    Ok(())
}

/// The path of a database that is a file here; others are found as BLAST+ finds them.
fn absolute(name: &str) -> String {
    let endings = ["pin", "pal", "nin", "nal", "pdb", "ndb"];
    match endings.iter().any(|ending| Path::new(&format!("{name}.{ending}")).exists()) {
        true => std::path::absolute(name).map_or_else(|_| name.to_owned(), |path| path.display().to_string()),
        false => name.to_owned(),
    }
}

/// The commands that search a range: the program to an archive, and rows of that.
pub(super) fn commands(
    bulk: &BulkSearch,
    program: &Path,
    query: &Path,
    range: usize,
    place: &Path,
) -> io::Result<[Command; 2]> {
    let Some((tables, (first, last))) =
        bulk.tables.as_ref().and_then(|tables| Some((tables, *tables.ranges.get(range)?)))
    else {
        return Err(io::Error::other("there is no such range"));
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
    format.arg("-archive").arg(&archive).args([OsString::from("-outfmt"), tables.format.clone().into()]);
    format.args(["-max_target_seqs", &tables.subjects.to_string()]).arg("-out").arg(place.with_extension("rows"));
    for command in [&mut search, &mut format] {
        command.env("BLAST_USAGE_REPORT", "false");
    }
    Ok([search, format])
}

/// What decides the place of an alignment.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    /// Number of the query, from 1.
    query: u64,
    subject: String,
    evalue: f64,
    score: i64,
}

/// Writes the rows of a range with their keys before them: query, whether the subject is another than that of the row before, e-value,
/// score. Returns nothing where rows and archive do not agree.
pub(super) fn rows_with_keys(bulk: &BulkSearch, place: &Path, out: &Path) -> io::Result<()> {
    let delimiter = bulk.tables.as_ref().map_or('\t', |tables| tables.delimiter);
    let keys = keys(BufReader::new(std::fs::File::open(place.with_extension("asn"))?))?;
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

/// The keys of the alignments of an archive, in its order (NCBI's ASN.1, `Seq-align`).
fn keys(archive: impl BufRead) -> io::Result<Vec<Key>> {
    let mut keys: Vec<Key> = Vec::new();
    let (mut is_result, mut name, mut ids, mut has_ids) = (false, String::new(), 0, false);
    for line in archive.lines() {
        let line = line?;
        let line = line.trim();
        // Queries and options come before.
        is_result |= line.starts_with("results {");
        if !is_result {
            continue;
        }
        if line.starts_with("type ") && ["partial", "diags", "global"].iter().any(|kind| line.contains(kind)) {
            keys.push(Key { query: 0, subject: String::new(), evalue: 0.0, score: 0 });
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

/// Rows of a subject, in one range.
struct Subject {
    query: u64,
    evalue: f64,
    score: i64,
    rows: Vec<String>,
}

impl Subject {
    /// Whether it comes before one of an earlier range: by its best e-value, the score of its first row, and the higher ordinal.
    fn is_before(&self, earlier: &Self) -> bool {
        let flat = |evalue: f64| if evalue < LEAST_EVALUE { 0.0 } else { evalue };
        let order = self.query.cmp(&earlier.query);
        let order = order.then(flat(self.evalue).total_cmp(&flat(earlier.evalue)));
        order.then(earlier.score.cmp(&self.score)).is_le()
    }
}

/// The subjects of a range, read one by one.
struct Table<R> {
    lines: io::Lines<R>,
    /// The first row of the next subject.
    ahead: Option<(Subject, bool)>,
}

impl<R: BufRead> Table<R> {
    fn new(from: R) -> io::Result<Self> {
        let mut table = Self { lines: from.lines(), ahead: None };
        table.ahead = table.row()?;
        Ok(table)
    }

    fn row(&mut self) -> io::Result<Option<(Subject, bool)>> {
        let Some(line) = self.lines.next().transpose()? else { return Ok(None) };
        let mut fields = line.splitn(5, '\t');
        let mut next = || fields.next().ok_or_else(|| io::Error::other("a row without its key"));
        let wrong = |_| io::Error::other("a key that is none");
        let (query, is_new) = (next()?.parse().map_err(wrong)?, next()? == "1");
        let evalue = next()?.parse().map_err(|_| io::Error::other("a key that is none"))?;
        let score = next()?.parse().map_err(wrong)?;
        Ok(Some((Subject { query, evalue, score, rows: vec![next()?.to_owned()] }, is_new)))
    }

    fn next(&mut self) -> io::Result<Option<Subject>> {
        let Some((mut subject, _)) = self.ahead.take() else { return Ok(None) };
        while let Some((row, is_new)) = self.row()? {
            if is_new {
                self.ahead = Some((row, true));
                break;
            }
            subject.evalue = subject.evalue.min(row.evalue);
            subject.rows.extend(row.rows);
        }
        Ok(Some(subject))
    }
}

/// Merges the tables of ranges, in the order of their ordinals. `tables` are rows with keys.
pub(crate) fn merge(bulk: &BulkSearch, tables: Vec<impl BufRead>, to: &mut impl Write) -> io::Result<()> {
    let most = bulk.tables.as_ref().map_or(DEFAULT_SUBJECTS, |tables| tables.subjects);
    let mut tables: Vec<_> = tables.into_iter().map(Table::new).collect::<io::Result<_>>()?;
    let mut heads = tables.iter_mut().map(Table::next).collect::<io::Result<Vec<Option<Subject>>>>()?;
    let (mut query, mut kept) = (0, 0);
    loop {
        let mut best: Option<(usize, &Subject)> = None;
        for (range, subject) in heads.iter().enumerate().filter_map(|(range, head)| Some((range, head.as_ref()?))) {
            if best.is_none_or(|(_, before)| subject.is_before(before)) {
                best = Some((range, subject));
            }
        }
        let Some((range, _)) = best else { return Ok(()) };
        let Some(subject) = std::mem::replace(&mut heads[range], tables[range].next()?) else { return Ok(()) };
        kept = if subject.query == query { kept + 1 } else { 1 };
        query = subject.query;
        if kept <= most {
            subject.rows.iter().try_for_each(|row| writeln!(to, "{row}"))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_aliases(line: &str) -> Result<SearchCommand, SearchError> {
        SearchCommand::parse(&words(line)).expect("a command line").with_aliases()
    }

    /// Words between spaces; what stands between quotes is one.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn only_tables_are_merged() {
        let command =
            with_aliases("blastp -db d -query q -outfmt '6 qseqid sseqid' -max_target_seqs 7 -evalue 1").unwrap();
        let bulk = command.bulk.unwrap();
        assert_eq!(bulk.arguments, ["-max_target_seqs", "7", "-evalue", "1"]);
        assert_eq!(bulk.told().last().unwrap(), "-outfmt '6 qseqid sseqid score' -max_target_seqs 7");
        for line in
            ["blastp -db d", "blastp -db d -outfmt 7", "blastp -db d -outfmt 6 -sorthits 2", "diamond blastp -d d -q q"]
        {
            assert!(matches!(with_aliases(line), Err(SearchError::Unsupported { .. })), "{line}");
        }
    }

    #[test]
    fn keys_are_those_of_the_archive_to_all_digits() {
        let archive = "queries { id str \"score\" }\n results {\n alignments {\n {\n type partial,\n dim 2,\n score {\n {\n \
            id str \"score\",\n value int 70\n },\n {\n id str \"e_value\",\n value real { 123456789012345, 10, -44 }\n }\n },\n \
            segs denseg {\n ids {\n local str \"Query_20\",\n general {\n db \"BL_ORD_ID\",\n tag id 7\n }\n },\n starts {\n 0\n }\n";
        let found = keys(archive.as_bytes()).unwrap();
        assert_eq!((found.len(), found[0].query, found[0].score, found[0].evalue), (1, 20, 70, 1.23456789012345e-30));
        assert!(found[0].subject.contains("tag id 7") && !found[0].subject.contains("starts"), "{found:?}");
    }

    #[test]
    fn tables_are_merged_by_value_then_score_then_the_later_range() {
        let mut bulk = with_aliases("blastp -db d -outfmt 6 -max_target_seqs 3").unwrap().bulk.unwrap();
        // Query, whether the subject is new, e-value, score, row.
        let first = "1\t1\t1e-30\t50\ta\n1\t1\t1e-20\t40\tb\n1\t0\t1e-9\t9\tb2\n2\t1\t1e-190\t90\tc\n";
        let second = "1\t1\t1e-20\t40\td\n1\t1\t1e-20\t39\te\n2\t1\t1e-185\t91\tf\n3\t1\t1\t1\tg\n";
        let mut merge_all = |most: usize| {
            bulk.tables.as_mut().unwrap().subjects = most;
            let mut out = Vec::new();
            merge(&bulk, vec![first.as_bytes(), second.as_bytes()], &mut out).unwrap();
            String::from_utf8(out).unwrap().replace('\n', " ")
        };
        assert_eq!(merge_all(3), "a d b b2 f c g ");
        assert_eq!(merge_all(9), "a d b b2 e f c g ");
    }
}
