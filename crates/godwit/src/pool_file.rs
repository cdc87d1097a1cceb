//! Reads the description of a pool of servers from a file, or from the addresses of a DNS name. An example of a file:
//!
//! ```toml
//! name = "storage"
//! policy = "connections"
//!
//! [[node]]
//! url = "grpc+tls://storage1.example:8815"
//!
//! [[node]]
//! url = "grpc+tls://storage2.example:8815"
//! weight = 2
//! capacity = "25gbit"
//! ```

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use godwit_cli::cli::parse_rate;
use godwit_cli::failure::Failure;
use godwit_flight::Address;
use godwit_flight::pool::{BalancingPolicy, Member};
use godwit_model::ErrorKind;
use godwit_transfer::Credentials;
use godwit_transfer::location::{Location, RemoteLocation};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum number of members of a pool. It is limited because each member sends health probes to all others.
const MAX_POOL_MEMBERS: usize = 256;

/// A pool of servers.
#[derive(Debug)]
pub struct PoolFile {
    /// Name of the pool, as in `godwit+pool://NAME`.
    pub name: String,
    /// Policy by which the load balancer chooses a member.
    pub policy: BalancingPolicy,
    /// The members of the pool, at least one.
    pub members: Vec<PoolMember>,
}

/// A server that is a member of a pool.
#[derive(Debug)]
pub struct PoolMember {
    /// URL of the server, without a path.
    pub remote: RemoteLocation,
    /// Weight for load balancing, relative to the other members.
    pub weight: u32,
    /// Network bandwidth in bytes per second, if configured.
    pub capacity: Option<f64>,
}

impl PoolFile {
    /// Reads and validates a pool file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display())))?;
        let file = PoolFileParser { path: path.to_owned(), text };
        let table = DeTable::parse(&file.text).map_err(|error| {
            let at = error.span().unwrap_or_default();
            file.parse_error(&at, &format!("not TOML: {}", error.message().replace('\n', ", ")))
        })?;
        file.parse_pool(table.get_ref())
    }

    /// Returns a pool whose only entry is a host name; each address of the name becomes a member.
    pub fn from_host_name(remote: &RemoteLocation) -> Self {
        let node = PoolMember {
            remote: RemoteLocation { is_pool: false, path: String::new(), ..remote.clone() },
            weight: 1,
            capacity: None,
        };
        Self { name: remote.host.clone(), policy: BalancingPolicy::RoundRobin, members: vec![node] }
    }

    /// Resolves the host names of the members, for a client with these credentials. A host name with several addresses
    /// becomes several members. The names are not resolved again later.
    pub fn resolve_members(&self, credentials: &Credentials) -> Result<Vec<Member>, Failure> {
        let mut members = Vec::new();
        for node in &self.members {
            let server = node.remote.server_uri();
            let unknown = |problem: String| {
                Failure::new(ErrorKind::Remote, format!("cannot find {server}: {problem}; check the name"))
            };
            let found = (node.remote.host.as_str(), node.remote.port).to_socket_addrs();
            let mut found: Vec<SocketAddr> = found.map_err(|error| unknown(error.to_string()))?.collect();
            found.sort();
            found.dedup();
            if found.is_empty() {
                return Err(unknown("no address has that name".to_owned()));
            }
            let access = credentials.server_access(&node.remote)?;
            let alone = found.len() == 1;
            for address in found {
                // If a name has several addresses, the location of each member contains its address. Certificates are
                // still verified against the name.
                let location = match alone {
                    true => server.clone(),
                    false => RemoteLocation { host: address.ip().to_string(), ..node.remote.clone() }.server_uri(),
                };
                let (weight, capacity_bytes_per_s) = (node.weight, node.capacity);
                members.push(Member {
                    location,
                    address: Address::Tcp(address),
                    security: access.clone(),
                    weight,
                    capacity_bytes_per_s,
                });
            }
        }
        Ok(members)
    }
}

struct PoolFileParser {
    path: PathBuf,
    text: String,
}

type TomlEntry<'t> = (&'t Spanned<std::borrow::Cow<'t, str>>, &'t Spanned<DeValue<'t>>);

impl PoolFileParser {
    fn parse_error(&self, span: &Range<usize>, problem: &str) -> Failure {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::new(ErrorKind::Usage, format!("{}, line {line}: {problem}", self.path.display()))
    }

    fn parse_pool(&self, table: &DeTable<'_>) -> Result<PoolFile, Failure> {
        let (mut name, mut policy, mut members) = (None, BalancingPolicy::Connections, Vec::new());
        for (key, value) in table {
            let span = value.span();
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("name", DeValue::String(text)) => name = Some(self.parse_name(&span, text)?),
                ("policy", DeValue::String(text)) => {
                    let names: Vec<&str> = BalancingPolicy::ALL.into_iter().map(BalancingPolicy::name).collect();
                    let problem = || format!("there is no policy {text:?}; the policies are {}", names.join(", "));
                    policy = BalancingPolicy::from_name(text).ok_or_else(|| self.parse_error(&span, &problem()))?;
                }
                ("node", DeValue::Array(list)) => {
                    for node in list {
                        members.push(self.parse_member(node)?);
                    }
                }
                (key, value) => {
                    let problem = format!(
                        "the key {key} of the pool cannot be of type {}; a pool has the keys name, policy and [[node]]",
                        value.type_str()
                    );
                    return Err(self.parse_error(&span, &problem));
                }
            }
        }
        let missing = |what: &str| Failure::new(ErrorKind::Usage, format!("{} has no {what}", self.path.display()));
        let name = name.ok_or_else(|| missing("name"))?;
        if members.is_empty() || members.len() > MAX_POOL_MEMBERS {
            return Err(missing(&format!("[[node]], of which a pool has 1 to {MAX_POOL_MEMBERS}")));
        }
        Ok(PoolFile { name, policy, members })
    }

    fn parse_name(&self, span: &Range<usize>, text: &str) -> Result<String, Failure> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !text.is_empty() && text.len() <= 200 && text.chars().all(fine) {
            return Ok(text.to_owned());
        }
        Err(self.parse_error(
            span,
            &format!("the name {text:?} must have letters, digits, '.', '_' and '-' only, because it is part of URLs"),
        ))
    }

    fn parse_member(&self, node: &Spanned<DeValue<'_>>) -> Result<PoolMember, Failure> {
        let DeValue::Table(table) = node.get_ref() else {
            return Err(
                self.parse_error(&node.span(), "a member is a table: [[node]], then url = \"grpc+tls://HOST:PORT\"")
            );
        };
        let (mut remote, mut weight, mut capacity) = (None, 1, None);
        for entry in table {
            self.parse_member_entry(entry, &mut remote, &mut weight, &mut capacity)?;
        }
        let remote = remote.ok_or_else(|| self.parse_error(&node.span(), "the key url of this member is missing"))?;
        Ok(PoolMember { remote, weight, capacity })
    }

    fn parse_member_entry(
        &self,
        (key, value): TomlEntry<'_>,
        remote: &mut Option<RemoteLocation>,
        weight: &mut u32,
        capacity: &mut Option<f64>,
    ) -> Result<(), Failure> {
        let span = value.span();
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("url", DeValue::String(text)) => {
                let place = Location::parse(text).map_err(|error| self.parse_error(&span, &error.to_string()))?;
                let Location::Remote(found) = place else {
                    return Err(
                        self.parse_error(&span, &format!("{text:?} is not a server URL; write grpc+tls://HOST:PORT"))
                    );
                };
                if found.is_pool || !found.path.is_empty() {
                    return Err(self.parse_error(&span, "a member is one server, without a path: grpc+tls://HOST:PORT"));
                }
                *remote = Some(found);
            }
            ("weight", DeValue::Integer(number)) => {
                let read = u32::from_str_radix(number.as_str(), number.radix()).ok();
                let fine = read.filter(|weight| (1..=1000).contains(weight));
                *weight = fine.ok_or_else(|| self.parse_error(&span, "a weight is a number from 1 to 1000"))?;
            }
            ("capacity", DeValue::String(text)) => {
                let bits = parse_rate(text).map_err(|problem| self.parse_error(&span, &problem))?;
                *capacity = Some((bits as f64 / 8.0).max(1.0));
            }
            (key, value) => {
                let problem = format!(
                    "the key {key} of the member cannot be of type {}; a member has the keys url, weight and capacity",
                    value.type_str()
                );
                return Err(self.parse_error(&span, &problem));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PoolFile, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.toml");
        std::fs::write(&path, text).unwrap();
        PoolFile::read(&path).map_err(|failure| failure.single_line())
    }

    #[test]
    fn a_pool_is_a_name_a_policy_and_members() {
        let pool = read(
            "name = \"s\"\npolicy = \"throughput\"\n[[node]]\nurl = \"grpc+tcp://127.0.0.1:7\"\n[[node]]\nurl = \"grpc+tcp://127.0.0.2:8\"\nweight = 3\ncapacity = \"8gbit\"\n",
        );
        let pool = pool.unwrap();
        assert_eq!((pool.name.as_str(), pool.policy, pool.members.len()), ("s", BalancingPolicy::Throughput, 2));
        let members = pool.resolve_members(&Credentials::default()).unwrap();
        let found: Vec<_> = members
            .iter()
            .map(|member| (member.location.as_str(), member.weight, member.capacity_bytes_per_s))
            .collect();
        assert_eq!(found, [("grpc+tcp://127.0.0.1:7", 1, None), ("grpc+tcp://127.0.0.2:8", 3, Some(1e9))]);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let node = "\n[[node]]\nurl = \"grpc+tcp://h:7\"\n";
        for (text, named) in [
            ("name = ".to_owned(), "line 1: not TOML"),
            (format!("name = \"a/b\"{node}"), "line 1: the name"),
            (format!("name = \"a\"\npolicy = \"best\"{node}"), "line 2: there is no policy"),
            ("name = \"a\"\n".to_owned(), "has no [[node]]"),
            (node.to_owned(), "has no name"),
            (format!("name = \"a\"\nnodes = 3{node}"), "line 2: the key nodes of the pool cannot be"),
            ("name = \"a\"\n[[node]]\nweight = 2\n".to_owned(), "key url of this member is missing"),
            ("name = \"a\"\n[[node]]\nurl = \"/data\"\n".to_owned(), "line 3: \"/data\" is not a server URL"),
            ("name = \"a\"\n[[node]]\nurl = \"grpc+tcp://h:7/x\"\n".to_owned(), "line 3: a member is one server"),
            ("name = \"a\"\n[[node]]\nurl = \"godwit+pool://h\"\n".to_owned(), "line 3: a member is one server"),
            (format!("name = \"a\"{node}weight = 0\n"), "line 4: a weight"),
            (format!("name = \"a\"{node}capacity = \"fast\"\n"), "line 4:"),
            (format!("name = \"a\"{node}size = 3\n"), "line 4: the key size of the member cannot be"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }
}
