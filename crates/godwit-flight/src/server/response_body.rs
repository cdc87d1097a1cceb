//! Bodies of responses: batches of the data plane, other gRPC messages, and HTTP responses that are not gRPC.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use arrow_flight::PutResult;
use bytes::{Buf as _, Bytes};
use futures_core::Stream;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::{Body, Frame};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Sleep;
use tonic::Status;

use super::call_limits::CallPermit;
use crate::call_streams::{BatchItem, ExchangeStream, PutResultStream};
use crate::codec::{BatchEncoder, FlightStreamChunk, encode_metadata};
use crate::error::FlightError;
use crate::message::encode_protobuf;
use crate::metrics::MeteredCall;
use crate::segments::Segments;
use crate::web::{WebBody, WebStream};

/// Maximum number of bytes of a complete HTTP body that are passed to HTTP/2 at once.
const MAX_TEXT_FRAME_BYTES: usize = 256 << 10;

pub(super) fn grpc_response(reply: ResponseBody, status: Option<&Status>) -> Response<ResponseBody> {
    let mut response = Response::new(reply);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(status) = status {
        headers.extend(status_trailers(status));
    }
    response
}

/// Converts the response to a request that is not gRPC. Adds `Content-Length` if it is known, and removes the body for HEAD requests.
pub(super) fn http_response(answer: Response<WebBody>, method: &Method) -> Response<ResponseBody> {
    let (mut head, body) = answer.into_parts();
    let (bytes, reply) = match body {
        WebBody::Full(bytes) => {
            (Some(bytes.len() as u64), ResponseBody::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
        }
        WebBody::Stream { content_length, stream } => {
            (content_length, ResponseBody::Stream { stream, remaining_bytes: content_length })
        }
    };
    // Responses with these codes have no body and must have no `Content-Length` (RFC 9110 §8.6).
    if let Some(bytes) = bytes.filter(|_| !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)) {
        head.headers.insert(http::header::CONTENT_LENGTH, bytes.into());
    }
    Response::from_parts(head, if method == Method::HEAD { ResponseBody::Empty } else { reply })
}

/// Returns the response to a gRPC call that failed before it sent data. The response consists of headers only.
pub(super) fn error_response(status: Status) -> Response<ResponseBody> {
    grpc_response(ResponseBody::Empty, Some(&status))
}

fn status_trailers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        headers.insert("grpc-status", HeaderValue::from_static("13"));
    }
    headers
}

/// The body of a gRPC or HTTP response.
pub(super) enum ResponseBody {
    Batches(BatchesBody),
    PutResults {
        results: PutResultStream,
        ended: bool,
    },
    Tonic(tonic::body::Body),
    /// The bytes of an HTTP body that are not yet sent; `None` when all are sent.
    Full(Option<Bytes>),
    /// A streamed HTTP body, and the number of bytes that are not yet sent; `None` if it is not known.
    Stream {
        stream: WebStream,
        remaining_bytes: Option<u64>,
    },
    Empty,
}

impl Body for ResponseBody {
    type Data = Segments;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Segments>, Status>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Full(text) => Poll::Ready(text.take().map(|mut whole| {
                let piece = whole.split_to(whole.len().min(MAX_TEXT_FRAME_BYTES));
                *text = Some(whole).filter(|left| !left.is_empty());
                Ok(Frame::data(Segments::from(piece)))
            })),
            Self::Stream { stream, remaining_bytes } => {
                let Some(bytes) = ready!(stream.as_mut().poll_next(context)) else {
                    remaining_bytes.get_or_insert(0);
                    return Poll::Ready(None);
                };
                if let Some(remaining) = remaining_bytes {
                    *remaining = remaining.saturating_sub(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
                }
                Poll::Ready(Some(bytes.map(|bytes| Frame::data(Segments::from(bytes)))))
            }
            Self::Tonic(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| Ok(frame?.map_data(Segments::from))))
            }
            Self::Batches(outgoing) => outgoing.poll_frame(context).map(|frame| frame.map(Ok)),
            Self::PutResults { results, ended } => {
                if *ended {
                    return Poll::Ready(None);
                }
                let frame = match ready!(results.as_mut().poll_next(context)) {
                    Some(Ok(app_metadata)) => Frame::data(encode_protobuf(&PutResult { app_metadata })),
                    Some(Err(status)) => end_with_trailers(ended, &status),
                    None => end_with_trailers(ended, &Status::ok("")),
                };
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    /// Returns whether the body is complete, so that the last frame ends the HTTP/2 stream. A rejected call must end
    /// with its headers ("Trailers-Only" in gRPC over HTTP/2). Otherwise some clients report a broken call; grpc-go
    /// 1.7x reports `Internal`.
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(text) => text.is_none(),
            Self::Stream { remaining_bytes, .. } => *remaining_bytes == Some(0),
            Self::Tonic(body) => body.is_end_stream(),
            Self::Batches(outgoing) => outgoing.ended,
            Self::PutResults { ended, .. } => *ended,
        }
    }
}

/// Attaches the permit of a call to its response, so that the call counts as open until the last byte is sent.
pub(super) fn attach_permit<B>(mut answer: Response<B>, permit: Option<CallPermit>) -> Response<B> {
    if let Some(permit) = permit {
        answer.extensions_mut().insert(permit);
    }
    answer
}

/// Sets `ended`, and returns the trailers with the status of the call.
fn end_with_trailers(ended: &mut bool, status: &Status) -> Frame<Segments> {
    *ended = true;
    Frame::trailers(status_trailers(status))
}

/// The body of a gRPC response that consists of record batches and metadata.
pub(super) struct BatchesBody {
    /// Metric that counts sent rows; `None` without metrics.
    row_counter: Option<Counter>,
    source: BatchSource,
    /// The encoder of batches. In an exchange it is `None` until the first batch, which determines the schema.
    encoder: Option<Box<BatchEncoder>>,
    /// The unsent bytes of a message that is too long for one HTTP/2 frame.
    unsent: Segments,
    /// True if `source` has ended. It must not be polled any more.
    source_ended: bool,
    ended: bool,
}

pub(super) enum BatchSource {
    Batches(Pin<Box<dyn Stream<Item = Result<BatchItem, Status>> + Send>>),
    Chunks(ExchangeStream),
}

impl BatchesBody {
    pub(super) fn new(source: BatchSource, encoder: Option<Box<BatchEncoder>>, row_counter: Option<Counter>) -> Self {
        Self { row_counter, source, encoder, unsent: Segments::default(), source_ended: false, ended: false }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Segments>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(segments) = self.unsent.take_frame() {
            return Poll::Ready(Some(Frame::data(segments)));
        }
        if self.source_ended {
            return Poll::Ready(Some(end_with_trailers(&mut self.ended, &Status::ok(""))));
        }
        let chunk = match &mut self.source {
            BatchSource::Batches(batches) => ready!(batches.as_mut().poll_next(context))
                .map(|item| item.map(|(batch, app_metadata)| FlightStreamChunk { batch: Some(batch), app_metadata })),
            BatchSource::Chunks(chunks) => ready!(chunks.as_mut().poll_next(context)),
        };
        let encoded = match chunk {
            Some(Ok(chunk)) => self.encode(&chunk),
            Some(Err(status)) => return Poll::Ready(Some(end_with_trailers(&mut self.ended, &status))),
            None => {
                self.source_ended = true;
                self.encoder.as_mut().map_or_else(|| Ok(Segments::default()), |encoder| encoder.finish(&[]))
            }
        };
        match encoded {
            Ok(segments) => self.unsent = segments,
            Err(error) => return Poll::Ready(Some(end_with_trailers(&mut self.ended, &error.into()))),
        }
        let next = self.unsent.take_frame().map(Frame::data);
        Poll::Ready(Some(next.unwrap_or_else(|| end_with_trailers(&mut self.ended, &Status::ok("")))))
    }

    fn encode(&mut self, chunk: &FlightStreamChunk) -> Result<Segments, FlightError> {
        let Some(batch) = &chunk.batch else { return Ok(encode_metadata(&[], &chunk.app_metadata)) };
        if let Some(rows) = &self.row_counter {
            rows.inc_by(batch.num_rows() as u64);
        }
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(Box::new(BatchEncoder::new(&batch.schema())?)),
        };
        encoder.encode(batch, &[], &chunk.app_metadata)
    }
}

fn sleep_until(until: Instant) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep_until(until.into()))
}

/// A body that counts its bytes when they are sent, for metrics and rate limits.
pub(super) struct MeteredBody {
    body: ResponseBody,
    /// The permit of the call; `None` if the principal is not limited.
    permit: Option<CallPermit>,
    /// A timer of the rate limit. No bytes are sent before the timer ends.
    throttle: Option<Pin<Box<Sleep>>>,
    /// The call in the metrics; `None` without metrics, or after the call has ended.
    call: Option<MeteredCall>,
    /// The HTTP status to record after the last byte; `None` for gRPC.
    http_status: Option<StatusCode>,
}

impl MeteredBody {
    /// Wraps the body of a gRPC or HTTP response.
    pub(super) fn wrap(answer: Response<ResponseBody>, mut call: Option<MeteredCall>, is_page: bool) -> Response<Self> {
        let mut answer = answer;
        let permit = answer.extensions_mut().remove::<CallPermit>();
        let http_status = is_page.then(|| answer.status());
        if let Some(call) = call.as_mut().filter(|_| !is_page) {
            call.record_grpc_status(answer.headers());
        }
        answer.map(|body| {
            let throttle = permit.as_ref().and_then(|permit| permit.ready_at(Instant::now())).map(sleep_until);
            let mut counted = Self { body, permit, throttle, call, http_status };
            counted.finish_if_complete();
            counted
        })
    }

    fn finish_if_complete(&mut self) {
        if !self.body.is_end_stream() {
            return;
        }
        if let (Some(mut call), Some(status)) = (self.call.take(), self.http_status) {
            call.record_http_status(status);
        }
    }
}

impl Body for MeteredBody {
    type Data = Segments;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Segments>, Status>>> {
        if let Some(waiting) = &mut self.throttle {
            ready!(waiting.as_mut().poll(context));
            self.throttle = None;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let (Some(permit), Some(data)) =
            (&self.permit, frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()))
        {
            let until = permit.charge(data.remaining() as u64, Instant::now());
            self.throttle = until.map(sleep_until);
        }
        if let (Some(call), Some(Ok(frame))) = (&mut self.call, &frame) {
            if let Some(data) = frame.data_ref() {
                call.call_metrics().sent_bytes.inc_by(data.remaining() as u64);
            }
            if let Some(trailers) = frame.trailers_ref() {
                call.record_grpc_status(trailers);
            }
        }
        self.finish_if_complete();
        if frame.is_none() {
            (self.call, self.permit) = (None, None);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
