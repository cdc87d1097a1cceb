//! Delta compression of genomes during a copy.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::genome::SmallGenome;
use godwit_tests::processes::send_signal;
use godwit_tests::tool::run_checked;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::copies::{path_text, pseudorandom_bytes, server_url};

/// Creates a directory with `ref.fa`, the same sequences in another order and under other names, with the same
/// soft-masking, as `theirs.fa`, and directories `root` and `mine`.
fn write_genomes(label: &str) -> PathBuf {
    let directory = scratch::directory(label);
    SmallGenome::new(12, false).write(&directory);
    let reference = fs::read_to_string(directory.join("ref.fa")).expect("it was written");
    let mut records: Vec<String> = reference.split('>').skip(1).map(|record| format!(">their_{record}")).collect();
    records.reverse();
    fs::write(directory.join("theirs.fa"), records.concat()).expect("it can be written");
    for name in ["root", "mine"] {
        fs::create_dir(directory.join(name)).expect("it can be made");
    }
    directory
}

/// Writes `NAME.fa`, the genome of another individual.
fn write_individual(directory: &Path, place: &Path, name: &str, seed: &str) {
    godwit().current_dir(directory).arg("mutate").arg("ref.fa").arg(place.join(name)).args(["--seed", seed]).run_ok();
}

fn events_of_kind<'e>(events: &'e str, kind: &str) -> Vec<&'e str> {
    events.lines().filter(|line| line.contains(&format!("\"event\":\"{kind}\""))).collect()
}

fn event_number(event: &str, field: &str) -> u64 {
    let digits = event.split(&format!("\"{field}\":")).nth(1).unwrap_or_else(|| panic!("{field} of {event}"));
    digits.split([',', '}']).next().and_then(|digits| digits.parse().ok()).expect("it is a number")
}

#[test]
fn genomes_go_as_what_differs_both_ways_and_all_else_as_it_is() {
    needs!("bgzip", "gzip");
    let directory = write_genomes("copy-delta");
    let (mine, root) = (directory.join("mine"), directory.join("root"));
    let run = mine.join("run");
    fs::create_dir_all(run.join("deep")).expect("it can be made");
    write_individual(&directory, &run, "one.fa", "1");
    write_individual(&directory, &run, "deep/two.fa", "2");
    write_individual(&directory, &run, "three.fa", "3");
    for command in ["bgzip deep/two.fa", "bgzip -c -l 1 three.fa > four.fna.gz", "gzip three.fa"] {
        run_checked(Command::new("bash").args(["-c", command]).current_dir(&run));
    }
    fs::write(run.join("other.bin"), pseudorandom_bytes(200_000)).expect("it can be written");
    fs::write(run.join("no.fa"), pseudorandom_bytes(200_000)).expect("it can be written");
    fs::set_permissions(run.join("one.fa"), fs::Permissions::from_mode(0o640)).expect("it can be changed");
    let reference = path_text(&directory.join("theirs.fa")).to_owned();
    let served = DataServer::start(&root, &["--writable", "--reference", &reference]);
    let back = mine.join("back");
    let ways = [
        [path_text(&run).to_owned(), server_url(&served, "run")],
        [server_url(&served, "run"), path_text(&back).to_owned()],
    ];
    for way in ways {
        let copy = || {
            let words = ["--compress", "delta", "--reference", "ref.fa", "--json"];
            godwit().current_dir(&directory).arg("copy").args(&way).args(words).run_ok()
        };
        let told = copy().stderr;
        let packed: Vec<u64> =
            events_of_kind(&told, "unpacked").iter().map(|event| event_number(event, "sent_bytes")).collect();
        assert!(packed.len() == 3 && packed.iter().all(|bytes| *bytes < 4_000), "{told}");
        let [saved] = events_of_kind(&told, "saved")[..] else { panic!("{told}") };
        assert_eq!(
            event_number(saved, "saved_bytes"),
            event_number(saved, "bytes") - packed.iter().sum::<u64>(),
            "{told}"
        );
        assert!(told.contains("6 files copied") && events_of_kind(&told, "copied").len() == 3, "{told}");
        assert!(
            told.contains("three.fa.gz: copied without delta compression")
                && told.contains("no.fa: copied without delta compression"),
            "{told}"
        );
        let again = copy().stderr;
        let [started] = events_of_kind(&again, "started")[..] else { panic!("{again}") };
        assert!((event_number(started, "files"), event_number(started, "same")) == (0, 6), "{again}");
        assert!(events_of_kind(&again, "unpacked").is_empty() && events_of_kind(&again, "saved").is_empty(), "{again}");
    }
    for file in ["one.fa", "deep/two.fa.gz", "three.fa.gz", "four.fna.gz", "other.bin", "no.fa"] {
        for there in [root.join("run"), back.clone()] {
            let (sent, came) = (run.join(file), there.join(file));
            assert!(scratch::read(&sent) == scratch::read(&came), "{file}");
            let metadata =
                |path: &Path| fs::metadata(path).map(|found| (found.mode(), found.mtime(), found.mtime_nsec()));
            assert_eq!(metadata(&sent).expect("it is there"), metadata(&came).expect("it is there"), "{file}");
        }
    }
    // A changed file is also copied with delta compression, and the summary reports the saved bytes.
    write_individual(&directory, &run, "one.fa", "4");
    let words = ["--compress", "delta", "--reference", "ref.fa", "--mode", "polite"];
    let way = [path_text(&run.join("one.fa")).to_owned(), server_url(&served, "run/one.fa")];
    let told = godwit().current_dir(&directory).arg("copy").args(&way).args(words).run_ok().stderr;
    assert!(
        told.contains("1 file copied") && told.contains("delta-compressed") && told.contains("0.3 MB saved"),
        "{told}"
    );
    assert!(scratch::read(&run.join("one.fa")) == scratch::read(&root.join("run/one.fa")));
    assert_eq!(scratch::entry_names(&root.join("run")).len(), 6);
}

#[test]
fn without_a_common_reference_genomes_go_as_they_are_and_it_is_said_once() {
    let directory = write_genomes("copy-delta-none");
    let (mine, root) = (directory.join("mine"), directory.join("root"));
    for (name, seed) in [("one.fa", "1"), ("two.fa", "2")] {
        write_individual(&directory, &mine, name, seed);
    }
    // References with the same sequences but other soft-masking, and with other sequences.
    let masked = fs::read_to_string(directory.join("ref.fa")).expect("it is there");
    let masked: Vec<String> =
        masked.lines().map(|line| if line.starts_with('>') { line.to_owned() } else { line.to_lowercase() }).collect();
    fs::write(directory.join("masked.fa"), masked.join("\n")).expect("it can be written");
    let plain = DataServer::start(&root, &["--writable"]);
    let other = DataServer::start(&root, &["--writable", "--reference", path_text(&directory.join("masked.fa"))]);
    fs::copy(mine.join("one.fa"), directory.join("own.fa")).expect("it can be copied");
    let own = DataServer::start(&root, &["--writable", "--reference", path_text(&directory.join("own.fa"))]);
    for (number, served) in [&plain, &other, &own].into_iter().enumerate() {
        let copy = |words: &[&str]| {
            let to = server_url(served, &format!("to{number}-{}", words.len()));
            godwit().current_dir(&directory).args(["copy", "mine", &to, "--compress", "delta"]).args(words).run_ok()
        };
        let told = copy(&["--reference", "ref.fa"]).stderr;
        assert_eq!(told.matches("genomes are sent without delta compression").count(), 1, "{told}");
        assert!(told.contains("2 files copied") && !told.contains("saved"), "{told}");
        let told = copy(&[]).stderr;
        assert_eq!(told.matches("--reference is not given").count(), 1, "{told}");
        // Of two references of the client, the last server has only the second.
        let told = copy(&["--reference", "ref.fa", "--reference", "own.fa", "--json"]).stderr;
        assert_eq!(events_of_kind(&told, "unpacked").len(), if number == 2 { 2 } else { 0 }, "{told}");
        // The copied files equal the sources, with and without delta compression.
        for place in ["2", "0", "5"] {
            for name in ["one.fa", "two.fa"] {
                assert!(
                    scratch::read(&mine.join(name))
                        == scratch::read(&root.join(format!("to{number}-{place}")).join(name))
                );
            }
        }
    }
    let copy = |words: &[&str]| {
        godwit()
            .current_dir(&directory)
            .args(["copy", "mine/one.fa", &server_url(&own, "x.fa"), "--compress", "delta"])
            .args(words)
            .run()
    };
    copy(&["--reference", "nowhere.fa"]).assert_rejected(&[4], &["nowhere.fa"]);
    fs::write(directory.join("bad.fa"), "ACGT\n").expect("it can be written");
    copy(&["--reference", "bad.fa"]).assert_rejected(&[3], &["bad.fa"]);
    let served = godwit().args(["serve", "--root", path_text(&root), "--reference", "nowhere.fa"]).run();
    served.assert_rejected(&[4], &["nowhere.fa"]);
    let relay = ["copy", &server_url(&own, "to0-2"), "x", "--compress", "delta", "--relay", &server_url(&plain, "")];
    godwit().current_dir(&directory).args(relay).run().assert_rejected(&[2], &["--relay"]);
}

#[test]
fn a_server_fetches_differences_from_another() {
    let directory = write_genomes("copy-delta-third");
    let (mine, root) = (directory.join("mine"), directory.join("root"));
    write_individual(&directory, &root, "one.fa", "1");
    let one = DataServer::start(&root, &["--reference", path_text(&directory.join("ref.fa"))]);
    let other = DataServer::start(&mine, &["--writable", "--reference", path_text(&directory.join("theirs.fa"))]);
    let words = ["copy", &server_url(&one, "one.fa"), &server_url(&other, "two.fa"), "--compress", "delta"];
    let told = godwit().args(words).run_ok().stderr;
    assert!(told.contains("1 file copied") && told.contains("saved"), "{told}");
    assert!(scratch::read(&root.join("one.fa")) == scratch::read(&mine.join("two.fa")));
}

#[test]
fn a_genome_whose_either_end_is_killed_on_the_way_comes_whole_with_the_next_attempt() {
    for (downloads, kills_server) in [(true, false), (false, false), (true, true), (false, true)] {
        let directory = write_genomes("copy-delta-kill");
        let (mine, root) = (directory.join("mine"), directory.join("root"));
        let (source, target) = if downloads { (&root, &mine) } else { (&mine, &root) };
        // Create a genome unlike the reference, so that the delta copy has enough data to send.
        let letters: Vec<u8> =
            pseudorandom_bytes(4_000_000).iter().map(|byte| b"ACGT"[usize::from(byte & 3)]).collect();
        fs::write(source.join("f.fa"), [b">f\n", &letters[..], b"\n"].concat()).expect("it can be written");
        let theirs = path_text(&directory.join("theirs.fa")).to_owned();
        let words = ["--writable", "--reference", &theirs];
        let served = DataServer::start_restartable(&root, &words);
        let address = served.address.clone();
        let here = path_text(&mine.join("f.fa")).to_owned();
        let way = if downloads { [server_url(&served, "f.fa"), here] } else { [here, server_url(&served, "f.fa")] };
        let copy = || {
            let words = ["--compress", "delta", "--reference", "ref.fa", "--json"];
            godwit().current_dir(&directory).arg("copy").args(&way).args(words)
        };
        let running = copy().args(["--rate", "4M", "--mode", "fast"]).spawn();
        wait_until("it is on the way", || target.join(".f.fa.godwit-part").exists());
        let told = if kills_server {
            send_signal(served.process_id(), libc::SIGKILL);
            drop(served);
            assert!(!target.join("f.fa").exists());
            let _again = DataServer::start_at(&root, &address, &words);
            let done = running.wait_with_output();
            assert!(done.status.success(), "{}", done.describe());
            done.stderr
        } else {
            send_signal(running.process_id(), libc::SIGKILL);
            running.wait_with_output();
            assert!(!target.join("f.fa").exists());
            copy().run_ok().stderr
        };
        assert!(events_of_kind(&told, "unpacked").len() == 1, "{told}");
        assert!(scratch::read(&source.join("f.fa")) == scratch::read(&target.join("f.fa")));
        let mut names = scratch::entry_names(target);
        names.retain(|name| name != ".godwit-puts");
        assert_eq!(names, ["f.fa"], "downloads {downloads}, kills the server {kills_server}");
    }
}
