//! The task of each connection of a copy. It receives requests from the driver, downloads or uploads the blocks, and
//! reports the outcome as events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use godwit_flight::{Client, FlightDescriptor, FlightError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::prefetch::PrefetchDownload;
use super::speculative_connections::StreamConnection;
use crate::block_reader::{BlockHashCache, BlockReader, ReadFailures, SourceRange};
use crate::blocking::run_blocking;
use crate::copy_protocol::{
    BLOCK_SCHEMA, BlockReport, FileError, READ_TICKET, RELAY_TICKET, RELAY_WRITE_COMMAND, ReadRange, ReadRequest,
    RelayRequest, RelayWriteCommand, WRITE_COMMAND, WriteCommand, encode_message, from_json,
};
use crate::error::TransferError;
use crate::file_receiver::{BlockOutcomes, FileReceiver};
use crate::server_errors::{error_from_status, is_storage_full, is_transient, is_unknown_session, is_unknown_token};
use crate::tcp_tuning::{self, SendOptions};
use godwit_transfer_session::blake3_tree::BlockHash;
use godwit_transfer_session::{FileId, RequestId, SessionEvent, StreamId};

/// An event that a connection or a verification sends to the driver.
pub(crate) enum StreamEvent {
    /// An event that the driver passes to the session.
    SessionEvent(SessionEvent),
    /// An event for the session that the driver discards if the stream has another connection by now.
    AttemptSessionEvent {
        /// 0-based number of the stream's connection that sent the event.
        attempt: u32,
        /// The event for the session.
        event: SessionEvent,
    },
    /// The connection of a stream failed or could not be opened.
    ConnectionLost { stream: StreamId, attempt: u32, error: FlightError },
    /// The destination of the copy cannot write blocks, for example because its disk is full.
    WriteFailed { stream: StreamId, attempt: u32, request: Option<RequestId>, error: TransferError },
    /// A source reports that it cannot provide a file, or the destination server that it cannot write the file.
    FileUnavailable { file: FileId, source: u32, error: FileError },
    /// A file cannot be read or written on this host, or its source cannot provide the hashes for its verification.
    FileFailed { file: FileId, source: u32, error: TransferError },
    /// An error after which the copy cannot continue.
    Fatal(TransferError),
    /// The server no longer has the upload session.
    SessionLost { stream: StreamId, attempt: u32, session: String },
    /// The server behind the relay rejects the delegation token.
    TokenLost { stream: StreamId, attempt: u32 },
    /// A file could not be verified because the server no longer has the upload session.
    VerifyAgain { file: FileId, session: String },
    /// A file was verified and committed.
    FileVerified { file: FileId, hashes: Vec<BlockHash> },
    /// The connection of a stream was opened.
    Connected { stream: StreamId, client: Client },
}

pub(crate) type StreamEventSender = mpsc::UnboundedSender<StreamEvent>;

/// A request for blocks that the driver sends to a stream.
pub(crate) struct BlockRequest {
    pub(crate) request_id: RequestId,
    /// True if the same blocks were already requested over this connection before the session started.
    pub(crate) is_prefetched: bool,
    pub(crate) ranges: RequestRanges,
}

/// Ranges of blocks: of files at the server for downloads, of files on this host for uploads.
pub(crate) enum RequestRanges {
    Remote(Vec<ReadRange>),
    Local(Vec<SourceRange>),
}

/// The direction of a copy, with the state that its streams share.
#[derive(Clone)]
pub(crate) enum Direction {
    /// From a server to files on this host.
    Download { receiver: Arc<FileReceiver> },
    /// From files on this host to a server.
    Upload { block_hashes: Arc<BlockHashCache>, session: String },
}

/// The server to which a relay connects for this copy, and the delegation token for that server.
#[derive(Clone)]
pub(crate) struct RelayTarget {
    /// URI of the server behind the relay.
    pub(crate) server: String,
    /// Delegation token that the server behind the relay issued.
    pub(crate) token: String,
    /// Random identifier of this copy, which is part of the connection names.
    pub(crate) copy_id: String,
}

impl RelayTarget {
    /// Returns the name of the relay's connection for a stream.
    fn connection_name(&self, stream: StreamId) -> String {
        format!("{}.{stream}", self.copy_id)
    }
}

/// The task of one connection of a stream.
#[derive(Clone)]
pub(crate) struct StreamTask {
    pub(crate) stream_id: StreamId,
    pub(crate) attempt: u32,
    /// 0-based index of the source of the stream.
    pub(crate) source: u32,
    /// The server behind the relay; `None` if the connection does not go through a relay.
    pub(crate) relay_target: Option<RelayTarget>,
    pub(crate) events: StreamEventSender,
    pub(crate) send_options: SendOptions,
}

impl StreamTask {
    fn send_event(&self, note: StreamEvent) {
        // Sending fails if the copy has ended; the event is then not needed.
        let _ = self.events.send(note);
    }

    fn send_session_event(&self, event: SessionEvent) {
        self.send_event(StreamEvent::AttemptSessionEvent { attempt: self.attempt, event });
    }

    fn report_connection_failure(&self, error: FlightError, session: &str) {
        let (stream, attempt) = (self.stream_id, self.attempt);
        if is_unknown_session(&error) {
            self.send_event(StreamEvent::SessionLost { stream, attempt, session: session.to_owned() });
        } else if is_unknown_token(&error) {
            self.send_event(StreamEvent::TokenLost { stream, attempt });
        } else if is_transient(&error) {
            self.send_event(StreamEvent::ConnectionLost { stream, attempt, error });
        } else if is_storage_full(&error) {
            self.report_write_failure(None, error_from_status(error));
        } else {
            self.send_event(StreamEvent::Fatal(error_from_status(error)));
        }
    }

    fn report_write_failure(&self, request: Option<RequestId>, error: TransferError) {
        let (stream, attempt) = (self.stream_id, self.attempt);
        self.send_event(StreamEvent::WriteFailed { stream, attempt, request, error });
    }

    fn report_blocks(&self, written: Vec<(FileId, u64)>, damaged: Vec<(FileId, u64)>) {
        let stream = self.stream_id;
        for (file, block) in written {
            self.send_event(StreamEvent::SessionEvent(SessionEvent::BlockWritten { stream, file, block }));
        }
        for (file, block) in damaged {
            self.send_event(StreamEvent::SessionEvent(SessionEvent::BlockDamaged { stream, file, block }));
        }
    }

    /// Reports files that the other end cannot read or write.
    fn report_unavailable_files(&self, files: Vec<(FileId, FileError)>) {
        for (file, error) in files {
            self.send_event(StreamEvent::FileUnavailable { file, source: self.source, error });
        }
    }

    /// Reports files that cannot be read or written on this host.
    fn report_local_failures(&self, files: Vec<(FileId, TransferError)>) {
        for (file, error) in files {
            self.send_event(StreamEvent::FileFailed { file, source: self.source, error });
        }
    }

    /// Runs until the driver closes the stream or the connection fails.
    pub(crate) async fn run(
        self,
        connecting: impl Future<Output = Result<StreamConnection, FlightError>>,
        direction: Direction,
        mut asked: mpsc::UnboundedReceiver<BlockRequest>,
    ) {
        let StreamConnection { client, mut prefetch } = match connecting.await {
            Ok(made) => made,
            Err(error) => return self.report_connection_failure(error, ""),
        };
        self.send_event(StreamEvent::Connected { stream: self.stream_id, client: client.clone() });
        match direction {
            Direction::Download { receiver } => {
                self.send_session_event(SessionEvent::StreamOpened { stream: self.stream_id });
                // The requests that are running; they are aborted with this task.
                let mut fetches = JoinSet::new();
                while let Some(BlockRequest {
                    request_id,
                    is_prefetched: is_ahead,
                    ranges: RequestRanges::Remote(spans),
                }) = asked.recv().await
                {
                    let (this, client, inbox) = (self.clone(), client.clone(), receiver.clone());
                    // Drop the prefetched blocks that are not part of the first request.
                    let ahead = prefetch.take().filter(|_| is_ahead);
                    while fetches.try_join_next().is_some() {}
                    fetches.spawn(async move {
                        match this.fetch_ranges(&client, spans, ahead, inbox).await {
                            Ok(()) => this.send_session_event(SessionEvent::RequestEnded {
                                stream: this.stream_id,
                                request: request_id,
                            }),
                            Err(StreamError::Connection(error)) => this.report_connection_failure(error, ""),
                            Err(StreamError::Local(why @ TransferError::Io { .. })) => {
                                this.report_write_failure(Some(request_id), why)
                            }
                            Err(StreamError::Local(error)) => this.send_event(StreamEvent::Fatal(error)),
                        }
                    });
                }
            }
            Direction::Upload { block_hashes, session } => {
                if let Err(failed) = self.upload_requested(&client, &session, block_hashes, asked).await {
                    match failed {
                        StreamError::Connection(error) => self.report_connection_failure(error, &session),
                        StreamError::Local(error) => self.send_event(StreamEvent::Fatal(error)),
                    }
                }
            }
        }
    }

    async fn fetch_ranges(
        &self,
        client: &Client,
        spans: Vec<ReadRange>,
        ahead: Option<PrefetchDownload>,
        inbox: Arc<FileReceiver>,
    ) -> Result<(), StreamError> {
        let there = match ahead {
            Some(ahead) => ahead.into_matching_batches(&spans).await,
            None => None,
        };
        let mut batches = match there {
            Some(batches) => batches,
            None => client.download(self.read_ticket(spans)?).await?,
        };
        while let Some((batch, app_metadata)) = batches.next().await? {
            if !app_metadata.is_empty() {
                self.report_unavailable_files(from_json::<BlockReport>(&app_metadata)?.rejected_files);
            }
            let inbox = inbox.clone();
            let BlockOutcomes { written, damaged, rejected_files } =
                run_blocking(move || inbox.write_batch(&batch)).await?;
            self.report_blocks(written, damaged);
            self.report_local_failures(rejected_files);
        }
        Ok(())
    }

    /// Returns the ticket for a download of these blocks, from the source or through the relay.
    fn read_ticket(&self, ranges: Vec<ReadRange>) -> Result<Vec<u8>, TransferError> {
        let read_request = ReadRequest { ranges, send_options: self.send_options };
        match self.relay_target.clone() {
            None => encode_message(READ_TICKET, &read_request),
            Some(through) => {
                let connection_name = through.connection_name(self.stream_id);
                let RelayTarget { server, token, .. } = through;
                encode_message(RELAY_TICKET, &RelayRequest { server, token, connection_name, read_request })
            }
        }
    }

    /// Sends the blocks of all requests over one upload.
    async fn upload_requested(
        &self,
        client: &Client,
        session: &str,
        hashes: Arc<BlockHashCache>,
        mut asked: mpsc::UnboundedReceiver<BlockRequest>,
    ) -> Result<(), StreamError> {
        tcp_tuning::apply_send_options(client.socket_handle(), self.send_options);
        let write_command = WriteCommand { session: session.to_owned() };
        let command = match self.relay_target.clone() {
            None => encode_message(WRITE_COMMAND, &write_command)?,
            Some(through) => {
                let (connection_name, send_options) = (through.connection_name(self.stream_id), self.send_options);
                let RelayTarget { server, token, .. } = through;
                encode_message(
                    RELAY_WRITE_COMMAND,
                    &RelayWriteCommand { server, token, connection_name, write_command, send_options },
                )?
            }
        };
        let (mut sender, answers) = client.upload(&FlightDescriptor::new_cmd(command), &BLOCK_SCHEMA)?;
        // Send an empty message first: the server opens its response stream only after the first request.
        sender.send_metadata(&[]).await?;
        self.send_session_event(SessionEvent::StreamOpened { stream: self.stream_id });
        let mut hearing = JoinSet::new();
        hearing.spawn(self.clone().receive_responses(answers));
        let sent = async {
            while let Some(BlockRequest { ranges, .. }) = asked.recv().await {
                let RequestRanges::Local(spans) = ranges else { continue };
                self.send_request(&mut sender, spans, hashes.clone()).await?;
            }
            Ok::<(), StreamError>(())
        };
        // If the server stops the upload, its responses state the reason. Then stop sending.
        let ended = tokio::select! {
            heard = hearing.join_next() => return upload_result(heard),
            sent = sent => sent,
        };
        match ended {
            Ok(()) => sender.finish().await?,
            Err(failed @ StreamError::Local(_)) => return Err(failed),
            Err(StreamError::Connection(_)) => {}
        }
        upload_result(hearing.join_next().await)
    }

    async fn send_request(
        &self,
        sender: &mut godwit_flight::BatchSender,
        spans: Vec<SourceRange>,
        hashes: Arc<BlockHashCache>,
    ) -> Result<(), StreamError> {
        let (ready, mut batches) = mpsc::channel::<Result<(RecordBatch, ReadFailures), TransferError>>(2);
        let compress = self.send_options.compress;
        let reading = tokio::task::spawn_blocking(move || {
            for read in BlockReader::new(spans, hashes, compress) {
                let failed = read.is_err();
                if ready.blocking_send(read).is_err() || failed {
                    break;
                }
            }
        });
        while let Some(read) = batches.recv().await {
            let (batch, unreadable) = read?;
            self.report_local_failures(unreadable);
            if batch.num_rows() > 0 {
                sender.send(&batch, &[]).await?;
            }
        }
        // If the reading thread has panicked, the request ends without its remaining blocks.
        reading.await.map_err(|error| TransferError::Internal { problem: error.to_string() })?;
        Ok(())
    }

    /// Handles the reports of the server as they arrive.
    async fn receive_responses(
        self,
        answers: impl Future<Output = Result<godwit_flight::Answered, FlightError>>,
    ) -> Result<(), StreamError> {
        let mut answers = answers.await?;
        while let Some(answer) = answers.next().await? {
            self.handle_response(&answer)?;
        }
        Ok(())
    }

    fn handle_response(&self, answer: &Bytes) -> Result<(), TransferError> {
        let BlockReport { written, damaged, rejected_files } = from_json(answer)?;
        self.report_blocks(written, damaged);
        self.report_unavailable_files(rejected_files);
        Ok(())
    }
}

/// Returns the outcome of an upload. If the server has ended the upload early, this is a connection error, so that the
/// copy continues over another connection.
fn upload_result(received: Option<Result<Result<(), StreamError>, tokio::task::JoinError>>) -> Result<(), StreamError> {
    match received {
        Some(Ok(Err(failed))) => Err(failed),
        _ => {
            Err(StreamError::Connection(FlightError::Malformed { problem: "the upload ended before it was complete" }))
        }
    }
}

/// The error of a stream task.
enum StreamError {
    /// The connection or the other end failed; the driver opens another connection.
    Connection(FlightError),
    /// An operation on this host failed.
    Local(TransferError),
}

impl From<FlightError> for StreamError {
    fn from(error: FlightError) -> Self {
        Self::Connection(error)
    }
}

impl From<TransferError> for StreamError {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Flight(error) => Self::Connection(error),
            // An invalid message may be the result of a transmission error, so the connection is opened again.
            TransferError::Rejected { .. } => Self::Connection(FlightError::Malformed { problem: "invalid response" }),
            error => Self::Local(error),
        }
    }
}
