//! Hosts of servers in network namespaces, connected to the namespace of their clients, and the ways in which a client loses
//! such a host.

use crate::network_namespace::NetworkNamespace;
use crate::processes::send_signal;

/// Hosts with one network interface each, `eth0`. The namespace of the clients has the bridge between all.
#[derive(Debug)]
pub struct HostNetwork {
    /// The namespace of the clients.
    pub clients: NetworkNamespace,
    /// The hosts of the servers.
    pub hosts: Vec<NetworkNamespace>,
}

impl HostNetwork {
    /// Creates `host_count` hosts, and the namespace of the clients.
    ///
    /// # Panics
    /// When that fails.
    pub fn create(host_count: usize) -> Self {
        let clients = NetworkNamespace::create("clients");
        clients.ip("link add bridge type bridge");
        clients.ip("address add 192.0.2.1/24 dev bridge");
        clients.ip("link set bridge up");
        let hosts = (0..host_count).map(|host| {
            let namespace = NetworkNamespace::create(&format!("storage{}", host + 1));
            let peer = clients.name();
            namespace.ip(&format!("link add eth0 type veth peer name port{host} netns {peer}"));
            namespace.ip(&format!("address add {}/24 dev eth0", Self::address(host)));
            namespace.ip("link set eth0 up");
            clients.ip(&format!("link set port{host} master bridge up"));
            namespace
        });
        let hosts = hosts.collect();
        Self { clients, hosts }
    }

    /// Reports whether this process may create such a network and limit the rates of its links. Needs ip(8).
    pub fn is_permitted() -> bool {
        if !NetworkNamespace::are_permitted() {
            return false;
        }
        let probe = NetworkNamespace::create("probe");
        let run = |program: &str, words: &str| {
            let output = probe.command(program).args(words.split_whitespace()).output();
            output.is_ok_and(|output| output.status.success())
        };
        run("ip", "link add bridge type bridge")
            && run("ip", "link add eth0 type veth peer name port0")
            && run("tc", "qdisc add dev eth0 root tbf rate 1mbit burst 32k latency 100ms")
    }

    /// Returns the address of a host.
    pub fn address(host: usize) -> String {
        format!("192.0.2.{}", 11 + host)
    }

    /// Limits the rate of the link of each host, in each direction, bytes a second.
    ///
    /// # Panics
    /// When that fails.
    pub fn limit_links(&self, bytes_per_s: u64) {
        for (host, namespace) in self.hosts.iter().enumerate() {
            namespace.limit_rate("eth0", Some(bytes_per_s));
            self.clients.limit_rate(&format!("port{host}"), Some(bytes_per_s));
        }
    }
}

/// A way in which clients lose the server of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLoss {
    /// The server is killed.
    Killed,
    /// The server is suspended.
    Suspended,
    /// The link of the host is down.
    CutOff,
    /// The host has a link, but its packets reach no other host.
    Isolated,
}

impl HostLoss {
    /// Lets clients lose the server, whose process id is given. Losses of a link need a network.
    ///
    /// # Panics
    /// When that fails.
    pub fn cause(self, server: u32, network: Option<&HostNetwork>, host: usize) {
        match self {
            Self::Killed => send_signal(server, libc::SIGKILL),
            Self::Suspended => send_signal(server, libc::SIGSTOP),
            Self::CutOff => set_port(network, host, "down"),
            Self::Isolated => set_port(network, host, "nomaster"),
        }
    }

    /// Ends the loss. The caller starts a killed server again.
    ///
    /// # Panics
    /// When that fails.
    pub fn end(self, server: u32, network: Option<&HostNetwork>, host: usize) {
        match self {
            Self::Killed => {}
            Self::Suspended => send_signal(server, libc::SIGCONT),
            Self::CutOff => set_port(network, host, "up"),
            Self::Isolated => set_port(network, host, "master bridge"),
        }
    }
}

fn set_port(network: Option<&HostNetwork>, host: usize, change: &str) {
    let network = network.expect("only hosts with a network lose their link");
    network.clients.ip(&format!("link set port{host} {change}"));
}
