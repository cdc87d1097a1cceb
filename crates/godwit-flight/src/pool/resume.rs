//! A stream that goes on at another node: a ticket says how many batches have come and what they were, and the node that is shown it
//! sends those behind them, where it finds the same batches before.
//!
//! What batches were is the BLAKE3 of their Arrow IPC messages as they were sent. A node makes them again to compare, and sends
//! none of them: rows are not counted twice, left out, or mixed with those of another state of the data.

use std::pin::Pin;

use arrow_buffer::Buffer;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use tonic::Status;

use crate::codec::BatchEncoder;
use crate::server::{Download, Item};

/// What such tickets begin with.
pub(crate) const RESUME_MARK: &[u8] = b"gwr1.";

type Incoming = Pin<Box<dyn Stream<Item = Result<Item, Status>> + Send>>;

/// What has come of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Come {
    batches: u64,
    /// Of these batches.
    messages: blake3::Hasher,
    /// The same, with messages of a batch that is not whole yet.
    begun: blake3::Hasher,
}

impl Come {
    /// A message of a batch, or of values that batches refer to.
    pub(crate) fn message(&mut self, header: &[u8], body: &[Buffer]) {
        self.begun.update(&(header.len() as u64).to_le_bytes());
        self.begun.update(header);
        for piece in body {
            self.begun.update(piece.as_slice());
        }
    }

    /// A batch is whole.
    pub(crate) fn batch(&mut self) {
        self.batches += 1;
        self.messages = self.begun.clone();
    }

    /// The ticket for what comes next. What was begun of it comes again.
    pub(crate) fn ticket(&mut self, ticket: &Bytes) -> Bytes {
        self.begun = self.messages.clone();
        if self.batches == 0 {
            return ticket.clone();
        }
        let (batches, digest) = (self.batches.to_le_bytes(), self.messages.finalize());
        [RESUME_MARK, &batches, digest.as_bytes(), ticket].concat().into()
    }
}

/// What a ticket of [`Come::ticket`] says.
#[derive(Debug, PartialEq)]
pub(crate) struct Resumption {
    batches: u64,
    digest: blake3::Hash,
}

impl Resumption {
    /// It, and the ticket of the whole stream.
    pub(crate) fn read(ticket: &Bytes) -> Result<(Self, Bytes), Status> {
        let wrong = || Status::invalid_argument("the ticket of a stream to be gone on with cannot be read");
        let rest = ticket.strip_prefix(RESUME_MARK).ok_or_else(wrong)?;
        let (batches, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (digest, whole) = rest.split_first_chunk().ok_or_else(wrong)?;
        // One within another would be unwrapped for as long as there are any.
        if whole.starts_with(RESUME_MARK) {
            return Err(wrong());
        }
        let resumption = Self { batches: u64::from_le_bytes(*batches), digest: blake3::Hash::from_bytes(*digest) };
        Ok((resumption, ticket.slice_ref(whole)))
    }
}

/// What is left of a download.
pub(crate) fn resumed(download: Download, resumption: Resumption) -> Result<Download, Status> {
    let encoder = BatchEncoder::new(&download.schema)?;
    let before = Before { left: resumption.batches, digest: resumption.digest, encoder, come: Come::default() };
    let state = (download.batches, Some(before));
    let batches = stream::unfold(state, |(mut batches, mut before)| async move {
        if let Some(before) = before.take()
            && let Err(status) = before.pass(&mut batches).await
        {
            return Some((Err(status), (stream::empty().boxed(), None)));
        }
        let item = batches.next().await?;
        Some((item, (batches, None)))
    });
    Ok(Download { schema: download.schema, batches: Box::pin(batches) })
}

/// What comes before the part that is sent.
struct Before {
    left: u64,
    digest: blake3::Hash,
    encoder: BatchEncoder,
    come: Come,
}

impl Before {
    async fn pass(mut self, batches: &mut Incoming) -> Result<(), Status> {
        let other = || {
            Status::data_loss(
                "the rows are not, or not in the same order, those that came before the node was lost; ask again, with ORDER BY where it is a statement",
            )
        };
        while self.left > 0 {
            let (batch, _) = batches.next().await.ok_or_else(other)??;
            self.encoder.digest(&batch, &mut self.come)?;
            self.come.batch();
            self.left -= 1;
        }
        if self.come.messages.finalize() == self.digest { Ok(()) } else { Err(other()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;

    fn batch(number: i64) -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![number; 3])) as ArrayRef)]).unwrap()
    }

    fn download(numbers: std::ops::Range<i64>) -> Download {
        let batches = stream::iter(numbers.map(|number| Ok((batch(number), Bytes::new()))));
        Download { schema: batch(0).schema(), batches: Box::pin(batches) }
    }

    /// What a client has read of a stream of numbers.
    fn come(numbers: std::ops::Range<i64>) -> Come {
        let mut come = Come::default();
        let mut encoder = BatchEncoder::new(&batch(0).schema()).unwrap();
        for number in numbers {
            encoder.digest(&batch(number), &mut come).unwrap();
            come.batch();
        }
        come
    }

    async fn rest(mut come: Come, of: Download) -> Result<Vec<RecordBatch>, Status> {
        let ticket = come.ticket(&Bytes::from_static(b"whole"));
        let (resumption, whole) = Resumption::read(&ticket).unwrap();
        assert_eq!(&whole[..], b"whole");
        let batches: Vec<_> = resumed(of, resumption).unwrap().batches.collect().await;
        batches.into_iter().map(|item| item.map(|(batch, _)| batch)).collect()
    }

    #[tokio::test]
    async fn what_follows_is_sent_where_what_came_before_is_the_same() {
        let left = rest(come(0..4), download(0..7)).await.unwrap();
        assert_eq!(left, [batch(4), batch(5), batch(6)]);
        assert!(rest(come(0..7), download(0..7)).await.unwrap().is_empty());
        for (before, now) in [(0..4, 1..7), (0..4, 0..3), (2..4, 0..4)] {
            let refused = rest(come(before), download(now)).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::DataLoss, "{refused}");
        }
    }

    #[test]
    fn tickets_that_are_cut_or_nested_are_refused() {
        let whole = come(0..1).ticket(&Bytes::from_static(b"x"));
        for end in 0..whole.len() - 1 {
            assert!(Resumption::read(&whole.slice(..end)).is_err(), "{end}");
        }
        let nested = come(0..1).ticket(&whole);
        assert!(Resumption::read(&nested).is_err());
        // Nothing has come: the ticket is as it was.
        assert_eq!(Come::default().ticket(&whole), whole);
    }
}
