use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicUsize;

use super::*;

static WARNING_COUNT: AtomicUsize = AtomicUsize::new(0);

fn count_warning(text: &str) {
    assert!(text.contains("cannot write to"), "{text}");
    WARNING_COUNT.fetch_add(1, Ordering::Relaxed);
}

fn reject_warning(text: &str) {
    panic!("{text}");
}

fn origin(path: &str) -> Origin {
    Origin::new("grpc+tls://h:1", path, &FileVersion::ServerVersion(7))
}

/// Returns a block that repeats one byte, and its hash in a file of several blocks.
fn block(number: u64, byte: u8) -> (Vec<u8>, BlockHash) {
    let data = vec![byte; 5000];
    let hash = hash_block(&data, number, u64::MAX);
    (data, hash)
}

fn keep(cache: &RelayCache, path: &str, number: u64, byte: u8) -> bool {
    let (data, hash) = block(number, byte);
    cache.store_block(&origin(path), number, &data, &hash)
}

fn read(cache: &RelayCache, path: &str, number: u64) -> Option<Vec<u8>> {
    cache.read_block(number, &cache.block_hash(&origin(path), number)?)
}

fn paths_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(directory) {
        found.push(entry.unwrap().into_path());
    }
    found
}

#[test]
fn cached_blocks_survive_a_restart_and_are_readable_by_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let cache = RelayCache::open(&path, RELAY_CACHE_MIN_BYTES, reject_warning).unwrap();
    for number in 1..4 {
        assert!(keep(&cache, "f", number, number as u8));
    }
    assert!(matches!(
        RelayCache::open(&path, RELAY_CACHE_MIN_BYTES, reject_warning),
        Err(TransferError::Rejected { problem }) if problem.contains("another server")
    ));
    fs::write(path.join("new/77"), "half of a block").unwrap();
    let bytes = cache.used_bytes();
    // A child process that starts at this moment has inherited the lock file.
    let _inherited = cache._lock.try_clone().unwrap();
    drop(cache);
    let cache = RelayCache::open(&path, RELAY_CACHE_MIN_BYTES, reject_warning).unwrap();
    assert_eq!(cache.used_bytes(), bytes);
    for number in 1..4 {
        assert_eq!(read(&cache, "f", number), Some(block(number, number as u8).0));
    }
    assert!(read(&cache, "f", 4).is_none() && read(&cache, "g", 1).is_none());
    // Another version of the file, and the same file at another server, have other origins.
    let others = [
        Origin::new("grpc+tls://h:1", "f", &FileVersion::ServerVersion(8)),
        Origin::new("grpc+tls://h:2", "f", &FileVersion::ServerVersion(7)),
    ];
    assert!(others.iter().all(|other| cache.block_hash(other, 1).is_none()));
    for path in paths_below(&path) {
        let metadata = fs::metadata(&path).unwrap();
        let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{}", path.display());
    }
    assert!(fs::read_dir(path.join("new")).unwrap().next().is_none());
    let little = RelayCache::open(&directory.path().join("little"), 1 << 20, reject_warning);
    assert!(matches!(little, Err(TransferError::Rejected { problem }) if problem.contains("256M")));
}

#[test]
fn blocks_damaged_on_disk_are_not_returned() {
    let directory = tempfile::tempdir().unwrap();
    let cache = RelayCache::open(directory.path(), RELAY_CACHE_MIN_BYTES, reject_warning).unwrap();
    let damages: [fn(&mut Vec<u8>); 4] =
        [|bytes| bytes[4000] ^= 1, |bytes| bytes.truncate(4999), |bytes| bytes.push(0), |bytes| bytes.clear()];
    for (number, damage) in (1..).zip(damages) {
        assert!(keep(&cache, "f", number, 9));
        let path = cache.file_path(CacheKey::Block(block(number, 9).1));
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        assert!(read(&cache, "f", number).is_none() && !path.exists(), "{number}");
        assert!(!cache.contains_block(&block(number, 9).1));
        // The block is fetched and stored again.
        assert!(keep(&cache, "f", number, 9) && read(&cache, "f", number).is_some());
    }
    let path = cache.file_path(CacheKey::Origin(origin("f").0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[2 * RECORD_BYTES + 3] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(read(&cache, "f", 2).is_none() && read(&cache, "f", 1).is_some());
    fs::remove_file(cache.file_path(CacheKey::Block(block(1, 9).1))).unwrap();
    assert!(read(&cache, "f", 1).is_none());
}

#[test]
fn blocks_with_equal_content_are_stored_once_and_unused_ones_are_evicted() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open_cache(directory.path());
    *cache.lru.lock() = LruIndex::new(10 * 8192, MAX_FILES);
    assert!(keep(&cache, "f", 1, 1) && keep(&cache, "g", 1, 1));
    let blocks = || paths_below(&directory.path().join("blocks")).iter().filter(|path| path.is_file()).count();
    assert_eq!(blocks(), 1);
    for number in 2..30 {
        assert!(keep(&cache, "f", number, 1));
        assert!(read(&cache, "f", 2).is_some(), "it is wanted all the time");
    }
    assert!(cache.used_bytes() <= 10 * 8192 && read(&cache, "f", 3).is_none() && read(&cache, "f", 29).is_some());
    let files = paths_below(directory.path());
    let weights = files.iter().map(|path| fs::metadata(path).unwrap()).filter(fs::Metadata::is_file);
    assert!(weights.map(|metadata| disk_bytes(&metadata)).sum::<u64>() <= 10 * 8192);
    drop(cache);
    // After a restart, the order of use is the same.
    let cache = open_cache(directory.path());
    assert!(read(&cache, "f", 2).is_some() && read(&cache, "f", 29).is_some());
}

fn open_cache(directory: &Path) -> RelayCache {
    RelayCache::open(directory, RELAY_CACHE_MIN_BYTES, reject_warning).unwrap()
}

#[test]
fn a_cache_that_cannot_write_warns_and_is_bypassed() {
    let directory = tempfile::tempdir().unwrap();
    let cache = RelayCache { warn: count_warning, ..open_cache(directory.path()) };
    assert!(keep(&cache, "f", 1, 1));
    let before = cache.used_bytes();
    fs::remove_dir(directory.path().join("new")).unwrap();
    fs::write(directory.path().join("new"), "no directory").unwrap();
    for number in 2..5 {
        assert!(!keep(&cache, "f", number, 1));
    }
    assert_eq!(WARNING_COUNT.load(Ordering::Relaxed), 1, "it is told once in a while");
    assert_eq!(cache.used_bytes(), before);
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
        assert!(matches_block_hash(data, number, &hash), "{number} of {size}");
        assert!(!matches_block_hash(data, number + 1, &hash), "{number} of {size}");
        assert!(!matches_block_hash(&vec![3; BLOCK_BYTES as usize + 1], number, &hash));
        if let Some((_, rest)) = data.split_first() {
            assert!(!matches_block_hash(rest, number, &hash));
        }
    }
}
