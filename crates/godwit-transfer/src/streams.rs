//! Connections of a copy at work: each is told what to fetch or send, and tells what became of it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use godwit_flight::{Client, FlightDescriptor, FlightError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::control::{is_full, is_passing, lost_grant, lost_session, told};
use crate::copy::ahead::Ahead;
use crate::copy::connecting::Made;
use crate::error::TransferError;
use crate::inbox::{BlockOutcomes, Inbox};
use crate::protocol::{
    READ, RELAY, RELAY_WRITE, ReadRequest, ReadSpan, RelayRequest, RelayWriteCommand, SCHEMA, Taken, Trouble, WRITE,
    WriteCommand, marked, parse,
};
use crate::service::blocking;
use crate::session::{Event, FileId, RequestId, StreamId};
use crate::source::{BlockReader, Hashes, ReadFailures, SourceSpan};
use crate::tree::BlockHash;
use crate::tune::{self, Manner};

/// What connections tell the copy.
pub(crate) enum Note {
    /// Something for the session.
    Event(Event),
    /// The same, of a connection that may be another by now.
    OfStream {
        /// Which connection it was of this stream.
        attempt: u32,
        /// What.
        event: Event,
    },
    /// A connection broke.
    Lost { stream: StreamId, attempt: u32, why: FlightError },
    /// A block cannot be written where it is to go.
    Unwritable { stream: StreamId, attempt: u32, request: Option<RequestId>, why: TransferError },
    /// A source says that it does not have a file.
    Trouble { file: FileId, source: u32, why: Trouble },
    /// A file cannot be read or written on this machine, or proved by its source.
    Failed { file: FileId, source: u32, why: TransferError },
    /// Nothing more can be done.
    Fatal(TransferError),
    /// The server does not know the session any more.
    SessionLost { stream: StreamId, attempt: u32, session: String },
    /// The server behind a relay does not know any more what it granted.
    GrantLost { stream: StreamId, attempt: u32 },
    /// The session is lost, found out when a file was to be proved.
    ProveAgain { file: FileId, session: String },
    /// A file is proved and has its name.
    Proved { file: FileId, hashes: Vec<BlockHash> },
    /// A connection is made.
    Connected { stream: StreamId, client: Client },
}

pub(crate) type Notes = mpsc::UnboundedSender<Note>;

/// What a stream is asked for.
pub(crate) struct Asked {
    pub(crate) request: RequestId,
    /// Whether the connection has been asked for it already.
    pub(crate) ahead: bool,
    pub(crate) spans: Spans,
}

/// Blocks, as each side names their files.
pub(crate) enum Spans {
    There(Vec<ReadSpan>),
    Here(Vec<SourceSpan>),
}

/// Where blocks come from and go to.
#[derive(Clone)]
pub(crate) enum Direction {
    /// From a server into files here.
    Download { inbox: Arc<Inbox> },
    /// From files here to a server.
    Upload { hashes: Arc<Hashes>, session: String },
}

/// What a relay is told, besides what is asked for.
#[derive(Clone)]
pub(crate) struct Through {
    /// The server behind it.
    pub(crate) server: String,
    /// What that granted to the relay.
    pub(crate) token: String,
    /// A name of this copy.
    pub(crate) copy: String,
}

impl Through {
    /// The name of a connection behind the relay.
    fn lane(&self, stream: StreamId) -> String {
        format!("{}.{stream}", self.copy)
    }
}

/// A connection.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) stream: StreamId,
    pub(crate) attempt: u32,
    /// Where it is connected to.
    pub(crate) source: u32,
    /// Where blocks come through, where that is not the source itself.
    pub(crate) through: Option<Through>,
    pub(crate) notes: Notes,
    pub(crate) manner: Manner,
}

impl Stream {
    fn tell(&self, note: Note) {
        // A copy that has ended wants to know nothing more.
        let _ = self.notes.send(note);
    }

    fn event(&self, event: Event) {
        self.tell(Note::OfStream { attempt: self.attempt, event });
    }

    fn failed(&self, error: FlightError, session: &str) {
        let (stream, attempt) = (self.stream, self.attempt);
        if lost_session(&error) {
            self.tell(Note::SessionLost { stream, attempt, session: session.to_owned() });
        } else if lost_grant(&error) {
            self.tell(Note::GrantLost { stream, attempt });
        } else if is_passing(&error) {
            self.tell(Note::Lost { stream, attempt, why: error });
        } else if is_full(&error) {
            self.unwritable(None, told(error));
        } else {
            self.tell(Note::Fatal(told(error)));
        }
    }

    fn unwritable(&self, request: Option<RequestId>, why: TransferError) {
        let (stream, attempt) = (self.stream, self.attempt);
        self.tell(Note::Unwritable { stream, attempt, request, why });
    }

    fn blocks(&self, written: Vec<(FileId, u64)>, damaged: Vec<(FileId, u64)>) {
        let stream = self.stream;
        for (file, block) in written {
            self.tell(Note::Event(Event::Arrived { stream, file, block }));
        }
        for (file, block) in damaged {
            self.tell(Note::Event(Event::Damaged { stream, file, block }));
        }
    }

    /// Files that the other end does not have, or does not take.
    fn refused(&self, files: Vec<(FileId, Trouble)>) {
        for (file, why) in files {
            self.tell(Note::Trouble { file, source: self.source, why });
        }
    }

    /// Files that cannot be read or written here.
    fn failed_here(&self, files: Vec<(FileId, TransferError)>) {
        for (file, why) in files {
            self.tell(Note::Failed { file, source: self.source, why });
        }
    }

    /// Works until nothing more is asked, or the connection breaks.
    pub(crate) async fn run(
        self,
        connecting: impl Future<Output = Result<Made, FlightError>>,
        direction: Direction,
        mut asked: mpsc::UnboundedReceiver<Asked>,
    ) {
        let Made { client, mut ahead } = match connecting.await {
            Ok(made) => made,
            Err(error) => return self.failed(error, ""),
        };
        self.tell(Note::Connected { stream: self.stream, client: client.clone() });
        match direction {
            Direction::Download { inbox } => {
                self.event(Event::Opened { stream: self.stream });
                // They end with this stream.
                let mut fetches = JoinSet::new();
                while let Some(Asked { request, ahead: is_ahead, spans: Spans::There(spans) }) = asked.recv().await {
                    let (this, client, inbox) = (self.clone(), client.clone(), inbox.clone());
                    // What is not wanted keeps nothing else waiting.
                    let ahead = ahead.take().filter(|_| is_ahead);
                    while fetches.try_join_next().is_some() {}
                    fetches.spawn(async move {
                        match this.fetch(&client, spans, ahead, inbox).await {
                            Ok(()) => this.event(Event::Ended { stream: this.stream, request }),
                            Err(Failed::Way(error)) => this.failed(error, ""),
                            Err(Failed::Here(why @ TransferError::File { .. })) => this.unwritable(Some(request), why),
                            Err(Failed::Here(error)) => this.tell(Note::Fatal(error)),
                        }
                    });
                }
            }
            Direction::Upload { hashes, session } => {
                if let Err(failed) = self.send(&client, &session, hashes, asked).await {
                    match failed {
                        Failed::Way(error) => self.failed(error, &session),
                        Failed::Here(error) => self.tell(Note::Fatal(error)),
                    }
                }
            }
        }
    }

    async fn fetch(
        &self,
        client: &Client,
        spans: Vec<ReadSpan>,
        ahead: Option<Ahead>,
        inbox: Arc<Inbox>,
    ) -> Result<(), Failed> {
        let there = match ahead {
            Some(ahead) => ahead.batches(&spans).await,
            None => None,
        };
        let mut batches = match there {
            Some(batches) => batches,
            None => client.download(self.ticket(spans)?).await?,
        };
        while let Some((batch, said)) = batches.next().await? {
            if !said.is_empty() {
                self.refused(parse::<Taken>(&said)?.refused);
            }
            let inbox = inbox.clone();
            let BlockOutcomes { written, damaged, refused } = blocking(move || inbox.take(&batch)).await?;
            self.blocks(written, damaged);
            self.failed_here(refused);
        }
        Ok(())
    }

    /// What stands for blocks at the server.
    fn ticket(&self, spans: Vec<ReadSpan>) -> Result<Vec<u8>, TransferError> {
        let read = ReadRequest { spans, manner: self.manner };
        match self.through.clone() {
            None => marked(READ, &read),
            Some(through) => {
                let lane = through.lane(self.stream);
                let Through { server: from, token, .. } = through;
                marked(RELAY, &RelayRequest { from, token, lane, read })
            }
        }
    }

    /// Sends what is asked for over one upload.
    async fn send(
        &self,
        client: &Client,
        session: &str,
        hashes: Arc<Hashes>,
        mut asked: mpsc::UnboundedReceiver<Asked>,
    ) -> Result<(), Failed> {
        tune::steer(client.wire(), self.manner);
        let write = WriteCommand { session: session.to_owned() };
        let command = match self.through.clone() {
            None => marked(WRITE, &write)?,
            Some(through) => {
                let (lane, manner) = (through.lane(self.stream), self.manner);
                let Through { server: to, token, .. } = through;
                marked(RELAY_WRITE, &RelayWriteCommand { to, token, lane, write, manner })?
            }
        };
        let (mut sender, answers) = client.upload(&FlightDescriptor::new_cmd(command), &SCHEMA)?;
        // The server answers nothing before it has heard something.
        sender.say(&[]).await?;
        self.event(Event::Opened { stream: self.stream });
        let mut hearing = JoinSet::new();
        hearing.spawn(self.clone().hear(answers));
        let sent = async {
            while let Some(Asked { spans, .. }) = asked.recv().await {
                let Spans::Here(spans) = spans else { continue };
                self.send_request(&mut sender, spans, hashes.clone()).await?;
            }
            Ok::<(), Failed>(())
        };
        // Why an upload was ended is in its answers; who does not answer any more is sent nothing more.
        let ended = tokio::select! {
            heard = hearing.join_next() => return heard_to_end(heard),
            sent = sent => sent,
        };
        match ended {
            Ok(()) => sender.finish().await?,
            Err(failed @ Failed::Here(_)) => return Err(failed),
            Err(Failed::Way(_)) => {}
        }
        heard_to_end(hearing.join_next().await)
    }

    async fn send_request(
        &self,
        sender: &mut godwit_flight::Sender,
        spans: Vec<SourceSpan>,
        hashes: Arc<Hashes>,
    ) -> Result<(), Failed> {
        let (ready, mut batches) = mpsc::channel::<Result<(RecordBatch, ReadFailures), TransferError>>(2);
        let compress = self.manner.compress;
        tokio::task::spawn_blocking(move || {
            for read in BlockReader::new(spans, hashes, compress) {
                let failed = read.is_err();
                if ready.blocking_send(read).is_err() || failed {
                    break;
                }
            }
        });
        while let Some(read) = batches.recv().await {
            let (batch, unreadable) = read?;
            self.failed_here(unreadable);
            if batch.num_rows() > 0 {
                sender.send(&batch, &[]).await?;
            }
        }
        Ok(())
    }

    /// Takes the server's answers as they come.
    async fn hear(
        self,
        answers: impl Future<Output = Result<godwit_flight::Answered, FlightError>>,
    ) -> Result<(), Failed> {
        let mut answers = answers.await?;
        while let Some(answer) = answers.next().await? {
            self.hear_one(&answer)?;
        }
        Ok(())
    }

    fn hear_one(&self, answer: &Bytes) -> Result<(), TransferError> {
        let Taken { written, damaged, refused } = parse(answer)?;
        self.blocks(written, damaged);
        self.refused(refused);
        Ok(())
    }
}

/// How an upload ended. A server that ends one that was not finished is gone on with over another connection.
fn heard_to_end(heard: Option<Result<Result<(), Failed>, tokio::task::JoinError>>) -> Result<(), Failed> {
    match heard {
        Some(Ok(Err(failed))) => Err(failed),
        _ => Err(Failed::Way(FlightError::Malformed { problem: "the upload ended before it was whole" })),
    }
}

/// What kept a stream from its work.
enum Failed {
    /// The connection, or the other end.
    Way(FlightError),
    /// This machine.
    Here(TransferError),
}

impl From<FlightError> for Failed {
    fn from(error: FlightError) -> Self {
        Self::Way(error)
    }
}

impl From<TransferError> for Failed {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Flight(error) => Self::Way(error),
            // What is not understood may be bits that flipped.
            TransferError::Refused { .. } => Self::Way(FlightError::Malformed { problem: "it is no answer of ours" }),
            error => Self::Here(error),
        }
    }
}
