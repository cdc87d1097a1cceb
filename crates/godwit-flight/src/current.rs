//! What may become another while a server runs: identities, certificates.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Something as it is now. Clones are the same: what one is set to, all have.
pub struct Current<T>(Arc<RwLock<Arc<T>>>);

impl<T> Current<T> {
    /// Something to begin with.
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(Arc::new(RwLock::new(value.into())))
    }

    /// As it is now; whoever has it keeps it as it was.
    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it is another.
    pub fn set(&self, value: impl Into<Arc<T>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.into();
    }
}

impl<T> Clone for Current<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Current<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}
