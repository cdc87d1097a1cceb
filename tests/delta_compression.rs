//! Delta compression of genomes: unpacked text is compared byte by byte with the input, and regions with those of
//! samtools.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{self, godwit, process_timeout};
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
fn pipes_are_written_and_links_stay() {
    let directory = write_individuals("pack-targets");
    pack_genome(&directory, "one.fa", "one.gwp");
    let text = read(&directory, "one.fa");
    let (pipe, store) = (directory.join("pipe.fa"), directory.join("store"));
    run_checked(Command::new("mkfifo").arg(&pipe));
    let reader = scratch::read_pipe(&pipe);
    let unpack = |out: &str| {
        godwit().current_dir(&directory).args(["unpack", "--reference", "ref.fa", "one.gwp", out]).run_ok();
    };
    unpack("pipe.fa");
    assert!(pipe.metadata().is_ok_and(|found| found.file_type().is_fifo()), "the pipe was replaced");
    assert!(reader.recv_timeout(process_timeout()).expect("the pipe was written") == text);
    fs::create_dir(&store).expect("scratch can be written");
    symlink("store/back.fa", directory.join("back.fa")).expect("a link can be made");
    for _ in ["a new file", "an existing file"] {
        unpack("back.fa");
        assert!(read(&store, "back.fa") == text);
        fs::write(store.join("back.fa"), "old").expect("it can be written");
    }
    assert!(directory.join("back.fa").is_symlink());
    assert_eq!(scratch::entry_names(&store), ["back.fa"]);
}

#[test]
fn standard_output_contains_only_the_data() {
    let directory = write_individuals("pack-stdout");
    pack_genome(&directory, "one.fa", "one.gwp");
    symlink("/dev/stdout", directory.join("link")).expect("a link can be made");
    for out in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"] {
        for (verb, input, expected) in [("pack", "one.fa", "one.gwp"), ("unpack", "one.gwp", "one.fa")] {
            let to = fs::File::create(directory.join("stdout")).expect("scratch can be written");
            let mut command = Command::new(binary::path());
            command.current_dir(&directory).args([verb, "--reference", "ref.fa", input, out]).stdout(to);
            assert!(command.status().expect("it can be started").success(), "{verb} {out}");
            assert!(read(&directory, "stdout") == read(&directory, expected), "{verb} {out}");
        }
    }
    assert!(directory.join("link").is_symlink());
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
fn compressed_fasta_is_packed_as_text_and_other_compressed_files_as_they_are() {
    needs!("bgzip");
    let directory = write_individuals("pack-compressed");
    fs::write(directory.join("table"), "chr1\t1\t.\tA\tC\n".repeat(1000)).expect("it can be written");
    for name in ["one.fa", "table"] {
        run_checked(Tool::require("bgzip").command().args(["-k", name]).current_dir(&directory));
    }
    for (input, restored) in [("one.fa.gz", "one.fa"), ("table.gz", "table.gz")] {
        for from_stdin in [false, true] {
            let run = godwit().current_dir(&directory);
            let run = match from_stdin {
                true => run.stdin(fs::File::open(directory.join(input)).expect("it is there")),
                false => run,
            };
            run.args(["pack", "--reference", "ref.fa", if from_stdin { "-" } else { input }, "x.gwp"]).run_ok();
            godwit().current_dir(&directory).args(["unpack", "--reference", "ref.fa", "x.gwp", "x"]).run_ok();
            assert!(read(&directory, "x") == read(&directory, restored), "{input}, stdin: {from_stdin}");
        }
    }
    // Without its end-of-file block, a BGZF file may be incomplete.
    let whole = read(&directory, "one.fa.gz");
    fs::write(directory.join("cut.fa.gz"), &whole[..whole.len() - 28]).expect("it can be written");
    for input in ["cut.fa.gz", "-"] {
        let run = godwit().current_dir(&directory).args(["pack", "--reference", "ref.fa", input, "y.gwp"]);
        let run = run.stdin(fs::File::open(directory.join("cut.fa.gz")).expect("it is there"));
        run.run().assert_rejected(&[3], &["end-of-file"]);
        assert!(!directory.join("y.gwp").exists());
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
    // A packed file that is not listed is not replaced.
    fs::write(directory.join("all/three.gwp"), "the only copy").expect("it can be written");
    let words = ["collection", "add", "all", "one.fa", "--name", "three", "--reference", "ref.fa"];
    run(&words).assert_rejected(&[3], &["all/three.gwp exists", "remove the file"]);
    assert_eq!(read(&directory, "all/three.gwp"), b"the only copy");
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

#[test]
fn no_output_replaces_an_input_the_reference_or_a_file_of_a_collection() {
    let directory = write_individuals("pack-inputs-remain");
    pack_genome(&directory, "one.fa", "one.gwp");
    let run = |words: &str| godwit().current_dir(&directory).args(words.split(' ')).run();
    assert!(run("collection add all one.fa --reference ref.fa").status.success());
    fs::write(directory.join("ref.fa.fai"), "").expect("it can be written");
    fs::hard_link(directory.join("one.fa"), directory.join("hard.fa")).expect("it can be linked");
    std::os::unix::fs::symlink("ref.fa", directory.join("soft.fa")).expect("it can be linked");
    fs::copy(directory.join("two.fa"), directory.join("all/two.gwp")).expect("it can be copied");
    let inputs = ["ref.fa", "ref.fa.fai", "one.fa", "one.gwp", "all/collection.json", "all/one.gwp", "all/two.gwp"];
    let contents = || inputs.map(|name| read(&directory, name));
    let before = contents();
    for (words, names) in [
        ("pack --reference ref.fa one.fa ref.fa", ["OUT.gwp", "--reference"]),
        ("pack --reference ref.fa one.fa soft.fa", ["OUT.gwp", "--reference"]),
        ("pack --reference ref.fa one.fa ref.fa.fai", ["OUT.gwp", "index of --reference"]),
        ("pack --reference ref.fa one.fa one.fa", ["OUT.gwp", "IN"]),
        ("pack --reference ref.fa one.fa hard.fa", ["OUT.gwp", "IN"]),
        ("unpack --reference ref.fa one.gwp ref.fa", ["OUT", "--reference"]),
        ("unpack --reference ref.fa --region chr1:1-10 one.gwp one.gwp", ["OUT", "IN.gwp"]),
        ("unpack --reference ref.fa one.gwp one.gwp", ["OUT", "IN.gwp"]),
        ("mutate ref.fa ref.fa", ["OUT.fa", "IN.fa"]),
        ("collection extract all one all/one.gwp --reference ref.fa", ["OUT", "collection"]),
        ("collection extract all one all/collection.json --reference ref.fa", ["OUT", "collection"]),
        ("collection extract all one ref.fa --reference ref.fa", ["OUT", "--reference"]),
        ("collection region all chr1:1-10 all/one.gwp --reference ref.fa", ["OUT", "collection"]),
        ("collection region all chr1:1-10 soft.fa --reference ref.fa", ["OUT", "--reference"]),
        ("collection add all all/two.gwp --name two --reference ref.fa", ["DIR", "IN"]),
    ] {
        run(words).assert_rejected(&[2], &names);
        assert!(contents() == before, "{words}");
    }
    // The file that is packed may be the reference itself.
    assert!(run("pack --reference ref.fa ref.fa same.gwp").status.success());
    let packed = fs::File::open(directory.join("one.gwp")).expect("it can be opened");
    let piped =
        godwit().current_dir(&directory).args(["unpack", "--reference", "ref.fa", "-", "one.gwp"]).stdin(packed);
    piped.run().assert_rejected(&[2], &["OUT", "IN.gwp"]);
    assert!(contents() == before);
}

#[test]
fn mutation_rates_out_of_range_are_rejected() {
    let directory = write_individuals("mutate-rates");
    for rate in ["nan", "inf", "-1", "1e9", "101", "much"] {
        let words = ["mutate", "ref.fa", "x.fa", &format!("--rate={rate}")];
        godwit().current_dir(&directory).args(words).run().assert_rejected(&[2], &["--rate"]);
    }
    assert!(!directory.join("x.fa").exists());
    godwit().current_dir(&directory).args(["mutate", "ref.fa", "x.fa", "--rate", "0"]).run_ok();
    assert!(read(&directory, "x.fa") == read(&directory, "ref.fa"));
}
