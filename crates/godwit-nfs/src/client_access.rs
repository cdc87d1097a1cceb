//! Identification of clients by their addresses, and authorization of their calls by the rules of the server.
//!
//! The rules are those of other protocols. Names of directories have no rules of their own: a principal sees a directory
//! if it may read or write files in it. A file of which only some rows may be read is visible, but cannot be read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_dataset::{ANY_FILE, Authorizer, FileAccess, FileAuthorization, Principal};
use godwit_transfer_session::path_text::path_to_text;
use nfs3_types::nfs3::nfsstat3;
use parking_lot::Mutex;

use crate::export_root::{ExportRoot, Node, is_hidden};

/// Time for which decisions of the rules are remembered. A change of the rules takes effect after it.
const DECISION_LIFETIME: Duration = Duration::from_secs(1);
/// Largest number of remembered decisions.
const MAX_DECISIONS: usize = 50_000;

/// A function that returns the principal of a client with this address; `None` if no client may have it.
pub type ClientIdentifier = Box<dyn Fn(IpAddr) -> Option<Principal> + Send + Sync>;

/// A client during one call.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) principal: Principal,
    pub(crate) address: IpAddr,
}

/// Name of a principal, path, and kind of access.
type DecisionKey = (String, String, bool);

/// The decision which clients may connect, and what they may do.
pub struct ClientAccess {
    identify: ClientIdentifier,
    rules: Option<Arc<dyn Authorizer>>,
    /// True if clients may change files.
    is_writable: bool,
    decisions: Mutex<HashMap<DecisionKey, (FileAuthorization, Instant)>>,
}

impl fmt::Debug for ClientAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClientAccess").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl ClientAccess {
    /// Creates the access of clients that `identify` accepts. Without `rules`, they may access all files.
    pub fn new(identify: ClientIdentifier, rules: Option<Arc<dyn Authorizer>>, is_writable: bool) -> Self {
        Self { identify, rules, is_writable, decisions: Mutex::default() }
    }

    pub(crate) fn identify(&self, address: IpAddr) -> Option<Client> {
        // An IPv4 client of a socket for IPv6 has its IPv4 address.
        let address = address.to_canonical();
        (self.identify)(address).map(|principal| Client { principal, address })
    }

    /// Returns the decision about a file.
    fn decide(&self, client: &Client, path: &str, access: FileAccess) -> FileAuthorization {
        let Some(rules) = &self.rules else { return FileAuthorization::Allowed(String::new()) };
        let key = (client.principal.name().to_owned(), path.to_owned(), access == FileAccess::Write);
        if let Some((decision, made)) = self.decisions.lock().get(&key)
            && made.elapsed() < DECISION_LIFETIME
        {
            return decision.clone();
        }
        let decision = rules.authorize_file(&client.principal, path, access);
        let mut decisions = self.decisions.lock();
        if decisions.len() >= MAX_DECISIONS {
            decisions.clear();
        }
        decisions.insert(key, (decision.clone(), Instant::now()));
        decision
    }

    fn may(&self, client: &Client, path: &str, access: FileAccess) -> bool {
        self.decide(client, path, access) != FileAuthorization::Hidden
    }

    /// Reports whether a client may know that a path exists.
    pub(crate) fn sees(&self, client: &Client, root: &ExportRoot, path: &Path, is_directory: bool) -> bool {
        let text = path_to_text(path);
        if self.rules.is_none() || text.is_empty() {
            return true;
        }
        if !is_directory {
            return self.may(client, &text, FileAccess::Read);
        }
        let any = format!("{text}/{ANY_FILE}");
        if self.may(client, &any, FileAccess::Read) || self.may(client, &any, FileAccess::Write) {
            return true;
        }
        // Entries that cannot be read are not visible.
        let listed = root.list(path).into_iter().flatten().map_while(Result::ok);
        // The listing is closed before further directories are listed, so that one directory is open at a time.
        let mut directories = Vec::new();
        for entry in listed.filter(|entry| !is_hidden(&entry.name) && entry.may_be_served()) {
            let path = path.join(&entry.name);
            if entry.file_type == rustix::fs::FileType::Directory {
                directories.push(path);
            } else if self.sees(client, root, &path, false) {
                return true;
            }
        }
        directories.iter().any(|directory| self.sees(client, root, directory, true))
    }

    /// Authorizes access to a file, and returns the name of the rule; it is empty without rules.
    ///
    /// # Errors
    /// `STALE` if the file does not exist for the client, `ACCES` if the access is denied, `ROFS` if the server is
    /// read-only.
    pub(crate) fn authorize(&self, client: &Client, path: &Path, access: FileAccess) -> Result<String, nfsstat3> {
        if access == FileAccess::Write && !self.is_writable {
            return Err(nfsstat3::NFS3ERR_ROFS);
        }
        match self.decide(client, &path_to_text(path), access) {
            FileAuthorization::Allowed(rule) => Ok(rule),
            FileAuthorization::Hidden if access == FileAccess::Read => Err(nfsstat3::NFS3ERR_STALE),
            FileAuthorization::Hidden | FileAuthorization::Denied { .. } => Err(nfsstat3::NFS3ERR_ACCES),
        }
    }

    /// Authorizes a change of a file, or of a directory itself.
    ///
    /// # Errors
    /// Those of [`Self::authorize`].
    pub(crate) fn authorize_change(
        &self,
        client: &Client,
        path: &Path,
        is_directory: bool,
    ) -> Result<String, nfsstat3> {
        let any;
        let path = if is_directory {
            any = path.join(ANY_FILE);
            &any
        } else {
            path
        };
        self.authorize(client, path, FileAccess::Write)
    }

    /// Authorizes a rename. With rules, every file that gets another path must be readable and writable at its present
    /// path, and writable at its new path.
    ///
    /// # Errors
    /// Those of [`Self::authorize`].
    pub(crate) fn authorize_rename(
        &self,
        client: &Client,
        root: &ExportRoot,
        node: &Node,
        destination: &Path,
    ) -> Result<(), nfsstat3> {
        if self.rules.is_none() || !node.is_directory() {
            self.authorize(client, &node.path, FileAccess::Read)?;
            self.authorize(client, &node.path, FileAccess::Write)?;
            return self.authorize(client, destination, FileAccess::Write).map(drop);
        }
        for (path, access) in [
            (&node.path, FileAccess::Read),
            (&node.path, FileAccess::Write),
            (&destination.to_owned(), FileAccess::Write),
        ] {
            self.authorize(client, &path.join(ANY_FILE), access)?;
        }
        let authorize_child = |name: &OsStr| {
            let child = root.child(node, name)?;
            self.authorize_rename(client, root, &child, &destination.join(name))
        };
        // The listing is closed before further directories are listed, so that one directory is open at a time.
        let mut directories = Vec::new();
        for entry in root.list(&node.path)? {
            let entry = entry?;
            match entry.may_be_directory() {
                true => directories.push(entry.name),
                false => authorize_child(&entry.name)?,
            }
        }
        directories.iter().try_for_each(|name| authorize_child(name))
    }
}
