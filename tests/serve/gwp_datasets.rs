//! Datasets of gwp files: their rows are those of the FASTA files that were compressed.

use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::genome::SmallGenome;
use godwit_tests::{needs, scratch};

use crate::run::formats::{run_python, to_lines};

fn client_output(served: &DataServer, words: &[&str]) -> Vec<String> {
    let words = [&[served.address.as_str()], words].concat();
    to_lines(&run_python("flight_clients.py", Path::new("-"), &words))
}

#[test]
fn a_packed_genome_has_the_rows_of_its_fasta_and_names_the_reference_that_it_lacks() {
    needs!("python3");
    let directory = scratch::directory("serve-packed");
    SmallGenome::new(12, false).write(&directory);
    let root = directory.join("root");
    fs::create_dir(&root).expect("it can be made");
    let run = |words: &[&str]| godwit().current_dir(&directory).args(words).run_ok();
    run(&["mutate", "ref.fa", "root/one.fa", "--seed", "1"]);
    run(&["pack", "--reference", "ref.fa", "root/one.fa", "root/one.gwp"]);
    run(&["collection", "add", "root/all", "root/one.fa", "--reference", "ref.fa"]);
    let named = DataServer::start(&root, &["--reference", directory.join("ref.fa").to_str().expect("it is text")]);
    let same = |served: &DataServer, rest: &str| {
        let commands = ["one.fa", "one.gwp"].map(|name| format!("{{\"dataset\":\"{name}\"{rest}}}"));
        let found = client_output(served, &["assert_same_rows", &commands[0], &commands[1]]);
        found.first().and_then(|rows| rows.parse::<u64>().ok()).unwrap_or_else(|| panic!("{rest}: {found:?}"))
    };
    assert!(same(&named, "") >= 7);
    for (region, rows) in [("chr1", 3), ("chr1:1-1", 1), ("chr1:65536-65537", 2), ("tiny", 1), ("chr2:70000-70001", 1)]
    {
        assert_eq!(same(&named, &format!(",\"regions\":[\"{region}\"]")), rows, "{region}");
    }
    let several = ",\"regions\":[\"chr2:1-5\",\"chr1:140000-140001\",\"chr1:1-70000\",\"chr1:65537-65540\"],\"columns\":[\"contig\",\"bases\"]";
    assert_eq!(same(&named, several), 4);
    assert_eq!(same(&named, ",\"regions\":[\"chr3:400000-400010\"]"), 0);
    let unknown = client_output(&named, &["fetch_error", r#"{"dataset":"one.gwp","regions":["chr9:1-5"]}"#]).join(" ");
    assert!(unknown.contains("no contig \"chr9\""), "{unknown}");
    let member = [r#"{"dataset":"one.fa"}"#, r#"{"dataset":"all/one.gwp"}"#];
    assert_eq!(client_output(&named, &["assert_same_rows", member[0], member[1]]).len(), 1);
    // A server without the reference reports the digest of the missing reference. If the reference is below its root,
    // the server finds it and writes no cache files there.
    let digest = run(&["collection", "list", "root/all"]).stdout;
    let digest = digest.lines().next().and_then(|line| line.split('\t').nth(1)).expect("it is told").to_owned();
    let lacking = DataServer::start(&root, &[]);
    let told = client_output(&lacking, &["fetch_error", member[1]]).join(" ");
    assert!(told.contains(&digest) && told.contains("--reference"), "{told}");
    fs::copy(directory.join("ref.fa"), root.join("theirs.fa")).expect("it can be copied");
    assert!(same(&lacking, "") >= 7);
    assert_eq!(scratch::entry_names(&root), ["all", "one.fa", "one.gwp", "theirs.fa"]);
    // Damage a byte: the server must return an error instead of rows.
    let path = root.join("one.gwp");
    let mut bytes = fs::read(&path).expect("it is there");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&path, bytes).expect("it can be written");
    let told = client_output(&lacking, &["fetch_error", r#"{"dataset":"one.gwp"}"#]).join(" ");
    assert!(told.contains("damaged"), "{told}");
}
