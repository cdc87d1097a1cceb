//! Pool members that are killed, hang and restart: running copies, queries and uploads finish with unchanged data, and
//! no row is received twice.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use godwit_tests::binary::{self, godwit};
use godwit_tests::processes::send_signal;
use godwit_tests::tool::run_checked;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::server_pool::{ServerPool, copies_per_member, kill_copies, path_text, start_slow_copies};
use crate::run::formats::columns_script;
use crate::transfer::copies::pseudorandom_bytes;

/// The size of a copied file in bytes.
const FILE_BYTES: usize = 40_000_000;

fn journal_size(directory: &Path) -> u64 {
    fs::metadata(directory.join(".f.godwit-journal")).map_or(0, |journal| journal.len())
}

/// A pool member that a test has killed or stopped by a signal. When the value is dropped, a stopped member continues.
struct SignalledMember(u32);

impl SignalledMember {
    fn new(process: u32, how: i32) -> Self {
        send_signal(process, how);
        Self(process)
    }
}

impl Drop for SignalledMember {
    fn drop(&mut self) {
        send_signal(self.0, libc::SIGCONT);
    }
}

#[test]
fn a_copy_resumes_on_another_pool_member_when_its_member_is_killed_or_hangs() {
    needs!("python3");
    for (downloads, how) in
        [(true, libc::SIGKILL), (true, libc::SIGSTOP), (false, libc::SIGKILL), (false, libc::SIGSTOP)]
    {
        let pool = ServerPool::start("pool-copy", "connections", 3, &["--writable"]);
        let (source, target) =
            if downloads { (&pool.root, &pool.client_directory) } else { (&pool.client_directory, &pool.root) };
        fs::write(source.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
        let (remote, here) = (ServerPool::url("f"), path_text(&pool.client_directory.join("f")).to_owned());
        let places = if downloads { [remote, here] } else { [here, remote] };
        let words = ["copy", &places[0], &places[1], "--mode", "fast", "--streams", "3", "--rate", "200M", "--json"];
        let running = pool.command(&words).spawn();
        // Wait for a journal of more than 400 bytes. An entry has 48 bytes, so some blocks are complete then.
        wait_until("some blocks are there", || journal_size(target) > 400);
        let node = pool.member_of_process(running.process_id()).expect("it is connected");
        let lost = SignalledMember::new(pool.member_process_id(node), how);
        let done = running.wait_with_output();
        let case = format!("downloads {downloads}, signal {how}: {}", done.describe());
        assert!(done.status.success() && done.stderr.contains(r#""code":"member_lost""#), "{case}");
        assert!(fs::read(target.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES), "{case}");
        // A killed member leaves no partial files, and a stopped member changes no files when it continues.
        drop(lost);
        if how == libc::SIGSTOP {
            pool.wait_until_health_is(&[true; 3]);
        }
        let mut names = scratch::entry_names(target);
        names.retain(|name| name != ".godwit-puts");
        assert_eq!(names, ["f"], "{case}");
        assert!(fs::read(target.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES), "{case}");
    }
}

#[test]
fn rows_are_returned_exactly_once_when_a_pool_member_is_killed_or_hangs() {
    needs!("python3");
    let pool = ServerPool::new_stopped("pool-rows", "connections", 3, &[]);
    let rows: String = (0..700_000).map(|row| format!("chr{}\t{row}\t{}\tname-of-{row}\n", row % 3, row + 5)).collect();
    fs::write(pool.root.join("a.bed"), rows).expect("it can be written");
    let statement = "SELECT * FROM \"a.bed\" ORDER BY position";
    let words = ["query", statement, "--format", "csv"];
    let expected = godwit().args(words).args(["--data", path_text(&pool.root)]).run_ok().stdout;
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_member(node));
    let said = pool.client_directory.join("said");
    for how in [libc::SIGSTOP, libc::SIGKILL] {
        pool.wait_until_health_is(&[true; 3]);
        let mut running = Command::new(binary::path());
        running.env("XDG_CONFIG_HOME", scratch::root().join("no-configuration")).args(words);
        running.args(["--at", &ServerPool::url(""), "--pool", path_text(&pool.description)]);
        running.stdout(Stdio::piped()).stderr(fs::File::create(&said).expect("it can be made"));
        let mut running = running.spawn().expect("godwit can be started");
        let mut stdout = running.stdout.take().expect("it is piped");
        // The test reads only the first rows, so the query and the pool member that answers it block in the middle.
        let mut found = vec![0; 60_000];
        stdout.read_exact(&mut found).expect("the first rows come");
        let node = pool.member_of_process(running.id()).expect("it is connected");
        let lost = SignalledMember::new(pool.member_process_id(node), how);
        stdout.read_to_end(&mut found).expect("the others come");
        let ended = running.wait().expect("it can be waited for");
        let said = fs::read_to_string(&said).expect("it was made");
        assert!(ended.success() && said.contains("is lost; continuing at another member"), "signal {how}: {said}");
        assert!(found == expected.as_bytes(), "signal {how}: other rows");
        drop(lost);
    }
}

#[test]
fn the_python_client_reads_from_another_pool_member_and_uploads_tables_once() {
    needs!("python3");
    let pool = ServerPool::new_stopped("pool-python", "connections", 3, &["--writable"]);
    let rows: String = (0..700_000).map(|row| format!("chr{}\t{row}\t{}\tname-of-{row}\n", row % 3, row + 5)).collect();
    fs::write(pool.root.join("a.bed"), rows).expect("it can be written");
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_member(node));
    for (what, how) in [
        ("read_rows", libc::SIGSTOP),
        ("read_rows", libc::SIGKILL),
        ("upload_slow_table", libc::SIGSTOP),
        ("upload_slow_table", libc::SIGKILL),
    ] {
        pool.wait_until_health_is(&[true; 3]);
        let mut python = crate::python::python_command("columns");
        python.arg(columns_script("pool_failover.py"));
        python.args([path_text(&pool.description), what, &how.to_string()]).stdin(Stdio::piped());
        let mut running = python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let mut told = std::io::BufReader::new(running.stdout.take().expect("it is piped"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut told, &mut line).expect("it says when it is in the middle");
        assert_eq!(line, "in the middle\n");
        let node = pool.member_of_process(running.id()).expect("it is connected");
        let lost = SignalledMember::new(pool.member_process_id(node), how);
        running.stdin.take().expect("it is piped").write_all(b"on\n").expect("it reads");
        let mut said = String::new();
        told.read_to_string(&mut said).expect("it says what it found");
        let done = running.wait_with_output().expect("it can be waited for");
        let warned = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success() && warned.contains("is lost; continuing at another member"),
            "{what} {how}: {warned}"
        );
        assert_eq!(said, if what == "read_rows" { "700000 in order\n" } else { "900000 rows\n" }, "{what} {how}");
        drop(lost);
        if how == libc::SIGKILL {
            pool.members[node] = None;
            pool.start_member(node);
        }
        if what == "upload_slow_table" {
            // A member that continues after a stop does not store a dataset again that another member has stored.
            pool.wait_until_health_is(&[true; 3]);
            let counted = pool.command(&[
                "query",
                "SELECT count(*) AS n FROM t",
                "--at",
                &ServerPool::url(""),
                "--format",
                "csv",
            ]);
            assert_eq!(counted.run_ok().stdout, "n\n900000\n");
            fs::remove_dir_all(pool.root.join("t.parquet")).expect("it was put");
        }
    }
}

#[test]
fn statements_with_parameters_run_through_a_pool_also_after_a_member_is_lost() {
    needs!("python3");
    let mut pool = ServerPool::new_stopped("pool-parameters", "round-robin", 2, &[]);
    fs::write(pool.root.join("genes.csv"), "name,contig\nA,chr1\nB,chr2\nC,chr2\nD,chr3\n").expect("it can be written");
    let header = "##fileformat=VCFv4.2\n##contig=<ID=chr1>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    let variants = format!("{header}chr1\t9\t.\tA\tC\t.\t.\t.\nchr1\t19\t.\tA\tC\t.\t.\t.\n");
    fs::write(pool.root.join("v.vcf"), variants).expect("it can be written");
    (0..2).for_each(|node| pool.start_member(node));
    pool.wait_until_health_is(&[true; 2]);
    let target = pool.client_directory.join("w.vcf.gz");
    let mut python = crate::python::python_command("columns");
    python.arg(columns_script("pool_parameters.py")).args([path_text(&pool.description), path_text(&target)]);
    let mut running =
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let mut told = std::io::BufReader::new(running.stdout.take().expect("it is piped"));
    let mut answer = || {
        let lines = std::io::BufRead::lines(told.by_ref()).map(|line| line.expect("it prints text"));
        let rows: Vec<String> = lines.take_while(|line| line != "in the middle").collect();
        let written = fs::read(&target).expect("it was written");
        fs::remove_file(&target).expect("it can be removed");
        (rows, written)
    };
    let (rows, written) = answer();
    assert_eq!(rows, ["B", "B C"]);
    let node = pool.member_of_process(running.id()).expect("it is connected");
    pool.members[node] = None;
    let mut stdin = running.stdin.take().expect("it is piped");
    stdin.write_all(b"on\n").expect("it reads");
    assert_eq!(answer(), (rows, written));
    stdin.write_all(b"on\n").expect("it reads");
    let done = running.wait_with_output().expect("it can be waited for");
    let warned = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && warned.contains("continuing at another member"), "{warned}");
}

#[test]
fn a_python_client_exits_normally_during_a_health_check() {
    needs!("python3");
    let mut pool = ServerPool::new_stopped("pool-exit", "connections", 1, &[]);
    fs::write(pool.root.join("a.bed"), "chr1\t1\t2\n").expect("it can be written");
    pool.start_member(0);
    // The Python process must exit without an abort, whatever the last call was. The client therefore joins its threads
    // at exit.
    for last in ["open", "close", "open", "close"] {
        let mut python = crate::python::python_command("columns");
        python.arg(columns_script("pool_exit.py"));
        let done = run_checked(python.args([path_text(&pool.description), last]));
        assert_eq!(String::from_utf8_lossy(&done.stdout), "1 rows\n");
    }
}

#[test]
fn a_pool_member_that_returns_gets_new_work() {
    needs!("python3");
    let mut pool = ServerPool::start("pool-failback", "connections", 2, &[]);
    fs::write(pool.root.join("f"), pseudorandom_bytes(40_000_000)).expect("it can be written");
    pool.members[0] = None;
    pool.wait_until_health_is(&[false, true]);
    let before = start_slow_copies(&pool, "before", 2);
    assert_eq!(copies_per_member(&pool, "before", &before), [0, 2]);
    pool.start_member(0);
    pool.wait_until_health_is(&[true, true]);
    // The other member already serves two copies, so both new copies go to the first member.
    let after = start_slow_copies(&pool, "after", 2);
    assert_eq!(copies_per_member(&pool, "after", &after), [2, 0]);
    kill_copies(before);
    kill_copies(after);
}

#[test]
fn a_client_waits_as_long_as_requested_when_no_pool_member_answers() {
    needs!("python3");
    let mut pool = ServerPool::new_stopped("pool-down", "round-robin", 2, &[]);
    fs::write(pool.root.join("f"), pseudorandom_bytes(3_000_000)).expect("it can be written");
    let target = pool.client_directory.join("f");
    let copy = |pool: &ServerPool, wait: &str| {
        pool.command(&["copy", &ServerPool::url("f"), path_text(&target), "--wait", wait])
    };
    let waits = "no member of the pool storage answers; waiting up to";
    let gone = copy(&pool, "1s").run();
    assert!(gone.stderr.contains(waits), "{}", gone.describe());
    gone.assert_rejected(&[6], &["godwit+pool://storage", "none of its 2 members answered"]);
    let query = pool.command(&["query", "SELECT 1", "--at", &ServerPool::url(""), "--wait", "1s"]).run();
    query.assert_rejected(&[6], &["none of its 2 members answered"]);
    let said = pool.client_directory.join("said");
    let running = copy(&pool, "120s").stderr(fs::File::create(&said).expect("it can be made")).spawn();
    wait_until("it waits", || fs::read_to_string(&said).is_ok_and(|said| said.contains(waits)));
    pool.start_member(1);
    let done = running.wait_with_output();
    assert!(done.status.success(), "{}", fs::read_to_string(&said).unwrap_or_default());
    assert!(fs::read(&target).expect("it is there") == pseudorandom_bytes(3_000_000));
    // All members are killed during the copy. The received blocks are kept, and a second copy resumes from them.
    fs::remove_file(&target).expect("it is there");
    fs::write(pool.root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let running = copy(&pool, "3s").args(["--rate", "100M", "--mode", "fast"]).spawn();
    wait_until("some blocks are there", || journal_size(&pool.client_directory) > 400);
    pool.members[1] = None;
    running.wait_with_output().assert_rejected(&[6], &["3 s"]);
    pool.start_member(1);
    copy(&pool, "60s").run_ok();
    assert!(fs::read(&target).expect("it is there") == pseudorandom_bytes(FILE_BYTES));
}
