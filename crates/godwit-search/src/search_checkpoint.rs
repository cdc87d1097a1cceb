//! The checkpoint of a search, from which a stopped search can resume.
//!
//! Until the output is complete, a directory beside it contains four files: a journal, the unfinished output, the hits
//! of the current batches, and the rows of the table of hits. An entry of the journal has the extent and the checksum of
//! data in one of the other files. A resumed search ignores data with a wrong checksum, so the data need not be on disk
//! before its entry.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use godwit_files::{Journal, JournalEntry};
use godwit_process::{ResumablePaths, TemporaryPath};
use serde::{Deserialize, Serialize};

use crate::SearchError;
use crate::search_plan::SearchPlan;
use crate::worker_protocol::HeaderLine;

/// File of the checkpoint directory with the output after the reports were rewritten: for SAM, after the header was
/// inserted. The file `output` then still matches the journal.
pub(crate) const REWRITTEN_OUTPUT: &str = "rewritten";
/// Size in bytes of the buffer for verifying checksums.
const CHECK_BUFFER_BYTES: usize = 1 << 20;

/// The identity of a search: a resumed search must have the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SearchIdentity {
    /// Version of godwit.
    #[serde(rename = "godwit")]
    pub(crate) godwit_version: String,
    /// The search engine and its version.
    pub(crate) engine: String,
    /// Name and options of the search program. Options that do not change the output are left out.
    pub(crate) options: Vec<String>,
    /// BLAKE3 hash of the file of the queries, hexadecimal.
    #[serde(rename = "queries")]
    pub(crate) queries_checksum: String,
    /// Files of the database: path, size in bytes, modification time in nanoseconds.
    #[serde(rename = "database")]
    pub(crate) database_files: Vec<(PathBuf, u64, u128)>,
    /// True if the search also writes a table of hits (`--hits`).
    #[serde(rename = "rows")]
    pub(crate) has_hits_table: bool,
}

impl SearchIdentity {
    /// Describes the first difference between this identity, of the stopped search, and that of the search that
    /// resumes.
    fn difference(&self, now: &Self) -> Option<String> {
        let changed =
            |what: &str, was: &str, is: &str| Some(format!("{what} {was} in the stopped search, but is {is} now"));
        if self.godwit_version != now.godwit_version {
            return changed("godwit was", &self.godwit_version, &now.godwit_version);
        }
        if self.engine != now.engine {
            return changed("the search engine was", &self.engine, &now.engine);
        }
        if self.options != now.options {
            return changed("the options were", &self.options.join(" "), &now.options.join(" "));
        }
        if self.queries_checksum != now.queries_checksum {
            return Some("the queries have changed".to_owned());
        }
        if self.database_files != now.database_files {
            let other = now.database_files.iter().find(|file| !self.database_files.contains(file));
            let other = other.or_else(|| self.database_files.iter().find(|file| !now.database_files.contains(file)));
            let name = other.map(|(path, ..)| path.display().to_string()).unwrap_or_default();
            return Some(format!("the database has changed ({name})"));
        }
        (self.has_hits_table != now.has_hits_table)
            .then(|| "the stopped search had --hits and this one has not, or the reverse".to_owned())
    }
}

/// Offset and size in bytes of data in a file, and the CRC-32 of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileExtent {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// The division of a search into pieces of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SearchPartition {
    pub(crate) plan: SearchPlan,
    /// Number of ranges of the database or, for DIAMOND and MMseqs2, of pieces of the queries.
    pub(crate) parts: u32,
}

/// An entry of the journal; each is one line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CheckpointEntry {
    /// The first entry: the identity and the partition of the search.
    #[serde(rename = "Begun")]
    Start(SearchIdentity, SearchPartition),
    /// A range of the database was searched with the queries of a batch.
    Range(FinishedRange),
    /// The reports on some queries of a batch are written to the output.
    Slice(FinishedSlice),
    /// The reports of a batch of queries are written to the output.
    Batch(FinishedBatch),
    /// The output is complete, with this size in bytes, but possibly not yet renamed.
    #[serde(rename = "Whole")]
    Complete { bytes: u64 },
}

impl JournalEntry for CheckpointEntry {
    // The entries contain no paths of files to write, and data with a wrong checksum are ignored.
    fn is_sound(&self) -> bool {
        true
    }

    fn checksum(text: &[u8]) -> String {
        format!("{:08x}", libdeflater::crc32(text))
    }
}

/// A range of the database that was searched with the queries of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinishedRange {
    /// Number of the batch, from 0.
    pub(crate) batch: u32,
    /// Number of the range, from 0.
    pub(crate) range: u64,
    /// First query of the batch, counted from 0 over the search, and number of queries: a batch of a predicted size may
    /// have other queries in the end.
    pub(crate) first_query: u64,
    pub(crate) queries: u32,
    /// Number of extensions of alignments.
    pub(crate) extensions: i64,
    /// Extent in the file `hits`.
    pub(crate) hits: FileExtent,
}

/// Consecutive queries of a batch whose reports are written to the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinishedSlice {
    /// Number of the batch, from 0.
    pub(crate) batch: u64,
    /// First query and end (exclusive) in the batch, from 0.
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// Extent in the output of the reports.
    pub(crate) report: FileExtent,
    /// Extent in the row log of the rows; `None` if there is no table of hits.
    pub(crate) rows: Option<FileExtent>,
    /// Lines of these queries for the SAM header.
    #[serde(rename = "lines")]
    pub(crate) header_lines: Vec<HeaderLine>,
}

/// A batch of queries whose reports are written to the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinishedBatch {
    pub(crate) number: u64,
    pub(crate) queries: u32,
    #[serde(rename = "last")]
    pub(crate) is_last: bool,
    /// Number of extensions of alignments in all ranges, which blastn uses to size its next batch.
    pub(crate) extensions: i64,
    /// Extents in the output of the reports of the slices of this batch, in order.
    pub(crate) reports: Vec<FileExtent>,
    /// Extents in the row log of the rows of the slices of this batch; empty if there is no table of hits.
    pub(crate) rows: Vec<FileExtent>,
    /// Lines of this batch for the SAM header.
    #[serde(rename = "lines")]
    pub(crate) header_lines: Vec<HeaderLine>,
}

/// The finished work that a search resumes from.
#[derive(Debug, Default)]
pub(crate) struct ResumeState {
    /// Finished batches by their number in the search, from 0.
    pub(crate) batches: BTreeMap<u64, FinishedBatch>,
    /// Finished ranges of unfinished batches, by number of the batch and of the range.
    pub(crate) ranges: BTreeMap<(u32, u64), FinishedRange>,
    /// Finished slices of the first unfinished batch, in the order of its queries.
    pub(crate) slices: Vec<FinishedSlice>,
    /// Size of the output in bytes if it is complete, otherwise `None`.
    pub(crate) output_bytes: Option<u64>,
    /// The file of the complete output, if it has not been renamed to its final name.
    pub(crate) unpublished_output: Option<PathBuf>,
}

impl ResumeState {
    /// Returns whether the complete output and the table of hits have their final names.
    pub(crate) fn is_published(&self) -> bool {
        self.output_bytes.is_some() && self.unpublished_output.is_none()
    }
}

/// The checkpoint directory of a search. It remains if the search stops early, and is removed when the search is
/// complete.
#[derive(Debug)]
pub(crate) struct SearchCheckpoint {
    directory: PathBuf,
    journal: Journal<CheckpointEntry>,
    /// True if the journal contains a finished range, slice or batch.
    has_progress: bool,
    /// Registration of the directory for removal at exit, which lasts until the first range or batch is finished.
    resumable: ResumablePaths,
}

impl SearchCheckpoint {
    /// Returns the path of the checkpoint directory for an output path.
    pub(crate) fn directory_path(out: &Path) -> PathBuf {
        let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
        out.with_file_name(format!(".{name}.godwit-search"))
    }

    /// Returns the partition of a stopped search with this output; `None` if there is no checkpoint.
    pub(crate) fn read_partition(out: &Path) -> Option<SearchPartition> {
        let lines = Journal::read(&Self::directory_path(out).join("journal")).ok()?;
        lines.into_iter().find_map(|line| match line {
            CheckpointEntry::Start(_, cut) => Some(cut),
            _ => None,
        })
    }

    /// Opens the checkpoint of the same search if `resumes` is true; otherwise replaces an existing checkpoint by an
    /// empty one.
    ///
    /// # Errors
    /// [`SearchError::Resume`] if the checkpoint to resume belongs to another search.
    /// [`SearchError::File`] for a failed system call, or if another process uses the checkpoint.
    pub(crate) fn open(
        out: &Path,
        resumes: bool,
        identity: &SearchIdentity,
        cut: &SearchPartition,
    ) -> Result<(Self, ResumeState), SearchError> {
        let directory = Self::directory_path(out);
        let wrong = |action, path: &Path| {
            let path = path.to_owned();
            move |source| SearchError::File { action, path, source }
        };
        let create = || match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        };
        // A new directory is registered as a temporary path from the start, and moves to `resumable` below.
        let _created = TemporaryPath::create_directory(&directory, create).map_err(wrong("make", &directory))?;
        let path = directory.join("journal");
        let place = directory.clone();
        let open = |name: &str| {
            let path = place.join(name);
            // Default permissions suffice: the directory is private, and the output will be renamed out of it.
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            file.map_err(wrong("write", &path))
        };
        let (journal, lines) = match Journal::open(&path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                let source = std::io::Error::new(ErrorKind::ResourceBusy, "another search is using it");
                return Err(wrong("write", out)(source));
            }
            opened => opened.map_err(wrong("write", &path))?,
        };
        let resumable = ResumablePaths::new([]);
        let mut checkpoint = Self { directory, journal, has_progress: false, resumable };
        match lines.split_first().filter(|_| resumes) {
            Some((CheckpointEntry::Start(then, how), rest)) => {
                let difference = then.difference(identity);
                let difference = difference.or_else(|| {
                    (how != cut).then(|| {
                        format!(
                            "the stopped search was divided into {} parts, but --fragments is {}",
                            how.parts, cut.parts
                        )
                    })
                });
                if let Some(difference) = difference {
                    return Err(SearchError::Resume { directory: checkpoint.directory, difference });
                }
                let finished = checkpoint.verify_entries(rest, out);
                if finished.output_bytes.is_none() {
                    checkpoint.remove_rewritten_output()?;
                }
                Ok((checkpoint, finished))
            }
            _ => {
                checkpoint.resumable = ResumablePaths::new([checkpoint.directory.as_path()]);
                checkpoint.journal.clear().map_err(wrong("write", &path))?;
                checkpoint.remove_rewritten_output()?;
                for name in ["output", "rows", "hits"] {
                    open(name)?.set_len(0).map_err(wrong("write", &checkpoint.file_path(name)))?;
                }
                checkpoint.append_entry(&CheckpointEntry::Start(identity.clone(), cut.clone()))?;
                Ok((checkpoint, ResumeState::default()))
            }
        }
    }

    /// Returns the path of a file in the checkpoint directory.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Removes the output of an attempt that was stopped before it was complete.
    fn remove_rewritten_output(&self) -> Result<(), SearchError> {
        let path = self.file_path(REWRITTEN_OUTPUT);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(SearchError::File { action: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Returns the finished work of those journal entries whose data matches the checksums.
    fn verify_entries(&mut self, lines: &[CheckpointEntry], out: &Path) -> ResumeState {
        let mut finished = ResumeState::default();
        let (output, rows, hits) = (self.file_path("output"), self.file_path("rows"), self.file_path("hits"));
        let batches = || {
            lines.iter().filter_map(|line| if let CheckpointEntry::Batch(batch) = line { Some(batch) } else { None })
        };
        let complete = lines.iter().find_map(|line| match line {
            CheckpointEntry::Complete { bytes } => Some(*bytes),
            _ => None,
        });
        if let Some(bytes) = complete {
            let is_whole = |path: &Path| fs::metadata(path).is_ok_and(|found| found.len() == bytes);
            let unpublished =
                [self.file_path(REWRITTEN_OUTPUT), output.clone()].into_iter().find(|path| is_whole(path));
            // The output is renamed last, so the table of hits has its name too if the output has.
            let is_usable = match &unpublished {
                Some(_) => batches().all(|batch| extents_match(&rows, &batch.rows)),
                None => is_whole(out),
            };
            if is_usable {
                finished.output_bytes = Some(bytes);
                finished.unpublished_output = unpublished;
            }
        }
        for batch in batches() {
            if finished.output_bytes.is_some()
                || (extents_match(&output, &batch.reports) && extents_match(&rows, &batch.rows))
            {
                finished.batches.insert(batch.number, batch.clone());
            }
        }
        let next = (0..).find(|number| !finished.batches.contains_key(number)).unwrap_or(0);
        for line in lines {
            match line {
                CheckpointEntry::Range(found)
                    if u64::from(found.batch) >= next && extents_match(&hits, &[found.hits]) =>
                {
                    finished.ranges.insert((found.batch, found.range), *found);
                }
                CheckpointEntry::Slice(slice)
                    if slice.batch == next
                        && extents_match(&output, &[slice.report])
                        && slice.rows.is_none_or(|kept| extents_match(&rows, &[kept])) =>
                {
                    finished.slices.push(slice.clone());
                }
                _ => {}
            }
        }
        // A search that was stopped twice may have written overlapping slices.
        finished.slices.sort_by_key(|slice| (slice.first, std::cmp::Reverse(slice.end)));
        let mut end = 0;
        finished.slices.retain(|slice| {
            let follows = slice.first >= end && slice.end > slice.first;
            end = if follows { slice.end } else { end };
            follows
        });
        self.has_progress = !finished.batches.is_empty() || !finished.ranges.is_empty() || !finished.slices.is_empty();
        finished
    }

    /// Appends an entry to the journal.
    pub(crate) fn append_entry(&mut self, line: &CheckpointEntry) -> Result<(), SearchError> {
        self.journal.append_unsynced(line).map_err(|source| self.file_error("write", source))?;
        if !matches!(line, CheckpointEntry::Start(..)) {
            self.has_progress = true;
            self.resumable.unregister();
        }
        Ok(())
    }

    /// Removes the checkpoint of a completed search.
    pub(crate) fn remove(self) {
        // Ignore errors: the directory is hidden, and the next search with this output replaces it.
        let _ = fs::remove_dir_all(&self.directory);
    }

    /// Keeps the checkpoint of a stopped search and returns true; if no work is finished, removes it and returns false.
    pub(crate) fn keep_for_resume(self) -> bool {
        if !self.has_progress {
            self.remove();
            return false;
        }
        true
    }

    fn file_error(&self, action: &'static str, source: std::io::Error) -> SearchError {
        SearchError::File { action, path: self.directory.clone(), source }
    }
}

/// Returns whether the data at all these extents of a file matches the checksums.
fn extents_match(path: &Path, all: &[FileExtent]) -> bool {
    let is_there = |file: &mut File, kept: &FileExtent| {
        file.seek(SeekFrom::Start(kept.offset))?;
        let (mut sum, mut left) = (libdeflater::Crc::new(), kept.bytes);
        let mut piece = vec![0; CHECK_BUFFER_BYTES.min(left as usize)];
        while left > 0 {
            let bytes = CHECK_BUFFER_BYTES.min(left as usize);
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
    use crate::hit_store::HitStore;

    fn identity(queries: &str) -> SearchIdentity {
        let (godwit_version, engine) = ("1".to_owned(), "BLAST 2".to_owned());
        let database_files = vec![("db.nsq".into(), 7, 9)];
        SearchIdentity {
            godwit_version,
            engine,
            options: vec!["blastn".into()],
            queries_checksum: queries.to_owned(),
            database_files,
            has_hits_table: false,
        }
    }

    const PARTITION: SearchPartition = SearchPartition { plan: SearchPlan::Database { range_count: 3 }, parts: 3 };

    fn open(out: &Path, resumes: bool) -> (SearchCheckpoint, ResumeState) {
        SearchCheckpoint::open(out, resumes, &identity("q"), &PARTITION).expect("it is the same search")
    }

    /// Stores the hits of a range.
    fn store_range(journal: &mut SearchCheckpoint, batch: u32, extensions: i64, hits: &[u8]) {
        let store = HitStore::open_named(journal.file_path("hits")).expect("scratch can be written");
        let hits = store.append(hits).expect("scratch can be written");
        let found = FinishedRange { batch, range: 2, first_query: 0, queries: 2, extensions, hits };
        journal.append_entry(&CheckpointEntry::Range(found)).expect("scratch can be written");
    }

    /// Returns an entry for queries of batch 1, whose report is the byte at `first` of the output.
    fn slice(first: u32, end: u32, report: &[u8]) -> CheckpointEntry {
        let report = FileExtent { offset: u64::from(first), bytes: 1, checksum: libdeflater::crc32(report) };
        CheckpointEntry::Slice(FinishedSlice { batch: 1, first, end, report, rows: None, header_lines: Vec::new() })
    }

    /// Writes the checkpoint of a stopped search: one finished batch, and of the next batch one finished range and two
    /// slices.
    fn write_stopped_search(out: &Path) {
        let (mut journal, finished) = open(out, false);
        assert!(finished.batches.is_empty() && finished.ranges.is_empty());
        fs::write(journal.file_path("output"), b"report").expect("scratch can be written");
        let reports = vec![FileExtent { offset: 1, bytes: 5, checksum: libdeflater::crc32(b"eport") }];
        let (rows, header_lines) = (Vec::new(), vec![(b"name".to_vec(), b"line".to_vec())]);
        let batch = FinishedBatch { number: 0, queries: 2, is_last: false, extensions: 4, reports, rows, header_lines };
        store_range(&mut journal, 0, 8, b"of a batch that is finished");
        journal.append_entry(&CheckpointEntry::Batch(batch)).expect("scratch can be written");
        store_range(&mut journal, 1, 9, b"hits");
        store_range(&mut journal, 2, 10, b"more");
        for slice in [slice(4, 6, b"r"), slice(0, 3, b"r"), slice(1, 2, b"e"), slice(3, 4, b"x")] {
            journal.append_entry(&slice).expect("scratch can be written");
        }
        assert!(journal.keep_for_resume());
    }

    #[test]
    fn what_was_finished_is_restored() {
        let directory = tempfile::tempdir().expect("scratch");
        let out = directory.path().join("out");
        write_stopped_search(&out);
        assert_eq!(SearchCheckpoint::read_partition(&out), Some(PARTITION));
        let (journal, finished) = open(&out, true);
        assert_eq!(finished.batches.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!(finished.batches[&0].header_lines, [(b"name".to_vec(), b"line".to_vec())]);
        assert_eq!(finished.ranges.keys().collect::<Vec<_>>(), [&(1, 2), &(2, 2)]);
        let FinishedRange { extensions, hits: kept, .. } = finished.ranges[&(1, 2)];
        let store = HitStore::open_named(journal.file_path("hits")).expect("it is there");
        assert_eq!((extensions, store.read(kept).expect("they are there")), (9, b"hits".to_vec()));
        // One slice is within another one, and one has another checksum.
        assert_eq!(finished.slices.iter().map(|slice| (slice.first, slice.end)).collect::<Vec<_>>(), [(0, 3), (4, 6)]);
        assert!(matches!(
            SearchCheckpoint::open(&out, true, &identity("q"), &PARTITION),
            Err(SearchError::File { .. })
        ));
        journal.remove();
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn a_complete_output_is_kept_as_long_as_it_is_whole() {
        let directory = tempfile::tempdir().expect("scratch");
        let out = directory.path().join("out");
        let inside = |name: &str| SearchCheckpoint::directory_path(&out).join(name);
        let complete = || {
            write_stopped_search(&out);
            let (mut journal, _) = open(&out, true);
            journal.append_entry(&CheckpointEntry::Complete { bytes: 9 }).expect("scratch can be written");
            assert!(journal.keep_for_resume());
        };
        // The header is in front of the reports, so the batches have other offsets there.
        complete();
        fs::write(inside(REWRITTEN_OUTPUT), b"HD\nreport").expect("scratch can be written");
        let finished = open(&out, true).1;
        assert_eq!((finished.output_bytes, finished.is_published()), (Some(9), false));
        assert_eq!(finished.unpublished_output, Some(inside(REWRITTEN_OUTPUT)));
        assert_eq!(finished.batches.len(), 1);
        // Renamed, and stopped before the checkpoint was removed.
        fs::rename(inside(REWRITTEN_OUTPUT), &out).expect("it is there");
        let finished = open(&out, true).1;
        assert_eq!((finished.output_bytes, finished.is_published()), (Some(9), true));
        // Removed by the user: the search continues from the reports.
        fs::remove_file(&out).expect("it is there");
        let finished = open(&out, true).1;
        assert_eq!((finished.output_bytes, finished.is_published()), (None, false));
        assert_eq!(finished.batches.len(), 1);
    }

    #[test]
    fn what_is_damaged_is_not() {
        let directory = tempfile::tempdir().expect("scratch");
        let out = directory.path().join("out");
        let inside = |name: &str| SearchCheckpoint::directory_path(&out).join(name);
        write_stopped_search(&out);
        fs::write(inside("output"), b"rEport").expect("scratch can be written");
        let (_, finished) = open(&out, true);
        // The report of batch 0 is damaged, so batch 0 is unfinished, and the slices of batch 1 are ignored.
        assert!(finished.batches.is_empty() && finished.slices.is_empty());
        assert_eq!(finished.ranges.len(), 3);
        write_stopped_search(&out);
        fs::write(inside("hits"), b"hats").expect("scratch can be written");
        assert!(open(&out, true).1.ranges.is_empty());
        write_stopped_search(&out);
        let journal = fs::read(inside("journal")).expect("it is there");
        for end in 0..journal.len() {
            fs::write(inside("journal"), &journal[..end]).expect("scratch can be written");
            let (_, finished) = open(&out, true);
            assert!(finished.slices.len() <= 2 && finished.batches.len() <= 1, "{end}");
        }
        assert!(open(&out, false).1.batches.is_empty());
    }

    #[test]
    fn another_search_is_refused_by_what_is_different() {
        let directory = tempfile::tempdir().expect("scratch");
        let out = directory.path().join("out");
        write_stopped_search(&out);
        let refused = |identity: &SearchIdentity, cut: &SearchPartition| match SearchCheckpoint::open(
            &out, true, identity, cut,
        ) {
            Err(error @ SearchError::Resume { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let now = |change: fn(&mut SearchIdentity)| {
            let mut now = identity("q");
            change(&mut now);
            now
        };
        assert!(refused(&identity("r"), &PARTITION).contains("queries"));
        assert!(refused(&now(|now| now.database_files[0].2 = 1), &PARTITION).contains("db.nsq"));
        assert!(refused(&now(|now| now.options.push("-evalue".into())), &PARTITION).contains("blastn -evalue now"));
        assert!(
            refused(&now(|now| now.engine = "BLAST 3".into()), &PARTITION).contains("BLAST 2 in the stopped search")
        );
        assert!(refused(&now(|now| now.has_hits_table = true), &PARTITION).contains("--hits"));
        assert!(refused(&identity("q"), &SearchPartition { parts: 4, ..PARTITION }).contains("3 parts"));
        assert_eq!(open(&out, true).1.batches.len(), 1);
    }
}
