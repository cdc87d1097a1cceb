//! Encryption: TLS 1.3 by rustls, with HTTP/2 agreed upon in the handshake, or by those who know no better HTTP/1.1.
//!
//! Certificates and keys come as PEM files. Who a client is, beyond being signed by an authority, is not decided here.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};

use crate::current::Current;

/// HTTP/2 in the handshake (RFC 9113 §3.3).
const PROTOCOL: &[u8] = b"h2";
/// HTTP/1.1 (RFC 7301 §6), which a server knows besides.
const OLD_PROTOCOL: &[u8] = b"http/1.1";

/// Why encryption cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file holds no PEM, or cannot be read.
    #[error("cannot read {} from {}", what, path.display())]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: pem::Error,
    },
    /// The files do not belong together, or hold what rustls does not take.
    #[error("the certificates in {} cannot be used", path.display())]
    Refused {
        /// The certificates.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate could not be made, or not be kept.
    #[error("cannot make a certificate in {}", directory.display())]
    Make {
        /// Where.
        directory: PathBuf,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A server name that no certificate can have.
    #[error("{name} is neither a host name nor an address")]
    Name {
        /// The name.
        name: String,
    },
}

/// A server's certificate and key.
#[derive(Clone)]
pub struct ServerTls {
    pub(crate) config: Current<ServerConfig>,
}

/// Which servers a client trusts.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl ServerTls {
    /// From PEM files: the certificate with its chain, and its key. With `client_authority`, only clients with a
    /// certificate signed by it are let in.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_files(certificates: &Path, key: &Path, client_authority: Option<&Path>) -> Result<Self, TlsError> {
        let chain = certificates_in(certificates)?;
        let key = key_in(key)?;
        let refused = |source| TlsError::Refused { path: certificates.to_owned(), source };
        let builder = ServerConfig::builder_with_provider(provider());
        let builder =
            builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(|error| refused(error.into()))?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authority_in(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| refused(error.into()))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| refused(error.into()))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec(), OLD_PROTOCOL.to_vec()];
        Ok(Self { config: Current::new(config) })
    }

    /// Connections that are made from now on are shown what another has; those that are open stay as they are.
    pub fn replace(&self, other: &Self) {
        self.config.set(other.config.get());
    }
}

impl ClientTls {
    /// Trusts servers called `name` whose certificate is in, or signed by one in, the PEM file `authority`. `identity` is
    /// the client's own certificate and key, where the server asks for one.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_files(authority: &Path, name: &str, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let refused = |source| TlsError::Refused { path: authority.to_owned(), source };
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| refused(error.into()))?
            .with_root_certificates(authority_in(authority)?);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => builder
                .with_client_auth_cert(certificates_in(certificates)?, key_in(key)?)
                .map_err(|error| TlsError::Refused { path: certificates.to_owned(), source: error.into() })?,
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let server = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name { name: name.to_owned() })?;
        Ok(Self { config: Arc::new(config), name: server })
    }
}

/// Makes a certificate for `name` that signs itself, and its key: `certificate.pem` and `key.pem` in a directory, for this
/// user alone. Whoever can read them is trusted, as server and as client. Returns their paths.
///
/// # Errors
/// [`TlsError::Make`].
pub fn make_identity(directory: &Path, name: &str) -> Result<(PathBuf, PathBuf), TlsError> {
    let failed =
        |source: Box<dyn std::error::Error + Send + Sync>| TlsError::Make { directory: directory.to_owned(), source };
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).map_err(|error| failed(error.into()))?;
    let write = |file: &str, text: String| {
        let path = directory.join(file);
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| failed(error.into()))?;
        Ok(path)
    };
    Ok((write("certificate.pem", made.cert.pem())?, write("key.pem", made.signing_key.serialize_pem())?))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { what: "a certificate", path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let found = found.map_err(failed)?;
    if found.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(found) }
}

fn key_in(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File {
        what: "a private key",
        path: path.to_owned(),
        source,
    })
}

fn authority_in(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(path)? {
        roots.add(certificate).map_err(|error| TlsError::Refused { path: path.to_owned(), source: error.into() })?;
    }
    Ok(roots)
}
