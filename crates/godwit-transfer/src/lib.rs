//! Copies of files over networks with a high bandwidth and a long round-trip time. Every block is verified before it is
//! written. Interrupted copies resume, and other traffic keeps its bandwidth.
//!
//! With [`godwit_delta`], a genome is sent as its differences from a reference.
//!
//! # Examples
//!
//! Download a file that must match a list of checksums:
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::sync::Arc;
//! use std::fs;
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! # use godwit_dataset::{Catalog, Dataset, DatasetError};
//! # use godwit_flight::{Address, ConnectionSecurity, DatasetService, DatasetServiceOptions, Server, TransportOptions};
//! use godwit_transfer::location::Location;
//! use godwit_transfer::tcp_tuning::CopyMode;
//! use godwit_transfer::{Compression, CopyOptions, Credentials, LinkPolicy, TransferError, copy};
//! # use godwit_transfer::{CopyEvent, CopyObserver, DirectoryFileService, FileServiceOptions};
//!
//! # #[derive(Debug)]
//! # struct NoDatasets;
//! # impl Catalog for NoDatasets {
//! #     fn names(&self) -> Result<Vec<String>, DatasetError> {
//! #         Ok(Vec::new())
//! #     }
//! #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
//! #         Err(DatasetError::NotFound { name: name.to_owned() })
//! #     }
//! # }
//! # struct NoEvents;
//! # impl CopyObserver for NoEvents {
//! #     fn on_event(&self, _event: &CopyEvent) {}
//! # }
//! # let (root, local) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # fs::write(root.path().join("a.bam"), "abc")?;
//! # let files = Arc::new(DirectoryFileService::new(root.path().to_owned(), FileServiceOptions::default()));
//! # let options = DatasetServiceOptions::default();
//! # let service = DatasetService::with_files(Arc::new(NoDatasets), None, Some(files), options);
//! # let (routes, security) = (service.routes(), ConnectionSecurity::default());
//! # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
//! # let server = Server::bind(&any_port, service, routes, security, TransportOptions::default()).await?;
//! # let Address::Tcp(address) = *server.address() else { unreachable!() };
//! # tokio::spawn(server.serve());
//! let list = local.path().join("MD5SUMS");
//! fs::write(&list, "900150983cd24fb0d6963f7d28e17f72  a.bam\n")?;
//! let options = CopyOptions {
//!     mode: CopyMode::Fair,
//!     bits_per_s: Some(100_000_000),
//!     streams: None,
//!     compression: Compression::Zstd,
//!     include: Vec::new(),
//!     exclude: Vec::new(),
//!     sync: false,
//!     dry_run: false,
//!     idle_timeout: Duration::from_secs(60),
//!     reject_hidden: false,
//!     mirrors: Vec::new(),
//!     relay: None,
//!     checksum_lists: vec![list.clone()],
//!     link_policy: LinkPolicy::Follow,
//! };
//! let source = [Location::parse(&format!("grpc+tcp://{address}/a.bam"))?];
//! let destination = Location::Local(local.path().join("a.bam"));
//! let (credentials, cancelled) = (Credentials::default(), AtomicBool::new(false));
//! let summary = copy(&source, &destination, &credentials, &options, &NoEvents, &cancelled).await?;
//! assert_eq!(summary.files, 1);
//! assert_eq!(fs::read(local.path().join("a.bam"))?, b"abc");
//!
//! // Another checksum is listed: the copy fails.
//! fs::write(&list, "d41d8cd98f00b204e9800998ecf8427e  a.bam\n")?;
//! let destination = Location::Local(local.path().join("b.bam"));
//! let mismatch = copy(&source, &destination, &credentials, &options, &NoEvents, &cancelled).await;
//! assert!(matches!(mismatch, Err(TransferError::ChecksumMismatch { .. })));
//! assert!(!local.path().join("b.bam").exists());
//! # Ok(())
//! # }
//! ```

pub mod file_listing;
pub mod location;
pub mod selection;

mod abort_on_drop;
mod block_reader;
mod blocking;
mod checksum_lists;
mod control_client;
mod copy;
mod copy_plan;
mod copy_protocol;
mod credentials;
mod delegation_tokens;
mod delta_transfer;
mod error;
mod fetch;
mod fetch_request;
mod file_receiver;
mod file_service;
mod journal;
mod prefetch_plan;
mod relay;
mod remote_files;
mod server_errors;
mod server_outage;
mod write_back;

pub use copy::{Compression, CopyOptions, copy};
pub use copy_protocol::{FileChange, StorageSpace};
pub use credentials::Credentials;
pub use error::TransferError;
pub use file_listing::LinkPolicy;
pub use file_service::{DirectoryFileService, FileServiceOptions};
pub use godwit_tcp::tcp_tuning;
pub use godwit_transfer_session::copy_events::{CopyEvent, CopyObserver, CopySummary, PlannedAction};
pub use godwit_transfer_session::{path_text, unix_time};
pub use relay::{RELAY_CACHE_MIN_BYTES, RelayCache};
pub use remote_files::{RemoteFiles, StoreOptions};
pub use server_outage::OutageLog;
