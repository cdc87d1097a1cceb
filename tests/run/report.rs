//! `report.html`: well-formed, self-contained, safe for any text in names, and equal for equal results.

use std::path::Path;

use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{binary::godwit, needs, scratch};

use super::bwa_identity::align;

/// Elements that have no end tag.
const VOID_ELEMENTS: [&str; 3] = ["meta", "br", "!DOCTYPE"];

fn read_text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the error in the nesting of tags, or in an attribute's quotes, if there is one.
pub(super) fn html_error(html: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let Some(end) = rest.find('>') else { return Some(format!("a tag does not end: {rest:.60}")) };
        let tag = &rest[..end];
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or_default();
        if tag.contains('<') || tag.matches('"').count() % 2 == 1 {
            return Some(format!("<{tag}>"));
        }
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return Some(format!("</{name}> ends nothing"));
            }
        } else if !tag.ends_with('/') && !VOID_ELEMENTS.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    (!open.is_empty()).then(|| format!("{open:?} are not ended"))
}

#[test]
fn the_page_is_well_formed_and_makes_no_requests() {
    needs!("bwa");
    let spec = SampleSpec {
        seed: 11,
        lanes: vec![1500, 900],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    };
    let sample = Sample::cached(&spec);
    let out = scratch::directory("report");
    let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
    align(&sample, &options, &out).run_ok();
    let page = read_text(&out.join("report.html"));
    assert_eq!(html_error(&page), None);
    for fetch in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe", "<img"] {
        let paths_apart = page.replace("<code>", "").replace(out.to_str().expect("UTF-8"), "");
        assert!(!paths_apart.contains(fetch), "the page has {fetch}");
    }
    for part in
        ["Base quality by cycle", "Insert size", "Mapping quality", "Coverage, cumulative", "Coverage by contig"]
    {
        assert!(page.contains(part), "no {part}");
    }
    assert!(page.contains("Copies of a molecule") && page.contains("GC content") && page.contains("<svg"));
    let run = read_text(&out.join("run.json"));
    assert!(run.contains("\"mean_coverage\"") && run.contains("\"report.html\""), "{run}");
}

#[test]
fn names_from_input_cannot_become_html() {
    let directory = scratch::directory("report-names");
    let evil = "<script>alert(1)</script>\"'&";
    let contig = "c<script>1";
    let input = directory.join("input.sam");
    let bases = "ACGT".repeat(10);
    let pair = |flag: u32, at: u32, mate: u32, length: i32| {
        let quality = "I".repeat(40);
        format!("q\t{flag}\t{contig}\t{at}\t60\t40M\t=\t{mate}\t{length}\t{bases}\t{quality}\tRG:Z:a\n")
    };
    let text = format!(
        "@HD\tVN:1.6\n@SQ\tSN:{contig}\tLN:1000\n@RG\tID:a\tSM:s\tLB:{evil}\n{}{}",
        pair(99, 101, 201, 140),
        pair(147, 201, 101, -140)
    );
    std::fs::write(&input, text).expect("the scratch directory can be written to");
    let name = "a<script>&\"b\"";
    let bam = directory.join(format!("{name}.bam"));
    godwit().arg("markdup").arg(&input).arg("--out").arg(&bam).arg("--metrics").run_ok();
    let page = read_text(&directory.join(format!("{name}.report.html")));
    assert_eq!(html_error(&page), None);
    assert!(!page.contains("<script"));
    for shown in ["a&lt;script&gt;", "c&lt;script&gt;1", "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"] {
        assert!(page.contains(shown), "no {shown}");
    }
}

#[test]
fn pages_of_equal_results_differ_in_times_only() {
    needs!("bwa");
    let spec = SampleSpec {
        seed: 11,
        lanes: vec![1500, 900],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    };
    let sample = Sample::cached(&spec);
    let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
    let results = |threads: &str, partitions: &str| {
        let out = scratch::directory("report-ways");
        align(&sample, &options, &out).args(["--threads", threads, "--partitions", partitions]).run_ok();
        let page = read_text(&out.join("report.html"));
        let (results, _) = page.split_once("<h2>Run</h2>").expect("times come last");
        results.to_owned()
    };
    assert_eq!(results("1", "1"), results("3", "128"));
}

#[test]
fn a_file_without_reads_has_a_page_too() {
    let directory = scratch::directory("report-empty");
    let (input, bam) = (directory.join("input.sam"), directory.join("empty.bam"));
    std::fs::write(&input, "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n").expect("the scratch directory can be written to");
    godwit().arg("markdup").arg(&input).arg("--out").arg(&bam).arg("--metrics").run_ok();
    let page = read_text(&directory.join("empty.report.html"));
    assert_eq!(html_error(&page), None);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}
