//! What a `call` that was stopped leaves for the next one: records of finished regions, and a journal that vouches for them.
//!
//! The directory `.NAME.godwit-run` beside the output is private and goes when the output has its name. `records` only
//! grows; what it holds of a region is durable before the journal's line that names it. A region counts as
//! finished for a later process only when its bytes still have their checksum.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use godwit_kernels::sort::Spill;
use godwit_process::{ResumablePaths, TemporaryPath};
use serde::{Deserialize, Serialize};

use super::identity::is_of_reads;
use super::work::CalledRegion;
use crate::error::PipelineError;
use crate::journal::{Fact, Journal, Line};
use crate::run_directory::{compare, give_names};
use crate::scratch::{ScratchDirectory, SpillFile, create_private_directory, unique};
use crate::staging::{Staged, is_held, is_within, sync_directory};

/// What nodes of a run share, within its directory.
const NODES: &str = "nodes";
/// Reads that are called from while they are written, within it.
const READS: &str = "reads";

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
enum Entry {
    /// A run began.
    Start {
        /// What it is a run of.
        facts: Vec<Fact>,
    },
    /// What the reads are known by, once more than the start says of them is known. Several such lines say the same of one
    /// file: what it is made of, and what is in it once it is whole.
    Reads {
        /// What they are known by.
        facts: Vec<Fact>,
    },
    /// A region is called and kept.
    Region {
        /// Its place in the grid.
        index: usize,
        /// What it left.
        kept: KeptRegion,
    },
    /// All files are whole and durable, and are about to get their names.
    Publish {
        /// Where each lies and the name it gets, both within the output's directory.
        names: Vec<(String, String)>,
    },
}

/// Bytes in `records`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Place {
    offset: u64,
    bytes: u64,
}

/// What a finished region left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptRegion {
    /// The header of its VCF.
    pub(super) header: Place,
    /// Lines of its records.
    pub(super) lines: Place,
    /// Number of records.
    pub(super) records: u64,
    /// BLAKE3 of header and lines, hexadecimal.
    checksum: String,
    /// Wall time of the caller.
    pub(super) seconds: f64,
    /// How often it was started, and where.
    #[serde(flatten)]
    pub(super) effort: Effort,
}

/// What it took to call a region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Effort {
    /// How often the caller was started.
    pub(super) attempts: u32,
    /// The node that called it, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
}

impl Place {
    fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

impl Line for Entry {
    fn is_sound(&self) -> bool {
        match self {
            Self::Start { .. } | Self::Reads { .. } => true,
            Self::Region { kept, .. } => kept.header.end().is_some() && kept.lines.end().is_some(),
            Self::Publish { names } => names.iter().all(|(aside, name)| is_within(aside) && is_within(name)),
        }
    }
}

/// An open run directory.
pub(super) struct CallRun {
    path: PathBuf,
    /// Where the output is to be.
    directory: PathBuf,
    journal: Journal<Entry>,
    records: SpillFile,
    /// Headers that are there already. Held while a region is appended.
    headers: Mutex<HashMap<Vec<u8>, Place>>,
    /// Regions that were finished when it was opened.
    pub(super) finished: HashMap<usize, KeptRegion>,
    /// Regions of an earlier process that are not gone on with.
    pub(super) dropped: usize,
    /// What the run is known by: at its start, and each time that its reads are known by something else.
    known: Mutex<Vec<Vec<Fact>>>,
    /// The directory, until a region is kept.
    resumable: ResumablePaths,
}

/// What there is to do.
pub(super) enum Opened {
    /// Regions that are not in it.
    Run(Box<CallRun>),
    /// Nothing: the output only lacked its name, and has it now.
    Complete,
}

impl CallRun {
    /// Where the run into an output lies.
    pub(super) fn path_of(out: &Path) -> PathBuf {
        out.with_file_name(format!(".{}.godwit-run", out.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// Opens the run directory of an output. With `resume` what is there is checked against `facts` and kept, without it
    /// is dropped. Facts about reads may be left out, where these are not known yet: [`CallRun::take_reads`].
    ///
    /// # Errors
    /// [`PipelineError::Options`] where the run that was stopped had other facts, [`PipelineError::File`].
    pub(super) fn open(out: &Path, facts: &[Fact], resume: bool) -> Result<Opened, PipelineError> {
        let path = Self::path_of(out);
        let failed = |error| PipelineError::file("use the run directory", &path)(error);
        // A new directory is on the list of temporary paths from the start, and goes over to `resumable` below.
        let created = TemporaryPath::create_directory(&path, || create_private_directory(&path));
        let _created = created.map_err(PipelineError::file("create", &path))?;
        let (journal, entries) = Journal::<Entry>::open(&path.join("journal")).map_err(failed)?;
        let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let records = SpillFile::keep(&path.join("records")).map_err(failed)?;
        // Callers that died with their godwit leave what they wrote.
        let _ = fs::remove_dir_all(path.join("scratch"));
        // Nodes of an earlier head see by it that nobody is there to come back to.
        let _ = fs::remove_dir_all(path.join(NODES));
        let _ = fs::remove_dir_all(path.join(READS));
        let mut run = Self {
            directory: directory.to_owned(),
            path: path.clone(),
            journal,
            records,
            headers: Mutex::default(),
            finished: HashMap::new(),
            dropped: 0,
            known: Mutex::default(),
            resumable: ResumablePaths::new([]),
        };
        let regions = entries.iter().filter(|entry| matches!(entry, Entry::Region { .. })).count();
        let known = known(&entries);
        if !resume || regions == 0 || known.is_empty() {
            run.dropped = regions;
            run.resumable = ResumablePaths::new([path.as_path()]);
            run.start_over(facts).map_err(failed)?;
            return Ok(Opened::Run(Box::new(run)));
        }
        compare(directory, &known_as(&known, facts), facts)?;
        run.known = Mutex::new(known);
        if let Some(Entry::Publish { names }) = entries.last()
            && names.iter().all(|(aside, name)| directory.join(aside).exists() || directory.join(name).exists())
        {
            give_names(directory, names).map_err(failed)?;
            run.remove();
            return Ok(Opened::Complete);
        }
        run.take_over(entries).map_err(failed)?;
        Ok(Opened::Run(Box::new(run)))
    }

    /// Takes what the reads are known by. What was called from others is dropped.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn take_reads(&mut self, reads: &[Fact]) -> io::Result<()> {
        let is_known = |known: &Vec<Fact>| reads.iter().all(|fact| known.contains(fact));
        let known = self.known.get_mut().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(is_known) {
            return Ok(());
        }
        if !self.finished.is_empty() {
            let start: Vec<Fact> = known.iter().take(1).flatten().filter(|fact| !is_of_reads(fact)).cloned().collect();
            self.dropped += std::mem::take(&mut self.finished).len();
            self.lock().clear();
            self.start_over(&start)?;
        }
        self.also_known_as(reads)
    }

    /// Says what else the reads are known by.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn also_known_as(&self, reads: &[Fact]) -> io::Result<()> {
        self.journal.append(&Entry::Reads { facts: reads.to_vec() })?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).push(reads.to_vec());
        Ok(())
    }

    fn start_over(&self, facts: &[Fact]) -> io::Result<()> {
        self.journal.clear()?;
        self.records.truncate(0)?;
        self.journal.append(&Entry::Start { facts: facts.to_vec() })?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = vec![facts.to_vec()];
        sync_directory(&self.path)?;
        sync_directory(&self.directory)
    }

    /// Takes over what is whole of an earlier process's work; what is damaged is done again.
    fn take_over(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        let (mut end, there) = (0, self.records.bytes());
        for entry in entries {
            let Entry::Region { index, kept } = entry else { continue };
            let ends = [kept.header, kept.lines].map(|place| place.end().unwrap_or(u64::MAX));
            if ends.iter().any(|end| *end > there) {
                continue;
            }
            let (header, lines) = (self.read(kept.header)?, self.read(kept.lines)?);
            if checksum(&header, &lines) != kept.checksum {
                continue;
            }
            end = end.max(ends[0]).max(ends[1]);
            self.lock().insert(header, kept.header);
            self.finished.insert(index, kept);
        }
        self.records.truncate(end)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Place>> {
        // A panicking worker ends the run; what it appended is named by no line.
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a region: makes it durable and notes it.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn keep(&self, index: usize, called: CalledRegion, effort: Effort) -> io::Result<KeptRegion> {
        let CalledRegion { header, lines, records, seconds } = called;
        let mut headers = self.lock();
        let checksum = checksum(&header, &lines);
        let append = |bytes: &[u8]| -> io::Result<Place> {
            Ok(Place { offset: self.records.append(bytes)?, bytes: bytes.len() as u64 })
        };
        let lines = append(&lines)?;
        let header = match headers.get(&header) {
            Some(place) => *place,
            None => *headers.entry(header.clone()).insert_entry(append(&header)?).get(),
        };
        self.records.sync()?;
        let kept = KeptRegion { header, lines, records, checksum, seconds, effort };
        self.journal.append(&Entry::Region { index, kept: kept.clone() })?;
        self.resumable.keep();
        Ok(kept)
    }

    /// Whether somebody could go on with anything.
    pub(super) fn has_work(&self) -> bool {
        self.records.bytes() > 0
    }

    /// Bytes that a region left.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; place.bytes as usize];
        self.records.read_at(place.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// A directory for what goes on between nodes, made where it is missing.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn for_nodes(&self) -> io::Result<PathBuf> {
        let path = self.path.join(NODES);
        create_private_directory(&path).map(|()| path)
    }

    /// A directory for what callers write: of this run, or below `temp`.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn scratch(&self, temp: Option<&Path>) -> io::Result<ScratchDirectory> {
        let path = match temp {
            Some(temp) => temp.join(format!(".godwit-call-{}", unique())),
            None => self.path.join("scratch"),
        };
        ScratchDirectory::create(&path)
    }

    /// A directory for reads that are called from while they are written: beside the output, as they are.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn for_reads(&self) -> io::Result<PathBuf> {
        let path = self.path.join(READS);
        create_private_directory(&path)?;
        path.canonicalize()
    }

    /// Notes that all files are whole: from here on whoever finds them aside only has to give them their names.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn publishing(&self, staged: &mut Staged) -> io::Result<()> {
        let name = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            name.ok_or_else(|| io::Error::other("a file name is not UTF-8"))
        };
        let names = staged.files().iter().map(|file| Ok((name(file.aside())?, name(file.path())?)));
        let names = names.collect::<io::Result<_>>()?;
        sync_directory(&self.directory)?;
        staged.keep();
        self.journal.append(&Entry::Publish { names })
    }

    /// Removes the directory. The journal goes last, so that a run stopped here is still known to be whole.
    pub(super) fn remove(self) {
        // Best effort: what is left is recognised and removed by the next run.
        let _ = fs::remove_dir_all(self.path.join("scratch"));
        let _ = fs::remove_dir_all(self.path.join(NODES));
        let _ = fs::remove_dir_all(self.path.join(READS));
        let _ = fs::remove_file(self.path.join("records"));
        let _ = fs::remove_file(self.path.join("journal"));
        let _ = fs::remove_dir(&self.path);
    }
}

/// What a journal says that its run is known by.
fn known(entries: &[Entry]) -> Vec<Vec<Fact>> {
    let facts = |entry: &Entry| match entry {
        Entry::Start { facts } | Entry::Reads { facts } => Some(facts.clone()),
        Entry::Region { .. } | Entry::Publish { .. } => None,
    };
    entries.iter().filter_map(facts).collect()
}

/// Those of the facts that are to be compared with `now`: the start, and of what the reads were known by that which fits, or
/// the last. What `now` does not speak of, and the start neither, is compared when it is known.
fn known_as(known: &[Vec<Fact>], now: &[Fact]) -> Vec<Fact> {
    let Some((start, reads)) = known.split_first() else { return Vec::new() };
    let fits = |reads: &&Vec<Fact>| reads.iter().all(|fact| now.contains(fact));
    let is_spoken_of = |fact: &&Fact| now.iter().any(|other| other.name == fact.name);
    let reads = reads.iter().find(fits).or(reads.last());
    start.iter().chain(reads.into_iter().flatten()).filter(is_spoken_of).cloned().collect()
}

/// Whether another process works on the output; a later start of a job waits for that to end.
pub fn is_call_busy(out: &Path) -> bool {
    is_held(&CallRun::path_of(out).join("journal"))
}

fn checksum(header: &[u8], lines: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(header.len() as u64).to_le_bytes()).update(header).update(lines);
    hasher.finalize().to_hex().to_string()
}
