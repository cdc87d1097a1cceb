//! Reads a FASTA file as a reference. A separate thread computes the digests of the sequences while the letters are
//! converted to two bits per base.

use std::path::Path;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use godwit_formats::fasta::Reader;
use ring::digest::{Context, SHA512};
use xxhash_rust::xxh3::xxh3_64;

use super::super::bases::LetterSplitter;
use super::super::error::DeltaError;
use super::{DIGEST_BYTES, Digest, Reference, ReferenceCachePolicy, ReferenceContig, sequence_collection_digest};

/// Number of letters that are converted and sent to the digest thread at once. Sending single lines of 60 letters would
/// cost more than computing their digest.
const DIGEST_BATCH_LETTERS: usize = 1 << 18;
/// Number of batches of letters that may wait for the digest thread.
const DIGEST_QUEUE_LENGTH: usize = 4;

/// An input of the thread that computes the digests.
enum DigestInput {
    Letters(Vec<u8>),
    ContigEnd,
}

/// Reads the sequences of a FASTA file with their digests.
pub(super) fn read_fasta(path: &Path, threads: usize) -> Result<Reference, DeltaError> {
    let mut reader = Reader::open(path, threads)?;
    let mut splitter = LetterSplitter::default();
    let mut contigs = Vec::new();
    let (sender, pieces) = bounded(DIGEST_QUEUE_LENGTH);
    let digests = thread::Builder::new().name("digests".to_owned()).spawn(move || digest_contigs(&pieces));
    let digests = digests.map_err(DeltaError::Thread)?;
    // Sending cannot fail: the receiver exists until this sender is dropped.
    let send = |piece| drop(sender.send(piece));
    let mut piece = Vec::with_capacity(DIGEST_BATCH_LETTERS);
    while let Some(name) = reader.next_contig()? {
        let start = splitter.count() as u64;
        loop {
            let letters = reader.next_bases()?;
            let more = letters.map_or(0, <[u8]>::len);
            if letters.is_none() || piece.len() + more > DIGEST_BATCH_LETTERS {
                splitter.push_letters(&piece);
                piece.make_ascii_uppercase();
                let next = Vec::with_capacity(DIGEST_BATCH_LETTERS.max(more));
                send(DigestInput::Letters(std::mem::replace(&mut piece, next)));
            }
            let Some(letters) = letters else { break };
            piece.extend_from_slice(letters);
        }
        send(DigestInput::ContigEnd);
        let bases = splitter.count() as u64 - start;
        contigs.push(ReferenceContig { name, start, bases, digest: Digest([0; DIGEST_BYTES]), case_checksum: 0 });
    }
    drop(sender);
    let digests = digests.join().expect("digesting letters does not panic");
    contigs.iter_mut().zip(digests).for_each(|(contig, digest)| contig.digest = digest);
    let (bases, soft_mask, non_acgt) = splitter.finish();
    if let Some(lower) = &soft_mask {
        for contig in &mut contigs {
            let span = contig.base_range();
            contig.case_checksum = lower.checksum(span.start, span.end);
        }
    }
    let digest = sequence_collection_digest(&contigs);
    let checksum = xxh3_64(bytemuck::cast_slice(bases.words()));
    let path = path.to_owned();
    Ok(Reference {
        path,
        contigs,
        digest,
        bases,
        soft_mask,
        non_acgt,
        cache_policy: ReferenceCachePolicy::Disabled,
        checksum,
    })
}

fn digest_contigs(pieces: &Receiver<DigestInput>) -> Vec<Digest> {
    let mut digests = Vec::new();
    let mut context = Context::new(&SHA512);
    for piece in pieces {
        match piece {
            DigestInput::Letters(letters) => context.update(&letters),
            DigestInput::ContigEnd => {
                let whole = std::mem::replace(&mut context, Context::new(&SHA512));
                digests.push(Digest::truncate(whole.finish().as_ref()));
            }
        }
    }
    digests
}
