//! Copies with `--sync`: which entries at the destination are removed. Also changed modes and hidden sources.

use super::*;

/// Writes files with a short content, and creates their directories.
fn write_files(directory: &Path, names: &[&str]) {
    for name in names {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

/// Returns the paths of all files below a directory, sorted.
fn file_names(directory: &Path) -> Vec<String> {
    let contents = directory_contents(directory).into_iter();
    let files = contents.filter(|(path, ..)| directory.join(path).is_file());
    files.map(|(path, ..)| path.to_str().unwrap().to_owned()).collect()
}

fn sync() -> CopyOptions {
    CopyOptions { sync: true, ..options() }
}

#[test]
fn synchronizing_a_directory_below_the_destination_removes_nothing_beside_it() {
    run(async {
        let (_keep, there, mine) = directories();
        write_files(&mine, &["run8/a"]);
        write_files(&there, &["runs/run7/a", "runs/run8/old", "runs/notes"]);
        let served = DataServer::start(&there).await;
        let summary = run_copy(&local_location(&mine.join("run8")), &served.location("runs/"), &sync()).await.unwrap();
        assert_eq!((summary.files, summary.removed_files), (1, 1));
        assert_eq!(file_names(&there.join("runs")), ["notes", "run7/a", "run8/a"]);
        // A file into a directory.
        let (file, watch) = (local_location(&mine.join("run8/a")), RecordingObserver::default());
        run_observed_copy(&file, &served.location("runs/"), &sync(), &watch).await.unwrap();
        let warns = |event: &CopyEvent| matches!(event, CopyEvent::Warning { message } if message.contains("--sync"));
        assert!(watch.events.lock().iter().any(warns));
        assert_eq!(file_names(&there.join("runs")), ["a", "notes", "run7/a", "run8/a"]);
        // The reverse direction, and between two servers.
        write_files(&mine, &["results/notes", "results/run8/old"]);
        let results = local_location(&mine.join("results/"));
        run_copy(&served.location("runs/run8"), &results, &sync()).await.unwrap();
        assert_eq!(file_names(&mine.join("results")), ["notes", "run8/a"]);
        write_files(&there, &["third/notes", "third/run8/old"]);
        run_copy(&served.location("runs/run8"), &served.location("third/"), &sync()).await.unwrap();
        assert_eq!(file_names(&there.join("third")), ["notes", "run8/a"]);
    });
}

#[test]
fn synchronizing_keeps_files_that_the_filters_exclude_and_hidden_files() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            write_files(from, &["d/a.bam", "d/tmp/x"]);
            write_files(to, &["d/.hidden", "d/old.bam", "d/notes.txt", "d/tmp/cache", "d/e/old.bam", "d/e/notes.txt"]);
            let served = DataServer::start(&there).await;
            let (source, target) = ends_of_copy(downloads, &served, &mine);
            let exclude = CopyOptions { exclude: vec!["tmp".into(), "*.txt".into()], ..sync() };
            let summary = run_copy(&source, &target, &exclude).await.unwrap();
            assert_eq!((summary.files, summary.removed_files), (1, 2));
            assert_eq!(file_names(&to.join("d")), [".hidden", "a.bam", "e/notes.txt", "notes.txt", "tmp/cache"]);
            write_files(to, &["d/old.bam"]);
            let include = CopyOptions { include: vec!["*.bam".into()], ..sync() };
            assert_eq!(run_copy(&source, &target, &include).await.unwrap().removed_files, 1);
            assert_eq!(file_names(&to.join("d")), [".hidden", "a.bam", "e/notes.txt", "notes.txt", "tmp/cache"]);
        });
    }
}

#[test]
fn a_file_that_differs_from_its_listed_checksum_is_not_removed_at_the_destination() {
    run(async {
        let (_keep, there, mine) = directories();
        write_files(&mine, &["d/a", "d/b"]);
        write_files(&there, &["d/a", "d/old"]);
        let list = mine.join("sums.md5");
        fs::write(&list, format!("{}  a\n", "0".repeat(32))).unwrap();
        let served = DataServer::start(&there).await;
        let checked = CopyOptions { checksum_lists: vec![list], ..sync() };
        let outcome = run_copy(&local_location(&mine.join("d")), &served.location("d"), &checked).await;
        assert!(matches!(outcome, Err(TransferError::PartialFailure { failed_files: 1, .. })), "{outcome:?}");
        assert_eq!(file_names(&there.join("d")), ["a", "b"]);
    });
}

#[test]
fn names_that_only_end_like_those_of_partial_files_are_copied() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            let names = ["x.godwit-journal", "x.godwit-journal-new", "x.godwit-part"];
            write_files(&from.join("d"), &names);
            let served = DataServer::start(&there).await;
            let (source, target) = ends_of_copy(downloads, &served, &mine);
            assert_eq!(run_copy(&source, &target, &sync()).await.unwrap().files, 3);
            assert_eq!(file_names(&to.join("d")), names);
        });
    }
}

#[test]
fn a_changed_mode_is_copied_though_the_file_is_up_to_date() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            write_files(from, &["d/f"]);
            fs::write(from.join("d/long"), random_bytes(1, MIB)).unwrap();
            let served = DataServer::start(&there).await;
            let (source, target) = ends_of_copy(downloads, &served, &mine);
            run_copy(&source, &target, &options()).await.unwrap();
            for (name, mode) in [("f", 0o751), ("long", 0o440)] {
                fs::set_permissions(from.join("d").join(name), fs::Permissions::from_mode(mode)).unwrap();
            }
            let again = run_copy(&source, &target, &options()).await.unwrap();
            assert_eq!((again.files, again.up_to_date_files), (0, 2));
            assert_eq!(directory_contents(&from.join("d")), directory_contents(&to.join("d")));
        });
    }
}

#[test]
fn a_hidden_source_is_rejected_unless_the_destination_names_its_copy() {
    run(async {
        let (_keep, there, mine) = directories();
        write_files(&mine, &[".hl", ".d/f", "plain"]);
        let served = DataServer::start(&there).await;
        for name in [".hl", ".d"] {
            let outcome = run_copy(&local_location(&mine.join(name)), &served.location(""), &options()).await;
            let is_named = |error: &TransferError| error.to_string().contains("begin with a dot");
            assert!(outcome.as_ref().is_err_and(is_named), "{outcome:?}");
        }
        run_copy(&local_location(&mine.join(".hl")), &served.location("hl"), &options()).await.unwrap();
        run_copy(&local_location(&mine.join(".d")), &served.location("d"), &options()).await.unwrap();
        assert_eq!(file_names(&there), ["d/f", "hl"]);
    });
}
