//! What was computed of a reference, kept in two files beside it.
//!
//! Both are of this machine (its byte order), and are made again where they do not fit: they begin with what they are of, and end
//! with a checksum of all before it. `REF.fa.gwp-bases` is of a file of a size and a time of change; `REF.fa.gwp-anchors` is
//! of bases with a checksum.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use godwit_process::Temporary;
use xxhash_rust::xxh3::Xxh3;

use super::super::anchors::Anchors;
use super::super::bases::{Bases, Bits, OtherRun};
use super::{DIGEST_BYTES, Digest, Keep, Reference, ReferenceContig, digest_of_all};

/// First bytes of the files; the last one is their version.
const BASES_MAGIC: u64 = u64::from_le_bytes(*b"GWPBASE1");
const ANCHORS_MAGIC: u64 = u64::from_le_bytes(*b"GWPKMER1");
/// Bytes read or written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// What names of what is kept have behind that of the reference.
const BASES_EXTENSION: &str = "gwp-bases";
const ANCHORS_EXTENSION: &str = "gwp-anchors";

/// A file as it is: where one of these differs it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Stamp {
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { bytes: metadata.len(), seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() })
    }
}

/// What a file of bases begins with.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct BasesHead {
    magic: u64,
    stamp: [u64; 3],
    contigs: u64,
    others: u64,
    bases: u64,
    /// Words of the case, or 0.
    lower_words: u64,
    checksum: u64,
}

/// What a file of anchors begins with.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct AnchorsHead {
    magic: u64,
    reference: u64,
    bases: u64,
    buckets: u64,
    shift: u64,
}

/// A run of what is no base.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct KeptRun {
    start: u64,
    end: u64,
    byte: u64,
}

/// The reference of a FASTA file, as it was kept; `None` where that is missing, of another file, or damaged.
pub(super) fn read_bases(path: &Path, threads: usize) -> Option<Reference> {
    let mut kept = KeptReader::open(&path.with_added_extension(BASES_EXTENSION), threads)?;
    let head: BasesHead = kept.one()?;
    let stamp: Stamp = bytemuck::cast(head.stamp);
    let fits = head.magic == BASES_MAGIC && stamp == Stamp::of(path).ok()?;
    let count = usize::try_from(head.bases).ok().filter(|_| fits)?;
    let mut contigs = Vec::new();
    let mut start = 0;
    for _ in 0..head.contigs {
        let [bases, name_bytes, case_checksum]: [u64; 3] = kept.one()?;
        let digest: [u8; DIGEST_BYTES] = kept.one()?;
        let name = String::from_utf8(kept.many(name_bytes)?).ok()?;
        contigs.push(ReferenceContig { name, start, bases, digest: Digest(digest), case_checksum });
        start += bases;
    }
    let others: Vec<KeptRun> = kept.many(head.others)?;
    let bases = Bases::from_words(kept.many(Bases::words_for(count) as u64)?, count)?;
    let lower = match head.lower_words {
        0 => None,
        words => Some(Bits::from_words(kept.many(words)?, count)?),
    };
    kept.finish()?;
    let run = |run: &KeptRun| OtherRun { start: run.start as usize, end: run.end as usize, byte: run.byte as u8 };
    Some(Reference {
        path: path.to_owned(),
        digest: digest_of_all(&contigs),
        contigs,
        bases,
        lower,
        others: others.iter().map(run).collect(),
        keep: Keep::Beside,
        checksum: head.checksum,
    })
}

/// Keeps a reference that was read from a file with that stamp.
pub(super) fn write_bases(reference: &Reference, stamp: Stamp) -> io::Result<()> {
    let mut kept = KeptWriter::create(&reference.path)?;
    let lower = reference.lower.as_ref().map_or(&[][..], Bits::words);
    kept.put(&[BasesHead {
        magic: BASES_MAGIC,
        stamp: bytemuck::cast(stamp),
        contigs: reference.contigs.len() as u64,
        others: reference.others.len() as u64,
        bases: reference.bases.count() as u64,
        lower_words: lower.len() as u64,
        checksum: reference.checksum,
    }])?;
    for contig in &reference.contigs {
        kept.put(&[contig.bases, contig.name.len() as u64, contig.case_checksum])?;
        kept.put(&contig.digest.0)?;
        kept.put(contig.name.as_bytes())?;
    }
    for run in &reference.others {
        kept.put(&[KeptRun { start: run.start as u64, end: run.end as u64, byte: run.byte.into() }])?;
    }
    kept.put(reference.bases.words())?;
    kept.put(lower)?;
    kept.finish(&reference.path, BASES_EXTENSION)
}

/// The k-mers of a reference, as they were kept.
pub(super) fn read_anchors(reference: &Reference, threads: usize) -> Option<Anchors> {
    let mut kept = KeptReader::open(&reference.path.with_added_extension(ANCHORS_EXTENSION), threads)?;
    let head: AnchorsHead = kept.one()?;
    let bases = reference.bases.count();
    let fits = head.magic == ANCHORS_MAGIC && head.reference == reference.checksum && head.bases == bases as u64;
    let shift = u32::try_from(head.shift).ok().filter(|_| fits)?;
    let (marks, places) = (kept.many(head.buckets)?, kept.many(head.buckets)?);
    kept.finish()?;
    Anchors::from_parts(marks, places, shift, bases)
}

/// Keeps the k-mers of a reference.
pub(super) fn write_anchors(reference: &Reference, anchors: &Anchors) -> io::Result<()> {
    let mut kept = KeptWriter::create(&reference.path)?;
    let (marks, places, shift) = anchors.parts();
    kept.put(&[AnchorsHead {
        magic: ANCHORS_MAGIC,
        reference: reference.checksum,
        bases: reference.bases.count() as u64,
        buckets: marks.len() as u64,
        shift: shift.into(),
    }])?;
    kept.put(marks)?;
    kept.put(places)?;
    kept.finish(&reference.path, ANCHORS_EXTENSION)
}

/// Reads what a [`KeptWriter`] wrote. Nothing is believed before [`KeptReader::finish`], and no more memory is asked for than
/// the file has bytes.
struct KeptReader {
    file: File,
    threads: usize,
    /// Where the next item begins, bytes.
    at: u64,
    left: u64,
    checksum: Xxh3,
}

impl KeptReader {
    fn open(path: &Path, threads: usize) -> Option<Self> {
        let file = File::open(path).ok()?;
        let left = file.metadata().ok()?.len();
        Some(Self { file, threads, at: 0, left, checksum: Xxh3::new() })
    }

    fn one<T: Pod>(&mut self) -> Option<T> {
        self.many(1)?.pop()
    }

    fn many<T: Pod>(&mut self, count: u64) -> Option<Vec<T>> {
        let bytes = count.checked_mul(size_of::<T>() as u64)?;
        self.left = self.left.checked_sub(bytes)?;
        let mut items = vec![T::zeroed(); usize::try_from(count).ok()?];
        let memory = bytemuck::cast_slice_mut::<T, u8>(&mut items);
        // Copying from the page cache, and having pages to copy to, takes as long as encoding a genome does.
        let share = memory.len().div_ceil(self.threads.max(1)).max(BUFFER_BYTES);
        let (file, start) = (&self.file, self.at);
        let is_read = std::thread::scope(|scope| {
            let mut shares = memory.chunks_mut(share).zip((start..).step_by(share));
            let first = shares.next();
            let others: Vec<_> = shares.map(|(share, at)| scope.spawn(move || file.read_exact_at(share, at))).collect();
            let first = first.map_or(Ok(()), |(share, at)| file.read_exact_at(share, at));
            others.into_iter().map(|other| other.join().expect("reading does not panic")).all(|read| read.is_ok())
                && first.is_ok()
        });
        self.at += bytes;
        self.checksum.update(memory);
        is_read.then_some(items)
    }

    fn finish(mut self) -> Option<()> {
        let checksum = self.checksum.digest();
        (self.one::<u64>()? == checksum && self.left == 0).then_some(())
    }
}

/// Writes a file that is there when it is whole.
struct KeptWriter {
    file: BufWriter<Temporary<tempfile::NamedTempFile>>,
    checksum: Xxh3,
}

impl KeptWriter {
    fn create(reference: &Path) -> io::Result<Self> {
        let file = Temporary::create(|| tempfile::NamedTempFile::new_in(crate::place::directory_of(reference)))?;
        Ok(Self { file: BufWriter::with_capacity(BUFFER_BYTES, file), checksum: Xxh3::new() })
    }

    fn put<T: Pod>(&mut self, items: &[T]) -> io::Result<()> {
        for piece in bytemuck::cast_slice::<T, u8>(items).chunks(BUFFER_BYTES) {
            self.checksum.update(piece);
            self.file.write_all(piece)?;
        }
        Ok(())
    }

    /// Names the file, for whoever may read the reference.
    fn finish(mut self, reference: &Path, extension: &str) -> io::Result<()> {
        let checksum = self.checksum.digest();
        self.file.write_all(&checksum.to_ne_bytes())?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().set_permissions(fs::metadata(reference)?.permissions())?;
        let path = reference.with_added_extension(extension);
        let (file, _listed) = file.into_parts();
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}
