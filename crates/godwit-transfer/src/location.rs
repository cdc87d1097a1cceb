//! Sources and destinations of copies: paths on this host, and URLs of paths on servers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use crate::error::TransferError;

/// Default port of a server, as for `godwit serve`.
const DEFAULT_PORT: u16 = 8815;

/// URI scheme of locations in a pool of servers.
const POOL_URI_SCHEME: &str = "godwit+pool";

/// The location of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path on this host.
    Local(PathBuf),
    /// A path on a server or in a pool.
    Remote(RemoteLocation),
}

/// A path below the root of a server or pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLocation {
    /// Host name or address of the server, as in its certificate; or the name of a pool.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// True if connections to the server use TLS.
    pub uses_tls: bool,
    /// Path below the root of the server, without a leading `/`.
    pub path: String,
    /// True if `host` is the name of a pool, in which each server has all files.
    pub is_pool: bool,
}

impl Location {
    /// Parses a path on this host, or a URL: `grpc+tls://HOST[:PORT]/PATH`, `grpc+tcp://HOST[:PORT]/PATH` or
    /// `godwit+pool://NAME/PATH`.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if the scheme is not supported, or if the URL does not name a host and a valid port.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_transfer::TransferError;
    /// use godwit_transfer::location::Location;
    ///
    /// let location = Location::parse("grpc+tls://data.example.org/run7/sample.bam")?;
    /// let Location::Remote(remote) = location else { unreachable!() };
    /// assert_eq!((remote.host.as_str(), remote.port), ("data.example.org", 8815));
    /// assert_eq!(remote.path, "run7/sample.bam");
    /// assert!(remote.uses_tls && !remote.is_pool);
    ///
    /// assert_eq!(Location::parse("run7/sample.bam")?, Location::Local("run7/sample.bam".into()));
    /// assert!(matches!(Location::parse("ftp://data.example.org/a.bam"), Err(TransferError::Rejected { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse(text: &str) -> Result<Self, TransferError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(Self::Local(PathBuf::from(text))) };
        let uses_tls = match scheme {
            "grpc+tls" | POOL_URI_SCHEME => true,
            "grpc+tcp" | "grpc" => false,
            _ => {
                let problem = format!(
                    "{text}: the scheme {scheme} is not supported; write grpc+tls://HOST:PORT/PATH, or grpc+tcp://"
                );
                return Err(TransferError::rejected(problem));
            }
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let wrong =
            || TransferError::rejected(format!("{text} does not name a server; write {scheme}://HOST:PORT/PATH"));
        // In a URL, an IPv6 address is in brackets (RFC 3986 §3.2.2).
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
    /// Returns the URI of the server or pool, without the path.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_transfer::location::Location;
    ///
    /// let Location::Remote(remote) = Location::parse("grpc+tls://[2001:db8::1]/run7")? else { unreachable!() };
    /// assert_eq!(remote.server_uri(), "grpc+tls://[2001:db8::1]:8815");
    ///
    /// let Location::Remote(remote) = Location::parse("godwit+pool://archive/run7")? else { unreachable!() };
    /// assert_eq!(remote.server_uri(), "godwit+pool://archive");
    /// # Ok(())
    /// # }
    /// ```
    pub fn server_uri(&self) -> String {
        if self.is_pool {
            return format!("{POOL_URI_SCHEME}://{}", self.host);
        }
        let scheme = if self.uses_tls { "grpc+tls" } else { "grpc+tcp" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}", self.port)
    }

    /// Reports whether another location is on the same server or in the same pool.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_transfer::location::RemoteLocation;
    ///
    /// let (host, path) = ("data.example.org".to_owned(), "run7/a.bam".to_owned());
    /// let a = RemoteLocation { host, port: 8815, uses_tls: true, path, is_pool: false };
    /// let b = RemoteLocation { path: "run7/b.bam".to_owned(), ..a.clone() };
    /// assert!(a.is_on_same_server(&b));
    /// assert!(!a.is_on_same_server(&RemoteLocation { port: 8816, ..b }));
    /// ```
    pub fn is_on_same_server(&self, other: &Self) -> bool {
        self.server_uri() == other.server_uri()
    }

    /// Resolves the host name to the address of the server.
    ///
    /// # Errors
    /// [`io::Error`] if the host name cannot be resolved.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_transfer::location::Location;
    ///
    /// let Location::Remote(remote) = Location::parse("grpc+tcp://127.0.0.1:9000/run7")? else { unreachable!() };
    /// assert_eq!(remote.resolve()?, "127.0.0.1:9000".parse()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port).to_socket_addrs()?;
        found.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host name has no address"))
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
