//! The data plane: Arrow Flight over gRPC, compatible with any stock client, without copying what is sent.
//!
//! Flows in and out: Arrow record batches, with a few bytes of metadata each. [`server`] implements `DoGet`, `DoPut` and
//! `DoExchange` itself, on the HTTP/2 layer: the buffers of a batch are written to the socket from their place in memory,
//! behind a few bytes of framing (module `message`), in frames of 1 MiB. All other calls go to a tonic service. [`client`]
//! is the other end: received data are copied once, into aligned memory. Both ends work with stock ones.
//!
//! The meaning of tickets, authorization and the source of the data are decided by the caller's [`DataPlane`].

mod access_log;
mod auth;
mod authorizer;
mod batch_split;
pub mod client;
mod codec;
mod dataset;
mod dataset_service;
mod encoding;
mod error;
mod error_reason;
mod file_service;
mod frame_tracker;
mod low_water;
pub mod measure;
mod message;
mod metrics;
pub mod pool;
mod protocol_detection;
mod reflection;
mod reload_handle;
mod segments;
pub mod server;
mod socket_handle;
mod sql;
mod tickets;
mod tls;
pub mod trace;
mod transport;
pub mod web;

pub use access_log::{AccessLog, AccessRecord};
pub use arrow_flight::FlightDescriptor;
pub use auth::{
    Authenticator, Identities, IdentityError, KeySetError, Principal, SUBJECT_CLAIM, Session, TokenIssuer, Visa,
    VisaIssuer,
};
pub use authorizer::{Authorizer, FileAccess, FileAuthorization};
pub use batch_split::{BATCH_SPLIT_BYTES, split_batch};
pub use client::{BatchSender, Batches, Client, PutResults as Answered};
pub use codec::FlightStreamChunk;
pub use dataset::{
    BatchReader, Catalog, Dataset, DatasetAccess, DatasetAccessList, DatasetError, DatasetKind, DatasetWriter,
    PutRequest, PutSummary, Scan, ScanPart, TEMPORARY_DIRECTORY, WriteMode, read_only_error,
};
pub use dataset_service::{DatasetCommand, DatasetService, DatasetServiceOptions, stream_batches};
pub use encoding::{decode_base64, encode_base64, encode_base64_url};
pub use error::FlightError;
pub use error_reason::ErrorReason;
pub use file_service::{FILES_PREFIX, FileInfo, FileService};
pub use metrics::{ServerMetrics, StatementWorkers};
pub use reload_handle::ReloadHandle;
pub use server::{CallLimits, DataPlane, Download, ExchangeStream, PutResultStream, Server, Upload};
pub use socket_handle::SocketHandle;
pub use sql::{
    DirectScan, DirectScanColumns, SQL_CATALOG, SQL_SCHEMA, SqlEngine, StatementDescription, StatementResult,
    StatusFuture, advertised_batch, advertised_schema, server_info_batch, server_info_schema,
};
pub use tickets::FilePart;
pub use tls::{ClientTls, ServerTls, TlsError, WARMUP_MIN_RTT, create_identity};
pub use tonic::service::Routes;
pub use tonic::{Code, Status};
pub use transport::{Address, ConnectionSecurity, Token, TransportOptions};
