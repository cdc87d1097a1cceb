//! Files as they are, beside datasets: what a node hands on to whoever knows how to read and write them.
//!
//! Tickets, descriptors and actions that begin with [`FILES_MARK`] are not looked into here.

use arrow_schema::SchemaRef;
use bytes::Bytes;

use crate::codec::Chunk;
use crate::gate::Caller;
use crate::server::{Answers, Download, Upload};
use crate::sql::Pending;

/// What tickets, commands of descriptors, and names of actions begin with that are about files.
pub const FILES_MARK: &str = "godwit.files.";

/// Where a file is to be had, in pieces.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Columns of the batches that tickets stand for.
    pub schema: SchemaRef,
    /// Tickets of the pieces, in the order of the file.
    pub tickets: Vec<Bytes>,
    /// Other servers that take the same tickets, as URIs of Arrow Flight.
    pub also_at: Vec<String>,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Reads and writes files for callers.
pub trait FileService: Send + Sync + 'static {
    /// Does what an action says. The answer is a list of messages.
    fn act(&self, caller: Caller, action: String, body: Bytes) -> Pending<'_, Vec<Bytes>>;

    /// Who shows a token that was granted here for one purpose; `None` where it is no such token.
    fn granted(&self, token: &[u8]) -> Option<Caller>;

    /// Says where the file is to be had that the command of a descriptor names.
    fn info(&self, caller: Caller, command: Bytes) -> Pending<'_, FileInfo>;

    /// Sends what a ticket stands for.
    fn send(&self, caller: Caller, ticket: Bytes) -> Pending<'_, Download>;

    /// Takes what is uploaded under the command of a descriptor. `first` is the message that it came with.
    fn take(&self, caller: Caller, command: Bytes, first: Option<Chunk>, upload: Upload) -> Pending<'_, Answers>;
}
