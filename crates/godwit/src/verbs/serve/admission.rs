//! Who is let into a server, and by which certificate it is known, as files say it; and both again when they have changed.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_flight::{AccessLog, Accessed, Current, Gate, Identities, Issuer, ServerTls};

use super::keys;
use super::visas::VisaFile;
use crate::cli::{KeysAt, ServeArgs};
use crate::failure::{Exit, Failure, log_message, log_warning};

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
    visas: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    client_authority: Option<PathBuf>,
    /// Trusted where keys are fetched.
    authority: Option<PathBuf>,
}

/// A file as it was looked at: inode, when it was written, length.
type Stamp = Option<(u64, i64, i64, u64)>;

/// Who is let in, and the certificate.
pub(super) struct Admission {
    files: Files,
    /// Files as they were before they were read.
    seen: Vec<Stamp>,
    /// Those who have a token, as they were last read.
    tokens: Identities,
    /// Whose signature stands for a name, and the text that its keys were had from.
    issuer: Option<(Issuer, String)>,
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
            visas: args.visas.clone(),
            certificate: args.tls_cert.clone().zip(args.tls_key.clone()),
            client_authority: args.tls_client_ca.clone(),
            authority: args.ca.clone(),
        };
        let (seen, tokens) = (files.stamps(), files.tokens()?);
        if let Some(path) = files.tokens.as_ref().filter(|_| tokens.is_empty()) {
            let problem = format!("{} has no tokens; make one with `godwit token NAME --tokens {0}`", path.display());
            return Err(Failure::new(Exit::Input, problem));
        }
        let (issuer, tls) = (files.issuer().await?, files.tls()?);
        let is_asked = files.tokens.is_some() || files.keys.is_some();
        let mut made = Self { files, seen, tokens, issuer, identities: None, tls };
        made.identities = is_asked.then(|| Current::new(made.all()));
        Ok(made)
    }

    /// All who are let in.
    fn all(&self) -> Identities {
        let tokens = self.tokens.clone();
        match &self.issuer {
            Some((issuer, _)) => tokens.with_issuer(issuer.clone()),
            None => tokens,
        }
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

    /// Reads it all again whenever a file has changed, or somebody says so, until it is dropped. What cannot be read is told and tried
    /// again, and what was there stays.
    pub(super) async fn keep_fresh(mut self, reload: Arc<AtomicBool>, log: Option<Arc<dyn AccessLog>>) {
        let mut fetched = Instant::now();
        // Of files, and of keys: what failed a moment ago fails again until somebody mends it, and is told once.
        let mut failed = [String::new(), String::new()];
        loop {
            tokio::time::sleep(REFRESH).await;
            let stamps = self.files.stamps();
            let is_told = reload.swap(false, Ordering::Relaxed) || stamps != self.seen;
            let is_due = self.files.are_keys_elsewhere() && fetched.elapsed() >= KEYS_REFRESH;
            let is_here_again = !failed[0].is_empty() || (!failed[1].is_empty() && !self.files.are_keys_elsewhere());
            if !is_told && !is_due && !is_here_again {
                continue;
            }
            self.seen = stamps;
            let mut fails = [self.read_files().join(" | "), failed[1].clone()];
            let mut has_changed = is_told;
            if is_told || is_due || !self.files.are_keys_elsewhere() {
                fetched = Instant::now();
                match self.read_keys().await {
                    Ok(are_others) => {
                        has_changed |= are_others;
                        fails[1].clear();
                    }
                    Err(failure) => fails[1] = failure.line(),
                }
            }
            let problem =
                fails.iter().filter(|one| !one.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" | ");
            let is_news = fails != failed || (is_told && !problem.is_empty());
            failed = fails;
            let outcome = match problem.is_empty() {
                true if has_changed || is_news => "in force".to_owned(),
                false if is_news => format!("what was in force stays: {problem}"),
                _ => continue,
            };
            match problem.is_empty() {
                true => log_message("identities and certificates were read again"),
                false => log_warning(&format!("identities and certificates: {outcome}")),
            }
            if let Some(log) = &log {
                let (call, what) = ("Identities".to_owned(), self.files.described());
                // What cannot be recorded is told to whoever asks next.
                let _ = log.record(Accessed { call, what, outcome, ..Accessed::default() }).await;
            }
        }
    }

    /// Reads tokens and certificates, each of which may be had where the other is not; returns what could not be read.
    fn read_files(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        match self.files.tokens() {
            Ok(tokens) => {
                self.tokens = tokens;
                self.let_in();
            }
            Err(failure) => problems.push(failure.line()),
        }
        match self.files.tls() {
            Ok(found) => {
                if let Some((tls, found)) = self.tls.as_ref().zip(found) {
                    tls.replace(&found);
                }
            }
            Err(failure) => problems.push(failure.line()),
        }
        problems
    }

    /// Reads the keys of the issuer, which may take a while; returns whether they are others.
    async fn read_keys(&mut self) -> Result<bool, Failure> {
        let found = self.files.issuer().await?;
        let text_of = |issuer: &Option<(Issuer, String)>| issuer.as_ref().map(|(_, text)| text.clone());
        let are_others = text_of(&found) != text_of(&self.issuer);
        self.issuer = found;
        self.let_in();
        Ok(are_others)
    }

    fn let_in(&self) {
        let Some(identities) = &self.identities else { return };
        let all = self.all();
        if all.is_empty() && !identities.get().is_empty() {
            log_warning("nobody is let in any more, for no token is known");
        }
        identities.set(all);
    }
}

impl Files {
    /// Those who have a token; nobody where there is no list of them.
    fn tokens(&self) -> Result<Identities, Failure> {
        let Some(path) = &self.tokens else { return Ok(Identities::default()) };
        let wrong = |error| Failure::new(Exit::Input, format!("{}: {error}", path.display()));
        Identities::parse(&read(path)?).map_err(wrong)
    }

    /// Whose signature stands for a name, and its keys as they were had.
    async fn issuer(&self) -> Result<Option<(Issuer, String)>, Failure> {
        let Some(at) = &self.keys else { return Ok(None) };
        let keys = match at {
            KeysAt::File(path) => read(path)?,
            KeysAt::Url(url) => keys::fetch(url, self.authority.as_deref()).await?,
        };
        let issuer = Issuer::new(&keys, &self.issuer, &self.audience, &self.claim);
        let issuer = issuer.map_err(|error| Failure::new(Exit::Input, format!("{at}: {error}")))?;
        let Some(path) = &self.visas else { return Ok(Some((issuer, keys))) };
        let (visas, had) = VisaFile::read(path)?.issuers(self.authority.as_deref()).await?;
        Ok(Some((issuer.with_visas(visas), keys + "\n" + &had)))
    }

    fn tls(&self) -> Result<Option<ServerTls>, Failure> {
        let Some((certificate, key)) = &self.certificate else { return Ok(None) };
        let tls = ServerTls::from_files(certificate, key, self.client_authority.as_deref());
        tls.map(Some).map_err(|error| Failure::new(Exit::Machine, godwit_formats::with_causes(&error)))
    }

    fn are_keys_elsewhere(&self) -> bool {
        let of_visas = || self.visa_file().is_some_and(|file| file.are_keys_elsewhere());
        matches!(self.keys, Some(KeysAt::Url(_))) || of_visas()
    }

    /// Whose visas are taken, where that can be read.
    fn visa_file(&self) -> Option<VisaFile> {
        VisaFile::read(self.visas.as_deref()?).ok()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let keys = self.keys.as_ref().and_then(|keys| match keys {
            KeysAt::File(path) => Some(path),
            KeysAt::Url(_) => None,
        });
        let certificate = self.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        let named = self.tokens.iter().chain(keys).chain(&self.visas);
        named.chain(certificate).chain(&self.client_authority).map(PathBuf::as_path)
    }

    /// Which files there are now: another for another state of one.
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
        };
        let of_visas = self.visa_file();
        let of_visas = of_visas.iter().flat_map(VisaFile::key_files);
        self.paths().chain(of_visas).map(stamp).collect()
    }

    /// Where it is said, for the record.
    fn described(&self) -> String {
        let elsewhere = self.keys.iter().filter(|keys| matches!(keys, KeysAt::Url(_))).map(ToString::to_string);
        let names: Vec<String> = self.paths().map(|path| path.display().to_string()).chain(elsewhere).collect();
        names.join(" ")
    }
}

pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", path.display()));
    std::fs::read_to_string(path).map_err(unreadable)
}
