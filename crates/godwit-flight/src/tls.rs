//! Encryption: TLS 1.3 by rustls. ALPN selects HTTP/2, or HTTP/1.1 for clients without HTTP/2.
//!
//! TCP sends ten packets, and twice as many after each round trip. A server would send two or three in the handshake and
//! none in the next round trip: it fills up the ten, so that its response begins with twenty. Only far clients request this
//! warm-up, by ALPN, and discard the zeros.
//!
//! Certificates and keys are PEM files. Client certificates are checked for the signature of an authority only.

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

use crate::reload_handle::ReloadHandle;

/// ALPN identifier of HTTP/2 (RFC 9113 §3.3).
const HTTP2_ALPN: &[u8] = b"h2";
/// HTTP/2 after [`WARMUP_BYTES`] zeros that the server sends in its half of the handshake (RFC 8446 §2: before the client's).
const WARMUP_ALPN: &[u8] = b"godwit-warmed-h2";
/// With the server's certificates about as much as TCP sends before the first acknowledgement, ten packets (RFC 6928).
const WARMUP_BYTES: usize = 12 << 10;
/// Connections with round trips from this on are warmed up in the handshake.
pub const WARMUP_MIN_RTT: Duration = Duration::from_millis(20);
/// ALPN identifier of HTTP/1.1 (RFC 7301 §6), which a server supports besides.
const HTTP1_ALPN: &[u8] = b"http/1.1";

/// The reason why encryption cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not PEM, or cannot be read.
    #[error("cannot read {} from {}", item, path.display())]
    File {
        /// The expected content.
        item: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The files do not match, or hold what rustls does not accept.
    #[error("the certificates in {} cannot be used", path.display())]
    UnusableCertificates {
        /// Path of the certificates.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate could not be created or stored.
    #[error("cannot make a certificate in {}", directory.display())]
    CreateIdentity {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A server name that a certificate cannot have.
    #[error("{name} is neither a host name nor an address")]
    InvalidServerName {
        /// The name.
        name: String,
    },
}

/// A server's certificate and key.
#[derive(Clone)]
pub struct ServerTls {
    config: ReloadHandle<ServerConfig>,
}

/// The certificates that a client trusts.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// For servers with long round trips.
    warmup_config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl ServerTls {
    /// Reads PEM files: the certificate with its chain, and its key. With `client_authority`, only clients with a
    /// certificate signed by it are accepted.
    ///
    /// # Errors
    /// [`TlsError::File`] where a file cannot be read, [`TlsError::UnusableCertificates`] where rustls rejects them.
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
            // A client that has not sent its half yet receives nothing but the warm-up. One that must send a certificate
            // would receive it afterwards, in place of the response.
            config.alpn_protocols.insert(0, WARMUP_ALPN.to_vec());
            config.send_half_rtt_data = true;
        }
        Ok(Self { config: ReloadHandle::new(config) })
    }

    /// Performs the server's side of the handshake.
    ///
    /// # Errors
    /// Those of the connection, and invalid or untrusted messages of the client.
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

    /// Uses the certificates of `other` for later connections; open ones keep theirs.
    pub fn replace_with(&self, other: &Self) {
        self.config.set(other.config.get());
    }
}

impl ClientTls {
    /// Trusts servers called `name` whose certificate is in, or signed by one in, the PEM file `authority`. `identity` is
    /// the client's own certificate and key, where the server requests one.
    ///
    /// # Errors
    /// [`TlsError`], by the file or name that is wrong.
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

    /// Performs the client's side of the handshake, over a connection with this round trip time.
    ///
    /// # Errors
    /// Those of the connection, and of certificates that are not trusted.
    pub(crate) async fn connect(&self, stream: TcpStream, rtt: Duration) -> io::Result<TlsSocket> {
        let config = if rtt < WARMUP_MIN_RTT { &self.config } else { &self.warmup_config };
        let stream = TlsConnector::from(config.clone()).connect(self.server_name.clone(), stream).await?;
        let is_warmed = stream.get_ref().1.alpn_protocol() == Some(WARMUP_ALPN);
        Ok(TlsSocket { stream: stream.into(), warmup_bytes_left: if is_warmed { WARMUP_BYTES } else { 0 } })
    }
}

/// An encrypted connection.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TlsStream<TcpStream>,
    /// Warm-up bytes that are still to be discarded.
    warmup_bytes_left: usize,
}

impl TlsSocket {
    /// Returns the descriptor of the TCP socket.
    pub(crate) fn tcp_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().0.as_fd()
    }

    /// Reads as a socket does, after discarding the warm-up.
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

    /// Returns the stream for writing.
    pub(crate) fn stream_mut(&mut self) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(&mut self.stream)
    }
}

/// Creates a self-signed certificate for `name`, and its key: `certificate.pem` and `key.pem` in a directory, readable by
/// this user only. Any process that can read them is trusted, as server and as client. Returns their paths.
///
/// # Errors
/// [`TlsError::CreateIdentity`] where they cannot be made or stored.
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

    /// Creates a server and a client that trust each other, and a listener; `guarded`: the server requires a certificate.
    async fn server_and_client(guarded: bool) -> (ServerTls, ClientTls, TcpListener) {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = create_identity(directory.path(), "localhost").unwrap();
        let server = ServerTls::from_files(&certificate, &key, guarded.then_some(certificate.as_path())).unwrap();
        let identity = guarded.then_some((certificate.as_path(), key.as_path()));
        let client = ClientTls::from_files(&certificate, "localhost", identity).unwrap();
        (server, client, TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// Returns the number of warm-up bytes before the reply to a client with this round trip time, and the reply.
    async fn warmup_and_reply(guarded: bool, rtt: Duration) -> (usize, Vec<u8>) {
        let (server, client, listener) = server_and_client(guarded).await;
        let address = listener.local_addr().unwrap();
        let serving = async {
            let mut socket = Socket::Tls(Box::new(server.accept(listener.accept().await.unwrap().0).await.unwrap()));
            let mut heard = [0; 5];
            socket.read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"Hello");
            socket.write_all(&[1, 2, 3]).await.unwrap();
            socket.shutdown().await.unwrap();
        };
        let asking = async {
            let encrypted = client.connect(TcpStream::connect(address).await.unwrap(), rtt).await.unwrap();
            let warming = encrypted.warmup_bytes_left;
            let mut socket = Socket::Tls(Box::new(encrypted));
            socket.write_all(b"Hello").await.unwrap();
            let mut heard = Vec::new();
            socket.read_to_end(&mut heard).await.unwrap();
            (warming, heard)
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

    /// The client sends its hello and nothing more.
    #[tokio::test]
    async fn warmup_bytes_are_sent_before_the_client_has_sent_its_half_of_the_handshake() {
        let (server, client, listener) = server_and_client(false).await;
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut hello = Vec::new();
        rustls::ClientConnection::new(client.warmup_config, client.server_name).unwrap().write_tls(&mut hello).unwrap();
        stream.write_all(&hello).await.unwrap();
        let mut heard = vec![0; WARMUP_BYTES];
        tokio::select! {
            _ = async { server.accept(listener.accept().await.unwrap().0).await } => panic!("it is no whole handshake"),
            heard = stream.read_exact(&mut heard) => assert!(heard.is_ok()),
        }
    }

    /// The server closes the connection within the warm-up.
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
