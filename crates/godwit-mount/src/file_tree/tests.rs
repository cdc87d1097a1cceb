//! Operations on a file tree over a local directory, compared with a model in memory.

use std::collections::BTreeMap;
use std::fs;

use godwit_tests::random::Random;

use super::extended_attributes::{DATASET_ATTRIBUTE, DIGEST_ATTRIBUTE};
use super::*;
use crate::inode_table::ROOT_INODE;
use crate::local_storage::LocalStorage;
use crate::slow_storage::SlowStorage;

struct Fixture {
    root: tempfile::TempDir,
    scratch: tempfile::TempDir,
    tree: FileTree,
}

fn fixture() -> Fixture {
    fixture_of(|root| Arc::new(LocalStorage::new(root))).0
}

/// Returns a tree of a storage of an empty directory, and the storage.
fn fixture_of<S: Storage>(storage_of: impl Fn(&Path) -> Arc<S>) -> (Fixture, Arc<S>) {
    let (root, scratch) = (tempfile::tempdir().expect("it can be made"), tempfile::tempdir().expect("it can be made"));
    let (storage, log) = (storage_of(root.path()), Arc::new(|message: &str| panic!("{message}")));
    let tree = FileTree::new(storage.clone(), scratch.path(), Path::new("runs"), log);
    (Fixture { root, scratch, tree }, storage)
}

impl Fixture {
    fn create(&self, name: &str) -> (u64, u64) {
        let (inode, _, opened) =
            self.tree.create(ROOT_INODE, name.as_ref(), 0o644, false, Access::Write).expect("it succeeds");
        (inode, opened.handle)
    }

    fn open(&self, name: &str) -> (u64, u64) {
        let (inode, _) = self.tree.look_up(ROOT_INODE, name.as_ref()).expect("it succeeds");
        (inode, self.tree.open(inode, Access::Read).expect("it succeeds").handle)
    }

    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.root.path().join(name)).ok()
    }
}

#[test]
fn a_file_is_stored_as_a_whole_when_it_is_closed() {
    let fixture = fixture();
    let (_, handle) = fixture.create("a");
    fixture.tree.write(handle, 0, b"first").unwrap();
    assert_eq!(fixture.stored("a"), None);
    assert_eq!(fixture.tree.look_up(ROOT_INODE, "a".as_ref()).unwrap().1.size_bytes, 5);
    fixture.tree.flush(handle).unwrap();
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"first"[..]));
    fixture.tree.write(handle, 5, b" second").unwrap();
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"first"[..]));
    fixture.tree.release(handle);
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"first second"[..]));
    let names: Vec<_> = fs::read_dir(fixture.root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn open_files_keep_their_content_when_they_are_removed_or_replaced() {
    let fixture = fixture();
    for name in ["a", "b"] {
        fs::write(fixture.root.path().join(name), name).unwrap();
    }
    let (_, removed) = fixture.open("a");
    fixture.tree.remove_file(ROOT_INODE, "a".as_ref()).unwrap();
    assert_eq!(fixture.tree.look_up(ROOT_INODE, "a".as_ref()).unwrap_err().errno, libc::ENOENT);
    let (_, replaced) = fixture.open("b");
    let (_, other) = fixture.create("c");
    fixture.tree.write(other, 0, b"c").unwrap();
    fixture.tree.rename((ROOT_INODE, "c".as_ref()), (ROOT_INODE, "b".as_ref()), true).unwrap();
    assert_eq!(fixture.tree.read(removed, 0, 9).unwrap(), &b"a"[..]);
    assert_eq!(fixture.tree.read(replaced, 0, 9).unwrap(), &b"b"[..]);
    fixture.tree.write(replaced, 1, b"!").unwrap();
    for handle in [removed, replaced, other] {
        fixture.tree.release(handle);
    }
    assert_eq!((fixture.stored("a"), fixture.stored("b").as_deref()), (None, Some(&b"c"[..])));
    assert_eq!(fixture.stored("c"), None);
}

#[test]
fn a_file_that_another_client_created_in_the_meantime_is_not_replaced_by_an_exclusive_one() {
    let fixture = fixture();
    let (_, _, opened) = fixture.tree.create(ROOT_INODE, "a".as_ref(), 0o644, true, Access::Write).unwrap();
    fs::write(fixture.root.path().join("a"), "other").unwrap();
    assert_eq!(fixture.tree.flush(opened.handle).unwrap_err().errno, libc::EEXIST);
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"other"[..]));
    let again = fixture.tree.create(ROOT_INODE, "a".as_ref(), 0o644, true, Access::Write);
    assert_eq!(again.map(|_| ()).unwrap_err().errno, libc::EEXIST);
}

/// Replaces a file as another client does.
fn replace_file(fixture: &Fixture, name: &str, content: &str) {
    fs::write(fixture.root.path().join("other-client"), content).unwrap();
    fs::rename(fixture.root.path().join("other-client"), fixture.root.path().join(name)).unwrap();
}

#[test]
fn a_handle_of_a_replaced_version_serves_no_bytes_for_the_pages_of_another_one() {
    let fixture = fixture();
    fs::write(fixture.root.path().join("a"), "first").unwrap();
    let (inode, old) = fixture.open("a");
    replace_file(&fixture, "a", "second");
    assert_eq!(fixture.tree.read(old, 0, 9).unwrap(), &b"first"[..]);
    let (_, new) = fixture.open("a");
    assert_eq!(fixture.tree.read(new, 0, 9).unwrap(), &b"second"[..]);
    assert_eq!(fixture.tree.read(old, 0, 9).unwrap_err().errno, libc::ESTALE);
    // This mount changes name and time of the file: its handles are valid as before.
    fixture.tree.rename((ROOT_INODE, "a".as_ref()), (ROOT_INODE, "b".as_ref()), true).unwrap();
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    fixture.tree.set_attributes(inode, None, None, None, Some(time)).unwrap();
    assert_eq!(fixture.tree.read(new, 0, 9).unwrap(), &b"second"[..]);
    assert_eq!(fixture.tree.read(old, 0, 9).unwrap_err().errno, libc::ESTALE);
}

#[test]
fn a_handle_of_a_replaced_version_neither_writes_nor_reads_staged_content_of_another_one() {
    let fixture = fixture();
    fs::write(fixture.root.path().join("a"), "first").unwrap();
    let (inode, old) = fixture.open("a");
    replace_file(&fixture, "a", "second");
    let set_size = |handle, size| fixture.tree.set_attributes(inode, Some(handle), Some(size), None, None);
    for size in [0, 3] {
        assert_eq!(set_size(old, size).unwrap_err().errno, libc::ESTALE);
    }
    assert_eq!(fixture.tree.write(old, 0, b"x").unwrap_err().errno, libc::ESTALE);
    let (_, new) = fixture.open("a");
    fixture.tree.write(new, 6, b"!").unwrap();
    assert_eq!(fixture.tree.read(old, 0, 9).unwrap_err().errno, libc::ESTALE);
    assert_eq!(fixture.tree.write(old, 0, b"x").unwrap_err().errno, libc::ESTALE);
    for size in [0, 3] {
        assert_eq!(set_size(old, size).unwrap_err().errno, libc::ESTALE);
    }
    assert_eq!(fixture.tree.read(new, 0, 9).unwrap(), &b"second!"[..]);
    assert_eq!(set_size(new, 7).unwrap().size_bytes, 7);
    fixture.tree.release(old);
    fixture.tree.release(new);
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"second!"[..]));
}

#[test]
fn a_handle_of_a_file_that_another_client_removed_does_not_use_a_new_file_of_its_name() {
    let fixture = fixture();
    fs::write(fixture.root.path().join("a"), "first").unwrap();
    let (old_inode, old) = fixture.open("a");
    fs::remove_file(fixture.root.path().join("a")).unwrap();
    let (inode, new) = fixture.create("a");
    assert_ne!(inode, old_inode);
    fixture.tree.write(new, 0, b"second").unwrap();
    assert_eq!(fixture.tree.write(old, 0, b"x").unwrap_err().errno, libc::ESTALE);
    assert_eq!(fixture.tree.read(old, 0, 9).unwrap(), &b"first"[..]);
    fixture.tree.release(old);
    fixture.tree.release(new);
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"second"[..]));
}

#[test]
fn changes_of_open_files_are_stored_when_the_mount_ends_and_modes_without_reading_are_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = fixture();
    let (_, _, opened) = fixture.tree.create(ROOT_INODE, "a".as_ref(), 0o200, false, Access::Write).unwrap();
    fixture.tree.write(opened.handle, 0, b"open").unwrap();
    let scratch = fs::read_dir(fixture.scratch.path()).unwrap().next().unwrap().unwrap();
    assert!(fixture.tree.has_unstored_changes());
    fixture.tree.store_changes();
    assert!(!fixture.tree.has_unstored_changes());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let found = [scratch.path(), fixture.root.path().join("a")].map(|path| mode(&path));
    assert_eq!(found, [0o600, 0o200]);
    fixture.tree.release(opened.handle);
}

#[test]
fn names_that_do_not_fit_and_unknown_handles_have_their_error_numbers() {
    let fixture = fixture();
    let longest = "n".repeat(255);
    let (_, handle) = fixture.create(&longest);
    fixture.tree.release(handle);
    assert!(fixture.stored(&longest).is_some());
    let errno = |outcome: Result<(u64, Attributes), StorageError>| outcome.unwrap_err().errno;
    assert_eq!(errno(fixture.tree.look_up(ROOT_INODE, "n".repeat(256).as_ref())), libc::ENAMETOOLONG);
    assert_eq!(fixture.tree.read(77, 0, 1).unwrap_err().errno, libc::EBADF);
    fixture.tree.create_directory(ROOT_INODE, "d".as_ref(), 0o755).unwrap();
    assert_eq!(errno(fixture.tree.create_directory(ROOT_INODE, "d".as_ref(), 0o755)), libc::EEXIST);
    fs::write(fixture.root.path().join("d/f"), "f").unwrap();
    assert_eq!(fixture.tree.remove_directory(ROOT_INODE, "d".as_ref()).unwrap_err().errno, libc::ENOTEMPTY);
}

#[test]
fn extended_attributes_are_the_digest_and_the_dataset() {
    let fixture = fixture();
    fs::write(fixture.root.path().join("a.bam"), "abc").unwrap();
    let (inode, _) = fixture.tree.look_up(ROOT_INODE, "a.bam".as_ref()).unwrap();
    let value = |name: &str| fixture.tree.attribute_value(inode, name.as_ref()).unwrap();
    let digest = blake3::hash(b"abc").to_hex().to_string();
    assert_eq!(value(DIGEST_ATTRIBUTE), Some(digest.into_bytes()));
    assert_eq!(value(DATASET_ATTRIBUTE), Some(b"runs/a.bam".to_vec()));
    assert_eq!(value("user.other"), None);
}

#[test]
fn other_files_are_opened_and_renamed_while_a_renamed_file_is_uploaded() {
    let (fixture, storage) = fixture_of(|root| Arc::new(SlowStorage::new(root)));
    fs::write(fixture.root.path().join("stored"), "stored").unwrap();
    let (_, written) = fixture.create("written");
    fixture.tree.write(written, 0, b"written").unwrap();
    let uploads = storage.hold_uploads();
    let (tree, name) = (&fixture.tree, |name: &'static str| (ROOT_INODE, name.as_ref()));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| tree.rename(name("written"), name("written-2"), true));
        storage.wait_for_uploads(1);
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || {
            tree.rename(name("stored"), name("stored-2"), true).unwrap();
            let (inode, _) = tree.look_up(ROOT_INODE, "stored-2".as_ref()).unwrap();
            let opened = tree.open(inode, Access::Read).unwrap();
            sender.send(tree.read(opened.handle, 0, 9).unwrap()).unwrap();
            tree.release(opened.handle);
        });
        let read = receiver.recv_timeout(Duration::from_secs(20));
        let is_renamed = slow.is_finished();
        drop(uploads);
        slow.join().unwrap().unwrap();
        assert_eq!((read.as_deref(), is_renamed), (Ok(&b"stored"[..]), false));
    });
    fixture.tree.release(written);
    assert_eq!(fixture.stored("written-2").as_deref(), Some(&b"written"[..]));
    assert_eq!(fixture.stored("written"), None);
}

#[test]
fn a_file_that_is_uploaded_while_its_directory_is_renamed_arrives_under_the_new_name() {
    let (fixture, storage) = fixture_of(|root| Arc::new(SlowStorage::new(root)));
    let (tree, name) = (&fixture.tree, |name: &'static str| (ROOT_INODE, name.as_ref()));
    let (directory, _) = tree.create_directory(ROOT_INODE, "d".as_ref(), 0o755).unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        let (_, _, opened) = tree.create(directory, name.as_ref(), 0o644, false, Access::Write).unwrap();
        tree.write(opened.handle, 0, name.as_bytes()).unwrap();
        opened.handle
    });
    let uploads = storage.hold_uploads();
    std::thread::scope(|scope| {
        let uploaded = scope.spawn(|| tree.flush(first));
        storage.wait_for_uploads(1);
        let renamed = scope.spawn(|| tree.rename(name("d"), name("e"), true));
        godwit_tests::wait::wait_until("the rename waits", || tree.uploads.rename_count() == 1);
        let late = scope.spawn(|| tree.flush(second));
        drop(uploads);
        for outcome in [uploaded, renamed, late] {
            outcome.join().unwrap().unwrap();
        }
    });
    for handle in [first, second] {
        tree.release(handle);
    }
    assert_eq!(fixture.stored("e/first").as_deref(), Some(&b"first"[..]));
    assert_eq!(fixture.stored("e/second").as_deref(), Some(&b"second"[..]));
    assert!(!fixture.root.path().join("d").exists());
}

#[test]
fn a_file_is_renamed_into_a_directory_that_is_renamed_while_the_file_is_uploaded() {
    let (fixture, storage) = fixture_of(|root| Arc::new(SlowStorage::new(root)));
    let tree = &fixture.tree;
    let (directory, _) = tree.create_directory(ROOT_INODE, "d".as_ref(), 0o755).unwrap();
    let (_, written) = fixture.create("written");
    tree.write(written, 0, b"written").unwrap();
    let uploads = storage.hold_uploads();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| tree.rename((ROOT_INODE, "written".as_ref()), (directory, "moved".as_ref()), true));
        storage.wait_for_uploads(1);
        let renamed = tree.rename((ROOT_INODE, "d".as_ref()), (ROOT_INODE, "e".as_ref()), true);
        drop(uploads);
        slow.join().unwrap().unwrap();
        renamed.unwrap();
    });
    tree.release(written);
    assert_eq!(fixture.stored("e/moved").as_deref(), Some(&b"written"[..]));
    assert_eq!(fixture.stored("written"), None);
}

#[test]
fn a_directory_is_not_replaced_while_a_file_in_it_is_not_stored() {
    let fixture = fixture();
    let tree = &fixture.tree;
    tree.create_directory(ROOT_INODE, "d".as_ref(), 0o755).unwrap();
    let (target, _) = tree.create_directory(ROOT_INODE, "e".as_ref(), 0o755).unwrap();
    let (_, _, opened) = tree.create(target, "f".as_ref(), 0o644, false, Access::Write).unwrap();
    let renamed = tree.rename((ROOT_INODE, "d".as_ref()), (ROOT_INODE, "e".as_ref()), true);
    assert_eq!(renamed.unwrap_err().errno, libc::ENOTEMPTY);
    tree.release(opened.handle);
    assert_eq!(fixture.stored("e/f").as_deref(), Some(&b""[..]));
}

#[test]
fn a_file_that_is_written_at_the_new_name_while_a_rename_uploads_is_replaced() {
    let (fixture, storage) = fixture_of(|root| Arc::new(SlowStorage::new(root)));
    fs::write(fixture.root.path().join("target"), "target").unwrap();
    let (_, written) = fixture.create("written");
    fixture.tree.write(written, 0, b"written").unwrap();
    let uploads = storage.hold_uploads();
    let tree = &fixture.tree;
    let late = std::thread::scope(|scope| {
        let renamed = scope.spawn(|| {
            tree.rename((ROOT_INODE, "written".as_ref()), (ROOT_INODE, "target".as_ref()), true).unwrap();
        });
        storage.wait_for_uploads(1);
        let (_, late) = fixture.open("target");
        tree.write(late, 6, b"!").unwrap();
        drop(uploads);
        renamed.join().unwrap();
        late
    });
    assert_eq!(tree.read(late, 0, 9).unwrap(), &b"target!"[..]);
    tree.release(late);
    tree.release(written);
    assert_eq!(fixture.stored("target").as_deref(), Some(&b"written"[..]));
}

#[test]
fn a_handle_that_is_released_late_does_not_store_a_part_of_the_content_of_another_one() {
    let fixture = fixture();
    let (inode, first) = fixture.create("a");
    fixture.tree.write(first, 0, b"first").unwrap();
    fixture.tree.flush(first).unwrap();
    let second = fixture.tree.open(inode, Access::Truncate).unwrap().handle;
    fixture.tree.write(second, 0, b"third ").unwrap();
    fixture.tree.release(first);
    let (_, reader) = fixture.open("a");
    fixture.tree.close(reader).unwrap();
    fixture.tree.release(reader);
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"first"[..]));
    fixture.tree.write(second, 6, b"content").unwrap();
    // A memory map is written after the file was closed.
    fixture.tree.flush(second).unwrap();
    fixture.tree.write(second, 0, b"T").unwrap();
    let (_, third) = fixture.open("a");
    fixture.tree.release(second);
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"Third content"[..]));
    fixture.tree.release(third);
}

/// Returns the size of a listed entry; `None` if it was removed.
fn listed_size(fixture: &Fixture, directory: u64, name: &str) -> Option<u64> {
    let directory = fixture.tree.directory_with_attributes(directory).unwrap();
    let entry = directory.entries().iter().find(|entry| entry.name == *name).unwrap();
    let found = fixture.tree.look_up_listed(&directory, entry).unwrap();
    found.map(|(_, attributes, lifetime)| {
        assert!(lifetime <= ATTRIBUTE_LIFETIME);
        attributes.size_bytes
    })
}

#[test]
fn a_listing_gives_no_attributes_that_are_older_than_those_that_the_kernel_has() {
    let fixture = fixture();
    let stored = |name: &str| fixture.root.path().join(name);
    for name in ["other", "seen", "appended", "resized", "removed", "moved"] {
        fs::write(stored(name), "1").unwrap();
    }
    let directory = fixture.tree.open_directory(ROOT_INODE).unwrap();
    // Another client changes two files, and the kernel receives the attributes of one of them.
    for name in ["other", "seen"] {
        fs::write(stored(name), "12").unwrap();
    }
    fixture.tree.look_up(ROOT_INODE, "seen".as_ref()).unwrap();
    assert_eq!(listed_size(&fixture, directory, "other"), Some(1));
    let (inode, handle) = fixture.open("appended");
    fixture.tree.write(handle, 1, b"2").unwrap();
    assert_eq!(listed_size(&fixture, directory, "appended"), Some(2));
    fixture.tree.flush(handle).unwrap();
    fixture.tree.release(handle);
    fixture.tree.forget(inode, 2);
    let (resized, _) = fixture.tree.look_up(ROOT_INODE, "resized".as_ref()).unwrap();
    fixture.tree.set_attributes(resized, None, Some(2), None, None).unwrap();
    fixture.tree.remove_file(ROOT_INODE, "removed".as_ref()).unwrap();
    fixture.tree.rename((ROOT_INODE, "moved".as_ref()), (ROOT_INODE, "moved-2".as_ref()), true).unwrap();
    let sizes = ["seen", "appended", "resized", "removed", "moved"].map(|name| listed_size(&fixture, directory, name));
    assert_eq!(sizes, [Some(2), Some(2), Some(2), None, None]);
    // A listing that is too old is made again; its entries and their order stay.
    let names = |directory| {
        fixture.tree.directory(directory).unwrap().entries().iter().map(|entry| entry.name.clone()).collect::<Vec<_>>()
    };
    let before = names(directory);
    std::thread::sleep(ATTRIBUTE_LIFETIME);
    let sizes = ["other", "seen", "removed"].map(|name| listed_size(&fixture, directory, name));
    assert_eq!(sizes, [Some(2), Some(2), None]);
    assert_eq!(names(directory), before);
    fixture.tree.release_directory(directory);
    assert_eq!(fixture.tree.directory(directory).map(drop).unwrap_err().errno, libc::EBADF);
}

/// The contents of files as POSIX describes them: names and open handles refer to contents.
#[derive(Default)]
struct Model {
    contents: Vec<Vec<u8>>,
    names: BTreeMap<String, usize>,
    handles: Vec<(u64, usize)>,
}

/// Runs random operations on a tree and on the model; all reads must return the same bytes.
fn compare_with_model(seed: u64, operations: usize) {
    let fixture = fixture();
    let (mut numbers, mut model) = (Random::new(seed), Model::default());
    for step in 0..operations {
        let name = format!("f{}", numbers.below(4));
        let case = format!("seed {seed}, step {step}");
        let open = match model.handles.len() {
            0 => None,
            count => Some(numbers.below(count)),
        };
        match (numbers.below(10), open, model.names.get(&name).copied()) {
            (0 | 1, _, None) => {
                let (_, handle) = fixture.create(&name);
                model.contents.push(Vec::new());
                model.names.insert(name, model.contents.len() - 1);
                model.handles.push((handle, model.contents.len() - 1));
            }
            (0 | 1, _, Some(content)) => model.handles.push((fixture.open(&name).1, content)),
            (2 | 3, Some(open), _) => {
                let (handle, content) = model.handles[open];
                let (offset, byte) = (numbers.below(5000), numbers.below(256) as u8);
                let data = vec![byte; numbers.below(3000) + 1];
                fixture.tree.write(handle, offset as u64, &data).expect(&case);
                let content = &mut model.contents[content];
                content.resize(content.len().max(offset + data.len()), 0);
                content[offset..offset + data.len()].copy_from_slice(&data);
            }
            (4, _, Some(content)) => {
                let size = numbers.below(6000);
                let (inode, _) = fixture.tree.look_up(ROOT_INODE, name.as_ref()).expect(&case);
                fixture.tree.set_attributes(inode, None, Some(size as u64), None, None).expect(&case);
                model.contents[content].resize(size, 0);
            }
            (5, _, Some(content)) => {
                let target = format!("f{}", numbers.below(4));
                let names = ((ROOT_INODE, name.as_ref()), (ROOT_INODE, target.as_ref()));
                fixture.tree.rename(names.0, names.1, true).expect(&case);
                model.names.remove(&name);
                model.names.insert(target, content);
            }
            (6, _, Some(_)) => {
                fixture.tree.remove_file(ROOT_INODE, name.as_ref()).expect(&case);
                model.names.remove(&name);
            }
            (7, Some(open), _) => fixture.tree.flush(model.handles[open].0).expect(&case),
            (8, Some(open), _) => fixture.tree.release(model.handles.swap_remove(open).0),
            (_, Some(open), _) => {
                let (handle, content) = model.handles[open];
                let (offset, size) = (numbers.below(7000), numbers.below(4000));
                let content = &model.contents[content];
                let expected = &content[offset.min(content.len())..(offset + size).min(content.len())];
                assert!(fixture.tree.read(handle, offset as u64, size).expect(&case) == expected, "{case}");
            }
            _ => {}
        }
    }
    for (handle, _) in model.handles {
        fixture.tree.release(handle);
    }
    for number in 0..4 {
        let name = format!("f{number}");
        let expected = model.names.get(&name).map(|content| model.contents[*content].clone());
        assert!(fixture.stored(&name) == expected, "seed {seed}: {name}");
    }
}

#[test]
fn random_operations_have_the_results_of_a_model() {
    for seed in 1..=10 {
        compare_with_model(seed, 400);
    }
}

#[test]
#[ignore = "minutes of random operations; run it by name"]
fn a_million_random_operations_have_the_results_of_a_model() {
    for seed in 1..=2500 {
        compare_with_model(seed, 400);
    }
}
