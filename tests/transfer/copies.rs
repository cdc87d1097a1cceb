//! Copies as people make them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

/// A root with files, an empty directory beside it, and the server of the root.
pub(super) fn served(label: &str, words: &[&str]) -> (PathBuf, PathBuf, Served) {
    let directory = scratch::directory(label);
    let (root, mine) = (directory.join("root"), directory.join("mine"));
    for made in [&root, &mine] {
        fs::create_dir(made).expect("it can be made");
    }
    let served = Served::start(&root, words);
    (root, mine, served)
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// Bytes that differ everywhere.
pub(super) fn content(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).take(count).collect()
}

pub(super) fn url(served: &Served, path: &str) -> String {
    format!("grpc+tcp://{}/{path}", served.address)
}

#[test]
fn a_directory_is_copied_there_and_back_with_modes_and_times() {
    let (root, mine, served) = served("copy", &["--writable"]);
    let run = mine.join("run7");
    fs::create_dir_all(run.join("lane1")).expect("it can be made");
    fs::write(run.join("S.bam"), content(5_000_001)).expect("it can be written");
    fs::write(run.join("lane1/R1.fq"), content(77)).expect("it can be written");
    fs::set_permissions(run.join("lane1/R1.fq"), fs::Permissions::from_mode(0o640)).expect("it can be changed");
    let told = godwit().args(["copy", text(&run), &url(&served, "")]).succeeds();
    assert!(told.stderr.contains("2 files copied"), "{}", told.stderr);
    let back = mine.join("back");
    godwit().args(["copy", &url(&served, "run7"), text(&back), "--compress", "zstd"]).succeeds();
    for file in ["S.bam", "lane1/R1.fq"] {
        let [sent, there, returned] = [&run, &root.join("run7"), &back].map(|place| place.join(file));
        let metadata = |path: &Path| fs::metadata(path).expect("it is there");
        for other in [&there, &returned] {
            assert!(fs::read(&sent).expect("it is there") == fs::read(other).expect("it is there"), "{file}");
            assert_eq!(metadata(&sent).mode(), metadata(other).mode(), "{file}");
            assert_eq!(metadata(&sent).mtime(), metadata(other).mtime(), "{file}");
        }
    }
    let again = godwit().args(["copy", &url(&served, "run7"), text(&back), "--json"]).succeeds();
    let started = again.stderr.lines().find(|line| line.contains("\"started\"")).expect("it is told");
    assert!(started.contains("\"files\":0") && started.contains("\"same\":2"), "{started}");
    let dry = godwit().args(["copy", &url(&served, "run7"), text(&mine.join("new")), "--dry-run"]).succeeds();
    assert!(dry.stdout.contains("copy\tS.bam\t5000001\n") && !mine.join("new").exists(), "{}", dry.stdout);
    // What a server was not told to take, it does not.
    drop(served);
    let closed = Served::start(&root, &[]);
    godwit().args(["copy", text(&run), &url(&closed, "new/")]).run().refuses(&[2], &["--writable"]);
    assert!(!root.join("new").exists());
}

#[test]
fn an_encrypted_server_is_copied_from_with_a_token() {
    needs!("openssl");
    let directory = scratch::directory("copy-tls");
    let (certificate, key, tokens) =
        (directory.join("server.pem"), directory.join("server.key"), directory.join("tokens"));
    let mut openssl: Command = Tool::need("openssl").command();
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-out",
        text(&certificate),
        "-keyout",
        text(&key),
    ]);
    // As rustls asks of a certificate that signs itself.
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    succeed(&mut openssl);
    let token = directory.join("token");
    fs::write(&token, godwit().args(["token", "alice", "--tokens", text(&tokens)]).succeeds().stdout).expect("written");
    let words = ["--tls-cert", text(&certificate), "--tls-key", text(&key), "--tokens", text(&tokens), "--writable"];
    let (root, mine, served) = served("copy-tls-root", &words);
    fs::write(root.join("f"), content(3_000_000)).expect("it can be written");
    let from = format!("grpc+tls://{}/f", served.address);
    let copy = |words: &[&str]| godwit().args(["copy", &from, text(&mine.join("f"))]).args(words).run();
    copy(&["--ca", text(&certificate)]).refuses(&[6], &["token"]);
    copy(&["--token-file", text(&token)]).refuses(&[6], &["certificate"]);
    let told = copy(&["--ca", text(&certificate), "--token-file", text(&token), "--mode", "fast"]);
    assert!(told.status.success(), "{}", told.report());
    assert!(fs::read(mine.join("f")).expect("it is there") == content(3_000_000));
}

#[test]
fn what_cannot_be_copied_is_told() {
    let (root, mine, served) = served("copy-refusals", &["--writable"]);
    fs::write(root.join("f"), "x").expect("it can be written");
    let here = text(&mine);
    godwit().args(["copy", "a", "b"]).run().refuses(&[2], &["cp"]);
    godwit().args(["copy", "http://h/x", here]).run().refuses(&[2], &["grpc+tls://"]);
    godwit().args(["copy", &url(&served, "none"), here]).run().refuses(&[2], &["none"]);
    godwit().args(["copy", &url(&served, "../f"), here]).run().refuses(&[2], &["root"]);
    godwit().args(["copy", "grpc+tcp://127.0.0.1:1/f", here]).run().refuses(&[6], &["127.0.0.1:1", "server"]);
    godwit().args(["copy", &url(&served, "f"), here, "--streams", "0"]).run().refuses(&[2], &["auto"]);
    godwit().args(["copy", &url(&served, "f"), here, "--compress", "delta"]).run().refuses(&[2], &["delta"]);
    godwit().args(["copy", "/nowhere", &url(&served, "f")]).run().refuses(&[2], &["/nowhere"]);
}
