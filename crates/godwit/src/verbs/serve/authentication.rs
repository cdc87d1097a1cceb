//! Reads the tokens, keys and certificates of a server, and reloads them when their files have changed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_auth::{Authenticator, Identities, ReloadHandle, TokenIssuer};
use godwit_cli::cli::{KeySource, ServeArgs};
use godwit_cli::failure::Failure;
use godwit_cli::log::{log_message, log_warning};
use godwit_dataset::{AccessLog, AccessRecord};
use godwit_files::FileStamp;
use godwit_flight::ServerTls;
use godwit_model::ErrorKind;

use super::key_fetch;
use super::visa_file::VisaFile;

/// Interval at which the server checks whether the files have changed.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which the server fetches the keys of token issuers from their URLs. Issuers publish a new key days
/// before they use it.
const KEYS_FETCH_INTERVAL: Duration = Duration::from_secs(300);

/// Paths and URLs of the tokens, keys and certificates, from the command line.
#[derive(Clone, Debug)]
struct AuthFiles {
    tokens: Option<PathBuf>,
    keys: Option<KeySource>,
    issuer: String,
    audience: String,
    claim: String,
    visas: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    client_authority: Option<PathBuf>,
    /// File with the CA certificates that the server trusts when it fetches keys.
    authority: Option<PathBuf>,
}

/// The identities that a server accepts, and its certificate.
pub(super) struct ServerAuth {
    files: AuthFiles,
    /// Stamps of the files when they were last read; `None` for files that did not exist.
    stamps: Vec<Option<FileStamp>>,
    /// Identities of the token file when it was last read.
    tokens: Identities,
    /// Issuer of JSON Web Tokens, and the text of its keys, by which changes are detected.
    issuer: Option<(TokenIssuer, String)>,
    identities: Option<ReloadHandle<Identities>>,
    tls: Option<ServerTls>,
}

impl ServerAuth {
    /// Reads the files that the command line names, and fetches the keys at URLs.
    ///
    /// # Errors
    /// [`ErrorKind::Machine`] if a file or key cannot be read or fetched; [`ErrorKind::Input`] if it is invalid.
    pub(super) async fn from_args(args: &ServeArgs) -> Result<Self, Failure> {
        let files = AuthFiles {
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
        let (stamps, tokens) = (files.read_stamps(), files.read_tokens()?);
        if let Some(path) = files.tokens.as_ref().filter(|_| tokens.is_empty()) {
            let problem = format!("{} has no tokens; create one with `godwit token NAME --tokens {0}`", path.display());
            return Err(Failure::new(ErrorKind::Input, problem));
        }
        let (issuer, tls) = (files.read_issuer().await?, files.read_tls()?);
        let is_asked = files.tokens.is_some() || files.keys.is_some();
        let mut made = Self { files, stamps, tokens, issuer, identities: None, tls };
        made.identities = is_asked.then(|| ReloadHandle::new(made.all_identities()));
        Ok(made)
    }

    /// Returns the identities of the token file, together with those that the issuer of JSON Web Tokens vouches for.
    fn all_identities(&self) -> Identities {
        let tokens = self.tokens.clone();
        match &self.issuer {
            Some((issuer, _)) => tokens.with_issuer(issuer.clone()),
            None => tokens,
        }
    }

    /// Returns the authenticator of the server, which is disabled without tokens and keys.
    pub(super) fn authentication(&self) -> Authenticator {
        self.identities.clone().map_or(Authenticator::Disabled, Authenticator::Identities)
    }

    /// Returns the certificate and key of the server; `None` without TLS.
    pub(super) fn tls(&self) -> Option<ServerTls> {
        self.tls.clone()
    }

    /// Checks that a server which other hosts can reach has encryption and authentication, unless `--insecure` is
    /// given.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if other hosts can reach the address, and encryption or authentication is missing.
    pub(super) fn check_exposure(&self, args: &ServeArgs, address: SocketAddr) -> Result<(), Failure> {
        let guarded = self.tls.is_some() && (args.tls_client_ca.is_some() || self.identities.is_some());
        if address.ip().is_loopback() || guarded || args.insecure {
            return Ok(());
        }
        let problem = format!(
            "{address} can be reached from other hosts: add --tls-cert, --tls-key and --tokens (or --tls-client-ca), \
             or --insecure"
        );
        Err(Failure::new(ErrorKind::Usage, problem))
    }

    /// Reloads all files whenever one has changed or `reload` is set, until the future is dropped. If reloading fails,
    /// reports the failure and retries; the previous tokens, keys and certificates remain in force.
    pub(super) async fn reload_on_change(mut self, reload: Arc<AtomicBool>, log: Option<Arc<dyn AccessLog>>) {
        let mut fetched = Instant::now();
        // Last failures of reading files and of fetching keys, so that a repeated failure is reported only once.
        let mut failed = [String::new(), String::new()];
        loop {
            tokio::time::sleep(FILE_POLL_INTERVAL).await;
            let stamps = self.files.read_stamps();
            let is_told = reload.swap(false, Ordering::Relaxed) || stamps != self.stamps;
            let is_due = self.files.has_key_urls() && fetched.elapsed() >= KEYS_FETCH_INTERVAL;
            let is_here_again = !failed[0].is_empty() || (!failed[1].is_empty() && !self.files.has_key_urls());
            if !is_told && !is_due && !is_here_again {
                continue;
            }
            self.stamps = stamps;
            let mut fails = [self.read_files().join(" | "), failed[1].clone()];
            let mut has_changed = is_told;
            if is_told || is_due || !self.files.has_key_urls() {
                fetched = Instant::now();
                match self.read_keys().await {
                    Ok(are_others) => {
                        has_changed |= are_others;
                        fails[1].clear();
                    }
                    Err(failure) => fails[1] = failure.single_line(),
                }
            }
            let problem =
                fails.iter().filter(|one| !one.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" | ");
            let is_news = fails != failed || (is_told && !problem.is_empty());
            failed = fails;
            let outcome = match problem.is_empty() {
                true if has_changed || is_news => "in force".to_owned(),
                false if is_news => format!("the previous state stays in force: {problem}"),
                _ => continue,
            };
            match problem.is_empty() {
                true => log_message("identities and certificates were reloaded"),
                false => log_warning(&format!("reloading identities and certificates: {outcome}")),
            }
            if let Some(log) = &log {
                let (call, resource) = ("Identities".to_owned(), self.files.description());
                // Ignore the error: if the audit log cannot be written, the next access fails with the same error.
                let _ = log.record(AccessRecord { call, resource, outcome, ..AccessRecord::default() }).await;
            }
        }
    }

    /// Reloads the tokens and the certificates. A problem of one does not prevent that the other is reloaded. Returns
    /// the problems.
    fn read_files(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        match self.files.read_tokens() {
            Ok(tokens) => {
                self.tokens = tokens;
                self.apply_identities();
            }
            Err(failure) => problems.push(failure.single_line()),
        }
        match self.files.read_tls() {
            Ok(found) => {
                if let Some((tls, found)) = self.tls.as_ref().zip(found) {
                    tls.replace_with(&found);
                }
            }
            Err(failure) => problems.push(failure.single_line()),
        }
        problems
    }

    /// Reads or fetches the keys of the issuer of JSON Web Tokens. Returns true if they have changed.
    async fn read_keys(&mut self) -> Result<bool, Failure> {
        let found = self.files.read_issuer().await?;
        let text_of = |issuer: &Option<(TokenIssuer, String)>| issuer.as_ref().map(|(_, text)| text.clone());
        let are_others = text_of(&found) != text_of(&self.issuer);
        self.issuer = found;
        self.apply_identities();
        Ok(are_others)
    }

    fn apply_identities(&self) {
        let Some(identities) = &self.identities else { return };
        let all = self.all_identities();
        if all.is_empty() && !identities.get().is_empty() {
            log_warning("no client can authenticate any more, because no tokens are loaded");
        }
        identities.set(all);
    }
}

impl AuthFiles {
    /// Reads the identities in the token file; returns an empty set without `--tokens`.
    fn read_tokens(&self) -> Result<Identities, Failure> {
        let Some(path) = &self.tokens else { return Ok(Identities::default()) };
        let wrong = |error| Failure::new(ErrorKind::Input, format!("{}: {error}", path.display()));
        Identities::parse(&read_file(path)?).map_err(wrong)
    }

    /// Reads or fetches the keys of the issuer of JSON Web Tokens. Returns the issuer, and the text of its keys.
    async fn read_issuer(&self) -> Result<Option<(TokenIssuer, String)>, Failure> {
        let Some(at) = &self.keys else { return Ok(None) };
        let keys = match at {
            KeySource::File(path) => read_file(path)?,
            KeySource::Url(url) => key_fetch::fetch_keys(url, self.authority.as_deref()).await?,
        };
        let issuer = TokenIssuer::new(&keys, &self.issuer, &self.audience, &self.claim);
        let issuer = issuer.map_err(|error| Failure::new(ErrorKind::Input, format!("{at}: {error}")))?;
        let Some(path) = &self.visas else { return Ok(Some((issuer, keys))) };
        let (visas, visa_key_texts) = VisaFile::read(path)?.fetch_issuers(self.authority.as_deref()).await?;
        Ok(Some((issuer.with_visas(visas), keys + "\n" + &visa_key_texts)))
    }

    fn read_tls(&self) -> Result<Option<ServerTls>, Failure> {
        let Some((certificate, key)) = &self.certificate else { return Ok(None) };
        let tls = ServerTls::from_files(certificate, key, self.client_authority.as_deref());
        tls.map(Some).map_err(|error| Failure::new(ErrorKind::Machine, godwit_model::message_with_causes(&error)))
    }

    fn has_key_urls(&self) -> bool {
        let of_visas = || self.read_visa_file().is_some_and(|file| file.has_key_urls());
        matches!(self.keys, Some(KeySource::Url(_))) || of_visas()
    }

    /// Reads the file of visa issuers; returns `None` without `--visas`, or if the file cannot be read.
    fn read_visa_file(&self) -> Option<VisaFile> {
        VisaFile::read(self.visas.as_deref()?).ok()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let keys = self.keys.as_ref().and_then(|keys| match keys {
            KeySource::File(path) => Some(path),
            KeySource::Url(_) => None,
        });
        let certificate = self.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        let named = self.tokens.iter().chain(keys).chain(&self.visas);
        named.chain(certificate).chain(&self.client_authority).map(PathBuf::as_path)
    }

    /// Returns the current stamps of all files.
    fn read_stamps(&self) -> Vec<Option<FileStamp>> {
        let of_visas = self.read_visa_file();
        let of_visas = of_visas.iter().flat_map(VisaFile::key_files);
        self.paths().chain(of_visas).map(|path| FileStamp::read(path).ok()).collect()
    }

    /// Returns the paths and URLs of all tokens, keys and certificates, for the audit log.
    fn description(&self) -> String {
        let elsewhere = self.keys.iter().filter(|keys| matches!(keys, KeySource::Url(_))).map(ToString::to_string);
        let names: Vec<String> = self.paths().map(|path| path.display().to_string()).chain(elsewhere).collect();
        names.join(" ")
    }
}

pub(super) fn read_file(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display()));
    std::fs::read_to_string(path).map_err(unreadable)
}
