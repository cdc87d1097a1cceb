//! Reads of `godwit run` that lie on a server, or in a pool of them, and what it stores there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_pipeline::{FetchReads, PRIVATE, PipelineError};
use godwit_transfer::place::Place;
use godwit_transfer::tune::CopyMode;
use godwit_transfer::{Compression, CopyEvent, CopyObserver, CopyOptions, Links, copy};

use super::access::credentials_for;
use super::copy::on_threads;
use crate::cli::AccessArgs;
use crate::failure::Failure;

/// Copies as `godwit copy` does.
#[derive(Debug)]
pub struct Fetching {
    access: AccessArgs,
    /// Whether what it tells is for programs.
    json: bool,
    threads: usize,
}

/// A run tells of its steps, not of the blocks of a copy.
struct Silent;

impl CopyObserver for Silent {
    fn event(&self, _: &CopyEvent) {}
}

impl Fetching {
    pub fn new(access: AccessArgs, json: bool, threads: usize) -> Self {
        Self { access, json, threads }
    }

    fn copy(&self, sources: &[Place], target: &Place, cancelled: &AtomicBool) -> Result<(), Failure> {
        let credentials = credentials_for(sources.iter().chain([target]), &self.access, self.json)?;
        let options = CopyOptions {
            mode: CopyMode::Fair,
            bits_per_s: None,
            streams: None,
            compress: Compression::None,
            include: Vec::new(),
            exclude: vec![PRIVATE.to_owned()],
            sync: false,
            dry_run: false,
            patience: self.access.wait,
            strict: false,
            also_from: Vec::new(),
            relay: None,
            check: Vec::new(),
            links: Links::Follow,
        };
        on_threads(self.threads, copy(sources, target, &credentials, &options, &Silent, cancelled))??;
        Ok(())
    }
}

/// Why a copy failed, as a step of a run.
fn failed(failure: Failure, address: &str, cancelled: &AtomicBool) -> PipelineError {
    if cancelled.load(Ordering::Relaxed) {
        return PipelineError::Interrupted;
    }
    PipelineError::Fetch { address: address.to_owned(), message: failure.message, blame: failure.exit.into() }
}

impl FetchReads for Fetching {
    fn check(&self, address: &str) -> Result<(), String> {
        let place = Place::parse(address).map_err(|error| error.to_string())?;
        match &place {
            Place::There(remote) if !remote.path.trim_matches('/').is_empty() => {}
            _ => {
                return Err(format!(
                    "{address} names no file; write godwit+pool://NAME/PATH or grpc+tls://HOST:PORT/PATH"
                ));
            }
        }
        credentials_for([&place], &self.access, self.json).map(drop).map_err(|failure| failure.message)
    }

    fn fetch(&self, address: &str, path: &Path, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
        let copied = || self.copy(&[Place::parse(address)?], &Place::Here(path.to_owned()), cancelled);
        copied().map_err(|failure| failed(failure, address, cancelled))
    }

    fn check_store(&self, address: &str) -> Result<(), String> {
        let place = Place::parse(address).map_err(|error| error.to_string())?;
        if matches!(place, Place::Here(_)) {
            return Err("write godwit+pool://NAME/DIR or grpc+tls://HOST:PORT/DIR; what is here is in --out".to_owned());
        }
        credentials_for([&place], &self.access, self.json).map(drop).map_err(|failure| failure.message)
    }

    fn store(&self, paths: &[PathBuf], address: &str, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
        // A name that ends so is that of a directory, which need not be there yet.
        let target = format!("{}/", address.trim_end_matches('/'));
        let sources: Vec<Place> = paths.iter().cloned().map(Place::Here).collect();
        let copied = Place::parse(&target).map_err(Failure::from);
        let copied = copied.and_then(|target| self.copy(&sources, &target, cancelled));
        copied.map_err(|failure| failed(failure, address, cancelled))
    }
}
