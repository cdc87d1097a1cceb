//! Copies that are killed, disconnected, or out of disk space.

use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::processes::send_signal;
use godwit_tests::scratch;
use godwit_tests::wait::wait_until;

use super::copies::{path_text, pseudorandom_bytes, server_url, start_server};

/// The size of the copied file in bytes.
const FILE_BYTES: usize = 40_000_000;
/// A rate that is slow enough for a kill during the copy.
const RATE_LIMIT: &str = "300M";

fn journal_size(directory: &Path) -> u64 {
    let part = fs::metadata(directory.join(".f.godwit-journal"));
    part.map_or(0, |journal| journal.len())
}

/// The size of a block in bytes.
const BLOCK_BYTES: u64 = 256 << 10;

/// Returns the resumed bytes that a copy reports.
fn kept_bytes(events: &str) -> u64 {
    let started = events.lines().find(|line| line.contains("\"started\"")).expect("it is told");
    let kept = started.split("\"kept_bytes\":").nth(1).expect("it is told");
    kept.split([',', '}']).next().and_then(|digits| digits.parse().ok()).expect("it is a number")
}

#[test]
fn a_copy_resumes_where_it_stopped_when_either_end_is_killed() {
    for (downloads, kills_server) in [(true, false), (false, false), (true, true), (false, true)] {
        let (root, mine, served) = start_server("copy-kill", &["--writable"]);
        let (source, target) = if downloads { (&root, &mine) } else { (&mine, &root) };
        fs::write(source.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
        let address = served.address.clone();
        let words = |at: &DataServer| match downloads {
            true => [server_url(at, "f"), path_text(&mine.join("f")).to_owned()],
            false => [path_text(&mine.join("f")).to_owned(), server_url(at, "f")],
        };
        let words = words(&served);
        let copy = || godwit().arg("copy").args(&words).args(["--mode", "fast", "--streams", "3", "--json"]);
        // A journal entry has 48 bytes: some blocks are complete.
        let running = copy().args(["--rate", RATE_LIMIT]).spawn();
        wait_until("some blocks are there", || journal_size(target) > 600);
        if kills_server {
            send_signal(served.process_id(), libc::SIGKILL);
            drop(served);
            assert!(!target.join("f").exists());
            let _again = DataServer::start_at(&root, &address, &["--writable"]);
            let done = running.wait_with_output();
            assert!(done.status.success(), "{}", done.describe());
        } else {
            send_signal(running.process_id(), libc::SIGKILL);
            running.wait_with_output();
            assert!(!target.join("f").exists());
            let recorded = (journal_size(target) - 200) / 48;
            let done = copy().run_ok();
            // At most the block of one lost journal entry is sent again.
            assert!(
                kept_bytes(&done.stderr) >= recorded.saturating_sub(1) * BLOCK_BYTES,
                "{} of {recorded}",
                kept_bytes(&done.stderr)
            );
        }
        assert!(fs::read(target.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES));
        let mut names = scratch::entry_names(target);
        // The directory in which a writable server creates datasets.
        names.retain(|name| name != ".godwit-puts");
        assert_eq!(names, ["f"], "downloads {downloads}, kills the server {kills_server}");
    }
}

#[test]
fn a_disk_that_is_full_ends_a_copy_and_the_next_one_goes_on_with_all_that_fitted() {
    let (root, mine, served) = start_server("copy-full", &["--writable"]);
    fs::write(root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let target = path_text(&mine.join("f")).to_owned();
    let copy = || godwit().args(["copy", &server_url(&served, "f"), &target, "--json"]);
    // Blocks beyond the limit often arrive first: those before it are stored all the same.
    copy().limit_file_size(10 << 20).run().assert_rejected(&[4], &["f", "large"]);
    assert!(!mine.join("f").exists());
    // Stored blocks stay, also where there is still no space.
    let full = copy().limit_file_size(10 << 20).run();
    assert_eq!(kept_bytes(&full.stderr), 10 << 20, "{}", full.describe());
    full.assert_rejected(&[4], &["f", "large"]);
    let done = copy().run_ok();
    assert_eq!(kept_bytes(&done.stderr), 10 << 20, "{}", done.stderr);
    assert!(fs::read(mine.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES));
}

#[test]
fn a_destination_that_goes_away_is_told() {
    let (root, mine, served) = start_server("copy-gone", &["--writable"]);
    fs::write(root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let target = mine.join("deep");
    fs::create_dir(&target).expect("it can be made");
    let running = godwit()
        .args(["copy", &server_url(&served, "f"), path_text(&target.join("f")), "--rate", RATE_LIMIT, "--mode", "fast"])
        .spawn();
    wait_until("some blocks are there", || journal_size(&target) > 400);
    fs::remove_dir_all(&target).expect("it can be removed");
    let ended = running.wait_with_output();
    assert_eq!(ended.status.code(), Some(4), "{}", ended.describe());
    ended.assert_rejected(&[4], &["deep/f"]);
}

#[test]
fn a_way_that_is_silent_for_too_long_ends_a_copy() {
    let (root, mine, served) = start_server("copy-silent", &[]);
    fs::write(root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let running = godwit()
        .args(["copy", &server_url(&served, "f"), path_text(&mine.join("f")), "--rate", RATE_LIMIT, "--patience", "7s"])
        .spawn();
    wait_until("some blocks are there", || journal_size(&mine) > 400);
    send_signal(served.process_id(), libc::SIGSTOP);
    let ended = running.wait_with_output();
    send_signal(served.process_id(), libc::SIGCONT);
    ended.assert_rejected(&[6], &["7 s", "same command"]);
    godwit().args(["copy", &server_url(&served, "f"), path_text(&mine.join("f"))]).run_ok();
    assert!(fs::read(mine.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES));
}

/// Kills the client or the server at random points until the copy is complete. The test of all cases takes minutes:
/// `cargo test --profile ci -p godwit-tests --test e2e -- --ignored transfer::faults`.
fn assert_copy_survives_kills(seed: u64) {
    let (root, mine, first) = start_server(&format!("copy-kills-{seed}"), &["--writable"]);
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
    fs::write(source.join("f"), pseudorandom_bytes(size)).expect("it can be written");
    let address = first.address.clone();
    let remote = server_url(&first, "f");
    let mine = path_text(&mine.join("f")).to_owned();
    let words = if downloads { [remote, mine] } else { [mine, remote] };
    let streams = (1 + below(6)).to_string();
    let copy = || godwit().arg("copy").args(&words).args(["--mode", "fast", "--streams", &streams, "--json"]);
    let mut server = Some(first);
    let mut recorded = 0;
    for _ in 0..1 + below(4) {
        let running = copy().args(["--rate", RATE_LIMIT]).spawn();
        // Wait until the journal lists at least one block more than before.
        let records = 200 + 48 * (recorded + 1 + below((size as u64 / BLOCK_BYTES).saturating_sub(recorded).max(1)));
        wait_until("some blocks are there, or all", || journal_size(target) >= records || target.join("f").exists());
        if below(2) == 0 {
            let ended = server.take().expect("there is one");
            send_signal(ended.process_id(), libc::SIGKILL);
            drop(ended);
            server = Some(DataServer::start_at(&root, &address, &["--writable"]));
            wait_until("it goes on", || journal_size(target) > records || target.join("f").exists());
        }
        send_signal(running.process_id(), libc::SIGKILL);
        let ended = running.wait_with_output();
        let is_whole = target.join("f").exists();
        assert!(is_whole || ended.status.code().is_none(), "seed {seed}: {}", ended.describe());
        if is_whole {
            break;
        }
        recorded = journal_size(target).saturating_sub(200) / 48;
    }
    let done = copy().run_ok();
    if done.stderr.contains("\"files\":1") {
        let least = recorded.saturating_sub(1) * BLOCK_BYTES;
        assert!(kept_bytes(&done.stderr) >= least, "seed {seed}: {} of {least}", kept_bytes(&done.stderr));
    }
    assert!(fs::read(target.join("f")).expect("it is there") == pseudorandom_bytes(size), "seed {seed}");
}

#[test]
#[ignore = "takes minutes; run it after a change to the journal of a copy"]
fn fifty_copies_are_killed_where_seeds_say_and_end_whole() {
    for seed in 0..50 {
        assert_copy_survives_kills(seed);
    }
}

#[test]
#[ignore = "takes more than a minute"]
fn a_way_that_is_gone_for_a_minute_is_gone_on_with() {
    let (root, mine, served) = start_server("copy-minute", &[]);
    fs::write(root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let running = godwit()
        .args(["copy", &server_url(&served, "f"), path_text(&mine.join("f")), "--rate", RATE_LIMIT, "--json"])
        .spawn();
    wait_until("some blocks are there", || journal_size(&mine) > 400);
    send_signal(served.process_id(), libc::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_secs(60));
    assert!(!mine.join("f").exists());
    send_signal(served.process_id(), libc::SIGCONT);
    let done = running.wait_with_output();
    assert!(done.status.success(), "{}", done.describe());
    assert!(fs::read(mine.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES));
}
