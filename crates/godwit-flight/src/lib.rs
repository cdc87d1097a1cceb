//! The data plane: Arrow Flight over gRPC, as any stock client speaks it, without copying what is sent.
//!
//! Flows in and out: Arrow record batches, with a few bytes of metadata each. [`server`] answers `DoGet`, `DoPut` and `DoExchange`
//! itself, on the HTTP/2 layer: the buffers of a batch go to the socket where they lie, behind a few bytes of framing
//! (module `message`), in frames of 1 MiB. All other calls go to a tonic service. [`client`] is the other end: what arrives is
//! copied once, into aligned memory. Both ends talk to stock ones; between two of ours nothing is copied twice.
//!
//! What tickets mean, who may see what and where data comes from is decided by the caller's [`DataPlane`].

mod access;
pub mod client;
mod codec;
mod current;
mod cut;
mod dataset;
mod encoding;
mod error;
mod error_reason;
mod files;
mod first_words;
mod frames;
mod gate;
mod low_water;
pub mod measure;
mod message;
mod metrics;
mod node;
pub mod pool;
mod reflection;
mod rules;
mod segments;
pub mod server;
mod sql;
mod tickets;
mod tls;
pub mod trace;
mod transport;
pub mod web;
mod wire;

pub use access::{AccessLog, Accessed};
pub use arrow_flight::FlightDescriptor;
pub use client::{Answers as Answered, Batches, Client, Sender};
pub use codec::Chunk;
pub use current::Current;
pub use cut::{PIECE_BYTES, cut};
pub use dataset::{
    BatchReader, Catalog, Dataset, DatasetError, DatasetWriter, Existing, Kind, Part, Put, Scan, Stored, TEMPORARY,
    Touched, Touches, read_only,
};
pub use encoding::{decode_base64, encode_base64, encode_base64_url};
pub use error::FlightError;
pub use error_reason::ErrorReason;
pub use files::{FILES_MARK, FileInfo, FileService};
pub use gate::{Caller, Gate, Identities, IdentityError, Issuer, KeysError, SUBJECT, Session, Visa, VisaIssuer};
pub use metrics::{Metrics, StatementWorkers};
pub use node::{DatasetCommand, Node, NodeOptions, streamed};
pub use rules::{FileUse, FileVerdict, Rules};
pub use server::{Answers, CallerLimits, Chunks, DataPlane, Download, Server, Upload};
pub use sql::{
    Description, Pending, PlainColumns, PlainRead, Ran, SQL_CATALOG, SQL_SCHEMA, SqlEngine, server_info_batch,
    server_info_schema, told_batch, told_columns,
};
pub use tickets::FilePart;
pub use tls::{ClientTls, ServerTls, TlsError, WARMED_FROM, make_identity};
pub use tonic::service::Routes;
pub use tonic::{Code, Status};
pub use transport::{Access, Address, Token, Tuning};
pub use wire::Wire;
