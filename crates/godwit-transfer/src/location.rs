//! Sources and destinations of copies: local paths and URLs of servers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use crate::error::TransferError;

/// Default port of a server, that of `godwit serve`.
const DEFAULT_PORT: u16 = 8815;

/// URI scheme of a pool.
const POOL_URI_SCHEME: &str = "godwit+pool";

/// Returns the directory of a local file.
pub(crate) fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The location of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path on this host.
    Local(PathBuf),
    /// A path below a server's root.
    Remote(RemoteLocation),
}

/// A path below a server's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLocation {
    /// Host name or address of the server, as in its certificate.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// The server uses TLS.
    pub uses_tls: bool,
    /// Path below the root, without a leading `/`.
    pub path: String,
    /// The host is the name of a pool, each member of which has all files.
    pub is_pool: bool,
}

impl Location {
    /// Parses a path, or `grpc+tls://HOST[:PORT]/PATH`, `grpc+tcp://..` and `godwit+pool://NAME/PATH`.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] for other schemes and for URLs without a host.
    pub fn parse(text: &str) -> Result<Self, TransferError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(Self::Local(PathBuf::from(text))) };
        let uses_tls = match scheme {
            "grpc+tls" | POOL_URI_SCHEME => true,
            "grpc+tcp" | "grpc" => false,
            _ => {
                let problem =
                    format!("{text}: {scheme} is not spoken here; write grpc+tls://HOST:PORT/PATH, or grpc+tcp://");
                return Err(TransferError::rejected(problem));
            }
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let wrong = || TransferError::rejected(format!("{text} names no server; write {scheme}://HOST:PORT/PATH"));
        // IPv6 addresses are in brackets (RFC 3986 §3.2.2).
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (host, port.strip_prefix(':'))
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(DEFAULT_PORT), str::parse).map_err(|_| wrong())?;
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self::Remote(RemoteLocation {
            host: host.to_owned(),
            port,
            uses_tls,
            path: path.to_owned(),
            is_pool: scheme == POOL_URI_SCHEME,
        }))
    }
}

impl RemoteLocation {
    /// Returns the URI of the server, without the path.
    pub fn server_uri(&self) -> String {
        if self.is_pool {
            return format!("{POOL_URI_SCHEME}://{}", self.host);
        }
        let scheme = if self.uses_tls { "grpc+tls" } else { "grpc+tcp" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}", self.port)
    }

    /// Reports whether another path is on the same server.
    pub fn is_on_same_server(&self, other: &Self) -> bool {
        self.server_uri() == other.server_uri()
    }

    /// Resolves the address of the server.
    ///
    /// # Errors
    /// [`io::Error`] if the name cannot be resolved.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port).to_socket_addrs()?;
        found.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address has that name"))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Remote(remote) => write!(f, "{}/{}", remote.server_uri(), remote.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_paths_or_urls() {
        assert_eq!(Location::parse("a/b").unwrap(), Location::Local("a/b".into()));
        let remote = |text: &str| match Location::parse(text).unwrap() {
            Location::Remote(remote) => (remote.host.clone(), remote.port, remote.uses_tls, remote.path.clone()),
            Location::Local(path) => panic!("{path:?}"),
        };
        assert_eq!(remote("grpc+tls://h.org/a/b.bam"), ("h.org".into(), 8815, true, "a/b.bam".into()));
        assert_eq!(remote("grpc+tcp://127.0.0.1:9"), ("127.0.0.1".into(), 9, false, String::new()));
        assert_eq!(remote("grpc+tls://[::1]:77/x/"), ("::1".into(), 77, true, "x/".into()));
        assert_eq!(Location::parse("grpc+tls://[::1]:77/x").unwrap().to_string(), "grpc+tls://[::1]:77/x");
        assert!(matches!(Location::parse("godwit+pool://s/x").unwrap(), Location::Remote(remote) if remote.is_pool));
        assert_eq!(Location::parse("godwit+pool://s/x/y").unwrap().to_string(), "godwit+pool://s/x/y");
        for wrong in ["http://h/x", "grpc+tls:///x", "grpc+tls://h:port/x", "grpc+tls://[::1/x"] {
            assert!(Location::parse(wrong).is_err(), "{wrong}");
        }
    }
}
