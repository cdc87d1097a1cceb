//! `godwit query --at`: a server is asked as a directory is.

use std::path::Path;

use godwit_tests::binary::{Finished, godwit};
use godwit_tests::served::Served;
use godwit_tests::{needs, scratch};

use crate::run::formats::aligned;

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

fn at(served: &Served, words: &[&str]) -> Finished {
    let url = format!("grpc+tcp://{}", served.address);
    godwit().args(["query", "--at", &url]).args(words).run()
}

#[test]
fn a_server_gives_the_rows_of_its_directory() {
    needs!("bwa", "samtools");
    let (_, out) = aligned();
    let served = Served::start(&out, &[]);
    for statement in [
        "SELECT contig, count(*) AS reads FROM reads('sample.bam') GROUP BY contig ORDER BY contig",
        "SELECT name, position, tag_NM FROM reads('sample.bam') WHERE region('chr2:20000-22000') ORDER BY name, flags",
        "SELECT name FROM reads('sample.bam') WHERE position < -5",
    ] {
        for format in ["csv", "table", "json"] {
            let here = godwit().args(["query", "--data", text(&out), "--format", format, statement]).succeeds().stdout;
            let there = at(&served, &["--format", format, statement]);
            assert!(there.status.success(), "{}", there.report());
            assert_eq!(there.stdout, here, "{statement} as {format}");
        }
    }
    at(&served, &["SELEC 1"]).refuses(&[2], &["SELEC"]);
    at(&served, &["SELECT 1 FROM reads('none.bam')"]).refuses(&[2], &["none.bam"]);
    at(&served, &["--data", ".", "SELECT 1"]).refuses(&[2], &["--data", "--at"]);
    godwit().args(["query", "--at", "somewhere", "SELECT 1"]).run().refuses(&[2], &["grpc+tls://"]);
    let gone = served.address.clone();
    drop(served);
    godwit().args(["query", "--at", &format!("grpc+tcp://{gone}"), "SELECT 1"]).run().refuses(&[6], &[&gone]);
}

#[test]
fn a_server_that_asks_for_a_token_is_shown_it() {
    let directory = scratch::directory("remote-token");
    let (root, tokens, token) = (directory.join("root"), directory.join("tokens"), directory.join("token"));
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\n").expect("it can be written");
    let told = godwit().args(["token", "alice", "--tokens", text(&tokens)]).succeeds().stdout;
    std::fs::write(&token, told).expect("it can be written");
    let served = Served::start(&root, &["--tokens", text(&tokens)]);
    let statement = "SELECT count(*) AS n FROM \"a.bed\"";
    let found = at(&served, &["--format", "csv", "--token-file", text(&token), statement]);
    assert!(found.status.success() && found.stdout == "n\n1\n", "{}", found.report());
    at(&served, &[statement]).refuses(&[6], &["token"]);
}
