//! What a search has finished, kept beside its output until that is whole, so that a stopped one goes on.
//!
//! A directory beside the output has a journal, the output as far as it is written, the hits of the ranges of the batch at hand, and rows
//! of the table. A line of the journal says what is where, and its checksum; nothing is trusted that does not have it, so nothing has to
//! be durable before its line.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use godwit_process::{ResumablePaths, TemporaryPath};
use serde::{Deserialize, Serialize};

use crate::SearchError;
use crate::plan::Plan;
use crate::protocol::HeaderLine;

/// Bytes that are checked at a time.
const CHECK_BYTES: usize = 1 << 20;
/// Hexadecimal digits of a checksum, and the space behind it.
const CHECKSUM_LETTERS: usize = 9;

/// What a search is of: one that goes on has to be of the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Version of godwit.
    pub(crate) godwit: String,
    /// The engine and its version.
    pub(crate) engine: String,
    /// The program and its options, without output and threads.
    pub(crate) options: Vec<String>,
    /// Checksum of the queries.
    pub(crate) queries: String,
    /// Files of the database: path, bytes, time of the last change in nanoseconds.
    pub(crate) database: Vec<(PathBuf, u64, u128)>,
    /// Whether rows are wanted.
    pub(crate) rows: bool,
}

impl Identity {
    /// What of another is different, in words.
    fn difference(&self, now: &Self) -> Option<String> {
        let changed = |what: &str, was: &str, is: &str| Some(format!("{what} {was} then, and {is} now"));
        if self.godwit != now.godwit {
            return changed("godwit was", &self.godwit, &now.godwit);
        }
        if self.engine != now.engine {
            return changed("the engine was", &self.engine, &now.engine);
        }
        if self.options != now.options {
            return changed("the options were", &self.options.join(" "), &now.options.join(" "));
        }
        if self.queries != now.queries {
            return Some("the queries have changed".to_owned());
        }
        if self.database != now.database {
            let other = now.database.iter().find(|file| !self.database.contains(file));
            let other = other.or_else(|| self.database.iter().find(|file| !now.database.contains(file)));
            let name = other.map(|(path, ..)| path.display().to_string()).unwrap_or_default();
            return Some(format!("the database has changed ({name})"));
        }
        (self.rows != now.rows).then(|| "--hits was given to one of them only".to_owned())
    }
}

/// Bytes of a file, and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// How a search was cut up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub(crate) plan: Plan,
    /// Ranges of the database, or pieces of the queries of a tool.
    pub(crate) parts: u32,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The first one.
    Begun(Identity, Cut),
    /// A range of the batch at hand was searched: what it found is among the hits.
    Range { batch: u32, range: u64, extensions: i64, hits: Kept },
    /// A batch has its reports in the output.
    Batch(Batch),
    /// All is written.
    Whole { bytes: u64 },
}

/// Some queries whose reports are in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) number: u64,
    pub(crate) queries: u32,
    pub(crate) last: bool,
    /// Extensions in all ranges.
    pub(crate) extensions: i64,
    /// Its slices, in order.
    pub(crate) reports: Vec<Kept>,
    /// Their rows, where there are any.
    pub(crate) rows: Vec<Kept>,
    /// Lines for the header of SAM.
    pub(crate) lines: Vec<HeaderLine>,
}

/// What there is to go on from.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// Batches by number.
    pub(crate) batches: BTreeMap<u64, Batch>,
    /// Ranges of the batch after the first ones that are finished: extensions, and the answer's hits.
    pub(crate) ranges: BTreeMap<u64, (i64, Kept)>,
    /// Size of the output, where only names are missing.
    pub(crate) whole: Option<u64>,
}

/// The directory of a search. It stays where the search is stopped, and goes where it is over.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    file: File,
    hits: File,
    hits_end: u64,
    /// The batch whose hits these are.
    hits_batch: u64,
    /// Whether anything was finished.
    is_worth_keeping: bool,
    /// The directory, until anything was finished.
    resumable: ResumablePaths,
}

impl Journal {
    /// The directory for an output.
    pub(crate) fn directory_of(out: &Path) -> PathBuf {
        let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
        out.with_file_name(format!(".{name}.godwit-search"))
    }

    /// How a stopped search was cut up; `None` where there is none.
    pub(crate) fn cut(out: &Path) -> Option<Cut> {
        let lines = lines_of(&Self::directory_of(out).join("journal")).ok()?.0;
        lines.into_iter().find_map(|line| match line {
            Line::Begun(_, cut) => Some(cut),
            _ => None,
        })
    }

    /// Begins one, in place of any that was there; or goes on where it is of the same search.
    ///
    /// # Errors
    /// [`SearchError::Resume`] where it is of another search, [`SearchError::File`].
    pub(crate) fn open(
        out: &Path,
        resumes: bool,
        identity: &Identity,
        cut: &Cut,
    ) -> Result<(Self, Finished), SearchError> {
        let directory = Self::directory_of(out);
        let wrong = |action, path: &Path| {
            let path = path.to_owned();
            move |source| SearchError::File { action, path, source }
        };
        let create = || match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        };
        // A new directory is on the list of temporary paths from the start, and goes over to `resumable` below.
        let _created = TemporaryPath::create_directory(&directory, create).map_err(wrong("make", &directory))?;
        let path = directory.join("journal");
        let place = directory.clone();
        let open = |name: &str| {
            let path = place.join(name);
            // Files are nobody else's, for their directory is not; the output has its name later.
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            file.map_err(wrong("write", &path))
        };
        let mut file = open("journal")?;
        if file.try_lock().is_err() {
            let source = std::io::Error::new(std::io::ErrorKind::ResourceBusy, "another search writes it");
            return Err(wrong("write", out)(source));
        }
        let (lines, end) = if resumes { lines_of(&path).map_err(wrong("read", &path))? } else { (Vec::new(), 0) };
        file.set_len(end).and_then(|()| file.seek(SeekFrom::End(0))).map_err(wrong("write", &path))?;
        let (hits, resumable) = (open("hits")?, ResumablePaths::new([]));
        let mut journal =
            Self { hits, file, hits_end: 0, hits_batch: 0, is_worth_keeping: false, resumable, directory };
        match lines.split_first() {
            Some((Line::Begun(then, how), rest)) => {
                let difference = then.difference(identity);
                let difference = difference.or_else(|| {
                    (how != cut)
                        .then(|| format!("it was cut into {} parts, and --fragments wants {}", how.parts, cut.parts))
                });
                if let Some(difference) = difference {
                    return Err(SearchError::Resume { directory: journal.directory, difference });
                }
                let finished = journal.finished(rest)?;
                Ok((journal, finished))
            }
            _ => {
                journal.resumable = ResumablePaths::new([journal.directory.as_path()]);
                journal.file.set_len(0).and_then(|()| journal.file.rewind()).map_err(wrong("write", &path))?;
                for name in ["output", "rows", "hits"] {
                    open(name)?.set_len(0).map_err(wrong("write", &journal.path(name)))?;
                }
                journal.say(&Line::Begun(identity.clone(), cut.clone()))?;
                Ok((journal, Finished::default()))
            }
        }
    }

    /// A file of the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What of the lines is vouched for by checksums.
    fn finished(&mut self, lines: &[Line]) -> Result<Finished, SearchError> {
        let mut finished = Finished::default();
        let (output, rows) = (self.path("output"), self.path("rows"));
        for line in lines {
            match line {
                Line::Whole { bytes } => finished.whole = Some(*bytes),
                Line::Batch(batch)
                    if finished.whole.is_some()
                        || (is_kept(&output, &batch.reports) && is_kept(&rows, &batch.rows)) =>
                {
                    finished.batches.insert(batch.number, batch.clone());
                }
                _ => {}
            }
        }
        let next = (0..).find(|number| !finished.batches.contains_key(number)).unwrap_or(0);
        for line in lines {
            if let Line::Range { batch, range, extensions, hits } = line
                && u64::from(*batch) == next
                && is_kept(&self.path("hits"), &[*hits])
            {
                finished.ranges.insert(*range, (*extensions, *hits));
            }
        }
        self.hits_batch = next;
        self.hits_end = self.hits.metadata().map_err(|source| self.wrong("read", source))?.len();
        self.is_worth_keeping = !finished.batches.is_empty() || !finished.ranges.is_empty();
        Ok(finished)
    }

    /// Keeps the hits of a range.
    pub(crate) fn keep_range(
        &mut self,
        batch: u32,
        range: u64,
        extensions: i64,
        hits: &[u8],
    ) -> Result<(), SearchError> {
        if self.hits_batch != u64::from(batch) {
            // Those of the batch before are in the reports.
            self.hits_batch = u64::from(batch);
            self.hits_end = 0;
            self.hits.set_len(0).map_err(|source| self.wrong("write", source))?;
        }
        let kept = Kept { offset: self.hits_end, bytes: hits.len() as u64, checksum: libdeflater::crc32(hits) };
        self.hits.write_all_at(hits, self.hits_end).map_err(|source| self.wrong("write", source))?;
        self.hits_end += kept.bytes;
        self.say(&Line::Range { batch, range, extensions, hits: kept })
    }

    /// What was kept of a range.
    pub(crate) fn hits(&self, kept: Kept) -> Result<Vec<u8>, SearchError> {
        let mut hits = vec![0; kept.bytes as usize];
        self.hits.read_exact_at(&mut hits, kept.offset).map_err(|source| self.wrong("read", source))?;
        Ok(hits)
    }

    /// Adds a line.
    pub(crate) fn say(&mut self, line: &Line) -> Result<(), SearchError> {
        let text = serde_json::to_string(line).expect("a line is JSON");
        let line_of_file = format!("{:08x} {text}\n", libdeflater::crc32(text.as_bytes()));
        self.file.write_all(line_of_file.as_bytes()).map_err(|source| self.wrong("write", source))?;
        if !matches!(line, Line::Begun(..)) {
            self.is_worth_keeping = true;
            self.resumable.keep();
        }
        Ok(())
    }

    /// The search is over: nothing of it is wanted any more.
    pub(crate) fn remove(self) {
        // Best effort: it is hidden, and the next search with this output begins anew.
        let _ = fs::remove_dir_all(&self.directory);
    }

    /// The search was stopped: what it has finished is kept, if it has finished anything. Returns whether it has.
    pub(crate) fn leave(self) -> bool {
        if !self.is_worth_keeping {
            self.remove();
            return false;
        }
        true
    }

    fn wrong(&self, action: &'static str, source: std::io::Error) -> SearchError {
        SearchError::File { action, path: self.directory.clone(), source }
    }
}

/// The lines of a journal up to the first that is damaged, and where that is.
fn lines_of(path: &Path) -> std::io::Result<(Vec<Line>, u64)> {
    let bytes = fs::read(path)?;
    let (mut lines, mut end) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let whole = line.strip_suffix(b"\n").and_then(|line| line.split_at_checked(CHECKSUM_LETTERS));
        let Some((checksum, text)) = whole else { break };
        let told =
            std::str::from_utf8(checksum).ok().and_then(|digits| u32::from_str_radix(digits.trim_end(), 16).ok());
        let Some(parsed) = serde_json::from_slice(text).ok().filter(|_| told == Some(libdeflater::crc32(text))) else {
            break;
        };
        lines.push(parsed);
        end += line.len() as u64;
    }
    Ok((lines, end))
}

/// Whether a file has these bytes.
fn is_kept(path: &Path, all: &[Kept]) -> bool {
    let is_there = |file: &mut File, kept: &Kept| {
        file.seek(SeekFrom::Start(kept.offset))?;
        let (mut sum, mut left) = (libdeflater::Crc::new(), kept.bytes);
        let mut piece = vec![0; CHECK_BYTES.min(left as usize)];
        while left > 0 {
            let bytes = CHECK_BYTES.min(left as usize);
            file.read_exact(&mut piece[..bytes])?;
            sum.update(&piece[..bytes]);
            left -= bytes as u64;
        }
        std::io::Result::Ok(sum.sum() == kept.checksum)
    };
    all.is_empty()
        || File::open(path).is_ok_and(|mut file| all.iter().all(|kept| is_there(&mut file, kept).unwrap_or(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(queries: &str) -> Identity {
        let (godwit, engine) = ("1".to_owned(), "BLAST 2".to_owned());
        let database = vec![("db.nsq".into(), 7, 9)];
        Identity { godwit, engine, options: vec!["blastn".into()], queries: queries.to_owned(), database, rows: false }
    }

    const CUT: Cut = Cut { plan: Plan::Database { fragments: 3 }, parts: 3 };

    fn open(out: &Path, resumes: bool) -> (Journal, Finished) {
        Journal::open(out, resumes, &identity("q"), &CUT).expect("it is the same search")
    }

    /// A journal with one batch in its place, and a range of the next one.
    fn stopped(out: &Path) {
        let (mut journal, finished) = open(out, false);
        assert!(finished.batches.is_empty() && finished.ranges.is_empty());
        fs::write(journal.path("output"), b"report").expect("scratch can be written");
        let reports = vec![Kept { offset: 1, bytes: 5, checksum: libdeflater::crc32(b"eport") }];
        let (rows, lines) = (Vec::new(), vec![(b"name".to_vec(), b"line".to_vec())]);
        let batch = Batch { number: 0, queries: 2, last: false, extensions: 4, reports, rows, lines };
        journal.keep_range(0, 2, 8, b"of a batch that is finished").expect("scratch can be written");
        journal.say(&Line::Batch(batch)).expect("scratch can be written");
        journal.keep_range(1, 2, 9, b"hits").expect("scratch can be written");
        assert!(journal.leave());
    }

    #[test]
    fn what_was_finished_is_taken_up() {
        let directory = tempfile::tempdir().expect("scratch");
        let out = directory.path().join("out");
        stopped(&out);
        assert_eq!(Journal::cut(&out), Some(CUT));
        let (journal, finished) = open(&out, true);
        assert_eq!(finished.batches.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!(finished.batches[&0].lines, [(b"name".to_vec(), b"line".to_vec())]);
        let (extensions, kept) = finished.ranges[&2];
        assert_eq!((finished.ranges.len(), extensions), (1, 9));
        assert_eq!(journal.hits(kept).expect("they are there"), b"hits");
        assert!(matches!(Journal::open(&out, true, &identity("q"), &CUT), Err(SearchError::File { .. })));
        journal.remove();
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn what_is_damaged_is_not() {
        let directory = tempfile::tempdir().expect("scratch");
        let out = directory.path().join("out");
        let inside = |name: &str| Journal::directory_of(&out).join(name);
        stopped(&out);
        fs::write(inside("output"), b"rEport").expect("scratch can be written");
        let (_, finished) = open(&out, true);
        // Hits of another batch than the first that is left are of no use.
        assert!(finished.batches.is_empty() && finished.ranges.is_empty());
        stopped(&out);
        fs::write(inside("hits"), b"hats").expect("scratch can be written");
        assert!(open(&out, true).1.ranges.is_empty());
        stopped(&out);
        let journal = fs::read(inside("journal")).expect("it is there");
        for end in 0..journal.len() {
            fs::write(inside("journal"), &journal[..end]).expect("scratch can be written");
            let (_, finished) = open(&out, true);
            assert!(finished.ranges.is_empty() && finished.batches.len() <= 1, "{end}");
        }
        assert!(open(&out, false).1.batches.is_empty());
    }

    #[test]
    fn another_search_is_refused_by_what_is_different() {
        let directory = tempfile::tempdir().expect("scratch");
        let out = directory.path().join("out");
        stopped(&out);
        let refused = |identity: &Identity, cut: &Cut| match Journal::open(&out, true, identity, cut) {
            Err(error @ SearchError::Resume { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let now = |change: fn(&mut Identity)| {
            let mut now = identity("q");
            change(&mut now);
            now
        };
        assert!(refused(&identity("r"), &CUT).contains("queries"));
        assert!(refused(&now(|now| now.database[0].2 = 1), &CUT).contains("db.nsq"));
        assert!(refused(&now(|now| now.options.push("-evalue".into())), &CUT).contains("blastn -evalue now"));
        assert!(refused(&now(|now| now.engine = "BLAST 3".into()), &CUT).contains("BLAST 2 then"));
        assert!(refused(&now(|now| now.rows = true), &CUT).contains("--hits"));
        assert!(refused(&identity("q"), &Cut { parts: 4, ..CUT }).contains("3 parts"));
        assert_eq!(open(&out, true).1.batches.len(), 1);
    }
}
