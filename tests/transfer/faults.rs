//! Copies that are killed, cut off, and out of room.

use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::patience::wait_until;
use godwit_tests::processes::signal;
use godwit_tests::scratch;
use godwit_tests::served::Served;

use super::copies::{content, served, text, url};

/// Bytes of the file that is copied.
const BYTES: usize = 40_000_000;
/// Slow enough to be killed on the way.
const RATE: &str = "300M";

fn unfinished(directory: &Path) -> u64 {
    let part = fs::metadata(directory.join(".f.godwit-journal"));
    part.map_or(0, |journal| journal.len())
}

/// Bytes of a block.
const BLOCK_BYTES: u64 = 256 << 10;

/// The bytes that a copy says were there before.
fn kept(events: &str) -> u64 {
    let started = events.lines().find(|line| line.contains("\"started\"")).expect("it is told");
    let kept = started.split("\"kept_bytes\":").nth(1).expect("it is told");
    kept.split([',', '}']).next().and_then(|digits| digits.parse().ok()).expect("it is a number")
}

#[test]
fn a_copy_whose_either_end_is_killed_goes_on_where_it_was() {
    for (downloads, kills_server) in [(true, false), (false, false), (true, true), (false, true)] {
        let (root, mine, served) = served("copy-kill", &["--writable"]);
        let (source, target) = if downloads { (&root, &mine) } else { (&mine, &root) };
        fs::write(source.join("f"), content(BYTES)).expect("it can be written");
        let address = served.address.clone();
        let words = |at: &Served| match downloads {
            true => [url(at, "f"), text(&mine.join("f")).to_owned()],
            false => [text(&mine.join("f")).to_owned(), url(at, "f")],
        };
        let words = words(&served);
        let copy = || godwit().arg("copy").args(&words).args(["--mode", "fast", "--streams", "3", "--json"]);
        // A record is 48 bytes: some blocks are there.
        let running = copy().args(["--rate", RATE]).start();
        wait_until("some blocks are there", || unfinished(target) > 600);
        if kills_server {
            signal(served.process_id(), libc::SIGKILL);
            drop(served);
            assert!(!target.join("f").exists());
            let _again = Served::start_at(&root, &address, &["--writable"]);
            let done = running.finish();
            assert!(done.status.success(), "{}", done.report());
        } else {
            signal(running.process_id(), libc::SIGKILL);
            running.finish();
            assert!(!target.join("f").exists());
            let recorded = (unfinished(target) - 200) / 48;
            let done = copy().succeeds();
            // At most what one record may have lost is sent again.
            assert!(
                kept(&done.stderr) >= recorded.saturating_sub(1) * BLOCK_BYTES,
                "{} of {recorded}",
                kept(&done.stderr)
            );
        }
        assert!(fs::read(target.join("f")).expect("it is there") == content(BYTES));
        let mut names = scratch::names(target);
        // Where a server that may be written to makes datasets.
        names.retain(|name| name != ".godwit-puts");
        assert_eq!(names, ["f"], "downloads {downloads}, kills the server {kills_server}");
    }
}

#[test]
fn a_disk_that_is_full_ends_a_copy_and_the_next_one_goes_on_with_all_that_fitted() {
    let (root, mine, served) = served("copy-full", &["--writable"]);
    fs::write(root.join("f"), content(BYTES)).expect("it can be written");
    let target = text(&mine.join("f")).to_owned();
    let copy = || godwit().args(["copy", &url(&served, "f"), &target, "--json"]);
    // Blocks beyond the limit come first as often as not: those before it are taken all the same.
    copy().largest_file(10 << 20).run().refuses(&[4], &["f", "large"]);
    assert!(!mine.join("f").exists());
    // What is there stays there, also where there is still no room.
    let full = copy().largest_file(10 << 20).run();
    assert_eq!(kept(&full.stderr), 10 << 20, "{}", full.report());
    full.refuses(&[4], &["f", "large"]);
    let done = copy().succeeds();
    assert_eq!(kept(&done.stderr), 10 << 20, "{}", done.stderr);
    assert!(fs::read(mine.join("f")).expect("it is there") == content(BYTES));
}

#[test]
fn a_destination_that_goes_away_is_told() {
    let (root, mine, served) = served("copy-gone", &["--writable"]);
    fs::write(root.join("f"), content(BYTES)).expect("it can be written");
    let target = mine.join("deep");
    fs::create_dir(&target).expect("it can be made");
    let running =
        godwit().args(["copy", &url(&served, "f"), text(&target.join("f")), "--rate", RATE, "--mode", "fast"]).start();
    wait_until("some blocks are there", || unfinished(&target) > 400);
    fs::remove_dir_all(&target).expect("it can be removed");
    let ended = running.finish();
    assert_eq!(ended.status.code(), Some(4), "{}", ended.report());
    ended.refuses(&[4], &["deep/f"]);
}

#[test]
fn a_way_that_is_silent_for_too_long_ends_a_copy() {
    let (root, mine, served) = served("copy-silent", &[]);
    fs::write(root.join("f"), content(BYTES)).expect("it can be written");
    let running =
        godwit().args(["copy", &url(&served, "f"), text(&mine.join("f")), "--rate", RATE, "--patience", "7s"]).start();
    wait_until("some blocks are there", || unfinished(&mine) > 400);
    signal(served.process_id(), libc::SIGSTOP);
    let ended = running.finish();
    signal(served.process_id(), libc::SIGCONT);
    ended.refuses(&[6], &["7 s", "same command"]);
    godwit().args(["copy", &url(&served, "f"), text(&mine.join("f"))]).succeeds();
    assert!(fs::read(mine.join("f")).expect("it is there") == content(BYTES));
}

/// Kills one end or the other at points that a seed names, until the copy is whole. All of them take minutes:
/// `cargo test --profile ci -p godwit-tests --test e2e -- --ignored transfer::faults`.
fn killed_at(seed: u64) {
    let (root, mine, first) = served(&format!("copy-kills-{seed}"), &["--writable"]);
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    let downloads = below(2) == 0;
    let (source, target) = if downloads { (&root, &mine) } else { (&mine, &root) };
    let size = 30_000_000 + below(10_000_000) as usize;
    fs::write(source.join("f"), content(size)).expect("it can be written");
    let address = first.address.clone();
    let remote = url(&first, "f");
    let mine = text(&mine.join("f")).to_owned();
    let words = if downloads { [remote, mine] } else { [mine, remote] };
    let streams = (1 + below(6)).to_string();
    let copy = || godwit().arg("copy").args(&words).args(["--mode", "fast", "--streams", &streams, "--json"]);
    let mut server = Some(first);
    let mut recorded = 0;
    for _ in 0..1 + below(4) {
        let running = copy().args(["--rate", RATE]).start();
        // Of the blocks that are left, one at least.
        let records = 200 + 48 * (recorded + 1 + below((size as u64 / BLOCK_BYTES).saturating_sub(recorded).max(1)));
        wait_until("some blocks are there, or all", || unfinished(target) >= records || target.join("f").exists());
        if below(2) == 0 {
            let ended = server.take().expect("there is one");
            signal(ended.process_id(), libc::SIGKILL);
            drop(ended);
            server = Some(Served::start_at(&root, &address, &["--writable"]));
            wait_until("it goes on", || unfinished(target) > records || target.join("f").exists());
        }
        signal(running.process_id(), libc::SIGKILL);
        let ended = running.finish();
        let is_whole = target.join("f").exists();
        assert!(is_whole || ended.status.code().is_none(), "seed {seed}: {}", ended.report());
        if is_whole {
            break;
        }
        recorded = unfinished(target).saturating_sub(200) / 48;
    }
    let done = copy().succeeds();
    if done.stderr.contains("\"files\":1") {
        let least = recorded.saturating_sub(1) * BLOCK_BYTES;
        assert!(kept(&done.stderr) >= least, "seed {seed}: {} of {least}", kept(&done.stderr));
    }
    assert!(fs::read(target.join("f")).expect("it is there") == content(size), "seed {seed}");
}

#[test]
#[ignore = "takes minutes; for whoever changes what is kept of a copy"]
fn fifty_copies_are_killed_where_seeds_say_and_end_whole() {
    for seed in 0..50 {
        killed_at(seed);
    }
}

#[test]
#[ignore = "takes more than a minute"]
fn a_way_that_is_gone_for_a_minute_is_gone_on_with() {
    let (root, mine, served) = served("copy-minute", &[]);
    fs::write(root.join("f"), content(BYTES)).expect("it can be written");
    let running = godwit().args(["copy", &url(&served, "f"), text(&mine.join("f")), "--rate", RATE, "--json"]).start();
    wait_until("some blocks are there", || unfinished(&mine) > 400);
    signal(served.process_id(), libc::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_secs(60));
    assert!(!mine.join("f").exists());
    signal(served.process_id(), libc::SIGCONT);
    let done = running.finish();
    assert!(done.status.success(), "{}", done.report());
    assert!(fs::read(mine.join("f")).expect("it is there") == content(BYTES));
}
