//! Copies from several servers of the same files.

use super::*;

#[test]
fn a_file_comes_from_several_servers_and_stopped_servers_are_skipped() {
    for ends in [0, 1] {
        run(async {
            let (_keep, there, mine) = directories();
            let names = ["one", "two", "three"];
            for name in names {
                fs::create_dir(there.join(name)).unwrap();
                fs::write(there.join(name).join("f"), random_bytes(7, 48 * MIB + 99)).unwrap();
            }
            let mut servers = Vec::new();
            for name in names {
                servers.push(DataServer::start(&there.join(name)).await);
            }
            let places: Vec<_> = servers.iter().map(|server| server.location("f")).collect();
            let slow = CopyOptions { bits_per_s: Some(300_000_000), mirrors: places[1..].to_vec(), ..options() };
            let ends = ServerStopper {
                stop_at_bytes: 12 << 20,
                server: Mutex::new(Some(servers.remove(ends))),
                ended: AtomicBool::new(false),
            };
            let never = AtomicBool::new(false);
            let target = local_location(&mine.join("f"));
            copy(&places[..1], &target, &Credentials::default(), &slow, &ends, &never).await.unwrap();
            assert!(ends.ended.load(Ordering::Relaxed));
            assert!(fs::read(mine.join("f")).unwrap() == random_bytes(7, 48 * MIB + 99));
            // An unreachable server causes a warning.
            let watch = RecordingObserver::default();
            let again =
                run_observed_copy(&places[0], &local_location(&mine.join("again")), &slow, &watch).await.unwrap();
            assert_eq!((again.files, again.damaged_blocks), (1, 0));
            let events = watch.events.lock();
            assert!(matches!(events[0], CopyEvent::Warning { .. }), "{:?}", events[0]);
            assert!(events.iter().any(|event| matches!(event, CopyEvent::Started { servers: 2, .. })));
        });
    }
}

#[test]
fn a_server_with_other_bytes_or_files_spoils_nothing() {
    run(async {
        let (_keep, there, mine) = directories();
        for name in ["good", "bad"] {
            fs::create_dir_all(there.join(name).join("d")).unwrap();
        }
        let content = random_bytes(1, 24 * MIB + 1);
        let mut other = content.clone();
        for at in (0..other.len()).step_by(3 * MIB) {
            other[at] ^= 1;
        }
        for (name, long) in [("good", &content), ("bad", &other)] {
            fs::write(there.join(name).join("d/long"), long).unwrap();
            // Of the same size, written at another time.
            fs::write(there.join(name).join("d/short"), name.repeat(12).get(..30).unwrap()).unwrap();
        }
        fs::write(there.join("good/d/only"), random_bytes(3, 5 * MIB)).unwrap();
        fs::write(there.join("bad/d/surplus"), "x").unwrap();
        let good = DataServer::start(&there.join("good")).await;
        let bad = DataServer::start(&there.join("bad")).await;
        let both = CopyOptions { mirrors: vec![bad.location("d")], ..options() };
        run_copy(&good.location("d"), &local_location(&mine.join("d")), &both).await.unwrap();
        assert_eq!(directory_contents(&there.join("good/d")), directory_contents(&mine.join("d")));
        // The error names the option.
        let into = local_location(&mine);
        let pattern = run_copy(&good.location("d/*"), &into, &both).await;
        let up = run_copy(&local_location(&mine.join("d")), &good.location("up"), &both).await;
        let between = run_copy(&good.location("d"), &bad.location("x"), &both).await;
        for refused in [pattern, up, between] {
            assert!(matches!(refused, Err(TransferError::Rejected { .. })), "{refused:?}");
        }
    });
}
