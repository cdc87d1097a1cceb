//! Blocks that are asked for before it is known what there is to be copied, which saves their round trip.
//!
//! Each connection asks for its share of the first blocks of the source as soon as it is made, while the server is asked what is there. What it
//! then says decides: where the files are in the state that the blocks are of, they are the first that their connections were asked for. Else they are let go, and
//! nothing was lost but what was on its way.

use godwit_flight::{Batches, Client, FlightError};

use super::CopyOptions;
use crate::inbox::is_begun;
use crate::manifest::Links;
use crate::place::Place;
use crate::plan::{Naming, name_of};
use crate::protocol::{AHEAD, AheadRequest, AheadSpan, FileState, ReadSpan, marked, parse};
use crate::select::split_glob;
use crate::session::StreamId;
use crate::task::Task;
use crate::tune::{self, Manner};

/// What a copy seems to be of.
#[derive(Clone, Debug)]
pub(super) struct Guess {
    path: String,
    streams: u32,
    manner: Manner,
}

impl Guess {
    /// What a copy seems to be of, where that is one file or directory of which nothing is here.
    pub(super) fn of(sources: &[Place], destination: &Place, naming: Naming, options: &CopyOptions) -> Option<Self> {
        let ([Place::There(remote)], Place::Here(target)) = (sources, destination) else { return None };
        let path = remote.path.trim_matches('/');
        let is_plain = !options.dry_run && options.bits_per_s.is_none() && !options.compress.is_delta();
        let is_plain = is_plain && options.include.is_empty() && options.exclude.is_empty();
        let is_plain = is_plain && options.links == Links::Follow;
        if !is_plain || path.is_empty() || !matches!(split_glob(path), Ok(None)) {
            return None;
        }
        let target = match naming {
            Naming::AsTold => target.clone(),
            Naming::Below | Naming::BelowIfFile => target.join(name_of(path).ok()?),
        };
        let streams = tune::streams(options.mode, options.streams, tune::FAR);
        let manner = Manner { mode: options.mode, bytes_per_s: None, compress: options.compress.is_zstd() };
        (!is_begun(&target)).then(|| Self { path: path.to_owned(), streams, manner })
    }

    /// Connections that its first blocks are shared among.
    pub(super) fn streams(&self) -> u32 {
        self.streams
    }

    /// Asks for the share of a connection.
    pub(super) fn ask(&self, client: &Client, stream: StreamId) -> Option<Ahead> {
        let (path, streams, manner) = (self.path.clone(), self.streams, self.manner);
        let ticket = marked(AHEAD, &AheadRequest { path, stream, streams, manner }).ok()?;
        let client = client.clone();
        Some(Ahead(Task::spawn(async move { client.download(ticket).await })))
    }
}

/// Blocks that were asked for. Dropping it lets them go.
pub(crate) struct Ahead(Task<Result<Batches, FlightError>>);

impl Ahead {
    /// The blocks, where they are these; `None` where they have to be asked for again.
    pub(crate) async fn batches(self, spans: &[ReadSpan]) -> Option<Batches> {
        let mut batches = self.0.await.ok()?.ok()?;
        let said = batches.next_chunk().await.ok()??;
        let come: Vec<AheadSpan> = parse(&said.app_metadata).ok()?;
        let wanted = spans.iter().map(|span| {
            let FileState::Version(version) = span.state else { return None };
            Some(AheadSpan { file: span.file, version, start: span.start, end: span.end })
        });
        (wanted.collect::<Option<Vec<_>>>()? == come).then_some(batches)
    }
}
