//! Transfer of whole files: the interface between a data server and the service that reads and writes its files.
//!
//! The server passes tickets, descriptor commands and actions that begin with [`FILES_PREFIX`] to this service
//! unparsed.

use arrow_schema::SchemaRef;
use bytes::Bytes;
use godwit_dataset::Principal;

use crate::call_streams::{Download, PutResultStream, StatusFuture};
use crate::codec::FlightStreamChunk;
use crate::server::Upload;

/// Prefix of the tickets, descriptor commands and action names that concern whole files.
pub const FILES_PREFIX: &str = "godwit.files.";

/// The pieces of a file that a client can download, and the servers that have them.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Schema of the batches in which the file is downloaded.
    pub schema: SchemaRef,
    /// One ticket for each piece of the file, in the order of the pieces in the file.
    pub tickets: Vec<Bytes>,
    /// Flight location URIs of other servers that accept the same tickets.
    pub other_locations: Vec<String>,
    /// Size of the file, bytes.
    pub bytes: u64,
}

/// A service that reads and writes files for the clients of a server.
pub trait FileService: Send + Sync + 'static {
    /// Runs a Flight action and returns its results.
    fn run_action(&self, principal: Principal, action: String, body: Bytes) -> StatusFuture<'_, Vec<Bytes>>;

    /// Returns the principal of a token that this service issued for one scope; `None` for any other token.
    fn authenticate_scoped_token(&self, token: &[u8]) -> Option<Principal>;

    /// Returns the pieces and locations of the file that a descriptor command names.
    fn file_info(&self, principal: Principal, command: Bytes) -> StatusFuture<'_, FileInfo>;

    /// Starts the download of the piece that a ticket names.
    fn download(&self, principal: Principal, ticket: Bytes) -> StatusFuture<'_, Download>;

    /// Receives an upload. `first` is the first message of the upload, which contained the descriptor command.
    fn upload(
        &self,
        principal: Principal,
        command: Bytes,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> StatusFuture<'_, PutResultStream>;
}
