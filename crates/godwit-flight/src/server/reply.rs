//! Answers on their way out: batches of the data plane, messages of gRPC, and pages.

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

use super::callers::Seat;
use super::{Answers, Chunks, Item};
use crate::codec::{BatchEncoder, Chunk, encode_metadata};
use crate::error::FlightError;
use crate::message::frame_encoded;
use crate::metrics::Call;
use crate::segments::Segments;
use crate::web::{WebBody, WebStream};

/// Bytes of text that leave at a time.
const TEXT_BYTES: usize = 256 << 10;

pub(super) fn response(reply: Reply, status: Option<&Status>) -> Response<Reply> {
    let mut response = Response::new(reply);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(status) = status {
        headers.extend(trailers(status));
    }
    response
}

/// An answer that is no gRPC.
pub(super) fn page(answer: Response<WebBody>, method: &Method) -> Response<Reply> {
    let (mut head, body) = answer.into_parts();
    let (bytes, reply) = match body {
        WebBody::Whole(bytes) => (bytes.len() as u64, Reply::Text(Some(bytes).filter(|bytes| !bytes.is_empty()))),
        WebBody::Stream { bytes, stream } => (bytes, Reply::Bytes { stream, left: bytes }),
    };
    // These have no body, and the length would be that of one (RFC 9110 §8.6).
    if !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        head.headers.insert(http::header::CONTENT_LENGTH, bytes.into());
    }
    Response::from_parts(head, if method == Method::HEAD { Reply::Nothing } else { reply })
}

/// A call that failed before it began: headers alone.
pub(super) fn refused(status: Status) -> Response<Reply> {
    response(Reply::Nothing, Some(&status))
}

fn trailers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        headers.insert("grpc-status", HeaderValue::from_static("13"));
    }
    headers
}

/// The body of an answer.
pub(super) enum Reply {
    Data(Outgoing),
    Answers {
        answers: Answers,
        ended: bool,
    },
    Tonic(tonic::body::Body),
    /// Text that is no gRPC, what is left of it; `None` once it is sent.
    Text(Option<Bytes>),
    /// Bytes that are no gRPC, and how many are left.
    Bytes {
        stream: WebStream,
        left: u64,
    },
    Nothing,
}

impl Body for Reply {
    type Data = Segments;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Segments>, Status>>> {
        match self.get_mut() {
            Self::Nothing => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(text.take().map(|mut whole| {
                let piece = whole.split_to(whole.len().min(TEXT_BYTES));
                *text = Some(whole).filter(|left| !left.is_empty());
                Ok(Frame::data(Segments::from(piece)))
            })),
            Self::Bytes { stream, left } => {
                let Some(bytes) = ready!(stream.as_mut().poll_next(context)) else { return Poll::Ready(None) };
                *left = left.saturating_sub(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
                Poll::Ready(Some(bytes.map(|bytes| Frame::data(Segments::from(bytes)))))
            }
            Self::Tonic(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| Ok(frame?.map_data(Segments::from))))
            }
            Self::Data(outgoing) => outgoing.poll_frame(context).map(|frame| frame.map(Ok)),
            Self::Answers { answers, ended } => {
                if *ended {
                    return Poll::Ready(None);
                }
                let frame = match ready!(answers.as_mut().poll_next(context)) {
                    Some(Ok(app_metadata)) => Frame::data(frame_encoded(&PutResult { app_metadata })),
                    Some(Err(status)) => end(ended, &status),
                    None => end(ended, &Status::ok("")),
                };
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    /// A call that is refused must end with its headers: what has neither trailers nor the end of the stream in them is a
    /// broken call to other implementations (gRPC over HTTP/2, "Trailers-Only"; grpc-go 1.7x says `Internal`).
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Text(text) => text.is_none(),
            Self::Bytes { left, .. } => *left == 0,
            Self::Tonic(body) => body.is_end_stream(),
            Self::Data(outgoing) => outgoing.ended,
            Self::Answers { ended, .. } => *ended,
        }
    }
}

/// An answer to somebody whose call is open until the last of it has left.
pub(super) fn seated<B>(mut answer: Response<B>, seat: Option<Seat>) -> Response<B> {
    if let Some(seat) = seat {
        answer.extensions_mut().insert(seat);
    }
    answer
}

/// The trailers that close a call.
fn end(ended: &mut bool, status: &Status) -> Frame<Segments> {
    *ended = true;
    Frame::trailers(trailers(status))
}

/// Batches on their way out.
pub(super) struct Outgoing {
    /// Where rows are counted.
    rows: Option<Counter>,
    source: Source,
    /// `None`: the first batch brings the schema.
    encoder: Option<Box<BatchEncoder>>,
    /// What is left of a message too long for one piece.
    rest: Segments,
    /// Whether the source has ended, and is not to be asked any more.
    drained: bool,
    ended: bool,
}

pub(super) enum Source {
    Batches(Pin<Box<dyn Stream<Item = Result<Item, Status>> + Send>>),
    Chunks(Chunks),
}

impl Outgoing {
    pub(super) fn new(source: Source, encoder: Option<Box<BatchEncoder>>, rows: Option<Counter>) -> Self {
        Self { rows, source, encoder, rest: Segments::default(), drained: false, ended: false }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Segments>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(segments) = self.rest.take_frame() {
            return Poll::Ready(Some(Frame::data(segments)));
        }
        if self.drained {
            return Poll::Ready(Some(end(&mut self.ended, &Status::ok(""))));
        }
        let chunk = match &mut self.source {
            Source::Batches(batches) => ready!(batches.as_mut().poll_next(context))
                .map(|item| item.map(|(batch, app_metadata)| Chunk { batch: Some(batch), app_metadata })),
            Source::Chunks(chunks) => ready!(chunks.as_mut().poll_next(context)),
        };
        let encoded = match chunk {
            Some(Ok(chunk)) => self.encode(&chunk),
            Some(Err(status)) => return Poll::Ready(Some(end(&mut self.ended, &status))),
            None => {
                self.drained = true;
                self.encoder.as_mut().map_or_else(|| Ok(Segments::default()), |encoder| encoder.finish(&[]))
            }
        };
        match encoded {
            Ok(segments) => self.rest = segments,
            Err(error) => return Poll::Ready(Some(end(&mut self.ended, &error.into()))),
        }
        let next = self.rest.take_frame().map(Frame::data);
        Poll::Ready(Some(next.unwrap_or_else(|| end(&mut self.ended, &Status::ok("")))))
    }

    fn encode(&mut self, chunk: &Chunk) -> Result<Segments, FlightError> {
        let Some(batch) = &chunk.batch else { return Ok(encode_metadata(&[], &chunk.app_metadata)) };
        if let Some(rows) = &self.rows {
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

/// An answer, counted as it leaves.
pub(super) struct Counted {
    reply: Reply,
    /// Whose call it is, where that is limited.
    seat: Option<Seat>,
    /// Until when nothing more is sent.
    waiting: Option<Pin<Box<Sleep>>>,
    /// `None` where nothing is counted, and once the call has ended.
    call: Option<Call>,
    /// What came of it once all has left, where it is no gRPC.
    status: Option<StatusCode>,
}

impl Counted {
    /// An answer of gRPC, or a page.
    pub(super) fn over(answer: Response<Reply>, mut call: Option<Call>, is_page: bool) -> Response<Self> {
        let mut answer = answer;
        let seat = answer.extensions_mut().remove::<Seat>();
        let status = is_page.then(|| answer.status());
        if let Some(call) = call.as_mut().filter(|_| !is_page) {
            call.note_grpc(answer.headers());
        }
        answer.map(|reply| {
            let waiting = seat.as_ref().and_then(|seat| seat.owes(Instant::now())).map(sleep_until);
            let mut counted = Self { reply, seat, waiting, call, status };
            counted.end_if_over();
            counted
        })
    }

    fn end_if_over(&mut self) {
        if !self.reply.is_end_stream() {
            return;
        }
        if let (Some(mut call), Some(status)) = (self.call.take(), self.status) {
            call.note_http(status);
        }
    }
}

impl Body for Counted {
    type Data = Segments;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Segments>, Status>>> {
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(context));
            self.waiting = None;
        }
        let frame = ready!(Pin::new(&mut self.reply).poll_frame(context));
        if let (Some(seat), Some(data)) = (&self.seat, frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()))
        {
            let until = seat.pay(data.remaining() as u64, Instant::now());
            self.waiting = until.map(sleep_until);
        }
        if let (Some(call), Some(Ok(frame))) = (&mut self.call, &frame) {
            if let Some(data) = frame.data_ref() {
                call.counts().sent_bytes.inc_by(data.remaining() as u64);
            }
            if let Some(trailers) = frame.trailers_ref() {
                call.note_grpc(trailers);
            }
        }
        match frame {
            None => (self.call, self.seat) = (None, None),
            Some(_) => self.end_if_over(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }
}
