//! Copies of trees with entries that cannot be copied.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use godwit_tests::binary::{godwit, godwit_at};
use godwit_tests::needs;
use godwit_tests::tool::run_checked;

use super::copies::{path_text, server_url, start_server};

/// Creates a tree with unusual names and file types that users have reported. Three of its entries cannot be copied.
fn write_tree(directory: &Path) {
    fs::create_dir_all(directory.join("sub")).expect("it can be made");
    let long = "n".repeat(255);
    for name in ["plain", "sub/plain", "new\nline", &long] {
        fs::write(directory.join(name), name).expect("it can be written");
    }
    fs::write(directory.join(OsStr::from_bytes(b"\xff\xfebad")), "bytes").expect("it can be written");
    symlink("loop", directory.join("loop")).expect("it can be made");
    symlink("/nonexistent", directory.join("dangling")).expect("it can be made");
    run_checked(Command::new("mkfifo").arg(directory.join("fifo")));
}

/// Returns the differences that `diff` finds between two trees, without entries that exist only in the first tree.
fn differences(one: &Path, other: &Path) -> Vec<String> {
    let diff =
        Command::new("diff").args(["-r", "--no-dereference"]).args([one, other]).output().expect("diff is installed");
    let told = String::from_utf8_lossy(&diff.stdout).into_owned();
    let only = format!("Only in {}", path_text(one));
    told.lines().filter(|line| !line.starts_with(&only)).map(str::to_owned).collect()
}

#[test]
fn one_entry_that_cannot_be_copied_does_not_stop_the_others_and_each_is_named_at_the_end() {
    needs!("diff", "mkfifo");
    let (root, mine, served) = start_server("tree", &["--writable"]);
    write_tree(&mine.join("tree"));
    write_tree(&root.join("tree"));
    for (from, to, target) in [
        (path_text(&mine.join("tree")).to_owned(), server_url(&served, "up"), root.join("up")),
        (server_url(&served, "tree"), path_text(&mine.join("down")).to_owned(), mine.join("down")),
        (server_url(&served, "tree"), server_url(&served, "between"), root.join("between")),
    ] {
        let copied = godwit().args(["copy", &from, &to]).run();
        copied.assert_rejected(&[3], &["3 of 8 files were not copied", "link to a file that does not exist"]);
        for named in ["not copied: dangling: ", "not copied: fifo: ", "not copied: loop: ", "5 files copied"] {
            assert!(copied.stderr.contains(named), "{named}: {}", copied.stderr);
        }
        // The copy must not open a named pipe.
        fs::remove_file(mine.join("tree/fifo")).expect("it is there");
        assert_eq!(differences(&mine.join("tree"), &target), [""; 0]);
        run_checked(Command::new("mkfifo").arg(mine.join("tree/fifo")));
        let told = godwit().args(["copy", &from, &to, "--json"]).run();
        let events: Vec<&str> = told.stderr.lines().filter(|line| line.contains("\"not_copied\"")).collect();
        assert!(events.len() == 3 && events[0].contains("\"path\":\"dangling\""), "{}", told.stderr);
        let chosen = godwit().args(["copy", &from, &to, "--links", "skip", "--exclude", "fifo"]).run_ok();
        assert!(chosen.stderr.contains("2 links skipped"), "{}", chosen.stderr);
    }
    let kept =
        godwit().args(["copy", &server_url(&served, "tree"), path_text(&mine.join("kept")), "--links", "keep"]).run();
    kept.assert_rejected(&[3], &["2 of 8 files were not copied"]);
    assert_eq!(fs::read_link(mine.join("kept/loop")).expect("it is there"), Path::new("loop"));
    assert!(
        kept.stderr.contains("not copied: dangling: ") && kept.stderr.contains("--links follow"),
        "{}",
        kept.stderr
    );
}

#[test]
fn what_a_user_may_not_read_does_not_stop_what_the_user_may() {
    needs!("setpriv", "diff");
    let (root, mine, served) = start_server("tree-unreadable", &["--writable"]);
    let tree = mine.join("tree");
    fs::create_dir_all(tree.join("closed")).expect("it can be made");
    for name in ["open", "secret", "closed/f"] {
        fs::write(tree.join(name), name).expect("it can be written");
    }
    for name in ["secret", "closed"] {
        fs::set_permissions(tree.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o000))
            .expect("it can be changed");
    }
    // Root can read all files, so drop this capability for the test.
    let as_user = |words: &[&str]| {
        let given_up = ["--bounding-set=-all", "--inh-caps=-all", "--"];
        godwit_at(Path::new("setpriv")).args(given_up).arg(godwit_tests::binary::path()).arg("copy").args(words).run()
    };
    let there = server_url(&served, "up");
    let copied = as_user(&[path_text(&tree), &there]);
    copied.assert_rejected(&[4], &["2 of 3 files were not copied", "ermission denied"]);
    for named in ["not copied: closed: ", "not copied: secret: "] {
        assert!(copied.stderr.contains(named), "{named}: {}", copied.stderr);
    }
    assert_eq!(fs::read_to_string(root.join("up/open")).expect("it is there"), "open");
    // A mirror keeps files that may belong to an entry that could not be read.
    fs::create_dir_all(root.join("up/closed")).expect("it can be made");
    for name in ["up/closed/f", "up/secret", "up/surplus"] {
        fs::write(root.join(name), "from before").expect("it can be written");
    }
    as_user(&[path_text(&tree), &there, "--sync"]).assert_rejected(&[4], &["2 of 3 files"]);
    assert!(root.join("up/closed/f").exists() && root.join("up/secret").exists() && !root.join("up/surplus").exists());
}
