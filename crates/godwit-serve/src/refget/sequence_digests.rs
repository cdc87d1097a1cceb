//! Digests of the sequences in FASTA files, plain or BGZF, and streams of their bases.
//!
//! [`DigestCache`] computes which sequences of a file have which digests, and where their bases are. It digests a file
//! only once for each state of the file: one thread computes while others wait. [`stream_subsequence`] reads bases in
//! upper case.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_dataset::DatasetError;
use godwit_dataset::web::WebStream;
use godwit_formats::fasta::{FaiEvent, FaiRecord, FastaError, build_fai_with, read_block_table};
use godwit_io::bgzf::{BgzfText, BlockTable, ChunkBlocks};
use godwit_io::random_access::RandomAccess;
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use ring::digest::{Context, SHA512};

use super::request::SequenceDigest;
use crate::file_snapshot::FileSnapshot;
use crate::file_store::FileStore;
use crate::htsget::stream_bytes;

/// Length of an MD5 digest, bytes.
pub(super) const MD5_BYTES: usize = 16;
/// Length of a truncated SHA-512 digest, bytes.
pub(super) const TRUNCATED_SHA512_BYTES: usize = 24;
/// Maximum number of files whose digests are cached.
const MAX_CACHED_FILES: usize = 4096;

/// A sequence in a FASTA file, with its digests.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// Name and length of the sequence, and the position of its bases in the file.
    pub(super) record: FaiRecord,
    pub(super) md5: [u8; MD5_BYTES],
    pub(super) sha512: [u8; TRUNCATED_SHA512_BYTES],
}

impl Sequence {
    fn has_digest(&self, id: SequenceDigest) -> bool {
        match id {
            SequenceDigest::Md5(md5) => self.md5 == md5,
            SequenceDigest::Sha512(sha512) => self.sha512 == sha512,
        }
    }
}

/// The digests of all sequences in a FASTA file, for one state of the file.
#[derive(Debug)]
pub(super) struct FileDigests {
    fingerprint: Vec<u8>,
    /// The sequences of the file. Empty if the file is damaged, or is gzip but not BGZF and so does not permit random
    /// access.
    sequences: Vec<Sequence>,
    /// The table of compressed blocks; `None` if the file is not BGZF.
    blocks: Option<Arc<BlockTable>>,
}

impl FileDigests {
    fn compute(file: &FileSnapshot) -> Result<Self, FastaError> {
        let digested = match digest_sequences(&file.path) {
            // Return an I/O error without caching it, because it may not occur again.
            Err(FastaError::Bgzf(error)) => return Err(FastaError::Bgzf(error)),
            found => found.unwrap_or_default(),
        };
        let (sequences, blocks) = digested;
        Ok(Self { fingerprint: file.fingerprint.clone(), sequences, blocks })
    }

    pub(super) fn has_sequences(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// Returns random access to the uncompressed text of the file. `source`: random access to the file itself.
    pub(super) fn text_source(&self, source: Arc<dyn RandomAccess>) -> Arc<dyn RandomAccess> {
        match &self.blocks {
            Some(blocks) => Arc::new(BgzfText::new(source, blocks.clone())),
            None => source,
        }
    }

    /// Returns the records of the FASTA index (`.fai`) for all sequences.
    pub(super) fn records(&self) -> Vec<FaiRecord> {
        self.sequences.iter().map(|sequence| sequence.record.clone()).collect()
    }

    /// Returns the sequences with this digest. There are several if the file contains the same sequence more than once.
    pub(super) fn matching(&self, id: SequenceDigest) -> impl Iterator<Item = &Sequence> {
        self.sequences.iter().filter(move |sequence| sequence.has_digest(id))
    }
}

/// A cache of the digests of FASTA files, by path.
#[derive(Debug, Default)]
pub(super) struct DigestCache {
    files: Mutex<HashMap<PathBuf, Arc<FileDigests>>>,
    compute_lock: Mutex<()>,
}

impl DigestCache {
    /// Returns the digests of a file in its current state, and computes them if they are not in the cache.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if the file cannot be read.
    pub(super) fn get_or_compute(&self, file: &FileSnapshot) -> Result<Arc<FileDigests>, DatasetError> {
        let known = || self.files.lock().get(&file.path).filter(|found| found.fingerprint == file.fingerprint).cloned();
        if let Some(found) = known() {
            return Ok(found);
        }
        let _only_one = self.compute_lock.lock();
        if let Some(found) = known() {
            return Ok(found);
        }
        let digested = Arc::new(FileDigests::compute(file).map_err(|error| DatasetError::Local(error.into()))?);
        let mut files = self.files.lock();
        if files.len() >= MAX_CACHED_FILES {
            files.clear();
        }
        files.insert(file.path.clone(), digested.clone());
        Ok(digested)
    }

    /// Returns whether the cached state of a file contains a sequence with this digest.
    pub(super) fn contains_digest(&self, path: &Path, id: SequenceDigest) -> bool {
        self.files.lock().get(path).is_some_and(|found| found.matching(id).next().is_some())
    }

    /// Returns whether the cache contains no state of this file.
    pub(super) fn is_uncached(&self, path: &Path) -> bool {
        !self.files.lock().contains_key(path)
    }
}

/// Computes the digests of the sequences in a FASTA file, and its table of blocks if it is BGZF.
fn digest_sequences(path: &Path) -> Result<(Vec<Sequence>, Option<Arc<BlockTable>>), FastaError> {
    let blocks = read_block_table(path)?.map(Arc::new);
    let (mut digests, mut upper) = (Vec::new(), Vec::new());
    let (mut md5, mut sha512) = (Md5::new(), Context::new(&SHA512));
    let records = build_fai_with(path, |event| {
        match event {
            FaiEvent::ContigStart => {}
            FaiEvent::Bases(bases) => {
                upper.clear();
                upper.extend(bases.iter().map(u8::to_ascii_uppercase));
                md5.update(&upper);
                sha512.update(&upper);
            }
            FaiEvent::ContigEnd => {
                let mut sha = [0; TRUNCATED_SHA512_BYTES];
                let whole = std::mem::replace(&mut sha512, Context::new(&SHA512)).finish();
                sha.copy_from_slice(&whole.as_ref()[..TRUNCATED_SHA512_BYTES]);
                digests.push((md5.finalize_reset().into(), sha));
            }
        }
        true
    });
    let records = records?;
    let sequence = |(record, (md5, sha512))| Sequence { record, md5, sha512 };
    Ok((records.into_iter().zip(digests).map(sequence).collect(), blocks))
}

/// Returns a stream of the bases `wanted` of a sequence, in upper case.
///
/// # Errors
/// [`DatasetError::Changed`] if the file has changed since its snapshot; other errors if the file cannot be opened.
pub(super) fn stream_subsequence(
    file: &FileSnapshot,
    known: &FileDigests,
    record: &FaiRecord,
    wanted: &Range<u64>,
) -> Result<WebStream, DatasetError> {
    let source = known.text_source(FileStore::Local.open(file)?);
    // Check after opening that the file was not replaced since its snapshot.
    let now = FileStore::Local.snapshot(&file.path, &[], false)?;
    if now.as_ref().and_then(|seen| seen.files.first()).is_none_or(|now| now.fingerprint != file.fingerprint) {
        return Err(DatasetError::Changed { name: record.name.clone() });
    }
    let place = |base: u64| record.offset + base / record.line_bases * record.line_bytes + base % record.line_bases;
    let bytes = match wanted.is_empty() {
        true => 0..0,
        false => place(wanted.start)..place(wanted.end - 1) + 1,
    };
    let changed = format!("{} changed while it was read", file.path.display());
    let raw = stream_bytes(source, ChunkBlocks { block_range: bytes, ..ChunkBlocks::default() });
    Ok(Box::pin(stream::unfold((raw, wanted.end - wanted.start), move |(mut raw, left)| {
        let changed = changed.clone();
        async move {
            if left == 0 {
                return None;
            }
            let read = raw.next().await.unwrap_or_else(|| Err(DatasetError::Data(changed.clone().into())));
            let next = read.map(normalize_bases).and_then(|letters| {
                let left = left.checked_sub(letters.len() as u64).ok_or_else(|| DatasetError::Data(changed.into()))?;
                Ok((letters, left))
            });
            // Set the number of remaining bases to 0 after an error, so that the stream ends.
            let left = next.as_ref().map_or(0, |(_, left)| *left);
            Some((next.map(|(letters, _)| letters), (raw, left)))
        }
    })))
}

/// Removes line ends and converts the bases to upper case.
fn normalize_bases(bytes: Bytes) -> Bytes {
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic());
    letters.map(u8::to_ascii_uppercase).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a stream of bases completely and returns it as text.
    async fn collect_text(mut letters: WebStream) -> Result<String, DatasetError> {
        let mut text = Vec::new();
        while let Some(piece) = letters.next().await {
            text.extend_from_slice(&piece?);
        }
        Ok(String::from_utf8(text).expect("letters are ASCII"))
    }

    fn snapshot(path: &Path) -> FileSnapshot {
        FileStore::Local.snapshot(path, &[], false).unwrap().unwrap().files.remove(0)
    }

    #[tokio::test]
    async fn any_letters_of_wrapped_sequences_are_read_where_they_lie() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.fa");
        for (width, line_end) in [(7, "\n"), (10, "\r\n"), (100, "\n")] {
            let sequences = ["ACGTnacgtryNACGTTTGACCAAGT", "g", "TTTTTTTTTTTTTT"];
            let mut text = String::new();
            for (number, sequence) in sequences.iter().enumerate() {
                text += &format!(">s{number} x{line_end}");
                for line in sequence.as_bytes().chunks(width) {
                    text += &format!("{}{line_end}", std::str::from_utf8(line).unwrap());
                }
            }
            let mut packed = godwit_io::bgzf::Writer::new(Vec::new(), 1);
            // Compress in blocks of only eleven bytes, so that the bases of one request are in several blocks.
            for piece in text.as_bytes().chunks(11) {
                packed.write_bytes(piece).unwrap();
                packed.flush_block().unwrap();
            }
            for content in [text.into_bytes(), packed.finish_file().unwrap().0] {
                std::fs::write(&path, content).unwrap();
                let file = snapshot(&path);
                let known = FileDigests::compute(&file).unwrap();
                assert_eq!(known.sequences.len(), sequences.len());
                for (sequence, found) in sequences.iter().zip(&known.sequences) {
                    for start in 0..=sequence.len() {
                        for end in start..=sequence.len() {
                            let wanted = start as u64..end as u64;
                            let stream = stream_subsequence(&file, &known, &found.record, &wanted).unwrap();
                            let letters = collect_text(stream).await.unwrap();
                            assert_eq!(letters, sequence[start..end].to_ascii_uppercase(), "{start}-{end}, {width}");
                        }
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn files_are_known_by_their_state_and_none_is_sent_that_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.fa");
        std::fs::write(&path, ">s\nACGT\n").unwrap();
        let (known, before) = (DigestCache::default(), snapshot(&path));
        // Digests of the sequence ACGT: from GA4GH refget v2.0.0, and from `md5sum` of coreutils.
        let ids = ["SQ.aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2", "f1f8f4bf413b16ad135722aa4591043e"]
            .map(|id| SequenceDigest::parse(id).unwrap());
        assert!(known.is_uncached(&path));
        for id in ids {
            assert_eq!(known.get_or_compute(&before).unwrap().matching(id).count(), 1);
            assert!(known.contains_digest(&path, id));
        }
        let digested = known.get_or_compute(&before).unwrap();
        let record = digested.matching(ids[0]).next().unwrap().record.clone();
        let begun = stream_subsequence(&before, &digested, &record, &(0..4)).unwrap();
        std::fs::write(&path, ">s\nAC\nG\n").unwrap();
        assert!(collect_text(begun).await.is_err(), "fewer letters than were promised");
        assert!(matches!(stream_subsequence(&before, &digested, &record, &(0..4)), Err(DatasetError::Changed { .. })));
        assert_eq!(known.get_or_compute(&snapshot(&path)).unwrap().matching(ids[0]).count(), 0);
        std::fs::write(&path, "no FASTA").unwrap();
        assert_eq!(known.get_or_compute(&snapshot(&path)).unwrap().sequences.len(), 0);
    }
}
