//! Delta compression of genomes: unpacked text is compared byte by byte with the input, and regions with those of
//! samtools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::genome::SmallGenome;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

/// Writes a directory with a reference, `ref.fa`, and two other individuals, `one.fa` and `two.fa`.
fn write_individuals(label: &str) -> PathBuf {
    let directory = scratch::directory(label);
    SmallGenome::new(12, false).write(&directory);
    for (name, seed) in [("one.fa", "1"), ("two.fa", "2")] {
        godwit().current_dir(&directory).args(["mutate", "ref.fa", name, "--seed", seed]).run_ok();
    }
    directory
}

fn pack_genome(directory: &Path, input: &str, out: &str) -> u64 {
    let told = godwit().current_dir(directory).args(["pack", "--reference", "ref.fa", input, out]).run_ok().stdout;
    let bytes = fs::metadata(directory.join(out)).expect("it was written").len();
    assert!(told.starts_with(&format!("{out}: {bytes} bytes from ")), "{told}");
    bytes
}

fn read(directory: &Path, name: &str) -> Vec<u8> {
    fs::read(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn an_individual_is_packed_to_little_and_comes_back_byte_by_byte() {
    needs!("gzip");
    let directory = write_individuals("pack");
    let text = read(&directory, "one.fa");
    let bytes = pack_genome(&directory, "one.fa", "one.gwp");
    // The packed file contains about 300 variants of a genome of 266,000 bases, so it must be small.
    assert!(bytes < 2_500, "{bytes} bytes");
    godwit().current_dir(&directory).args(["unpack", "--reference", "ref.fa", "one.gwp", "back.fa"]).run_ok();
    assert!(read(&directory, "back.fa") == text);
    // Pack the text of a gzip file through pipes, with a compressed reference that has another name.
    run_checked(Command::new("gzip").args(["-k", "one.fa"]).current_dir(&directory));
    pack_genome(&directory, "one.fa.gz", "gz.gwp");
    assert!(read(&directory, "gz.gwp") == read(&directory, "one.gwp"));
    run_checked(Command::new("bash").args(["-c", "gzip -c ref.fa > same.fa.gz"]).current_dir(&directory));
    let input = fs::File::open(directory.join("one.gwp")).expect("it is there");
    let words = ["unpack", "--reference", "same.fa.gz", "-", "-"];
    let told = godwit().current_dir(&directory).args(words).stdin(input).run_ok().stdout;
    assert!(told.as_bytes() == text);
    let input = fs::File::open(directory.join("one.fa")).expect("it is there");
    godwit().current_dir(&directory).args(["pack", "--reference", "ref.fa", "-", "piped.gwp"]).stdin(input).run_ok();
    assert!(read(&directory, "piped.gwp") == read(&directory, "one.gwp"), "threads and pipes change nothing");
    let words = ["pack", "--threads", "1", "--reference", "same.fa.gz", "one.fa", "single.gwp"];
    godwit().current_dir(&directory).args(words).run_ok();
    assert!(read(&directory, "single.gwp") == read(&directory, "one.gwp"));
}

#[test]
fn anything_can_be_packed_and_is_hardly_longer_than_by_zstd() {
    needs!("zstd");
    let directory = write_individuals("pack-anything");
    let text = String::from_utf8(read(&directory, "two.fa")).expect("it is text");
    let protein: String =
        text.bytes().enumerate().map(|(at, base)| char::from(b'A' + (base ^ (at * at % 31) as u8) % 25)).collect();
    let inputs = [
        ("empty", Vec::new()),
        ("crlf", text.replace('\n', "\r\n").into_bytes()),
        ("open", text.trim_end().as_bytes().to_vec()),
        ("lower", text.to_lowercase().into_bytes()),
        ("protein", format!(">p\n{protein}\n").into_bytes()),
        ("binary", (0..70_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()),
    ];
    for (name, bytes) in inputs {
        fs::write(directory.join(name), &bytes).expect("it can be written");
        let packed = pack_genome(&directory, name, "x.gwp");
        godwit().current_dir(&directory).args(["unpack", "--reference", "ref.fa", "x.gwp", "x"]).run_ok();
        assert!(read(&directory, "x") == bytes, "{name}");
        run_checked(
            Tool::require("zstd").command().args(["-19", "-q", "-f", name, "-o", "x.zst"]).current_dir(&directory),
        );
        let zstd = read(&directory, "x.zst").len() as u64;
        assert!(packed * 100 <= zstd * 101, "{name}: {packed} bytes, by zstd {zstd}");
    }
}

#[test]
fn regions_are_those_of_samtools_faidx() {
    needs!("samtools");
    let directory = write_individuals("pack-regions");
    pack_genome(&directory, "one.fa", "one.gwp");
    for region in ["chr1:1-1", "chr1:59,990-60,800", "chr2:30001-35000", "chr3:29000-29999", "chrM:1-6100", "tiny"] {
        let expected = Tool::require("samtools")
            .command()
            .args(["faidx", "one.fa", &region.replace(',', "")])
            .current_dir(&directory)
            .output();
        let expected = String::from_utf8(expected.expect("samtools starts").stdout).expect("it is text");
        let words = ["unpack", "--reference", "ref.fa", "--region", region, "one.gwp", "-"];
        let found = godwit().current_dir(&directory).args(words).run_ok().stdout;
        // The title that samtools prints is the region as the command line gives it, so compare only the bases.
        assert_eq!(
            found.split_once('\n').map(|(_, bases)| bases),
            expected.split_once('\n').map(|(_, bases)| bases),
            "{region}"
        );
    }
    let ask = |region: &str| {
        godwit()
            .current_dir(&directory)
            .args(["unpack", "--reference", "ref.fa", "--region", region, "one.gwp", "x"])
            .run()
    };
    ask("chr9:1-5").assert_rejected(&[2], &["chr9"]);
    ask("chr1:5-2").assert_rejected(&[2], &["chr1:5-2"]);
    ask("chr1:900000-900100").assert_rejected(&[2], &["after the end"]);
}

#[test]
fn regions_of_contigs_named_like_ranges_are_those_of_samtools_faidx() {
    needs!("samtools");
    let directory = write_individuals("pack-names");
    let (text, names) = (
        String::from_utf8(read(&directory, "ref.fa")).expect("FASTA is text"),
        [("chr2", "chr1:100-200"), ("chr3", "HLA-A*01:01:01:01")],
    );
    let renamed = names.iter().fold(text, |text, (from, to)| text.replace(&format!(">{from} "), &format!(">{to} ")));
    fs::write(directory.join("ref.fa"), renamed).expect("it can be written");
    godwit().current_dir(&directory).args(["mutate", "ref.fa", "odd.fa", "--seed", "3"]).run_ok();
    pack_genome(&directory, "odd.fa", "odd.gwp");
    godwit().current_dir(&directory).args(["collection", "add", "all", "odd.fa", "--reference", "ref.fa"]).run_ok();
    for region in ["HLA-A*01:01:01:01", "HLA-A*01:01:01:01:5-300", "{chr1:100-200}:7-90", "{chr1}:100-200"] {
        let expected =
            Tool::require("samtools").command().current_dir(&directory).args(["faidx", "odd.fa", region]).output();
        let expected = String::from_utf8(expected.expect("samtools can be started").stdout).expect("FASTA is text");
        let words = ["unpack", "--reference", "ref.fa", "--region", region, "odd.gwp", "-"];
        let found = godwit().current_dir(&directory).args(words).run_ok().stdout;
        // The title lines repeat the requested regions, which have no braces in this request, so compare only the
        // bases.
        let bases = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert!(!bases(&expected).is_empty() && bases(&found) == bases(&expected), "{region}");
        assert_eq!(found.lines().next(), Some(format!(">{}", region.replace(['{', '}'], "")).as_str()));
        let words = ["collection", "region", "all", region, "-", "--reference", "ref.fa"];
        assert_eq!(bases(&godwit().current_dir(&directory).args(words).run_ok().stdout), bases(&expected), "{region}");
    }
    for (region, words) in [("chr1:100-200", &["ambiguous", "{chr1}:100-200"][..]), ("chr9:1-5", &["chr9", "odd.gwp"])]
    {
        let asked = ["unpack", "--reference", "ref.fa", "--region", region, "odd.gwp", "-"];
        godwit().current_dir(&directory).args(asked).run().assert_rejected(&[2], words);
    }
}

#[test]
fn a_collection_gives_back_genomes_and_a_region_of_all() {
    let directory = write_individuals("pack-collection");
    let run = |words: &[&str]| godwit().current_dir(&directory).args(words).run();
    let told = run(&["collection", "add", "all", "one.fa", "two.fa", "--reference", "ref.fa"]);
    assert!(told.status.success(), "{}", told.describe());
    let told = run(&["collection", "list", "all"]).stdout;
    assert_eq!(
        told.lines().filter_map(|line| line.split('\t').next()).collect::<Vec<_>>(),
        ["reference", "one", "two"]
    );
    for name in ["one", "two"] {
        assert!(run(&["collection", "extract", "all", name, "x.fa", "--reference", "ref.fa"]).status.success());
        assert!(read(&directory, "x.fa") == read(&directory, &format!("{name}.fa")));
    }
    let told = run(&["collection", "region", "all", "chr2:101-160", "-", "--reference", "ref.fa"]).stdout;
    assert_eq!(told.lines().map(str::len).collect::<Vec<_>>(), [17, 60, 17, 60], "{told}");
    run(&["collection", "add", "all", "one.fa", "--reference", "ref.fa"])
        .assert_rejected(&[3], &["one", "another name"]);
    run(&["collection", "extract", "all", "three", "x", "--reference", "ref.fa"]).assert_rejected(&[3], &["three"]);
    run(&["collection", "add", "all", "ref.fa", "--reference", "one.fa"])
        .assert_rejected(&[3], &["its genomes were packed with the reference"]);
    run(&["collection", "list", "none"]).assert_rejected(&[4], &["collection.json"]);
}

#[test]
fn one_bad_genome_keeps_no_other_from_being_added_or_read() {
    let directory = write_individuals("pack-one-bad");
    let run = |words: &[&str]| godwit().current_dir(&directory).args(words).run();
    std::fs::write(directory.join("cut.fa.gz"), b"\x1f\x8b\x08\x04 no gzip").expect("it can be written");
    let words = ["collection", "add", "all", "missing.fa", "one.fa", "cut.fa.gz", "two.fa", "--reference", "ref.fa"];
    let told = run(&words);
    told.assert_rejected(&[4], &["2 of 4 genomes were not added", "missing.fa", "cut.fa.gz"]);
    let members = || run(&["collection", "list", "all"]).stdout.lines().count() - 1;
    assert_eq!(members(), 2, "{}", told.describe());
    let region = ["collection", "region", "all", "chr2:101-160", "x.fa", "--reference", "ref.fa"];
    assert!(run(&region).status.success());
    let whole = String::from_utf8(read(&directory, "x.fa")).expect("it is text");
    let packed = read(&directory, "all/one.gwp");
    std::fs::write(directory.join("all/one.gwp"), &packed[..packed.len() / 2]).expect("it can be written");
    run(&region).assert_rejected(&[3], &["1 of 2 genomes were skipped", "one"]);
    let second = whole.find(">two").expect("it has both");
    assert_eq!(String::from_utf8(read(&directory, "x.fa")).expect("it is text"), whole[second..]);
}

#[test]
fn damage_and_another_reference_are_told_and_leave_nothing() {
    let directory = write_individuals("pack-damage");
    pack_genome(&directory, "one.fa", "one.gwp");
    let packed = read(&directory, "one.gwp");
    let unpack = |reference: &[&str]| {
        godwit().current_dir(&directory).arg("unpack").args(reference).args(["x.gwp", "out.fa"]).run()
    };
    let right = ["--reference", "ref.fa"];
    let mut damaged = packed.clone();
    for at in [3, 10, 60, packed.len() / 2, packed.len() - 3] {
        damaged[at] ^= 0x10;
        fs::write(directory.join("x.gwp"), &damaged).expect("it can be written");
        unpack(&right).assert_rejected(&[3], &[]);
        damaged[at] ^= 0x10;
    }
    fs::write(directory.join("x.gwp"), &packed[..packed.len() - 40]).expect("it can be written");
    unpack(&right).assert_rejected(&[3], &["truncated"]);
    fs::write(directory.join("x.gwp"), b"something else").expect("it can be written");
    unpack(&right).assert_rejected(&[3], &["not a packed genome"]);
    fs::write(directory.join("x.gwp"), &packed).expect("it can be written");
    unpack(&["--reference", "two.fa"]).assert_rejected(&[3], &["packed against the reference", "SQ."]);
    unpack(&[]).assert_rejected(&[2], &["--reference"]);
    unpack(&["--reference", "none.fa"]).assert_rejected(&[4], &["none.fa"]);
    let words = ["pack", "--reference", "ref.fa", "none.fa", "out.fa"];
    godwit().current_dir(&directory).args(words).run().assert_rejected(&[4], &["none.fa"]);
    let limited = godwit().current_dir(&directory).limit_file_size(100_000).args([
        "unpack",
        "--reference",
        "ref.fa",
        "x.gwp",
        "out.fa",
    ]);
    limited.run().assert_rejected(&[4], &["space"]);
    assert!(!directory.join("out.fa").exists());
    assert!(
        scratch::entry_names(&directory).iter().all(|name| !name.starts_with(".tmp")),
        "{:?}",
        scratch::entry_names(&directory)
    );
}
