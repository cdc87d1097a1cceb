//! Unfinished jobs, queried while they are stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::processes::{send_signal, stop_when};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use crate::run::bwa_identity;
use crate::run::formats::{run_python, to_lines};

const DUPLICATE_FLAG: u16 = 0x400;

fn query(data: &Path, statement: &str) -> Vec<String> {
    let data = data.to_str().expect("scratch paths are text");
    let told = godwit().args(["query", "--data", data, "--format", "tsv", statement]).run_ok().stdout;
    to_lines(&told).split_off(1)
}

fn finished_blocks(out: &Path) -> usize {
    let journal = std::fs::read_to_string(out.join(".godwit/journal")).unwrap_or_default();
    journal.matches("{\"entry\":\"block\"").count()
}

/// Groups records of SAM by name: flags without the duplicate bit, contig and 0-based position.
fn records_by_name(
    rows: impl Iterator<Item = (String, u16, String, i64)>,
) -> BTreeMap<String, BTreeSet<(u16, String, i64)>> {
    let mut found: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for (name, flags, contig, position) in rows {
        found.entry(name).or_default().insert((flags & !DUPLICATE_FLAG, contig, position));
    }
    found
}

#[test]
fn reads_that_are_aligned_are_asked_while_their_run_goes_on() {
    needs!("bwa", "samtools", "python3");
    let spec =
        SampleSpec { seed: 31, lanes: vec![3_000], paired: true, alternate: false, comments: TitleComments::Illumina };
    let sample = Sample::cached(&spec);
    let options = AlignOptions { block_bases: 30_000, ..AlignOptions::default() };
    let data = scratch::directory("live");
    let out = data.join("run");
    std::fs::create_dir(&out).expect("it can be made");
    let run = bwa_identity::align(&sample, &options, &out).args(["--threads", "1", "--partitions", "4"]).spawn();
    assert!(stop_when(run.process_id(), "three blocks are aligned", || finished_blocks(&out) >= 3), "the run was over");

    let listed = query(&data, "SELECT count(*) FROM reads('run/sample.live')");
    let all = query(
        &data,
        "SELECT name, flags, contig, position, end_position, duplicate, is_duplicate() FROM reads('run/sample.live')",
    );
    assert_eq!(listed, [all.len().to_string()]);
    let fields: Vec<Vec<&str>> = all.iter().map(|line| line.split('\t').collect()).collect();
    assert!(fields.iter().all(|row| row[5].is_empty() && row[6].is_empty()), "nobody knows what is a duplicate");
    let number = |text: &str| text.parse::<i64>().expect("a number");
    let live = records_by_name(
        fields.iter().map(|row| (row[0].to_owned(), number(row[1]) as u16, row[2].to_owned(), number(row[3]))),
    );
    for region in ["chr1:1-500", "chr1:16300-16500", "chr2:10000-20000", "chr3:1-30000", "chr2:39999-40000"] {
        let (contig, range) = region.split_once(':').expect("it has a range");
        let (first, last) = range.split_once('-').expect("it has an end");
        let overlaps =
            |row: &&Vec<&str>| row[2] == contig && number(row[3]) < number(last) && number(row[4]) > number(first) - 1;
        let expected = fields.iter().filter(overlaps).count().to_string();
        let statement = format!("SELECT count(*) FROM reads('run/sample.live') WHERE region('{region}')");
        assert_eq!(query(&data, &statement), [expected], "{region}");
    }
    for (region, contig) in [("chr1", "chr1"), ("chr2:1-", "chr2"), ("*", "")] {
        let expected = fields.iter().filter(|row| row[2] == contig).count();
        let statement = format!("SELECT count(*) FROM reads('run/sample.live') WHERE region('{region}')");
        assert_eq!(query(&data, &statement), [expected.to_string()], "{region}");
    }
    let served = DataServer::start(&data, &[]);
    let words = [
        served.address.as_str(),
        "fetch_dataset",
        "{\"dataset\":\"run/sample.live\",\"columns\":[\"name\",\"duplicate\"],\"parts\":3}",
    ];
    let fetched = run_python("flight_clients.py", Path::new("-"), &words);
    assert_eq!(fetched.trim(), format!("{} 3 name,duplicate", all.len()));

    send_signal(run.process_id(), libc::SIGCONT);
    let finished = run.wait_with_output();
    assert!(finished.status.success(), "{}", finished.describe());
    let bam = out.join("sample.bam");
    let whole = Tool::require("samtools").run(["view".as_ref(), bam.as_os_str()]);
    let whole = String::from_utf8(whole.stdout).expect("samtools prints text");
    let rows = whole.lines().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let contig = if fields[2] == "*" { "" } else { fields[2] };
        (fields[0].to_owned(), number(fields[1]) as u16, contig.to_owned(), number(fields[3]) - 1)
    });
    let mut expected = records_by_name(rows);
    assert!(live.len() < expected.len(), "the run was over");
    expected.retain(|name, _| live.contains_key(name));
    assert!(live == expected, "what was live is not what became of it");
    // The outputs of the finished job have replaced the dataset of the unfinished job.
    let words = [served.address.as_str(), "list_datasets"];
    let names = run_python("flight_clients.py", Path::new("-"), &words);
    assert!(names.contains("run/sample.bam") && !names.contains(".live"), "{names}");
    godwit()
        .args(["query", "--data", data.to_str().expect("text"), "SELECT 1 FROM reads('run/sample.live')"])
        .run()
        .assert_rejected(&[2], &["sample.live"]);
}
