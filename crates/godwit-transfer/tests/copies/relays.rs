//! Copies through a relay: the cache, restarts of either server, and authorization.

use super::*;

#[test]
fn blocks_come_through_a_relay_that_allows_it() {
    run(async {
        let (_keep, there, mine) = directories();
        fill_directory(&there.join("d"));
        fs::create_dir(there.join("relay")).unwrap();
        let source = DataServer::start(&there).await;
        let relay = DataServer::start_with(&there.join("relay"), own_address(), relay_options(None)).await;
        for (name, compression) in [("none", Compression::None), ("zstd", Compression::Zstd)] {
            let target = mine.join(name);
            let through = CopyOptions { relay: Some(relay.location("")), compression, ..options() };
            run_copy(&source.location("d"), &local_location(&target), &through).await.unwrap();
            assert_eq!(directory_contents(&there.join("d")), directory_contents(&target));
        }
        // Bits that flip on the way to the relay are detected at the client.
        let (content, size) = (random_bytes(5, 40 * MIB), 40 * MIB);
        fs::write(there.join("f"), &content).unwrap();
        let way = bit_flipping_proxy(source.address, 6 << 20, 4).await;
        let through = CopyOptions { relay: Some(relay.location("")), ..options() };
        let summary = run_copy(&remote_location(way, "f"), &local_location(&mine.join("f")), &through).await.unwrap();
        assert!(fs::read(mine.join("f")).unwrap() == content, "{size}");
        assert!(summary.damaged_blocks > 0, "{summary:?}");
        // A server without the option does not relay; blocks do not bypass it.
        let no_relay = CopyOptions { relay: Some(source.location("")), ..options() };
        let refused = run_copy(&source.location("f"), &local_location(&mine.join("g")), &no_relay).await;
        assert!(
            matches!(&refused, Err(TransferError::Rejected { problem }) if problem.contains("--relay")),
            "{refused:?}"
        );
    });
}

/// Fills a directory as [`fill_directory`], but with few files: each file of a block is made durable by itself.
fn fill_with_few(directory: &Path) {
    fs::create_dir_all(directory.join("a/empty")).unwrap();
    let sizes = [0, 1, 100, 5000, MIB - 1, MIB, MIB + 1, 3 * MIB, 5 * MIB + 12_345];
    for (seed, size) in (0..).zip(sizes) {
        fs::write(directory.join(format!("a/file{size}")), random_bytes(seed, size)).unwrap();
    }
}

fn open_relay_cache(directory: &Path) -> Arc<RelayCache> {
    let opened = RelayCache::open(directory, RELAY_CACHE_MIN_BYTES, |text| panic!("{text}"));
    Arc::new(opened.unwrap())
}

#[test]
fn files_are_sent_through_a_relay() {
    run(async {
        let (_keep, there, mine) = directories();
        fill_with_few(&mine.join("d"));
        fs::create_dir(there.join("relay")).unwrap();
        let far = DataServer::start(&there).await;
        let relay = DataServer::start_with(&there.join("relay"), own_address(), relay_options(None)).await;
        for (name, compression) in [("none", Compression::None), ("zstd", Compression::Zstd)] {
            let through = CopyOptions { relay: Some(relay.location("")), compression, ..options() };
            run_copy(&local_location(&mine.join("d")), &far.location(name), &through).await.unwrap();
            assert_eq!(directory_contents(&mine.join("d")), directory_contents(&there.join(name)));
        }
        // Bits that flip on the way to the relay are detected behind it.
        fs::write(mine.join("f"), random_bytes(5, 40 * MIB)).unwrap();
        let way = bit_flipping_proxy(relay.address, 6 << 20, 4).await;
        let through = CopyOptions { relay: Some(remote_location(way, "")), ..options() };
        let summary = run_copy(&local_location(&mine.join("f")), &far.location("f"), &through).await.unwrap();
        assert!(fs::read(there.join("f")).unwrap() == random_bytes(5, 40 * MIB));
        assert!(summary.damaged_blocks > 0, "{summary:?}");
        // Unchanged blocks of an earlier version are kept and not sent again.
        let mut content = random_bytes(5, 40 * MIB);
        content[7 * MIB] ^= 1;
        fs::write(mine.join("f"), &content).unwrap();
        fs::remove_file(there.join("f")).unwrap();
        let through = CopyOptions { relay: Some(relay.location("")), ..options() };
        run_copy(&local_location(&mine.join("f")), &far.location("f"), &through).await.unwrap();
        assert!(fs::read(there.join("f")).unwrap() == content);
        let no_relay = CopyOptions { relay: Some(far.location("")), ..options() };
        let refused = run_copy(&local_location(&mine.join("f")), &far.location("g"), &no_relay).await;
        assert!(
            matches!(&refused, Err(TransferError::Rejected { problem }) if problem.contains("--relay")),
            "{refused:?}"
        );
        let between = run_copy(&far.location("f"), &relay.location("f"), &through).await;
        assert!(
            matches!(&between, Err(TransferError::Rejected { problem }) if problem.contains("--relay")),
            "{between:?}"
        );
    });
}

/// Copies through a relay while one of the two servers is stopped and restarted.
async fn copy_through_restarted_servers(downloads: bool, ends_relay: bool) {
    let (_keep, there, mine) = directories();
    let (source, target) =
        if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
    fs::write(&source, random_bytes(3, 32 * MIB + 5)).unwrap();
    fs::create_dir(there.join("relay")).unwrap();
    let start = async |relay: bool, address: SocketAddr| match relay {
        true => DataServer::start_with(&there.join("relay"), address, relay_options(None)).await,
        false => DataServer::start_at(&there, address).await,
    };
    let (far, relay) = (start(false, own_address()).await, start(true, own_address()).await);
    let (from, to) = match downloads {
        true => (far.location("f"), local_location(&target)),
        false => (local_location(&source), far.location("f")),
    };
    let slow = CopyOptions { relay: Some(relay.location("")), bits_per_s: Some(250_000_000), ..options() };
    let kept = if ends_relay { relay.address } else { far.address };
    let server = Mutex::new(Some(if ends_relay { relay } else { far }));
    let ends = ServerStopper { stop_at_bytes: 8 << 20, server, ended: AtomicBool::new(false) };
    let never = AtomicBool::new(false);
    let credentials = Credentials::default();
    let again = async {
        while !ends.ended.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        start(ends_relay, kept).await
    };
    let copying = copy(std::slice::from_ref(&from), &to, &credentials, &slow, &ends, &never);
    let (outcome, _again) = tokio::join!(copying, again);
    outcome.unwrap();
    assert!(
        fs::read(&target).unwrap() == random_bytes(3, 32 * MIB + 5),
        "downloads: {downloads}, ends the relay: {ends_relay}"
    );
}

#[test]
fn copies_through_a_relay_resume_when_either_server_restarts() {
    for (downloads, ends_relay) in [(true, true), (true, false), (false, true), (false, false)] {
        run(copy_through_restarted_servers(downloads, ends_relay));
    }
}

/// Starts a proxy that counts the bytes of responses.
async fn byte_counting_proxy(to: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let count = counted.clone();
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(to).await else { return };
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let back = async move {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                        count.fetch_add(read as u64, Ordering::Relaxed);
                        if to_client.write_all(&buffer[..read]).await.is_err() {
                            break;
                        }
                    }
                };
                tokio::join!(tokio::io::copy(&mut from_client, &mut to_server), back).0.ok();
            });
        }
    });
    (address, count)
}

#[test]
fn several_receivers_of_a_directory_have_it_cross_the_far_half_once() {
    run(async {
        let (_keep, there, mine) = directories();
        fill_with_few(&there.join("d"));
        fs::write(there.join("d/long"), random_bytes(9, 48 * MIB + 9)).unwrap();
        let size: u64 = directory_contents(&there.join("d")).iter().map(|(_, content, ..)| content.len() as u64).sum();
        fs::create_dir(there.join("relay")).unwrap();
        let far = DataServer::start(&there).await;
        let (way, crossed) = byte_counting_proxy(far.address).await;
        let cache = mine.join("cache");
        let relay =
            DataServer::start_with(&there.join("relay"), own_address(), relay_options(Some(open_relay_cache(&cache))))
                .await;
        let copy_as = async |name: &str, compression: Compression| {
            let through = CopyOptions { relay: Some(relay.location("")), compression, ..options() };
            run_copy(&remote_location(way, "d"), &local_location(&mine.join(name)), &through).await.unwrap();
            assert_eq!(directory_contents(&there.join("d")), directory_contents(&mine.join(name)), "{name}");
        };
        tokio::join!(
            copy_as("one", Compression::None),
            copy_as("two", Compression::None),
            copy_as("three", Compression::Zstd),
            copy_as("four", Compression::None)
        );
        let once = crossed.load(Ordering::Relaxed);
        assert!(once < size + size / 8, "{once} of {size}");
        copy_as("five", Compression::Zstd).await;
        let more = crossed.load(Ordering::Relaxed) - once;
        assert!(more < size / 8, "{more} of {size}");
    });
}

#[test]
fn receivers_that_come_and_go_leave_what_is_right_whatever_the_cache_loses() {
    run(async {
        let (_keep, there, mine) = directories();
        let size = 24 * MIB + 77;
        fs::write(there.join("f"), random_bytes(11, size)).unwrap();
        fs::create_dir(there.join("relay")).unwrap();
        let far = DataServer::start(&there).await;
        let cache = mine.join("cache");
        let relay =
            DataServer::start_with(&there.join("relay"), own_address(), relay_options(Some(open_relay_cache(&cache))))
                .await;
        let copying = (0..6_u64).map(|number| {
            let (from, to) = (far.location("f"), local_location(&mine.join(format!("f{number}"))));
            // Some are slower than others.
            let bits_per_s = (number % 3 == 1).then_some(400_000_000);
            let through = CopyOptions { relay: Some(relay.location("")), bits_per_s, ..options() };
            tokio::spawn(async move {
                // Some are stopped and resumed.
                let watch = RecordingObserver {
                    stop_at: AtomicU64::new(if number % 2 == 0 { 4 << 20 } else { 0 }),
                    ..RecordingObserver::default()
                };
                let first = run_observed_copy(&from, &to, &through, &watch).await;
                match first {
                    Err(TransferError::Interrupted) => run_copy(&from, &to, &through).await.unwrap(),
                    first => first.unwrap(),
                }
            })
        });
        let copying: Vec<_> = copying.collect();
        // Meanwhile cached blocks are removed.
        let losing = async {
            for round in 0..40_u8 {
                for block in files_below(&cache.join("blocks")) {
                    if round % 2 == 0 {
                        let _ = fs::remove_file(block);
                    } else {
                        let _ = fs::write(block, "damaged");
                    }
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        losing.await;
        for copying in copying {
            copying.await.unwrap();
        }
        for number in 0..6 {
            assert!(fs::read(mine.join(format!("f{number}"))).unwrap() == random_bytes(11, size), "{number}");
        }
    });
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(directory) else { return Vec::new() };
    let below = listed.map(|entry| entry.unwrap().path()).map(|path| match path.is_dir() {
        true => files_below(&path),
        false => vec![path],
    });
    below.flatten().collect()
}

#[test]
fn cached_blocks_are_sent_only_to_clients_that_their_server_authorizes() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::write(there.join("secret"), random_bytes(4, 3 * MIB)).unwrap();
        fs::write(there.join("other"), random_bytes(5, 3 * MIB)).unwrap();
        fs::create_dir(there.join("relay")).unwrap();
        let far = DataServer::start_with(&there, own_address(), FileServiceOptions::default()).await;
        let cache = open_relay_cache(&mine.join("cache"));
        let relay = DataServer::start_with(&there.join("relay"), own_address(), relay_options(Some(cache))).await;
        let through = CopyOptions { relay: Some(relay.location("")), ..options() };
        run_copy(&far.location("secret"), &local_location(&mine.join("secret")), &through).await.unwrap();
        // A client that knows all names and numbers, with a token for another path.
        let client = async |at: SocketAddr| {
            let access = ConnectionSecurity { token: None, tls: None };
            Client::connect(&Address::Tcp(at), access, TransportOptions::default()).await.unwrap()
        };
        let (to_far, to_relay) = (client(far.address).await, client(relay.address).await);
        let act = async |kind: &str, body: &str| {
            let answer = to_far.do_action(kind, body.as_bytes().to_vec()).await.unwrap();
            String::from_utf8(answer[0].to_vec()).unwrap()
        };
        let listed = act("godwit.files.list", r#"{"path":"secret"}"#).await;
        let version = listed.split("\"version\":").nth(1).unwrap().split('}').next().unwrap().to_owned();
        let asked = async |token: &str| {
            let span = format!(r#"{{"file":0,"path":"secret","state":{{"version":{version}}},"start":0,"end":3}}"#);
            let manner = r#"{"mode":"fast","bytes_per_s":null,"compress":false}"#;
            let ticket = format!(
                r#"godwit.files.relay {{"from":"grpc+tcp://{}","token":{token},"lane":"x","read":{{"spans":[{span}],"manner":{manner}}}}}"#,
                far.address
            );
            let mut batches = to_relay.download(ticket.into_bytes()).await?;
            let mut rows = 0;
            while let Some((batch, _)) = batches.next().await? {
                rows += batch.num_rows();
            }
            Ok::<usize, FlightError>(rows)
        };
        let granted = act("godwit.files.grant", r#"{"path":"secret"}"#).await;
        assert_eq!(asked(&granted).await.unwrap(), 3);
        let other = act("godwit.files.grant", r#"{"path":"other"}"#).await;
        let refused = asked(&other).await.unwrap_err();
        assert!(godwit_model::message_with_causes(&refused).contains("does not permit reading"), "{refused:?}");
        // A file that was changed or removed is not sent in its earlier version.
        fs::write(there.join("secret"), random_bytes(6, 3 * MIB)).unwrap();
        assert_eq!(asked(&granted).await.unwrap(), 0);
        fs::remove_file(there.join("secret")).unwrap();
        assert_eq!(asked(&granted).await.unwrap(), 0);
    });
}
