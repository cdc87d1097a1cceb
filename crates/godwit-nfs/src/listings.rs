//! Listings of directories that clients have begun to read.
//!
//! The cookie of an entry is a hash of its name, and entries have the order of their cookies. So a client can continue
//! at another pool member, and entries that are added or removed meanwhile do not move others.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs3_types::nfs3::nfsstat3;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::export_root::{ExportRoot, Node, is_hidden};
use crate::file_handle::FileHandle;

/// Cookies of the directory itself and of the directory that contains it.
pub(crate) const DOT_COOKIES: [(&str, u64); 2] = [(".", 1), ("..", 2)];
/// Bits of a hash that a cookie does not use, because some clients store cookies as signed numbers.
const UNUSED_HASH_BITS: u32 = 2;
/// Time for which a client may continue to read a listing that is remembered.
const LISTING_LIFETIME: Duration = Duration::from_secs(30);
/// Largest number of entries in all remembered listings, about 100 bytes each; one larger listing is remembered alone.
const MAX_REMEMBERED_ENTRIES: usize = 500_000;

/// The names in a directory, each with its cookie, in the order of the cookies.
pub(crate) type Listing = Arc<Vec<(u64, OsString)>>;

/// The listings that clients have begun to read.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// The handle of the directory, the time when it was listed, and its names.
    remembered: Mutex<Vec<(FileHandle, Instant, Listing)>>,
    /// Locked while a directory is listed, so that calls at the same time use the memory of one listing.
    listing_lock: Mutex<()>,
}

/// Assigns cookies to names.
fn assign_cookies(names: impl IntoIterator<Item = OsString>) -> Vec<(u64, OsString)> {
    let first_cookie = DOT_COOKIES.len() as u64 + 1;
    let hash = |name: &OsString| first_cookie + (xxh3_64(name.as_bytes()) >> UNUSED_HASH_BITS);
    let mut listing: Vec<(u64, OsString)> = names.into_iter().map(|name| (hash(&name), name)).collect();
    listing.sort_unstable();
    // Two names with the same hash get different cookies.
    for at in 1..listing.len() {
        listing[at].0 = listing[at].0.max(listing[at - 1].0 + 1);
    }
    listing
}

impl Listings {
    /// Returns the listing of a directory. The first page of a directory is always listed anew.
    pub(crate) fn listing(&self, root: &ExportRoot, directory: &Node, cookie: u64) -> Result<Listing, nfsstat3> {
        let requested = Instant::now();
        let is_valid = |listed: Instant| listed >= requested || (cookie != 0 && listed.elapsed() < LISTING_LIFETIME);
        let find = || {
            let remembered = self.remembered.lock();
            let mut found = remembered.iter().filter(|(handle, ..)| *handle == directory.handle);
            found.next().filter(|(_, listed, _)| is_valid(*listed)).map(|(.., listing)| listing.clone())
        };
        if let Some(listing) = find() {
            return Ok(listing);
        }
        let _lock = self.listing_lock.lock();
        // Another call may have listed the directory meanwhile.
        if let Some(listing) = find() {
            return Ok(listing);
        }
        let listed = Instant::now();
        let names = root.list(&directory.path)?.into_iter().filter(|entry| !is_hidden(&entry.name));
        let listing = Arc::new(assign_cookies(names.map(|entry| entry.name)));
        let mut remembered = self.remembered.lock();
        remembered.retain(|(handle, listed, _)| *handle != directory.handle && listed.elapsed() < LISTING_LIFETIME);
        let mut entries = listing.len();
        // The oldest listings are first.
        let kept = remembered.iter().rev().take_while(|(_, _, other)| {
            entries += other.len();
            entries <= MAX_REMEMBERED_ENTRIES
        });
        let forgotten = remembered.len() - kept.count();
        remembered.drain(..forgotten);
        remembered.push((directory.handle.clone(), listed, listing.clone()));
        Ok(listing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_depend_only_on_names() {
        let names = |range: std::ops::Range<u32>| range.map(|number| OsString::from(format!("f{number}")));
        let (all, some) = (assign_cookies(names(0..500)), assign_cookies(names(100..300).rev()));
        assert!(some.iter().all(|entry| all.contains(entry)));
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(all.iter().all(|(cookie, _)| (3..1 << 63).contains(cookie)));
    }
}
