use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicUsize;

use super::*;

static TOLD: AtomicUsize = AtomicUsize::new(0);

fn count(text: &str) {
    assert!(text.contains("cannot be written"), "{text}");
    TOLD.fetch_add(1, Ordering::Relaxed);
}

fn quiet(text: &str) {
    panic!("{text}");
}

fn origin(path: &str) -> Origin {
    Origin::of("grpc+tls://h:1", path, &FileState::Version(7))
}

/// A block of one byte again and again, of a file of several.
fn block(number: u64, byte: u8) -> (Vec<u8>, BlockHash) {
    let data = vec![byte; 5000];
    let hash = hash_block(&data, number, u64::MAX);
    (data, hash)
}

fn keep(cache: &RelayCache, path: &str, number: u64, byte: u8) -> bool {
    let (data, hash) = block(number, byte);
    cache.keep(&origin(path), number, &data, &hash)
}

fn read(cache: &RelayCache, path: &str, number: u64) -> Option<Vec<u8>> {
    cache.read(number, &cache.hash_of(&origin(path), number)?)
}

fn all_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(directory) {
        found.push(entry.unwrap().into_path());
    }
    found
}

#[test]
fn what_is_kept_is_there_after_a_restart_and_nobody_else_may_see_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let cache = RelayCache::open(&path, RELAY_CACHE_LEAST_BYTES, quiet).unwrap();
    for number in 1..4 {
        assert!(keep(&cache, "f", number, number as u8));
    }
    assert!(matches!(
        RelayCache::open(&path, RELAY_CACHE_LEAST_BYTES, quiet),
        Err(TransferError::Refused { problem }) if problem.contains("another server")
    ));
    fs::write(path.join("new/77"), "half of a block").unwrap();
    let bytes = cache.bytes();
    drop(cache);
    let cache = RelayCache::open(&path, RELAY_CACHE_LEAST_BYTES, quiet).unwrap();
    assert_eq!(cache.bytes(), bytes);
    for number in 1..4 {
        assert_eq!(read(&cache, "f", number), Some(block(number, number as u8).0));
    }
    assert!(read(&cache, "f", 4).is_none() && read(&cache, "g", 1).is_none());
    // Another state of the file, or the same at another server, is another file.
    let others = [
        Origin::of("grpc+tls://h:1", "f", &FileState::Version(8)),
        Origin::of("grpc+tls://h:2", "f", &FileState::Version(7)),
    ];
    assert!(others.iter().all(|other| cache.hash_of(other, 1).is_none()));
    for path in all_below(&path) {
        let metadata = fs::metadata(&path).unwrap();
        let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{}", path.display());
    }
    assert!(fs::read_dir(path.join("new")).unwrap().next().is_none());
    let little = RelayCache::open(&directory.path().join("little"), 1 << 20, quiet);
    assert!(matches!(little, Err(TransferError::Refused { problem }) if problem.contains("256M")));
}

#[test]
fn what_was_damaged_on_disk_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let cache = RelayCache::open(directory.path(), RELAY_CACHE_LEAST_BYTES, quiet).unwrap();
    let damages: [fn(&mut Vec<u8>); 4] =
        [|bytes| bytes[4000] ^= 1, |bytes| bytes.truncate(4999), |bytes| bytes.push(0), |bytes| bytes.clear()];
    for (number, damage) in (1..).zip(damages) {
        assert!(keep(&cache, "f", number, 9));
        let path = cache.path_of(Name::Block(block(number, 9).1));
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        assert!(read(&cache, "f", number).is_none() && !path.exists(), "{number}");
        assert!(!cache.has(&block(number, 9).1));
        // It is fetched and kept again.
        assert!(keep(&cache, "f", number, 9) && read(&cache, "f", number).is_some());
    }
    let path = cache.path_of(Name::Origin(origin("f").0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[2 * RECORD_BYTES + 3] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(read(&cache, "f", 2).is_none() && read(&cache, "f", 1).is_some());
    fs::remove_file(cache.path_of(Name::Block(block(1, 9).1))).unwrap();
    assert!(read(&cache, "f", 1).is_none());
}

#[test]
fn blocks_of_one_content_are_kept_once_and_those_that_nobody_wants_go() {
    let directory = tempfile::tempdir().unwrap();
    let cache = opened(directory.path());
    *lock(&cache.recency) = Recency::new(10 * 8192, FILES);
    assert!(keep(&cache, "f", 1, 1) && keep(&cache, "g", 1, 1));
    let blocks = || all_below(&directory.path().join("blocks")).iter().filter(|path| path.is_file()).count();
    assert_eq!(blocks(), 1);
    for number in 2..30 {
        assert!(keep(&cache, "f", number, 1));
        assert!(read(&cache, "f", 2).is_some(), "it is wanted all the time");
    }
    assert!(cache.bytes() <= 10 * 8192 && read(&cache, "f", 3).is_none() && read(&cache, "f", 29).is_some());
    let files = all_below(directory.path());
    let weights = files.iter().map(|path| fs::metadata(path).unwrap()).filter(fs::Metadata::is_file);
    assert!(weights.map(|metadata| weight_of(&metadata)).sum::<u64>() <= 10 * 8192);
    drop(cache);
    // A later process keeps what was used last.
    let cache = opened(directory.path());
    assert!(read(&cache, "f", 2).is_some() && read(&cache, "f", 29).is_some());
}

fn opened(directory: &Path) -> RelayCache {
    RelayCache::open(directory, RELAY_CACHE_LEAST_BYTES, quiet).unwrap()
}

#[test]
fn a_cache_that_cannot_write_says_so_and_is_done_without() {
    let directory = tempfile::tempdir().unwrap();
    let cache = RelayCache { tell: count, ..opened(directory.path()) };
    assert!(keep(&cache, "f", 1, 1));
    let before = cache.bytes();
    fs::remove_dir(directory.path().join("new")).unwrap();
    fs::write(directory.path().join("new"), "no directory").unwrap();
    for number in 2..5 {
        assert!(!keep(&cache, "f", number, 1));
    }
    assert_eq!(TOLD.load(Ordering::Relaxed), 1, "it is told once in a while");
    assert_eq!(cache.bytes(), before);
    assert!(read(&cache, "f", 1).is_some() && read(&cache, "f", 2).is_none());
}

#[test]
fn a_block_is_known_whatever_the_size_of_its_file() {
    let full = vec![3; BLOCK_BYTES as usize];
    for (data, number, size) in [
        (&full[..], 0, BLOCK_BYTES),
        (&full[..], 0, 3 * BLOCK_BYTES),
        (&full[..], 2, 3 * BLOCK_BYTES),
        (&full[..77], 1, BLOCK_BYTES + 77),
        (&full[..77], 0, 77),
        (&[], 0, 0),
    ] {
        let hash = hash_block(data, number, size);
        assert!(is_block(data, number, &hash), "{number} of {size}");
        assert!(!is_block(data, number + 1, &hash), "{number} of {size}");
        assert!(!is_block(&vec![3; BLOCK_BYTES as usize + 1], number, &hash));
        if let Some((_, rest)) = data.split_first() {
            assert!(!is_block(rest, number, &hash));
        }
    }
}
