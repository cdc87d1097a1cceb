//! How workers find the one they report to: a file in a directory that all of them see.
//!
//! The one who listens writes it, whole or not at all; the others wait for it. It holds a secret, so only its owner can read
//! it. A file of an earlier attempt is passed over, one of a later attempt tells the reader that its time is over.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{FleetError, VERSION, private};

/// Name of the file in the job's directory.
const FILE: &str = "rendezvous.json";
/// Bytes of a token before they are written as hexadecimal digits: nobody guesses 256 bits.
const TOKEN_BYTES: usize = 32;
/// How often the file is looked for at first, and at last: soon for a job that starts, rarely for one that waits, because
/// every look is a request to the file server from every node.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(500);

/// Where to report, and what to say there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Addresses of the one who listens, best first.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
    /// What connections have to know.
    pub token: Token,
    /// Attempt of the job it belongs to.
    pub attempt: u64,
    /// Version of godwit that wrote it.
    pub version: String,
}

/// A secret of one attempt. It is not printed with `{:?}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// A new one from the system's source of randomness.
    ///
    /// # Errors
    /// When the system has none.
    pub fn random() -> Result<Self, FleetError> {
        const SOURCE: &str = "/dev/urandom";
        let mut bytes = [0; TOKEN_BYTES];
        let read = File::open(SOURCE).and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(FleetError::file("read", SOURCE))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// One that was made elsewhere.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its letters, to be sent.
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
    /// For one who listens there, with a new token and this program's version.
    ///
    /// # Errors
    /// When there is no randomness for a token.
    pub fn at(address: SocketAddr, attempt: u64) -> Result<Self, FleetError> {
        Ok(Self {
            addresses: vec![address.ip()],
            port: address.port(),
            token: Token::random()?,
            attempt,
            version: VERSION.to_owned(),
        })
    }

    /// The file in a job's directory.
    pub fn path(job_directory: &Path) -> PathBuf {
        job_directory.join(FILE)
    }

    /// Puts it into the job's directory, in one step, in place of an earlier attempt's.
    ///
    /// # Errors
    /// [`FleetError::Superseded`] where a later attempt's is there already; when the file system refuses.
    pub fn publish(&self, job_directory: &Path) -> Result<(), FleetError> {
        private::directory(job_directory)?;
        let path = Self::path(job_directory);
        // What cannot be read is replaced: whoever waits could not have used it.
        if let Ok(Some(present)) = read(&path)
            && present.attempt > self.attempt
        {
            return Err(FleetError::Superseded { own: self.attempt, current: present.attempt });
        }
        let bytes = serde_json::to_vec_pretty(self).expect("addresses, numbers and strings can be written as JSON");
        private::replace(&path, &bytes)
    }

    /// Takes it away again, unless another one has its place by now.
    pub fn withdraw(&self, job_directory: &Path) {
        let path = Self::path(job_directory);
        if read(&path).is_ok_and(|present| present.as_ref() == Some(self)) {
            // Best effort: where it stays, nobody listens there.
            let _ = fs::remove_file(path);
        }
    }

    /// Waits until this attempt's file is there, at most for `patience`, and until `is_cancelled` says so.
    ///
    /// # Errors
    /// [`FleetError::NoRendezvous`] when it does not come; [`FleetError::Superseded`] when a later attempt's does;
    /// [`FleetError::VersionMismatch`] when another version wrote it; [`FleetError::Cancelled`].
    pub fn wait(
        job_directory: &Path,
        attempt: u64,
        patience: Duration,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Self, FleetError> {
        let path = Self::path(job_directory);
        let start = Instant::now();
        let mut pause = FIRST_POLL;
        loop {
            // On NFS, opening the directory is what makes a new file in it show up.
            let _ = File::open(job_directory);
            if let Some(found) = read(&path)?.filter(|found| found.attempt >= attempt) {
                return found.expect_of(attempt, &path);
            }
            if is_cancelled() {
                return Err(FleetError::Cancelled);
            }
            let waited = start.elapsed();
            if waited >= patience {
                return Err(FleetError::NoRendezvous { path, waited_s: waited.as_secs() });
            }
            std::thread::sleep(pause.min(patience - waited));
            pause = (pause * 2).min(LAST_POLL);
        }
    }

    fn expect_of(self, attempt: u64, path: &Path) -> Result<Self, FleetError> {
        if self.attempt > attempt {
            return Err(FleetError::Superseded { own: attempt, current: self.attempt });
        }
        if self.version != VERSION {
            let (path, ours) = (path.to_owned(), VERSION.to_owned());
            return Err(FleetError::VersionMismatch { path, theirs: self.version, ours });
        }
        Ok(self)
    }
}

fn read(path: &Path) -> Result<Option<Rendezvous>, FleetError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // On NFS, a file that was replaced while it was open.
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(None),
        Err(source) => return Err(FleetError::File { action: "read", path: path.to_owned(), source }),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|source| {
        // Another version may have other fields; that it is another version is what the user can do something about.
        match serde_json::from_slice(&bytes) {
            Ok(Writer { version }) if version != VERSION => {
                FleetError::VersionMismatch { path: path.to_owned(), theirs: version, ours: VERSION.to_owned() }
            }
            _ => FleetError::BadRendezvous { path: path.to_owned(), source },
        }
    })
}

/// The one field that every version writes.
#[derive(Deserialize)]
struct Writer {
    version: String,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SOON: Duration = godwit_tests::patience::PATIENCE;

    fn sample(attempt: u64) -> Rendezvous {
        Rendezvous::at("10.1.2.3:4567".parse().unwrap(), attempt).unwrap()
    }

    #[test]
    fn who_waits_gets_what_was_written_and_only_the_owner_can_read_it() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("job");
        let written = sample(3);
        // All have looked and found nothing before there is something.
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
        assert_eq!((mode(&directory), mode(&Rendezvous::path(&directory))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn attempts_before_are_passed_over_and_attempts_after_end_the_reader() {
        let scratch = tempfile::tempdir().unwrap();
        let wait = |attempt, patience| Rendezvous::wait(scratch.path(), attempt, patience, || false);
        sample(3).publish(scratch.path()).unwrap();
        let error = wait(4, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, FleetError::NoRendezvous { .. }), "{error}");
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
        fs::write(Rendezvous::path(scratch.path()), "{\"version\": \"9.0.0\", \"more\": 1}").unwrap();
        let error = Rendezvous::wait(scratch.path(), 0, SOON, || false).unwrap_err();
        assert!(matches!(error, FleetError::VersionMismatch { .. }), "{error}");
        fs::write(Rendezvous::path(scratch.path()), "{\"addresses\": [").unwrap();
        let error = Rendezvous::wait(scratch.path(), 0, SOON, || false).unwrap_err();
        assert!(matches!(error, FleetError::BadRendezvous { .. }), "{error}");
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
