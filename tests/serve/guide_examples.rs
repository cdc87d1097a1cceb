//! The Python examples of the page about serving, run as written.

use std::path::Path;

use godwit_tests::data_server::DataServer;
use godwit_tests::tool::run_checked;
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned_sample, pyarrow_python, to_lines};

/// Runs the Python blocks of a page of the guide, at least `min_blocks`, against a server; returns the lines that they print.
fn page_output(page: &str, min_blocks: usize, served: &DataServer) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide").join(page);
    let page = std::fs::read_to_string(page).expect("the page is there");
    let blocks: Vec<&str> =
        page.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(blocks.len() >= min_blocks, "the page has lost its Python");
    let code = blocks.join("\n").replace("127.0.0.1:8815", &served.address);
    let said = run_checked(pyarrow_python().expect("tools/python-packages.sh made it").command().args(["-c", &code]));
    to_lines(&String::from_utf8(said.stdout).expect("it prints text"))
}

#[test]
fn the_python_of_the_pages_about_serving_runs() {
    needs!("bwa", "python3");
    let (_, out) = aligned_sample();
    let root = scratch::directory("guide");
    for (name, made) in [("S.bam", "sample.bam"), ("S.bam.bai", "sample.bam.bai")] {
        std::os::unix::fs::symlink(out.join(made), root.join(name)).expect("a link can be made");
    }
    let served = DataServer::start(&root, &["--writable"]);
    let tutorial = page_output("tutorial.md", 1, &served);
    assert!(tutorial.len() == 1 && tutorial[0].contains("'reads': "), "{tutorial:?}");
    let said = page_output("serve.md", 4, &served);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].parse::<u64>().is_ok_and(|reads| reads > 0), "{said:?}");
    assert_eq!(said[1], "b'{\"dataset\":\"panel.parquet\",\"rows\":1}'");
    assert_eq!(std::fs::read_dir(root.join("panel.parquet")).expect("it is there").count(), 3, "two parts and a list");
}
