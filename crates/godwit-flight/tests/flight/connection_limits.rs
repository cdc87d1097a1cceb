//! Connections that the server or the client closes: silent peers, missing prefaces, too many connections.

use super::*;

#[tokio::test]
async fn a_peer_that_stops_responding_is_detected_within_seconds() {
    // It accepts connections and reads, but sends nothing: as a host without power looks.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let silence = tokio::spawn(async move {
        let held = listener.accept().await;
        std::future::pending::<()>().await;
        drop(held);
    });
    let options = TransportOptions {
        keep_alive_interval: Duration::from_millis(300),
        keep_alive_timeout: Duration::from_millis(300),
        ..TransportOptions::default()
    };
    let client = Client::connect(&address, ConnectionSecurity::default(), options).await.unwrap();
    let answer = tokio::time::timeout(godwit_tests::wait::WAIT_TIMEOUT, client.download("1x1")).await;
    assert!(matches!(answer.expect("silence is noticed"), Err(FlightError::Connection { .. })));
    silence.abort();
}

/// Starts a server whose connections must send their first bytes soon, and which accepts two of them.
async fn serve_with_short_limits() -> std::net::SocketAddr {
    let options = TransportOptions {
        connect_timeout: Duration::from_millis(200),
        max_connections: 2,
        ..TransportOptions::default()
    };
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let server = Server::bind(&any, Plane, tonic::service::Routes::default(), ConnectionSecurity::default(), options)
        .await
        .expect("a port is free");
    let Address::Tcp(address) = server.address().clone() else { panic!("a TCP server") };
    tokio::spawn(server.serve());
    address
}

/// Waits for the other end to close a connection.
async fn is_closed(stream: &mut tokio::net::TcpStream) -> bool {
    use tokio::io::AsyncReadExt as _;
    let mut said = Vec::new();
    let read = tokio::time::timeout(godwit_tests::wait::WAIT_TIMEOUT, stream.read_to_end(&mut said)).await;
    // It may send data first; a reset closes as well.
    read.is_ok()
}

#[tokio::test]
async fn a_connection_that_does_not_send_a_protocol_preface_is_closed() {
    use tokio::io::AsyncWriteExt as _;
    let address = serve_with_short_limits().await;
    for words in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(words).await.unwrap();
        assert!(is_closed(&mut stream).await, "{words:?}");
    }
    let client = Client::connect(&Address::Tcp(address), ConnectionSecurity::default(), TransportOptions::default())
        .await
        .unwrap();
    // A connection is served long after its first bytes.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(download(&client, "2x10").await.unwrap().len(), 2);
}

#[tokio::test]
async fn connections_beyond_the_maximum_are_closed_and_others_continue() {
    let address = serve_with_short_limits().await;
    let first = Client::connect(&Address::Tcp(address), ConnectionSecurity::default(), TransportOptions::default())
        .await
        .unwrap();
    let second = Client::connect(&Address::Tcp(address), ConnectionSecurity::default(), TransportOptions::default())
        .await
        .unwrap();
    assert_eq!(download(&second, "1x10").await.unwrap().len(), 1);
    let mut third = tokio::net::TcpStream::connect(address).await.unwrap();
    assert!(is_closed(&mut third).await);
    for client in [&first, &second] {
        assert_eq!(download(client, "2x10").await.unwrap().len(), 2);
    }
    drop((first, second));
    // A slot is free once the server has seen that they are closed.
    let deadline = std::time::Instant::now() + godwit_tests::wait::WAIT_TIMEOUT;
    loop {
        let again =
            Client::connect(&Address::Tcp(address), ConnectionSecurity::default(), TransportOptions::default()).await;
        if let Ok(again) = again
            && download(&again, "1x10").await.is_ok_and(|batches| batches.len() == 1)
        {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no place becomes free");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
