//! Unusual and invalid queries among valid ones: exit code and output equal those of NCBI's program.

use godwit_tests::binary::godwit;
use godwit_tests::{needs, scratch};

use super::test_databases::{databases, reference_program};

#[test]
fn a_query_that_blast_goes_past_keeps_no_other_from_being_searched() {
    needs!("makeblastdb");
    let data = databases();
    let far = std::fs::read_to_string(data.directory.join("far.fa")).expect("it is there");
    let directory = scratch::directory("bad-queries");
    let long = "ACDEFGHIKL".repeat(4000);
    let cases = [
        ("empty", ">none\n\n"),
        ("digits", ">digits\nMKT123AYI\n"),
        ("masked", ">masked\nXXXXXXXXXX\n"),
        ("short", ">short\nM\n"),
        ("unnamed", ">\nMKTAYIAKQRQISFVKSHF\n"),
        ("hyphens", ">hyphens\nMKT---AYIAKQRQISF\n"),
        ("stops", ">stops\nMKTAYIAK*QRQISF\n"),
        ("implausible", ">implausible\nM!K@T#AY(I\n"),
        ("zeros", ">zeros\n\0\u{1}\u{2}MKT\n"),
        ("long", &format!(">long\n{long}\n")),
    ];
    for (name, bad) in cases {
        for place in ["first", "middle", "last"] {
            let (before, after) = match place {
                "first" => ("", far.as_str()),
                "last" => (far.as_str(), ""),
                _ => (far.as_str(), far.as_str()),
            };
            let query = directory.join(format!("{name}-{place}.fa"));
            std::fs::write(&query, format!("{before}{bad}{after}")).expect("it can be written");
            let words = ["blastp", "-db", "proteins", "-outfmt", "6", "-query"];
            let mut blast = std::process::Command::new(reference_program());
            blast.args(words).arg(&query).current_dir(&data.directory).env("BLAST_USAGE_REPORT", "false");
            let blast = blast.output().expect("it can be started");
            let out = directory.join(format!("{name}-{place}.tsv"));
            let search = godwit().args(["search", "--workers", "2", "--fragments", "3", "--"]).args(words).arg(&query);
            let search = search.arg("-out").arg(&out).current_dir(&data.directory).run();
            assert_eq!(search.status.success(), blast.status.success(), "{name} {place}: {}", search.describe());
            match blast.status.success() {
                true => assert!(std::fs::read(&out).expect("it is there") == blast.stdout, "{name} {place}"),
                false => search.assert_rejected(&[3], &["queries"]),
            }
        }
    }
}
