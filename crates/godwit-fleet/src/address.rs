//! Chooses the IP address at which other hosts reach this host.
//!
//! A host may belong to several networks, for example one for files, one for administration and a fast one. The user
//! selects an address by the name of an interface, by an address range, or by a host: the address from which packets to
//! that host are sent.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::str::FromStr;

use crate::{FleetError, interface_addresses};

/// The rule by which an address of this host is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressChoice {
    /// Exactly this address, which must be an address of this host.
    Address(IpAddr),
    /// The first address of the network interface with this name, such as `eth0`.
    Interface(String),
    /// The first address in this range, such as `10.1.0.0/16`.
    Range {
        /// Any address in the range.
        base_address: IpAddr,
        /// Length of the network prefix, bits.
        prefix_bits: u8,
    },
    /// The source address of packets to this host, given by its name or address.
    RouteTo(String),
}

impl FromStr for AddressChoice {
    type Err = FleetError;

    /// Parses one of the forms `10.1.2.3`, `10.1.0.0/16`, `route:HOST`, or the name of an interface.
    fn from_str(text: &str) -> Result<Self, FleetError> {
        let wrong = |problem: &str| FleetError::invalid_value("the address option", text, problem);
        if let Some(host) = text.strip_prefix("route:") {
            return if host.is_empty() {
                Err(wrong("route: must be followed by a host"))
            } else {
                Ok(Self::RouteTo(host.to_owned()))
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if let Some((base, bits)) = text.split_once('/') {
            let base_address: IpAddr = base.parse().map_err(|_| wrong("expected an address before the slash"))?;
            let most = if base_address.is_ipv4() { 32 } else { 128 };
            let prefix_bits = bits.parse().ok().filter(|bits| *bits <= most);
            let prefix_bits = prefix_bits.ok_or_else(|| wrong("expected the number of prefix bits after the slash"))?;
            return Ok(Self::Range { base_address, prefix_bits });
        }
        // On Linux, the name of an interface has at most 15 bytes (IFNAMSIZ) and no white space.
        if text.is_empty() || text.len() > 15 || text.contains(char::is_whitespace) {
            return Err(wrong("write an address, ADDRESS/BITS, route:HOST or the name of an interface"));
        }
        Ok(Self::Interface(text.to_owned()))
    }
}

impl fmt::Display for AddressChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(formatter, "{address}"),
            Self::Interface(name) => write!(formatter, "{name}"),
            Self::Range { base_address, prefix_bits } => write!(formatter, "{base_address}/{prefix_bits}"),
            Self::RouteTo(host) => write!(formatter, "route:{host}"),
        }
    }
}

impl AddressChoice {
    /// Returns the chosen address of this host. If several match, IPv4 is preferred. Link-local IPv6 addresses are
    /// ignored, because they have no meaning on another host.
    ///
    /// # Errors
    /// [`FleetError::NoAddress`] with the available addresses if none matches; [`FleetError::Network`] if the
    /// interfaces cannot be listed, or the host of a `route:` has no address or no route.
    pub fn resolve(&self) -> Result<IpAddr, FleetError> {
        let failed = |source| FleetError::Network { action: "list the addresses of this host".to_owned(), source };
        match self {
            Self::RouteTo(host) => local_address_towards(host),
            _ => self.select_from(interface_addresses::list_interface_addresses().map_err(failed)?),
        }
    }

    /// Listens at the chosen address, on a free TCP port.
    ///
    /// # Errors
    /// The errors of [`AddressChoice::resolve`]; [`FleetError::Network`] if listening fails.
    pub fn bind(&self) -> Result<TcpListener, FleetError> {
        let address = self.resolve()?;
        let failed = |source| FleetError::Network { action: format!("listen at {address}"), source };
        TcpListener::bind((address, 0)).map_err(failed)
    }

    fn select_from(&self, mut available: Vec<(String, IpAddr)>) -> Result<IpAddr, FleetError> {
        available.retain(|(_, address)| !matches!(address, IpAddr::V6(address) if is_link_local(address)));
        available.sort_by_key(|(_, address)| address.is_ipv6());
        let fits = |name: &str, address: &IpAddr| match self {
            Self::Address(wanted) => address == wanted,
            Self::Interface(wanted) => name == wanted,
            Self::Range { base_address, prefix_bits } => is_in_range(address, base_address, *prefix_bits),
            Self::RouteTo(_) => false,
        };
        match available.iter().find(|(name, address)| fits(name, address)) {
            Some((_, address)) => Ok(*address),
            None => Err(FleetError::NoAddress { requested: self.to_string(), available }),
        }
    }
}

/// Returns all addresses of this host that other hosts may reach, IPv4 first. If there are none, returns a loopback
/// address.
///
/// # Errors
/// [`FleetError::Network`] if the network interfaces cannot be listed.
pub fn reachable_addresses() -> Result<Vec<IpAddr>, FleetError> {
    let failed = |source| FleetError::Network { action: "list the addresses of this host".to_owned(), source };
    let present = interface_addresses::list_interface_addresses().map_err(failed)?;
    let mut addresses: Vec<IpAddr> = present.into_iter().map(|(_, address)| address).collect();
    addresses.retain(|address| !matches!(address, IpAddr::V6(address) if is_link_local(address)));
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    let others = addresses.iter().filter(|address| !address.is_loopback()).count();
    addresses.truncate(others.max(1));
    Ok(addresses)
}

/// Returns the source address of packets to `host`, according to the routing table. Connecting a UDP socket does not
/// send a packet.
fn local_address_towards(host: &str) -> Result<IpAddr, FleetError> {
    let failed = |source| FleetError::Network { action: format!("find a route to {host}"), source };
    // The routing table does not depend on the port, so any port will do.
    let targets: Vec<SocketAddr> = (host, 9).to_socket_addrs().map_err(failed)?.collect();
    let mut last = std::io::Error::other("it has no address");
    for target in targets {
        let unspecified: IpAddr = if target.is_ipv4() { [0, 0, 0, 0].into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let local = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
            socket.connect(target)?;
            socket.local_addr()
        });
        match local {
            Ok(local) => return Ok(local.ip()),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn is_in_range(address: &IpAddr, base: &IpAddr, prefix_bits: u8) -> bool {
    match (address, base) {
        (IpAddr::V4(address), IpAddr::V4(base)) => {
            let differing = address.to_bits() ^ base.to_bits();
            differing.checked_shr(32 - u32::from(prefix_bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(base)) => {
            let differing = address.to_bits() ^ base.to_bits();
            differing.checked_shr(128 - u32::from(prefix_bits)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Returns whether an IPv6 address is in fe80::/10, the range of link-local addresses (RFC 4291 §2.4).
fn is_link_local(address: &Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<(String, IpAddr)> {
        [("lo", "127.0.0.1"), ("ib0", "fe80::1"), ("ib0", "fd00::7"), ("eth0", "10.1.2.3"), ("ib0", "10.9.2.3")]
            .map(|(name, address)| (name.to_owned(), address.parse().unwrap()))
            .into()
    }

    fn chosen(choice: &str) -> Option<String> {
        let choice: AddressChoice = choice.parse().unwrap();
        choice.select_from(machine()).ok().map(|address| address.to_string())
    }

    #[test]
    fn an_address_is_chosen_by_itself_its_interface_or_its_range() {
        assert_eq!(chosen("10.1.2.3").as_deref(), Some("10.1.2.3"));
        assert_eq!(chosen("eth0").as_deref(), Some("10.1.2.3"));
        assert_eq!(chosen("ib0").as_deref(), Some("10.9.2.3"), "IPv4 first");
        assert_eq!(chosen("10.9.0.0/16").as_deref(), Some("10.9.2.3"));
        assert_eq!(chosen("10.0.0.0/8").as_deref(), Some("10.1.2.3"));
        assert_eq!(chosen("10.9.2.3/32").as_deref(), Some("10.9.2.3"));
        assert_eq!(chosen("0.0.0.0/0").as_deref(), Some("127.0.0.1"));
        assert_eq!(chosen("fd00::/8").as_deref(), Some("fd00::7"));
        for absent in ["10.1.2.4", "eth1", "192.168.0.0/16", "fe80::/10"] {
            assert_eq!(chosen(absent), None, "{absent}");
        }
        let error = AddressChoice::Interface("eth1".into()).select_from(machine()).unwrap_err().to_string();
        assert!(error.contains("matches eth1; available: 127.0.0.1 (lo), 10.1.2.3 (eth0)"), "{error}");
    }

    #[test]
    fn what_is_no_choice_is_refused_and_every_choice_prints_as_it_is_written() {
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/", "x/8", "route:", "eth 0", "a-name-too-long-for-linux", "::/129"] {
            assert!(wrong.parse::<AddressChoice>().is_err(), "{wrong}");
        }
        for right in ["10.1.2.3", "fd00::7", "10.0.0.0/8", "::/0", "route:login.example", "bond0.12"] {
            assert_eq!(right.parse::<AddressChoice>().unwrap().to_string(), right);
        }
    }

    #[test]
    fn this_machine_has_a_way_to_itself_and_a_free_port() {
        for choice in ["lo", "127.0.0.0/8", "route:127.0.0.1", "route:localhost"] {
            let choice: AddressChoice = choice.parse().unwrap();
            let listener = choice.bind().unwrap();
            let address = listener.local_addr().unwrap();
            assert!(address.ip().is_loopback() && address.port() != 0, "{choice}: {address}");
            std::net::TcpStream::connect(address).unwrap();
        }
        assert!(AddressChoice::RouteTo("no.such.host.invalid".into()).resolve().is_err());
    }
}
