//! `godwit verify` with and without a manifest.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::bwa_identity;

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;
/// The size in bytes of the empty block that ends a BGZF file.
const EOF_BLOCK_BYTES: usize = 28;

fn verify(path: &Path) -> GodwitOutput {
    godwit().arg("verify").arg(path).args(["--threads", "2"]).run()
}

fn aligned() -> PathBuf {
    let lanes = vec![600, 300];
    let spec = SampleSpec { seed: 31, lanes, paired: true, alternate: false, comments: TitleComments::Illumina };
    let out = scratch::directory("to-verify");
    let options = AlignOptions { block_bases: 60_000, ..AlignOptions::default() };
    bwa_identity::align(&Sample::cached(&spec), &options, &out).args(["--partitions", "5"]).run_ok();
    out
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns the bytes of a BGZF file without its last block with data, with the end-of-file block.
fn without_last_data_block(bytes: &[u8]) -> Vec<u8> {
    let (mut start, mut starts) = (0, Vec::new());
    while start < bytes.len() - EOF_BLOCK_BYTES {
        starts.push(start);
        start += usize::from(u16::from_le_bytes([bytes[start + 16], bytes[start + 17]])) + 1;
    }
    let last = starts.pop().expect("a file of records has blocks");
    [&bytes[..last], &bytes[bytes.len() - EOF_BLOCK_BYTES..]].concat()
}

#[test]
fn outputs_are_what_their_manifest_says_wherever_they_are_moved() {
    needs!("bwa");
    let out = aligned();
    let whole = verify(&out);
    assert!(whole.status.success(), "{}", whole.describe());
    assert_eq!(whole.stdout.lines().filter(|line| line.starts_with("ok: ")).count(), 10, "{}", whole.stdout);
    let records = Tool::find("samtools").map(|samtools| {
        let output = samtools.run(["view".as_ref(), "-c".as_ref(), out.join("sample.bam").as_os_str()]);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    });
    if let Some(records) = records {
        let one = verify(&out.join("sample.bam"));
        assert!(one.stdout.contains(&format!(": {records} records")), "{}", one.stdout);
    }
    // Put the outputs of two runs into one directory. `verify` must find the manifest of each file.
    let moved = scratch::directory("moved");
    let marked = moved.join("other.bam");
    godwit().arg("markdup").arg(out.join("sample.bam")).arg("--out").arg(&marked).run_ok();
    for entry in fs::read_dir(&out).expect("it can be read").flatten().filter(|entry| entry.file_name() != "run.json") {
        fs::rename(entry.path(), moved.join(entry.file_name())).expect("it can be moved");
    }
    for path in
        [moved.clone(), moved.join("sample.bam"), moved.join("other.bam.bai"), moved.join("other.manifest.json")]
    {
        let found = verify(&path);
        assert!(found.status.success() && found.stdout.contains("ok: "), "{}", found.describe());
    }
}

#[test]
fn any_changed_or_lost_byte_is_found() {
    needs!("bwa");
    let out = aligned();
    for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt", "sample.flagstat.txt", "sample.idxstats.txt"]
    {
        let path = out.join(name);
        let bytes = scratch::read(&path);
        for place in [0, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            write(&path, &changed);
            verify(&path).assert_rejected(&[EXIT_INPUT], &[name, "manifest"]);
        }
        write(&path, &bytes[..bytes.len() - 1]);
        verify(&path).assert_rejected(&[EXIT_INPUT], &[name, "bytes"]);
        verify(&out).assert_rejected(&[EXIT_INPUT], &[name]);
        fs::remove_file(&path).expect("it can be removed");
        verify(&path).assert_rejected(&[EXIT_MACHINE], &[name]);
        verify(&out).assert_rejected(&[EXIT_MACHINE], &[name, "(1 of 10 files missing)"]);
        write(&path, &bytes);
    }
    assert!(verify(&out).status.success());
}

#[test]
fn a_bam_cut_at_a_block_edge_with_its_end_put_back_is_found() {
    needs!("bwa", "samtools");
    let out = aligned();
    let bam = out.join("sample.bam");
    let cut = without_last_data_block(&scratch::read(&bam));
    write(&bam, &cut);
    Tool::require("samtools").run(["quickcheck".as_ref(), bam.as_os_str()]);
    verify(&bam).assert_rejected(&[EXIT_INPUT], &["sample.bam", "bytes"]);
    // Remove the manifest: `verify` detects the damage by comparison with the index.
    fs::remove_file(out.join("sample.manifest.json")).expect("it was written");
    verify(&bam).assert_rejected(&[EXIT_INPUT], &["sample.bam", "index", "records"]);
    // Remove the index as well: `verify` cannot detect the damage and says so.
    fs::remove_file(out.join("sample.bam.bai")).expect("it was written");
    let alone = verify(&bam);
    assert!(alone.status.success() && alone.stdout.contains("no manifest"), "{}", alone.describe());
}

#[test]
fn a_manifest_whose_counts_are_not_those_of_the_file_is_found() {
    needs!("bwa");
    let out = aligned();
    let path = out.join("sample.manifest.json");
    let text = String::from_utf8(scratch::read(&path)).expect("it is text");
    let count = text.rfind("\"records\": ").expect("segments have records");
    let before = text[..count].rfind("\"records\": ").expect("the last one is the end mark") + "\"records\": ".len();
    let number: String = text[before..].chars().take_while(char::is_ascii_digit).collect();
    let changed = format!("{}{}{}", &text[..before], number.len() * 7 + 1, &text[before + number.len()..]);
    write(&path, changed.as_bytes());
    verify(&out.join("sample.bam")).assert_rejected(&[EXIT_INPUT], &["records"]);
    write(&path, b"{}");
    verify(&out).assert_rejected(&[EXIT_INPUT], &["sample.manifest.json", "not a manifest"]);
}

#[test]
fn files_of_other_tools_are_checked_by_themselves() {
    needs!("bwa", "samtools");
    let out = aligned();
    let directory = scratch::directory("foreign");
    let bam = directory.join("foreign.bam");
    let samtools = Tool::require("samtools");
    samtools.run(["view".as_ref(), "-bo".as_ref(), bam.as_os_str(), out.join("sample.bam").as_os_str()]);
    for (made, said) in [(false, "no index"), (true, "matches its index")] {
        if made {
            samtools.run(["index".as_ref(), bam.as_os_str()]);
        }
        let sound = verify(&bam);
        assert!(sound.status.success(), "{}", sound.describe());
        assert!(sound.stdout.contains("no manifest") && sound.stdout.contains(said), "{}", sound.stdout);
    }
    // Compare with the index of a file that has the same records in blocks at other offsets.
    let index = directory.join("foreign.bam.bai");
    let own_index = scratch::read(&index);
    write(&index, &scratch::read(&out.join("sample.bam.bai")));
    verify(&bam).assert_rejected(&[EXIT_INPUT], &["its index", "foreign.bam.bai"]);
    write(&index, &own_index);
    let bytes = scratch::read(&bam);
    let damaged = [
        ("without its end", bytes[..bytes.len() - EOF_BLOCK_BYTES].to_vec()),
        ("cut in a block", bytes[..bytes.len() / 2].to_vec()),
        ("changed", [&bytes[..bytes.len() / 2], &[bytes[bytes.len() / 2] ^ 1], &bytes[bytes.len() / 2 + 1..]].concat()),
        ("cut at a block edge", without_last_data_block(&bytes)),
    ];
    for (what, bytes) in damaged {
        write(&bam, &bytes);
        let found = verify(&bam);
        assert_eq!(found.status.code(), Some(EXIT_INPUT), "{what}: {}", found.describe());
        found.assert_rejected(&[EXIT_INPUT], &["foreign.bam"]);
        assert_eq!(found.stderr.matches("again").count(), 1, "{what}: {}", found.describe());
    }
    // Write records in an order that contradicts the header.
    let text =
        String::from_utf8(samtools.run(["view".as_ref(), "-h".as_ref(), out.join("sample.bam").as_os_str()]).stdout);
    let text = text.expect("SAM is text");
    let (header, records): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('@'));
    let reversed: Vec<&str> = header.into_iter().chain(records.into_iter().rev()).collect();
    let sam = directory.join("reversed.sam");
    write(&sam, (reversed.join("\n") + "\n").as_bytes());
    samtools.run(["view".as_ref(), "--no-PG".as_ref(), "-bo".as_ref(), bam.as_os_str(), sam.as_os_str()]);
    verify(&bam).assert_rejected(&[EXIT_INPUT], &["order"]);
}

#[test]
fn what_is_not_there_or_cannot_be_checked_is_said() {
    let directory = scratch::directory("nothing");
    verify(&directory.join("none.bam")).assert_rejected(&[EXIT_MACHINE], &["none.bam"]);
    verify(&directory).assert_rejected(&[EXIT_MACHINE], &["manifest"]);
    let empty_gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (name, bytes) in [
        ("notes.txt", &b"text"[..]),
        ("a.vcf", b"##fileformat=VCFv4.2\n"),
        ("c.cram", b"CRAM\x03\x00"),
        ("r.fq.gz", &empty_gzip),
        ("empty.fa", b""),
    ] {
        write(&directory.join(name), bytes);
        let refused = verify(&directory.join(name));
        refused.assert_rejected(&[EXIT_USAGE], &[name, "is not a BAM file", "cannot be verified"]);
        // A file that is named like a BAM is not a sound file of another format.
        write(&directory.join("x.bam"), bytes);
        verify(&directory.join("x.bam")).assert_rejected(&[EXIT_INPUT], &["x.bam is corrupt"]);
    }
}

#[test]
fn every_file_of_a_directory_is_checked_whatever_is_wrong_with_others() {
    needs!("bwa");
    let out = aligned();
    let bam = out.join("sample.bam");
    let mut bytes = scratch::read(&bam);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    write(&bam, &bytes);
    fs::remove_file(out.join("sample.idxstats.txt")).expect("it is there");
    // Use a symbolic link to itself, which not even root can read.
    let looped = out.join("sample.flagstat.txt");
    fs::remove_file(&looped).expect("it is there");
    std::os::unix::fs::symlink("sample.flagstat.txt", &looped).expect("a link can be made");
    write(&out.join("other.manifest.json"), b"{}");
    let found = verify(&out);
    found.assert_rejected(&[EXIT_INPUT], &["corrupt", "1 more of"]);
    let verdicts = |word: &str| found.stdout.lines().filter(|line| line.starts_with(word)).count();
    let counts = ["corrupt: ", "missing: ", "unreadable: "].map(verdicts);
    assert_eq!(counts, [2, 1, 1], "{}", found.describe());
    assert!(verdicts("ok: ") > 5, "{}", found.describe());
}
