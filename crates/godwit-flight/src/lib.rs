//! The data plane: Arrow Flight over gRPC, compatible with stock Flight clients. Sent batches are not copied.
//!
//! Client and server exchange Arrow record batches, each with a few bytes of metadata. [`server`] implements `DoGet`,
//! `DoPut` and `DoExchange` directly on HTTP/2: the Arrow buffers of a batch are written to the socket without a copy,
//! after a few bytes of framing (module `message`), in frames of 1 MiB. A tonic service answers all other calls.
//! [`client`] copies received data once, into aligned memory. This client works with stock Flight servers, and this
//! server with stock Flight clients.
//!
//! The implementation of [`DataPlane`] that is passed to the server defines tickets, authorization and the source of
//! data.
//!
//! # Examples
//!
//! A server on a loopback port, and a client that downloads the data of a ticket:
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use godwit_flight::measure::WorkloadDataPlane;
//! use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server, TransportOptions};
//!
//! let any_port = Address::Tcp("127.0.0.1:0".parse()?);
//! let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
//! let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
//! let address = server.address().clone();
//! tokio::spawn(server.serve());
//!
//! let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
//! let mut batches = client.download("fixed/2/1000/32000/0/1").await?;
//! let mut rows = 0;
//! while let Some((batch, _metadata)) = batches.next().await? {
//!     rows += batch.num_rows();
//! }
//! assert_eq!(rows, 2000);
//! # Ok(())
//! # }
//! ```

mod access_recorder;
mod action_names;
mod call_streams;
mod call_type;
pub mod client;
mod code_name;
mod codec;
mod dataset_service;
mod error;
mod error_reason;
mod file_service;
mod file_tickets;
mod frame_tracker;
mod lease_header;
mod low_water;
pub mod measure;
mod message;
mod metrics;
pub mod pool;
mod protocol_detection;
mod reflection;
mod row_stream_writer;
mod segments;
pub mod server;
mod socket_handle;
mod sql;
mod stream_progress;
mod tickets;
mod tls;
pub mod trace;
mod transport;
mod web;

pub use arrow_flight::FlightDescriptor;
pub use tonic::service::Routes;
pub use tonic::{Code, Status};

pub use action_names::SERVER_STATUS;
pub use call_streams::{BatchItem, Download, ExchangeStream, PutResultStream, StatusFuture};
pub use client::{BatchSender, Batches, Client, ParameterValues, PutResults as Answered};
pub use codec::FlightStreamChunk;
pub use dataset_service::{DatasetCommand, DatasetService, DatasetServiceOptions, stream_batches};
pub use error::{FlightError, dataset_status};
pub use error_reason::ErrorReason;
pub use file_service::{FILES_PREFIX, FileInfo, FileService};
pub use metrics::{ServerMetrics, StatementWorkers};
pub use row_stream_writer::{RowStreamFormat, RowStreamWriter};
pub use server::{DataPlane, Server, Upload};
pub use socket_handle::SocketHandle;
pub use sql::{
    DirectScan, DirectScanColumns, SQL_CATALOG, SQL_SCHEMA, SqlEngine, StatementDescription, StatementProgress,
    StatementResult, advertised_batch, advertised_schema, server_info_batch, server_info_schema,
};
pub use tls::{ClientTls, ServerTls, TlsError, WARMUP_MIN_RTT, create_identity};
pub use transport::{Address, CallLimits, ConnectionSecurity, TransportOptions};
