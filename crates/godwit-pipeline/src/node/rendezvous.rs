//! Where nodes find the head of their run: a private file in the run directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_exchange::Keys;
use serde::{Deserialize, Serialize};

use super::malformed;
use crate::error::PipelineError;

/// How often to look whether the head is there.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How to reach the head, and what it takes to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Version of the head's program.
    pub version: String,
    /// Where it is.
    pub address: SocketAddr,
    /// What only nodes of this run know.
    pub token: String,
}

impl Rendezvous {
    /// Writes the file, whole or not at all, for this user alone.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let aside = path.with_extension("aside");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(aside, path)
    }

    /// Reads the file, once it is there.
    ///
    /// # Errors
    /// [`PipelineError::File`] where it is not there in time.
    pub(super) fn wait_for(path: &Path, wait: Duration, cancelled: &AtomicBool) -> Result<Self, PipelineError> {
        let started = Instant::now();
        loop {
            match fs::read(path) {
                Ok(bytes) => return serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string())),
                Err(_) if cancelled.load(Ordering::Relaxed) => return Err(PipelineError::Interrupted),
                Err(error) if error.kind() == io::ErrorKind::NotFound && started.elapsed() < wait => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                Err(error) => return Err(PipelineError::file("read", path)(error)),
            }
        }
    }

    /// What it takes to talk to others of the run.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn keys(&self, _path: &Path) -> Result<Keys, PipelineError> {
        Keys::with_token(&self.token).ok_or_else(|| malformed("the token is none".into()))
    }
}
