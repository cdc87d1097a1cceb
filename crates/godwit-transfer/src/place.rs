//! Places that files are copied from and to: paths here, and URLs of servers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use crate::error::TransferError;

/// Port of a server where a URL names none; that of `godwit serve`.
const DEFAULT_PORT: u16 = 8815;

/// What names a pool in place of a server.
const POOL_SCHEME: &str = "godwit+pool";

/// The directory that a file of this machine is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Here(PathBuf),
    /// Below a server's root.
    There(Remote),
}

/// A path below a server's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name or address of the server's machine, as it stands in its certificate.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether it speaks TLS.
    pub encrypted: bool,
    /// The path below the root, without a `/` before it.
    pub path: String,
    /// Whether the host is the name of a pool of servers, each of which has all.
    pub pool: bool,
}

impl Place {
    /// Reads a path, or `grpc+tls://HOST[:PORT]/PATH`, `grpc+tcp://..` and `godwit+pool://NAME/PATH`.
    ///
    /// # Errors
    /// [`TransferError::Refused`] for other schemes and URLs that name no host.
    pub fn parse(text: &str) -> Result<Self, TransferError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(Self::Here(PathBuf::from(text))) };
        let encrypted = match scheme {
            "grpc+tls" | POOL_SCHEME => true,
            "grpc+tcp" | "grpc" => false,
            _ => {
                let problem =
                    format!("{text}: {scheme} is not spoken here; write grpc+tls://HOST:PORT/PATH, or grpc+tcp://");
                return Err(TransferError::refused(problem));
            }
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let wrong = || TransferError::refused(format!("{text} names no server; write {scheme}://HOST:PORT/PATH"));
        // Addresses of IPv6 stand in brackets (RFC 3986 §3.2.2).
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
        Ok(Self::There(Remote {
            host: host.to_owned(),
            port,
            encrypted,
            path: path.to_owned(),
            pool: scheme == POOL_SCHEME,
        }))
    }
}

impl Remote {
    /// The server without the path.
    pub fn server(&self) -> String {
        if self.pool {
            return format!("{POOL_SCHEME}://{}", self.host);
        }
        let scheme = if self.encrypted { "grpc+tls" } else { "grpc+tcp" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}", self.port)
    }

    /// Whether another path is on the same server.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.server() == other.server()
    }

    /// The server's address.
    ///
    /// # Errors
    /// Where its name is not known.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port).to_socket_addrs()?;
        found.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address has that name"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(path) => path.display().fmt(f),
            Self::There(remote) => write!(f, "{}/{}", remote.server(), remote.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_paths_or_urls() {
        assert_eq!(Place::parse("a/b").unwrap(), Place::Here("a/b".into()));
        let remote = |text: &str| match Place::parse(text).unwrap() {
            Place::There(remote) => (remote.host.clone(), remote.port, remote.encrypted, remote.path.clone()),
            Place::Here(path) => panic!("{path:?}"),
        };
        assert_eq!(remote("grpc+tls://h.org/a/b.bam"), ("h.org".into(), 8815, true, "a/b.bam".into()));
        assert_eq!(remote("grpc+tcp://127.0.0.1:9"), ("127.0.0.1".into(), 9, false, String::new()));
        assert_eq!(remote("grpc+tls://[::1]:77/x/"), ("::1".into(), 77, true, "x/".into()));
        assert_eq!(Place::parse("grpc+tls://[::1]:77/x").unwrap().to_string(), "grpc+tls://[::1]:77/x");
        assert!(matches!(Place::parse("godwit+pool://s/x").unwrap(), Place::There(remote) if remote.pool));
        assert_eq!(Place::parse("godwit+pool://s/x/y").unwrap().to_string(), "godwit+pool://s/x/y");
        for wrong in ["http://h/x", "grpc+tls:///x", "grpc+tls://h:port/x", "grpc+tls://[::1/x"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }
}
