//! Sequences of FASTA files, plain or BGZF, by their digests, and their letters as they are taken.
//!
//! Flows in: FASTA files as they are now. Flows out: which sequence has a digest, where it lies, and its letters in upper case. A file
//! is read through once for each state of it, by one caller while others wait.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_flight::web::WebStream;
use godwit_flight::{DatasetError, Status};
use godwit_formats::bgzf::{BgzfText, BlockTable, Cut};
use godwit_formats::fasta::{FaiRecord, FastaError, IndexEvent, block_table, index_with};
use godwit_formats::random_access::RandomAccess;
use md5::{Digest as _, Md5};
use ring::digest::{Context, SHA512};

use super::question::Id;
use crate::htsget::streamed;
use crate::store::{SeenFile, Store};

/// Bytes of MD5.
pub(super) const MD5_BYTES: usize = 16;
/// Bytes of SHA-512 that are part of a digest.
pub(super) const SHA_BYTES: usize = 24;
/// Files that are known at a time.
const MOST_KNOWN: usize = 4096;

/// A sequence of a file.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// Its name, its length, and where its letters are.
    pub(super) record: FaiRecord,
    pub(super) md5: [u8; MD5_BYTES],
    pub(super) sha512: [u8; SHA_BYTES],
}

impl Sequence {
    fn has(&self, id: Id) -> bool {
        match id {
            Id::Md5(md5) => self.md5 == md5,
            Id::Sha512(sha512) => self.sha512 == sha512,
        }
    }
}

/// The sequences of a file, in one state of it.
#[derive(Debug)]
pub(super) struct Digested {
    state: Vec<u8>,
    /// None where it is gzip that is not BGZF, so that it cannot be read at any place, or damaged.
    sequences: Vec<Sequence>,
    /// The blocks of a BGZF file.
    blocks: Option<Arc<BlockTable>>,
}

impl Digested {
    fn of(file: &SeenFile) -> Result<Self, FastaError> {
        let digested = match digested(&file.path) {
            // The machine keeps it from being read, and may not the next time.
            Err(FastaError::Bgzf(error)) => return Err(FastaError::Bgzf(error)),
            found => found.unwrap_or_default(),
        };
        let (sequences, blocks) = digested;
        Ok(Self { state: file.state.clone(), sequences, blocks })
    }

    pub(super) fn has_any(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// The text of the file, which is `source`.
    pub(super) fn text(&self, source: Arc<dyn RandomAccess>) -> Arc<dyn RandomAccess> {
        match &self.blocks {
            Some(blocks) => Arc::new(BgzfText::new(source, blocks.clone())),
            None => source,
        }
    }

    /// Where all of them lie.
    pub(super) fn records(&self) -> Vec<FaiRecord> {
        self.sequences.iter().map(|sequence| sequence.record.clone()).collect()
    }

    /// Those of a digest; several where a file has one twice.
    pub(super) fn with(&self, id: Id) -> impl Iterator<Item = &Sequence> {
        self.sequences.iter().filter(move |sequence| sequence.has(id))
    }
}

/// What is known of files. Clones are not the same.
#[derive(Debug, Default)]
pub(super) struct KnownFiles {
    files: Mutex<HashMap<PathBuf, Arc<Digested>>>,
    reading: Mutex<()>,
}

impl KnownFiles {
    /// The sequences of a file as it is now.
    ///
    /// # Errors
    /// [`DatasetError::Machine`] where it cannot be read.
    pub(super) fn of(&self, file: &SeenFile) -> Result<Arc<Digested>, DatasetError> {
        let known = || self.locked().get(&file.path).filter(|found| found.state == file.state).cloned();
        if let Some(found) = known() {
            return Ok(found);
        }
        let _only_one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known() {
            return Ok(found);
        }
        let digested = Arc::new(Digested::of(file).map_err(|error| DatasetError::Machine(error.into()))?);
        let mut files = self.locked();
        if files.len() >= MOST_KNOWN {
            files.clear();
        }
        files.insert(file.path.clone(), digested.clone());
        Ok(digested)
    }

    /// Whether a file had such a sequence when it was last looked at.
    pub(super) fn had(&self, path: &Path, id: Id) -> bool {
        self.locked().get(path).is_some_and(|found| found.with(id).next().is_some())
    }

    /// Whether nothing is known of a file yet.
    pub(super) fn is_new(&self, path: &Path) -> bool {
        !self.locked().contains_key(path)
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Digested>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sequences of a FASTA file, and its blocks where it is BGZF.
fn digested(path: &Path) -> Result<(Vec<Sequence>, Option<Arc<BlockTable>>), FastaError> {
    let blocks = block_table(path)?.map(Arc::new);
    let (mut digests, mut upper) = (Vec::new(), Vec::new());
    let (mut md5, mut sha512) = (Md5::new(), Context::new(&SHA512));
    let records = index_with(path, |event| {
        match event {
            IndexEvent::Start => {}
            IndexEvent::Bases(bases) => {
                upper.clear();
                upper.extend(bases.iter().map(u8::to_ascii_uppercase));
                md5.update(&upper);
                sha512.update(&upper);
            }
            IndexEvent::End => {
                let mut sha = [0; SHA_BYTES];
                let whole = std::mem::replace(&mut sha512, Context::new(&SHA512)).finish();
                sha.copy_from_slice(&whole.as_ref()[..SHA_BYTES]);
                digests.push((md5.finalize_reset().into(), sha));
            }
        }
        true
    });
    let records = records?;
    let sequence = |(record, (md5, sha512))| Sequence { record, md5, sha512 };
    Ok((records.into_iter().zip(digests).map(sequence).collect(), blocks))
}

/// The letters `[start, end)` of a sequence of a file, in upper case.
///
/// # Errors
/// [`DatasetError`]; [`DatasetError::Changed`] where the file is another by now.
pub(super) fn letters(
    file: &SeenFile,
    known: &Digested,
    record: &FaiRecord,
    wanted: &Range<u64>,
) -> Result<WebStream, DatasetError> {
    let source = known.text(Store::Here.open(file)?);
    // What is there now may be another file than the one that was looked at.
    let now = Store::Here.find(&file.path, &[], false)?;
    if now.as_ref().and_then(|seen| seen.files.first()).is_none_or(|now| now.state != file.state) {
        return Err(DatasetError::Changed { name: record.name.clone() });
    }
    let place = |base: u64| record.offset + base / record.line_bases * record.line_bytes + base % record.line_bases;
    let bytes = match wanted.is_empty() {
        true => 0..0,
        false => place(wanted.start)..place(wanted.end - 1) + 1,
    };
    let changed = format!("{} changed while it was read", file.path.display());
    let raw = streamed(source, Cut { whole: bytes, ..Cut::default() });
    Ok(Box::pin(stream::unfold((raw, wanted.end - wanted.start), move |(mut raw, left)| {
        let changed = changed.clone();
        async move {
            if left == 0 {
                return None;
            }
            let read = raw.next().await.unwrap_or_else(|| Err(Status::data_loss(changed.clone())));
            let next = read.map(letters_of).and_then(|letters| {
                let left = left.checked_sub(letters.len() as u64).ok_or_else(|| Status::data_loss(changed))?;
                Ok((letters, left))
            });
            // Nothing can be said after a failure but that it is over.
            let left = next.as_ref().map_or(0, |(_, left)| *left);
            Some((next.map(|(letters, _)| letters), (raw, left)))
        }
    })))
}

/// Without ends of lines, in upper case.
fn letters_of(bytes: Bytes) -> Bytes {
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic());
    letters.map(u8::to_ascii_uppercase).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters that come, as text.
    async fn text_of(mut letters: WebStream) -> Result<String, Status> {
        let mut text = Vec::new();
        while let Some(piece) = letters.next().await {
            text.extend_from_slice(&piece?);
        }
        Ok(String::from_utf8(text).expect("letters are ASCII"))
    }

    fn seen(path: &Path) -> SeenFile {
        Store::Here.find(path, &[], false).unwrap().unwrap().files.remove(0)
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
            let mut packed = godwit_formats::bgzf::Writer::new(Vec::new(), 1);
            // Blocks of a few bytes, so that letters of one request are in several.
            for piece in text.as_bytes().chunks(11) {
                packed.write_bytes(piece).unwrap();
                packed.flush_block().unwrap();
            }
            for content in [text.into_bytes(), packed.finish_file().unwrap().0] {
                std::fs::write(&path, content).unwrap();
                let file = seen(&path);
                let known = Digested::of(&file).unwrap();
                assert_eq!(known.sequences.len(), sequences.len());
                for (sequence, found) in sequences.iter().zip(&known.sequences) {
                    for start in 0..=sequence.len() {
                        for end in start..=sequence.len() {
                            let wanted = start as u64..end as u64;
                            let stream = letters(&file, &known, &found.record, &wanted).unwrap();
                            let letters = text_of(stream).await.unwrap();
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
        let (known, before) = (KnownFiles::default(), seen(&path));
        // Of ACGT: GA4GH refget v2.0.0, and `md5sum` of coreutils.
        let ids = ["SQ.aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2", "f1f8f4bf413b16ad135722aa4591043e"]
            .map(|id| Id::parse(id).unwrap());
        assert!(known.is_new(&path));
        for id in ids {
            assert_eq!(known.of(&before).unwrap().with(id).count(), 1);
            assert!(known.had(&path, id));
        }
        let digested = known.of(&before).unwrap();
        let record = digested.with(ids[0]).next().unwrap().record.clone();
        let begun = letters(&before, &digested, &record, &(0..4)).unwrap();
        std::fs::write(&path, ">s\nAC\nG\n").unwrap();
        assert!(text_of(begun).await.is_err(), "fewer letters than were promised");
        assert!(matches!(letters(&before, &digested, &record, &(0..4)), Err(DatasetError::Changed { .. })));
        assert_eq!(known.of(&seen(&path)).unwrap().with(ids[0]).count(), 0);
        std::fs::write(&path, "no FASTA").unwrap();
        assert_eq!(known.of(&seen(&path)).unwrap().sequences.len(), 0);
    }
}
