//! Reading a FASTA file as a reference: digests on a thread of their own, beside the packing of letters.

use std::path::Path;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use godwit_formats::fasta::Reader;
use ring::digest::{Context, SHA512};
use xxhash_rust::xxh3::xxh3_64;

use super::super::bases::Splitter;
use super::super::error::DeltaError;
use super::{DIGEST_BYTES, Digest, Keep, Reference, ReferenceContig, digest_of_all};

/// Letters that are split and digested at once: lines of 60 by themselves would cost more for handing over than for digesting.
const PIECE_LETTERS: usize = 1 << 18;
/// Pieces of letters that wait to be digested.
const PIECES_AHEAD: usize = 4;

/// What the thread that digests is told.
enum Piece {
    Letters(Vec<u8>),
    End,
}

/// The sequences of a FASTA file.
pub(super) fn read(path: &Path, threads: usize) -> Result<Reference, DeltaError> {
    let mut reader = Reader::open(path, threads)?;
    let mut splitter = Splitter::default();
    let mut contigs = Vec::new();
    let (sender, pieces) = bounded(PIECES_AHEAD);
    let digests = thread::Builder::new().name("digests".to_owned()).spawn(move || digest(&pieces));
    let digests = digests.map_err(DeltaError::Thread)?;
    // The other end is there until this one is dropped.
    let send = |piece| drop(sender.send(piece));
    let mut piece = Vec::with_capacity(PIECE_LETTERS);
    while let Some(name) = reader.next_contig()? {
        let start = splitter.count() as u64;
        loop {
            let letters = reader.next_bases()?;
            let more = letters.map_or(0, <[u8]>::len);
            if letters.is_none() || piece.len() + more > PIECE_LETTERS {
                splitter.push(&piece);
                piece.make_ascii_uppercase();
                let next = Vec::with_capacity(PIECE_LETTERS.max(more));
                send(Piece::Letters(std::mem::replace(&mut piece, next)));
            }
            let Some(letters) = letters else { break };
            piece.extend_from_slice(letters);
        }
        send(Piece::End);
        let bases = splitter.count() as u64 - start;
        contigs.push(ReferenceContig { name, start, bases, digest: Digest([0; DIGEST_BYTES]), case_checksum: 0 });
    }
    drop(sender);
    let digests = digests.join().expect("digesting letters does not panic");
    contigs.iter_mut().zip(digests).for_each(|(contig, digest)| contig.digest = digest);
    let (bases, lower, others) = splitter.finish();
    if let Some(lower) = &lower {
        for contig in &mut contigs {
            let span = contig.span();
            contig.case_checksum = lower.checksum(span.start, span.end);
        }
    }
    let digest = digest_of_all(&contigs);
    let checksum = xxh3_64(bytemuck::cast_slice(bases.words()));
    let path = path.to_owned();
    Ok(Reference { path, contigs, digest, bases, lower, others, keep: Keep::Nowhere, checksum })
}

fn digest(pieces: &Receiver<Piece>) -> Vec<Digest> {
    let mut digests = Vec::new();
    let mut context = Context::new(&SHA512);
    for piece in pieces {
        match piece {
            Piece::Letters(letters) => context.update(&letters),
            Piece::End => {
                let whole = std::mem::replace(&mut context, Context::new(&SHA512));
                digests.push(Digest::cut(whole.finish().as_ref()));
            }
        }
    }
    digests
}
