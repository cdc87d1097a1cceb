//! Encryption with TLS 1.3 by rustls. Client and server select HTTP/2 or HTTP/1.1 by ALPN.
//!
//! TCP sends at most ten packets in the first round trip and doubles this number after each round trip that used it.
//! The handshake uses only two or three. The server therefore fills up the ten packets with zeros (the warm-up), so
//! that its first response may use twenty. Only clients with a long round trip request the warm-up, by ALPN; they
//! discard the zeros.
//!
//! Certificates and keys are PEM files. A client certificate is accepted if the client authority signed it; its name is
//! not checked.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{Acceptor, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig, ServerConnection};
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, TlsStream};

use godwit_auth::ReloadHandle;

/// ALPN identifier of HTTP/2 (RFC 9113 §3.3).
const HTTP2_ALPN: &[u8] = b"h2";
/// ALPN identifier of HTTP/2 after [`WARMUP_BYTES`] zeros, which the server sends directly after its handshake
/// messages, before those of the client (RFC 8446 §2).
const WARMUP_ALPN: &[u8] = b"godwit-warmed-h2";
/// Size of the warm-up. Together with the certificates of the server, it fills the ten packets that TCP sends before
/// the first acknowledgement (RFC 6928).
const WARMUP_BYTES: usize = 12 << 10;
/// Shortest round trip time for which a client requests the warm-up.
pub const WARMUP_MIN_RTT: Duration = Duration::from_millis(20);
/// ALPN identifier of HTTP/1.1 (RFC 7301 §6), which servers accept in addition to HTTP/2.
const HTTP1_ALPN: &[u8] = b"http/1.1";

/// An error while loading or creating certificates and keys.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not PEM.
    #[error("cannot read {} from {}", item, path.display())]
    File {
        /// The expected content of the file, such as "a certificate".
        item: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The certificate and the key do not match, or rustls does not accept one of them.
    #[error("the certificates in {} cannot be used", path.display())]
    UnusableCertificates {
        /// Path of the file with the certificates.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate and its key could not be created or written.
    #[error("cannot create a certificate in {}", directory.display())]
    CreateIdentity {
        /// The directory in which the files should be written.
        directory: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server name is neither a host name nor an IP address.
    #[error("{name} is neither a host name nor an address")]
    InvalidServerName {
        /// The invalid name.
        name: String,
    },
}

/// The TLS settings of a server: its certificates and key, and optionally the authority that signs client certificates.
#[derive(Clone)]
pub struct ServerTls {
    config: ReloadHandle<ServerConfig>,
}

/// The TLS settings of a client: trusted certificates, the name of the server, and optionally a client certificate.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// The configuration for servers with a long round trip, which requests the warm-up.
    warmup_config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl ServerTls {
    /// Reads the server's certificate chain and key from PEM files. If `client_authority` is given, the server accepts
    /// only clients with a certificate that this authority signed.
    ///
    /// # Errors
    /// [`TlsError::File`] if a file cannot be read, [`TlsError::UnusableCertificates`] if rustls rejects a certificate
    /// or the key.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_flight::{ServerTls, TlsError, create_identity};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (certificates, key) = create_identity(directory.path(), "localhost")?;
    /// assert!(ServerTls::from_files(&certificates, &key, None).is_ok());
    ///
    /// let missing = directory.path().join("missing.pem");
    /// let failed = ServerTls::from_files(&certificates, &missing, None);
    /// assert!(matches!(failed, Err(TlsError::File { path, .. }) if path == missing));
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_files(certificates: &Path, key: &Path, client_authority: Option<&Path>) -> Result<Self, TlsError> {
        let chain = read_certificates(certificates)?;
        let key = read_private_key(key)?;
        let refused = |source| TlsError::UnusableCertificates { path: certificates.to_owned(), source };
        let builder = ServerConfig::builder_with_provider(crypto_provider());
        let builder =
            builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(|error| refused(error.into()))?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(read_authority(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, crypto_provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| refused(error.into()))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| refused(error.into()))?;
        config.alpn_protocols = vec![HTTP2_ALPN.to_vec(), HTTP1_ALPN.to_vec()];
        if client_authority.is_none() {
            // Send only the warm-up, and no other data, before the client has sent its half of the handshake. With
            // client certificates there is no warm-up: it could be sent only after the client's half and would delay
            // the response.
            config.alpn_protocols.insert(0, WARMUP_ALPN.to_vec());
            config.send_half_rtt_data = true;
        }
        Ok(Self { config: ReloadHandle::new(config) })
    }

    /// Performs the server's side of the TLS handshake.
    ///
    /// # Errors
    /// An error if the connection fails, or if the client sends invalid messages or an untrusted certificate.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsSocket> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = self.config.get();
        let is_wanted = start.client_hello().alpn().is_some_and(|mut known| known.any(|one| one == WARMUP_ALPN));
        let is_warmed = config.send_half_rtt_data && is_wanted;
        let mut written = Ok(());
        let warm = |connection: &mut ServerConnection| {
            if is_warmed {
                written = connection.writer().write_all(&[0; WARMUP_BYTES]);
            }
        };
        let accepting = start.into_stream_with(config, warm);
        written?;
        Ok(TlsSocket { stream: accepting.await?.into(), warmup_bytes_left: 0 })
    }

    /// Uses the settings of `other` for later connections. Open connections are not affected.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, Client, ClientTls, ConnectionSecurity, Routes, Server, TransportOptions};
    /// use godwit_flight::{ServerTls, create_identity};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let (certificates, key) = create_identity(directory.path(), "localhost")?;
    /// let tls = ServerTls::from_files(&certificates, &key, None)?;
    /// let security = ConnectionSecurity { token: None, tls: Some(tls.clone()) };
    /// # let (data, any_port) = (WorkloadDataPlane::default(), Address::Tcp("127.0.0.1:0".parse()?));
    /// let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    ///
    /// let (certificates, key) = create_identity(directory.path(), "localhost")?;
    /// tls.replace_with(&ServerTls::from_files(&certificates, &key, None)?);
    /// let trusted = ClientTls::from_files(&certificates, "localhost", None)?;
    /// let security = ConnectionSecurity { token: None, tls: Some(trusted) };
    /// assert!(Client::connect(&address, security, TransportOptions::default()).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace_with(&self, other: &Self) {
        self.config.set(other.config.get());
    }
}

impl ClientTls {
    /// Creates the settings of a client that connects to the server `name`. The server's certificate must be in the PEM
    /// file `authority` or signed by a certificate in this file. `identity` contains the files of the client's
    /// certificate and key, for servers that require a client certificate.
    ///
    /// # Errors
    /// [`TlsError::File`], [`TlsError::UnusableCertificates`] or [`TlsError::InvalidServerName`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, Client, Routes, Server, TransportOptions};
    /// use godwit_flight::{ClientTls, ConnectionSecurity, ServerTls, TlsError, create_identity};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (certificates, key) = create_identity(directory.path(), "localhost")?;
    /// let tls = ServerTls::from_files(&certificates, &key, None)?;
    /// let security = ConnectionSecurity { token: None, tls: Some(tls) };
    /// # let (data, any_port) = (WorkloadDataPlane::default(), Address::Tcp("127.0.0.1:0".parse()?));
    /// let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    ///
    /// let tls = ClientTls::from_files(&certificates, "localhost", None)?;
    /// let security = ConnectionSecurity { token: None, tls: Some(tls) };
    /// let client = Client::connect(&address, security, TransportOptions::default()).await?;
    /// assert!(client.download("fixed/1/100/800/0/1").await.is_ok());
    ///
    /// let rejected = ClientTls::from_files(&certificates, "no name", None);
    /// assert!(matches!(rejected, Err(TlsError::InvalidServerName { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_files(authority: &Path, name: &str, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let refused = |source| TlsError::UnusableCertificates { path: authority.to_owned(), source };
        let builder = ClientConfig::builder_with_provider(crypto_provider());
        let builder = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| refused(error.into()))?
            .with_root_certificates(read_authority(authority)?);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                builder.with_client_auth_cert(read_certificates(certificates)?, read_private_key(key)?).map_err(
                    |error| TlsError::UnusableCertificates { path: certificates.to_owned(), source: error.into() },
                )?
            }
        };
        config.alpn_protocols = vec![HTTP2_ALPN.to_vec()];
        let server =
            ServerName::try_from(name.to_owned()).map_err(|_| TlsError::InvalidServerName { name: name.to_owned() })?;
        let mut far = config.clone();
        far.alpn_protocols.insert(0, WARMUP_ALPN.to_vec());
        Ok(Self { config: Arc::new(config), warmup_config: Arc::new(far), server_name: server })
    }

    /// Performs the client's side of the TLS handshake. `rtt` is the round trip time of the connection.
    ///
    /// # Errors
    /// An error if the connection fails, or if the certificate of the server is not trusted.
    pub(crate) async fn connect(&self, stream: TcpStream, rtt: Duration) -> io::Result<TlsSocket> {
        let config = if rtt < WARMUP_MIN_RTT { &self.config } else { &self.warmup_config };
        let stream = TlsConnector::from(config.clone()).connect(self.server_name.clone(), stream).await?;
        let is_warmed = stream.get_ref().1.alpn_protocol() == Some(WARMUP_ALPN);
        Ok(TlsSocket { stream: stream.into(), warmup_bytes_left: if is_warmed { WARMUP_BYTES } else { 0 } })
    }
}

/// Returns whether a handshake failed because the client does not trust the certificate of the server.
pub(crate) fn is_untrusted_certificate(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// An encrypted connection.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TlsStream<TcpStream>,
    /// Number of warm-up bytes that the client has not yet received and discarded.
    warmup_bytes_left: usize,
}

impl TlsSocket {
    /// Returns the file descriptor of the TCP socket.
    pub(crate) fn tcp_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().0.as_fd()
    }

    /// Reads decrypted bytes, after discarding the warm-up bytes.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.warmup_bytes_left > 0 {
            let mut nothing = [0; 4096];
            let most = self.warmup_bytes_left.min(nothing.len());
            let mut read = ReadBuf::new(&mut nothing[..most]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            match read.filled().len() {
                0 => return Poll::Ready(Ok(())),
                count => self.warmup_bytes_left -= count,
            }
        }
        Pin::new(&mut self.stream).poll_read(context, space)
    }

    /// Returns the TLS stream, for writing only: reading must discard the warm-up bytes.
    pub(crate) fn stream_mut(&mut self) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(&mut self.stream)
    }
}

/// Creates a self-signed certificate for the host `name`. Writes `certificate.pem` and `key.pem` to a directory,
/// readable by the current user only, and returns their paths. A process that can read both files can act as a trusted
/// server and as a trusted client.
///
/// # Errors
/// [`TlsError::CreateIdentity`] if the certificate or the key cannot be created or written.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::fs;
///
/// use godwit_flight::create_identity;
///
/// let directory = tempfile::tempdir()?;
/// let (certificate, key) = create_identity(directory.path(), "localhost")?;
/// assert!(fs::read_to_string(&certificate)?.starts_with("-----BEGIN CERTIFICATE-----"));
/// assert_eq!(key, directory.path().join("key.pem"));
/// # Ok(())
/// # }
/// ```
pub fn create_identity(directory: &Path, name: &str) -> Result<(PathBuf, PathBuf), TlsError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::CreateIdentity {
        directory: directory.to_owned(),
        source,
    };
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).map_err(|error| failed(error.into()))?;
    let write = |file: &str, text: String| {
        let path = directory.join(file);
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| failed(error.into()))?;
        Ok(path)
    };
    Ok((write("certificate.pem", made.cert.pem())?, write("key.pem", made.signing_key.serialize_pem())?))
}

fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { item: "a certificate", path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let found = found.map_err(failed)?;
    if found.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(found) }
}

fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File {
        item: "a private key",
        path: path.to_owned(),
        source,
    })
}

fn read_authority(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::UnusableCertificates { path: path.to_owned(), source: error.into() })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::transport::Socket;

    /// Creates a server and a client that trust each other, and a listener. If `guarded`, the server requires a client
    /// certificate.
    async fn server_and_client(guarded: bool) -> (ServerTls, ClientTls, TcpListener) {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = create_identity(directory.path(), "localhost").unwrap();
        let server = ServerTls::from_files(&certificate, &key, guarded.then_some(certificate.as_path())).unwrap();
        let identity = guarded.then_some((certificate.as_path(), key.as_path()));
        let client = ClientTls::from_files(&certificate, "localhost", identity).unwrap();
        (server, client, TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// Connects a client with this round trip time. Returns the number of warm-up bytes before the reply, and the
    /// reply.
    async fn warmup_and_reply(guarded: bool, rtt: Duration) -> (usize, Vec<u8>) {
        let (server, client, listener) = server_and_client(guarded).await;
        let address = listener.local_addr().unwrap();
        let serving = async {
            let mut socket = Socket::Tls(Box::new(server.accept(listener.accept().await.unwrap().0).await.unwrap()));
            let mut received = [0; 5];
            socket.read_exact(&mut received).await.unwrap();
            assert_eq!(&received, b"Hello");
            socket.write_all(&[1, 2, 3]).await.unwrap();
            socket.shutdown().await.unwrap();
        };
        let asking = async {
            let encrypted = client.connect(TcpStream::connect(address).await.unwrap(), rtt).await.unwrap();
            let warming = encrypted.warmup_bytes_left;
            let mut socket = Socket::Tls(Box::new(encrypted));
            socket.write_all(b"Hello").await.unwrap();
            let mut received = Vec::new();
            socket.read_to_end(&mut received).await.unwrap();
            (warming, received)
        };
        tokio::join!(serving, asking).1
    }

    #[tokio::test]
    async fn warmup_bytes_are_sent_to_distant_clients_and_not_delivered_to_the_reader() {
        assert_eq!(warmup_and_reply(false, WARMUP_MIN_RTT).await, (WARMUP_BYTES, vec![1, 2, 3]));
        for (guarded, rtt) in [(false, WARMUP_MIN_RTT / 2), (true, WARMUP_MIN_RTT), (true, WARMUP_MIN_RTT / 2)] {
            assert_eq!(warmup_and_reply(guarded, rtt).await, (0, vec![1, 2, 3]));
        }
    }

    /// The client sends only its ClientHello.
    #[tokio::test]
    async fn warmup_bytes_are_sent_before_the_client_has_sent_its_half_of_the_handshake() {
        let (server, client, listener) = server_and_client(false).await;
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut hello = Vec::new();
        rustls::ClientConnection::new(client.warmup_config, client.server_name).unwrap().write_tls(&mut hello).unwrap();
        stream.write_all(&hello).await.unwrap();
        let mut received = vec![0; WARMUP_BYTES];
        tokio::select! {
            _ = async { server.accept(listener.accept().await.unwrap().0).await } => panic!("it is no whole handshake"),
            received = stream.read_exact(&mut received) => assert!(received.is_ok()),
        }
    }

    /// The server closes the connection before it has sent all warm-up bytes.
    #[tokio::test]
    async fn a_connection_that_is_closed_during_the_warmup_ends() {
        let (server, client, listener) = server_and_client(false).await;
        let address = listener.local_addr().unwrap();
        let serving =
            async { server.accept(listener.accept().await.unwrap().0).await.unwrap().stream_mut().shutdown().await };
        let asking = async {
            let mut encrypted =
                client.connect(TcpStream::connect(address).await.unwrap(), WARMUP_MIN_RTT).await.unwrap();
            encrypted.warmup_bytes_left += 1;
            Socket::Tls(Box::new(encrypted)).read(&mut [0; 9]).await
        };
        let (ended, read) = tokio::join!(serving, asking);
        assert!(ended.is_ok() && matches!(read, Ok(0)), "{read:?}");
    }
}
