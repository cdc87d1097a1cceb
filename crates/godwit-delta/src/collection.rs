//! Collections of genomes that are packed against one reference: a directory with a packed file for each genome and a
//! manifest.
//!
//! The manifest, `collection.json`, names the reference and the members. The packed file of a member is complete before
//! the manifest lists the member. A lock serializes concurrent additions.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, IntoInnerError, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_files::{AtomicFile, create_directories};
use godwit_model::Region;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::error::DeltaError;
use super::gwp_reader::GwpReader;
use super::kmer_index::KmerIndex;
use super::pack::{PackOptions, PackSummary, pack};
use super::reference::Reference;
use super::unpack::{UnpackSummary, unpack};

/// File name of the manifest.
const MANIFEST_FILE_NAME: &str = "collection.json";
/// Name of the file that is locked while a member is being added.
const LOCK_FILE_NAME: &str = ".collection.lock";
/// Supported version of the manifest.
const MANIFEST_VERSION: u32 = 1;

/// A genome of a collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionMember {
    /// Name of the genome; its packed file is `NAME.gwp`.
    pub name: String,
    /// Size of the unpacked FASTA text, bytes.
    pub text_bytes: u64,
    /// Size of the packed file, bytes.
    pub packed_bytes: u64,
    /// XXH3 of the packed file, hexadecimal.
    pub checksum: String,
}

/// The contents of `collection.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CollectionManifest {
    version: u32,
    reference: String,
    members: Vec<CollectionMember>,
}

/// A directory of genomes that were packed with the same reference.
#[derive(Debug)]
pub struct Collection {
    directory: PathBuf,
    manifest: CollectionManifest,
}

impl Collection {
    /// Opens an existing collection.
    ///
    /// # Errors
    /// [`DeltaError::Io`] if the manifest cannot be read; [`DeltaError::Collection`] if the manifest is invalid.
    pub fn open(directory: &Path) -> Result<Self, DeltaError> {
        let path = directory.join(MANIFEST_FILE_NAME);
        let text = fs::read(&path).map_err(DeltaError::io_error(&path))?;
        let wrong = |problem: String| DeltaError::Collection { collection: directory.to_owned(), problem };
        let manifest: CollectionManifest = serde_json::from_slice(&text)
            .map_err(|error| wrong(format!("{MANIFEST_FILE_NAME} cannot be read: {error}; restore it from a copy")))?;
        if let Some(member) = manifest.members.iter().find(|member| !is_valid_member_name(&member.name)) {
            return Err(wrong(format!(
                "{MANIFEST_FILE_NAME} has a genome named {:?}, which is not a valid name; restore it from a copy",
                member.name
            )));
        }
        match manifest.version {
            MANIFEST_VERSION => Ok(Self { directory: directory.to_owned(), manifest }),
            version => Err(wrong(format!(
                "{MANIFEST_FILE_NAME} has version {version}, but only {MANIFEST_VERSION} is supported; use a newer \
                 godwit"
            ))),
        }
    }

    /// Opens a collection, or creates an empty one with this reference.
    ///
    /// # Errors
    /// The errors of [`Collection::open`]; [`DeltaError::Collection`] if the collection has another reference.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_delta::{Reference, ReferenceCachePolicy};
    /// use godwit_delta::Collection;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// let cohort = directory.path().join("cohort");
    /// let collection = Collection::open_or_create(&cohort, &reference)?;
    /// assert!(collection.members().is_empty());
    /// assert_eq!(collection.reference_digest(), reference.digest().to_string());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_or_create(directory: &Path, reference: &Reference) -> Result<Self, DeltaError> {
        create_directories(directory).map_err(DeltaError::io_error(directory))?;
        let collection = match directory.join(MANIFEST_FILE_NAME).exists() {
            true => Self::open(directory)?,
            false => {
                let (reference, members) = (reference.digest().to_string(), Vec::new());
                let manifest = CollectionManifest { version: MANIFEST_VERSION, reference, members };
                Self { directory: directory.to_owned(), manifest }
            }
        };
        collection.check_reference(reference)?;
        Ok(collection)
    }

    fn check_reference(&self, reference: &Reference) -> Result<(), DeltaError> {
        let (known, digest) = (&self.manifest.reference, reference.digest().to_string());
        if *known == digest {
            return Ok(());
        }
        Err(self.collection_error(format!(
            "its genomes were packed with the reference {known}, but {} is {digest}; give the reference they were \
             packed with",
            reference.path().display()
        )))
    }

    fn collection_error(&self, problem: String) -> DeltaError {
        DeltaError::Collection { collection: self.directory.clone(), problem }
    }

    /// Returns the digest of the reference against which all members are packed.
    pub fn reference_digest(&self) -> &str {
        &self.manifest.reference
    }

    /// Returns the members in the order in which they were added.
    pub fn members(&self) -> &[CollectionMember] {
        &self.manifest.members
    }

    /// Returns the path of the packed file of a genome in the collection at `directory`, whether or not it exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// use godwit_delta::Collection;
    ///
    /// assert_eq!(Collection::packed_path(Path::new("cohort"), "sample1"), Path::new("cohort/sample1.gwp"));
    /// ```
    pub fn packed_path(directory: &Path, name: &str) -> PathBuf {
        directory.join(format!("{name}.gwp"))
    }

    /// Returns the paths of all files of the collection: its manifest, its lock and the packed files of its members.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let own = [MANIFEST_FILE_NAME, LOCK_FILE_NAME].into_iter().map(|name| self.directory.join(name));
        own.chain(self.manifest.members.iter().map(|member| Self::packed_path(&self.directory, &member.name)))
    }

    /// Returns the path of the packed file of a member.
    ///
    /// # Errors
    /// [`DeltaError::Collection`] if the collection has no member of this name.
    pub fn member_path(&self, name: &str) -> Result<PathBuf, DeltaError> {
        match self.manifest.members.iter().any(|member| member.name == name) {
            true => Ok(Self::packed_path(&self.directory, name)),
            false => {
                Err(self.collection_error(format!("it has no genome {name}; list the collection to see the names")))
            }
        }
    }

    /// Packs a genome and adds it to the collection. First reads the manifest again, because other processes may have
    /// added members.
    ///
    /// # Errors
    /// The errors of [`pack`]; [`DeltaError::Collection`] if the name is invalid or already used.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::atomic::AtomicBool;
    /// # use godwit_delta::{PackOptions, Reference, ReferenceCachePolicy};
    /// use godwit_delta::{Collection, DeltaError};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// # let anchors = reference.kmer_index(1)?;
    /// # let (options, cancelled) = (PackOptions::default(), AtomicBool::new(false));
    /// let mut collection = Collection::open_or_create(&directory.path().join("cohort"), &reference)?;
    /// let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
    /// collection.add_member("sample1", &mut &genome[..], &reference, &anchors, &options, &cancelled)?;
    /// assert_eq!(collection.members()[0].name, "sample1");
    ///
    /// let again = collection.add_member("sample1", &mut &genome[..], &reference, &anchors, &options, &cancelled);
    /// assert!(matches!(again, Err(DeltaError::Collection { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_member(
        &mut self,
        name: &str,
        input: &mut dyn Read,
        reference: &Reference,
        anchors: &KmerIndex,
        options: &PackOptions,
        cancelled: &AtomicBool,
    ) -> Result<PackSummary, DeltaError> {
        if !is_valid_member_name(name) {
            return Err(self.collection_error(format!(
                "{name:?} is not a valid name of a genome; use letters, digits and ._+=@-"
            )));
        }
        let lock_path = self.directory.join(LOCK_FILE_NAME);
        let lock = File::create(&lock_path).and_then(|file| file.lock().map(|()| file));
        let _lock = lock.map_err(DeltaError::io_error(&lock_path))?;
        if self.directory.join(MANIFEST_FILE_NAME).exists() {
            self.manifest = Self::open(&self.directory)?.manifest;
            self.check_reference(reference)?;
        }
        if self.manifest.members.iter().any(|member| member.name == name) {
            return Err(self.collection_error(format!("it already has a genome {name}; choose another name")));
        }
        let path = Self::packed_path(&self.directory, name);
        if path.symlink_metadata().is_ok() {
            return Err(self.collection_error(format!(
                "{} exists, but {MANIFEST_FILE_NAME} does not list it. If {MANIFEST_FILE_NAME} was lost, restore it; if an \
                 addition was stopped, remove the file",
                path.display()
            )));
        }
        let file = AtomicFile::create_unique(&path, 0o600).map_err(DeltaError::io_error(&path))?;
        let mut out = ChecksumWriter { out: BufWriter::new(file), hash: Xxh3::new() };
        let summary = pack(input, &mut out, reference, anchors, options, cancelled)?;
        let checksum = format!("{:016x}", out.hash.digest());
        let file = out.out.into_inner().map_err(IntoInnerError::into_error);
        file.and_then(AtomicFile::commit).map_err(DeltaError::io_error(&path))?;
        let (text_bytes, packed_bytes) = (summary.text_bytes, summary.packed_bytes);
        self.manifest.members.push(CollectionMember { name: name.to_owned(), text_bytes, packed_bytes, checksum });
        if let Err(error) = self.write_manifest() {
            self.manifest.members.pop();
            // Otherwise the file would prevent that the genome is added again; the first error is the one to report.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(summary)
    }

    fn write_manifest(&self) -> Result<(), DeltaError> {
        let path = self.directory.join(MANIFEST_FILE_NAME);
        let mut file = AtomicFile::create_unique(&path, 0o600).map_err(DeltaError::io_error(&path))?;
        let text = serde_json::to_string_pretty(&self.manifest).expect("names and numbers are JSON") + "\n";
        file.write_all(text.as_bytes()).and_then(|()| file.commit()).map_err(DeltaError::io_error(&path))
    }

    /// Unpacks a member and verifies the checksum of its packed file.
    ///
    /// # Errors
    /// The errors of [`unpack`]; [`DeltaError::Collection`] if the collection has no member of this name, or if the
    /// checksum of its packed file differs from the manifest.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::atomic::AtomicBool;
    /// # use godwit_delta::{PackOptions, Reference, ReferenceCachePolicy};
    /// use godwit_delta::Collection;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// # let anchors = reference.kmer_index(1)?;
    /// # let (options, cancelled) = (PackOptions::default(), AtomicBool::new(false));
    /// let mut collection = Collection::open_or_create(&directory.path().join("cohort"), &reference)?;
    /// let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
    /// collection.add_member("sample1", &mut &genome[..], &reference, &anchors, &options, &cancelled)?;
    ///
    /// let mut extracted = Vec::new();
    /// let summary = collection.extract_member("sample1", &mut extracted, &reference, 1, &cancelled)?;
    /// assert_eq!(extracted, genome);
    /// assert_eq!(summary.text_bytes, genome.len() as u64);
    /// # Ok(())
    /// # }
    /// ```
    pub fn extract_member(
        &self,
        name: &str,
        output: &mut dyn Write,
        reference: &Reference,
        threads: usize,
        cancelled: &AtomicBool,
    ) -> Result<UnpackSummary, DeltaError> {
        let path = self.member_path(name)?;
        let file = File::open(&path).map_err(DeltaError::io_error(&path))?;
        let mut input = ChecksumReader { input: BufReader::new(file), hash: Xxh3::new() };
        let summary = unpack(&mut input, output, Some(reference), threads, cancelled)?;
        let checksum = format!("{:016x}", input.hash.digest());
        match self.manifest.members.iter().find(|member| member.name == name) {
            Some(member) if member.checksum == checksum => Ok(summary),
            _ => Err(self.collection_error(format!(
                "{name}.gwp was changed after it was added to the collection; restore it from a copy"
            ))),
        }
    }

    /// Returns the names of the sequences of all readable members. Unreadable members are skipped;
    /// [`Collection::write_region`] reports their errors.
    ///
    /// # Errors
    /// [`DeltaError::Cancelled`] if `cancelled` is set.
    pub fn sequence_names(
        &self,
        reference: &Reference,
        cancelled: &AtomicBool,
    ) -> Result<BTreeSet<String>, DeltaError> {
        let mut names = BTreeSet::new();
        for member in &self.manifest.members {
            if cancelled.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(DeltaError::Cancelled);
            }
            if let Ok(genome) = GwpReader::open(&self.member_path(&member.name)?, Some(reference)) {
                names.extend(genome.sequences().iter().map(|sequence| sequence.name.clone()));
            }
        }
        Ok(names)
    }

    /// Writes a region of a member as FASTA, with the member's name before the sequence name in the title. Returns
    /// whether the member has the sequence. If the member is damaged, nothing is written.
    ///
    /// # Errors
    /// The errors of [`GwpReader::write_region`]; [`DeltaError::Cancelled`] if `cancelled` is set.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::atomic::AtomicBool;
    /// # use godwit_delta::{PackOptions, Reference, ReferenceCachePolicy};
    /// use godwit_model::Region;
    /// use godwit_delta::Collection;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// # let anchors = reference.kmer_index(1)?;
    /// # let (options, cancelled) = (PackOptions::default(), AtomicBool::new(false));
    /// let mut collection = Collection::open_or_create(&directory.path().join("cohort"), &reference)?;
    /// let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
    /// collection.add_member("sample1", &mut &genome[..], &reference, &anchors, &options, &cancelled)?;
    ///
    /// let region = Region { contig: "chr1".to_owned(), start: 4, end: 10 };
    /// let mut fasta = Vec::new();
    /// for member in collection.members() {
    ///     collection.write_region(member, &region, &mut fasta, &reference, &cancelled)?;
    /// }
    /// assert_eq!(fasta, b">sample1:chr1:5-10\nTGCATT\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_region(
        &self,
        member: &CollectionMember,
        region: &Region,
        output: &mut dyn Write,
        reference: &Reference,
        cancelled: &AtomicBool,
    ) -> Result<bool, DeltaError> {
        if cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(DeltaError::Cancelled);
        }
        let mut genome = GwpReader::open(&self.member_path(&member.name)?, Some(reference))?;
        if !genome.has_sequence(&region.contig) {
            return Ok(false);
        }
        let mut text = Vec::new();
        genome.write_region(region, &format!("{}:", member.name), &mut text)?;
        output.write_all(&text).map_err(|source| DeltaError::Stream { operation: "write the output", source })?;
        Ok(true)
    }
}

/// Reports whether a genome may have this name. A valid name is the name of a file that is not hidden, without a
/// directory.
fn is_valid_member_name(name: &str) -> bool {
    let usable = |letter: char| letter.is_ascii_alphanumeric() || "._+=@-".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(usable)
}

/// A writer that computes the XXH3 checksum of the written bytes.
struct ChecksumWriter<W> {
    out: W,
    hash: Xxh3,
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// A reader that computes the XXH3 checksum of the bytes read.
struct ChecksumReader<R> {
    input: R,
    hash: Xxh3,
}

impl<R: Read> Read for ChecksumReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}
