//! Listings of directories that clients have begun to read.
//!
//! The cookie of an entry is a hash of its name, and entries have the order of their cookies. So a client can continue
//! at another pool member, and entries that are added or removed meanwhile do not move others.
//!
//! A listing has a limited number of entries, those with the lowest cookies after a given one. A larger directory is
//! read again for the next ones, so the memory of a listing does not depend on the size of the directory.

use std::collections::BinaryHeap;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs3_types::nfs3::nfsstat3;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::export_root::{ExportRoot, ListedEntry, Node, is_hidden};
use crate::file_handle::FileHandle;
use crate::keyed_lock::KeyedLock;

/// Cookies of the directory itself and of the directory that contains it.
pub(crate) const DOT_COOKIES: [(&str, u64); 2] = [(".", 1), ("..", 2)];
/// Bits of a hash that a cookie does not use, because some clients store cookies as signed numbers.
const UNUSED_HASH_BITS: u32 = 2;
/// Largest number of names with the same hash. Their cookies are the hash and the numbers after it.
const MAX_EQUAL_HASHES: u64 = 8;
/// Time for which a client may continue to read a listing that is remembered.
const LISTING_LIFETIME: Duration = Duration::from_secs(30);
/// Largest number of entries of a listing, about 100 bytes each.
const MAX_LISTED_ENTRIES: usize = 100_000;
/// Largest number of entries in all remembered listings, so that about ten clients can read large directories without
/// reading them again for each page.
const MAX_REMEMBERED_ENTRIES: usize = 1_000_000;
/// Largest number of remembered listings, which each call searches.
const MAX_REMEMBERED_LISTINGS: usize = 1000;
/// Largest number of directories that are read at the same time.
const MAX_SCANS: usize = 8;

/// Entries of a directory with their cookies, in the order of the cookies.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Cookie after which the entries follow.
    after: u64,
    entries: Vec<(u64, OsString)>,
    /// True if the directory has no further entries.
    pub(crate) is_end: bool,
}

/// The listings that clients have begun to read.
#[derive(Debug)]
pub(crate) struct Listings {
    /// Largest number of entries of a listing.
    max_entries: usize,
    /// The handle of the directory, the time when it was read, and the listing; the oldest is first.
    remembered: Mutex<Vec<(FileHandle, Instant, Arc<Listing>)>>,
    /// Held while a directory is read for a client with the address, so that a client that lists large directories, or
    /// directories of slow storage, does not delay the listings of others.
    scans: KeyedLock<IpAddr>,
}

/// Returns the hash of a name, which is its cookie unless an earlier name has the same hash.
fn name_hash(name: &OsStr) -> u64 {
    let first_cookie = DOT_COOKIES.len() as u64 + 1;
    first_cookie + (xxh3_64(name.as_bytes()) >> UNUSED_HASH_BITS)
}

/// Assigns cookies to names that are ordered by their hashes: two names with the same hash get different ones.
fn assign_cookies(entries: &mut [(u64, OsString)]) {
    for at in 1..entries.len() {
        entries[at].0 = entries[at].0.max(entries[at - 1].0 + 1);
    }
}

impl Listing {
    /// Reads the entries that follow a cookie, at most `max_entries`.
    fn read(
        listed: impl Iterator<Item = Result<ListedEntry, nfsstat3>>,
        after: u64,
        max_entries: usize,
    ) -> Result<Self, nfsstat3> {
        let (mut lowest, mut is_end) = (BinaryHeap::new(), true);
        // The cookie may be that of a name whose hash is lower.
        let first_hash = after.saturating_sub(MAX_EQUAL_HASHES);
        for entry in listed {
            let name = entry?.name;
            let hash = name_hash(&name);
            if hash < first_hash || is_hidden(&name) {
                continue;
            }
            lowest.push((hash, name));
            if lowest.len() > max_entries {
                lowest.pop();
                is_end = false;
            }
        }
        let mut entries = lowest.into_sorted_vec();
        assign_cookies(&mut entries);
        Ok(Self { after, entries, is_end })
    }

    /// Returns the entries after a cookie.
    pub(crate) fn entries_after(&self, cookie: u64) -> &[(u64, OsString)] {
        &self.entries[self.entries.partition_point(|(other, _)| *other <= cookie)..]
    }

    /// Returns the cookie of the last entry.
    pub(crate) fn last_cookie(&self) -> u64 {
        self.entries.last().map_or(self.after, |(cookie, _)| *cookie)
    }

    /// Reports whether the entry after a cookie, or the end of the directory, is in the listing.
    fn continues(&self, cookie: u64) -> bool {
        self.after <= cookie && (self.is_end || cookie < self.last_cookie())
    }
}

impl Default for Listings {
    fn default() -> Self {
        Self { max_entries: MAX_LISTED_ENTRIES, remembered: Mutex::default(), scans: KeyedLock::new(MAX_SCANS) }
    }
}

impl Listings {
    /// Returns a listing with the entries of a directory after a cookie, for the client with this address. The first page
    /// of a directory is always read anew.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn listing(
        &self,
        root: &ExportRoot,
        directory: &Node,
        cookie: u64,
        address: IpAddr,
    ) -> Result<Arc<Listing>, nfsstat3> {
        let requested = Instant::now();
        let is_valid = |listed: Instant| listed >= requested || (cookie != 0 && listed.elapsed() < LISTING_LIFETIME);
        let find = || {
            let remembered = self.remembered.lock();
            let found = remembered.iter().find(|(handle, listed, listing)| {
                *handle == directory.handle && is_valid(*listed) && listing.continues(cookie)
            });
            found.map(|(.., listing)| listing.clone())
        };
        if let Some(listing) = find() {
            return Ok(listing);
        }
        let _scan = self.scans.lock(address);
        // Another call may have read the directory meanwhile.
        if let Some(listing) = find() {
            return Ok(listing);
        }
        let listed = Instant::now();
        let listing = Arc::new(Listing::read(root.list(&directory.path)?, cookie, self.max_entries)?);
        self.remember(directory.handle.clone(), listed, listing.clone());
        Ok(listing)
    }

    /// Remembers a listing. If it is the beginning of a directory, the rest of the directory is read anew, too.
    fn remember(&self, directory: FileHandle, listed: Instant, listing: Arc<Listing>) {
        let mut remembered = self.remembered.lock();
        let is_replaced = |other: &Listing| listing.after == 0 || other.after == listing.after;
        remembered.retain(|(handle, listed, other)| {
            listed.elapsed() < LISTING_LIFETIME && (*handle != directory || !is_replaced(other))
        });
        let mut entries = listing.entries.len();
        let kept = remembered.iter().rev().take(MAX_REMEMBERED_LISTINGS - 1).take_while(|(.., other)| {
            entries += other.entries.len();
            entries <= MAX_REMEMBERED_ENTRIES
        });
        let forgotten = remembered.len() - kept.count();
        remembered.drain(..forgotten);
        remembered.push((directory, listed, listing));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::mpsc;

    use super::*;

    const ADDRESSES: [IpAddr; 2] =
        [IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2))];

    fn names(range: std::ops::Range<u32>) -> impl DoubleEndedIterator<Item = Result<ListedEntry, nfsstat3>> {
        range.map(|number| {
            let name = OsString::from(format!("f{number}"));
            Ok(ListedEntry { name, inode: number.into(), file_type: rustix::fs::FileType::RegularFile })
        })
    }

    #[test]
    fn cookies_depend_only_on_names() {
        let read = |listed: Vec<_>| Listing::read(listed.into_iter(), 0, usize::MAX).unwrap().entries;
        let (all, some) = (read(names(0..500).collect()), read(names(100..300).rev().collect()));
        assert!(some.iter().all(|entry| all.contains(entry)));
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(all.iter().all(|(cookie, _)| (3..1 << 63).contains(cookie)));
    }

    #[test]
    fn names_with_the_same_hash_have_different_cookies() {
        let mut entries = [7, 7, 7, 8, 20].map(|hash| (hash, OsString::new()));
        assign_cookies(&mut entries);
        assert_eq!(entries.map(|(cookie, _)| cookie), [7, 8, 9, 10, 20]);
    }

    #[test]
    fn a_directory_that_is_larger_than_a_listing_is_read_in_parts_without_gaps() {
        let whole = Listing::read(names(0..1000), 0, 1000).unwrap();
        assert!(whole.is_end);
        let (mut found, mut after) = (Vec::new(), 0);
        for part in 0.. {
            let listing = Listing::read(names(0..1000), after, 60).unwrap();
            assert!(listing.entries.len() <= 60);
            assert_eq!(listing.entries_after(after), &whole.entries_after(after)[..listing.entries_after(after).len()]);
            found.extend_from_slice(listing.entries_after(after));
            if listing.is_end {
                break;
            }
            assert!(listing.last_cookie() > after && part < 100);
            after = listing.last_cookie();
        }
        assert_eq!(found, whole.entries);
    }

    /// Returns a root with directories of three files each.
    fn root_with_directories(count: usize) -> (tempfile::TempDir, ExportRoot) {
        let directory = tempfile::tempdir().expect("it succeeds");
        for number in 0..count {
            let path = directory.path().join(number.to_string());
            fs::create_dir(&path).expect("it succeeds");
            ["a", "b", "c"].iter().for_each(|name| fs::write(path.join(name), "").expect("it succeeds"));
        }
        let root = ExportRoot::open(directory.path()).expect("it succeeds");
        (directory, root)
    }

    #[test]
    fn the_number_of_remembered_listings_and_entries_is_limited() {
        let (_directory, root) = root_with_directories(1);
        let node = root.node_at(Path::new("0")).unwrap();
        let listings = Listings { max_entries: 2, ..Listings::default() };
        let first = listings.listing(&root, &node, 0, ADDRESSES[0]).unwrap();
        assert_eq!((first.entries.len(), first.is_end), (2, false));
        let next = listings.listing(&root, &node, first.last_cookie(), ADDRESSES[0]).unwrap();
        assert_eq!((next.entries_after(first.last_cookie()).len(), next.is_end), (1, true));
        assert_eq!(listings.remembered.lock().len(), 2);
        // The beginning is read anew, and then the rest is, too.
        listings.listing(&root, &node, 0, ADDRESSES[0]).unwrap();
        assert_eq!(listings.remembered.lock().len(), 1);
        let handle = |inode: u64| {
            let bytes = [&[1][..], &inode.to_le_bytes(), &[0; 4]].concat();
            FileHandle::from_bytes(&bytes).unwrap()
        };
        for inode in 1..3000 {
            let empty = Listing { after: 0, entries: Vec::new(), is_end: true };
            listings.remember(handle(inode), Instant::now(), Arc::new(empty));
        }
        assert_eq!(listings.remembered.lock().len(), MAX_REMEMBERED_LISTINGS);
        let large = Listing { after: 0, entries: vec![(3, OsString::new()); MAX_REMEMBERED_ENTRIES / 2], is_end: true };
        let large = Arc::new(large);
        for inode in 3000..3010 {
            listings.remember(handle(inode), Instant::now(), large.clone());
        }
        assert_eq!(listings.remembered.lock().len(), 2);
    }

    #[test]
    fn a_client_whose_directory_is_read_slowly_delays_only_its_own_listings() {
        let (_directory, root) = root_with_directories(2);
        let node = |name: &str| root.node_at(Path::new(name)).expect("it exists");
        let listings = Listings::default();
        let slow = listings.scans.lock(ADDRESSES[0]);
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for (name, address) in ["0", "1"].into_iter().zip(ADDRESSES) {
                let (sender, listings, root, node) = (sender.clone(), &listings, &root, node(name));
                scope.spawn(move || {
                    listings.listing(root, &node, 0, address).unwrap();
                    sender.send(address).unwrap();
                });
            }
            let first = receiver.recv_timeout(Duration::from_secs(60));
            let is_waiting = receiver.try_recv().is_err();
            drop(slow);
            assert_eq!((first, is_waiting), (Ok(ADDRESSES[1]), true));
            assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(ADDRESSES[0]));
        });
    }
}
