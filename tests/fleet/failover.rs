//! Nodes of a pool that are killed, hang, and come back: what was under way arrives as it was, once.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use godwit_tests::binary::{self, godwit};
use godwit_tests::patience::wait_until;
use godwit_tests::processes::signal;
use godwit_tests::{needs, scratch};

use super::pool::{Pool, end, settled, slow_copies, text};
use crate::transfer::copies::content;

/// Bytes of a file that is copied.
const BYTES: usize = 40_000_000;

fn journal_bytes(directory: &Path) -> u64 {
    fs::metadata(directory.join(".f.godwit-journal")).map_or(0, |journal| journal.len())
}

/// A node that was lost in this way, for the length of a test: one that hangs is let go at its end.
struct Lost(u32);

impl Lost {
    fn new(process: u32, how: i32) -> Self {
        signal(process, how);
        Self(process)
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        signal(self.0, libc::SIGCONT);
    }
}

#[test]
fn a_copy_whose_node_is_killed_or_hangs_goes_on_at_another() {
    needs!("python3");
    for (downloads, how) in
        [(true, libc::SIGKILL), (true, libc::SIGSTOP), (false, libc::SIGKILL), (false, libc::SIGSTOP)]
    {
        let pool = Pool::start("pool-copy", "connections", 3, &["--writable"]);
        let (source, target) = if downloads { (&pool.root, &pool.mine) } else { (&pool.mine, &pool.root) };
        fs::write(source.join("f"), content(BYTES)).expect("it can be written");
        let (remote, here) = (Pool::url("f"), text(&pool.mine.join("f")).to_owned());
        let places = if downloads { [remote, here] } else { [here, remote] };
        let words = ["copy", &places[0], &places[1], "--mode", "fast", "--streams", "3", "--rate", "200M", "--json"];
        let running = pool.godwit(&words).start();
        // A record is 48 bytes: some blocks are there.
        wait_until("some blocks are there", || journal_bytes(target) > 400);
        let node = pool.node_of(running.process_id()).expect("it is connected");
        let lost = Lost::new(pool.process_of(node), how);
        let done = running.finish();
        let case = format!("downloads {downloads}, signal {how}: {}", done.report());
        assert!(done.status.success() && done.stderr.contains(r#""code":"member_lost""#), "{case}");
        assert!(fs::read(target.join("f")).expect("it is there") == content(BYTES), "{case}");
        // Nothing is left of it, and nothing is changed by a node that comes to again.
        drop(lost);
        if how == libc::SIGSTOP {
            pool.wait_until_seen(&[true; 3]);
        }
        let mut names = scratch::names(target);
        names.retain(|name| name != ".godwit-puts");
        assert_eq!(names, ["f"], "{case}");
        assert!(fs::read(target.join("f")).expect("it is there") == content(BYTES), "{case}");
    }
}

#[test]
fn rows_whose_node_is_killed_or_hangs_come_from_another_each_once() {
    needs!("python3");
    let pool = Pool::describe("pool-rows", "connections", 3, &[]);
    let rows: String = (0..700_000).map(|row| format!("chr{}\t{row}\t{}\tname-of-{row}\n", row % 3, row + 5)).collect();
    fs::write(pool.root.join("a.bed"), rows).expect("it can be written");
    let statement = "SELECT * FROM \"a.bed\" ORDER BY position";
    let words = ["query", statement, "--format", "csv"];
    let expected = godwit().args(words).args(["--data", text(&pool.root)]).succeeds().stdout;
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_node(node));
    let said = pool.mine.join("said");
    for how in [libc::SIGSTOP, libc::SIGKILL] {
        pool.wait_until_seen(&[true; 3]);
        let mut running = Command::new(binary::path());
        running.env("XDG_CONFIG_HOME", scratch::root().join("no-configuration")).args(words);
        running.args(["--at", &Pool::url(""), "--pool", text(&pool.file)]);
        running.stdout(Stdio::piped()).stderr(fs::File::create(&said).expect("it can be made"));
        let mut running = running.spawn().expect("godwit can be started");
        let mut stdout = running.stdout.take().expect("it is piped");
        // Nobody reads on what it writes: it waits in the middle, and so does its node.
        let mut found = vec![0; 60_000];
        stdout.read_exact(&mut found).expect("the first rows come");
        let node = pool.node_of(running.id()).expect("it is connected");
        let lost = Lost::new(pool.process_of(node), how);
        stdout.read_to_end(&mut found).expect("the others come");
        let ended = running.wait().expect("it can be waited for");
        let said = fs::read_to_string(&said).expect("it was made");
        assert!(ended.success() && said.contains("is lost; going on at another node"), "signal {how}: {said}");
        assert!(found == expected.as_bytes(), "signal {how}: other rows");
        drop(lost);
    }
}

#[test]
fn rows_of_the_python_client_come_from_another_node_and_tables_are_put_once() {
    needs!("python3");
    let pool = Pool::describe("pool-python", "connections", 3, &["--writable"]);
    let rows: String = (0..700_000).map(|row| format!("chr{}\t{row}\t{}\tname-of-{row}\n", row % 3, row + 5)).collect();
    fs::write(pool.root.join("a.bed"), rows).expect("it can be written");
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_node(node));
    for (what, how) in [
        ("read_rows", libc::SIGSTOP),
        ("read_rows", libc::SIGKILL),
        ("upload_slow_table", libc::SIGSTOP),
        ("upload_slow_table", libc::SIGKILL),
    ] {
        pool.wait_until_seen(&[true; 3]);
        let mut python = crate::python::interpreter("columns");
        python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/columns/pool_failover.py"));
        python.args([text(&pool.file), what, &how.to_string()]).stdin(Stdio::piped());
        let mut running = python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let mut told = std::io::BufReader::new(running.stdout.take().expect("it is piped"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut told, &mut line).expect("it says when it is in the middle");
        assert_eq!(line, "in the middle\n");
        let node = pool.node_of(running.id()).expect("it is connected");
        let lost = Lost::new(pool.process_of(node), how);
        running.stdin.take().expect("it is piped").write_all(b"on\n").expect("it reads");
        let mut said = String::new();
        told.read_to_string(&mut said).expect("it says what it found");
        let done = running.wait_with_output().expect("it can be waited for");
        let warned = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success() && warned.contains("is lost; going on at another node"),
            "{what} {how}: {warned}"
        );
        assert_eq!(said, if what == "read_rows" { "700000 in order\n" } else { "900000 rows\n" }, "{what} {how}");
        drop(lost);
        if how == libc::SIGKILL {
            pool.nodes[node] = None;
            pool.start_node(node);
        }
        if what == "upload_slow_table" {
            // A node that hung keeps nothing of what another has kept.
            pool.wait_until_seen(&[true; 3]);
            let counted =
                pool.godwit(&["query", "SELECT count(*) AS n FROM t", "--at", &Pool::url(""), "--format", "csv"]);
            assert_eq!(counted.succeeds().stdout, "n\n900000\n");
            fs::remove_dir_all(pool.root.join("t.parquet")).expect("it was put");
        }
    }
}

#[test]
fn a_node_that_comes_back_gets_new_work() {
    needs!("python3");
    let mut pool = Pool::start("pool-failback", "connections", 2, &[]);
    fs::write(pool.root.join("f"), content(40_000_000)).expect("it can be written");
    pool.nodes[0] = None;
    pool.wait_until_seen(&[false, true]);
    let before = slow_copies(&pool, "before", 2);
    assert_eq!(settled(&pool, "before", &before), [0, 2]);
    pool.start_node(0);
    pool.wait_until_seen(&[true, true]);
    // The other one has two already.
    let after = slow_copies(&pool, "after", 2);
    assert_eq!(settled(&pool, "after", &after), [2, 0]);
    end(before);
    end(after);
}

#[test]
fn nodes_of_which_none_answers_are_waited_for_as_long_as_is_said() {
    needs!("python3");
    let mut pool = Pool::describe("pool-down", "round-robin", 2, &[]);
    fs::write(pool.root.join("f"), content(3_000_000)).expect("it can be written");
    let target = pool.mine.join("f");
    let copy = |pool: &Pool, wait: &str| pool.godwit(&["copy", &Pool::url("f"), text(&target), "--wait", wait]);
    let waits = "no node of the pool storage answers; waiting up to";
    let gone = copy(&pool, "1s").run();
    assert!(gone.stderr.contains(waits), "{}", gone.report());
    gone.refuses(&[6], &["godwit+pool://storage", "none of its 2 nodes answered"]);
    let query = pool.godwit(&["query", "SELECT 1", "--at", &Pool::url(""), "--wait", "1s"]).run();
    query.refuses(&[6], &["none of its 2 nodes answered"]);
    let said = pool.mine.join("said");
    let running = copy(&pool, "120s").stderr(fs::File::create(&said).expect("it can be made")).start();
    wait_until("it waits", || fs::read_to_string(&said).is_ok_and(|said| said.contains(waits)));
    pool.start_node(1);
    let done = running.finish();
    assert!(done.status.success(), "{}", fs::read_to_string(&said).unwrap_or_default());
    assert!(fs::read(&target).expect("it is there") == content(3_000_000));
    // All of them are lost on the way: what has come is kept, and gone on with.
    fs::remove_file(&target).expect("it is there");
    fs::write(pool.root.join("f"), content(BYTES)).expect("it can be written");
    let running = copy(&pool, "3s").args(["--rate", "100M", "--mode", "fast"]).start();
    wait_until("some blocks are there", || journal_bytes(&pool.mine) > 400);
    pool.nodes[1] = None;
    running.finish().refuses(&[6], &["3 s"]);
    pool.start_node(1);
    copy(&pool, "60s").succeeds();
    assert!(fs::read(&target).expect("it is there") == content(BYTES));
}
