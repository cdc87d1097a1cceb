//! A lock for each key, such as the address of a client or the inode number of a file.

use std::collections::HashSet;
use std::hash::Hash;

use parking_lot::{Condvar, Mutex};

/// The locks of all keys, of which a limited number is held at the same time.
#[derive(Debug)]
pub(crate) struct KeyedLock<K> {
    max_held: usize,
    held: Mutex<HashSet<K>>,
    released: Condvar,
}

/// The lock of a key; it is released when the value is dropped.
pub(crate) struct KeyedGuard<'l, K: Copy + Eq + Hash> {
    locks: &'l KeyedLock<K>,
    key: K,
}

impl<K: Copy + Eq + Hash> KeyedLock<K> {
    /// Creates locks of which at most `max_held` are held at the same time.
    pub(crate) fn new(max_held: usize) -> Self {
        Self { max_held, held: Mutex::default(), released: Condvar::new() }
    }

    /// Waits until the lock of a key is free.
    pub(crate) fn lock(&self, key: K) -> KeyedGuard<'_, K> {
        let mut held = self.held.lock();
        while held.len() >= self.max_held || held.contains(&key) {
            self.released.wait(&mut held);
        }
        held.insert(key);
        KeyedGuard { locks: self, key }
    }
}

impl<K: Copy + Eq + Hash> Drop for KeyedGuard<'_, K> {
    fn drop(&mut self) {
        self.locks.held.lock().remove(&self.key);
        self.locks.released.notify_all();
    }
}
