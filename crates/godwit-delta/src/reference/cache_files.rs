//! The two cache files of a reference, which are beside its FASTA file.
//!
//! Numbers in both files have the byte order of this host. A file that does not match is written again. Each file
//! starts with a header and ends with a checksum of all preceding bytes. `REF.fa.gwp-bases` matches a FASTA file of the
//! same size and modification time. `REF.fa.gwp-anchors` matches bases of the same checksum.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use godwit_files::{AtomicFile, FileStamp};
use xxhash_rust::xxh3::Xxh3;

use super::super::bases::{Bases, BitVector, NonAcgtInterval};
use super::super::kmer_index::KmerIndex;
use super::{DIGEST_BYTES, Digest, Reference, ReferenceCachePolicy, ReferenceContig, sequence_collection_digest};

/// Magic bytes of the two files; the last byte is the format version.
const BASES_MAGIC: u64 = u64::from_le_bytes(*b"GWPBASE1");
const KMER_INDEX_MAGIC: u64 = u64::from_le_bytes(*b"GWPKMER1");
/// Number of bytes that are written at a time, and the least that a thread reads.
const IO_BUFFER_BYTES: usize = 1 << 20;
/// Extensions that are appended to the path of the FASTA file.
const BASES_FILE_EXTENSION: &str = "gwp-bases";
const KMER_INDEX_FILE_EXTENSION: &str = "gwp-anchors";

/// The header of the cache file with the bases.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct BasesFileHeader {
    magic: u64,
    stamp: [u64; 3],
    contig_count: u64,
    non_acgt_count: u64,
    base_count: u64,
    /// Number of words of the soft mask; 0 if all letters are upper case.
    soft_mask_words: u64,
    checksum: u64,
}

/// The header of the cache file with the k-mer index.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct KmerIndexFileHeader {
    magic: u64,
    reference_checksum: u64,
    base_count: u64,
    bucket_count: u64,
    shift: u64,
}

/// An interval of letters other than ACGT, as stored in the cache file.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct CachedInterval {
    start: u64,
    end: u64,
    letter: u64,
}

/// Reads the cached bases of a FASTA file; `None` if the cache file is missing, stale or damaged.
pub(super) fn read_cached_reference(path: &Path, threads: usize) -> Option<Reference> {
    let mut kept = CacheFileReader::open(&path.with_added_extension(BASES_FILE_EXTENSION), threads)?;
    let head: BasesFileHeader = kept.read_item()?;
    let fits = head.magic == BASES_MAGIC && head.stamp == stored_stamp(FileStamp::read(path).ok()?);
    let count = usize::try_from(head.base_count).ok().filter(|_| fits)?;
    let mut contigs = Vec::new();
    let mut start = 0;
    for _ in 0..head.contig_count {
        let [bases, name_bytes, case_checksum]: [u64; 3] = kept.read_item()?;
        let digest: [u8; DIGEST_BYTES] = kept.read_item()?;
        let name = String::from_utf8(kept.read_items(name_bytes)?).ok()?;
        contigs.push(ReferenceContig { name, start, bases, digest: Digest(digest), case_checksum });
        start += bases;
    }
    let others: Vec<CachedInterval> = kept.read_items(head.non_acgt_count)?;
    let bases = Bases::from_words(kept.read_items(Bases::word_count(count) as u64)?, count)?;
    let soft_mask = match head.soft_mask_words {
        0 => None,
        words => Some(BitVector::from_words(kept.read_items(words)?, count)?),
    };
    kept.verify_checksum()?;
    let run = |run: &CachedInterval| NonAcgtInterval {
        start: run.start as usize,
        end: run.end as usize,
        letter: run.letter as u8,
    };
    Some(Reference {
        path: path.to_owned(),
        digest: sequence_collection_digest(&contigs),
        contigs,
        bases,
        soft_mask,
        non_acgt: others.iter().map(run).collect(),
        cache_policy: ReferenceCachePolicy::BesideFasta,
        checksum: head.checksum,
    })
}

/// Returns size and modification time of a FASTA file as they are stored in the cache file.
fn stored_stamp(stamp: FileStamp) -> [u64; 3] {
    [stamp.bytes, stamp.modified_s as u64, stamp.modified_ns as u64]
}

/// Writes the cache file with the bases of a reference. `stamp` is that of the FASTA file before it was read.
pub(super) fn write_cached_reference(reference: &Reference, stamp: FileStamp) -> io::Result<()> {
    let mut kept = CacheFileWriter::create(&reference.path.with_added_extension(BASES_FILE_EXTENSION))?;
    let lower = reference.soft_mask.as_ref().map_or(&[][..], BitVector::words);
    kept.write_items(&[BasesFileHeader {
        magic: BASES_MAGIC,
        stamp: stored_stamp(stamp),
        contig_count: reference.contigs.len() as u64,
        non_acgt_count: reference.non_acgt.len() as u64,
        base_count: reference.bases.count() as u64,
        soft_mask_words: lower.len() as u64,
        checksum: reference.checksum,
    }])?;
    for contig in &reference.contigs {
        kept.write_items(&[contig.bases, contig.name.len() as u64, contig.case_checksum])?;
        kept.write_items(&contig.digest.0)?;
        kept.write_items(contig.name.as_bytes())?;
    }
    for run in &reference.non_acgt {
        kept.write_items(&[CachedInterval {
            start: run.start as u64,
            end: run.end as u64,
            letter: run.letter.into(),
        }])?;
    }
    kept.write_items(reference.bases.words())?;
    kept.write_items(lower)?;
    kept.persist(&reference.path)
}

/// Reads the cached k-mer index of a reference; `None` if the cache file is missing, stale or damaged.
pub(super) fn read_cached_kmer_index(reference: &Reference, threads: usize) -> Option<KmerIndex> {
    let mut kept = CacheFileReader::open(&reference.path.with_added_extension(KMER_INDEX_FILE_EXTENSION), threads)?;
    let head: KmerIndexFileHeader = kept.read_item()?;
    let bases = reference.bases.count();
    let fits = head.magic == KMER_INDEX_MAGIC
        && head.reference_checksum == reference.checksum
        && head.base_count == bases as u64;
    let shift = u32::try_from(head.shift).ok().filter(|_| fits)?;
    let (marks, places) = (kept.read_items(head.bucket_count)?, kept.read_items(head.bucket_count)?);
    kept.verify_checksum()?;
    KmerIndex::from_table(marks, places, shift, bases)
}

/// Writes the cache file with the k-mer index of a reference.
pub(super) fn write_cached_kmer_index(reference: &Reference, anchors: &KmerIndex) -> io::Result<()> {
    let mut kept = CacheFileWriter::create(&reference.path.with_added_extension(KMER_INDEX_FILE_EXTENSION))?;
    let (marks, places, shift) = anchors.table();
    kept.write_items(&[KmerIndexFileHeader {
        magic: KMER_INDEX_MAGIC,
        reference_checksum: reference.checksum,
        base_count: reference.bases.count() as u64,
        bucket_count: marks.len() as u64,
        shift: shift.into(),
    }])?;
    kept.write_items(marks)?;
    kept.write_items(places)?;
    kept.persist(&reference.path)
}

/// A reader of a file that [`CacheFileWriter`] wrote. Items must not be trusted before
/// [`CacheFileReader::verify_checksum`] succeeds. At most as much memory is allocated as the file has bytes.
struct CacheFileReader {
    file: File,
    threads: usize,
    /// Offset of the next item in the file, bytes.
    position: u64,
    remaining_bytes: u64,
    checksum: Xxh3,
}

impl CacheFileReader {
    fn open(path: &Path, threads: usize) -> Option<Self> {
        let file = File::open(path).ok()?;
        let remaining_bytes = file.metadata().ok()?.len();
        Some(Self { file, threads, position: 0, remaining_bytes, checksum: Xxh3::new() })
    }

    fn read_item<T: Pod>(&mut self) -> Option<T> {
        self.read_items(1)?.pop()
    }

    fn read_items<T: Pod>(&mut self, count: u64) -> Option<Vec<T>> {
        let bytes = count.checked_mul(size_of::<T>() as u64)?;
        self.remaining_bytes = self.remaining_bytes.checked_sub(bytes)?;
        let mut items = vec![T::zeroed(); usize::try_from(count).ok()?];
        let memory = bytemuck::cast_slice_mut::<T, u8>(&mut items);
        // Copying a file from the page cache to new memory takes as long as encoding a genome, so several threads read.
        let share = memory.len().div_ceil(self.threads.max(1)).max(IO_BUFFER_BYTES);
        let (file, start) = (&self.file, self.position);
        let is_read = std::thread::scope(|scope| {
            let mut shares = memory.chunks_mut(share).zip((start..).step_by(share));
            let first = shares.next();
            let others: Vec<_> = shares.map(|(share, at)| scope.spawn(move || file.read_exact_at(share, at))).collect();
            let first = first.map_or(Ok(()), |(share, at)| file.read_exact_at(share, at));
            others.into_iter().map(|other| other.join().expect("reading does not panic")).all(|read| read.is_ok())
                && first.is_ok()
        });
        self.position += bytes;
        self.checksum.update(memory);
        is_read.then_some(items)
    }

    fn verify_checksum(mut self) -> Option<()> {
        let checksum = self.checksum.digest();
        (self.read_item::<u64>()? == checksum && self.remaining_bytes == 0).then_some(())
    }
}

/// A writer of a cache file, which gets its final name only when it is complete.
struct CacheFileWriter {
    file: BufWriter<AtomicFile>,
    checksum: Xxh3,
}

impl CacheFileWriter {
    fn create(path: &Path) -> io::Result<Self> {
        let file = AtomicFile::create_unique(path, 0o600)?;
        Ok(Self { file: BufWriter::with_capacity(IO_BUFFER_BYTES, file), checksum: Xxh3::new() })
    }

    fn write_items<T: Pod>(&mut self, items: &[T]) -> io::Result<()> {
        for piece in bytemuck::cast_slice::<T, u8>(items).chunks(IO_BUFFER_BYTES) {
            self.checksum.update(piece);
            self.file.write_all(piece)?;
        }
        Ok(())
    }

    /// Writes the checksum, and renames the file to its final path with the permissions of the FASTA file.
    fn persist(mut self, reference: &Path) -> io::Result<()> {
        let checksum = self.checksum.digest();
        self.file.write_all(&checksum.to_ne_bytes())?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.file().set_permissions(fs::metadata(reference)?.permissions())?;
        file.commit_unsynced()
    }
}
