//! The progress of a download, as a client knows it, and the resume ticket that contains it.

use arrow_buffer::Buffer;
use bytes::Bytes;
use tonic::Status;

/// Prefix of resume tickets.
pub(crate) const RESUME_TICKET_PREFIX: &[u8] = b"gwr1.";

/// Number and hash of the batches that a client has received of a download.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamProgress {
    batches: u64,
    /// Hash of the complete batches.
    hasher: blake3::Hasher,
    /// Hash of the complete batches and of the received messages of an incomplete batch.
    partial_hasher: blake3::Hasher,
}

impl StreamProgress {
    /// Adds a received message with a batch or a dictionary.
    pub(crate) fn add_message(&mut self, header: &[u8], body: &[Buffer]) {
        self.partial_hasher.update(&(header.len() as u64).to_le_bytes());
        self.partial_hasher.update(header);
        for piece in body {
            self.partial_hasher.update(piece.as_slice());
        }
    }

    /// Counts the current batch as complete.
    pub(crate) fn finish_batch(&mut self) {
        self.batches += 1;
        self.hasher = self.partial_hasher.clone();
    }

    /// Returns the hash of the complete batches.
    pub(crate) fn digest(&self) -> blake3::Hash {
        self.hasher.finalize()
    }

    /// Returns a resume ticket for the batches that were not received. An incomplete batch will be sent again.
    pub(crate) fn resume_ticket(&mut self, ticket: &Bytes) -> Bytes {
        self.partial_hasher = self.hasher.clone();
        if self.batches == 0 {
            return ticket.clone();
        }
        let (batches, digest) = (self.batches.to_le_bytes(), self.hasher.finalize());
        [RESUME_TICKET_PREFIX, &batches, digest.as_bytes(), ticket].concat().into()
    }
}

/// The number and hash of received batches in a resume ticket ([`StreamProgress::resume_ticket`]).
#[derive(Debug, PartialEq)]
pub(crate) struct ResumePoint {
    pub(crate) batches: u64,
    pub(crate) digest: blake3::Hash,
}

impl ResumePoint {
    /// Parses a resume ticket. Also returns the ticket of the whole download that it contains.
    pub(crate) fn parse(ticket: &Bytes) -> Result<(Self, Bytes), Status> {
        let wrong = || Status::invalid_argument("the ticket of the stream to resume is invalid");
        let rest = ticket.strip_prefix(RESUME_TICKET_PREFIX).ok_or_else(wrong)?;
        let (batches, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (digest, whole) = rest.split_first_chunk().ok_or_else(wrong)?;
        // Reject a resume ticket within a resume ticket, which could be nested without limit.
        if whole.starts_with(RESUME_TICKET_PREFIX) {
            return Err(wrong());
        }
        let resumption = Self { batches: u64::from_le_bytes(*batches), digest: blake3::Hash::from_bytes(*digest) };
        Ok((resumption, ticket.slice_ref(whole)))
    }
}
