//! Reads of `godwit run` that lie on a server, or in a pool of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_pipeline::{Blame, FetchReads, PipelineError};
use godwit_transfer::place::Place;
use godwit_transfer::tune::CopyMode;
use godwit_transfer::{Compression, CopyEvent, CopyObserver, CopyOptions, copy};

use super::access::credentials_for;
use super::copy::on_threads;
use crate::cli::AccessArgs;
use crate::failure::{Exit, Failure};

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

    fn copy(&self, address: &str, path: &Path, cancelled: &AtomicBool) -> Result<(), Failure> {
        let source = [Place::parse(address)?];
        let credentials = credentials_for(&source, &self.access, self.json)?;
        let options = CopyOptions {
            mode: CopyMode::Fair,
            bits_per_s: None,
            streams: None,
            compress: Compression::None,
            include: Vec::new(),
            exclude: Vec::new(),
            sync: false,
            dry_run: false,
            patience: self.access.wait,
            strict: false,
            also_from: Vec::new(),
            relay: None,
            check: Vec::new(),
        };
        let here = Place::Here(path.to_owned());
        on_threads(self.threads, copy(&source, &here, &credentials, &options, &Silent, cancelled)).map(drop)
    }
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
        let Err(failure) = self.copy(address, path, cancelled) else { return Ok(()) };
        if cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        let blame = match failure.exit {
            Exit::Usage => Blame::Usage,
            Exit::Input => Blame::Input,
            Exit::Machine => Blame::Machine,
            Exit::Engine => Blame::Engine,
            Exit::Remote => Blame::Remote,
            Exit::Interrupted => Blame::Interrupted,
            Exit::Bug => Blame::Bug,
        };
        Err(PipelineError::Fetch { address: address.to_owned(), message: failure.message, blame })
    }
}
