//! The rendezvous file, by which the workers of a job find the head. It is in a directory that all hosts share.
//!
//! The head listens at an address and writes the file atomically; the workers wait for the file. It contains a secret,
//! so only its owner can read it. A worker ignores the file of an earlier attempt. If the file belongs to a later
//! attempt, the attempt of the worker was superseded.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{FleetError, VERSION, private_files};

/// Name of the rendezvous file in the job directory.
const FILE_NAME: &str = "rendezvous.json";
/// Number of random bytes in a token, which is written as hexadecimal digits. 256 bits cannot be guessed.
const TOKEN_BYTES: usize = 32;
/// First interval between two checks for the file: short, so that a job starts fast. The interval then grows, because
/// each check of each worker is a request to the file server.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The address and the credentials with which a worker connects to the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// IP addresses at which the head listens, in the order in which workers try them.
    pub addresses: Vec<IpAddr>,
    /// TCP port at which the head listens.
    pub port: u16,
    /// The secret with which workers authenticate to the head.
    pub token: Token,
    /// Attempt number of the job to which this rendezvous belongs.
    pub attempt: u64,
    /// Version of godwit that wrote the file.
    pub version: String,
}

/// The secret of one attempt of a job. `{:?}` does not print its value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Creates a random token from the random number generator of the system.
    ///
    /// # Errors
    /// [`FleetError`] if random bytes cannot be read.
    pub fn random() -> Result<Self, FleetError> {
        const RANDOM_SOURCE: &str = "/dev/urandom";
        let mut bytes = [0; TOKEN_BYTES];
        let read = File::open(RANDOM_SOURCE).and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(FleetError::file_error("read", RANDOM_SOURCE))?;
        Ok(Self(hex::encode(bytes)))
    }

    /// Creates a token from existing text, such as a received one.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the token, for sending it to the head.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

impl Rendezvous {
    /// Creates a rendezvous for the address of a listening head, with a new token and the version of this program.
    ///
    /// # Errors
    /// [`FleetError`] if random bytes for the token cannot be read.
    pub fn new(address: SocketAddr, attempt: u64) -> Result<Self, FleetError> {
        Ok(Self {
            addresses: vec![address.ip()],
            port: address.port(),
            token: Token::random()?,
            attempt,
            version: VERSION.to_owned(),
        })
    }

    /// Returns the path of the rendezvous file in a job directory.
    pub fn file_path(job_directory: &Path) -> PathBuf {
        job_directory.join(FILE_NAME)
    }

    /// Writes the rendezvous file into the job directory, atomically. Replaces the file of an earlier attempt.
    ///
    /// # Errors
    /// [`FleetError::Superseded`] if the file of a later attempt exists; [`FleetError::File`] if the file cannot be
    /// written.
    pub fn publish(&self, job_directory: &Path) -> Result<(), FleetError> {
        private_files::create_private_directory(job_directory)?;
        let path = Self::file_path(job_directory);
        // Replace a malformed file as well, because no worker could have used it.
        if let Ok(Some(present)) = read_file(&path)
            && present.attempt > self.attempt
        {
            return Err(FleetError::Superseded { own: self.attempt, current: present.attempt });
        }
        let bytes = serde_json::to_vec_pretty(self).expect("addresses, numbers and strings can be written as JSON");
        private_files::replace_file(&path, &bytes)
    }

    /// Removes the rendezvous file, unless another rendezvous has replaced it.
    pub fn remove(&self, job_directory: &Path) {
        let path = Self::file_path(job_directory);
        if read_file(&path).is_ok_and(|present| present.as_ref() == Some(self)) {
            // Ignore the error: if the file remains, its address is harmless, because no process listens there.
            let _ = fs::remove_file(path);
        }
    }

    /// Waits for the rendezvous file of attempt `attempt`, for at most `timeout` or until `is_cancelled` returns true.
    ///
    /// # Errors
    /// [`FleetError::RendezvousTimeout`] if the file does not appear in time; [`FleetError::Superseded`] if it belongs
    /// to a later attempt; [`FleetError::VersionMismatch`] if another version of godwit wrote it;
    /// [`FleetError::Cancelled`].
    pub fn wait(
        job_directory: &Path,
        attempt: u64,
        timeout: Duration,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Self, FleetError> {
        let path = Self::file_path(job_directory);
        let start = Instant::now();
        let mut pause = MIN_POLL_INTERVAL;
        loop {
            // On NFS, opening the directory makes a file visible that another host has created in it.
            let _ = File::open(job_directory);
            if let Some(found) = read_file(&path)?.filter(|found| found.attempt >= attempt) {
                return found.check_attempt_and_version(attempt, &path);
            }
            if is_cancelled() {
                return Err(FleetError::Cancelled);
            }
            let waited = start.elapsed();
            if waited >= timeout {
                return Err(FleetError::RendezvousTimeout { path, waited_s: waited.as_secs() });
            }
            std::thread::sleep(pause.min(timeout - waited));
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    fn check_attempt_and_version(self, attempt: u64, path: &Path) -> Result<Self, FleetError> {
        if self.attempt > attempt {
            return Err(FleetError::Superseded { own: attempt, current: self.attempt });
        }
        if self.version != VERSION {
            let (path, own_version) = (path.to_owned(), VERSION.to_owned());
            return Err(FleetError::VersionMismatch { path, file_version: self.version, own_version });
        }
        Ok(self)
    }
}

fn read_file(path: &Path) -> Result<Option<Rendezvous>, FleetError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // On NFS, this error means that the file was replaced while it was open.
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(None),
        Err(source) => return Err(FleetError::File { action: "read", path: path.to_owned(), source }),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|source| {
        // A file of another version may have other fields. Report the version, because the user can act on that.
        match serde_json::from_slice(&bytes) {
            Ok(VersionField { version }) if version != VERSION => FleetError::VersionMismatch {
                path: path.to_owned(),
                file_version: version,
                own_version: VERSION.to_owned(),
            },
            _ => FleetError::InvalidRendezvous { path: path.to_owned(), source },
        }
    })
}

/// The only field that the rendezvous file has in every version.
#[derive(Deserialize)]
struct VersionField {
    version: String,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SOON: Duration = godwit_tests::wait::WAIT_TIMEOUT;

    fn sample(attempt: u64) -> Rendezvous {
        Rendezvous::new("10.1.2.3:4567".parse().unwrap(), attempt).unwrap()
    }

    #[test]
    fn waiting_workers_get_what_was_written_and_only_the_owner_can_read_it() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("job");
        let written = sample(3);
        // Create the file only after each worker has looked for it once.
        let all_looked = std::sync::Barrier::new(5);
        let wait = || {
            let first = std::cell::Cell::new(true);
            let is_cancelled = || {
                if first.replace(false) {
                    all_looked.wait();
                }
                false
            };
            Rendezvous::wait(&directory, 3, SOON, is_cancelled).unwrap()
        };
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
            all_looked.wait();
            written.publish(&directory).unwrap();
            for reader in waiting {
                assert_eq!(reader.join().unwrap(), written);
            }
        });
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&Rendezvous::file_path(&directory))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn attempts_before_are_passed_over_and_attempts_after_end_the_reader() {
        let scratch = tempfile::tempdir().unwrap();
        let wait = |attempt, patience| Rendezvous::wait(scratch.path(), attempt, patience, || false);
        sample(3).publish(scratch.path()).unwrap();
        let error = wait(4, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, FleetError::RendezvousTimeout { .. }), "{error}");
        let error = Rendezvous::wait(scratch.path(), 4, SOON, || true).unwrap_err();
        assert!(matches!(error, FleetError::Cancelled), "{error}");
        let error = wait(2, SOON).unwrap_err();
        assert!(matches!(error, FleetError::Superseded { own: 2, current: 3 }), "{error}");
        let error = sample(2).publish(scratch.path()).unwrap_err();
        assert!(matches!(error, FleetError::Superseded { own: 2, current: 3 }), "{error}");
        sample(4).publish(scratch.path()).unwrap();
        assert_eq!(wait(4, SOON).unwrap().attempt, 4);
    }

    #[test]
    fn other_versions_and_other_files_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let other = Rendezvous { version: "0.0.9".into(), ..sample(0) };
        other.publish(scratch.path()).unwrap();
        let error = Rendezvous::wait(scratch.path(), 0, SOON, || false).unwrap_err().to_string();
        assert!(error.contains("written by godwit 0.0.9, but this is godwit"), "{error}");
        fs::write(Rendezvous::file_path(scratch.path()), "{\"version\": \"9.0.0\", \"more\": 1}").unwrap();
        let error = Rendezvous::wait(scratch.path(), 0, SOON, || false).unwrap_err();
        assert!(matches!(error, FleetError::VersionMismatch { .. }), "{error}");
        fs::write(Rendezvous::file_path(scratch.path()), "{\"addresses\": [").unwrap();
        let error = Rendezvous::wait(scratch.path(), 0, SOON, || false).unwrap_err();
        assert!(matches!(error, FleetError::InvalidRendezvous { .. }), "{error}");
        sample(0).publish(scratch.path()).expect("a file that cannot be read is replaced");
    }

    #[test]
    fn tokens_differ_and_are_not_printed() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), 2 * TOKEN_BYTES);
        assert!(!format!("{:?}", sample(0)).contains(&sample(0).token.reveal()[..8]));
        assert_eq!(format!("{one:?}"), "Token(..)");
    }
}
