//! Typical copies.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use crate::run::formats::{run_python, to_lines};

/// Starts a server. Returns its root directory, an empty directory for the client, and the server.
pub(super) fn start_server(label: &str, words: &[&str]) -> (PathBuf, PathBuf, DataServer) {
    let directory = scratch::directory(label);
    let (root, mine) = (directory.join("root"), directory.join("mine"));
    for made in [&root, &mine] {
        fs::create_dir(made).expect("it can be made");
    }
    let served = DataServer::start_restartable(&root, words);
    (root, mine, served)
}

pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// Returns pseudorandom bytes.
pub fn pseudorandom_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).take(count).collect()
}

pub(super) fn server_url(served: &DataServer, path: &str) -> String {
    format!("grpc+tcp://{}/{path}", served.address)
}

#[test]
fn a_directory_is_copied_there_and_back_with_modes_and_times() {
    let (root, mine, served) = start_server("copy", &["--writable"]);
    let run = mine.join("run7");
    fs::create_dir_all(run.join("lane1")).expect("it can be made");
    fs::write(run.join("S.bam"), pseudorandom_bytes(5_000_001)).expect("it can be written");
    fs::write(run.join("lane1/R1.fq"), pseudorandom_bytes(77)).expect("it can be written");
    fs::set_permissions(run.join("lane1/R1.fq"), fs::Permissions::from_mode(0o640)).expect("it can be changed");
    let told = godwit().args(["copy", path_text(&run), &server_url(&served, "")]).run_ok();
    assert!(told.stderr.contains("2 files copied"), "{}", told.stderr);
    let back = mine.join("back");
    godwit().args(["copy", &server_url(&served, "run7"), path_text(&back), "--compress", "zstd"]).run_ok();
    for file in ["S.bam", "lane1/R1.fq"] {
        let [sent, there, returned] = [&run, &root.join("run7"), &back].map(|place| place.join(file));
        let metadata = |path: &Path| fs::metadata(path).expect("it is there");
        for other in [&there, &returned] {
            assert!(fs::read(&sent).expect("it is there") == fs::read(other).expect("it is there"), "{file}");
            assert_eq!(metadata(&sent).mode(), metadata(other).mode(), "{file}");
            assert_eq!(metadata(&sent).mtime(), metadata(other).mtime(), "{file}");
        }
    }
    let again = godwit().args(["copy", &server_url(&served, "run7"), path_text(&back), "--json"]).run_ok();
    let started = again.stderr.lines().find(|line| line.contains("\"started\"")).expect("it is told");
    assert!(started.contains("\"files\":0") && started.contains("\"same\":2"), "{started}");
    let dry = godwit().args(["copy", &server_url(&served, "run7"), path_text(&mine.join("new")), "--dry-run"]).run_ok();
    assert!(dry.stdout.contains("copy\tS.bam\t5000001\n") && !mine.join("new").exists(), "{}", dry.stdout);
    // A server without --writable rejects uploads.
    drop(served);
    let closed = DataServer::start(&root, &[]);
    godwit().args(["copy", path_text(&run), &server_url(&closed, "new/")]).run().assert_rejected(&[2], &["--writable"]);
    assert!(!root.join("new").exists());
}

#[test]
fn an_encrypted_server_is_copied_from_with_a_token() {
    needs!("openssl");
    let directory = scratch::directory("copy-tls");
    let (certificate, key, tokens) =
        (directory.join("server.pem"), directory.join("server.key"), directory.join("tokens"));
    let mut openssl: Command = Tool::require("openssl").command();
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-out",
        path_text(&certificate),
        "-keyout",
        path_text(&key),
    ]);
    // rustls requires this extension in a self-signed certificate.
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    run_checked(&mut openssl);
    let token = directory.join("token");
    fs::write(&token, godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout)
        .expect("written");
    let words = [
        "--tls-cert",
        path_text(&certificate),
        "--tls-key",
        path_text(&key),
        "--tokens",
        path_text(&tokens),
        "--writable",
    ];
    let root = directory.join("root");
    fs::create_dir(&root).expect("it can be made");
    // The certificate names the host on which this starts.
    let served = DataServer::start(&root, &words);
    fs::write(root.join("f"), pseudorandom_bytes(3_000_000)).expect("it can be written");
    let from = format!("grpc+tls://{}/f", served.address);
    let copy = |words: &[&str]| godwit().args(["copy", &from, path_text(&directory.join("f"))]).args(words).run();
    copy(&["--ca", path_text(&certificate)]).assert_rejected(&[6], &["token"]);
    copy(&["--token-file", path_text(&token)]).assert_rejected(&[6], &["certificate"]);
    let unencrypted = format!("grpc+tcp://{}/f", served.address);
    let rejected = godwit().args(["copy", &unencrypted, path_text(&directory.join("f"))]).run();
    rejected.assert_rejected(&[6], &["only TLS", "grpc+tls://"]);
    let told = copy(&["--ca", path_text(&certificate), "--token-file", path_text(&token), "--mode", "fast"]);
    assert!(told.status.success(), "{}", told.describe());
    assert!(fs::read(directory.join("f")).expect("it is there") == pseudorandom_bytes(3_000_000));
}

#[test]
fn what_cannot_be_copied_is_told() {
    let (root, mine, served) = start_server("copy-refusals", &["--writable"]);
    fs::write(root.join("f"), "x").expect("it can be written");
    let here = path_text(&mine);
    godwit().args(["copy", "a", "b"]).run().assert_rejected(&[2], &["cp"]);
    godwit().args(["copy", "http://h/x", here]).run().assert_rejected(&[2], &["grpc+tls://"]);
    godwit().args(["copy", &server_url(&served, "none"), here]).run().assert_rejected(&[2], &["none"]);
    godwit().args(["copy", &server_url(&served, "../f"), here]).run().assert_rejected(&[2], &["root"]);
    godwit().args(["copy", "grpc+tcp://127.0.0.1:1/f", here]).run().assert_rejected(&[6], &["127.0.0.1:1", "server"]);
    godwit().args(["copy", &server_url(&served, "f"), here, "--streams", "0"]).run().assert_rejected(&[2], &["auto"]);
    godwit()
        .args(["copy", &server_url(&served, "f"), here, "--compress", "deltas"])
        .run()
        .assert_rejected(&[2], &["delta"]);
    godwit().args(["copy", "/nowhere", &server_url(&served, "f")]).run().assert_rejected(&[2], &["/nowhere"]);
    let hidden = mine.join(".hidden");
    fs::write(&hidden, "x").expect("it can be written");
    let copied = godwit().args(["copy", path_text(&hidden), &server_url(&served, "")]).run();
    copied.assert_rejected(&[2], &[".hidden", "begin with a dot"]);
}

#[test]
fn a_file_comes_from_several_servers_and_through_one_in_between() {
    let (root, mine, one) = start_server("copy-several", &["--relay"]);
    fs::create_dir(root.join("d")).expect("it can be made");
    for (name, count) in [("long", 20_000_001), ("short", 99)] {
        fs::write(root.join("d").join(name), pseudorandom_bytes(count)).expect("it can be written");
    }
    let (two, gone) = (DataServer::start(&root, &[]), DataServer::start(&root, &[]));
    let gone_url = server_url(&gone, "d");
    drop(gone);
    let copy = |target: &Path, words: &[&str]| {
        godwit().args(["copy", &server_url(&two, "d"), path_text(target), "--json"]).args(words).run()
    };
    let is_there = |target: &Path| {
        for name in ["long", "short"] {
            let same = fs::read(root.join("d").join(name)).expect("it is there")
                == fs::read(target.join(name)).expect("it is there");
            assert!(same, "{name}");
        }
    };
    let several = copy(&mine.join("several"), &["--also-from", &server_url(&one, "d"), "--also-from", &gone_url]);
    assert!(several.status.success() && several.stderr.contains("\"servers\":2"), "{}", several.describe());
    assert!(several.stderr.contains("is skipped"), "{}", several.describe());
    is_there(&mine.join("several"));
    let through = copy(&mine.join("through"), &["--relay", &server_url(&one, "")]);
    assert!(through.status.success(), "{}", through.describe());
    is_there(&mine.join("through"));
    copy(&mine.join("x"), &["--relay", &server_url(&two, "")]).assert_rejected(&[2], &["--relay"]);
    copy(&mine.join("x"), &["--relay", "here"]).assert_rejected(&[2], &["not the URL of a server"]);
    copy(&mine.join("x"), &["--also-from", "here"]).assert_rejected(&[2], &["--also-from"]);
    let between =
        godwit().args(["copy", &server_url(&two, "d"), &server_url(&one, ""), "--relay", &server_url(&one, "")]).run();
    between.assert_rejected(&[2], &["--relay is for copies from or to this host"]);
}

#[test]
fn pyarrow_fetches_a_file_in_pieces_from_each_of_its_servers() {
    needs!("python3");
    let directory = scratch::directory("copy-pieces");
    let (root, mirror) = (directory.join("root"), directory.join("mirror"));
    for made in [&root, &mirror] {
        fs::create_dir(made).expect("it can be made");
    }
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_700_000_000_123_456_789);
    for place in [&root, &mirror] {
        fs::write(place.join("f"), pseudorandom_bytes(7_000_001)).expect("it can be written");
        let file = fs::OpenOptions::new().write(true).open(place.join("f")).expect("it is there");
        file.set_modified(modified).expect("it can be set");
    }
    let other = DataServer::start(&mirror, &[]);
    let served = DataServer::start(&root, &["--also-at", &format!("grpc+tcp://{}", other.address)]);
    let command = "godwit.files.info {\"path\":\"f\",\"piece_bytes\":2000000}";
    let fetch = |address: &str, others: &[&str]| {
        let target = directory.join("fetched");
        let words = [&[address, "copy_in_ranges", command, path_text(&target)], others].concat();
        let told = to_lines(&run_python("flight_clients.py", Path::new("-"), &words));
        assert!(fs::read(&target).expect("it is there") == pseudorandom_bytes(7_000_001));
        told
    };
    assert_eq!(fetch(&served.address, &[&other.address]), ["4 2 7000001"]);
    assert_eq!(fetch(&other.address, &[]), ["4 0 7000001"]);
}

#[test]
fn no_file_has_its_name_that_has_another_checksum_than_was_listed() {
    needs!("md5sum", "sha256sum");
    let (root, mine, served) = start_server("checksums", &["--writable"]);
    fs::create_dir(root.join("run")).expect("it can be made");
    for (name, size) in [("big.bam", 3_000_001), ("small.txt", 77), ("other.txt", 5)] {
        fs::write(root.join("run").join(name), pseudorandom_bytes(size)).expect("it can be written");
    }
    let listed = |tool: &str, names: &[&str]| {
        let listed = run_checked(Tool::require(tool).command().args(names).current_dir(root.join("run")));
        let list = mine.join(format!("{tool}.list"));
        fs::write(&list, listed.stdout).expect("it can be written");
        list
    };
    let md5 = listed("md5sum", &["big.bam", "small.txt"]);
    let sha = listed("sha256sum", &["other.txt"]);
    let from = server_url(&served, "run");
    let good = mine.join("good");
    godwit().args(["copy", &from, path_text(&good), "--check", path_text(&md5), "--check", path_text(&sha)]).run_ok();
    assert!(fs::read(good.join("big.bam")).expect("it is there") == pseudorandom_bytes(3_000_001));
    let partly =
        godwit().args(["copy", &from, path_text(&mine.join("partly")), "--check", path_text(&md5), "--json"]).run_ok();
    assert!(partly.stderr.contains("no checksum is listed for run/other.txt"), "{}", partly.stderr);
    // Change the source after the checksum list was written, in a file of many blocks and in a file of a single block.
    for name in ["big.bam", "small.txt"] {
        let path = root.join("run").join(name);
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[40] ^= 1;
        fs::write(&path, bytes).expect("it can be written");
    }
    let bad = mine.join("bad");
    let copied = godwit().args(["copy", &from, path_text(&bad), "--check", path_text(&md5), "--quiet"]).run();
    copied.assert_rejected(&[3], &["2 of 3 files", "MD5", "md5sum.list"]);
    let names: Vec<_> =
        fs::read_dir(&bad).expect("it is there").map(|entry| entry.expect("it is").file_name()).collect();
    assert!(names.iter().any(|name| name == "other.txt"), "{names:?}");
    assert!(!bad.join("big.bam").exists() && !bad.join("small.txt").exists(), "{names:?}");
    // Restore the source: the copy fetches only the changed blocks again.
    for (name, size) in [("big.bam", 3_000_001), ("small.txt", 77)] {
        fs::write(root.join("run").join(name), pseudorandom_bytes(size)).expect("it can be written");
    }
    let mended = godwit().args(["copy", &from, path_text(&bad), "--check", path_text(&md5), "--json"]).run_ok();
    let started = mended.stderr.lines().find(|line| line.contains("\"started\"")).expect("it is told").to_owned();
    assert!(!started.contains("\"kept_bytes\":0"), "{started}");
    assert!(fs::read(bad.join("big.bam")).expect("it is there") == pseudorandom_bytes(3_000_001));
    // An upload must not send a file that differs from the checksum list, and must check files that already exist at
    // the destination.
    fs::write(good.join("small.txt"), pseudorandom_bytes(78)).expect("it can be written");
    let sent = godwit()
        .args([
            "copy",
            path_text(&good.join("small.txt")),
            &server_url(&served, "up/small.txt"),
            "--check",
            path_text(&md5),
        ])
        .run();
    sent.assert_rejected(&[3], &["small.txt", "MD5"]);
    assert!(!root.join("up").exists());
    let nonsense = mine.join("nonsense");
    fs::write(&nonsense, "hello\n").expect("it can be written");
    godwit()
        .args(["copy", &from, path_text(&mine.join("x")), "--check", path_text(&nonsense)])
        .run()
        .assert_rejected(&[3], &["line 1"]);
    godwit()
        .args(["copy", &from, path_text(&mine.join("x")), "--check", "/nowhere"])
        .run()
        .assert_rejected(&[4], &["/nowhere"]);
    let there = ["copy", &from, &server_url(&served, "again/"), "--check", path_text(&md5)];
    godwit().args(there).run().assert_rejected(&[2], &["--check"]);
}
