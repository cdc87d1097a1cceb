//! One partition: merge its runs, set the duplicate flag, compress, index, count.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::bgzf;
use godwit_formats::index::IndexBuilder;
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::Verdicts;
use godwit_kernels::sort::LoserTree;
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::DuplicatePolicy;
use crate::runs::{Cursor, FinishedRuns, SplitPartition};

/// Compression level of the output: fast, as intermediate files of this size want it.
const COMPRESSION_LEVEL: u8 = 1;
/// Records written between two looks at whether the run was stopped.
const RECORDS_BETWEEN_CHECKS: u32 = 1 << 16;
/// Bytes of a record before its FLAG.
const FLAG_OFFSET: usize = 14;

/// What a partition adds up to.
#[derive(Serialize, Deserialize)]
pub(super) struct PartitionSummary {
    /// Offsets are relative to the partition's start.
    pub(super) index: IndexBuilder,
    pub(super) flagstat: Flagstat,
    /// Duplicates left out.
    pub(super) removed: u64,
    /// BLAKE3 of the compressed bytes, hexadecimal.
    pub(super) checksum: String,
}

/// Writes and hashes.
struct Hashing<W> {
    sink: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Writes the partition's records to `sink`, which comes back for the caller to finish.
pub(super) fn write_partition<W: Write>(
    runs: &FinishedRuns,
    split: &SplitPartition,
    verdicts: Option<&Verdicts>,
    policy: DuplicatePolicy,
    index: IndexBuilder,
    sink: W,
    cancelled: &AtomicBool,
) -> io::Result<(PartitionSummary, W)> {
    let mut cursors = runs.cursors(split)?;
    let bits: Vec<&[u64]> =
        cursors.iter().map(|cursor| verdicts.map_or(&[][..], |verdicts| verdicts.of_block(cursor.block()))).collect();
    let mut tree = LoserTree::new(cursors.iter().map(|cursor| Some(cursor.key())).collect());
    let sink = Hashing { sink, hasher: blake3::Hasher::new() };
    let mut out = RecordWriter {
        bgzf: bgzf::Writer::new(sink, COMPRESSION_LEVEL),
        index,
        flagstat: Flagstat::default(),
        removed: 0,
        policy,
    };
    let mut records = 0u32;
    while let Some(source) = tree.winner() {
        records = records.wrapping_add(1);
        if records.is_multiple_of(RECORDS_BETWEEN_CHECKS) && cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let cursor: &mut Cursor = &mut cursors[source];
        let entry = cursor.entry();
        out.write(entry.record, Verdicts::is_set(bits[source], entry.order))?;
        let next = cursor.advance()?.then(|| cursor.key());
        tree.advance(next);
    }
    let (sink, _) = out.bgzf.finish_blocks()?;
    let checksum = sink.hasher.finalize().to_hex().to_string();
    let summary = PartitionSummary { index: out.index, flagstat: out.flagstat, removed: out.removed, checksum };
    Ok((summary, sink.sink))
}

struct RecordWriter<W: Write> {
    bgzf: bgzf::Writer<W>,
    index: IndexBuilder,
    flagstat: Flagstat,
    removed: u64,
    policy: DuplicatePolicy,
}

impl<W: Write> RecordWriter<W> {
    fn write(&mut self, record: RawRecord, duplicate: bool) -> io::Result<()> {
        let flag = match self.policy {
            DuplicatePolicy::None => record.flag(),
            _ if duplicate => record.flag() | flags::DUPLICATE,
            _ => record.flag() & !flags::DUPLICATE,
        };
        if self.policy == DuplicatePolicy::Remove && duplicate {
            self.removed += 1;
            return Ok(());
        }
        let bytes = record.bytes();
        let length = (bytes.len() as u32).to_le_bytes();
        let place = self.bgzf.write_record(&[
            &length,
            &bytes[..FLAG_OFFSET],
            &flag.to_le_bytes(),
            &bytes[FLAG_OFFSET + 2..],
        ])?;
        let mapped = flag & flags::UNMAPPED == 0;
        // Placed unmapped records count as one base, whatever their CIGAR says (htslib 1.16 `bam_endpos`).
        let span = if mapped { record.reference_bases() as i32 } else { 1 };
        let end = record.position().saturating_add(span);
        self.index.push(record.contig(), record.position(), end, mapped, place).map_err(io::Error::other)?;
        self.flagstat.add(record, flag);
        Ok(())
    }
}
