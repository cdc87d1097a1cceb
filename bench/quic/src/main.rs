//! A file over QUIC, as fast as quinn sends it: TLS 1.3, nothing verified beyond it, ranges of the file on several connections.
//!
//!   quic-bulk serve HOST:PORT FILE
//!   quic-bulk get HOST:PORT OUT CONNECTIONS cubic|bbr
//!
//! The client accepts any certificate: the identity of the server does not matter here, and its check costs no time. Both ends request the
//! largest socket buffers that the system permits.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

type QuicResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes that may be under way: more than any path here holds.
const FLOW_CONTROL_WINDOW_BYTES: u32 = 64 << 20;
/// Bytes that are read and written at a time.
const CHUNK_BYTES: usize = 1 << 20;

fn transport_config(control: &str) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.stream_receive_window(VarInt::from_u32(FLOW_CONTROL_WINDOW_BYTES)).receive_window(VarInt::from_u32(FLOW_CONTROL_WINDOW_BYTES));
    config.send_window(u64::from(FLOW_CONTROL_WINDOW_BYTES)).max_idle_timeout(Some(Duration::from_secs(60).try_into().expect("it is short")));
    match control {
        "bbr" => config.congestion_controller_factory(Arc::new(BbrConfig::default())),
        _ => config.congestion_controller_factory(Arc::new(CubicConfig::default())),
    };
    Arc::new(config)
}

fn bind_socket(address: SocketAddr) -> QuicResult<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    let options = socket2::SockRef::from(&socket);
    let _ = options.set_recv_buffer_size(16 << 20);
    let _ = options.set_send_buffer_size(16 << 20);
    Ok(socket)
}

async fn serve(address: SocketAddr, path: &str) -> QuicResult<()> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    tls.alpn_protocols = vec![b"bulk".to_vec()];
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    // The sender selects the congestion control.
    let control = std::env::var("CONTROL").unwrap_or_default();
    config.transport_config(transport_config(&control));
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), bind_socket(address)?, Arc::new(TokioRuntime))?;
    let file = Arc::new(std::fs::File::open(path)?);
    println!("ready");
    while let Some(incoming) = endpoint.accept().await {
        let file = file.clone();
        tokio::spawn(async move {
            let connection = incoming.await?;
            send(&connection, &file).await?;
            connection.closed().await;
            QuicResult::Ok(())
        });
    }
    Ok(())
}

async fn send(connection: &Connection, file: &Arc<std::fs::File>) -> QuicResult<()> {
    let (mut out, mut asked) = connection.accept_bi().await?;
    let mut share = [0; 16];
    asked.read_exact(&mut share).await?;
    let [number, count] = [&share[..8], &share[8..]].map(|bytes| u64::from_le_bytes(bytes.try_into().expect("it is 8 bytes")));
    let bytes = file.metadata()?.len();
    let (mut at, end) = (bytes * number / count, bytes * (number + 1) / count);
    out.write_all(&[at.to_le_bytes(), (end - at).to_le_bytes()].concat()).await?;
    while at < end {
        let mut piece = vec![0; CHUNK_BYTES.min((end - at) as usize)];
        let file = file.clone();
        let piece = tokio::task::spawn_blocking(move || file.read_exact_at(&mut piece, at).map(|()| piece)).await??;
        at += piece.len() as u64;
        out.write_all(&piece).await?;
    }
    out.finish()?;
    Ok(())
}

/// Accepts every server certificate.
#[derive(Debug)]
struct AcceptAnyServer(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

async fn download(address: SocketAddr, path: &str, connections: u64, control: &str) -> QuicResult<()> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyServer(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"bulk".to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport_config(control));
    let out = Arc::new(std::fs::File::create(path)?);
    let mut parts = Vec::new();
    for number in 0..connections {
        let local = bind_socket(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        let mut endpoint = Endpoint::new(EndpointConfig::default(), None, local, Arc::new(TokioRuntime))?;
        endpoint.set_default_client_config(config.clone());
        let out = out.clone();
        parts.push(tokio::spawn(async move {
            let connection = endpoint.connect(address, "localhost")?.await?;
            let (mut ask, mut answer) = connection.open_bi().await?;
            ask.write_all(&[number.to_le_bytes(), connections.to_le_bytes()].concat()).await?;
            let mut head = [0; 16];
            answer.read_exact(&mut head).await?;
            let [mut at, bytes] = [&head[..8], &head[8..]].map(|bytes| u64::from_le_bytes(bytes.try_into().expect("it is 8 bytes")));
            let end = at + bytes;
            while let Some(chunk) = answer.read_chunk(CHUNK_BYTES, true).await? {
                let out = out.clone();
                let place = at;
                at += chunk.bytes.len() as u64;
                out.write_all_at(&chunk.bytes, place)?;
            }
            connection.close(VarInt::from_u32(0), b"done");
            endpoint.wait_idle().await;
            if at == end { QuicResult::Ok(()) } else { Err("the end is missing".into()) }
        }));
    }
    for part in parts {
        part.await??;
    }
    out.sync_all()?;
    Ok(())
}

#[tokio::main]
async fn main() -> QuicResult<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address, file] => serve(address.parse()?, file).await,
        ["get", address, out, connections, control] => download(address.parse()?, out, connections.parse()?, control).await,
        _ => Err("usage: quic-bulk serve HOST:PORT FILE | get HOST:PORT OUT CONNECTIONS cubic|bbr".into()),
    }
}
