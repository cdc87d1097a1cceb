//! Lists the addresses of this host by a call to libc, because the standard library has no function for this.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the name and the address of each interface that is up, in the order of the system.
pub(crate) fn list_interface_addresses() -> std::io::Result<Vec<(String, IpAddr)>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: getifaddrs stores a list that it owns in `first`, which is valid until freeifaddrs.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list. Its name is a C string. Its address is null or a sockaddr of the size
        // for its family, which is read only after the family was checked. No reference outlives the list.
        let (entry, name) = unsafe { (&*next, CStr::from_ptr((*next).ifa_name)) };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as libc::c_uint == 0 || entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: `next` is an entry of the list and its address is null or a valid sockaddr, as explained above.
        let address = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)))
                }
                libc::AF_INET6 => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr))
                }
                _ => continue,
            }
        };
        found.push((name.to_string_lossy().into_owned(), address));
    }
    // SAFETY: getifaddrs returned the list, and it is not used after this call.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_the_standard_library_finds() {
        let found = list_interface_addresses().unwrap();
        assert!(found.contains(&("lo".to_owned(), IpAddr::V4(Ipv4Addr::LOCALHOST))), "{found:?}");
        for (_, address) in found.iter().filter(|(_, address)| address.is_ipv4()) {
            std::net::TcpListener::bind((*address, 0)).expect("an address of this machine can be listened at");
        }
    }
}
