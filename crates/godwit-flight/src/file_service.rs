//! Whole files, beside datasets: the interface between a server and the service that reads and writes files.
//!
//! Tickets, descriptors and actions that begin with [`FILES_PREFIX`] are not parsed here.

use arrow_schema::SchemaRef;
use bytes::Bytes;

use crate::auth::Principal;
use crate::codec::FlightStreamChunk;
use crate::server::{Download, PutResultStream, Upload};
use crate::sql::StatusFuture;

/// Prefix of the tickets, descriptor commands and action names that are about files.
pub const FILES_PREFIX: &str = "godwit.files.";

/// The locations of a file, in pieces.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Schema of the batches that the tickets stand for.
    pub schema: SchemaRef,
    /// Tickets of the pieces, in the order of the file.
    pub tickets: Vec<Bytes>,
    /// Other servers that accept the same tickets, as URIs of Arrow Flight.
    pub other_locations: Vec<String>,
    /// Size of the file, bytes.
    pub bytes: u64,
}

/// Reads and writes files for clients.
pub trait FileService: Send + Sync + 'static {
    /// Runs an action; returns its results.
    fn run_action(&self, principal: Principal, action: String, body: Bytes) -> StatusFuture<'_, Vec<Bytes>>;

    /// Returns the principal of a token that this service issued for one scope; `None` for any other token.
    fn authenticate_scoped_token(&self, token: &[u8]) -> Option<Principal>;

    /// Returns the locations of the file that a descriptor command names.
    fn file_info(&self, principal: Principal, command: Bytes) -> StatusFuture<'_, FileInfo>;

    /// Returns the data of a ticket.
    fn download(&self, principal: Principal, ticket: Bytes) -> StatusFuture<'_, Download>;

    /// Receives an upload under a descriptor command. `first` is the message that carried the command.
    fn upload(
        &self,
        principal: Principal,
        command: Bytes,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> StatusFuture<'_, PutResultStream>;
}
