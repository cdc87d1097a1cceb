//! Many genomes against one reference: a directory with a packed file for each, and a list.
//!
//! `collection.json` names the reference and the members; it is written last, so that a member is in the list when its file is
//! whole. Two that add at the same time take turns.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_model::Region;
use godwit_process::Temporary;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::anchors::Anchors;
use super::error::DeltaError;
use super::pack::{PackOptions, PackSummary, pack};
use super::reference::Reference;
use super::region::PackedGenome;
use super::unpack::{UnpackSummary, unpack};

/// The list of a collection.
const LIST: &str = "collection.json";
/// Locked while a member is added.
const LOCK: &str = ".collection.lock";
/// Version of the list.
const VERSION: u32 = 1;

/// A genome of a collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name; its file is `NAME.gwp`.
    pub name: String,
    /// Bytes of its text.
    pub text_bytes: u64,
    /// Bytes of its file.
    pub packed_bytes: u64,
    /// XXH3 of its file, in hexadecimal.
    pub checksum: String,
}

/// What is in `collection.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct List {
    version: u32,
    reference: String,
    members: Vec<Member>,
}

/// A directory of packed genomes.
#[derive(Debug)]
pub struct Collection {
    directory: PathBuf,
    list: List,
}

impl Collection {
    /// Opens a collection.
    ///
    /// # Errors
    /// [`DeltaError::Io`]; [`DeltaError::Collection`] where its list cannot be read.
    pub fn open(directory: &Path) -> Result<Self, DeltaError> {
        let path = directory.join(LIST);
        let text = fs::read(&path).map_err(DeltaError::at(&path))?;
        let wrong = |what: String| DeltaError::Collection { collection: directory.to_owned(), what };
        let list: List = serde_json::from_slice(&text)
            .map_err(|error| wrong(format!("{LIST} cannot be read: {error}; restore it from a copy")))?;
        if let Some(member) = list.members.iter().find(|member| !is_name(&member.name)) {
            return Err(wrong(format!(
                "{LIST} has a genome named {:?}, which no file here is; restore it from a copy",
                member.name
            )));
        }
        match list.version {
            VERSION => Ok(Self { directory: directory.to_owned(), list }),
            version => Err(wrong(format!("{LIST} has version {version}, and {VERSION} is known; use a newer godwit"))),
        }
    }

    /// Opens a collection, or makes an empty one for a reference.
    ///
    /// # Errors
    /// As [`Collection::open`]; [`DeltaError::Collection`] where it is of another reference.
    pub fn open_or_make(directory: &Path, reference: &Reference) -> Result<Self, DeltaError> {
        let digest = reference.digest().to_string();
        fs::create_dir_all(directory).map_err(DeltaError::at(directory))?;
        let collection = match directory.join(LIST).exists() {
            true => Self::open(directory)?,
            false => {
                let list = List { version: VERSION, reference: digest.clone(), members: Vec::new() };
                Self { directory: directory.to_owned(), list }
            }
        };
        if collection.list.reference != digest {
            let (known, path) = (&collection.list.reference, reference.path().display());
            return Err(collection.wrong(format!(
                "its reference is {known}, and {path} is {digest}; give the reference its members were packed with"
            )));
        }
        Ok(collection)
    }

    fn wrong(&self, what: String) -> DeltaError {
        DeltaError::Collection { collection: self.directory.clone(), what }
    }

    /// Digest of the reference.
    pub fn reference(&self) -> &str {
        &self.list.reference
    }

    /// The members, in the order in which they came.
    pub fn members(&self) -> &[Member] {
        &self.list.members
    }

    /// The packed file of a member.
    ///
    /// # Errors
    /// [`DeltaError::Collection`] where there is none of that name.
    pub fn file(&self, name: &str) -> Result<PathBuf, DeltaError> {
        match self.list.members.iter().any(|member| member.name == name) {
            true => Ok(self.directory.join(format!("{name}.gwp"))),
            false => Err(self.wrong(format!("it has no genome {name}; list it to see their names"))),
        }
    }

    /// Packs a genome and adds it. Its list on disk is read again first, for what others added meanwhile.
    ///
    /// # Errors
    /// As for [`pack`]; [`DeltaError::Collection`] for a name that is taken or no name.
    pub fn add(
        &mut self,
        name: &str,
        input: &mut dyn Read,
        reference: &Reference,
        anchors: &Anchors,
        options: &PackOptions,
        cancelled: &AtomicBool,
    ) -> Result<PackSummary, DeltaError> {
        if !is_name(name) {
            return Err(self.wrong(format!("{name:?} is no name for a genome; use letters, digits and ._+=@-")));
        }
        let lock_path = self.directory.join(LOCK);
        let lock = File::create(&lock_path).and_then(|file| file.lock().map(|()| file));
        let _lock = lock.map_err(DeltaError::at(&lock_path))?;
        if self.directory.join(LIST).exists() {
            self.list = Self::open(&self.directory)?.list;
        }
        if self.list.members.iter().any(|member| member.name == name) {
            return Err(self.wrong(format!("there is a genome {name} in it; give this one another name")));
        }
        let path = self.directory.join(format!("{name}.gwp"));
        let file = Temporary::create(|| tempfile::NamedTempFile::new_in(&self.directory))
            .map_err(DeltaError::at(&self.directory))?;
        let mut out = Hashed { out: BufWriter::new(file), hash: Xxh3::new() };
        let summary = pack(input, &mut out, reference, anchors, options, cancelled)?;
        let checksum = format!("{:016x}", out.hash.digest());
        keep(out.out, &path)?;
        let (text_bytes, packed_bytes) = (summary.text_bytes, summary.packed_bytes);
        self.list.members.push(Member { name: name.to_owned(), text_bytes, packed_bytes, checksum });
        self.write_list()?;
        Ok(summary)
    }

    fn write_list(&self) -> Result<(), DeltaError> {
        let path = self.directory.join(LIST);
        let file = Temporary::create(|| tempfile::NamedTempFile::new_in(&self.directory))
            .map_err(DeltaError::at(&self.directory))?;
        let mut out = BufWriter::new(file);
        let text = serde_json::to_vec_pretty(&self.list).expect("names and numbers are JSON");
        out.write_all(&text).and_then(|()| out.write_all(b"\n")).map_err(DeltaError::at(&path))?;
        keep(out, &path)
    }

    /// Unpacks a member.
    ///
    /// # Errors
    /// As for [`unpack`]; [`DeltaError::Collection`] where there is none of that name, or its file is another than was added.
    pub fn extract(
        &self,
        name: &str,
        output: &mut dyn Write,
        reference: &Reference,
        threads: usize,
        cancelled: &AtomicBool,
    ) -> Result<UnpackSummary, DeltaError> {
        let path = self.file(name)?;
        let file = File::open(&path).map_err(DeltaError::at(&path))?;
        let mut input = HashedInput { input: BufReader::new(file), hash: Xxh3::new() };
        let summary = unpack(&mut input, output, Some(reference), threads, cancelled)?;
        let checksum = format!("{:016x}", input.hash.digest());
        match self.list.members.iter().find(|member| member.name == name) {
            Some(member) if member.checksum == checksum => Ok(summary),
            _ => Err(self.wrong(format!("{name}.gwp is another file than was added; restore it from a copy"))),
        }
    }

    /// The names of the sequences of all members that can be opened; [`Collection::write_region`] reports the others.
    ///
    /// # Errors
    /// [`DeltaError::Cancelled`].
    pub fn sequence_names(
        &self,
        reference: &Reference,
        cancelled: &AtomicBool,
    ) -> Result<BTreeSet<String>, DeltaError> {
        let mut names = BTreeSet::new();
        for member in &self.list.members {
            if cancelled.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(DeltaError::Cancelled);
            }
            if let Ok(genome) = PackedGenome::open(&self.file(&member.name)?, Some(reference)) {
                names.extend(genome.sequences().iter().map(|sequence| sequence.name.clone()));
            }
        }
        Ok(names)
    }

    /// Writes a region of a member as FASTA; titles have the member's name before them. Returns whether it has that sequence. Where the
    /// member is damaged, nothing of it is written.
    ///
    /// # Errors
    /// As for [`PackedGenome::write_region`]; [`DeltaError::Cancelled`].
    pub fn write_region(
        &self,
        member: &Member,
        region: &Region,
        output: &mut dyn Write,
        reference: &Reference,
        cancelled: &AtomicBool,
    ) -> Result<bool, DeltaError> {
        if cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(DeltaError::Cancelled);
        }
        let mut genome = PackedGenome::open(&self.file(&member.name)?, Some(reference))?;
        if !genome.has_sequence(&region.contig) {
            return Ok(false);
        }
        let mut text = Vec::new();
        genome.write_region(region, &format!("{}:", member.name), &mut text)?;
        output.write_all(&text).map_err(|source| DeltaError::Stream { what: "write the output", source })?;
        Ok(true)
    }
}

/// Whether a genome may have this name: its file lies in the directory, and is not hidden.
fn is_name(name: &str) -> bool {
    let usable = |letter: char| letter.is_ascii_alphanumeric() || "._+=@-".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(usable)
}

/// Makes a file durable and gives it its name, for whoever may read what is beside it.
fn keep(out: BufWriter<Temporary<tempfile::NamedTempFile>>, path: &Path) -> Result<(), DeltaError> {
    let file = out.into_inner().map_err(|error| DeltaError::at(path)(error.into_error()))?;
    file.as_file().sync_all().map_err(DeltaError::at(path))?;
    let (file, _listed) = file.into_parts();
    file.persist(path).map_err(|error| DeltaError::at(path)(error.error))?;
    Ok(())
}

/// What is written, and its checksum.
struct Hashed<W> {
    out: W,
    hash: Xxh3,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// What is read, and its checksum.
struct HashedInput<R> {
    input: R,
    hash: Xxh3,
}

impl<R: Read> Read for HashedInput<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}
