//! Transfers files for `godwit run`: fetches reads from servers or pools, and copies outputs to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_cli::cli::AccessArgs;
use godwit_cli::failure::Failure;
use godwit_pipeline::PipelineError;
use godwit_transfer::location::Location;
use godwit_transfer::tcp_tuning::CopyMode;
use godwit_transfer::{Compression, CopyEvent, CopyObserver, CopyOptions, LinkPolicy, copy};
use godwit_workflow::{PRIVATE_FILE_PATTERN, RemoteFiles};

use super::copy::block_on_threads;
use super::credentials::credentials_for;

/// The implementation of file transfers for `godwit run`, which copies files like `godwit copy`.
#[derive(Debug)]
pub struct RemoteFileTransfer {
    access: AccessArgs,
    /// True to print messages of pools as JSON events.
    json: bool,
    threads: usize,
}

/// An observer that ignores all events of a copy, because `godwit run` only reports its steps.
struct NullObserver;

impl CopyObserver for NullObserver {
    fn on_event(&self, _: &CopyEvent) {}
}

impl RemoteFileTransfer {
    pub fn new(access: AccessArgs, json: bool, threads: usize) -> Self {
        Self { access, json, threads }
    }

    fn copy(&self, sources: &[Location], target: &Location, cancelled: &AtomicBool) -> Result<(), Failure> {
        let credentials = credentials_for(sources.iter().chain([target]), &self.access, self.json)?;
        let options = CopyOptions {
            mode: CopyMode::Fair,
            bits_per_s: None,
            streams: None,
            compression: Compression::None,
            include: Vec::new(),
            exclude: vec![PRIVATE_FILE_PATTERN.to_owned()],
            sync: false,
            dry_run: false,
            idle_timeout: self.access.wait,
            reject_hidden: false,
            mirrors: Vec::new(),
            relay: None,
            checksum_lists: Vec::new(),
            link_policy: LinkPolicy::Follow,
        };
        block_on_threads(self.threads, copy(sources, target, &credentials, &options, &NullObserver, cancelled))??;
        Ok(())
    }
}

/// Converts the failure of a copy to the error of a workflow step.
fn fetch_error(failure: Failure, address: &str, cancelled: &AtomicBool) -> PipelineError {
    if cancelled.load(Ordering::Relaxed) {
        return PipelineError::Interrupted;
    }
    PipelineError::Transfer { address: address.to_owned(), message: failure.message, kind: failure.kind }
}

impl RemoteFiles for RemoteFileTransfer {
    fn check_source(&self, address: &str) -> Result<(), String> {
        let place = Location::parse(address).map_err(|error| error.to_string())?;
        match &place {
            Location::Remote(remote) if !remote.path.trim_matches('/').is_empty() => {}
            _ => {
                return Err(format!(
                    "{address} does not name a file; write godwit+pool://NAME/PATH or grpc+tls://HOST:PORT/PATH"
                ));
            }
        }
        credentials_for([&place], &self.access, self.json).map(drop).map_err(|failure| failure.message)
    }

    fn fetch_file(&self, address: &str, path: &Path, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
        let copied = || self.copy(&[Location::parse(address)?], &Location::Local(path.to_owned()), cancelled);
        copied().map_err(|failure| fetch_error(failure, address, cancelled))
    }

    fn check_store(&self, address: &str) -> Result<(), String> {
        let place = Location::parse(address).map_err(|error| error.to_string())?;
        if matches!(place, Location::Local(_)) {
            return Err(
                "write godwit+pool://NAME/DIR or grpc+tls://HOST:PORT/DIR; local outputs are in --out".to_owned()
            );
        }
        credentials_for([&place], &self.access, self.json).map(drop).map_err(|failure| failure.message)
    }

    fn store_files(&self, paths: &[PathBuf], address: &str, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
        // The trailing `/` marks the path as a directory, which is created if it does not exist.
        let target = format!("{}/", address.trim_end_matches('/'));
        let sources: Vec<Location> = paths.iter().cloned().map(Location::Local).collect();
        let copied = Location::parse(&target).map_err(Failure::from);
        let copied = copied.and_then(|target| self.copy(&sources, &target, cancelled));
        copied.map_err(|failure| fetch_error(failure, address, cancelled))
    }
}
