//! Resumes a download at another pool member. A resume ticket contains the number of batches that the client has
//! received and their hash. The other member skips these batches if their hash is equal, and sends the following ones.
//!
//! The hash is the BLAKE3 hash of the Arrow IPC messages as they were sent. The other member produces the skipped
//! batches again to compute it. Rows are therefore never duplicated, lost, or mixed with rows of another version of the
//! data.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _, stream};
use tonic::Status;

use crate::call_streams::{BatchItem, Download};
use crate::codec::BatchEncoder;
use crate::stream_progress::{ResumePoint, StreamProgress};

type BatchItemStream = Pin<Box<dyn Stream<Item = Result<BatchItem, Status>> + Send>>;

/// Skips and verifies the batches that the client has already received, and returns the following ones.
pub(crate) fn resume_download(download: Download, resumption: ResumePoint) -> Result<Download, Status> {
    let encoder = BatchEncoder::new(&download.schema)?;
    let before = SkippedBatches {
        remaining_batches: resumption.batches,
        digest: resumption.digest,
        encoder,
        progress: StreamProgress::default(),
    };
    let state = (download.batches, Some(before));
    let batches = stream::unfold(state, |(mut batches, mut before)| async move {
        if let Some(before) = before.take()
            && let Err(status) = before.skip_and_verify(&mut batches).await
        {
            return Some((Err(status), (stream::empty().boxed(), None)));
        }
        let item = batches.next().await?;
        Some((item, (batches, None)))
    });
    Ok(Download { schema: download.schema, batches: Box::pin(batches) })
}

/// The batches at the start of a download that are compared by their hash and not sent.
struct SkippedBatches {
    remaining_batches: u64,
    digest: blake3::Hash,
    encoder: BatchEncoder,
    progress: StreamProgress,
}

impl SkippedBatches {
    async fn skip_and_verify(mut self, batches: &mut BatchItemStream) -> Result<(), Status> {
        let other = || {
            Status::data_loss(
                "the new server returns other rows, or rows in another order, than the lost server; run the query \
                 again, with ORDER BY if it is a statement",
            )
        };
        while self.remaining_batches > 0 {
            let (batch, _) = batches.next().await.ok_or_else(other)??;
            self.encoder.add_to_progress(&batch, &mut self.progress)?;
            self.progress.finish_batch();
            self.remaining_batches -= 1;
        }
        if self.progress.digest() == self.digest { Ok(()) } else { Err(other()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use bytes::Bytes;

    use super::*;

    fn batch(number: i64) -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![number; 3])) as ArrayRef)]).unwrap()
    }

    fn download(numbers: std::ops::Range<i64>) -> Download {
        let batches = stream::iter(numbers.map(|number| Ok((batch(number), Bytes::new()))));
        Download { schema: batch(0).schema(), batches: Box::pin(batches) }
    }

    /// Returns the progress of a client that has received one batch for each of these numbers.
    fn progress_after(numbers: std::ops::Range<i64>) -> StreamProgress {
        let mut progress = StreamProgress::default();
        let mut encoder = BatchEncoder::new(&batch(0).schema()).unwrap();
        for number in numbers {
            encoder.add_to_progress(&batch(number), &mut progress).unwrap();
            progress.finish_batch();
        }
        progress
    }

    async fn resume_and_collect(mut progress: StreamProgress, of: Download) -> Result<Vec<RecordBatch>, Status> {
        let ticket = progress.resume_ticket(&Bytes::from_static(b"whole"));
        let (resumption, whole) = ResumePoint::parse(&ticket).unwrap();
        assert_eq!(&whole[..], b"whole");
        let batches: Vec<_> = resume_download(of, resumption).unwrap().batches.collect().await;
        batches.into_iter().map(|item| item.map(|(batch, _)| batch)).collect()
    }

    #[tokio::test]
    async fn a_download_is_resumed_only_behind_the_same_batches() {
        let left = resume_and_collect(progress_after(0..4), download(0..7)).await.unwrap();
        assert_eq!(left, [batch(4), batch(5), batch(6)]);
        assert!(resume_and_collect(progress_after(0..7), download(0..7)).await.unwrap().is_empty());
        for (before, now) in [(0..4, 1..7), (0..4, 0..3), (2..4, 0..4)] {
            let refused = resume_and_collect(progress_after(before), download(now)).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::DataLoss, "{refused}");
        }
    }

    #[test]
    fn tickets_that_are_cut_or_nested_are_refused() {
        let whole = progress_after(0..1).resume_ticket(&Bytes::from_static(b"x"));
        for end in 0..whole.len() - 1 {
            assert!(ResumePoint::parse(&whole.slice(..end)).is_err(), "{end}");
        }
        let nested = progress_after(0..1).resume_ticket(&whole);
        assert!(ResumePoint::parse(&nested).is_err());
        // If no batch was received, the resume ticket is the original ticket.
        assert_eq!(StreamProgress::default().resume_ticket(&whole), whole);
    }
}
