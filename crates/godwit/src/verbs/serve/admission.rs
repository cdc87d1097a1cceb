//! Who is let into a server, and by which certificate it is known, as files say it; and both again when they have changed.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_flight::{AccessLog, Accessed, Current, Gate, Identities, Issuer, ServerTls};

use super::keys;
use crate::cli::{KeysAt, ServeArgs};
use crate::failure::{Exit, Failure, tell};

/// How often files are looked at.
const REFRESH: Duration = Duration::from_millis(500);
/// How often keys are fetched that are elsewhere: issuers publish new ones days before they sign with them.
const KEYS_REFRESH: Duration = Duration::from_secs(300);

/// Where it is said.
#[derive(Clone, Debug)]
struct Files {
    tokens: Option<PathBuf>,
    keys: Option<KeysAt>,
    issuer: String,
    audience: String,
    claim: String,
    certificate: Option<(PathBuf, PathBuf)>,
    client_authority: Option<PathBuf>,
    /// Trusted where keys are fetched.
    authority: Option<PathBuf>,
}

/// Who is let in, and the certificate.

pub(super) struct Admission {
    files: Files,
    /// Those of an issuer, as they were when they were last had.
    issuer_keys: Option<String>,
    identities: Option<Current<Identities>>,
    tls: Option<ServerTls>,
}

impl Admission {
    /// As a command line has it.
    ///
    /// # Errors
    /// What cannot be read, or is none; keys that cannot be fetched.
    pub(super) async fn of(args: &ServeArgs) -> Result<Self, Failure> {
        let files = Files {
            tokens: args.tokens.clone(),
            keys: args.jwks.clone(),
            issuer: args.jwt_issuer.clone().unwrap_or_default(),
            audience: args.jwt_audience.clone().unwrap_or_default(),
            claim: args.jwt_name.clone(),
            certificate: args.tls_cert.clone().zip(args.tls_key.clone()),
            client_authority: args.tls_client_ca.clone(),
            authority: args.ca.clone(),
        };
        let issuer_keys = files.issuer_keys().await?;
        let identities = files.identities(issuer_keys.as_deref())?;
        if let Some((path, _)) = files.tokens.as_ref().zip(identities.as_ref()).filter(|(_, found)| found.is_empty()) {
            let problem = format!("{} has no tokens; make one with `godwit token NAME --tokens {0}`", path.display());
            return Err(Failure::new(Exit::Input, problem));
        }
        let tls = files.tls()?;
        Ok(Self { files, issuer_keys, identities: identities.map(Current::new), tls })
    }

    /// Who is let in.
    pub(super) fn gate(&self) -> Gate {
        self.identities.clone().map_or(Gate::Open, Gate::Identities)
    }

    /// The certificate.
    pub(super) fn tls(&self) -> Option<ServerTls> {
        self.tls.clone()
    }

    /// Genomes are served to other machines only encrypted, and only to who is known, unless somebody says that they need not be.
    ///
    /// # Errors
    /// Where neither is so.
    pub(super) fn refuse_the_open(&self, args: &ServeArgs, address: SocketAddr) -> Result<(), Failure> {
        let guarded = self.tls.is_some() && (args.tls_client_ca.is_some() || self.identities.is_some());
        if address.ip().is_loopback() || guarded || args.insecure {
            return Ok(());
        }
        let problem = format!(
            "{address} can be reached from other machines: give --tls-cert, --tls-key and --tokens (or --tls-client-ca), or say --insecure"
        );
        Err(Failure::new(Exit::Usage, problem))
    }

    /// Reads it all again whenever a file has changed, or somebody says so, until it is dropped. What cannot be read is told, and what
    /// was there stays.
    pub(super) async fn keep_fresh(mut self, reload: Arc<AtomicBool>, log: Option<Arc<dyn AccessLog>>) {
        let (mut seen, mut fetched) = (self.files.stamps(), Instant::now());
        loop {
            tokio::time::sleep(REFRESH).await;
            let stamps = self.files.stamps();
            let is_told = reload.swap(false, Ordering::Relaxed) || stamps != seen;
            let is_due = self.files.are_keys_elsewhere() && fetched.elapsed() >= KEYS_REFRESH;
            if !is_told && !is_due {
                continue;
            }
            (seen, fetched) = (stamps, Instant::now());
            let outcome = match self.read_again().await {
                Ok(()) => "in force".to_owned(),
                Err(failure) => format!("what was in force stays: {}", failure.line()),
            };
            let is_fine = outcome == "in force";
            if is_told && is_fine {
                tell("godwit: identities and certificates were read again");
            } else if !is_fine {
                tell(&format!("godwit: warning: identities and certificates: {outcome}"));
            }
            if let Some(log) = log.as_ref().filter(|_| is_told || !is_fine) {
                let (call, what) = ("Identities".to_owned(), self.files.described());
                // What cannot be recorded is told to whoever asks next.
                let _ = log.record(Accessed { call, what, outcome, ..Accessed::default() }).await;
            }
        }
    }

    async fn read_again(&mut self) -> Result<(), Failure> {
        // The rest is read even where keys cannot be fetched: a token that was taken away is not to be good until they can.
        let fetched = match self.files.issuer_keys().await {
            Ok(keys) => {
                self.issuer_keys = keys;
                Ok(())
            }
            Err(failure) => Err(failure),
        };
        let found = self.files.identities(self.issuer_keys.as_deref())?;
        if let Some((identities, found)) = self.identities.as_ref().zip(found) {
            if found.is_empty() {
                tell("godwit: warning: nobody is let in any more, for no token is known");
            }
            identities.set(found);
        }
        if let Some((tls, found)) = self.tls.as_ref().zip(self.files.tls()?) {
            tls.replace(&found);
        }
        fetched
    }
}

impl Files {
    /// The keys of an issuer, where one is asked for.
    async fn issuer_keys(&self) -> Result<Option<String>, Failure> {
        match &self.keys {
            None => Ok(None),
            Some(KeysAt::File(path)) => read(path).map(Some),
            Some(KeysAt::Url(url)) => keys::fetch(url, self.authority.as_deref()).await.map(Some),
        }
    }

    /// Who is let in; `None` where nobody is asked.
    fn identities(&self, issuer_keys: Option<&str>) -> Result<Option<Identities>, Failure> {
        if self.tokens.is_none() && issuer_keys.is_none() {
            return Ok(None);
        }
        let mut identities = Identities::default();
        if let Some(path) = &self.tokens {
            let wrong = |error| Failure::new(Exit::Input, format!("{}: {error}", path.display()));
            identities = Identities::parse(&read(path)?).map_err(wrong)?;
        }
        if let Some((keys, at)) = issuer_keys.zip(self.keys.as_ref()) {
            let issuer = Issuer::new(keys, &self.issuer, &self.audience, &self.claim);
            let issuer = issuer.map_err(|error| Failure::new(Exit::Input, format!("{at}: {error}")))?;
            identities = identities.with_issuer(issuer);
        }
        Ok(Some(identities))
    }

    fn tls(&self) -> Result<Option<ServerTls>, Failure> {
        let Some((certificate, key)) = &self.certificate else { return Ok(None) };
        let tls = ServerTls::from_files(certificate, key, self.client_authority.as_deref());
        tls.map(Some).map_err(|error| Failure::new(Exit::Machine, godwit_formats::with_causes(&error)))
    }

    fn are_keys_elsewhere(&self) -> bool {
        matches!(self.keys, Some(KeysAt::Url(_)))
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let keys = self.keys.as_ref().and_then(|keys| match keys {
            KeysAt::File(path) => Some(path),
            KeysAt::Url(_) => None,
        });
        let certificate = self.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.tokens.iter().chain(keys).chain(certificate).chain(&self.client_authority).map(PathBuf::as_path)
    }

    /// Which files there are now: another for another state of one.
    fn stamps(&self) -> Vec<Option<(u64, i64, i64, u64)>> {
        let stamp = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
        };
        self.paths().map(stamp).collect()
    }

    /// Where it is said, for the record.
    fn described(&self) -> String {
        let elsewhere = self.keys.iter().filter(|_| self.are_keys_elsewhere()).map(ToString::to_string);
        let names: Vec<String> = self.paths().map(|path| path.display().to_string()).chain(elsewhere).collect();
        names.join(" ")
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", path.display()));
    std::fs::read_to_string(path).map_err(unreadable)
}
