//! Cluster runs of any job: a *head* starts workers, sends them commands, and receives their events and uploads.
//!
//! A job defines its messages as one type that implements [`JobMessages`]. At the head, a [`WorkerPool`] publishes the
//! rendezvous file, starts the [`WorkerProcesses`], accepts workers that join, and reports those that are lost. At a
//! worker, [`run_worker`] connects to the head, receives the task, and connects again after a loss; [`WorkerInputs`]
//! passes the commands of the head to the main thread. [`HeadEndpoint`] and [`WorkerEndpoint`] carry the messages and
//! data over Arrow Flight. Small messages have a connection of their own, so that data transfers never delay a
//! keep-alive.
//!
//! The work itself, and the decision which worker receives which part of it, belong to the jobs;
//! [`godwit_fleet::Leases`] assigns numbered items.

pub mod bytes_batch;
mod credentials;
mod download_source;
mod error;
mod head_endpoint;
mod messages;
mod worker_endpoint;
mod worker_inputs;
mod worker_pool;
mod worker_processes;
mod worker_session;

pub use credentials::ClusterCredentials;
pub use download_source::{DownloadBatches, DownloadSource, NoDownloads};
pub use error::{ClusterError, ConnectionError};
pub use head_endpoint::{CommandSender, HeadEndpoint, HeadEvent};
pub use messages::{JobMessages, NoTicket};
pub use worker_endpoint::{DownloadReader, WorkerConnection, WorkerEndpoint};
pub use worker_inputs::{WorkerInputSender, WorkerInputs};
pub use worker_pool::{ClusterOptions, WorkerPool, WorkerPoolEvent};
pub use worker_processes::{WorkerCommand, WorkerProcesses};
pub use worker_session::{FailureReport, WorkerError, WorkerOptions, WorkerSession, host_name, run_worker};
