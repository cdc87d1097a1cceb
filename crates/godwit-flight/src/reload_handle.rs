//! Values that are replaced while a server runs: identities, certificates.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A handle to the current value. Clones share it: a new value is seen by all.
pub struct ReloadHandle<T>(Arc<RwLock<Arc<T>>>);

impl<T> ReloadHandle<T> {
    /// Creates a handle with a first value.
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(Arc::new(RwLock::new(value.into())))
    }

    /// Returns the current value; it stays unchanged for its holder.
    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: impl Into<Arc<T>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.into();
    }
}

impl<T> Clone for ReloadHandle<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for ReloadHandle<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}
