//! Values that can be replaced while a server runs, such as identities and certificates.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// A handle to a replaceable value. All clones of a handle return the value that was set last.
///
/// # Examples
///
/// ```
/// use godwit_auth::ReloadHandle;
///
/// let handle = ReloadHandle::<String>::new("first certificate".to_owned());
/// let handle_of_server = handle.clone();
/// let in_use = handle_of_server.get();
/// handle.set("renewed certificate".to_owned());
/// assert_eq!(*handle_of_server.get(), "renewed certificate");
/// assert_eq!(*in_use, "first certificate");
/// ```
pub struct ReloadHandle<T>(Arc<RwLock<Arc<T>>>);

impl<T> ReloadHandle<T> {
    /// Creates a handle with an initial value.
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(Arc::new(RwLock::new(value.into())))
    }

    /// Returns the current value. A later [`Self::set`] does not change the returned value.
    pub fn get(&self) -> Arc<T> {
        self.0.read().clone()
    }

    /// Replaces the value for this handle and all its clones.
    pub fn set(&self, value: impl Into<Arc<T>>) {
        *self.0.write() = value.into();
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
