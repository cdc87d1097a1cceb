//! Files that are not complete when a signal stops the process. Apart from other tests, because it removes the temporary
//! files of the whole process.

use godwit_files::AtomicFile;

#[test]
fn a_signal_removes_the_files_that_are_not_complete() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let locked = AtomicFile::create(&path("a")).unwrap();
    let unique = AtomicFile::create_unique(&path("b"), 0o600).unwrap();
    let resumable = AtomicFile::open_resumable(&path("c")).unwrap();
    let both = [locked.temporary_path().to_owned(), unique.temporary_path().to_owned()];
    assert!(both.iter().all(|path| path.exists()));
    godwit_process::remove_temporary_paths();
    assert!(both.iter().all(|path| !path.exists()) && resumable.temporary_path().exists());
    assert!(locked.commit().is_err() && unique.commit().is_err());
    resumable.discard();
}
