//! The calls to Linux that the standard library does not offer.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel kill the child when the thread that starts it ends.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let arrange = move || {
        // SAFETY: prctl and getppid take no pointers and may be called between fork and exec (both are plain system
        // calls); nothing here allocates.
        let (result, parent_now) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong), libc::getppid()) };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // The parent may have died before the call above: nobody would send the signal any more.
        if parent_now as u32 != parent {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure only makes the two system calls above.
    unsafe {
        command.pre_exec(arrange);
    }
}

/// A signal for every process of a group.
#[derive(Clone, Copy)]
pub(crate) enum Signal {
    /// Please end.
    Terminate,
    /// End.
    Kill,
}

/// Sends it. The group's leader must be a child that was not waited for, or the number may be another group's by now.
pub(crate) fn signal_group(leader: u32, signal: Signal) {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    let Ok(group) = libc::pid_t::try_from(leader) else { return };
    // SAFETY: kill takes no pointers. It fails only where nobody is left.
    unsafe {
        libc::kill(-group, number);
    }
}

/// Whether the child has ended, which is left for a later wait to take note of: until then its number is its own.
pub(crate) fn has_ended(child: u32) -> std::io::Result<bool> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: an all-zero siginfo_t is a valid value of that plain C struct, and waitid writes to nothing else.
    unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_PID, child as libc::id_t, &mut found, options) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(found.si_pid() != 0)
    }
}

/// Addresses of the interfaces that are up, in the system's order: name and address.
pub(crate) fn interface_addresses() -> std::io::Result<Vec<(String, IpAddr)>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: getifaddrs fills `first` with a list that is its own and stays until freeifaddrs.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list. Its name is a C string; its address is null or a sockaddr of the size its
        // family says, which is read after looking at the family. Nothing is kept beyond the list's life.
        let (entry, name) = unsafe { (&*next, CStr::from_ptr((*next).ifa_name)) };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as libc::c_uint == 0 || entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: as above.
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
    // SAFETY: the list came from getifaddrs and is not used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_the_standard_library_finds() {
        let found = interface_addresses().unwrap();
        assert!(found.contains(&("lo".to_owned(), IpAddr::V4(Ipv4Addr::LOCALHOST))), "{found:?}");
        for (_, address) in found.iter().filter(|(_, address)| address.is_ipv4()) {
            std::net::TcpListener::bind((*address, 0)).expect("an address of this machine can be listened at");
        }
    }

    #[test]
    fn an_ended_child_is_seen_and_still_waited_for() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        assert!(!has_ended(child.id()).unwrap());
        signal_group(child.id(), Signal::Kill);
        while !has_ended(child.id()).unwrap() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!child.wait().unwrap().success());
        assert!(has_ended(child.id()).is_err());
    }
}
