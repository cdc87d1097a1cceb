use super::*;

/// Returns entries with these paths; those that end with `/` are directories.
fn entries(paths: &[&str]) -> Vec<Entry> {
    let entry = |path: &&str| Entry {
        path: path.trim_end_matches('/').to_owned(),
        is_directory: path.is_empty() || path.ends_with('/'),
        size_bytes: 1,
        mode: 0o644,
        modified_s: 0,
        modified_ns: 0,
        version: 0,
        link_target: None,
    };
    paths.iter().map(entry).collect()
}

/// Returns the plan of a copy with these filters, before its sources are listed.
fn plan(include: &[&str], exclude: &[&str]) -> CopyPlan {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    CopyPlan { selection: Selection::new(&texts(include), &texts(exclude)).unwrap(), ..CopyPlan::default() }
}

#[test]
fn only_entries_of_copied_directories_are_extraneous() {
    let mut copy = plan(&[], &[]);
    copy.add_listing(Listing { entries: entries(&["", "a"]), ..Listing::default() }, "run8", "run8");
    copy.add_listing(Listing { entries: entries(&["", "b"]), ..Listing::default() }, "run9", "run9");
    let found = ["", "other/", "other/f", "run8/", "run8/a", "run8/old/", "run8/old/f", "run80", "run9/", "run9/a"];
    assert_eq!(copy.extraneous_paths(&entries(&found)), ["run9/a", "run8/old/f", "run8/old"]);

    // The source directory gets the path of the destination.
    let mut copy = plan(&[], &[]);
    copy.add_listing(Listing { entries: entries(&["", "a"]), ..Listing::default() }, "", "run8");
    assert_eq!(copy.extraneous_paths(&entries(&["", "a", "b"])), ["b"]);

    let mut copy = plan(&[], &[]);
    let mut file = entries(&["f"]);
    file[0].path = String::new();
    copy.add_listing(Listing { entries: file, ..Listing::default() }, "f", "f");
    assert!(!copy.has_source_directory() && copy.extraneous_paths(&entries(&["", "a", "f"])).is_empty());
}

#[test]
fn entries_that_a_copy_does_not_compare_are_not_extraneous_and_neither_are_their_directories() {
    let found = ["", ".hidden", "a.bam", "a.log", "d/", "d/.hidden", "e/", "e/b.bam", "e/b.log", "e/c/", "e/c/b.bam"];
    let found = [&found[..], &["link/", "link/f.bam", "tmp/", "tmp/x.bam"]].concat();
    let extraneous = |include: &[&str], exclude: &[&str]| {
        let mut copy = plan(include, exclude);
        let skipped_links = vec!["link".to_owned()];
        copy.add_listing(Listing { entries: entries(&[""]), skipped_links, ..Listing::default() }, "", "run8");
        copy.extraneous_paths(&entries(&found))
    };
    assert_eq!(extraneous(&["*.bam"], &["tmp"]), ["e/c/b.bam", "e/c", "e/b.bam", "a.bam"]);
    assert_eq!(extraneous(&[], &["tmp", "*.log"]), ["e/c/b.bam", "e/c", "e/b.bam", "a.bam"]);
    assert_eq!(
        extraneous(&[], &[]),
        ["tmp/x.bam", "tmp", "e/c/b.bam", "e/c", "e/b.log", "e/b.bam", "e", "a.log", "a.bam"]
    );
}
