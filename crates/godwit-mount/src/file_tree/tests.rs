//! Operations on a file tree over a local directory, compared with a model in memory.

use std::collections::BTreeMap;
use std::fs;

use godwit_tests::random::Random;

use super::extended_attributes::{DATASET_ATTRIBUTE, DIGEST_ATTRIBUTE};
use super::*;
use crate::inode_table::ROOT_INODE;
use crate::local_storage::LocalStorage;

struct Fixture {
    root: tempfile::TempDir,
    scratch: tempfile::TempDir,
    tree: FileTree,
}

fn fixture() -> Fixture {
    let (root, scratch) = (tempfile::tempdir().expect("it can be made"), tempfile::tempdir().expect("it can be made"));
    let storage = Arc::new(LocalStorage::new(root.path()));
    let tree = FileTree::new(storage, scratch.path(), Path::new("runs"), Arc::new(|message: &str| panic!("{message}")));
    Fixture { root, scratch, tree }
}

impl Fixture {
    fn create(&self, name: &str) -> (u64, u64) {
        let (inode, _, opened) = self.tree.create(ROOT_INODE, name.as_ref(), 0o644, false, false).expect("it succeeds");
        (inode, opened.handle)
    }

    fn open(&self, name: &str) -> (u64, u64) {
        let (inode, _) = self.tree.look_up(ROOT_INODE, name.as_ref()).expect("it succeeds");
        (inode, self.tree.open(inode, false).expect("it succeeds").handle)
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
    let (_, _, opened) = fixture.tree.create(ROOT_INODE, "a".as_ref(), 0o644, true, false).unwrap();
    fs::write(fixture.root.path().join("a"), "other").unwrap();
    assert_eq!(fixture.tree.flush(opened.handle).unwrap_err().errno, libc::EEXIST);
    assert_eq!(fixture.stored("a").as_deref(), Some(&b"other"[..]));
    let again = fixture.tree.create(ROOT_INODE, "a".as_ref(), 0o644, true, false);
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
    fixture.tree.set_attributes(inode, false, None, None, Some(time)).unwrap();
    assert_eq!(fixture.tree.read(new, 0, 9).unwrap(), &b"second"[..]);
    assert_eq!(fixture.tree.read(old, 0, 9).unwrap_err().errno, libc::ESTALE);
}

#[test]
fn a_handle_of_a_replaced_version_neither_writes_nor_reads_staged_content_of_another_one() {
    let fixture = fixture();
    fs::write(fixture.root.path().join("a"), "first").unwrap();
    let (_, old) = fixture.open("a");
    replace_file(&fixture, "a", "second");
    assert_eq!(fixture.tree.write(old, 0, b"x").unwrap_err().errno, libc::ESTALE);
    let (_, new) = fixture.open("a");
    fixture.tree.write(new, 6, b"!").unwrap();
    assert_eq!(fixture.tree.read(old, 0, 9).unwrap_err().errno, libc::ESTALE);
    assert_eq!(fixture.tree.write(old, 0, b"x").unwrap_err().errno, libc::ESTALE);
    assert_eq!(fixture.tree.read(new, 0, 9).unwrap(), &b"second!"[..]);
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
    let (_, _, opened) = fixture.tree.create(ROOT_INODE, "a".as_ref(), 0o200, false, false).unwrap();
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
                fixture.tree.set_attributes(inode, false, Some(size as u64), None, None).expect(&case);
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
