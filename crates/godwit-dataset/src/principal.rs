//! Principals: the users and programs that make calls, with their rights.

use std::any::Any;
use std::sync::Arc;

use prost::Message;

use crate::dataset::DatasetAccessList;

/// The user or program that makes a call, with its rights.
#[derive(Clone, Debug, Default)]
pub struct Principal {
    name: Option<Arc<str>>,
    scope: Option<Arc<str>>,
    accesses: DatasetAccessList,
    visas: Arc<[Visa]>,
    extensions: http::Extensions,
}

/// Two principals are equal if name and scope are equal, even on different connections.
impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.scope == other.scope
    }
}

impl Eq for Principal {}

impl Principal {
    /// Returns the name of the principal; empty if authentication is disabled or all clients share one token.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Creates a principal of this name without limits of scope.
    pub fn named(name: &str) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Creates a principal with a scope: it may perform one operation only, which another principal delegated by a
    /// token.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_dataset::Principal;
    ///
    /// let alice = Principal::named("alice");
    /// let delegate = Principal::with_scope("alice", "read a.bam");
    /// assert_eq!((delegate.name(), delegate.scope()), ("alice", Some("read a.bam")));
    /// assert_eq!(alice.scope(), None);
    /// assert_ne!(alice, delegate);
    /// ```
    pub fn with_scope(name: &str, purpose: &str) -> Self {
        Self { name: Some(name.into()), scope: Some(purpose.into()), ..Self::default() }
    }

    /// Returns the only operation that this principal may perform, as the issuer of the token described it; `None` if
    /// the principal is not limited.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Returns the visas of the principal (GA4GH Passport).
    pub fn visas(&self) -> &[Visa] {
        &self.visas
    }

    /// Returns the principal with these visas instead of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_dataset::{Principal, Visa};
    ///
    /// let visa = Visa {
    ///     issuer: "https://visas.example.org".to_owned(),
    ///     kind: "ControlledAccessGrants".to_owned(),
    ///     value: "https://ega-archive.org/datasets/EGAD1".to_owned(),
    ///     ..Visa::default()
    /// };
    /// let principal = Principal::named("alice").with_visas(vec![visa.clone()]);
    /// assert_eq!(principal.visas(), [visa]);
    /// ```
    #[must_use]
    pub fn with_visas(self, visas: Vec<Visa>) -> Self {
        Self { visas: visas.into(), ..self }
    }

    /// Returns the list of datasets that the call opened, to which the authorizer adds entries.
    pub fn accesses(&self) -> &DatasetAccessList {
        &self.accesses
    }

    /// Returns the principal with a value that the transport attaches to the call, such as its connection. A principal
    /// has at most one value of each type.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_dataset::Principal;
    ///
    /// #[derive(Clone, Debug, PartialEq)]
    /// struct ConnectionNumber(u32);
    ///
    /// let principal = Principal::named("alice").with_extension(ConnectionNumber(7));
    /// assert_eq!(principal.extension(), Some(&ConnectionNumber(7)));
    /// assert_eq!(principal.extension::<String>(), None);
    /// ```
    #[must_use]
    pub fn with_extension(mut self, value: impl Any + Clone + Send + Sync) -> Self {
        self.extensions.insert(value);
        self
    }

    /// Returns the value of a type that the transport attached to the call; `None` if there is none.
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.extensions.get()
    }
}

/// The reason why a request has no authenticated principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The request contains no valid credential.
    #[error("{problem}")]
    Unauthenticated {
        /// The problem, as shown to users.
        problem: String,
    },
    /// The credential is not valid for this request.
    #[error("{problem}")]
    Forbidden {
        /// The problem, as shown to users.
        problem: String,
    },
}

impl AuthError {
    /// Creates the error of a request without a valid credential.
    pub fn unauthenticated(problem: impl Into<String>) -> Self {
        Self::Unauthenticated { problem: problem.into() }
    }

    /// Creates the error of a request with a credential for another purpose.
    pub fn forbidden(problem: impl Into<String>) -> Self {
        Self::Forbidden { problem: problem.into() }
    }
}

/// The content of a visa that was verified.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Visa {
    /// The issuer of the visa, from the claim `iss`.
    #[prost(string, tag = "1")]
    pub issuer: String,
    /// The type of the visa, such as `ControlledAccessGrants`.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// The value of the visa, such as the URL of a dataset.
    #[prost(string, tag = "3")]
    pub value: String,
    /// The organization that asserts the visa, as a URL.
    #[prost(string, tag = "4")]
    pub source: String,
    /// The role within that organization that granted the visa, such as `dac` (data access committee).
    #[prost(string, optional, tag = "5")]
    pub by: Option<String>,
    /// Expiry time of the visa, seconds since 1970.
    #[prost(uint64, tag = "6")]
    pub expires_unix_s: u64,
}
