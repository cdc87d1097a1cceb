//! Locked directories, in a process of their own: the unit tests remove all temporary paths of their process.

use std::fs;

use godwit_process::LockedDirectory;

#[test]
fn the_directory_of_a_killed_process_is_removed_and_that_of_a_running_one_stays() {
    let parent = tempfile::tempdir().unwrap();
    let running = LockedDirectory::create(parent.path(), "scratch-").unwrap();
    for name in ["scratch-killed", "other-killed"] {
        fs::create_dir(parent.path().join(name)).unwrap();
        fs::write(parent.path().join(name).join("file"), "x").unwrap();
    }
    fs::write(parent.path().join("scratch-file"), "x").unwrap();
    let next = LockedDirectory::create(parent.path(), "scratch-").unwrap();
    assert!(running.path().is_dir() && next.path().is_dir() && running.path() != next.path());
    let exists = |name: &str| parent.path().join(name).exists();
    assert!(!exists("scratch-killed") && exists("other-killed/file") && exists("scratch-file"));
    let path = running.path().to_owned();
    drop(running);
    assert!(!path.exists() && next.path().is_dir());
}
