//! Encryption: TLS 1.3 by rustls, with HTTP/2 agreed upon in the handshake, or by those who know no better HTTP/1.1.
//!
//! TCP sends ten packets, and twice as many after each round trip. A server would say two or three in the handshake and nothing for the round
//! trip that follows: it fills up the ten, so that what it is asked for begins with twenty. Clients that are far away want that, and know what to
//! leave out; nobody else is sent it.
//!
//! Certificates and keys come as PEM files. Who a client is, beyond being signed by an authority, is not decided here.

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

use crate::current::Current;

/// HTTP/2 in the handshake (RFC 9113 §3.3).
const PROTOCOL: &[u8] = b"h2";
/// The same after [`WARMING_BYTES`] zeros that the server sends in its half of the handshake (RFC 8446 §2: before it has heard the client's).
const WARMED_PROTOCOL: &[u8] = b"godwit-warmed-h2";
/// With the server's certificates about as much as TCP sends before anything of it is acknowledged, ten packets (RFC 6928).
const WARMING_BYTES: usize = 12 << 10;
/// Connections over round trips from this on are warmed in the handshake.
pub const WARMED_FROM: Duration = Duration::from_millis(20);
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
    config: Current<ServerConfig>,
}

/// Which servers a client trusts.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// For servers that are far away.
    far: Arc<ClientConfig>,
    name: ServerName<'static>,
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
        if client_authority.is_none() {
            // Nothing but what warms a connection is sent to a client that has not shown its own half. One that is to show who it is would be sent
            // it afterwards, in place of what it asks for.
            config.alpn_protocols.insert(0, WARMED_PROTOCOL.to_vec());
            config.send_half_rtt_data = true;
        }
        Ok(Self { config: Current::new(config) })
    }

    /// The server's side of the handshake.
    ///
    /// # Errors
    /// Those of the connection, and what the client says wrong or is not trusted for.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Encrypted> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = self.config.get();
        let is_wanted = start.client_hello().alpn().is_some_and(|mut known| known.any(|one| one == WARMED_PROTOCOL));
        let is_warmed = config.send_half_rtt_data && is_wanted;
        let mut written = Ok(());
        let warm = |connection: &mut ServerConnection| {
            if is_warmed {
                written = connection.writer().write_all(&[0; WARMING_BYTES]);
            }
        };
        let accepting = start.into_stream_with(config, warm);
        written?;
        Ok(Encrypted { stream: accepting.await?.into(), warming: 0 })
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
        let mut far = config.clone();
        far.alpn_protocols.insert(0, WARMED_PROTOCOL.to_vec());
        Ok(Self { config: Arc::new(config), far: Arc::new(far), name: server })
    }

    /// The client's side of the handshake with a server, to which and back it takes so long.
    ///
    /// # Errors
    /// Those of the connection, and of certificates that are not trusted.
    pub(crate) async fn connect(&self, stream: TcpStream, rtt: Duration) -> io::Result<Encrypted> {
        let config = if rtt < WARMED_FROM { &self.config } else { &self.far };
        let stream = TlsConnector::from(config.clone()).connect(self.name.clone(), stream).await?;
        let is_warmed = stream.get_ref().1.alpn_protocol() == Some(WARMED_PROTOCOL);
        Ok(Encrypted { stream: stream.into(), warming: if is_warmed { WARMING_BYTES } else { 0 } })
    }
}

/// An encrypted connection.
#[derive(Debug)]
pub(crate) struct Encrypted {
    stream: TlsStream<TcpStream>,
    /// Bytes that are still to come that mean nothing.
    warming: usize,
}

impl Encrypted {
    /// The TCP socket below.
    pub(crate) fn tcp(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().0.as_fd()
    }

    /// As of a socket.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.warming > 0 {
            let mut nothing = [0; 4096];
            let most = self.warming.min(nothing.len());
            let mut read = ReadBuf::new(&mut nothing[..most]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            match read.filled().len() {
                0 => return Poll::Ready(Ok(())),
                count => self.warming -= count,
            }
        }
        Pin::new(&mut self.stream).poll_read(context, space)
    }

    /// What is written to.
    pub(crate) fn writer(&mut self) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(&mut self.stream)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::transport::Socket;

    /// A server, a client that trusts it and is known to it, and where they meet; `guarded`: the server asks for its certificate.
    async fn ends(guarded: bool) -> (ServerTls, ClientTls, TcpListener) {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = make_identity(directory.path(), "localhost").unwrap();
        let server = ServerTls::from_files(&certificate, &key, guarded.then_some(certificate.as_path())).unwrap();
        let identity = guarded.then_some((certificate.as_path(), key.as_path()));
        let client = ClientTls::from_files(&certificate, "localhost", identity).unwrap();
        (server, client, TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// Bytes that come before what the server says to a client that is so far away, and what it says.
    async fn said(guarded: bool, rtt: Duration) -> (usize, Vec<u8>) {
        let (server, client, listener) = ends(guarded).await;
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
            let warming = encrypted.warming;
            let mut socket = Socket::Tls(Box::new(encrypted));
            socket.write_all(b"Hello").await.unwrap();
            let mut heard = Vec::new();
            socket.read_to_end(&mut heard).await.unwrap();
            (warming, heard)
        };
        tokio::join!(serving, asking).1
    }

    #[tokio::test]
    async fn what_warms_a_connection_is_sent_to_far_clients_and_read_by_nobody() {
        assert_eq!(said(false, WARMED_FROM).await, (WARMING_BYTES, vec![1, 2, 3]));
        for (guarded, rtt) in [(false, WARMED_FROM / 2), (true, WARMED_FROM), (true, WARMED_FROM / 2)] {
            assert_eq!(said(guarded, rtt).await, (0, vec![1, 2, 3]));
        }
    }

    /// A client that says hello and nothing more.
    #[tokio::test]
    async fn a_connection_is_warmed_before_the_client_has_said_its_half_of_the_handshake() {
        let (server, client, listener) = ends(false).await;
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut hello = Vec::new();
        rustls::ClientConnection::new(client.far, client.name).unwrap().write_tls(&mut hello).unwrap();
        stream.write_all(&hello).await.unwrap();
        let mut heard = vec![0; WARMING_BYTES];
        tokio::select! {
            _ = async { server.accept(listener.accept().await.unwrap().0).await } => panic!("it is no whole handshake"),
            heard = stream.read_exact(&mut heard) => assert!(heard.is_ok()),
        }
    }

    /// A server that hangs up before all of it has come.
    #[tokio::test]
    async fn a_connection_that_ends_while_it_is_warmed_has_ended() {
        let (server, client, listener) = ends(false).await;
        let address = listener.local_addr().unwrap();
        let serving =
            async { server.accept(listener.accept().await.unwrap().0).await.unwrap().writer().shutdown().await };
        let asking = async {
            let mut encrypted = client.connect(TcpStream::connect(address).await.unwrap(), WARMED_FROM).await.unwrap();
            encrypted.warming += 1;
            Socket::Tls(Box::new(encrypted)).read(&mut [0; 9]).await
        };
        let (ended, read) = tokio::join!(serving, asking);
        assert!(ended.is_ok() && matches!(read, Ok(0)), "{read:?}");
    }
}
